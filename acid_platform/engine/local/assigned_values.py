"""What SET gives the rows of a table: computed by DuckDB, put into the rows by Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.assignments import SetTarget, targets_of
from acid_platform.engine.local.computation import (
    POSITION,
    compute,
    in_declared_type,
    numbered,
    value_sql,
)
from acid_platform.engine.local.translation.duckdb_types import identifier
from acid_platform.engine.local.translation.scope import NameScope
from acid_platform.layout.types import Column


@dataclass(frozen=True, slots=True)
class AssignedValues:
    """Values of columns, and of fields of structs, as DuckDB's SQL."""

    targets: tuple[SetTarget, ...]
    sql: tuple[str, ...]
    """An item of a SELECT for each target, under the name that SET gives it."""

    @classmethod
    def of(
        cls, texts: Mapping[str, str], columns: Sequence[Column], scope: NameScope, table: str
    ) -> AssignedValues:
        """`texts`: expressions over the scope by names of SET, in lower case.

        Raises WrongType if a type does not fit, UnknownColumn, InvalidExpression, NeedsSpark.
        """
        targets = targets_of(texts, columns, table)
        values = [target.value for target in targets]
        return cls(
            targets,
            tuple(value_sql(texts[value.name], value, scope, table) for value in values),
        )

    @property
    def replaced(self) -> frozenset[str]:
        """The columns that get a value as a whole, so that nothing of the old one stays."""
        return frozenset(target.column.name for target in self.targets if not target.fields)

    def put_into(self, rows: pa.Table, sides: Mapping[str, pa.Table]) -> pa.Table:
        """The rows with new values, which are computed of the rows of the sides: of the first row
        of each, then of the second, and so on. Columns that `rows` lacks come last.

        Raises WrongType, InvalidExpression, TxnAborted, NeedsSpark.
        """
        if not self.sql or not rows.num_rows:
            computed = pa.table({target.value.name: pa.nulls(0) for target in self.targets})
        else:
            numbered_sides = {name: numbered(table) for name, table in sides.items()}
            first, *others = (identifier(name) for name in sides)
            joined = first + "".join(f" JOIN {other} USING ({POSITION})" for other in others)
            sql = f"SELECT {', '.join(self.sql)} FROM {joined} ORDER BY {POSITION}"
            computed = compute(sql, numbered_sides)
        for target in self.targets:
            value, name = target.value, target.column.name
            values = in_declared_type(computed.column(value.name), value)
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
    for place, field in enumerate(whole.type):
        child = pc.struct_field(whole, [place])
        if field.name.lower() == path[0]:
            child = _with_field(child, path[1:], values) if path[1:] else values.cast(field.type)
        children.append(pa.concat_arrays(child.chunks or [pa.nulls(0, field.type)]))
    structs = pa.StructArray.from_arrays(children, fields=list(whole.type))
    return pa.chunked_array([structs], whole.type)
