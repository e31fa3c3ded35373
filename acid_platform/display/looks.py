"""Listings for notebooks: tables, snapshots, transactions, locks, compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acid_platform.display.listing import Listing, show_table, shown
from acid_platform.display.timeline_chart import Timeline
from acid_platform.metastore import show_columns

if TYPE_CHECKING:
    from acid_platform.handles.held_snapshot import TableSnapshot
    from acid_platform.handles.warehouse import Warehouse

SHOWN = {
    "transactions": (
        "txnid",
        "state",
        "type",
        "startedtime",
        "lastheartbeattime",
        "user",
        "host",
        "tables",
        "run_id",
        "reason",
    ),
    "locks": (
        "lockid",
        "database",
        "table",
        "partition",
        "lock_type",
        "lock_state",
        "transaction_id",
        "user",
        "hostname",
        "blocked_by",
    ),
    "compactions": (
        "compactionid",
        "dbname",
        "tabname",
        "partname",
        "type",
        "state",
        "enqueuetime",
        "duration",
        "workerid",
        "highestwriteid",
        "errormessage",
    ),
    "retained": show_columns.RETAINED,
    "erasures": (
        "id",
        "table",
        "condition",
        "state",
        "user",
        "requested",
        "answered",
        "run_id",
        "answer",
    ),
    "tables": ("table", "columns", "partitions", "location"),
    "history": tuple(name for name in show_columns.HISTORY if name != "run_id"),
}
"""The columns that people see of each listing; JSON and frames have every column."""


def timeline(warehouse: Warehouse, table: str) -> Timeline:
    """The table's directories, and what the current snapshot reads of them.

    Raises NoSuchTable.
    """
    from acid_platform.tables.inspect import directories

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


def snapshot(seen: TableSnapshot) -> Listing:
    """The directories that a snapshot reads, under its write id list."""
    rows = [
        {
            "partition": partition,
            "directory": source.directory,
            "files": len(source.files),
            "bytes": sum(file.size for file in source.files),
            "rows": "each is tested" if source.test_rows else "all",
        }
        for partition, directory in seen.directories.items()
        for source in directory.sources
    ]
    columns = ("partition", "directory", "files", "bytes", "rows")
    return show_table(rows, columns if any(seen.directories) else columns[1:], str(seen.write_ids))


def _listing(what: str, rows: list[dict[str, Any]], title: str = "") -> Listing:
    """A listing without columns that are empty in all rows, since a page is narrow."""
    told = tuple(name for name in SHOWN[what] if any(shown(name, row[name]) for row in rows))
    return show_table(rows, told or SHOWN[what], title or what)
