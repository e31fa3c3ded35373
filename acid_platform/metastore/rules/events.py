"""Changes of the state, one class per kind of event: what the rules decide and the journal stores.

A log outlives its program: a field that is added needs a default, and a kind keeps its name. To
add an event, declare it here and write its effect beside the operation that records it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.codec import BRIEF, FLAT, NAME, JsonObject, decode, encode
from acid_platform.metastore.operations import Answer
from acid_platform.metastore.pasts import Cursor, Pin, Sink, Tag
from acid_platform.metastore.records import (
    CompactionTask,
    DropTask,
    EntityDirectory,
    ErasureTask,
    HistoryRow,
    TableRecord,
    ViewRecord,
)
from acid_platform.metastore.rules.state import LockEntry
from acid_platform.transactions.conflicts import WriteSetRow


class Event:
    """A change of the state. A subclass is a frozen dataclass; its effect is in machine.APPLY."""

    __slots__ = ()

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        EVENTS[cls.kind] = cls


EVENTS: dict[str, type[Event]] = {}
"""All events by their kinds."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event and its moment, in milliseconds UTC."""

    at: int
    event: Event

    @property
    def kind(self) -> str:
        return self.event.kind

    def as_json(self) -> tuple[str, int, JsonObject]:
        return self.event.kind, self.at, encode(self.event)

    @classmethod
    def parse(cls, kind: str, at: int, body: JsonObject) -> Recorded:
        return cls(at, decode(EVENTS[kind], body))


# --- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingChanged(Event):
    kind = "set"

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class DatabaseCreated(Event):
    kind = "database"

    name: str


@dataclass(frozen=True, slots=True)
class DatabaseDropped(Event):
    kind = "database_dropped"

    name: str


@dataclass(frozen=True, slots=True)
class TableCreated(Event):
    kind = "table"

    table: TableRecord


@dataclass(frozen=True, slots=True)
class TableAltered(Event):
    kind = "altered"

    table: TableRecord


class AdoptedDirectory(NamedTuple):
    partition: str | None
    directory: EntityDirectory
    contents: str


@dataclass(frozen=True, slots=True)
class TableAdopted(Event):
    """Adopts the files of a table that was just created (P24)."""

    kind = "adopted"

    table_id: int
    write_id: int
    txn_id: int
    aborted: tuple[int, ...]
    partitions: tuple[str, ...]
    directories: tuple[AdoptedDirectory, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAdded(Event):
    kind = "partitions"

    table_id: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dropped(Event):
    """Drops a table or partition; `row` is the Cleaner's task (P22)."""

    kind = "dropped"

    row: DropTask
    commit_id: int


@dataclass(frozen=True, slots=True)
class ViewCreated(Event):
    kind = "view"

    view: ViewRecord


@dataclass(frozen=True, slots=True)
class ViewDropped(Event):
    kind = "view_dropped"

    name: str


# --- transactions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened(Event):
    kind = "open"

    txn: int
    type: int = field(metadata={NAME: "kind"})
    all_tables: bool
    user: str = field(default="", metadata=BRIEF)
    host: str = field(default="", metadata=BRIEF)
    agent: str = field(default="", metadata=BRIEF)
    run_id: str = field(default="", metadata=BRIEF)
    description: str = field(default="", metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class SnapshotTaken(Event):
    """`needs`: tables whose files the Cleaner has to keep from now on, with their ids (C41)."""

    kind = "snapshot"

    txn: int
    needs: dict[str, int]


@dataclass(frozen=True, slots=True)
class FinishAwaited(Event):
    """Whether a transaction waits for its engine to say that all files are written (P47)."""

    kind = "finish_awaited"

    txn: int
    unfinished: bool


@dataclass(frozen=True, slots=True)
class PastPinned(Event):
    """A transaction reads the table `name` as it was (P36)."""

    kind = "pinned"

    txn: int
    name: str
    pin: Pin


@dataclass(frozen=True, slots=True)
class TagCreated(Event):
    kind = "tag"

    tag: Tag


@dataclass(frozen=True, slots=True)
class TagDropped(Event):
    kind = "tag_dropped"

    table_id: int
    name: str


@dataclass(frozen=True, slots=True)
class WriteIdAllocated(Event):
    """`needs`: the table's name, if the transaction may read its files."""

    kind = "write_id"

    txn: int
    table_id: int
    write_id: int
    needs: tuple[str, ...]


class Placed(NamedTuple):
    """A directory that a commit published, and its files in text form."""

    table_id: int
    partition: str | None
    directory: EntityDirectory
    contents: str


@dataclass(frozen=True, slots=True)
class Committed(Event):
    kind = "commit"

    txn: int
    commit_id: int
    write_set: tuple[WriteSetRow, ...]
    directories: tuple[Placed, ...]
    written: tuple[HistoryRow, ...]
    cursors: tuple[Cursor, ...] = field(default=(), metadata=BRIEF)
    sinks: tuple[Sink, ...] = field(default=(), metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class CursorForgotten(Event):
    """A consumer begins again with all rows of a table (P39)."""

    kind = "cursor_forgotten"

    consumer: str
    table_id: int


@dataclass(frozen=True, slots=True)
class SinkForgotten(Event):
    """A sink counts as one that never wrote the table (P42)."""

    kind = "sink_forgotten"

    sink: str
    table_id: int


@dataclass(frozen=True, slots=True)
class RowsForgotten(Event):
    """Forgets which rows the commits up to this commit id changed; their entities stay (P38)."""

    kind = "rows_forgotten"

    upto: int


@dataclass(frozen=True, slots=True)
class Aborted(Event):
    kind = "abort"

    txn: int
    reason: str


@dataclass(frozen=True, slots=True)
class Replied(Event):
    """The outcome of a request (P3)."""

    kind = "replied"

    request_id: str
    txn: int
    op: str
    reply: Answer


# --- locks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LockRequested(Event):
    """`needs`: names of tables whose files the Cleaner has to keep from now on."""

    kind = "lock"

    entry: LockEntry = field(metadata=FLAT)
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LockGranted(Event):
    """`write_ids`: (table id, write id) for tables in which the transaction had no write id yet."""

    kind = "grant"

    ext: int
    write_ids: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LockRemoved(Event):
    kind = "unlock"

    ext: int


# --- compaction -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompactionQueued(Event):
    kind = "queued"

    row: CompactionTask


@dataclass(frozen=True, slots=True)
class CompactionTaken(Event):
    kind = "taken"

    id: int
    worker: str


@dataclass(frozen=True, slots=True)
class CompactionBegun(Event):
    """`highest`: the highest write id that it may merge."""

    kind = "compacting"

    id: int
    txn: int
    highest: int


class DirectoryFiles(NamedTuple):
    """A directory and its files in text form."""

    directory: EntityDirectory
    contents: str


@dataclass(frozen=True, slots=True)
class CompactionCommitted(Event):
    kind = "compacted"

    id: int
    txn: int
    state: CompactionState
    directories: tuple[DirectoryFiles, ...]
    commit_id: int
    next_txn: int
    error: str
    again: bool = field(default=False, metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class CompactionEnded(Event):
    """Ends a compaction without a commit."""

    kind = "compaction_ended"

    id: int
    state: CompactionState
    error: str


@dataclass(frozen=True, slots=True)
class CompactionRevoked(Event):
    kind = "revoked"

    id: int


@dataclass(frozen=True, slots=True)
class NotInitiated(Event):
    kind = "not_initiated"

    row: CompactionTask


# --- cleaning -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CleaningStarted(Event):
    """`upto`: transactions below it that have not asked for the table yet may miss files (P11).

    `since`: the moment from which on the table's history is still kept (P36).
    """

    kind = "cleaning"

    id: int
    table_id: int
    partition: str | None
    upto: int
    since: int = field(default=0, metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class Cleaned(Event):
    """`removed`, `gone`, `held`, `left`: see operations.MarkCleaned."""

    kind = "cleaned"

    id: int
    table_id: int
    partition: str | None
    highest: int
    removed: tuple[int, ...] | None
    gone: tuple[str, ...]
    held: tuple[int, ...] = field(default=(), metadata=BRIEF)
    left: str = field(default="", metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class CleaningFailed(Event):
    kind = "cleaning_failed"

    id: int
    table_id: int
    partition: str | None
    attempts: int
    retry_at: int
    error: str
    given_up: bool


@dataclass(frozen=True, slots=True)
class CleaningLeft(Event):
    kind = "cleaning_left"

    table_id: int
    partition: str | None


# --- erasures, files, identity --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErasureRecorded(Event):
    """A request to erase rows, new or answered."""

    kind = "erasure"

    erasure: ErasureTask


@dataclass(frozen=True, slots=True)
class Identified(Event):
    """Gives the metastore an identity (P31)."""

    kind = "identified"

    id: str


@dataclass(frozen=True, slots=True)
class IdentityPlaced(Event):
    kind = "placed"


@dataclass(frozen=True, slots=True)
class Copied(Event):
    """The metastore's files turned out to be a copy (P31)."""

    kind = "copied"


@dataclass(frozen=True, slots=True)
class TakenOver(Event):
    kind = "taken_over"

    tables: tuple[int, ...]


# --- housekeeping ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Purged(Event):
    """Forgets what nobody needs any more (T44, T45).

    `low`: every transaction below it has ended in every open snapshot; `writers`: the lowest
    transaction that may still conflict.
    """

    kind = "purged"

    low: int
    writers: int


@dataclass(frozen=True, slots=True)
class HistoryPurged(Event):
    kind = "history_purged"


@dataclass(frozen=True, slots=True)
class TimeoutKnown(Event):
    """Every client has learnt of the shorter timeout (P29)."""

    kind = "timeout_known"


# --- after a restore ------------------------------------------------------------------------------


class Found(NamedTuple):
    """What is in an entity: the names of its directories, and the files of directories that the
    backup does not know."""

    table_id: int
    partition: str | None
    names: tuple[str, ...]
    unknown: tuple[DirectoryFiles, ...]


@dataclass(frozen=True, slots=True)
class MetastoreRestored(Event):
    """`tables`: (table id, highest write id in its directories); `txn_id`: the highest transaction
    id there; `identity`: the warehouse's from now on (P31)."""

    kind = "restored"

    tables: tuple[tuple[int, int], ...]
    txn_id: int
    identity: str
    present: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class DoubtResolved(Event):
    """Decides doubtful write ids (P24)."""

    kind = "resolved"

    table_id: int
    committed: tuple[int, ...]
    aborted: tuple[int, ...]
