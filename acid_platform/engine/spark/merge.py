"""MERGE: source rows are matched with the table once, then one job writes the events (P20).

If rows may be inserted, the source and the matches are materialised first, so that each is computed
once: otherwise a volatile source could both change a row and insert it. The tasks that write see
two source rows for one row side by side, and count what became of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.assignments import inserted_values
from acid_platform.engine.merge_clauses import MergeAction, MergeClause, MergeCounts
from acid_platform.engine.publishing import Written
from acid_platform.engine.refusals import source_rows_ambiguous
from acid_platform.engine.scans import TableScan
from acid_platform.engine.spark.buckets import bucket_of_row
from acid_platform.engine.spark.char_varchar import struct_to_be_stored, to_be_stored
from acid_platform.engine.spark.dml import (
    assigned,
    bucket_number,
    computed,
    partition_columns,
    writers,
)
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.row_keys import KEYS
from acid_platform.engine.spark.scan import ScanBuilder
from acid_platform.engine.spark.spark_types import spark_schema, spark_type
from acid_platform.engine.spark.write import BITS, SparkTarget, arranged, write_statement
from acid_platform.errors import InvalidExpression, SourceRowsAmbiguous
from acid_platform.layout.types import Column as TableColumn
from acid_platform.reading.predicates import columns_of
from acid_platform.storage.task_files import DELETES, INSERTS, RowKind

ROWS_PER_WRITER = 1_000_000
_SOURCE_ROW, _CLAUSE, _PLACE = "__sid", "__clause", "__place"
NEW = "__new"
"""The column with the new values of an updated or inserted row, as a struct."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE into one scan. Expressions call the two sides `alias` and `source_alias`."""

    spark: SparkSession
    scan: TableScan
    target: SparkTarget
    table: str
    on: str
    clauses: Sequence[MergeClause]
    alias: str = "t"
    source_alias: str = "s"

    def write(self, source: DataFrame) -> tuple[list[Written], MergeCounts]:
        """Writes and publishes the events of the statement; returns its directories and counts.

        Raises SourceRowsAmbiguous, PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn,
        WrongType, InvalidExpression, and what write_statement raises.
        """
        if not self.clauses:
            raise InvalidExpression(f"MERGE into {self.table} has no WHEN clause")
        matched_clauses = [c for c in self.clauses if c.action is not MergeAction.INSERT]
        inserts = [c for c in self.clauses if c.action is MergeAction.INSERT]
        rows = source.withColumn(_SOURCE_ROW, F.monotonically_increasing_id())
        # Only an insert looks at the source and at the matches a second time.
        if inserts:
            rows = self._kept_once(rows)
        matched = self._matched(rows, matched_clauses)
        if inserts:
            matched = self._kept_once(matched)
        changed = matched.filter(F.col(_CLAUSE).isNotNull())
        placed = struct_to_be_stored(changed, NEW, self.scan.columns, self.table).select(
            *partition_columns(self.target),
            *KEYS,
            NEW,
            self._bits(matched_clauses).alias(BITS),
            bucket_number().alias(_PLACE),
        )
        number_of_writers = writers(self.scan)
        if inserts:
            if self.target.buckets:
                number_of_writers = self.target.buckets.count
            else:
                most = rows.count() // ROWS_PER_WRITER + 1
                number_of_writers = max(number_of_writers, min(most, 64))
            fresh = self._inserted(rows, matched, inserts)
            placed = placed.union(self._placed(fresh, number_of_writers))
        placed = placed.repartitionById(number_of_writers, F.col(_PLACE))
        values = [F.col(NEW).getField(column.name) for column in self.scan.columns]
        arranged_rows = arranged(placed, self.target, RowKind.EACH, values)
        try:
            written, received = write_statement(arranged_rows, self.target)
        except SourceRowsAmbiguous:
            self._require_one_source_row(changed)  # which counts the source rows
            raise
        return written, MergeCounts(received.updated, received.deleted, received.inserted)

    def _kept_once(self, frame: DataFrame) -> DataFrame:
        with raise_as_ours():
            return frame.localCheckpoint(True, StorageLevel.MEMORY_AND_DISK)

    def _matched(self, rows: DataFrame, clauses: Sequence[MergeClause]) -> DataFrame:
        """For each joined pair: partition columns, KEYS, NEW, clause number, source row."""
        wanted = None if any(c.action is MergeAction.UPDATE for c in clauses) else self._needed()
        target = ScanBuilder(self.spark, self.scan, wanted).rows().alias(self.alias)
        with raise_as_ours():
            pairs = target.join(rows.alias(self.source_alias), F.expr(self.on), "inner")
            number, new = F.lit(None).cast("int"), self._nothing()
            for index, clause in reversed(list(enumerate(clauses))):
                applies = self._condition(clause)
                values = (
                    self._updated(pairs, clause)
                    if clause.action is MergeAction.UPDATE
                    else self._nothing()
                )
                new = F.when(applies, values).otherwise(new)
                number = F.when(applies, F.lit(index)).otherwise(number)
            partition = [F.col(f"{self.alias}.`{name}`") for name in self.target.partition_names]
            return pairs.select(
                *partition, *KEYS, new.alias(NEW), number.alias(_CLAUSE), F.col(_SOURCE_ROW)
            )

    def _needed(self) -> list[str] | None:
        """The table's columns that ON and the conditions may read; None: all."""
        names: set[str] = set()
        for text in (self.on, *(c.condition for c in self.clauses if c.condition)):
            columns = columns_of(text)
            if columns is None:
                return None
            names |= columns
        return [column.name for column in self.scan.columns if column.name in names]

    def _nothing(self) -> Column:
        return F.lit(None).cast(spark_schema(self.scan.columns))

    def _condition(self, clause: MergeClause) -> Column:
        return (
            F.lit(True)
            if clause.condition is None
            else F.coalesce(F.expr(clause.condition), F.lit(False))
        )

    def _updated(self, pairs: DataFrame, clause: MergeClause) -> Column:
        own = {column.name: F.col(f"{self.alias}.`{column.name}`") for column in self.scan.columns}
        return F.struct(
            *assigned(pairs, self.scan, self.target, clause.values or {}, own, self.table)
        )

    def _bits(self, clauses: Sequence[MergeClause]) -> Column:
        updates = [i for i, c in enumerate(clauses) if c.action is MergeAction.UPDATE]
        return F.when(F.col(_CLAUSE).isin(*updates), DELETES | INSERTS).otherwise(DELETES)

    def _require_one_source_row(self, changed: DataFrame) -> None:
        twice = changed.groupBy(*partition_columns(self.target), *KEYS).count().filter("count > 1")
        ambiguous = twice.head()
        if ambiguous is not None:
            write_id, bucket, row_id = (ambiguous[key] for key in KEYS)
            raise source_rows_ambiguous(
                self.table, ambiguous["count"], (write_id, bucket, row_id), self.on
            )

    def _inserted(
        self, rows: DataFrame, matched: DataFrame, clauses: Sequence[MergeClause]
    ) -> DataFrame:
        """Source rows without a match, with the table's columns and partition columns."""
        known = (*self.scan.columns, *self.scan.partition_columns)
        joined = rows.join(matched.select(_SOURCE_ROW).distinct(), _SOURCE_ROW, "left_anti")
        unmatched = joined.alias(self.source_alias)
        with raise_as_ours():
            number, values = F.lit(None).cast("int"), F.lit(None).cast(spark_schema(known))
            for index, clause in reversed(list(enumerate(clauses))):
                applies = self._condition(clause)
                row = F.struct(*self._values(unmatched, clause, known))
                values = F.when(applies, row).otherwise(values)
                number = F.when(applies, F.lit(index)).otherwise(number)
            chosen = unmatched.select(values.alias(NEW), number.alias(_CLAUSE), _SOURCE_ROW)
            chosen = chosen.filter(F.col(_CLAUSE).isNotNull()).select(f"{NEW}.*", _SOURCE_ROW)
            return to_be_stored(chosen, known, self.table)

    def _values(
        self, unmatched: DataFrame, clause: MergeClause, known: Sequence[TableColumn]
    ) -> list[Column]:
        source = (name for name in unmatched.columns if name != _SOURCE_ROW)
        given = inserted_values(clause.values, source, known, self.table)
        return [
            computed(unmatched, given[column.name], column, self.table)
            if column.name in given
            else F.lit(None).cast(spark_type(column.type)).alias(column.name)
            for column in known
        ]

    def _placed(self, fresh: DataFrame, number_of_writers: int) -> DataFrame:
        buckets = self.target.buckets
        place = (
            bucket_of_row(buckets, self.scan.columns)
            if buckets
            else F.pmod(F.col(_SOURCE_ROW), F.lit(number_of_writers)).cast("int")
        )
        keys = [
            F.lit(None).cast(kind).alias(name)
            for name, kind in zip(KEYS, ("bigint", "int", "bigint"), strict=True)
        ]
        new = F.struct(*(F.col(f"`{column.name}`") for column in self.scan.columns)).alias(NEW)
        return fresh.select(
            *partition_columns(self.target),
            *keys,
            new,
            F.lit(INSERTS).alias(BITS),
            place.alias(_PLACE),
        )
