"""The codecs of ORC files side by side: loading, scanning, and the size on disk.

`make bench-codecs` loads rows like TPC-H's lineitem into a table of each codec, in turns, then
takes turns with a scan of all columns, of one column, and of a narrow range. The rows are computed
once and cached, so that a load is writing alone. Ratios are over ZSTD, the codec of new tables.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as RichTable

from acid_platform import Table, Warehouse
from benchmarks.lineitem import COLUMNS, NAMES, alternated, bench_warehouse, lineitem, median
from benchmarks.results import machine, save

CODECS = ("ZSTD", "LZ4", "SNAPPY", "ZLIB", "NONE")
"""The first is the default."""


def load(warehouse: Warehouse, rows: DataFrame, codec: str, made: set[str]) -> None:
    """Makes the codec's table anew; `made` has the codecs that have one."""
    name = f"bench.{codec.lower()}"
    if codec in made:
        warehouse.drop_table(name)
    made.add(codec)
    warehouse.create_table(name, COLUMNS, properties={"orc.compress": codec}).insert(rows)


def scan(table: Table, names: tuple[str, ...], where: str | None) -> None:
    """Computes the maximum of each column."""
    table.read(columns=list(names), where=where).agg(*(F.max(name) for name in names)).collect()


def measure(rows: int, rounds: int, console: Console) -> dict[str, Any]:
    """Median seconds of each step by codec, and the megabytes of each table."""
    taken: dict[str, dict[str, float]] = {}
    with bench_warehouse() as warehouse, warehouse.using("spark"):
        cached = lineitem(warehouse.spark, rows).cache()
        cached.count()
        made: set[str] = set()
        loads = {codec: partial(load, warehouse, cached, codec, made) for codec in CODECS}
        times = alternated(loads, rounds)
        tables = {codec: warehouse.table(f"bench.{codec.lower()}") for codec in CODECS}
        scans = {
            "wide scan": (NAMES, None),
            "narrow scan": (("quantity",), None),
            "selective scan": (NAMES, f"orderkey BETWEEN {rows // 2} AND {rows // 2 + 1000}"),
        }
        taken["load"] = {codec: round(median(times[codec]), 3) for codec in CODECS}
        console.log("load", taken["load"])
        for name, (columns, where) in scans.items():
            runs = {codec: partial(scan, tables[codec], columns, where) for codec in CODECS}
            times = alternated(runs, 2 * rounds)
            taken[name] = {codec: round(median(times[codec]), 3) for codec in CODECS}
            console.log(name, taken[name])
        taken["megabytes"] = {
            codec: round(
                sum(
                    directory.bytes
                    for entity in warehouse.metastore.entities(f"bench.{codec.lower()}")
                    for directory in entity.directories
                )
                / 1e6,
                1,
            )
            for codec in CODECS
        }
        warehouse.release()
    return {"rows": rows, "rounds": rounds, "seconds": taken}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.codecs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args(argv)
    console = Console(stderr=True)
    found = measure(given.rows, given.rounds, console)
    shown = RichTable("", *CODECS, title=f"{given.rows:,} rows, seconds (over {CODECS[0]})")
    for name, by_codec in found["seconds"].items():
        first = by_codec[CODECS[0]]
        shown.add_row(name, *(f"{by_codec[c]:g} ({by_codec[c] / first:.2f})" for c in CODECS))
    Console().print(shown)
    today = datetime.date.today().isoformat()
    save(given.results / f"{today}-codecs.json", {"date": today, **found, "machine": machine()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
