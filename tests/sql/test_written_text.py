"""What a statement changes is what its text says: qualifiers of SET, clauses of MERGE, names of
tables that are words of joins, comments, CASE … END, and one name in two databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acid_platform import Warehouse, errors
from acid_platform.engine.merge_clauses import MergeAction, MergeClause
from tests.conftest import temporary_warehouse

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}, {"id": 3, "v": 30}]
NEWS = [{"id": 2, "v": 200}, {"id": 3, "v": 300}, {"id": 4, "v": 400}]
WORDS = ("full", "left", "right", "inner", "semi", "anti", "cross", "natural", "on", "using")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    path = tmp_path_factory.mktemp("text") / "wh"
    with temporary_warehouse(path, engine="local") as opened:
        for name in ("a", "b"):
            opened.sql(f"CREATE DATABASE {name}")
        opened.create_table("a.t", "id int, v int").insert(ROWS)
        opened.create_table("b.t", "id int, v int").insert(NEWS)
        fielded = opened.create_table("a.n", "id int, n1 int, s struct<n1:int,id:int>")
        fielded.insert([{"id": 1, "n1": 5, "s": {"n1": 7, "id": 9}}])
        opened.sql("USE a")
        yield opened


def after(warehouse: Warehouse, statement: str, table: str = "t") -> list[tuple[Any, ...]]:
    """The rows of a table after a statement, which is rolled back."""
    warehouse.sql("START TRANSACTION")
    warehouse.sql(statement)
    found = warehouse.sql(f"SELECT * FROM {table}").to_arrow().to_pylist()  # type: ignore[union-attr]
    warehouse.sql("ROLLBACK")
    return sorted(tuple(row.values()) for row in found)


MERGE = "MERGE INTO t USING b.t AS s ON t.id = s.id "


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("UPDATE t SET t.v = v + 1 WHERE t.id = 1", {1: 11, 2: 20, 3: 30}),
        ("UPDATE a.t SET a.t.v = a.t.v + 1 WHERE a.t.id = 1", {1: 11, 2: 20, 3: 30}),
        ("UPDATE t AS x SET x.v = x.v + 1 WHERE x.id = 1", {1: 11, 2: 20, 3: 30}),
        (
            "UPDATE t SET v = CASE WHEN id = 1 THEN 5 ELSE v END -- WHERE id = 2\nWHERE id < 3",
            {1: 5, 2: 20, 3: 30},
        ),
        (
            "UPDATE t SET v /* of */ = /*+ no */ 1 WHERE id IN (SELECT id FROM b.t)",
            {1: 10, 2: 1, 3: 1},
        ),
        ("DELETE FROM t WHERE v = (SELECT max(v) FROM t)", {1: 10, 2: 20}),
        ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM b.t WHERE b.t.id = a.t.id)", {1: 10}),
        (
            "DELETE FROM t x WHERE EXISTS (SELECT 1 FROM b.t WHERE t.id = x.id AND t.v > 200)",
            {1: 10, 2: 20},
        ),
        (
            "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM b.t AS t2 WHERE t2.id = t.id)",
            {2: 20, 3: 30},
        ),
        (
            "INSERT INTO t VALUES (4, CASE WHEN true THEN 1 END), (5, 6) -- end",
            {1: 10, 2: 20, 3: 30, 4: 1, 5: 6},
        ),
        (
            "WITH t AS (SELECT * FROM b.t) INSERT INTO a.t SELECT id + 10, v FROM t WHERE id = 4",
            {1: 10, 2: 20, 3: 30, 14: 400},
        ),
        (
            "INSERT OVERWRITE TABLE t SELECT a.t.id, b.t.v FROM a.t JOIN b.t ON a.t.id = b.t.id",
            {2: 200, 3: 300},
        ),
        (
            MERGE + "WHEN MATCHED AND CASE WHEN s.v > 200 THEN true ELSE false END THEN DELETE",
            {1: 10, 2: 20},
        ),
        (
            MERGE
            + "WHEN MATCHED THEN UPDATE SET a.t.v = s.v WHEN NOT MATCHED BY TARGET THEN INSERT *",
            {1: 10, 2: 200, 3: 300, 4: 400},
        ),
        (
            "MERGE INTO a.t USING b.t ON a.t.id = b.t.id WHEN MATCHED AND b.t.v > 200 THEN UPDATE"
            " SET v = a.t.v + b.t.v WHEN NOT MATCHED THEN INSERT (v, id) VALUES (b.t.v, t.id)",
            {1: 10, 2: 20, 3: 330, 4: 400},
        ),
        (
            "MERGE INTO t USING (VALUES (1, 2)) AS s(id, w) ON t.id = s.id WHEN MATCHED THEN"
            " UPDATE SET v = w",
            {1: 2, 2: 20, 3: 30},
        ),
    ],
)
def test_a_statement_changes_what_its_text_says(
    warehouse: Warehouse, statement: str, values: dict[int, int]
) -> None:
    assert after(warehouse, statement) == sorted(values.items())


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("UPDATE n SET s.n1 = -1", (1, 5, {"n1": -1, "id": 9})),
        ("UPDATE a.n SET a.n.s.ID = n1, n.n1 = s.id", (1, 9, {"n1": 7, "id": 5})),
        ("UPDATE n AS s SET s.n1 = -1, s.s.n1 = s.n1", (1, -1, {"n1": 5, "id": 9})),
    ],
)
def test_a_field_is_set_where_the_qualifier_says(
    warehouse: Warehouse, statement: str, values: tuple[Any, ...]
) -> None:
    assert after(warehouse, statement, "n") == [values]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("UPDATE t SET nosuch.v = 1", errors.UnknownColumn, "nosuch.v"),
        ("UPDATE t AS x SET t.v = 1", errors.UnknownColumn, "t.v"),
        ("UPDATE t SET b.t.v = 1", errors.UnknownColumn, "b.t.v"),
        ("UPDATE t SET v = 1, t.v = 2", errors.InvalidExpression, "column 'v' twice"),
        ("UPDATE n SET s.nosuch = -1", errors.UnknownColumn, "'s.nosuch'"),
        ("UPDATE n SET n.s.nosuch = -1", errors.UnknownColumn, "'s.nosuch'"),
        ("UPDATE n AS s SET s.nosuch = -1", errors.UnknownColumn, "'s.nosuch'"),
        ("UPDATE t SET v = 1 FROM b.t", errors.InvalidExpression, "not Hive SQL"),
        (
            "DELETE FROM t WHERE id = 1 ORDER BY id",
            errors.UnsupportedStatement,
            "DELETE with ORDER BY",
        ),
        ("DELETE FROM t ORDER\nBY id", errors.UnsupportedStatement, "DELETE with ORDER BY"),
        ("DELETE FROM t LIMIT 1", errors.UnsupportedStatement, "DELETE with LIMIT"),
        ("UPDATE t SET v = 1 LIMIT ALL", errors.UnsupportedStatement, "UPDATE with LIMIT"),
        (MERGE + "WHEN MATCHED THEN UPDATE SET s.v = t.v", errors.UnknownColumn, "s.v"),
        (MERGE + "WHEN MATCHED THEN UPDATE SET v = 1 v", errors.InvalidExpression, "not Hive SQL"),
        (
            MERGE + "WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1",
            errors.InvalidExpression,
            "WHEN MATCHED THEN UPDATE is never reached",
        ),
        (
            MERGE + "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED AND s.v = 1 THEN INSERT *",
            errors.InvalidExpression,
            "WHEN NOT MATCHED THEN INSERT is never reached",
        ),
        (
            "MERGE INTO a.t USING b.t ON t.id = t.id WHEN MATCHED THEN DELETE",
            errors.UnsupportedStatement,
            "several tables called t",
        ),
        ("SELECT a.t.v FROM a.t JOIN a.t", errors.InvalidExpression, "named twice"),
        ("SELECT * FROM IDENTIFIER('a.t')", errors.UnsupportedStatement, "name the table"),
        ("INSERT INTO t BY NAME SELECT 1 AS v", errors.UnsupportedStatement, "BY NAME"),
    ],
)
def test_what_a_text_cannot_mean_is_refused_by_name(
    warehouse: Warehouse, statement: str, error: type[errors.AcidError], message: str
) -> None:
    before = warehouse.table("a.t").to_arrow()
    with pytest.raises(error, match=message):
        warehouse.sql(statement)
    assert warehouse.table("a.t").to_arrow() == before


def test_python_refuses_a_clause_that_no_row_reaches(warehouse: Warehouse) -> None:
    clauses = [MergeClause(MergeAction.DELETE), MergeClause(MergeAction.UPDATE, {"v": "s.v"})]
    with pytest.raises(errors.InvalidExpression, match="never reached"):
        warehouse.table("a.t").merge(NEWS, "t.id = s.id", clauses=clauses)


@pytest.mark.more
def test_words_of_joins_are_names_of_tables(warehouse: Warehouse) -> None:
    for name in WORDS:
        warehouse.create_table(f"b.{name}", "id int, v int").insert(ROWS)
        for written in (f"b.`{name}`", f"`b`.`{name}`"):
            found = warehouse.sql(
                f"SELECT max(`{name}`.v) AS m, {written}.id FROM {written} GROUP BY {written}.id"
            )
            assert len(found.to_arrow()) == 3  # type: ignore[union-attr]
        assert after(
            warehouse, f"DELETE FROM b.`{name}` WHERE b.`{name}`.id > 1", f"b.`{name}`"
        ) == [(1, 10)]


def test_a_declaration_keeps_its_types_and_its_query(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE TABLE b.z (at timestamp with local time zone, s struct<`x`:timestamp_ltz>)"
    )
    kinds = dict(warehouse.metastore.table("b.z").columns)
    zone = "timestamp with local time zone"
    assert kinds == {"at": zone, "s": f"struct<x:{zone}>"}
    warehouse.sql(
        "CREATE TABLE b.made /* AS SELECT 1 */ STORED AS ORC AS -- all\n(SELECT a.t.id FROM a.t)"
    )
    assert warehouse.table("b.made").count() == 3
