"""A profile of reads, for plain ORC and for the same rows in an ACID table.

`python -m benchmarks.read_profile` takes two steps of `benchmarks.reading`: the table with only a
base, and with five deletes and five inserts. It splits the time of each query into the frame
(snapshot, listing and selection in Python, and building the plan in the JVM), Spark's analysis,
optimisation and planning, and the execution, with the JVM's CPU time for the execution.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as RichTable

from acid_platform.table import Table
from benchmarks.lineitem import COLUMNS, NAMES, bench_warehouse, lineitem
from benchmarks.reading import steps
from benchmarks.results import machine, save

STEPS = ("base only", "+5 deletes +5 inserts")
PARTS = ("frame", "analysis", "optimization", "planning", "execution", "JVM CPU of execution")


def jvm_cpu() -> float:
    [jvm] = [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]
    times = jvm.cpu_times()
    return float(times.user + times.system)


def parts(make: Callable[[], DataFrame], aggregates: list[Column]) -> dict[str, float]:
    """Seconds of each part of one execution of the query."""
    started = time.perf_counter()
    frame = make().agg(*aggregates)
    times = {"frame": time.perf_counter() - started}
    execution = frame._jdf.queryExecution()
    execution.executedPlan()
    phases = execution.tracker().phases()
    for name in ("analysis", "optimization", "planning"):
        phase = phases.get(name)
        times[name] = phase.get().durationMs() / 1000 if phase.isDefined() else 0.0
    started, cpu = time.perf_counter(), jvm_cpu()
    frame.collect()
    return times | {
        "execution": time.perf_counter() - started,
        "JVM CPU of execution": jvm_cpu() - cpu,
    }


def queries(
    flat: DataFrame, table: Table, rows: int
) -> dict[str, tuple[Callable[[], DataFrame], Callable[[], DataFrame], list[Column]]]:
    """Name → the frame of plain ORC, the frame of the ACID table, the aggregates."""
    where = f"orderkey between {rows // 2} and {rows // 2 + 1000}"
    return {
        "sum of one column": (lambda: flat, table.read, [F.sum("quantity")]),
        "selective predicate": (
            lambda: flat.filter(where),
            lambda: table.read(where=where),
            [F.count("*"), F.sum("extendedprice")],
        ),
        "max of all columns": (lambda: flat, table.read, [F.max(name) for name in NAMES]),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read_profile", description=__doc__)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    measured: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    with bench_warehouse() as warehouse:
        where = warehouse.files.uri(f"{warehouse.path}/flat")
        lineitem(warehouse.spark, chosen.rows).write.option("compression", "zlib").orc(where)
        flat = warehouse.spark.read.orc(where)
        table = warehouse.create_table("bench.lineitem", COLUMNS)
        table.overwrite(flat)
        for step, change in steps(warehouse, table, chosen.rows).items():
            change()
            if step not in STEPS:
                continue
            measured[step] = {}
            for name, (plain, acid, what) in queries(flat, table, chosen.rows).items():
                taken: dict[str, list[dict[str, float]]] = {"flat": [], "acid": []}
                for number in range(chosen.rounds + 2):
                    for kind, make in (("flat", plain), ("acid", acid)):
                        once = parts(make, what)
                        if number > 1:
                            taken[kind].append(once)
                measured[step][name] = {
                    kind: {part: round(median(times[part] for times in each), 4) for part in PARTS}
                    for kind, each in taken.items()
                }
        warehouse.release()
    shown = RichTable(title=f"Milliseconds, {chosen.rows:,} rows, medians of {chosen.rounds}")
    for column in ("table", "query", "", *PARTS):
        shown.add_column(column, justify="right")
    for step, of_step in measured.items():
        for name, kinds in of_step.items():
            for kind, times in kinds.items():
                shown.add_row(step, name, kind, *(f"{1000 * times[part]:.0f}" for part in PARTS))
    Console().print(shown)
    today = datetime.date.today().isoformat()
    save(
        chosen.out / f"{today}-read-profile.json",
        {"machine": machine(), "rows": chosen.rows, "rounds": chosen.rounds, "seconds": measured},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
