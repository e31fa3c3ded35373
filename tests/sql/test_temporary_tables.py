"""Temporary tables: of one session, which hide others of their names, and are gone with it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from acid_platform import NoSuchTable, UnsupportedStatement, Warehouse
from acid_platform.sql import SqlSession

_numbers = count(1)


def rows(warehouse: Warehouse | SqlSession, query: str) -> list[tuple[object, ...]]:
    run = warehouse.sql if isinstance(warehouse, Warehouse) else warehouse.run
    return sorted(run(query).collect(), key=str)  # type: ignore[union-attr]


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
    before = session.run("SELECT * FROM both")
    session.run("TRUNCATE TABLE both")
    assert rows(session, "SELECT * FROM both") == []
    assert before.collect() == [("a",)]  # a result keeps its rows
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
