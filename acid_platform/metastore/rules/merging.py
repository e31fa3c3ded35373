"""How branches begin and end (P80): made, merged or dropped.

A merge is one commit with the changes of all commits on the branch. They are compared with what
others have committed since the branch was made, as those of one transaction are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from acid_platform.errors import (
    AcidError,
    BranchInUse,
    InvalidDefinition,
    WriteConflict,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import NAME, Branch, BranchCommit, BranchRow, ChangedTwice
from acid_platform.metastore.rules import write_set
from acid_platform.metastore.rules.branch_commits import BranchEnded, BranchMade, branch_named
from acid_platform.metastore.rules.declared import commits_on, unchanged
from acid_platform.metastore.rules.state import Component, Entity, State, Txn
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.rules.txns import SnapshotTaken, check_limit, end, open_txn
from acid_platform.metastore.rules.write_set import Aborted, Committed
from acid_platform.transactions import TxnType
from acid_platform.transactions.concurrency import Touched, WriteSetRow
from acid_platform.transactions.row_sets import RowKey


@handles(ops.MakeBranch)
def make(turn: Turn, operation: ops.MakeBranch) -> BranchRow:
    """Raises InvalidDefinition for a name that is in use or can't be one, or an end that is past;
    TooManyOpenTxns."""
    name = operation.name
    if not NAME.fullmatch(name):
        raise InvalidDefinition(
            f"{name!r} can't be the name of a branch: a letter, then letters, digits, _, - and /,"
            " 100 at most"
        )
    if name in turn.state.branches:
        raise InvalidDefinition(f"there is a branch {name!r}; merge or drop it first")
    if operation.until and operation.until <= turn.now:
        raise InvalidDefinition(f"branch {name!r} would end in the past: {operation.until}")
    check_limit(turn.state, turn.steady, 1)
    described = replace(operation.info, description=f"branch {name}")
    txn = open_txn(turn, TxnType.DEFAULT, described, True)
    turn.record(SnapshotTaken(txn.txn_id, {}))
    branch = Branch(name, txn.txn_id, turn.now, operation.until, operation.info.user)
    turn.record(BranchMade(branch))
    return _row(turn, branch)


@handles(ops.GetBranches)
def listed(turn: Turn, operation: ops.GetBranches) -> list[BranchRow]:
    """Raises NoSuchBranch for a name that none has."""
    if operation.name:
        branch = branch_named(turn.state, operation.name)
        row = _row(turn, branch, operation.judged)
        return [replace(row, twice=_changed_twice(turn.state, branch)) if row.refused else row]
    every = sorted(turn.state.branches.items())
    return [_row(turn, branch, operation.judged) for _, branch in every]


def _row(turn: Turn, branch: Branch, judged: bool = True) -> BranchRow:
    commits = [*commits_on(turn.state, branch.txn)]
    written: dict[str, set[int]] = {}
    for row in (row for commit in commits for row in commit.touched):
        written.setdefault(turn.state.name_of(row.table_id), set()).add(row.write_id)
    write_ids = {name: tuple(sorted(written[name])) for name in sorted(written)}
    refused = ""
    try:
        if judged:
            require_mergeable(turn, branch)
    except AcidError as error:
        refused = str(error)
    stated = (branch.name, branch.txn, branch.created, branch.until, branch.user)
    return BranchRow(*stated, len(commits), write_ids, refused)


@handles(ops.MergeBranch)
def merge(turn: Turn, operation: ops.MergeBranch) -> int:
    """Raises NoSuchBranch; BranchInUse, WriteConflict, DeclarationChanged and NoSuchTable, and then
    nothing has changed."""
    state, branch = turn.state, branch_named(turn.state, operation.name)
    require_mergeable(turn, branch)
    commits, commit_id = [*commits_on(state, branch.txn)], state.last_txn
    _end_readers(turn, branch, "was merged")
    for commit in commits:
        _commit(turn, commit, commit_id)
    turn.record(Committed(branch.txn, commit_id, (), (), ()))
    turn.record(BranchEnded(branch.name))
    return commit_id


def _commit(turn: Turn, commit: BranchCommit, commit_id: int) -> None:
    known = {
        (row.table_id, row.partition, row.operation): row.rows
        for row in commit.touched
        if row.rows is not None
    }
    looked = commit.looked and replace(commit.looked, commit_id=commit_id)
    compared = write_set.within_memory(turn, known, looked.size if looked else 0)
    changes = tuple(
        replace(
            row,
            commit_id=commit_id,
            rows=compared.get((row.table_id, row.partition, row.operation)),
        )
        for row in commit.touched
        if row.operation.changes
    )
    written = tuple(replace(row, time=turn.now) for row in commit.written)
    turn.record(Committed(commit.txn, commit_id, changes, commit.placed, written, looked=looked))


def require_mergeable(turn: Turn, branch: Branch) -> None:
    """Raises BranchInUse while a transaction writes on the branch, WriteConflict, and if one of its
    tables is not as it was DeclarationChanged or NoSuchTable."""
    state, base = turn.state, turn.state.txns[branch.txn]
    running = [txn.txn_id for txn in _with_clients(state, branch) if txn.kind is TxnType.DEFAULT]
    if running:
        raise BranchInUse(
            f"transaction {running[0]} still runs on branch {branch.name}; wait for its end, or"
            " abort it"
        )
    for commit in commits_on(state, branch.txn):
        for table_id in sorted({row.table_id for row in commit.touched}):
            unchanged(state, base, state.name_of(table_id))
        for mine, _, reason in _conflicts(state, base, commit):
            entity = mine.table_id, mine.partition
            raise WriteConflict(_refused(state, branch, (entity, reason)))
        if commit.looked is not None:
            found = write_set.skew(state, base, replace(commit.looked, txn_id=base.txn_id))
            if found is not None:
                raise WriteConflict(_refused(state, branch, found))


def _conflicts(
    state: State, base: Txn, commit: BranchCommit
) -> Iterator[tuple[Touched, WriteSetRow, str]]:
    for row in commit.touched:
        key = (row.table_id, row.partition, row.operation)
        mine = Component(base.txn_id, *key, write_id=row.write_id)
        rows = None if row.rows is None else {key: row.rows}
        yield from write_set.conflicts(state, base, [mine], rows)


_MOST = 4
"""So many entities are told, and rows of each."""


def _changed_twice(state: State, branch: Branch) -> tuple[ChangedTwice, ...]:
    found: dict[Entity, tuple[set[RowKey], bool]] = {}
    for commit in commits_on(state, branch.txn):
        for mine, theirs, _ in _conflicts(state, state.txns[branch.txn], commit):
            if mine.rows is None or theirs.rows is None:
                continue
            rows, exact = found.setdefault((mine.table_id, mine.partition), (set(), True))
            rows.update(mine.rows.shared(theirs.rows, _MOST))
            exact &= mine.rows.exact and theirs.rows.exact
            found[mine.table_id, mine.partition] = rows, exact
    return tuple(
        ChangedTwice(state.name_of(table_id), partition, tuple(sorted(rows)[:_MOST]), exact)
        for (table_id, partition), (rows, exact) in islice(found.items(), _MOST)
    )


def _with_clients(state: State, branch: Branch) -> list[Txn]:
    """What runs on the branch: each has a heartbeat, and branches, which may be many, have none."""
    beating = (state.txns[txn_id] for txn_id in state.heartbeats)
    return [txn for txn in beating if txn.branch == branch.txn]


def _refused(state: State, branch: Branch, found: tuple[Entity, str]) -> str:
    return (
        f"branch {branch.name} can't be merged: {write_set.describe(state, *found)}; nothing was"
        " changed: make another branch, and do its work again there"
    )


@handles(ops.RemoveBranch)
def remove(turn: Turn, operation: ops.RemoveBranch) -> None:
    """Raises NoSuchBranch."""
    drop(turn, branch_named(turn.state, operation.name), "was dropped")


def expire(turn: Turn) -> None:
    """Drops the branches whose time is over."""
    for branch in [*turn.state.branches.values()]:
        if branch.until and branch.until <= turn.now:
            drop(turn, branch, "has reached its end")


def drop(turn: Turn, branch: Branch, what: str) -> None:
    reason = _end_readers(turn, branch, what)
    for commit in [*commits_on(turn.state, branch.txn)]:
        turn.record(Aborted(commit.txn, reason))
    turn.record(Aborted(branch.txn, reason))
    turn.record(BranchEnded(branch.name))


def _end_readers(turn: Turn, branch: Branch, what: str) -> str:
    """Ends the transactions that run on the branch; returns why."""
    reason = f"its branch {branch.name} {what}"
    for txn in _with_clients(turn.state, branch):
        end(turn, txn.txn_id, reason)
    return reason
