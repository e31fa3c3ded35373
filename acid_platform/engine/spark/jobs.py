"""Tags on a transaction's Spark jobs, so that aborting the transaction stops them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from acid_platform.engine.spark.failures import is_connect
from acid_platform.errors import SparkLost


def _tag(txn_id: int) -> str:
    return f"acid-txn-{txn_id}"


@contextmanager
def tagged(spark: SparkSession, txn_id: int) -> Iterator[None]:
    """Tags the jobs that this thread starts inside the block as the transaction's."""
    spark.addTag(_tag(txn_id))
    try:
        yield
    finally:
        with suppress(SparkLost):
            spark.removeTag(_tag(txn_id))


def describe(spark: SparkSession, text: str, pool: str) -> None:
    """Sets the description that Spark's UI shows for this thread's jobs, and their scheduler pool.

    `pool` empty: the default. Spark Connect has neither.
    """
    if not is_connect(spark):
        spark.sparkContext.setJobDescription(text)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool or None)  # type: ignore[arg-type]


def cancel(spark: SparkSession | None, txn_id: int) -> None:
    """Stops the running jobs of a transaction, if there are any."""
    if spark is not None:
        with suppress(SparkLost):  # nothing runs there any more
            spark.interruptTag(_tag(txn_id))
