"""What FOR SYSTEM_VERSION and FOR SYSTEM_TIME mean in a query (P36)."""

from __future__ import annotations

import pytest
from sqlglot import exp

from acid_platform import InvalidExpression, UnsupportedStatement
from acid_platform.metastore.pasts import AsOf
from acid_platform.sql.parse import parse
from acid_platform.sql.query_tables import bind
from acid_platform.sql.text import Query
from acid_platform.sql.time_travel import unmarked


def pasts(text: str) -> list[tuple[str, AsOf | None]]:
    statement = parse(text)
    assert isinstance(statement, Query)
    return [unmarked(table.name) for table in statement.tree.find_all(exp.Table)]


@pytest.mark.parametrize(
    ("clause", "wanted"),
    [
        ("FOR SYSTEM_VERSION AS OF 3", AsOf(write_id=3)),
        ("for system_version as of 3", AsOf(write_id=3)),
        ("FOR VERSION AS OF 3", AsOf(write_id=3)),
        ("VERSION AS OF 'A b'", AsOf(tag="A b")),
        ("FOR SYSTEM_TIME AS OF '1970-01-01 00:00:01.2345'", AsOf(time=1234)),
        ("TIMESTAMP AS OF '1970-01-01 01:00:01+01:00'", AsOf(time=1000)),
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '1970-01-02'", AsOf(time=86_400_000)),
        ("FOR SYSTEM_TIME AS OF CAST('1970-01-02' AS timestamp)", AsOf(time=86_400_000)),
        ("TIMESTAMP AS OF DATE '1970-01-02' - INTERVAL 1 HOUR", AsOf(time=82_800_000)),
    ],
)
def test_P36_a_snapshot_is_named_in_hives_and_sparks_words(clause: str, wanted: AsOf) -> None:
    assert pasts(f"SELECT * FROM t {clause} WHERE a = 'FOR SYSTEM_VERSION AS OF 1'") == [
        ("t", wanted)
    ]
    assert pasts(f"SELECT x.a FROM db.t {clause} AS x JOIN t ON x.a = t.a") == [
        ("t", wanted),
        ("t", None),
    ]


def test_P36_a_qualified_column_still_finds_its_table() -> None:
    statement = parse("SELECT db.t.a, t.b FROM db.t VERSION AS OF 3 WHERE db.t.b = 1")
    assert isinstance(statement, Query)
    bound = bind(statement, "p", lambda _: ("a", "b"), "default", lambda _: None)
    assert bound.text == "SELECT t.a, t.b FROM p_0 AS `t` WHERE t.b = 1"
    assert [source.table for source in bound.sources] == ["db.t@v3"]


@pytest.mark.parametrize(
    ("clause", "error"),
    [
        ("VERSION AS OF 1.5", "has to be whole"),
        ("VERSION AS OF a", "needs a write id, or the name of a tag"),
        ("FOR SYSTEM_TIME AS OF 'yesterday'", "is no timestamp such as"),
        ("FOR SYSTEM_TIME AS OF '1960-01-01'", "before 1970"),
        ("FOR SYSTEM_TIME AS OF now_or_never()", "is not supported: write a timestamp"),
        ("FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP - INTERVAL 1 MONTH", "is no INTERVAL of"),
    ],
)
def test_P36_what_names_no_snapshot_is_refused(clause: str, error: str) -> None:
    with pytest.raises(InvalidExpression, match=error):
        parse(f"SELECT * FROM t {clause}")


def test_P36_a_range_of_snapshots_is_refused() -> None:
    with pytest.raises(UnsupportedStatement, match="is not supported; AS OF is"):
        parse("SELECT * FROM t FOR SYSTEM_TIME FROM '2020-01-01' TO '2020-01-02'")
