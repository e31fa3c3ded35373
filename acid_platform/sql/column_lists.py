"""Lists of columns: those that CREATE TABLE, CREATE VIEW, ADD COLUMNS and CHANGE declare, and
PARTITION (…).

Comments and constraints are taken out of the declared ones, so that what is left is what
`layout.types` parses: names and types. A PARTITION (…) means partitions of a table.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import Token, TokenType, exp

from acid_platform.errors import InvalidExpression, NoSuchPartition, UnsupportedStatement
from acid_platform.layout.names import (
    DEFAULT_PARTITION,
    as_written,
    parse_partition,
    partition_name,
    written_values,
)
from acid_platform.layout.types import DECLARED_ONLY, Column, Constraint, ConstraintKind
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.grammar import HiveSql
from acid_platform.sql.text import Parts, depth_change, expression, parsed, tokens_of, word
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.partition_texts import partition_value

_ANGLES = {TokenType.LT: 1, TokenType.GT: -1}
_OF_TABLES = ("CHECK", "PRIMARY KEY", "UNIQUE", "FOREIGN KEY", "NOT")
"""The words that begin a constraint of the table, in an item of its own."""
_OPTIONS = ("ENABLE", "ENFORCED", "DISABLE", "VALIDATE", "NOVALIDATE", "RELY", "NORELY")
_DETAILS = (
    *("COMMENT", "CONSTRAINT", "NOT", "DEFAULT", "CHECK", "PRIMARY KEY", "UNIQUE", "REFERENCES"),
    *_OPTIONS,
)
"""The words that may follow the type of a column."""
_OF_COLUMNS = {
    ("NOT", "NULL"): ConstraintKind.NOT_NULL,
    ("PRIMARY KEY",): ConstraintKind.PRIMARY_KEY,
    ("UNIQUE",): ConstraintKind.UNIQUE,
}


@dataclass(frozen=True, slots=True)
class ColumnList:
    """`text`: the columns as they were written, without their comments and constraints."""

    text: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)
    """By the names of the columns, in lower case."""
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, text: str) -> ColumnList:
        """Raises InvalidExpression, UnsupportedStatement for a constraint that is not supported."""
        columns: list[str] = []
        comments: dict[str, str] = {}
        constraints: list[Constraint] = []
        for item in _items(text):
            if _is_constraint(item):
                constraints.append(_constraint(item, None))
                _require_end(item)
                continue
            item.at = _first(item.tokens, _DETAILS)
            columns.append(item.slice(0, item.at))
            name = str(item.tokens[0].text).lower() if item.tokens else ""
            while not item.ended:
                if item.skip("COMMENT"):
                    if not item.text_comes():
                        raise InvalidExpression(f"not Hive SQL: COMMENT needs a text {item.here}")
                    comments[name] = str(item.tokens[item.at].text)
                    item.at += 1
                else:
                    constraints.append(_constraint(item, name))
        return cls(", ".join(columns), comments, tuple(constraints))


def constraint_of(text: str) -> Constraint:
    """A constraint of a table, such as `CONSTRAINT c CHECK (n > 0)`.

    Raises InvalidExpression, UnsupportedStatement.
    """
    parts = Parts.of(text)
    constraint = _constraint(parts, None)
    _require_end(parts)
    return constraint


def _is_constraint(item: Parts) -> bool:
    """Whether an item is a constraint of the table, and no column of that name."""
    begins = 2 if item.comes("CONSTRAINT") else 0
    kind = word(item.tokens, begins)
    return kind in _OF_TABLES and (begins > 0 or word(item.tokens, 1) == "(")


def _require_end(parts: Parts) -> None:
    if not parts.ended:
        raise InvalidExpression(f"not Hive SQL: the constraint ends {parts.here}")


def _constraint(parts: Parts, column: str | None) -> Constraint:
    """The constraint that comes next: of a column, or of the table (None)."""
    name = parts.name()[0] if parts.skip("CONSTRAINT") else ""
    columns = (column,) if column else ()
    kinds = (kind for words, kind in _OF_COLUMNS.items() if parts.skip(*words))
    if kind := next(kinds, None):
        constraint = Constraint(name, kind, columns or _names(parts))
    elif parts.skip("CHECK"):
        if not parts.comes("("):
            raise InvalidExpression(f"not Hive SQL: CHECK needs ( {parts.here}")
        (condition,) = parts.in_parentheses() or ("",)
        constraint = Constraint(name, ConstraintKind.CHECK, text=expression(condition).text)
    elif column and parts.skip("DEFAULT"):
        start = parts.at
        parts.at = _first(parts.tokens, _DETAILS, start)
        text = expression(parts.slice(start, parts.at)).text
        constraint = Constraint(name, ConstraintKind.DEFAULT, columns, text)
    elif column and parts.comes("REFERENCES"):
        constraint = _reference(parts, name, columns)
    elif not column and parts.skip("FOREIGN KEY"):
        constraint = _reference(parts, name, _names(parts))
    else:
        raise InvalidExpression(
            f"not Hive SQL: a column has a name, a type, COMMENT and constraints; not understood"
            f" {parts.here}"
        )
    return _with_options(parts, constraint)


def _reference(parts: Parts, name: str, columns: tuple[str, ...]) -> Constraint:
    parts.need("REFERENCES", "FOREIGN KEY")
    parent = ".".join(parts.name())
    return Constraint(
        name, ConstraintKind.FOREIGN_KEY, columns, parent=parent, parent_columns=_names(parts)
    )


def _names(parts: Parts) -> tuple[str, ...]:
    if not parts.comes("("):
        raise InvalidExpression(f"not Hive SQL: a constraint needs its columns in ( ) {parts.here}")
    return tuple(Parts.of(token).name()[0] for token in parts.in_parentheses())


def _with_options(parts: Parts, constraint: Constraint) -> Constraint:
    """The constraint with what ENABLE, DISABLE, RELY and so on say of it."""
    enabled, rely = True, False
    while not parts.ended:
        if parts.skip("NOT", "ENFORCED") or parts.skip("DISABLE"):
            enabled = False
        elif parts.skip("ENABLE") or parts.skip("ENFORCED"):
            enabled = True
        elif parts.skip("RELY"):
            rely = True
        elif parts.skip("NORELY") or parts.skip("NOVALIDATE"):
            pass
        elif parts.skip("VALIDATE"):
            if constraint.kind in DECLARED_ONLY:
                raise UnsupportedStatement(
                    f"{constraint}: VALIDATE is not supported; write DISABLE NOVALIDATE"
                )
        else:
            break
    return replace(constraint, enabled=enabled, rely=rely)


def _items(text: str) -> Iterator[Parts]:
    """What stands between the commas outside of parentheses and of types such as `map<…>`."""
    tokens = tokens_of(text)
    start = 0
    for number, (token, outside) in enumerate(_depths(tokens)):
        if outside and token.token_type is TokenType.COMMA:
            yield Parts(text, tokens[start:number])
            start = number + 1
    yield Parts(text, tokens[start:])


def _first(tokens: Sequence[Token], words: Sequence[str], start: int = 1) -> int:
    """The place of the first of these words from `start` on, outside of parentheses and types; the
    number of tokens if there is none."""
    places = (
        number
        for number, (_, outside) in enumerate(_depths(tokens))
        if number >= start and outside and word(tokens, number) in words
    )
    return next(places, len(tokens))


def _depths(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool]]:
    """Each token, and whether it stands outside of parentheses and angle brackets."""
    depth = angles = 0
    for token in tokens:
        depth += depth_change(token)
        angles += _ANGLES.get(token.token_type, 0) if not depth else 0
        yield token, not depth and not angles


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
