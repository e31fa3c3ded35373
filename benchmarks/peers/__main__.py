"""The driver of the benchmark `peers`; see the package. Writes results as JSON and Markdown.

Contenders whose packages can't be had are left out, and the report says so. `--add` puts a run
beside the ones that the result of the same day and size has already: so a measurement can be taken
in parts, one contender or one round at a time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.comparison import rows as source_rows
from benchmarks.comparison.driver import ROOT, OutOfTime, Run, Worker
from benchmarks.peers.contenders import BASELINES, peer_of
from benchmarks.peers.report import markdown, merged
from benchmarks.peers.versions import CACHE, PEERS, cache_directory, python_of
from benchmarks.results import machine, save
from tests.sparks.environments import environment

DEFAULT = (
    "ours",
    "ours-auto",
    "iceberg-v3",
    "delta",
    "iceberg-v2",
    "hudi",
    "plain-orc",
    "plain-parquet",
)
MODULE = "benchmarks.peers.contenders"
WARM_ROWS = 200_000


def interpreter(contender: str, cache: Path, spark: str | None = None) -> Path | None:
    """What runs the contender, ours with this version of Spark or with the lock's.

    None if its packages can't be installed.
    """
    peer = peer_of(contender)
    if peer is not None:
        return python_of(peer, cache)
    return environment(spark, cache / "ours") if spark else Path(sys.executable)


def start(
    arguments: argparse.Namespace, home: Path, log: Path
) -> tuple[dict[str, Worker], dict[str, dict[str, Any]], dict[str, str]]:
    """Workers by contender and baseline; their versions and settings; why others are missing."""
    workers: dict[str, Worker] = {}
    told: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    variables = {"ACID_SPARK_MEMORY": "2g", "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    cache = arguments.cache
    for name in arguments.contenders:
        python = interpreter(name, cache, arguments.spark)
        if python is None:
            peer = peer_of(name)
            spark = PEERS[peer].spark if peer else arguments.spark
            missing[name] = f"PySpark {spark} can't be installed into {cache}"
            continue
        group = [name]
        if not name.startswith("plain-"):
            group += [f"{baseline}@{name}" for baseline in arguments.baselines]
        variables |= {"PYSPARK_PYTHON": str(python), CACHE: str(cache)}
        worker = Worker(MODULE, group, python, home, arguments.data, variables, log)
        try:
            told[name] = worker.call(name, "versions")
        except RuntimeError:
            worker.kill()
            missing[name] = f"its process ended at once, see {log}: are its jars to be had?"
            continue
        workers |= dict.fromkeys(group, worker)
    for name, why in missing.items():
        print(f"{name} is left out: {why}", flush=True)
    return workers, told, missing


def measure(arguments: argparse.Namespace, size: int) -> dict[str, Any]:
    """The result of one run at one size."""
    warm = min(size, arguments.warm)
    for rows in {size, warm}:
        source_rows.make(arguments.data / str(rows), rows)
    log = arguments.work / "bench-peers.log"
    with TemporaryDirectory(dir=arguments.work) as directory:
        workers, told, missing = start(arguments, Path(directory), log)
        if not workers:
            sys.exit("no contender could be started")
        beside = [name for name in workers if "@" in name]
        runs: list[Run] = []
        failures: list[str] = []
        started = set(workers.values())
        try:
            for number in range(arguments.rounds + 1):  # the first warms up
                rows = size if number else warm
                expected = json.loads((arguments.data / str(rows) / "expected.json").read_text())
                run = Run(workers, rows, expected, beside, f"{rows}/", arguments.until)
                timer = run.ending_in_time()
                timer.start()
                runs += [run] if number else []
                began = time.monotonic()
                try:
                    run.all_phases(f"t{number}", arguments.reads, changed="merge", cleaned=True)
                finally:
                    timer.cancel()
                    failures += run.failures
                workers = run.workers
                spent = time.monotonic() - began
                print(f"{rows:,} rows: round {number} of {arguments.rounds}, {spent:.0f} s")
                for failure in run.failures:
                    print(f"WRONG: {failure}", flush=True)
        except OutOfTime:
            print("the time is over: the last round is not complete", flush=True)
        finally:
            for worker in started:
                worker.end()
    return {
        "rows": size,
        "seconds": _joined([run.seconds for run in runs]),
        "bytes": {name: of for run in runs for name, of in run.bytes.items() if of},
        "failures": failures,
        "missing": missing,
        "versions": {name: answer["versions"] for name, answer in told.items()},
        "settings": {name: answer["settings"] for name, answer in told.items()},
        "machine": machine(),
        "commit": _commit(),
    }


def _joined(rounds: Sequence[dict[str, dict[str, list[float]]]]) -> dict[str, Any]:
    joined: dict[str, dict[str, list[float]]] = {}
    for seconds in rounds:
        for name, phases in seconds.items():
            for phase, taken in phases.items():
                joined.setdefault(name, {}).setdefault(phase, []).extend(taken)
    return joined


def _commit() -> str:
    shown = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return shown.stdout.strip()


def absolute(text: str) -> Path:
    """The path of an argument: workers run in another directory."""
    return Path(text).absolute()


def moment(text: str) -> float:
    """The next time that a clock shows HH:MM, in seconds since the epoch."""
    now = datetime.datetime.now()
    hour, minute = map(int, text.split(":"))
    wanted = now.replace(hour=hour, minute=minute, second=0)
    return (wanted + datetime.timedelta(days=wanted < now)).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 2_000_000, 20_000_000])
    parser.add_argument("--warm", type=int, default=WARM_ROWS, help="rows of the warm-up")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--reads", type=int, default=3, help="wide scans after a phase")
    parser.add_argument("--contenders", nargs="+", default=DEFAULT, choices=DEFAULT)
    parser.add_argument("--spark", help="the version of Spark for ours; the lock's by default")
    parser.add_argument("--baselines", nargs="*", default=BASELINES, choices=BASELINES)
    parser.add_argument(
        "--until", type=moment, default=math.inf, help="HH:MM: the run ends by then"
    )
    parser.add_argument("--add", action="store_true", help="to the results of the day and size")
    parser.add_argument("--cache", type=absolute, default=cache_directory(), help=f"or {CACHE}")
    parser.add_argument("--data", type=absolute, default=ROOT / "build" / "comparison")
    parser.add_argument("--work", type=absolute, default=ROOT / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    arguments.work.mkdir(exist_ok=True)
    os.environ.setdefault("TZ", "UTC")
    wrong = False
    for size in arguments.rows:
        content = measure(arguments, size)
        wrong |= bool(content["failures"])
        if not content["seconds"]:
            sys.exit(f"{size:,} rows: nothing was measured in time, so no result was written")
        content = {"date": datetime.date.today().isoformat(), **content}
        beside = f"-spark-{arguments.spark}" if arguments.spark else ""
        path = arguments.out / f"{content['date']}-peers-{size}{beside}.json"
        if arguments.add and path.exists():
            content = merged(json.loads(path.read_text()), content)
        save(path, content)
        text = markdown(content)
        path.with_suffix(".md").write_text(text)
        print(text)
    if wrong:
        sys.exit("an answer was wrong or missing: see the report")


if __name__ == "__main__":
    main()
