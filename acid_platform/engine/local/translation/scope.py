"""The columns that an expression may name, and the clauses of a query that are translated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.duckdb_types import (
    identifier,
    ordered,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.functions import AGGREGATES, calls_of
from acid_platform.engine.local.translation.grouping_sets import WORDS
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import Column, HiveType, of_value
from acid_platform.predicates.known_columns import unresolved_column


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that expressions may name: its name in Spark, its type, and its SQL in DuckDB."""

    name: str
    type: HiveType
    sql: str
    fails: bool = False
    """Whether it is an expression that may fail for some rows."""

    def is_named(self, name: str) -> bool:
        return self.name.lower() == name.lower()

    @property
    def value(self) -> Typed:
        declared = self.type if self.type.is_told else None
        return Typed(
            _value_of(self.sql, self.type), of_value(self.type), self.fails, declared=declared
        )


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
            value.fails,
            declared=kind if kind.has_char else None,
            is_field=True,
        )
    return replace(value, type=of_value(value.type))


_OPERATION = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
_PARTS: dict[type[exp.Expr], set[str]] = {
    exp.Select: {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order",
                 "sort", "cluster", "distribute", "limit", "offset", "with_"},
    exp.Union: _OPERATION,
    exp.Intersect: _OPERATION,
    exp.Except: _OPERATION,
    exp.Subquery: {"this", "alias"},
    exp.Table: {"this", "alias"},
    exp.Values: {"expressions", "alias"},
    exp.Group: {"expressions", *WORDS},
    exp.Distinct: set(),
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
}  # fmt: skip
"""The clauses that are translated; any other needs Spark."""


def require_parts(node: exp.Expr) -> None:
    """Raises NeedsSpark if the query has a clause that is not translated."""
    allowed = _PARTS.get(type(node))
    for part, value in node.args.items():
        if value and (allowed is None or part not in allowed):
            raise NeedsSpark(f"{part.strip('_').upper()} of {type(node).__name__.upper()}")


def columns_of_alias(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.columns) if alias is not None else ()


def aggregated(node: exp.Expr | ScopeColumn | None) -> bool:
    """Whether an expression has an aggregate that is not inside of a window or a subquery."""
    if not isinstance(node, exp.Expr) or isinstance(node, exp.Window | exp.Query):
        return False
    if isinstance(node, exp.AggFunc) or any(
        function in AGGREGATES for function, _ in calls_of(node)
    ):
        return True
    return any(map(aggregated, node.iter_expressions()))


def order_of(node: exp.Expr) -> list[exp.Ordered]:
    """The order of ORDER BY, or of SORT BY and CLUSTER BY, which demand less than a total one."""
    clauses = [node.args[name] for name in ("order", "sort", "cluster") if node.args.get(name)]
    if not clauses:
        return []
    (order, *others), total = clauses, node.args.get("order") is not None
    if others or (node.args.get("distribute") and not node.args.get("sort")):
        raise NeedsSpark(f"{order.sql('spark').strip()} beside another order")
    terms = [
        term if isinstance(term, exp.Ordered) else exp.Ordered(this=term.copy(), nulls_first=True)
        for term in order.expressions
    ]
    if any(
        term.args.get("with_fill") or (isinstance(term.this, exp.Literal) and not total)
        for term in terms
    ):
        raise NeedsSpark(order.sql("spark").strip())
    return terms


def ordinal(node: exp.Expr, count: int) -> int | None:
    """The position that a literal number means in GROUP BY and ORDER BY."""
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string or not node.this.isdigit() or not 1 <= int(node.this) <= count:
        raise NeedsSpark(f"the position {node.sql('spark')}")
    return int(node.this)


def sortable(value: Typed) -> str:
    if not ordered(value.type):
        raise NeedsSpark(f"grouping or sorting by {spark_name(value.type)}")
    return value.sql


def direction(term: exp.Ordered) -> str:
    way = "DESC" if term.args.get("desc") else "ASC"
    return f" {way} NULLS {'FIRST' if term.args.get('nulls_first') else 'LAST'}"


def limit_of(node: exp.Expr) -> str:
    """LIMIT and OFFSET, which must be literals."""
    sql = ""
    for part in ("limit", "offset"):
        clause = node.args.get(part)
        if clause is None:
            continue
        number = clause.expression
        if not (isinstance(number, exp.Literal) and number.this.isdigit()):
            raise NeedsSpark(clause.sql("spark"))
        sql += f" {part.upper()} {number.this}"
    return sql
