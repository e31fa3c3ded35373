"""What an entry of the tables of functions is: Spark's call, its types, and DuckDB's SQL of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NTZ,
    NUMERIC,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VARIANT,
    VOID,
    duckdb_type,
    ordered,
    spark_name,
    widest,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType

STRINGS = HiveType("array", (), (("element", STRING),))
FLOATS = HiveType("array", (), (("element", FLOAT),))
KINDS = {
    "any": "any type",
    "text": "text, or NULL",
    "string": "text, and what becomes text by a cast: whole numbers, decimals, booleans, dates",
    "bytes": "binary",
    "binary": "binary, or text as UTF-8",
    "int": "tinyint, smallint or int",
    "integer": "int alone",
    "long": "bigint",
    "bigint": "any whole number, as a bigint",
    "double": "any number, as a double",
    "float": "double alone",
    "fraction": "float or double, as a double",
    "decimal": "decimal",
    "number": "any number",
    "boolean": "boolean",
    "date": "a date, a timestamp as its date, or a text of one",
    "timestamp": "a timestamp, a date as its midnight, or a text of one",
    "day": "date alone",
    "moment": "timestamp or timestamp_ntz",
    "interval": "a literal interval",
    "array": "arrays",
    "floats": "arrays of float",
    "real": "float alone",
    "variant": "variant",
    "same": "values of one type",
    "word": "a literal text",
    "option": "a literal character, or NULL",
    "digits": "a literal whole number",
    "count": "a literal whole number from 0 to 1,048,575",
    "pad": "a literal text, not empty",
    "condition": "boolean, and not NULL without a type",
    "narrow": "tinyint, smallint or int, not NULL without a type",
    "integral": "any whole number, not NULL without a type",
    "ordered": "any type but arrays, maps and structs",
    "exact": "as ordered, but no float and no double",
    "exactly whole": "tinyint, smallint, int or NULL, as a bigint",
    "small": "tinyint, smallint or int",
    "exactly real": "a whole number of up to 32 bits, as a double",
    "share": "a literal number from 0 to 1",
    "shares": "a literal array of numbers from 0 to 1",
    "null": "NULL without a type",
    "accuracy": "a literal whole number, 4 or more",
}
"""What an argument may be."""


def accepted(value: Typed, kind: str) -> Typed | None:
    """The value as a function takes it, cast as Spark casts arguments; None if it does not."""
    own = value.type
    whole = own.kind in INTEGRAL
    if value.span is not None:
        return value if kind == "interval" else None
    match kind:
        case "any":
            return value
        case "text" if own in (STRING, VOID):
            return cast(value, STRING)
        case "string" if not (own.nested or own == BINARY):
            return cast(value, STRING)
        case "bytes" if own == BINARY:
            return value
        case "binary" if own in (BINARY, VOID):
            return cast(value, BINARY)
        case "binary" if own == STRING:
            return Typed(f"encode({value.sql})", BINARY)
        case "int" if (whole and own != BIGINT) or own == VOID:
            return cast(value, INT)
        case "exactly whole" if (whole and own != BIGINT) or own == VOID:
            return cast(value, BIGINT)
        case "small" if whole and own != BIGINT:
            return value
        case "narrow" if whole and own != BIGINT:
            return cast(value, INT)
        case "long" if own == BIGINT:
            return value
        case "integer" if own == INT:
            return value
        case "bigint" if whole or own == VOID:
            return cast(value, BIGINT)
        case "integral" if whole:
            return value
        case "double" if own.kind in (*NUMERIC, "void"):
            return cast(value, DOUBLE)
        case "float" if own == DOUBLE:
            return value
        case "fraction" if own.kind in FLOATING:
            return cast(value, DOUBLE)
        case "null" if own == VOID:
            return cast(value, DOUBLE)
        case "exactly real" if whole and own != BIGINT:
            return cast(value, DOUBLE)
        case "decimal" if own.kind == "decimal":
            return value
        case "boolean" if own in (BOOLEAN, VOID):
            return cast(value, BOOLEAN)
        case "condition" if own == BOOLEAN:
            return value
        case "number" if own.kind in NUMERIC:
            return value
        case "date" if own in (DATE, TIMESTAMP, NTZ, STRING, VOID):
            return cast(value, DATE)
        case "timestamp" if own in (DATE, TIMESTAMP, NTZ, STRING, VOID):
            return cast(value, TIMESTAMP)
        case "day" if own == DATE:
            return value
        case "moment" if own in (TIMESTAMP, NTZ):
            return cast(value, TIMESTAMP)
        case "array" if own.kind == "array":
            return value
        case "floats" if own == FLOATS:
            return value
        case "variant" if own in (VARIANT, VOID):
            return cast(value, VARIANT)
        case "real" if own == FLOAT:
            return value
        case "same" if not own.nested and own != VARIANT:
            return value
        case "ordered" if ordered(own):
            return value
        case "exact" if ordered(own) and own.kind not in FLOATING:
            return value
        case "option" if own == VOID or (
            isinstance(value.literal, str) and len(value.literal) == 1
        ):
            return cast(value, STRING)
        case "word" | "digits" if isinstance(value.literal, {"word": str, "digits": int}[kind]):
            return value
        case "count" if isinstance(value.literal, int) and 0 <= value.literal < 1 << 20:
            return value
        case "pad" if isinstance(value.literal, str) and value.literal:
            return value
        case "accuracy" if isinstance(value.literal, int) and value.literal >= 4:
            return Typed(str(value.literal), own)
        case "share" if isinstance(value.literal, int | Decimal) and 0 <= value.literal <= 1:
            return Typed(str(value.literal), own)
        case "shares" if isinstance(value.literal, tuple) and all(
            0 <= share <= 1 for share in value.literal
        ):
            return Typed(f"[{', '.join(map(str, value.literal))}]", own)
    return None


# --- scalar functions -----------------------------------------------------------------------------

_TYPES = {
    str(kind): kind
    for kind in (
        *(BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, FLOAT, INT, SMALLINT, STRING, TIMESTAMP, TINYINT),
        VARIANT,
    )
} | {"strings": STRINGS, "floats": FLOATS}
WANTED: set[str] = set()
"""The functions of batch_functions.py that stand in SQL of this process."""
_BATCH = re.compile(r"\bacid_\w+(?=\()")


@dataclass(frozen=True, slots=True)
class Signature:
    """A call with arguments of these kinds, and its SQL, where {0} is the first argument.

    `gives` is a type, or the number of the argument that has it. A last kind with `*` takes any
    number of arguments.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    sql: str | Callable[..., Typed]

    def fitted(self, values: Sequence[Typed]) -> list[Typed] | None:
        """The values as it takes them; None if it does not."""
        takes = self.takes
        if takes and takes[-1].endswith("*"):
            last = takes[-1].removesuffix("*")
            takes = (*takes[:-1], *[last] * (len(values) - len(takes) + 1))
        if len(takes) != len(values):
            return None
        fitted = [accepted(value, kind) for value, kind in zip(values, takes, strict=True)]
        if any(value is None for value in fitted):
            return None
        return _unified([value for value in fitted if value is not None], takes)

    def call(self, values: Sequence[Typed]) -> Typed:
        if callable(self.sql):
            value: Typed = self.sql(*values)
            sql, kind = value.sql, value.type
        else:
            parts = [value.sql for value in values]
            sql = self.sql.format(*parts, all=", ".join(parts))
            kind = values[int(self.gives)].type if self.gives.isdigit() else _TYPES[self.gives]
            sql = f"CAST({sql} AS {duckdb_type(kind)})"
        if "acid_" in sql:
            WANTED.update(_BATCH.findall(sql))
        return Typed(sql, kind)


def _unified(values: list[Typed], takes: Sequence[str]) -> list[Typed] | None:
    """With those arguments in one type that have to be of one."""
    kind = widest(value.type for value, each in zip(values, takes, strict=True) if each == "same")
    if kind is None:
        return None
    if kind == VOID:
        return values
    return [
        cast(value, kind) if each == "same" else value
        for value, each in zip(values, takes, strict=True)
    ]


# --- aggregates -----------------------------------------------------------------------------------

Gives = HiveType | Callable[[Sequence[HiveType]], HiveType]


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate: Spark's call with the arguments a, b, c, and the same in DuckDB's SQL, where
    `{over}` is the place of FILTER and OVER."""

    call: str
    takes: tuple[str, ...]
    sql: str | Callable[[Sequence[HiveType]], str]
    gives: Gives
    column: str = ""
    """Spark's name for the column of such a call, where it is not the call itself."""
    in_windows: bool = True

    @property
    def name(self) -> str:
        return self.call.partition("(")[0]


def same_type(types: Sequence[HiveType]) -> HiveType:
    return types[0]


def called(function: Function, values: dict[str, Typed], over: str = "") -> Typed | None:
    """The call, or None if the function does not take these values.

    `over` is the FILTER or OVER clause.
    """
    if not function.in_windows and "OVER (" in over:
        return None
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


def refused(name: str, values: Sequence[Typed]) -> NeedsSpark:
    """For a call that the table has for other types."""
    return NeedsSpark(f"{name}({', '.join(spark_name(value.type) for value in values)})")


@dataclass(frozen=True, slots=True)
class Construct:
    """An operator or form of SQL, by the class of its node in sqlglot."""

    shown: str
    types: str
    translate: Callable[..., Typed]
    parts: tuple[str, ...] = ("this", "expression", "safe")
    """The parts of the node that its translation knows."""
