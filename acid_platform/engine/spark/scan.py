"""The read path: the sources of each partition → a DataFrame of live rows.

Our own format reads what it can, where the session can load it; Spark's readers read the other
files. Both leave out rows of invalid write ids. The reader's predicate comes next, last the delete
test where the reader has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.acid_format import has_acid_format
from acid_platform.engine.spark.char_varchar import marked
from acid_platform.engine.spark.deleted_rows import ReadRows
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.few_calls import filtered, selected
from acid_platform.engine.spark.live_rows import LiveFiles, divided, readable
from acid_platform.engine.spark.prepared import prepared
from acid_platform.engine.spark.row_keys import BUCKET, ENTITY, KEYS, ROW_ID, WRITE_ID, key_fields
from acid_platform.engine.spark.spark_readers import SparkReaders
from acid_platform.engine.spark.spark_types import spark_schema
from acid_platform.layout import schema
from acid_platform.layout.schema import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.predicates.analysis import columns_of
from acid_platform.predicates.char_literals import comparable
from acid_platform.scan.scans import Scan
from acid_platform.scan.source_files import SourceKind


class ScanBuilder:
    """Builds the frame of a Scan with the wanted columns and the rows that `where` accepts.

    `wanted` None: all columns. Columns that `where` reads are added. ORC skips rows by the
    predicate before it decodes them. Without `identities` there are no `KEYS`; `file_names` adds
    FILE_NAME_COLUMN.
    """

    def __init__(
        self,
        spark: SparkSession,
        scan: Scan,
        wanted: Sequence[str] | None,
        where: str | None = None,
        identities: bool = True,
        file_names: bool = False,
    ) -> None:
        self.spark = spark
        self.file_names = file_names
        self.scan = scan
        every = (*scan.columns, *scan.partition_columns)
        self.where = comparable(where, {"": every}) if where else where
        read = columns_of(where) if where else frozenset[str]()
        self.filters_ids = read is None or ROW_ID_COLUMN in read
        self.shows_ids = identities
        self.needs_ids = identities or self.filters_ids
        if wanted is None or read is None:
            self.columns = scan.columns
        else:
            names = {*(name.lower() for name in wanted), *read}
            self.columns = tuple(c for c in scan.columns if c.name in names)
        if not self.columns:  # files without ACID columns have no other column to count rows by
            self.columns = (schema.cheapest(scan.columns) or scan.columns[0],)

    def rows(self) -> DataFrame:
        """Live rows: the columns, the partition columns, then their row ids (`KEYS`).

        Raises InvalidExpression and UnknownColumn for `where`.
        """
        acid, others = divided(self.spark, self.scan.without_empty_files())
        parts = [
            *LiveFiles(self.spark, acid, self.columns, self.needs_ids, self.file_names).read(),
            *SparkReaders(
                self.spark, others, self.columns, self.needs_ids, self.where, self.file_names
            ).read(),
        ]
        if not parts:
            nothing = self._filtered(
                marked(self._empty(), (*self.columns, *self.scan.partition_columns))
            )
            return nothing if self.shows_ids else nothing.drop(*KEYS)
        return reduce(DataFrame.union, map(self._live, parts))

    def _live(self, rows: ReadRows) -> DataFrame:
        """The rows that the predicate accepts and that are not deleted."""
        accepted = replace(rows, frame=self._filtered(rows.frame))
        live = accepted.live(self.spark, self.scan)
        helpers = [
            *([ENTITY] if rows.deleted is not None else []),
            *(KEYS if rows.keys and not self.shows_ids else []),
        ]
        return live.drop(*helpers) if helpers else live

    def _filtered(self, frame: DataFrame) -> DataFrame:
        if self.where is None:
            return frame
        with raise_as_ours():
            if not self.filters_ids:
                return filtered(frame, self.where)
            with_id = frame.selectExpr("*", ROW_ID_STRUCT)
            return filtered(with_id, self.where).drop(ROW_ID_COLUMN)

    def _empty(self) -> DataFrame:
        fields = [
            *spark_schema(self.columns).fields,
            *spark_schema(self.scan.partition_columns).fields,
            *key_fields(),
        ]
        if self.file_names:
            fields.append(T.StructField(FILE_NAME_COLUMN, T.StringType()))
        return self.spark.createDataFrame([], T.StructType(fields))


ROW_ID_STRUCT = (
    f"named_struct('writeid', {WRITE_ID}, 'bucketid', {BUCKET}, 'rowid', {ROW_ID})"
    f" AS {ROW_ID_COLUMN}"
)
"""SQL that makes the virtual column `row__id` from `KEYS`."""


def read_frame(
    spark: SparkSession,
    scan: Scan,
    columns: Sequence[str] | None = None,
    row_id: bool = False,
    where: str | None = None,
    file_name: bool = False,
) -> DataFrame:
    """Live rows: table columns, then partition columns, then the requested virtual columns.

    `columns` selects columns in this order; they must exist. Raises
    InvalidExpression and UnknownColumn for `where`.
    """
    names = None if columns is None else tuple(name.lower() for name in columns)
    chosen = None
    if names is not None and where is None and _pruned_by_spark(spark, scan):
        # One frame for all columns: a query that reads others needs no frame of its own.
        virtual = [ROW_ID_COLUMN] * row_id + [FILE_NAME_COLUMN] * file_name
        chosen = (*names, *virtual)
        names = None

    def make() -> DataFrame:
        return _built(spark, scan, names, row_id, where, file_name)

    return prepared(spark, scan, where, (names, row_id, file_name), make, chosen)


_FEW_COLUMNS = 64


def _pruned_by_spark(spark: SparkSession, scan: Scan) -> bool:
    """Whether Spark leaves out by itself, and soon, the columns that a query does not use.

    It does not where rows come through Arrow, and takes long where there are many columns.
    """
    if len(scan.columns) > _FEW_COLUMNS:
        return False
    by_spark = not has_acid_format(spark)
    return all(
        source.kind is SourceKind.ACID and source.length is None if by_spark else readable(source)
        for entity in scan.entities
        for source in entity.sources.inserts
    )


def _built(
    spark: SparkSession,
    scan: Scan,
    columns: Sequence[str] | None,
    row_id: bool,
    where: str | None,
    file_name: bool,
) -> DataFrame:
    builder = ScanBuilder(spark, scan, columns, where, identities=row_id, file_names=file_name)
    frame = builder.rows()
    partition = [column.name for column in scan.partition_columns]
    names = list(columns) if columns is not None else [c.name for c in scan.columns] + partition
    if not (row_id or file_name) and names == [c.name for c in builder.columns] + partition:
        return frame
    virtual = [ROW_ID_STRUCT] * row_id + [FILE_NAME_COLUMN] * file_name
    return selected(frame, [*(quoted(name.lower()) for name in names), *virtual])
