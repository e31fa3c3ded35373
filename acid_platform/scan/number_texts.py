"""Texts of numbers, dates and times as Hive's LazySimpleSerDe reads them; what it can't is NULL.

A text in the usual form is converted by Arrow; every other one becomes such a text first, or NULL.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial

import numpy as np
import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.layout.types import INTEGRAL, HiveType
from acid_platform.values.arrow_types import arrow_type, from_numpy, values_of

_BLANKS = "".join(map(chr, range(33)))
"""What Java's `trim` removes."""
_DIGITS = 19
"""The digits of the largest whole number."""
_WHOLE = re.compile(r"([+-]?)(\d*)(?:\.\d*)?", re.ASCII)
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?", re.ASCII)
_FLOAT = re.compile(
    r"([+-]?(?:NaN|Infinity|0[xX][\da-fA-F.]+[pP][+-]?\d+|[\d.]+(?:[eE][+-]?\d+)?))[fFdD]?",
    re.ASCII,
)
_DAY = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME = re.compile(r"(.{6,10}?)(?: +(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)


def typed_texts(texts: pa.StringArray, hive: HiveType) -> pa.Array:
    """The values of texts as a type without parts; NULL for NULL and for what is no such value.

    Texts of char and varchar are as they were written.
    """
    match hive.kind:
        case "boolean":
            lower = pc.utf8_lower(texts)
            known = pc.is_in(lower, pa.array(["true", "false"]))
            return pc.if_else(known, pc.equal(lower, "true"), pa.scalar(None, pa.bool_()))
        case kind if kind in INTEGRAL:
            return _whole(texts, hive)
        case "float" | "double":
            return _converted(texts, r"^-?\d{1,18}(\.\d{1,18})?$", _float, arrow_type(hive))
        case "decimal":
            precision, scale = hive.sizes
            point = rf"(\.\d{{1,{scale}}})?" if scale else ""
            usual = rf"^-?\d{{1,{max(precision - scale, 1)}}}{point}$"
            exact = partial(_decimal, precision=precision, scale=scale)
            if precision == scale:
                usual = "$^"
            return _converted(texts, usual, exact, arrow_type(hive))
        case "date":
            return _converted(texts, r"^\d{4}-\d{2}-\d{2}$", _date, pa.date32())
        case "timestamp":
            usual = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$"
            return _converted(texts, usual, _moment, pa.timestamp("us"))
    return texts


def _converted(
    texts: pa.StringArray, usual: str, spelled: Callable[[str], str | None], target: pa.DataType
) -> pa.Array:
    """The texts that match `usual` as Arrow reads them, the others as it reads what `spelled`
    makes of them."""
    others = pc.and_(pc.is_valid(texts), pc.invert(pc.match_substring_regex(texts, usual)))
    changed = _respelled(texts, pc.fill_null(others, False), spelled)
    try:
        return changed.cast(target)
    except pa.ArrowInvalid:  # such as 30 February, which has the usual form
        return _respelled(texts, pc.is_valid(texts), spelled).cast(target)


def _respelled(
    texts: pa.StringArray, chosen: pa.BooleanArray, spelled: Callable[[str], str | None]
) -> pa.StringArray:
    if not pc.any(chosen).as_py():
        return texts
    distinct = texts.filter(chosen).dictionary_encode()
    new = pa.array([spelled(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, chosen, new.take(distinct.indices))


def _whole(texts: pa.StringArray, hive: HiveType) -> pa.Array:
    """Whole numbers; a fraction is cut off. What is too large for the type is NULL."""
    numbers = _converted(texts, r"^-?\d{1,18}$", _integer, pa.int64())
    if hive.kind == "bigint":
        return numbers
    limit = 1 << arrow_type(hive).bit_width - 1
    values = values_of(numbers) if not numbers.null_count else values_of(pc.fill_null(numbers, 0))
    fits = (values >= -limit) & (values < limit)
    small = from_numpy(np.where(fits, values, 0).astype(arrow_type(hive).to_pandas_dtype()))
    return pc.if_else(pc.and_(from_numpy(fits), numbers.is_valid()), small, None)


def _integer(text: str) -> str | None:
    """No blanks: Hive trims the texts of other numbers, but not those of whole ones."""
    match = _WHOLE.fullmatch(text)
    if match is None or not any(map(str.isdigit, text)):
        return None
    digits = match[2].lstrip("0")
    if len(digits) > _DIGITS:
        return None
    value = int(match[1] + (digits or "0"))
    return str(value) if -(1 << 63) <= value < 1 << 63 else None


def _may_be_number(text: str) -> bool:
    """Hive's first look at a text: it takes no text of four that begins with N."""
    if len(text) < 3:
        return any("0" <= character <= "9" for character in text)
    return len(text.encode()) != 4 or text[0] not in "Nn"


def _float(text: str) -> str | None:
    """As Java's Double.parseDouble."""
    match = _FLOAT.fullmatch(text.strip(_BLANKS)) if _may_be_number(text) else None
    if match is None:
        return None
    body = match[1].lstrip("+")
    if body.lstrip("-")[:1] in ("N", "I"):
        return body.replace("NaN", "nan").replace("Infinity", "inf").replace("-nan", "nan")
    if "x" in body or "X" in body:
        try:
            return repr(float.fromhex(body))
        except (ValueError, OverflowError):
            return None
    return _plain_number(body)


def _plain_number(text: str) -> str | None:
    """A decimal number with digits on both sides of its point."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    sign = "-" if match[1] == "-" else ""
    return f"{sign}{match[2] or '0'}.{match[3] or '0'}e{match[4] or '0'}"


def _decimal(text: str, precision: int, scale: int) -> str | None:
    """Rounded to the scale, half up; NULL if it has more digits than the type."""
    number = _plain_number(text.strip(_BLANKS)) if _may_be_number(text) else None
    if number is None or abs(int(number.partition("e")[2])) > 1000:
        return None
    with localcontext(prec=len(number) + 2000):
        value = Decimal(number).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return f"{value:f}" if abs(value) < Decimal(10) ** (precision - scale) else None


def _day(text: str) -> datetime.date | None:
    match = _DAY.fullmatch(text)
    try:
        return datetime.date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def _date(text: str) -> str | None:
    """A day, perhaps with a time after it, which is left out."""
    day = _day(re.split("[ T]", text.strip(_BLANKS), maxsplit=1)[0]) if len(text) >= 8 else None
    return day.isoformat() if day else None


def _moment(text: str) -> str | None:
    """A day, perhaps with a time; digits below a microsecond are cut off."""
    match = _TIME.fullmatch(text.strip(_BLANKS)) if len(text) >= 8 else None
    day = _day(match[1]) if match else None
    if match is None or day is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[1:4])
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = (match[5] or "").ljust(6, "0")[:6]
    return f"{day.isoformat()} {hour:02}:{minute:02}:{second:02}.{fraction}"
