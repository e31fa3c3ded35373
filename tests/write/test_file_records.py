"""A commit records its files, and a reader notices if one is gone or changed (P26)."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from acid_platform import CorruptFile
from acid_platform.base.paths import leads_out
from acid_platform.formats.file_access import recorded_file
from acid_platform.formats.orc import open_orc
from acid_platform.formats.orc.column_statistics import MOST_COLUMNS, column_ranges, key_ranges
from acid_platform.formats.orc.protobuf import delimited, fields, number
from acid_platform.formats.orc.tail import STATISTICS, footer_of
from acid_platform.layout.file_entries import (
    MOST_TEXT,
    ColumnRange,
    FileEntry,
    Footer,
    KeyRanges,
    RangeKind,
    RecordedFiles,
    text_range,
)
from acid_platform.scan.open import require_recorded
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, P

KINDS = {
    "i int": (RangeKind.INTEGER, st.integers(-(2**31), 2**31 - 1)),
    "b bigint": (RangeKind.INTEGER, st.integers(-(2**63), 2**63 - 1)),
    "d decimal(12,3)": (RangeKind.DECIMAL, st.decimals(-(10**8), 10**8, places=3)),
    "t date": (RangeKind.DATE, st.dates(datetime.date(1600, 1, 1), datetime.date(9999, 1, 1))),
    "s string": (RangeKind.TEXT, st.text(st.characters(exclude_categories=["Cs"]), max_size=40)),
}
_FIRST = datetime.date(1970, 1, 1)


def bound(value: Any) -> Any:
    return (value - _FIRST).days if isinstance(value, datetime.date) else value


@pytest.mark.more
@pytest.mark.parametrize("column", KINDS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_P26_recorded_ranges_hold_every_value(
    tmp_path: Path, column: str, data: st.DataObject
) -> None:
    kind, strategy = KINDS[column]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=8))
    table = AcidTable(tmp_path, column)
    table.inserts("d1", [(1, P, number, value) for number, value in enumerate(values)])
    files, path = Files.of(str(table.file("d1")))
    entry = recorded_file(files, path, "bucket_00000")
    known = [bound(value) for value in values if value is not None]
    assert entry.footer == Footer(len(values), True) and entry.size == Path(path).stat().st_size
    found = entry.ranges[column[0]]
    assert (found.nulls, found.values) == (len(values) - len(known), bool(known))
    if known:
        assert found.kind is kind
        if found.low is not None:
            assert found.low <= min(known)
        if found.high is not None:
            assert found.high >= max(known)
        if kind is not RangeKind.TEXT:
            assert (found.low, found.high) == (min(known), max(known))
    assert RecordedFiles.parse(str(RecordedFiles((entry,)))).files[0].ranges == entry.ranges


@pytest.mark.parametrize("column", ["f double", "ts timestamp", "x binary"])
def test_P26_types_whose_statistics_are_no_bounds_for_all_readers_have_none(
    tmp_path: Path, column: str
) -> None:
    value: Any = {"f": float("nan"), "ts": datetime.datetime(1969, 1, 1), "x": b"a"}[
        column.split()[0]
    ]
    table = AcidTable(tmp_path, column)
    table.inserts("d1", [(1, P, 0, value), (1, P, 1, None)])
    files, path = Files.of(str(table.file("d1")))
    (found,) = recorded_file(files, path, "bucket_00000").ranges.values()
    assert found == ColumnRange(RangeKind.OTHER, None, None, 1)


def test_P26_a_footer_without_statistics_says_nothing_about_its_columns(tmp_path: Path) -> None:
    """Hive 2.3's minor compaction writes no row index, and a count of 0 values for each column."""
    table = AcidTable(tmp_path, "i int")
    table.inserts("d1", [(1, P, number, number) for number in range(3)])
    files, path = Files.of(str(table.file("d1")))
    footer = footer_of(open_orc(files, path).reader.serialized_file_tail())
    assert set(column_ranges(footer, True)) == {"i"}
    no_values = delimited(STATISTICS, number(1, 0))
    bare = b"".join(
        no_values if field.number == STATISTICS else field.raw for field in fields(footer)
    )
    assert column_ranges(bare, True) == {}
    assert key_ranges(footer) == KeyRanges((1, 1), (P, P), (0, 2)) and key_ranges(bare) is None


def test_P26_the_first_writer_of_orc_tells_no_bounds(tmp_path: Path) -> None:
    """It merged the statistics of stripes wrongly (HIVE-8732)."""
    path = tmp_path / "000000_0"
    orc.write_table(pa.table({"s": ["a", None], "i": [1, 2]}), str(path))
    content = path.read_bytes()
    length = content[-1]
    version, later = number(6, 0), number(6, 6)  # of the postscript
    old = content[-1 - length :].replace(later, version)
    path.write_bytes(content[: -1 - length] + old)
    files, where = Files.of(str(path))
    assert recorded_file(files, where, "000000_0").ranges == {
        "s": ColumnRange(RangeKind.OTHER, None, None, 1),
        "i": ColumnRange(RangeKind.OTHER, None, None, 0),
    }


def test_P26_records_of_wide_tables_stay_small(tmp_path: Path) -> None:
    columns = pa.table({f"c{number}": [number] for number in range(MOST_COLUMNS + 5)})
    orc.write_table(columns, str(tmp_path / "000000_0"))
    files, path = Files.of(str(tmp_path / "000000_0"))
    assert len(recorded_file(files, path, "000000_0").ranges) == MOST_COLUMNS


def test_P26_long_texts_are_cut_where_that_is_still_a_bound() -> None:
    long = "y" * 100
    found = text_range(long, long, 0)
    assert found.low == "y" * MOST_TEXT and found.high is None


ENTRIES = st.builds(
    FileEntry,
    st.text().filter(lambda path: not leads_out(path)),
    st.integers(0, 2**50),
    st.builds(Footer, st.integers(-1, 2**40), st.booleans(), st.booleans()),
    st.none() | st.integers(0, 2**50),
    st.dictionaries(
        st.text(),
        st.one_of(
            st.builds(
                ColumnRange,
                st.just(RangeKind.INTEGER),
                st.none() | st.integers(),
                st.none() | st.integers(),
                st.integers(0),
                st.booleans(),
            ),
            st.builds(
                ColumnRange,
                st.just(RangeKind.DECIMAL),
                st.decimals(allow_nan=False, allow_infinity=False),
                st.just(Decimal("1.50")),
                st.integers(0),
                st.booleans(),
            ),
            st.builds(
                ColumnRange,
                st.just(RangeKind.TEXT),
                st.text(),
                st.none() | st.text(),
                st.integers(0),
            ),
        ),
    ),
    st.none() | st.builds(KeyRanges, *[st.tuples(st.integers(0), st.integers(0))] * 3),
)


@pytest.mark.more
@given(st.lists(ENTRIES, max_size=4))
def test_P26_the_text_of_a_record_is_complete(entries: list[FileEntry]) -> None:
    again = RecordedFiles.parse(str(RecordedFiles(tuple(entries))))
    assert again.files == tuple(entries)
    assert [file.ranges for file in again.files] == [entry.ranges for entry in entries]
    assert [file.keys for file in again.files] == [entry.keys for entry in entries]


@pytest.mark.parametrize("text", ["", "[", "[1]", '[["a"]]', '[["a",1,2,3,4,{"x":["q",1,2,3,1]}]]'])
def test_P26_a_record_that_can_not_be_read_is_an_error(text: str) -> None:
    with pytest.raises(CorruptFile, match="restore the metastore"):
        RecordedFiles.parse(text)


@pytest.mark.parametrize("damage", ["gone", "empty", "shorter", "longer", "a directory"])
def test_P26_a_changed_recorded_file_is_named(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "bucket_00000"
    file.write_bytes(b"x" * 10)
    files, path = Files.of(str(file))
    source = SourceFile(path, RowIdentity.STORED, 10, "delta_0000007_0000007_0000", 7, 7)
    require_recorded(files, [source], "db.t")
    if damage in ("gone", "a directory"):
        file.unlink()
    if damage == "a directory":
        file.mkdir()
    elif damage != "gone":
        file.write_bytes(b"x" * {"empty": 0, "shorter": 9, "longer": 11}[damage])
    with pytest.raises(CorruptFile, match=r"db\.t: .*bucket_00000.*write id 7 committed"):
        require_recorded(files, [source], "db.t")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "..", "", "a//x", "./x"])
def test_P67_a_record_of_files_leads_out_of_no_directory(path: str) -> None:
    """A prepared backup would make other files of this machine rows of a table."""
    with pytest.raises(CorruptFile, match="is no file below its directory"):
        RecordedFiles.parse(json.dumps([[path, 1, 1]]))
    assert RecordedFiles.parse(json.dumps([["a/..x", 1, 1]])).files[0].path == "a/..x"
