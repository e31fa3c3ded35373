"""What the JVM of a Spark session tells: the figures of its jobs, and recordings of its stacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = {"jdk.ExecutionSample": "10 ms", "jdk.NativeMethodSample": "10 ms"}
"""Samples of threads that run Java code, and of those that run native code or wait in it."""


@dataclass(frozen=True, slots=True)
class Job:
    interval: tuple[float, float]
    """Submission and completion, in seconds since the epoch."""
    figures: dict[str, float]
    """Of all its stages; seconds, bytes and counts."""


class Jvm:
    """The JVM behind a classic session."""

    def __init__(self, spark: Any) -> None:
        self._java = spark.sparkContext._jvm
        self._context = spark.sparkContext._jsc.sc()
        self._recording: Any = None
        self._seen: set[int] = set()

    # --- jobs ---------------------------------------------------------------------------------

    def next_job(self) -> int:
        """The id of the next job."""
        return int(self._context.dagScheduler().numTotalJobs())

    def jobs_since(self, first: int) -> list[Job]:
        """The jobs with this and higher ids, once Spark has noted their end."""
        self._context.listenerBus().waitUntilEmpty()
        store = self._context.statusStore()
        return [self._job(store, number) for number in range(first, self.next_job())]

    def _job(self, store: Any, number: int) -> Job:
        job = store.job(number)
        figures: defaultdict[str, float] = defaultdict(float)
        stages = job.stageIds()
        for at in range(stages.length()):
            stage = int(stages.apply(at))
            if stage in self._seen:  # another job has computed it
                continue
            data = store.lastStageAttempt(stage)
            if not data.numCompleteTasks():
                continue
            self._seen.add(stage)
            figures["stages"] += 1
            figures["tasks"] += data.numCompleteTasks()
            figures["task seconds"] += data.executorRunTime() / 1e3
            figures["task CPU seconds"] += data.executorCpuTime() / 1e9
            figures["GC seconds of tasks"] += data.jvmGcTime() / 1e3
            figures["bytes read"] += data.inputBytes()
            figures["bytes written"] += data.outputBytes()
            figures["bytes shuffled"] += data.shuffleWriteBytes()
            figures["bytes spilled"] += data.diskBytesSpilled()
        began, ended = (
            moment.get().getTime() / 1e3 for moment in (job.submissionTime(), job.completionTime())
        )
        return Job((began, ended), dict(figures))

    # --- stacks -------------------------------------------------------------------------------

    def start_recording(self) -> None:
        """Starts a flight recording, if this JVM has the module for it."""
        settings = self._java.java.util.HashMap()
        for event, period in EVENTS.items():
            settings.put(f"{event}#enabled", "true")
            settings.put(f"{event}#period", period)
        try:
            self._recording = self._java.jdk.jfr.Recording(settings)
            self._recording.start()
        except Exception:  # without the module, the CPU time of thread groups remains
            self._recording = None

    def stop_recording(self, file: str) -> bool:
        """Writes the recording to the file; False if there is none."""
        if self._recording is None:
            return False
        self._recording.stop()
        self._recording.dump(self._java.java.io.File(file).toPath())
        self._recording.close()
        return True


def samples(file: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The thread's name and the stack, from the outermost frame on, of each sample in a recording.

    Yields nothing without the command `jfr`, which a JDK has.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "jfr")) if home else shutil.which("jfr")
    if command is None or not Path(command).exists():
        return
    shown = subprocess.run(
        [command, "print", "--json", "--stack-depth", "64", "--events", ",".join(EVENTS), file],
        capture_output=True,
        check=True,
    )
    for event in json.loads(shown.stdout)["recording"]["events"]:
        values = event["values"]
        frames = tuple(
            f"{frame['method']['type']['name'].replace('/', '.')}:{frame['method']['name']}"
            for frame in reversed((values["stackTrace"] or {"frames": []})["frames"])
        )
        if event["type"].endswith("NativeMethodSample") and not _works(frames):
            continue
        yield (values["sampledThread"] or {}).get("javaName") or "?", frames


_NATIVE_WORK = (
    "java.util.zip.",
    "com.github.luben.zstd.",
    "org.xerial.snappy.",
    "net.jpountz.",
    "java.io.File",
    "sun.nio.ch.FileDispatcherImpl",
    "java.io.UnixFileSystem",
    "sun.nio.fs.UnixNativeDispatcher",
)


def _works(frames: tuple[str, ...]) -> bool:
    """Whether native code computes or handles files: most of it waits for a socket."""
    return bool(frames) and frames[-1].startswith(_NATIVE_WORK)
