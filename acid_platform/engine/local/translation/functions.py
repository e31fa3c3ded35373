"""What runs locally: every function that was shown to mean the same in both engines.

Whatever is neither in these tables nor among the operators of expressions.py needs Spark. The
differential test computes each entry in both engines, over values of all its types, and
docs/internal/engines.md prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import sqlglot
from sqlglot import exp

from acid_platform.engine.local.translation.aggregates import AGGREGATES
from acid_platform.engine.local.translation.arrays import ARRAY_CALLS
from acid_platform.engine.local.translation.dates import DATE_CALLS, DATES, MOMENTS
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    decimal,
    needs_spark,
    wrong_type,
)
from acid_platform.engine.local.translation.intervals import UNIT_CALLS
from acid_platform.engine.local.translation.json_urls import TEXT_CALLS
from acid_platform.engine.local.translation.lambdas import LAMBDA_CALLS
from acid_platform.engine.local.translation.signatures import Function, same_type
from acid_platform.layout.types import HiveType
from acid_platform.predicates.grammar import SparkSql
from acid_platform.predicates.literals import MOST_DIGITS


def _rounded_up(types: Sequence[HiveType]) -> HiveType:
    (kind,) = types
    precision, scale = kind.sizes
    return decimal(min(MOST_DIGITS, precision - scale + 1), 0) if scale else kind


def _cased(function: str) -> str:
    failure = needs_spark(f"{function} of letters whose case DuckDB changes differently")
    unsafe = f"regexp_matches({{a}}, '[^{_letters()}]')"
    return f"CASE WHEN {unsafe} THEN {failure} ELSE {function}({{a}}) END"


def _letters() -> str:
    """A character class of RE2 with the letters whose case both engines change alike."""
    ranges = (
        *((0x00, 0x7F), (0xA0, 0xB4), (0xB6, 0xDE), (0xE0, 0xFE), (0x100, 0x12F), (0x132, 0x137)),
        *((0x139, 0x148), (0x14A, 0x177), (0x179, 0x17E)),  # Latin
        *((0x391, 0x3A1), (0x3A4, 0x3A9), (0x3B1, 0x3C1), (0x3C4, 0x3C9)),  # Greek but sigma
        *((0x400, 0x45F), (0x2010, 0x2027), (0x20AC, 0x20AC)),  # Cyrillic; dashes, quotes, euro
        *((0x3040, 0x30FF), (0x4E00, 0x9FFF)),  # letters without case
    )
    return "".join(f"\\x{{{{{first:X}}}}}-\\x{{{{{last:X}}}}}" for first, last in ranges)


def _whole_of_double(function: str) -> str:
    failure = wrong_type("[ARITHMETIC_OVERFLOW] overflow")
    unsure = needs_spark(f"{function} of NaN or of a number next to 2^63")
    return (
        "CASE WHEN isnan({a}) OR abs({a}) BETWEEN 9.2e18::DOUBLE AND 9.3e18::DOUBLE"
        f" THEN {unsure} WHEN abs({{a}}) > 9.2e18::DOUBLE THEN {failure}"
        f" ELSE CAST({function}({{a}}) AS BIGINT) END"
    )


TEXT = (
    Function("length(a)", ("string",), "CAST(length({a}) AS INTEGER)", INT),
    Function("upper(a)", ("string",), _cased("upper"), STRING),
    Function("lower(a)", ("string",), _cased("lower"), STRING),
    Function("trim(a)", ("string",), "trim({a}, ' ')", STRING),
    Function("ltrim(a)", ("string",), "ltrim({a}, ' ')", STRING),
    Function("rtrim(a)", ("string",), "rtrim({a}, ' ')", STRING),
    Function(
        "substring(a, b)",
        ("string", "count"),
        "substring({a}, greatest({b}, 1))",
        STRING,
        column="substring(a, b, 2147483647)",
    ),
    Function(
        "substring(a, b, c)",
        ("string", "count", "count"),
        "substring({a}, greatest({b}, 1), {c})",
        STRING,
    ),
    Function("left(a, b)", ("string", "count"), "left({a}, {b})", STRING),
    Function("right(a, b)", ("string", "count"), "right({a}, {b})", STRING),
    Function("replace(a, b, c)", ("string", "string", "string"), "replace({a}, {b}, {c})", STRING),
    Function(
        "locate(b, a)",
        ("string", "string"),
        "CAST(instr({a}, {b}) AS INTEGER)",
        INT,
        column="locate(b, a, 1)",
    ),
    Function("startswith(a, b)", ("string", "string"), "starts_with({a}, {b})", BOOLEAN),
    Function("endswith(a, b)", ("string", "string"), "ends_with({a}, {b})", BOOLEAN),
    Function("contains(a, b)", ("string", "string"), "contains({a}, {b})", BOOLEAN),
    Function("lpad(a, b, c)", ("string", "count", "pad"), "lpad({a}, {b}, {c})", STRING),
    Function("rpad(a, b, c)", ("string", "count", "pad"), "rpad({a}, {b}, {c})", STRING),
    Function("repeat(a, b)", ("string", "count"), "repeat({a}, {b})", STRING),
    Function("md5(a)", ("string",), "md5({a})", STRING),
)

NUMBERS = (
    Function("abs(a)", ("number",), "abs({a})", same_type),
    Function("sqrt(a)", ("double",), "sqrt({a})", DOUBLE, column="SQRT(a)"),
    Function("isnan(a)", ("double",), "coalesce(isnan({a}), false)", BOOLEAN),
    Function("floor(a)", ("integral",), "CAST({a} AS BIGINT)", BIGINT, column="FLOOR(a)"),
    Function("ceil(a)", ("integral",), "CAST({a} AS BIGINT)", BIGINT, column="CEIL(a)"),
    Function("floor(a)", ("decimal",), "floor({a})", _rounded_up, column="FLOOR(a)"),
    Function("ceil(a)", ("decimal",), "ceil({a})", _rounded_up, column="CEIL(a)"),
    Function("floor(a)", ("double",), _whole_of_double("floor"), BIGINT, column="FLOOR(a)"),
    Function("ceil(a)", ("double",), _whole_of_double("ceil"), BIGINT, column="CEIL(a)"),
)

FUNCTIONS = (*TEXT, *DATES, *MOMENTS, *NUMBERS, *AGGREGATES)
NAMED = {function.name: function for function in FUNCTIONS}
CALLS = {**DATE_CALLS, **UNIT_CALLS, **ARRAY_CALLS, **LAMBDA_CALLS, **TEXT_CALLS}
"""Calls that are more than a text with their arguments in it, by the name of the function."""


def is_momentary(node: exp.Expr) -> bool:
    """Whether the value depends on the moment of the statement."""
    return any(function in MOMENTS for function, _ in calls_of(node))


# --- finding the function of a node ---------------------------------------------------------------


def calls_of(node: exp.Expr) -> Iterator[tuple[Function, dict[str, exp.Expr]]]:
    """The functions whose call the node is, with the arguments by their letter."""
    for pattern, function in _patterns().get(_kind(node), ()):
        arguments: dict[str, exp.Expr] = {}
        if _matches(pattern, node, arguments):
            yield function, arguments


def _kind(node: exp.Expr) -> tuple[type[exp.Expr], str]:
    """The class of a node, and the name of a function that sqlglot leaves as it is written."""
    return type(node), node.name.lower() if isinstance(node, exp.Anonymous) else ""


@cache
def _patterns() -> dict[tuple[type[exp.Expr], str], list[tuple[exp.Expr, Function]]]:
    """The calls as sqlglot parses them, as they are written here and as it writes them itself."""
    patterns: dict[tuple[type[exp.Expr], str], list[tuple[exp.Expr, Function]]] = {}
    for function in FUNCTIONS:
        written = sqlglot.parse_one(function.call, dialect=SparkSql)
        again = sqlglot.parse_one(written.sql("spark"), dialect=SparkSql)
        # sqlglot writes every percentile of a group as PERCENTILE_APPROX, which is another one.
        same = written == again or isinstance(written, exp.WithinGroup)
        for pattern in (written,) if same else (written, again):
            patterns.setdefault(_kind(pattern), []).append((pattern, function))
    return patterns


def _matches(pattern: object, node: object, arguments: dict[str, exp.Expr]) -> bool:
    if isinstance(pattern, exp.Column) and isinstance(node, exp.Expr):
        if isinstance(node, exp.Distinct | exp.Star):
            return False
        arguments[pattern.name] = node
        return True
    if isinstance(pattern, list) and isinstance(node, list):
        return len(pattern) == len(node) and all(
            _matches(a, b, arguments) for a, b in zip(pattern, node, strict=True)
        )
    if isinstance(pattern, exp.Expr) and type(pattern) is type(node):
        assert isinstance(node, exp.Expr)
        names = {name for name, value in (*pattern.args.items(), *node.args.items()) if value}
        if isinstance(pattern, exp.Anonymous):  # its name, in the letter case that was written
            names.discard("this")
            if pattern.name.lower() != node.name.lower():
                return False
        return all(_matches(pattern.args.get(n), node.args.get(n), arguments) for n in names)
    return pattern == node
