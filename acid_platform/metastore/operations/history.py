"""Past snapshots of tables, tags, and what they cost (P36)."""

from __future__ import annotations

from dataclasses import dataclass

from acid_platform.metastore.operations.base import MetastoreOperation
from acid_platform.metastore.pasts import AsOf, CursorRow, KeptHistory, SinkRow, Tag
from acid_platform.metastore.records import PastTable, TableChanges


@dataclass(frozen=True, slots=True)
class GetPast(MetastoreOperation[PastTable]):
    """A table as it was. Until the transaction ends, the Cleaner keeps the files of then."""

    op = "past"
    repeatable = True

    txn: int
    table: str
    as_of: AsOf


@dataclass(frozen=True, slots=True)
class PlaceTag(MetastoreOperation[Tag]):
    """Names a snapshot of a table, the present one without `as_of`; `expires`: milliseconds UTC, 0
    means never."""

    op = "create_tag"

    table: str
    name: str
    as_of: AsOf | None = None
    expires: int = 0
    user: str = ""


@dataclass(frozen=True, slots=True)
class RemoveTag(MetastoreOperation[None]):
    op = "drop_tag"

    table: str
    name: str


@dataclass(frozen=True, slots=True)
class GetKept(MetastoreOperation[list[KeptHistory]]):
    """Since when the history of a table, or of all (None), is kept, and what that costs."""

    op = "kept"
    answers = "tables"
    reads = True

    table: str | None


@dataclass(frozen=True, slots=True)
class GetChanges(MetastoreOperation[TableChanges]):
    """What the changes of a table are read from, up to the transaction's snapshot or `until`.

    Without `since`, all rows are new. Until the transaction ends, the Cleaner keeps everything that
    any snapshot after `since` needs.
    """

    op = "changes"
    repeatable = True

    txn: int
    table: str
    since: AsOf | None = None
    until: AsOf | None = None


@dataclass(frozen=True, slots=True)
class GetCursors(MetastoreOperation[list[CursorRow]]):
    """How far the consumers of changes have come, of one table or of all (None)."""

    op = "cursors"
    answers = "cursors"
    reads = True

    table: str | None


@dataclass(frozen=True, slots=True)
class ForgetCursor(MetastoreOperation[None]):
    """The next run of the consumer begins with all rows of the table."""

    op = "forget_cursor"

    table: str
    consumer: str


@dataclass(frozen=True, slots=True)
class GetSinks(MetastoreOperation[list[SinkRow]]):
    """How far streaming queries have written one table, or all (None)."""

    op = "sinks"
    answers = "sinks"
    reads = True

    table: str | None


@dataclass(frozen=True, slots=True)
class ForgetSink(MetastoreOperation[None]):
    """The name of the sink may be used by a new query."""

    op = "forget_sink"

    table: str
    sink: str
