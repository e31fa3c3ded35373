"""DELETE and UPDATE: one scan finds the rows with their row ids, then events are written (P20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.assignments import wanted_assignments
from acid_platform.engine.local.computation import (
    POSITION,
    Computation,
    condition_sql,
    in_declared_type,
    numbered,
    value_sql,
)
from acid_platform.engine.local.conditions import accepted_keys
from acid_platform.engine.local.event_files import (
    EventFiles,
    Keys,
    publish_events,
    require_writable,
)
from acid_platform.engine.local.partition_texts import Places
from acid_platform.engine.local.running import Statement
from acid_platform.engine.local.scope import Scope
from acid_platform.engine.local.sources import ROW_ID
from acid_platform.engine.local.stored_values import conform
from acid_platform.engine.publishing import WriteTarget, Written
from acid_platform.engine.queries import Condition, Where
from acid_platform.engine.scans import TableScan
from acid_platform.errors import (
    InvalidExpression,
    NeedsSpark,
    UnknownColumn,
    UnsupportedLayout,
    UnsupportedStatement,
)
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column, HiveType
from acid_platform.reading.arrow_predicates import ArrowPredicate, arrow_predicate
from acid_platform.reading.arrow_read import partition_scalars
from acid_platform.reading.predicates import columns_of
from acid_platform.storage.arrow_numpy import from_numpy, scalar_of, values_of
from acid_platform.storage.arrow_scan import ArrowScan, EntityRead
from acid_platform.storage.arrow_types import arrow_type

ENTITY = Column("__entity", HiveType("int"))
"""The place of a row's partition among the entities of its scan."""
_ROWS = "acid_rows"
"""The name of the table's rows in DuckDB."""
_KEYS = "acid_keys"
"""The name of the keys that a condition with subqueries accepts."""
_ACCEPTED = (
    f" WHERE EXISTS (SELECT 1 FROM {_KEYS} k WHERE k.{ENTITY.name} = {_ROWS}.{ENTITY.name}"
    f" AND k.w = {_ROWS}.{ROW_ID_COLUMN}.writeid AND k.b = {_ROWS}.{ROW_ID_COLUMN}.bucketid"
    f" AND k.r = {_ROWS}.{ROW_ID_COLUMN}.rowid)"
)


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a scan in the order of their keys; `values` are the wanted columns."""

    values: pa.Table
    keys: Keys


def delete_rows(
    scan: TableScan, target: WriteTarget, where: Where, statement: Statement
) -> list[Written]:
    """Writes and publishes a delete event for each matching row, in the file of its bucket.

    Raises InvalidExpression, UnknownColumn, PublicationFailed, CorruptFile, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    keys = _found(scan, where, (), {}, target.table, statement).keys
    return publish_events(target, statement.check, lambda files: files.delete(keys))


def update_rows(
    scan: TableScan,
    target: WriteTarget,
    assignments: Mapping[str, str],
    where: Where,
    statement: Statement,
) -> list[Written]:
    """Writes and publishes a delete event and an insert event for each matching row (F6).

    Raises PartitionColumnUpdate, BucketColumnUpdate, WrongType too.
    """
    wanted = wanted_assignments(assignments, scan, target.buckets, target.table)
    require_writable(target)
    names = [column.name for column in scan.columns]
    found = _found(scan, where, names, wanted, target.table, statement)
    values = conform(found.values, scan.columns, target.table, in_files=scan.columns)

    def write(files: EventFiles) -> None:
        files.delete(found.keys)
        files.insert(values, found.keys.places, found.keys.numbers)

    return publish_events(target, statement.check, write)


def _found(
    scan: TableScan,
    where: Where,
    wanted: Sequence[str],
    assignments: Mapping[str, str],
    table: str,
    statement: Statement,
) -> Found:
    """The rows that `where` accepts, with these columns after the assignments."""
    predicate = _predicate(scan, where)
    columns = (*scan.columns, *scan.partition_columns)
    scope = Scope.of({_ROWS: columns})
    changed = [column for column in scan.columns if column.name in assignments]
    chosen = [value_sql(assignments[column.name], column, scope, table) for column in changed]
    sql = f"SELECT {', '.join((POSITION, *chosen))} FROM {_ROWS}"
    texts = [assignments[column.name] for column in changed]
    others: dict[str, pa.Table] = {}
    if isinstance(where, Condition):
        others[_KEYS] = accepted_keys(scan, where, ENTITY.name)
        sql += _ACCEPTED
    elif predicate is None and where is not None:
        texts.append(where)
        seen = (*columns, Column(ROW_ID_COLUMN, ROW_ID))
        sql += f" WHERE {condition_sql(where, Scope.of({_ROWS: seen}))}"
    read = [column.name for column in columns if column.name in {*wanted, *_named(texts, columns)}]
    arrow = as_arrow_scan(scan, (*read, ENTITY.name), predicate)
    parts: list[pa.Table] = []
    computing = Computation(statement) if texts or others else nullcontext()
    with computing as computation:
        for batch in scanned(arrow, statement):
            rows = pa.Table.from_batches([batch])
            if computation is not None and rows.num_rows:
                computed = computation.run(sql, {_ROWS: numbered(rows), **others})
                rows = _changed(rows, computed, changed)
            parts.append(rows.select([*wanted, ENTITY.name, ROW_ID_COLUMN]))
    return _in_key_order(parts, wanted, scan)


def _named(texts: Sequence[str], columns: Sequence[Column]) -> set[str]:
    """The columns that the expressions may read."""
    every = {column.name for column in columns}
    return set().union(*(every if (read := columns_of(text)) is None else read for text in texts))


def _changed(rows: pa.Table, computed: pa.Table, changed: Sequence[Column]) -> pa.Table:
    """The computed rows of a batch, with the computed values of the changed columns."""
    rows = rows.take(computed.column(POSITION))
    for column in changed:
        values = in_declared_type(computed.column(column.name), column)
        rows = rows.set_column(rows.column_names.index(column.name), column.name, values)
    return rows


def _in_key_order(parts: list[pa.Table], wanted: Sequence[str], scan: TableScan) -> Found:
    if not parts:
        columns = {column.name: column for column in (*scan.columns, *scan.partition_columns)}
        nothing = {name: pa.nulls(0, arrow_type(columns[name].type)) for name in wanted}
        none = np.zeros(0, np.int64)
        return Found(pa.table(nothing), Keys(none, none, none, Places((), none)))
    table = pa.concat_tables(parts)
    keys = keys_of(table, scan)
    order = np.lexsort((keys.row_ids, keys.buckets, keys.write_ids))
    values = table.select(list(wanted))
    if wanted:
        values = values.take(from_numpy(order))
    return Found(values, keys.take(order))


def keys_of(table: pa.Table, scan: TableScan) -> Keys:
    """The keys of rows with ROW_ID_COLUMN and ENTITY."""
    ids = table.column(ROW_ID_COLUMN)
    w, b, r = (
        values_of(pc.struct_field(ids, [place])).astype(np.int64, copy=False) for place in range(3)
    )
    index = values_of(table.column(ENTITY.name)).astype(np.int64, copy=False)
    return Keys(w, b, r, Places.ranked([entity.partition for entity in scan.entities], index))


# --- the scan ------------------------------------------------------------------------------------


def as_arrow_scan(
    scan: TableScan, wanted: Sequence[str], predicate: ArrowPredicate | None = None
) -> ArrowScan:
    """The scan by the Arrow reader, with row ids; ENTITY is one more partition column."""
    entities = tuple(
        EntityRead(
            entity.sources,
            entity.deletes,
            {
                ENTITY.name: scalar_of(place, pa.int32()),
                **partition_scalars(scan.partition_columns, entity.values),
            },
        )
        for place, entity in enumerate(scan.entities)
    )
    return ArrowScan(
        scan.files,
        scan.columns,
        (*scan.partition_columns, ENTITY),
        entities,
        scan.write_ids,
        tuple(wanted),
        predicate,
        True,
        scan.format,
    )


def scanned(scan: ArrowScan, statement: Statement) -> Iterator[pa.RecordBatch]:
    """The batches of the scan, until the statement is stopped. Raises NeedsSpark too."""
    try:
        for batch in scan.batches():
            statement.check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def _predicate(scan: TableScan, where: Where) -> ArrowPredicate | None:
    """The condition for the Arrow reader; None if only DuckDB can evaluate it."""
    if not isinstance(where, str):
        return None
    try:
        return arrow_predicate(where, (*scan.columns, *scan.partition_columns), "the table")
    except (UnsupportedStatement, InvalidExpression, UnknownColumn):
        return None
