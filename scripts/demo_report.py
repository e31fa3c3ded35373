"""What the demo has done, as tables in the terminal and as an HTML file with a chart."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from acid_platform.storage.files import Files

if TYPE_CHECKING:
    import pandas as pd

    from acid_platform import Warehouse
    from assets.flights_source import Delivery
    from scripts.demo import Tour
    from scripts.demo_verify import Verdict

KB, MB = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the report. Columns whose titles end with `#` have numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def sections(warehouse: Warehouse, tour: Tour, verdicts: Sequence[Verdict]) -> list[Section]:
    """The content of the report, for both forms."""
    return [
        _story(tour),
        _tables(warehouse, verdicts),
        _compactions(tour),
        _on_disk(warehouse, tour),
        _checks(tour),
        _engines(tour),
        _time(tour),
    ]


@dataclass(frozen=True, slots=True)
class Change:
    """What a delivery did to flights of earlier deliveries."""

    week: str
    """The first day of the week."""
    what: str
    statements: str
    rows: str


def changes_of(week: str, delivery: Delivery, rows: Mapping[str, int]) -> Iterator[Change]:
    """`rows`: how many rows the transaction of the delivery inserted, updated and deleted."""
    if delivery.resent_day:
        yield Change(
            week,
            f"the day {delivery.resent_day} was sent again, without cancelled flights",
            "DELETE, INSERT",
            f"{rows.get('deleted', 0):,} became {len(delivery.resent):,}",
        )
    if len(delivery.corrections):
        yield Change(
            week,
            "delays were reported too low two weeks before",
            "UPDATE",
            f"{rows.get('updated', 0):,} corrected",
        )
    if delivery.erased:
        yield Change(
            week,
            f"the planes {', '.join(delivery.erased)} had to be erased",
            "DELETE",
            f"{rows.get('deleted', 0):,} erased",
        )


def _story(tour: Tour) -> Section:
    count = tour.operations
    return Section(
        "What the deliveries changed",
        ("week of", "what arrived", "done by", "flights #"),
        tuple(
            (change.week, change.what, change.statements, change.rows) for change in tour.changes
        ),
        f"Each delivery, with its changes, was a transaction: readers saw all of it, or nothing."
        f" Rows in all: {count['inserted']:,} inserted, {count['updated']:,} updated,"
        f" {count['deleted']:,} deleted, {count['overwritten']:,} as whole tables.",
    )


def _tables(warehouse: Warehouse, verdicts: Sequence[Verdict]) -> Section:
    rows = []
    for verdict in verdicts:
        written = [row["write_id"] for row in warehouse.metastore.history(verdict.table)]
        result = "equal" if verdict.right else "; ".join(verdict.differences)
        rows.append(
            (
                verdict.table,
                f"{verdict.rows:,}",
                str(verdict.columns),
                str(max(written, default=0)),
                str(len(set(written))),
                result,
            )
        )
    return Section(
        "Tables, compared with pandas on the raw files",
        ("table", "rows #", "columns #", "last write id #", "transactions #", "every value"),
        tuple(rows),
    )


def _compactions(tour: Tour) -> Section:
    def directories(values: dict[str, object], when: str) -> int:
        kinds = ("base", "delta", "delete_delta")
        return sum(int(str(values[f"{when}: {kind} directories"])) for kind in kinds)

    rows = tuple(
        (
            str(compaction["partition"]),
            str(compaction["kind"]),
            str(compaction["outputs"]),
            f"{compaction['rows']:,}",
            f"{directories(compaction, 'before')} → {directories(compaction, 'after')}",
            f"{compaction['before: bytes'] / KB:,.0f} → {compaction['after: bytes'] / KB:,.0f}",
        )
        for compaction in tour.compactions
    )
    return Section(
        "Compactions of nyc.flights, each validated before it was published",
        ("partition", "kind", "output", "rows #", "directories #", "kB #"),
        rows,
    )


def _on_disk(warehouse: Warehouse, tour: Tour) -> Section:
    """All directories that were written, and those that are there now."""
    rows = []
    for name in warehouse.tables():
        history = warehouse.metastore.history(name)
        directories, size = _listed(warehouse.table(name).location)
        rows.append(
            (
                name,
                str(len({(row["partition"], row["directory"]) for row in history})),
                f"{sum(row['bytes'] for row in history) / KB:,.0f}",
                str(directories),
                f"{size / KB:,.0f}",
            )
        )
    return Section(
        "On disk: what transactions wrote, and what is left",
        ("table", "written directories #", "written kB #", "directories now #", "kB now #"),
        tuple(rows),
        f"The Cleaner removed {tour.removed} directories.",
    )


def _listed(location: str) -> tuple[int, int]:
    """How many directories of rows and events a table has, and the bytes of their files."""
    files, path = Files.of(location)
    entities = [path, *(f"{path}/{name}" for name in files.partition_directories(path, 1))]
    acid = [
        child
        for entity in entities
        for child in files.children(entity)
        if child.base_name.startswith(("base_", "delta_", "delete_delta_"))
    ]
    return len(acid), sum(file.size or 0 for one in acid for file in files.children(one.path))


def _checks(tour: Tour) -> Section:
    names = sorted({(asset, check) for asset, check, _ in tour.checks})
    return Section(
        "Data quality checks",
        ("asset", "check", "passed #", "failed #"),
        tuple(
            (
                asset,
                check,
                str(tour.checks[asset, check, True]),
                str(tour.checks[asset, check, False]),
            )
            for asset, check in names
        ),
    )


def _engines(tour: Tour) -> Section:
    rows = [
        (what, *(f"{tour.engines[what, engine]:,}" for engine in ("local", "spark")))
        for what in ("materializations", "compactions")
    ]
    return Section(
        "Which engine worked",
        ("what", "local #", "Spark #"),
        tuple(rows),
        "The local engine needs no JVM and runs what is small; Spark runs everything else.",
    )


def _time(tour: Tour) -> Section:
    phases = [name for name in tour.seconds if name != "total"]
    rows = [(name, str(tour.runs[name] or ""), f"{tour.seconds[name]:.0f}") for name in phases]
    rows.append(("total", str(tour.runs.total()), f"{tour.seconds['total']:.0f}"))
    memory = f"Peak memory of all processes: {tour.peak_bytes / MB:,.0f} MB."
    return Section(
        "Where the time went", ("phase", "Dagster runs #", "seconds #"), tuple(rows), memory
    )


# --- two forms ---------------------------------------------------------------------------------


def show(console: Console, report: Sequence[Section]) -> None:
    """Prints the report."""
    for section in report:
        table = Table(
            title=section.title,
            caption=section.note or None,
            title_justify="left",
            title_style="bold",
            caption_justify="left",
        )
        for column in section.columns:
            numbers = column.endswith("#")
            table.add_column(
                column.rstrip("# "), justify="right" if numbers else "left", overflow="fold"
            )
        for row in section.rows:
            table.add_row(*row)
        console.print(table, "")


_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
       color: #222; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } img { max-width: 100% }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }
.number { text-align: right; font-variant-numeric: tabular-nums }
"""


def write_html(path: Path, report: Sequence[Section], chart: bytes) -> None:
    """Writes the report into a file that needs no other file."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>A year of flights</title>",
        f"<style>{_STYLE}</style><h1>A year of flights in Hive ACID tables</h1>",
        "<p>A year of flights from New York arrived week by week, with corrections, days that were"
        " sent again, and planes to erase; in the end every table was compared with pandas on the"
        " raw files.</p>"
        f"<img alt='Mean arrival delay per carrier and month' "
        f"src='data:image/png;base64,{base64.b64encode(chart).decode()}'>",
    ]
    for section in report:
        style = ["number" if column.endswith("#") else "text" for column in section.columns]
        head = "".join(
            f"<th class='{kind}'>{html.escape(column.rstrip('# '))}</th>"
            for kind, column in zip(style, section.columns, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td class='{kind}'>{html.escape(value)}</td>"
                for kind, value in zip(style, row, strict=True)
            )
            + "</tr>"
            for row in section.rows
        )
        parts.append(
            f"<h2>{html.escape(section.title)}</h2><table><tr>{head}</tr>{body}</table>"
            f"<p>{html.escape(section.note)}</p>"
        )
    path.write_text("\n".join(parts), encoding="utf-8")


def minutes(value: float) -> str:
    """Whole minutes; a little less than none is 0, not -0."""
    return str(round(value))


_FULL, _DARK = 40, 25
"""Minutes of delay with the fullest colour, and from which a colour is dark: white text then."""


def delay_chart(delays: pd.DataFrame, carriers: pd.DataFrame) -> bytes:
    """Mean arrival delay in minutes per carrier and month, as a PNG."""
    from matplotlib.figure import Figure

    mean = delays.assign(
        mean=delays["arr_delay_minutes"] / delays["flown"].where(delays["flown"] > 0)
    ).pivot(index="carrier", columns="month", values="mean")
    mean = mean.loc[mean.mean(axis=1).sort_values().index]
    names = carriers.set_index("carrier")["name"]
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        mean.to_numpy(dtype=float), cmap="RdBu_r", vmin=-_FULL, vmax=_FULL, aspect="auto"
    )
    axes.set_xticks(range(len(mean.columns)), [str(month) for month in mean.columns])
    axes.set_yticks(range(len(mean.index)), [str(names.get(code, code)) for code in mean.index])
    axes.set_xlabel("month of 2013")
    axes.set_title("Mean arrival delay in minutes, flights from New York")
    for row, column in ((r, c) for r in range(mean.shape[0]) for c in range(mean.shape[1])):
        value = float(mean.iat[row, column])  # type: ignore[arg-type]
        if value == value:  # a carrier that did not fly has no mean
            axes.text(
                column,
                row,
                minutes(value),
                ha="center",
                va="center",
                fontsize=9,
                color="white" if abs(value) > _DARK else "black",
            )
    figure.colorbar(image, ax=axes, label="minutes")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
