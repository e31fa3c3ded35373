"""One contender's statements, recorded, in the contender's own interpreter; writes a JSON file."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.comparison.statements import SMALL_INSERTS, WHERE, queries, sums
from benchmarks.comparison.texts import canonical
from benchmarks.peers.contenders import CONTENDERS
from benchmarks.profile.classes import jvm_part, shares, thread_group
from benchmarks.profile.jvm import Jvm, samples
from benchmarks.profile.recorder import Recorder, Recording

READS = ("wide", "narrow", "count", "selective")
STATEMENTS = ("load", "update", "delete_one", "delete_5pct", "merge", "insert", "compaction")
"""In the order of a round; reads follow the load, MERGE and the inserts."""
TASK = "org.apache.spark.executor.Executor$TaskRunner"


class Round:
    """A round of the comparison with other formats, of which some statements are recorded."""

    def __init__(
        self, contender: Any, data: Path, rows: int, wanted: Sequence[str], reads: int
    ) -> None:
        self.contender, self.rows, self.wanted, self.reads = contender, rows, wanted, reads
        self.directory = data / str(rows)
        self.expected = json.loads((self.directory / "expected.json").read_text())

    def source(self, name: str) -> Any:
        return self.contender.source(f"{self.rows}/{name}")

    def run(self, table: str, recorder: Recorder | None) -> None:
        """`recorder`: None to warm up. Raises RuntimeError for a wrong answer."""
        left = [name for name in self.wanted if name not in READS]
        last = max((STATEMENTS.index(name) for name in left), default=0)
        if set(self.wanted) & set(READS):
            last = max(last, STATEMENTS.index("insert"))
        for statement in STATEMENTS[: last + 1]:
            phase = {"insert": "inserts", "compaction": "compact"}.get(statement, statement)
            runs = self._runs(table, statement)
            self._recorded(statement, statement in self.wanted, runs, recorder)
            self._check(table, phase)
            label = {"load": "loaded", "merge": "changed", "insert": "20 inserts later"}
            for read in READS if statement in label else ():
                runs = [self._read(table, read, phase)] * self.reads
                if read in self.wanted:
                    self._recorded(f"{read}, {label[statement]}", True, runs, recorder)
        self.contender.drop(table)

    def _runs(self, table: str, statement: str) -> list[Callable[[], object]]:
        """The executions of a statement; sources are opened before."""
        contender = self.contender
        if statement in WHERE:
            return [lambda: contender.change(table, statement)]
        if statement == "compaction":
            return [lambda: contender.compact(table)]
        if statement == "insert":
            small = [self.source(f"small_{number:02d}") for number in range(SMALL_INSERTS)]
            return [lambda rows=rows: contender.insert(table, rows) for rows in small]  # type: ignore[misc]
        rows = self.source("base" if statement == "load" else "merge")
        return [lambda: getattr(contender, statement)(table, rows)]

    def _read(self, table: str, read: str, phase: str) -> Callable[[], object]:
        text = queries("{table}", self.rows)[read]

        def run() -> None:
            found = canonical(self.contender.query(table, text))
            if found != self.expected[phase][read]:
                raise RuntimeError(f"{read} after {phase}: {found}")

        return run

    def _check(self, table: str, phase: str) -> None:
        found = canonical(self.contender.query(table, sums("{table}")))
        if found != self.expected[phase]["sums"]:
            raise RuntimeError(f"wrong rows after {phase}: {found}")

    @staticmethod
    def _recorded(
        name: str, wanted: bool, runs: Sequence[Callable[[], object]], recorder: Recorder | None
    ) -> None:
        if recorder is None or not wanted:
            for run in runs:
                run()
            return
        with recorder.recorded(name, len(runs)):
            for run in runs:
                run()


def summary(recording: Recording, cores: int) -> dict[str, Any]:
    """Seconds and counts of an execution, on average, and the samples of the stacks."""
    tasks: Counter[str] = Counter()
    stacks: Counter[tuple[str, ...]] = Counter()
    for file in recording.jfr:
        for thread, stack in samples(file):
            # A task's thread carries the task's name, which Linux may not show.
            running = any(frame.startswith(TASK) for frame in stack)
            group = "tasks" if running else thread_group(thread)
            stacks[(group, *stack)] += 1
            if group == "tasks":
                tasks[jvm_part(stack)] += 1
    number = recording.executions
    by_name: defaultdict[str, float] = defaultdict(float)
    cpu: defaultdict[str, float] = defaultdict(float)
    for process, threads in recording.cpu.items():
        for name, spent in threads.items():
            if process == "jvm":
                by_name[re.sub(r"\d+", "N", name)] += spent / number
                cpu[f"JVM: {thread_group(name)}"] += spent / number
            else:
                cpu[process] += spent / number
    return {
        "executions": number,
        "wall": recording.times,
        "cores": cores,
        "parts": {name: value / number for name, value in recording.parts.items()},
        "python": shares(recording.own),
        "cpu": dict(cpu),
        "callers": {
            kind: {cause: [len(all) / number, sum(all) / number] for cause, all in of.items()}
            for kind, of in recording.callers.items()
        },
        "threads": {name: spent for name, spent in by_name.items() if spent > 0.001},
        "tasks": {name: count / tasks.total() for name, count in tasks.items()},
        "samples": tasks.total(),
        "stacks": {
            "python": {";".join(stack): count for stack, count in recording.stacks.items()},
            "jvm": {";".join(stack): count for stack, count in stacks.items()},
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--warm", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--reads", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--statements", nargs="+", required=True)
    given = parser.parse_args()
    with TemporaryDirectory(dir=given.work) as home:
        contender: Any = CONTENDERS[given.contender](Path(home, "tables"), given.data)
        try:
            spark = contender.spark
            rounds = [
                Round(contender, given.data, rows, given.statements, given.reads)
                for rows in (given.warm, given.rows)
            ]
            rounds[0].run("warm", None)
            recorder = Recorder(Jvm(spark), Path(home))
            for number in range(given.rounds):
                rounds[1].run(f"t{number}", recorder)
                print(f"{given.contender}: round {number + 1} of {given.rounds}", flush=True)
            cores = spark.sparkContext.defaultParallelism
            versions = contender.versions()
        finally:
            contender.close()
        content = {name: summary(recording, cores) for name, recording in recorder.of.items()}
    given.out.write_text(json.dumps({"versions": versions, "statements": content}))


if __name__ == "__main__":
    main()
