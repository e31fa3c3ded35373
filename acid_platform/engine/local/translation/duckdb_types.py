"""The types of Spark's SQL in the local engine: their names, and which type two of them share.

A type is a `HiveType`; VOID stands for Spark's type of NULL. A timestamp is in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable

from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType, of_value
from acid_platform.predicates.literals import MOST_DIGITS, digits_of_type

VOID = HiveType("void")
BOOLEAN = HiveType("boolean")
TINYINT = HiveType("tinyint")
SMALLINT = HiveType("smallint")
INT = HiveType("int")
BIGINT = HiveType("bigint")
FLOAT = HiveType("float")
DOUBLE = HiveType("double")
STRING = HiveType("string")
BINARY = HiveType("binary")
DATE = HiveType("date")
TIMESTAMP = HiveType("timestamp")

NUMERIC = (*INTEGRAL, *FLOATING, "decimal")
_DUCKDB = {"void": '"NULL"', "int": "INTEGER", "string": "VARCHAR", "binary": "BLOB"}
"""The types that have another name in DuckDB."""


def decimal(precision: int, scale: int) -> HiveType:
    return HiveType("decimal", (precision, scale))


def ordered(kind: HiveType) -> bool:
    """Whether both engines order the values of the type alike."""
    return not kind.nested and kind != VOID


def spark_name(hive: HiveType) -> str:
    """The type as Spark's messages print it."""
    return str(of_value(hive))


def duckdb_type(hive: HiveType) -> str:
    """The type in DuckDB's SQL."""
    match hive.kind:
        case "decimal":
            return f"DECIMAL({hive.sizes[0]},{hive.sizes[1]})"
        case "array":
            return f"{duckdb_type(hive.children[0][1])}[]"
        case "map":
            return f"MAP({', '.join(duckdb_type(child) for _, child in hive.children)})"
        case "struct":
            fields = (f"{identifier(name)} {duckdb_type(child)}" for name, child in hive.children)
            return f"STRUCT({', '.join(fields)})"
    kind = of_value(hive).kind
    return _DUCKDB.get(kind, kind.upper())


def identifier(name: str) -> str:
    """A name in DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string literal in DuckDB's SQL."""
    return "'" + value.replace("'", "''") + "'"


def as_decimal(hive: HiveType) -> HiveType | None:
    """The decimal type that holds all values of a decimal or whole type; None for others."""
    digits = digits_of_type(hive)
    return None if digits is None else decimal(digits.whole + digits.scale, digits.scale)


def wider(left: HiveType, right: HiveType) -> HiveType | None:
    """The type to which Spark casts both sides (ANSI); None if there is none, or if it may round.

    Strings are left out: with another type, Spark casts the string.
    """
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    kinds = {left.kind, right.kind}
    if kinds <= set(INTEGRAL):
        return max(left, right, key=lambda one: INTEGRAL.index(one.kind))
    if kinds <= set(NUMERIC):
        return DOUBLE if kinds & set(FLOATING) else _wider_decimal(left, right)
    if kinds == {"date", "timestamp"}:
        return TIMESTAMP
    return None


def widest(kinds: Iterable[HiveType]) -> HiveType | None:
    """The common type of all of them, as for CASE and COALESCE."""
    common: HiveType | None = VOID
    for kind in kinds:
        common = None if common is None else wider(common, kind)
    return common


def _wider_decimal(left: HiveType, right: HiveType) -> HiveType | None:
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None and b is not None
    scale = max(a.sizes[1], b.sizes[1])
    whole = max(a.sizes[0] - a.sizes[1], b.sizes[0] - b.sizes[1])
    return decimal(whole + scale, scale) if whole + scale <= MOST_DIGITS else None
