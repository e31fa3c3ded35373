"""Which columns of a query tell its groups apart."""

from __future__ import annotations

import pytest

from acid_platform.sql.scripts import group_columns
from acid_platform.sql.text import query


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT day, sum(a) AS amount FROM t GROUP BY day", ["day"]),
        ("SELECT year(day) AS y, t.Region, count(*) FROM t GROUP BY 1, t.region", ["y", "region"]),
        ("SELECT day, sum(a) AS a FROM t GROUP BY ALL", ["day"]),
        ("SELECT upper(c) AS cc, sum(a) FROM t GROUP BY cc", ["cc"]),
        ("SELECT d, count(*) AS n FROM t GROUP BY ROLLUP(d)", ["d"]),
        ("WITH a AS (SELECT 1 AS x) SELECT x, max(x) AS m FROM a GROUP BY x", ["x"]),
        ("SELECT x FROM t", []),
        ("SELECT x FROM t UNION SELECT x FROM u", []),
    ],
)
def test_the_columns_of_groups_are_known(text: str, names: list[str]) -> None:
    assert group_columns(query(text)) == names
    assert group_columns(query(text), {"x"}) == [name for name in names if name == "x"]
