"""What each of Spark's tasks runs for a write.

Executors import this module, so it imports little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from acid_platform.write.task_files import StagedFile, TaskTarget, write_task


def answers(texts: Iterable[str]) -> pa.RecordBatch:
    """What a task answers, as Spark takes it."""
    return pa.RecordBatch.from_pydict({"answer": pa.array(list(texts), pa.string())})


def write_rows(target: TaskTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows; answers a record of each file, and last one of the rows received."""
    context = TaskContext.get()
    assert context is not None
    for one in write_task(target, context.partitionId(), context.taskAttemptId(), batches):
        if isinstance(one, StagedFile):
            yield answers([json.dumps({"file": one.packed()})])
        else:
            received = one.inserted, one.deleted, one.updated, one.repeated
            yield answers([json.dumps({"received": received})])
