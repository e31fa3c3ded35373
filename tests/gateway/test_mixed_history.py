"""The model of mixed histories allows every order, and neither a lost update nor a torn one."""

from __future__ import annotations

from random import Random

import pytest

from acid_platform import Warehouse
from tests.interop.model import (
    Change,
    Rows,
    Statements,
    partition_of,
    rows_of,
    seen_meanwhile,
    states,
)
from tests.interop.participants import read

BEFORE: Rows = frozenset((number, 0, "first", partition_of(number)) for number in range(6))
RAISED = Change(
    "update",
    "UPDATE t SET v = v + 1",
    lambda old: frozenset((i, v + 1, s, p) for i, v, s, p in old),
)
EMPTIED = Change("truncate", "TRUNCATE TABLE t", lambda old: frozenset())
ADDED = Change("insert", "INSERT INTO t VALUES (9, 0, 'x', 0)", lambda old: old | {(9, 0, "x", 0)})


def values(found: set[Rows]) -> set[tuple[int, ...]]:
    return {tuple(sorted(v for _, v, _, _ in rows)) for rows in found}


def test_P34_two_updates_that_were_done_both_count() -> None:
    assert values(states(BEFORE, [RAISED, RAISED])) == {(2,) * 6}
    assert values(states(BEFORE, [RAISED], [RAISED])) == {(1,) * 6, (2,) * 6}
    assert values(seen_meanwhile(BEFORE, [RAISED, RAISED])) == {(0,) * 6, (1,) * 6, (2,) * 6}


def test_P34_every_order_is_allowed_and_no_half_of_a_statement() -> None:
    assert states(BEFORE, [EMPTIED, ADDED]) == {frozenset(), frozenset({(9, 0, "x", 0)})}
    torn = frozenset(row if row[0] else (0, 1, "first", 0) for row in BEFORE)
    assert torn not in seen_meanwhile(BEFORE, [RAISED, ADDED, EMPTIED])


def test_P34_a_row_that_is_there_twice_is_a_fault() -> None:
    assert rows_of([("1", "2", "x", "1")]) == {(1, 2, "x", 1)}
    with pytest.raises(ValueError, match="twice"):
        rows_of([(1, 2, "x", 1), (1, 2, "x", 1)])


@pytest.mark.parametrize("kind", ["insert", "update", "delete", "merge", "overwrite", "truncate"])
def test_P34_the_statements_do_what_the_model_says(kind: str, warehouse: Warehouse) -> None:
    """This platform's own engine runs each kind alone."""
    table = f"db.{kind}_alone"
    warehouse.create_table(table, "id int, v int, s string, p int")
    statements, rows = Statements(Random(7)), frozenset[tuple[int, int, str, int]]()
    for number in range(4):
        for one in ("insert", kind):
            change = statements.change(table, [one], f"who {number}")
            warehouse.sql(change.statement)
            rows = change.effect(rows)
            assert read(warehouse, table) == rows, change.statement
