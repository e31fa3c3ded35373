"""Our file format for Spark gives the rows that Spark's own reader and Arrow give."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acid_platform import CorruptFile, SnapshotExpired, UnsupportedLayout
from acid_platform.base.first_use import Recent
from acid_platform.engine.spark import few_calls, live_rows
from acid_platform.engine.spark.failures import install_expiry
from acid_platform.engine.spark.live_rows import READER_VARIABLE, has_acid_format
from acid_platform.formats.orc import ACID_COLUMNS
from acid_platform.layout.file_entries import KeyRanges
from acid_platform.scan.deletes import DeleteKeys
from acid_platform.scan.scans import Scan
from tests.acid_files import B1, AcidTable, P, proven
from tests.conftest import temporary_warehouse
from tests.spark_scans import leaves, read, rows, scans

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def translating(spark: SparkSession) -> None:
    install_expiry(spark)
    assert has_acid_format(spark)


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Any]:
    """Sets a setting of the session until the test ends."""
    before: dict[str, str | None] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def with_keys(scan: Scan, ranges: KeyRanges) -> Scan:
    """The scan as if these ranges were recorded of its files."""
    (entity,) = scan.entities
    inserts = tuple(replace(one, keys=ranges) for one in entity.sources.inserts)
    sources = replace(entity.sources, inserts=inserts)
    return replace(scan, entities=(replace(entity, sources=sources),))


def ids(frame: Any) -> list[tuple[int, int, int]]:
    return sorted(tuple(row) for row in frame.selectExpr("row__id.*").collect())


# --- what is decoded --------------------------------------------------------------------------


def test_F24_the_plan_reads_the_files_by_our_format_and_only_the_columns_of_the_query(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int, s string").inserts("d1", [(1, P, 0, 7, "x")])
    frame = read(spark, proven(scans(table)))
    (leaf,) = leaves(frame.select("s"))
    assert leaf.relation().fileFormat().toString() == "ACID"
    assert list(leaf.requiredSchema().fieldNames()) == ["s"]
    (leaf,) = leaves(frame.groupBy().count())
    assert list(leaf.requiredSchema().fieldNames()) == []
    assert frame.count() == 1


def test_P15_row_ids_follow_from_positions_only_where_keys_are_recorded_and_known_to_ascend(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Wrong bounds are recorded here, so that the ids tell where they come from."""
    real = [(4, P, row, row) for row in range(10)]
    bounds = KeyRanges((5, 5), (B1, B1), (100, 109))
    indexed = AcidTable(tmp_path / "indexed", "v int").written("d4", real)
    frame = read(spark, with_keys(proven(scans(indexed)), bounds), row_id=True)
    assert ids(frame) == [(5, B1, 100 + row) for row in range(10)]
    loose = KeyRanges((5, 5), (B1, B1), (100, 110))  # eleven ids, ten rows
    frame = read(spark, with_keys(proven(scans(indexed)), loose), row_id=True)
    assert ids(frame) == [row[:3] for row in real]
    two = KeyRanges((4, 5), (B1, B1), (100, 109))
    frame = read(spark, with_keys(proven(scans(indexed)), two), row_id=True)
    assert ids(frame) == [row[:3] for row in real]
    bare = AcidTable(tmp_path / "bare", "v int").inserts("d4", real)
    frame = read(spark, with_keys(proven(scans(bare)), bounds), row_id=True)
    assert ids(frame) == [row[:3] for row in real]


def test_P15_row_ids_by_position_are_right_behind_skipped_stripes_and_in_every_split(
    tmp_path: Path, spark: SparkSession, setting: Any
) -> None:
    stripes = [
        [(3, P, row, row, "x" * 50) for row in range(first, first + 25_000)]
        for first in range(0, 100_000, 25_000)
    ]
    table = AcidTable(tmp_path, "v int, s string").written("d3", *stripes)
    gone = [(3, P, row) for row in (0, 24_999, 25_000, 61_003, 61_004, 99_999)]
    table.deletes("D4", gone, current=4)
    scan = proven(scans(table))
    expected = {(3, P, row) for row in range(100_000)} - {*gone}
    for most_bytes in ("128m", "200"):
        setting("spark.sql.files.maxPartitionBytes", most_bytes)
        frame = read(spark, scan, row_id=True)
        (leaf,) = leaves(frame)
        assert (len([*leaf.inputRDD().partitions()]) > 2) == (most_bytes == "200")
        assert set(ids(frame)) == expected
        chosen = frame.filter("v BETWEEN 60990 AND 61010 OR v = 24999 OR v = 99998")
        assert [(row.v, row.row__id.rowid) for row in chosen.orderBy("v").collect()] == [
            (row, row) for row in [*range(60_990, 61_003), *range(61_005, 61_011), 99_998]
        ]


def scanned_rows(frame: Any) -> int:
    """The rows that the file scans of a query gave to the rest of its plan."""
    plan = frame._jdf.queryExecution()
    frame.collect()
    found = plan.executedPlan().collectLeaves()
    return sum(
        found.apply(at).metrics().apply("numOutputRows").value() for at in range(found.size())
    )


def test_F19_a_filter_of_the_query_skips_row_groups(
    tmp_path: Path, spark: SparkSession, setting: Any
) -> None:
    setting("spark.sql.adaptive.enabled", "false")
    table = AcidTable(tmp_path, "v int, t timestamp, s string").written(
        "d3", [(3, P, row, row, datetime(2020, 1, 1), None) for row in range(50_000)]
    )
    frame = read(spark, proven(scans(table)))
    assert scanned_rows(frame.filter("v = 31000")) == 10_000
    assert scanned_rows(frame.filter("v < 31000")) == 40_000
    assert frame.filter("v <=> NULL").count() == 0
    many = ", ".join(str(one) for one in range(31_000, 31_020))
    assert frame.filter(f"v IN ({many}, NULL)").count() == 20, "which ORC's builder can't take"
    assert frame.filter("s IS NULL AND v > 49997").count() == 2
    assert frame.filter("t < TIMESTAMP '2020-01-01 00:00:00.000001'").count() == 50_000
    assert frame.filter("t <= TIMESTAMP '2020-01-01'").count() == 50_000


# --- deleted rows -----------------------------------------------------------------------------

FAR = 1 << 40
ROW_IDS = st.sets(
    st.one_of(st.integers(0, 200), st.integers(FAR, FAR + 300), st.integers(0, 1 << 45)),
    min_size=1,
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(row_ids=ROW_IDS, run=st.integers(1, 300), data=st.data())
def test_P14_the_rows_are_those_that_no_event_deletes(
    spark: SparkSession, row_ids: set[int], run: int, data: st.DataObject
) -> None:
    """Sparse and dense row ids and deletes, by decoded keys and by positions."""
    base = [(w, b, row) for w in (1, 3) for b in (P, B1) for row in sorted(row_ids)]
    later = [(6, P, FAR + row) for row in range(run)]
    first = data.draw(st.integers(0, run))
    gone = {
        *data.draw(st.sets(st.sampled_from([*base, *later]), max_size=40)),
        *later[first : first + data.draw(st.integers(0, run))],
        (6, P, FAR - 1),
        (9, P, 3),
    }
    with TemporaryDirectory() as root:
        table = AcidTable(Path(root), "v string")
        table.inserts("b4v9", [(*key, str(key)) for key in base])
        table.written("d6", [(*key, str(key)) for key in later])
        table.deletes("D7", sorted(gone), current=7)
        expected = sorted(str(key) for key in {*base, *later} - gone)
        for scan in (scans(table), proven(scans(table))):
            frame = read(spark, scan)
            assert sorted(row.v for row in frame.collect()) == expected
            assert frame.count() == len(expected)
            found = read(spark, scan, row_id=True).selectExpr("v", "row__id.*").collect()
            assert {(row.v, str(tuple(row)[1:])) for row in found} == {(v, v) for v in expected}


def test_P14_a_deleted_key_deletes_only_in_its_own_partition(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int", "p int")
    for value in (1, 2, 3):
        table.written(f"p={value}/d1", [(1, P, row, row) for row in range(3)])
    table.deletes("p=2/D2", [(1, P, 0), (1, P, 1)], current=2)
    found = read(spark, proven(scans(table))).collect()
    assert sorted((row.p, row.v) for row in found) == [
        *((1, row) for row in range(3)), (2, 2), *((3, row) for row in range(3))
    ]  # fmt: skip


def test_F16_the_snapshot_tells_which_rows_of_a_compacted_file_it_sees(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int").inserts(
        "d1-4v0", [(1, P, 0, 1), (2, P, 0, 2), (3, P, 0, 3), (4, P, 0, 4)]
    )
    for w, seen in (("4:M::", [1, 2, 3, 4]), ("4:M::2", [1, 3, 4]), ("3:M:2:3", [1])):
        for scan in (scans(table, w), proven(scans(table, w))):
            frame = read(spark, scan)
            assert sorted(row.v for row in frame.collect()) == seen
            assert frame.count() == len(seen)


def test_P18_reads_of_other_snapshots_of_the_same_files_are_never_taken_for_each_other(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int").written("d1", [(1, P, row, row) for row in range(9)])
    table.deletes("D2", [(1, P, 0)], current=2).deletes("D3", [(1, P, 1)], current=3)
    frames = [read(spark, proven(scans(table, f"{last}:M::"))) for last in (1, 2, 3)]
    for frame in frames:
        frame.cache()
    try:
        assert [frame.count() for frame in frames] == [9, 8, 7]
        joined = frames[0].groupBy().count().union(frames[2].groupBy().count())
        assert sorted(row[0] for row in joined.collect()) == [7, 9]
        again = read(spark, proven(scans(table, "2:M::")))
        assert again.selectExpr("sum(v)").collect()[0][0] == 36
    finally:
        for frame in frames:
            frame.unpersist()


# --- values -----------------------------------------------------------------------------------

EVERY_TYPE = (
    "a tinyint, b smallint, c int, d bigint, e boolean, f float, g double, h decimal(9,2),"
    " i decimal(38,10), j string, k binary, l date, m timestamp, n char(4), o varchar(3),"
    " p array<int>, q map<string,int>, r struct<x:int,y:struct<z:string,w:array<bigint>>>"
)


def every_value(row: int) -> tuple[Any, ...]:
    if row % 7 == 3:
        return (None,) * 18
    struct = {"x": row, "y": None if row % 3 else {"z": f"z{row}", "w": [row, None]}}
    return (
        row % 100, row, -row, row << 40, row % 2 == 0, row / 4, row / 8, Decimal(row) / 4,
        Decimal(10) ** 20 + row, f"s{row}", bytes([row % 256]), date(1960, 1, 1 + row % 28),
        datetime(1999, 1, 2, 3, 4, 5, row), f"{row % 1000}", f"{row % 100}", [row] * (row % 3),
        {f"k{row}": None if row % 2 else row}, None if row % 5 == 0 else struct,
    )  # fmt: skip


@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_P17_every_type_is_read_as_arrow_reads_it_beside_deleted_rows(
    tmp_path: Path, spark: SparkSession, vectorised: str, setting: Any
) -> None:
    setting("spark.sql.orc.enableVectorizedReader", vectorised)
    table = AcidTable(tmp_path, EVERY_TYPE)
    table.written("d1", [(1, P, row, *every_value(row)) for row in range(200)])
    table.inserts("d2", [(2, P, 2 * row, *every_value(row)) for row in range(50)])
    table.deletes("D3", [(1, P, row) for row in range(0, 200, 3)], current=3)
    table.deletes("D4", [(2, P, row) for row in (0, 2, 98)], current=4)

    def shown(found: pa.Table) -> list[str]:
        return sorted(
            str([v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row.values()])
            for row in found.to_pylist()
        )

    for scan in (scans(table), proven(scans(table))):
        frame = read(spark, scan)
        assert shown(frame.toArrow()) == shown(table.read())
        nested = frame.selectExpr("r.y.z", "r.x", "q", "get(p, 0) AS first")
        by_arrow = [row["r"] or {} for row in table.read().to_pylist()]
        assert sorted(str(row.z) for row in nested.collect()) == sorted(
            str((one.get("y") or {}).get("z")) for one in by_arrow
        )


TIMES = [
    datetime(1, 1, 1),
    datetime(1582, 10, 4, 1),
    datetime(1582, 10, 15),
    datetime(1883, 11, 18, 12),
    datetime(1899, 12, 31, 23, 59, 59, 999_999),
    datetime(1900, 1, 1),
    datetime(1969, 12, 31, 23, 59, 58, 500_001),
    datetime(1970, 1, 1),
    datetime(1970, 1, 1, 0, 0, 0, 1),
    datetime(2024, 2, 29, 12, 34, 56, 789_012),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


@pytest.mark.parametrize("stored", [TIMES, [TIMES[-2]] * 9, [None] * 9, [None, *TIMES, None]])
def test_P17_timestamps_are_those_that_sparks_own_reader_gives(
    tmp_path: Path,
    spark: SparkSession,
    stored: list[datetime | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also before 1900, for which Spark has tables of calendars."""
    texts = [(i, one and one.isoformat(" ")) for i, one in enumerate(stored)]
    given = spark.createDataFrame(texts, "i int, t string").selectExpr(
        "i", "CAST(t AS timestamp) AS t", "CAST(t AS date) AS l"
    )
    with temporary_warehouse(tmp_path / "wh", spark, "spark") as warehouse:
        table = warehouse.create_table("db.t", "i int, t timestamp, l date")
        table.insert(given.coalesce(1))
        table.delete("i = 1")
        shown = "i", "CAST(t AS string) AS t", "unix_micros(t) AS m", "CAST(l AS string) AS l"
        expected = sorted(map(str, given.filter("i <> 1").selectExpr(*shown).collect()))
        assert rows(table.read().selectExpr(*shown)) == expected
        monkeypatch.setenv(READER_VARIABLE, "spark")
        monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
        assert rows(table.read().selectExpr(*shown)) == expected


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        ("decimal(9,2)", "decimal(9,2)"),
        ("decimal(18,0)", "decimal(18,0)"),
        ("decimal(18,18)", "decimal(18,18)"),
        ("decimal(5,2)", "decimal(9,2)"),
        ("decimal(5,2)", "decimal(9,4)"),
        ("decimal(9,2)", "decimal(38,10)"),
        ("int", "decimal(12,2)"),
    ],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_P17_decimals_are_those_that_sparks_own_reader_gives(
    tmp_path: Path,
    spark: SparkSession,
    stored: str,
    declared: str,
    repeated: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale = int(stored.rpartition(",")[2].rstrip(")")) if "," in stored else 0
    digits = [0, 1, -1, 123, -999, 99999] if not repeated else [123] * 6
    values: list[Any] = [Decimal(one).scaleb(-scale) for one in digits]
    values = [int(one) for one in digits] if stored == "int" else values
    table = AcidTable(tmp_path, f"v {declared}, w decimal(4,1)")
    for write_id, several in ((1, [*values, *([] if repeated else [None])]), (2, [None] * 3)):
        rows = [(write_id, P, i, one) for i, one in enumerate(several)]
        table.inserts(f"d{write_id}", rows, columns=f"v {stored}")
    table.deletes("D3", [(1, P, 2)], current=3)
    scan = proven(scans(table))
    found = sorted(map(str, read(spark, scan).collect()))
    assert len(found) == 8 + (not repeated)
    assert read(spark, scan).filter("v > 1").count() == sum(
        one > 1 for place, one in enumerate(values) if place != 2
    )
    monkeypatch.setenv(READER_VARIABLE, "spark")
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    assert found == sorted(map(str, read(spark, scan).collect()))


def test_F24_a_table_may_have_columns_with_the_names_of_the_acid_columns(
    tmp_path: Path, spark: SparkSession
) -> None:
    names = [name.lower() for name in ACID_COLUMNS]
    table = AcidTable(tmp_path, ", ".join(f"`{name}` int" for name in names))
    table.written("d1", [(1, P, row, *range(row, row + 6)) for row in range(5)])
    table.deletes("D2", [(1, P, 2)], current=2)
    for scan in (scans(table), proven(scans(table))):
        frame = read(spark, scan)
        found = [tuple(row) for row in frame.orderBy("operation").collect()]
        assert found == [tuple(range(row, row + 6)) for row in (0, 1, 3, 4)]
        assert frame.filter("operation = 3 AND rowid = 6").count() == 1
        assert frame.selectExpr("sum(`row`)").collect()[0][0] == 5 + 6 + 8 + 9


def test_columns_that_a_file_lacks_are_null_and_wider_types_are_read(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v bigint, w string")
    table.inserts("d1", [(1, P, row, row) for row in range(4)], columns="v int")
    table.inserts("d2", [(2, P, 0, 1 << 40, "w")]).deletes("D3", [(1, P, 1)], current=3)
    for scan in (scans(table), proven(scans(table))):
        found = sorted((row.v, row.w) for row in read(spark, scan).collect())
        assert found == [(0, None), (2, None), (3, None), (1 << 40, "w")]
        assert read(spark, scan).filter("w IS NULL AND v > 1").count() == 2


# --- partitions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "stored", "values"),
    [
        ("int", ["1", "-5", None, "x"], [1, -5, None, None]),
        ("string", ["a b", "x%3Ay", "", None, "ü"], ["a b", "x:y", "", None, "ü"]),
        ("date", ["2020-02-29", None], [date(2020, 2, 29), None]),
        ("decimal(5,2)", ["1.5", None], [Decimal("1.50"), None]),
        ("char(4)", ["ab", None], ["ab  ", None]),
        ("timestamp", ["2020-01-01 12%3A00%3A00", None], [datetime(2020, 1, 1, 12), None]),
        ("boolean", ["true", None], [True, None]),
    ],
)
def test_P16_partition_values_are_those_of_the_directories(
    tmp_path: Path, spark: SparkSession, kind: str, stored: list[str | None], values: list[Any]
) -> None:
    table = AcidTable(tmp_path, "v int", f"p {kind}")
    for place, text in enumerate(stored):
        if text == "":
            continue
        name = "__HIVE_DEFAULT_PARTITION__" if text is None else text
        table.written(f"p={name}/d1", [(1, P, 0, place)])
    frame = read(spark, proven(scans(table)))
    expected = {i: one for i, one in enumerate(values) if stored[i] != ""}
    assert {row.v: row.p for row in frame.collect()} == expected
    for place, value in expected.items():
        if value is not None:
            (found,) = frame.filter(F.col("p") == F.lit(value)).collect()
            assert found.v == place


def partitions_read(frame: Any) -> int:
    plan = frame._jdf.queryExecution()
    frame.collect()
    found = plan.executedPlan().collectLeaves()
    leaf = next(
        found.apply(at) for at in range(found.size()) if "ACID" in found.apply(at).toString()
    )
    return int(leaf.metrics().apply("numPartitions").value())


def test_P16_spark_opens_only_the_partitions_that_a_filter_or_a_join_leaves(
    tmp_path: Path, spark: SparkSession, setting: Any
) -> None:
    setting("spark.sql.adaptive.enabled", "false")
    table = AcidTable(tmp_path, "v int", "p int, q string")
    for value in range(6):
        table.written(f"p={value}/q=a/d1", [(1, P, row, row) for row in range(100)])
    frame = read(spark, proven(scans(table)))
    assert partitions_read(frame.filter("p = 2")) == 1
    assert partitions_read(frame.filter("p IN (2, 3) AND q = 'a'")) == 2
    assert partitions_read(frame.filter("p > 3 OR v = 5")) == 6
    assert frame.filter("p = 2").count() == 100
    small = spark.createDataFrame([(4, "k")], "p int, k string").filter("k = 'k'")
    joined = frame.join(F.broadcast(small), "p")
    assert {row.p for row in joined.collect()} == {4}


# --- what goes wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["operation", "rowId", "bucket", "currentTransaction"])
def test_F24_a_file_of_other_events_or_incomplete_keys_is_an_error(
    tmp_path: Path, spark: SparkSession, change: str
) -> None:
    table = AcidTable(tmp_path, "v int").inserts("d1", [(1, P, row, row) for row in range(3)])
    path = str(table.file("d1"))
    whole = orc.read_table(path)
    place = whole.column_names.index(change)
    values = whole.column(place).to_pylist()
    values[1] = 2 if change == "operation" else None
    kind = whole.schema.field(place).type
    orc.write_table(whole.set_column(place, change, pa.array(values, kind)), path)
    error = UnsupportedLayout if change == "operation" else CorruptFile
    for query in (read(spark, scans(table)), read(spark, scans(table), where="v = 0")):
        with pytest.raises(error, match="bucket_00000"):
            query.collect()
        with pytest.raises(error, match="bucket_00000"):
            query.count()


def test_F24_a_file_without_acid_columns_is_an_error(tmp_path: Path, spark: SparkSession) -> None:
    table = AcidTable(tmp_path, "v int").inserts("d1", [(1, P, 0, 0)])
    scan = proven(scans(table))
    whole = orc.read_table(str(table.file("d1")))
    orc.write_table(whole.select(["rowId"]), str(table.file("d1")))
    size = table.file("d1").stat().st_size
    (entity,) = scan.entities
    inserts = tuple(replace(one, size=size) for one in entity.sources.inserts)
    changed = replace(entity, sources=replace(entity.sources, inserts=inserts))
    with pytest.raises(CorruptFile, match="lacks ACID columns"):
        read(spark, replace(scan, entities=(changed,))).count()


def test_P12_a_file_that_is_gone_or_cut_fails_the_read_whatever_the_session_says(
    tmp_path: Path, spark: SparkSession, setting: Any
) -> None:
    setting("spark.sql.files.ignoreMissingFiles", "true")
    setting("spark.sql.files.ignoreCorruptFiles", "true")
    table = AcidTable(tmp_path, "v int").inserts("d1", [(1, P, 0, 0)])
    table.inserts("d2", [(2, P, 0, 0)])
    frame = read(spark, proven(scans(table)))
    content = table.file("d2").read_bytes()
    table.file("d2").write_bytes(content[:-10])
    with pytest.raises(CorruptFile, match="bucket_00000"):
        frame.collect()
    table.file("d2").unlink()
    with pytest.raises(SnapshotExpired, match="delta_0000002_0000002"):
        frame.count()


def test_what_is_not_known_of_a_file_is_not_offered(tmp_path: Path, spark: SparkSession) -> None:
    table = AcidTable(tmp_path, "v int").inserts("d1", [(1, P, 0, 0)])
    frame = read(spark, proven(scans(table)))
    (row,) = frame.selectExpr("_metadata.file_size AS size").collect()
    assert row.size == table.file("d1").stat().st_size
    with pytest.raises(AnalysisException, match="file_modification_time"):
        frame.selectExpr("_metadata.file_modification_time")


def test_a_session_that_cannot_load_the_format_reads_by_sparks_own_reader_and_says_so(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = AcidTable(tmp_path / "t", "v int")
    table.written("d1", [(1, P, row, row) for row in range(5)])
    table.deletes("D2", [(1, P, 2)], current=2)
    monkeypatch.setattr(live_rows, "_loaded", type(live_rows._loaded)())
    monkeypatch.setattr(live_rows, "_classes", type(live_rows._classes)())
    monkeypatch.setattr(live_rows, "_SOURCES", tmp_path / "java")
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    sources = tmp_path / "java" / "acidplatform"
    sources.mkdir(parents=True)
    (sources / "Broken.java").write_text("package acidplatform; class Broken { int x = y; }")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert read(spark, proven(scans(table))).count() == 4
    told = [one.getMessage() for one in caplog.records]
    (said,) = [one for one in told if "Spark's own reader" in one]
    assert "Broken.java" in said
    (leaf,) = leaves(read(spark, proven(scans(table))))
    assert leaf.relation().fileFormat().toString() == "ORC"
    monkeypatch.setattr(live_rows, "_loaded", type(live_rows._loaded)())
    monkeypatch.setenv(READER_VARIABLE, "spark")
    assert not has_acid_format(spark)


def test_a_later_session_of_a_process_has_the_format_too(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM has the classes already, and the new session's executors need them."""
    monkeypatch.setattr(live_rows, "_loaded", type(live_rows._loaded)())
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    assert has_acid_format(spark)
    table = AcidTable(tmp_path, "v int").written("d1", [(1, P, row, row) for row in range(5)])
    assert read(spark, proven(scans(table))).count() == 5


def test_P15_a_million_deleted_rows_take_a_bitmap(tmp_path: Path, spark: SparkSession) -> None:
    table = AcidTable(tmp_path, "v int")
    table.written("d1", [(1, P, row, row) for row in range(1000)])
    scan = proven(scans(table))
    gone = np.arange(10, 1_000_010, dtype=np.int64)
    (entity,) = scan.entities
    deletes = DeleteKeys.of(gone * 0 + 1, gone * 0 + P, gone)
    changed = replace(scan, entities=(replace(entity, deletes=deletes),))
    assert sorted(row.v for row in read(spark, changed).collect()) == list(range(10))
