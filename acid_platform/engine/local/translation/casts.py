"""What brings values into one type: CAST, comparisons and CASE as Spark computes them (ANSI)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    NTZ,
    STRING,
    TIMESTAMP,
    VARIANT,
    VOID,
    decimal,
    duckdb_type,
    may_fail,
    needs_spark,
    spark_name,
    take_room,
    text,
    widest,
    without_errors,
    wrong_type,
)
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType, of_value
from acid_platform.predicates import analysis
from acid_platform.predicates.analysis import refused_blanks

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator


@dataclass(frozen=True, slots=True)
class Typed:
    """DuckDB's SQL of a value, and its type in Spark."""

    sql: str
    type: HiveType
    literal: int | Decimal | str | tuple[int | Decimal, ...] | None = None
    """The value of a literal number or text, or of an array of such numbers."""
    declared: HiveType | None = None
    """The type of a column whose `type` does not tell it (`HiveType.is_told`), or of a field that
    is a CHAR or has one inside. The value of a CHAR has no trailing blanks here; those inside of a
    nested value have."""
    span: object = None
    """An interval, which has no SQL of its own."""
    is_field: bool = False
    """Whether it is a field of a column, which a result shows as a string."""
    foldable: bool = False
    """Whether Spark's optimizer may find that it is a constant, or has one in it."""


def typed_as(sql: str, kind: HiveType) -> Typed:
    return Typed(f"CAST({sql} AS {duckdb_type(kind)})", kind)


def named_type(to: exp.DataType) -> HiveType:
    """The type that a CAST names. Raises NeedsSpark for one that is not translated."""
    if to.this == exp.DType.DECIMAL:
        sizes = [int(size.name) for size in to.expressions]
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return decimal(precision, scale)
    elif to.this in _NAMED and not to.expressions:
        return HiveType(_NAMED[to.this])
    raise NeedsSpark(f"the type {to.sql('spark')}")


_NAMED = {
    **{
        exp.DType[name.upper()]: name
        for name in ("boolean", *INTEGRAL, *FLOATING, "date", "timestamp")
    },
    exp.DType.TEXT: "string",
    exp.DType.TIMESTAMPTZ: "timestamp",  # sqlglot's name for Spark's TIMESTAMP, but for a call
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
}
_EXACT_DOUBLE, _EXACT_FLOAT = 15, 7
"""Digits of a decimal up to which DuckDB's division by a power of ten gives the nearest number."""
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def cast(value: Typed, target: HiveType) -> Typed:
    """The value in another type. Raises NeedsSpark for a cast that is not known to be equal."""
    source, target = value.type, of_value(target)
    if source == target:
        return value
    if (constant := _constant(value, target)) is not None:
        return constant
    result = replace(value, type=target, literal=None, declared=None)
    if source.kind == target.kind == "array":
        name = f"e{value.sql.count('lambda ')}"
        inner = cast(Typed(name, source.children[0][1]), target.children[0][1])
        return replace(result, sql=f"list_transform({value.sql}, lambda {name}: {inner.sql})")
    if source.kind == target.kind and source.kind in ("map", "struct"):
        for (name, own), (_, other) in zip(source.children, target.children, strict=True):
            if own != other and cast(Typed(name, own), other).sql != _plain(
                Typed(name, own), other
            ):
                raise NeedsSpark(f"CAST of {spark_name(source)} to {spark_name(target)}")
        return replace(result, sql=_plain(value, target))
    if source == VOID:  # which may be what fails, as `assert_true` does
        return replace(result, sql=_plain(value, target))
    match source.kind, target.kind:
        case (
            ("boolean", ("tinyint" | "smallint" | "int" | "bigint" | "string"))
            | (("tinyint" | "smallint" | "int" | "bigint"), ("double" | "string"))
            | (("tinyint" | "smallint"), "float")
            | ("float", "double")
            | ("date", "timestamp")
            | ("timestamp", "date")
            | ("timestamp_ntz", ("timestamp" | "date"))
            | (("timestamp" | "date"), "timestamp_ntz")
        ):
            return replace(result, sql=_plain(value, target))
        case (("int" | "bigint"), "float"):
            return replace(result, sql=_rounded(value))
        case ("decimal", "string"):
            return replace(result, sql=_digits(value))
        case (("tinyint" | "smallint" | "int" | "bigint"), "boolean"):
            return replace(result, sql=f"({value.sql} <> 0)")
        case (
            ("tinyint" | "smallint" | "int" | "bigint" | "decimal"),
            ("tinyint" | "smallint" | "int" | "bigint" | "decimal"),
        ):
            whole = value
            if source.kind == "decimal" and target.kind != "decimal" and source.sizes[1]:
                cut = f"CASE WHEN {value.sql} < 0 THEN ceil({value.sql})"
                whole = replace(value, sql=f"{cut} ELSE floor({value.sql}) END")
            return replace(result, sql=_plain(whole, target))
        case ("decimal", ("float" | "double")):
            exact = _EXACT_DOUBLE if target == DOUBLE else _EXACT_FLOAT
            if source.sizes[0] > exact:  # DuckDB divides twice rounded numbers
                value = cast(value, STRING)
            return replace(result, sql=_plain(value, target))
        case ("double", "float"):
            return replace(result, sql=_narrowed(value.sql))
        case (("float" | "double"), ("tinyint" | "smallint" | "int" | "bigint")):
            return replace(result, sql=_truncated(cast(value, DOUBLE).sql, target))
        case ("date" | "timestamp", "string"):
            return replace(result, sql=_dated(value, target))
        case ("string", kind) if kind in _TEXTS or kind in INTEGRAL:
            return replace(result, sql=_parsed(value, target))
    raise NeedsSpark(f"CAST of {spark_name(source)} to {spark_name(target)}")


def tried(value: Typed, target: HiveType) -> Typed:
    """TRY_CAST: NULL where the cast fails. Raises NeedsSpark where that is not sure, and for a
    value that may fail itself."""
    if may_fail(value.sql):
        raise NeedsSpark("TRY_CAST of a value that may fail itself")
    found = cast(value, target)
    sql = without_errors(found.sql)
    if "error(" not in sql:
        sql = f"TRY({sql})"
    elif value.type == STRING and target.kind == "decimal":  # which may have too many digits
        sql = sql.replace(" THEN CAST(", " THEN TRY_CAST(")
    return replace(found, sql=sql, declared=None)


def _constant(value: Typed, target: HiveType) -> Typed | None:
    """A literal in another type, if that is plain; None leaves it to the cast of any value.

    Raises NeedsSpark for a text that only Spark may be able to read.
    """
    literal, constant = value.literal, None
    if isinstance(literal, tuple):
        return None
    if isinstance(literal, str) and target == NTZ:
        if (cut := ntz_text(literal)) is None:
            raise NeedsSpark(f"CAST of {text(literal)} to {target}")
        constant = text(cut)
    elif isinstance(literal, str):
        if target in (DATE, TIMESTAMP):
            read = analysis.date if target == DATE else analysis.timestamp
            if target == TIMESTAMP and re.fullmatch(_TEXTS["timestamp"] + "Z", literal):
                literal = literal.removesuffix("Z")
            try:
                constant = text(read(literal, literal).isoformat())
            except InvalidExpression:
                constant = None if target == TIMESTAMP else _day_of(literal)
                if constant is None:
                    raise NeedsSpark(f"CAST of {text(literal)} to {target}") from None
        elif target.kind in FLOATING and literal.strip(_BLANKS).lower() in _SPECIAL:
            constant = text(_SPECIAL[literal.strip(_BLANKS).lower()])
        elif target.kind in (*FLOATING, "decimal") and not re.fullmatch(
            _TEXTS[target.kind], literal
        ):
            raise NeedsSpark(f"CAST of {text(literal)} to {target}")
    elif literal is not None and target.kind in INTEGRAL:
        limit = 1 << _BITS[target.kind]
        if -limit <= literal < limit and literal == int(literal):
            constant = text(str(int(literal)))
    elif literal is not None and target.kind == "decimal":
        digits = analysis.digits_of_value(Decimal(literal))
        precision, scale = target.sizes
        if digits.whole <= precision - scale and digits.scale <= scale:
            constant = text(f"{Decimal(literal):f}")
    if constant is None:
        return None
    return typed_as(f"{constant}", target)


def ntz_text(literal: str) -> str | None:
    """The text of a TIMESTAMP_NTZ to the microsecond; None for one of another form."""
    if not re.fullmatch(_TEXTS["timestamp"].replace("1,6", "1,9"), literal):
        return None
    try:
        return analysis.timestamp(literal[:26], literal).isoformat(" ")
    except InvalidExpression:
        return None


def _day_of(literal: str) -> str | None:
    """The date of a text that is a timestamp."""
    try:
        return text(analysis.timestamp(literal, literal).date().isoformat())
    except InvalidExpression:
        return None


def _plain(value: Typed, target: HiveType) -> str:
    return f"CAST({value.sql} AS {duckdb_type(target)})"


def _digits(decimal: Typed) -> str:
    """The text of a decimal: DuckDB leaves out the 0 before the point if its type has no other
    digit there."""
    shown = _plain(decimal, STRING)
    precision, scale = decimal.type.sizes
    return shown if scale < precision else rf"regexp_replace({shown}, '^(-?)\.', '\10.')"


def _rounded(whole: Typed) -> str:
    """A whole number as a float. Where that is cast to a double, Spark leaves the float out."""
    nearest, exact = _plain(whole, FLOAT), _plain(whole, DOUBLE)
    unsure = needs_spark("a float of a whole number that has more digits")
    return f"CASE WHEN CAST({nearest} AS DOUBLE) <> {exact} THEN {unsure} ELSE {nearest} END"


def _narrowed(double: str) -> str:
    """A double as a float; what is too large becomes infinite, as in Java."""
    limit = "3.4028235677973366e38::DOUBLE"
    return (
        f"CASE WHEN {double} >= {limit} AND NOT isnan({double}) THEN 'inf'::FLOAT"
        f" WHEN {double} <= -{limit} THEN '-inf'::FLOAT ELSE CAST({double} AS FLOAT) END"
    )


def _truncated(double: str, target: HiveType) -> str:
    limit = 2.0 ** _BITS[target.kind]
    most = f"{limit!r}::DOUBLE"
    outside = f"isnan({double}) OR {double} >= {most} OR ceil({double}) < -{most}"
    top = ""
    if target == BIGINT:  # 2^63 is its greatest value, in Java
        top = f"WHEN {double} = {most} THEN 9223372036854775807 "
        outside = f"isnan({double}) OR {double} > {most} OR {double} < -{most}"
    failure = wrong_type(f"[CAST_OVERFLOW] {{}} does not fit {target}", double)
    return (
        f"CASE WHEN {outside} THEN {failure} {top}"
        f"ELSE CAST(trunc({double}) AS {duckdb_type(target)}) END"
    )


def _dated(value: Typed, target: HiveType) -> str:
    """Years beyond four digits look different in Spark."""
    return (
        f"CASE WHEN year({value.sql}) < 1 OR year({value.sql}) > 9999"
        f" THEN {needs_spark('the text of a date beyond the years 1 to 9999')}"
        f" ELSE {_plain(value, target)} END"
    )


def as_condition(value: Typed, shown: str, null: bool = False) -> Typed:
    """Raises InvalidExpression if the value is no condition.

    `null`: whether NULL without a type is one. It is for the verbs of a table, and in AND, OR, NOT,
    IS and `if`; in WHERE, ON and CASE, Spark takes only booleans.
    """
    if value.type != BOOLEAN and not (null and value.type == VOID):
        raise InvalidExpression(
            f"{shown} has the type {spark_name(value.type)} and is not a condition; compare it with"
            " a value"
        )
    return cast(value, BOOLEAN)


def as_key(value: Typed, as_is: bool = False) -> Typed:
    """The value as Spark shows it as a key of groups and of distinct rows: 0.0 for -0.0 (P63).

    `as_is`: whether Spark may leave a -0.0 as it is, as `keeps_zeros` tells. It leaves that of a
    constant.
    """
    if value.type.kind not in FLOATING:
        return value
    if as_is or value.foldable:
        unsure = needs_spark("a key of -0.0 that may be constant, or beside one row or other keys")
        negative = f"{value.sql} = 0 AND signbit({value.sql})"
        return replace(value, sql=f"(CASE WHEN {negative} THEN {unsure} ELSE {value.sql} END)")
    zero = f"CAST(0 AS {duckdb_type(value.type)})"
    return replace(value, sql=f"(CASE WHEN {value.sql} = 0 THEN {zero} ELSE {value.sql} END)")


_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)"
_TEXTS = {
    "boolean": r"(?i:t|true|y|yes|1|f|false|n|no|0)",
    "decimal": _NUMBER,
    "float": _NUMBER + r"([eE][+-]?\d{1,3})?",
    "double": _NUMBER + r"([eE][+-]?\d{1,3})?",
    "date": r"\d{4}-\d\d-\d\d",
    "timestamp": r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?",
}
"""Texts that both engines read alike. Spark knows more forms of some; only Spark judges those."""
_NEVER_FIRST = {
    "decimal": "!-*,/:-~",
    **dict.fromkeys(FLOATING, "!-*,/:-HJ-MO-hj-mo-~"),
    "date": "!-*,./:-~",
    "timestamp": "!-*,./:-SU-~",
}
"""The characters of ASCII with which no text of the type begins: not with a digit, a sign, or the
first letter of NaN, Infinity or, for a time of day, T."""
_SPECIAL = {
    "nan": "nan",
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), "inf"),
    **dict.fromkeys(("-inf", "-infinity"), "-inf"),
}
"""Texts that Spark reads as a double without digits, and DuckDB's names for them."""


def _parsed(value: Typed, target: HiveType) -> str:
    pattern = _TEXTS.get(target.kind, r"[+-]?\d+")
    stripped = rf"trim({value.sql}, {_CONTROLS})"
    invalid = wrong_type(f"[CAST_INVALID_INPUT] '{{}}' is no {target}", value.sql)
    matches = f"regexp_full_match({stripped}, '{pattern}')"
    result = f"CAST({stripped} AS {duckdb_type(target)})"
    if target.kind in ("boolean", *INTEGRAL):  # NULL does not match, and is NULL in the end
        if target.kind == "boolean":
            result = f"(lower({stripped}) IN ('t', 'true', 'y', 'yes', '1'))"
        return f"CASE WHEN NOT {matches} THEN {invalid} ELSE {result} END"
    failure = needs_spark(f"a text that may be a {target} in another form")
    none = f"regexp_matches({stripped}, '^($|[{_NEVER_FIRST[target.kind]}])')"
    failure = f"CASE WHEN {none} THEN {invalid} ELSE {failure} END"
    if target.kind in FLOATING:  # DuckDB refuses what overflows
        result = f"coalesce(TRY_{result}, {needs_spark('a number beyond the range of its type')})"
    elif target in (DATE, TIMESTAMP):
        result = f"coalesce(TRY_{result}, {invalid})"
    return (
        f"CASE WHEN {value.sql} IS NULL THEN NULL WHEN {matches} THEN {result} ELSE {failure} END"
    )


_BLANKS = "".join(map(chr, range(33)))
_CONTROLS = f"'{''.join(map(chr, (*range(1, 33), 127)))}'"
"""What Spark strips from a text before it reads a value: blanks and control characters."""


# --- comparing two values in the type to which Spark casts both -----------------------------------


def compared(operator: str, left: Typed, right: Typed) -> Typed:
    """`left <operator> right`. Raises NeedsSpark if Spark's result is not known to be equal."""
    a, b = common([left, right])
    take_room(len(a.sql) + len(b.sql))  # one value may be compared with many
    return Typed(f"({a.sql} {operator} {b.sql})", BOOLEAN)


def common(values: Sequence[Typed]) -> list[Typed]:
    """The values in the type in which Spark compares them.

    Raises UnsupportedStatement for a literal with trailing blanks that is compared with a CHAR.
    """
    others = [value for value in values if value.type not in (STRING, VOID)]
    if others:
        values = [_literal_as(value, others[0]) for value in values]
        whole = any(value.type.kind in INTEGRAL and value.literal is None for value in others)
        exact = any(value.type.kind == "decimal" for value in others)
        values = [_with_own_digits(value, whole, exact) for value in values]
    kind = widest(value.type for value in values)
    if kind is None or kind.nested or kind == VARIANT:
        kinds = ", ".join(spark_name(value.type) for value in values)
        raise NeedsSpark(f"a comparison of {kinds}")
    if kind == VOID:
        return [cast(value, BOOLEAN) for value in values]
    _refuse_blanks(values)
    for value in values if kind.kind == "decimal" else ():
        if (
            isinstance(value.literal, int | Decimal)
            and analysis.digits_of_value(Decimal(value.literal)).scale > kind.sizes[1]
        ):  # a scan leaves out files by the number as it is written
            raise NeedsSpark(f"a comparison that rounds {value.literal}")
    return [cast(value, kind) for value in values]


def _literal_as(value: Typed, other: Typed) -> Typed:
    """A literal text that is compared with another type, as Spark casts it."""
    if value.type != STRING:
        return value
    if not isinstance(value.literal, str):
        raise NeedsSpark(f"a comparison of string with {spark_name(other.type)}; cast one of them")
    written, kind = value.literal, other.type
    try:
        if kind.kind in INTEGRAL:
            whole = analysis.whole_number(written, written)
            if not analysis.beyond_bigint(whole):
                return typed_as(text(str(whole)), BIGINT)
        elif kind.kind in ("float", "double", "decimal"):
            return typed_as(text(repr(analysis.finite_float(written, written))), DOUBLE)
        elif kind == DATE:
            return typed_as(text(analysis.date(written, written).isoformat()), DATE)
        elif kind == TIMESTAMP:
            return typed_as(text(analysis.timestamp(written, written).isoformat(" ")), TIMESTAMP)
    except InvalidExpression:
        pass
    raise NeedsSpark(f"a comparison of {spark_name(kind)} with {written!r}")


def _with_own_digits(value: Typed, whole: bool, exact: bool) -> Typed:
    """A literal number beside a decimal or whole number: its own digits, without zeros at the end.

    `whole`: whether a value that is no literal is a whole number; `exact`: whether one is decimal.
    Raises NeedsSpark if a bigint can't hold it: Spark then decides by it alone, even for NULL.
    """
    if not isinstance(value.literal, int | Decimal):
        return value
    if whole and analysis.beyond_bigint(value.literal):
        raise NeedsSpark(f"a comparison with {value.literal}, which is beyond bigint")
    if exact and isinstance(value.literal, int):
        return cast(value, decimal(len(str(abs(value.literal))), 0))
    return value


def _refuse_blanks(values: Sequence[Typed]) -> None:
    """Raises UnsupportedStatement for a literal with trailing blanks beside a CHAR; the first value
    is compared with each of the others."""

    def is_char(value: Typed) -> bool:
        return value.declared is not None and value.declared.kind == "char"

    first, *others = values
    for value in others if is_char(first) else [first] if any(map(is_char, others)) else []:
        if isinstance(value.literal, str) and value.literal.endswith(" "):
            raise refused_blanks(value.literal)


def case(translator: Translator, node: exp.Case) -> Typed:
    operand = None if node.this is None else translator.value(node.this)

    def test(branch: exp.If) -> Typed:
        if operand is None:
            return translator.condition(branch.this)
        return compared("=", operand, translator.value(branch.this))

    tests, given = zip(
        *((test(w), translator.value(w.args["true"])) for w in node.args["ifs"]), strict=True
    )
    default = node.args.get("default")
    other = Typed("NULL", VOID) if default is None else translator.value(default)
    *values, last = in_one_type([*given, other], "CASE")
    whens = (f"WHEN {t.sql} THEN {value.sql}" for t, value in zip(tests, values, strict=True))
    return Typed(f"(CASE {' '.join(whens)} ELSE {last.sql} END)", last.type)


def in_one_type(values: Sequence[Typed], shown: str) -> list[Typed]:
    kind = widest(value.type for value in values)
    if kind is None:
        kinds = ", ".join(spark_name(value.type) for value in values)
        raise NeedsSpark(f"{shown} of {kinds}")
    return [value if kind == VOID else cast(value, kind) for value in values]
