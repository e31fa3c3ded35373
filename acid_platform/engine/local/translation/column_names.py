"""What names of columns mean by Spark's rules.

sqlglot's `qualify` has other rules: it takes the first of two columns with one name, finds columns
of every query around a subquery, and forgets how a name was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.duckdb_sql import identifier, text, translating
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import Column, HiveType, of_value
from acid_platform.predicates.known_columns import unresolved_column


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that expressions may name: its name in Spark, its type, and its SQL in DuckDB."""

    name: str
    type: HiveType
    sql: str
    foldable: bool = False
    """As that of a value."""

    def is_named(self, name: str) -> bool:
        return self.name.lower() == name.lower()

    @property
    def value(self) -> Typed:
        declared = self.type if self.type.is_told else None
        sql, kind = _value_of(self.sql, self.type), of_value(self.type)
        return Typed(sql, kind, declared=declared, foldable=self.foldable)


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
                return field_of(qualified, rest[1:])
        column = self._one(self.unqualified(head), parts)
        return None if column is None else field_of(column, rest)

    def path(self, parts: Sequence[str]) -> Sequence[str]:
        """The name of a column and of the fields in it, without that of its table."""
        head, *rest = parts
        qualified = rest and any(
            name.lower() == head.lower() and any(column.is_named(rest[0]) for column in columns)
            for name, columns in self.members
        )
        return rest if qualified else parts

    def unqualified(self, name: str) -> list[ScopeColumn]:
        """The columns that a name without a table means."""
        merged = [column for column in self.merged if column.is_named(name)]
        return merged or self.named(name)

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


def field_of(value: Typed, path: Sequence[str]) -> Typed:
    """A field of a struct, which may be one inside of another. Raises NeedsSpark."""
    if path and translating().told_fields:
        raise NeedsSpark(f"the field {path[0]!r} beside a struct made of a CHAR or VARCHAR")
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
            foldable=value.foldable,
        )
    return replace(value, type=of_value(value.type))
