"""Calls in a SELECT that make several rows and columns of one: `explode`, `inline`, `stack`.

Each has a row of the table, named `rows of …`. Its value is an array of structs: the columns, and
in DuckDB's SQL the fields f0, f1 and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast, in_one_type
from acid_platform.engine.local.translation.duckdb_sql import (
    INT,
    STRING,
    VOID,
    array_of,
    duckdb_type,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.json_urls import json_part
from acid_platform.engine.local.translation.library import arguments_of
from acid_platform.engine.local.translation.signatures import SIGNATURES, add, called, row
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType

_PARAMETERS = ("collection", "input")
"""What Spark calls the one argument, where it is given by name."""
Columns = Sequence[tuple[str, HiveType]]


def generator_name(node: exp.Expr) -> str | None:
    """The row of the table with the call, if it makes rows."""
    name = f"rows of {(arguments_of(node) or ('',))[0]}"
    return name if name in SIGNATURES else None


def generated(translator: Translator, node: exp.Expr) -> Typed:
    """The rows of such a call. Raises NeedsSpark."""
    call, parts = arguments_of(node) or ("", ())
    if len(parts) == 1 and isinstance(parts[0], exp.Kwarg) and parts[0].name.lower() in _PARAMETERS:
        parts = (parts[0].expression,)
    return called(f"rows of {call}", *map(translator.value, parts))


def _rows(sql: str, columns: Columns) -> Typed:
    row_type = HiveType("struct", (), tuple(columns))
    return Typed(sql, HiveType("array", (), (("element", row_type),)))


def _struct(cells: Sequence[str]) -> str:
    return (
        f"struct_pack({', '.join(f'f{position} := {cell}' for position, cell in enumerate(cells))})"
    )


def _exploded(value: Typed, name: str) -> Typed:
    outer, numbered = name.endswith("_outer"), name.startswith("pos")
    fields = _fields(name, value)
    columns = [("pos", INT)] * numbered + [(column, kind) for column, kind, _ in fields]
    made = ["CAST(i - 1 AS INTEGER)"] * numbered + [sql for _, _, sql in fields]
    cells = (
        f"CAST({sql} AS {duckdb_type(kind)})" for sql, (_, kind) in zip(made, columns, strict=True)
    )
    entries = f"map_entries({value.sql})" if value.type.kind == "map" else value.sql
    rows = f"list_transform({entries}, lambda e, i: {_struct([*cells])})"
    if outer:
        empty = f"{value.sql} IS NULL OR len({entries}) = 0"
        rows = f"CASE WHEN {empty} THEN [NULL] ELSE {rows} END"
    return _rows(rows, columns)


def _fields(name: str, value: Typed) -> list[tuple[str, HiveType, str]]:
    """The columns of a row: their names, types and DuckDB's SQL of them, of an element `e`."""
    kind = value.type
    if kind.kind == "map" and not name.startswith("inline"):
        return [(part, child, f"struct_extract(e, '{part}')") for part, child in kind.children]
    if kind.kind == "array":
        element = kind.children[0][1]
        if not name.startswith("inline"):
            return [("col", element, "e")]
        if element.kind == "struct":
            return [
                (field, child, f"struct_extract(e, {text(field)})")
                for field, child in element.children
            ]
    raise NeedsSpark(f"{name} of {spark_name(kind)}")


for _name in ("explode", "posexplode", "inline"):
    for _end in ("", "_outer"):
        add(f"rows of {_name}{_end}(nested)", "", partial(_exploded, name=_name + _end))


@row("rows of stack(digits, any, any*)")
def _stacked(count: Typed, *values: Typed) -> Typed:
    rows = count.literal
    if not isinstance(rows, int) or not 0 < rows <= len(values):
        raise NeedsSpark(f"stack of {rows} rows")
    width = -(-len(values) // rows)
    sides = (in_one_type(values[position::width], "stack") for position in range(width))
    columns = [(f"col{position}", side[0].type) for position, side in enumerate(sides)]
    for _, kind in columns:
        array_of(kind)  # which has a type
    missing = [Typed("NULL", VOID)] * (rows * width - len(values))
    cells = [
        cast(value, columns[position % width][1]).sql
        for position, value in enumerate((*values, *missing))
    ]
    made = (_struct(cells[start : start + width]) for start in range(0, len(cells), width))
    return _rows(f"[{', '.join(made)}]", columns)


@row("rows of json_tuple(text, word, word*)")
def _json_fields(value: Typed, *given: Typed) -> Typed:
    names = [str(name.literal) for name in given]
    if not all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in names):
        raise NeedsSpark(f"json_tuple of {', '.join(names)}")
    cells = [json_part(value.sql, text(f"$.{name}")) for name in names]
    return _rows(
        f"[{_struct(cells)}]", [(f"c{position}", STRING) for position in range(len(names))]
    )
