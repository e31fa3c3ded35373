"""SELECT over snapshots, listings, and the errors that people meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    NoSuchPartition,
    NoSuchTable,
    UnknownColumn,
    UnsupportedStatement,
    Warehouse,
)
from acid_platform.engine.interface import Result
from acid_platform.metastore.operations import listings
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("sql") / "wh", spark) as opened:
        months = opened.create_table(
            "db.t", "id int, v string, tags array<string>", partitioned_by=["month int"]
        )
        months.insert(
            [
                {"id": 1, "v": "{a}", "tags": ["x", "y"], "month": 1},
                {"id": 2, "v": "b", "tags": [], "month": 2},
                {"id": 3, "v": "c", "tags": None, "month": 3},
            ]
        )
        opened.create_table("u", "id int, w string").insert(
            [{"id": 1, "w": "one"}, {"id": 3, "w": "three"}]
        )
        yield opened


def rows(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    answer = warehouse.sql(text)
    assert isinstance(answer, Result)
    return sorted((tuple(row) for row in answer.collect()), key=str)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT id, v FROM db.t WHERE v = '{a}'", [(1, "{a}")]),
        ("SELECT db.t.id FROM db.t WHERE db.t.month IN (1, 3)", [(1,), (3,)]),
        (
            "SELECT t.id, w FROM db.t LEFT JOIN u ON t.id = u.id",
            [(1, "one"), (2, None), (3, "three")],
        ),
        (
            "SELECT id FROM u UNION ALL SELECT month FROM db.t WHERE month > 1",
            [(1,), (2,), (3,), (3,)],
        ),
        ("WITH u AS (SELECT 9 AS id) SELECT * FROM u", [(9,)]),
        (
            "WITH x AS (SELECT * FROM db.t WHERE id > 1) SELECT count(*), max(b.id) FROM x b",
            [(2, 3)],
        ),
        ("SELECT id, tag FROM db.t LATERAL VIEW explode(tags) e AS tag", [(1, "x"), (1, "y")]),
        ("SELECT id FROM db.t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)", [(1,), (3,)]),
        ("SELECT a.id FROM u a JOIN u b ON a.id = b.id", [(1,), (3,)]),
        (
            "SELECT id FROM (SELECT id, rank() OVER (ORDER BY id DESC) r FROM u) x WHERE r = 1",
            [(3,)],
        ),
        ("SELECT 1 + 1", [(2,)]),
        (
            "SELECT row__id.writeid, row__id.rowid, w FROM u WHERE row__id.rowid = 1",
            [(1, 1, "three")],
        ),
        (
            "SELECT u.*, t.row__id.bucketid FROM db.t JOIN u ON u.id = t.id WHERE t.id = 3",
            [(3, "three", 536870912)],
        ),
    ],
)
def test_select(warehouse: Warehouse, text: str, wanted: list[tuple[object, ...]]) -> None:
    assert rows(warehouse, text) == wanted


def test_row__id_is_not_part_of_a_star(warehouse: Warehouse) -> None:
    one = warehouse.sql("SELECT *, row__id FROM u")
    assert list(one.columns) == ["id", "w", "row__id"]
    both = warehouse.sql(
        "SELECT *, a.row__id FROM u a JOIN u b ON a.id = b.id WHERE b.row__id.rowid = 0"
    )
    assert list(both.columns) == ["id", "w", "id", "w", "row__id"]


def test_a_where_on_one_table_prunes_partitions(warehouse: Warehouse) -> None:
    frame = warehouse.sql("SELECT v FROM db.t WHERE t.month = 2", engine="spark")
    assert isinstance(frame, Result)
    assert {Path(one).parent.parent.name for one in frame.to_spark().inputFiles()} == {"month=2"}


def test_P18_a_query_keeps_one_snapshot_of_all_its_tables(warehouse: Warehouse) -> None:
    a, b = (warehouse.create_table(name, "id int") for name in ("a", "b"))
    a.insert([{"id": 1}])
    b.insert([{"id": 1}])
    text = "SELECT a.id FROM a JOIN b ON a.id = b.id"
    old = warehouse.sql(text)
    assert isinstance(old, Result)
    with warehouse.transaction() as txn:
        txn.table("a").update({"id": "2"})
        txn.table("b").update({"id": "2"})
    a.compact("major")
    cleaner.run(warehouse.metastore)
    assert old.collect() == [(1,)]
    assert rows(warehouse, text) == [(2,)]
    assert old.collect() == [(1,)]


def test_P18_nothing_is_left_in_the_session(warehouse: Warehouse) -> None:
    warehouse.sql("SELECT * FROM u")
    assert warehouse.spark.catalog.listTables() == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT id FROM nope", NoSuchTable, "there is no table default.nope; SHOW"),
        ("SELECT id FROM db.tt", NoSuchTable, r"there is no table db\.tt; did you mean db\.t\?"),
        ("SELECT id FROM t", NoSuchTable, r"did you mean db\.t\?"),
        ("SELECT id FROM prod.db.t", NoSuchTable, r"there is no table prod\.db\.t"),
        ("SELECT id FROM prod.db.t VERSION AS OF 1", NoSuchTable, r"no table prod\.db\.t"),
        (
            "DELETE FROM db.t WHERE id IN (SELECT id FROM prod.db.t)",
            NoSuchTable,
            r"no table prod\.db\.t",
        ),
        ("CREATE VIEW db.v AS SELECT id FROM prod.db.t", NoSuchTable, r"no table prod\.db\.t"),
        ("SELECT mnth FROM db.t", UnknownColumn, r"there is no column mnth; did you mean month\?"),
        ("SELECT x.zzz FROM u x", UnknownColumn, r"no column x\.zzz; columns are id, w"),
        ("SELECT row__id FROM (SELECT * FROM u) x", UnknownColumn, "no column row__id"),
        ("SELECT nosuch(id) FROM u", InvalidExpression, "there is no function 'nosuch'"),
        ("SELECT id, count(*) FROM u", InvalidExpression, "MISSING_GROUP_BY"),
        *(
            (f"SELECT w{rest}", UnsupportedStatement, f"{what} is not known .*{known}.* by AS")
            for rest, what, known in (
                (" FROM u GROUP BY w HAVING max(id) > 1 ORDER BY sum(id)", "id", "where .*w are"),
                (", sum(id) FROM u GROUP BY w HAVING max(id) > 1 ORDER BY sum(id)", "id", "sum.id"),
                (" FROM u GROUP BY w HAVING id > 1", "id", "where .*w are"),
                (
                    " FROM u GROUP BY w HAVING max(id) > 1 ORDER BY count(*)",
                    "of ORDER BY",
                    "clause",
                ),
            )
        ),
        ("SHOW PARTITIONS u", NoSuchPartition, r"default\.u is not partitioned"),
        ("SHOW TABLES IN nope", InvalidDefinition, "there is no database nope"),
        ("DESCRIBE nope", NoSuchTable, r"default\.nope"),
    ],
)
def test_errors(warehouse: Warehouse, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        warehouse.sql(text)


def listed(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    answer = warehouse.sql(text)
    assert isinstance(answer, Result)
    return [tuple(row) for row in answer.itertuples(index=False)]


def test_listings(warehouse: Warehouse) -> None:
    assert listed(warehouse, "SHOW DATABASES LIKE 'd*'") == [("db",), ("default",)]
    assert listed(warehouse, "SHOW TABLES IN db") == [("t",)]
    assert ("u",) in listed(warehouse, "SHOW TABLES")
    assert listed(warehouse, "SHOW PARTITIONS db.t") == [("month=1",), ("month=2",), ("month=3",)]
    assert listed(warehouse, "DESCRIBE db.t") == [
        ("id", "int", ""),
        ("v", "string", ""),
        ("tags", "array<string>", ""),
        ("month", "int", ""),
        ("", "", ""),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("month", "int", ""),
    ]
    created = "\n".join(str(line) for (line,) in listed(warehouse, "SHOW CREATE TABLE db.t"))
    assert created.startswith("CREATE TABLE `db`.`t`(\n  `id` int,\n  `v` string,")
    assert "PARTITIONED BY (\n  `month` int)\nSTORED AS ORC" in created
    assert created.endswith("TBLPROPERTIES (\n  'orc.compress'='ZSTD',\n  'transactional'='true')")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SHOW TRANSACTIONS", listings.TRANSACTIONS),
        ("SHOW LOCKS", listings.LOCKS),
        ("SHOW COMPACTIONS", listings.COMPACTIONS),
    ],
)
def test_C61_shows_have_their_columns_also_when_empty(
    warehouse: Warehouse, text: str, columns: tuple[str, ...]
) -> None:
    assert tuple(warehouse.sql(text).columns) == columns


def test_C61_the_columns_are_those_of_the_metastores_rows(warehouse: Warehouse) -> None:
    warehouse.table("u").compact("major", wait=False)
    with warehouse.metastore.begin() as txn:
        txn.lock("u", "SHARED_WRITE")
        metastore = warehouse.metastore
        assert tuple(metastore.transactions()[0]) == listings.TRANSACTIONS
        assert tuple(metastore.locks()[0]) == listings.LOCKS
        assert tuple(metastore.compactions()[0]) == listings.COMPACTIONS
