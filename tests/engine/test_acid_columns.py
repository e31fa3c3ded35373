"""Scans that leave out ACID columns give the same rows, and are only used for proven files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform import CorruptFile
from acid_platform.base.recent import Recent
from acid_platform.engine.spark import acid_columns, cache, delete_bitmap
from acid_platform.engine.spark.acid_columns import AcidColumns, can_leave_out, some
from acid_platform.engine.spark.acid_format import READER_VARIABLE
from acid_platform.engine.spark.failures import install_expiry
from acid_platform.engine.spark.few_calls import java_class
from acid_platform.layout import schema
from acid_platform.layout.value_ranges import KeyRanges
from acid_platform.storage.files import Files
from acid_platform.write.file_records import recorded_file
from tests.acid_files import B1, AcidTable, P, proven
from tests.spark_scans import leaves, read, rows, scans

pytestmark = pytest.mark.spark

Plan = tuple[str, ...]


@pytest.fixture(autouse=True)
def by_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own reader, as in sessions that can't load our format."""
    monkeypatch.setenv(READER_VARIABLE, "spark")
    install_expiry(spark)


def decoded(frame: DataFrame) -> list[set[str]]:
    """Per file scan of the plan: the ACID columns that it decodes besides `row`."""
    ids = set(schema.ACID_COLUMNS[:5])
    return [set(leaf.requiredSchema().fieldNames()) & ids for leaf in leaves(frame)]


def test_F24_orc_takes_the_names_for_acid_columns_and_finds_none_of_them(
    spark: SparkSession,
) -> None:
    assert can_leave_out(spark)
    assert some(frozenset(), None).decoded == {"bucket"}
    assert some(frozenset(schema.ACID_COLUMNS[:5]), None).complete


@pytest.mark.parametrize(
    ("number", "lower"),
    [*((number, False) for number in range(16)), *((number, True) for number in (0, 6, 9))],
)
def test_F24_each_choice_of_columns_reads_them_and_leaves_the_others_out(
    tmp_path: Path, spark: SparkSession, number: int, lower: bool
) -> None:
    """Also with a field of `row` that has the name of an ACID column."""
    free = [name for name in schema.ACID_COLUMNS[:5] if name != schema.BUCKET]
    needed = frozenset(name for bit, name in enumerate(free) if number >> bit & 1)
    table = AcidTable(tmp_path, "rowid string, v int")
    table.inserts("d7", [(7, B1, row, f"x{row}", row * 10) for row in range(3)])
    if lower:
        whole = orc.read_table(str(table.file("d7")))
        orc.write_table(
            whole.rename_columns([name.lower() for name in whole.column_names]),
            str(table.file("d7")),
        )
    columns = some(needed, None)
    uri = table.file("d7").as_uri()
    requested = columns.schema(spark.createDataFrame([], "v int, rowid string").schema)
    frame = spark.read.schema(requested).orc(uri).filter(" AND ".join(columns.tests([uri])))
    expected = {
        "operation": [0] * 3,
        "originalTransaction": [7] * 3,
        "bucket": [B1] * 3,
        "rowId": [0, 1, 2],
        "currentTransaction": [7] * 3,
    }
    found = frame.toArrow()
    assert found.column(5).to_pylist() == [
        {"v": row * 10, "rowid": f"x{row}", acid_columns.NO_FIELD: None} for row in range(3)
    ]
    for place, name in enumerate(schema.ACID_COLUMNS[:5]):
        values = expected[name] if name in columns.decoded else [None] * 3
        assert found.column(place).to_pylist() == values
    # `row` alone, pruned to one field; then no column at all
    assert frame.selectExpr("sum(row.v)").collect()[0][0] == 30
    if not number or columns.complete:
        assert frame.count() == 3


@pytest.mark.parametrize("needed", [(), schema.ACID_COLUMNS[:5]], ids=["none", "all"])
def test_F24_a_file_without_acid_columns_is_an_error_and_never_rows_of_null(
    tmp_path: Path, spark: SparkSession, needed: Plan
) -> None:
    table = AcidTable(tmp_path, "v int").raw("d1", [1, 2])
    uri = table.file("d1").as_uri()
    columns = some(frozenset(needed), None) if len(needed) < 5 else AcidColumns()
    requested = columns.schema(spark.createDataFrame([], "v int").schema)
    frame = spark.read.schema(requested).orc(uri).filter(" AND ".join(columns.tests([uri])))
    for query in (frame, frame.selectExpr("row.v").filter("v IS NULL")):
        with pytest.raises(CorruptFile, match="bucket_00000"):
            query.collect()


@pytest.fixture
def updated(tmp_path: Path) -> AcidTable:
    """Two write ids in a compacted base, later deltas, deletes of some rows of each."""
    return (
        AcidTable(tmp_path, "v int, s string")
        .inserts(
            "b4v9",
            [(1, P, row, row, "a") for row in range(0, 300, 3)]
            + [(3, P, row, row, "b") for row in range(5)],
        )
        .inserts("b4v9/bucket_00001", [(2, B1, row, row, "c") for row in range(100)])
        .inserts("d5", [(5, P, row, -row, "d") for row in range(4)])
        .inserts("d6", [(6, P, row, -row, "e") for row in range(4)])
        .deletes("D7", [(1, P, 6), (1, P, 7), (2, B1, 63), (3, P, 4), (5, P, 1)], current=7)
    )


QUERIES: list[dict[str, Any]] = [
    {},
    {"columns": ["v"]},
    {"columns": []},
    {"row_id": True},
    {"where": "v > 50 AND s <> 'c'"},
    {"where": "row__id.rowid = 6"},
]


@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("words", [1 << 23, 0], ids=["bitmap", "join"])
def test_P14_a_scan_that_leaves_columns_out_gives_the_same_rows(
    updated: AcidTable,
    spark: SparkSession,
    query: dict[str, Any],
    words: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delete_bitmap, "MAX_WORDS", words)
    plain = scans(updated)
    lean = proven(plain)
    assert rows(read(spark, lean, **query)) == rows(read(spark, plain, **query))
    assert read(spark, lean, **query).count() == read(spark, plain, **query).count()


def test_F24_what_is_decoded_follows_from_the_tests_of_the_rows(
    updated: AcidTable, spark: SparkSession
) -> None:
    everything = set(schema.ACID_COLUMNS[:5])
    keys = {"originalTransaction", "bucket", "rowId"}
    plain, before = scans(updated), scans(updated, "6:M::")
    assert decoded(read(spark, plain)) == [everything]
    assert decoded(read(spark, proven(plain))) == [keys]
    assert decoded(read(spark, proven(before))) == [{"bucket"}]
    assert decoded(read(spark, proven(before), row_id=True)) == [keys]
    (entity,) = proven(plain).entities
    one = replace(entity, sources=replace(entity.sources, inserts=entity.sources.inserts[1:2]))
    only = replace(plain, entities=(one,))
    assert decoded(read(spark, only)) == [{"bucket", "rowId"}]
    assert read(spark, only).count() == 99


def test_P14_a_file_is_tested_only_if_a_deleted_key_lies_within_its_recorded_keys(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int")
    for bucket, first in ((0, 0), (1, 0), (0, 100)):
        where = f"b1/bucket_0000{bucket}" if not first else "d2"
        rows = [(1 + first // 100, P + (bucket << 16), first + row, row) for row in range(50)]
        table.inserts(where, rows)
    keys = {"bucket", "rowId"}
    for write_id, gone, expected in (
        (3, (1, P, 50), {"bucket"}),  # behind the last row of its file, which has no such row
        (4, (1, P + 2, 7), {"bucket"}),  # of a statement without rows
        (5, (2, P, 99), {"bucket"}),
        (6, (1, B1, 49), keys | {"originalTransaction"}),
    ):
        table.deletes(f"D{write_id}", [gone], current=write_id)
        frame = read(spark, proven(scans(table)))
        assert set().union(*decoded(frame)) == expected
        assert frame.count() == 150 - (gone == (1, B1, 49))


def test_the_scan_after_another_delete_of_the_same_files_compiles_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Otherwise the JVM would interpret its code until it has found what to optimise in it."""
    metrics = java_class(spark, "org.apache.spark.metrics.source.CodegenMetrics")
    table = AcidTable(tmp_path, "v int, w int")
    table.inserts("b1/bucket_00000", [(1, P, row, row, row) for row in range(3000)])
    left, compiled = 3000, []
    for write_id, gone in ((3, (7, 2900)), (4, (8, 99, 1234)), (5, (0, 2999))):
        table.deletes(f"D{write_id}", [(1, P, row) for row in gone], current=write_id)
        left -= len(gone)
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        frame = read(spark, proven(scans(table)))
        assert frame.agg(F.count("w")).collect()[0][0] == left
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount() - before)
    assert compiled[1:] == [0, 0]


def test_files_with_and_without_deletes_are_one_scan_that_applies_the_predicate_first(
    updated: AcidTable, spark: SparkSession
) -> None:
    """A union would make Spark write and read every row once more."""
    frame = read(spark, proven(scans(updated)), where="v > 10")
    plan = frame._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    assert "Union" not in plan and plan.count("Relation [operat") == 1
    assert plan.index("> 10") < plan.index("shiftrightunsigned")


def test_F16_rows_of_invalid_write_ids_are_tested_by_their_current_transaction(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int").inserts(
        "d1-3v0", [(1, P, 0, 1), (2, P, 0, 2), (3, P, 0, 3)]
    )
    scan = proven(scans(table, "3:M::2"))
    assert [row.v for row in read(spark, scan).collect()] == [1, 3]
    assert decoded(read(spark, scan)) == [{"bucket", "currentTransaction"}]


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        (1, {}),
        (2, {}),
        (0, {"operation": None}),
        (0, {"rowId": None}),
        (0, {"originalTransaction": None}),
        (0, {"currentTransaction": None}),
        (0, {"bucket": None}),
    ],
    ids=str,
)
def test_F24_a_file_that_is_not_all_complete_inserts_is_never_proven(
    tmp_path: Path, spark: SparkSession, operation: int, change: dict[str, None]
) -> None:
    table = AcidTable(tmp_path, "v int")
    table.inserts("d1", [(1, P, row, row) for row in range(3)])
    path = str(table.file("d1"))
    whole = orc.read_table(path)
    for name in ("operation", *change):
        place = whole.column_names.index(name)
        kind = whole.schema.field(place).type
        values = whole.column(place).to_pylist()
        values[1] = None if name in change else operation
        whole = whole.set_column(place, name, pa.array(values, kind))
    orc.write_table(whole, path)
    files, where = Files.of(path)
    assert recorded_file(files, where, "bucket_00000").keys is None
    with pytest.raises((CorruptFile, Exception), match="bucket_00000"):
        read(spark, proven(scans(table))).collect()


def test_F24_without_a_proof_or_an_orc_that_takes_the_names_all_columns_are_decoded(
    updated: AcidTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = proven(scans(updated))
    (entity,) = scan.entities
    inserts = [replace(source, keys=None) for source in entity.sources.inserts[:1]]
    inserts += entity.sources.inserts[1:]
    mixed = replace(
        scan,
        entities=(replace(entity, sources=replace(entity.sources, inserts=tuple(inserts))),),
    )
    assert sorted(map(len, decoded(read(spark, mixed)))) == [3, 5]
    assert rows(read(spark, mixed, row_id=True)) == rows(read(spark, scan, row_id=True))
    monkeypatch.setattr(cache, "_kept", Recent(cache.MAX_ENTRIES, cache.MAX_BYTES))
    monkeypatch.setattr(acid_columns, "_recognised", lambda spark: False)
    monkeypatch.setattr(acid_columns, "_LEAVES_OUT", type(acid_columns._LEAVES_OUT)())
    assert [len(names) for names in decoded(read(spark, scan))] == [5]


KEYS = st.sets(
    st.tuples(st.integers(1, 4), st.sampled_from([P, B1, P + 1]), st.integers(0, 200)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=8, deadline=None)
@given(base=KEYS, delta=st.sets(st.integers(0, 200), max_size=6), data=st.data())
def test_P14_both_ways_agree_for_any_keys_and_deletes(
    spark: SparkSession, base: set[Any], delta: set[int], data: st.DataObject
) -> None:
    later = [(6, P, row) for row in sorted(delta)]
    gone = sorted(data.draw(st.sets(st.sampled_from([*sorted(base), *later, (9, P, 3)]))))
    with TemporaryDirectory() as root:
        table = AcidTable(Path(root), "v string")
        table.inserts("b4v9", [(*key, str(key)) for key in sorted(base)])
        if later:
            table.inserts("d6", [(*key, str(key)) for key in later])
        if gone:
            table.deletes("D7", gone, current=7)
        plain = scans(table)
        expected = sorted(str(key) for key in {*base, *later} - {*gone})
        for scan in (plain, proven(plain)):
            assert sorted(row.v for row in read(spark, scan).collect()) == expected
            found = read(spark, scan, row_id=True).selectExpr("v", "row__id.*").collect()
            assert {(row.v, str(tuple(row)[1:])) for row in found} == {(v, v) for v in expected}


def test_P26_key_ranges_are_recorded_for_whole_files_of_inserts(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "v int")
    table.inserts("b4v9", [(1, P, 5, 1), (3, B1, 2, 1), (3, B1, 9, 1)])
    table.deletes("D5", [(1, P, 5)], current=5).raw("d6", [1])
    files, root = Files.of(str(tmp_path))

    def keys(path: str, deletes: bool = False) -> KeyRanges | None:
        where = str(table.file(path))
        return recorded_file(files, where, "bucket_00000", deletes=deletes).keys

    assert root and keys("b4v9") == KeyRanges((1, 3), (P, B1), (2, 9))
    assert keys("D5", True) is None and keys("D5") is None and keys("d6") is None


def test_small_files_beside_large_ones_leave_the_tasks_balanced(
    tmp_path: Path, spark: SparkSession
) -> None:
    """With Spark's default of 4 MB for opening a file, one of two tasks would read all of them."""
    table = AcidTable(tmp_path, "v bigint")
    random = np.random.default_rng(1)
    for bucket in range(4):
        values = random.integers(0, 1 << 62, 200_000).tolist()
        rows = [(1, P + (bucket << 16), row, value) for row, value in enumerate(values)]
        table.inserts(f"b1/bucket_0000{bucket}", rows)
    for write_id in range(2, 22):
        table.inserts(f"d{write_id}", [(write_id, P, 0, 1)])
    frame = read(spark, proven(scans(table, "99:M::")))
    (leaf,) = leaves(frame)
    partitions = [*leaf.inputRDD().partitions()]
    tasks = [sum(file.length() for file in part.files()) for part in partitions]
    assert len(tasks) >= 2 and max(tasks) <= 0.55 * sum(tasks)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.orc.enableVectorizedReader", "false"),
        ("spark.sql.optimizer.nestedSchemaPruning.enabled", "false"),
        ("spark.sql.codegen.wholeStage", "false"),
    ],
)
def test_F24_the_rows_are_the_same_whatever_the_session_sets(
    updated: AcidTable, spark: SparkSession, setting: str, value: str
) -> None:
    scan = proven(scans(updated))
    queries: list[dict[str, Any]] = [{}, {"columns": ["s"], "where": "v >= 0"}, {"row_id": True}]
    expected = [rows(read(spark, scans(updated), **query)) for query in queries]
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    try:
        assert [rows(read(spark, scan, **query)) for query in queries] == expected
        assert read(spark, scan).count() == len(expected[0])
    finally:
        spark.conf.set(setting, str(before))
