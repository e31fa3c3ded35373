"""Statements that change rows do the same in both engines (P33).

Each example runs in two warehouses, one with each engine. After each statement the errors' classes
and the counts are equal; at the end the rows, their row ids, the directories, the files, and the
row counts and ranges that their commits recorded are.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from acid_platform import AcidError, InvalidExpression, NeedsSpark, Table, Warehouse, WrongType
from acid_platform.engine.merge_clauses import MergeAction, MergeClause
from acid_platform.values.arrow_types import arrow_type
from tests.conftest import quick_then_slow, slow_then_soak, temporary_warehouse

pytestmark = pytest.mark.spark

COLUMNS = (
    "id int, v string, c char(4), x varchar(3), d decimal(7,2), f double, t timestamp, e date,"
    " b boolean, l array<int>, s struct<a:int,c:char(2)>"
)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partitioned_by": ["k string", "n int"]},
    "bucketed": {"clustered_by": (["id"], 3)},
    "both": {"partitioned_by": ["k string"], "clustered_by": (["id", "v"], 2)},
}
_numbers = itertools.count()


@dataclass(frozen=True)
class Statement:
    """A method of Table and its arguments."""

    verb: str
    arguments: tuple[Any, ...]

    def run(self, table: Table) -> object:
        """Its result, or the class of its error."""
        try:
            return getattr(table, self.verb)(*self.arguments)
        except NeedsSpark:
            raise
        except AcidError as error:
            return type(error)


Warehouses = tuple[Warehouse, Warehouse]


@pytest.fixture(scope="module")
def warehouses(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[Warehouses]:
    """One whose engine is Spark, and one whose engine is the local one."""
    where = tmp_path_factory.mktemp("agree")
    with (
        temporary_warehouse(where / "spark", spark, "spark") as first,
        temporary_warehouse(where / "local", engine="local") as second,
    ):
        yield first, second


MOMENTS = [
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 58, 123456),
    datetime.datetime(2024, 2, 29, 12, 30, 15, 500_000),
]
values: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(0, 9),
    "v": st.sampled_from(["", "a", "b", "ab", "é", "long text", " x "]),
    "c": st.sampled_from(["", "a", "ab", "abcd", "abcd  ", "é"]),
    "x": st.sampled_from(["", "abc", "ab ", "abc ", "é"]),
    "d": st.sampled_from([Decimal("1.50"), Decimal("-99999.99"), Decimal("0")]),
    "f": st.sampled_from([0.0, -0.0, 1.5, float("inf"), -1e300]),
    "t": st.sampled_from(MOMENTS),
    "e": st.sampled_from([datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]),
    "b": st.booleans(),
    "l": st.lists(st.none() | st.integers(0, 3), max_size=2),
    "s": st.fixed_dictionaries({"a": st.none() | st.integers(0, 1), "c": st.just("q")}),
    "k": st.sampled_from(["", "a", "b c", "é", "x/y", "Z"]),
    "n": st.integers(-1, 1),
}
WRONG: list[dict[str, Any]] = [
    {"c": "abcde"},
    {"x": "abcd"},
    {"t": datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000)},
    {"s": {"a": 1, "c": "abc"}},
    {"id": 1.5},
    {"nope": 1},
]


def rows(keys: Sequence[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    kinds = {name: st.none() | kind for name, kind in values.items()}
    others = {name: kind for name, kind in kinds.items() if name not in ("k", "n")}
    row = st.fixed_dictionaries({key: kinds[key] for key in keys}, optional=others).filter(
        lambda one: one
    )
    good = st.lists(row, min_size=1, max_size=12)
    wrong = st.sampled_from([{**dict.fromkeys(keys), **one} for one in WRONG])
    return good | st.tuples(good, wrong).map(lambda pair: [*pair[0], pair[1]])


CONDITIONS = [
    None,
    "id = 3",
    "id % 2 = 0",
    "v IS NULL",
    "c = 'ab'",
    "x = 'ab '",
    "d > 1.4 OR NOT b",
    "id IN (1, 2, 7) AND v LIKE 'a%'",
    "length(v) > 1",
    "t >= timestamp '1970-01-01 00:00:00'",
    "coalesce(f, 0) = 0",
    "row__id.rowid = 1",
    "nope = 1",
]
ASSIGNMENTS: list[dict[str, str]] = [
    {"v": "concat(v, '!')"},
    {"v": "upper(v)", "d": "id"},
    {"d": "d * 2"},
    {"c": "v"},
    {"x": "'ab'", "f": "d + 1"},
    {"t": "NULL", "e": "date '2020-01-01'"},
    {"t": "timestamp '1969-12-31 23:59:59.5'"},
    {"b": "id > 3"},
    {"s.a": "id"},
    {"s.c": "v", "s.A": "s.a + 1"},
    {"s.c": "v", "s": "s"},
    {"id": "id + 10"},
    {"id": "v"},
    {"id": "id + 2147483647"},
    {"id": "1 / (id - 3)"},
    {"k": "'other'"},
    {},
]
CLAUSES: list[list[MergeClause]] = [
    [
        MergeClause(MergeAction.UPDATE, {"v": "s.v", "d": "s.d"}),
        MergeClause(MergeAction.INSERT),
    ],
    [
        MergeClause(MergeAction.DELETE, None, "s.id > 4"),
        MergeClause(MergeAction.UPDATE, {"v": "concat(t.v, s.v)"}, "s.v IS NOT NULL"),
        MergeClause(MergeAction.INSERT, {"id": "s.id + 20", "v": "s.v"}, "s.id < 8"),
        MergeClause(MergeAction.INSERT, {"id": "-1"}),
    ],
    [
        MergeClause(MergeAction.UPDATE, {"s.a": "s.id", "v": "s.v"}, "t.id > 2"),
        MergeClause(MergeAction.INSERT),
        MergeClause(MergeAction.DELETE, None, "t.v = 'a'", by_source=True),
        MergeClause(MergeAction.UPDATE, {"v": "concat(t.v, '-')", "s.c": "t.v"}, by_source=True),
    ],
    [
        MergeClause(MergeAction.DELETE, None, "t.id > 3"),
        MergeClause(MergeAction.DELETE, by_source=True),
    ],
    [MergeClause(MergeAction.INSERT)],
    [MergeClause(MergeAction.DELETE)],
    [MergeClause(MergeAction.UPDATE, {"c": "s.v"})],
    [],
]


def _with_keys(clause: MergeClause, keys: Sequence[str]) -> MergeClause:
    """The clause, whose inserted rows go to the default partition if it doesn't say where."""
    if clause.action is not MergeAction.INSERT or clause.values is None:
        return clause
    return replace(clause, values=dict.fromkeys(keys, "NULL") | dict(clause.values))


@st.composite
def changes(draw: st.DrawFn, kind: str) -> list[Statement]:
    keys = [key.split()[0] for key in KINDS[kind].get("partitioned_by", ())]
    given_rows = rows(keys)
    statements = [Statement("insert", (draw(given_rows),))]
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(["insert", "overwrite", "delete", "update", "merge"])):
            case "insert":
                statements.append(Statement("insert", (draw(given_rows),)))
            case "overwrite":
                whole = {"k": draw(values["k"]), "n": draw(values["n"])}
                partition = {key: whole[key] for key in keys} if draw(st.booleans()) else None
                statements.append(Statement("overwrite", (draw(given_rows), partition or None)))
            case "delete":
                statements.append(Statement("delete", (draw(st.sampled_from(CONDITIONS)),)))
            case "update":
                chosen = draw(st.sampled_from(ASSIGNMENTS))
                where = draw(st.sampled_from(CONDITIONS))
                statements.append(Statement("update", (chosen, where)))
            case "merge":
                source = draw(given_rows)
                clauses = [_with_keys(one, keys) for one in draw(st.sampled_from(CLAUSES))]
                on = draw(
                    st.sampled_from(["t.id = s.id", "t.id = s.id AND t.v = s.v", "t.f = s.f"])
                )
                source = [{"id": None, "v": None, "d": None, "f": None, **row} for row in source]
                statements.append(Statement("merge", (source, on, None, None, None, clauses)))
    return statements


def stored_rows(table: Table) -> list[tuple[str, ...]]:
    """All rows with their row ids, as text: -0.0 is not 0.0."""
    found = table.to_arrow(row_id=True).to_pylist()
    return sorted(tuple(f"{name}={value!r}" for name, value in row.items()) for row in found)


def files(table: Table) -> list[tuple[Any, ...]]:
    """What the commits recorded, except for the sizes of the files."""
    found = []
    for partition, directory in table.snapshot().directories.items():
        for source in (*directory.sources, *directory.delete_deltas):
            found += [
                (
                    partition,
                    source.directory,
                    entry.path,
                    entry.footer,
                    sorted(entry.ranges.items()),
                    entry.keys,
                )
                for entry in source.files
            ]
    return sorted(found, key=str)


def check(warehouses: Warehouses, kind: str, statements: Sequence[Statement]) -> None:
    name = f"db.t{next(_numbers)}"
    first, second = (
        warehouse.create_table(name, COLUMNS, **KINDS[kind]) for warehouse in warehouses
    )
    for statement in statements:
        assert statement.run(second) == statement.run(first), statement
    assert stored_rows(second) == stored_rows(first)
    assert files(second) == files(first)
    for warehouse in warehouses:
        warehouse.release()
        warehouse.drop_table(name)


RUN = settings(
    max_examples=4,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # each step of shrinking takes Spark seconds
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MORE = settings(RUN, max_examples=10, derandomize=False)
cases = st.sampled_from(sorted(KINDS)).flatmap(lambda kind: st.tuples(st.just(kind), changes(kind)))


@pytest.mark.slow
@RUN
@given(cases)
def test_P33_random_changes_do_the_same_in_both_engines(
    warehouses: Warehouses, case: tuple[str, list[Statement]]
) -> None:
    check(warehouses, *case)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("slice_", slow_then_soak(range(6), 2))
@MORE
@given(cases)
def test_P33_many_random_changes_do_the_same_in_both_engines(
    warehouses: Warehouses,
    slice_: int,
    case: tuple[str, list[Statement]],
) -> None:
    check(warehouses, *case)


def test_P33_a_merge_with_two_mistakes_tells_the_same_one_in_both_engines(
    warehouses: Warehouses,
) -> None:
    check(
        warehouses,
        "plain",
        [
            Statement("insert", ([{"id": 1, "v": "a"}],)),
            Statement("merge", ([{"id": 1, "nope": 1}], "t.id = s.id", None, None, None, [])),
        ],
    )


@pytest.mark.parametrize("kind", quick_then_slow(KINDS, 2))
def test_P33_a_merge_into_an_empty_table_gives_row_ids_in_the_order_of_the_source(
    warehouses: Warehouses, kind: str
) -> None:
    keys = [key.split()[0] for key in KINDS[kind].get("partitioned_by", ())]
    rows = [{"id": i * 7 % 16, "v": str(i), "k": "ab"[i % 3 == 0], "n": 0} for i in range(16)]
    source = [{name: row[name] for name in ("id", "v", *keys)} for row in rows]
    clauses = [MergeClause(MergeAction.UPDATE, {"v": "s.v"}), MergeClause(MergeAction.INSERT)]
    merge = Statement("merge", (source, "t.id = s.id", None, None, None, clauses))
    check(warehouses, kind, [merge, merge])


def test_P63_a_partition_of_zero_has_one_name(warehouses: Warehouses) -> None:
    zeros = [0.0, -0.0, 2.0, None]
    for warehouse in warehouses:
        table = warehouse.create_table("db.zeros", "id int, f float", partitioned_by=["n double"])
        table.insert([{"id": i, "f": -0.0, "n": zero} for i, zero in enumerate(zeros)])
        table.merge([{"id": 9, "f": 0.0, "n": -0.0}], "t.id = s.id", when_not_matched_insert="*")
        table.update({"f": "f - 1"}, "n = 0 AND id = 1")
        assert table.partitions() == ["n=0.0", "n=2.0", "n=__HIVE_DEFAULT_PARTITION__"]
        table.overwrite([{"id": 5, "f": -0.0}], partition={"n": "-0.0"})
        assert table.count("n = 0") == 1
        rows = sorted(map(repr, table.to_arrow().to_pylist()))
        assert rows[-1] == "{'id': 5, 'f': -0.0, 'n': 0.0}"
        warehouse.release()
        warehouse.drop_table("db.zeros")


def test_a_condition_that_is_no_text_is_refused(warehouses: Warehouses) -> None:
    for warehouse in warehouses:
        table = warehouse.create_table("db.texts", "id int")
        with pytest.raises(InvalidExpression, match="'true' for all rows"):
            table.merge([{"id": 1}], "t.id = s.id", when_matched_delete=True)  # type: ignore[arg-type]


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": i, "v": f"v{i % 3}", "k": "ab"[i % 2], **more} for i in range(count)]


@pytest.mark.parametrize("kind", ["plain", pytest.param("both", marks=pytest.mark.slow)])
def test_P33_every_verb_in_one_history_does_the_same_in_both_engines(
    warehouses: Warehouses, kind: str
) -> None:
    drop = () if kind == "both" else ("k",)

    def given(count: int, first: int = 0) -> list[dict[str, Any]]:
        made = [{**row, "id": row["id"] + first} for row in numbered(count)]
        return [{key: row[key] for key in row if key not in drop} for row in made]

    history = [
        Statement("insert", (given(10),)),
        Statement("delete", ("id % 4 = 1",)),
        Statement("update", ({"d": "id * 1.5", "x": "v"}, "id > 3")),
        Statement("insert", (pd.DataFrame(given(4, 20)),)),
        Statement(
            "merge",
            (
                [{**row, "d": Decimal(row["id"])} for row in given(6, 18)],
                "t.id = s.id",
                *(None, None, None, CLAUSES[0]),
            ),
        ),
        Statement("delete", ("length(v) = 2 AND id < 3",)),
        Statement("delete", ("id / 0 = 1",)),
        Statement("update", ({"v": "upper(v)"}, None)),
    ]
    if kind == "plain":
        history += [
            *(Statement("update", (assignments, None)) for assignments in ASSIGNMENTS),
            *(Statement("insert", ([row],)) for row in WRONG),
        ]
    check(warehouses, kind, history)


def test_P33_arrow_tables_of_the_columns_types_do_the_same_in_both_engines(
    warehouses: Warehouses,
) -> None:
    first = warehouses[0].create_table("db.types", COLUMNS)
    table = pa.table(
        {
            column.name: pa.nulls(3, arrow_type(column.type))
            for column in first.columns
            if column.name != "v"
        }
    )
    warehouses[0].drop_table("db.types")
    statements = [Statement("insert", (table,)), Statement("insert", (table.slice(0, 0),))]
    check(warehouses, "plain", statements)


def test_P33_no_number_beyond_float_becomes_infinity_in_either_engine(
    warehouses: Warehouses,
) -> None:
    for warehouse in warehouses:
        table = warehouse.create_table("db.floats", "id int, f float, s struct<f:float>")
        table.insert([{"id": 1, "f": 1.5, "s": {"f": 1.5}}])
        changes = [
            lambda table=table: table.update({"f": "id * 1e300"}),
            lambda table=table: table.update({"s.f": "1e39D"}),
            lambda table=table: table.merge([{"id": 1}], "t.id = s.id", {"f": "1e300D"}),
            lambda table=table: table.insert([{"id": 2, "f": 1e300}]),
            lambda warehouse=warehouse: warehouse.sql(
                "INSERT INTO db.floats (id, f) SELECT 3, 1e300"
            ),
        ]
        for change in changes:
            with suppress(NeedsSpark), pytest.raises(WrongType):
                change()
        table.update({"f": "-CAST('Infinity' AS double)", "s.f": "CAST('NaN' AS double)"})
        assert repr(table.to_arrow().to_pylist()) == "[{'id': 1, 'f': -inf, 's': {'f': nan}}]"
        warehouse.release()
        warehouse.drop_table("db.floats")
