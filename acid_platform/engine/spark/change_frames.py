"""The changes of a table as a frame.

Spark's tasks read them with the reader that `changes_arrow` uses, so that both give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.spark.char_varchar import (
    as_read,
    has_char_or_varchar,
    marked,
    shown,
)
from acid_platform.engine.spark.failures import analysed, raise_as_ours
from acid_platform.engine.spark.few_calls import selected
from acid_platform.engine.spark.spark_types import spark_schema
from acid_platform.errors import CorruptFile, SnapshotExpired
from acid_platform.layout.sql_text import quoted
from acid_platform.scan.change_scan import ChangeReader, ChangeScan, FileChanges
from acid_platform.scan.scans import partition_scalars
from acid_platform.storage.files import Files

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
