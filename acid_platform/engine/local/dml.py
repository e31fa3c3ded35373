"""DELETE and UPDATE: one scan finds the rows with their row ids, then events are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from acid_platform.engine.assignments import wanted_assignments
from acid_platform.engine.local.event_files import (
    EventFiles,
    Keys,
    publish_events,
    require_writable,
)
from acid_platform.engine.local.partition_texts import RowPartitions
from acid_platform.engine.local.running import RunningStatement
from acid_platform.engine.local.scanned_rows import keys_of, scanned
from acid_platform.engine.local.stored_values import conform
from acid_platform.engine.reads import Where
from acid_platform.errors import InvalidExpression, UnknownColumn, UnsupportedStatement
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.predicates.arrow_predicates import ArrowPredicate, arrow_predicate
from acid_platform.scan.arrow_scan import ENTITY, ArrowScan
from acid_platform.scan.scans import Scan
from acid_platform.storage.arrow_numpy import from_numpy
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.write.publishing import WriteTarget, WrittenDirectory


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Rows of a scan in the order of their keys; `values` are the wanted columns."""

    values: pa.Table
    keys: Keys


def delete_rows(
    scan: Scan, target: WriteTarget, where: Where, statement: RunningStatement
) -> list[WrittenDirectory]:
    """Writes and publishes a delete event for each matching row, in the file of its bucket.

    Raises InvalidExpression, UnknownColumn, PublicationFailed, CorruptFile, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    keys = _found(scan, where, (), {}, target.table, statement).keys
    return publish_events(
        target, statement.check, lambda files: files.delete(keys, np.zeros(len(keys), bool))
    )


def update_rows(
    scan: Scan,
    target: WriteTarget,
    assignments: Mapping[str, str],
    where: Where,
    statement: RunningStatement,
) -> list[WrittenDirectory]:
    """Writes and publishes a delete event and an insert event for each matching row.

    Raises PartitionColumnUpdate, BucketColumnUpdate, WrongType too.
    """
    wanted = wanted_assignments(assignments, scan, target.buckets, target.table)
    require_writable(target)
    names = [column.name for column in scan.columns]
    found = _found(scan, where, names, wanted, target.table, statement)
    values = conform(found.values, scan.columns, target.table, in_files=scan.columns)

    def write(files: EventFiles) -> None:
        files.delete(found.keys, np.ones(len(found.keys), bool))
        files.insert(values, found.keys.places, found.keys.numbers)

    return publish_events(target, statement.check, write)


def _found(
    scan: Scan,
    where: Where,
    wanted: Sequence[str],
    assignments: Mapping[str, str],
    table: str,
    statement: RunningStatement,
) -> MatchedRows:
    """The rows that `where` accepts, with these columns after the assignments."""
    predicate = _predicate(scan, where)
    rest = where if predicate is None else None
    with _computing(scan, rest, assignments, table, statement) as (needed, compute):
        columns = (*scan.columns, *scan.partition_columns)
        read = [column.name for column in columns if column.name in {*wanted, *needed}]
        arrow = ArrowScan(scan, (*read, ENTITY.name), predicate, row_id=True)
        parts = [
            compute(pa.Table.from_batches([batch])).select([*wanted, ENTITY.name, ROW_ID_COLUMN])
            for batch in scanned(arrow, statement)
        ]
    return _in_key_order(parts, wanted, scan)


@contextmanager
def _computing(
    scan: Scan,
    where: Where,
    assignments: Mapping[str, str],
    table: str,
    statement: RunningStatement,
) -> Iterator[tuple[set[str], Callable[[pa.Table], pa.Table]]]:
    """The columns that a computation needs, and what it makes of the rows of a batch."""
    if where is None and not assignments:
        yield set(), lambda rows: rows
        return
    from acid_platform.engine.local.computed_rows import ComputedRows  # to import DuckDB takes long

    with ComputedRows(scan, where, assignments, table, statement) as computed:
        yield computed.columns, computed.of


def _in_key_order(parts: list[pa.Table], wanted: Sequence[str], scan: Scan) -> MatchedRows:
    if not parts:
        columns = {column.name: column for column in (*scan.columns, *scan.partition_columns)}
        nothing = {name: pa.nulls(0, arrow_type(columns[name].type)) for name in wanted}
        none = np.zeros(0, np.int64)
        return MatchedRows(pa.table(nothing), Keys(none, none, none, RowPartitions((), none)))
    table = pa.concat_tables(parts)
    keys = keys_of(table, scan)
    order = np.lexsort((keys.row_ids, keys.buckets, keys.write_ids))
    values = table.select(list(wanted))
    if wanted:
        values = values.take(from_numpy(order))
    return MatchedRows(values, keys.take(order))


def _predicate(scan: Scan, where: Where) -> ArrowPredicate | None:
    """The condition for the Arrow reader; None if only DuckDB can evaluate it."""
    if not isinstance(where, str):
        return None
    try:
        return arrow_predicate(where, (*scan.columns, *scan.partition_columns), "the table")
    except (UnsupportedStatement, InvalidExpression, UnknownColumn):
        return None
