"""What Spark's tasks do for a compaction. Executors import this module, so it imports little."""

from __future__ import annotations

from dataclasses import replace

from pyspark import TaskContext

from acid_platform.engine.compaction import rewritten
from acid_platform.storage.rewrite import Rewrite, Rewritten


def attempts(task: Rewrite) -> str:
    """The directory for what attempts of the task write: staged, and not among the outputs."""
    return f"{task.output.rsplit('/', 2)[0]}/_attempts"


def rewritten_by_attempt(task: Rewrite) -> Rewritten:
    """Writes the output under a name that no other attempt of the Spark task uses.

    Two attempts may run at once, by speculation or if the driver has lost an executor that lives.
    """
    context = TaskContext.get()
    assert context is not None
    name = task.output.rpartition("/")[2]
    own = f"{attempts(task)}/{name}-{context.taskAttemptId()}"
    return rewritten(replace(task, output=own))
