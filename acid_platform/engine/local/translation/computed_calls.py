"""Calls of library.py whose SQL depends on their literals or types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from acid_platform.engine.local.translation import arithmetic
from acid_platform.engine.local.translation.casts import Typed, cast, compared, typed_as
from acid_platform.engine.local.translation.dates import Interval, floored, moved
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    ROUNDED,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    as_decimal,
    decimal,
    duckdb_type,
    needs_spark,
    no_value,
    ordered,
    spark_name,
    text,
    widest,
    wrong_type,
)
from acid_platform.engine.local.translation.text_patterns import formatted
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType
from acid_platform.predicates.analysis import MOST_DIGITS

_MAY_FAIL = re.compile(r"error\(|acid_|CAST\((?!['\d])")


def tried(node: type[exp.Expr], left: Typed, right: Typed) -> Typed:
    """NULL where the operator itself fails, and an error where an operand does."""
    value = arithmetic.binary(node, left, right)
    if value.type.kind == "decimal" and node is not exp.Mod:
        raise NeedsSpark(f"a try_ function of {spark_name(left.type)} and {spark_name(right.type)}")
    if node in (exp.Div, exp.Mod):
        divisor = replace(right, sql=f"nullif({right.sql}, 0)", literal=None)
        return arithmetic.binary(node, left, divisor)
    if value.type.kind not in INTEGRAL:
        return value
    wide = f"CAST({left.sql} AS HUGEINT) {arithmetic.OPERATORS[node]} {right.sql}"
    return replace(value, sql=f"TRY_CAST({wide} AS {duckdb_type(value.type)})")


_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def positive_rest(left: Typed, right: Typed) -> Typed:
    if not {left.type.kind, right.type.kind} <= {*INTEGRAL}:
        raise NeedsSpark(f"pmod of {spark_name(left.type)} and {spark_name(right.type)}")
    rest = arithmetic.binary(exp.Mod, left, right)
    kind = duckdb_type(rest.type)
    total = f"(CAST({rest.sql} AS HUGEINT) + {right.sql})"
    limit = f"{1 << _BITS[rest.type.kind]}::HUGEINT"
    wraps = f"WHEN {total} < -{limit} THEN {needs_spark('pmod of numbers whose sum overflows')}"
    again = f"CASE {wraps} ELSE CAST({total} % {right.sql} AS {kind}) END"
    return replace(rest, sql=f"(CASE WHEN {rest.sql} < 0 THEN {again} ELSE {rest.sql} END)")


def whole_of_decimal(value: Typed, function: str) -> Typed:
    precision, scale = value.type.sizes
    kind = decimal(min(MOST_DIGITS, precision - scale + 1), 0) if scale else value.type
    return typed_as(f"{function}({value.sql})", kind)


def whole_of_double(function: str) -> str:
    failure = wrong_type("[ARITHMETIC_OVERFLOW] overflow")
    unsure = needs_spark(f"{function} of NaN or of a number next to 2^63")
    return (
        "CASE WHEN isnan({0}) OR abs({0}) BETWEEN 9.2e18::DOUBLE AND 9.3e18::DOUBLE"
        f" THEN {unsure} WHEN abs({{0}}) > 9.2e18::DOUBLE THEN {failure}"
        f" ELSE CAST({function}({{0}}) AS BIGINT) END"
    )


def rounded_to(value: Typed, digits: Typed | None, function: str) -> Typed:
    """`ceil`, `floor`, `round` or `bround` to digits of a decimal."""
    (precision, scale), to = value.type.sizes, 0 if digits is None else digits.literal
    assert isinstance(to, int)
    shorter = min(scale, max(0, to))
    room = precision - scale + 1 + shorter if to >= 0 else max(precision - scale + 1, 1 - to)
    plain = function == "round" and to >= 0  # as a CAST rounds
    if room > 38 or (not plain and not -30 < to <= 30):
        raise NeedsSpark(f"{function} to {to} digits of {spark_name(value.type)}")
    kind = decimal(room, shorter)
    if plain:
        return typed_as(f"{value.sql}", kind)
    if to >= scale:
        return cast(value, kind)
    digits_, step = arithmetic.unscaled(value.sql, value.type), 10 ** (scale - to)
    rest = f"({digits_} % {step}::HUGEINT)"
    up = {
        "floor": f"CASE WHEN {rest} < 0 THEN -1 ELSE 0 END",
        "ceil": f"CASE WHEN {rest} > 0 THEN 1 ELSE 0 END",
        "round": f"CASE WHEN 2 * abs({rest}) >= {step} THEN sign({rest}) ELSE 0 END",
        "bround": f"CASE WHEN 2 * abs({rest}) > {step} OR (2 * abs({rest}) = {step}"
        f" AND ({digits_} // {step}::HUGEINT) % 2 <> 0) THEN sign({rest}) ELSE 0 END",
    }[function]
    whole = f"({digits_} // {step}::HUGEINT + {up})" + ROUNDED * (precision > 28)
    if to <= 0:
        return typed_as(f"{whole} * {10**-to}::HUGEINT", kind)
    unit = f"CAST('0.{'0' * (to - 1)}1' AS DECIMAL({to},{to}))"
    return Typed(
        f"CAST(CAST({whole} AS DECIMAL({38 - to},0)) * {unit} AS {duckdb_type(kind)})", kind
    )


def as_binary(value: Typed, form: Typed) -> Typed:
    match str(form.literal).lower():
        case "utf-8" | "utf8":
            return Typed(f"encode({value.sql})", BINARY)
    raise NeedsSpark(f"to_binary by {form.literal!r}")


def printed_format(form: Typed, *values: Typed) -> Typed:
    pieces, rest = [], list(values)
    for piece in re.findall(r"%%|%.?|[^%]+", str(form.literal), re.DOTALL):
        if piece == "%%":
            pieces.append("'%'")
        elif not piece.startswith("%"):
            pieces.append(text(piece))
        else:
            value = rest.pop(0) if rest else None
            whole = value is not None and value.type.kind in INTEGRAL
            textual = value is not None and value.type in (STRING, BOOLEAN)
            if value is None or not (
                (piece == "%d" and whole) or (piece == "%s" and (whole or textual))
            ):
                raise NeedsSpark(f"{piece} in format_string")
            pieces.append(f"coalesce({cast(value, STRING).sql}, 'null')")
    if rest or not pieces:
        raise NeedsSpark("format_string of more values than its text has places for")
    return Typed(f"({' || '.join(pieces)})", STRING)


def joined(*parts: Typed) -> Typed:
    """`concat` of texts, or of bytes."""
    return Typed(f"({' || '.join(part.sql for part in parts)})", parts[0].type)


def cased(function: str) -> Callable[[Typed], Typed]:
    failure = needs_spark(f"{function} of letters whose case DuckDB changes differently")

    def call(value: Typed) -> Typed:
        unsafe = f"regexp_matches({value.sql}, '[^{_LETTERS}]')"
        return Typed(
            f"(CASE WHEN {unsafe} THEN {failure} ELSE {function}({value.sql}) END)", STRING
        )

    return call


_LETTERS = "".join(
    f"\\x{{{first:X}}}-\\x{{{last:X}}}"
    for first, last in (
        *((0x00, 0x7F), (0xA0, 0xB4), (0xB6, 0xDE), (0xE0, 0xFE), (0x100, 0x12F), (0x132, 0x137)),
        *((0x139, 0x148), (0x14A, 0x177), (0x179, 0x17E)),  # Latin
        *((0x391, 0x3A1), (0x3A4, 0x3A9), (0x3B1, 0x3C1), (0x3C4, 0x3C9)),  # Greek but sigma
        *((0x400, 0x45F), (0x2010, 0x2027), (0x20AC, 0x20AC)),  # Cyrillic; dashes, quotes, euro
        *((0x3040, 0x30FF), (0x4E00, 0x9FFF)),  # letters without case
    )
)
"""A character class of RE2 with the letters whose case both engines change alike."""


def chosen_text(number: Typed, *texts: Typed) -> Typed:
    outside = no_value("[INVALID_ARRAY_INDEX] The index {} of elt is out of bounds", number.sql)
    cases = " ".join(f"WHEN {number.sql} = {i} THEN {each.sql}" for i, each in enumerate(texts, 1))
    null = f"WHEN {number.sql} IS NULL THEN NULL"
    return Typed(f"(CASE {null} {cases} ELSE {outside} END)", STRING)


def located_text(part: Typed, whole: Typed, at: Typed) -> Typed:
    start = at.literal
    assert isinstance(start, int)
    if start < 1:
        raise NeedsSpark("locate from a position before 1")
    found = f"instr(substring({whole.sql}, {start}), {part.sql})"
    moved = f"WHEN {found} > 0 THEN {found} + {start - 1}"
    empty = f"WHEN {part.sql} = '' THEN {needs_spark('locate of an empty text')}"
    null = f"WHEN {part.sql} IS NULL OR {whole.sql} IS NULL THEN NULL"
    return Typed(f"CAST((CASE {null} {empty} {moved} ELSE 0 END) AS INTEGER)", INT)


def part_of_text(whole: Typed, start: Typed, length: Typed | None = None) -> Typed:
    given = [part.literal for part in (start, length) if part is not None]
    if all(isinstance(number, int) and 0 <= number < 1 << 31 for number in given):
        end = "" if length is None else f", {length.sql}"
        return Typed(f"substring({whole.sql}, greatest({start.sql}, 1){end})", STRING)
    end = "2147483647" if length is None else length.sql
    return Typed(f"acid_substring({whole.sql}, {start.sql}, {end})", STRING)


def decoded_case(value: Typed, *given: Typed) -> Typed:
    """decode(value, search, result, …, default)."""
    if len(given) < 2:
        raise NeedsSpark("decode of these arguments")
    pairs = list(zip(given[::2], given[1::2], strict=False))
    other = given[-1] if len(given) % 2 else Typed("NULL", VOID)
    kind = widest(each.type for each in (*(result for _, result in pairs), other))
    if kind != STRING:
        raise NeedsSpark("decode to anything but text")
    cases = " ".join(
        f"WHEN {compared('IS NOT DISTINCT FROM', value, search).sql} THEN {cast(result, kind).sql}"
        for search, result in pairs
    )
    return Typed(f"(CASE {cases} ELSE {cast(other, kind).sql} END)", kind)


def jaro_winkler(text: Typed, other: Typed) -> Typed:
    """Spark prefers equal beginnings of all texts, DuckDB those of similar ones."""
    a, b = text.sql, other.sql
    unsure = needs_spark("jaro_winkler_similarity of texts that are hardly similar, or not ASCII")
    beyond = f"regexp_matches({a} || {b}, '[^\\x{{00}}-\\x{{7F}}]')"
    boosted = f"left({a}, 1) = left({b}, 1) AND jaro_similarity({a}, {b}) < 0.71"
    cases = f"WHEN {a} = {b} THEN 1.0 WHEN {beyond} OR ({boosted}) THEN {unsure}"
    return Typed(f"(CASE {cases} ELSE jaro_winkler_similarity({a}, {b}) END)::DOUBLE", DOUBLE)


def hashed_values(prefix: str, kind: HiveType, values: Sequence[Typed]) -> Typed:
    sql = "42"
    for value in values:
        own = value.type
        if own == VOID:
            continue
        given = value.sql
        inner = own.children[0][1] if own.kind == "array" else own
        several = "s" * (own.kind == "array")
        if (inner.kind in INTEGRAL and inner != BIGINT) or (own in (BOOLEAN, DATE)):
            number = f"{given} - DATE '1970-01-01'" if own == DATE else given
            ints = "INTEGER[]" if several else "INTEGER"
            sql = f"acid_{prefix}_int{several}(CAST({number} AS {ints}), {sql})"
        elif inner == BIGINT or own == TIMESTAMP:
            number = f"epoch_us({given})" if own == TIMESTAMP else given
            sql = f"acid_{prefix}_long{several}({number}, {sql})"
        elif inner == STRING or own == BINARY:
            given = f"encode({given})" if own == STRING else given
            given = f"list_transform({given}, lambda e: encode(e))" if several else given
            sql = f"acid_{prefix}_bytes{several}({given}, {sql})"
        else:
            raise NeedsSpark(f"a hash of {spark_name(own)}")
    return typed_as(sql, kind)


_REGISTERS, _MOST_COUNTED = 512, 277
"""The registers of Spark's sketch, and how many in use still tell the number of values."""


def near_count(value: Typed) -> str:
    """The SQL of `approx_count_distinct`, by the registers of Spark's sketch: the first bits of a
    hash."""
    hashed = hashed_values("xx", BIGINT, [value]).sql
    used = f"count(DISTINCT CASE WHEN {value.sql} IS NOT NULL THEN {hashed} >> 55 END){{over}}"
    unsure = needs_spark("approx_count_distinct of many values")
    number = f"round({_REGISTERS} * ln({_REGISTERS} / ({_REGISTERS} - {used})))"
    return f"CASE WHEN {used} > {_MOST_COUNTED} THEN {unsure} ELSE {number} END"


def bit_at(value: Typed, at: Typed) -> Typed:
    number = at.literal
    if not isinstance(number, int) or not 0 <= number < 64:
        raise NeedsSpark("a bit at a position beyond its number")
    return Typed(f"CAST(acid_shiftunsigned_64({value.sql}, {number}) & 1 AS TINYINT)", TINYINT)


def grouped_digits(value: Typed, digits: Typed) -> Typed:
    precision, scale = value.type.sizes
    if precision - scale > 20 or scale > 18:
        raise NeedsSpark(f"format_number of {spark_name(value.type)}")
    return Typed(f"acid_format_decimal({value.sql}, {digits.sql})", STRING)


def zero_for_null(value: Typed) -> Typed:
    kind = widest((value.type, INT))
    if kind is None:
        raise NeedsSpark(f"zeroifnull of {spark_name(value.type)}")
    return Typed(f"coalesce({cast(value, kind).sql}, CAST(0 AS {duckdb_type(kind)}))", kind)


def asserted(value: Typed) -> Typed:
    failure = no_value("[USER_RAISED_EXCEPTION] a condition of assert_true is not true")
    return Typed(f"CASE WHEN NOT coalesce({value.sql}, false) THEN {failure} END", VOID)


def raised(value: Typed) -> Typed:
    return Typed(no_value("[USER_RAISED_EXCEPTION] {}", value.sql), VOID)


def tried_move(value: Typed, by: Typed, back: bool) -> Typed:
    """`try_add` and `try_subtract` of a date or timestamp and an interval."""
    assert isinstance(by.span, Interval)
    if _MAY_FAIL.search(value.sql):
        raise NeedsSpark("a try_ function of a value that may fail itself")
    found = moved(value, by.span, back)
    unsure = needs_spark("a date that is moved beyond its range")
    cases = f"WHEN {value.sql} IS NOT NULL AND TRY({found.sql}) IS NULL THEN {unsure}"
    return Typed(f"(CASE {cases} ELSE {found.sql} END)", found.type)


def bucket_of(width: Typed, value: Typed, origin: Typed | None = None) -> Typed:
    """`time_bucket`, by days and parts of them."""
    assert isinstance(width.span, Interval)
    micros = width.span.micros
    fixed = origin is None or re.fullmatch(r"CAST\('[^']*' AS TIMESTAMP\)", origin.sql)
    if micros <= 0 or not fixed:
        raise NeedsSpark("time_bucket by months or backwards, or from a time that is no literal")
    start = "0" if origin is None else f"epoch_us({origin.sql})"
    number = floored(f"(epoch_us({value.sql}) - {start})", micros)
    return Typed(f"make_timestamp({start} + {number} * {micros})", TIMESTAMP)


def _counted(spans: Sequence[Typed]) -> list[int]:
    """Intervals of one kind as numbers. Raises NeedsSpark."""
    intervals = [span.span for span in spans]
    assert all(isinstance(interval, Interval) for interval in intervals)
    if len({bool(i.ends[0] in ("YEAR", "MONTH")) for i in intervals}) > 1:  # type: ignore[attr-defined]
        raise NeedsSpark("intervals of several kinds")
    return [i.months + i.micros for i in intervals]  # type: ignore[attr-defined]


def sign_of_interval(value: Typed) -> Typed:
    [number] = _counted([value])
    return Typed(f"{(number > 0) - (number < 0)}::DOUBLE", DOUBLE)


def bucket_of_intervals(value: Typed, low: Typed, high: Typed, count: Typed) -> Typed:
    numbers = ", ".join(f"{number}::DOUBLE" for number in _counted([value, low, high]))
    return Typed(f"acid_width_bucket({numbers}, {count.sql})", BIGINT)


def exactly_whole(sql: str) -> str:
    unsure = needs_spark("XPath of a number that is no whole one, or beyond 32,767")
    value = f"list_transform([{sql}], lambda x: CASE WHEN x <> floor(x) OR abs(x) > 32767"
    return f"{value} THEN {unsure} ELSE x END)[1]"


def first_known(*values: Typed) -> Typed:
    """Not DuckDB's coalesce: CASE is known to evaluate what it needs and no more."""
    last = values[-1]
    whens = " ".join(f"WHEN {value.sql} IS NOT NULL THEN {value.sql}" for value in values[:-1])
    return Typed(f"(CASE {whens} ELSE {last.sql} END)" if whens else last.sql, last.type)


def extreme(function: str, *values: Typed) -> Typed:
    kind = values[0].type
    if not ordered(kind):
        raise NeedsSpark(f"{function} of {spark_name(kind)}")
    if kind == FLOAT:  # DuckDB's own for floats makes 0.0 of -0.0
        values = tuple(cast(value, DOUBLE) for value in values)
    call = f"{function}({', '.join(value.sql for value in values)})"
    return Typed(f"CAST({call} AS FLOAT)" if kind == FLOAT else call, kind)


# --- numbers by a pattern of digits: texts that have exactly these, and numbers that fill them ----

_FORM = re.compile(
    r"(?P<dollar>\$?)(?P<whole>[09]+([,G][09]{3})*)([.D](?P<part>[09]+))?(?P<sign>S|MI)?"
)


@dataclass(frozen=True, slots=True)
class _Form:
    dollar: bool
    groups: tuple[str, ...]
    part: str
    sign: str

    @classmethod
    def of(cls, written: str) -> _Form:
        match = _FORM.fullmatch(written.upper())
        if match is None:
            raise NeedsSpark(f"the pattern {written!r} of a number")
        groups = tuple(re.split("[,G]", match["whole"]))
        return cls(bool(match["dollar"]), groups, match["part"] or "", match["sign"] or "")

    @property
    def digits(self) -> tuple[int, int]:
        """How many stand before and behind the point."""
        return sum(map(len, self.groups)), len(self.part)


def read_number(value: Typed, pattern: Typed) -> Typed:
    """`to_number(text, pattern)`."""
    form = _Form.of(str(pattern.literal))
    whole, part = form.digits
    if whole + part > 38:
        raise NeedsSpark("to_number of so many digits")
    kind = decimal(whole + part, part)
    matches = "[$]" * form.dollar + ",".join(f"\\d{{{len(group)}}}" for group in form.groups)
    matches += f"\\.\\d{{{part}}}" * bool(part) + "-?" * bool(form.sign)
    digits = f"regexp_replace({value.sql}, '[$,-]', '', 'g')"
    sign = f"CASE WHEN ends_with({value.sql}, '-') THEN '-' ELSE '' END"
    unsure = needs_spark("a text that has not exactly the digits of its pattern")
    return Typed(
        f"(CASE WHEN {value.sql} IS NULL THEN NULL WHEN regexp_full_match({value.sql}, '{matches}')"
        f" THEN CAST({sign} || {digits} AS {duckdb_type(kind)}) ELSE {unsure} END)",
        kind,
    )


def as_text(value: Typed, pattern: Typed) -> Typed:
    """`to_char` and `to_varchar` of numbers, dates and binary values."""
    written, kind = str(pattern.literal), value.type
    if kind in (DATE, TIMESTAMP):
        return Typed(f"({formatted(cast(value, TIMESTAMP).sql, written)})", STRING)
    if kind == BINARY:
        calls = {"base64": "base64({})", "hex": "hex({})", "utf-8": "acid_decode({}, 'UTF-8')"}
        if written.lower() not in calls:
            raise NeedsSpark(f"to_char of a binary value by {written!r}")
        return Typed(calls[written.lower()].format(value.sql), STRING)
    own = as_decimal(kind)
    if own is None:
        raise NeedsSpark(f"to_char of {spark_name(kind)}")
    form = _Form.of(written)
    whole, part = form.digits
    if own.sizes[1] > part or whole + part > 38 or own.sizes[0] - own.sizes[1] > 38 - part:
        raise NeedsSpark(f"to_char of {spark_name(kind)} by {written!r}")
    exact = decimal(min(38, max(own.sizes[0] - own.sizes[1], whole) + part), part)
    number = f"CAST(abs({cast(value, exact).sql}) AS VARCHAR)"
    start, pieces = 1, []
    for group in form.groups:
        pieces.append(f"substring({number}, {start}, {len(group)})")
        start += len(group)
    shown = " || ',' || ".join(pieces) + f" || substring({number}, {start})" * bool(part)
    shown = "'$' || " * form.dollar + shown + " || '-'" * bool(form.sign)
    fits = f"length({number}) = {whole + part + bool(part)} AND NOT starts_with({number}, '0')"
    fits += f" AND {value.sql} {'<' if form.sign else '>'} 0"
    unsure = needs_spark("a number that does not fill its pattern")
    return Typed(
        f"(CASE WHEN {value.sql} IS NULL THEN NULL WHEN {fits} THEN {shown} ELSE {unsure} END)",
        STRING,
    )
