"""What a query reads of each table, and what is pushed into its scan. No Spark."""

from __future__ import annotations

import pytest

from acid_platform.errors import InvalidDefinition
from acid_platform.sql.parse import parse
from acid_platform.sql.sources import Source, bind
from acid_platform.sql.statements import Query
from acid_platform.sql.views import columns_read, expand, named, self_contained

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


def bound(text: str) -> tuple[str, tuple[Source, ...]]:
    query = parse(text)
    assert isinstance(query, Query)
    found = bind(expand(query.tree, "default", VIEWS.get), "p", TABLES.__getitem__)
    return found.text, found.sources


def where(text: str) -> dict[str, str | None]:
    """The predicate that is pushed into the scan of each table."""
    return {one.table.removeprefix("default."): one.where for one in bound(text)[1]}


@pytest.mark.parametrize(
    ("text", "sql", "sources"),
    [
        ("select * from t", "SELECT * FROM p_0 AS t", [Source("p_0", "default.t")]),
        (
            "select db.T.id from db.T",
            "SELECT `T`.`id` FROM p_0 AS T",
            [Source("p_0", "db.t", columns=("id",))],
        ),
        (
            "select count(*) from t a join db.u using (id)",
            "SELECT COUNT(*) FROM p_0 AS a JOIN p_1 AS u USING (id)",
            [Source("p_0", "default.t", columns=("id",)), Source("p_1", "db.u", columns=("id",))],
        ),
        (
            "with t as (select * from t) select id from t join db.t x",
            "WITH t AS (SELECT * FROM p_1 AS t) SELECT id FROM t JOIN p_0 AS x ON TRUE",
            [Source("p_0", "db.t"), Source("p_1", "default.t")],
        ),
        (
            "with a as (select 1 x), b as (select * from a) select * from b",
            "WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT * FROM b",
            [],
        ),
        (
            "select *, row__id.writeid from t",
            "SELECT * EXCEPT (t.row__id), row__id.writeid FROM p_0 AS t",
            [Source("p_0", "default.t", virtual=("row__id",))],
        ),
        (
            "select a.*, b.ROW__ID, b.input__file__name from t a, u b",
            "SELECT a.*, b.ROW__ID, b.input__file__name FROM p_0 AS a CROSS JOIN p_1 AS b",
            [
                Source("p_0", "default.t"),
                Source("p_1", "default.u", virtual=("row__id", "input__file__name")),
            ],
        ),
        (
            "select word from march",
            "SELECT word FROM (SELECT id, v AS word FROM p_0 AS t WHERE month = 3) AS march",
            [Source("p_0", "default.t", "`month` = 3", ("id", "v", "month"))],
        ),
        (
            "select 1 from t",
            "SELECT 1 FROM p_0 AS t",
            [Source("p_0", "default.t", columns=("id",))],
        ),
    ],
)
def test_tables_become_placeholders_under_the_names_that_columns_use(
    text: str, sql: str, sources: list[Source]
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
        "WITH x AS (SELECT 1 AS a) SELECT x.a, T.id -- a\nFROM t JOIN x ON db.t.id = x.a",
        "db",
        columns,
    )
    assert text == (
        "WITH x AS (SELECT 1 AS a) SELECT x.a, T.id -- a\n"
        "FROM (SELECT `id` FROM `db`.`t`) AS `t` JOIN x ON `t`.id = x.a"
    )
    assert columns_read(text, columns) == (("db.t", (("id", "int"),)),)
    assert named(text, ["one", "two"]) == f"SELECT * FROM (\n{text}\n) AS `v` (`one`, `two`)"
    assert self_contained("SELECT v, id FROM t", "db", columns) == "SELECT v, id FROM `db`.`t`"


def test_a_view_that_reads_itself_is_an_error() -> None:
    with pytest.raises(InvalidDefinition, match=r"default\.loop reads itself"):
        bound("select * from loop")
