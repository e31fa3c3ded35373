"""What benchmarks share: their options, their tables, and the files of their results."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def options(about: str | None, **defaults: Any) -> argparse.Namespace:
    """The options of the command line, each with its default. A list is an option that takes
    several values; `out` is where results are saved."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        several = isinstance(default, list)
        kind = type(default[0] if several else default)
        parser.add_argument(
            f"--{name}",
            type=kind,
            default=default,
            nargs="*" if several else None,
            help=f"default: {default}",
        )
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def saved(given: argparse.Namespace, name: str, **content: Any) -> Path:
    """Saves the date, the machine, the options and the content; returns the path."""
    day = datetime.date.today().isoformat()
    chosen = {key: value for key, value in vars(given).items() if key != "out"}
    path: Path = given.out / f"{day}-{name}.json"
    save(path, {"date": day, "machine": machine(), **chosen, **content})
    return path


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def machine() -> dict[str, Any]:
    """A description of the machine, with its load at the end of the run."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 1),
    }


def save(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def chart(path: Path, title: str, ratios: Mapping[str, Mapping[str, float]]) -> None:
    """Save a bar chart with a group of bars for each entry of `ratios`, and a line at 1."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    groups = list(ratios)
    names = list(next(iter(ratios.values())))
    figure, axes = pyplot.subplots(figsize=(10, 4.5))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        axes.bar(
            [i + number * width for i in range(len(groups))],
            [ratios[group][name] for group in groups],
            width,
            label=name,
        )
    axes.axhline(1, color="grey", linewidth=1)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(groups))], groups)
    axes.set_ylabel("times")
    axes.set_title(title)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
