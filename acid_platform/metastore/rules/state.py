"""What the metastore keeps in memory, and nothing else: no decision, no clock, no I/O.

`State` changes only by events (turn.py): a replay of the log over a snapshot gives the same
state. What else changes it is not kept over a restart:

- `heartbeats`, `lock_beats`, `reads`, `leases`, `gauge` and `timers`, by the steady clock. A start
  gives every open transaction one fresh timeout (P7, timers.py).
- `awake` and `forgotten`: a start raises them (machine.Machine.wake), for clients that ask what
  changed.
- `ended`, `outcomes`, `written` and `contents`: emptied once a snapshot has them
  (store.Unsaved).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice

from acid_platform.base.config import Settings
from acid_platform.errors import NoSuchTable
from acid_platform.layout.names import table_name
from acid_platform.metastore.branches import Branch, BranchCommit
from acid_platform.metastore.messages import FLAT, Answer
from acid_platform.metastore.operations.compaction import (
    CompactionTask,
    DropTask,
    ErasureTask,
    QueuedTask,
)
from acid_platform.metastore.pasts import Cursor, Pin, Sink, TableCommit, Tag
from acid_platform.metastore.places import Occupied
from acid_platform.metastore.records import (
    ClientInfo,
    DatabaseRecord,
    EntityDirectory,
    HistoryRow,
    Identity,
    OwnerKind,
    PartitionRecord,
    TableRecord,
    ViewRecord,
)
from acid_platform.metastore.rules.timers import NEVER, Timers
from acid_platform.transactions import RowOperation, TxnState, TxnType
from acid_platform.transactions.concurrency import LockComponent, LockType, Looked, WriteSetRow
from acid_platform.transactions.ids import BRIEF

Entity = tuple[int, str | None]
"""Table id and partition (None: unpartitioned, or dynamic partitions that are not known yet)."""

EntityDirectories = dict[str, EntityDirectory]

_DEFAULT = DatabaseRecord("default", owner="public", owner_kind=OwnerKind.ROLE)
"""As Hive has it."""


@dataclass(frozen=True, slots=True)
class WriteIdRow:
    """A write id and its transaction; `last_txn` was the highest transaction id at that time."""

    write_id: int
    txn_id: int
    last_txn: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """The declaration of a table until the moment at which it was changed (P28)."""

    record: TableRecord = field(metadata=FLAT)
    until: int


@dataclass(frozen=True, slots=True)
class EarlierView:
    """A view until the moment at which it was replaced or dropped (P28)."""

    view: ViewRecord = field(metadata=FLAT)
    until: int


@dataclass(slots=True)
class TableState:
    """The declaration of a table and its counters."""

    record: TableRecord
    next_write_id: int = 1
    purged: int = 0
    """Highest write id whose mapping was purged (P5)."""
    forgotten: int = 0
    """Highest aborted write id that was forgotten (P4); it is the floor of new partitions."""
    cleaned_upto: int = 0
    """Transactions below it that have not asked for this table yet may miss files (P11)."""
    writes: list[WriteIdRow] = field(default_factory=list)
    """Write ids and their transactions, in ascending order, without purged rows."""
    by_txn: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    """Aborted write ids that a file may still have (P4)."""
    doubtful: set[int] = field(default_factory=set)
    """Write ids allocated after the backup that was restored: hidden until they are
    resolved (P24)."""
    partitions: dict[str, PartitionRecord] = field(default_factory=dict)
    floors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """For each dropped partition the highest write ids at its drops, ascending (P22)."""
    earlier: list[Earlier] = field(default_factory=list)
    """Declarations that an open snapshot may still see, oldest first (P28)."""
    dropped_partitions: list[PartitionRecord] = field(default_factory=list)
    """Dropped partitions that an open snapshot may still see (P28)."""
    dropped: int = 0
    """The moment of its drop; 0 if it was not dropped."""
    since: int = 0
    """The moment from which on its history is kept (P36)."""
    since_at: int = 0
    """The time of the last commit up to `since`."""
    since_write: int = 0
    """The write id of the last commit up to `since`; history.UNKNOWN if nobody knows it."""
    anchor: int = 0
    """The moment of that commit; the declaration of then is kept too."""
    commits: list[TableCommit] = field(default_factory=list)
    """What was committed after `since`, ascending by moment."""
    tags: dict[str, Tag] = field(default_factory=dict)
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By partition ('' for an unpartitioned table): the moments of the pins for which the last
    cleaning left directories in place."""
    ended: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By partition, as `held`: the moment before which its history was ended, so that no file keeps
    rows that were erased, and when (milliseconds UTC)."""

    def at(self, moment: int) -> TableRecord | None:
        """The declaration that a snapshot of this moment sees, if the table existed then (P28)."""
        if self.dropped and self.dropped <= moment:
            return None
        if self.record.version <= moment:
            return self.record
        return next(
            (
                earlier.record
                for earlier in self.earlier
                if earlier.record.version <= moment < earlier.until
            ),
            None,
        )

    def gone_since(self, moment: int) -> bool:
        """Whether it was dropped, and came back, after a moment of an open snapshot (P83)."""
        versions = {self.record.version, *(earlier.record.version for earlier in self.earlier)}
        return any(
            earlier.until > moment and earlier.until not in versions for earlier in self.earlier
        )

    @property
    def last_write_id(self) -> int:
        return self.next_write_id - 1

    def entities(self) -> list[Entity]:
        table_id = self.record.table_id
        if self.record.partitioned:
            return [(table_id, name) for name in self.partitions]
        return [(table_id, None)]


@dataclass(frozen=True, slots=True)
class Txn:
    """A transaction that is open, or aborted with data that the Cleaner has not removed (T46).

    It is never changed in place, so that memory may share it with what is being saved.
    """

    txn_id: int
    kind: TxnType
    state: TxnState
    started: int
    info: ClientInfo = field(metadata=FLAT)
    all_tables: bool = False
    needs: dict[str, int] = field(default_factory=dict)
    """Tables whose files it may read, by the name that it used: the Cleaner waits for it (C41)."""
    wrote: tuple[int, ...] = ()
    """Tables in which it has a write id."""
    taken: int = 0
    """Moment of its snapshot; 0 while it has none."""
    closed: int = 0
    """Moment of its abort."""
    ended: int = 0
    reason: str = ""
    pins: tuple[Pin, ...] = ()
    """Past snapshots that it reads (P36)."""
    unfinished: bool = False
    """Its engine says when all its files are written, and has not said so yet (P47)."""
    branch: int = field(default=0, metadata=BRIEF)
    """The transaction of its branch; its own id if it is that of a branch (P80)."""
    sees: tuple[int, ...] = field(default=(), metadata=BRIEF)
    """What was committed on its branch before it began."""
    joined: bool = field(default=False, metadata=BRIEF)
    """It is committed on its branch, and for everybody else still open."""

    @classmethod
    def nobody(cls, now: int) -> Txn:
        return cls(0, TxnType.READ_ONLY, TxnState.OPEN, now, ClientInfo(), all_tables=True)

    @property
    def is_open(self) -> bool:
        return self.state is TxnState.OPEN

    @property
    def has_client(self) -> bool:
        """Whether it runs: a client keeps it alive by heartbeats."""
        return self.is_open and not self.joined and self.branch != self.txn_id


@dataclass(frozen=True, slots=True)
class Departed:
    """A writer that is gone from `txns` but perhaps not from a snapshot (S4).

    It was open before the moment `closed`; from then until `gone` it was aborted with data that was
    not cleaned.
    """

    txn_id: int
    closed: int
    gone: int


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended transaction, as it is kept for `outcome` (P3)."""

    txn_id: int
    state: TxnState
    kind: TxnType
    started: int
    ended: int
    commit_id: int
    info: ClientInfo = field(metadata=FLAT)
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    request_id: str
    txn_id: int
    op: str
    reply: Answer
    at: int


@dataclass(frozen=True, slots=True)
class Component:
    """What a transaction touches (TXN_COMPONENTS, T24); `write_id` 0 while it waits for locks."""

    txn_id: int
    table_id: int
    partition: str | None
    operation: RowOperation
    write_id: int = 0
    dynamic: bool = False
    cleaned: bool = False
    """Its files are gone, but an aborted compaction could still publish late (P4)."""

    @property
    def entity(self) -> Entity:
        return self.table_id, self.partition


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One lock request: all of its components are granted together or wait together (L3)."""

    ext: int
    txn_id: int
    acquired: bool
    components: tuple[LockComponent, ...]
    touches: tuple[Component, ...]
    request_id: str
    begun: bool
    """The request opened the transaction, so a timeout aborts the transaction."""
    requested: int
    deadline: int
    """When the wait ends by the wall clock; the timer decides (timers.py)."""
    tables: dict[str, int]
    """The tables that the names meant when the request was made."""
    acquired_at: int = 0

    @property
    def publishes(self) -> bool:
        """Whether it is the PUBLICATION of a compaction (P46)."""
        return self.components[0].lock is LockType.PUBLICATION


@dataclass(frozen=True, slots=True)
class Retry:
    attempts: int
    at: int
    error: str


@dataclass(frozen=True, slots=True)
class ServiceLease:
    """The holder of a service's lease, and when it last renewed it, by the steady clock (P9)."""

    holder: str
    renewed: int


@dataclass(slots=True)
class Gauge:
    """How many transactions were open at the last count (T2), by the steady clock."""

    open: int = 0
    counted_at: int = NEVER
    refusing: bool = False


@dataclass(slots=True)
class State:
    """Everything that the metastore knows."""

    settings: Settings = field(default_factory=Settings.of)
    identity: Identity | None = None
    next_txn: int = 1
    next_lock: int = 1
    next_table: int = 1
    next_compaction: int = 1
    next_moment: int = 1
    """Counts snapshots, ends of writers and declarations; it tells which of them came first."""
    longest_timeout: int = 0
    """Milliseconds: an earlier `hive.txn.timeout` that some clients may still count on (P29)."""
    databases: dict[str, DatabaseRecord] = field(default_factory=lambda: {"default": _DEFAULT})
    tables: dict[int, TableState] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    occupied: Occupied = field(default_factory=Occupied, compare=False)
    """By the tables in `tables`."""
    dropped_tables: dict[int, TableState] = field(default_factory=dict)
    """Kept until no open snapshot is older and the Cleaner has removed the files (P22, P28)."""
    views: dict[str, ViewRecord] = field(default_factory=dict)
    earlier_views: list[EarlierView] = field(default_factory=list)
    locations: dict[str, int] = field(default_factory=dict)
    """For locations of dropped tables and partitions: the highest write id of their files (P22)."""
    txns: dict[int, Txn] = field(default_factory=dict)
    departed: list[Departed] = field(default_factory=list)
    """Ascending by `gone`."""
    components: dict[int, list[Component]] = field(default_factory=dict)
    write_set: dict[int, dict[str | None, list[WriteSetRow]]] = field(default_factory=dict)
    """Committed updates, deletes and overwrites, by table and partition."""
    inserts: dict[int, dict[str | None, list[WriteSetRow]]] = field(default_factory=dict)
    """The last committed inserts, at most two for each entity (P30)."""
    looked: list[Looked] = field(default_factory=list)
    """What committed transactions looked for and inserted, ascending by commit id (P51)."""
    row_bytes: int = 0
    """The size of all row sets in `write_set` and of `looked` (P38, P51)."""
    locks: dict[int, LockEntry] = field(default_factory=dict)
    locks_by_name: dict[tuple[str, LockType], dict[int, LockEntry]] = field(default_factory=dict)
    """By the name of the database or table, and the type of the lock."""
    locks_by_txn: dict[int, list[int]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    """Waiting lock requests: request id to lock id, in the order of the queue."""
    queue: dict[int, QueuedTask] = field(default_factory=dict)
    past: dict[Entity, list[CompactionTask]] = field(default_factory=dict)
    """The ended compactions of each entity, oldest first."""
    past_drops: dict[Entity, list[DropTask]] = field(default_factory=dict)
    """The drops of each entity whose cleaning has ended, oldest first."""
    erasures: dict[int, ErasureTask] = field(default_factory=dict)
    cursors: dict[tuple[str, int], Cursor] = field(default_factory=dict)
    """How far each consumer has read the changes of a table, by consumer and table id (P39)."""
    branches: dict[str, Branch] = field(default_factory=dict)
    branch_commits: dict[int, dict[int, BranchCommit]] = field(default_factory=dict)
    """What was committed on each branch, by its transaction, in the order of the commits (P80)."""
    sinks: dict[tuple[str, int], Sink] = field(default_factory=dict)
    """How far streaming queries have written a table, by sink and table id (P42)."""
    directories: dict[Entity, EntityDirectories] = field(default_factory=dict)
    dropped_directories: dict[Entity, EntityDirectories] = field(default_factory=dict)
    """Directories of dropped tables and partitions, kept as long as these are (P28)."""
    highest: dict[Entity, int] = field(default_factory=dict, compare=False)
    """No directory of the entity has a higher write id; looked up where it is missing."""
    contents: dict[Entity, dict[str, str]] = field(default_factory=dict)
    """The files of directories that were recorded since the newest snapshot, by directory name;
    those of older directories are in the snapshot (P26)."""
    cleaning: dict[Entity, int] = field(default_factory=dict)
    """Entities that a Cleaner works on, and since when, by the wall clock (P21)."""
    retries: dict[Entity, Retry] = field(default_factory=dict)
    """Cleanings of aborted transactions that have to wait (C54)."""
    changed: dict[Entity, int] = field(default_factory=dict)
    """The moment when an entity last gained a directory or lost an open write, since
    `awake` (C1)."""
    awake: int = 0
    """The moment when this memory was built from the file."""
    forgotten: int = 0
    """Write ids of transactions below this one may be forgotten, those of others are not (P5)."""

    ended: dict[int, Ended] = field(default_factory=dict)
    """Ended since the newest snapshot, like `outcomes` and `written`; it has the older ones."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    written: list[HistoryRow] = field(default_factory=list)

    timers: Timers = field(default_factory=Timers)
    heartbeats: dict[int, int] = field(default_factory=dict)
    """The last heartbeat of each open transaction; the oldest heartbeat comes first."""
    lock_beats: dict[int, int] = field(default_factory=dict)
    """The last heartbeat of each lock without a transaction, by its id (T16)."""
    reads: dict[int, int] = field(default_factory=dict)
    """The last read of each open READ_ONLY transaction; the oldest comes first."""
    leases: dict[str, ServiceLease] = field(default_factory=dict)
    gauge: Gauge = field(default_factory=Gauge)

    @property
    def last_txn(self) -> int:
        return self.next_txn - 1

    def compactions(self) -> Iterator[CompactionTask]:
        """Compactions that are initiated, working or ready for cleaning."""
        return (row for row in self.queue.values() if isinstance(row, CompactionTask))

    def compaction(self, task_id: int) -> CompactionTask:
        """A queued compaction; a drop has another id."""
        row = self.queue[task_id]
        assert isinstance(row, CompactionTask)
        return row

    def drops(self) -> Iterator[DropTask]:
        """Drops that wait for the Cleaner."""
        return (row for row in self.queue.values() if isinstance(row, DropTask))

    def moment(self) -> int:
        """Returns the next moment and counts on."""
        self.next_moment += 1
        return self.next_moment - 1

    def past_tasks(self) -> Iterator[QueuedTask]:
        """The compactions, and the cleanings of drops, that have ended."""
        for by_entity in (self.past, self.past_drops):
            for tasks in by_entity.values():
                yield from tasks

    def open_txns(self) -> Iterator[Txn]:
        return (txn for txn in self.txns.values() if txn.is_open)

    def aborted_txns(self) -> Iterator[Txn]:
        return (txn for txn in self.txns.values() if not txn.is_open)

    def table(self, name: str) -> TableState:
        """Raises NoSuchTable."""
        table_id = self.names.get(table_name(name))
        if table_id is None:
            near = get_close_matches(table_name(name), self._meant(len(table_name(name))), 2)
            hint = f"did you mean {' or '.join(near)}?" if near else "create it, or see tables()"
            if any(drop.table == table_name(name) for drop in self.drops()):
                hint = "it was dropped, and `acid show dropped` says whether it can come back"
            raise NoSuchTable(f"there is no table {table_name(name)}; {hint}")
        return self.tables[table_id]

    def _meant(self, length: int) -> Iterator[str]:
        """Names about as long, 300 at most: who compares 10,000 keeps everybody waiting."""
        return islice((name for name in self.names if abs(len(name) - length) < 3), 300)

    def known_table(self, table_id: int) -> TableState | None:
        """The table, even if it was dropped, as long as snapshots may see it (P28)."""
        return self.tables.get(table_id) or self.dropped_tables.get(table_id)

    def known_tables(self) -> Iterator[TableState]:
        yield from self.tables.values()
        yield from self.dropped_tables.values()

    def name_of(self, table_id: int) -> str:
        table = self.known_table(table_id)
        return table.record.name if table else f"#{table_id}"


def add_lock(state: State, entry: LockEntry) -> None:
    state.locks_by_txn.setdefault(entry.txn_id, []).append(entry.ext)
    if not entry.acquired:
        state.waiting[entry.request_id] = entry.ext
        wait = entry.deadline - entry.requested
        state.timers.wait_ends[entry.ext] = state.timers.now + wait
    put_lock(state, entry)


def put_lock(state: State, entry: LockEntry) -> None:
    """Puts a request into the place of what was known of it."""
    state.locks[entry.ext] = entry
    for name in _names(entry):
        state.locks_by_name.setdefault(name, {})[entry.ext] = entry


def _unindex(state: State, entry: LockEntry) -> None:
    for name in _names(entry):
        del state.locks_by_name[name][entry.ext]
        if not state.locks_by_name[name]:
            del state.locks_by_name[name]


def _names(entry: LockEntry) -> set[tuple[str, LockType]]:
    return {
        (
            component.db if component.table is None else f"{component.db}.{component.table}",
            component.lock,
        )
        for component in entry.components
    }


def remove_lock(state: State, ext: int) -> None:
    entry = state.locks.pop(ext)
    state.lock_beats.pop(ext, None)
    state.timers.wait_ends.pop(ext, None)
    if not entry.acquired:
        del state.waiting[entry.request_id]
    _unindex(state, entry)
    left = [held for held in state.locks_by_txn[entry.txn_id] if held != ext]
    if left:
        state.locks_by_txn[entry.txn_id] = left
    else:
        del state.locks_by_txn[entry.txn_id]


def forget_publications(state: State, table_id: int) -> None:
    """After the drop of a table, all of whose files go (P22, P46)."""
    for entry in list(state.locks.values()):
        if entry.publishes and table_id in entry.tables.values():
            remove_lock(state, entry.ext)


def follow_rename(state: State, table_id: int, old: str, new: str) -> None:
    """A rename waits for no lock: what is held has to be in the way under the new name too, and so
    has a publication that waits (P46). Other requests that wait are refused."""
    database, _, short = new.partition(".")
    for entry in list(state.locks.values()):
        if not (entry.acquired or entry.publishes) or entry.tables.get(old) != table_id:
            continue
        _unindex(state, entry)
        components = tuple(
            replace(component, db=database, table=short)
            if f"{component.db}.{component.table}" == old
            else component
            for component in entry.components
        )
        tables = {new if name == old else name: key for name, key in entry.tables.items()}
        put_lock(state, replace(entry, components=components, tables=tables))
