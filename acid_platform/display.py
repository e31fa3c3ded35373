"""Listings and the timeline of a table: in a terminal (rich) and in a notebook (HTML)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from acid_platform.snapshot.timeline import DirectoryLine, Kind, Sight

if TYPE_CHECKING:
    from acid_platform.warehouse import Warehouse

TIMES = frozenset({
    "startedtime", "lastheartbeattime", "last_heartbeat", "acquired_at", "enqueuetime", "starttime",
    "committime", "created", "time",
})
"""Columns in milliseconds since 1970, shown as UTC."""
DURATIONS = frozenset({"duration"})
"""Columns in milliseconds, shown in seconds."""
SIZES = frozenset({"bytes"})

BAR = 32
"""Width of the timeline in characters."""
_MARKS = {Kind.BASE: "█", Kind.DELTA: "━", Kind.DELETE_DELTA: "┅", Kind.ORIGINAL: "░"}
_STYLES = {
    Sight.READ: "green", Sight.OBSOLETE: "bright_black", Sight.ABORTED: "red",
    Sight.INVISIBLE: "yellow",
}
_COLOURS = {
    Sight.READ: "#2a9d5c", Sight.OBSOLETE: "#8a8f98", Sight.ABORTED: "#d1495b",
    Sight.INVISIBLE: "#d9a400",
}
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
_CELL = "padding:2px 8px;text-align:left;border-bottom:1px solid rgba(128,128,128,.35)"


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows under named columns; renders itself with rich and as HTML."""

    rows: tuple[Mapping[str, Any], ...]
    columns: tuple[str, ...]
    title: str = ""

    def __rich__(self) -> RichTable:
        table = _rich_table(self.columns, self.title, self.rows)
        for row in self.rows:
            table.add_row(*(shown(name, row.get(name)) for name in self.columns))
        return table

    def _repr_html_(self) -> str:
        cells = [[escape(shown(name, row.get(name))) for name in self.columns] for row in self.rows]
        return _html_table(self.title, self.columns, cells)


def show_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None, title: str = ""
) -> Listing:
    """Rows as a listing; without `columns` those of the first row."""
    every = tuple(rows)
    return Listing(every, tuple(columns or (every[0] if every else ())), title)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The directories of a table along its write ids; see `timeline`."""

    table: str
    lines: tuple[DirectoryLine, ...]

    @property
    def last_write_id(self) -> int:
        return max((line.high for line in self.lines), default=0)

    def bar(self, line: DirectoryLine) -> tuple[int, int]:
        """First and last column of a line in a bar of BAR columns."""
        last = max(self.last_write_id, 1)
        first = (max(line.low, 1) - 1) * BAR // last
        return first, max(first + 1, max(line.high, 1) * BAR // last)

    def summary(self) -> str:
        """`read: 3 directories, 1.2 kB; obsolete: …`"""
        parts = []
        for sight in Sight:
            some = [line for line in self.lines if line.sight is sight]
            if some:
                word = "directory" if len(some) == 1 else "directories"
                size = human_bytes(sum(line.bytes for line in some))
                parts.append(f"{sight.value}: {len(some)} {word}, {size}")
        return "; ".join(parts) or "empty"

    @property
    def columns(self) -> tuple[str, ...]:
        names = ("directory", f"write ids 1 to {self.last_write_id}", "bytes", "files", "snapshot")
        return ("partition", *names) if self._partitioned else names

    @property
    def _partitioned(self) -> bool:
        return any(line.partition for line in self.lines)

    def __rich__(self) -> RichTable:
        table = RichTable(box=box.SIMPLE_HEAD, title=self.table, caption=self.summary(),
                          title_justify="left", caption_justify="left")
        for name in self.columns:
            table.add_column(name, justify="right" if name in ("bytes", "files") else "left",
                             overflow="fold", no_wrap=name.startswith(("directory", "write ids")))
        for line in self.lines:
            first, end = self.bar(line)
            style = _STYLES[line.sight]
            bar = Text(" " * first + _MARKS[line.kind] * (end - first), style=style)
            cells = (Text(line.directory, style=style), bar, human_bytes(line.bytes),
                     str(line.files), Text(_sight(line), style=style))
            table.add_row(*((line.partition,) if self._partitioned else ()), *cells)
        return table

    def _repr_html_(self) -> str:
        rows = []
        for line in self.lines:
            colour = _COLOURS[line.sight]
            cells = [
                f"<code>{escape(line.directory)}</code>", self._html_bar(line),
                human_bytes(line.bytes), str(line.files),
                f'<span style="color:{colour}">●</span> {escape(_sight(line))}',
            ]
            rows.append([escape(line.partition), *cells] if self._partitioned else cells)
        return _html_table(f"{self.table}: {self.summary()}", self.columns, rows)

    def _html_bar(self, line: DirectoryLine) -> str:
        first, end = self.bar(line)
        style = {
            "margin-left": f"{100 * first / BAR:.1f}%",
            "width": f"{100 * (end - first) / BAR:.1f}%",
            "height": "12px" if line.kind is Kind.BASE else "6px",
            "background": _COLOURS[line.sight],
            "opacity": ".55" if line.kind is Kind.DELETE_DELTA else "1",
        }
        text = ";".join(f"{name}:{value}" for name, value in style.items())
        return f'<div style="width:16em"><div style="{text}"></div></div>'


def _sight(line: DirectoryLine) -> str:
    return f"{line.sight.value}: {line.reason}" if line.reason else line.sight.value


def timeline(warehouse: Warehouse, table: str) -> Timeline:
    """What lies in the table's directories, and what the current snapshot reads of it.

    Raises NoSuchTable.
    """
    from acid_platform.services.inspect import directories

    record = warehouse.metastore.table(table)
    return Timeline(record.name, tuple(directories(warehouse.metastore, record.name)))


def human_bytes(size: int) -> str:
    """`745 B`, `1.2 kB`, `3.4 MB`."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def shown(column: str, value: Any) -> str:
    """A value as people read it: times in UTC, durations in seconds, nothing as nothing."""
    if value is None or value == "None":
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        if column in TIMES:
            moment = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
            return f"{moment:%Y-%m-%d %H:%M:%S}" if value else ""
        if column in DURATIONS:
            return f"{value / 1000:.1f} s"
        if column in SIZES:
            return human_bytes(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _rich_table(
    columns: Sequence[str], title: str, rows: Sequence[Mapping[str, Any]]
) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
    for name in columns:
        values = [row.get(name) for row in rows]
        right = name not in TIMES and any(isinstance(one, int | float) for one in values)
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def _html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>"
        for row in rows)
    caption = (f'<caption style="text-align:left;caption-side:top">{escape(title)}</caption>'
               if title else "")
    return (f'<div style="overflow-x:auto"><table style="{_TABLE}">{caption}'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
