"""What each of Spark's tasks runs for a write, and for a compaction.

Executors import this module, so it imports little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from acid_platform.layout.names import parse_directory, temporary_name
from acid_platform.write.task_files import StagedFile, TaskTarget, write_task

if TYPE_CHECKING:
    from acid_platform.compaction.rewrite import Rewrite, Rewritten


def answers(texts: Iterable[str]) -> pa.RecordBatch:
    """What a task answers, as Spark takes it."""
    return pa.RecordBatch.from_pydict({"answer": pa.array(list(texts), pa.string())})


def write_rows(target: TaskTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows; answers a record of each file, and last one of the rows received."""
    context = TaskContext.get()
    assert context is not None
    for output in write_task(target, context.partitionId(), context.taskAttemptId(), batches):
        if isinstance(output, StagedFile):
            yield answers([json.dumps({"file": output.packed()})])
        else:
            received = output.inserted, output.deleted, output.updated, output.repeated
            yield answers([json.dumps({"received": received})])


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
    from acid_platform.compaction.execution import rewritten  # not for a write

    context = TaskContext.get()
    assert context is not None
    name = task.output.rpartition("/")[2]
    own = f"{attempts(task)}/{name}-{context.taskAttemptId()}"
    return rewritten(replace(task, output=own))
