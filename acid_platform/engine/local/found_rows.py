"""Where the rows are that a statement changes, as DuckDB finds them.

A condition and a join read their own columns of all rows, as a stream. Other columns are decoded
afterwards, only where rows were found, and only of these: `dml.rows_at`.

What SET gives these rows is computed by DuckDB too, unless it is a column as it is, and put into
the rows by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.interface import ROW_ID, Condition, TableRead
from acid_platform.engine.local.computation import (
    POSITION,
    QuerySource,
    compute,
    condition_sql,
    in_declared_type,
    numbered,
    reading,
    rows_of,
    value_sql,
)
from acid_platform.engine.local.direct_scans import direct_scan
from acid_platform.engine.local.run_query import query
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import batches_of, identifier, may_fail
from acid_platform.engine.merge_clauses import SetTarget, targets_of
from acid_platform.errors import InvalidDefinition, NeedsSpark, UnsupportedLayout
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import paths_of
from acid_platform.scan.result_columns import PLACE
from acid_platform.scan.scans import Scan
from acid_platform.values.arrow_types import from_numpy, values_of
from acid_platform.values.local_rows import gathered


@dataclass(frozen=True, slots=True)
class AssignedValues:
    """Values of columns, and of fields of structs, as DuckDB's SQL."""

    targets: tuple[SetTarget, ...]
    sql: tuple[str, ...]
    """An item of a SELECT for each target, under the name that SET gives it."""
    copied: tuple[tuple[str, str] | None, ...]
    """The member of the scope and its column that a target takes as it is; None: it is computed."""

    @classmethod
    def of(
        cls,
        texts: Mapping[str, str],
        columns: Sequence[Column],
        scope: NameScope,
        table: str,
        once: bool = True,
    ) -> AssignedValues:
        """`texts`: expressions over the scope by names of SET, in lower case. `once`: see
        value_sql.

        Raises WrongType if a type does not fit, UnknownColumn, InvalidExpression, NeedsSpark.
        """
        targets = targets_of(texts, columns, table)
        values = [target.value for target in targets]
        items = [value_sql(texts[value.name], value, scope, table, once) for value in values]
        own = {sql: column for column, sql in scope.columns_in_sql()}
        return cls(
            targets,
            tuple(items),
            tuple(
                own.get(item.removesuffix(f" AS {identifier(value.name)}"))
                for item, value in zip(items, values, strict=True)
            ),
        )

    @property
    def replaced(self) -> frozenset[str]:
        """The columns that get a value as a whole, so that nothing of the old one stays."""
        return frozenset(target.column.name for target in self.targets if not target.fields)

    def taken_of(self, member: str, names: Sequence[str]) -> list[str]:
        """Those of the member's columns that the values are made of; all if one is computed."""
        if None in self.copied:
            return list(names)
        return list(dict.fromkeys(copy[1] for copy in self.copied if copy and copy[0] == member))

    def put_into(self, rows: pa.Table, sides: Mapping[str, pa.Table]) -> pa.Table:
        """The rows with new values, which are computed of the rows of the sides: of the first row
        of each, then of the second, and so on. Columns that `rows` lacks come last.

        Raises WrongType, InvalidExpression, TxnAborted, NeedsSpark.
        """
        items = [sql for sql, copy in zip(self.sql, self.copied, strict=True) if copy is None]
        if not items or not rows.num_rows:
            computed = pa.table({target.value.name: pa.nulls(0) for target in self.targets})
        else:
            numbered_sides = {name: numbered(table) for name, table in sides.items()}
            first, *others = (identifier(name) for name in sides)
            joined = first + "".join(f" JOIN {other} USING ({POSITION})" for other in others)
            sql = f"SELECT {', '.join(items)} FROM {joined} ORDER BY {POSITION}"
            computed = compute(sql, numbered_sides)
        for target, copy in zip(self.targets, self.copied, strict=True):
            value, name = target.value, target.column.name
            given = computed.column(value.name) if copy is None else sides[copy[0]].column(copy[1])
            values = in_declared_type(given, value)
            if target.fields:
                values = _with_field(rows.column(name), target.fields, values)
            if name in rows.column_names:
                rows = rows.set_column(rows.column_names.index(name), name, values)
            else:
                rows = rows.append_column(name, values)
        return rows


def _with_field(
    whole: pa.ChunkedArray, path: Sequence[str], values: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Structs with other values of a field; the other fields of one that was NULL become NULL."""
    children = []
    for index, field in enumerate(whole.type):
        child = pc.struct_field(whole, [index])
        if field.name.lower() == path[0]:
            child = _with_field(child, path[1:], values) if path[1:] else values.cast(field.type)
        children.append(pa.concat_arrays(child.chunks or [pa.nulls(0, field.type)]))
    structs = pa.StructArray.from_arrays(children, fields=list(whole.type))
    return pa.chunked_array([structs], whole.type)


_ROWS = "acid_rows"
"""The name of the table's rows in DuckDB."""


def columns_read(
    texts: Iterable[str], columns: Sequence[Column], others: Iterable[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """The columns that the expressions may read, in order.

    `others`: the name of another table and of its column, in lower case, for each of its columns.
    """
    names, of_others = set[str](), set(others)
    for text in texts:
        paths = paths_of(text)
        if paths is None:
            return tuple(column.name for column in columns)
        names |= {name for path in paths if path[:2] not in of_others for name in path}
    return tuple(column.name for column in columns if column.name in names)


def stream(
    scan: Scan, names: Sequence[str], row_id: bool = False, keep: bool = True
) -> QuerySource:
    """These columns of all rows and the PLACE of each, as DuckDB reads them."""
    read = TableRead(scan, tuple(names), row_id=row_id, place=True)
    return QuerySource(read, keep=keep, direct=direct_scan(read))


_SMALL = 1 << 19
"""To let DuckDB open the files takes longer than to read so many rows of them as a stream."""
_FEW = 1000
"""If fewer than one of so many rows are wanted, only the row groups that have one are decoded,
which Arrow can."""


def found_directly(
    scan: Scan, where: str | np.ndarray | None, names: Sequence[str]
) -> Iterator[pa.RecordBatch] | None:
    """PLACE, ascending in each batch, and these columns of the rows that the condition accepts, or
    of those with these places, as DuckDB reads them of the files itself; None if it can't.

    Raises InvalidExpression, UnknownColumn, CorruptFile; the batches NeedsSpark, UnreadFiles too.
    """
    columns = (*scan.columns, *scan.partition_columns)
    condition, places, read = "true", None, set[str]()
    if isinstance(where, str):
        if ROW_ID_COLUMN in where.lower():
            return None
        read = {*columns_read([where], columns)}
        try:
            condition = condition_sql(where, NameScope.of({_ROWS: columns}))
        except NeedsSpark:
            return None
    elif where is not None:
        places = where
    wanted = tuple(column.name for column in columns if column.name in read.union(names))
    table = TableRead(scan, wanted, place=True)
    direct = direct_scan(table, places)
    if direct is None or direct.rows <= _SMALL:
        return None
    if places is not None and (not direct.in_order or len(places) * _FEW < direct.rows):
        return None
    items = ", ".join(identifier(name) for name in (PLACE.name, *names))
    sql = f"SELECT {items} FROM {_ROWS} WHERE {condition}"

    # Where no row can fail, those that are deleted are left out when they were found.
    tested_after = places is None and not may_fail(condition)
    read_so = direct.of_all_rows() if tested_after else direct

    def batches() -> Iterator[pa.RecordBatch]:
        with reading({_ROWS: partial(QuerySource, table, direct=read_so)}, sql) as connection:
            for part in gathered(batches_of(rows_of(connection, sql))):
                if not part:
                    continue
                (batch,) = pa.Table.from_batches(part).combine_chunks().to_batches() or [part[0]]
                found = values_of(batch.column(0))
                if (found[1:] < found[:-1]).any():
                    batch = batch.take(from_numpy(np.argsort(found)))
                    found = values_of(batch.column(0))
                if tested_after and not (keep := direct.live(found)).all():
                    batch = batch.filter(from_numpy(keep))
                yield batch

    return batches()


def places_where(scan: Scan, where: str) -> np.ndarray:
    """The places of the rows that the condition accepts, int64 (n,), ascending.

    Raises InvalidExpression, UnknownColumn, CorruptFile, TxnAborted, NeedsSpark.
    """
    columns = (*scan.columns, *scan.partition_columns, Column(ROW_ID_COLUMN, ROW_ID))
    names = columns_read([where], columns)
    row_id = ROW_ID_COLUMN in names
    source = stream(scan, [name for name in names if name != ROW_ID_COLUMN], row_id)
    condition = condition_sql(where, NameScope.of({_ROWS: columns}))
    found = compute(f"SELECT {PLACE.name} FROM {_ROWS} WHERE {condition}", {_ROWS: source})
    places = values_of(found.column(0))
    return places if (places[1:] > places[:-1]).all() else np.sort(places)


def accepted(scan: Scan, where: Condition) -> tuple[pa.Table, tuple[Column, ...]]:
    """PLACE of the rows that a condition accepts which reads other tables, ascending, and its
    values, with their columns.

    Raises InvalidExpression, UnknownColumn, CorruptFile, TxnAborted, NeedsSpark.
    """
    row_id = ROW_ID_COLUMN in where.text.lower()
    own = TableRead(scan, where.columns, where.pruning, row_id, place=True)
    try:
        result = query(
            f"SELECT {quoted(PLACE.name)}{where.text}",
            {**where.sources, where.target: own},
            _no_session,
            "",
        )
        columns = result.declared()[1:] if where.values else ()
        rows = result.to_arrow()
    except duckdb.Error as error:
        raise NeedsSpark(str(error).partition("\n")[0]) from error
    except (InvalidDefinition, UnsupportedLayout) as error:
        raise NeedsSpark(str(error)) from error
    named = rows.rename_columns([PLACE.name, *where.values])
    return named.sort_by(PLACE.name), columns


def _no_session() -> NoReturn:
    raise NeedsSpark("the rows of a condition")
