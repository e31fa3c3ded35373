"""Asking an engine whether constraints can be computed, and whether rows fulfil them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from acid_platform.engine.interface import TableRead
from acid_platform.errors import InvalidDefinition, InvalidExpression, NeedsSpark, WrongType
from acid_platform.layout.constraints import Constraint, ConstraintKind, RowChecks
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.tables.table_constraints import castable, default_sql, defaults_of
from acid_platform.values.fitting import LONGEST_SHOWN, constraint_violated

if TYPE_CHECKING:
    from acid_platform.handles.snapshot_view import SnapshotView
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord

_ROWS = "acid_rows"
"""The name of the table in a query."""


def require_computable(warehouse: Warehouse, record: TableRecord) -> None:
    """Raises InvalidDefinition for a CHECK that is no condition, and a DEFAULT that its column
    can't hold unchanged. What only Spark computes, the first write that needs it refuses."""
    own, _ = columns_of_record(record)
    kinds = {column.name: column for column in own}
    questions = [
        (constraint, _question_of_default(kinds[constraint.columns[0]], constraint))
        for constraint in defaults_of(record)
    ]
    for constraint in record.constraints:
        if constraint.kind is ConstraintKind.CHECK:
            empty = ", ".join(
                f"CAST(NULL AS {castable(kinds[name].type)}) AS {quoted(name)}"
                for name in constraint.columns
            )
            text = (
                f"SELECT coalesce(({constraint.text}\n), true) AS fits FROM (SELECT {empty}) AS r"
            )
            questions.append((constraint, f"{text} WHERE NOT ({constraint.text}\n)"))
    for constraint, question in questions:
        with suppress(NeedsSpark), warehouse.using("local"):
            settings = warehouse.metastore.in_force
            try:
                rows = warehouse.engines.select(question, {}, settings).to_arrow()
            except (InvalidExpression, WrongType) as error:
                raise InvalidDefinition(f"{record.name}: {constraint}: {error}") from error
            if constraint.kind is ConstraintKind.DEFAULT and not rows.column(0)[0].as_py():
                raise InvalidDefinition(
                    f"{record.name}: {constraint}: {kinds[constraint.columns[0]]} can't hold the"
                    " value unchanged"
                )


def _question_of_default(column: Column, constraint: Constraint) -> str:
    value = default_sql(column, constraint.text)
    from sqlglot import exp

    from acid_platform.predicates.analysis import parsed

    literal = parsed(constraint.text)
    is_text = isinstance(literal, exp.Literal) and literal.is_string
    if is_text or column.type.kind in ("float", "double"):
        # A text that is no value of the type fails; a fraction becomes the nearest number.
        return f"SELECT coalesce({value} = {value}, true) AS fits"
    return f"SELECT coalesce({value} = ({constraint.text}\n), true) AS fits"


def require_fulfilled(
    view: SnapshotView,
    warehouse: Warehouse,
    record: TableRecord,
    constraints: Sequence[Constraint],
) -> None:
    """Raises ConstraintViolated for a row of the table that violates one of the constraints."""
    for constraint in constraints:
        if not constraint.of_rows:
            continue
        (scan,) = view.scans([view.request(record.name)])
        names = constraint.columns
        text = (
            f"SELECT {', '.join(map(quoted, names))} FROM {_ROWS}"
            f" WHERE NOT coalesce(({constraint.condition}\n), true) LIMIT 1"
        )
        read = TableRead(scan, tuple(names))
        rows = warehouse.engines.select(text, {_ROWS: read}, view.in_force).to_arrow()
        if rows.num_rows:
            values = ", ".join(
                f"{name}={'NULL' if value is None else str(value)[:LONGEST_SHOWN]}"
                for name, value in rows.to_pylist()[0].items()
            )
            what = RowChecks(record.name).violation(constraint)
            raise constraint_violated(f"{what} that is there, with {values}")
