"""The driver of the benchmark `local`; see the package. Writes results as JSON and Markdown."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from acid_platform import Warehouse
from benchmarks.comparison import rows as source_rows
from benchmarks.comparison.driver import ROOT, Run, Worker, medians
from benchmarks.comparison.environment import python_with
from benchmarks.local.contenders import PEERS
from benchmarks.local.report import markdown
from benchmarks.results import machine, save

RESULTS = ROOT / "benchmarks" / "results"
IN_SPARK = ("spark", "plain-orc")
"""These share a process, so that there is one JVM."""
BEFORE = "local@before"
"""The local engine of another checkout."""


PACKAGES = (
    "deltalake==1.6.6",
    "pyarrow>=22",
    "pytz",
    "duckdb==1.5.5",
    "duckdb-extension-ducklake==1.5.5",
)
"""Of the peers. DuckLake's package is not DuckDB's own; its file carries DuckDB's signature, which
LOAD checks, and its Python code is not imported."""


def fresh_processes(times: int) -> dict[str, float]:
    """Seconds of commands in new processes: the metastore runs, as it does beside other clients.

    Modules are compiled, as in any installation after its first command, whatever the environment
    of this process says.
    """
    acid = str(Path(sys.executable).parent / "acid")
    with TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            "ACID_WAREHOUSE": f"{directory}/warehouse",
            "PYTHONPYCACHEPREFIX": f"{directory}/compiled",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(script: str) -> float:
            began = time.perf_counter()
            subprocess.run(
                [acid, *script.split(" ", 1)]
                if not script.startswith("sql ")
                else [acid, "sql", script.removeprefix("sql ")],
                env=environment,
                check=True,
                capture_output=True,
                cwd=directory,
            )
            return time.perf_counter() - began

        Warehouse.open(f"{directory}/warehouse").close()
        run("sql CREATE TABLE t (id bigint, v string); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        scripts = {
            "acid show tables": "show tables",
            "acid sql count": "sql SELECT count(*) FROM t",
            "acid sql aggregate": "sql SELECT v, sum(id) AS s FROM t GROUP BY v",
            "acid sql INSERT": "sql INSERT INTO t VALUES (3, 'c')",
        }
        taken: dict[str, list[float]] = {name: [] for name in scripts}
        for name, script in (*scripts.items(), *list(scripts.items()) * times):
            taken[name].append(run(script))
        subprocess.run([acid, "metastore", "stop"], env=environment, capture_output=True)
    return {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}


def with_library_of(checkout: Path, directory: Path) -> Path:
    """The directory, in which these benchmarks meet the library of another checkout."""
    directory.mkdir()
    (directory / "acid_platform").symlink_to(checkout.resolve() / "acid_platform")
    for name in ("benchmarks", "tests"):
        (directory / name).symlink_to(ROOT / name)
    return directory


def measure(arguments: argparse.Namespace, size: int, python: Path | None) -> dict[str, Any]:
    names = [name for name in arguments.contenders if python or name not in PEERS]
    if arguments.before:
        names.insert(1, BEFORE)
    data = arguments.data / str(size)
    source_rows.make(data, size)
    expected = json.loads((data / "expected.json").read_text())
    with TemporaryDirectory(dir=arguments.work) as home:
        processes: list[Worker] = []
        workers: dict[str, Worker] = {}
        in_spark = [name for name in names if name in IN_SPARK]
        groups = [[name] for name in names if name not in IN_SPARK]
        groups += [in_spark] if in_spark else []
        before = arguments.before and with_library_of(arguments.before, Path(home) / "before")
        for group in groups:
            chosen = python if group[0] in PEERS else Path(sys.executable)
            worker = Worker(
                "benchmarks.local.contenders",
                group,
                cast(Path, chosen),
                Path(home),
                data,
                {"ACID_SPARK_MEMORY": "3g"},
                directory=before if group == [BEFORE] else ROOT,
            )
            processes.append(worker)
            workers |= dict.fromkeys(group, worker)
        run = Run({name: workers[name] for name in names}, size, expected)
        try:
            for round in range(arguments.rounds + 1):  # the first warms up
                run.all_phases(f"t{round}", arguments.reads)
                if round == 0:
                    run.seconds = {name: {} for name in workers}
                print(f"{size:,} rows: round {round} of {arguments.rounds}", flush=True)
            versions = {name: workers[name].call(name, "versions")["versions"] for name in names}
        finally:
            for worker in processes:
                worker.end()
    return {
        "rows": size,
        "seconds": medians(run.seconds),
        "all": run.seconds,
        "failures": run.failures,
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 6_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=3, help="wide scans after a phase")
    parser.add_argument(
        "--contenders",
        nargs="+",
        default=["local", "local-parquet", "delta-rs", "ducklake", "spark", "plain-orc"],
    )
    parser.add_argument("--before", type=Path, help="another checkout, as one more contender")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "bench-local")
    parser.add_argument("--work", type=Path, default=ROOT / "build")
    parser.add_argument("--fresh", type=int, default=7, help="new processes of each kind")
    arguments = parser.parse_args()
    arguments.work.mkdir(exist_ok=True)
    python = python_with(ROOT / "build" / "peers", PACKAGES)
    if python is None:
        print("delta-rs and DuckLake are left out: their packages can't be installed")
    content = {
        "date": datetime.date.today().isoformat(),
        "fresh": fresh_processes(arguments.fresh),
        "machine": machine(),
    }
    path = RESULTS / f"{content['date']}-local"
    sizes: list[dict[str, Any]] = []
    for rows in arguments.rows:
        sizes.append(measure(arguments, rows, python))
        save(path.with_suffix(".json"), {**content, "sizes": sizes})
    text = markdown({**content, "sizes": sizes})
    path.with_suffix(".md").write_text(text)
    print(text)
    if any(size["failures"] for size in sizes):
        sys.exit("an answer was wrong or missing: see the report")


if __name__ == "__main__":
    main()
