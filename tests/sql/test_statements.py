"""What a text is: a query, a listing, or an error that names it. No Spark."""

from __future__ import annotations

import pytest

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.sql.sources import Source, bind
from acid_platform.sql.statements import Listing, Query, Show, matches, parse


@pytest.mark.parametrize(("text", "wanted"), [
    ("SHOW DATABASES", Show(Listing.DATABASES)),
    ("show schemas like 'fl*';", Show(Listing.DATABASES, like="fl*")),
    ("SHOW TABLES", Show(Listing.TABLES)),
    ("-- all\nshow tables in Flights 'd*'", Show(Listing.TABLES, "flights", "d*")),
    ("show partitions `db`.`T`", Show(Listing.PARTITIONS, "db.t")),
    ("SHOW CREATE TABLE t", Show(Listing.CREATE_TABLE, "t")),
    ("show transactions", Show(Listing.TRANSACTIONS)),
    ("show /* who? */ locks", Show(Listing.LOCKS)),
    ("Show Compactions ;", Show(Listing.COMPACTIONS)),
    ("DESC db.t", Show(Listing.COLUMNS, "db.t")),
    ("describe table t", Show(Listing.COLUMNS, "t")),
])
def test_listings(text: str, wanted: Show) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(("text", "name"), [
    ("INSERT INTO t VALUES (1)", "INSERT INTO"),
    ("delete from t where id = 1", "DELETE"),
    ("UPDATE t SET a = 1", "UPDATE"),
    ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "MERGE"),
    ("create table t (a int)", "CREATE TABLE"),
    ("CREATE TEMPORARY VIEW v AS SELECT 1", "CREATE TEMPORARY"),
    ("drop table t", "DROP TABLE"),
    ("ALTER TABLE t COMPACT 'major'", "ALTER TABLE"),
    ("TRUNCATE TABLE t", "TRUNCATE"),
    ("USE db", "USE"),
    ("SET a=b", "SET"),
    ("EXPLAIN SELECT 1", "EXPLAIN"),
    ("SHOW VIEWS", "SHOW VIEWS"),
    ("describe formatted t", "DESCRIBE FORMATTED"),
    ("ABORT TRANSACTIONS 1", "ABORT TRANSACTIONS"),
    ("VALUES (1)", "VALUES"),
    ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "WITH"),
])
def test_other_statements_are_refused_by_name_with_what_is_supported(text: str, name: str) -> None:
    with pytest.raises(UnsupportedStatement) as error:
        parse(text)
    assert str(error.value).startswith(f"{name} is not supported in SQL yet; supported: SELECT")
    assert "SHOW COMPACTIONS" in str(error.value)


@pytest.mark.parametrize("text", [
    "SELECT TRANSFORM(a) USING 'rm' FROM t", "SELECT * INTO x FROM t", "SELECT 1; SELECT 2", "",
    "-- nothing",
])
def test_a_query_does_nothing_but_read_and_there_is_one(text: str) -> None:
    with pytest.raises(UnsupportedStatement):
        parse(text)


@pytest.mark.parametrize("text", ["SELECT id FROM t WHERE", "SELECT (1", "SELECT 'a"])
def test_what_is_no_sql_is_an_invalid_expression(text: str) -> None:
    with pytest.raises(InvalidExpression, match="not Hive SQL"):
        parse(text)


def bound(text: str) -> tuple[str, tuple[Source, ...]]:
    query = parse(text)
    assert isinstance(query, Query)
    found = bind(query.tree, "p")
    return found.text, found.sources


@pytest.mark.parametrize(("text", "sql", "sources"), [
    ("select * from t", "SELECT * FROM p_0 AS t", [Source("p_0", "default.t")]),
    ("select db.T.id from db.T",
     "SELECT `T`.`id` FROM p_0 AS T", [Source("p_0", "db.t")]),
    ("select a.id from t a join db.u using (id)",
     "SELECT a.id FROM p_0 AS a JOIN p_1 AS u USING (id)",
     [Source("p_0", "default.t"), Source("p_1", "db.u")]),
    ("with t as (select * from t) select * from t join db.t x",
     "WITH t AS (SELECT * FROM p_1 AS t) SELECT * FROM t JOIN p_0 AS x ON TRUE",
     [Source("p_0", "db.t"), Source("p_1", "default.t")]),
    ("with a as (select 1 x), b as (select * from a) select * from b",
     "WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT * FROM b", []),
    ("select id from t where month = 3 and t.day < 5 and id in (select id from u where month = 4)",
     "SELECT id FROM p_0 AS t WHERE month = 3 AND t.day < 5"
     " AND id IN (SELECT id FROM p_1 AS u WHERE month = 4)",
     [Source("p_0", "default.t", "month = 3 AND day < 5"),
      Source("p_1", "default.u", "month = 4")]),
    ("select 1 from t left join u on t.id = u.id where u.month = 3",
     "SELECT 1 FROM p_0 AS t LEFT JOIN p_1 AS u ON t.id = u.id WHERE u.month = 3",
     [Source("p_0", "default.t"), Source("p_1", "default.u")]),
    ("select *, row__id.writeid from t",
     "SELECT * EXCEPT (t.row__id), row__id.writeid FROM p_0 AS t",
     [Source("p_0", "default.t", None, True)]),
    ("select a.*, b.ROW__ID from t a, u b",
     "SELECT a.*, b.ROW__ID FROM p_0 AS a CROSS JOIN p_1 AS b",
     [Source("p_0", "default.t"), Source("p_1", "default.u", None, True)]),
])
def test_tables_become_placeholders_under_the_names_that_columns_use(
    text: str, sql: str, sources: list[Source]
) -> None:
    assert bound(text) == (sql, tuple(sources))


@pytest.mark.parametrize(("pattern", "name", "wanted"), [
    ("", "any", True), ("f*", "flights", True), ("F%", "flights", True), ("a|f*", "flights", True),
    ("f", "flights", False), ("x*", "flights", False), ("a.c", "abc", False),
])
def test_patterns_of_show(pattern: str, name: str, wanted: bool) -> None:
    assert matches(pattern, name) is wanted
