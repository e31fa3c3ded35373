"""The codecs of ORC files side by side: loading, scanning, and the size on disk.

The benchmark `codecs` loads rows like TPC-H's lineitem into a table of each codec, in turns, then
takes turns with a scan of all columns, of one column, and of a narrow range. The rows are computed
once and cached, so that a load is writing alone. Ratios are over ZSTD, the codec of new tables.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from acid_platform import Table, Warehouse
from benchmarks.lineitem import COLUMNS, NAMES, alternated, bench_warehouse, lineitem, median
from benchmarks.results import options, saved, show

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


def measure(rows: int, rounds: int) -> dict[str, dict[str, float]]:
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
        print("load", taken["load"])
        for name, (columns, where) in scans.items():
            runs = {codec: partial(scan, tables[codec], columns, where) for codec in CODECS}
            times = alternated(runs, 2 * rounds)
            taken[name] = {codec: round(median(times[codec]), 3) for codec in CODECS}
            print(name, taken[name])
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
    return taken


def main() -> None:
    given = options(__doc__, rows=4_000_000, rounds=3)
    found = measure(given.rows, given.rounds)
    show(
        f"{given.rows:,} rows, seconds (over {CODECS[0]})",
        ("", *CODECS),
        (
            (name, *(f"{one[codec]:g} ({one[codec] / one[CODECS[0]]:.2f})" for codec in CODECS))
            for name, one in found.items()
        ),
    )
    saved(given, "codecs", seconds=found)
