"""Tables of rows for terminals (rich) and notebooks (HTML), and the listings of what the metastore
keeps: transactions, locks, compactions, snapshots, and the pasts of tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from acid_platform.errors import visible
from acid_platform.metastore.operations import listings

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from acid_platform.display.timeline_chart import Timeline
    from acid_platform.handles.read_verbs import TableSnapshot
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.pasts import CursorRow, KeptHistory, SinkRow

TIMES = listings.TIMES | {"created", "requested", "answered"}
"""Columns in milliseconds since 1970, shown as UTC."""
DURATIONS = listings.DURATIONS
"""Columns in milliseconds, shown in seconds."""
SIZES = frozenset({"bytes"})

_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
_CELL = "padding:2px 8px;text-align:left;border-bottom:1px solid rgba(128,128,128,.35)"


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with named columns; renders itself with rich and as HTML."""

    rows: tuple[Mapping[str, Any], ...]
    columns: tuple[str, ...]
    title: str = ""

    def __rich__(self) -> RichTable:
        from rich.text import Text

        table = _rich_table(self.columns, self.title, self.rows)
        for row in self.rows:
            # As Text, because names such as [delete_]delta are not markup.
            table.add_row(*map(Text, self.texts(row)))
        return table

    def texts(self, row: Mapping[str, Any]) -> list[str]:
        """The values of a row as they are shown."""
        return [shown(name, row.get(name)) for name in self.columns]

    def _repr_html_(self) -> str:
        cells = [list(map(escape, self.texts(row))) for row in self.rows]
        return html_table(self.title, self.columns, cells)


def show_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None, title: str = ""
) -> Listing:
    """The rows as a listing; `columns` default to those of the first row."""
    every = tuple(rows)
    return Listing(every, tuple(columns or (every[0] if every else ())), title)


def human_bytes(size: int) -> str:
    """`745 B`, `1.2 kB`, `3.4 MB`."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def human_duration(milliseconds: int) -> str:
    """`7 d`, `36 h`, `5 min`, or `7.2 s`: the largest unit of which it is a whole number."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds / 1000:.1f} s"


def shown(column: str, value: Any) -> str:
    """A value for people: times in UTC, durations in a whole unit, None as an empty string.

    Control characters of a text are made visible.
    """
    if value is None or value == "None":
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        if column in TIMES:
            moment = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
            return f"{moment:%Y-%m-%d %H:%M:%S}" if value else ""
        if column in DURATIONS:
            return human_duration(value)
        if column in SIZES:
            return human_bytes(value)
    if isinstance(value, list | tuple):
        return visible(", ".join(map(str, value)))
    return visible(str(value))


def _rich_table(columns: Sequence[str], title: str, rows: Sequence[Mapping[str, Any]]) -> RichTable:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(visible(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left")
    for name in columns:
        values = [row.get(name) for row in rows]
        right = name not in TIMES and any(isinstance(value, int | float) for value in values)
        side: Literal["right", "left"] = "right" if right else "left"
        table.add_column(Text(visible(name)), justify=side, overflow="fold")
    return table


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th style="{_CELL}">{escape(visible(name))}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    caption = (
        f'<caption style="text-align:left;caption-side:top">{escape(visible(title))}</caption>'
        if title
        else ""
    )
    return (
        f'<div style="overflow-x:auto"><table style="{_TABLE}">{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


SHOWN = {
    "transactions": listings.names(
        "txnid state type startedtime lastheartbeattime user host tables run_id reason"
    ),
    "locks": listings.names(
        "lockid database table partition lock_type lock_state transaction_id user hostname"
        " blocked_by"
    ),
    "compactions": listings.names(
        "compactionid dbname tabname partname type state enqueuetime duration workerid"
        " highestwriteid errormessage"
    ),
    "retained": listings.RETAINED,
    "dropped": listings.DROPPED,
    "erasures": listings.names("id table condition state user requested answered run_id answer"),
    "tables": ("table", "columns", "partitions", "location"),
    "history": tuple(name for name in listings.HISTORY if name != "run_id"),
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
    return [dict(zip(listings.CURSORS, row, strict=True)) for row in rows]


def sink_rows(sinks: list[SinkRow]) -> list[dict[str, Any]]:
    """A row for each streaming query's sink (P42)."""
    rows = (
        (row.table, own.sink, own.query, own.batch, own.rows, own.txn_id, own.at)
        for row in sinks
        for own in [row.sink]
    )
    return [dict(zip(listings.SINKS, row, strict=True)) for row in rows]
