"""Work of ours in Spark's tasks: rows go in, one small record for each file comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.few_calls import mapped_in_arrow
from acid_platform.engine.spark.task_body import write_rows
from acid_platform.write.task_files import Received, StagedFile, TaskTarget

_ANSWER = T.StructType(
    [
        T.StructField("path", T.StringType()),
        T.StructField("partition", T.StringType()),
        T.StructField("deletes", T.BooleanType()),
        T.StructField("record", T.StringType()),
        T.StructField("received", T.ArrayType(T.LongType())),
    ]
)


def write_in_tasks(
    frame: DataFrame, names: Sequence[str], target: TaskTarget
) -> tuple[list[StagedFile], Received]:
    """The files that the tasks have written, and the rows that they received.

    `names` are the frame's columns. Only what the last attempt of each task wrote is among the
    files. Raises Spark's exceptions.
    """
    found = mapped_in_arrow(frame, names, partial(write_rows, target), _ANSWER).collect()
    return (
        [StagedFile.unpacked(*row[:4]) for row in found if row["path"] is not None],
        sum((Received(*row["received"]) for row in found if row["path"] is None), Received()),
    )


_RESULT = T.StructType([T.StructField("result", T.StringType())])


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

    frame = mapped_in_arrow(spark.range(0, count, 1, count), ["id"], run, _RESULT)
    return [row["result"] for row in frame.collect()]
