"""Records answer `SELECT count(*), min(a) FROM t`, also by partition, and no other query."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import AcidError, Warehouse
from acid_platform.engine.interface import Result
from acid_platform.scan import scans
from acid_platform.scan.decode import FileRead
from acid_platform.sql.parse import parse
from acid_platform.sql.run_queries import aggregated
from acid_platform.sql.text import Query
from tests.conftest import temporary_warehouse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM db.T", ("db.t", "count(1)")),
        ("SELECT Count(A) FROM t", ("t", "count(A)")),
        ("select min(x.a) m, max(b) from t x where b = 1", ("t", "m, max(b)", "`b` = 1")),
        ("select COUNT(*) as n from t x", ("t", "n")),
        ("select count(*) from t where a = 1", ("t", "count(1)", "`a` = 1")),
        ("select count(*) from db.t x where x.A in (1, 2)", ("db.t", "count(1)", "`A` IN (1, 2)")),
        *(
            (text, None)
            for text in (
                "select count(*) from t where a + 1 = 2",
                "select count(*) from t where x.a = 1",
                "select count(*) from t where true",
                "select count(*) from t where a in (select 1)",
                "select count(distinct a) from t",
                "select count(x.a) from t",
                "select count(a.b.c) from t",
                "select min(a + 1) from t",
                "select max(distinct a) from t",
                "select sum(a) from t",
                "select min(a) filter (where a > 1) from t",
                "select min(a) over () from t",
                "select min(a), a from t",
                "select count(a, b) from t",
                "select count(*), 1 from t",
                "select count(*) from t limit 0",
                "select distinct count(*) from t",
                "select count(*) from a join b",
                "select 1",
                "with t as (select 1) select count(*) from t",
                "select count(*) from (select 1)",
                "select count(*) from t group by x",
                "select count(*) from t having count(*) > 1",
                "select count(*) over () from t",
                "select count(*) from a, b",
                "select count(*) + 1 from t",
                "select count(*) from t union all select count(*) from t",
                "select count(*) from t tablesample (1 rows)",
                "select count(*) from t order by 1",
            )
        ),
    ],
)
def test_what_is_answered_from_records(text: str, expected: tuple[str, ...] | None) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Query)
    asked = aggregated(parsed.tree)
    if asked is None or expected is None:
        assert (asked, expected) == (None, None)
        return
    condition = () if asked.where is None else (asked.where.sql(dialect="spark"),)
    names = ", ".join(each.name for each in asked.aggregates)
    assert (asked.table, names, *condition) == expected


KINDS: list[tuple[str, list[Any]]] = [
    ("int", [None, -1, 0, 7]),
    ("date", [None, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]),
    ("string", [None, "", "a ", "ä/%", "B"]),
    ("decimal(6,2)", [1, None]),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Tables by number, day and text, of which rows were updated and deleted and some loaded last,
    one compacted; each row has its values also in columns that aren't those of the partition."""
    with temporary_warehouse(tmp_path_factory.mktemp("counts") / "wh", engine="local") as opened:
        for number, (kind, values) in enumerate(KINDS):
            table = opened.create_table(f"db.t{number}", f"id int, same {kind}", [f"p {kind}"])
            rows = [
                {"id": one, "same": value or None if kind == "string" else value, "p": value}
                for one, value in enumerate(itertools.chain.from_iterable([values] * 5))
            ]
            table.insert(rows)
            table.delete("id % 4 = 1")
            table.update({"id": "id + 100"}, "id % 3 = 0")
            table.delete("id = 102 or id = 6")
            if number == 1:
                table.compact("major", wait=True)
            table.insert(rows[:3])
        yield opened


def conditions(column: str) -> st.SearchStrategy[str]:
    numbers = ["0", "-1", "7", "1.00", "NULL", "true"]
    days = ["'2024-02-29'", "DATE'2024-02-29'", "DATE'1400-02-01'"]
    literal = st.sampled_from([*numbers, *days, "''", "'a'", "'a '", "'B'", "'x'"])
    plain = st.builds(
        lambda operator, value: f"{column} {operator} {value}",
        st.sampled_from(["=", "<>", "<", ">=", "<=>"]),
        literal,
    )
    listed = st.builds(lambda a, b: f"{column} IN ({a}, {b})", literal, literal)
    leaf = st.one_of(plain, listed, st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda one: f"NOT ({one})", inner),
            st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
            st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
        ),
        max_leaves=4,
    )


def answered(warehouse: Warehouse, query: str) -> Result:
    answer = warehouse.sql(query)
    assert isinstance(answer, Result)
    return answer


def counted(count: Callable[[], int]) -> int | type[Exception]:
    try:
        return count()
    except AcidError as error:
        return type(error)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(0, 3), st.data())
def test_a_count_by_partition_is_the_number_of_the_rows_that_are_decoded(
    warehouse: Warehouse, number: int, data: st.DataObject
) -> None:
    where = data.draw(conditions("p"))
    table = warehouse.table(f"db.t{number}")
    rows = counted(lambda: int(table.to_arrow(where=where).num_rows))
    assert counted(lambda: table.count(where)) == rows
    stored = where.replace("p ", "same ")
    assert counted(lambda: table.count(stored)) == rows
    query = f"SELECT count(*) FROM db.t{number} WHERE"
    if isinstance(rows, int):
        assert answered(warehouse, f"{query} {where}").to_arrow().column(0).to_pylist() == [rows]


def test_a_count_by_partition_opens_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id int", ["p int"])
        table.insert([{"id": one, "p": (None, -1, 7)[one % 3]} for one in range(9)])
        table.delete("id < 4")
        table.count()  # the keys of deleted rows are kept
        monkeypatch.setattr(scans, "open_source", lambda *_: pytest.fail("opened"))
        monkeypatch.setattr(FileRead, "work", lambda *_: pytest.fail("decoded"))
        assert [table.count(), table.count("p = 7"), table.count("p IS NULL OR p < 0")] == [5, 2, 3]
        query = "SELECT count(*) AS n FROM db.t x WHERE x.p IS NULL OR p < 0"
        answer = answered(warehouse, query)
        assert answer.to_arrow().to_pylist() == [{"n": 3}]
        assert "records" in answer.reason
