"""Branches (P80): names for a snapshot of all tables with commits of their own, which nobody else
sees until the branch is merged."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.messages import MetastoreOperation
from acid_platform.metastore.records import HistoryRow, RecordedDirectory
from acid_platform.transactions.concurrency import Looked, WriteSetRow
from acid_platform.transactions.ids import BRIEF
from acid_platform.transactions.row_sets import RowKey

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_/-]{0,99}")
"""What a branch may be called."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch. `txn`: its transaction, which holds the snapshot from which it starts. `created`
    and `until`: milliseconds UTC; after `until` it is dropped, 0 means never."""

    name: str
    txn: int
    created: int
    until: int = 0
    user: str = ""


class Placed(NamedTuple):
    """A directory that a commit brings into an entity."""

    table_id: int
    partition: str | None
    recorded: RecordedDirectory


@dataclass(frozen=True, slots=True)
class BranchCommit:
    """A commit on a branch: what the transaction `txn` leaves behind once the branch is merged.

    `branch`: the branch's transaction. `commit_id`: the highest transaction id at this commit.
    `touched`: what it did to entities, INSERT included, with the changed rows where they are known.
    """

    txn: int
    branch: int
    commit_id: int
    at: int
    touched: tuple[WriteSetRow, ...]
    placed: tuple[Placed, ...]
    written: tuple[HistoryRow, ...]
    looked: Looked | None = None


class ChangedTwice(NamedTuple):
    """Rows of a partition, or of a table, that others have changed since a branch did, or the
    branch since others did: some of them, by their keys. `exact`: it were these, and not only some
    near them."""

    table: str
    partition: str | None
    rows: tuple[RowKey, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class BranchRow:
    """A branch as people see it. `write_ids`: of each table that it has written, by its present
    name. `refused`: why it can't be merged now; empty if it can. `twice`: the rows for which it
    can't, as far as they are known; only if one branch was asked for."""

    name: str
    txn: int
    created: int
    until: int
    user: str
    commits: int
    write_ids: dict[str, tuple[int, ...]]
    refused: str
    twice: tuple[ChangedTwice, ...] = field(default=(), metadata=BRIEF)


_ELSEWHERE = frozenset(
    (
        *("add_partitions", "adopt_table", "alter_database", "alter_table", "answer_erasure"),
        *("changes", "create_branch", "create_tag", "create_view"),
        *("drop", "drop_database", "drop_tag", "drop_view"),
        *("end_history", "forget_cursor", "forget_sink", "past", "request_erasure"),
        *("kept", "request_compaction", "request_compactions", "resolve_doubtful", "set"),
        *("start_cleaning", "take_compaction", "take_over", "undrop"),
    )
)
"""The operations that a handle on a branch does not send: they would read or change what belongs
to everybody."""


def require_on_branch(operation: MetastoreOperation[object], branch: str) -> None:
    """Raises InvalidDefinition for what is not done on a branch: declarations other than CREATE
    TABLE, and the past."""
    if operation.op in _ELSEWHERE:
        refuse_on_branch(operation.op.replace("_", " "), branch)


def refuse_on_branch(what: str, branch: str) -> None:
    """Raises InvalidDefinition."""
    raise InvalidDefinition(
        f"on branch {branch} rows are read and changed, and tables created; {what!r} needs the"
        " warehouse without a branch (unset ACID_BRANCH)"
    )
