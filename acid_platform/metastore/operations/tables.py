"""Databases, tables and their past, views, partitions, recorded files, settings, the identity."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from acid_platform.layout.types import Constraint
from acid_platform.metastore.messages import MetastoreOperation, Unrecorded
from acid_platform.metastore.pasts import AsOf, CursorRow, KeptHistory, SinkRow, TableCommit, Tag
from acid_platform.metastore.places import Located, Places
from acid_platform.metastore.records import (
    PLATFORM_OWNER,
    DatabaseRecord,
    Identity,
    OwnerKind,
    PartitionRecord,
    PastTable,
    RecordedDirectory,
    TableChanges,
    TableRecord,
    ViewRecord,
    WriteReport,
)
from acid_platform.transactions.ids import BRIEF


@dataclass(frozen=True, slots=True)
class SettingsNow:
    """Every setting, those that were set, and the interval of heartbeats in milliseconds."""

    settings: dict[str, str]
    set: dict[str, str]
    heartbeat: int


# --- settings -----------------------------------------------------------------------------------


class ChangeSetting(MetastoreOperation[int], op="set", answers="heartbeat"):
    """Changes a setting and returns the new interval of heartbeats."""

    name: str
    value: str


class GetSettings(Unrecorded[SettingsNow], op="settings"):
    """The settings now."""


# --- databases, tables, partitions --------------------------------------------------------------


class DeclareDatabase(MetastoreOperation[None], op="create_database"):
    name: str
    if_not_exists: bool
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    owner: str = PLATFORM_OWNER
    owner_kind: OwnerKind = OwnerKind.USER


class AlterDatabase(MetastoreOperation[DatabaseRecord], op="alter_database", answers="database"):
    """Alters a database. What is None stays; a property of None is removed."""

    name: str
    comment: str | None = None
    properties: dict[str, str | None] | None = None
    owner: str | None = None
    owner_kind: OwnerKind = OwnerKind.USER


class RemoveDatabase(MetastoreOperation[None], op="drop_database"):
    name: str


class GetDatabases(Unrecorded[list[str]], op="databases", answers="databases"):
    """The names of the databases, in order; with those that a branch has tables or views in."""

    branch: str = ""


class GetDatabase(Unrecorded[DatabaseRecord], op="database", answers="database"):
    """The declaration of a database."""

    name: str


class DeclareTable(MetastoreOperation[TableRecord], op="create_table", answers="table"):
    table: TableRecord
    if_not_exists: bool


class AdoptTable(MetastoreOperation[TableRecord], op="adopt_table", answers="table"):
    """Registers a directory with files (P24).

    `write_id` and `txn_id` are the highest ids in the files; `aborted` are the write ids that count
    as aborted.
    """

    table: TableRecord
    write_id: int
    txn_id: int
    aborted: tuple[int, ...]
    partitions: tuple[str, ...]
    directories: tuple[WriteReport, ...]


class AlterTable(MetastoreOperation[TableRecord], op="alter_table", answers="table"):
    """Alters a table. What is None stays; a property of None is removed. `read`: the table id and
    version that the change is based on (P28). `comments`: those of all columns that have one; None
    keeps them for the columns that keep their names. `constraints`: all of them."""

    name: str
    columns: tuple[tuple[str, str], ...] | None = None
    properties: dict[str, str | None] | None = None
    rename: str | None = None
    read: tuple[int, int] | None = None
    comments: dict[str, str] | None = None
    constraints: tuple[Constraint, ...] | None = None


class GetTables(Unrecorded[list[TableRecord]], op="tables", answers="tables"):
    """The declaration of every table: now, or on a branch (P80)."""

    branch: str = ""


class GetTablesNear(Unrecorded[list[TableRecord]], op="tables_near", answers="tables"):
    """What a new table could meet: the table of its name, those at, above and below its location,
    and all that are outside of the warehouse."""

    name: str
    location: str


class GetTable(Unrecorded[TableRecord], op="table", answers="table"):
    """The declaration of a table: now, on a branch (P80) or as the snapshot of `txn` sees it."""

    name: str
    txn: int = 0
    branch: str = ""


class RegisterPartitions(MetastoreOperation[list[str]], op="add_partitions", answers="added"):
    """Registers partitions and returns those that are new."""

    name: str
    partitions: tuple[str, ...]


class GetLastWriteId(Unrecorded[int], op="last_write_id", answers="write_id"):
    """The highest write id of a table that was allocated to a transaction; 0 if there is none."""

    table_id: int


class GetPartitions(Unrecorded[list[PartitionRecord]], op="partitions", answers="partitions"):
    """The present partitions, or those that the snapshot of `txn` sees (P28)."""

    name: str
    txn: int = 0
    branch: str = ""


# --- views --------------------------------------------------------------------------------------


class DeclareView(MetastoreOperation[None], op="create_view"):
    """`read`: the version of the present view that `or_replace` is based on; 0: any."""

    view: ViewRecord
    if_not_exists: bool
    or_replace: bool
    read: int = field(default=0, metadata=BRIEF)


class DropView(MetastoreOperation[None], op="drop_view"):
    name: str


class GetViews(Unrecorded[list[ViewRecord]], op="views", answers="views"):
    """The present views, those on a branch (P80), or those that the snapshot of `txn` sees."""

    txn: int = 0
    branch: str = ""


# --- files --------------------------------------------------------------------------------------


class GetRecorded(Unrecorded[list[list[RecordedDirectory]]], op="recorded_now", answers="entities"):
    """The recorded directories of each partition now, for services that maintain tables (P26)."""

    table: str
    partitions: tuple[str | None, ...]
    table_id: int = field(default=0, metadata=BRIEF)
    """The table's id, which may have been dropped since; 0: the table that has the name now."""


class GetDoubtful(Unrecorded[dict[str, list[tuple[int, int]]]], op="doubtful", answers="tables"):
    """Ranges of doubtful write ids by table (P24)."""


class ResolveDoubtful(
    MetastoreOperation[list[tuple[int, int]]], op="resolve_doubtful", answers="left"
):
    """Decides doubtful write ids and returns the ranges that are left (P24)."""

    name: str
    committed: tuple[int, ...]
    aborted: tuple[int, ...]


# --- whose the files are (P31) ------------------------------------------------------------------


class GetIdentity(Unrecorded[Identity], op="identity"):
    """The identity, if there is one, and whether the root has it."""


class Identify(MetastoreOperation[Identity], op="identify", repeatable=True):
    """Gives this identity to a metastore that has none."""

    id: str


class ReportIdentityPlaced(MetastoreOperation[None], op="placed", repeatable=True):
    """Reports that the warehouse's root carries the identity now."""

    id: str


class TakeOver(MetastoreOperation[list[str]], op="take_over", answers="tables"):
    """Makes a foreign table, or all of them (None), writable again and returns which."""

    name: str | None


class GetDropped(Unrecorded[int | None], op="location", answers="dropped"):
    """The highest write id of dropped files at a location that wait for the Cleaner, or None."""

    location: str


@dataclass(frozen=True, slots=True)
class DroppedTable(Located):
    """A dropped table whose files are still there. `until`: milliseconds UTC; 0: until the next
    cleaning. `refused`: why it can't come back; empty if it can."""

    table: TableRecord
    dropped: int
    until: int
    refused: str

    def placed(self, places: Places) -> Self:
        return replace(self, table=self.table.placed(places))


class GetDroppedTables(Unrecorded[list[DroppedTable]], op="dropped_tables", answers="tables"):
    """The dropped tables whose files are still there, the last drop first (P83)."""


class UndropTable(MetastoreOperation[TableRecord], op="undrop", answers="table"):
    """Brings a dropped table back, the last one of the name or that of an id, perhaps under another
    name (P83)."""

    table: str
    rename: str | None = None
    table_id: int = 0


class GetPast(MetastoreOperation[PastTable], op="past", repeatable=True):
    """A table as it was. Until the transaction ends, the Cleaner keeps the files of then."""

    txn: int
    table: str
    as_of: AsOf


class PlaceTag(MetastoreOperation[Tag], op="create_tag"):
    """Names a snapshot of a table, the present one without `as_of`; `expires`: milliseconds UTC, 0
    means never."""

    table: str
    name: str
    as_of: AsOf | None = None
    expires: int = 0
    user: str = ""


class RemoveTag(MetastoreOperation[None], op="drop_tag"):
    table: str
    name: str


class EndHistory(MetastoreOperation[None], op="end_history"):
    """Ends the history of partitions ('' for an unpartitioned table), except for open readers.

    Retention and tags keep no file of them that only snapshots before now need.
    """

    table: str
    partitions: tuple[str, ...]


class GetKept(Unrecorded[list[KeptHistory]], op="kept", answers="tables"):
    """Since when the history of a table, or of all (None), is kept, and what that costs."""

    table: str | None


class GetCommits(Unrecorded[list[TableCommit]], op="commits", answers="commits"):
    """What can be read of a table's history, oldest first: the beginning of what is kept whole, and
    each commit since then, compactions and changes of the declaration too."""

    table: str


class GetChanges(MetastoreOperation[TableChanges], op="changes", repeatable=True):
    """What the changes of a table are read from, up to the transaction's snapshot or `until`.

    Without `since`, all rows are new. Until the transaction ends, the Cleaner keeps everything that
    any snapshot after `since` needs.
    """

    txn: int
    table: str
    since: AsOf | None = None
    until: AsOf | None = None


class GetCursors(Unrecorded[list[CursorRow]], op="cursors", answers="cursors"):
    """How far the consumers of changes have come, of one table or of all (None)."""

    table: str | None


class ForgetCursor(MetastoreOperation[None], op="forget_cursor"):
    """The next run of the consumer begins with all rows of the table."""

    table: str
    consumer: str


class GetSinks(Unrecorded[list[SinkRow]], op="sinks", answers="sinks"):
    """How far streaming queries have written one table, or all (None)."""

    table: str | None


class ForgetSink(MetastoreOperation[None], op="forget_sink"):
    """The name of the sink may be used by a new query."""

    table: str
    sink: str
