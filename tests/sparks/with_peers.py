"""One session of somebody else with Iceberg and Delta, and our tables beside theirs.

`make lab-test-sparks` runs it with each version of Spark for which there are builds of them: a
session gets its jars when its JVM starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acid_platform import SparkMisconfigured, Warehouse
from acid_platform.engine.spark.live_rows import has_acid_format
from acid_platform.engine.spark.session import prepare_environment
from tests.conftest import temporary_warehouse
from tests.spark_source.places import Place
from tests.sparks.peers import jar_settings, peers_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "id bigint, flag boolean, amount decimal(12,2), ratio double, small float, name string,"
    " day date, at timestamp, parts array<int>, inner struct<a:int,b:string>,"
    " by_name map<string,bigint>, raw binary"
)
EXTENSIONS = {
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
}
CATALOGS = {
    "iceberg": {
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": "{home}/ice",
    },
    "delta": {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
}
PEERS = peers_of()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[SparkSession]:
    """As the documents of the peers say, in UTC, and with none of our settings."""
    from pyspark.sql import SparkSession

    prepare_environment("local[2]")
    settings = {
        **jar_settings(),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": (
            f"-Duser.timezone=UTC {os.environ.get('ACID_SPARK_JAVA_OPTIONS', '')}"
        ),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "spark"),
        "spark.sql.extensions": ",".join(EXTENSIONS[peer] for peer in PEERS),
    }
    for peer in PEERS:
        settings |= {name: text.format(home=home) for name, text in CATALOGS[peer].items()}
    builder = SparkSession.builder
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def warehouse(home: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(home / "wh", spark) as opened:
        yield opened


def test_P17_our_format_reads_in_their_session(warehouse: Warehouse) -> None:
    assert has_acid_format(warehouse.spark)


def source(spark: SparkSession, first: int = 0, count: int = 100) -> DataFrame:
    return (
        spark.range(first, first + count, 1, 2)
        .selectExpr(
            "id",
            "id % 2 = 0 AS flag",
            "CAST(id AS decimal(12,2)) / 4 AS amount",
            "CAST(id AS double) / 3 AS ratio",
            "CAST(id AS float) / 2 AS small",
            "CASE WHEN id % 7 = 0 THEN NULL ELSE concat('näme ', id) END AS name",
            "date_add(DATE'2024-01-01', CAST(id AS int)) AS day",
            "timestamp_micros(id * 86400000000 + 123456) AS at",
            "array(CAST(id AS int), NULL) AS parts",
            "struct(CAST(id AS int) AS a, 'b' AS b) AS inner",
            "map('k', id) AS by_name",
            "unhex('00FF') AS raw",
        )
        .selectExpr("* EXCEPT (amount)", "CAST(amount AS decimal(12,2)) AS amount")
    )


def names() -> list[str]:
    return [part.strip().split(" ")[0] for part in COLUMNS.split(", ")]


def as_theirs(spark: SparkSession, peer: str, table: str, home: Path) -> str:
    """A new table of the peer with rows; its name in SQL."""
    if peer == "iceberg":
        name, using = f"ice.db.{table}", "USING iceberg"
    else:
        name, using = f"delta.`{home}/delta/{table}`", "USING delta"
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) {using}")
    source(spark).select(*names()).writeTo(name).append()
    return name


def rows(frame: DataFrame) -> list[Any]:
    return sorted(tuple(row) for row in frame.select(*names()).collect())


@pytest.mark.parametrize("peer", PEERS)
def test_P42_rows_of_a_peer_come_into_ours_and_go_back(
    peer: str, spark: SparkSession, warehouse: Warehouse, home: Path
) -> None:
    theirs = as_theirs(spark, peer, "given", home)
    given = spark.table(theirs)
    expected = rows(given)
    assert len(expected) == 100
    assert expected[8][:3] == (8, True, Decimal("2.00"))
    assert expected[8][6:8] == (date(2024, 1, 9), datetime(1970, 1, 9, 0, 0, 0, 123456))

    ours = warehouse.create_table(f"{peer}.by_verb", COLUMNS)
    assert ours.insert(given) == 100
    assert rows(ours.read()) == expected
    by_source = warehouse.create_table(f"{peer}.by_source", COLUMNS)
    place = Place(warehouse, home)
    place.save(given, f"{peer}.by_source")
    assert rows(by_source.read()) == expected
    loaded = place.load(spark, f"{peer}.by_source")
    # A wall clock there; the other names of the same values.
    assert rows(loaded.withColumn("at", loaded["at"].cast("timestamp"))) == expected

    merged = ours.merge(
        source(spark, 90, 20).withColumnRenamed("name", "called"),
        "t.id = s.id",
        when_matched_update={"name": "'changed'"},
        when_not_matched_insert={name: f"s.{name}" for name in names() if name != "name"},
    )
    assert (merged.updated, merged.inserted) == (10, 10)
    ours.delete("id < 10")

    back = "ice.db.back" if peer == "iceberg" else f"delta.`{home}/delta/back`"
    answer = warehouse.sql(f"SELECT * FROM {peer}.by_verb WHERE id >= 50", engine="spark")
    answer.to_spark().writeTo(back).using(peer).create()
    told = spark.table(back)
    assert told.count() == 60
    assert told.where("name = 'changed'").count() == 10
    assert rows(told) == rows(ours.read().where("id >= 50"))


def test_P42_one_query_joins_ours_and_theirs(
    spark: SparkSession, warehouse: Warehouse, home: Path
) -> None:
    place = Place(warehouse, home)
    ours = warehouse.create_table("j.ours", "id bigint, v string", partitioned_by=["p int"])
    ours.insert(spark.range(100).selectExpr("id", "concat('v', id) v", "CAST(id % 4 AS int) p"))
    ours.update({"v": "'u'"}, "id % 10 = 1")
    ours.delete("id >= 90")
    joined = "SELECT count(*), sum(o.id) FROM ours o"
    for peer in PEERS:
        joined += f" JOIN {as_theirs(spark, peer, 'joined', home)} {peer} ON {peer}.id = o.id"
    joined += " WHERE o.p = 1 AND o.v <> 'u'"
    wanted = [n for n in range(90) if n % 4 == 1 and n % 10 != 1]
    ours.read().createOrReplaceTempView("ours")
    assert [tuple(row) for row in spark.sql(joined).collect()] == [(len(wanted), sum(wanted))]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW ours USING acid"
        f" OPTIONS (path 'j.ours', warehouse '{warehouse.path}')"
    )
    assert [tuple(row) for row in spark.sql(joined).collect()] == [(len(wanted), sum(wanted))]
    # A query of theirs writes into ours through the frame that it is.
    copied = warehouse.create_table("j.copied", "id bigint, v string, p int")
    place.save(spark.sql("SELECT id, v, p FROM ours"), "j.copied")
    assert copied.count() == 90


@pytest.mark.parametrize("peer", PEERS)
def test_P17_statements_of_the_peer_still_work(
    peer: str, spark: SparkSession, warehouse: Warehouse, home: Path
) -> None:
    """What we read and wrote in this session took nothing away from it."""
    name = as_theirs(spark, peer, "changed", home)
    spark.sql(f"UPDATE {name} SET name = 'x' WHERE id < 10")
    spark.sql(f"DELETE FROM {name} WHERE id >= 90")
    found = spark.sql(f"SELECT count(*), count_if(name = 'x') FROM {name}").collect()
    assert tuple(found[0]) == (90, 10)


def test_P17_a_session_with_other_meanings_is_refused(
    spark: SparkSession, home: Path, warehouse: Warehouse
) -> None:
    """The text names the setting and the call."""
    for name, text in (("spark.sql.ansi.enabled", "false"), ("spark.sql.session.timeZone", "CET")):
        before = spark.conf.get(name)
        spark.conf.set(name, text)
        try:
            with pytest.raises(SparkMisconfigured, match=rf"{name}.*spark\.conf\.set"):
                _ = Warehouse.open(warehouse.path, spark=spark).spark
        finally:
            spark.conf.set(name, str(before))
