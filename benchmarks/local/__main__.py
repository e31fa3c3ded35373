"""The driver of `make bench-local`; see the package. Writes results as JSON and Markdown."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from acid_platform import Warehouse
from benchmarks.local import rows as source_rows
from benchmarks.local.contenders import PEERS
from benchmarks.local.environment import peers_python
from benchmarks.local.report import markdown
from benchmarks.local.statements import SMALL_INSERTS, WHERE, queries, sums
from benchmarks.results import machine, save

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
IN_SPARK = ("spark", "plain-orc")
"""These share a process, so that there is one JVM."""


class Worker:
    """A process of `worker.py`."""

    def __init__(self, names: Sequence[str], python: Path, home: Path, data: Path) -> None:
        command = [str(python), "-m", "benchmarks.local.worker", ",".join(names)]
        self.process = subprocess.Popen(
            [*command, str(home), str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "ACID_SPARK_MEMORY": "3g"},
        )

    def call(self, contender: str, call: str, **named: Any) -> dict[str, Any]:
        """The answer to a command. Raises RuntimeError if the process has ended."""
        stdin, stdout = cast(IO[str], self.process.stdin), cast(IO[str], self.process.stdout)
        stdin.write(json.dumps({"contender": contender, "call": call, **named}) + "\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("answer "):
                answer: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return answer
        raise RuntimeError(f"the process of {contender} ended with {self.process.wait()}")

    def end(self) -> None:
        stdin = cast(IO[str], self.process.stdin)
        stdin.write('{"call": "end"}\n')
        stdin.close()
        self.process.wait(60)


class Run:
    """All contenders through all phases, `rounds` times, each time on new tables."""

    def __init__(self, workers: dict[str, Worker], size: int, expected: dict[str, Any]) -> None:
        self.workers, self.size, self.expected = workers, size, expected
        self.seconds: dict[str, dict[str, list[float]]] = {name: {} for name in workers}
        self.failures: list[str] = []
        self.round = 0

    def turns(self) -> Iterator[str]:
        """The contenders in turn, every second time in reverse order."""
        names = list(self.workers)
        self.round += 1
        yield from names if self.round % 2 else reversed(names)

    def step(self, label: str, call: str, counts: bool = True, **named: Any) -> None:
        """A command to every contender; its seconds belong to `label`."""
        for name in self.turns():
            answer = self.workers[name].call(name, call, **named)
            if "error" in answer:
                self.failures.append(f"{name}, {label}: {answer['error']}")
            elif counts:
                self.seconds[name].setdefault(label, []).append(answer["seconds"])

    def check(self, phase: str, table: str) -> None:
        """Compares sums over all columns with what DuckDB computes on the raw rows."""
        wanted = self.expected[phase]["sums"]
        for name in self.turns():
            answer = self.workers[name].call(name, "query", table=table, text=sums("{table}"))
            if answer.get("row") != wanted:
                self.failures.append(f"{name}, after {phase}: {answer} instead of {wanted}")

    def reads(self, phase: str, label: str, table: str, times: int) -> None:
        for read, text in queries("{table}", self.size).items():
            for _ in range(times):
                for name in self.turns():
                    answer = self.workers[name].call(name, "query", table=table, text=text)
                    wanted = self.expected[phase][read]
                    if answer.get("row") != wanted:
                        self.failures.append(f"{name}, {label} {read}: {answer} not {wanted}")
                    else:
                        times_of = self.seconds[name].setdefault(f"{read}, {label}", [])
                        times_of.append(answer["seconds"])

    def all_phases(self, table: str, reads: int) -> None:
        self.step("load", "load", table=table, source="base")
        self.check("load", table)
        self.reads("load", "loaded", table, reads)
        for phase in WHERE:
            self.step(phase, "change", table=table, phase=phase)
            self.check(phase, table)
        self.reads("delete_5pct", "5 % deleted", table, reads)
        self.step("merge", "merge", table=table, source="merge")
        self.check("merge", table)
        for number in range(SMALL_INSERTS):
            self.step("insert of 1,000 rows", "insert", table=table, source=f"small_{number:02d}")
        self.check("inserts", table)
        self.reads("inserts", "20 inserts later", table, reads)
        self.step("compaction", "compact", table=table)
        self.check("compact", table)
        self.reads("compact", "compacted", table, reads)
        self.step("drop", "drop", counts=False, table=table)


def fresh_processes(times: int) -> dict[str, float]:
    """Seconds of commands in new processes: the metastore runs, as it does beside other clients."""
    acid = str(Path(sys.executable).parent / "acid")
    with TemporaryDirectory() as directory:
        environment = {**os.environ, "ACID_WAREHOUSE": f"{directory}/warehouse"}

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
        for _ in range(times):
            for name, script in scripts.items():
                taken[name].append(run(script))
        subprocess.run([acid, "metastore", "stop"], env=environment, capture_output=True)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def measure(arguments: argparse.Namespace, size: int, python: Path | None) -> dict[str, Any]:
    names = [name for name in arguments.contenders if python or name not in PEERS]
    data = arguments.data / str(size)
    source_rows.make(data, size)
    expected = json.loads((data / "expected.json").read_text())
    with TemporaryDirectory(dir=arguments.work) as home:
        processes: list[Worker] = []
        workers: dict[str, Worker] = {}
        in_spark = [name for name in names if name in IN_SPARK]
        groups = [[name] for name in names if name not in IN_SPARK]
        groups += [in_spark] if in_spark else []
        for group in groups:
            chosen = python if group[0] in PEERS else Path(sys.executable)
            worker = Worker(group, cast(Path, chosen), Path(home), data)
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
    medians = {
        name: {phase: statistics.median(taken) for phase, taken in phases.items()}
        for name, phases in run.seconds.items()
    }
    return {
        "rows": size,
        "seconds": medians,
        "all": run.seconds,
        "failures": run.failures,
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 6_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=3, help="repetitions of a read in a round")
    parser.add_argument(
        "--contenders",
        nargs="+",
        default=["local", "delta-rs", "ducklake", "spark", "plain-orc"],
    )
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "bench-local")
    parser.add_argument("--work", type=Path, default=ROOT / "build")
    parser.add_argument("--fresh", type=int, default=7, help="new processes of each kind")
    arguments = parser.parse_args()
    arguments.work.mkdir(exist_ok=True)
    python = peers_python(ROOT / "build" / "peers")
    if python is None:
        print("delta-rs and DuckLake are left out: their packages can't be installed")
    content = {
        "date": datetime.date.today().isoformat(),
        "fresh": fresh_processes(arguments.fresh),
        "sizes": [measure(arguments, size, python) for size in arguments.rows],
        "machine": machine(),
    }
    path = RESULTS / f"{content['date']}-local"
    save(path.with_suffix(".json"), content)
    text = markdown(content)
    path.with_suffix(".md").write_text(text)
    print(text)
    if any(size["failures"] for size in cast(list[dict[str, Any]], content["sizes"])):
        sys.exit("an answer was wrong or missing: see the report")


if __name__ == "__main__":
    main()
