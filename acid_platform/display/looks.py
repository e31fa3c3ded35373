"""Listings of what the metastore keeps, for terminals and notebooks: transactions, locks,
compactions, snapshots, and the pasts of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from acid_platform.display.listing import Listing, show_table, shown
from acid_platform.metastore import show_columns

if TYPE_CHECKING:
    from acid_platform.display.timeline_chart import Timeline
    from acid_platform.handles.held_snapshot import TableSnapshot
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.pasts import CursorRow, KeptHistory, SinkRow


SHOWN = {
    "transactions": show_columns.names(
        "txnid state type startedtime lastheartbeattime user host tables run_id reason"
    ),
    "locks": show_columns.names(
        "lockid database table partition lock_type lock_state transaction_id user hostname"
        " blocked_by"
    ),
    "compactions": show_columns.names(
        "compactionid dbname tabname partname type state enqueuetime duration workerid"
        " highestwriteid errormessage"
    ),
    "retained": show_columns.RETAINED,
    "erasures": show_columns.names(
        "id table condition state user requested answered run_id answer"
    ),
    "tables": ("table", "columns", "partitions", "location"),
    "history": tuple(name for name in show_columns.HISTORY if name != "run_id"),
}
"""The columns that people see of each listing; JSON and frames have every column."""


def timeline(warehouse: Warehouse, table: str) -> Timeline:
    """The table's directories, and what the current snapshot reads of them.

    Raises NoSuchTable.
    """
    from acid_platform.display.timeline_chart import Timeline
    from acid_platform.tables.record_layout import directories

    record = warehouse.metastore.table(table)
    return Timeline(record.name, tuple(directories(warehouse.metastore, record.name)))


def transactions(warehouse: Warehouse) -> Listing:
    """SHOW TRANSACTIONS: open ones with leases, and aborted ones with files left."""
    return _listing("transactions", warehouse.metastore.transactions())


def locks(warehouse: Warehouse) -> Listing:
    """SHOW LOCKS, with what each waiting lock waits for."""
    return _listing("locks", warehouse.metastore.locks())


def compactions(warehouse: Warehouse) -> Listing:
    """SHOW COMPACTIONS: the queue and the history (C61)."""
    return _listing("compactions", warehouse.metastore.compactions())


def history(warehouse: Warehouse, table: str) -> Listing:
    """The committed directories of a table, oldest first. Raises NoSuchTable."""
    return _listing("history", warehouse.metastore.history(table), table)


def snapshot(held: TableSnapshot) -> Listing:
    """The directories that a snapshot reads, under its write id list."""
    rows = [
        {
            "partition": partition,
            "directory": source.directory,
            "files": len(source.files),
            "bytes": sum(file.size for file in source.files),
            "rows": "each is tested" if source.test_rows else "all",
        }
        for partition, directory in held.directories.items()
        for source in directory.sources
    ]
    columns = ("partition", "directory", "files", "bytes", "rows")
    return show_table(rows, columns if any(held.directories) else columns[1:], str(held.write_ids))


def _listing(what: str, rows: list[dict[str, Any]], title: str = "") -> Listing:
    """A listing without columns that are empty in all rows, since a page is narrow."""
    filled = tuple(name for name in SHOWN[what] if any(shown(name, row[name]) for row in rows))
    return show_table(rows, filled or SHOWN[what], title or what)


# --- rows about the pasts of tables -------------------------------------------------------------


def tag_rows(history: KeptHistory) -> list[dict[str, Any]]:
    """A row for each tag, as `show_columns.TAGS` names the columns."""
    return [
        {
            "table": history.table,
            "tag": tag.name,
            "write_id": None if tag.write_id < 0 else tag.write_id,
            "snapshot": tag.at,
            "created": tag.created,
            "expires": tag.expires,
            "user": tag.user,
        }
        for tag in history.tags
    ]


def retained_row(history: KeptHistory) -> dict[str, Any]:
    """As `show_columns.RETAINED` names the columns."""
    return {
        "table": history.table,
        "retention": history.retention,
        "since": history.since,
        "write_id": None if history.write_id < 0 else history.write_id,
        "directories": history.directories,
        "bytes": history.bytes,
        "tags": [tag.name for tag in history.tags],
    }


def cursor_rows(cursors: list[CursorRow]) -> list[dict[str, Any]]:
    """A row for each consumer of changes (P39)."""
    rows = (
        (row.table, own.consumer, own.write_id, own.at, own.txn_id, row.behind, row.refused)
        for row in cursors
        for own in [row.cursor]
    )
    return [dict(zip(show_columns.CURSORS, row, strict=True)) for row in rows]


def sink_rows(sinks: list[SinkRow]) -> list[dict[str, Any]]:
    """A row for each streaming query's sink (P42)."""
    rows = (
        (row.table, own.sink, own.query, own.batch, own.rows, own.txn_id, own.at)
        for row in sinks
        for own in [row.sink]
    )
    return [dict(zip(show_columns.SINKS, row, strict=True)) for row in rows]


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function that takes `(what, count, total)`, None for an unknown total; the bar
    disappears after the block."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, count, total: bar.update(
            task, description=what, completed=count, total=total
        )
