"""DELETE and UPDATE: one scan finds the rows with their row ids, then events are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.assignments import wanted_assignments
from acid_platform.engine.local import running
from acid_platform.engine.local.event_files import (
    EventFiles,
    Keys,
    publish_events,
    require_writable,
)
from acid_platform.engine.local.partition_texts import RowPartitions
from acid_platform.engine.local.row_checks import require_checked
from acid_platform.engine.local.stored_values import conform
from acid_platform.engine.reads import Where
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.predicates.arrow_predicates import predicate_or_none
from acid_platform.scan.arrow_scan import ENTITY, ArrowScan
from acid_platform.scan.scans import Scan
from acid_platform.storage.arrow_numpy import from_numpy, values_of
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.write.publishing import WriteTarget, WrittenDirectory


def delete_rows(scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]:
    """Writes and publishes a delete event for each matching row, in the file of its bucket.

    Raises InvalidExpression, UnknownColumn, PublicationFailed, CorruptFile, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    _, keys = _matching(scan, where, (), {}, target.table)
    return publish_events(target, lambda files: files.delete(keys, np.zeros(len(keys), bool)))


def update_rows(
    scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
) -> list[WrittenDirectory]:
    """Writes and publishes a delete event and an insert event for each matching row.

    Raises PartitionColumnUpdate, BucketColumnUpdate, WrongType, ConstraintViolated too.
    """
    expressions = wanted_assignments(assignments, scan, target.buckets, target.table)
    require_writable(target)
    names = [column.name for column in scan.columns]
    rows, keys = _matching(scan, where, names, expressions, target.table)
    values = conform(rows, scan.columns, target.table, in_files=scan.columns)
    require_checked(values, scan.columns, target.checks)

    def write(files: EventFiles) -> None:
        files.delete(keys, np.ones(len(keys), bool))
        files.insert(values, keys.places, keys.numbers)

    return publish_events(target, write)


def _matching(
    scan: Scan, where: Where, names: Sequence[str], assignments: Mapping[str, str], table: str
) -> tuple[pa.Table, Keys]:
    """These columns, after the assignments, of the rows that `where` accepts, and the rows' keys;
    in the order of the keys."""
    columns = (*scan.columns, *scan.partition_columns)
    predicate = predicate_or_none(where, columns) if isinstance(where, str) else None
    rest = where if predicate is None else None
    computed = None
    if rest is not None or assignments:
        from acid_platform.engine.local.computed_rows import ComputedRows  # DuckDB takes long

        computed = ComputedRows(scan, rest, assignments, table)
    needed = {*names, *(computed.columns if computed else ())}
    read = [column.name for column in columns if column.name in needed]
    shown = [*names, ENTITY.name, ROW_ID_COLUMN]
    parts = []
    for batch in scanned(ArrowScan(scan, (*read, ENTITY.name), predicate, row_id=True)):
        rows = pa.Table.from_batches([batch])
        parts.append((computed.of(rows) if computed else rows).select(shown))
    if not parts:
        kinds = {column.name: arrow_type(column.type) for column in columns}
        nothing = pa.table({name: pa.nulls(0, kinds[name]) for name in names})
        none = np.zeros(0, np.int64)
        return nothing, Keys(none, none, none, RowPartitions((), none))
    matching = pa.concat_tables(parts)
    keys = keys_of(matching, scan)
    order = np.lexsort((keys.row_ids, keys.buckets, keys.write_ids))
    values = matching.select(list(names))
    return values.take(from_numpy(order)) if names else values, keys.take(order)


def scanned(scan: ArrowScan) -> Iterator[pa.RecordBatch]:
    """The batches of the scan, until the statement is stopped. Raises NeedsSpark too."""
    try:
        for batch in scan.batches():
            running.check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def keys_of(table: pa.Table, scan: Scan) -> Keys:
    """The keys of rows with ROW_ID_COLUMN and ENTITY."""
    ids = table.column(ROW_ID_COLUMN)
    write_ids, buckets, row_ids = (
        values_of(pc.struct_field(ids, [place])).astype(np.int64, copy=False) for place in range(3)
    )
    index = values_of(table.column(ENTITY.name)).astype(np.int64, copy=False)
    places = RowPartitions.ranked([entity.partition for entity in scan.entities], index)
    return Keys(write_ids, buckets, row_ids, places)
