"""What a query reads of each table, and what is pushed into its scan. No Spark."""

from __future__ import annotations

import sys

import pytest

from acid_platform import InvalidDefinition
from acid_platform.sql.catalog import columns_read, named, self_contained
from acid_platform.sql.column_references import refuse_unknown_names
from acid_platform.sql.parse import parse
from acid_platform.sql.query_tables import QueryTable, bind
from acid_platform.sql.text import Query, query

TABLES = {
    "default.t": ("id", "v", "month", "day"),
    "default.u": ("id", "w", "month"),
    "default.x": ("a", "b"),
    "db.t": ("id", "v"),
    "db.u": ("id", "w"),
}
VIEWS = {
    "default.march": "SELECT id, v AS word FROM default.t AS t WHERE month = 3",
    "default.all_t": "SELECT * FROM default.t AS t",
    "default.twice": "SELECT word FROM default.march AS march WHERE id > 1",
    "default.counted": "SELECT month, count(*) AS n FROM default.t AS t GROUP BY month",
    "default.loop": "SELECT * FROM default.loop AS loop",
}


def bound(text: str) -> tuple[str, tuple[QueryTable, ...]]:
    written = parse(text)
    assert isinstance(written, Query)
    found = bind(written, "p", columns_of, "default", view_query)
    return found.text, found.sources


def view_query(name: str) -> Query | None:
    return query(VIEWS[name]) if name in VIEWS else None


def columns_of(name: str) -> tuple[str, ...]:
    return TABLES.get(name, ("id", "word", "month", "day", "v", "n"))


def where(text: str) -> dict[str, str | None]:
    """The predicate that is pushed into the scan of each table."""
    return {one.table.removeprefix("default."): one.where for one in bound(text)[1]}


@pytest.mark.parametrize(
    ("text", "sql", "sources"),
    [
        ("select * from t", "select * from p_0 AS `t`", [QueryTable("p_0", "default.t")]),
        (
            "select id from (select * from t limit 2, 5) s LIMIT 1,1",
            "select id from (select * from p_0 AS `t` limit 5 OFFSET 2) s LIMIT 1 OFFSET 1",
            [QueryTable("p_0", "default.t")],
        ),
        (
            "select db.T.id from db.T",
            "select T.id from p_0 AS `T`",
            [QueryTable("p_0", "db.t", columns=("id",))],
        ),
        (
            "select count(*) from t a join db.u using (id)",
            "select count(*) from p_0 a join p_1 AS `u` using (id)",
            [
                QueryTable("p_0", "default.t", columns=("id",)),
                QueryTable("p_1", "db.u", columns=("id",)),
            ],
        ),
        (
            "with t as (select * from t) select id from t join db.t x",
            "with t as (select * from p_1 AS `t`) select id from t join p_0 x",
            [QueryTable("p_0", "db.t"), QueryTable("p_1", "default.t")],
        ),
        (
            "with a as (select 1 x), b as (select * from a) select * from b",
            "with a as (select 1 x), b as (select * from a) select * from b",
            [],
        ),
        (
            "select *, row__id.writeid from t",
            "select * EXCEPT (`t`.row__id), row__id.writeid from p_0 AS `t`",
            [QueryTable("p_0", "default.t", virtual=("row__id",))],
        ),
        (
            "select a.*, b.ROW__ID, b.input__file__name from t a, u b",
            "select a.*, b.ROW__ID, b.input__file__name from p_0 a, p_1 b",
            [
                QueryTable("p_0", "default.t"),
                QueryTable("p_1", "default.u", virtual=("row__id", "input__file__name")),
            ],
        ),
        (
            "select word from march",
            "select word from (SELECT id, v AS word FROM p_0 AS t WHERE month = 3\n) AS `march`",
            [QueryTable("p_0", "default.t", "`month` = 3", ("id", "v", "month"))],
        ),
        (
            "select 1 from t",
            "select 1 from p_0 AS `t`",
            [QueryTable("p_0", "default.t", columns=("id",))],
        ),
    ],
)
def test_tables_become_placeholders_under_the_names_that_columns_use(
    text: str, sql: str, sources: list[QueryTable]
) -> None:
    assert bound(text) == (sql, tuple(sources))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "select id from t where month = 3 and t.day < 5"
            " and id in (select id from u where month = 4)",
            {"t": "`month` = 3 AND `day` < 5", "u": "`month` = 4"},
        ),
        (
            "select 1 from t where month in (1, 2) or not (day between 1 and -2)",
            {"t": "`month` IN (1, 2) OR NOT (`day` BETWEEN 1 AND -2)"},
        ),
        (
            "select 1 from t where id = day and v is not null",
            {"t": "`id` = `day` AND NOT `v` IS NULL"},
        ),
        # not the table's own, not deterministic, not a comparison
        (
            "select 1 from t where rand() < 0.5 and upper(v) = 'A' and row__id.rowid = 1",
            {"t": None},
        ),
        ("select 1 from t where t.input__file__name = 'x'", {"t": None}),
        ("select 1 from u where exists (select 1 from x where month = 3)", {"u": None, "x": None}),
        ("select 1 from t tablesample (1 rows) where id = 1", {"t": None}),
        # joins
        (
            "select 1 from t join u on t.id = u.id and u.month = 4 where t.month = 3",
            {"t": "`month` = 3", "u": "`month` = 4"},
        ),
        (
            "select 1 from t, u where v = 'a' and w = 'b' and month = 1",
            {"t": "`v` = 'a'", "u": "`w` = 'b'"},
        ),
        (
            "select 1 from t left join u on t.id = u.id and u.month = 4 and t.month = 5"
            " where u.w is null and t.month = 3",
            {"t": "`month` = 3", "u": "`month` = 4"},
        ),
        (
            "select 1 from t right join u on t.id = u.id and t.month = 4"
            " where t.v = 'a' and u.w = 'b'",
            {"t": None, "u": None},
        ),
        (
            "select 1 from t full join u on t.id = u.id where t.month = 3 and u.month = 4",
            {"t": None, "u": None},
        ),
        (
            "select 1 from t left semi join u on t.id = u.id and u.month = 4 where t.month = 3",
            {"t": "`month` = 3", "u": "`month` = 4"},
        ),
        (
            "select 1 from t left join u on t.id = u.id"
            " join x on x.a = u.id and u.month = 4 and x.b = 1",
            {"t": None, "u": None, "x": "`b` = 1"},
        ),
        # subqueries, CTEs, views
        (
            "select 1 from (select id as a, month from t) s where s.month = 3 and a > 1",
            {"t": "`month` = 3 AND `id` > 1"},
        ),
        ("with s as (select * from t) select 1 from s where month = 3", {"t": "`month` = 3"}),
        (
            "with s as (select * from t)"
            " select 1 from s a join s b on a.id = b.id where a.month = 3",
            {"t": None},
        ),
        (
            "select 1 from (select month, count(*) n from t group by month) s where month = 3",
            {"t": None},
        ),
        (
            "select 1 from (select month, rank() over (order by id) r from t) s where month = 3",
            {"t": None},
        ),
        ("select 1 from (select * from t limit 5) s where month = 3", {"t": None}),
        ("select 1 from (select month + 1 as month from t) s where month = 3", {"t": None}),
        ("select 1 from twice where word = 'a'", {"t": "`v` = 'a' AND `id` > 1 AND `month` = 3"}),
        ("select 1 from all_t s where s.day = 2", {"t": "`day` = 2"}),
        ("select 1 from counted where month = 3", {"t": None}),
    ],
)
def test_only_what_changes_no_result_goes_down_to_a_scan(
    text: str, wanted: dict[str, str | None]
) -> None:
    assert where(text) == wanted


def test_a_view_keeps_its_meaning_wherever_it_is_used() -> None:
    def columns(table: str) -> list[tuple[str, str]]:
        return [(name, "int") for name in TABLES[table]]

    text = self_contained(
        query("WITH x AS (SELECT 1 AS a) SELECT x.a, T.id -- a\nFROM t JOIN x ON db.t.id = x.a"),
        "db",
        columns,
    )
    assert text.text == (
        "WITH x AS (SELECT 1 AS a) SELECT x.a, T.id\n"
        "FROM (SELECT `id` FROM `db`.`t`) AS `t` JOIN x ON t.id = x.a"
    )
    assert columns_read(text, columns) == (("db.t", (("id", "int"),)),)
    assert named(text, ["one", "two"]) == f"SELECT * FROM (\n{text.text}\n) AS `v` (`one`, `two`)"
    assert (
        self_contained(query("SELECT v, id FROM t"), "db", columns).text
        == "SELECT v, id FROM `db`.`t`"
    )


def test_a_view_that_reads_itself_is_an_error() -> None:
    with pytest.raises(InvalidDefinition, match=r"default\.loop reads itself"):
        bound("select * from loop")


@pytest.mark.parametrize(
    ("shape", "times"), [("chain", 20), ("union", 6), ("join", 6), ("columns", 6)]
)
def test_P78_binding_a_query_takes_calls_in_proportion(shape: str, times: int) -> None:
    """Calls of Python, which a busy machine does not change. A chain of views has a text that grows
    by its square; it once took the cube, and the others the square."""

    def calls(size: int) -> int:
        counted = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        views = {
            f"db.v{number}": query(
                f"SELECT x, y FROM db.{f'v{number - 1}' if number else 't'} WHERE x > 1 AND y > 2"
            )
            for number in range(size if shape == "chain" else 0)
        }
        text = {
            "chain": f"SELECT count(*) FROM db.v{size - 1}",
            "union": " UNION ALL ".join(["SELECT x FROM db.t WHERE x > 1"] * size),
            "columns": f"SELECT {', '.join(f'x AS c{i}' for i in range(size))} FROM db.t",
            "join": f"SELECT a0.x FROM {', '.join(f'db.t a{i}' for i in range(size))}"
            f" WHERE {' AND '.join(f'a{i}.x = 1' for i in range(size))}",
        }[shape]
        whole = query(text)
        sys.setprofile(count)
        try:
            bind(whole, "p", lambda _name: ("x", "y"), "db", views.get)
            if shape != "join":  # which has all of its members for each name
                refuse_unknown_names(whole.tree, lambda _name: ("x", "y"), "db")
        finally:
            sys.setprofile(None)
        return counted

    assert calls(80) < times * calls(20)
