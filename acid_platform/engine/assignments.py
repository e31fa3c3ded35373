"""What an UPDATE or MERGE may assign, whichever engine runs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from acid_platform.base.visible import nearest_name
from acid_platform.engine.merge_clauses import MergeClause
from acid_platform.errors import (
    BucketColumnUpdate,
    InvalidExpression,
    PartitionColumnUpdate,
    UnknownColumn,
)
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column, HiveType, require_columns, unknown_column
from acid_platform.predicates.analysis import columns_of
from acid_platform.scan.change_scan import CHANGE_COLUMNS
from acid_platform.scan.scans import Scan


def wanted_assignments(
    assignments: Mapping[str, str], scan: Scan, buckets: Bucketing | None, table: str
) -> dict[str, str]:
    """The assignments of SET, with names in lower case; a field of a struct is named `s.a`.

    Raises InvalidExpression if there is none or two of one value, PartitionColumnUpdate,
    BucketColumnUpdate, UnknownColumn.
    """
    partition = {column.name for column in scan.partition_columns}
    expressions = _by_column(assignments, table)
    if not expressions:
        raise InvalidExpression(f"UPDATE of {table} assigns nothing; give {{'column': 'SQL'}}")
    for name, text in expressions.items():
        if re.fullmatch(r"\s*\d{4}-\d\d-\d\d\s*", text):
            raise InvalidExpression(
                f"UPDATE of {table}: {name} = {text.strip()} is a subtraction; a date and a text"
                f" stand in quotes: '{text.strip()}'"
            )
        if name in partition:
            raise PartitionColumnUpdate(
                f"{name!r} is a partition column of {table}: UPDATE can't move a row to another"
                " partition; delete the row and insert it again in one transaction"
            )
    for target in targets_of(expressions, scan.columns, table):
        if buckets and target.column.name in buckets.columns:
            raise BucketColumnUpdate(
                f"{target.value.name!r} decides the bucket of a row of {table}: UPDATE can't move a"
                " row to another bucket; delete the row and insert it again in one transaction"
            )
    return expressions


@dataclass(frozen=True, slots=True)
class SetTarget:
    """What SET gives a value: a column, or a field of one that is a struct, at any depth."""

    column: Column
    fields: tuple[str, ...] = ()
    """The names from the column down to the field."""

    @property
    def value(self) -> Column:
        """The name as SET spells it, with the type of its values."""
        kind = self.column.type
        for name in self.fields:
            kind = dict(kind.children)[name]
        return Column(".".join((self.column.name, *self.fields)), kind)


def targets_of(
    names: Iterable[str], columns: Sequence[Column], table: str
) -> tuple[SetTarget, ...]:
    """What names of SET mean, in lower case: `v`, or `s.a`; in the order of the columns.

    Raises UnknownColumn, InvalidExpression for a field beside a value of what holds it.
    """
    places = {column.name: place for place, column in enumerate(columns)}
    targets = [_target(name, columns, table) for name in names]
    targets.sort(key=lambda target: (places[target.column.name], target.fields))
    for before, after in pairwise(targets):
        part = after.fields[: len(before.fields)] == before.fields
        if before.column == after.column and part:
            raise InvalidExpression(
                f"SET of {table} gives {before.value.name} a value, and {after.value.name}, which"
                " is a part of it; set one of them"
            )
    return tuple(targets)


def _target(name: str, columns: Sequence[Column], table: str) -> SetTarget:
    for column in columns:
        if column.name == name:
            return SetTarget(column)
    for column in columns:
        if name.startswith(f"{column.name}.") and column.type.kind == "struct":
            rest = name.removeprefix(f"{column.name}.")
            if (fields := _fields(column.type, rest)) is not None:
                return SetTarget(column, fields)
            raise UnknownColumn(
                f"{table} has no column {name!r}: the fields of {column.name} are {column.type}"
            )
    raise unknown_column(name, table, columns)


def _fields(kind: HiveType, path: str) -> tuple[str, ...] | None:
    """The names of a path such as `a.b` below a struct, whose names may have dots; None: there is
    no such field."""
    for name, child in kind.children if kind.kind == "struct" else ():
        if path == name:
            return (name,)
        if path.startswith(f"{name}."):
            below = _fields(child, path.removeprefix(f"{name}."))
            if below is not None:
                return (name, *below)
    return None


def _by_column(assignments: Mapping[str, str], table: str) -> dict[str, str]:
    """The values by names in lower case. Raises InvalidExpression for `v` beside `V`."""
    values: dict[str, str] = {}
    for name, text in assignments.items():
        if name.lower() in values:
            raise InvalidExpression(f"column {name.lower()!r} of {table} is given two values")
        values[name.lower()] = text
    return values


def inserted_values(
    clause: MergeClause,
    source: Iterable[str],
    columns: Sequence[Column],
    table: str,
    expressions: Iterable[str],
    defaults: Mapping[str, str],
) -> dict[str, str]:
    """The SQL of the columns that a clause WHEN NOT MATCHED gives, by name in lower case, and of
    the `defaults` of others.

    A clause without values takes the columns of the source, by name. The source may have more
    columns, such as the `op` of a change feed. One that no expression of the statement reads and
    that is called nearly as a column of the table that the source lacks is that one, misspelt.
    Raises UnknownColumn, InvalidExpression for a column that is given two values.
    """
    if clause.values is not None:
        values = _by_column(clause.values, table)
        require_columns(values, columns, table)
        return {**defaults, **values}
    names = {column.name for column in columns}
    own = [name for name in source if name.lower() in names]
    others = [name for name in source if name.lower() not in names]
    missing = sorted(names - {name.lower() for name in own})
    if others and missing:
        read = {column.name for column in CHANGE_COLUMNS}
        for text in expressions:
            named = columns_of(text)
            read |= {name.lower() for name in others} if named is None else named
        for name in others:
            if name.lower() not in read and nearest_name(name.lower(), missing):
                raise unknown_column(name, table, columns)
    return {**defaults, **{name.lower(): quoted(name) for name in own}}


def values_of_all(
    columns: Sequence[Column], source: Iterable[str], alias: str, table: str
) -> dict[str, str]:
    """The values of `UPDATE SET *` and `INSERT *`: of each column, the source's of that name.

    `alias`: what expressions call the source. Other columns of the source are not read. Raises
    UnknownColumn for columns that the source lacks.
    """
    spelled = {name.lower(): name for name in source}
    if missing := [column.name for column in columns if column.name not in spelled]:
        raise UnknownColumn(
            f"MERGE into {table}: * takes all columns by name, and the source has no"
            f" {', '.join(missing)}; name the columns to set, each with its value"
        )
    return {column.name: f"{quoted(alias)}.{quoted(spelled[column.name])}" for column in columns}


def expressions_of(on: str, clauses: Iterable[MergeClause]) -> list[str]:
    """All SQL texts of a MERGE."""
    texts = [on]
    for clause in clauses:
        texts += [clause.condition] if clause.condition is not None else []
        texts += (clause.values or {}).values()
    return texts
