"""Footers answer `SELECT count(*) FROM t` and no other query."""

from __future__ import annotations

import pytest

from acid_platform.sql.parse import parse
from acid_platform.sql.run_queries import counted_table
from acid_platform.sql.text import Query


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM db.T", ("db.t", "count(1)")),
        ("select COUNT(*) as n from t x", ("t", "n")),
        *(
            (text, None)
            for text in (
                "select count(*) from t where a = 1",
                "select count(distinct a) from t",
                "select count(a) from t",
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
def test_what_is_answered_from_footers(text: str, expected: tuple[str, str] | None) -> None:
    parsed = parse(text)
    assert isinstance(parsed, Query)
    assert counted_table(parsed.tree) == expected
