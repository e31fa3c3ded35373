"""Which constraints may be declared, and what follows from them for writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from acid_platform.base.arguments import require_kind
from acid_platform.errors import (
    InvalidDefinition,
    InvalidExpression,
    UnknownColumn,
    UnsupportedStatement,
)
from acid_platform.layout.constraints import DECLARED_ONLY, Constraint, ConstraintKind, RowChecks
from acid_platform.layout.declarable import table_name
from acid_platform.layout.sql_text import canonical
from acid_platform.layout.types import CHAR_TYPES, LOCAL_ZONE, Column, HiveType
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.known_columns import require_columns
from acid_platform.tables.cheap_conditions import require_cheap, require_short
from acid_platform.tables.record_layout import columns_of_record

_ONE_OF_A_KIND = (ConstraintKind.NOT_NULL, ConstraintKind.DEFAULT)


def declared_constraints(
    table: str,
    columns: Sequence[Column],
    keys: Sequence[Column],
    constraints: Iterable[Constraint],
    present: Sequence[Constraint] = (),
) -> tuple[Constraint, ...]:
    """The `present` constraints and the new ones, which get names if they have none.

    `columns` are the table's, `keys` its partition columns. Raises InvalidDefinition,
    UnknownColumn, UnsupportedStatement for what is not supported.
    """
    given = "a list of Constraint"
    require_kind("constraints", constraints, Iterable, given, InvalidDefinition)
    every = [*present]
    for new in constraints:
        require_kind("one of constraints", new, Constraint, given, InvalidDefinition)
        checked = _checked(table, columns, keys, new)
        for other in every:
            if checked.kind in _ONE_OF_A_KIND and (other.kind, other.columns) == (
                checked.kind,
                checked.columns,
            ):
                raise InvalidDefinition(
                    f"{table}: {checked.columns[0]} has constraint {other.name},"
                    f" {other.kind.value}, already; drop that first"
                )
            if checked.kind is other.kind is ConstraintKind.PRIMARY_KEY:
                raise InvalidDefinition(f"{table} has a primary key already, {other.name}")
        taken = {other.name for other in every}
        if checked.name in taken:
            raise InvalidDefinition(f"{table} has a constraint {checked.name} already")
        name = checked.name or _name(table, checked, taken)
        every.append(replace(checked, name=name))
    return tuple(every)


def _name(table: str, constraint: Constraint, taken: set[str]) -> str:
    short = table.rpartition(".")[2]
    kind = constraint.kind.value.lower().replace(" ", "_")
    usual = "_".join((short, *constraint.columns, kind))
    numbered = (f"{usual}_{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (usual, *numbered) if name not in taken)


def _checked(
    table: str, columns: Sequence[Column], keys: Sequence[Column], constraint: Constraint
) -> Constraint:
    what = f"{table}: {constraint}"
    kind = constraint.kind
    require_short(what, constraint.text)
    if kind is ConstraintKind.CHECK:
        constraint = _checked_condition(what, columns, keys, constraint)
    names = tuple(name.lower() for name in constraint.columns)
    of_keys = {column.name for column in keys} & {*names}
    if of_keys and kind not in DECLARED_ONLY:
        raise UnsupportedStatement(
            f"{what}: {min(of_keys)} is a partition column, which can't have a constraint"
        )
    require_columns(names, (*columns, *keys), table)
    if kind in DECLARED_ONLY and constraint.enabled:
        raise UnsupportedStatement(
            f"{what}: {kind.value} is declared, not enforced; add DISABLE NOVALIDATE"
        )
    if kind is ConstraintKind.DEFAULT:
        column = next(column for column in columns if column.name == names[0])
        text = _default(what, column, constraint.text)
        return replace(constraint, name=constraint.name.lower(), columns=names, text=text)
    return replace(
        constraint,
        name=constraint.name.lower(),
        columns=names,
        parent=table_name(constraint.parent) if constraint.parent else "",
        parent_columns=tuple(name.lower() for name in constraint.parent_columns),
    )


def _checked_condition(
    what: str, columns: Sequence[Column], keys: Sequence[Column], constraint: Constraint
) -> Constraint:
    """The constraint with the columns that its condition names.

    The condition has to mean the same for one row alone, at any time and in both engines.
    """
    from sqlglot import exp

    from acid_platform.predicates.analysis import parse

    tree = parse(constraint.text)
    if tree.find(exp.Query, exp.Star, exp.Window, exp.AggFunc, exp.Lambda, exp.Placeholder):
        raise InvalidDefinition(f"{what}: a CHECK is about the columns of one row alone")
    if any(node.key.startswith(("current", "rand", "uuid", "local")) for node in tree.walk()):
        raise InvalidDefinition(f"{what}: its answer would differ from one time to another")
    require_cheap(what, tree)
    names = []
    structs = {column.name for column in columns if column.type.kind == "struct"}
    for node in tree.find_all(exp.Column):
        first = node.parts[0].name.lower()
        if len(node.parts) > 1 and first not in structs:
            raise UnknownColumn(f"{what}: name {node.sql('hive')} without its table")
        names.append(first)
    names = list(dict.fromkeys(names))
    if not names:
        raise InvalidDefinition(f"{what}: a CHECK names no column")
    require_columns(names, (*columns, *keys), what)
    for column in columns:
        if column.name in names and column.type.has_char:
            raise UnsupportedStatement(
                f"{what}: {column} in a CHECK is not supported; declare it as varchar or string"
            )
    return replace(constraint, columns=tuple(names), text=canonical(constraint.text).strip())


def _default(what: str, column: Column, text: str) -> str:
    """The text of a default. Raises InvalidDefinition unless it is one value for every row."""
    from sqlglot import exp

    from acid_platform.predicates.analysis import parse

    try:
        tree = parse(text)
    except InvalidExpression as error:
        raise InvalidDefinition(f"{what}: {error}") from error
    value = tree
    while isinstance(value, exp.Neg | exp.Paren | exp.Cast):
        value = value.this
    if not isinstance(
        value, exp.Literal | exp.Boolean | exp.Null | exp.CurrentDate | exp.CurrentTimestamp
    ):
        raise InvalidDefinition(
            f"{what}: a DEFAULT is a literal, a CAST of one, CURRENT_DATE or CURRENT_TIMESTAMP"
        )
    if column.type.nested and not isinstance(value, exp.Null):
        raise UnsupportedStatement(f"{what}: {column} can only have DEFAULT NULL")
    limited = isinstance(value, exp.Literal) and column.type.kind in CHAR_TYPES
    if limited and len(value.name.rstrip(" ")) > column.type.sizes[0]:
        raise InvalidDefinition(f"{what}: {value.name!r} is too long for {column}")
    return canonical(text).strip()


def default_sql(column: Column, text: str) -> str:
    """A default as SQL of a value of the column's type."""
    return f"CAST(({text}\n) AS {castable(column.type)})"


def castable(kind: HiveType) -> str:
    """The type as engines cast to it: texts have no length there."""
    if kind.kind in CHAR_TYPES:
        return "string"
    return "timestamp" if kind.kind == LOCAL_ZONE else str(kind)


def row_checks(record: TableRecord) -> RowChecks:
    """What the statements that write into the table have to know of its constraints."""
    if not record.constraints:
        return RowChecks(record.name)
    kinds = {column.name: column for column in columns_of_record(record)[0]}
    return RowChecks(
        record.name,
        tuple(constraint for constraint in record.constraints if constraint.of_rows),
        {
            constraint.columns[0]: default_sql(kinds[constraint.columns[0]], constraint.text)
            for constraint in defaults_of(record)
        },
    )


def defaults_of(record: TableRecord) -> Iterator[Constraint]:
    return (
        constraint
        for constraint in record.constraints
        if constraint.kind is ConstraintKind.DEFAULT and constraint.enabled
    )
