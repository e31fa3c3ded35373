"""Calls in a SELECT that make several rows and columns of one: `explode`, `inline`, `stack`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from acid_platform.engine.local.translation.arrays import array_of
from acid_platform.engine.local.translation.casts import Typed, cast, in_one_type
from acid_platform.engine.local.translation.duckdb_sql import (
    INT,
    STRING,
    duckdb_type,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.expressions import Translator
from acid_platform.engine.local.translation.json_urls import json_part
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType

_NAMES: dict[type[exp.Expr], str] = {
    exp.PosexplodeOuter: "posexplode_outer",
    exp.ExplodeOuter: "explode_outer",
    exp.Posexplode: "posexplode",
    exp.Explode: "explode",
    exp.Inline: "inline",
    exp.Stack: "stack",
}
"""The outer ones first, whose nodes are those of the others, too."""
_OTHERS = ("inline_outer", "json_tuple")
_PARAMETERS = ("collection", "input")
"""What Spark calls the one argument, where it is given by name."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A list of DuckDB's structs, whose fields f0, f1 … are the columns of each row."""

    sql: str
    columns: tuple[tuple[str, HiveType], ...]


def generator_name(node: exp.Expr) -> str | None:
    """The name of the call, if it makes rows."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in _OTHERS:
        return node.name.lower()
    return next((name for kind, name in _NAMES.items() if isinstance(node, kind)), None)


def generated(translator: Translator, node: exp.Expr) -> Generated:
    """The rows of such a call. Raises NeedsSpark."""
    name = generator_name(node)
    assert name is not None
    if name == "stack":
        return _stacked(translator, node)
    if name == "json_tuple":
        return _json_fields(translator, node)
    parts = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
    if len(parts) != 1 or (not isinstance(node, exp.Anonymous) and node.expressions):
        raise NeedsSpark(node.sql("spark"))
    (part,) = parts
    if isinstance(part, exp.Kwarg):
        if part.name.lower() not in _PARAMETERS:
            raise NeedsSpark(node.sql("spark"))
        part = part.expression
    value = translator.value(part)
    outer, numbered = name.endswith("_outer"), name.startswith("pos")
    fields = _fields(name, value)
    columns = [("pos", INT)] * numbered + [(column, kind) for column, kind, _ in fields]
    made = ["CAST(i - 1 AS INTEGER)"] * numbered + [sql for _, _, sql in fields]
    each = ", ".join(
        f"f{position} := CAST({sql} AS {duckdb_type(kind)})"
        for position, (sql, (_, kind)) in enumerate(zip(made, columns, strict=True))
    )
    entries = f"map_entries({value.sql})" if value.type.kind == "map" else value.sql
    rows = f"list_transform({entries}, lambda e, i: struct_pack({each}))"
    if outer:
        empty = f"{value.sql} IS NULL OR len({entries}) = 0"
        rows = f"CASE WHEN {empty} THEN [NULL] ELSE {rows} END"
    return Generated(rows, tuple(columns))


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


def _stacked(translator: Translator, node: exp.Expr) -> Generated:
    first, *cells = node.this, *node.expressions
    rows = translator.value(first).literal
    if not isinstance(rows, int) or not 0 < rows <= len(cells):
        raise NeedsSpark(node.sql("spark"))
    values = [translator.value(cell) for cell in cells]
    width = -(-len(values) // rows)
    columns = []
    for position in range(width):
        own = in_one_type(values[position::width], "stack")
        array_of(own[0].type)
        columns.append((f"col{position}", own[0].type))
    made = [_row(values[start : start + width], columns) for start in range(0, len(values), width)]
    return Generated(f"[{', '.join(made)}]", tuple(columns))


def _row(values: Sequence[Typed], columns: Sequence[tuple[str, HiveType]]) -> str:
    cells = [
        cast(values[position], kind).sql
        if position < len(values)
        else f"CAST(NULL AS {duckdb_type(kind)})"
        for position, (_, kind) in enumerate(columns)
    ]
    return (
        f"struct_pack({', '.join(f'f{position} := {cell}' for position, cell in enumerate(cells))})"
    )


def _json_fields(translator: Translator, node: exp.Expr) -> Generated:
    values = [translator.value(part) for part in node.expressions]
    names = [value.literal if isinstance(value.literal, str) else "" for value in values[1:]]
    if (
        len(values) < 2
        or any(value.type != STRING for value in values)
        or not all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in names)
    ):
        raise NeedsSpark(node.sql("spark"))
    cells = (f"f{i} := {json_part(values[0].sql, f'$.{n}')}" for i, n in enumerate(names))
    columns = tuple((f"c{position}", STRING) for position in range(len(names)))
    return Generated(f"[struct_pack({', '.join(cells)})]", columns)
