"""A scan as a lazy frame of Polars, which asks for columns, a condition and a first number of rows
when it is collected.

Polars' conditions become conditions of ours as far as both mean the same, and only to leave out
partitions, files, stripes and rows: what is left, Polars tests with its own condition. So a
condition that is not known here costs time, never rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from acid_platform.errors import CorruptFile
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.scan.scans import ArrowScan, Scan
from acid_platform.values.row_streams import polars_frame

if TYPE_CHECKING:
    import polars as pl

_ORDERS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_ALIKE = frozenset(
    ("boolean", *INTEGRAL, "double", "decimal", "string", "varchar", "date", "timestamp")
)
"""The kinds of columns whose values both compare alike: char has blanks at its end, of float the
literal is rounded, and other timestamps have a zone."""
_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def lazy_frame(whole: ArrowScan, name: str) -> pl.LazyFrame:
    """The rows of a scan, opened already, under a lease that outlives this call.

    Raises ModuleNotFoundError unless Polars is installed.
    """
    from polars.io.plugins import register_io_source

    schema = polars_frame(whole.schema.empty_table()).schema
    known = {c.name for c in _columns(whole.scan) if c.type.kind in _ALIKE}
    types = {name: kind for name, kind in schema.items() if name in known}

    def read(
        names: list[str] | None,
        condition: pl.Expr | None,
        most: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        wanted = schema.names() if names is None else names
        tested = [] if condition is None else condition.meta.root_names()
        needed = dict.fromkeys([*wanted, *tested])
        scan = replace(
            whole,
            names=tuple(column for column in needed if column != ROW_ID_COLUMN),
            row_id=ROW_ID_COLUMN in needed,
        )
        # The first rows are those before the condition, so it must not leave out any of them.
        where = "" if condition is None or most is not None else as_sql(condition, types)
        if where:
            scan = _narrowed(scan, where)
        for batch in _checked(scan, most):
            frame = polars_frame(batch)
            if condition is not None:
                frame = frame.filter(condition)
            yield frame.select(wanted)

    return register_io_source(read, schema=schema, explain_name=name)


def _columns(scan: Scan) -> tuple[Column, ...]:
    return (*scan.columns, *scan.partition_columns)


def _checked(scan: ArrowScan, most: int | None) -> Iterator[Any]:
    """The batches; raises SnapshotExpired or TxnAborted if the files may be gone (P29)."""
    still_open = scan.scan.still_open or (lambda: None)
    still_open()
    try:
        yield from scan.batches() if most is None else scan.first_batches(most)
    except CorruptFile:
        still_open()  # the Cleaner may have removed it
        raise
    still_open()


def _narrowed(scan: ArrowScan, where: str) -> ArrowScan:
    """The scan without rows that the condition, of `as_sql`, refuses."""
    from acid_platform.predicates.arrow_predicates import may_match, predicate_or_none
    from acid_platform.scan.recorded_ranges import pruned

    of_table = scan.scan
    columns, keys, entities = of_table.columns, of_table.partition_columns, of_table.entities
    chosen = may_match(where, keys, [each.values for each in entities]) if keys else None
    kept = tuple(
        replace(entity, sources=pruned(entity.sources, where, columns))
        for entity, may in zip(entities, chosen or [True] * len(entities), strict=True)
        if may
    )
    own, predicate = scan.predicate, predicate_or_none(where, _columns(of_table))
    both = own if predicate is None or own is not None else predicate
    return replace(scan, scan=replace(of_table, entities=kept), predicate=both)


# --- conditions -----------------------------------------------------------------------------------


def as_sql(condition: pl.Expr, types: Mapping[str, pl.DataType]) -> str:
    """A condition that is true wherever Polars' is, over columns of these types; empty if none is
    known. It is not what `meta.serialize` writes for a later Polars: what this does not know of
    that form becomes no condition."""
    with suppress(Exception):  # unstable by Polars' own words, and nothing depends on it
        tree = json.loads(condition.meta.serialize(format="json"))
        return _implied(tree, types) or ""
    return ""


def _implied(node: Any, types: Mapping[str, pl.DataType]) -> str | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            both = [text for text in (_implied(left, types), _implied(right, types)) if text]
            return f"({' AND '.join(both)})" if both else None
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            first, second = _implied(left, types), _implied(right, types)
            return f"({first} OR {second})" if first and second else None
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": value}}}:
            return _compared(name, op, value, types)
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": kind}}}:
            nulls = {"IsNull": "IS NULL", "IsNotNull": "IS NOT NULL"}
            known = isinstance(kind, str) and kind in nulls and name in types
            return f"{quoted(name)} {nulls[kind]}" if known else None
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": closed}}},
            }
        }:
            least, most = _BETWEEN[closed]
            pairs = ((least, low), (most, high))
            both = [text for op, value in pairs if (text := _ordered(name, op, value, types))]
            return f"({' AND '.join(both)})" if both else None
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": members}],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            return _member(name, members, types)
    return None


def _compared(name: str, op: str, value: Any, types: Mapping[str, pl.DataType]) -> str | None:
    return _ordered(name, _ORDERS[op], value, types) if op in _ORDERS else None


def _ordered(name: str, order: str, value: Any, types: Mapping[str, pl.DataType]) -> str | None:
    series = _values_of(value)
    text = _literal(series[0]) if series is not None and _fits(series, types.get(name)) else None
    return None if text is None else f"{quoted(name)} {order} {text}"


def _fits(values: pl.Series, kind: pl.DataType | None) -> bool:
    """Whether Polars compares the column with these values as they are."""
    import polars

    if isinstance(kind, polars.Decimal) and isinstance(values.dtype, polars.Decimal):
        return bool(values.dtype.scale <= kind.scale)
    return bool(values.dtype == kind)


_MOST_MEMBERS = 1000


def _member(name: str, members: Any, types: Mapping[str, pl.DataType]) -> str | None:
    series = _values_of(members)
    inner = None if series is None else series.explode().drop_nulls()
    if inner is None or not _fits(inner, types.get(name)) or len(inner) > _MOST_MEMBERS:
        return None
    texts = [text for each in inner if (text := _literal(each)) is not None]
    return f"{quoted(name)} IN ({', '.join(texts)})" if len(texts) == len(inner) > 0 else None


def _values_of(literal: Any) -> pl.Series | None:
    """The value of a literal as Polars itself reads it; None if it has no type yet."""
    import polars

    if not isinstance(literal, dict) or "Scalar" not in literal:
        return None
    text = json.dumps({"Literal": literal}).encode()
    return polars.select(polars.Expr.deserialize(text, format="json")).to_series()


def _literal(value: object) -> str | None:
    """Spark's SQL of a value; None for those that have none."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return f"{value}"
        case float() if isfinite(value):
            return repr(value) if "e" in repr(value) else f"{value!r}e0"  # 1.5 is a decimal
        case Decimal():
            return f"{value:f}"
        case str():
            return sql_string(value)
        case datetime() if value.tzinfo is None:
            return f"TIMESTAMP '{value.isoformat(' ')}'"
        case date() if not isinstance(value, datetime):
            return f"DATE '{value.isoformat()}'"
    return None
