"""Dates, timestamps and literal intervals, all in UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast, typed_as
from acid_platform.engine.local.translation.duckdb_sql import (
    DATE,
    TIMESTAMP,
    decimal,
    needs_spark,
    no_value,
    spark_name,
    text,
    without_errors,
)
from acid_platform.engine.local.translation.signatures import add, row
from acid_platform.engine.local.translation.text_patterns import formatted
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType

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


# --- literal intervals ----------------------------------------------------------------------------

_STEPS = {
    **{unit: ("months", count) for unit, count in (("MONTH", 1), ("QUARTER", 3), ("YEAR", 12))},
    **{
        unit: ("micros", count)
        for unit, count in (
            ("MICROSECOND", 1), ("MILLISECOND", 1000), ("SECOND", 1_000_000),
            ("MINUTE", 60_000_000), ("HOUR", 3_600_000_000), ("DAY", 86_400_000_000),
            ("WEEK", 604_800_000_000),
        )
    },
}  # fmt: skip
"""How many months or microseconds a unit has."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A literal interval: months, or microseconds; `days`: whether it has no part below a day."""

    months: int = 0
    micros: int = 0
    days: bool = True
    ends: tuple[str, str] = ("", "")
    """The largest and the smallest unit of its type."""

    @property
    def printed(self) -> str:
        """As Spark prints it. Raises NeedsSpark."""
        first, last = self.ends
        sign, micros = "-" if self.micros + self.months < 0 else "", abs(self.micros)
        years, months = divmod(abs(self.months), 12)
        seconds, fraction = divmod(micros, 1_000_000)
        parts = {
            "YEAR": str(years),
            "MONTH": str(months if first == "YEAR" else abs(self.months)),
            "DAY": str(seconds // 86_400),
            "HOUR": f"{seconds // 3600 % 24 if first == 'DAY' else seconds // 3600:02}",
            "MINUTE": f"{seconds // 60 % 60 if first != 'MINUTE' else seconds // 60:02}",
            "SECOND": f"{seconds % 60 if first != 'SECOND' else seconds:02}",
        }
        if fraction:
            parts["SECOND"] += f".{fraction:06}".rstrip("0")
        names = [*parts]
        written = names[names.index(first) : names.index(last) + 1]
        signs = {"MONTH": "-", "HOUR": " ", "MINUTE": ":", "SECOND": ":"}
        value = "".join(signs.get(n, "") * (n != first) + parts[n] for n in written)
        unit = first if first == last else f"{first} TO {last}"
        return f"INTERVAL '{sign}{value}' {unit}"


_SPANS = {
    ("YEAR", "MONTH"): r"(?P<YEAR>\d+)-(?P<MONTH>\d+)",
    ("DAY", "HOUR"): r"(?P<DAY>\d+) (?P<HOUR>\d+)",
    ("DAY", "MINUTE"): r"(?P<DAY>\d+) (?P<HOUR>\d+):(?P<MINUTE>\d+)",
    ("DAY", "SECOND"): r"(?P<DAY>\d+) (?P<HOUR>\d+):(?P<MINUTE>\d+):(?P<SECOND>\d+(\.\d{1,6})?)",
    ("HOUR", "MINUTE"): r"(?P<HOUR>\d+):(?P<MINUTE>\d+)",
    ("HOUR", "SECOND"): r"(?P<HOUR>\d+):(?P<MINUTE>\d+):(?P<SECOND>\d+(\.\d{1,6})?)",
    ("MINUTE", "SECOND"): r"(?P<MINUTE>\d+):(?P<SECOND>\d+(\.\d{1,6})?)",
}
_WHOLE_UNITS = {"QUARTER": "MONTH", "WEEK": "DAY", "MILLISECOND": "SECOND", "MICROSECOND": "SECOND"}
_ORDER = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_MOST_OF_PART = {"MONTH": 11, "HOUR": 23, "MINUTE": 59, "SECOND": 59}
_MOST_MICROS = FEW_DAYS * 86_400_000_000


def interval_of(node: exp.Expr) -> Interval | None:
    """A literal interval, or a sum of them as `INTERVAL 1 day 2 hours` is read; None for others.

    Raises NeedsSpark for an interval that is not translated.
    """
    if isinstance(node, exp.Add) and is_interval(node):
        left, right = interval_of(node.left), interval_of(node.right)
        if left is None or right is None:
            return None
        if bool(left.months) != bool(right.months):
            raise NeedsSpark(node.sql("spark"))
        units = sorted((*left.ends, *right.ends), key=_ORDER.index)
        return Interval(
            left.months + right.months,
            left.micros + right.micros,
            left.days and right.days,
            (units[0], units[-1]),
        )
    if not isinstance(node, exp.Interval):
        return None
    written, unit, sign = node.this, node.args.get("unit"), 1
    if isinstance(written, exp.Neg):
        written, sign = written.this, -1
    if not isinstance(written, exp.Literal) or unit is None:
        raise NeedsSpark(node.sql("spark"))
    value = str(written.this).strip()
    if value[:1] in "+-" and value:
        value, sign = value[1:], -sign if value[0] == "-" else sign
    if isinstance(unit, exp.IntervalSpan):
        pattern = _SPANS.get((unit.this.name.upper(), unit.expression.name.upper()))
        match = re.fullmatch(pattern, value) if pattern else None
        given = {} if match is None else match.groupdict()
        first = next(iter(given), "")
        if not given or any(
            Decimal(number) > _MOST_OF_PART[part] + (part == "SECOND")
            for part, number in given.items()
            if part != first
        ):
            raise NeedsSpark(node.sql("spark"))
    else:
        name = unit.name.upper()
        name = name[:-1] if name.endswith("S") else name
        if name not in _STEPS or not re.fullmatch(
            r"\d{1,9}(\.\d{1,6})?" if name == "SECOND" else r"\d{1,9}", value
        ):
            raise NeedsSpark(node.sql("spark"))
        given = {name: value}
    months = micros = 0
    for part, number in given.items():
        kind, count = _STEPS[part]
        months += int(number) * count * sign if kind == "months" else 0
        micros += int(Decimal(number) * count) * sign if kind == "micros" else 0
    days = {*given} <= {"DAY", "WEEK", "MONTH", "YEAR"}
    if abs(months) > FEW_DAYS or abs(micros) > _MOST_MICROS:
        raise NeedsSpark(node.sql("spark"))
    units = [_WHOLE_UNITS.get(part, part) for part in given]
    return Interval(months, micros, days, (units[0], units[-1]))


def is_interval(node: exp.Expr) -> bool:
    """Whether it is written as a literal interval."""
    if isinstance(node, exp.Add):
        return is_interval(node.left) and is_interval(node.right)
    return isinstance(node, exp.Interval)


def moved(value: Typed, by: Interval, back: bool = False) -> Typed:
    """A date or timestamp and an interval; a date becomes a timestamp by parts of a day."""
    sign = -1 if back else 1
    if value.type not in (DATE, TIMESTAMP):
        raise NeedsSpark(f"{spark_name(value.type)} and an interval")
    kind = value.type if by.days else TIMESTAMP
    given = cast(value, kind).sql
    span = f"to_months({sign * by.months})"
    if not by.months:
        span = f"to_microseconds({sign * by.micros})"
        if kind == DATE:
            return Typed(f"CAST({given} + {sign * by.micros // 86_400_000_000} AS DATE)", DATE)
    return typed_as(f"{given} + {span}", kind)


def part_of_interval(value: Typed, part: str) -> Typed:
    """`extract` of a literal interval."""
    interval = value.span
    assert isinstance(interval, Interval)
    months = interval.ends[0] in ("YEAR", "MONTH")
    sign = -1 if interval.months + interval.micros < 0 else 1
    micros = abs(interval.micros)
    values: dict[tuple[str, bool], tuple[int | Decimal, str]] = {
        ("YEAR", True): (abs(interval.months) // 12, "int"),
        ("MONTH", True): (abs(interval.months) % 12, "tinyint"),
        ("DAY", False): (micros // 86_400_000_000, "int"),
        ("HOUR", False): (micros // 3_600_000_000 % 24, "tinyint"),
        ("MINUTE", False): (micros // 60_000_000 % 60, "tinyint"),
        ("SECOND", False): (Decimal(micros % 60_000_000) / 1_000_000, ""),
    }
    first, last = map(_ORDER.index, interval.ends)
    if (part, months) not in values or not first <= _ORDER.index(part) <= last:
        raise NeedsSpark(f"the {part} of an interval")
    number, name = values[part, months]
    kind = HiveType(name) if name else decimal(8, 6)
    return typed_as(f"'{sign * number}'", kind)


def _months(a: str, b: str) -> str:
    """Whole months from one timestamp to another: days count, and then times of the day."""
    dates = [f"CAST({moment} AS DATE)" for moment in (a, b)]
    times = [f"(epoch_us({x}) - epoch_us(date_trunc('day', {x})))" for x in (a, b)]
    end = (
        f"CASE WHEN {dates[1]} > {dates[0]} AND {times[1]} < {times[0]} THEN {dates[1]} - 1"
        f" WHEN {dates[1]} < {dates[0]} AND {times[1]} > {times[0]} THEN {dates[1]} + 1"
        f" ELSE {dates[1]} END"
    )
    packed = (
        f"list_transform([CAST({day} AS DATE)],"
        " lambda d: (year(d) * 12 + month(d)) * 32 + day(d))[1]"
        for day in (end, dates[0])
    )
    return f"(({' - '.join(packed)}) // 32)"


_MONTHS_BETWEEN = _months("{0}", "{1}")

# --- parts of dates, and dates by their parts -----------------------------------------------------

# fmt: off
_FIELDS = {
    "YEAR Y YEARS YR YRS": ("int", "date", "year({0})"),
    "YEAROFWEEK": ("int", "date", "isoyear({0})"),
    "QUARTER QTR": ("int", "date", "quarter({0})"),
    "MONTH MON MONS MONTHS": ("int", "date", "month({0})"),
    "WEEK W WEEKS": ("int", "date", "week({0})"),
    "DAY D DAYS": ("int", "date", "day({0})"),
    "DAYOFWEEK DOW": ("int", "date", "dayofweek({0}) + 1"),
    "DAYOFWEEK_ISO DOW_ISO": ("int", "date", "isodow({0})"),
    "DOY": ("int", "date", "dayofyear({0})"),
    "HOUR H HOURS HR HRS": ("int", "timestamp", "hour({0})"),
    "MINUTE M MIN MINS MINUTES": ("int", "timestamp", "minute({0})"),
}
for _names, (_gives, _takes, _sql) in _FIELDS.items():
    _call = "|".join(f"extract {name}" for name in _names.split())
    add(f"{_call}({_takes})", _gives, _sql)
    add(f"{_call}(interval)", "", partial(part_of_interval, part=_names.partition(" ")[0]))
_SECONDS = "extract S|extract SEC|extract SECOND|extract SECONDS|extract SECS"
add(f"{_SECONDS}(timestamp)", "", lambda value: Typed(
    f"CAST(microsecond({value.sql}) * CAST('0.000001' AS DECIMAL(7,6)) AS DECIMAL(8,6))",
    decimal(8, 6)))
add(f"{_SECONDS}(interval)", "", partial(part_of_interval, part="SECOND"))
_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{name: name.lower() for name in (
        "QUARTER", "WEEK", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}
for _name in ("hour", "minute", "second"):
    add(f"{_name}(timestamp)", "int", f"{_name}({{0}})")
for _name, _sql in {
    "year": "year({0})", "quarter": "quarter({0})", "month": "month({0})",
    "weekofyear": "week({0})", "day|dayofmonth": "day({0})", "dayofweek": "dayofweek({0}) + 1",
    "dayofyear": "dayofyear({0})", "weekday": "isodow({0}) - 1",
}.items():
    add(f"{_name}(date)", "int", _sql)
add("last_day(date)", "date", "last_day({0})")
add("date_add|dateadd(date, int)", "date", shifted("{0} + {1}", "days"))
add("date_sub(date, int)", "date", shifted("{0} - {1}", "days"))
add("add_months(date, int)", "date", shifted("CAST({0} + to_months({1}) AS DATE)", "months"))
add("date_diff|datediff(date, date)", "int", "{0} - {1}")
add("date_from_unix_date(int)", "date",
    shifted("DATE '1970-01-01' + {0}", "days").replace("{1}", "{0}"))
add("unix_date(day)", "int", "{0} - DATE '1970-01-01'")
add("dayname(date)", "string", "strftime({0}, '%a')")
add("monthname(date)", "string", "strftime({0}, '%b')")
add("unix_seconds(moment)", "bigint", floored("epoch_us({0})", 1_000_000))
add("unix_millis(moment)", "bigint", floored("epoch_us({0})", 1000))
add("unix_micros(moment)", "bigint", "epoch_us({0})")
add("timestamp_seconds(integral)", "timestamp", moment_of(1_000_000))
add("timestamp_millis(integral)", "timestamp", moment_of(1000))
add("timestamp_micros(integral)", "timestamp", moment_of(1))
add("make_timestamp|try_make_timestamp(day)", "timestamp", "{0}")
for _unit, (_kind, _count) in {**_STEPS, "DAYOFYEAR": _STEPS["DAY"]}.items():
    _by = f"(CAST({{1}} AS HUGEINT) * {_count})".replace("{1}", "{0}")
    _most = FEW_DAYS if _kind == "months" else 100_000_000_000_000_000
    _span = f"to_{'months' if _kind == 'months' else 'microseconds'}(CAST({_by} AS BIGINT))"
    add(f"dateadd {_unit}|timestampadd {_unit}(int, timestamp)", "timestamp",
        f"CASE WHEN abs({_by}) > {_most} THEN {needs_spark('timestampadd by so much')}"
        f" ELSE {{1}} + {_span} END")
    if _unit != "DAYOFYEAR":  # which Spark refuses here
        add(f"datediff {_unit}|timestampdiff {_unit}(timestamp, timestamp)", "bigint",
            f"(epoch_us({{1}}) - epoch_us({{0}})) // {_count}" if _kind == "micros"
            else f"{_MONTHS_BETWEEN} // {_count}")
# fmt: on


@row("date_trunc(word, timestamp)", gives="timestamp")
def _truncated(unit: Typed, value: Typed) -> str:
    """NULL for another unit, as in Spark."""
    word = _UNITS.get(str(unit.literal).upper())
    return "NULL" if word is None else f"date_trunc('{word}', {value.sql})"


@row("trunc(date, word)", gives="date")
def _truncated_date(value: Typed, unit: Typed) -> str:
    word = _UNITS.get(str(unit.literal).upper())
    is_long = word in ("year", "quarter", "month", "week")
    return f"date_trunc('{word}', {value.sql})" if is_long else "NULL"


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


@row("next_day(date, word)", gives="date")
def _next_day(date: Typed, named: Typed) -> str:
    name = str(named.literal).upper()
    places = [i for i, day in enumerate(_WEEKDAYS, 1) if name in (day, day[:3], day[:2])]
    if not places:
        raise NeedsSpark(f"next_day to {name}")
    return f"{date.sql} + CAST((({places[0]} - isodow({date.sql}) + 6) % 7) + 1 AS INTEGER)"


@row(
    "months_between(timestamp, timestamp)", "months_between(timestamp, timestamp, flag)",
    gives="double",
)  # fmt: skip
def _months_between(later: Typed, earlier: Typed, rounds: Typed | None = None) -> str:
    a, b = later.sql, earlier.sql
    months = f"((year({a}) - year({b})) * 12 + month({a}) - month({b}))"
    ends = " AND ".join(f"day({x}) = day(last_day({x}))" for x in (a, b))
    within = (
        f"((day({a}) - day({b})) * 86400 + (hour({a}) - hour({b})) * 3600"
        f" + (minute({a}) - minute({b})) * 60 + second({a}) - second({b}))"
    )
    total = f"(CAST({months} AS DOUBLE) + CAST({within} AS DOUBLE) / 2678400::DOUBLE)"
    if rounds is None or rounds.sql == "true":
        total = f"(floor({total} * 1e8::DOUBLE + 0.5::DOUBLE) / 1e8::DOUBLE)"
    whole = f"day({a}) = day({b}) OR ({ends})"
    return f"CASE WHEN {whole} THEN CAST({months} AS DOUBLE) ELSE {total} END"


@row("timestamp_seconds(decimal)", gives="timestamp")
def _moment_of_decimal(value: Typed) -> str:
    precision, scale = value.type.sizes
    if scale > 6 or precision - scale > 12:
        raise NeedsSpark(f"timestamp_seconds of {spark_name(value.type)}")
    micros = f"CAST(CAST({value.sql} AS DECIMAL(24,6)) * 1000000::DECIMAL(7,0) AS BIGINT)"
    return f"make_timestamp({micros})"


_NO_DATE = "[DATETIME_FIELD_OUT_OF_BOUNDS] there is no such date or time"


def _made(*values: Typed, failing: bool = True) -> str:
    """`make_date`, or `make_timestamp` of six values; NULL instead of an error unless `failing`."""
    year, month, day, *times = (value.sql for value in values)
    failure, beyond = no_value(_NO_DATE), needs_spark("a date beyond the years 1 to 9999")
    failure = failure if failing else "NULL"
    cases = (
        f"WHEN {year} NOT BETWEEN 1 AND 9999 THEN {beyond}"
        f" WHEN {month} NOT BETWEEN 1 AND 12 OR {day} NOT BETWEEN 1 AND 31 THEN {failure}"
        f" WHEN {day} > day(last_day(make_date({year}, {month}, 1))) THEN {failure}"
    )
    made = f"make_date({year}, {month}, {day})"
    if times:
        hour, minute, second = *times[:2], f"CAST({times[2]} AS DECIMAL(38,6))"
        kind = values[5].type
        if kind.kind == "decimal" and (kind.sizes[1] > 6 or kind.sizes[0] - kind.sizes[1] > 10):
            raise NeedsSpark(f"a time with seconds of {spark_name(kind)}")
        too_many = needs_spark("more seconds than a decimal(16,6) has")
        cases = (
            f"WHEN abs(CAST({second} AS DECIMAL(38,6))) >= 10000000000 THEN {too_many} {cases}"
            f" WHEN {hour} NOT BETWEEN 0 AND 23 OR {minute} NOT BETWEEN 0 AND 59"
            f" OR {second} NOT BETWEEN 0 AND 60 THEN {failure}"
        )
        micros = (
            f"({hour} * 3600 + {minute} * 60)::BIGINT * 1000000"
            f" + CAST({second} * 1000000::DECIMAL(7,0) AS BIGINT)"
        )
        made = f"CAST({made} AS TIMESTAMP) + to_microseconds({micros})"
    return f"CASE {cases} ELSE {made} END"


add("make_date(int, int, int)", "date", _made, nulls="*")
for _seconds in ("decimal", "bigint"):
    _call = f"make_timestamp|make_timestamp_ltz(int, int, int, int, int, {_seconds})"
    add(_call, "timestamp", _made, nulls="*")
    _call = "|".join(f"try_{name}" for name in _call.split("|"))
    add(_call, "timestamp", partial(_made, failing=False), nulls="*")


# --- dates by a pattern --------------------------------------------------------------------------


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


def _read(value: Typed, pattern: Typed | None = None, failing: bool = True) -> str:
    given, written = value.sql, _DEFAULT if pattern is None else str(pattern.literal)
    matches, formats = _pattern(written)
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


_DEFAULT = "yyyy-MM-dd HH:mm:ss"


def _cast_text(value: Typed, failing: bool, kind: HiveType) -> Typed:
    found = cast(value, kind)
    return found if failing else replace(found, sql=without_errors(found.sql))


def _cast_moment(value: Typed, _: Typed | None = None, *, kind: HiveType) -> Typed:
    return cast(value, kind)


for _name, _type in (("date", DATE), ("timestamp", TIMESTAMP), ("timestamp_ltz", TIMESTAMP)):
    for _word in ("", "try_") if _name != "timestamp_ltz" else ("",):
        _call, _fails = f"{_word}to_{_name}", not _word
        add(f"{_call}(when)", "", partial(_cast_moment, kind=_type))
        add(f"{_call}(when, word)", "", partial(_cast_moment, kind=_type))
        add(f"{_call}(text)", "", partial(_cast_text, failing=_fails, kind=_type))
        add(f"{_call}(text, word)", str(_type), partial(_read, failing=_fails))


@row(
    "unix_timestamp|to_unix_timestamp(when)", "unix_timestamp|to_unix_timestamp(text)",
    "unix_timestamp|to_unix_timestamp(when, word)", "unix_timestamp|to_unix_timestamp(text, word)",
    gives="bigint",
)  # fmt: skip
def _seconds_of(value: Typed, pattern: Typed | None = None) -> str:
    told = value.type in (DATE, TIMESTAMP)
    read = cast(value, TIMESTAMP).sql if told else _read(value, pattern)
    return f"epoch_us({read}) // 1000000"


@row("from_unixtime(integral)", "from_unixtime(integral, word)", gives="string")
def _from_seconds(seconds: Typed, pattern: Typed | None = None) -> str:
    beyond = needs_spark("the text of a date beyond the years 1 to 9999")
    moment = f"make_timestamp(CAST({seconds.sql} AS BIGINT) * 1000000)"
    shown = formatted(moment, _DEFAULT if pattern is None else str(pattern.literal))
    limit = f"abs(CAST({seconds.sql} AS HUGEINT)) > 300000000000"
    return f"CASE WHEN {limit} THEN {beyond} ELSE {shown} END"


@row("date_format(timestamp, word)", gives="string")
def _formatted(value: Typed, pattern: Typed) -> str:
    return formatted(value.sql, str(pattern.literal))
