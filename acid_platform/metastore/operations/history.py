"""Past snapshots of tables, tags, and what they cost (P36)."""

from __future__ import annotations

from acid_platform.metastore.operations.base import MetastoreOperation, Unrecorded
from acid_platform.metastore.pasts import AsOf, CursorRow, KeptHistory, SinkRow, Tag
from acid_platform.metastore.records import PastTable, TableChanges


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
