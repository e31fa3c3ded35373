"""INSERT OVERWRITE DIRECTORY in Spark's tasks: one file for each that has rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.few_calls import mapped_in_arrow
from acid_platform.engine.spark.task_body import answers
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column
from acid_platform.write.exported_file import write_exported

_ANSWER = T.StructType([T.StructField("answer", T.StringType())])


def export_in_tasks(
    frame: DataFrame, location: str, prefix: str, columns: Sequence[Column], stored: FileFormat
) -> dict[str, int]:
    """The rows of each file by its name, which begins with `prefix`; of the last attempt of each
    task, in the order of the tasks. Raises AcidError."""
    work = partial(_written, location, prefix, tuple(columns), stored)
    with raise_as_ours():
        rows = mapped_in_arrow(frame, list(frame.columns), work, _ANSWER).collect()
    return dict(sorted(json.loads(row["answer"]) for row in rows))


def _written(
    location: str,
    prefix: str,
    columns: Sequence[Column],
    stored: FileFormat,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    name = f"{prefix}{context.partitionId():06}_{context.taskAttemptId()}"
    if rows := write_exported(location, name, columns, stored, batches):
        yield answers([json.dumps([name, rows])])
