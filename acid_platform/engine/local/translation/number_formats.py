"""`to_number` and `to_char`: numbers by a pattern of digits.

Only texts that have exactly the digits of their pattern, and numbers that fill it, are computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BINARY,
    DATE,
    STRING,
    TIMESTAMP,
    as_decimal,
    decimal,
    duckdb_type,
    needs_spark,
    spark_name,
)
from acid_platform.engine.local.translation.text_patterns import formatted
from acid_platform.errors import NeedsSpark

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


_OF_BINARY = {
    "base64": "acid_base64_text({})",
    "hex": "hex({})",
    "utf-8": "acid_decode({}, 'UTF-8')",
}


def as_text(value: Typed, pattern: Typed) -> Typed:
    """`to_char` and `to_varchar` of numbers, dates and binary values."""
    written, kind = str(pattern.literal), value.type
    if kind in (DATE, TIMESTAMP):
        return Typed(f"({formatted(cast(value, TIMESTAMP).sql, written)})", STRING)
    if kind == BINARY:
        calls = {
            "base64": "acid_base64_text({})",
            "hex": "hex({})",
            "utf-8": "acid_decode({}, 'UTF-8')",
        }
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
