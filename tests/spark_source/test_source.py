"""The data source `acid` in plain Spark code: read, write, readStream, writeStream (P42)."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from acid_platform.metastore.operations.tables import GetSinks
from acid_platform.metastore.operations.transactions import AbortMany
from acid_platform.services import cleaner
from tests.spark_source.places import KEPT, Place, forget, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def here(tmp_path: Path, spark: SparkSession) -> Iterator[Place]:
    with place(tmp_path, spark) as made:
        yield made


def test_P42_plain_spark_code_reads_and_writes(here: Place, spark: SparkSession) -> None:
    """Without a registration: Spark finds the package pyspark_acid."""
    columns = "id int, v string"
    here.warehouse.create_table("db.t", columns, partitioned_by=["p int"], properties=KEPT)
    here.save(spark.sql(f"SELECT * FROM {ROWS} AS t(id, v, p)"), "db.t")
    wanted = [(number, "a", number % 2) for number in range(4)]
    assert sorted(map(tuple, here.load(spark, "db.t").collect())) == wanted == here.rows("db.t")


@pytest.mark.slow
def test_P42_plain_spark_code_streams(here: Place, spark: SparkSession) -> None:
    wh = here.warehouse
    wh.create_table("db.t", "id int, v string", partitioned_by=["p int"], properties=KEPT)
    wh.create_table("db.copy", "id int, v string, p int")
    for number in range(2):
        wh.sql(f"INSERT INTO db.t VALUES ({number}, 'a', {number})")
        here.sink(here.stream(spark, "db.t"), "db.copy")
        wh.sql(f"UPDATE db.t SET v = 'b' WHERE id = {number}")
        (row,) = wh.metastore.call(GetSinks("db.copy"))
        assert (row.sink.batch, row.sink.rows) == (number, 1)
    assert here.rows("db.copy") == [(0, "a", 0), (1, "a", 1)]


ROWS = "VALUES (0, 'a', 0), (1, 'a', 1), (2, 'a', 0), (3, 'a', 1)"


@pytest.mark.slow
def test_P42_reads_and_overwrites_take_options(here: Place, spark: SparkSession) -> None:
    wh = here.warehouse
    wh.create_table("db.t", "id int, v string", partitioned_by=["p int"], properties=KEPT)
    wh.create_table("db.copy", "id int, v string, p int")
    rows = spark.sql(f"SELECT * FROM {ROWS} AS t(id, v, p)")
    here.save(rows.repartition(3), "db.t")
    wh.sql("UPDATE db.t SET v = 'b' WHERE id = 0")
    wh.sql("INSERT INTO db.t VALUES (6, 'c', 2)")
    assert here.load(spark, "db.t", where="p = 2").collect()[0].asDict() == {
        "id": 6,
        "v": "c",
        "p": 2,
    }
    assert here.load(spark, "db.t", asOf="1").where("v = 'a'").count() == 4
    narrow = spark.read.format("acid").options(**here.options).schema("p int").load("db.t")
    assert sorted(row["p"] for row in narrow.collect()) == [0, 0, 1, 1, 2]
    one = spark.sql("SELECT 9 AS id, 2 AS p")
    here.save(one, "db.t", "overwrite", partitionOverwriteMode="dynamic")
    assert [row for row in here.rows("db.t") if row[2] == 2] == [(9, None, 2)]
    assert len(here.rows("db.t")) == 5
    here.save(one, "db.t", "overwrite")
    assert here.rows("db.t") == [(9, None, 2)]
    complete = here.stream(spark, "db.t").groupBy("p").count()
    (
        complete.selectExpr("p", "CAST(count AS int) AS id")
        .writeStream.format("acid")
        .options(**here.options)
        .option("checkpointLocation", str(here.directory / "all"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start("db.copy")
        .awaitTermination()
    )
    assert here.rows("db.copy") == [(1, None, 2)]


TYPES = (
    "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, s string,"
    " c char(3), x binary, day date, at timestamp, n decimal(12,3), a array<int>,"
    " m map<string,int>, st struct<q: int, w: array<string>>"
)
VALUES: dict[str, Any] = {
    "b": True,
    "i1": 1,
    "i2": 2,
    "i4": 3,
    "i8": 4,
    "f": 0.5,
    "d": 0.25,
    "s": "ä",
    "c": "ab ",
    "x": b"\0",
    "day": datetime.date(2020, 2, 29),
    "at": datetime.datetime(2020, 2, 29, 12, 0, 0, 123456),
    "n": decimal.Decimal("1.125"),
    "a": [1, None],
    "m": [("k", 1)],
    "st": {"q": 1, "w": ["x"]},
}


@pytest.mark.slow
def test_P42_every_type_comes_and_goes(here: Place, spark: SparkSession) -> None:
    for name in ("db.t", "db.u"):
        here.warehouse.create_table(name, TYPES)
    nothing = dict.fromkeys(VALUES)
    types = here.warehouse.table("db.t").to_arrow().schema
    here.warehouse.table("db.t").insert(pa.Table.from_pylist([VALUES, nothing], schema=types))
    frame = here.load(spark, "db.t")
    assert dict(frame.dtypes)["at"] == "timestamp_ntz"
    found = frame.orderBy("b").collect()
    assert found[1]["at"] == VALUES["at"] and found[1]["st"].asDict(True) == VALUES["st"]
    assert all(value is None for value in found[0])
    here.save(frame, "db.u")
    key = lambda row: str(row["b"])  # noqa: E731
    copies = [
        sorted(here.warehouse.table(name).to_arrow().to_pylist(), key=key)
        for name in ("db.t", "db.u")
    ]
    assert copies[0] == copies[1] == sorted([VALUES, nothing], key=key)
    read = here.warehouse.table("db.u").read().orderBy("b").collect()
    assert read[1]["at"] == VALUES["at"], "Spark reads our files as its own"


@pytest.mark.slow
def test_P42_a_snapshot_outlives_a_cleaning_or_the_read_fails(
    here: Place, spark: SparkSession
) -> None:
    wh = here.warehouse
    wh.create_table("db.t", "id int")
    for number in range(3):
        wh.sql(f"INSERT INTO db.t VALUES ({number})")
    frame = here.load(spark, "db.t")
    old = here.load(spark, "db.t", asOf="2")
    wh.table("db.t").compact("major")
    wh.sql("DELETE FROM db.t WHERE id = 0")
    cleaner.run(wh.metastore)
    assert frame.count() == 3 and frame.join(frame, "id").count() == 3
    assert old.count() == 2
    leases = [row["txnid"] for row in here.open_transactions()]
    wh.metastore.call(AbortMany(tuple(leases), ""))
    wh.sql("INSERT INTO db.t VALUES (7)")
    cleaner.run(wh.metastore)
    with pytest.raises(Exception, match=r"call load\(\) again"):
        frame.count()
    assert here.load(spark, "db.t").count() == 3


@pytest.mark.slow
def test_P42_a_failed_write_leaves_nothing(here: Place, spark: SparkSession) -> None:
    wh = here.warehouse
    wh.create_table("db.t", "id int")
    frame = (
        spark.range(100)
        .repartition(4)
        .selectExpr("CAST(if(id = 77, raise_error('broken'), id) AS int) AS id")
    )
    with pytest.raises(Exception, match="broken"):
        here.save(frame, "db.t")
    with pytest.raises(Exception, match="broken"):
        here.sink(
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 100)
            .load()
            .selectExpr("CAST(if(value = 77, raise_error('broken'), value) AS int) AS id"),
            "db.t",
        )
    assert here.rows("db.t") == [] and here.open_transactions() == []
    cleaner.run(wh.metastore)  # a task may have written until just now
    assert [path.name for path in Path(wh.path, "db.db", "t").iterdir()] == []
    with pytest.raises(Exception, match=r"(?s)UnknownColumn.*nmae"):
        here.save(spark.range(1).selectExpr("id AS nmae"), "db.t")
    with pytest.raises(Exception, match="did you mean warehouse"):
        spark.read.format("acid").option("warehose", wh.path).load("db.t")
    with pytest.raises(Exception, match="NoSuchTable"):
        here.load(spark, "db.none")


@pytest.mark.slow
def test_P42_a_batch_that_spark_repeats_is_written_once(here: Place, spark: SparkSession) -> None:
    """As after a crash between our commit and the note in Spark's checkpoint."""
    wh = here.warehouse
    wh.create_table("db.t", "id int", properties=KEPT)
    wh.create_table("db.copy", "id int")

    def run(checkpoint: str = "c", **options: str) -> None:
        source = here.stream(spark, "db.t", since="0")
        here.sink(source, "db.copy", checkpoint, **options)

    for number in range(3):
        wh.sql(f"INSERT INTO db.t VALUES ({number})")
        run(sink="one")
    assert here.rows("db.copy") == [(0,), (1,), (2,)]
    noted = here.directory / "c" / "commits" / "2"
    noted.unlink()
    (noted.parent / ".2.crc").unlink(missing_ok=True)
    run(sink="one")
    assert noted.exists() and here.rows("db.copy") == [(0,), (1,), (2,)]
    with pytest.raises(Exception, match="another checkpoint"):
        run("deleted", sink="one")
    assert here.rows("db.copy") == [(0,), (1,), (2,)]
    wh.sql("INSERT INTO db.t VALUES (3)")
    run(sink="one")
    assert here.rows("db.copy") == [(0,), (1,), (2,), (3,)]
    assert [row for row in here.open_transactions() if row["type"] == "DEFAULT"] == []


@pytest.mark.slow
def test_P42_a_stream_whose_tasks_all_fail_leaves_no_transaction_open(
    here: Place, spark: SparkSession
) -> None:
    """Its checkpoint is set for the session, so that no option of the query names it."""
    wh = here.warehouse
    wh.create_table("db.t", "id int", properties=KEPT)
    wh.create_table("db.copy", "id int")
    wh.sql("INSERT INTO db.t VALUES (1)")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(here.directory / "all"))
    try:
        broken = here.stream(spark, "db.t", since="0").selectExpr("id DIV (id - 1) AS id")
        writer = broken.selectExpr("cast(id AS int) id").writeStream.format("acid")
        query = writer.options(**here.options).trigger(availableNow=True).start("db.copy")
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            query.awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert here.rows("db.copy") == []
    assert [row for row in here.open_transactions() if row["type"] == "DEFAULT"] == []


@pytest.mark.slow
def test_P42_the_changes_stream_leads_to_the_same_rows(here: Place, spark: SparkSession) -> None:
    wh = here.warehouse
    wh.create_table("db.t", "id int, v int", properties=KEPT)
    wh.create_table("db.log", "id int, v int, what string, w bigint")
    wh.sql("INSERT INTO db.t VALUES (1, 1), (2, 1)")

    def run() -> None:
        changes = here.stream(spark, "db.t", changes="true")
        here.sink(changes.selectExpr("id", "v", "_change_type AS what", "_write_id AS w"), "db.log")

    run()
    wh.sql("UPDATE db.t SET v = 2 WHERE id = 1")
    wh.sql("DELETE FROM db.t WHERE id = 2")
    run()
    assert here.rows("db.log") == [
        (1, 1, "insert", 1),
        (1, 1, "update_preimage", 2),
        (1, 2, "update_postimage", 2),
        (2, 1, "delete", 3),
        (2, 1, "insert", 1),
    ]
    wh.table("db.t").compact("major")
    wh.sql("ALTER TABLE db.t SET TBLPROPERTIES ('acid.history.retention' = '0')")
    wh.sql("INSERT INTO db.t VALUES (3, 1)")
    wh.table("db.t").compact("major")
    forget(here.location)
    wh.metastore.call(AbortMany(tuple(row["txnid"] for row in here.open_transactions()), ""))
    cleaner.run(wh.metastore)
    with pytest.raises(Exception, match="new checkpointLocation"):
        run()
