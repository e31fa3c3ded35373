"""The driver of a comparison: processes of contenders, which get each statement in turn.

A slow minute of the machine so meets all contenders. Every answer is compared with DuckDB's.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.comparison.statements import SMALL_INSERTS, WHERE, queries, sums

ROOT = Path(__file__).resolve().parents[2]
_UNCHANGED = ("change", "merge", "compact", "clean", "size")
"""Calls that a baseline is not asked for."""


class OutOfTime(Exception):
    """The time that was given has passed."""


class Worker:
    """A process of `worker.py`: contenders of one module, in one interpreter."""

    def __init__(
        self,
        module: str,
        names: Sequence[str],
        python: Path,
        home: Path,
        data: Path,
        environment: Mapping[str, str],
        log: Path | None = None,
        directory: Path = ROOT,
    ) -> None:
        """`log`: a file for what the process writes to stderr, which is ours otherwise.

        `directory`: where the process finds the library and the benchmarks.
        """
        command = [str(python), "-m", "benchmarks.comparison.worker", module, ",".join(names)]
        with ExitStack() as opened:
            self.process = subprocess.Popen(
                [*command, str(home), str(data)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=opened.enter_context(log.open("ab")) if log else None,
                text=True,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(directory), **environment},
                start_new_session=True,
            )

    def call(self, contender: str, call: str, **named: Any) -> dict[str, Any]:
        """The answer to a command. Raises RuntimeError if the process has ended."""
        stdin, stdout = cast(IO[str], self.process.stdin), cast(IO[str], self.process.stdout)
        with suppress(BrokenPipeError):
            stdin.write(json.dumps({"contender": contender, "call": call, **named}) + "\n")
            stdin.flush()
        for line in stdout:
            if line.startswith("answer "):
                answer: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return answer
        raise RuntimeError(f"the process of {contender} ended with {self.process.wait()}")

    def end(self) -> None:
        """Ends the process, by force if it does not end in a minute."""
        stdin = cast(IO[str], self.process.stdin)
        with suppress(BrokenPipeError):
            stdin.write('{"call": "end"}\n')
            stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.kill()

    def kill(self) -> None:
        """Ends the process and what it has started, such as its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


SHORT_READS = 4
"""How much more often the reads that don't take seconds are repeated: else chance decides them."""


class Run:
    """All contenders through all phases, each time on new tables.

    `baselines` are contenders that only load, read and append: their Spark normalises others.
    """

    def __init__(
        self,
        workers: dict[str, Worker],
        size: int,
        expected: dict[str, Any],
        baselines: Collection[str] = (),
        sources: str = "",
        until: float = float("inf"),
    ) -> None:
        """Contenders take sources from `sources`, a directory in the workers' data, with a slash.

        `until` is the second since the epoch at which the processes are ended.
        """
        self.workers, self.size, self.expected = dict(workers), size, expected
        self.baselines, self.until = frozenset(baselines), until
        self.sources = sources
        self.seconds: dict[str, dict[str, list[float]]] = {name: {} for name in workers}
        self.bytes: dict[str, dict[str, int]] = {name: {} for name in workers}
        self.failures: list[str] = []
        self.turn = 0

    def ending_in_time(self) -> threading.Timer:
        """A timer, not started, that ends all processes when the time has passed."""
        processes = set(self.workers.values())

        def stop() -> None:
            for worker in processes:
                worker.kill()

        timer = threading.Timer(min(self.until - time.time(), 1e6), stop)
        timer.daemon = True
        return timer

    def turns(self) -> Iterator[str]:
        """The contenders in turn, every second time in reverse order."""
        names = list(self.workers)
        self.turn += 1
        for name in names if self.turn % 2 else reversed(names):
            if name in self.workers:  # its process may have ended in this turn
                yield name

    def ask(self, name: str, call: str, **named: Any) -> dict[str, Any]:
        """A worker's answer; the contenders of a process that has ended are left out from then on.

        Raises OutOfTime.
        """
        if time.time() >= self.until:
            raise OutOfTime
        worker = self.workers[name]
        try:
            return worker.call(name, call, **named)
        except RuntimeError as error:
            if time.time() >= self.until:
                raise OutOfTime from None
            for other in [other for other, of in self.workers.items() if of is worker]:
                del self.workers[other]
            return {"error": str(error)}

    def step(self, label: str, call: str, counts: bool = True, **named: Any) -> None:
        """A command to every contender; its seconds belong to `label`."""
        if "source" in named:
            named["source"] = self.sources + named["source"]
        for name in self.turns():
            if name in self.baselines and call in _UNCHANGED:
                continue
            answer = self.ask(name, call, **named)
            if "error" in answer:
                self.failures.append(f"{name}, {label}: {answer['error']}")
            elif counts:
                self.seconds[name].setdefault(label, []).append(answer["seconds"])

    def weigh(self, label: str, table: str) -> None:
        """Notes the bytes of the table's files."""
        for name in self.turns():
            if name not in self.baselines:
                self.bytes[name][label] = self.ask(name, "size", table=table).get("bytes", 0)

    def wanted(self, name: str, phase: str) -> Any:
        """What the reads after a phase should answer: a baseline stays as it was loaded."""
        return self.expected["load" if name in self.baselines else phase]

    def check(self, phase: str, table: str) -> None:
        """Compares sums over all columns with what DuckDB computes on the raw rows."""
        for name in self.turns():
            if name in self.baselines and phase != "load":
                continue
            answer = self.ask(name, "query", table=table, text=sums("{table}"))
            wanted = self.wanted(name, phase)["sums"]
            if answer.get("row") != wanted:
                self.failures.append(f"{name}, after {phase}: {answer} instead of {wanted}")

    def reads(self, phase: str, label: str, table: str, times: int) -> None:
        for read, text in queries("{table}", self.size).items():
            for _ in range(times if read == "wide" else times * SHORT_READS):
                for name in self.turns():
                    answer = self.ask(name, "query", table=table, text=text)
                    wanted = self.wanted(name, phase)[read]
                    if answer.get("row") != wanted:
                        self.failures.append(f"{name}, {label} {read}: {answer} not {wanted}")
                    else:
                        times_of = self.seconds[name].setdefault(f"{read}, {label}", [])
                        times_of.append(answer["seconds"])

    def all_phases(
        self, table: str, reads: int, changed: str = "delete_5pct", cleaned: bool = False
    ) -> None:
        """Reads after the load, the phase `changed`, the inserts and the compaction.

        Each time it makes `reads` wide scans, and SHORT_READS times as many of the other reads.
        `cleaned`: also remove the files that compaction replaced, and weigh the table.
        """
        self.step("load", "load", table=table, source="base")
        self.check("load", table)
        if cleaned:
            self.weigh("loaded", table)
        self.reads("load", "loaded", table, reads)
        label = "5 % deleted" if changed == "delete_5pct" else "changed"
        for phase in (*WHERE, "merge"):
            if phase == "merge":
                self.step(phase, "merge", table=table, source="merge")
            else:
                self.step(phase, "change", table=table, phase=phase)
            self.check(phase, table)
            if phase == changed:
                self.reads(phase, label, table, reads)
        for number in range(SMALL_INSERTS):
            self.step("insert of 1,000 rows", "insert", table=table, source=f"small_{number:02d}")
        self.check("inserts", table)
        if cleaned:
            self.weigh("changed", table)
        self.reads("inserts", "20 inserts later", table, reads)
        self.step("compaction", "compact", table=table)
        self.check("compact", table)
        self.reads("compact", "compacted", table, reads)
        if cleaned:
            self.step("cleaning", "clean", table=table)
            self.check("compact", table)
            self.weigh("cleaned", table)
        self.step("drop", "drop", counts=False, table=table)


def medians(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {phase: statistics.median(taken) for phase, taken in phases.items()}
        for name, phases in seconds.items()
    }
