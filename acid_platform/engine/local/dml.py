"""INSERT, UPDATE and DELETE in this process, in bounded memory, and what they check (P59).

Rows to insert are converted and checked part by part. Those of a table without partitions and
buckets go into its files as they come; others are put in order by PlacedRows. The rows of an UPDATE
or DELETE are found with their row ids and changed part by part; PlacedDeletes has their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.interface import Condition, Fixed, Result, Where
from acid_platform.engine.local import engine
from acid_platform.engine.local.event_files import (
    EventFiles,
    Keys,
    PlacedDeletes,
    PlacedRows,
    buckets_of,
    in_files,
    publish_events,
    require_writable,
)
from acid_platform.engine.merge_clauses import wanted_assignments
from acid_platform.errors import NeedsSpark, PublicationFailed, UnsupportedLayout
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.types import Column, Constraint, ConstraintKind, RowChecks
from acid_platform.scan.result_columns import PLACE
from acid_platform.scan.scans import ENTITY, ArrowScan, Scan, keeping
from acid_platform.values.arrow_types import from_numpy, values_of
from acid_platform.values.fitting import LONGEST_SHOWN, constraint_violated
from acid_platform.values.local_rows import gathered, local_parts
from acid_platform.values.partition_texts import RowPartitions, places_of, text_of
from acid_platform.values.row_streams import RowStream
from acid_platform.values.rows import Rows, column_names
from acid_platform.values.stored_values import assigned, stored_rows
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
        found = rows_at(scan, places, ())
    else:
        found = _matching(scan, where, ())

    def write(files: EventFiles) -> None:
        with PlacedDeletes(files) as deleted:
            for rows in parts_of(scan, (), found):
                keys = keys_of(rows, scan)
                deleted.add_keys(keys, np.zeros(len(keys), bool))
            deleted.write()

    return publish_events(target, write)


def update_rows(
    scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
) -> list[WrittenDirectory]:
    """Writes and publishes a delete event and an insert event for each matching row.

    Raises PartitionColumnUpdate, BucketColumnUpdate, WrongType, ConstraintViolated too.
    """
    # DuckDB and the parser take long to import.
    from acid_platform.engine.local.found_rows import AssignedValues, accepted, columns_read
    from acid_platform.engine.local.translation.column_names import NameScope

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
        batches = rows_at(scan, values_of(found.column(PLACE.name)), names)
    else:
        batches = _matching(scan, where, names)

    def write(files: EventFiles) -> None:
        begin = 0
        with PlacedDeletes(files) as deleted, PlacedRows(files) as placed:
            for rows in parts_of(scan, names, batches):
                keys, own = keys_of(rows, scan), rows.select(names)
                beside = {name: side.slice(begin, len(rows)) for name, side in sides.items()}
                begin += len(rows)
                new = assigned.put_into(own, {_ROWS: own, **beside})
                order = keys.order()
                keys, new = keys.take(order), new.take(from_numpy(order))
                stored = new.select([column.name for column in scan.columns])
                limited = target.format.limited(scan.columns)
                values = stored_rows(stored, scan.columns, target.table, in_files=limited)
                require_checked(values, scan.columns, target.checks)
                deleted.add_keys(keys, np.ones(len(keys), bool))
                placed.add(values, keys.places, keys.numbers if target.buckets else None)
            deleted.write()
            placed.write()

    return publish_events(target, write)


def _matching(scan: Scan, where: str | None, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns, the row ids and ENTITY of the rows that `where` accepts."""

    def streamed() -> Iterator[pa.RecordBatch]:
        predicate = None
        if where is not None:
            from acid_platform.predicates.arrow_predicates import (
                predicate_or_none,
            )  # and its parser

            predicate = predicate_or_none(where, (*scan.columns, *scan.partition_columns))
            if predicate is None:
                from acid_platform.engine.local.found_rows import places_where

                return rows_at(scan, places_where(scan, where), names)
        return scanned(ArrowScan(scan, (*names, ENTITY.name), predicate, row_id=True))

    return _direct_or(scan, where, names, streamed)


def rows_at(
    scan: Scan, places: np.ndarray, names: Sequence[str], keep: bool = True
) -> Iterator[pa.RecordBatch]:
    """These columns, the row id and ENTITY of the rows with these places, which ascend strictly.
    `keep`: see QuerySource.

    Raises CorruptFile, TxnAborted, NeedsSpark.
    """

    def streamed() -> Iterator[pa.RecordBatch]:
        return scanned(ArrowScan(scan, (*names, ENTITY.name), row_id=True, places=places), keep)

    return _direct_or(scan, places, names, streamed) if names else streamed()


def _direct_or(
    scan: Scan,
    where: str | np.ndarray | None,
    names: Sequence[str],
    streamed: Callable[[], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Rows as DuckDB reads them of the files itself, with the row ids that follow from their
    places; as a stream if it can't. `where`: a condition, or places."""
    files = (file for entity in scan.entities for file in entity.sources.inserts)
    if not any(file.format == "parquet" for file in files):
        yield from streamed()
        return
    from acid_platform.engine.local.direct_scans import UnreadFiles
    from acid_platform.engine.local.found_rows import found_directly

    found, count = found_directly(scan, where, names), 0
    schema = ArrowScan(scan, (*names, ENTITY.name), row_id=True).schema
    try:
        for batch in found or ():
            engine.check()
            places = values_of(batch.column(0))
            if isinstance(where, np.ndarray):
                expected = where[count : count + len(places)]
                assert np.array_equal(places, expected), "rows come in the order of their places"
            count += len(places)
            keyed = pa.Table.from_batches(rows_at(scan, places, ()))
            columns = [*batch.columns[1:], *keyed.columns]
            yield from pa.Table.from_arrays(columns, schema.names).cast(schema).to_batches()
    except UnreadFiles:
        if count:
            raise
        found = None
    if found is None:
        yield from streamed()
    elif isinstance(where, np.ndarray):
        assert count == len(where), "each place has a row"


def scanned(scan: ArrowScan, keep: bool = True) -> Iterator[pa.RecordBatch]:
    """The batches of the scan, until the statement is stopped.

    Raises CorruptFile, TxnAborted, NeedsSpark.
    """
    try:
        for batch in (keeping(scan) if keep else scan).batches():
            engine.check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def parts_of(
    scan: Scan, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.Table]:
    """Batches with these columns, the row ids and ENTITY, in parts of bounded size that are not
    empty."""
    kind = ArrowScan(scan, (*names, ENTITY.name), row_id=True).schema
    for part in gathered(batches):
        rows = pa.Table.from_batches(part, kind)
        if rows.num_rows:
            yield rows


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
    count = 0
    for part in parts:
        engine.check()
        count += len(part)
        if defaults is None:  # one value for all rows of the statement
            defaults = default_values(target.checks, target.columns, part.column_names)
        for name, value in defaults.items():
            part = part.append_column(name, pa.chunked_array([pa.repeat(value, len(part))]))
        limited = target.format.limited(target.columns)
        stored = stored_rows(part, target.all_columns, target.table, fixed, limited)
        yield require_checked(stored, target.columns, target.checks)
    if not count and isinstance(rows, Result):  # what no row can have fails without one
        stored_rows(rows.schema.empty_table(), target.all_columns, target.table, fixed)
        columns = {column.name: column for column in target.all_columns}
        for name, value in rows.constants():
            assigned(value, columns[name.lower()], target.table)


_ROWS = "acid_rows"
"""The name of the rows in DuckDB."""


def require_checked(rows: pa.Table, columns: Sequence[Column], checks: RowChecks) -> pa.Table:
    """The rows, which have these columns, if they fulfil the constraints.

    Raises ConstraintViolated, which shows a row; InvalidExpression, NeedsSpark.
    """
    for constraint in checks.constraints:
        if not rows.num_rows:
            break
        row = _violating(rows, columns, constraint)
        if row is not None:
            kinds = {column.name: column for column in columns}
            values = ", ".join(
                f"{name}={_shown(rows.column(name)[row].as_py(), kinds[name])}"
                for name in constraint.columns
            )
            raise constraint_violated(f"{checks.violation(constraint)} with {values}")
    return rows


def _violating(rows: pa.Table, columns: Sequence[Column], constraint: Constraint) -> int | None:
    """The number of a row that violates the constraint; None without one."""
    if constraint.kind is ConstraintKind.NOT_NULL:
        values = rows.column(constraint.columns[0])
        return int(pc.index(pc.is_null(values), True).as_py()) if values.null_count else None
    from acid_platform.engine.local.computation import POSITION, compute, condition_sql, numbered
    from acid_platform.engine.local.translation.column_names import NameScope

    own = [column for column in columns if column.name in constraint.columns]
    condition = condition_sql(constraint.condition, NameScope.of({_ROWS: own}))
    named = numbered(rows.select([column.name for column in own]))
    sql = (
        f"SELECT {POSITION} FROM {_ROWS} WHERE NOT coalesce(({condition}), true)"
        f" ORDER BY {POSITION} LIMIT 1"
    )
    violating = compute(sql, {_ROWS: named})
    return int(violating.column(0)[0].as_py()) if violating.num_rows else None


def _shown(value: Any, column: Column) -> str:
    if value is None:
        return "NULL"
    try:
        text = text_of(value, column.type) or ""
    except NeedsSpark:
        text = str(value)
    return text[:LONGEST_SHOWN]


def default_values(
    checks: RowChecks, columns: Sequence[Column], present: Sequence[str]
) -> dict[str, pa.Scalar]:
    """The value of each of these columns that rows with the columns `present` leave out and that
    has a default, in the column's type.

    Raises WrongType, NeedsSpark.
    """
    there = {name.lower() for name in present}
    absent = [
        column for column in columns if column.name in checks.defaults and column.name not in there
    ]
    if not absent:
        return {}
    from acid_platform.engine.local.computation import compute, in_declared_type, value_sql
    from acid_platform.engine.local.translation.column_names import NameScope

    values = {}
    for column in absent:
        text = checks.defaults[column.name]
        computed = compute(f"SELECT {value_sql(text, column, NameScope.of({}), checks.table)}", {})
        values[column.name] = in_declared_type(computed.column(0), column)[0]
    return values
