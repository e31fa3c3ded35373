"""What INSERT, UPDATE, DELETE and MERGE in Hive's SQL do to rows, alike in both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse, errors
from acid_platform.engine.merge_clauses import MergeAction, MergeClause, MergeCounts
from acid_platform.engine.results import Result
from acid_platform.handles.row_statements import OverwriteRows
from acid_platform.sql.answers import Done
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

ROWS = [
    {"id": 1, "v": "a", "s": {"a": 1, "o": {"b": 10, "c": "x"}}},
    {"id": 2, "v": "b", "s": None},
    {"id": 3, "v": "c", "s": {"a": 3, "o": None}},
]
NEWS = [
    {"id": 2, "v": "B", "s": {"a": 20, "o": None}, "op": "u"},
    {"id": 3, "v": "C", "s": None, "op": "d"},
    {"id": 4, "v": "D", "s": {"a": 40, "o": {"b": 4, "c": "d"}}, "op": "i"},
]
COLUMNS = "id int, v string, s struct<a:int,o:struct<b:int,c:string>>"


@pytest.fixture(scope="module", params=["spark", "local"])
def warehouse(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    where = tmp_path_factory.mktemp("changed")
    with temporary_warehouse(where, spark, request.param) as opened:
        opened.create_table("t", COLUMNS).insert(ROWS)
        opened.create_table("news", f"{COLUMNS}, op string").insert(NEWS)
        opened.create_table("low", "k int, v string").insert([{"k": 0, "v": "z"}])
        parts = opened.create_table("parts", "k int, v string", partitioned_by=["p string"])
        parts.insert([{"k": 7, "v": "old", "p": "x"}, {"k": 8, "v": "old", "p": "y"}])
        yield opened


def changed(
    warehouse: Warehouse, statement: str, table: str = "t"
) -> tuple[int | None, list[tuple[Any, ...]]]:
    """How many rows a statement says that it changed, and the rows of a table after it; it is
    rolled back."""
    warehouse.sql("START TRANSACTION")
    answer = warehouse.sql(statement)
    assert isinstance(answer, Done)
    rows = warehouse.sql(f"SELECT * FROM {table}").to_arrow().to_pylist()  # type: ignore[union-attr]
    warehouse.sql("ROLLBACK")
    return answer.rows, sorted((tuple(row.values()) for row in rows), key=str)


@pytest.mark.parametrize(
    "source", ["VALUES (1{nulls})", "SELECT 1{nulls}", "SELECT v.* FROM (SELECT 1{nulls}) v"]
)
def test_a_column_of_any_type_takes_rows_of_nothing_but_null(
    warehouse: Warehouse, source: str
) -> None:
    kinds = [
        "boolean",
        "tinyint",
        "bigint",
        "float",
        "decimal(5,2)",
        "string",
        "char(3)",
        "varchar(3)",
        "binary",
        "date",
        "timestamp",
        "array<int>",
        "map<int,string>",
        "struct<x:int>",
    ]
    name = f"nulls{len(warehouse.tables())}"
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))
    warehouse.sql(f"CREATE TABLE {name} (id int, {columns}) PARTITIONED BY (p int)")
    nulls = ", NULL" * (len(kinds) + 1)
    warehouse.sql(f"INSERT INTO {name} {source.format(nulls=nulls)}")
    (row,) = warehouse.table(name).to_arrow().to_pylist()
    assert tuple(row.values()) == (1, *[None] * (len(kinds) + 1))


def rows(**values: Any) -> list[tuple[Any, ...]]:
    """The rows of `t` after a change: `v1` says what became of row 1, None that it is gone."""
    made = [
        tuple((row | (values.get(f"v{row['id']}", {}) or {})).values())
        for row in ROWS
        if values.get(f"v{row['id']}", {}) is not None
    ]
    return sorted(made, key=str)


MERGE = "MERGE INTO t USING news AS n ON t.id = n.id "


@pytest.mark.parametrize(
    ("statement", "count", "after"),
    [
        (
            "UPDATE t SET s.a = s.a + 1 WHERE s.a >= 1",
            2,
            rows(v1={"s": {"a": 2, "o": {"b": 10, "c": "x"}}}, v3={"s": {"a": 4, "o": None}}),
        ),
        (
            "UPDATE t SET s.o.b = '5'",
            3,
            rows(
                v1={"s": {"a": 1, "o": {"b": 5, "c": "x"}}},
                v2={"s": {"a": None, "o": {"b": 5, "c": None}}},
                v3={"s": {"a": 3, "o": {"b": 5, "c": None}}},
            ),
        ),
        (
            "UPDATE t AS x SET x.s.a = id, V = 'z', s.o.C = v WHERE x.s.o.c = 'x'",
            1,
            rows(v1={"v": "z", "s": {"a": 1, "o": {"b": 10, "c": "a"}}}),
        ),
        ("DELETE FROM t WHERE s.o.b = 10 OR s IS NULL", 2, rows(v1=None, v2=None)),
        ("UPDATE t SET v = (SELECT max(id) FROM t) WHERE id = 3", 1, rows(v3={"v": "3"})),
        (
            "UPDATE t SET v = concat(v, (SELECT min(v) FROM news)), s.a = 9"
            " WHERE t.id IN (SELECT id FROM news)",
            2,
            rows(
                v2={"v": "bB", "s": {"a": 9, "o": None}}, v3={"v": "cB", "s": {"a": 9, "o": None}}
            ),
        ),
        (
            "UPDATE t SET s.a = (SELECT max(id) FROM news) + id WHERE s IS NOT NULL",
            2,
            rows(v1={"s": {"a": 5, "o": {"b": 10, "c": "x"}}}, v3={"s": {"a": 7, "o": None}}),
        ),
        (
            MERGE + "WHEN MATCHED AND n.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED BY TARGET THEN INSERT *",
            3,
            sorted(
                [*rows(v2={"v": "B", "s": NEWS[0]["s"]}, v3=None), (4, "D", NEWS[2]["s"])], key=str
            ),
        ),
        (
            MERGE + "WHEN MATCHED THEN UPDATE SET s.a = n.id WHEN NOT MATCHED THEN INSERT (id)"
            " VALUES (n.id)",
            3,
            sorted(
                [
                    *rows(v2={"s": {"a": 2, "o": None}}, v3={"s": {"a": 3, "o": None}}),
                    (4, None, None),
                ],
                key=str,
            ),
        ),
        (MERGE + "WHEN NOT MATCHED BY SOURCE THEN DELETE", 1, rows(v1=None)),
        (
            MERGE
            + "WHEN NOT MATCHED BY SOURCE AND t.s.a = 1 THEN UPDATE SET s.a = '0', v = 'gone'",
            1,
            rows(v1={"v": "gone", "s": {"a": 0, "o": {"b": 10, "c": "x"}}}),
        ),
        (
            MERGE + "WHEN MATCHED AND t.id = 3 THEN DELETE WHEN NOT MATCHED THEN INSERT *"
            " WHEN NOT MATCHED BY SOURCE AND v = 'no' THEN DELETE"
            " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = concat(t.v, '!')",
            3,
            sorted([*rows(v1={"v": "a!"}, v3=None), (4, "D", NEWS[2]["s"])], key=str),
        ),
        (
            "MERGE INTO t USING (SELECT 1 AS id UNION ALL SELECT 1) x ON t.id = x.id"
            " WHEN MATCHED THEN DELETE",
            1,
            rows(v1=None),
        ),
        (
            "MERGE INTO t USING (SELECT id FROM news UNION ALL SELECT id FROM news) x"
            " ON t.id = x.id WHEN MATCHED AND t.id < 3 THEN DELETE"
            " WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED THEN INSERT (id)"
            " VALUES (x.id)",
            4,
            sorted([*rows(v1=None, v2=None), (4, None, None), (4, None, None)], key=str),
        ),
    ],
)
def test_a_statement_changes_these_rows_and_says_how_many(
    warehouse: Warehouse, statement: str, count: int, after: list[tuple[Any, ...]]
) -> None:
    assert changed(warehouse, statement) == (count, after)


@pytest.mark.parametrize("warehouse", ["spark"], indirect=True)
def test_a_value_may_come_from_a_subquery_for_each_row(warehouse: Warehouse) -> None:
    statement = "UPDATE t SET v = (SELECT max(n.v) FROM news n WHERE n.id = t.id) WHERE id > 1"
    assert changed(warehouse, statement) == (2, rows(v2={"v": "B"}, v3={"v": "C"}))


@pytest.mark.parametrize(
    ("statement", "table", "count", "after"),
    [
        (
            "FROM news INSERT INTO low SELECT id, v WHERE id < 3"
            " INSERT OVERWRITE TABLE parts PARTITION (p='x') SELECT id, v WHERE id >= 3",
            "parts",
            3,
            [(3, "C", "x"), (4, "D", "x"), (8, "old", "y")],
        ),
        (
            "FROM low INSERT INTO low SELECT k + 1, v INSERT INTO low SELECT k + 2, v",
            "low",
            2,
            [(0, "z"), (1, "z"), (2, "z")],
        ),
        (
            "WITH n AS (SELECT id AS k FROM news) FROM n"
            " INSERT INTO parts PARTITION (p='x') (k) SELECT k WHERE k = 2"
            " INSERT OVERWRITE parts PARTITION (p='y') (v, k) SELECT 'new', k WHERE k > 2",
            "parts",
            3,
            [(2, None, "x"), (3, "new", "y"), (4, "new", "y"), (7, "old", "x")],
        ),
        (
            "FROM (SELECT id, v FROM news WHERE id = 2) s INSERT INTO low SELECT s.id, s.v",
            "low",
            1,
            [(0, "z"), (2, "B")],
        ),
        (
            "INSERT OVERWRITE parts PARTITION (p='x') IF NOT EXISTS SELECT 9, 'new'",
            "parts",
            0,
            [(7, "old", "x"), (8, "old", "y")],
        ),
        (
            "INSERT OVERWRITE parts PARTITION (p='z') IF NOT EXISTS SELECT 9, 'new'",
            "parts",
            1,
            [(7, "old", "x"), (8, "old", "y"), (9, "new", "z")],
        ),
        (
            "INSERT INTO parts PARTITION (p='x') (v) VALUES ('a'), ('b')",
            "parts",
            2,
            [(7, "old", "x"), (8, "old", "y"), (None, "a", "x"), (None, "b", "x")],
        ),
    ],
)
def test_an_insert_adds_these_rows_and_says_how_many(
    warehouse: Warehouse, statement: str, table: str, count: int, after: list[tuple[Any, ...]]
) -> None:
    assert changed(warehouse, statement, table) == (count, sorted(after, key=str))


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("UPDATE t SET s.nope = 1", errors.UnknownColumn, r"'s.nope': the fields of s are struct"),
        ("UPDATE t SET id.x = 1", errors.UnknownColumn, "'id.x'"),
        ("UPDATE t SET s = NULL, s.a = 1", errors.InvalidExpression, "is a part of it"),
        ("UPDATE t SET s.a = 1, t.s.A = 2", errors.InvalidExpression, "column 's.a' twice"),
        ("UPDATE t SET s.a = 1.5", errors.WrongType, "'s.a'"),
        ("UPDATE t SET s.a = 'x'", errors.WrongType, "does not fit its column.*CAST_INVALID_INPUT"),
        (
            MERGE + "WHEN NOT MATCHED BY SOURCE AND n.op = 'd' THEN DELETE",
            errors.UnknownColumn,
            "n.op",
        ),
        (
            MERGE + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = n.v",
            errors.UnknownColumn,
            "n.v",
        ),
        (
            MERGE + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
            errors.InvalidExpression,
            "no row of the source",
        ),
        (
            MERGE + "WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DELETE",
            errors.InvalidExpression,
            "WHEN NOT MATCHED BY SOURCE THEN DELETE is never reached",
        ),
        (
            "MERGE INTO t USING (SELECT id, v FROM news) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET *",
            errors.UnknownColumn,
            "the source has no s;",
        ),
        (
            "MERGE INTO t USING (SELECT id FROM news) s ON t.id = s.id"
            " WHEN NOT MATCHED THEN INSERT *",
            errors.UnknownColumn,
            "the source has no v, s;",
        ),
        (
            "MERGE INTO t USING (SELECT 2 AS id, 'd' AS op UNION ALL SELECT 2, 'u') s"
            " ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET v = 'x'",
            errors.SourceRowsAmbiguous,
            "2 source rows",
        ),
        (
            "MERGE INTO parts USING (SELECT 7 AS k, 'n' AS v, 'x' AS p) s ON parts.k = s.k"
            " WHEN MATCHED THEN UPDATE SET *",
            errors.PartitionColumnUpdate,
            "'p'",
        ),
        (
            "FROM news INSERT OVERWRITE low SELECT id, v INSERT INTO low SELECT id, v",
            errors.OverwriteThenWrite,
            "low",
        ),
        (
            "FROM news INSERT INTO parts PARTITION (p='x') SELECT id, v"
            " INSERT OVERWRITE parts PARTITION (p) SELECT id, v, 'x'",
            errors.OverwriteThenWrite,
            "parts p=x",
        ),
        (
            "FROM (SELECT id, rand() AS r FROM news) s INSERT INTO low SELECT id, 'a' WHERE r < 0.5"
            " INSERT INTO low SELECT id, 'b' WHERE r >= 0.5",
            errors.UnsupportedStatement,
            r"(?i)rand\(\) may give others",
        ),
        (
            "FROM (SELECT id FROM news LIMIT 1) s INSERT INTO low SELECT id, 'a'"
            " INSERT INTO low SELECT id, 'b'",
            errors.UnsupportedStatement,
            "LIMIT 1 may give others",
        ),
        (
            "INSERT INTO parts PARTITION (p='x') (k, p) SELECT 1, 'x'",
            errors.NoSuchPartition,
            "leave it out of the list",
        ),
    ],
)
def test_what_can_not_be_done_is_refused_by_name_and_leaves_everything(
    warehouse: Warehouse, statement: str, error: type[errors.AcidError], message: str
) -> None:
    names = ("t", "low", "parts")
    before = [warehouse.table(name).to_arrow() for name in names]
    with pytest.raises(error, match=message):
        warehouse.sql(statement)
    assert [warehouse.table(name).to_arrow() for name in names] == before


def test_a_star_leaves_a_partition_that_ON_says_is_equal(warehouse: Warehouse) -> None:
    statement = (
        "MERGE INTO parts USING (SELECT 'x' AS P, 'new' AS V, 7 AS K, 'more' AS w) s"
        " ON (parts.p = s.p) AND parts.k = s.k WHEN MATCHED THEN UPDATE SET *"
    )
    assert changed(warehouse, statement, "parts") == (1, [(7, "new", "x"), (8, "old", "y")])


def test_a_condition_that_only_some_matches_meet_deletes_once(warehouse: Warehouse) -> None:
    table = warehouse.create_table("twice", "id int", partitioned_by=["p string"])
    table.insert([{"id": i, "p": "ab"[i % 2]} for i in range(8)])
    source = [{"id": i % 8, "n": i} for i in range(20)]  # 0 to 3 come three times
    counts = table.merge(source, "t.id = s.id", when_matched_delete="s.n <> 1 AND t.id <> 5")
    assert counts == MergeCounts(deleted=7)
    assert table.to_arrow().to_pylist() == [{"id": 5, "p": "b"}]


def test_python_has_the_same_clauses(warehouse: Warehouse) -> None:
    table = warehouse.create_table("python", COLUMNS)
    table.insert(ROWS)
    assert table.update({"s.O.b": "id"}, "s.a = 1") == 1
    counts = table.merge(
        [{name: row[name] for name in ("id", "v", "s")} for row in NEWS],
        "t.id = s.id",
        when_matched_update="*",
        when_not_matched_insert="*",
        clauses=[
            MergeClause(MergeAction.UPDATE, {"s.a": "t.id + 6"}, "t.v = 'a'", by_source=True),
            MergeClause(MergeAction.DELETE, by_source=True),
        ],
    )
    assert counts == MergeCounts(updated=3, inserted=1)
    found = {row["id"]: row["s"] for row in table.to_arrow().to_pylist()}
    assert found == {
        1: {"a": 7, "o": {"b": 1, "c": "x"}},
        **{row["id"]: row["s"] for row in NEWS},
    }


def test_IF_NOT_EXISTS_sees_a_partition_that_another_writer_makes_meanwhile(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("raced", "k int", partitioned_by=["p string"])
    real, others = OverwriteRows.run, [{"k": 1, "p": "x"}]

    def run(statement: OverwriteRows, *arguments: Any) -> int:
        if others:
            table.insert([others.pop()])
        return real(statement, *arguments)

    monkeypatch.setattr(OverwriteRows, "run", run)
    answer = warehouse.sql("INSERT OVERWRITE raced PARTITION (p='x') IF NOT EXISTS SELECT 2")
    assert isinstance(answer, Done) and (answer.rows, str(answer)) == (0, "No rows affected")
    assert table.to_arrow().to_pylist() == [{"k": 1, "p": "x"}]


def test_orders_of_hive(warehouse: Warehouse) -> None:
    for clause, ids in {
        "SORT BY id DESC": [3, 2, 1],
        "DISTRIBUTE BY v SORT BY v DESC": [3, 2, 1],
        "CLUSTER BY id": [1, 2, 3],
    }.items():
        result = warehouse.sql(f"SELECT id FROM t {clause}")
        assert isinstance(result, Result)
        found = [row["id"] for row in result.to_arrow().to_pylist()]
        assert sorted(found) == [1, 2, 3], "Spark sorts what each task has"
        assert result.engine == "spark" or found == ids


def test_the_numbers_of_groups_are_those_of_hive(warehouse: Warehouse) -> None:
    grouped = warehouse.sql(
        "SELECT v, GROUPING__ID FROM t GROUP BY v WITH ROLLUP ORDER BY GROUPING__ID DESC, v",
        engine="spark",
    ).to_arrow()  # type: ignore[union-attr]
    assert [tuple(row.values()) for row in grouped.to_pylist()] == [
        (None, 1),
        ("a", 0),
        ("b", 0),
        ("c", 0),
    ]
    assert grouped.column_names == ["v", "grouping__id"]


def test_inserts_of_one_statement_commit_together(warehouse: Warehouse) -> None:
    for name in ("one", "two"):
        warehouse.create_table(name, "k int")
    warehouse.sql("FROM news INSERT INTO one SELECT id INSERT INTO two SELECT id WHERE id > 2")
    (first,), (second,) = (warehouse.table(name).history() for name in ("one", "two"))
    assert first["txn"] == second["txn"]
    explained = warehouse.sql(
        "EXPLAIN FROM news INSERT INTO one SELECT id INSERT INTO two SELECT 1"
    )
    text = "\n".join(explained["Explain"])  # type: ignore[index]
    assert "write default.one" in text and "write default.two" in text
