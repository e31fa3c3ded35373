"""Counts and bounds from the records of files are those of the rows that are read in full."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from acid_platform import Table, Warehouse
from acid_platform.engine.choice import Engines
from acid_platform.engine.interface import ArrowResult, Result
from acid_platform.engine.local.run_query import LocalResult
from acid_platform.scan.decode import FileRead
from acid_platform.sql import run_queries
from tests.conftest import a_warehouse, temporary_warehouse


@pytest.fixture(autouse=True, scope="module")
def few_rows_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_queries, "ROWS_FOR_EACH", 0)
        yield


def answered(warehouse: Warehouse, query: str) -> Result:
    answer = warehouse.sql(query)
    assert isinstance(answer, Result)
    return answer


_INF = float("inf")
VALUES: dict[str, list[Any]] = {
    "smallint": [None, -32768, 0, 32767],
    "int": [None, -(2**31), 5, 2**31 - 1],
    "bigint": [None, -(2**63), 0, 2**63 - 1],
    "decimal": [None, Decimal("-9999999.99"), Decimal("0.10"), Decimal("5")],
    "float": [None, -0.0, 0.0, float("nan"), 0.25],
    "double": [None, -0.0, 0.0, float("nan"), _INF, -_INF, 1.5],
    "date": [
        None,
        *(datetime.date(*day) for day in ((1582, 10, 15), (1970, 1, 1), (9999, 12, 31))),
    ],
    "timestamp": [None, datetime.datetime(1583, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59)],
    "string": [None, "", "a", "a ", "z" * 31, "z" * 32, "z" * 2000, "\U0001f3f3", "\uffff", "'\\"],
    "varchar": [None, "", "ab", "ab ", "abcde"],
    "char": [None, "", "ab", "abcde", "a b"],
    "boolean": [None, True, False],
    "binary": [None, b"", b"\xff"],
}
"""Values of each type, which its wider types hold too."""
COLUMNS = [
    *("n smallint", "i int", "l bigint", "d decimal(9,2)", "f float", "x double", "e date"),
    *("m timestamp", "s string", "v varchar(5)", "c char(5)", "b boolean", "y binary"),
]
WIDER = {
    **{"smallint": "int", "int": "bigint", "float": "double", "bigint": "string"},
    **{"decimal(9,2)": "decimal(12,3)", "varchar(5)": "varchar(9)", "varchar(9)": "string"},
    **{"char(5)": "char(9)", "date": "date"},
}
RECORDED = {"smallint", "int", "bigint", "decimal", "date", "string"}
NAMES = [text.partition(" ")[0] for text in COLUMNS]


def rows_of(table: Table, seed: int) -> list[dict[str, Any]]:
    """A few rows with any of the values, and columns that are NULL in all of them."""
    chosen = Random(seed)
    filled = [column for column in table.columns if column.name != "p" and chosen.random() < 0.8]
    return [
        {column.name: chosen.choice(VALUES[column.type.kind]) for column in filled}
        | {"p": chosen.choice([None, 1, 2])}
        for _ in range(chosen.randrange(5))
    ]


def changed(warehouse: Warehouse, table: Table, what: str, seed: int) -> None:
    """One statement of the kind `what`."""
    own = [column for column in table.columns if column.name != "p"]
    one, other = (own[(seed + place) % len(own)] for place in (0, 1))
    free = sorted({*NAMES, "z"} - {column.name for column in own}) or [f"z{len(own)}"]
    new = free[seed % len(free)]
    match what:
        case "insert":
            table.insert(rows_of(table, seed))
        case "delete":
            wheres = (
                f"{one.name} IS NULL",
                f"{one.name} IS NOT NULL",
                "p = 1",
                "p IS NULL",
                "true",
            )
            table.delete(wheres[seed % len(wheres)])
        case "update":
            table.update({one.name: one.name}, "p = 2")
        case "rename":
            table.rename_column(one.name, new)
        case "swap" if one != other:
            for old, name in ((one.name, new), (other.name, one.name), (new, other.name)):
                table.rename_column(old, name)
        case "drop" if one != other:
            table.drop_columns(one.name)
        case "add":
            table.add_columns(f"{new} {COLUMNS[seed % len(COLUMNS)].partition(' ')[2]}")
        case "widen":
            table.change_column(one.name, f"{one.name} {WIDER.get(str(one.type), one.type)}")
        case "replace":
            kept = ", ".join(str(column) for column in reversed(own) if column != one)
            table.replace_columns(f"{new} int{', ' if kept else ''}{kept}")
        case "minor" | "major":
            table.insert(rows_of(table, seed))
            table.compact(what, wait=True)
        case "truncate":
            table.truncate()
        case "own writes":
            with warehouse.transaction() as txn:
                within = txn.table(table.name)
                within.insert(rows_of(table, seed))
                within.delete(f"{one.name} IS NULL")
                within.update({one.name: one.name}, "p = 1")
                require_told(txn.sql, table, within.to_arrow())


def least_and_greatest(values: list[Any]) -> tuple[Any, Any]:
    """In Spark's order, whose greatest float is NaN."""
    numbers = [value for value in values if value == value]
    if not values:
        return None, None
    return min(numbers, default=values[0]), max(values, key=lambda v: (v != v, *([v] * (v == v))))


def require_told(
    sql: Callable[[str], Any], table: Table, rows: pa.Table, rest: str = "", where: str = ""
) -> None:
    """SQL's aggregates of the table are those of all its rows, which were read in full.

    Columns of which records tell the bounds are asked for alone, and beside the others.
    """
    kinds = {column.name: column.type.kind for column in table.columns}
    names = [name for name in rows.column_names if name != "p"]
    expected: dict[str, Any] = {"count(*)": rows.num_rows}
    for name in names:
        values = rows.column(name).drop_null().to_pylist()
        if kinds.get(name) == "char":  # in expressions a char has no trailing blanks
            values = [value.rstrip(" ") for value in values]
        least, greatest = least_and_greatest(values)
        expected |= {f"min({name})": least, f"max({name})": greatest, f"count({name})": len(values)}
    alone = [item for item in expected if kinds.get(item[4:-1], "int") in RECORDED]
    for items in (alone, [*expected]):
        text = f"SELECT {', '.join(items)} FROM {table.name}{rest}{where}"
        (found,) = sql(text).to_arrow().to_pylist()
        for item, (_, value) in zip(items, found.items(), strict=True):
            same = value == expected[item] or repr(value) == repr(expected[item])
            assert same and type(value) is type(expected[item]), (item, value, expected[item])


def adopted(warehouse: Warehouse, root: Path, name: str, columns: Sequence[str]) -> Table:
    """A table of files of another writer, which have some of its columns and no row keys."""
    day, price = datetime.date(2024, 2, 29), pa.array([None, Decimal("1.50")], pa.decimal128(9, 2))
    first, other = (pa.array(numbers, pa.int32()) for numbers in ([1, 7], [2, None]))
    files = [
        {"I": first, "D": price, "s": pa.array(["z" * 40, None]), "e": pa.array([None, day])},
        {"e": pa.array([day, day]), "i": other, "D": price, "S": ["z" * 33] * 2, "other": [1, 2]},
    ]
    for number, stored in enumerate(files):
        directory = root / name / f"p={number % 2 + 1}"
        directory.mkdir(parents=True, exist_ok=True)
        orc.write_table(pa.table(stored), str(directory / f"{number:06}_0"))
    kept = {"acid.history.retention": "1h"}
    declared = ", ".join(columns)
    return warehouse.adopt_table(f"db.{name}", root / name, declared, ["p int"], properties=kept)


def require_told_through(
    warehouse: Warehouse, table: Table, steps: Sequence[tuple[str, int]]
) -> None:
    table.delete("i = 7")
    table.tag("then")
    then = table.to_arrow()
    require_told(warehouse.sql, table, then)
    for what, seed in steps:
        changed(warehouse, table, what, seed)
        require_told(warehouse.sql, table, table.to_arrow())
    for where in ("p = 1", "p IS NULL", "p > 7"):
        require_told(warehouse.sql, table, table.to_arrow(where=where), "", f" WHERE {where}")
    past = table.to_arrow(as_of="then")
    assert past == then
    require_told(warehouse.sql, table, past, " FOR SYSTEM_VERSION AS OF 'then'")


warehouse = a_warehouse("local")


@pytest.mark.more
def test_what_records_answer_through_a_history_is_what_the_rows_say(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    few = [column for column in COLUMNS if column[0] in "idxesc"]
    table = adopted(warehouse, tmp_path, "history", few)
    kinds = ["insert", "own writes", "widen", "delete", "swap", "add", "insert", "drop", "replace"]
    steps = [(what, seed) for seed, what in enumerate([*kinds, "major", "delete", "update"], 3)]
    require_told_through(warehouse, table, steps)


_TABLES = count(1)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    *("insert", "insert", "delete", "update", "rename", "swap", "drop", "add"),
                    *("widen", "replace", "minor", "major", "truncate", "own writes"),
                ]
            ),
            st.integers(0, 200),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_records_answer_is_what_the_rows_say(
    warehouse: Warehouse, tmp_path: Path, steps: list[tuple[str, int]]
) -> None:
    table = adopted(warehouse, tmp_path, f"t{next(_TABLES)}", COLUMNS)
    require_told_through(warehouse, table, steps)


def test_days_that_python_lacks_are_no_bounds(warehouse: Warehouse, tmp_path: Path) -> None:
    days = pa.array([-800_000, 0], pa.int32()).cast(pa.date32())
    orc.write_table(pa.table({"id": [1, 2], "e": days}), str(tmp_path / "000000_0"))
    table = warehouse.adopt_table("db.days", tmp_path)
    table.delete("id = 2")
    found = answered(warehouse, "SELECT min(e), max(e) FROM db.days").to_arrow()
    rows = table.to_arrow(["e"]).column(0)
    assert [one.cast(pa.int32()).to_pylist() for one in found] == [
        rows.cast(pa.int32()).to_pylist()
    ] * 2


def test_bounds_come_from_records_where_these_prove_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id int, s string, x double", ["p int"])
        table.insert([{"id": one, "s": f"s{one}", "x": one / 2, "p": one % 3} for one in range(9)])
        table.insert([{"id": 4, "s": None, "x": None, "p": 0}])
        table.delete("id = 4")
        whole = "SELECT min(id) AS a, max(id) AS b FROM db.t"
        with monkeypatch.context() as patch:
            patch.setattr(FileRead, "work", lambda *_: pytest.fail("decoded"))
            # The file of the deleted row has bounds within those of the others.
            assert answered(warehouse, whole).to_arrow().to_pylist() == [{"a": 0, "b": 8}]
            text = "SELECT min(s), count(s), count(*) FROM db.t WHERE p = 2"
            (row,) = answered(warehouse, text).to_arrow().to_pylist()
            assert [*row.values()] == ["s2", 3, 3]
        # Only the column without a record is read: the literals are those of the records.
        mixed = "SELECT max(id), max(x) AS x, min(s) FROM db.t WHERE p = 2"
        result = answered(warehouse, mixed)
        assert result.columns == ["max(id)", "x", "min(s)"]
        assert [*result.to_arrow().to_pylist()[0].values()] == [8, 4.0, "s2"]
        assert isinstance(result, LocalResult)
        (source,) = (make() for make in result.sources.values())
        assert [column.name for column in source.columns] == ["x", "p"]
        table.delete("id = 8")
        assert answered(warehouse, whole).to_arrow().to_pylist() == [{"a": 0, "b": 7}]


@pytest.mark.more
def test_a_bound_that_records_do_not_prove_is_read_where_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    decoded = FileRead.work

    def noted(file: FileRead, *rest: Any) -> Any:
        read.append(file.source.directory)
        return decoded(file, *rest)

    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id int, e date, d decimal(5,1), s string")
        for low in (10, 20, 30):
            table.insert(
                [
                    {"id": low + one, "e": datetime.date(2024, 1, one), "d": low, "s": f"{low}"}
                    for one in range(1, 6)
                ]
            )
        table.delete("id % 10 = 5")  # the greatest of each file
        table.insert([{"id": 0, "e": None, "d": None, "s": None}])
        monkeypatch.setattr(FileRead, "work", noted)
        for asked, expected, directories in (
            ("max(id)", 34, {"delta_0000003_0000003_0000"}),
            ("min(id)", 0, set[str]()),  # of a file without deletes
            ("max(s)", "30", {"delta_0000003_0000003_0000"}),
            ("min(s)", "10", {"delta_0000001_0000001_0000"}),
            ("min(d)", Decimal("10.0"), {"delta_0000001_0000001_0000"}),
            # No file has the day that all of them might have.
            ("max(e)", datetime.date(2024, 1, 4), {f"delta_{n:07}_{n:07}_0000" for n in (1, 2, 3)}),
        ):
            read.clear()
            result = answered(warehouse, f"SELECT {asked} AS a FROM db.t")
            assert isinstance(result, ArrowResult)
            assert result.to_arrow().to_pylist() == [{"a": expected}], asked
            assert set(read) == directories, asked
        table.delete("id > 0")
        result = answered(warehouse, "SELECT max(s) AS s, min(e) AS e, count(*) AS n FROM db.t")
        assert result.to_arrow().to_pylist() == [{"s": None, "e": None, "n": 1}]
        warehouse.metastore.set("acid.local.max.bytes", "100")
        warehouse.release()  # a new lease has this setting
        read.clear()
        monkeypatch.setattr(warehouse.engines, "on_cluster", lambda: True)
        monkeypatch.setattr(Engines, "spark", property(lambda _: pytest.fail("asks Spark")))
        with warehouse.using("auto"), pytest.raises(pytest.fail.Exception, match="asks Spark"):
            answered(warehouse, "SELECT max(id) AS a FROM db.t")
        assert not read
