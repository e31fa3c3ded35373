"""Hive 2.3's own writer and compactor, alive, make tables that we read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from tests.conftest import temporary_warehouse
from tests.hive import RowId, hive_rows_with_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = [("id", "int"), ("v", "string")]


@pytest.fixture
def warehouse(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", spark) as opened:
        yield opened


class HiveWriter:
    """One statement of one transaction, which is its write id too: `OrcRecordUpdater`."""

    def __init__(self, spark: SparkSession, root: Path, write_id: int, statement: int = 0) -> None:
        jvm: Any = spark._jvm
        self.jvm, self.write_id = jvm, write_id
        self.io = jvm.org.apache.hadoop.io
        kinds = jvm.org.apache.hadoop.hive.serde2.objectinspector
        of = kinds.primitive.PrimitiveObjectInspectorFactory
        struct = kinds.ObjectInspectorFactory.getStandardStructObjectInspector
        whole, number = of.writableLongObjectInspector, of.writableIntObjectInspector
        identity = struct(["transactionId", "bucketId", "rowId"], [whole, number, whole])
        row = struct(
            ["ROW__ID", *(name for name, _ in COLUMNS)],
            [identity, number, of.writableStringObjectInspector],
        )
        conf = jvm.org.apache.hadoop.mapred.JobConf(spark._jsc.hadoopConfiguration())
        conf.set("transactional_properties", "default")
        conf.setInt("hive.txn.operational.properties", 1)
        properties = jvm.java.util.Properties()
        properties.setProperty("transactional_properties", "default")
        options = JavaClass(
            "org.apache.hadoop.hive.ql.io.AcidOutputFormat$Options", jvm._gateway_client
        )(conf)
        options = (
            options.inspector(row)
            .bucket(0)
            .recordIdColumn(0)
            .statementId(statement)
            .minimumTransactionId(write_id)
            .maximumTransactionId(write_id)
            .tableProperties(properties)
        )
        self.updater = jvm.org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat().getRecordUpdater(
            jvm.org.apache.hadoop.fs.Path(f"file:{root}"), options
        )

    def _row(self, identity: RowId | None, values: Sequence[Any]) -> Any:
        row = self.jvm.java.util.ArrayList()
        row.add(
            None
            if identity is None
            else self._list(
                self.io.LongWritable(identity[0]),
                self.io.IntWritable(identity[1]),
                self.io.LongWritable(identity[2]),
            )
        )
        number, text = values
        row.add(self.io.IntWritable(number))
        row.add(None if text is None else self.io.Text(text))
        return row

    def _list(self, *items: Any) -> Any:
        made = self.jvm.java.util.ArrayList()
        for one in items:
            made.add(one)
        return made

    def insert(self, *rows: Sequence[Any]) -> None:
        for row in rows:
            self.updater.insert(self.write_id, self._row(None, row))

    def update(self, identity: RowId, values: Sequence[Any]) -> None:
        self.updater.update(self.write_id, self._row(identity, values))

    def delete(self, identity: RowId) -> None:
        self.updater.delete(self.write_id, self._row(identity, (0, None)))

    def __enter__(self) -> HiveWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.updater.close(error[0] is not None)


def hive_compacts(spark: SparkSession, root: Path, kind: str, high_watermark: int) -> None:
    """`CompactorMR` by Hadoop's local job runner; its method `run` is for its package alone."""
    jvm: Any = spark._jvm
    hive = jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    for key, value in {
        "mapreduce.framework.name": "local",
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": f"{root.parent}/hadoop",
    }.items():
        conf.set(key, value)

    def named(name: str) -> Any:
        return jvm.java.lang.Class.forName(f"org.apache.hadoop.hive.{name}")

    def call(name: str, method: str, on: Any, *arguments: Any) -> Any:
        found = next(one for one in named(name).getDeclaredMethods() if one.getName() == method)
        found.setAccessible(True)
        given = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for index, one in enumerate(arguments):
            given[index] = one
        return found.invoke(on, given)

    api = hive.metastore.api
    nothing = jvm.java.util.ArrayList()
    storage = api.StorageDescriptor()
    storage.setLocation(f"file:{root}")
    storage.setInputFormat("org.apache.hadoop.hive.ql.io.orc.OrcInputFormat")
    storage.setOutputFormat("org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat")
    storage.setNumBuckets(1)
    storage.setBucketCols(nothing)
    storage.setSerdeInfo(api.SerDeInfo())
    storage.setCols([api.FieldSchema(name, kind, "") for name, kind in COLUMNS])
    table = api.Table()
    table.setDbName("db")
    table.setTableName("t")
    table.setSd(storage)
    table.setParameters({"transactional": "true", "transactional_properties": "default"})
    request = hive.metastore.txn.CompactionInfo(
        "db", "t", None, getattr(api.CompactionType, kind.upper())
    )
    # Without columns there are no statistics to gather; of the metastore it only tells the job.
    statistics = call(
        "ql.txn.compactor.Worker$StatsUpdater", "init", None, request, nothing, conf, "hive"
    )
    silent = jvm.java.beans.EventHandler.create(
        named("metastore.txn.TxnStore"), jvm.java.lang.Object(), "hashCode"
    )
    seen = hive.common.ValidCompactorTxnList(f"{high_watermark}:9223372036854775807:")
    call(
        "ql.txn.compactor.CompactorMR",
        "run",
        hive.ql.txn.compactor.CompactorMR(),
        conf,
        "test",
        table,
        storage,
        seen,
        request,
        statistics,
        silent,
    )


MADE = {
    "minor": {"delta_0000001_0000003", "delete_delta_0000001_0000003"},
    "major": {"base_0000003"},
}


@pytest.mark.parametrize("compaction", [None, *MADE])
def test_what_hive_writes_and_compacts_now_is_read_as_hive_reads_it(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, compaction: str | None
) -> None:
    root = tmp_path / "hive"
    root.mkdir()
    with HiveWriter(spark, root, 1) as first:
        first.insert(*((i, None if i % 5 == 0 else f"v{i}") for i in range(2000)))
    with HiveWriter(spark, root, 2) as second:
        second.insert((5000, "late"))
    with HiveWriter(spark, root, 3) as third:
        for i in range(2000):  # in the order of their keys, as Hive's plans see to it
            if i % 7 == 0:
                third.update((1, 0, i), (i, "changed"))
            elif i % 7 == 3:
                third.delete((1, 0, i))
    assert {info.name for info in root.iterdir() if info.is_dir()} == {
        "delta_0000001_0000001_0000",
        "delta_0000002_0000002_0000",
        "delta_0000003_0000003_0000",
        "delete_delta_0000003_0000003_0000",
    }
    if compaction:
        before = {info.name for info in root.iterdir()}
        hive_compacts(spark, root, compaction, 3)
        assert {info.name for info in root.iterdir()} - before == MADE[compaction]
    expected = [(i, None if i % 5 == 0 else f"v{i}") for i in range(2000) if i % 7 not in (0, 3)]
    expected += [(i, "changed") for i in range(0, 2000, 7)] + [(5000, "late")]

    with pytest.warns(UserWarning, match="count as committed"):
        table = warehouse.adopt_table("db.t", root, ", ".join(map(" ".join, COLUMNS)))
    assert table.count() == len(expected)
    by_id = sorted(expected)
    assert [tuple(row) for row in table.read().orderBy("id").collect()] == by_id
    assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == by_id
    ids = {
        tuple(row[0]): row[1] for row in table.read(row_id=True).select("row__id", "id").collect()
    }
    theirs = hive_rows_with_ids(spark, root, COLUMNS, table.snapshot().write_ids)
    assert sorted(ids) == sorted(key for key, _ in theirs)
    # Our statements go on from what Hive wrote, and compact it.
    assert table.delete("id < 100") == sum(one < 100 for one, _ in expected)
    table.compact("major")
    left = [row for row in by_id if row[0] >= 100]
    assert [tuple(row) for row in table.read().orderBy("id").collect()] == left
