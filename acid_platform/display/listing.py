"""Tables of rows for terminals (rich) and notebooks (HTML)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from acid_platform.base.visible import visible
from acid_platform.metastore import show_columns

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TIMES = show_columns.TIMES | {"created", "requested", "answered"}
"""Columns in milliseconds since 1970, shown as UTC."""
DURATIONS = show_columns.DURATIONS
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
            table.add_row(*(Text(shown(name, row.get(name))) for name in self.columns))
        return table

    def _repr_html_(self) -> str:
        cells = [[escape(shown(name, row.get(name))) for name in self.columns] for row in self.rows]
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
