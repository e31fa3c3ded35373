"""PARTITION (…): its text, and the partitions of a table that it means."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from acid_platform.errors import InvalidExpression, NoSuchPartition
from acid_platform.layout.partition_names import (
    DEFAULT_PARTITION,
    as_written,
    parse_partition,
    partition_name,
    written_values,
)
from acid_platform.layout.types import Column
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.grammar import HiveSql
from acid_platform.sql.text import parsed
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.partition_texts import partition_value

_COMPARISONS: dict[type[exp.Expr], tuple[str, Callable[[Any, Any], bool]]] = {
    exp.NEQ: ("<>", operator.ne),
    exp.LT: ("<", operator.lt),
    exp.LTE: ("<=", operator.le),
    exp.GT: (">", operator.gt),
    exp.GTE: (">=", operator.ge),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """`ds < '2024-01-01'`: the value of a partition column, compared with a literal."""

    column: str
    sign: str
    literal: str

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.literal}"


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """`(year=2013, month)`: columns with fixed values, as text, and columns without a value, which
    the rows of an INSERT set, and which elsewhere may have any; `compared`: in DROP PARTITION."""

    fixed: Mapping[str, str | None] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()
    compared: tuple[Compared, ...] = ()

    @classmethod
    def of(cls, text: str) -> PartitionSpec:
        """Parses `PARTITION (…)`. Raises InvalidExpression."""
        return partition_specs(text)[0]


def partition_specs(text: str, comparing: bool = False) -> tuple[PartitionSpec, ...]:
    """Parses `PARTITION (a=1) PARTITION (a=2)`, also with commas; `comparing`: with `a<2` too.

    Raises InvalidExpression.
    """
    inner = re.split(r"\)[ ,]*partition ?\(", text.strip()[:-1], flags=re.IGNORECASE)
    first = inner[0].partition("(")[2]
    return tuple(_spec(arguments(spec), comparing) for spec in (first, *inner[1:]))


def arguments(text: str) -> list[exp.Expr]:
    """The expressions of a list with commas. Raises InvalidExpression."""
    return list(parsed(f"list({text})", dialect=HiveSql).expressions)


def _spec(parts: list[exp.Expr], comparing: bool) -> PartitionSpec:
    """The spec of parts that are `key=literal`, `key`, or with `comparing` `key<literal`.

    Raises InvalidExpression.
    """
    fixed: dict[str, str | None] = {}
    dynamic: list[str] = []
    compared: list[Compared] = []
    for part in parts:
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column):
            name = part.this.name.lower()
            if name in fixed:
                raise InvalidExpression(f"PARTITION: {name} has two values")
            fixed[name] = _value(part.expression)
        elif isinstance(part, exp.Column | exp.Identifier):
            dynamic.append(part.name.lower())
        elif comparing and type(part) in _COMPARISONS and isinstance(part.this, exp.Column):
            literal = _value(part.expression)
            if literal is None:
                raise InvalidExpression(
                    f"PARTITION: {part.sql('hive')!r} is true for no partition; write column=NULL"
                )
            sign, _ = _COMPARISONS[type(part)]
            compared.append(Compared(part.this.name.lower(), sign, literal))
        else:
            raise InvalidExpression(
                f"PARTITION: {part.sql('hive')!r} is neither column=value nor a column"
                + (" that is compared with a literal" if comparing else "")
            )
    return PartitionSpec(fixed, tuple(dynamic), tuple(compared))


def _value(node: exp.Expr) -> str | None:
    match node:
        case exp.Null():
            return None
        case exp.Literal():
            if node.this == "":
                raise InvalidExpression(
                    "PARTITION: an empty text is stored as NULL; write column=NULL for both"
                )
            return None if node.this == DEFAULT_PARTITION else str(node.this)
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return f"-{node.this.this}"
        case exp.Paren():
            return _value(node.this)
        case exp.Boolean():
            return str(node.this).lower()
        case exp.Cast() if isinstance(node.this, exp.Literal):
            return str(node.this.this)
    raise InvalidExpression(f"PARTITION: {node.sql('hive')!r} is not a literal")


# --- against a table ------------------------------------------------------------------------------


def fixed_values(spec: PartitionSpec, record: TableRecord) -> dict[str, str | None]:
    """The fixed values as they appear in directory names, in the table's column order.

    Raises NoSuchPartition for unknown columns.
    """
    _, keys = columns_of_record(record)
    names = [key.name for key in keys]
    for name in (*spec.fixed, *spec.dynamic, *(each.column for each in spec.compared)):
        if name not in names:
            others = f"its partition columns are {', '.join(names)}" if names else "not partitioned"
            raise NoSuchPartition(f"{record.name} has no partition column {name!r}; {others}")
    return written_values(spec.fixed, keys, record.name)


def whole_name(spec: PartitionSpec, record: TableRecord) -> str:
    """The name `year=2013/month=3`. Raises NoSuchPartition if a partition column has no value."""
    fixed = fixed_values(spec, record)
    missing = [name for name, _ in record.partition_columns if name not in fixed]
    if missing:
        raise NoSuchPartition(f"PARTITION of {record.name} needs a value for {', '.join(missing)}")
    return partition_name(fixed)


def matching(partitions: Iterable[str], record: TableRecord, spec: PartitionSpec) -> list[str]:
    """Those that match a spec, which may omit columns, sorted.

    Raises NoSuchPartition if there is none, and what `fits` raises.
    """
    matches = sorted(filter(fits(record, spec), partitions))
    if not matches:
        fixed = fixed_values(spec, record)
        searched = [*filter(None, [partition_name(fixed)]), *map(str, spec.compared)]
        raise NoSuchPartition(
            f"{record.name} has no partition {', '.join(searched)}; SHOW PARTITIONS"
            f" {record.name} lists them"
        )
    return matches


def fits(record: TableRecord, spec: PartitionSpec) -> Callable[[str], bool]:
    """Tells whether a partition's name matches a spec, which may omit columns.

    Raises NoSuchPartition for a column that does not partition the table, and InvalidExpression
    for one without a value: it would stand for all partitions.
    """
    if spec.dynamic or not (spec.fixed or spec.compared):
        column = spec.dynamic[0] if spec.dynamic else "column"
        raise InvalidExpression(
            f"PARTITION ({', '.join(spec.dynamic)}) of {record.name} needs values: write"
            f" PARTITION ({column}=value)"
        )
    fixed = fixed_values(spec, record)
    _, keys = columns_of_record(record)
    names = [key.name for key in keys]
    comparisons = [
        _comparison(each, next(key for key in keys if key.name == each.column), record.name)
        for each in spec.compared
    ]

    def is_match(partition: str) -> bool:
        values = dict(zip(names, parse_partition(partition, names) or (), strict=False))
        return all(
            _same(values.get(key.name), fixed[key.name], key, record.name)
            for key in keys
            if key.name in fixed
        ) and all(compare(values) for compare in comparisons)

    return is_match


def _comparison(
    compared: Compared, key: Column, table: str
) -> Callable[[Mapping[str, str | None]], bool]:
    """Whether the values of a partition pass; a NULL, or no value of the type, never does.

    Raises NoSuchPartition if the literal is not a value of the column's type.
    """
    literal = partition_value(as_written(compared.literal, key, table), key.type)
    (compare,) = (test for sign, test in _COMPARISONS.values() if sign == compared.sign)

    def passes(values: Mapping[str, str | None]) -> bool:
        value = partition_value(values.get(key.name), key.type)
        return value is not None and literal is not None and compare(value, literal)

    return passes


def _same(text: str | None, value: str | None, key: Column, table: str) -> bool:
    """Whether a directory's value equals another one, however another engine spelled it."""
    try:
        return as_written(text, key, table) == value
    except NoSuchPartition:  # not a value of the column's type
        return text == value
