"""Literal intervals, and dates that are moved by them or counted in units."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.dates import (
    FEW_DAYS,
    date_argument,
    parts_of_call,
    shifted,
)
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    DATE,
    INT,
    TIMESTAMP,
    TINYINT,
    decimal,
    duckdb_type,
    needs_spark,
    spark_name,
)
from acid_platform.engine.local.translation.signatures import (
    Construct,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator

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


def part_of(interval: Interval, part: str) -> Typed:
    """`extract` of a literal interval."""
    months = interval.ends[0] in ("YEAR", "MONTH")
    sign = -1 if interval.months + interval.micros < 0 else 1
    micros = abs(interval.micros)
    values: dict[tuple[str, bool], tuple[int | Decimal, HiveType]] = {
        ("YEAR", True): (abs(interval.months) // 12, INT),
        ("MONTH", True): (abs(interval.months) % 12, TINYINT),
        ("DAY", False): (micros // 86_400_000_000, INT),
        ("HOUR", False): (micros // 3_600_000_000 % 24, TINYINT),
        ("MINUTE", False): (micros // 60_000_000 % 60, TINYINT),
        ("SECOND", False): (Decimal(micros % 60_000_000) / 1_000_000, decimal(8, 6)),
    }
    first, last = map(_ORDER.index, interval.ends)
    if (part, months) not in values or not first <= _ORDER.index(part) <= last:
        raise NeedsSpark(f"the {part} of an interval")
    value, kind = values[part, months]
    return Typed(f"CAST('{sign * value}' AS {duckdb_type(kind)})", kind)


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
    return Typed(f"CAST({given} + {span} AS {duckdb_type(kind)})", kind)


def _unit(node: exp.Expr) -> tuple[str, str, int]:
    """The unit that a name without quotes is, and what it has."""
    name = node.name.upper() if isinstance(node, exp.Column | exp.Var) else ""
    name = "DAY" if name == "DAYOFYEAR" else name
    if name not in _STEPS or (isinstance(node, exp.Column) and len(node.parts) > 1):
        raise NeedsSpark(f"the unit {node.sql('spark')}")
    return name, *_STEPS[name]


def _added(translator: Translator, node: exp.Expr) -> Typed:
    """`timestampadd(unit, n, a)`, also as `dateadd` of three; `dateadd(a, n)` of two."""
    if len(node.expressions) == 2:
        left, right = (translator.value(part) for part in node.expressions)
        sql = shifted("{0} + {1}", "days")
        parts = date_argument(left, "date", node.name), date_argument(right, "int", node.name)
        return Typed(f"CAST({sql.format(*parts)} AS DATE)", DATE)
    unit, number, date = parts_of_call(node, 3)
    _, kind, count = _unit(unit)
    given = date_argument(translator.value(date), "timestamp", node.name)
    steps = date_argument(translator.value(number), "int", node.name)
    most = FEW_DAYS if kind == "months" else 100_000_000_000_000_000
    unsure = needs_spark(f"{node.name} by so much")
    by = f"(CAST({steps} AS HUGEINT) * {count})"
    span = f"to_{'months' if kind == 'months' else 'microseconds'}(CAST({by} AS BIGINT))"
    moved = f"CASE WHEN abs({by}) > {most} THEN {unsure} ELSE {given} + {span} END"
    return Typed(f"CAST({moved} AS TIMESTAMP)", TIMESTAMP)


def _between(translator: Translator, node: exp.Expr) -> Typed:
    """`timestampdiff(unit, a, b)`, also as `datediff` of three; `datediff(b, a)` of two."""
    if len(node.expressions) == 2:
        left, right = (translator.value(part) for part in node.expressions)
        days = (date_argument(value, "date", node.name) for value in (left, right))
        return Typed(f"CAST({' - '.join(days)} AS INTEGER)", INT)
    unit, first, last = parts_of_call(node, 3)
    _, kind, count = _unit(unit)
    a, b = (date_argument(translator.value(part), "timestamp", node.name) for part in (first, last))
    if kind == "micros":
        micros = f"(epoch_us({b}) - epoch_us({a}))"
        return Typed(f"CAST({micros} // {count} AS BIGINT)", BIGINT)
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
    whole = f"(({' - '.join(packed)}) // 32)"
    return Typed(f"CAST({whole} // {count} AS BIGINT)", BIGINT)


_CALLS: tuple[tuple[str, str, Callable[..., Typed]], ...] = (
    ("dateadd(unit, a, b)", "int and dates; also dateadd(b, a)", _added),
    ("timestampadd(unit, a, b)", "int and dates", _added),
    ("datediff(unit, a, b)", "dates; also datediff(b, a)", _between),
    ("timestampdiff(unit, a, b)", "dates", _between),
)
UNIT_CALLS = {
    shown.partition("(")[0]: Construct(shown, types, translate, ("this", "expressions"))
    for shown, types, translate in _CALLS
}
"""By the name of the function, which sqlglot leaves as it is written."""
