"""Rows in this process as Arrow tables with a table's types, without loss, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.layout.types import CHAR_TYPES, Column, HiveType, unknown_column
from acid_platform.values.arrow_types import arrow_type, is_period
from acid_platform.values.coercion import Coerced, Coercion, Original
from acid_platform.values.fitting import Unfit, fitted
from acid_platform.values.python_values import array_of, exact, is_missing, python_values
from acid_platform.values.row_streams import RowStream, table_of_parts
from acid_platform.values.rows import (
    ComputedRows,
    Rows,
    column_names,
    columns_of_rows,
    is_pandas_frame,
    is_spark_frame,
    plain_rows,
    schema_of,
)


def coerced_table(
    rows: Rows, columns: Sequence[Column], table: str
) -> tuple[pa.Table, dict[str, Coerced]]:
    """Rows in this process with the table's types, converted as Hive's CAST does, and what that
    changed in which column.

    The rows may have columns that the table lacks. Raises UnsupportedStatement for rows that
    Spark or a query computes, and what `local_table` raises.
    """
    if isinstance(rows, ComputedRows) or is_spark_frame(rows):
        raise UnsupportedStatement(
            f"coerce=True converts rows in this process; for {table} cast those of Spark or a query"
            " by themselves: frame.selectExpr('CAST(amount AS decimal(9,2)) AS amount')"
        )
    coercion = Coercion()
    converted = local_table(plain_rows(rows), columns, table, True, coercion)
    counts = {
        column: counted + Coerced(originals=_originals(converted, coercion.given.get(column, {})))
        for column, counted in coercion.counts.items()
    }
    return converted, counts


def _originals(converted: pa.Table, given: Mapping[int, str]) -> tuple[Original, ...]:
    """Those of one column; its rows are read from the converted ones."""
    if not given:
        return ()
    plain = [field.name for field in converted.schema if not pa.types.is_nested(field.type)]
    rows = converted.select(plain).take(pa.array([*given], pa.int64())).to_pylist()
    pairs = zip(given.items(), rows, strict=True)
    return tuple(Original(text, row, stored) for (row, text), stored in pairs)


def local_table(
    rows: Rows,
    columns: Sequence[Column],
    table: str,
    more: bool = False,
    coercion: Coercion | None = None,
) -> pa.Table:
    """Rows in this process with the table's types, for those of its columns that they have.

    The names are in lower case. With `more`, the rows may have columns that the table lacks, which
    keep their own types. `coercion` converts values that would change, and counts them. A stream
    becomes a table, which lies in a file if it is large, and can be read again. Raises
    UnknownColumn, also for a field of a struct; WrongType if a value would change;
    InvalidDefinition for a column of `more` whose type no table has.
    """
    if isinstance(rows, RowStream):
        made = table_of_parts(local_parts(rows, columns, table, more, coercion))
        rows.became(made)
        return made
    return _converted(rows, column_names(rows), 0, columns, table, more, coercion)


def local_parts(
    rows: Rows,
    columns: Sequence[Column],
    table: str,
    more: bool = False,
    coercion: Coercion | None = None,
) -> Iterator[pa.Table]:
    """As `local_table`, in parts of bounded size; at least one, which may be empty."""
    names, before = column_names(rows), 0
    for part in _divided(rows):
        yield _converted(part, names, before, columns, table, more, coercion)
        before += len(part)


_PART_ROWS, _PART_BYTES = 1 << 17, 1 << 25
"""A part has so many rows or bytes, about, but one row at least. Smaller batches of a stream are
put together."""


def _divided(rows: Any) -> Iterator[Any]:
    if isinstance(rows, pa.Table):
        if not len(rows) or not rows.num_columns:  # a slice of no columns has as many as asked for
            yield rows
            return
        most = max(1, min(len(rows), len(rows) * _PART_BYTES // (rows.nbytes or 1)))
        yield from (rows.slice(start, most) for start in range(0, len(rows), most))
    elif is_pandas_frame(rows):
        for start in range(0, len(rows) or 1, _PART_ROWS):
            yield rows.iloc[start : start + _PART_ROWS]
    elif not isinstance(rows, RowStream):
        for start in range(0, len(rows) or 1, _PART_ROWS):
            yield rows[start : start + _PART_ROWS]
    else:
        for batches in gathered(rows.batches()):
            part = pa.Table.from_batches(batches, rows.schema)
            yield from [part.combine_chunks()] if len(batches) > 1 else _divided(part)


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Small batches together, others alone; at least one list, which may be empty."""
    small, size, given = list[pa.RecordBatch](), 0, False
    for batch in batches:
        if small and size + batch.nbytes > _PART_BYTES:
            yield small
            small, size, given = [], 0, True
        small.append(batch)
        size += batch.nbytes
    if small or not given:
        yield small


def _converted(
    rows: Any,
    names: Sequence[str],
    before: int,
    columns: Sequence[Column],
    table: str,
    more: bool,
    coercion: Coercion | None,
) -> pa.Table:
    """As `local_table`; the rows have these names, and so many rows come before them."""
    declared = {column.name: column for column in columns}
    others = [name for name in names if name.lower() not in declared]
    if others and not more:
        raise unknown_column(others[0], table, columns)
    declared |= {column.name: column for column in _others(rows, others)}
    if coercion is not None:
        coercion.before = before
    arrays = {}
    for name in names:
        try:
            column = declared[name.lower()]
            arrays[name.lower()] = _array(_values(rows, name), column, coercion)
        except Unfit as fault:
            raise fault.after(before).error(column, table) from fault
    if not names:  # rows that name no column are rows of NULLs, as `{}` beside others is
        first = columns[0]
        arrays = {first.name: pa.nulls(len(rows), arrow_type(first.type))}
    return pa.table(arrays)


def _others(rows: Rows, names: Sequence[str]) -> tuple[Column, ...]:
    """Columns that the table lacks; those of nothing but NULL are strings."""
    columns: list[Column] = []
    for name in names:
        text = Column(name.lower(), HiveType("string"))
        try:
            nothing = pa.types.is_null(schema_of(rows, name).field(0).type)
        except InvalidDefinition as error:
            if not isinstance(error.__cause__, UnicodeEncodeError):
                raise
            nothing = True  # the conversion to a text says which value is wrong
        columns += [text] if nothing else columns_of_rows(rows, [name])
    return tuple(columns)


def _values(rows: Any, name: str) -> Sequence[object] | pa.ChunkedArray:
    """A column of rows in this process: an Arrow array if its type is known, else Python values."""
    if isinstance(rows, pa.Table):
        return rows.column(name)
    if not is_pandas_frame(rows):
        return [row.get(name) for row in rows]
    series = rows[name]
    if series.dtype == object:
        # pandas writes a missing value of any type as NaN.
        return [None if is_missing(value) else value for value in series]
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError):  # such as half of a character in a text
        return list(series)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _array(
    values: Sequence[object] | pa.ChunkedArray, column: Column, coercion: Coercion | None
) -> Any:
    """The values as the column's type. Raises Unfit."""
    try:
        if isinstance(values, pa.ChunkedArray):
            if is_period(values.type):
                raise Unfit(f"the rows have {values.type}")
            values.validate(full=True)  # whoever lent them
            if coercion is None:
                return _fitted(values, column.type)
            if not any(part.kind in CHAR_TYPES for part in column.type.walk()):
                with suppress(Unfit, pa.ArrowNotImplementedError):
                    return _fitted(values, column.type)
            values = python_values(values)  # texts may have to be cut
        return array_of(values, column.type, coercion, column.name)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        # Values that Arrow itself refuses, or a type that it has little code for.
        kind = getattr(values, "type", "values")
        raise Unfit(f"the rows have {kind}: {error}") from error


_MOST_ROWS, _MOST_BYTES = 1 << 20, 1 << 30
"""How much of a chunk is converted at a time: the texts and lists of a table's types have offsets
of 32 bits, also where the chunk has longer ones, or each text once for many rows."""


def _fitted(values: pa.ChunkedArray, hive: HiveType) -> pa.ChunkedArray:
    parts, before = [], 0
    for part in _parts(values):
        try:
            parts.append(fitted(part, hive, exact))
        except Unfit as fault:
            raise fault.after(before) from None
        before += len(part)
    return pa.chunked_array(parts, arrow_type(hive))


def _parts(values: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in values.chunks:
        rows = min(_MOST_ROWS, max(1, len(chunk) * _MOST_BYTES // (chunk.nbytes or 1)))
        yield from (chunk.slice(start, rows) for start in range(0, len(chunk) or 1, rows))
