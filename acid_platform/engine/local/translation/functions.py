"""What runs locally: every function that was shown to mean the same in both engines.

Whatever is neither in these tables nor among the operators of expressions.py needs Spark. The
differential test computes each entry in both engines, over values of all its types, and
docs/internal/engines.md prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import sqlglot
from sqlglot import exp

from acid_platform.engine.interface import moment
from acid_platform.engine.local.translation.arithmetic import (
    mean_type,
    quotient,
    too_long_to_negate,
    unscaled,
)
from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NUMERIC,
    ROUNDED,
    STRING,
    TIMESTAMP,
    VOID,
    decimal,
    duckdb_type,
    needs_spark,
    ordered,
    spark_name,
    text,
    wrong_type,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType
from acid_platform.predicates.grammar import SparkSql
from acid_platform.predicates.literals import MOST_DIGITS

Takes = Literal[
    "string", "int", "count", "pad", "integral", "decimal", "number", "double", "date", "timestamp",
    "condition", "ordered", "exact", "any",
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


def _same(types: Sequence[HiveType]) -> HiveType:
    return types[0]


def _sum(types: Sequence[HiveType]) -> HiveType:
    ((precision, scale),) = (kind.sizes for kind in types)
    return decimal(min(MOST_DIGITS, precision + 10), scale)


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


_FEW_DAYS = 3_000_000
"""Beyond it Spark's dates overflow silently."""


def _shifted(moved: str, unit: str) -> str:
    failure = needs_spark(f"a date that is moved by more than {_FEW_DAYS} {unit}")
    return f"CASE WHEN {{b}} > {_FEW_DAYS} OR {{b}} < -{_FEW_DAYS} THEN {failure} ELSE {moved} END"


def _part(name: str, sql: str, takes: Takes = "date") -> Function:
    return Function(f"{name}(a)", (takes,), f"CAST({sql} AS INTEGER)", INT)


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

DATES = (
    _part("year", "year({a})"),
    _part("quarter", "quarter({a})"),
    _part("month", "month({a})"),
    _part("weekofyear", "week({a})"),
    _part("day", "day({a})"),
    _part("dayofmonth", "day({a})"),
    _part("dayofweek", "dayofweek({a}) + 1"),
    _part("dayofyear", "dayofyear({a})"),
    _part("hour", "hour({a})", "timestamp"),
    _part("minute", "minute({a})", "timestamp"),
    _part("second", "second({a})", "timestamp"),
    Function("to_date(a)", ("date",), "{a}", DATE),
    Function("last_day(a)", ("date",), "last_day({a})", DATE),
    Function("date_add(a, b)", ("date", "int"), _shifted("{a} + {b}", "days"), DATE),
    Function("datediff(a, b)", ("date", "date"), "CAST({a} - {b} AS INTEGER)", INT),
    Function(
        "add_months(a, b)",
        ("date", "int"),
        _shifted("CAST({a} + to_months({b}) AS DATE)", "months"),
        DATE,
    ),
    *(
        Function(
            f"date_trunc('{unit}', a)",
            ("timestamp",),
            f"CAST(date_trunc('{unit}', {{a}}) AS TIMESTAMP)",
            TIMESTAMP,
            column=f"date_trunc({unit}, a)",
        )
        for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
    ),
    *(
        Function(
            f"trunc(a, '{unit}')",
            ("date",),
            f"CAST(date_trunc('{unit}', {{a}}) AS DATE)",
            DATE,
            column=f"trunc(a, {unit})",
        )
        for unit in ("YEAR", "QUARTER", "MONTH", "WEEK")
    ),
)


def _now(_: Sequence[HiveType]) -> str:
    return text(moment().replace(tzinfo=None).isoformat(" "))


MOMENTS = (
    Function("current_timestamp()", (), _now, TIMESTAMP),
    Function("now()", (), _now, TIMESTAMP),
    Function("current_date()", (), _now, DATE),
)
"""One moment in UTC in all of a statement."""

NUMBERS = (
    Function("abs(a)", ("number",), "abs({a})", _same),
    Function("sqrt(a)", ("double",), "sqrt({a})", DOUBLE, column="SQRT(a)"),
    Function("isnan(a)", ("double",), "coalesce(isnan({a}), false)", BOOLEAN),
    Function("floor(a)", ("integral",), "CAST({a} AS BIGINT)", BIGINT, column="FLOOR(a)"),
    Function("ceil(a)", ("integral",), "CAST({a} AS BIGINT)", BIGINT, column="CEIL(a)"),
    Function("floor(a)", ("decimal",), "floor({a})", _rounded_up, column="FLOOR(a)"),
    Function("ceil(a)", ("decimal",), "ceil({a})", _rounded_up, column="CEIL(a)"),
    Function("floor(a)", ("double",), _whole_of_double("floor"), BIGINT, column="FLOOR(a)"),
    Function("ceil(a)", ("double",), _whole_of_double("ceil"), BIGINT, column="CEIL(a)"),
)

_BOUND = "greatest(abs(CAST(max({a}){over} AS HUGEINT)), abs(CAST(min({a}){over} AS HUGEINT)))"


def _sum_of_bigint() -> str:
    """Spark fails as soon as a partial sum overflows, in an order of its own."""
    total = "sum({a}){over}"
    unsure = needs_spark("a sum of bigint that some orders of adding overflow")
    return (
        f"CASE WHEN {_BOUND} * count({{a}}){{over}} < 9223372036854775807::HUGEINT"
        f" OR abs({total}) > 9223372036854775808::HUGEINT OR count({{a}}){{over}} = 0"
        f" THEN CAST({total} AS BIGINT) ELSE {unsure} END"
    )


def _mean_of_whole() -> str:
    """Spark adds doubles, which is exact up to 2^53."""
    unsure = needs_spark("an average of numbers whose sum no double holds")
    return (
        f"CASE WHEN count({{a}}){{over}} = 0 THEN NULL"
        f" WHEN {_BOUND} * count({{a}}){{over}} < 9007199254740992::HUGEINT"
        f" THEN CAST(sum({{a}}){{over}} AS DOUBLE) / count({{a}}){{over}} ELSE {unsure} END"
    )


def _mean_of_decimal(types: Sequence[HiveType]) -> str:
    digits = unscaled("CAST(sum({a}){over} AS " + duckdb_type(_sum(types)) + ")", _sum(types))
    mean = quotient(f"({digits} * 10000::HUGEINT)", "count({a}){over}", _mean(types))
    mark = ROUNDED if sum(_sum(types).sizes) + 4 > MOST_DIGITS else ""
    return f"CASE WHEN count({{a}}){{over}} > 0 THEN {mean} END{mark}"


def _mean(types: Sequence[HiveType]) -> HiveType:
    (kind,) = types
    mean = mean_type(kind)
    if mean is None:
        raise NeedsSpark(f"avg of {kind}")
    return mean


def _array(types: Sequence[HiveType]) -> HiveType:
    (kind,) = types
    if kind == VOID:
        raise NeedsSpark(f"an array of {spark_name(kind)}")
    return HiveType("array", (), (("element", kind),))


AGGREGATES = (
    Function("count(*)", (), "count(*){over}", BIGINT, column="count(1)"),
    Function("count(a)", ("any",), "count({a}){over}", BIGINT),
    Function("count(DISTINCT a)", ("ordered",), "count(DISTINCT {a}){over}", BIGINT),
    Function("count_if(a)", ("condition",), "count(CASE WHEN {a} THEN 1 END){over}", BIGINT),
    Function("sum(a)", ("int",), "CAST(sum({a}){over} AS BIGINT)", BIGINT),
    Function("sum(a)", ("integral",), _sum_of_bigint(), BIGINT),
    Function("sum(a)", ("decimal",), "sum({a}){over}", _sum),
    Function("sum(a)", ("double",), "sum({a}){over}", DOUBLE),
    Function("avg(a)", ("integral",), _mean_of_whole(), DOUBLE),
    Function("avg(a)", ("decimal",), _mean_of_decimal, _mean),
    Function("avg(a)", ("double",), "avg({a}){over}", DOUBLE),
    Function("min(a)", ("ordered",), "min({a}){over}", _same),
    Function("max(a)", ("ordered",), "max({a}){over}", _same),
    Function("bool_and(a)", ("condition",), "bool_and({a}){over}", BOOLEAN),
    Function("bool_or(a)", ("condition",), "bool_or({a}){over}", BOOLEAN),
    Function(
        "collect_list(a)",
        ("any",),
        "coalesce(list_filter(list({a}){over}, lambda x: x IS NOT NULL), [])",
        _array,
    ),
    Function("collect_set(a)", ("exact",), "coalesce(list_distinct(list({a}){over}), [])", _array),
)

FUNCTIONS = (*TEXT, *DATES, *MOMENTS, *NUMBERS, *AGGREGATES)
NAMED = {function.name: function for function in FUNCTIONS}


def is_momentary(node: exp.Expr) -> bool:
    """Whether the value depends on the moment of the statement."""
    return any(function in MOMENTS for function, _ in calls_of(node))


# --- finding the function of a node ---------------------------------------------------------------


def calls_of(node: exp.Expr) -> Iterator[tuple[Function, dict[str, exp.Expr]]]:
    """The functions whose call the node is, with the arguments by their letter."""
    for pattern, function in _patterns().get(type(node), ()):
        arguments: dict[str, exp.Expr] = {}
        if _matches(pattern, node, arguments):
            yield function, arguments


@cache
def _patterns() -> dict[type[exp.Expr], list[tuple[exp.Expr, Function]]]:
    """The calls as sqlglot parses them, as they are written here and as it writes them itself."""
    patterns: dict[type[exp.Expr], list[tuple[exp.Expr, Function]]] = {}
    for function in FUNCTIONS:
        written = sqlglot.parse_one(function.call, dialect=SparkSql)
        again = sqlglot.parse_one(written.sql("spark"), dialect=SparkSql)
        for pattern in (written,) if written == again else (written, again):
            patterns.setdefault(type(pattern), []).append((pattern, function))
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


# --- calling it -----------------------------------------------------------------------------------


def called(function: Function, values: dict[str, Typed], over: str = "") -> Typed | None:
    """The call, or None if the function does not take these values.

    `over` is the FILTER or OVER clause of an aggregate.
    """
    accepted = {}
    for letter, takes in zip(("a", "b", "c"), function.takes, strict=False):
        value = _accepted(values[letter], takes)
        if value is None:
            return None
        accepted[letter] = value
    parts = {letter: value.sql for letter, value in accepted.items()}
    types = [value.type for value in accepted.values()]
    template = function.sql if isinstance(function.sql, str) else function.sql(types)
    sql = template.format(over=over, **parts)
    gives = function.gives if isinstance(function.gives, HiveType) else function.gives(types)
    return Typed(f"CAST({sql} AS {duckdb_type(gives)})", gives)


def _accepted(value: Typed, takes: Takes) -> Typed | None:
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
        case "decimal" if kind.kind == "decimal":
            return value
        case "number" if kind.kind in NUMERIC and not too_long_to_negate(kind):
            return value
        case "double" if kind.kind in FLOATING:
            return cast(value, DOUBLE)
        case "date" if kind in (DATE, TIMESTAMP):
            return cast(value, DATE)
        case "timestamp" if kind in (DATE, TIMESTAMP):
            return cast(value, TIMESTAMP)
    return None
