"""INSERT and INSERT OVERWRITE of rows in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from acid_platform.engine.interface import Fixed
from acid_platform.engine.local import running
from acid_platform.engine.local.event_files import EventFiles, publish_events, require_writable
from acid_platform.engine.local.partition_texts import places_of
from acid_platform.engine.local.row_checks import require_checked, with_defaults
from acid_platform.engine.local.stored_values import conform
from acid_platform.engine.results import Result
from acid_platform.engine.rows import Rows, column_names, local_table
from acid_platform.errors import NeedsSpark, UnsupportedStatement
from acid_platform.layout.bucketing import bucket_ids
from acid_platform.write.publishing import WriteTarget, WrittenDirectory
from acid_platform.write.task_files import files_needed


def write_rows(
    rows: Rows,
    target: WriteTarget,
    fixed: Fixed,
    overwrite: bool = False,
    empty: Sequence[str] = (),
) -> list[WrittenDirectory]:
    """Writes and publishes the rows; `overwrite` writes bases, and one for each of `empty`.

    Of a Result, at most the target's `most_bytes` are held.
    Raises UnknownColumn, WrongType, ConstraintViolated, PublicationFailed, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    conformed = _conforming(target, fixed)

    if isinstance(rows, Result):
        column_names(rows)
        reader = rows.batches()
        batches = counted(reader, target.most_bytes)
        if not target.partition_columns and not target.buckets:

            def stream(files: EventFiles) -> None:
                parts = (conformed(pa.Table.from_batches([batch])) for batch in batches)
                files.insert_run((one for part in parts for one in part.to_batches()), "", 0)

            return publish_events(target, stream, overwrite, empty)
        table = pa.Table.from_batches(list(batches), schema=reader.schema)
    else:
        table = local_table(rows, target.all_columns, target.table)
    stored = conformed(table)
    places = places_of(stored, target.partition_columns)
    values = stored.select([column.name for column in target.columns])
    buckets = buckets_of(values, target)
    return publish_events(
        target, lambda files: files.insert(values, places, buckets), overwrite, empty
    )


def _conforming(target: WriteTarget, fixed: Fixed) -> Callable[[pa.Table], pa.Table]:
    """Makes of rows with the table's types what its files store, or raises as `write_rows`."""

    def conformed(part: pa.Table) -> pa.Table:
        part = with_defaults(part, target.columns, target.checks)
        stored = conform(part, target.all_columns, target.table, fixed, target.columns)
        return require_checked(stored, target.columns, target.checks)

    return conformed


_FILE_BYTES, _SORTED_BYTES = 1 << 30, 1 << 27
"""About how many bytes of a stream become one file, and how many are held at a time to be sorted by
their partitions, each of which then gets a file of them."""


def write_stream(
    batches: Iterable[pa.RecordBatch],
    target: WriteTarget,
    overwrite: bool = False,
    empty: Sequence[str] = (),
) -> list[WrittenDirectory]:
    """As `write_rows`, for any number of rows: few batches of them are in memory at a time.

    Raises UnsupportedStatement for a clustered table, where a bucket has one file.
    """
    require_writable(target)
    if target.buckets is not None:
        raise UnsupportedStatement(
            f"{target.table} is clustered, and a stream of rows can't be divided into its buckets"
            " before its end; write into a table without CLUSTERED BY, and from there by INSERT"
        )
    conformed = _conforming(target, {})
    columns = [column.name for column in target.columns]
    most = _SORTED_BYTES if target.partition_columns else _FILE_BYTES

    def stored(parts: Sequence[pa.RecordBatch]) -> pa.Table:
        rows = local_table(pa.Table.from_batches(parts), target.all_columns, target.table)
        return conformed(rows)

    def stream(files: EventFiles) -> None:
        for number, group in groupby(_numbered(batches, most), key=itemgetter(0)):
            parts = (batch for _, batch in group)
            if target.partition_columns:
                rows = stored(list(parts))
                places = places_of(rows, target.partition_columns)
                files.insert(rows.select(columns), places, np.full(len(rows), number))
            else:
                pieces = (piece for part in parts for piece in stored([part]).to_batches())
                files.insert_run(pieces, "", number)

    return publish_events(target, stream, overwrite, empty)


def _numbered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch with the number of its group, whose batches have about `most` bytes together."""
    number = total = 0
    for batch in batches:
        running.check()
        if not batch.num_rows:
            continue
        if total >= most:
            number, total = number + 1, 0
        total += batch.nbytes
        yield number, batch


def counted(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The batches, until they are larger than the limit or the statement is stopped.

    Raises NeedsSpark, TxnAborted then.
    """
    total = 0
    for batch in batches:
        running.check()
        total += batch.nbytes
        if total > limit:
            raise NeedsSpark(f"a result of more than {limit:,} bytes (acid.local.max.bytes)")
        yield batch


def buckets_of(values: pa.Table, target: WriteTarget) -> np.ndarray:
    """The bucket number of each row, int64 (n,): Hive's hash, or its file if it has no buckets.

    Raises InvalidDefinition for a bucket column that can't be hashed.
    """
    rows = values.num_rows
    if target.buckets is None:
        files = files_needed(rows)
        ends = -(-np.arange(files + 1) * rows // files)
        return np.repeat(np.arange(files), np.diff(ends))
    kinds = {column.name: column.type for column in target.columns}
    names = target.buckets.columns
    return bucket_ids(
        [values.column(name).combine_chunks() for name in names],
        [kinds[name] for name in names],
        target.buckets.count,
        target.buckets.version,
    ).astype(np.int64)
