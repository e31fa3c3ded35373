"""Transactions, their locks and their write ids."""

from __future__ import annotations

from dataclasses import dataclass, field

from acid_platform.metastore.operations.base import Locking, MetastoreOperation
from acid_platform.metastore.pasts import CursorMove, SinkBatch
from acid_platform.metastore.records import (
    ClientInfo,
    Holder,
    LockRequest,
    LockState,
    PartitionRecord,
    RecordedDirectory,
    RowReport,
    TableRecord,
    WriteReport,
)
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is kept of a granted request: transaction (0: none) and lock request (0: none)."""

    txn: int
    ext: int


@dataclass(frozen=True, slots=True)
class Granted:
    """What the client of an open transaction receives.

    `write_ids` and `lists` have table names as keys. `stale`: something that conflicts was
    committed since the transaction began (T40). `lost_overwrite`: why an overwrite of what it
    locked can't commit any more, else empty (P30). `interval`: milliseconds between heartbeats.
    `set`: the settings that are not at their default, so that a statement need not ask for them.
    """

    txn: int
    valid_txns: ValidTxnList
    write_ids: dict[str, int]
    lists: dict[str, ValidWriteIdList]
    stale: bool
    lost_overwrite: str
    interval: int
    set: dict[str, str]


@dataclass(frozen=True, slots=True)
class SeenWrites:
    """What a transaction sees of one table, and its own write id there, if it has one."""

    list: ValidWriteIdList
    write_id: int | None


@dataclass(frozen=True, slots=True)
class SeenTable:
    """What a transaction sees of a table: its declaration, its partitions, and, of a table without
    partitions, its recorded directories."""

    record: TableRecord
    partitions: list[PartitionRecord]
    directories: list[RecordedDirectory]


@dataclass(frozen=True, slots=True)
class Alive:
    """The answer to heartbeats: which transactions are aborted, and which are unknown (T8)."""

    aborted: list[int]
    unknown: list[int]
    interval: int


@dataclass(frozen=True, slots=True)
class CommitDone:
    """`state` is `c`; `commit_id`: the highest transaction id at the commit (T30)."""

    state: str
    commit_id: int


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


# --- operations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin(Locking[Granted]):
    """Opens, locks, allocates write ids and takes the snapshot at once (P6, S4).

    `kind` is Hive's number for the type. `tables`: those that the snapshot will be asked for; None
    means all.
    """

    op = "begin"
    kept = Ticket

    kind: int
    locks: tuple[LockRequest, ...]
    wait: float
    zero_wait: bool | None
    info: ClientInfo
    tables: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class OpenBatch(MetastoreOperation[list[int]]):
    """Opens several transactions, at most `hive.txn.max.open.batch` (T1)."""

    op = "open_batch"
    answers = "txns"

    count: int
    kind: int
    info: ClientInfo


@dataclass(frozen=True, slots=True)
class Lock(Locking[Granted]):
    """Locks of an open transaction."""

    op = "lock"
    kept = Ticket

    txn: int
    locks: tuple[LockRequest, ...]
    wait: float
    zero_wait: bool | None


@dataclass(frozen=True, slots=True)
class GetGranted(MetastoreOperation[Granted]):
    """The answer of `Begin` again, for an open transaction."""

    op = "granted"
    reads = True

    txn: int


@dataclass(frozen=True, slots=True)
class GetValidWriteIds(MetastoreOperation[SeenWrites]):
    """What the transaction sees of a table; from then on the Cleaner keeps its files (P12)."""

    op = "valid_write_ids"
    repeatable = True

    txn: int
    table: str


@dataclass(frozen=True, slots=True)
class GetManifest(MetastoreOperation[list[list[RecordedDirectory]]]):
    """The recorded directories of each partition, while the transaction is open (P26, P29)."""

    op = "manifest"
    answers = "entities"
    reads = True

    txn: int
    table: str
    partitions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Describe(MetastoreOperation[dict[str, SeenTable]]):
    """What the transaction sees of some tables, while it is open (P26, P28, P29)."""

    op = "describe"
    answers = "tables"
    reads = True

    txn: int
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IsNewest(MetastoreOperation[bool]):
    """Whether a new snapshot would see the same of the tables, and the same views, as this lease,
    which is renewed then.

    The names are in lower case, with their databases.
    """

    op = "is_newest"
    answers = "newest"
    reads = True

    txn: int
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Allocate(MetastoreOperation[int]):
    """The transaction's write id in a table, the same at each call (T17 to T19)."""

    op = "allocate"
    answers = "write_id"
    repeatable = True

    txn: int
    table: str


@dataclass(frozen=True, slots=True)
class AllocateMany(MetastoreOperation[list[tuple[int, int]]]):
    """Pairs of transaction and write id in a table, in ascending order (T17 to T19)."""

    op = "allocate_many"
    answers = "write_ids"

    table: str
    txns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat(MetastoreOperation[Alive]):
    """Keeps transactions alive (T8)."""

    op = "heartbeat"
    reads = True

    txns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatOne(MetastoreOperation[int]):
    """Keeps a transaction alive, with `read` its read lease too; returns the interval (T7, P12)."""

    op = "heartbeat_one"
    answers = "interval"
    reads = True

    txn: int
    read: bool


@dataclass(frozen=True, slots=True)
class CommitTxn(MetastoreOperation[CommitDone]):
    """Commits and, at the same moment, adds `columns` to their tables (P28).

    `changed`: the updated and deleted rows, where the transaction knows them (P38). `cursors`: how
    far it has read the changes of tables for their consumers (P39). `sinks`: the batches of
    streaming queries that it writes (P42).
    """

    op = "commit"

    txn: int
    writes: tuple[WriteReport, ...]
    columns: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    changed: tuple[RowReport, ...] = ()
    cursors: tuple[CursorMove, ...] = ()
    sinks: tuple[SinkBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortTxn(MetastoreOperation[str]):
    op = "abort"
    answers = "state"

    txn: int
    reason: str


@dataclass(frozen=True, slots=True)
class AbortMany(MetastoreOperation[AbortedMany]):
    """ABORT TRANSACTIONS (T12)."""

    op = "abort_many"

    txns: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Drop(MetastoreOperation[CommitDone]):
    """Drops a table, or one partition of it, and commits the transaction (P22)."""

    op = "drop"

    txn: int
    name: str
    partition: str | None


@dataclass(frozen=True, slots=True)
class GetOpenTxns(MetastoreOperation[list[Holder]]):
    op = "open_txns"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class GetLocks(MetastoreOperation[list[LockState]]):
    """The locks that are held or waiting."""

    op = "lock_states"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class GetTxnStates(MetastoreOperation[dict[int, str]]):
    """`o`, `c`, `a`, or `u` for unknown."""

    op = "txn_states"
    answers = "states"
    reads = True

    txns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GetTxnOutcome(MetastoreOperation[TxnOutcome]):
    """How a transaction ended, if it has (P3)."""

    op = "outcome_of_txn"
    reads = True

    txn: int


# --- locks without a transaction ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LockAlone(Locking[Ticket]):
    """Takes locks that no transaction holds (T16)."""

    op = "lock_alone"

    locks: tuple[LockRequest, ...]
    wait: float


@dataclass(frozen=True, slots=True)
class HeartbeatLock(MetastoreOperation[None]):
    """Keeps a lock without a transaction alive (L12)."""

    op = "heartbeat_lock"
    reads = True

    ext: int


@dataclass(frozen=True, slots=True)
class Unlock(MetastoreOperation[None]):
    """Releases a lock without a transaction, or withdraws a waiting request (L15)."""

    op = "unlock"

    ext: int
