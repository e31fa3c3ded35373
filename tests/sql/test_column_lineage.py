"""Which stored columns the columns of a query are computed of."""

from __future__ import annotations

import pytest

from acid_platform import UnsupportedStatement
from acid_platform.sql.parse import parse
from acid_platform.sql.scripts import column_lineage
from acid_platform.sql.text import Query

COLUMNS = {
    "shop.orders": ("id", "customer", "amount", "day", "tags"),
    "shop.customers": ("id", "name"),
    "default.t": ("id", "v"),
}


def sources(sql: str) -> dict[str, set[str]]:
    query = parse(sql)
    assert isinstance(query, Query)
    columns = column_lineage(query, COLUMNS.__getitem__)
    return {
        name: {f"{table}.{column}" for table, column in found} for name, found in columns.items()
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id, 1 AS one, V FROM t", {"id": "default.t.id", "one": "", "v": "default.t.v"}),
        (
            "SELECT * FROM shop.customers",
            {"id": "shop.customers.id", "name": "shop.customers.name"},
        ),
        (
            "SELECT c.name, sum(o.amount) AS total FROM shop.orders o JOIN shop.customers c"
            " ON o.customer = c.id WHERE day > DATE '2024-01-01' GROUP BY c.name",
            {"name": "shop.customers.name", "total": "shop.orders.amount"},
        ),
        (
            "WITH big AS (SELECT id AS k, amount * 2 AS a FROM shop.orders)"
            " SELECT k + a AS x FROM big",
            {"x": "shop.orders.id shop.orders.amount"},
        ),
        (
            "SELECT id FROM t UNION ALL SELECT customer FROM shop.orders",
            {"id": "default.t.id shop.orders.customer"},
        ),
        (
            "SELECT row_number() OVER (PARTITION BY customer ORDER BY day) AS n FROM shop.orders",
            {"n": "shop.orders.customer shop.orders.day"},
        ),
        (
            "SELECT (SELECT max(amount) FROM shop.orders o WHERE o.customer = c.id) AS most"
            " FROM shop.customers c",
            {"most": "shop.orders.amount"},
        ),
        (
            "SELECT o.id, tag FROM shop.orders o LATERAL VIEW explode(tags) x AS tag",
            {"id": "shop.orders.id", "tag": "shop.orders.tags"},
        ),
        ("SELECT v FROM t FOR SYSTEM_VERSION AS OF 3", {"v": "default.t.v"}),
        ("SELECT s.v FROM (SELECT v, id FROM t) s", {"v": "default.t.v"}),
    ],
)
def test_the_sources_of_columns(sql: str, expected: dict[str, str]) -> None:
    assert sources(sql) == {name: set(text.split()) for name, text in expected.items()}


@pytest.mark.parametrize("sql", ["SELECT nothing FROM t", "SELECT id FROM t JOIN shop.customers"])
def test_a_name_that_is_nobody_s_or_two_s_is_refused(sql: str) -> None:
    with pytest.raises(UnsupportedStatement):
        sources(sql)
