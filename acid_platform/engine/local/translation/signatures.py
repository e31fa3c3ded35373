"""The table of functions: Spark's calls by the types that they take, and DuckDB's SQL of each.

A row says a call with its kinds of arguments, the type of its result, its SQL, and which arguments
give NULL where they are NULL. A call that no row takes is not translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VARIANT,
    VOID,
    array_of,
    duckdb_type,
    keeps_zeros,
    ordered,
    spark_name,
    widest,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, HiveType

STRINGS, FLOATS = array_of(STRING), array_of(FLOAT)
_SMALL = "tinyint smallint int"
_WHOLE = f"{_SMALL} bigint"
_NUMBER = f"{_WHOLE} decimal float double"
_EXACT = f"{_WHOLE} decimal string boolean date timestamp timestamp_ntz binary"
_TIME = "date timestamp timestamp_ntz string void"


def _number_to_one(value: object) -> bool:
    return isinstance(value, int | Decimal) and 0 <= value <= 1


# fmt: off
KINDS: dict[str, tuple[str, tuple[str, ...], HiveType | None, Callable[[Typed], bool]]] = {
    name: (meaning, tuple(types.split()), becomes, test[0] if test else lambda _: True)
    for name, meaning, types, becomes, *test in (
        ("any", "any type", "", None),
        ("kept", "any type, but no array, map or struct of float or double", "", None,
         lambda value: keeps_zeros(value.type)),
        ("text", "text, or NULL", "string void", STRING),
        ("string", "text, and what becomes text by a cast: whole numbers, decimals, booleans,"
         " dates", f"{_NUMBER} string boolean date timestamp void", STRING),
        ("bytes", "binary", "binary", None),
        ("binary", "binary, or text as UTF-8", "binary string void", BINARY),
        ("int", "tinyint, smallint or int", f"{_SMALL} void", INT),
        ("index", "tinyint, smallint or int, not NULL without a type", _SMALL, BIGINT),
        ("integer", "int alone", "int", None),
        ("long", "bigint", "bigint", None),
        ("bigint", "any whole number, as a bigint", f"{_WHOLE} void", BIGINT),
        ("double", "any number, as a double", f"{_NUMBER} void", DOUBLE),
        ("float", "double alone", "double", None),
        ("fraction", "float or double, as a double", "float double", DOUBLE),
        ("wide", "a number but float, as a double", f"{_WHOLE} decimal double", DOUBLE),
        ("decimal", "decimal", "decimal", None),
        ("number", "any number", _NUMBER, None),
        ("boolean", "boolean", "boolean void", BOOLEAN),
        ("date", "a date, a timestamp as its date, or a text of one", _TIME, DATE),
        ("timestamp", "a timestamp, a date as its midnight, or a text of one", _TIME, TIMESTAMP),
        ("day", "date alone", "date", None),
        ("when", "date or timestamp", "date timestamp", None),
        ("moment", "timestamp or timestamp_ntz", "timestamp timestamp_ntz", TIMESTAMP),
        ("interval", "a literal interval", "interval", None),
        ("lambda", "a lambda", "lambda", None),
        ("array", "arrays", "array", None),
        ("map", "maps", "map", None),
        ("key", "a key of the map, of the same type", _EXACT, None),
        ("nested", "arrays, maps and structs", "array map struct", None),
        ("T", "values that Spark brings into one type", "", None),
        ("T[]", "arrays of such values", "array", None),
        ("S", "as T, but decimals only beside decimals of the same digits", "", None),
        ("S[]", "arrays of such values", "array", None),
        ("P", "as T, but neither NULL without a type nor float, double, array, map or struct",
         _EXACT, None),
        ("P[]", "arrays of such values", "array", None),
        ("floats", "arrays of float", "array", None, lambda value: value.type == FLOATS),
        ("strings", "arrays of text", "array", None, lambda value: value.type == STRINGS),
        ("real", "float alone", "float", None),
        ("variant", "variant", "variant void", VARIANT),
        ("word", "a literal text", "", None, lambda value: isinstance(value.literal, str)),
        ("option", "a literal character, or NULL", "string void", STRING,
         lambda value: value.type == VOID or len(str(value.literal or "")) == 1),
        ("digits", "a literal whole number", "", None,
         lambda value: isinstance(value.literal, int)),
        ("count", "a literal whole number from 0 to 1,048,575", "", None,
         lambda value: isinstance(value.literal, int) and 0 <= value.literal < 1 << 20),
        ("pad", "a literal text, not empty", "string", None,
         lambda value: bool(value.literal)),
        ("flag", "`true` or `false`", "boolean", None,
         lambda value: value.sql in ("true", "false")),
        ("condition", "boolean, and not NULL without a type", "boolean", None),
        ("narrow", "tinyint, smallint or int, not NULL without a type", _SMALL, INT),
        ("integral", "any whole number, not NULL without a type", _WHOLE, None),
        ("ordered", "any type but arrays, maps and structs", f"{_EXACT} float double", None),
        ("exact", "as ordered, but no float and no double", _EXACT, None),
        ("exactly whole", "tinyint, smallint, int or NULL, as a bigint", f"{_SMALL} void", BIGINT),
        ("small", "tinyint, smallint or int", _SMALL, None),
        ("exactly real", "a whole number of up to 32 bits, as a double", _SMALL, DOUBLE),
        ("share", "a literal number from 0 to 1", "", None,
         lambda value: _number_to_one(value.literal)),
        ("shares", "a literal array of numbers from 0 to 1", "array", None,
         lambda value: isinstance(value.literal, tuple)
         and all(map(_number_to_one, value.literal))),
        ("null", "NULL without a type", "void", DOUBLE),
        ("accuracy", "a literal whole number, 4 or more", "", None,
         lambda value: isinstance(value.literal, int) and value.literal >= 4),
    )
}
"""What an argument may be: in words, the types (all if none is said), the one to which Spark casts
it, and what else has to be true of it."""
# fmt: on


def accepted(value: Typed, kind: str) -> Typed | None:
    """The value as a function takes it, cast as Spark casts arguments; None if it does not."""
    _, types, becomes, fits = KINDS[kind]
    own = value.type.kind
    if (own not in types) if types else value.span is not None:
        return None
    if not fits(value):
        return None
    match kind:
        case "binary" if own == "string":
            return Typed(f"encode({value.sql})", BINARY)
        case "share" | "accuracy":
            return Typed(str(value.literal), value.type)
        case "shares" if isinstance(value.literal, tuple):
            return Typed(f"[{', '.join(map(str, value.literal))}]", value.type)
    return value if becomes is None else cast(value, becomes)


_LITERAL = {name for name, (meaning, *_) in KINDS.items() if meaning.startswith("a literal")}
_TYPES = {
    str(kind): kind
    for kind in (
        *(BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, FLOAT, INT, SMALLINT, STRING, TIMESTAMP, TINYINT),
        *(VARIANT, VOID),
    )
} | {"strings": STRINGS, "floats": FLOATS}
WANTED: set[str] = set()
"""The functions of batch_functions.py that stand in SQL of this process."""
_BATCH = re.compile(r"\bacid_\w+(?=\()")


@dataclass(frozen=True, slots=True)
class Signature:
    """A call with arguments of these kinds, and its SQL, where {0} is the first argument.

    A last kind with `*` takes any number of arguments. `gives` is a type, the number of the
    argument that has it, `T` for the common type of the arguments of a kind T, S or P, or a part of
    the first argument (`element`, `key`, `value`); with `[]` an array of that, and empty if the
    SQL's function says it. `nulls` are the numbers of the arguments whose NULL gives NULL, or `*`.
    In an aggregate, {over} is the place of FILTER and OVER.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    sql: str | Callable[..., Typed | str]
    nulls: str = ""
    aggregate: bool = False
    in_windows: bool = True

    def fitted(self, values: Sequence[Typed]) -> tuple[list[Typed], HiveType] | None:
        """The values as it takes them, and the type T; None if it does not."""
        takes = self.takes
        if takes and takes[-1].endswith("*"):
            last = takes[-1].removesuffix("*")
            takes = (*takes[:-1], *[last] * (len(values) - len(takes) + 1))
        if len(takes) != len(values):
            return None
        fitted = []
        for value, kind in zip(values, takes, strict=True):
            taken = accepted(value, kind)
            if taken is None or (kind == "key" and value.type != values[0].type.children[0][1]):
                return None
            fitted.append(taken)
        return _unified(fitted, takes)

    def call(self, values: Sequence[Typed], common: HiveType, over: str = "") -> Typed:
        made: Typed | str
        gives = self._given(values, common) if self.gives else None
        if callable(self.sql):
            made = self.sql(*values)
        else:
            parts = [value.sql for value in values]
            of_type = duckdb_type(gives or VOID)
            made = self.sql.format(*parts, all=", ".join(parts), type=of_type, over="{over}")
        sql = made if isinstance(made, str) else made.sql
        if self.nulls:
            places = range(len(values)) if self.nulls == "*" else map(int, self.nulls)
            sql = null_with([values[number] for number in places if number < len(values)], sql)
        sql = sql.replace("{over}", over) if self.aggregate else sql
        if "acid_" in sql:
            WANTED.update(_BATCH.findall(sql))
        if isinstance(made, Typed) and not self.nulls:
            return replace(made, sql=sql)
        kind = gives or (made.type if isinstance(made, Typed) else VOID)
        if kind == BOOLEAN:  # without a CAST, which may fail
            return Typed(f"({sql})", kind)
        return Typed(f"CAST({sql} AS {duckdb_type(kind)})", kind)

    def _given(self, values: Sequence[Typed], common: HiveType) -> HiveType:
        word = self.gives.removesuffix("[]")
        if word.isdigit():
            kind = values[int(word)].type
        elif word in ("element", "key", "value"):
            kind = dict(values[0].type.children)[word]
        else:
            kind = common if word == "T" else _TYPES[word]
        return kind if word == self.gives else array_of(kind)


def null_with(values: Sequence[Typed], result: str) -> str:
    """NULL where one of the values is, which DuckDB's functions of lists may skip."""
    nulls = " OR ".join(f"{value.sql} IS NULL" for value in values)
    return f"CASE WHEN {nulls} THEN NULL ELSE {result} END"


def _unified(values: list[Typed], takes: Sequence[str]) -> tuple[list[Typed], HiveType] | None:
    """With those arguments in one type that have to be of one, and that type."""
    kinds = [
        value.type.children[0][1] if take.endswith("[]") else value.type
        for value, take in zip(values, takes, strict=True)
        if take[0] in "TSP"
    ]
    common = widest(kinds)
    if any(take[0] == "S" for take in takes) and any(kind.kind == "decimal" for kind in kinds):
        common = common if {*kinds} <= {common, VOID} else None
    if common is None or (
        any(take[0] == "P" for take in takes) and (VOID in kinds or not is_plain(common))
    ):
        return None
    if kinds and common != VOID:
        values = [
            value
            if take[0] not in "TSP"
            else cast(value, array_of(common) if take.endswith("[]") else common)
            for value, take in zip(values, takes, strict=True)
        ]
    return values, common


def is_plain(kind: HiveType) -> bool:
    """Whether values of the type are compared alike."""
    return ordered(kind) and kind.kind not in FLOATING


SIGNATURES: dict[str, list[Signature]] = {}
"""By the name of the function as it is written, with words of its own form such as `trim both`."""
Sql = str | Callable[..., Typed | str]


def add(
    call: str, gives: str, sql: Sql, nulls: str = "", aggregate: bool = False, windows: bool = True
) -> None:
    """Adds a row; a name that starts with `a|b` has the synonym b."""
    names, _, kinds = call.rstrip(")").partition("(")
    for name in names.split("|"):
        takes = tuple(kinds.split(", ")) if kinds else ()
        row = Signature(name, takes, gives, sql, nulls, aggregate, windows)
        SIGNATURES.setdefault(name, []).append(row)


_F = TypeVar("_F", bound=Callable[..., Typed | str])


def row(*calls: str, gives: str = "", nulls: str = "") -> Callable[[_F], _F]:
    """Adds rows for a function that makes their SQL."""

    def register(sql: _F) -> _F:
        for call in calls:
            add(call, gives, sql, nulls)
        return sql

    return register


def called(name: str, *values: Typed, over: str = "") -> Typed:
    """The call of a function of the table. Raises NeedsSpark."""
    for signature in SIGNATURES[name]:
        fitted = signature.fitted(values)
        if fitted is not None and (signature.in_windows or "OVER (" not in over):
            return signature.call(*fitted, over)
    kinds = ", ".join(spark_name(value.type) for value in values)
    literal = any(
        kind in _LITERAL and value.literal is None
        for signature in SIGNATURES[name]
        for value, kind in zip(values, signature.takes, strict=False)
    )
    raise NeedsSpark(f"{name}({kinds}){' of what is no literal' * literal}")


@dataclass(frozen=True, slots=True)
class Construct:
    """An operator or form of SQL, by the class of its node in sqlglot."""

    shown: str
    types: str
    translate: Callable[..., Typed]
    parts: tuple[str, ...] = ("this", "expression", "safe")
    """The parts of the node that its translation knows."""
