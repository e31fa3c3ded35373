"""Functions of dates and timestamps, which are in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.interface import moment
from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    decimal,
    duckdb_type,
    needs_spark,
    no_value,
    spark_name,
    text,
    without_errors,
)
from acid_platform.engine.local.translation.signatures import (
    Construct,
    Function,
    accepted,
)
from acid_platform.engine.local.translation.text_patterns import formatted
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator

FEW_DAYS = 3_000_000
"""Beyond it Spark's dates overflow silently."""


def shifted(moved: str, unit: str) -> str:
    failure = needs_spark(f"a date that is moved by more than {FEW_DAYS} {unit}")
    return f"CASE WHEN {{1}} > {FEW_DAYS} OR {{1}} < -{FEW_DAYS} THEN {failure} ELSE {moved} END"


def floored(number: str, by: int) -> str:
    """A whole number divided by another, rounded down."""
    return f"(({number} - (({number} % {by}) + {by}) % {by}) // {by})"


def moment_of(factor: int) -> str:
    """A timestamp of a count of seconds, milliseconds or microseconds."""
    beyond = no_value("[DATETIME_OVERFLOW] Datetime operation overflow")
    limit = 9_223_372_036_854_775_807 // factor
    unsure = needs_spark("a timestamp that DuckDB can't hold")
    most = 9_200_000_000_000_000_000 // factor
    return (
        f"CASE WHEN {{0}} > {limit} OR {{0}} < -{limit} - 1 THEN {beyond}"
        f" WHEN abs(CAST({{0}} AS HUGEINT)) > {most} THEN {unsure}"
        f" ELSE make_timestamp(CAST({{0}} AS BIGINT) * {factor}) END"
    )


def _now(_: Sequence[HiveType]) -> str:
    return text(moment().replace(tzinfo=None).isoformat(" "))


MOMENTS = (
    Function("current_timestamp()", (), _now, TIMESTAMP),
    Function("now()", (), _now, TIMESTAMP),
    Function("current_date()", (), _now, DATE),
)
"""One moment in UTC in all of a statement."""


# --- calls with a unit, a day's name, a pattern or an interval ------------------------------------

_FIELDS: dict[str, tuple[str, HiveType, str, str]] = {
    "YEAR": ("year({a})", INT, "date", "Y YEARS YR YRS"),
    "YEAROFWEEK": ("isoyear({a})", INT, "date", ""),
    "QUARTER": ("quarter({a})", INT, "date", "QTR"),
    "MONTH": ("month({a})", INT, "date", "MON MONS MONTHS"),
    "WEEK": ("week({a})", INT, "date", "W WEEKS"),
    "DAY": ("day({a})", INT, "date", "D DAYS"),
    "DAYOFWEEK": ("dayofweek({a}) + 1", INT, "date", "DOW"),
    "DAYOFWEEK_ISO": ("isodow({a})", INT, "date", "DOW_ISO"),
    "DOY": ("dayofyear({a})", INT, "date", ""),
    "HOUR": ("hour({a})", INT, "timestamp", "H HOURS HR HRS"),
    "MINUTE": ("minute({a})", INT, "timestamp", "M MIN MINS MINUTES"),
    "SECOND": (
        "microsecond({a}) * CAST('0.000001' AS DECIMAL(7,6))",
        decimal(8, 6),
        "timestamp",
        "S SEC SECONDS SECS",
    ),
}
_FIELD_OF = {
    name: field for field, (*_, others) in _FIELDS.items() for name in (field, *others.split())
}
_UNITS = {
    **{name: "year" for name in ("YEAR", "YYYY", "YY")},
    **{name: "month" for name in ("MONTH", "MM", "MON")},
    **{name: "day" for name in ("DAY", "DD")},
    **{
        name: name.lower()
        for name in ("QUARTER", "WEEK", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
    },
}


def date_argument(value: Typed, takes: str, shown: str) -> str:
    """DuckDB's SQL of an argument. Raises NeedsSpark if the function does not take its type."""
    taken = accepted(value, takes)
    if taken is None:
        raise NeedsSpark(f"{shown} of {spark_name(value.type)}")
    return taken.sql


def _literal(node: exp.Expr, shown: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise NeedsSpark(f"{shown} that is no literal")
    return str(node.this)


def parts_of_call(node: exp.Expr, *counts: int) -> list[exp.Expr]:
    if len(node.expressions) not in counts:
        raise NeedsSpark(f"{node.name} with {len(node.expressions)} arguments")
    return list(node.expressions)


def _field_of(translator: Translator, name: str, node: exp.Expr) -> Typed:
    if name.upper() not in _FIELD_OF:
        raise NeedsSpark(f"the part {name} of a date")
    from acid_platform.engine.local.translation import intervals

    if intervals.is_interval(node) and (interval := intervals.interval_of(node)) is not None:
        return intervals.part_of(interval, _FIELD_OF[name.upper()])
    sql, kind, takes, _ = _FIELDS[_FIELD_OF[name.upper()]]
    given = date_argument(translator.value(node), takes, f"the {name}")
    return Typed(f"CAST({sql.format(a=given)} AS {duckdb_type(kind)})", kind)


def extract(translator: Translator, node: exp.Extract) -> Typed:
    return _field_of(translator, node.this.name, node.expression)


def _date_part(translator: Translator, node: exp.Expr) -> Typed:
    field, value = parts_of_call(node, 2)
    return _field_of(translator, _literal(field, "a part of a date"), value)


def _truncated(translator: Translator, node: exp.Expr) -> Typed:
    """`date_trunc(unit, a)` of a timestamp, `trunc(a, unit)` of a date; another unit gives NULL."""
    name, (first, second) = node.name.lower(), parts_of_call(node, 2)
    kind, unit, node = (TIMESTAMP, first, second) if name == "date_trunc" else (DATE, second, first)
    word = _UNITS.get(_literal(unit, f"a unit of {name}").upper())
    takes: str = "timestamp" if kind == TIMESTAMP else "date"
    given = date_argument(translator.value(node), takes, name)
    if word is None or (kind == DATE and word not in ("year", "quarter", "month", "week")):
        return Typed(f"CAST(NULL AS {duckdb_type(kind)})", kind)
    return Typed(f"CAST(date_trunc('{word}', {given}) AS {duckdb_type(kind)})", kind)


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def _next_day(translator: Translator, node: exp.Expr) -> Typed:
    date, named = parts_of_call(node, 2)
    name = _literal(named, "a day of next_day").upper()
    places = [i for i, day in enumerate(_WEEKDAYS, 1) if name in (day, day[:3], day[:2])]
    if not places:
        raise NeedsSpark(f"next_day to {name}")
    given = date_argument(translator.value(date), "date", "next_day")
    later = f"{given} + CAST((({places[0]} - isodow({given}) + 6) % 7) + 1 AS INTEGER)"
    return Typed(f"CAST({later} AS DATE)", DATE)


def _months_between(translator: Translator, node: exp.Expr) -> Typed:
    later, earlier, *rounds = parts_of_call(node, 2, 3)
    if rounds and not isinstance(rounds[0], exp.Boolean):
        raise NeedsSpark("months_between that rounds by anything but a literal")
    a, b = (
        date_argument(translator.value(part), "timestamp", "months_between")
        for part in (later, earlier)
    )
    months = f"((year({a}) - year({b})) * 12 + month({a}) - month({b}))"
    ends = " AND ".join(f"day({x}) = day(last_day({x}))" for x in (a, b))
    within = (
        f"((day({a}) - day({b})) * 86400 + (hour({a}) - hour({b})) * 3600"
        f" + (minute({a}) - minute({b})) * 60 + second({a}) - second({b}))"
    )
    total = f"(CAST({months} AS DOUBLE) + CAST({within} AS DOUBLE) / 2678400::DOUBLE)"
    if not rounds or rounds[0].this:
        total = f"(floor({total} * 1e8::DOUBLE + 0.5::DOUBLE) / 1e8::DOUBLE)"
    whole = f"day({a}) = day({b}) OR ({ends})"
    return Typed(f"(CASE WHEN {whole} THEN CAST({months} AS DOUBLE) ELSE {total} END)", DOUBLE)


def _day_sql(year: str, month: str, day: str, failure: str) -> str:
    """The cases of CASE that refuse what is no day, and the SQL of the day."""
    beyond = needs_spark("a date beyond the years 1 to 9999")
    first = f"make_date({year}, {month}, 1)"
    return (
        f"WHEN {year} NOT BETWEEN 1 AND 9999 THEN {beyond}"
        f" WHEN {month} NOT BETWEEN 1 AND 12 OR {day} NOT BETWEEN 1 AND 31 THEN {failure}"
        f" WHEN {day} > day(last_day({first})) THEN {failure}"
    )


_NO_DATE = "[DATETIME_FIELD_OUT_OF_BOUNDS] there is no such date or time"


def _made(failing: bool, whole: bool) -> Callable[[Translator, exp.Expr], Typed]:
    """`make_date`, or `make_timestamp` if `whole`; NULL instead of an error unless `failing`."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        few = (6,) if node.name.lower().endswith("_ltz") else (1, 6)
        parts = parts_of_call(node, *(few if whole else (3,)))
        values = [translator.value(part) for part in parts]
        if len(values) == 1:
            return Typed(date_argument(values[0], "timestamp", node.name), TIMESTAMP)
        if any(value.type == VOID for value in values):
            kind = TIMESTAMP if whole else DATE
            return Typed(f"CAST(NULL AS {duckdb_type(kind)})", kind)
        failure = no_value(_NO_DATE) if failing else "NULL"
        year, month, day, *times = (date_argument(value, "int", node.name) for value in values[:5])
        null = " OR ".join(f"{value.sql} IS NULL" for value in values)
        cases = f"WHEN {null} THEN NULL {_day_sql(year, month, day, failure)}"
        date = f"make_date({year}, {month}, {day})"
        if not whole:
            return Typed(f"CAST(CASE {cases} ELSE {date} END AS DATE)", DATE)
        hour, minute = times
        if values[5].type.kind not in (*INTEGRAL, "decimal"):
            raise NeedsSpark(f"{node.name} with seconds of {spark_name(values[5].type)}")
        exact = values[5].type.kind != "decimal" or (
            values[5].type.sizes[1] <= 6 and sum(values[5].type.sizes) <= 16
        )
        if not exact:
            raise NeedsSpark(f"{node.name} with seconds of {spark_name(values[5].type)}")
        second = f"CAST({values[5].sql} AS DECIMAL(38,6))"
        cases += (
            f" WHEN {hour} NOT BETWEEN 0 AND 23 OR {minute} NOT BETWEEN 0 AND 59"
            f" OR {second} NOT BETWEEN 0 AND 60 THEN {failure}"
        )
        micros = (
            f"({hour} * 3600 + {minute} * 60)::BIGINT * 1000000"
            f" + CAST({second} * 1000000::DECIMAL(7,0) AS BIGINT)"
        )
        made = f"CAST({date} AS TIMESTAMP) + to_microseconds({micros})"
        return Typed(f"CAST(CASE {cases} ELSE {made} END AS TIMESTAMP)", TIMESTAMP)

    return call


_PIECES = {
    "yyyy": (r"\d{4}", "%Y"),
    "MM": (r"\d\d", "%m"),
    "dd": (r"\d\d", "%d"),
    "HH": (r"(?:[01]\d|2[0-3])", "%H"),
    "mm": (r"[0-5]\d", "%M"),
    "ss": (r"[0-5]\d", "%S"),
    "M": (r"\d\d?", "%m"),
    "d": (r"\d\d?", "%d"),
}
"""Letters of a pattern of Java, what they match, and the same in DuckDB's patterns."""


def _pattern(written: str) -> tuple[str, str]:
    """What a text of this pattern matches, and DuckDB's pattern. Raises NeedsSpark."""
    matches, formats, seen = "", "", ""
    pieces = re.findall(r"([A-Za-z])(\1*)|(.)", written, re.DOTALL)
    for position, (letter, more, sign) in enumerate(pieces):
        letters = letter + more
        beside = [not piece[2] for piece in (*pieces[:position][-1:], *pieces[position + 1 :][:1])]
        if sign:
            if not sign.isascii() or sign in "[]{}#'%\\\n" or sign.isdigit():
                raise NeedsSpark(f"a pattern of dates with {sign}")
            matches, formats = matches + re.escape(sign), formats + sign
        elif letters not in _PIECES or letter in seen or (not more and any(beside)):
            raise NeedsSpark(f"a pattern of dates with {letters} here")
        else:
            matches, formats = matches + _PIECES[letters][0], formats + _PIECES[letters][1]
            seen += letter
    if "y" not in seen or ("d" in seen and "M" not in seen):
        raise NeedsSpark(f"the pattern {written}")
    return matches, formats


def _parsed(kind: HiveType, failing: bool) -> Callable[[Translator, exp.Expr], Typed]:
    """`to_date` and `to_timestamp` and their like; NULL instead of an error unless `failing`."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        first, *format_ = parts_of_call(node, 1, 2)
        value = translator.value(first)
        if value.type in (DATE, TIMESTAMP):
            return cast(value, kind)
        if not format_:
            text_ = Typed(date_argument(value, "text", node.name), STRING, value.literal)
            found = cast(text_, kind)
            return found if failing else replace(found, sql=without_errors(found.sql))
        sql = _read(value, _literal(format_[0], f"a pattern of {node.name}"), node.name, failing)
        return Typed(f"CAST({sql} AS {duckdb_type(kind)})", kind)

    return call


def _read(value: Typed, pattern: str, shown: str, failing: bool = True) -> str:
    given = date_argument(value, "text", shown)
    matches, formats = _pattern(pattern)
    failure = no_value("[CANNOT_PARSE_TIMESTAMP] '{}' is not of its pattern", given)
    failure = failure if failing else "NULL"
    unsure = needs_spark("a text that may be of the pattern of a date in another form")
    read = f"try_strptime({given}, {text(formats)})"
    return (
        f"CASE WHEN {given} IS NULL THEN NULL"
        f" WHEN regexp_full_match({given}, {text(matches)}) THEN"
        f" CASE WHEN starts_with({given}, '0000') THEN {unsure}"
        f" WHEN {read} IS NULL THEN {failure} ELSE {read} END"
        f" WHEN NOT regexp_matches({given}, '[0-9]') THEN {failure} ELSE {unsure} END"
    )


def _seconds_of(translator: Translator, node: exp.Expr) -> Typed:
    """`unix_timestamp` and `to_unix_timestamp`."""
    first, *format_ = parts_of_call(node, 1, 2)
    value = translator.value(first)
    pattern = _literal(format_[0], f"a pattern of {node.name}") if format_ else _DEFAULT
    if value.type in (DATE, TIMESTAMP):
        read = cast(value, TIMESTAMP).sql
    else:
        read = _read(value, pattern, node.name)
    return Typed(f"CAST(epoch_us({read}) // 1000000 AS BIGINT)", BIGINT)


_DEFAULT = "yyyy-MM-dd HH:mm:ss"


def _from_seconds(translator: Translator, node: exp.Expr) -> Typed:
    first, *format_ = parts_of_call(node, 1, 2)
    pattern = _literal(format_[0], "a pattern of from_unixtime") if format_ else _DEFAULT
    seconds = date_argument(translator.value(first), "integral", "from_unixtime")
    beyond = needs_spark("the text of a date beyond the years 1 to 9999")
    moment = f"make_timestamp(CAST({seconds} AS BIGINT) * 1000000)"
    return Typed(
        f"(CASE WHEN abs(CAST({seconds} AS HUGEINT)) > 300000000000 THEN {beyond}"
        f" ELSE {formatted(moment, pattern)} END)",
        STRING,
    )


_DATES = "dates, timestamps, texts of them"
_TIMES = "text; a literal pattern of yyyy MM dd HH mm ss"
_CALLS: tuple[tuple[str, str, Callable[..., Typed]], ...] = (
    ("date_part('year', a)", _DATES, _date_part),
    ("datepart('year', a)", _DATES, _date_part),
    ("date_trunc('year', a)", _DATES, _truncated),
    ("trunc(a, 'year')", _DATES, _truncated),
    ("next_day(a, 'MO')", f"{_DATES}; the day a literal", _next_day),
    ("months_between(a, b, true)", _DATES, _months_between),
    ("make_date(a, b, c)", "int", _made(True, False)),
    ("make_timestamp(a, b, c, d, e, f)", "int; seconds also decimal", _made(True, True)),
    ("make_timestamp_ltz(a, b, c, d, e, f)", "int; seconds also decimal", _made(True, True)),
    ("try_make_timestamp(a, b, c, d, e, f)", "int; seconds also decimal", _made(False, True)),
    ("try_make_timestamp_ltz(a, b, c, d, e, f)", "int; seconds also decimal", _made(False, True)),
    ("to_date(a, 'pattern')", _TIMES, _parsed(DATE, True)),
    ("to_timestamp(a, 'pattern')", _TIMES, _parsed(TIMESTAMP, True)),
    ("to_timestamp_ltz(a, 'pattern')", _TIMES, _parsed(TIMESTAMP, True)),
    ("try_to_date(a, 'pattern')", _TIMES, _parsed(DATE, False)),
    ("try_to_timestamp(a, 'pattern')", _TIMES, _parsed(TIMESTAMP, False)),
    ("unix_timestamp(a, 'pattern')", _TIMES, _seconds_of),
    ("to_unix_timestamp(a, 'pattern')", _TIMES, _seconds_of),
    ("from_unixtime(a, 'pattern')", "whole numbers", _from_seconds),
)
DATE_CALLS = {
    shown.partition("(")[0]: Construct(shown, types, translate, ("this", "expressions"))
    for shown, types, translate in _CALLS
}
"""By the name of the function, which sqlglot leaves as it is written."""
