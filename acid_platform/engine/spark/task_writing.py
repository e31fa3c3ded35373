"""Work of ours in Spark's tasks: rows go in, one small record for each file comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.few_calls import mapped_in_arrow
from acid_platform.engine.spark.task_body import answers, write_rows
from acid_platform.write.task_files import Received, StagedFile, TaskTarget

_ANSWER = T.StructType([T.StructField("answer", T.StringType())])


def write_in_tasks(
    frame: DataFrame, names: Sequence[str], target: TaskTarget
) -> tuple[list[StagedFile], Received]:
    """The files that the tasks have written, and the rows that they received.

    `names` are the frame's columns. Only what the last attempt of each task wrote is among the
    files. Raises Spark's exceptions.
    """
    rows = mapped_in_arrow(frame, names, partial(write_rows, target), _ANSWER).collect()
    records = [json.loads(row["answer"]) for row in rows]
    files = [StagedFile.unpacked(*record["file"]) for record in records if "file" in record]
    received = (Received(*record["received"]) for record in records if "received" in record)
    return files, sum(received, Received())


def in_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    """The results of `work` for each number below `count`, each computed in its own Spark task.

    Raises AcidError, Spark's exceptions.
    """
    if not count:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield answers(work(index) for index in batch.column(0).to_pylist())

    with raise_as_ours():
        frame = mapped_in_arrow(spark.range(0, count, 1, count), ["id"], run, _ANSWER)
        return [row["answer"] for row in frame.collect()]
