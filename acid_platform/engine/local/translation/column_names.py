"""What names of columns mean by Spark's rules, and how Spark names columns without an alias.

sqlglot's `qualify` has other rules: it takes the first of two columns with one name, finds columns
of every query around a subquery, and forgets how a name was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from acid_platform.engine.local.translation import arithmetic
from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.duckdb_sql import identifier, take_room, text
from acid_platform.engine.local.translation.functions import calls_of
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import Column, HiveType, of_value
from acid_platform.predicates.grammar import CALLED, COMPARISONS, IS_NOT, UNIT
from acid_platform.predicates.known_columns import unresolved_column

_LETTER = re.compile(r"\b([abc])\b")
_OPERATORS: dict[type[exp.Expr], str] = {
    **arithmetic.OPERATORS,
    **COMPARISONS,
    exp.IntDiv: "div",
    exp.And: "AND",
    exp.Or: "OR",
    exp.NullSafeEQ: "<=>",
}
_CALLS: dict[type[exp.Expr], str] = {
    exp.Between: "between",
    exp.Nullif: "nullif",
    exp.DPipe: "concat",
    exp.Concat: "concat",
    exp.Coalesce: "coalesce",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Grouping: "grouping",
    exp.GroupingId: "grouping_id",
}
"""What is no call in SQL, or has several names, and what Spark calls it."""


def column_name(node: exp.Expr) -> str:
    """The name of an unnamed column. Raises NeedsSpark where it is not known."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column | exp.Dot):
        return name_of(node.this)
    return column_name(node.this) if isinstance(node, exp.Paren) else name_of(node)


def _has_fraction(node: exp.Binary) -> bool:
    return any(
        isinstance(part, exp.Literal) and not part.is_string and "." in part.this
        for side in (node.left, node.right)
        for part in (side, side.this)
    )


def name_of(node: exp.Expr) -> str:
    """The name of an expression in the name of a column. Raises NeedsSpark."""
    name = _name_of(node)
    take_room(len(name))
    called = node.meta.get(CALLED)
    if called and not name.lower().lstrip("(").startswith(f"{called}("):
        raise _unknown(node)  # Spark has names of its own for some synonyms, such as `nvl`
    return name


def _unknown(node: exp.Expr) -> NeedsSpark:
    return NeedsSpark(f"the name of the column {node.sql('spark')}; give it one with AS")


def _name_of(node: exp.Expr) -> str:
    if type(node) in _CALLS:
        return f"{_CALLS[type(node)]}({_names(*node.iter_expressions())})"
    match node:
        case exp.Column() | exp.Dot():
            return str(node.parts[-1].name)
        case exp.Literal() if not node.is_string and node.this.isdecimal():
            return str(int(node.this))
        case exp.Literal() if node.is_string or "e" not in node.this.lower():
            return str(node.this)
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Null():
            return "NULL"
        case exp.Paren():
            return name_of(node.this)
        case exp.Not() if IS_NOT in node.meta:
            return f"{name_of(node.this).removesuffix(' NULL)')} NOT NULL)"
        case exp.Not():
            return f"(NOT {name_of(node.this)})"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"({name_of(node.this)} IS NULL)"
        case exp.NEQ() if not _has_fraction(node):
            return f"(NOT ({name_of(node.left)} = {name_of(node.right)}))"
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return f"-{name_of(node.this)}"
        case exp.Neg():
            return f"(- {name_of(node.this)})"
        case exp.Binary() if type(node) in COMPARISONS and _has_fraction(node):
            pass  # Spark writes another comparison where the other side is a whole number
        case exp.Binary() if type(node) in _OPERATORS:
            return f"({name_of(node.left)} {_OPERATORS[type(node)]} {name_of(node.right)})"
        case exp.In() if node.expressions:
            return f"({name_of(node.this)} IN ({_names(*node.expressions)}))"
        case exp.Filter():
            return f"{name_of(node.this)} FILTER (WHERE {name_of(node.expression.this)})"
        case exp.Like():
            like = f"{name_of(node.this)} LIKE {name_of(node.expression)}"
            return f"(NOT {like})" if node.args.get("negate") else like
        case exp.Case():
            operand = None if node.this is None else name_of(node.this)
            tests = [
                name_of(branch.this) if operand is None else f"({operand} = {name_of(branch.this)})"
                for branch in node.args["ifs"]
            ]
            branches = (
                f"WHEN {test} THEN {name_of(branch.args['true'])}"
                for test, branch in zip(tests, node.args["ifs"], strict=True)
            )
            default = node.args.get("default")
            other = "" if default is None else f" ELSE {name_of(default)}"
            return f"CASE {' '.join(branches)}{other} END"
        case exp.If() if node.args.get("false") is not None:
            return f"(IF({_names(node.this, node.args['true'], node.args['false'])}))"
        case exp.Round():
            return f"round({_names(node.this, node.args.get('decimals') or exp.Literal.number(0))})"
        case exp.TimeToStr() if UNIT in node.meta:
            return f"date_format({name_of(node.this.this)}, {node.meta[UNIT]})"
        case exp.RegexpLike():
            return f"RLIKE({_names(node.this, node.expression)})"
        case exp.RegexpExtract() | exp.RegexpReplace():
            given = ("this", "expression", "replacement", "group", "position")
            parts = [node.args[name] for name in given if node.args.get(name)]
            if isinstance(node, exp.RegexpReplace) and len(parts) == 3:
                parts.append(exp.Literal.number(1))
            word = "extract" if isinstance(node, exp.RegexpExtract) else "replace"
            return f"regexp_{word}({_names(*parts)})"
        case exp.TimestampTrunc() if UNIT in node.meta:
            return f"date_trunc({node.meta[UNIT]}, {name_of(node.this)})"
        case exp.DateTrunc() if UNIT in node.meta:
            return f"trunc({name_of(node.this)}, {node.meta[UNIT]})"
        case exp.Cast() if not node.args.get("safe") and not isinstance(node.this, exp.Literal):
            kind = node.to.sql("spark").replace(", ", ",")
            return f"CAST({name_of(node.this)} AS {kind})"
    for function, arguments in calls_of(node):
        names = {letter: name_of(argument) for letter, argument in arguments.items()}
        pieces = _LETTER.split(function.column or function.call)
        return "".join(names.get(piece, piece) for piece in pieces)
    raise _unknown(node)


def _names(*nodes: exp.Expr) -> str:
    return ", ".join(map(name_of, nodes))


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that expressions may name: its name in Spark, its type, and its SQL in DuckDB."""

    name: str
    type: HiveType
    sql: str

    def is_named(self, name: str) -> bool:
        return self.name.lower() == name.lower()

    @property
    def value(self) -> Typed:
        declared = self.type if self.type.is_told else None
        return Typed(_value_of(self.sql, self.type), of_value(self.type), declared=declared)


@dataclass(frozen=True, slots=True)
class NameScope:
    """The members of a FROM clause: each has a name and columns. Names ignore letter case."""

    members: tuple[tuple[str, tuple[ScopeColumn, ...]], ...]
    merged: tuple[ScopeColumn, ...] = ()
    """The columns of USING, which an unqualified name means."""

    @classmethod
    def of(cls, tables: Mapping[str, Sequence[Column]]) -> NameScope:
        """Tables by the name that qualifies their columns, both in Spark's SQL and in DuckDB's."""
        members = (
            (name, columns_under(identifier(name), columns)) for name, columns in tables.items()
        )
        return cls(tuple(members))

    def columns_in_sql(self) -> Iterator[tuple[tuple[str, str], str]]:
        """The member and name of each column, and its SQL."""
        for name, columns in self.members:
            yield from (((name, column.name), column.sql) for column in columns)

    def find(self, parts: Sequence[str]) -> Typed | None:
        """The value of `column`, `member.column` or a field of one of them; None if unknown.

        Raises InvalidExpression if the name is ambiguous.
        """
        head, *rest = parts
        if rest:
            own = [
                column
                for name, columns in self.members
                if name.lower() == head.lower()
                for column in columns
                if column.is_named(rest[0])
            ]
            if (qualified := self._one(own, parts)) is not None:
                return _field(qualified, rest[1:])
        merged = [column for column in self.merged if column.is_named(head)]
        column = self._one(merged or self.named(head), parts)
        return None if column is None else _field(column, rest)

    def named(self, name: str) -> list[ScopeColumn]:
        """The columns of that name, of all members."""
        every = (column for _, columns in self.members for column in columns)
        return [column for column in every if column.is_named(name)]

    def resolve(self, parts: Sequence[str]) -> Typed:
        """As `find`, but raises UnknownColumn for an unknown name."""
        column = self.find(parts)
        if column is None:
            names = [column.name for _, columns in self.members for column in columns]
            raise unresolved_column(".".join(parts), names)
        return column

    @staticmethod
    def _one(columns: list[ScopeColumn], parts: Sequence[str]) -> Typed | None:
        if len(columns) > 1:
            raise InvalidExpression(
                f"the column {'.'.join(parts)} is ambiguous; say of which table it is"
            )
        return columns[0].value if columns else None


def columns_under(table: str, columns: Sequence[Column]) -> tuple[ScopeColumn, ...]:
    """The columns of a table, which DuckDB's SQL calls `table`."""
    return tuple(
        ScopeColumn(column.name, column.type, f"{table}.{identifier(column.name)}")
        for column in columns
    )


def _value_of(stored: str, kind: HiveType) -> str:
    """SQL of a value in expressions: as in Hive, a CHAR has no trailing blanks there."""
    return f"rtrim({stored}, ' ')" if kind.kind == "char" else stored


def _field(value: Typed, path: Sequence[str]) -> Typed:
    for name in path:
        whole = value.declared or value.type
        if whole.kind != "struct":
            raise NeedsSpark(f"the field {name!r} of a {value.type}")
        children = dict(whole.children)
        if name.lower() not in children:
            raise NeedsSpark(f"the field {name!r}, which the struct lacks")
        kind = children[name.lower()]
        value = Typed(
            _value_of(f"struct_extract({value.sql}, {text(name.lower())})", kind),
            kind,
            declared=kind if kind.has_char else None,
            is_field=True,
        )
    return replace(value, type=of_value(value.type))
