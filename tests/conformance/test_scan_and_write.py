"""Scans that must agree whatever way is chosen, and publications that must not half-happen."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform import PublicationFailed, SparkMisconfigured, Table, Warehouse
from acid_platform.base.first_use import Recent
from acid_platform.engine.spark import few_calls, row_keys, spark_readers, write
from acid_platform.engine.spark.live_rows import READER_VARIABLE
from acid_platform.engine.spark.row_keys import DeleteBitmap
from acid_platform.engine.spark.session import check_session
from acid_platform.formats.data_file import KEY, FilePath
from acid_platform.formats.file_access import open_file
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys
from acid_platform.scan.open import DELETE_KEYS
from acid_platform.storage import durability
from acid_platform.storage.files import Files
from acid_platform.write.task_files import Received
from tests.conftest import a_warehouse, few_then_more

pytestmark = pytest.mark.spark
ENGINES = pytest.mark.parametrize("engine", ["spark", "local"])

ODD = ["a b", "x:y%", "é", "100%", "p=q/r", None, "'quote\"", "a+b&c"]

warehouse = a_warehouse("spark", in_spark=True)


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    ids = np.arange(4000)
    return pd.DataFrame(
        {"id": ids, "v": ids * 1.5, "m": ids % 2, "k": np.array(ODD, dtype=object)[ids % len(ODD)]}
    )


@pytest.fixture(scope="module")
def table(warehouse: Warehouse, expected: pd.DataFrame) -> Table:
    """A partition for every awkward character; updates and deletes in each of them."""
    made = warehouse.create_table(
        "db.p", "id bigint, v double", partitioned_by=["m int", "k string"]
    )
    made.insert(expected.assign(v=0.0))
    made.update({"v": "id * 1.5"})
    made.insert(expected.assign(id=expected.id + 10_000))
    made.delete("id >= 10000")
    return made


@pytest.mark.parametrize(
    "reader", ["ours", pytest.param("spark-union", marks=pytest.mark.slow), "spark-path"]
)
@pytest.mark.parametrize("way", few_then_more(["bitmap", "join", "tasks"], 1))
def test_P16_P14_every_way_to_scan_gives_the_same_rows(
    warehouse: Warehouse,
    table: Table,
    expected: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    reader: str,
    way: str,
) -> None:
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    monkeypatch.setenv(READER_VARIABLE, reader.partition("-")[0])
    monkeypatch.setattr(spark_readers, "UNION_BYTES", 0 if reader == "spark-union" else 1 << 60)
    monkeypatch.setattr(spark_readers, "UNION_LIMIT", 100)
    monkeypatch.setattr(row_keys, "MAX_WORDS", 1 << 23 if way == "bitmap" else 0)
    warehouse.release()
    before = warehouse.metastore.settings()[DELETE_KEYS]
    warehouse.metastore.set(DELETE_KEYS, "0" if way == "tasks" else before)
    try:
        found = table.read().toPandas().sort_values("id", ignore_index=True)
    finally:
        warehouse.metastore.set(DELETE_KEYS, before)
        warehouse.release()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_P16_a_filter_on_a_partition_opens_only_its_files(
    table: Table, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # a stage hides the scans below it
    frame = table.read().filter("k = 'x:y%' and m = 1").agg(F.count("*"))
    try:
        (count,) = frame.collect()
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert count[0] == sum(1 for i in range(4000) if i % 2 == 1 and i % 8 == 1)
    # Of the sixteen partitions only one: the first insert, what the update wrote, the second one.
    assert _files_opened(frame) == 3


def _files_opened(frame: DataFrame) -> int:
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    counts = [leaves.apply(i).metrics() for i in range(leaves.size())]
    return sum(count.apply("numFiles").value() for count in counts if count.contains("numFiles"))


def test_F24_count_and_id_only_reads_keep_the_six_columns(table: Table) -> None:
    assert table.read().count() == 4000
    assert table.read(columns=["m"]).distinct().count() == 2
    assert table.read(columns=[], row_id=True).select("row__id.rowid").count() == 4000
    assert table.read().filter("id is null").count() == 0
    assert table.read().filter("id is not null and id = 7").count() == 1


def test_P15_row_ids_are_unique_and_ascend_in_every_file(table: Table) -> None:
    ids = table.read(row_id=True).select("m", "k", "row__id").distinct().count()
    assert ids == 4000
    files, root = Files.of(table.location)
    checked = 0
    for where, _, names in os.walk(root):
        for name in names:
            if name.startswith("bucket_"):
                path = f"{where}/{name}"
                file = open_file(files, FilePath(path, None))
                keys = np.concatenate([np.stack(parts) for parts in file.key_parts(*KEY)], axis=1)
                order = np.lexsort(keys[::-1])
                assert (np.diff(order) > 0).all() and len(np.unique(keys, axis=1).T) == len(keys.T)
                checked += 1
    assert checked > 8


@pytest.mark.parametrize("most", [0, 8], ids=["by slot", "by group"])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_P14_a_delete_in_one_partition_hides_no_row_of_another(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, where: int, most: int
) -> None:
    """Hive numbers the rows of each partition from 0, so the same key is in every partition."""
    monkeypatch.setattr(row_keys, "FEW_GROUPS", most)
    key = DeleteKeys.of(np.array([5]), np.array([1 << 29]), np.array([7]))
    bitmap = DeleteBitmap.build([key if entity == where else NO_DELETES for entity in range(3)])
    assert bitmap is not None
    rows = [(entity, 5, 1 << 29, row) for entity in range(3) for row in (6, 7, 8)]
    frame = spark.createDataFrame(rows, "e int, __w long, __b int, __r long")
    gone = frame.filter(bitmap.test(spark, "e")).collect()  # not one that is kept
    assert [tuple(row) for row in gone] == [(where, 5, 1 << 29, 7)]


def test_the_bitmap_answers_every_key_and_nothing_else(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(7)
    entities, keys = [], set()
    for entity in range(3):
        n = 400 if entity != 1 else 0
        raw = np.stack(
            [
                random.integers(3, 9, n),
                random.choice([1 << 29, (1 << 29) + 65537, 5], n),
                random.choice([0, 63, 64, 1_000_000, 5_000_000_000], n) + random.integers(0, 70, n),
            ]
        )
        raw = np.unique(raw, axis=1)
        entities.append(DeleteKeys.of(*raw))
        keys |= {(entity, *map(int, key)) for key in raw.T}
    bitmap = DeleteBitmap.build(
        [
            entities[0],
            entities[1],
            DeleteKeys.of(
                *np.array(
                    [key[1:] for key in sorted(keys) if key[0] == 2 and key[3] < 5_000_000_000]
                ).T
            ),
        ]
    )
    assert bitmap is None, "a span of 5 thousand million is for the join"
    small = [
        DeleteKeys.of(
            *np.array(
                [key[1:] for key in sorted(keys) if key[0] == entity and key[3] < 2_000_000]
                or [[0] * 3]
            )[: None if entity != 1 else 0].T
        )
        for entity in range(3)
    ]
    bitmap = DeleteBitmap.build(small)
    assert bitmap is not None
    gone = {
        (e, *map(int, key))
        for e, one in enumerate(small)
        for part in one.parts()
        for key in zip(*part, strict=True)
    }
    near = {
        (e, w + dw, b, max(0, r + dr))
        for e, w, b, r in sorted(gone)[::7]
        for dw in (-1, 0, 1, 50)
        for dr in (-64, -1, 0, 1, 64)
    } | {(1, 3, 5, 0), (0, 0, 7, 0)}
    frame = spark.createDataFrame(sorted(gone | near), "e int, __w long, __b int, __r long")
    for most in (0, 1000):  # through the table of groups, and group by group
        monkeypatch.setattr(row_keys, "FEW_GROUPS", most)
        found = frame.filter(bitmap.test(spark, "e")).collect()
        assert {tuple(row) for row in found} == gone


def test_P14_equal_sets_of_several_groups_are_asked_only_for_their_own_rows(
    spark: SparkSession,
) -> None:
    """Spark may compute what two tests share before either's guard, also for these row ids."""
    properties = [1 << 29, (1 << 29) + 65536]
    keys = DeleteKeys.of(np.array([1, 1]), np.array(properties), np.array([5, 5]))
    bitmap = DeleteBitmap.build([keys])
    assert bitmap is not None
    ids = (0, 5, 69, 1023, 1024, 1029, (1 << 31) + 5, (1 << 40) + 5)
    rows = [(write, b, r) for write in (1, 2) for b in (*properties, 5) for r in ids]
    frame = spark.createDataFrame(rows, "__w long, __b int, __r long")
    held = bitmap.test(spark, "__e")
    found = frame.filter(held).collect()
    assert {tuple(row) for row in found} == {(1, b, 5) for b in properties}
    left = frame.filter(~held).selectExpr("count(*)", "sum(__r)").collect()
    assert tuple(left[0]) == (len(rows) - 2, sum(row[2] for row in rows) - 10)


def test_P14_a_set_begins_at_its_lowest_row_and_ends_at_its_highest(spark: SparkSession) -> None:
    low = 7 << 32
    gone = [low + 3, low + 70, low + 5000]
    keys = DeleteKeys.of(np.array([3] * 3), np.array([1 << 29] * 3), np.array(gone))
    bitmap = DeleteBitmap.build([keys])
    assert bitmap is not None
    ids = sorted({r + d for r in gone for d in (-64, -1, 0, 1, 64)} | {0, 3, 70, low + (1 << 31)})
    frame = spark.createDataFrame([(3, 1 << 29, r) for r in ids], "__w long, __b int, __r long")
    assert sorted(row[2] for row in frame.filter(bitmap.test(spark, "__e")).collect()) == gone


def test_P19_a_count_that_differs_publishes_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("db.c", "id int")
    table.insert([{"id": 1}])
    before = sorted(os.listdir(table.location))
    run = write._written

    def one_more(*args: Any) -> Any:
        files, received, counted = run(*args)
        return files, received + Received(1), counted

    monkeypatch.setattr(write, "_written", one_more)
    with pytest.raises(PublicationFailed, match=r"counted 1 rows.*received 2; nothing was publ"):
        table.insert([{"id": 2}])
    monkeypatch.undo()
    assert sorted(os.listdir(table.location)) == before
    assert warehouse.show_transactions().query("state == 'open' and type == 'DEFAULT'").empty
    assert [row.id for row in table.read().collect()] == [1]


def test_P19_two_files_for_one_bucket_are_refused(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("db.twice", "id int")
    run = write._written

    def twice(*args: Any) -> Any:
        files, received, counted = run(*args)
        return [*files, *files], received, counted

    monkeypatch.setattr(write, "_written", twice)
    with pytest.raises(PublicationFailed, match="two files for"):
        table.insert([{"id": 1}])
    assert table.count() == 0


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_P19_a_file_that_the_driver_does_not_find_publishes_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """As if an executor wrote to a disk of its own, or the store lost the end of a file."""
    table = warehouse.create_table(f"db.elsewhere_{damage}", "id int")
    run = write._written

    def damaged(*args: Any) -> Any:
        files, received, counted = run(*args)
        if damage == "gone":
            os.unlink(files[0].path)
        else:
            os.truncate(files[0].path, files[0].entry.size - 1)
        return files, received, counted

    monkeypatch.setattr(write, "_written", damaged)
    with pytest.raises(PublicationFailed, match="all executors must write to the same storage"):
        table.insert([{"id": 1}])
    assert table.count() == 0
    assert os.listdir(table.location) == []


@ENGINES
def test_P19_a_failed_rename_takes_back_the_others(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    table = warehouse.create_table(f"db.r_{engine}", "id int", partitioned_by=["m int"])
    rename, calls = durability._rename, []

    def failing(files: Files, staged: str, final: str) -> None:
        calls.append(final)
        if len(calls) == 2:
            raise OSError("disk gone")
        rename(files, staged, final)

    monkeypatch.setattr(durability, "_rename", failing)
    with warehouse.using(engine), warehouse.transaction() as txn:
        with pytest.raises(PublicationFailed, match="disk gone"):
            txn.table(table.name).insert([{"id": 1, "m": 1}, {"id": 2, "m": 2}])
        monkeypatch.undo()
        txn.table(table.name).insert([{"id": 3, "m": 1}])
    assert [tuple(row) for row in table.read().collect()] == [(3, 1)]
    assert not any(name.startswith("_tmp") for name in os.listdir(table.location))


@pytest.mark.parametrize(
    ("distribution", "files"),
    [
        (None, 40),
        pytest.param("partition", 40, marks=pytest.mark.more),
        pytest.param("none", 160, marks=pytest.mark.more),
    ],
)
def test_a_partition_gets_few_files(
    warehouse: Warehouse, spark: SparkSession, distribution: str | None, files: int
) -> None:
    properties = {"acid.write.distribution": distribution} if distribution else {}
    table = warehouse.create_table(
        f"db.spread_{distribution or 'default'}",
        "id bigint",
        partitioned_by=["m int"],
        properties=properties,
    )
    table.insert(spark.range(0, 4000, 1, 4).selectExpr("id", "cast(id % 40 AS int) AS m"))
    assert len(list(Path(table.location).glob("m=*/delta_*/bucket_*"))) == files
    table.overwrite(spark.range(0, 400, 1, 4).selectExpr("id", "cast(id % 40 AS int) AS m"))
    assert len(list(Path(table.location).glob("m=*/base_*/bucket_*"))) == files
    found = table.read(row_id=True).selectExpr("id", "m", "row__id.bucketid AS b", "row__id.rowid")
    assert sorted((row.id, row.m) for row in found.collect()) == [(i, i % 40) for i in range(400)]
    assert found.select("b", "rowid").distinct().count() == 400, "P15: unique in the bucket"


def test_P17_a_session_in_another_time_zone_is_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with pytest.raises(SparkMisconfigured, match=r"spark\.sql\.session\.timeZone"):
            check_session(spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert check_session(spark) is spark


def test_P17_timestamps_are_wall_clocks(warehouse: Warehouse, spark: SparkSession) -> None:
    table = warehouse.create_table("db.ts", "id int, at timestamp")
    table.insert(spark.sql("SELECT 1 id, TIMESTAMP_NTZ '2013-07-01 12:00:00' at"))
    table.insert(pd.DataFrame({"id": [2], "at": [pd.Timestamp("2013-07-01 12:00:00")]}))
    found = table.read().selectExpr("cast(at AS string) at").distinct().collect()
    assert [row.at for row in found] == ["2013-07-01 12:00:00"]


def test_P63_a_batch_of_zeros_keeps_their_signs(warehouse: Warehouse) -> None:
    """ORC says of such a batch that it repeats its first value."""
    zeros = [0.0, -0.0, -0.0, 0.0] * 300
    columns = "id int, x double, f float, s struct<x:double>, l array<double>"
    rows = [{"id": i, "x": x, "f": -x, "s": {"x": -x}, "l": [x, -x]} for i, x in enumerate(zeros)]
    table = warehouse.create_table("db.zeros", columns)
    table.insert(rows)
    table.delete("id = 1")
    in_spark = [row.asDict(recursive=True) for row in table.read().orderBy("id").collect()]
    here = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert repr(here) == repr(in_spark) == repr([row for row in rows if row["id"] != 1])


@pytest.fixture
def driver_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python's zone is not that of the session and of the JVM."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@ENGINES
@pytest.mark.usefixtures("driver_in_new_york")
def test_P17_the_zone_of_the_driver_moves_no_timestamp(
    warehouse: Warehouse, spark: SparkSession, engine: str
) -> None:
    noon = datetime.datetime(2013, 7, 1, 12, 0)
    assert noon.astimezone().utcoffset() == datetime.timedelta(hours=-4)
    table = warehouse.create_table(f"db.zone_{engine}", "id int, at timestamp")
    with warehouse.using(engine):
        table.insert([{"id": 1, "at": noon}])
        table.insert(pd.DataFrame({"id": [2], "at": [pd.Timestamp(noon)]}))
        table.insert(pa.table({"id": pa.array([3], pa.int32()), "at": [noon]}))
        warehouse.sql(f"INSERT INTO {table.name} VALUES (5, TIMESTAMP '2013-07-01 12:00:00')")
        table.update({"at": "at"}, "at = TIMESTAMP '2013-07-01 12:00:00' AND id < 3")
        table.update({"at": "TIMESTAMP '2013-07-01 12:00:00'"}, "length('') = id - 3")
    table.insert(spark.sql("SELECT 4 id, TIMESTAMP_NTZ '2013-07-01 12:00:00' at"), engine="spark")
    table.compact("major")
    found = table.read(where="at = TIMESTAMP '2013-07-01 12:00:00'")
    assert found.count() == 5
    assert {row.at for row in found.selectExpr("cast(at AS string) at").collect()} == {str(noon)}
    assert table.to_arrow(["at"]).column(0).to_pylist() == [noon] * 5
