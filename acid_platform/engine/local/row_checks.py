"""Constraints of a table: the rows that a statement writes, and the values of columns left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.errors import NeedsSpark
from acid_platform.layout.constraints import Constraint, ConstraintKind, RowChecks
from acid_platform.layout.types import Column
from acid_platform.values.fitting import LONGEST_SHOWN, constraint_violated
from acid_platform.values.partition_texts import text_of

_ROWS = "acid_rows"
"""The name of the rows in DuckDB."""


def require_checked(rows: pa.Table, columns: Sequence[Column], checks: RowChecks) -> pa.Table:
    """The rows, which have these columns, if they fulfil the constraints.

    Raises ConstraintViolated, which shows a row; InvalidExpression, NeedsSpark.
    """
    for constraint in checks.constraints:
        if not rows.num_rows:
            break
        place = _violating(rows, columns, constraint)
        if place is not None:
            kinds = {column.name: column for column in columns}
            values = ", ".join(
                f"{name}={_shown(rows.column(name)[place].as_py(), kinds[name])}"
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
    from acid_platform.engine.local.translation.name_scope import NameScope

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
    from acid_platform.engine.local.translation.name_scope import NameScope

    values = {}
    for column in absent:
        text = checks.defaults[column.name]
        computed = compute(f"SELECT {value_sql(text, column, NameScope.of({}), checks.table)}", {})
        values[column.name] = in_declared_type(computed.column(0), column)[0]
    return values
