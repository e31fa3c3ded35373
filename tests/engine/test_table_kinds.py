"""Bucketed and insert-only tables, and files without ACID columns (F11, F15, F17)."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acid_platform import (
    BucketColumnUpdate,
    NeedsSpark,
    Table,
    UnsupportedLayout,
    UnsupportedStatement,
    Warehouse,
    WrongType,
)
from acid_platform.engine.spark import live_rows
from tests.conftest import IN_ORC, a_warehouse, quick_then_slow, temporary_warehouse

pytestmark = pytest.mark.spark

warehouse = a_warehouse(in_spark=True)


def _buckets(table: Table) -> dict[int, int]:
    """The bucket number of each id, which must be that of its file's name."""
    frame = table.read(row_id=True).select("id", "row__id.bucketid").collect()
    return {row[0]: (row[1] >> 16) & 0xFFF for row in frame}


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD", "LZ4"])
def test_a_table_keeps_its_codec(warehouse: Warehouse, codec: str) -> None:
    """LZ4 footers can't be read here, so Spark writes such files nested."""
    table = warehouse.create_table(
        f"db.{codec}", "id int, v array<string>", properties={**IN_ORC, "orc.compress": codec}
    )
    table.insert([{"id": i, "v": ["a", None]} for i in (1, 2)])
    table.update({"v": "array('b')"}, "id = 2")
    for path in Path(table.location).glob("delta_*/bucket_*"):
        assert orc.ORCFile(str(path)).compression == ("UNCOMPRESSED" if codec == "NONE" else codec)
    for read in (table.read().toArrow(), table.to_arrow()):
        assert sorted(read.to_pylist(), key=str) == [
            {"id": 1, "v": ["a", None]},
            {"id": 2, "v": ["b"]},
        ]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2", {0: 1, 1: 1, 2: 0, 3: 2, 42: 3, -1: 1}),
        ("1", {0: 0, 1: 1, 2: 2, 3: 3, 42: 2, -1: 3}),
    ],
)
def test_every_row_lies_in_hives_bucket(
    warehouse: Warehouse, version: str, expected: dict[int, int]
) -> None:
    table = warehouse.create_table(
        f"db.buckets{version}",
        "id int, v string",
        clustered_by=(["ID"], 4),
        properties={"bucketing_version": version},
    )
    table.insert([{"id": i, "v": "a"} for i in (0, 1, 2)])
    table.merge(
        [{"id": i, "v": "m"} for i in (0, 3, 42)],
        "t.id = s.id",
        when_matched_update={"v": "s.v"},
        when_not_matched_insert="*",
    )
    table.insert([{"id": -1, "v": "a"}])
    table.update({"v": "upper(v)"}, "id = 42")
    assert _buckets(table) == expected
    for path in Path(table.location).glob("delta_*/bucket_*"):
        assert int(path.name.removeprefix("bucket_")) in expected.values()
    with pytest.raises(BucketColumnUpdate, match="decides the bucket"):
        table.update({"id": "id + 1"})
    table.delete("id >= 0")
    assert _buckets(table) == {-1: expected[-1]}


TEXTS = ["a", "", None, " x ", 'q"uo,te', "back\\slash", "é\t|"]


def _values(texts: list[str | None]) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "v": text,
            "d": datetime.date(2024, 1, 1 + i),
            "b": i % 2 == 0,
            "ts": datetime.datetime(2024, 1, 1, 12, 0, i, 123456),
            "x": i / 4,
            "n": decimal.Decimal("1.50"),
            "m": i % 2,
        }
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize("name", quick_then_slow(("orc", "parquet", "text", "json", "csv"), 3))
def test_insert_only_tables_keep_every_value(warehouse: Warehouse, name: str) -> None:
    table = warehouse.create_table(
        f"db.plain_{name}",
        "id int, v string, d date, b boolean, ts timestamp, x double, n decimal(7,2)",
        partitioned_by=["m int"],
        properties={"transactional_properties": "insert_only", "acid.format": name},
    )
    given = _values(TEXTS)
    assert table.insert(given[:4]) == 4 and table.insert(given[4:]) == 3
    found = [row.asDict() for row in table.read().orderBy("id").collect()]
    assert found == given
    assert table.read(where="m = 1 and v = ' x '").select("id").collect()[0][0] == 3
    assert {path.name for path in Path(table.location).glob("*/delta_*/*")} == {"000000_0"}
    table.overwrite(given[1:2], "m=1")
    assert table.read().filter("m = 1").count() == 1
    table.truncate("m=0")
    assert [row.id for row in table.read().collect()] == [1]
    for statement in (
        lambda: table.delete("id = 1"),
        lambda: table.update({"v": "'x'"}),
        lambda: table.merge(given, "t.id = s.id", when_not_matched_insert="*"),
    ):
        with pytest.raises(UnsupportedStatement, match="insert-only"):
            statement()


def test_csv_keeps_line_ends_and_text_refuses_what_it_would_lose(warehouse: Warehouse) -> None:
    odd = [{"id": 0, "v": "two\nlines"}, {"id": 1, "v": "x"}]
    kept = warehouse.create_table(
        "db.lines",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": "csv"},
    )
    assert kept.insert(odd) == 2
    assert [row.v for row in kept.read().orderBy("id").collect()] == ["two\nlines", "x"]
    lossy = warehouse.create_table(
        "db.lossy",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": "text"},
    )
    with pytest.raises(WrongType, match="line end"):
        lossy.insert(odd)
    assert lossy.history() == [] and lossy.insert(odd[1:]) == 1


def test_avro_needs_a_package_of_spark(warehouse: Warehouse) -> None:
    plain = {"transactional_properties": "insert_only"}
    avro = warehouse.create_table("db.avro", "id int", properties={**plain, "acid.format": "avro"})
    with pytest.raises(UnsupportedLayout, match=r"spark-avro_2\.13"):
        avro.insert([{"id": 1}])


def test_F15_rows_of_original_files_can_be_changed(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 10, 1, 2).select(F.col("id").cast("int"), F.lit("o").alias("v"))
    frame.write.orc(str(tmp_path / "flat"))
    root = Path(warehouse.path, "converted")
    root.mkdir()
    names = iter(["000000_0", "000001_0"])
    for path in sorted((tmp_path / "flat").glob("part-*.orc")):
        path.rename(root / next(names))
    table = warehouse.adopt_table("db.converted", root)
    assert [str(column) for column in table.columns] == ["id int", "v string"]
    assert table.update({"v": "'u'"}, "id in (2, 7)") == 2
    assert table.delete("id = 3") == 1
    assert sorted(map(tuple, table.read().collect())) == [
        (i, "u" if i in (2, 7) else "o") for i in range(10) if i != 3
    ]
    assert table.read(where="v = 'o'").count() == 7
    frame = table.read(row_id=True).select("id", "row__id")
    ids = {row[0]: tuple(row[1]) for row in frame.collect()}
    assert ids[0] == (0, 536870912, 0) and ids[9] == (0, 536936448, 4) and ids[2][0] > 0


def test_columns_named_like_the_six_lose_no_row(warehouse: Warehouse, spark: SparkSession) -> None:
    """ORC would look for a pushed filter on `bucket` inside the row (F19)."""
    table = warehouse.create_table("db.named", "operation string, bucket int, rowid bigint, id int")
    none = F.lit(None)
    frame = spark.range(0, 40_000, 1, 1).select(
        none.cast("string").alias("operation"),
        none.cast("int").alias("bucket"),
        none.cast("bigint").alias("rowid"),
        F.col("id").cast("int"),
    )
    table.insert(frame)
    table.delete("id = 5 or id = 39999")
    assert table.read().count() == 39_998
    assert table.read(where="id < 10").count() == 9
    assert table.read().filter("bucket is null and id >= 39990").count() == 9
    txn = warehouse.transaction()
    txn.table("db.named").insert(frame.limit(3))
    assert txn.table("db.named").read().count() == 40_001
    txn.abort("enough")
    assert table.compact("major")[0]["state"] == "ready for cleaning"
    assert table.read().count() == 39_998


@pytest.mark.parametrize("name", quick_then_slow(("orc", "text"), 1))
def test_F17_insert_only_tables_are_compacted(warehouse: Warehouse, name: str) -> None:
    table = warehouse.create_table(
        f"db.merged_{name}",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": name},
    )
    rows = [{"id": i, "v": f"v{i}"} for i in range(6)]
    for row in rows[:3]:
        table.insert([row])
    txn = warehouse.transaction()
    txn.table(table.name).insert([{"id": 99, "v": "never"}])
    txn.abort("enough")
    table.compact("minor")
    seen = table.snapshot().directories[""]
    assert [delta.directory[:23] for delta in seen.deltas] == ["delta_0000001_0000003_v"]
    table.insert(rows[3:])
    table.compact("major")
    base = table.snapshot().directories[""].base
    assert base is not None and base.directory.startswith("base_0000005_v")
    assert {path.name for path in Path(table.location, base.directory).iterdir()} == {
        "000000_0",
        "_orc_acid_version",
    }
    assert [row.asDict() for row in table.read().orderBy("id").collect()] == rows


@pytest.mark.parametrize("directory", ["100%20é #1", pytest.param("a b", marks=pytest.mark.slow)])
def test_directories_may_hold_blanks_and_what_uris_escape(
    tmp_path: Path, spark: SparkSession, directory: str
) -> None:
    with temporary_warehouse(tmp_path / directory, spark) as opened:
        table = opened.create_table("db.t", "id int", partitioned_by=["p string"])
        table.insert([{"id": i, "p": p} for i, p in enumerate(["a b", "50%", "a b", "é:#"])])
        assert table.delete("id = 0") == 1
        for partition in table.partitions():
            table.compact("major", partition=partition)
        left = [(1, "50%"), (2, "a b"), (3, "é:#")]
        assert sorted(map(tuple, table.read().collect())) == left
        assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == left
        # Rows of files without ACID columns get their identity in Spark tasks.
        originals = tmp_path / f"{directory} too" / "p=a b"
        originals.mkdir(parents=True)
        orc.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), str(originals / "000000_0"))
        found = opened.adopt_table("db.o", originals.parent, "id int", partitioned_by=["p string"])
        assert found.delete("id = 1") == 1
        assert found.read().collect() == [(2, "a b")]
        found.compact("major", partition="p=a b")
        assert found.read().collect() == [(2, "a b")]


def test_queries_of_other_columns_of_files_without_acid_columns_share_a_frame(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    originals = tmp_path / "originals"
    originals.mkdir()
    orc.write_table(pa.table({"id": [1, 2], "v": ["a", "b"]}), str(originals / "000000_0"))
    built: list[object] = []
    make = live_rows.snapshot_files

    def spied(*arguments: object) -> object:
        built.append(arguments)
        return make(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(live_rows, "snapshot_files", spied)
    with temporary_warehouse(tmp_path / "wh", spark, "spark") as opened:
        opened.adopt_table("db.o", originals, "id bigint, v string")
        assert opened.sql("SELECT max(v) FROM db.o").collect() == [("b",)]
        assert opened.sql("SELECT sum(id) FROM db.o").collect() == [(3,)]
    assert len(built) == 1


@pytest.mark.parametrize("stored", quick_then_slow(("orc", "parquet", "text", "json", "csv"), 3))
def test_every_verb_takes_every_format_or_says_that_it_needs_spark(
    warehouse: Warehouse, stored: str
) -> None:
    name = f"db.verbs_{stored}"
    kept = {"transactional_properties": "insert_only", "acid.format": stored}
    table = warehouse.create_table(name, "id int, v string", properties=kept)
    rows = [(1, "a"), (2, "b"), (3, None)]

    def same(read: pa.Table) -> bool:
        return sorted(map(tuple, map(dict.values, read.to_pylist()))) == rows

    with warehouse.using("auto"):
        assert table.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]) == 2
        warehouse.sql(f"INSERT INTO {name} VALUES (3, NULL)")
        assert same(table.read().toArrow())
        assert same(warehouse.sql(f"SELECT * FROM {name}").to_arrow())
        counted = warehouse.sql(f"SELECT count(*) AS n FROM {name} WHERE id > 1").to_arrow()
        assert counted.to_pylist() == [{"n": 2}]
        assert table.read(where="v = 'a'").count() == 1
        warehouse.sql(f"CREATE TABLE db.copy_{stored} AS SELECT * FROM {name}")
        assert same(warehouse.table(f"db.copy_{stored}").to_arrow())
        assert table.overwrite([{"id": one, "v": v} for one, v in rows]) == 3
    by_arrow: dict[str, Callable[[], bool]] = {
        "to_arrow": lambda: same(table.to_arrow()),
        "to_arrow(where=)": lambda: table.to_arrow(where="id = 1").num_rows == 1,
        "count(where=)": lambda: table.count("id > 1") == 2,
        "SELECT": lambda: same(warehouse.sql(f"SELECT * FROM {name}").to_arrow()),
        "WHERE": lambda: (
            warehouse.sql(f"SELECT * FROM {name} WHERE id = 2").to_arrow().num_rows == 1
        ),
        "INSERT": lambda: (
            warehouse.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE 1 = 0") is not None
        ),
    }
    assert table.count() == 3
    with warehouse.using("local"):
        for what, verb in by_arrow.items():
            if stored in ("orc", "parquet"):
                assert verb(), what
            else:
                with pytest.raises(NeedsSpark, match=stored):
                    verb()
    assert table.count() == 3
