"""Sixty statements in one run with their answers; 25 of them are errors with their messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse, errors
from acid_platform.sql.answers import rows_of
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

Expected = str | set[tuple[object, ...]]
"""The message of a statement, or the rows of a query in any order."""

RIGHT: tuple[tuple[str, Expected], ...] = (
    ("CREATE DATABASE IF NOT EXISTS shop", "OK"),
    ("SHOW DATABASES LIKE 's*'", {("shop",)}),
    ("USE shop", "OK"),
    ("SET hive.txn.timeout=200s", "OK"),
    ("SET hive.txn.timeout", {("hive.txn.timeout=200s",)}),
    (
        "SET hive.locks.max.partitions=5",
        "OK, but hive.locks.max.partitions is unknown here and ignored",
    ),
    ("CREATE TABLE item (id int, name string, price decimal(7,2), since date) STORED AS ORC", "OK"),
    ("CREATE TABLE IF NOT EXISTS item (id int)", "OK"),
    (
        "CREATE TABLE sale (item int, n int) PARTITIONED BY (y int, m int) CLUSTERED BY (item)"
        " INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')",
        "OK",
    ),
    (
        "INSERT INTO item VALUES (1, 'pen', 1.5, '2013-01-31'), (2, 'ink', 12, NULL),"
        " (3, 'cap', 0.25, '2014-02-28')",
        "3 rows affected",
    ),
    ("INSERT INTO item (name, id) SELECT 'nib', 4", "1 row affected"),
    (
        "INSERT INTO sale PARTITION (y=2013, m) SELECT id, 10 * id, id % 2 FROM item WHERE id < 4",
        "3 rows affected",
    ),
    ("INSERT INTO TABLE sale PARTITION (y='2014', m='3') VALUES (1, 7)", "1 row affected"),
    ("SHOW PARTITIONS sale", {("y=2013/m=0",), ("y=2013/m=1",), ("y=2014/m=3",)}),
    (
        "SELECT name, n, y FROM item JOIN sale ON id = item WHERE m = 1",
        {("pen", 10, 2013), ("cap", 30, 2013)},
    ),
    (
        "SELECT name, n FROM item LEFT JOIN sale ON id = item AND y = 2014 WHERE id < 3",
        {("pen", 7), ("ink", None)},
    ),
    (
        "WITH best AS (SELECT item, sum(n) AS total FROM sale GROUP BY item)"
        " SELECT name, total FROM best JOIN item ON id = item WHERE total > 15",
        {("pen", 17), ("ink", 20), ("cap", 30)},
    ),
    (
        "CREATE VIEW busy (what, how_many) AS SELECT name, n FROM item JOIN sale ON id = item"
        " WHERE y = 2013",
        "OK",
    ),
    ("SELECT what FROM shop.busy b WHERE b.how_many = 20", {("ink",)}),
    ("SHOW TABLES", {("busy",), ("item",), ("sale",)}),
    (
        "UPDATE item SET name = upper(name), since = DATE '2015-05-05' WHERE item.id = 4",
        "1 row affected",
    ),
    (
        "UPDATE sale SET n = n + 1 WHERE item IN (SELECT id FROM item WHERE name = 'pen')",
        "2 rows affected",
    ),
    (
        "DELETE FROM shop.sale WHERE NOT EXISTS"
        " (SELECT 1 FROM item WHERE id = sale.item AND id < 3)",
        "1 row affected",
    ),
    ("SELECT * FROM sale", {(1, 11, 2013, 1), (2, 20, 2013, 0), (1, 8, 2014, 3)}),
    (
        "MERGE INTO item USING (SELECT 2 AS id, 'd' AS op UNION ALL SELECT 3, 'u' UNION ALL"
        " SELECT 5, 'i') s ON item.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE"
        " WHEN MATCHED THEN UPDATE"
        " SET name = concat(item.name, '+')"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'new', 1, NULL)",
        "3 rows affected",
    ),
    ("SELECT id, name FROM item", {(1, "pen"), (3, "cap+"), (4, "NIB"), (5, "new")}),
    ("INSERT OVERWRITE TABLE sale PARTITION (y=2013, m=1) SELECT 9, 9", "1 row affected"),
    ("TRUNCATE TABLE sale PARTITION (y=2014)", "OK"),
    ("ALTER TABLE sale DROP PARTITION (y=2013, m=0)", "OK"),
    ("SELECT item, row__id.writeid FROM sale", {(9, 5)}),
    (
        "CREATE TABLE cheap PARTITIONED BY (first) STORED AS ORC AS SELECT id, substr(name, 1, 1)"
        " AS first FROM item WHERE price < 1.2",
        "2 rows affected",
    ),
    ("ALTER TABLE cheap CHANGE id id bigint", "OK"),
    (
        "DESCRIBE cheap",
        {
            ("id", "bigint", ""),
            ("first", "string", ""),
            ("", "", ""),
            ("# Partition Information", "", ""),
            ("# col_name", "data_type", "comment"),
        },
    ),
    ("ALTER TABLE cheap RENAME TO bargain", "OK"),
    ("SELECT count(*) FROM bargain", {(2,)}),
)

WRONG: tuple[tuple[str, type[errors.AcidError], str], ...] = (
    ("SELEC 1", errors.UnsupportedStatement, "SELEC is not supported; did you mean SELECT?"),
    ("SELECT (1", errors.InvalidExpression, "not Hive SQL: Expecting )"),
    ("USE shap", errors.InvalidDefinition, "no database shap; did you mean shop?"),
    ("SET acid.nope=1", errors.SettingRefused, "there is no setting 'acid.nope'"),
    ("SET hive.support.concurrency=false", errors.SettingRefused, "only 'true': transactions"),
    ("CREATE TABLE item (id int)", errors.TableExists, "table shop.item exists"),
    ("CREATE TABLE bad (id uuid)", errors.InvalidExpression, "did you mean string?"),
    (
        "CREATE TABLE bad (id int) TBLPROPERTIES ('transactional'='false')",
        errors.InvalidDefinition,
        "every table here is transactional",
    ),
    (
        "DROP TABLE busy",
        errors.UnsupportedStatement,
        "shop.busy is a view; use DROP VIEW shop.busy",
    ),
    ("DROP DATABASE shop", errors.InvalidDefinition, "database shop can't be dropped: it holds"),
    ("SELECT * FROM itm", errors.NoSuchTable, "no table shop.itm; did you mean shop.item?"),
    ("SELECT nmae FROM item", errors.UnknownColumn, "no column nmae; did you mean name?"),
    (
        "INSERT INTO item VALUES (1, 'x')",
        errors.WrongType,
        "a row of VALUES has 2 values, but needs 4: id, name, price, since",
    ),
    ("INSERT INTO item SELECT 1, 'x'", errors.WrongType, "the query has 2 columns, and 4 are"),
    ("INSERT INTO item VALUES (1, 'x', 1, 'soon')", errors.WrongType, "does not fit its column"),
    ("INSERT INTO item (id, nope) VALUES (1, 2)", errors.UnknownColumn, "has no column 'nope'"),
    ("INSERT INTO busy VALUES ('x', 1)", errors.UnsupportedStatement, "is a view, which can only"),
    (
        "INSERT INTO sale PARTITION (y=2013) SELECT 1, 2",
        errors.NoSuchPartition,
        "PARTITION of shop.sale must name y, m",
    ),
    ("TRUNCATE TABLE sale PARTITION (y=1999)", errors.NoSuchPartition, "has no partition y=1999"),
    ("UPDATE sale SET y = 1", errors.PartitionColumnUpdate, "'y' is a partition column"),
    ("UPDATE sale SET item = 1", errors.BucketColumnUpdate, "'item' decides the bucket"),
    (
        "MERGE INTO item USING (SELECT 1 AS id UNION ALL SELECT 1) s ON item.id = s.id WHEN MATCHED"
        " THEN UPDATE SET name = 'x'",
        errors.SourceRowsAmbiguous,
        "2 source rows match one row",
    ),
    (
        "ALTER TABLE sale CHANGE item key int",
        errors.InvalidDefinition,
        "item decides the bucket of each row and stays as it is",
    ),
    (
        "ALTER TABLE sale ADD PARTITION (y=2013, m=1)",
        errors.TableExists,
        "already has partition y=2013/m=1",
    ),
    ("COMMIT", errors.NoSuchTxn, "no transaction is open; START TRANSACTION opens one"),
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("statements") / "wh", spark) as opened:
        yield opened


def test_there_are_sixty_of_which_25_are_wrong() -> None:
    assert (len(RIGHT), len(WRONG)) == (35, 25)


@pytest.mark.parametrize(("text", "wanted"), RIGHT, ids=[text[:40] for text, _ in RIGHT])
def test_right(warehouse: Warehouse, text: str, wanted: Expected) -> None:
    [(_, answer)] = warehouse.session.steps(text)
    found = rows_of(answer)
    if found is None:
        assert str(answer) == wanted
    else:
        assert {tuple(row.values()) for row in found.rows} == wanted


@pytest.mark.parametrize(("text", "error", "message"), WRONG, ids=[one[0][:40] for one in WRONG])
def test_wrong(
    warehouse: Warehouse, text: str, error: type[errors.AcidError], message: str
) -> None:
    with pytest.raises(error) as raised:
        warehouse.sql(text)
    assert message in str(raised.value)


def test_wrong_statements_changed_nothing(warehouse: Warehouse) -> None:
    [(_, answer)] = warehouse.session.steps("SELECT id, name FROM item")
    found = rows_of(answer)
    assert found is not None
    assert {tuple(row.values()) for row in found.rows} == {
        (1, "pen"),
        (3, "cap+"),
        (4, "NIB"),
        (5, "new"),
    }
