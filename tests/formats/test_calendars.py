"""Days before 15 October 1582 are read as their writer showed them, in predicates too."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql import SparkSession

from acid_platform import CompactionRefused
from acid_platform.formats.orc import open_orc
from acid_platform.formats.orc.dump import events
from acid_platform.formats.orc.orc_file import replace_footer
from acid_platform.formats.orc.tail import is_proleptic
from acid_platform.formats.orc.writer_clocks import as_written, from_julian, to_be_stored, to_julian
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import FIRST_GREGORIAN
from tests.acid_files import AcidTable, P

EPOCH = datetime.date(1970, 1, 1)


def days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a Gregorian date; works before the year 1 too."""
    return int(np.datetime64(f"{year:05d}-{month:02d}-01").astype(int)) + day - 1


def julian(year: int, month: int, day: int) -> int:
    """Days since 1970 of a Julian date, by the textbook's formula of the Julian day number."""
    return (
        367 * year
        - 7 * (year + 5001 + int((month - 9) / 7)) // 4
        + 275 * month // 9
        + day
        + 1_729_777
        - 2_440_588
    )


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (julian(1582, 10, 4), (1582, 10, 4)),
        (FIRST_GREGORIAN, (1582, 10, 15)),
        (0, (1970, 1, 1)),
        (-719_164, (1, 1, 1)),
        (julian(1500, 2, 29), (1500, 3, 1)),
        (julian(1500, 3, 1), (1500, 3, 1)),
        (julian(1200, 2, 29), (1200, 2, 29)),
        (julian(999, 12, 31), (999, 12, 31)),
    ],
)
def test_known_days(stored: int, shown: tuple[int, int, int]) -> None:
    assert from_julian(np.array([stored]))[0] == days(*shown)


@given(st.integers(1, 1581), st.integers(1, 12), st.integers(1, 28))
def test_every_julian_date_is_shown_as_it_was_written(year: int, month: int, day: int) -> None:
    assert from_julian(np.array([julian(year, month, day)]))[0] == days(year, month, day)
    assert to_julian(np.array([days(year, month, day)]))[0] == julian(year, month, day)


def test_days_that_the_calendar_leaves_out_become_the_next_one() -> None:
    october = np.array([days(1582, 10, day) for day in (4, 5, 14, 15, 16)])
    assert to_julian(october).tolist() == [
        FIRST_GREGORIAN - 1,
        *[FIRST_GREGORIAN] * 3,
        FIRST_GREGORIAN + 1,
    ]


FIRST = datetime.date(1, 1, 1)
KINDS: dict[str, tuple[pa.DataType, int, datetime.date]] = {
    "date": (pa.date32(), julian(1, 1, 1), FIRST),
    "timestamp": (
        pa.timestamp("us"),
        julian(1, 1, 1) * 86_400_000_000 + 5,
        datetime.datetime(1, 1, 1, 0, 0, 0, 5),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nested_values_and_nulls(kind: str) -> None:
    arrow, stored, shown = KINDS[kind]
    leaf = pa.array([stored, None, 0], pa.int32() if kind == "date" else pa.int64()).cast(arrow)
    lists = pa.ListArray.from_arrays([0, 1, 1, 3], leaf, mask=pa.array([False, True, False]))
    maps = pa.MapArray.from_arrays([0, 1, 2, 3], pa.array(["a", "b", "c"]), leaf)
    row = pa.StructArray.from_arrays(
        [leaf, lists, maps], names=["v", "l", "m"], mask=pa.array([False, False, True])
    )
    batch = pa.RecordBatch.from_arrays([row], ["row"])
    shown_batch = as_written(batch)
    assert shown_batch.column(0).to_pylist() == [
        {"v": shown, "l": [shown], "m": [("a", shown)]},
        {"v": None, "l": None, "m": [("b", None)]},
        None,
    ]
    assert to_be_stored(shown_batch.column(0)).equals(row)


def test_a_file_that_says_gregorian_is_left_as_it_is(tmp_path: Path) -> None:
    column = pa.array([days(1, 1, 1)], pa.int32()).cast(pa.date32())
    orc.write_table(pa.table({"d": column}), str(tmp_path / "f"))
    files, path = Files.of(str(tmp_path / "f"))
    footer = open_orc(files, path).footer
    assert not is_proleptic(footer)
    assert open_orc(files, path).stripe(0, ["d"]).column(0).to_pylist() == [datetime.date(1, 1, 3)]
    # Field 11 of the footer, the calendar: 1 is the Julian one, 2 the Gregorian one.
    for value, shown in ((1, datetime.date(1, 1, 3)), (2, FIRST)):
        replace_footer(files, path, footer + bytes([11 << 3, value]))
        file = open_orc(files, path)
        assert file.stripe(0, ["d"]).column(0).to_pylist() == [shown]
        if shown == FIRST:
            assert list(events(files, path)) == [{"d": "0001-01-01"}]
            with pytest.raises(CompactionRefused, match=r"f counts days .* compact .* with Hive"):
                file.refuse_gregorian(file.read_stripe(0))


def test_predicates_see_the_days_that_are_shown(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "d date, n int")
    stored = [EPOCH + datetime.timedelta(days) for days in (julian(1582, 10, 4), FIRST_GREGORIAN)]
    table.inserts("d1", [(1, P, i, day, i) for i, day in enumerate(stored)])
    assert table.read(where="d = DATE '1582-10-04'")["n"].to_pylist() == [0]
    assert table.read(where="d >= DATE '1582-10-05'")["n"].to_pylist() == [1]


def test_days_before_the_first_of_python_are_decoded_row_by_row_and_dumped(tmp_path: Path) -> None:
    """Arrow can't convert such timestamps; Hive's first day is two days before Python's."""
    table = AcidTable(tmp_path, "d date, t timestamp")
    orc.write_table(
        pa.table(
            {
                "d": pa.array([julian(1, 1, 1), None], pa.int32()).cast(pa.date32()),
                "t": pa.array([julian(1, 1, 1) * 86_400_000_000 + 5, 0]).cast(pa.timestamp("us")),
            }
        ),
        str(tmp_path / "000000_0"),
    )
    assert table.read(where="d < DATE '1500-01-01'").to_pylist() == [
        {"d": FIRST, "t": datetime.datetime(1, 1, 1, 0, 0, 0, 5)}
    ]
    files, path = Files.of(str(tmp_path / "000000_0"))
    assert list(events(files, path)) == [
        {"d": "0001-01-01", "t": "0001-01-01 00:00:00.000005+00:00"},
        {"d": None, "t": "1970-01-01 00:00:00+00:00"},
    ]


@pytest.mark.spark
@pytest.mark.parametrize("gregorian", ["true", "false"])
def test_days_of_sparks_writer_by_both_calendars(
    tmp_path: Path, spark: SparkSession, gregorian: str
) -> None:
    """The writer of Hive and Spark records its calendar in the file, if configured."""
    rows = spark.sql("SELECT date'0001-01-01' AS d, 1 AS n UNION ALL SELECT date'1500-03-01', 2")
    rows.coalesce(1).write.option("orc.proleptic.gregorian", gregorian).orc(str(tmp_path / "out"))
    [part] = (tmp_path / "out").glob("part-*.orc")
    table = AcidTable(tmp_path / "t", "d date, n int")
    table.file("o").parent.mkdir(parents=True)
    part.rename(table.file("o"))
    shown = [datetime.date(1, 1, 1), datetime.date(1500, 3, 1)]
    assert table.read()["d"].to_pylist() == shown
    if gregorian == "true":
        with pytest.raises(CompactionRefused, match="Gregorian calendar"):
            table.compact("major", "1:M::")
    else:
        table.compact("major", "1:M::")
        table.file("o").unlink()
        assert table.read("1:M::")["d"].to_pylist() == shown
