"""Compaction by Spark and by the local engine, by the size of the inputs.

`python -m benchmarks.compaction_engines` makes a table of each number of `--rows`, with a base and
a few updates, and alternates major compactions of it by both engines, validation included, up to
their publication. Spark's session is warm: a process that has none pays its start too. Run it to
choose `acid.local.compaction.max.bytes` for a machine.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from acid_platform.engine.compaction_choice import LOCAL_COMPACTION_BYTES
from acid_platform.warehouse import Warehouse
from benchmarks.compaction import TABLE, make, merged
from benchmarks.lineitem import alternated, bench_warehouse, median
from benchmarks.results import machine, save

LIMITS = {"spark": 0, "local": 1 << 40}


def merged_by(warehouse: Warehouse, engine: str) -> None:
    """A major compaction up to its publication by this engine."""
    warehouse.metastore.set(LOCAL_COMPACTION_BYTES, str(LIMITS[engine]))
    merged(warehouse, "major")


def measure(rows: int, pairs: int, rounds: int, console: Console) -> dict[str, Any]:
    """Median seconds of each engine, and the bytes of the inputs, for a table of so many rows."""
    with bench_warehouse() as warehouse:
        make(warehouse, rows, pairs, console)
        warehouse.release()
        size = sum(
            directory.bytes
            for entity in warehouse.metastore.entities(TABLE)
            for directory in entity.directories
        )
        engines: dict[str, Callable[[], object]] = {
            engine: partial(merged_by, warehouse, engine) for engine in LIMITS
        }
        taken = {name: median(times) for name, times in alternated(engines, rounds).items()}
        warehouse.release()
    return {"rows": rows, "bytes": size, **taken}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compaction_engines", description=__doc__
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000, 4_000_000, 16_000_000]
    )
    parser.add_argument("--pairs", type=int, default=4, help="updates after the base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    console = Console()
    found = [measure(rows, chosen.pairs, chosen.rounds, console) for rows in chosen.rows]
    table = RichTable(title="Major compaction, validation included, seconds")
    for name in ("rows", "MB of inputs", "Spark", "local", "local is times as fast"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            f"{one['rows']:,}",
            f"{one['bytes'] / 1e6:.1f}",
            f"{one['spark']:.2f}",
            f"{one['local']:.2f}",
            f"{one['spark'] / one['local']:.2f}",
        )
    console.print(table)
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-compaction-engines.json",
        {"machine": machine(), "rounds": chosen.rounds, "found": found},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
