"""The values that travel between the metastore and its clients.

All times are milliseconds since 1970 UTC by the metastore's clock. A partition is named by its path
below the table, such as `month=3/day=4`; None stands for an unpartitioned table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.names import AcidName, BaseName, parse_directory
from acid_platform.layout.types import Constraint
from acid_platform.metastore.pasts import Cursor, Pin, TableCommit
from acid_platform.metastore.places import Located, Places
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from acid_platform.transactions.ids import BRIEF
from acid_platform.transactions.row_sets import Region, RowSet

NO_HEARTBEAT = "no heartbeat"
"""The first words of the reason with which the reaper aborts a transaction (T13)."""


PLATFORM_OWNER = "acid"
"""Who owns what nobody else was said to own."""


class OwnerKind(Enum):
    """What the owner of a database is."""

    USER = "USER"
    ROLE = "ROLE"


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """A database's declaration. Its owner is shown; rights do not depend on it."""

    name: str
    created: int = 0
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    owner: str = PLATFORM_OWNER
    owner_kind: OwnerKind = OwnerKind.USER


@dataclass(frozen=True, slots=True)
class TableRecord(Located):
    """A table's declaration. `columns` and `partition_columns` are (name, type) pairs.

    The metastore stores a location inside the warehouse relative to it (P31); a client has the
    whole path or URI.
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
    """Files with write ids up to this one belong to a dropped table at the same location (P22)."""
    version: int = 0
    """The moment of the last change; a change names the version that it is based on (P28)."""
    foreign: bool = False
    """Its files may belong to the warehouse that this one was copied from: read only (P31)."""
    comments: dict[str, str] = field(default_factory=dict)
    """The comments of columns and partition columns that have one; the table's own is its property
    `comment`, as in Hive."""
    constraints: tuple[Constraint, ...] = ()
    rewritten: int = field(default=0, metadata=BRIEF)
    """The write id that last wrote all files again: older files have other columns or formats."""
    column_ids: tuple[int, ...] = field(default=(), metadata=BRIEF)
    """The id of each of `columns`, in a table of which one got another name or place, or went;
    empty: they are 1, 2, … in order."""
    last_column_id: int = field(default=0, metadata=BRIEF)
    """The highest id that a column ever had; 0: that of the present ones."""

    retyped: int = field(default=0, metadata=BRIEF)
    """The highest write id when a column last got another type: files with higher ones have it."""

    @property
    def ids_of_columns(self) -> tuple[int, ...]:
        """The id of each column, by which files know it. A column keeps it under another name, and
        none ever gets the id of one that is gone."""
        return self.column_ids or tuple(range(1, 1 + len(self.columns)))

    def with_columns(
        self, columns: Sequence[tuple[str, str]], renamed: Mapping[str, str] | None = None
    ) -> Self:
        """The table with these columns. Each has the id of the one of its name, or of the one that
        `renamed` names by its new name; another gets a new id."""
        before = dict(zip((name for name, _ in self.columns), self.ids_of_columns, strict=True))
        last, ids = max((self.last_column_id, *before.values())), list[int]()
        for name, _ in columns:
            known = before.pop((renamed or {}).get(name, name), None)
            last = last + 1 if known is None else last
            ids.append(known or last)
        plain = ids == [*range(1, 1 + len(ids))]
        return replace(
            self,
            columns=tuple(columns),
            column_ids=() if plain else tuple(ids),
            last_column_id=last if last > max(ids, default=0) else 0,
        )

    @property
    def partitioned(self) -> bool:
        return bool(self.partition_columns)

    def place_of(self, partition: str | None) -> str:
        """The location of a partition, or of the table (None)."""
        return self.location if partition is None else f"{self.location}/{partition}"

    def placed(self, places: Places) -> Self:
        return replace(self, location=places.outward(self.location))


@dataclass(frozen=True, slots=True)
class ExternalFiles(Located):
    """The files of an external table, which belong to somebody else and are only read.

    A location inside the warehouse is stored as that of a TableRecord is.
    """

    location: str
    format: str
    """`text`, `csv`, `json`, `orc` or `parquet`."""
    options: dict[str, str] = field(default_factory=dict)
    """How lines are read, as `layout.formats` spells it."""
    partition_columns: tuple[str, ...] = ()
    """The last columns, which no file holds."""
    partitions: dict[str, str] = field(default_factory=dict)
    """The location of each partition by its name; empty for one below the table's location."""

    def placed(self, places: Places) -> Self:
        there = {name: places.outward(where) for name, where in self.partitions.items()}
        return replace(self, location=places.outward(self.location), partitions=there)


@dataclass(frozen=True, slots=True)
class ViewRecord(Located):
    """A view, or an external table, which is read as one is: it has no snapshot of its own, and
    nobody writes it. `query` is Hive's SQL in which every table has its database.

    `reads` has the columns that it reads of each table and view, with their types of then.
    """

    name: str
    query: str
    columns: tuple[tuple[str, str], ...]
    created: int = 0
    version: int = 0
    """The moment at which it got this query (P28)."""
    reads: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    """Hive's parameters of the view; `comment` is its comment."""
    comments: dict[str, str] = field(default_factory=dict)
    """The comments of the columns that have one."""
    external: ExternalFiles | None = field(default=None, metadata=BRIEF)
    """The files of an external table, which has no query."""

    def placed(self, places: Places) -> Self:
        if self.external is None:
            return self
        return replace(self, external=self.external.placed(places))


def refuse_names_of_views(
    views: Iterable[ViewRecord], before: TableRecord, columns: Sequence[tuple[str, str]]
) -> None:
    """Raises InvalidDefinition if another column would get a name under which a view still reads
    one that is gone: the view would read it without a word."""
    names = {name for name, _ in columns}.difference(name for name, _ in before.columns)
    for view in views if names else ():
        for table, read in view.reads:
            again = [name for name, _ in read if table == before.name and name in names]
            if again:
                raise InvalidDefinition(
                    f"view {view.name} reads a column {again[0]!r} that {table} no longer has; drop"
                    " the view, or make it again, before another column gets the name"
                )


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A registered partition; it ignores files with write ids up to a floor (P22).

    Each earlier partition of this name left a floor, in ascending order; the highest floor that a
    snapshot sees counts.
    """

    name: str
    floors: tuple[int, ...] = ()
    added: int = 0
    dropped: int = 0
    """Snapshots between `added` and `dropped` see it; 0 means that it was not dropped (P28)."""

    def there_at(self, moment: int) -> bool:
        return self.added <= moment and (not self.dropped or moment < self.dropped)


@dataclass(frozen=True, slots=True)
class LockRequest:
    """One lock of a table or partition, with what the transaction will do there (T23 to T26).

    If `operation` is None, the strictest operation that the lock allows is assumed (T27). A write
    that locks a whole partitioned table is dynamic: the reports at commit name its partitions.
    """

    table: str
    lock: LockType
    operation: RowOperation | None = None
    partition: str | None = None
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class WriteReport:
    """A directory that the transaction published in one entity (P8). `directory` is its name, and
    `contents` its files (P26)."""

    table: str
    partition: str | None
    operation: RowOperation
    directory: str
    contents: RecordedFiles
    overwrite: bool = False
    compacted: bool = False
    """A compaction wrote it, according to its `_metadata_acid` file or its operation."""
    versioned: bool = True
    """It has a version file."""
    engine: str = ""
    """The engine of the statement that wrote it; empty if none did."""
    reason: str = ""
    """Why that engine was chosen."""

    @property
    def rows(self) -> int:
        return self.contents.rows

    @property
    def bytes(self) -> int:
        return self.contents.bytes

    @property
    def files(self) -> int:
        return len(self.contents.files)


@dataclass(frozen=True, slots=True)
class RewrittenTable:
    """What a table is from a commit on, which has written all its files again.

    `version`: of the declaration with which it has read them. `comments`: of all columns that have
    one. `rows`: whether the files have other rows, too.
    """

    table: str
    version: int
    columns: tuple[tuple[str, str], ...]
    comments: dict[str, str]
    properties: dict[str, str]
    rows: bool = False
    renamed: tuple[tuple[str, str], ...] = field(default=(), metadata=BRIEF)
    """The new and the old name of each column that has another one."""


@dataclass(frozen=True, slots=True)
class RowReport:
    """The rows that the transaction's updates, or its deletes, changed in one entity (P38).

    Without a report the rows are unknown, and the transaction conflicts by partition there.
    """

    table: str
    partition: str | None
    operation: RowOperation
    rows: RowSet


@dataclass(frozen=True, slots=True)
class RegionReport:
    """Rows of a table that a transaction looked for by a condition, or that it inserted (P51)."""

    table: str
    region: Region


@dataclass(frozen=True, slots=True)
class EntityDirectory:
    """A committed directory of an entity, as a report described it (P8).

    The name is empty for the original files of an adopted table (write id 0). `obsolete`: a later
    base or compaction shadows it, but the Cleaner has not removed it yet. `compacted`, `versioned`:
    see WriteReport.
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
    compacted: bool = False
    versioned: bool = True

    @classmethod
    def of(cls, report: WriteReport, txn: int) -> EntityDirectory:
        """Takes the write ids from the directory's name. Raises MalformedName."""
        name = parse_directory(report.directory, report.directory) if report.directory else None
        size = (
            report.rows,
            report.bytes,
            report.files,
            txn,
            False,
            report.compacted or report.operation is RowOperation.COMPACT,
            report.versioned,
        )
        if name is None:
            return cls("", 0, 0, False, False, *size)
        if isinstance(name, BaseName):
            return cls(report.directory, name.write_id, name.write_id, False, True, *size)
        return cls(report.directory, name.low, name.high, name.deletes, False, *size)

    def as_obsolete(self) -> EntityDirectory:
        return replace(self, obsolete=True)

    @property
    def acid_name(self) -> AcidName | None:
        """What `scan.selection` compares; None for the original files."""
        return parse_directory(self.name)


@dataclass(frozen=True, slots=True)
class RecordedDirectory:
    """A directory as a reader receives it, with its files (P26): `contents` is the text form of
    `layout.file_entries.RecordedFiles`."""

    directory: EntityDirectory
    contents: str

    @classmethod
    def of(cls, report: WriteReport, txn: int) -> RecordedDirectory:
        """Raises MalformedName."""
        return cls(EntityDirectory.of(report, txn), str(report.contents))


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One committed directory in the history of a table.

    Earlier versions have left several rows of one directory, for inserts that wrote it together.
    """

    table_id: int
    table: str
    partition: str | None
    write_id: int
    operation: RowOperation
    directory: str
    rows: int
    bytes: int
    files: int
    overwrite: bool
    txn: int
    user: str
    run_id: str
    time: int
    engine: str = ""
    """The engine that wrote it, as the writer reported it."""
    reason: str = ""
    """Why that engine was chosen."""
    message: str = field(default="", metadata=BRIEF)
    """What its author said of the transaction."""


@dataclass(frozen=True, slots=True)
class PastTable(Located):
    """A table as it was (P36): its declaration and partitions then, under its present name and
    location, and the snapshot."""

    table: TableRecord
    partitions: tuple[PartitionRecord, ...]
    pin: Pin
    ended: dict[str, int] = field(default_factory=dict)
    """The partitions whose history was ended after it, and when (milliseconds UTC)."""
    given_up: dict[str, int] = field(default_factory=dict)
    """The columns of then whose names were given up after it, and at which moment: a column that
    has such a name later is another one."""

    def placed(self, places: Places) -> Self:
        return replace(self, table=self.table.placed(places))

    def given_up_until(self, later: PastTable | None) -> frozenset[str]:
        """The columns of then that are gone in a later state, or now, or are others there."""
        end = None if later is None else later.pin.moment
        return frozenset(
            name for name, moment in self.given_up.items() if end is None or moment <= end
        )


@dataclass(frozen=True, slots=True)
class TableChanges(Located):
    """What a table's changes between two snapshots are read from (P39).

    `table`: the declaration at `after`. `commits`: those after `before` and up to `after`, in their
    order; without `before` there is one, the last commit that `after` sees. `entities`: of the
    partitions that these commits touched ('' for an unpartitioned table), each that was there at
    any time from `before` to `after`.
    """

    table: TableRecord
    before: Pin | None
    after: Pin
    commits: tuple[TableCommit, ...]
    entities: tuple[PartitionRecord, ...]
    same_time: int = 0
    """How many earlier commits have the time of the first of these."""
    cursor: Cursor | None = None
    """Where the consumer was, for changes since its last run."""

    def placed(self, places: Places) -> Self:
        return replace(self, table=self.table.placed(places))


PLATFORM = "acid_platform"
"""The agent of our own transactions; other agents are engines behind the gateway."""


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who opened a transaction."""

    user: str = field(default="", metadata=BRIEF)
    host: str = field(default="", metadata=BRIEF)
    agent: str = field(default="", metadata=BRIEF)
    run_id: str = field(default="", metadata=BRIEF)
    description: str = field(default="", metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class Identity:
    """The warehouse's identity, empty if it has none; `placed`: its root carries it (P31)."""

    id: str = ""
    placed: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """An open transaction and its owner, and the branch that it is, if any (P80)."""

    txn: int
    user: str
    host: str
    run_id: str
    branch: str = field(default="", metadata=BRIEF)

    def __str__(self) -> str:
        run = f" run {self.run_id}" if self.run_id else ""
        what = f"branch {self.branch}, " if self.branch else ""
        return f"{what}transaction {self.txn} of {self.user}@{self.host}{run}"
