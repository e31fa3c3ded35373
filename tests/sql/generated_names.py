"""Queries with generated scopes, names and structs, beside what an independent resolver makes of
them: the same query over aliases of one kind, for DuckDB over plain tables."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, "Fields | None"]
"""Columns or fields by name; None for a number, else the fields of a struct."""

TABLES: dict[str, Fields] = {
    "a.users": {"id": None, "v": None, "users": {"id": None, "w": None}},
    "b.users": {"id": None, "w": None},
    "a.full": {"id": None, "a": {"users": None, "id": None}},
    "b.a": {"id": None, "users": None, "v": None},
    "a.left": {"v": None, "left": {"v": None, "id": None}},
    "a.seen": {"id": None, "v": None},
}
VIEWS = {"a.seen": "SELECT users.id, a.users.v FROM users WHERE a.users.id > 1"}
"""Views in their database; the others are tables."""


class NotOne(Exception):
    """The name means nothing, or several things."""


@dataclass(frozen=True)
class Member:
    table: str
    alias: str | None
    own: str
    """The alias in the oracle's query."""
    columns: Fields
    cte: bool = False

    @property
    def called(self) -> str:
        return self.alias or self.table.rpartition(".")[2]

    @property
    def qualified(self) -> list[str] | None:
        return None if self.alias or self.cte else self.table.split(".")


Scopes = Sequence[Sequence[Member]]
"""From the inside out."""


def meaning(parts: Sequence[str], scopes: Scopes) -> str:
    """The number that a name means, over the oracle's aliases, by Spark's rules."""
    for scope in scopes:
        for width in (2, 1, 0):
            if len(parts) <= width:
                continue
            hits = [
                member
                for member in scope
                if parts[width] in member.columns
                and (width != 2 or member.qualified == list(parts[:2]))
                and (width != 1 or member.called == parts[0])
            ]
            if not hits:
                continue
            if len(hits) > 1:
                raise NotOne
            kind: Fields | None = hits[0].columns
            for part in parts[width:]:
                if kind is None or part not in kind:
                    raise NotOne
                kind = kind[part]
            if kind is not None:
                raise NotOne
            return ".".join([hits[0].own, *(f'"{part}"' for part in parts[width:])])
    raise NotOne


def paths(columns: Fields) -> Iterator[tuple[str, ...]]:
    for name, kind in columns.items():
        if kind is None:
            yield (name,)
        else:
            yield from ((name, *rest) for rest in paths(kind))


@dataclass
class Generator:
    """Statements of one seed; `database` is the session's."""

    choose: random.Random
    database: str = "a"
    members: int = 0
    wrong: bool = False
    ctes: dict[str, str] = field(default_factory=dict)

    def pair(self) -> tuple[str, str | None]:
        """A query, and the oracle's; None if a name of it means nothing, or several things."""
        self.members, self.wrong = 0, False
        self.ctes = {"users": "b.users"} if self.choose.random() < 0.15 else {}
        text, oracle = self._query((), 0)
        if self.ctes:
            text = f"WITH users AS (SELECT id, w FROM b.users WHERE b.users.id > 1) {text}"
            oracle = f'WITH c AS (SELECT id, w FROM "b.users" WHERE id > 1) {oracle}'
        return text, None if self.wrong else oracle

    def _query(self, outer: Scopes, depth: int) -> tuple[str, str]:
        members = [self._member() for _ in range(self.choose.choice((1, 1, 1, 2)))]
        scopes = [members, *outer]
        text, oracle = (
            " JOIN ".join(parts) for parts in zip(*map(self._from, members), strict=True)
        )
        if len(members) == 2:
            a, b = self._reference(scopes), self._reference(scopes)
            text, oracle = f"{text} ON {a[0]} = {b[0]}", f"{oracle} ON {a[1]} = {b[1]}"
        conditions = [self._condition(scopes, depth) for _ in range(self.choose.choice((1, 1, 2)))]
        item = ("1", "1") if depth else self._reference(scopes)
        where = [" AND ".join(side) for side in zip(*conditions, strict=True)]
        return (
            f"SELECT {item[0]} AS r FROM {text} WHERE {where[0]}",
            f"SELECT {item[1]} AS r FROM {oracle} WHERE {where[1]}",
        )

    def _member(self) -> Member:
        table = self.choose.choice([*TABLES])
        alias = self.choose.choice((None, None, None, "a", "users", "x", "left"))
        short = table.partition(".")[2]
        cte = short in self.ctes and self.choose.random() < 0.5
        self.members += 1
        columns = TABLES["b.users"] if cte else TABLES[table]
        return Member(table, alias, f"x{self.members}", columns, cte)

    def _from(self, member: Member) -> tuple[str, str]:
        database, _, short = member.table.partition(".")
        bare = database == self.database and short not in self.ctes
        written = short if member.cte or (bare and self.choose.random() < 0.5) else member.table
        quoted = ".".join(f"`{part}`" for part in written.split("."))
        if self.choose.random() < 0.5 or written in ("full", "left"):
            written = quoted
        alias = f" AS `{member.alias}`" if member.alias else ""
        return f"{written}{alias}", f'"{"c" if member.cte else member.table}" AS {member.own}'

    def _condition(self, scopes: Scopes, depth: int) -> tuple[str, str]:
        if depth < 2 and self.choose.random() < (0.7, 0.3)[depth]:
            inner = self._query(scopes, depth + 1)
            word = self.choose.choice(("EXISTS", "NOT EXISTS"))
            return f"{word} ({inner[0]})", f"{word} ({inner[1]})"
        a, b = self._reference(scopes), self._reference(scopes)
        sign = self.choose.choice(("=", "<", ">="))
        return f"{a[0]} {sign} {b[0]}", f"{a[1]} {sign} {b[1]}"

    def _reference(self, scopes: Scopes) -> tuple[str, str]:
        """A name that usually means one number."""
        for _ in range(30):
            scope = scopes[0] if self.choose.random() < 0.6 else self.choose.choice(list(scopes))
            member = self.choose.choice(list(scope))
            path = self.choose.choice([*paths(member.columns)])
            heads: list[Sequence[str]] = [(), (member.called,), (member.called,)]
            heads += [member.qualified or (member.called,)] * 3
            parts = (*self.choose.choice(heads), *path)
            written = ".".join(
                f"`{part}`" if self.choose.random() < 0.3 or part in ("full", "left") else part
                for part in parts
            )
            try:
                return written, meaning(parts, scopes)
            except NotOne:
                if self.choose.random() < 0.03:
                    self.wrong = True
                    return written, "NULL"
        return "7", "7"


def rows_of(table: str) -> list[dict[str, Any]]:
    """A few rows with small numbers."""
    choose = random.Random(table)

    def value(kind: Fields | None) -> Any:
        if kind is None:
            return choose.randint(1, 4)
        return {name: value(part) for name, part in kind.items()}

    return [{name: value(kind) for name, kind in TABLES[table].items()} for _ in range(4)]


def declared(columns: Fields) -> str:
    return ", ".join(f"`{name}` {_type(kind)}" for name, kind in columns.items())


def _type(kind: Fields | None) -> str:
    if kind is None:
        return "int"
    return f"struct<{','.join(f'{name}:{_type(part)}' for name, part in kind.items())}>"
