"""The benchmark `local-profile`: where the seconds of each statement of the local engine go.

The statements of the benchmark `local`, in this process, on two threads. A statement's CPU is of
all threads of the process (not of the metastore's). Decoding is what Arrow's ORC reader takes of
it, without Arrow's scanner, by which a compaction merges. Encoding is what the columns of a new
ORC file take, and the rest is DuckDB's and Python's. Of the calls to the metastore and of the
syncs the report has seconds by the clock: the caller waits.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.orc

from acid_platform.formats.orc import writer
from acid_platform.metastore.client.link import Link
from benchmarks.comparison import rows as source_rows
from benchmarks.comparison.contender import Ours
from benchmarks.comparison.driver import ROOT
from benchmarks.comparison.statements import SMALL_INSERTS, WHERE, queries
from benchmarks.comparison.texts import canonical
from benchmarks.results import options, saved

Measured = dict[str, float]
"""Seconds of a statement by part."""
PARTS = ("wall", "CPU", "decoding", "encoding", "metastore", "sync")
_LABELS = {"load": "loaded", "delete_5pct": "5 % deleted", "insert": "20 inserts later"}
_PHASES = {"insert": "inserts"}
"""Statements after which the reads are measured; what the expected answers call the latter."""


class Recorder:
    """Seconds by part, of the calls that it has wrapped."""

    def __init__(self) -> None:
        self.parts: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self.of: defaultdict[str, list[Measured]] = defaultdict(list)
        for method in ("read", "read_stripe"):
            self._wrap(pyarrow.orc.ORCFile, method, "decoding", time.thread_time)
        self._wrap(Link, "_exchange", "metastore", time.perf_counter)
        self._wrap(os, "fsync", "sync", time.perf_counter)
        self._wrap(os, "fdatasync", "sync", time.perf_counter)
        submitted = writer._submitted
        writer._submitted = lambda pool, job: submitted(
            pool, self._timed(job, "encoding", time.thread_time)
        )

    def _timed(
        self, call: Callable[..., Any], part: str, clock: Callable[[], float]
    ) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            began = clock()
            try:
                return call(*given, **named)
            finally:
                with self._lock:
                    self.parts[part] += clock() - began

        return timed

    def _wrap(self, owner: Any, name: str, part: str, clock: Callable[[], float]) -> None:
        setattr(owner, name, self._timed(getattr(owner, name), part, clock))

    @contextmanager
    def recorded(self, name: str) -> Iterator[None]:
        self.parts.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        taken = {"wall": time.perf_counter() - wall, "CPU": time.process_time() - cpu}
        self.of[name].append({part: self.parts[part] for part in PARTS} | taken)


def run_round(ours: Ours, table: str, rows: int, expected: Any, recorder: Recorder) -> None:
    """All statements on a new table. Raises RuntimeError for a wrong answer."""
    small = [ours.source(f"small_{number:02d}") for number in range(SMALL_INSERTS)]
    base, merged = ours.source("base"), ours.source("merge")
    statements: dict[str, list[Callable[[], None]]] = {
        "load": [lambda: ours.load(table, base)],
        **{phase: [lambda phase=phase: ours.change(table, phase)] for phase in WHERE},  # type: ignore[misc]
        "merge": [lambda: ours.merge(table, merged)],
        "insert": [lambda frame=frame: ours.insert(table, frame) for frame in small],  # type: ignore[misc]
        "compaction": [lambda: ours.compact(table)],
    }
    for statement, runs in statements.items():
        for run in runs:
            with recorder.recorded(statement):
                run()
        for read, text in queries("{table}", rows).items() if statement in _LABELS else ():
            for _ in range(3):
                with recorder.recorded(f"{read}, {_LABELS[statement]}"):
                    answer = ours.query(table, text)
            wanted = expected[_PHASES.get(statement, statement)][read]
            if canonical(answer) != wanted:
                raise RuntimeError(f"{read} after {statement}: {answer}")
    ours.drop(table)


def measure(rows: int, rounds: int, data: Path, work: Path) -> dict[str, Measured]:
    """Medians of the rounds, after one that warms up."""
    source_rows.make(data / str(rows), rows)
    expected = json.loads((data / str(rows) / "expected.json").read_text())
    recorder = Recorder()
    with TemporaryDirectory(dir=work) as home:
        ours = Ours(Path(home), data / str(rows))
        try:
            for number in range(rounds + 1):
                run_round(ours, f"t{number}", rows, expected, recorder)
                if number == 0:
                    recorder.of.clear()
        finally:
            ours.close()
    return {
        name: {part: statistics.median(one[part] for one in taken) for part in PARTS}
        for name, taken in recorder.of.items()
    }


def markdown(rows: int, found: dict[str, Measured]) -> str:
    """Milliseconds; the last column says how many threads worked, on average."""
    lines = [f"## {rows:,} rows", "", "Milliseconds.", ""]
    columns = ("wall", "CPU", "of it decoding", "encoding", "other", "metastore", "sync")
    lines += [f"| | {' | '.join(columns)} | CPU / wall |", "|---" + "|---:" * 8 + "|"]
    for name, parts in found.items():
        other = parts["CPU"] - parts["decoding"] - parts["encoding"]
        numbers = [parts["wall"], parts["CPU"], parts["decoding"], parts["encoding"], other]
        numbers += [parts["metastore"], parts["sync"]]
        cells = [f"{1000 * number:.1f}" for number in numbers]
        lines.append(f"| {name} | {' | '.join(cells)} | {parts['CPU'] / parts['wall']:.2f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    given = options(__doc__, rows=2_000_000, rounds=3)
    work = ROOT / "build"
    work.mkdir(exist_ok=True)
    found = measure(given.rows, given.rounds, work / "bench-local", work)
    saved(given, f"local-profile-{given.rows}", statements=found)
    print(markdown(given.rows, found))
