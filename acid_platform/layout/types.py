"""Hive column types: parsing and printing in Hive's notation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from acid_platform.errors import InvalidDefinition

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_SIMPLE = frozenset(
    (*INTEGRAL, "boolean", "float", "double", "string", "binary", "date", "timestamp")
)
_SYNONYMS = {"integer": "int", "numeric": "decimal", "dec": "decimal"}
LOCAL_ZONE = "timestamp with local time zone"
TIMESTAMPS = ("timestamp", LOCAL_ZONE)
CHAR_TYPES = ("char", "varchar")
"""Text types with a maximum length."""
UNNAMED = ("char", LOCAL_ZONE)
"""Partition column types that are read but not written, because Hive's directory names for their
values are not reproduced."""
_LONGEST = {"char": 255, "varchar": 65535}

_TOKEN = re.compile(r"\s*([A-Za-z_][\w]*|`[^`]+`|\d+|[<>(),:])")


@dataclass(frozen=True, slots=True)
class HiveType:
    """A type: `kind` as Hive spells it, sizes of decimal, char and varchar, and child types.

    Children have names: `element` in an array, `key` and `value` in a map, field names in a struct.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    children: tuple[tuple[str, HiveType], ...] = ()

    @property
    def nested(self) -> bool:
        return bool(self.children)

    def walk(self) -> Iterator[HiveType]:
        """This type and all types nested in it, in the order of ORC's column numbers."""
        yield self
        for _, child in self.children:
            yield from child.walk()

    def __str__(self) -> str:
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{child}" for name, child in self.children) + ">"
        if self.children:
            return f"{self.kind}<" + ",".join(str(child) for _, child in self.children) + ">"
        return self.kind + (f"({','.join(map(str, self.sizes))})" if self.sizes else "")


@dataclass(frozen=True, slots=True)
class Column:
    """A table or partition column; names are lower case, as in Hive."""

    name: str
    type: HiveType

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise self.error(f"can't read {text[at:].strip()!r}")
            self.tokens.append(match[1])
            at = match.end()
        self.at = 0

    def error(self, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self.text!r}: {why}; write e.g. 'id int, v decimal(7,2)'")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise self.error("unexpected end")
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.next() != token:
            raise self.error(f"{token!r} expected before {' '.join(self.tokens[self.at - 1 :])!r}")

    def name(self) -> str:
        token = self.next()
        if token in "<>(),:" or token.isdigit():
            raise self.error(f"a name expected, found {token!r}")
        return token.strip("`").lower()

    def type(self) -> HiveType:
        kind = self.name()
        kind = _SYNONYMS.get(kind, kind)
        if kind == "array":
            return HiveType("array", (), (("element", self._inside()),))
        if kind == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return HiveType("map", (), (("key", key), ("value", value)))
        if kind == "struct":
            return HiveType("struct", (), tuple(self._fields()))
        if kind == "decimal":
            return self._decimal()
        if kind in ("char", "varchar"):
            sizes = self._sizes()
            if len(sizes) != 1 or not 1 <= sizes[0] <= _LONGEST[kind]:
                raise self.error(f"{kind} needs one length, from 1 to {_LONGEST[kind]}")
            return HiveType(kind, sizes)
        if kind == "timestamp" and self.peek().lower() == "with":
            words = [self.name() for _ in range(4)]
            if words != ["with", "local", "time", "zone"]:
                raise self.error("'timestamp with local time zone' expected")
            return HiveType(LOCAL_ZONE)
        if kind not in _SIMPLE:
            raise self.error(f"unknown type {kind!r}")
        return HiveType(kind)

    def _inside(self) -> HiveType:
        self.expect("<")
        child = self.type()
        self.expect(">")
        return child

    def _fields(self) -> Iterator[tuple[str, HiveType]]:
        self.expect("<")
        while True:
            name = self.name()
            self.expect(":")
            yield name, self.type()
            if self.next() == ">":
                return
            if self.tokens[self.at - 1] != ",":
                raise self.error("',' or '>' expected in a struct")

    def _sizes(self) -> tuple[int, ...]:
        if self.peek() != "(":
            return ()
        self.next()
        sizes = []
        while True:
            token = self.next()
            if not token.isdigit():
                raise self.error(f"a number expected, found {token!r}")
            sizes.append(int(token))
            if self.next() == ")":
                return tuple(sizes)

    def _decimal(self) -> HiveType:
        sizes = self._sizes()
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2] if len(sizes) < 3 else (0, 0)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self.error("decimal takes (precision 1 to 38, scale 0 to precision)")
        return HiveType("decimal", (precision, scale))


def parse_type(text: str) -> HiveType:
    """`'array<decimal(7,2)>'` → HiveType. Raises InvalidDefinition."""
    parser = _Parser(text)
    parsed = parser.type()
    if parser.peek():
        raise parser.error(f"{parser.peek()!r} is left over")
    return parsed


def parse_columns(text: str) -> tuple[Column, ...]:
    """`'id int, v string'` → columns, names in lower case. Raises InvalidDefinition."""
    parser = _Parser(text)
    columns: list[Column] = []
    while True:
        name = parser.name()
        if any(name == column.name for column in columns):
            raise parser.error(f"column {name!r} is named twice")
        columns.append(Column(name, parser.type()))
        if not parser.peek():
            return tuple(columns)
        parser.expect(",")
