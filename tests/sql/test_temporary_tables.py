"""Temporary tables: of one session, which hide others of their names, and are gone with it."""

from __future__ import annotations

from datetime import date
from itertools import count
from pathlib import Path

import pytest

from acid_platform import NoSuchTable, UnsupportedStatement, Warehouse
from acid_platform.errors import AcidError, TableExists
from acid_platform.sql import SqlSession

_numbers = count(1)


def rows(warehouse: Warehouse | SqlSession, query: str) -> list[tuple[object, ...]]:
    run = warehouse.sql if isinstance(warehouse, Warehouse) else warehouse.run
    return sorted(run(query).collect(), key=str)  # type: ignore[union-attr]


def test_the_ordinary_script(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE orders (id int, day date)")
    warehouse.sql("INSERT INTO orders VALUES (1, '2024-01-01'), (2, '2024-01-02'), (3, NULL)")
    done = warehouse.sql("CREATE TEMPORARY TABLE late AS SELECT * FROM orders WHERE id > 1")
    assert done.rows == 2
    assert rows(warehouse, "SELECT * FROM late") == [(2, date(2024, 1, 2)), (3, None)]
    warehouse.sql("INSERT INTO late VALUES (4, '2024-01-04')")
    warehouse.sql("INSERT INTO late (id) SELECT max(id) + 10 FROM late")
    assert rows(warehouse, "SELECT id FROM late") == [(14,), (2,), (3,), (4,)]
    warehouse.sql("DELETE FROM orders WHERE id IN (SELECT id FROM late)")
    warehouse.sql(
        "MERGE INTO orders o USING late l ON o.id = l.id"
        " WHEN NOT MATCHED THEN INSERT VALUES (l.id, l.day)"
    )
    assert rows(warehouse, "SELECT id FROM orders") == [(1,), (14,), (2,), (3,), (4,)]
    before = warehouse.sql("SELECT * FROM late")
    warehouse.sql("INSERT OVERWRITE TABLE late SELECT * FROM late WHERE id = 4")
    assert rows(warehouse, "SELECT count(*) FROM late") == [(1,)]
    assert len(before.collect()) == 4  # a result keeps its rows
    warehouse.sql("TRUNCATE TABLE late")
    assert rows(warehouse, "SELECT * FROM late") == []
    warehouse.sql("DROP TABLE late")
    with pytest.raises(NoSuchTable):
        warehouse.sql("SELECT * FROM late")


def test_nobody_else_sees_it_and_it_hides_a_table(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE both (id int)")
    warehouse.sql("INSERT INTO both VALUES (1)")
    session, other = SqlSession(warehouse), SqlSession(warehouse)
    session.run("CREATE TEMPORARY TABLE both (name string COMMENT 'who')")
    session.run("INSERT INTO both VALUES ('a')")
    assert rows(session, "SELECT * FROM both") == [("a",)]
    assert rows(session, "SELECT count(*) FROM both") == [(1,)]
    assert rows(other, "SELECT * FROM both") == [(1,)]
    assert [row.col_name for row in session.run("DESCRIBE both").itertuples()] == ["name"]
    assert "default.both" not in {view.name for view in warehouse.metastore.views()}
    session.run("CREATE TEMPORARY TABLE only_here LIKE both")
    assert "only_here" in set(session.run("SHOW TABLES")["tab_name"])
    assert "only_here" not in set(other.run("SHOW TABLES")["tab_name"])
    with pytest.raises(NoSuchTable):
        other.run("SELECT * FROM only_here")
    session.run("DROP TABLE both")
    assert rows(session, "SELECT * FROM both") == [(1,)]
    directory = Path(session.temporary.place()).parent
    session.close()
    assert not directory.exists()
    with pytest.raises(NoSuchTable):
        session.run("SELECT * FROM only_here")


def test_views_and_transactions(warehouse: Warehouse) -> None:
    session = SqlSession(warehouse)
    session.run("CREATE TABLE base (id int)")
    session.run("CREATE VIEW seen AS SELECT id FROM base")
    session.run("CREATE TEMPORARY TABLE base (id int)")
    with pytest.raises(UnsupportedStatement, match="temporary table of this session hides"):
        session.run("SELECT * FROM seen")
    with pytest.raises(UnsupportedStatement, match="which only this session sees"):
        session.run("CREATE VIEW other AS SELECT id FROM base")
    session.run("START TRANSACTION")
    assert rows(session, "SELECT * FROM base") == []
    with pytest.raises(UnsupportedStatement, match="can't be changed in a transaction"):
        session.run("INSERT INTO base VALUES (1)")
    session.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE tmp SET id = 1", "is a temporary table, which only INSERT and TRUNCATE change"),
        ("DELETE FROM tmp", "is a temporary table"),
        ("ALTER TABLE tmp ADD COLUMNS (v string)", "is a temporary table"),
        ("INSERT INTO tmp SELECT 'x'", "int"),
        ("INSERT INTO tmp SELECT 1, 2", "2 columns"),
        ("CREATE TEMPORARY TABLE p (id int) PARTITIONED BY (d string)", "PARTITIONED BY"),
        ("CREATE TEMPORARY TABLE p (id int) LOCATION '/x'", "LOCATION"),
        ("CREATE TEMPORARY EXTERNAL TABLE p (id int) LOCATION '/x'", "leave one"),
        ("CREATE TEMPORARY TABLE `*` (id int)", "stands for all names"),
    ],
)
def test_what_is_refused(warehouse: Warehouse, statement: str, message: str) -> None:
    warehouse.sql("CREATE TEMPORARY TABLE IF NOT EXISTS tmp (id int)")
    with pytest.raises(AcidError, match=message):
        warehouse.sql(statement)
    with pytest.raises(TableExists):
        warehouse.sql("CREATE TEMPORARY TABLE tmp (id int)")
