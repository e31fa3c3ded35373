"""The values that travel between the metastore and its clients.

All times are milliseconds since 1970 UTC by the metastore's clock. Partitions go by their path
below the table, such as `month=3/day=4`; None is an unpartitioned table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from acid_platform.compaction.initiator import EntitySize
from acid_platform.compaction.states import CompactionKind, CompactionState, ErasureState
from acid_platform.layout.names import BaseName, DeltaName, parse_directory
from acid_platform.snapshot.recorded import Contents
from acid_platform.transactions import (
    CompactorWriteIdList,
    Operation,
    ValidTxnList,
    ValidWriteIdList,
)
from acid_platform.transactions.locks import LockType

NO_HEARTBEAT = "no heartbeat"
"""How the reaper's reason of an abort begins (T13)."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table as it is declared. `columns` and `partition_columns` are (name, type) pairs.

    In the metastore the location of a table inside the warehouse is relative to it (P31); a client
    has the whole path or URI.
    """

    table_id: int
    name: str
    location: str
    columns: tuple[tuple[str, str], ...]
    partition_columns: tuple[tuple[str, str], ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    bucket_columns: tuple[str, ...] = ()
    bucket_count: int = 0
    created: int = 0
    floor: int = 0
    """Files of write ids at or below it belong to a dropped table of this location (P22)."""
    version: int = 0
    """Moment since when it is declared like this; a change names the version that it read (P28)."""
    foreign: bool = False
    """Its files may belong to the warehouse that this one is a copy of: read only (P31)."""

    @property
    def partitioned(self) -> bool:
        return bool(self.partition_columns)


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """A view. `query` is Hive's SQL in which every table has its database."""

    name: str
    query: str
    columns: tuple[tuple[str, str], ...]
    created: int = 0
    version: int = 0
    """Moment since when it has this query (P28)."""


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A registered partition; files of write ids at or below a floor are not its own (P22).

    The floors of earlier partitions of this name ascend; the highest that a snapshot sees counts.
    """

    name: str
    floors: tuple[int, ...] = ()
    added: int = 0
    dropped: int = 0
    """Snapshots of a moment between the two have it; 0: nobody dropped it (P28)."""

    def there_at(self, moment: int) -> bool:
        return self.added <= moment and (not self.dropped or moment < self.dropped)


@dataclass(frozen=True, slots=True)
class LockRequest:
    """One lock of a table or partition, with what the transaction will do there (T23 to T26).

    `operation` None takes the strictest that the lock allows (T27). A write that locks a whole
    partitioned table is dynamic: its partitions are those of the reports at commit.
    """

    table: str
    lock: LockType
    operation: Operation | None = None
    partition: str | None = None
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class WriteReport:
    """A directory that the transaction published in one entity (P8). `directory` is its name.

    Make one by `of`, which counts what `contents` tells.
    """

    table: str
    partition: str | None
    operation: Operation
    directory: str
    rows: int = 0
    bytes: int = 0
    files: int = 0
    overwrite: bool = False
    contents: Contents | None = None
    """The files (P26). None: nobody has looked, so that a reader's first look records them."""
    compacted: bool = False
    """A compaction made it, as its `_metadata_acid` or its operation says."""
    versioned: bool = True
    """It has a version file."""

    @classmethod
    def of(
        cls,
        table: str,
        partition: str | None,
        operation: Operation,
        directory: str,
        contents: Contents,
        overwrite: bool = False,
        compacted: bool = False,
        versioned: bool = True,
    ) -> WriteReport:
        return cls(
            table,
            partition,
            operation,
            directory,
            contents.rows,
            contents.bytes,
            len(contents.files),
            overwrite,
            contents,
            compacted or operation is Operation.COMPACT,
            versioned,
        )

    @property
    def contents_text(self) -> str | None:
        """The files as they are recorded."""
        return None if self.contents is None else str(self.contents)


@dataclass(frozen=True, slots=True)
class EntityDirectory:
    """A committed directory of an entity, known from a report (P8).

    The name is empty for the original files of an adopted table (write id 0). `obsolete`: shadowed
    by a later base or compaction, but not yet removed by the Cleaner. `recorded`: the metastore has
    its files (P26). `compacted`, `versioned`: see WriteReport.
    """

    name: str
    low: int
    high: int
    deletes: bool
    base: bool
    rows: int
    bytes: int
    files: int
    txn: int
    obsolete: bool = False
    recorded: bool = False
    compacted: bool = False
    versioned: bool = True

    @classmethod
    def of(cls, report: WriteReport, txn: int) -> EntityDirectory:
        """Ids come from the name. Raises MalformedName."""
        name = parse_directory(report.directory, report.directory) if report.directory else None
        size = (
            report.rows,
            report.bytes,
            report.files,
            txn,
            False,
            report.contents is not None,
            report.compacted,
            report.versioned,
        )
        if name is None:
            return cls("", 0, 0, False, False, *size)
        if isinstance(name, BaseName):
            return cls(report.directory, name.write_id, name.write_id, False, True, *size)
        return cls(report.directory, name.low, name.high, name.deletes, False, *size)

    def as_obsolete(self) -> EntityDirectory:
        return replace(self, obsolete=True)

    def shadows(self, other: EntityDirectory) -> bool:
        """Whether `other` is obsolete beside this one, as `snapshot.directory` selects.

        A compaction replaces both kinds, also where it leaves one alone: rows that their own write
        id deleted leave no delta.
        """
        if self.name == other.name:
            return False
        if self.base:
            return other.high <= self.high
        if not self.low <= other.low <= other.high <= self.high:
            return False
        mine, theirs = (parse_directory(directory.name) for directory in (self, other))
        if not isinstance(mine, DeltaName) or not isinstance(theirs, DeltaName):
            return False
        if (mine.low, mine.high) != (theirs.low, theirs.high):
            return True
        # Statements of one write stand side by side; what a compaction made of them replaces them.
        newer = theirs.statement is not None or mine.visibility > theirs.visibility
        return mine.statement is None and newer


@dataclass(frozen=True, slots=True)
class RecordedDirectory:
    """A directory as a reader gets it: what is known of it, and its files (P26).

    `contents` is the text form of `snapshot.recorded.Contents`; None: not recorded yet.
    """

    directory: EntityDirectory
    contents: str | None


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One committed directory in the history of a table."""

    table_id: int
    table: str
    partition: str | None
    write_id: int
    operation: Operation
    directory: str
    rows: int
    bytes: int
    files: int
    overwrite: bool
    txn: int
    user: str
    run_id: str
    time: int


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who opened a transaction."""

    user: str = ""
    host: str = ""
    agent: str = ""
    run_id: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ErasureTask:
    """A recorded request to erase rows, and what was answered to it. It is kept for ever."""

    id: int
    table: str
    condition: str
    """Which rows; it includes the partition."""
    user: str
    requested: int
    state: ErasureState = ErasureState.REQUESTED
    answer: str = ""
    answered: int = 0
    run_id: str = ""
    """Dagster's run that gave the answer."""
    waits_for: tuple[int, ...] = ()
    """Transactions that kept files with such rows when it was tried."""
    waits: int = 0
    """How often it was tried and transactions were in the way."""


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A row of the compaction queue; `worker` and `attempt` prove ownership (P21)."""

    id: int
    table: str
    table_id: int
    partition: str | None
    kind: CompactionKind
    state: CompactionState
    properties: dict[str, str] = field(default_factory=dict)
    initiator: str = ""
    enqueued: int = 0
    worker: str = ""
    job: str = ""
    """Name of the job of the last attempt, also when it has ended."""
    attempt: int = 0
    started: int = 0
    txn_id: int = 0
    next_txn_id: int = 0
    highest_write_id: int = 0
    commit_time: int = 0
    cleaner_start: int = 0
    cleaner_attempts: int = 0
    cleaner_retry_at: int = 0
    ended: int = 0
    error: str = ""

    def job_name(self, worker: str) -> str:
        """`<worker>-compactor-<db>.<table>[.<partition>]`: of the Spark job and the run (P9)."""
        name = f"{worker}-compactor-{self.table}"
        return f"{name}.{self.partition}" if self.partition else name


@dataclass(frozen=True, slots=True)
class DropTask(CompactionTask):
    """A dropped table or partition whose files the Cleaner has to remove (P22).

    It lies in the same queue, and journals and files of every version have it as a major compaction
    with the property `location`.
    """

    @property
    def location(self) -> str:
        return self.properties["location"]

    def at(self, location: str) -> DropTask:
        """The same with another name for the location."""
        return replace(self, properties={**self.properties, "location": location})


@dataclass(frozen=True, slots=True)
class CleaningTask:
    """What the Cleaner may do to one entity (C37 to C56).

    `kind`: `compaction` (remove obsolete and aborted directories), `abort` (the same for aborted
    transactions without a compaction) or `drop` (remove `location`; when `reused`, as a partition's
    always is, only what has write ids at or below `highest_write_id`). `write_ids` and
    `valid_txns` are the lists of S17.
    """

    id: int
    kind: str
    table: str
    table_id: int
    partition: str | None
    location: str
    highest_write_id: int
    next_txn_id: int
    valid_txns: ValidTxnList
    write_ids: ValidWriteIdList
    txn_id: int = 0
    attempts: int = 0
    reused: bool = False
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holder:
    """An open transaction and whose it is."""

    txn: int
    user: str
    host: str
    run_id: str

    def __str__(self) -> str:
        run = f" run {self.run_id}" if self.run_id else ""
        return f"transaction {self.txn} of {self.user}@{self.host}{run}"


@dataclass(frozen=True, slots=True)
class LockState:
    """One lock of a request, held or waited for. `table` is None for a lock of a database; `txn` is
    0, and user and host are empty, for a lock without a transaction."""

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
    """What a lock that waits has to wait for."""


@dataclass(frozen=True, slots=True)
class BlockedCleaning:
    """A cleaning that has to wait, with the reason and the transactions it waits for."""

    id: int
    table: str
    partition: str | None
    reason: str
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedCompaction:
    """How a compaction ended, and when it was requested (C9)."""

    state: CompactionState
    enqueued: int


@dataclass(frozen=True, slots=True)
class EntityCounters:
    """What the Initiator's decision looks at of one entity, counted by the metastore (C1 to C20).

    `aborted` counts aborted transactions with data here, `oldest_abort` is when the first of them
    was opened (0 = none). `both_kinds`: there are deltas and delete_deltas. `history` is newest
    first. `error`: why no size could be told (C23).
    """

    table: str
    partition: str | None
    partitioned: bool
    properties: dict[str, str]
    size: EntitySize
    both_kinds: bool = False
    aborted: int = 0
    oldest_abort: int = 0
    queued: CompactionState | None = None
    history: tuple[EndedCompaction, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class EntityState:
    """One entity with every directory that is known of it.

    `write_ids` is the compactor's list for the table (S16, me = 0). `aborted` counts aborted
    transactions with data here, `oldest_abort` is when the first of them was opened (0 = none).
    `history` is newest first.
    """

    table: str
    partition: str | None
    location: str
    partitioned: bool
    properties: dict[str, str]
    directories: tuple[EntityDirectory, ...]
    write_ids: CompactorWriteIdList
    aborted: int = 0
    oldest_abort: int = 0
    queued: CompactionState | None = None
    history: tuple[EndedCompaction, ...] = ()
