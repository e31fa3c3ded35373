"""Scans by Spark's own reader: the six columns in every file, and the tests of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform import CorruptFile
from acid_platform.engine.spark import row_keys
from acid_platform.engine.spark.failures import NO_INSERT, install_expiry
from acid_platform.engine.spark.few_calls import java_class
from acid_platform.engine.spark.live_rows import READER_VARIABLE
from acid_platform.formats.data_file import INSERT_EVENT
from acid_platform.formats.file_access import recorded_file
from acid_platform.layout.file_entries import KeyRanges
from acid_platform.storage.files import Files
from tests.acid_files import B1, AcidTable, P, proven
from tests.conftest import quick_then_slow
from tests.engine import test_acid_format as ours
from tests.spark_scans import leaves, read, rows, scans

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def by_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own reader, as in sessions that can't load our format."""
    monkeypatch.setenv(READER_VARIABLE, "spark")
    install_expiry(spark)


test_F16_by_sparks_own_reader = (
    ours.test_F16_the_snapshot_tells_which_rows_of_a_compacted_file_it_sees
)
test_P14_by_sparks_own_reader = ours.test_P14_the_rows_are_those_that_no_event_deletes


def test_F24_a_file_without_acid_columns_is_an_error_and_never_rows_of_null(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int").raw("d1", [1, 2])
    uri = table.file("d1").as_uri()
    requested = row_keys.event_schema(spark.createDataFrame([], "v int").schema)
    tests = row_keys.event_tests([uri], INSERT_EVENT, NO_INSERT)
    frame = spark.read.schema(requested).orc(uri).filter(" AND ".join(tests))
    for query in (frame, frame.selectExpr("row.v").filter("v IS NULL")):
        with pytest.raises(CorruptFile, match="bucket_00000"):
            query.collect()


def plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    return plan


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
    {"where": "v > 50 AND s <> 'c'"},
    {"columns": []},
    {"row_id": True},
    {"where": "row__id.rowid = 6"},
]


@pytest.mark.parametrize("query", quick_then_slow(QUERIES, 3), ids=str)
@pytest.mark.parametrize("words", [1 << 23, 0], ids=["bitmap", "join"])
def test_P14_recorded_statistics_change_no_row(
    updated: AcidTable,
    spark: SparkSession,
    query: dict[str, Any],
    words: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_keys, "MAX_WORDS", words)
    plain = scans(updated)
    lean = proven(plain)
    assert rows(read(spark, lean, **query)) == rows(read(spark, plain, **query))
    assert read(spark, lean, **query).count() == read(spark, plain, **query).count()


def test_P14_a_file_is_tested_only_if_a_deleted_key_lies_within_its_recorded_keys(
    tmp_path: Path, spark: SparkSession
) -> None:
    table = AcidTable(tmp_path, "v int")
    for bucket, first in ((0, 0), (1, 0), (0, 100)):
        where = f"b1/bucket_0000{bucket}" if not first else "d2"
        rows = [(1 + first // 100, P + (bucket << 16), first + row, row) for row in range(50)]
        table.inserts(where, rows)
    for write_id, gone, tested in (
        (3, (1, P, 50), False),  # behind the last row of its file, which has no such row
        (4, (1, P + 2, 7), False),  # of a statement without rows
        (5, (2, P, 99), False),
        (6, (1, B1, 49), True),
    ):
        table.deletes(f"D{write_id}", [gone], current=write_id)
        frame = read(spark, proven(scans(table)))
        assert ("shiftrightunsigned" in plan_of(frame)) is tested
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
    plan = plan_of(frame)
    assert "Union" not in plan and plan.count("Relation [operat") == 1
    assert plan.index("> 10") < plan.index("shiftrightunsigned")


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
