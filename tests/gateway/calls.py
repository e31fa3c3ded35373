"""Calls of the gateway's interface with arguments made from its declaration."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from thriftpy2.thrift import TType

from acid_platform.gateway.protocol import Call, known_calls
from tests.gateway.clients import m
from tests.gateway.test_protocol import message

Value = Callable[[str, int], Any]
"""A value for a field of this name and this type that holds no others."""

COLLECTIONS = (TType.LIST, TType.SET, TType.MAP)
DATABASES = {*["dbname", "databasename", "db_name", "database", "db", "database_name"]}
_DATABASES = DATABASES | {"name", "foreign_db_name"}
TABLES = {*["tblname", "tablename", "tbl_name", "tname", "table", "table_name", "tab_name"]}
_TABLES = TABLES | {"foreign_tbl_name"}


def named(database: str, table: str, other: Any = "x", number: int = 1) -> Value:
    """Databases and tables have these names, other texts are `other`, numbers `number`."""

    def value(field: str, kind: int) -> Any:
        if kind == TType.STRING:
            low = field.lower()
            return database if low in _DATABASES else table if low in _TABLES else other
        if kind == TType.BINARY:
            return b"x"
        if kind == TType.BOOL:
            return False
        return float(number) if kind == TType.DOUBLE else number

    return value


class Filler:
    """Fills all arguments of a call, structs and lists with one element of each kind."""

    deepest = 6

    def __init__(self, value: Value) -> None:
        self._value = value

    def call(self, name: str) -> Call:
        spec = getattr(m.ThriftHiveMetastore, f"{name}_args").thrift_spec
        return Call(name, 1, [self._field(spec[number], 0) for number in sorted(spec)])

    def _field(self, field: tuple[Any, ...], depth: int) -> Any:
        kind, name = field[0], field[1]
        inner = field[2] if kind in (TType.STRUCT, *COLLECTIONS) else None
        return self._made(kind, inner, name, depth)

    def _made(self, kind: int, inner: Any, name: str, depth: int) -> Any:
        if kind == TType.STRUCT:
            made = inner()
            for number in sorted(inner.thrift_spec):
                if depth < self.deepest:
                    field = inner.thrift_spec[number]
                    setattr(made, field[1], self._field(field, depth + 1))
            return made
        if kind == TType.MAP:
            key, content = inner
            if isinstance(key, tuple):  # a list can't be a key in Python
                return {}
            return {self._of(key, "key", depth): self._of(content, "value", depth)}
        if kind in COLLECTIONS:
            return [self._of(inner, name, depth)]
        return self._value(name, kind)

    def _of(self, inner: Any, name: str, depth: int) -> Any:
        kind, further = inner if isinstance(inner, tuple) else (inner, None)
        return self._made(kind, further, name, depth + 1)


def sample(name: str, value: Value) -> Call:
    """The call with all its arguments filled."""
    return Filler(value).call(name)


def any_call(dice: random.Random) -> bytes:
    """A call as bytes; each of its values may be one that nobody expects."""
    texts = (
        "db",
        "t",
        "p=1",
        "x",
        "",
        "a\nb\x1b[2J",
        "%",
        "*",
        "x" * 5000,
        "db.t",
        "é\u202e",
        "\0",
    )

    def value(field: str, kind: int) -> Any:
        if kind == TType.STRING:
            usual = named("db", "t")(field, kind)
            return usual if dice.random() < 0.6 else dice.choice(texts)
        if kind == TType.BINARY:
            return dice.randbytes(dice.randint(0, 20))
        if kind == TType.BOOL:
            return dice.random() < 0.5
        if kind == TType.DOUBLE:
            return dice.choice((0.0, float("nan"), float("inf"), -1e308))
        most = {TType.BYTE: 7, TType.I16: 15, TType.I32: 31}.get(kind, 63)
        return dice.choice((0, 1, 2, -1, 5, (1 << most) - 1, -(1 << most)))

    name = dice.choice(sorted(known_calls()))
    call = sample(name, value)
    return message(name, *(None if dice.random() < 0.03 else one for one in call.arguments))
