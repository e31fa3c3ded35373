"""Measuring what a read of a table costs, and a chart of such measurements."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.display.listing import human_bytes
from acid_platform.display.looks import timeline
from acid_platform.scan.acid_directory import DirectoryKind, Sight

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from acid_platform.handles.warehouse import Warehouse

_INK = "#7a7f87"
"""The colour of text and lines, readable on white and on black."""
_COLOURS = ("#d1775b", "#2a9d8f", "#5b7fd1", "#a06cc4")


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
            list(costs), values, color=[_COLOURS[i % len(_COLOURS)] for i in range(len(costs))]
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
