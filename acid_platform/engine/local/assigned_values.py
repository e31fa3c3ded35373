"""What SET gives the rows of a table: computed by DuckDB, put into the rows by Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.assignments import SetTarget, targets_of
from acid_platform.engine.local.computation import in_declared_type, value_sql
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

    def put_into(self, rows: pa.Table, computed: pa.Table) -> pa.Table:
        """The rows with what was computed of them, row by row."""
        for target in self.targets:
            value, name = target.value, target.column.name
            place = rows.column_names.index(name)
            values = in_declared_type(computed.column(value.name), value)
            if target.fields:
                values = _with_field(rows.column(place), target.fields, values)
            rows = rows.set_column(place, name, values)
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
