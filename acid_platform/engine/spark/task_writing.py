"""Work of ours in Spark's tasks: rows go in, one small record for each file comes out.

Executors import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from acid_platform.storage.task_files import Received, StagedFile, TaskTarget, write_task

_ANSWER = "path string, partition string, deletes boolean, record string, received array<bigint>"
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


def write_in_tasks(frame: DataFrame, target: TaskTarget) -> tuple[list[StagedFile], Received]:
    """The files that the tasks have written, and the rows that they received.

    Only what the last attempt of each task wrote is among the files. Raises Spark's exceptions.
    """
    found = frame.mapInArrow(partial(_run, target), _ANSWER).collect()
    return (
        [StagedFile.unpacked(*row[:4]) for row in found if row["path"] is not None],
        sum((Received(*row["received"]) for row in found if row["path"] is None), Received()),
    )


def _run(target: TaskTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def in_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    """The results of `work` for each number below `count`, each computed in its own Spark task.

    Raises Spark's exceptions.
    """
    if not count:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [work(index) for index in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.string())})

    frame = spark.range(0, count, 1, count).mapInArrow(run, "result string")
    return [row["result"] for row in frame.collect()]
