"""Compactions on a full disk: each output file is a device that is always full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from acid_platform.compaction.execution import Compaction
from acid_platform.layout.names import temporary_name

_ATTEMPTS = 200
"""More tasks than a compaction of a test has."""


def full_outputs(compact: Compaction) -> None:
    """Makes them, in the place of `make_outputs`; for Spark's tasks, other processes, too."""
    for name in compact.plan.outputs:
        directory = Path(compact.staging, str(name))
        directory.mkdir(parents=True)
        (directory / "bucket_00000").symlink_to("/dev/full")
    if SparkContext._active_spark_context is not None:
        attempts = Path(compact.staging, temporary_name(compact.plan.txn_id, "attempts"))
        attempts.mkdir()
        for attempt in _next_attempts(SparkSession.builder.getOrCreate()):
            (attempts / f"bucket_00000-{attempt}").symlink_to("/dev/full")


def _next_attempts(spark: SparkSession) -> range:
    """The ids that Spark gives to the attempts of the next tasks."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"id": [context.taskAttemptId()]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(told, "id bigint").collect()
    return range(row["id"], row["id"] + _ATTEMPTS)
