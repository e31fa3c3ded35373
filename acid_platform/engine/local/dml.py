"""DELETE and UPDATE: the rows are found with their row ids, then events are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.interface import Condition, Where
from acid_platform.engine.local import running
from acid_platform.engine.local.event_files import (
    EventFiles,
    Keys,
    publish_events,
    require_writable,
)
from acid_platform.engine.local.row_checks import require_checked
from acid_platform.engine.merge_clauses import wanted_assignments
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.types import Column
from acid_platform.predicates.arrow_predicates import predicate_or_none
from acid_platform.scan.decode import PLACE
from acid_platform.scan.scans import ENTITY, ArrowScan, Scan
from acid_platform.values.arrow_types import from_numpy, values_of
from acid_platform.values.partition_texts import RowPartitions
from acid_platform.values.stored_values import stored_rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

_ROWS, _VALUES = "acid_rows", "acid_values"
"""What the expressions of SET read: the table's rows, and what subqueries give them."""


def delete_rows(scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]:
    """Writes and publishes a delete event for each matching row, in the file of its bucket.

    Raises InvalidExpression, UnknownColumn, PublicationFailed, CorruptFile, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    if isinstance(where, Condition):
        from acid_platform.engine.local.found_rows import accepted

        places = values_of(accepted(scan, where)[0].column(PLACE.name))
        rows = table_of(scan, (), rows_at(scan, places, ()))
    else:
        rows = _matching(scan, where, ())
    keys = keys_of(rows, scan)
    return publish_events(target, lambda files: files.delete(keys, np.zeros(len(keys), bool)))


def update_rows(
    scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
) -> list[WrittenDirectory]:
    """Writes and publishes a delete event and an insert event for each matching row.

    Raises PartitionColumnUpdate, BucketColumnUpdate, WrongType, ConstraintViolated too.
    """
    # DuckDB and the parser take long to import.
    from acid_platform.engine.local.found_rows import AssignedValues, accepted, columns_read
    from acid_platform.engine.local.translation.name_scope import NameScope

    expressions = wanted_assignments(assignments, scan, target.buckets, target.table)
    require_writable(target)
    members: dict[str, Sequence[Column]] = {_ROWS: (*scan.columns, *scan.partition_columns)}
    sides: dict[str, pa.Table] = {}
    if isinstance(where, Condition):
        found, members[_VALUES] = accepted(scan, where)
        sides[_VALUES] = found.drop_columns([PLACE.name])
    scope = NameScope.of(members)
    assigned = AssignedValues.of(expressions, scan.columns, scope, target.table)
    read = columns_read(expressions.values(), members[_ROWS])
    names = [
        column.name
        for column in members[_ROWS]
        if column.name in read or (column in scan.columns and column.name not in assigned.replaced)
    ]
    if isinstance(where, Condition):
        places = values_of(found.column(PLACE.name))
        rows = table_of(scan, names, rows_at(scan, places, names))
    else:
        rows = _matching(scan, where, names)
    keys = keys_of(rows, scan)
    rows = assigned.put_into(rows.select(names), {_ROWS: rows.select(names), **sides})
    order = np.lexsort((keys.row_ids, keys.buckets, keys.write_ids))
    keys, rows = keys.take(order), rows.take(from_numpy(order))
    stored = rows.select([column.name for column in scan.columns])
    values = stored_rows(stored, scan.columns, target.table, in_files=scan.columns)
    require_checked(values, scan.columns, target.checks)

    def write(files: EventFiles) -> None:
        files.delete(keys, np.ones(len(keys), bool))
        files.insert(values, keys.places, keys.numbers)

    return publish_events(target, write)


def _matching(scan: Scan, where: str | None, names: Sequence[str]) -> pa.Table:
    """These columns, the row ids and ENTITY of the rows that `where` accepts."""
    predicate = None
    if where is not None:
        predicate = predicate_or_none(where, (*scan.columns, *scan.partition_columns))
        if predicate is None:
            from acid_platform.engine.local.found_rows import places_where  # DuckDB takes long

            return table_of(scan, names, rows_at(scan, places_where(scan, where), names))
    every = ArrowScan(scan, (*names, ENTITY.name), predicate, row_id=True)
    return table_of(scan, names, scanned(every))


def rows_at(scan: Scan, places: np.ndarray, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns, the row id and ENTITY of the rows with these places, which ascend strictly.

    Raises CorruptFile, TxnAborted, NeedsSpark.
    """
    return scanned(ArrowScan(scan, (*names, ENTITY.name), row_id=True, places=places))


def scanned(scan: ArrowScan) -> Iterator[pa.RecordBatch]:
    """The batches of the scan, until the statement is stopped.

    Raises CorruptFile, TxnAborted, NeedsSpark.
    """
    try:
        for batch in scan.batches():
            running.check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def table_of(scan: Scan, names: Sequence[str], batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """Batches with these columns, the row ids and ENTITY."""
    kind = ArrowScan(scan, (*names, ENTITY.name), row_id=True).schema
    return pa.Table.from_batches(batches, kind)


def keys_of(table: pa.Table, scan: Scan) -> Keys:
    """The keys of rows with ROW_ID_COLUMN and ENTITY."""
    ids = table.column(ROW_ID_COLUMN)
    write_ids, buckets, row_ids = (
        values_of(pc.struct_field(ids, [position])).astype(np.int64, copy=False)
        for position in range(3)
    )
    index = values_of(table.column(ENTITY.name)).astype(np.int64, copy=False)
    places = RowPartitions.ranked([entity.partition for entity in scan.entities], index)
    return Keys(write_ids, buckets, row_ids, places)
