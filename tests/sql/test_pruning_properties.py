"""Pushing predicates into a scan changes no result: DuckDB runs each query both ways."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from acid_platform.sql.parse import parse
from acid_platform.sql.query_tables import QueryTable, bind
from acid_platform.sql.text import Query

pytestmark = pytest.mark.more

TABLES = {"default.t": ("id", "v", "m"), "default.u": ("id", "w", "m"), "default.x": ("a", "b")}


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connected:
        for name, columns in TABLES.items():
            declared = ", ".join(f"{column} INT" for column in columns)
            connected.execute(f"CREATE TABLE {name.partition('.')[2]} ({declared})")
        values = "(NULL), (1), (2), (3)"
        for table in ("t", "u"):
            connected.execute(
                f"INSERT INTO {table} SELECT a.c, b.c, d.c FROM (VALUES {values}) a(c),"
                f" (VALUES {values}) b(c), (VALUES (1), (2)) d(c) WHERE a.c IS DISTINCT FROM b.c"
            )
        connected.execute("INSERT INTO x VALUES (1, 2), (2, NULL), (NULL, 1), (3, 3)")
        yield connected


def comparisons(columns: tuple[str, ...]) -> st.SearchStrategy[str]:
    name, number = st.sampled_from(columns), st.integers(0, 3)
    leaf = st.one_of(
        st.builds("{} {} {}".format, name, st.sampled_from(["=", "<>", "<", ">=", "<=>"]), number),
        st.builds("{} IN ({}, {})".format, name, number, number),
        st.builds("{} BETWEEN {} AND {}".format, name, number, number),
        st.builds("{} IS {}NULL".format, name, st.sampled_from(["", "NOT "])),
        st.builds("{} = {}".format, name, name),
        st.builds("{} + 1 = {}".format, name, number),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=4,
    )


T, U, X = ("t.id", "t.v", "t.m"), ("u.id", "u.w", "u.m"), ("x.a", "x.b")
JOINS = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
UNMATCHED = st.builds("{} IS NULL".format, st.sampled_from(("u.w", "u.id", "t.v")))
"""Predicates that must not be pushed to the other side of an outer join."""
FILTERING = st.sampled_from(["LEFT SEMI JOIN", "LEFT ANTI JOIN"])
FROM_T = st.sampled_from(
    [
        "t",
        "(SELECT * FROM t) t",
        "(SELECT id, v, m FROM t WHERE m = 1) t",
        "(SELECT m AS id, id AS v, v AS m FROM t) t",
        "(SELECT id, v, max(m) AS m FROM t GROUP BY 1, 2) t",
        "(SELECT id, v, rank() OVER (ORDER BY m) AS m FROM t) t",
        "(SELECT DISTINCT v, id, m FROM t) t",
        "(SELECT t.id, t.v, u.m FROM t LEFT JOIN u ON t.id = u.id) t",
        "c t",
    ]
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["one", "two", "three", "filtering", "exists"]))
    table = draw(FROM_T)
    cte = "WITH c AS (SELECT id, m AS v, v AS m FROM t) " if table == "c t" else ""
    if kind == "one":
        return f"{cte}SELECT * FROM {table} WHERE {draw(comparisons((*T, 'v', 'm')))}"
    if kind == "exists":
        return (
            f"{cte}SELECT v FROM {table} WHERE {draw(comparisons(T))} AND EXISTS"
            f" (SELECT 1 FROM u WHERE u.id = t.id AND {draw(comparisons((*U, 'v')))})"
        )
    if kind == "filtering":
        on = f"t.id = u.id AND {draw(comparisons((*U, *T)))}"
        return (
            f"{cte}SELECT v FROM {table} {draw(FILTERING)} u ON {on} WHERE {draw(comparisons(T))}"
        )
    on = f"t.id = u.id AND {draw(comparisons((*T, *U)))}"
    text = f"{cte}SELECT t.v, u.w, u.m FROM {table} {draw(JOINS)} u ON {on}"
    where = st.one_of(comparisons((*T, *U, "w")), UNMATCHED)
    if kind == "three":
        text += f" {draw(JOINS)} x ON x.a = u.id AND {draw(comparisons((*T, *U, *X)))}"
        where = st.one_of(comparisons((*T, *U, *X)), UNMATCHED)
    return f"{text} WHERE {draw(where)}"


def rows(database: duckdb.DuckDBPyConnection, text: str) -> list[tuple[object, ...]]:
    (sql,) = sqlglot.transpile(text, read="spark", write="duckdb")
    return sorted(database.execute(sql).fetchall(), key=str)


def narrowed(source: QueryTable) -> exp.Query:
    columns = source.columns or TABLES[source.table]
    query = exp.select(*columns).from_(source.table.partition(".")[2])
    return query.where(source.where, dialect="spark") if source.where else query


@given(queries())
def test_a_scan_that_tests_and_leaves_out_columns_changes_no_result(
    database: duckdb.DuckDBPyConnection, text: str
) -> None:
    query = parse(text)
    assert isinstance(query, Query)
    bound = bind(query, "p", TABLES.__getitem__, "default", lambda _: None)
    for source in bound.sources:
        view = narrowed(source).sql(dialect="duckdb")
        database.execute(f"CREATE OR REPLACE TEMP VIEW {source.placeholder} AS {view}")
    assert rows(database, bound.text) == rows(database, text)
