"""Recording a statement: calls that leave Python, samples of the main thread, Spark's jobs, CPU."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from benchmarks.profile.jvm import Jvm

Interval = tuple[float, float]
"""Seconds since the epoch."""
PERIOD = 0.001
"""Seconds between samples of the Python stack."""

RELEASE = "m\nd\n"
"""The start of py4j's command that Python does not need an object of the JVM any more."""


@dataclass(slots=True)
class Calls:
    """Calls of one kind."""

    number: int = 0
    intervals: list[Interval] = field(default_factory=list)
    """Of the main thread only."""
    callers: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each call by the platform's function that caused it, or the metastore's operation.
    """


class Counted:
    """Counts and times the calls that leave this process's Python, from construction on."""

    def __init__(self) -> None:
        self.kinds = {kind: Calls() for kind in ("jvm", "release", "metastore", "sync")}
        from py4j.java_gateway import GatewayClient

        self._wrap(GatewayClient, "send_command", "jvm")
        self._wrap(os, "fsync", "sync")
        self._wrap(os, "fdatasync", "sync")
        if "acid_platform" in sys.modules:
            from acid_platform.metastore.client.link import Link

            self._wrap(Link, "_exchange", "metastore")

    def _wrap(self, owner: Any, name: str, kind: str) -> None:
        inner: Callable[..., Any] | None = getattr(owner, name, None)
        if inner is None:  # macOS has no fdatasync
            return
        main = threading.main_thread()

        def counted(*args: Any, **named: Any) -> Any:
            began = time.time()
            try:
                return inner(*args, **named)
            finally:
                release = kind == "jvm" and str(args[1]).startswith(RELEASE)
                calls = self.kinds["release" if release else kind]
                calls.number += 1
                ended = time.time()
                if threading.current_thread() is main:
                    calls.intervals.append((began, ended))
                calls.callers[_cause(kind, args)].append(ended - began)

        setattr(owner, name, counted)

    def reset(self) -> None:
        for kind in self.kinds:
            self.kinds[kind] = Calls()


def _cause(kind: str, args: Sequence[Any]) -> str:
    """What a call is counted under: our innermost function, or the metastore's operation."""
    if kind == "metastore":
        return str(args[1].operation.op)
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("acid_platform."):
            return f"{module.removeprefix('acid_platform.')}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "no function of ours"


class Sampler(threading.Thread):
    """Samples the main thread's stack; a stack is its frames from the outermost on."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self.samples: list[tuple[float, tuple[str, ...]]] = []
        self._end = threading.Event()
        self._main = threading.main_thread().ident or 0

    def run(self) -> None:
        while not self._end.wait(PERIOD):
            frame = sys._current_frames().get(self._main)
            if frame is not None:
                self.samples.append((time.time(), tuple(reversed(list(_frames(frame))))))

    def stop(self) -> list[tuple[float, tuple[str, ...]]]:
        """The seconds since the epoch and the stack of each sample."""
        self._end.set()
        self.join()
        return self.samples


def _frames(frame: FrameType | None) -> Iterator[str]:
    """`module:function` from the innermost frame on, down to the statement's call."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "?"))
        if module.startswith("benchmarks.profile."):
            return
        yield f"{module}:{frame.f_code.co_name}"
        frame = frame.f_back


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU seconds of a process by the names of its threads; only Linux names them."""
    tasks = Path("/proc", str(pid), "task")
    if not tasks.is_dir():
        times = psutil.Process(pid).cpu_times()
        return {"?": float(times.user + times.system)}
    found: Counter[str] = Counter()
    for task in tasks.iterdir():
        try:
            name = (task / "comm").read_text().strip()
            spent = int((task / "schedstat").read_text().split()[0])
        except OSError:  # the thread has ended
            continue
        found[name] += spent
    return {name: spent / 1e9 for name, spent in found.items()}


def cpu_now() -> dict[str, dict[str, float]]:
    """CPU seconds by thread name of Python, its JVM, Spark's Python workers and the metastore."""
    own = psutil.Process()
    now = {"python": {"all": time.process_time()}}
    for child in own.children(recursive=True):
        try:
            if child.name() == "java":
                now["jvm"] = thread_seconds(child.pid)
            else:
                spent = child.cpu_times()
                kind = "metastore" if "acid_platform.metastore" in child.cmdline() else "workers"
                into = now.setdefault(kind, {"all": 0.0})
                into["all"] += spent.user + spent.system
        except psutil.Error:
            continue
    return now


@dataclass(slots=True)
class Recording:
    """What was recorded of some executions of a statement."""

    times: list[float] = field(default_factory=list)
    """Wall clock seconds of an execution, for each block."""
    executions: int = 0
    parts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Sums over the executions: seconds and counts."""
    stacks: Counter[tuple[str, ...]] = field(default_factory=Counter)
    own: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """The stacks while neither a job ran nor a call was out."""
    cpu: dict[str, defaultdict[str, float]] = field(default_factory=dict)
    jfr: list[str] = field(default_factory=list)
    callers: dict[str, defaultdict[str, list[float]]] = field(
        default_factory=lambda: {kind: defaultdict(list) for kind in ("jvm", "metastore")}
    )
    """Seconds of each call by its cause."""


class Recorder:
    """Records statements of this process's Spark session."""

    def __init__(self, jvm: Jvm, directory: Path) -> None:
        self.jvm, self.directory = jvm, directory
        self.counted = Counted()
        self.of: dict[str, Recording] = {}
        sys.setswitchinterval(PERIOD / 2)

    @contextmanager
    def recorded(self, statement: str, executions: int) -> Iterator[None]:
        """Adds what happens in the block, the executions of a statement, to its recording."""
        recording = self.of.setdefault(statement, Recording())
        file = str(self.directory / f"{statement.replace(' ', '-')}-{len(recording.times)}.jfr")
        self.jvm.start_recording()
        jobs_before = self.jvm.next_job()
        cpu = cpu_now()
        self.counted.reset()
        sampler = Sampler()
        sampler.start()
        began = time.time()
        yield
        ended = time.time()
        stacks = sampler.stop()
        kinds = dict(self.counted.kinds)
        self.counted.reset()
        _add_cpu(recording, cpu, cpu_now())
        if self.jvm.stop_recording(file):
            recording.jfr.append(file)
        recording.times.append((ended - began) / executions)
        recording.executions += executions
        jobs = self.jvm.jobs_since(jobs_before)
        elsewhere = [job.interval for job in jobs]
        elsewhere += kinds["metastore"].intervals + kinds["jvm"].intervals
        recording.stacks.update(stack for _, stack in stacks)
        recording.own.update(own(stacks, elsewhere))
        parts = recording.parts
        parts["jvm calls"] += kinds["jvm"].number
        parts["releases"] += kinds["release"].number
        parts["metastore calls"] += kinds["metastore"].number
        parts["syncs"] += kinds["sync"].number
        for kind in ("jvm", "metastore"):
            for cause, taken in kinds[kind].callers.items():
                recording.callers[kind][cause] += taken
        for name, seconds in divided(
            began,
            ended,
            [job.interval for job in jobs],
            kinds["metastore"].intervals,
            kinds["jvm"].intervals,
        ).items():
            parts[f"seconds in {name}"] += seconds
        for job in jobs:
            parts["jobs"] += 1
            for name, value in job.figures.items():
                parts[name] += value


def _add_cpu(
    recording: Recording, before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]
) -> None:
    for process, threads in after.items():
        into = recording.cpu.setdefault(process, defaultdict(float))
        for name, spent in threads.items():
            # Less than before: threads or processes of this name have ended.
            into[name] += max(0.0, spent - before.get(process, {}).get(name, 0.0))


def divided(
    began: float,
    ended: float,
    jobs: Sequence[Interval],
    metastore: Sequence[Interval],
    jvm: Sequence[Interval],
) -> dict[str, float]:
    """The seconds from `began` to `ended`: in jobs, else in the metastore, else in the JVM.

    Python waits for a job in a call of the JVM, or at the socket of its result.
    """
    sums = [0.0]
    intervals: list[Interval] = []
    for more in (jobs, metastore, jvm):
        intervals += [(max(start, began), min(stop, ended)) for start, stop in more]
        sums.append(total([(start, stop) for start, stop in intervals if start < stop]))
    return {name: sums[at + 1] - sums[at] for at, name in enumerate(("jobs", "metastore", "jvm"))}


def own(
    samples: Sequence[tuple[float, tuple[str, ...]]], elsewhere: Sequence[Interval]
) -> Iterator[tuple[str, ...]]:
    """The stacks of the samples, in order of time, that are in none of the intervals."""
    last, at, ordered = float("-inf"), 0, sorted(elsewhere)
    for moment, stack in samples:
        while at < len(ordered) and ordered[at][0] <= moment:
            last = max(last, ordered[at][1])
            at += 1
        if moment > last:
            yield stack


def total(intervals: Sequence[Interval]) -> float:
    """Seconds that are in any of the intervals."""
    seconds, last = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        seconds += max(0.0, stop - max(start, last))
        last = max(last, stop)
    return seconds
