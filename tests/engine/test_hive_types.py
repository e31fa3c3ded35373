"""CHAR, VARCHAR and TIMESTAMP WITH LOCAL TIME ZONE: written as Hive writes them (P17)."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    AcidError,
    Table,
    UnsupportedStatement,
    Warehouse,
    WrongType,
)
from acid_platform.formats.orc import orc_schema
from acid_platform.layout.bucketing import bucket_ids
from acid_platform.layout.types import parse_type
from acid_platform.storage.files import Files
from tests.conftest import IN_ORC, MOSTLY_LOCAL, a_warehouse, compact_with
from tests.hive import hive_rows, link_farm

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2020, 7, 1, 12, tzinfo=datetime.UTC)
WALL = NOON.replace(tzinfo=None)
"""What Spark's session in UTC shows of it."""

warehouse = a_warehouse(in_spark=True)


def stored(table: Table) -> dict[str, str]:
    """Directory → ORC type of the row in its files."""
    files, _ = Files.of(str(table.location))
    return {
        path.parent.name.partition("_v")[0]: orc_schema(files, str(path))
        .partition("row:")[2]
        .removesuffix(">")
        for path in Path(table.location).rglob("bucket_*")
        if not path.name.startswith(".")
    }


def hive(spark: SparkSession, table: Table, scratch: Path) -> list[str]:
    """The rows as Hive prints them."""
    seen = table.snapshot()
    (directory,) = seen.directories.values()
    return hive_rows(
        spark, link_farm(directory, scratch), list(table.record.columns), seen.write_ids
    )


def ours(table: Table) -> list[str]:
    return sorted(
        "{" + ", ".join("null" if one is None else str(one) for one in row) + "}"
        for row in table.read().collect()
    )


@MOSTLY_LOCAL
def test_P17_statements_and_compactions_write_char_and_varchar_as_hive_does(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, compactor: str
) -> None:
    compact_with(warehouse, compactor)
    columns = "id int, c char(5), v varchar(3)"
    table = warehouse.create_table(f"db.t_{compactor}", columns, properties=IN_ORC)
    kind = "struct<id:int,c:char(5),v:varchar(3)>"
    table.insert(
        [
            {"id": 1, "c": "ab", "v": "xyz"},
            {"id": 2, "c": "éé ", "v": "ééé"},
            {"id": 3, "c": "abc  ", "v": "a    "},
            {"id": 4, "c": None, "v": None},
        ]
    )
    assert table.update({"v": "concat('u', id)", "c": "'upd'"}, "c = 'éé'") == 1
    counts = table.merge(
        [{"id": 3, "c": "m", "v": "m"}, {"id": 5, "c": "new", "v": "n"}],
        "t.id = s.id",
        when_matched_update={"c": "s.c"},
        when_not_matched_insert="*",
    )
    assert (counts.updated, counts.inserted) == (1, 1)
    assert table.delete("v = 'xyz'") == 1
    expected = [(2, "upd  ", "u2"), (3, "m    ", "a  "), (4, None, None), (5, "new  ", "n")]
    assert set(stored(table).values()) == {kind}
    assert len([one for one in stored(table) if one.startswith("delete_")]) == 3
    for number, compaction in enumerate([None, "minor", "major"]):
        if compaction:
            table.insert([{"id": 9}])
            table.delete("id = 9")
            table.compact(compaction)
        assert sorted(map(tuple, table.read().collect())) == expected
        assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == expected
        assert hive(spark, table, tmp_path / str(number)) == ours(table), compaction
    assert stored(table)["base_0000008"] == kind


def test_P17_instants_are_instants_in_every_time_zone(warehouse: Warehouse, tmp_path: Path) -> None:
    """Read by ORC's C++ library in a process that lives in New York; a TIMESTAMP is beside it."""
    table = warehouse.create_table(
        "db.instants",
        "z timestamp with local time zone, w timestamp,"
        " deep struct<z:timestamp with local time zone>",
        properties=IN_ORC,
    )
    new_york = datetime.timezone(datetime.timedelta(hours=-4))
    table.insert([{"z": NOON.astimezone(new_york), "w": WALL, "deep": {"z": NOON}}])
    table.update({"w": "w"})
    table.compact("major")
    (base,) = [
        path
        for path in Path(table.location).rglob("bucket_*")
        if path.parent.name.startswith("base_")
    ]
    assert set(stored(table).values()) == {
        "struct<z:timestamp with local time zone,w:timestamp,"
        "deep:struct<z:timestamp with local time zone>>"
    }
    code = f"import pyorc; print(next(pyorc.Reader(open({str(base)!r}, 'rb')))[5])"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TZ": "America/New_York"},
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    assert shown.count("datetime.datetime(2020, 7, 1, 12, 0") == 3, shown
    assert [tuple(row) for row in table.read().collect()] == [(WALL, WALL, (WALL,))]
    assert table.to_arrow().to_pylist() == [{"z": NOON, "w": WALL, "deep": {"z": NOON}}]
    with pytest.raises(WrongType, match="timestamp_ntz does not fit"):
        table.insert(warehouse.spark.sql("SELECT TIMESTAMP_NTZ '2020-07-01 12:00:00' AS z"))


def test_all_readers_show_ancient_days_as_they_were_written(warehouse: Warehouse) -> None:
    """Hive's and Spark's writers count them by the Julian calendar, Arrow's reader does not."""
    table = warehouse.create_table("db.ancient", "d date, w timestamp")
    rows = [
        (datetime.date(1, 1, 1), datetime.datetime(2, 3, 4, 5, 6, 7)),
        (datetime.date(1582, 10, 4), datetime.datetime(1582, 10, 15)),
    ]
    table.insert([{"d": day, "w": time} for day, time in rows])
    for compaction in (None, "major"):
        if compaction:
            table.compact(compaction)
        assert sorted(map(tuple, table.read().collect())) == rows
        assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == rows
        assert table.to_arrow(where="d < DATE '0001-01-02'").num_rows == 1


def test_a_table_that_is_partitioned_by_char_is_only_read(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    (tmp_path / "c").mkdir()
    table = warehouse.adopt_table("db.by", tmp_path / "c", "id int", partitioned_by=["c char(3)"])
    assert table.read().count() == 0
    with pytest.raises(UnsupportedStatement, match=r"partitioned by c char\(3\)"):
        table.insert([{"id": 1, "c": "x"}])


# --- many, slow ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_F11_rows_lie_in_the_bucket_of_their_char_and_varchar(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, version: int
) -> None:
    table = warehouse.create_table(
        f"db.buckets{version}",
        "c char(6), v varchar(9), n int",
        clustered_by=(["c", "v"], 3),
        properties={**IN_ORC, "bucketing_version": str(version)},
    )
    rows = [
        {"c": f"c{i % 7}" + " " * (i % 3), "v": f"é{i}" + " " * (i % 9), "n": i} for i in range(60)
    ]
    table.insert(rows)
    table.delete("n % 5 = 0")
    table.merge(
        [{"c": "c1", "v": f"m{i}", "n": i} for i in range(55, 70)],
        "t.n = s.n",
        when_matched_update={"n": "-t.n"},
        when_not_matched_insert="*",
    )
    kinds = [parse_type("char(6)"), parse_type("varchar(9)")]
    for number in range(2):
        found = table.read(row_id=True).collect()
        where = bucket_ids(
            [pa.array([row[name] for row in found]) for name in ("c", "v")], kinds, 3, version
        )
        assert [row["row__id"]["bucketid"] >> 16 & 0xFFF for row in found] == list(where)
        assert hive(spark, table, tmp_path / str(number)) == ours(table)
        if not number:
            table.compact("major")


@pytest.mark.slow
def test_nested_values_partitions_and_evolution(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "db.nested",
        "id int, m map<char(2),varchar(3)>, s struct<a:array<struct<c:char(3)>>>",
        partitioned_by=["p varchar(4)"],
    )
    row = {"id": 1, "m": {"k": "v", "kk": None}, "s": {"a": [{"c": "x"}, None]}, "p": "a b"}
    table.insert([row, {"id": 2, "m": None, "s": None, "p": None}])
    table.update({"s": "s"}, "id < 9")
    table.add_columns("t varchar(2)")
    table.compact("minor", partition="p=a b")
    expected = [
        {
            "id": 1,
            "m": [("k ", "v"), ("kk", None)],
            "s": {"a": [{"c": "x  "}, None]},
            "t": None,
            "p": "a b",
        },
        {"id": 2, "m": None, "s": None, "t": None, "p": None},
    ]
    assert sorted(table.to_arrow().to_pylist(), key=lambda one: one["id"]) == expected
    spoken = table.read().orderBy("id").collect()
    assert [(one["m"], one["s"], one["p"]) for one in spoken] == [
        ({"k ": "v", "kk": None}, (([("x  ",), None]),), "a b"),
        (None, None, None),
    ]
    with pytest.raises(WrongType, match=r"column p .* takes varchar\(4\)"):
        table.insert([{**row, "p": "too long"}])
    table = warehouse.sql(
        "CREATE TABLE db.copy AS SELECT id, t, p FROM db.nested"
    ) and warehouse.table("db.copy")
    assert list(table.record.columns) == [("id", "int"), ("t", "varchar(2)"), ("p", "varchar(4)")]
    warehouse.sql("ALTER TABLE db.copy CHANGE t t varchar(5)")
    warehouse.sql("INSERT INTO db.copy VALUES (3, 'abcde', 'q')")
    assert warehouse.sql("SELECT t FROM db.copy WHERE id = 3").collect() == [("abcde",)]


@pytest.mark.slow
@pytest.mark.parametrize("stored_as", ["orc", "parquet", "json", "csv", "text"])
def test_insert_only_tables_hold_char_and_varchar_in_every_format(
    warehouse: Warehouse, stored_as: str
) -> None:
    table = warehouse.create_table(
        f"db.only_{stored_as}",
        "c char(3), v varchar(4)",
        properties={"transactional_properties": "insert_only", "acid.format": stored_as},
    )
    table.insert([{"c": "a", "v": "b "}])
    table.insert([{"c": "é", "v": "four"}])
    with pytest.raises(AcidError, match=r"column v of .* takes varchar\(4\)"):
        table.insert([{"v": "fives"}])
    table.compact("major")
    expected = [("a  ", "b "), ("é  ", "four")]
    assert sorted(map(tuple, table.read().collect())) == expected
    if stored_as == "orc":
        files, _ = Files.of(str(table.location))
        found = {orc_schema(files, str(path)) for path in Path(table.location).rglob("0*")}
        assert found == {"struct<c:char(3),v:varchar(4)>"}
        assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == expected
