"""INSERT and INSERT OVERWRITE of rows in this process, any number of them in bounded memory (P59).

Rows are converted and checked part by part. Those of a table without partitions and buckets go into
its files as they come; others are put in order by PlacedRows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from acid_platform.engine.interface import Fixed, Result
from acid_platform.engine.local import running
from acid_platform.engine.local.event_files import EventFiles, publish_events, require_writable
from acid_platform.engine.local.placed_rows import PlacedRows, buckets_of, in_files
from acid_platform.engine.local.row_checks import default_values, require_checked
from acid_platform.errors import NeedsSpark, PublicationFailed
from acid_platform.values.local_rows import local_parts
from acid_platform.values.partition_texts import places_of
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import Rows, column_names
from acid_platform.values.stored_values import stored_rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory


def write_rows(
    rows: Rows,
    target: WriteTarget,
    fixed: Fixed,
    overwrite: bool = False,
    empty: Sequence[str] = (),
) -> list[WrittenDirectory]:
    """Writes and publishes the rows; `overwrite` writes bases, and one for each of `empty`.

    Raises UnknownColumn, WrongType, ConstraintViolated, PublicationFailed, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    count = None if isinstance(rows, Result | RowStream) else len(rows)  # type: ignore[arg-type]

    def write(files: EventFiles) -> None:
        stored = _stored(rows, target, fixed)
        names = [column.name for column in target.columns]
        if target.partition_columns or target.buckets:
            with PlacedRows(files) as placed:
                for part in stored:
                    values = part.select(names)
                    buckets = buckets_of(values, target)
                    placed.add(values, places_of(part, target.partition_columns), buckets)
                placed.write()
            return
        batches = (batch for part in stored for batch in part.select(names).to_batches())
        for number, pieces in groupby(in_files(batches, count), key=itemgetter(0)):
            files.insert_run((piece for _, piece in pieces), "", number)

    try:
        return publish_events(target, write, overwrite, empty)
    except PublicationFailed:
        if isinstance(rows, RowStream) and rows.failure is not None:
            raise rows.failure from None  # an OSError of the source, not of the files
        raise


def _stored(rows: Rows, target: WriteTarget, fixed: Fixed) -> Iterator[pa.Table]:
    """The rows as the table's files store them, in parts. Raises as `write_rows`."""
    if isinstance(rows, Result):
        column_names(rows)
        parts: Iterable[pa.Table] = (pa.Table.from_batches([each]) for each in rows.batches())
    else:
        parts = local_parts(rows, target.all_columns, target.table)
    defaults: dict[str, pa.Scalar] | None = None
    for part in parts:
        running.check()
        if defaults is None:  # one value for all rows of the statement
            defaults = default_values(target.checks, target.columns, part.column_names)
        for name, value in defaults.items():
            part = part.append_column(name, pa.chunked_array([pa.repeat(value, len(part))]))
        stored = stored_rows(part, target.all_columns, target.table, fixed, target.columns)
        yield require_checked(stored, target.columns, target.checks)


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
