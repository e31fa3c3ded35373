"""Databases, tables, views, partitions, recorded files, settings, and the warehouse's identity."""

from __future__ import annotations

from dataclasses import dataclass, field

from acid_platform.metastore.codec import BRIEF
from acid_platform.metastore.operations.base import MetastoreOperation
from acid_platform.metastore.records import (
    PartitionRecord,
    RecordedDirectory,
    TableRecord,
    ViewRecord,
    WriteReport,
)

# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingsNow:
    """Every setting, those that were set, and the interval of heartbeats in milliseconds."""

    settings: dict[str, str]
    set: dict[str, str]
    heartbeat: int


@dataclass(frozen=True, slots=True)
class IdentityNow:
    """The warehouse's identity, and whether its root carries it (P31)."""

    id: str | None
    placed: bool


# --- settings -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangeSetting(MetastoreOperation[int]):
    """Changes a setting and returns the new interval of heartbeats."""

    op = "set"
    answers = "heartbeat"

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class GetSettings(MetastoreOperation[SettingsNow]):
    op = "settings"
    reads = True


# --- databases, tables, partitions --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclareDatabase(MetastoreOperation[None]):
    op = "create_database"

    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class RemoveDatabase(MetastoreOperation[None]):
    op = "drop_database"

    name: str


@dataclass(frozen=True, slots=True)
class GetDatabases(MetastoreOperation[list[str]]):
    op = "databases"
    answers = "databases"
    reads = True


@dataclass(frozen=True, slots=True)
class DeclareTable(MetastoreOperation[TableRecord]):
    op = "create_table"
    answers = "table"

    table: TableRecord
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AdoptTable(MetastoreOperation[TableRecord]):
    """Registers a directory with files (P24).

    `write_id` and `txn_id` are the highest ids in the files; `aborted` are the write ids that count
    as aborted.
    """

    op = "adopt_table"
    answers = "table"

    table: TableRecord
    write_id: int
    txn_id: int
    aborted: tuple[int, ...]
    partitions: tuple[str, ...]
    directories: tuple[WriteReport, ...]


@dataclass(frozen=True, slots=True)
class AlterTable(MetastoreOperation[TableRecord]):
    """Alters a table. What is None stays; a property of None is removed. `read`: the table id and
    version that the change is based on (P28)."""

    op = "alter_table"
    answers = "table"

    name: str
    columns: tuple[tuple[str, str], ...] | None = None
    properties: dict[str, str | None] | None = None
    rename: str | None = None
    read: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GetTables(MetastoreOperation[list[TableRecord]]):
    op = "tables"
    answers = "tables"
    reads = True


@dataclass(frozen=True, slots=True)
class GetTable(MetastoreOperation[TableRecord]):
    """The declaration of a table, now or as the snapshot of `txn` sees it (P28)."""

    op = "table"
    answers = "table"
    reads = True

    name: str
    txn: int = 0


@dataclass(frozen=True, slots=True)
class RegisterPartitions(MetastoreOperation[list[str]]):
    """Registers partitions and returns those that are new."""

    op = "add_partitions"
    answers = "added"

    name: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetLastWriteId(MetastoreOperation[int]):
    """The highest write id of a table that was allocated to a transaction; 0 if there is none."""

    op = "last_write_id"
    answers = "write_id"
    reads = True

    table_id: int


@dataclass(frozen=True, slots=True)
class GetPartitions(MetastoreOperation[list[PartitionRecord]]):
    """The present partitions, or those that the snapshot of `txn` sees (P28)."""

    op = "partitions"
    answers = "partitions"
    reads = True

    name: str
    txn: int = 0


# --- views --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclareView(MetastoreOperation[None]):
    op = "create_view"

    view: ViewRecord
    if_not_exists: bool
    or_replace: bool


@dataclass(frozen=True, slots=True)
class DropView(MetastoreOperation[None]):
    op = "drop_view"

    name: str


@dataclass(frozen=True, slots=True)
class GetViews(MetastoreOperation[list[ViewRecord]]):
    """The present views, or those that the snapshot of `txn` sees (P28)."""

    op = "views"
    answers = "views"
    reads = True

    txn: int = 0


# --- files --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetRecorded(MetastoreOperation[list[list[RecordedDirectory]]]):
    """The recorded directories of each partition, for services that maintain tables (P26)."""

    op = "recorded_now"
    answers = "entities"
    reads = True

    table: str
    partitions: tuple[str | None, ...]
    table_id: int = field(default=0, metadata=BRIEF)
    """The table's id, which may have been dropped since; 0: the table that has the name now."""


@dataclass(frozen=True, slots=True)
class GetDoubtful(MetastoreOperation[dict[str, list[tuple[int, int]]]]):
    """Ranges of doubtful write ids by table (P24)."""

    op = "doubtful"
    answers = "tables"
    reads = True


@dataclass(frozen=True, slots=True)
class ResolveDoubtful(MetastoreOperation[list[tuple[int, int]]]):
    """Decides doubtful write ids and returns the ranges that are left (P24)."""

    op = "resolve_doubtful"
    answers = "left"

    name: str
    committed: tuple[int, ...]
    aborted: tuple[int, ...]


# --- whose the files are (P31) ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetIdentity(MetastoreOperation[IdentityNow]):
    op = "identity"
    reads = True


@dataclass(frozen=True, slots=True)
class Identify(MetastoreOperation[IdentityNow]):
    """Gives this identity to a metastore that has none."""

    op = "identify"
    repeatable = True

    id: str


@dataclass(frozen=True, slots=True)
class ReportIdentityPlaced(MetastoreOperation[None]):
    """Reports that the warehouse's root carries the identity now."""

    op = "placed"
    repeatable = True

    id: str


@dataclass(frozen=True, slots=True)
class TakeOver(MetastoreOperation[list[str]]):
    """Makes a foreign table, or all of them (None), writable again and returns which."""

    op = "take_over"
    answers = "tables"

    name: str | None


@dataclass(frozen=True, slots=True)
class GetDropped(MetastoreOperation[int | None]):
    """The highest write id of dropped files at a location that wait for the Cleaner, or None."""

    op = "location"
    answers = "dropped"
    reads = True

    location: str
