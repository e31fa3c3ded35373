"""What each of Spark's tasks runs for a write.

Executors import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from acid_platform.write.task_files import StagedFile, TaskTarget, write_task

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.string()),
        ("deletes", pa.bool_()),
        ("record", pa.string()),
        ("received", pa.list_(pa.int64())),
    ]
)
"""A file, or with NULLs the rows that a task has received."""


def write_rows(target: TaskTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows; yields a record of each file, and last one of the rows received."""
    context = TaskContext.get()
    assert context is not None
    for one in write_task(target, context.partitionId(), context.taskAttemptId(), batches):
        answer = (
            (*one.packed(), None)
            if isinstance(one, StagedFile)
            else (None, None, None, None, [one.inserted, one.deleted, one.updated])
        )
        yield pa.RecordBatch.from_pylist(
            [dict(zip(_SCHEMA.names, answer, strict=True))], schema=_SCHEMA
        )
