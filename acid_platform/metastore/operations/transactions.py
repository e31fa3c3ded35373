"""Transactions, their locks and their write ids.

Another engine drives its transaction through the gateway (P34). It keeps no handle here: it names
its transaction in each call, asks again and again for a lock that waits, and reads under a
transaction list that it was given before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.messages import FLAT, MetastoreOperation, Unrecorded
from acid_platform.metastore.pasts import CursorMove, SinkBatch
from acid_platform.metastore.places import Located, Places
from acid_platform.metastore.records import (
    ClientInfo,
    Holder,
    LockRequest,
    PartitionRecord,
    RecordedDirectory,
    RegionReport,
    RewrittenTable,
    RowReport,
    TableRecord,
    WriteReport,
)
from acid_platform.transactions import RowOperation, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.concurrency import LockType
from acid_platform.transactions.ids import BRIEF


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is kept of a granted request: transaction (0: none) and lock request (0: none)."""

    txn: int
    ext: int


@dataclass(frozen=True, slots=True)
class BeginTicket(Ticket):
    """What is kept of `Begin`: also the tables that its answer describes, by their full names, and
    whether with what they hold."""

    described: tuple[str, ...] = field(default=(), metadata=BRIEF)
    with_files: bool = field(default=False, metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class SeenTable(Located):
    """What a transaction sees of a table: its declaration, its partitions or, of a table without
    partitions, its recorded directories. None: it has to ask."""

    record: TableRecord
    partitions: list[PartitionRecord] | None = None
    directories: list[RecordedDirectory] | None = None

    def placed(self, places: Places) -> Self:
        return replace(self, record=self.record.placed(places))


@dataclass(frozen=True, slots=True)
class Granted(Located):
    """What the client of an open transaction receives.

    `write_ids` and `lists` have table names as keys. `stale`: something that conflicts was
    committed since the transaction began (T40). `lost_overwrite`: why an overwrite of what it
    locked can't commit any more, else empty (P30). `interval`: milliseconds between heartbeats.
    `set`: the settings that are not at their default, so that a statement need not ask for them.
    `seen`: what the snapshot sees of the tables that `Begin` asks about.
    """

    txn: int
    valid_txns: ValidTxnList
    write_ids: dict[str, int]
    lists: dict[str, ValidWriteIdList]
    stale: bool
    lost_overwrite: str
    interval: int
    set: dict[str, str]
    seen: tuple[SeenTable, ...] = field(default=(), metadata=BRIEF)

    def placed(self, places: Places) -> Self:
        return replace(self, seen=tuple(table.placed(places) for table in self.seen))


@dataclass(frozen=True, slots=True)
class Alive:
    """The answer to heartbeats: which transactions are aborted, and which are unknown (T8)."""

    aborted: list[int]
    unknown: list[int]
    interval: int


@dataclass(frozen=True, slots=True)
class AbortedMany:
    """The transactions that were aborted, and the text that ABORT TRANSACTIONS prints."""

    aborted: list[int]
    message: str


@dataclass(frozen=True, slots=True)
class TxnOutcome:
    """`state` is `o`, `c` or `a`; `reason` says why it was aborted."""

    state: str
    commit_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class LockState:
    """One lock of a request, held or waiting. `table` is None for the lock of a database. `txn` is
    0, and `user` and `host` are empty, for a lock without a transaction."""

    id: int
    database: str
    table: str | None
    partition: str | None
    lock: LockType
    acquired: bool
    txn: int
    user: str = ""
    host: str = ""
    blocked_by: str = ""
    """What a waiting lock waits for."""


class Begin(MetastoreOperation[Granted], op="begin", outcome=BeginTicket):
    """Opens, locks, allocates write ids and takes the snapshot at once (P6, S4).

    `kind` is Hive's number for the type. `tables`: those that the snapshot will be asked for; None
    means all. `describe`: the answer tells what the snapshot sees of them and of the tables of
    `locks`, of which an INSERT alone needs no files; not if it has to wait for a lock (P26, P28).
    `branch`: on which it runs (P80).
    """

    kind: int
    locks: tuple[LockRequest, ...]
    wait: float
    zero_wait: bool | None
    info: ClientInfo
    tables: tuple[str, ...] | None
    describe: bool = False
    branch: str = ""


class OpenBatch(MetastoreOperation[list[int]], op="open_batch", answers="txns"):
    """Opens several transactions, at most `hive.txn.max.open.batch` (T1)."""

    count: int
    kind: int
    info: ClientInfo


class Lock(MetastoreOperation[Granted], op="lock", outcome=Ticket):
    """Locks of an open transaction."""

    txn: int
    locks: tuple[LockRequest, ...]
    wait: float
    zero_wait: bool | None


class GetGranted(Unrecorded[Granted], op="granted"):
    """The answer of `Begin` again, for an open transaction."""

    txn: int


class GetValidWriteIds(
    MetastoreOperation[ValidWriteIdList], op="valid_write_ids", answers="list", repeatable=True
):
    """What the transaction sees of a table; from then on the Cleaner keeps its files (P12)."""

    txn: int
    table: str


class GetManifest(Unrecorded[list[list[RecordedDirectory]]], op="manifest", answers="entities"):
    """The recorded directories of each partition, while the transaction is open (P26, P29)."""

    txn: int
    table: str
    partitions: tuple[str | None, ...]


class IsNewest(Unrecorded[bool], op="is_newest", answers="newest"):
    """Whether a new snapshot would see the same of the tables, and the same views, as this lease,
    which is renewed then.

    The names are in lower case, with their databases.
    """

    txn: int
    tables: tuple[str, ...]


class AllocateMany(
    MetastoreOperation[list[tuple[int, int]]], op="allocate_many", answers="write_ids"
):
    """Pairs of transaction and write id in a table, in ascending order (T17 to T19)."""

    table: str
    txns: tuple[int, ...]


class Heartbeat(Unrecorded[Alive], op="heartbeat"):
    """Keeps transactions alive; answers which are aborted, unknown or committed (T8)."""

    txns: tuple[int, ...]


class HeartbeatOne(Unrecorded[int], op="heartbeat_one", answers="interval"):
    """Keeps a transaction alive, with `read` its read lease too; returns the interval (T7, P12)."""

    txn: int
    read: bool


@dataclass(frozen=True, slots=True)
class CommitContents:
    """What a commit contains.

    `columns` are added to their tables (P28). `changed`: the updated and deleted rows; where it
    names none, the transaction conflicts with every change of the same partition (P38). `cursors`:
    how far it has read the changes of tables for their consumers (P39). `sinks`: the batches of
    streaming queries that it writes (P42). `rewritten`: the tables all of whose files it has
    written again. `sought`: the rows that it looked for in order to write, and `inserted` those
    that it inserted; both are empty unless it did both (P51). `read`: the rows that it read, if it
    writes and is serializable (P52).
    """

    writes: tuple[WriteReport, ...] = ()
    columns: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    changed: tuple[RowReport, ...] = ()
    cursors: tuple[CursorMove, ...] = ()
    sinks: tuple[SinkBatch, ...] = ()
    rewritten: tuple[RewrittenTable, ...] = ()
    sought: tuple[RegionReport, ...] = field(default=(), metadata=BRIEF)
    inserted: tuple[RegionReport, ...] = field(default=(), metadata=BRIEF)
    read: tuple[RegionReport, ...] = field(default=(), metadata=BRIEF)


NOTHING_TO_COMMIT = CommitContents()


class CommitTxn(MetastoreOperation[int], op="commit", answers="commit_id"):
    """Commits all of the contents at one moment; answers the highest transaction id then (T30)."""

    txn: int
    contents: CommitContents = field(default=NOTHING_TO_COMMIT, metadata=FLAT)


class AbortTxn(MetastoreOperation[None], op="abort"):
    """An aborted transaction is no error (T11, T12)."""

    txn: int
    reason: str


class Withdraw(MetastoreOperation[None], op="withdraw"):
    """Takes back a request to begin a transaction, whose client was interrupted: the transaction is
    aborted, whether it waits for its lock or has begun. An unknown request is no error (L15)."""

    request_id: str


class AbortMany(MetastoreOperation[AbortedMany], op="abort_many"):
    """ABORT TRANSACTIONS (T12)."""

    txns: tuple[int, ...]
    reason: str


class Drop(MetastoreOperation[int], op="drop", answers="commit_id"):
    """Drops a table, or one partition of it, and commits the transaction (P22). `purge`: nothing of
    the table is kept for `UndropTable`."""

    txn: int
    name: str
    partition: str | None
    purge: bool = field(default=False, metadata=BRIEF)


class GetOpenTxns(Unrecorded[list[Holder]], op="open_txns", answers="rows"):
    """The open transactions with their owners."""


class GetLocks(Unrecorded[list[LockState]], op="lock_states", answers="rows"):
    """The locks that are held or waiting."""


class GetTxnStates(Unrecorded[dict[int, str]], op="txn_states", answers="states"):
    """Open `o`, committed `c`, aborted `a`; `u` if it was never opened, or ended before the
    retention."""

    txns: tuple[int, ...]


class GetTxnOutcome(Unrecorded[TxnOutcome], op="outcome_of_txn"):
    """How a transaction ended, if it has (P3)."""

    txn: int


# --- locks without a transaction ----------------------------------------------------------------


class LockAlone(MetastoreOperation[Ticket], op="lock_alone"):
    """Takes locks that no transaction holds (T16)."""

    locks: tuple[LockRequest, ...]
    wait: float


class HeartbeatLock(Unrecorded[None], op="heartbeat_lock"):
    """Keeps a lock without a transaction alive (L12)."""

    ext: int


class Unlock(MetastoreOperation[None], op="unlock"):
    """Releases a lock without a transaction, or withdraws a waiting request (L15)."""

    ext: int


@dataclass(frozen=True, slots=True)
class LockProgress:
    """A lock request by its id: granted, or still waiting."""

    ext: int
    acquired: bool


@dataclass(frozen=True, slots=True)
class TouchedEntity:
    """What a transaction locked for writing: a partition, or the table (None), and for what.

    `dynamic`: the table stands for those of its partitions that get rows.
    """

    partition: str | None
    dynamic: bool
    operation: RowOperation = RowOperation.UPDATE


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """A table in which an open transaction has a write id (0: none) or locks.

    `unfinished`: its engine says when all its files are written, and has not said so yet. `read`:
    the partitions, or the table (None), that it locked for SELECT.
    """

    table: str
    write_id: int
    entities: tuple[TouchedEntity, ...]
    unfinished: bool = False
    read: tuple[str | None, ...] = field(default=(), metadata=BRIEF)


class RequestLock(MetastoreOperation[LockProgress], op="request_lock"):
    """Asks for locks, all or none, and answers at once. `txn` 0: no transaction holds them.

    A request that waits goes on waiting after the answer; `CheckLock` tells how it stands.
    `finishes`: the engine will say with `FinishWrite` when all its files are written.
    """

    txn: int
    locks: tuple[LockRequest, ...]
    zero_wait: bool
    finishes: bool = False


class FinishWrite(MetastoreOperation[bool], op="finish_write", answers="awaited"):
    """The engine has written all files of this write id; False if that was not awaited.

    `txns`: the transactions of whoever says so; None: any transaction may be meant.
    """

    table: str
    write_id: int
    txns: tuple[int, ...] | None = None


class CheckLock(Unrecorded[LockProgress], op="check_lock"):
    """How a lock request stands; keeps it and its transaction alive (L12)."""

    ext: int


class GetTxnList(Unrecorded[ValidTxnList], op="txn_list", answers="valid_txns"):
    """The transactions as a snapshot of this moment sees them, without a lease (S1)."""


class GetWriteIdsUnder(Unrecorded[list[ValidWriteIdList]], op="write_ids_under", answers="lists"):
    """What a snapshot with this transaction list sees of each table (S7 to S9).

    Its files are kept for it only if an open transaction has a lock of the table (P34). With
    `no_floors`, for who reads every directory that is there, write ids of a dropped table whose
    files are still there count as aborted (P22).
    """

    tables: tuple[str, ...]
    valid_txns: ValidTxnList
    no_floors: bool = False


class GetTouched(Unrecorded[list[TouchedTable]], op="touched", answers="tables"):
    """The tables in which an open transaction has a write id or a lock."""

    txn: int


class GetConflict(Unrecorded[str], op="conflict", answers="reason"):
    """Why an open transaction can no longer commit what its locks say that it writes; else ""."""

    txn: int


# --- branches (P80) -----------------------------------------------------------------------------


class MakeBranch(MetastoreOperation[BranchRow], op="create_branch"):
    """Names the present snapshot of all tables; transactions can begin on it. `until`: milliseconds
    UTC, after which it is dropped; 0 means never."""

    name: str
    info: ClientInfo
    until: int = 0


class RemoveBranch(MetastoreOperation[None], op="drop_branch"):
    """Drops a branch with all that was written there."""

    name: str


class MergeBranch(MetastoreOperation[int], op="merge_branch", answers="commit_id"):
    """Commits all that was committed on a branch at one moment, and ends the branch; answers the
    highest transaction id then."""

    name: str


class GetBranches(Unrecorded[list[BranchRow]], op="branches", answers="rows"):
    """The branches, by name, each with why it can't be merged now, unless it is not `judged`;
    with a name only that one."""

    name: str = ""
    judged: bool = True
