"""Temporary views: of one session, in no database, and gone with it."""

from __future__ import annotations

import pytest

from acid_platform import InvalidDefinition, NoSuchTable, UnsupportedStatement, Warehouse
from acid_platform.errors import TableExists
from acid_platform.sql import SqlSession
from tests.conftest import a_warehouse

here = a_warehouse(engine="local", scope="module")


@pytest.fixture
def session(here: Warehouse) -> SqlSession:
    session = SqlSession(here)
    session.run("CREATE DATABASE IF NOT EXISTS seen; USE seen; DROP TABLE IF EXISTS t")
    session.run("CREATE TABLE t (id int, v string); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run("CREATE TEMP VIEW some AS SELECT id, v AS w FROM t WHERE id > 1")
    return session


def rows(session: SqlSession, query: str) -> list[tuple[object, ...]]:
    return sorted(session.run(query).collect(), key=str)  # type: ignore[union-attr]


def test_it_is_of_its_session_and_of_no_database(here: Warehouse, session: SqlSession) -> None:
    other = SqlSession(here)
    with pytest.raises(NoSuchTable):
        other.run("SELECT * FROM seen.some")
    session.run("CREATE TABLE some (n int); INSERT INTO t VALUES (3, 'c')")
    assert rows(session, "SELECT * FROM some") == [(2, "b"), (3, "c")]
    assert rows(session, "SELECT * FROM seen.some") == []
    assert rows(session, "SELECT `SOME`.id FROM Some WHERE some.w = 'c'") == [(3,)]
    session.run("USE default")
    assert rows(session, "SELECT s.id FROM some AS s JOIN seen.t ON s.id = t.id") == [(2,), (3,)]
    assert rows(session, "WITH some AS (SELECT 9 AS id) SELECT id FROM some") == [(9,)]
    assert "some" in set(session.run("SHOW TABLES")["tab_name"])
    assert list(session.run("SHOW COLUMNS IN some")["field"]) == ["id", "w"]
    assert "# Partition" not in str(session.run("DESCRIBE some"))
    session.run("DROP VIEW some")
    with pytest.raises(NoSuchTable):
        session.run("SELECT * FROM some")
    session.run("DROP VIEW IF EXISTS some; DROP TABLE seen.some")
    session.close()


def test_every_statement_can_name_it(session: SqlSession) -> None:
    session.run("CREATE OR REPLACE TEMPORARY VIEW more (id, w) AS SELECT id + 1, w FROM some")
    assert rows(session, "SELECT * FROM more") == [(3, "b")]
    session.run("INSERT INTO t SELECT * FROM more")
    session.run("UPDATE t SET v = (SELECT max(w) FROM some) WHERE id IN (SELECT id - 2 FROM more)")
    assert rows(session, "SELECT * FROM t") == [(1, "b"), (2, "b"), (3, "b")]
    session.run(
        "DELETE FROM t WHERE EXISTS (SELECT 1 FROM more WHERE more.id = t.id + 1) AND id = 3"
    )
    assert rows(session, "SELECT * FROM t") == [(1, "b"), (2, "b")]
    session.run("MERGE INTO t USING some ON t.id = some.id WHEN MATCHED THEN UPDATE SET v = 'z'")
    session.run("FROM some INSERT INTO t SELECT id, 'y' INSERT INTO t SELECT id, 'x' WHERE id < 0")
    assert rows(session, "SELECT * FROM t") == [(1, "b"), (2, "y"), (2, "z")]
    session.run("CREATE TABLE made AS SELECT * FROM some; DROP TABLE made")
    assert "write" in str(session.run("EXPLAIN INSERT INTO t SELECT * FROM some"))
    session.close()


@pytest.mark.parametrize(
    ("statement", "error", "told"),
    [
        ("CREATE TEMP VIEW some AS SELECT 1 AS a", TableExists, "CREATE OR REPLACE"),
        ("CREATE TEMP VIEW db.some AS SELECT 1 AS a", InvalidDefinition, "write some"),
        ("CREATE VIEW lasting AS SELECT * FROM some", UnsupportedStatement, "only this session"),
        ("INSERT INTO some VALUES (1, 'a')", UnsupportedStatement, "some is a view"),
        ("DELETE FROM some", UnsupportedStatement, "some is a view"),
        ("TRUNCATE TABLE some", UnsupportedStatement, "some is a view"),
        ("DROP TABLE some", UnsupportedStatement, "DROP VIEW some"),
        ("CREATE GLOBAL TEMP VIEW g AS SELECT 1 AS a", UnsupportedStatement, "GLOBAL"),
    ],
)
def test_what_it_can_not_be(
    session: SqlSession, statement: str, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        session.run(statement)
    session.close()
