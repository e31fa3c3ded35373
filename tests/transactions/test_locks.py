from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import InvalidDefinition
from acid_platform.base.config import LockSettings
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import (
    STATEMENT_LOCKS,
    WAITS,
    LockComponent,
    LockLevel,
    LockType,
    Statement,
    blocked_by,
    lock_of,
    same_resource,
    zero_wait_reads,
)

R, W = LockType.SHARED_READ, LockType.SHARED_WRITE
X, E = LockType.EXCL_WRITE, LockType.EXCLUSIVE


def on(
    lock: LockType, table: str | None = "t", partition: str | None = None, db: str = "d"
) -> LockComponent:
    return LockComponent(db, table, partition, lock)


@pytest.mark.parametrize(
    ("requested", "waits_for"),
    [(R, {E}), (W, {X, E}), (X, {W, X, E}), (E, {R, W, X, E})],
)
@pytest.mark.parametrize("existing", [R, W, X, E])
def test_L2_matrix(requested: LockType, waits_for: set[LockType], existing: LockType) -> None:
    reason = blocked_by(on(requested), on(existing))
    assert (reason is not None) == (existing in waits_for)
    if reason:
        assert requested.name in reason and existing.name in reason and "d.t" in reason


def test_L2_matrix_is_complete() -> None:
    assert set(WAITS) == set(product(LockType, repeat=2))


DB = None
P = LockType.PUBLICATION
P46 = [
    # (asked, existing): lock, and whether another engine asked for it; does the first one wait?
    ((P, False), (R, True), True),
    ((P, False), (E, True), True),
    ((R, True), (P, False), True),
    ((W, True), (P, False), True),
    ((P, False), (P, False), True),
    ((P, False), (R, False), False),
    ((P, False), (W, False), False),
    ((P, False), (E, False), False),
    ((R, False), (P, False), False),
    ((W, False), (P, False), False),
    ((E, False), (P, False), False),
]


@pytest.mark.parametrize(("asked", "existing", "waits"), P46)
def test_P46_a_publication_meets_only_other_engines_and_other_publications(
    asked: tuple[LockType, bool], existing: tuple[LockType, bool], waits: bool
) -> None:
    first, second = (
        replace(on(lock), other_engine=other_engine) for lock, other_engine in (asked, existing)
    )
    assert (blocked_by(first, second) is not None) is waits
    elsewhere = replace(second, table="u")
    assert blocked_by(first, elsewhere) is None


places = st.tuples(st.sampled_from([None, "t", "u"]), st.sampled_from([None, "p=1", "p=2"]))


@given(st.sampled_from([R, W, X, E]), st.booleans(), places, places)
def test_P46_a_publication_and_a_lock_wait_for_each_other_or_neither_for_the_other(
    lock: LockType,
    other_engine: bool,
    place: tuple[str | None, str | None],
    published: tuple[str | None, str | None],
) -> None:
    """Whichever came first: so no two that must not be held at once are ever granted."""
    table, partition = place
    other = replace(on(lock, table, partition if table else None), other_engine=other_engine)
    publication = on(P, published[0] or "t", published[1])
    waits = blocked_by(publication, other) is not None
    assert waits is (blocked_by(other, publication) is not None)
    protects_database = table is None and lock is R
    assert waits is (other_engine and same_resource(publication, other) and not protects_database)


L4 = [
    # (one, other): (table, partition) pairs of the same database, same resource?
    (("t", None), ("t", None), True),
    (("t", None), ("u", None), False),
    (("t", "p=1"), ("t", "p=1"), True),
    (("t", "p=1"), ("t", "p=2"), False),
    (("t", "p=1"), ("u", "p=1"), False),
    (("t", None), ("t", "p=1"), True),
    ((DB, None), ("t", None), True),
    ((DB, None), ("t", "p=1"), True),
    ((DB, None), (DB, None), True),
]


@pytest.mark.parametrize(("one", "other", "same"), L4)
def test_L4_levels(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None], same: bool
) -> None:
    first, second = on(E, *one), on(E, *other)
    assert same_resource(first, second) is same_resource(second, first) is same
    assert (blocked_by(first, second) is not None) is same


@given(
    st.sampled_from([("t", None), ("t", "p=1"), (DB, None)]),
    st.sampled_from([("t", None), ("t", "p=1"), (DB, None)]),
)
def test_L4_another_database_never_blocks(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> None:
    assert blocked_by(on(E, *one), on(E, *other, db="e")) is None


L6 = [
    # (requested lock and level, existing lock and level, waits)
    ((R, DB, None), (E, "t", None), False),
    ((E, "t", None), (R, DB, None), False),
    ((R, DB, None), (E, "t", "p=1"), False),
    ((E, "t", "p=1"), (R, DB, None), False),
    ((R, DB, None), (E, DB, None), True),
    ((E, DB, None), (R, DB, None), True),
    ((E, DB, None), (R, "t", "p=1"), True),
    ((R, "t", "p=1"), (E, DB, None), True),
    ((E, DB, None), (R, "t", None), True),
    ((E, "t", None), (R, "t", "p=1"), True),
]


@pytest.mark.parametrize(("requested", "existing", "waits"), L6)
def test_L6_database_read_does_not_meet_table_exclusive(
    requested: tuple[LockType, str | None, str | None],
    existing: tuple[LockType, str | None, str | None],
    waits: bool,
) -> None:
    assert (blocked_by(on(*requested), on(*existing)) is not None) is waits


def test_levels_and_names() -> None:
    assert on(R, DB).level is LockLevel.DATABASE and on(R, DB).resource == "d"
    assert on(R).level is LockLevel.TABLE and on(R).resource == "d.t"
    assert on(R, "t", "p=1").level is LockLevel.PARTITION
    assert on(R, "t", "p=1").resource == "d.t/p=1"
    assert LockType.parse("shared_write") is LockType.parse("w") is W
    with pytest.raises(InvalidDefinition, match="SHARED_READ, SHARED_WRITE"):
        LockType.parse("shared")


STATEMENTS = [
    # statement, lock and operation by default, lock and operation with xlock.write
    (Statement.READ, (R, "s"), (R, "s")),
    (Statement.INSERT, (W, "i"), (R, "i")),
    (Statement.INSERT_OVERWRITE, (X, "o"), (E, "o")),
    (Statement.UPDATE, (W, "u"), (X, "u")),
    (Statement.DELETE, (W, "d"), (X, "d")),
    (Statement.MERGE_INSERT, (W, "i"), (R, "i")),
    (Statement.TRUNCATE, (X, "o"), (X, "o")),
    (Statement.DROP, (E, "s"), (E, "s")),
    (Statement.COMPACT, (R, "c"), (R, "c")),
]


@pytest.mark.parametrize(("statement", "default", "exclusive"), STATEMENTS)
def test_T34_P6_statement_locks(
    statement: Statement, default: tuple[LockType, str], exclusive: tuple[LockType, str]
) -> None:
    for settings, (lock, letter) in (
        (LockSettings(), default),
        (LockSettings(xlock_write=True), exclusive),
    ):
        assert lock_of(statement, settings) == (lock, RowOperation(letter))


def test_statement_table_is_complete() -> None:
    assert set(STATEMENT_LOCKS) == set(Statement)
    assert {statement for statement, _, _ in STATEMENTS} == set(Statement)


def test_T34_merge_insert_setting() -> None:
    both = LockSettings(xlock_write=True, xlock_mergeinsert=True)
    assert lock_of(Statement.MERGE_INSERT, LockSettings(xlock_mergeinsert=True)) == (
        W,
        RowOperation.UPDATE,
    )
    assert lock_of(Statement.MERGE_INSERT, both) == (X, RowOperation.UPDATE)


def test_overwrite_without_xlock_iow_stays_excl_write() -> None:
    off = LockSettings(xlock_write=True, xlock_iow=False)
    assert lock_of(Statement.INSERT_OVERWRITE, off) == (X, RowOperation.OVERWRITE)


@pytest.mark.parametrize(
    ("iow", "write", "zero_wait"),
    [(True, False, True), (False, False, True), (False, True, True), (True, True, False)],
)
def test_L10_zero_wait_unless_both_are_exclusive(iow: bool, write: bool, zero_wait: bool) -> None:
    assert zero_wait_reads(LockSettings(xlock_write=write, xlock_iow=iow)) is zero_wait
