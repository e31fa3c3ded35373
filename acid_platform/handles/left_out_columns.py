"""Dicts of a list that leave out a column that others have: they get its DEFAULT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from acid_platform.errors import UnknownColumn
from acid_platform.tables.table_constraints import row_checks
from acid_platform.values.rows import Rows, column_names

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord

_Dicts = Sequence[Mapping[str, object]]


def are_mixed(rows: Rows) -> TypeGuard[_Dicts]:
    """Whether the rows are dicts of which one leaves out a column that another has, or all of them
    are empty. Raises as `column_names`."""
    if not isinstance(rows, Sequence) or not rows:
        return False
    most = len(column_names(rows))
    return not most or any(len(row) < most for row in rows)


def filled(rows: _Dicts, record: TableRecord, warehouse: Warehouse) -> _Dicts:
    """Mixed rows with the defaults of the columns that some of them leave out."""
    defaults = row_checks(record).defaults
    left_out = _left_out(rows, defaults)
    if not left_out:
        return rows
    texts = ", ".join(f"{defaults[name]} AS c{n}" for n, name in enumerate(left_out))
    computed = warehouse.engines.select(f"SELECT {texts}", {}, warehouse.metastore.in_force)
    (values,) = computed.to_arrow().to_pylist()
    given = dict(zip(left_out.values(), values.values(), strict=True))
    return [{**given, **row} for row in rows]


def refuse_mixed(rows: _Dicts, record: TableRecord) -> None:
    """Raises UnknownColumn for mixed rows whose columns MERGE takes by name, if some of them leave
    out a column with a default: it would be NULL, or overwrite what a row of the table has."""
    for column, spelled in _left_out(rows, row_checks(record).defaults).items():
        row = next(number for number, row in enumerate(rows, 1) if spelled not in row)
        raise UnknownColumn(
            f"MERGE into {record.name}: row {row} lacks {column!r}, which has a DEFAULT and which"
            " other rows have: give it in every row or in none, or name the columns instead of *"
        )


def _left_out(rows: _Dicts, defaults: Mapping[str, str]) -> dict[str, str]:
    """The columns with a default that some rows leave out and others have, or that no row has
    because all are empty, and how the rows spell each."""
    names = {name.lower(): name for name in column_names(rows)}
    return {
        column: names.get(column, column)
        for column in defaults
        if not names or (column in names and any(names[column] not in row for row in rows))
    }
