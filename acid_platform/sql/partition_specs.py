"""PARTITION (…): its text, and the partitions of a table that it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.errors import InvalidExpression, NoSuchPartition
from acid_platform.layout.partition_names import (
    DEFAULT_PARTITION,
    as_written,
    parse_partition,
    partition_name,
)
from acid_platform.predicates.grammar import HiveSql
from acid_platform.sql.text import parsed
from acid_platform.tables.record_layout import columns_of_record

if TYPE_CHECKING:
    from acid_platform.layout.types import Column
    from acid_platform.metastore.records import TableRecord


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """`(year=2013, month)`: columns with fixed values, as text, and columns set by the rows."""

    fixed: Mapping[str, str | None] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> PartitionSpec:
        """Parses `PARTITION (…)`. Raises InvalidExpression."""
        return partition_specs(text)[0]


def partition_specs(text: str) -> tuple[PartitionSpec, ...]:
    """Parses `PARTITION (a=1) PARTITION (a=2)`, also with commas. Raises InvalidExpression."""
    inner = re.split(r"\)[ ,]*partition ?\(", text.strip()[:-1], flags=re.IGNORECASE)
    first = inner[0].partition("(")[2]
    return tuple(_spec(arguments(spec)) for spec in (first, *inner[1:]))


def arguments(text: str) -> list[exp.Expr]:
    """The expressions of a list with commas. Raises InvalidExpression."""
    return list(parsed(f"list({text})", dialect=HiveSql).expressions)


def _spec(parts: list[exp.Expr]) -> PartitionSpec:
    """The spec of parts that are `key=literal` or `key`. Raises InvalidExpression."""
    fixed: dict[str, str | None] = {}
    dynamic: list[str] = []
    for part in parts:
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column):
            if dynamic:
                raise InvalidExpression(
                    f"PARTITION: {part.sql('hive')} comes after {dynamic[-1]}; write fixed values"
                    " first"
                )
            fixed[part.this.name.lower()] = _value(part.expression)
        elif isinstance(part, exp.Column | exp.Identifier):
            dynamic.append(part.name.lower())
        else:
            raise InvalidExpression(
                f"PARTITION: {part.sql('hive')!r} is neither column=value nor a column"
            )
    return PartitionSpec(fixed, tuple(dynamic))


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
    for name in (*spec.fixed, *spec.dynamic):
        if name not in names:
            others = f"its partition columns are {', '.join(names)}" if names else "not partitioned"
            raise NoSuchPartition(f"{record.name} has no partition column {name!r}; {others}")
    return {
        key.name: as_written(spec.fixed[key.name], key, record.name)
        for key in keys
        if key.name in spec.fixed
    }


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
        raise NoSuchPartition(
            f"{record.name} has no partition {partition_name(fixed_values(spec, record))}; SHOW"
            f" PARTITIONS {record.name} lists them"
        )
    return matches


def fits(record: TableRecord, spec: PartitionSpec) -> Callable[[str], bool]:
    """Tells whether a partition's name matches a spec, which may omit columns.

    Raises NoSuchPartition for a column that does not partition the table, and InvalidExpression
    for one without a value: it would stand for all partitions.
    """
    if spec.dynamic or not spec.fixed:
        column = spec.dynamic[0] if spec.dynamic else "column"
        raise InvalidExpression(
            f"PARTITION ({', '.join(spec.dynamic)}) of {record.name} needs values: write"
            f" PARTITION ({column}=value)"
        )
    fixed = fixed_values(spec, record)
    _, keys = columns_of_record(record)
    names = [key.name for key in keys]

    def is_match(partition: str) -> bool:
        values = dict(zip(names, parse_partition(partition, names) or (), strict=False))
        return all(
            _same(values.get(key.name), fixed[key.name], key, record.name)
            for key in keys
            if key.name in fixed
        )

    return is_match


def _same(text: str | None, value: str | None, key: Column, table: str) -> bool:
    """Whether a directory's value equals another one, however another engine spelled it."""
    try:
        return as_written(text, key, table) == value
    except NoSuchPartition:  # not a value of the column's type
        return text == value
