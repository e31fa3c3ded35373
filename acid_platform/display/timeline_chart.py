"""The timeline of a table: its directories by write id, and which of them a snapshot reads.

Colours are readable on light and dark backgrounds; text has the colour of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from acid_platform.base.visible import visible
from acid_platform.display.listing import html_table, human_bytes
from acid_platform.scan.acid_directory import DirectoryKind, DirectoryLine, Sight

if TYPE_CHECKING:
    from rich.table import Table as RichTable

BAR = 32
"""Width of the timeline in characters."""
_MARKS = {
    DirectoryKind.BASE: "█",
    DirectoryKind.DELTA: "━",
    DirectoryKind.DELETE_DELTA: "┅",
    DirectoryKind.ORIGINAL: "░",
}
_STYLES = {
    Sight.READ: "green",
    Sight.OBSOLETE: "bright_black",
    Sight.ABORTED: "red",
    Sight.INVISIBLE: "yellow",
}
_COLOURS = {
    Sight.READ: "#2a9d5c",
    Sight.OBSOLETE: "#8a8f98",
    Sight.ABORTED: "#d1495b",
    Sight.INVISIBLE: "#d9a400",
}


@dataclass(frozen=True, slots=True)
class Timeline:
    """The directories of a table by write id; see `looks.timeline`."""

    table: str
    lines: tuple[DirectoryLine, ...]

    @property
    def last_write_id(self) -> int:
        return max((line.high for line in self.lines), default=0)

    def bar(self, line: DirectoryLine) -> tuple[int, int]:
        """The first column of a line's bar and the one after its last, of BAR columns."""
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
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD,
            title=Text(visible(self.table)),
            caption=Text(self.summary()),
            title_justify="left",
            caption_justify="left",
        )
        for name in self.columns:
            table.add_column(
                name,
                justify="right" if name in ("bytes", "files") else "left",
                overflow="fold",
                no_wrap=name.startswith(("directory", "write ids")),
            )
        for line in self.lines:
            first, end = self.bar(line)
            style = _STYLES[line.sight]
            bar = Text(" " * first + _MARKS[line.kind] * (end - first), style=style)
            cells = (
                Text(visible(line.directory), style=style),
                bar,
                human_bytes(line.bytes),
                str(line.files),
                Text(visible(_sight(line)), style=style),
            )
            table.add_row(*((Text(visible(line.partition)),) if self._partitioned else ()), *cells)
        return table

    def _repr_html_(self) -> str:
        rows = []
        for line in self.lines:
            colour = _COLOURS[line.sight]
            cells = [
                f"<code>{escape(visible(line.directory))}</code>",
                self._html_bar(line),
                human_bytes(line.bytes),
                str(line.files),
                f'<span style="color:{colour}">●</span> {escape(visible(_sight(line)))}',
            ]
            rows.append([escape(visible(line.partition)), *cells] if self._partitioned else cells)
        return html_table(f"{self.table}: {self.summary()}", self.columns, rows)

    def _html_bar(self, line: DirectoryLine) -> str:
        first, end = self.bar(line)
        style = {
            "margin-left": f"{100 * first / BAR:.1f}%",
            "width": f"{100 * (end - first) / BAR:.1f}%",
            "height": "12px" if line.kind is DirectoryKind.BASE else "6px",
            "background": _COLOURS[line.sight],
            "opacity": ".55" if line.kind is DirectoryKind.DELETE_DELTA else "1",
        }
        text = ";".join(f"{name}:{value}" for name, value in style.items())
        return f'<div style="width:16em"><div style="{text}"></div></div>'


def _sight(line: DirectoryLine) -> str:
    return f"{line.sight.value}: {line.reason}" if line.reason else line.sight.value
