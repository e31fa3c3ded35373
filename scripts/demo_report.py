"""What the demo has done, as tables in the terminal and as one HTML file with a chart."""

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

if TYPE_CHECKING:
    import pandas as pd

    from acid_platform import Warehouse
    from assets.flights_source import Delivery
    from scripts.demo import Tour
    from scripts.demo_verify import Verdict

KB, MB = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the report. Columns whose title ends with `#` hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def sections(warehouse: Warehouse, tour: Tour, verdicts: Sequence[Verdict]) -> list[Section]:
    """The report's content; both forms are made of it."""
    return [
        _story(tour),
        _tables(warehouse, verdicts),
        _compactions(tour),
        _on_disk(warehouse, tour),
        _checks(tour),
        _time(tour),
    ]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a delivery did to flights of earlier ones."""

    week: str
    """Its first day."""
    what: str
    statements: str
    rows: str


def changes_of(week: str, one: Delivery, rows: Mapping[str, int]) -> Iterator[Change]:
    """`rows`: how many its transaction inserted, updated and deleted."""
    if one.resent_day:
        yield Change(
            week,
            f"the day {one.resent_day} was sent again, without cancelled flights",
            "DELETE, INSERT",
            f"{rows.get('deleted', 0):,} became {len(one.resent):,}",
        )
    if len(one.corrections):
        yield Change(
            week,
            "delays were reported too low two weeks before",
            "UPDATE",
            f"{rows.get('updated', 0):,} corrected",
        )
    if one.erased:
        yield Change(
            week,
            f"the planes {', '.join(one.erased)} had to be erased",
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
        f"Each delivery, with its changes, was one transaction: all of it was seen, or nothing."
        f" Rows in all: {count['inserted']:,} inserted, {count['updated']:,} updated,"
        f" {count['deleted']:,} deleted, {count['overwritten']:,} as whole tables.",
    )


def _tables(warehouse: Warehouse, verdicts: Sequence[Verdict]) -> Section:
    rows = []
    for one in verdicts:
        written = [row["write_id"] for row in warehouse.metastore.history(one.table)]
        verdict = "equal" if one.right else "; ".join(one.differences)
        rows.append(
            (
                one.table,
                f"{one.rows:,}",
                str(one.columns),
                str(max(written, default=0)),
                str(len(set(written))),
                verdict,
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
            str(one["partition"]),
            str(one["kind"]),
            str(one["outputs"]),
            f"{one['rows']:,}",
            f"{directories(one, 'before')} → {directories(one, 'after')}",
            f"{one['before: bytes'] / KB:,.0f} → {one['after: bytes'] / KB:,.0f}",
        )
        for one in tour.compactions
    )
    return Section(
        "Compactions of nyc.flights, each checked before it counted",
        ("partition", "kind", "output", "rows #", "directories #", "kB #"),
        rows,
    )


def _on_disk(warehouse: Warehouse, tour: Tour) -> Section:
    """Directories that were ever written, and what lies there now."""
    rows = []
    for name in warehouse.tables():
        history = warehouse.metastore.history(name)
        directories, size = _listed(Path(warehouse.table(name).location))
        rows.append(
            (
                name,
                str(len({(one["partition"], one["directory"]) for one in history})),
                f"{sum(one['bytes'] for one in history) / KB:,.0f}",
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


def _listed(location: Path) -> tuple[int, int]:
    acid = [
        one
        for one in location.rglob("*")
        if one.is_dir() and one.name.startswith(("base_", "delta_", "delete_delta_"))
    ]
    return len(acid), sum(file.stat().st_size for one in acid for file in one.iterdir())


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
    """In the terminal."""
    for one in report:
        table = Table(
            title=one.title,
            caption=one.note or None,
            title_justify="left",
            title_style="bold",
            caption_justify="left",
        )
        for column in one.columns:
            numbers = column.endswith("#")
            table.add_column(
                column.rstrip("# "), justify="right" if numbers else "left", overflow="fold"
            )
        for row in one.rows:
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
    """As a file that needs nothing else."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>A year of flights</title>",
        f"<style>{_STYLE}</style><h1>A year of flights in Hive ACID tables</h1>",
        "<p>A year of flights from New York arrived week by week, with corrections, days that were"
        " sent again, and planes to erase; in the end every table was compared with pandas on the"
        " raw files.</p>"
        f"<img alt='Mean arrival delay per carrier and month' "
        f"src='data:image/png;base64,{base64.b64encode(chart).decode()}'>",
    ]
    for one in report:
        style = ["number" if column.endswith("#") else "text" for column in one.columns]
        head = "".join(
            f"<th class='{kind}'>{html.escape(column.rstrip('# '))}</th>"
            for kind, column in zip(style, one.columns, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td class='{kind}'>{html.escape(value)}</td>"
                for kind, value in zip(style, row, strict=True)
            )
            + "</tr>"
            for row in one.rows
        )
        parts.append(
            f"<h2>{html.escape(one.title)}</h2><table><tr>{head}</tr>{body}</table>"
            f"<p>{html.escape(one.note)}</p>"
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
