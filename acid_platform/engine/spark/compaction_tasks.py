"""What Spark's tasks do for a compaction. Executors import this module, so it imports little."""

from __future__ import annotations

from dataclasses import replace

from pyspark import TaskContext

from acid_platform.compaction.execution import rewritten
from acid_platform.compaction.rewrite import Rewrite, Rewritten
from acid_platform.layout.names import parse_directory, temporary_name


def attempts(task: Rewrite) -> str:
    """The directory for what attempts of the task write, beside the output directory.

    Its name tells the compaction's transaction, if the output's does: then the Cleaner removes what
    a driver that died has left in an object store.
    """
    beside, directory, _ = task.output.rsplit("/", 2)
    name = parse_directory(directory)
    if name is None or not name.visibility:
        return f"{beside}/_attempts"
    return f"{beside}/{temporary_name(name.visibility, 'attempts')}"


def rewritten_by_attempt(task: Rewrite) -> Rewritten:
    """Writes the output under a name that no other attempt of the Spark task uses.

    Two attempts may run at once, by speculation or if the driver has lost an executor that lives.
    """
    context = TaskContext.get()
    assert context is not None
    name = task.output.rpartition("/")[2]
    own = f"{attempts(task)}/{name}-{context.taskAttemptId()}"
    return rewritten(replace(task, output=own))
