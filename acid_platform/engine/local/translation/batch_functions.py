"""Functions of Spark that DuckDB lacks, in Python: one value for the values of a row.

DuckDB calls them for rows whose arguments are no NULL, and for these gives NULL. A text in an error
begins as in duckdb_sql.py. Java's rules are those of the methods that Spark calls.
"""

from __future__ import annotations

import math
import re
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import duckdb
from duckdb.func import FunctionNullHandling


@dataclass(frozen=True, slots=True)
class _Batch:
    compute: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str
    nulls: bool


_F = TypeVar("_F", bound=Callable[..., Any])
BATCHES: dict[str, _Batch] = {}
"""By the name in DuckDB's SQL."""


def batch_of(takes: str, gives: str, name: str = "", nulls: bool = False) -> Callable[[_F], _F]:
    """Registers a function; `nulls`: whether it is called with NULLs, too."""

    def register(compute: _F) -> _F:
        kinds = tuple(takes.split(", "))
        BATCHES[f"acid_{name or compute.__name__.strip('_')}"] = _Batch(
            compute, kinds, gives, nulls
        )
        return compute

    return register


class _Failed(ValueError):
    """An error whose text begins as in duckdb_sql.py."""


def _guarded(name: str, batch: _Batch) -> Callable[..., Any]:
    """NULL for a NULL, which DuckDB's own way of that takes for an error; Spark for a failure."""

    @wraps(batch.compute)
    def computed(*values: Any) -> Any:
        if not batch.nulls and None in values:
            return None
        try:
            return batch.compute(*values)
        except _Failed:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise needs_spark_error(f"{name}, which failed: {error!r}") from error

    return computed


_ADDED: WeakKeyDictionary[duckdb.DuckDBPyConnection, set[str]] = WeakKeyDictionary()
_ADDING = threading.Lock()


def add_functions(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Makes functions known to all connections of this database: each takes milliseconds, once."""
    from acid_platform.engine.local.translation import batch_documents, batch_hashes  # noqa: F401

    with _ADDING:
        added = _ADDED.setdefault(connection, set())
        for name in BATCHES.keys() & {*names} - added:
            batch = BATCHES[name]
            connection.create_function(
                name,
                _guarded(name, batch),
                [*batch.takes],
                batch.gives,
                null_handling=FunctionNullHandling.SPECIAL,
            )
            added.add(name)


def needs_spark_error(what: str) -> ValueError:
    return _Failed(f"[NEEDS_SPARK] {what}")


def _no_value(what: str) -> ValueError:
    return _Failed(f"[NO_VALUE] {what}")


# --- text -----------------------------------------------------------------------------------------


@batch_of("VARCHAR", "VARCHAR")
def _reversed_text(text: str) -> str:
    return text[::-1]


@batch_of("VARCHAR, BIGINT, BIGINT", "VARCHAR")
@batch_of("BLOB, BIGINT, BIGINT", "BLOB", "substring_bytes")
def _substring(text: Any, position: int, length: int) -> Any:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + length
    return text[max(0, start) : max(0, end)]


@batch_of("VARCHAR, VARCHAR, BIGINT, BIGINT", "VARCHAR")
@batch_of("BLOB, BLOB, BIGINT, BIGINT", "BLOB", "overlay_bytes")
def _overlay(text: Any, new: Any, position: int, length: int) -> Any:
    length = length if length >= 0 else len(new)
    before = _substring(text, 1, position - 1)
    return before + new + _substring(text, position + length, 1 << 31)


@batch_of("VARCHAR, VARCHAR, BIGINT", "VARCHAR")
def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    if count > 0:
        position = -1
        for _ in range(count):
            position = text.find(delimiter, position + 1)
            if position < 0:
                return text
        return text[:position]
    position = len(text) + 1 - len(delimiter)
    for _ in range(-count):
        position = text.rfind(delimiter, 0, position - 1 + len(delimiter)) if position > 0 else -1
        if position < 0:
            return text
    return text[position + len(delimiter) :]


@batch_of("VARCHAR, VARCHAR, BIGINT", "VARCHAR")
def _split_part(text: str, delimiter: str, part: int) -> str:
    if part == 0:
        raise _no_value("[INVALID_INDEX_OF_ZERO] the part 0 of split_part")
    parts = text.split(delimiter) if delimiter else [text]
    index = part - 1 if part > 0 else len(parts) + part
    return parts[index] if 0 <= index < len(parts) else ""


@batch_of("VARCHAR, VARCHAR", "INTEGER")
def _levenshtein(text: str, other: str) -> int:
    if len(text) * len(other) > 10_000_000:
        raise needs_spark_error("levenshtein of long texts")
    before = list(range(len(other) + 1))
    for i, a in enumerate(text, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
        before = row
    return before[-1]


_SOUNDEX = "01230127022455012623017202"


@batch_of("VARCHAR", "VARCHAR")
def _soundex(text: str) -> str:
    if not text:
        return text
    if not text.isascii():
        raise needs_spark_error("soundex of a text with other letters than A to Z")
    first = text[0].upper()
    if not "A" <= first <= "Z":
        return text
    code, last = [first], _SOUNDEX[ord(first) - 65]
    for char in text[1:].upper():
        if not "A" <= char <= "Z":
            last = "0"
            continue
        digit = _SOUNDEX[ord(char) - 65]
        if digit == "7":
            continue
        if digit not in ("0", last):
            code.append(digit)
            if len(code) > 3:
                break
        last = digit
    return "".join(code).ljust(4, "0")


@batch_of("VARCHAR", "BOOLEAN")
def _luhn_check(text: str) -> bool:
    if not text or not all("0" <= char <= "9" for char in text):
        return False
    digits = [int(char) for char in reversed(text)]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


@batch_of("VARCHAR, VARCHAR, VARCHAR, VARCHAR, VARCHAR", "VARCHAR", nulls=True)
def _mask(
    text: str | None, upper: str | None, lower: str | None, digit: str | None, other: str | None
) -> str | None:
    if text is None:
        return None
    if not text.isascii():
        raise needs_spark_error("mask of a text with other characters than those of ASCII")

    def masked(char: str) -> str:
        by = upper if char.isupper() else lower if char.islower() else other
        by = digit if char.isdigit() else by
        return char if by is None else by

    return "".join(map(masked, text))


@batch_of("VARCHAR", "VARCHAR")
def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


@batch_of("VARCHAR", "VARCHAR")
def _initcap(text: str) -> str:
    if re.fullmatch("[A-Za-z ]*", text) is None:  # where words begin is a matter of ICU
        raise needs_spark_error("initcap of a text with more than letters of ASCII and blanks")
    return " ".join(word[:1].upper() + word[1:] for word in text.lower().split(" "))


@batch_of("VARCHAR, VARCHAR, BIGINT, BIGINT", "INTEGER")
def _instr(text: str, part: str, start: int, occurrence: int) -> int:
    if not part or not start or occurrence < 1:
        raise needs_spark_error("instr with an empty text, position or occurrence")
    if start > 0:
        position = start - 2
        for _ in range(occurrence):
            position = text.find(part, position + 1)
            if position < 0:
                return 0
        return position + 1
    end = len(text) + start + len(part)
    position = 0
    for _ in range(occurrence):
        position = text.rfind(part, 0, max(0, end))
        if position < 0:
            return 0
        end = position + len(part) - 1
    return position + 1


# --- numbers and text -----------------------------------------------------------------------------


@batch_of("DOUBLE, BIGINT", "VARCHAR", "format_double")
@batch_of("DECIMAL(38,18), BIGINT", "VARCHAR", "format_decimal")
def _format_number(value: Any, digits: int) -> str | None:
    if digits < 0:
        return None
    if digits > 300:
        raise needs_spark_error("format_number with so many digits")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    exact = Decimal(value)
    if isinstance(value, float):  # Java has the shortest digits, and rounds by the exact number
        shortest = Decimal(repr(value))
        exponent = shortest.as_tuple().exponent
        if isinstance(exponent, int) and -exponent <= digits:
            exact = shortest
    with localcontext(prec=400, rounding=ROUND_HALF_EVEN):
        return format(exact, f",.{digits}f")


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@batch_of("VARCHAR, BIGINT, BIGINT", "VARCHAR")
def _conv(text: str, base: int, to: int) -> str | None:
    if not (2 <= base <= 36 and 2 <= abs(to) <= 36):
        return None
    text = text.strip(" ")
    if not text:
        return None
    negative = text.startswith("-")
    value = 0
    for char in text[negative:].upper():
        digit = _DIGITS.find(char)
        if not 0 <= digit < base:
            break
        value = value * base + digit
        if value >= 1 << 64:
            raise needs_spark_error("conv of a number beyond 64 bits")
    if negative and to > 0:
        if value >= 1 << 63:
            raise needs_spark_error("conv of a negative number beyond 63 bits")
        value = -value & ((1 << 64) - 1)
    sign = ""
    if to < 0:
        if value >= 1 << 63:
            raise needs_spark_error("conv of a number beyond 63 bits to a signed one")
        sign = "-" if negative else ""
    digits = ""
    while True:
        value, rest = divmod(value, abs(to))
        digits = _DIGITS[rest] + digits
        if not value:
            return sign + digits


@batch_of("DOUBLE, BIGINT", "DOUBLE")
def _round_double(value: float, digits: int) -> float:
    return _rounded(value, digits, ROUND_HALF_UP)


@batch_of("DOUBLE, BIGINT", "DOUBLE")
def _bround_double(value: float, digits: int) -> float:
    return _rounded(value, digits, ROUND_HALF_EVEN)


def _rounded(value: float, digits: int, rounding: str) -> float:
    if not math.isfinite(value):
        return value
    if not -400 < digits < 400:
        raise needs_spark_error("round to so many digits")
    with localcontext(prec=800, rounding=rounding):
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits))) + 0.0


@batch_of("BIGINT, BIGINT, BIGINT", "BIGINT")
def _round_whole(value: int, digits: int, even: int) -> int:
    if digits >= 0:
        return value
    unit = int(10 ** min(-digits, 40))
    whole, rest = divmod(abs(value), unit)
    up = 2 * rest > unit or (2 * rest == unit and (not even or whole % 2 == 1))
    result = (whole + up) * unit * (1 if value >= 0 else -1)
    if not -(1 << 63) <= result < 1 << 63:
        raise _Failed("[WRONG_TYPE] [ARITHMETIC_OVERFLOW] overflow")
    return result


def _with_high(value: float, high: int, low: int | None = None) -> float:
    """The number with these upper 32 bits, and those lower ones or its own."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] & 0xFFFFFFFF
    whole = high << 32 | (bits if low is None else low)
    return float(struct.unpack("<d", struct.pack("<Q", whole))[0])


def _high(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0] >> 32)


@batch_of("DOUBLE", "DOUBLE")
def _cbrt(value: float) -> float:
    """Java's, which is fdlibm's: that of C may differ in the last bit."""
    if not math.isfinite(value) or value == 0:
        return value
    x = abs(value)
    if x < 2.2250738585072014e-308:
        t = _with_high(0.0, _high(2.0**54 * x) // 3 + 696219795)
    else:
        t = _with_high(0.0, _high(x) // 3 + 715094163)
    r = t * t / x
    s = 19 / 35 + r * t
    t *= 5 / 14 + 45 / 28 / (s + 99 / 70 + -864 / 1225 / s)
    t = _with_high(t, _high(t) + 1, 0)
    r = x / (t * t)
    t += t * ((r - t) / (t + t + r))
    return math.copysign(t, value)


@batch_of("DOUBLE, DOUBLE", "DOUBLE")
def _pow(value: float, power: float) -> float:
    """A whole number to a whole power, if a double holds the result: all of that is exact."""
    if power == 0:
        return 1.0
    whole = value.is_integer() and power.is_integer() and 0 <= power <= 1023
    if not whole or abs(value) > 1 << 53 or value == 0:
        raise needs_spark_error("a power that C and Java may round differently")
    result = int(value) ** int(power)
    if abs(result) > 1 << 53:
        raise needs_spark_error("a power that C and Java may round differently")
    return float(result)


@batch_of("DOUBLE, DOUBLE", "DOUBLE")
def _hypot(a: float, b: float) -> float:
    """The hypotenuse of whole numbers, if it is a whole number."""
    if not (a.is_integer() and b.is_integer() and abs(a) < 1e15 and abs(b) < 1e15):
        raise needs_spark_error("a hypotenuse that C and Java may round differently")
    squares = int(a) ** 2 + int(b) ** 2
    if math.isqrt(squares) ** 2 != squares:
        raise needs_spark_error("a hypotenuse that C and Java may round differently")
    return float(math.isqrt(squares))


@batch_of("DOUBLE, DOUBLE, DOUBLE, BIGINT", "BIGINT")
def _width_bucket(value: float, low: float, high: float, count: int) -> int | None:
    if (
        count <= 0
        or count == (1 << 63) - 1
        or math.isnan(value)
        or low == high
        or not (math.isfinite(low) and math.isfinite(high))
    ):
        return None
    if low < high:
        if value < low:
            return 0
        return count + 1 if value >= high else int(count * (value - low) / (high - low)) + 1
    if value > low:
        return 0
    return count + 1 if value <= high else int(count * (low - value) / (low - high)) + 1
