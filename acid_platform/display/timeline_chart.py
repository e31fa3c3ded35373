"""The timeline of a table: its directories by write id, and which of them a snapshot reads; and
what a read of them costs.

Colours are readable on light and dark backgrounds; text has the colour of the page.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from acid_platform.display.listing import html_table, human_bytes, timeline
from acid_platform.errors import visible
from acid_platform.scan.acid_directory import DirectoryKind, DirectoryLine, Sight

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table as RichTable

    from acid_platform.handles.warehouse import Warehouse

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


_INK = "#7a7f87"
"""The colour of text and lines, readable on white and on black."""
_BARS = ("#d1775b", "#2a9d8f", "#5b7fd1", "#a06cc4")


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The cost of reading all columns and rows with `to_arrow`."""

    directories: int
    delete_deltas: int
    files: int
    bytes: int
    rows: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.rows} rows from {self.directories} directories ({self.delete_deltas} of"
            f" deletes), {self.files} files, {human_bytes(self.bytes)}, in"
            f" {self.seconds * 1000:.0f} ms"
        )


def read_cost(warehouse: Warehouse, table: str, repeats: int = 3) -> ReadCost:
    """Reads the table so often, without a JVM; the fastest time counts. Raises NoSuchTable."""
    lines = [line for line in timeline(warehouse, table).lines if line.sight is Sight.READ]
    handle, times, rows = warehouse.table(table), [], 0
    for _ in range(max(1, repeats)):
        started = time.perf_counter()
        rows = handle.to_arrow().num_rows
        times.append(time.perf_counter() - started)
    return ReadCost(
        len(lines),
        sum(line.kind is DirectoryKind.DELETE_DELTA for line in lines),
        sum(line.files for line in lines),
        sum(line.bytes for line in lines),
        rows,
        min(times),
    )


def chart(costs: Mapping[str, ReadCost]) -> Figure:
    """A chart with a bar for each measurement, in this order: `chart({"before": …, "after a major":
    …})`."""
    from matplotlib.figure import Figure

    panels = {
        "directories": [float(cost.directories) for cost in costs.values()],
        "kB on disk": [cost.bytes / 1000 for cost in costs.values()],
        "milliseconds": [cost.seconds * 1000 for cost in costs.values()],
    }
    figure = Figure(figsize=(8, 1.1 + 0.45 * len(costs)), layout="constrained")
    figure.patch.set_alpha(0)
    for axes, (title, values) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        bars = axes.barh(
            list(costs), values, color=[_BARS[i % len(_BARS)] for i in range(len(costs))]
        )
        axes.bar_label(bars, fmt="{:,.0f}", padding=3, color=_INK)
        axes.set_title(title, color=_INK, fontsize=10)
        axes.set_xlim(0, max(values, default=1) * 1.25 or 1)
        axes.tick_params(colors=_INK, bottom=False, labelbottom=False)
        axes.patch.set_alpha(0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    figure.axes[0].invert_yaxis()  # shared: the first measurement on top
    return figure
