"""What an entry of the tables of functions is: Spark's call, its types, and DuckDB's SQL of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from acid_platform.engine.local.translation.arithmetic import too_long_to_negate
from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NUMERIC,
    STRING,
    TIMESTAMP,
    VOID,
    duckdb_type,
    ordered,
)
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType

Takes = Literal[
    "string", "int", "count", "pad", "integral", "decimal", "number", "double", "date", "timestamp",
    "condition", "ordered", "exact", "any", "real", "exactly real", "exactly ordered", "share",
    "accuracy", "shares", "text", "null", "a date",
    "a timestamp",
]  # fmt: skip
TAKES: dict[Takes, str] = {
    "string": "text",
    "int": "tinyint, smallint or int",
    "count": "a literal whole number, 0 or more",
    "pad": "a literal text, not empty",
    "integral": "tinyint, smallint, int or bigint",
    "decimal": "decimal",
    "number": "any number, decimals of up to 34 digits",
    "double": "float or double",
    "date": "a date, or a timestamp as its date",
    "timestamp": "a timestamp, or a date as its midnight",
    "condition": "boolean",
    "ordered": "any type but arrays, maps and structs",
    "exact": "as ordered, but no float and no double",
    "any": "any type",
    "real": "any number, as a double",
    "exactly real": "a whole number of up to 32 bits, as a double",
    "exactly ordered": "tinyint, smallint, int, bigint, date or timestamp",
    "share": "a literal number from 0 to 1",
    "shares": "a literal array of numbers from 0 to 1",
    "text": "a literal text",
    "null": "NULL without a type",
    "a date": "date",
    "a timestamp": "timestamp",
    "accuracy": "a literal whole number, 4 or more",
}
Gives = HiveType | Callable[[Sequence[HiveType]], HiveType]


@dataclass(frozen=True, slots=True)
class Function:
    """A function: Spark's call with the arguments a, b, c, and the same in DuckDB's SQL.

    In the SQL of an aggregate, `{over}` is the place of FILTER and OVER.
    """

    call: str
    takes: tuple[Takes, ...]
    sql: str | Callable[[Sequence[HiveType]], str]
    gives: Gives
    column: str = ""
    """Spark's name for the column of such a call, where it is not the call itself."""

    @property
    def name(self) -> str:
        return self.call.partition("(")[0]


def same_type(types: Sequence[HiveType]) -> HiveType:
    return types[0]


def called(function: Function, values: dict[str, Typed], over: str = "") -> Typed | None:
    """The call, or None if the function does not take these values.

    `over` is the FILTER or OVER clause of an aggregate.
    """
    taken = {}
    for letter, takes in zip("abcdefg", function.takes, strict=False):
        value = accepted(values[letter], takes)
        if value is None:
            return None
        taken[letter] = value
    parts = {letter: value.sql for letter, value in taken.items()}
    types = [value.type for value in taken.values()]
    template = function.sql if isinstance(function.sql, str) else function.sql(types)
    sql = template.format(over=over, **parts)
    gives = function.gives if isinstance(function.gives, HiveType) else function.gives(types)
    return Typed(f"CAST({sql} AS {duckdb_type(gives)})", gives)


def accepted(value: Typed, takes: Takes) -> Typed | None:
    """The value as a function takes it, cast as Spark casts arguments; None if it does not."""
    kind = value.type
    match takes:
        case "any":
            return value
        case "ordered" if ordered(kind):
            return value
        case "exact" if ordered(kind) and kind.kind not in FLOATING:
            return value
        case "string" if kind == STRING:
            return value
        case "condition" if kind == BOOLEAN:
            return value
        case "integral" if kind.kind in INTEGRAL:
            return value
        case "int" if kind.kind in INTEGRAL and kind != BIGINT:
            return cast(value, INT)
        case "count" if isinstance(value.literal, int) and 0 <= value.literal < 1 << 20:
            return value
        case "pad" if isinstance(value.literal, str) and value.literal:
            return value
        case "real" if kind.kind in (*NUMERIC, "void"):
            return cast(value, DOUBLE)
        case "a date" if kind == DATE:
            return value
        case "a timestamp" if kind == TIMESTAMP:
            return value
        case "null" if kind == VOID:
            return cast(value, DOUBLE)
        case "exactly real" if kind.kind in INTEGRAL and kind != BIGINT:
            return cast(value, DOUBLE)
        case "exactly ordered" if kind.kind in INTEGRAL:
            return value
        case "share" if isinstance(value.literal, int | Decimal) and 0 <= value.literal <= 1:
            return Typed(str(value.literal), value.type)
        case "shares" if isinstance(value.literal, tuple) and all(
            0 <= share <= 1 for share in value.literal
        ):
            return Typed(f"[{', '.join(map(str, value.literal))}]", value.type)
        case "text" if isinstance(value.literal, str):
            return value
        case "accuracy" if isinstance(value.literal, int) and value.literal >= 4:
            return Typed(str(value.literal), value.type)
        case "decimal" if kind.kind == "decimal":
            return value
        case "number" if kind.kind in NUMERIC and not too_long_to_negate(kind):
            return value
        case "double" if kind.kind in FLOATING:
            return cast(value, DOUBLE)
        case "date" if kind in (DATE, TIMESTAMP, STRING):
            return cast(value, DATE)
        case "timestamp" if kind in (DATE, TIMESTAMP, STRING):
            return cast(value, TIMESTAMP)
    return None


@dataclass(frozen=True, slots=True)
class Construct:
    """An operator or form of SQL, by the class of its node in sqlglot."""

    shown: str
    types: str
    translate: Callable[..., Typed]
    parts: tuple[str, ...] = ("this", "expression", "safe")
    """The parts of the node that its translation knows."""
