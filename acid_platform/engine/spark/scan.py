"""The read path: the files of each partition as a frame of live rows, or of a table's changes.

Our own format reads what it can, where the session can load it; Spark's readers read the other
files. Both leave out rows of invalid write ids. The reader's predicate comes next, last the delete
test where the reader has none. Changes are read in Spark's tasks by the reader that
`changes_arrow` uses, so that both give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import analysed, raise_as_ours
from acid_platform.engine.spark.few_calls import FILE_BYTES, cached, filtered, selected
from acid_platform.engine.spark.live_rows import divided, has_acid_format, read_by_format, readable
from acid_platform.engine.spark.row_keys import ENTITY, KEYS, ROW_ID_STRUCT, ReadRows, key_fields
from acid_platform.engine.spark.spark_readers import read_by_spark
from acid_platform.engine.spark.spark_types import (
    as_read,
    has_char_or_varchar,
    marked,
    shown,
    spark_schema,
)
from acid_platform.errors import CorruptFile, SnapshotExpired
from acid_platform.layout.acid_keys import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import columns_of, refuse_blanks
from acid_platform.scan.change_scan import ChangeReader, ChangeScan, FileChanges
from acid_platform.scan.deletes import UnreadKeys
from acid_platform.scan.scans import Scan, partition_scalars
from acid_platform.scan.source_files import RowIdentity
from acid_platform.storage.files import Files


def scan_rows(
    spark: SparkSession,
    scan: Scan,
    names: Sequence[str] | None,
    where: str | None = None,
    keys: bool = True,
    file_names: bool = False,
) -> DataFrame:
    """Live rows that `where` accepts: columns, partition columns, KEYS, FILE_NAME_COLUMN.

    `names`: the columns to read, None all; those that `where` reads are added. Without `keys` and
    `file_names` the last ones are left out. Raises InvalidExpression and UnknownColumn for `where`.
    """
    every = (*scan.columns, *scan.partition_columns)
    read = columns_of(where) if where else frozenset[str]()
    if where:
        refuse_blanks(where, every)
    filters_ids = read is None or ROW_ID_COLUMN in read
    columns = scan.columns
    if names is not None and read is not None:
        needed = {*(name.lower() for name in names), *read}
        columns = tuple(column for column in columns if column.name in needed)
    if not columns:  # files without ACID columns have no other column to count rows by
        columns = (cheapest(scan.columns) or scan.columns[0],)

    def live(rows: ReadRows) -> DataFrame:
        """The rows that the predicate accepts and that are not deleted."""
        accepted = rows.frame
        if where is not None:
            with raise_as_ours():
                accepted = _accepted(accepted, where, filters_ids)
        helpers = [
            *([ENTITY] if rows.deleted is not None else []),
            *(KEYS if rows.keys and not keys else []),
        ]
        frame = replace(rows, frame=accepted).live(spark)
        return frame.drop(*helpers) if helpers else frame

    parts = _parts(spark, scan, columns, keys or filters_ids, file_names)
    if not parts:
        parts = [ReadRows(_empty(spark, (*columns, *scan.partition_columns), file_names), True)]
    return reduce(DataFrame.union, map(live, parts))


_KEY_BYTES = 24
"""Memory of a deleted key in a join; a bitmap needs less."""


def _parts(
    spark: SparkSession, scan: Scan, columns: tuple[Column, ...], keys: bool, file_names: bool
) -> list[ReadRows]:
    """The rows of the files, before any predicate; from the cache if they were read before.

    Building a frame takes dozens of calls into the JVM, each with an analysis of the plan, which is
    much of a short query.
    """

    def read() -> list[ReadRows]:
        ours, others = divided(spark, scan.without_empty_files(), columns)
        return [
            *read_by_format(spark, ours, columns, keys, file_names),
            *read_by_spark(spark, others, columns, keys, file_names),
        ]

    key = (
        has_acid_format(spark),
        scan.files.uri(scan.location),
        scan.columns,
        scan.partition_columns,
        scan.format.name,
        *scan.format.options.items(),
        scan.write_ids,
        tuple(
            (
                entity.partition,
                entity.values,
                entity.sources.inserts,
                tuple(source.keys for source in entity.sources.inserts),
                entity.sources.deletes,
                len(entity.deletes),
                isinstance(entity.deletes, UnreadKeys),
            )
            for entity in scan.entities
        ),
        columns,
        keys,
        file_names,
    )
    size = sum(
        FILE_BYTES * len(entity.sources.inserts) + _KEY_BYTES * len(entity.deletes)
        for entity in scan.entities
    )
    return cached(spark, key, size, read)


def _accepted(frame: DataFrame, where: str, filters_ids: bool) -> DataFrame:
    if not filters_ids:
        return filtered(frame, where)
    with_id = frame.selectExpr("*", ROW_ID_STRUCT)
    return filtered(with_id, where).drop(ROW_ID_COLUMN)


def _empty(spark: SparkSession, columns: Sequence[Column], file_names: bool) -> DataFrame:
    fields = [*spark_schema(columns).fields, *key_fields()]
    if file_names:
        fields.append(T.StructField(FILE_NAME_COLUMN, T.StringType()))
    return marked(spark.createDataFrame([], T.StructType(fields)), columns)


def read_frame(
    spark: SparkSession,
    scan: Scan,
    columns: Sequence[str] | None = None,
    row_id: bool = False,
    where: str | None = None,
    file_name: bool = False,
) -> DataFrame:
    """Live rows: table columns, then partition columns, then the requested virtual columns.

    `columns` selects columns in this order; they must exist. Columns of two frames are never the
    same, so that two reads of a table can be joined. Raises InvalidExpression and UnknownColumn for
    `where`.
    """
    names = [column.name for column in (*scan.columns, *scan.partition_columns)]
    if columns is not None:
        names = [name.lower() for name in columns]
    # Reads of different columns share the cached frame of all columns.
    read = None if _pruned_by_spark(spark, scan) else names
    frame = scan_rows(spark, scan, read, where, keys=row_id, file_names=file_name)
    virtual = [ROW_ID_STRUCT] * row_id + [FILE_NAME_COLUMN] * file_name
    return selected(frame, [*(f"{quoted(name)} AS {quoted(name)}" for name in names), *virtual])


_FEW_COLUMNS = 64


def _pruned_by_spark(spark: SparkSession, scan: Scan) -> bool:
    """Whether Spark leaves out by itself, and soon, the columns that a query does not use.

    It does not where rows come through Arrow, and takes long where there are many columns.
    """
    if len(scan.columns) > _FEW_COLUMNS:
        return False
    by_spark = not has_acid_format(spark)
    return all(
        source.identity is RowIdentity.STORED
        and source.length is None
        and not source.streamed
        and all(map(source.is_sure, scan.columns))
        if by_spark or source.in_parquet
        else readable(source, scan.columns)
        for entity in scan.entities
        for source in entity.sources.inserts
    )


_Piece = tuple[FileChanges, tuple[str | None, ...]]
"""A part, and the values of its partition as directory names spell them."""


def change_frame(spark: SparkSession, scan: ChangeScan) -> DataFrame:
    """A lazy frame of the changes, with a Spark task for each file at most."""
    by_name = {column.name: column for column in scan.columns}
    columns = [by_name[name] for name in scan.reader.names]
    pieces = [(part, entity.values) for entity in scan.entities for part in entity.parts]
    fields = spark_schema(columns)
    if not pieces:
        return marked(spark.createDataFrame([], fields), columns)
    reader, location = scan.reader, scan.reader.files.uri(pieces[0][0].source.path)
    plain = (reader.columns, reader.partition_columns, reader.stamps, reader.names, reader.format)

    def opened() -> ChangeReader:
        files, _ = Files.of(location)
        return ChangeReader(files, *plain)

    tasks = min(len(pieces), _MOST_TASKS)
    numbers = spark.range(0, len(pieces), 1, tasks)
    frame = numbers.mapInArrow(partial(_read, opened, pieces), fields)
    if any(has_char_or_varchar(column.type) for column in columns):
        names = [(quoted(column.name), column.type) for column in columns]
        frame = selected(frame, [f"{as_read(name, kind)} AS {name}" for name, kind in names])
    return marked(frame, columns)


_MOST_TASKS = 1000


def _read(
    opened: Callable[[], ChangeReader],
    pieces: Sequence[_Piece],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    reader = opened()
    for batch in batches:
        for index in batch.column(0).to_pylist():
            part, texts = pieces[index]
            values = partition_scalars(reader.partition_columns, texts)
            for work in reader.work(part, values):
                try:
                    yield from work()
                except CorruptFile as error:
                    if not isinstance(error.__cause__, FileNotFoundError):
                        raise
                    raise SnapshotExpired(
                        f"{part.source.path} is gone: the read lease of this DataFrame has ended"
                        " and the Cleaner removed files that newer snapshots don't need; call"
                        " changes() again"
                    ) from error


def changed_rows(
    spark: Callable[[], SparkSession], scan: ChangeScan, columns: Sequence[str] | None
) -> DataFrame:
    """The changes with these columns. Raises UnknownColumn before Spark is started."""
    narrowed = scan.wanting(columns)
    session = spark()
    with raise_as_ours():
        return analysed(shown(change_frame(session, narrowed)))


_WIDTH = {
    "boolean": 1,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "date": 4,
    "float": 4,
    "bigint": 8,
    "double": 8,
    "decimal": 9,
    "timestamp": 12,
    "string": 20,
    "varchar": 20,
    "char": 20,
    "binary": 40,
}


def cheapest(columns: Iterable[Column]) -> Column | None:
    """The column that is cheapest to decode, for a scan that needs no column but has to name one.

    None if no column has a primitive type.
    """
    flat = [column for column in columns if not column.type.nested]
    return min(flat, key=lambda column: _WIDTH.get(column.type.kind, 99), default=None)
