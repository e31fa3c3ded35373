"""A view keeps the columns, types and tables of its creation, or raises."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from acid_platform import Warehouse, errors
from acid_platform.engine.interface import Result
from tests.conftest import temporary_warehouse

Row = dict[str, Any]
Rows = list[tuple[Any, ...]]


def natural(t: list[Row], u: list[Row]) -> Iterator[tuple[Row, Row]]:
    return ((a, b) for a, b in product(t, u) if a["id"] == b["id"])


VIEWS: dict[str, tuple[str, Callable[[list[Row], list[Row]], Rows]]] = {
    "star": ("SELECT * FROM t", lambda t, _: [(r["id"], r["g"], r["n"]) for r in t]),
    "named (k, given, number)": (
        "SELECT * FROM a.t -- the family name comes last",
        lambda t, _: [(r["id"], r["g"], r["n"]) for r in t],
    ),
    "listed": ("SELECT n, id AS Key FROM t", lambda t, _: [(r["n"], r["id"]) for r in t]),
    "filtered": (
        "SELECT t.*, t.id AS again FROM t WHERE a.t.n > 2",
        lambda t, _: [(r["id"], r["g"], r["n"], r["id"]) for r in t if r["n"] > 2],
    ),
    "joined": (
        "SELECT x.*, a.u.w FROM t x JOIN u ON x.id = u.id",
        lambda t, u: [(a["id"], a["g"], a["n"], b["w"]) for a, b in natural(t, u)],
    ),
    "merged": (
        "SELECT * FROM t JOIN u USING (id)",
        lambda t, u: [(a["id"], a["g"], a["n"], b["w"]) for a, b in natural(t, u)],
    ),
    "correlated": (
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE w = g)",
        lambda t, u: [(a["id"],) for a in t if any(b["w"] == a["g"] for b in u)],
    ),
    "of_both": (
        "SELECT * FROM u UNION ALL SELECT 9, 'x'",
        lambda _, u: [*((b["id"], b["w"]) for b in u), (9, "x")],
    ),
    "of_a_cte": (
        "WITH t AS (SELECT * FROM a.t) SELECT * FROM t WHERE id < 3",
        lambda t, _: [(r["id"], r["g"], r["n"]) for r in t if r["id"] < 3],
    ),
    "counted": ("SELECT count(*) AS rows_now FROM t", lambda t, _: [(len(t),)]),
    "of_other_database": ("SELECT * FROM b.t", lambda _t, _u: [("b",)]),
    "twice": ("SELECT * FROM star", lambda t, _: [(r["id"], r["g"], r["n"]) for r in t]),
    "renamed (k)": ("SELECT given FROM named", lambda t, _: [(r["g"],) for r in t]),
}
"""Views over `a.t (id, g, n)` and `a.u (id, w)`, and their rows."""


LOCAL = pytest.mark.parametrize("opened", ["local"], indirect=True)
SPARK = pytest.mark.parametrize(
    "opened", [pytest.param("spark", marks=pytest.mark.spark)], indirect=True
)


@pytest.fixture(scope="module")
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    path = tmp_path_factory.mktemp("views") / "wh"
    with temporary_warehouse(path, spark, request.param) as warehouse:
        yield warehouse


@pytest.fixture
def warehouse(opened: Warehouse) -> Iterator[Warehouse]:
    """Two empty databases; `a` is the current one."""
    opened.sql("CREATE DATABASE a; CREATE DATABASE b; USE a")
    yield opened
    opened.sql("USE default; DROP DATABASE a CASCADE; DROP DATABASE b CASCADE")


def answer(warehouse: Warehouse, query: str) -> Result:
    rows = warehouse.sql(query)
    assert isinstance(rows, Result)
    return rows


def described(warehouse: Warehouse, name: str) -> list[tuple[str, str]]:
    frame: Any = warehouse.sql(f"DESCRIBE {name}")
    return [(name, kind) for name, kind, _ in frame.itertuples(index=False)]


def declared(result: Result) -> list[tuple[str, str]]:
    return [
        (name, str(column.type))
        for name, column in zip(result.columns, result.declared(), strict=True)
    ]


class Table:
    """A table in the warehouse, and its rows as a model has them."""

    def __init__(self, warehouse: Warehouse, name: str, columns: dict[str, str]) -> None:
        self.warehouse, self.name, self.columns, self.rows = warehouse, name, columns, list[Row]()
        listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        warehouse.sql(f"CREATE TABLE {name} ({listed})")

    def insert(self, chosen: random.Random) -> None:
        row = {
            name: chosen.choice("xyz") if kind == "string" else chosen.randrange(1, 6)
            for name, kind in self.columns.items()
        }
        self.warehouse.table(self.name).insert([row])
        self.rows.append(row)

    def alter(self, chosen: random.Random) -> bool:
        """Adds, moves or widens a column; whether one was widened."""
        change = chosen.choice(("add", "add", "move", "move", "widen"))
        if change == "add":
            short = chosen.choice(sorted({"g", "w", "n", "z1", "z2", "z3"} - set(self.columns)))
            self.columns[short] = chosen.choice(("int", "string"))
            self.warehouse.sql(
                f"ALTER TABLE {self.name} ADD COLUMNS ({short} {self.columns[short]})"
            )
            for row in self.rows:
                row[short] = None
            return False
        name = chosen.choice(sorted(self.columns))
        kind = self.columns[name]
        if change == "widen":
            kind = {"int": "bigint"}.get(kind, kind)
        others = [other for other in self.columns if other != name]
        place = chosen.choice(("FIRST", *(f"AFTER {other}" for other in others)))
        self.warehouse.sql(f"ALTER TABLE {self.name} CHANGE {name} {name} {kind} {place}")
        wider, self.columns[name] = kind != self.columns[name], kind
        return wider


def check(warehouse: Warehouse, columns: dict[str, object], t: Table, u: Table, lax: bool) -> None:
    """`lax`: a column was widened, and the local engine may leave a query to Spark."""
    for name, (_, rows) in VIEWS.items():
        view = f"a.{name.split()[0]}"
        assert described(warehouse, view) == columns[view]
        try:
            result = answer(warehouse, f"SELECT * FROM {view}")
            found = result.collect()
        except errors.NeedsSpark:
            assert lax
            continue
        assert sorted(found) == sorted(rows(t.rows, u.rows)), view
        assert declared(result) == columns[view], view


def history(warehouse: Warehouse, seed: int, steps: int) -> None:
    chosen = random.Random(seed)
    t = Table(warehouse, "a.t", {"id": "int", "g": "string", "n": "int"})
    u = Table(warehouse, "a.u", {"id": "int", "w": "string"})
    warehouse.sql("CREATE TABLE b.t (b string); INSERT INTO b.t VALUES ('b')")
    for table in (t, u, t, u):
        table.insert(chosen)
    columns = {}
    for name, (query, _) in VIEWS.items():
        warehouse.sql(f"CREATE VIEW {name} AS {query}")
        view = f"a.{name.split()[0]}"
        columns[view] = declared(answer(warehouse, f"SELECT * FROM {view}"))
    warehouse.sql(f"USE {chosen.choice('ab')}")
    wider = False
    check(warehouse, columns, t, u, wider)
    for _ in range(steps):
        table = chosen.choice((t, u))
        wider |= table.alter(chosen)
        table.insert(chosen)
        check(warehouse, columns, t, u, wider)
    warehouse.sql("CREATE TABLE b.copy (k int, given string, number int)")
    warehouse.sql("INSERT INTO b.copy SELECT * FROM a.named")
    copied = sorted(answer(warehouse, "SELECT * FROM b.copy").collect())
    assert copied == sorted(VIEWS["star"][1](t.rows, u.rows))


@pytest.mark.more
@LOCAL
@pytest.mark.parametrize("seed", range(2))
def test_a_view_means_the_same_whatever_columns_its_tables_get(
    warehouse: Warehouse, seed: int
) -> None:
    history(warehouse, seed, 4)


@pytest.mark.slow
@LOCAL
@pytest.mark.parametrize("seed", range(100, 108))
def test_views_in_long_histories_of_their_tables(warehouse: Warehouse, seed: int) -> None:
    history(warehouse, seed, 8)


@SPARK
@pytest.mark.slow
def test_views_over_changed_tables_in_spark(warehouse: Warehouse) -> None:
    history(warehouse, 100, 3)


@LOCAL
def test_the_statement_that_is_shown_makes_the_view_again(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE w (`from` int, b string); INSERT INTO w VALUES (1, 'x')")
    warehouse.sql("CREATE VIEW x (`select`, B) AS SELECT * FROM w AS `order` -- all of it")
    shown: Any = warehouse.sql("SHOW CREATE TABLE x")
    warehouse.sql("ALTER TABLE w ADD COLUMNS (c int); ALTER TABLE w CHANGE c c int FIRST; USE b")
    statement = "\n".join(shown["createtab_stmt"]).replace("`a`.`x`", "`b`.`y`", 1)
    for _ in range(2):
        warehouse.sql(statement)
        result = answer(warehouse, "SELECT * FROM b.y")
        assert (result.columns, result.collect()) == (["select", "b"], [(1, "x")])
        shown = warehouse.sql("SHOW CREATE TABLE b.y")
        statement = "\n".join(shown["createtab_stmt"]).replace("VIEW", "OR REPLACE VIEW", 1)
    with pytest.raises(errors.UnsupportedStatement, match=r"\* and row__id"):
        warehouse.sql("CREATE VIEW z AS SELECT *, row__id AS r FROM a.w")
    warehouse.sql("CREATE VIEW z AS SELECT b, row__id AS r FROM a.w")
    assert answer(warehouse, "SELECT * FROM z").columns == ["b", "r"]


@pytest.mark.more
@pytest.mark.parametrize("opened", ["local"], indirect=True)
def test_P78_views_that_name_a_view_twice_are_counted(warehouse: Warehouse) -> None:
    """Each level doubles what is read, until there is too much of it."""
    warehouse.sql("CREATE TABLE doubled (id int); CREATE VIEW v0 AS SELECT id FROM doubled")
    level, began = 0, time.process_time()
    with pytest.raises(errors.UnsupportedStatement, match="more than 500 tables and views"):
        for level in range(1, 40):
            below = f"v{level - 1}"
            warehouse.sql(
                f"CREATE VIEW v{level} AS SELECT a.id FROM {below} a JOIN {below} b ON a.id = b.id"
            )
    assert 6 < level < 10 and time.process_time() - began < 30
    assert warehouse.sql("SELECT count(*) AS n FROM v3").to_arrow()["n"].to_pylist() == [0]
