"""Spark as an engine: every statement as one Spark job where that is possible.

Jobs have a tag of their transaction, so that aborting it stops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from acid_platform.engine.interface import ArrowResult, EngineName, Fixed, Result, Sources, Where
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts, SourceKeys
from acid_platform.engine.spark.dml import SparkMerge, insert_rows, rows_to_delete, rows_to_update
from acid_platform.engine.spark.failures import is_connect
from acid_platform.engine.spark.input_rows import as_frame, conform
from acid_platform.engine.spark.query import SparkResult, result_of
from acid_platform.engine.spark.write import StatementRows, write_statement
from acid_platform.engine.spark_pieces import removed_afterwards
from acid_platform.errors import SparkLost
from acid_platform.scan.scans import Scan
from acid_platform.values.local_rows import local_table
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import Rows, is_spark_frame
from acid_platform.write.publishing import WriteTarget, WrittenDirectory
from acid_platform.write.task_files import files_needed


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


class SparkEngine:
    """Runs statements in the session that `session` returns, and starts if needed."""

    name: EngineName = "spark"

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._used: SparkSession | None = None
        """The session that statements have used: cancelling must not start one."""

    @property
    def spark(self) -> SparkSession:
        self._used = self._session()
        return self._used

    @contextmanager
    def statement(self, txn: int) -> Iterator[None]:
        with removed_afterwards(), tagged(self.spark, txn):
            yield

    def cancel(self, txn: int) -> None:
        cancel(self._used, txn)

    def query(
        self,
        text: str,
        sources: Sources,
        reason: str,
        named: bool = True,  # noqa: ARG002
    ) -> SparkResult:
        return SparkResult(result_of(self.spark, text, sources), reason)

    def insert(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> list[WrittenDirectory]:
        return write_statement(self._stored(rows, target, fixed), target)[0]

    def overwrite(
        self, rows: Rows, target: WriteTarget, fixed: Fixed, empty: Sequence[str]
    ) -> list[WrittenDirectory]:
        stored = self._stored(rows, target, fixed)
        return write_statement(stored, target, overwrite=True, empty_partitions=empty)[0]

    def _stored(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> StatementRows:
        defaults = target.checks.defaults
        frame = conform(self.spark, rows, target.all_columns, target.table, fixed, defaults)
        many = isinstance(rows, Result | RowStream) or is_spark_frame(rows)
        few = not many and files_needed(len(rows)) == 1  # type: ignore[arg-type]
        return insert_rows(frame, target, few)

    def update(
        self, scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
    ) -> list[WrittenDirectory]:
        rows = rows_to_update(self.spark, scan, target, assignments, where)
        return write_statement(rows, target)[0]

    def delete(self, scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]:
        return write_statement(rows_to_delete(self.spark, scan, target, where), target)[0]

    def merge(
        self,
        scan: Scan,
        target: WriteTarget,
        source: Rows,
        on: str,
        clauses: Sequence[MergeClause],
        aliases: tuple[str, str],
        keys: SourceKeys | None = None,
    ) -> tuple[list[WrittenDirectory], MergeCounts]:
        known = source.table if isinstance(source, ArrowResult) else None
        if not isinstance(source, Result) and not is_spark_frame(source):
            source = known = local_table(source, target.all_columns, target.table, more=True)
        if keys is not None and known is not None:
            keys.take(known)
        frame = as_frame(self.spark, source, target.all_columns, target.table, more=True)
        return SparkMerge(self.spark, scan, target, on, clauses, *aliases).write(frame, keys)
