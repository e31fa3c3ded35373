from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import (
    CHANGED,
    CONFLICTING,
    SKEWED,
    Changed,
    InTable,
    Looked,
    Touched,
    WriteSetRow,
    conflicts,
    overlaps,
    same_entity,
    skew,
)
from acid_platform.transactions.row_sets import ColumnSpans, Region

I, U, D = RowOperation.INSERT, RowOperation.UPDATE, RowOperation.DELETE  # noqa: E741
O = RowOperation.OVERWRITE  # noqa: E741


def mine(
    operation: RowOperation = U,
    txn: int = 6,
    partition: str | None = None,
    write_id: int = 9,
    table: int = 1,
) -> Touched:
    return Touched(table, partition, operation, txn, write_id)


def theirs(
    operation: RowOperation = U,
    txn: int = 17,
    commit: int = 20,
    partition: str | None = None,
    write_id: int = 5,
) -> WriteSetRow:
    return WriteSetRow(1, partition, operation, txn, commit, write_id)


@pytest.mark.parametrize(("own", "other"), list(product(RowOperation, repeat=2)))
def test_T31_T34_P30_operations(own: RowOperation, other: RowOperation) -> None:
    expected = (own in (U, D, O) and other in (U, D, O)) or (own, other) == (O, I)
    assert (conflicts(mine(own), theirs(other)) is not None) is expected
    assert conflicts(mine(own, txn=21), theirs(other)) is None
    assert conflicts(mine(own, partition="p=1"), theirs(other)) is None


def test_P30_only_an_overwrite_conflicts_with_an_insert() -> None:
    assert [operation for operation in RowOperation if CONFLICTING[operation, I]] == [O]
    assert {operation for operation in RowOperation if CONFLICTING[O, operation]} == {I, U, D, O}
    assert {operation for operation in RowOperation if operation.changes} == {U, D, O}


def test_T31_table_is_complete() -> None:
    assert set(CONFLICTING) == set(product(RowOperation, repeat=2))


T32 = [
    # my txn, their [txn, commit id], overlap
    (6, (17, 20), True),
    (21, (17, 20), False),
    (18, (17, 18), True),
    (20, (17, 20), True),
    (3, (3, 8), False),
]


@pytest.mark.parametrize(("txn", "interval", "overlap"), T32)
def test_T32_intervals(txn: int, interval: tuple[int, int], overlap: bool) -> None:
    row = theirs(txn=interval[0], commit=interval[1])
    assert overlaps(mine(txn=txn), row) is overlap
    assert (conflicts(mine(txn=txn), row) is not None) is overlap


ENTITIES = [
    (None, None, True),
    ("p=1", "p=1", True),
    ("p=1", "p=2", False),
    (None, "p=1", False),
    ("p=1", None, False),
]


@pytest.mark.parametrize(("own", "other", "same"), ENTITIES)
def test_T37_only_the_same_partition(own: str | None, other: str | None, same: bool) -> None:
    assert same_entity(mine(partition=own), theirs(partition=other)) is same
    assert (conflicts(mine(partition=own), theirs(partition=other)) is not None) is same


def test_T31_another_table_never_conflicts() -> None:
    assert conflicts(mine(table=2), theirs()) is None


@pytest.mark.parametrize("operation", [I, U, D, O])
def test_P6_below_an_overwrite(operation: RowOperation) -> None:
    row = theirs(O, txn=3, commit=4, write_id=8)
    assert conflicts(mine(operation, txn=6, write_id=9), row) is None
    reason = conflicts(mine(operation, txn=6, write_id=7), row)
    assert reason is not None and "overwrite" in reason
    assert conflicts(mine(operation, txn=6, write_id=7, partition="p=1"), row) is None


def test_P6_an_insert_below_a_plain_update_is_fine() -> None:
    assert conflicts(mine(I, write_id=2), theirs(U, write_id=5)) is None


def test_T33_the_reason_names_both_intervals_and_operations() -> None:
    reason = conflicts(mine(D, txn=18), theirs(U, txn=17, commit=18))
    assert reason is not None
    for part in ("delete", "update", "[18, now]", "[17, 18]"):
        assert part in reason


ids = st.integers(1, 30)
operations = st.sampled_from([U, D, O])


@given(ids, ids, ids, ids, operations, operations)
def test_T30_the_later_committer_conflicts_iff_it_opened_before(
    first: int, second: int, length: int, gap: int, one: RowOperation, other: RowOperation
) -> None:
    commit = first + length
    second = second if second != first else first + 31
    assert (conflicts(mine(one, txn=second), theirs(other, first, commit)) is not None) == (
        second <= commit
    )


written = st.builds(
    WriteSetRow,
    st.integers(1, 2),
    st.sampled_from([None, "p=1", "p=2"]),
    st.sampled_from([I, U, D, O]),
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(1, 9),
)
touched = st.builds(
    Touched,
    st.integers(1, 2),
    st.sampled_from([None, "p=1", "p=2"]),
    st.sampled_from(list(RowOperation)),
    st.integers(1, 20),
    st.integers(0, 9),
)


@given(touched, written)
def test_T31_P6_P30_any_two_operations(own: Touched, other: WriteSetRow) -> None:
    """The same rules, stated differently: a commit replaces only what its transaction could see."""
    meets = (own.table_id, own.partition) == (other.table_id, other.partition)
    foreign = own.txn_id != other.txn_id
    missed = foreign and other.commit_id >= own.txn_id
    hidden = other.operation is O and foreign and 0 < own.write_id < other.write_id
    replaces = own.operation is O or (own.operation in (U, D) and other.operation is not I)
    expected = meets and own.operation.writes and (hidden or (missed and replaces))
    assert (conflicts(own, other) is not None) is expected


BOTH = [False, True]


Rows = Sequence[tuple[int, str]]
"""Keys, and the column that a condition reads or an UPDATE assigned; '': all columns."""


def looked(txn: int, sought: Rows, brought: Rows, commit: int = 0) -> Looked:
    """It looked for these keys, and brought these."""

    def rows(keys: Rows) -> tuple[InTable, ...]:
        return tuple(
            InTable(1, Region({"k": ColumnSpans.of([(key, key)])}, None, (*filter(None, [name]),)))
            for key, name in keys
        )

    return Looked(txn, commit, rows(sought), rows(brought))


def finds(sought: Rows, own: Rows, brought: Rows) -> bool:
    """By brute force: whether a transaction that runs after the other one finds its rows, or gives
    rows keys that it has inserted; of another column's values nothing is known here."""
    return any(
        key == theirs and ("" in (column, assigned) or column == assigned)
        for (key, column), (theirs, assigned) in product(sought, brought)
    ) or any(
        assigned and not new and (key == theirs or assigned != "k")
        for (key, assigned), (theirs, new) in product(own, brought)
    )


def test_P51_table_is_complete_and_only_two_that_miss_each_other_conflict() -> None:
    assert set(SKEWED) == set(product(BOTH, repeat=2))
    assert [pair for pair, conflict in SKEWED.items() if conflict] == [(True, True)]


@given(*[st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "k", "v"])), max_size=3)] * 4)
def test_P51_there_is_a_conflict_exactly_if_no_order_explains_what_both_found(
    sought: Rows, own: Rows, theirs: Rows, brought: Rows
) -> None:
    mine, other = looked(6, sought, own), looked(17, theirs, brought, 20)
    explained = not finds(sought, own, brought) or not finds(theirs, brought, own)
    assert (skew(mine, other) is None) is explained


def test_P51_the_rows_of_another_table_are_others() -> None:
    mine, other = looked(6, [(1, "")], [(1, "")]), looked(17, [(1, "")], [(1, "")], 20)
    moved = tuple(one._replace(table_id=2) for one in other.inserted)
    assert skew(mine, other) and skew(mine, replace(other, inserted=moved)) is None


def test_P52_table_is_complete() -> None:
    """A compaction changes no row, and only of an insert it is known which rows it changed."""
    assert set(CHANGED) == set(product(BOTH, repeat=3))
    for (base, deletes, compacted), counts in CHANGED.items():
        expected = Changed.ANY_ROW if base or deletes else Changed.ITS_ROWS
        assert counts is (Changed.NOTHING if compacted else expected)
