"""Values in files of text: JSON of other people within bounds (P65), and numbers, dates and times
as Hive's LazySimpleSerDe reads them.

JSON is one object a line, or one array of objects. A number, date or time in the usual form is
converted by Arrow; every other one becomes such a text first, or NULL if Hive can't read it.
"""

from __future__ import annotations

import datetime
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa

from acid_platform.base.file_bounds import LONGEST_ROW
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.layout.types import INTEGRAL, HiveType
from acid_platform.values.arrow_types import arrow_type, from_numpy, values_of
from acid_platform.values.stored_values import FineTime

_HALF = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
_BLOCK = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
Row = tuple[int, dict[str, Any], int]
"""The line in which an object begins, the object, and the letters that it takes."""


class RepeatedName(ValueError):
    """An object has two values of one name."""


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises RepeatedName."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedName(f"an object has two values of the name {twice[:100]!r}; keep one")
    return found


_DECODER = json.JSONDecoder(parse_float=Decimal)
_STRICT = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object_of)
"""For files that become rows of a table: no value is left out."""


def parsed(text: str) -> Any:
    """The value of a text; a number with a point or an exponent is a Decimal, as it is written.

    Raises ValueError, also for values nested too deeply, numbers of thousands of digits, and half a
    character, such as `"\\ud800"`.
    """
    return _parsed(text, _DECODER)


def _parsed(text: str, decoder: json.JSONDecoder) -> Any:
    value, end = _value_at(text, _blanks_end(text, 0), decoder)
    if (end := _blanks_end(text, end)) < len(text):
        raise ValueError(f"{text[end : end + 40]!r} follows the value")
    return value


def _value_at(text: str, at: int, decoder: json.JSONDecoder) -> tuple[Any, int]:
    try:
        value, end = decoder.raw_decode(text, at)
        if _HALF.search(text, at, end):
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (json.JSONDecodeError, RepeatedName):
        raise
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is half a character") from error
    except InvalidOperation as error:
        raise ValueError("a number has an exponent that no type holds") from error
    except ValueError as error:
        raise ValueError("a number has thousands of digits, which no type holds") from error
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    return value, end


def _blanks_end(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def rows(file: IO[bytes]) -> Iterator[Row]:
    """The objects of a file in UTF-8, of which little is held in memory.

    Raises ValueError, which names the line.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", newline="\n")
    line = 0
    try:
        while written := text.readline(LONGEST_ROW + 1):
            line += 1
            if len(written) > LONGEST_ROW:
                raise _too_long()
            if not written.strip():
                continue
            if written.lstrip().startswith("["):
                yield from _Array(text, written, line).rows()
                return
            yield line, _object(_parsed(written, _STRICT)), len(written)
    except UnicodeDecodeError as error:
        raise ValueError(f"after line {line}: it is not UTF-8: {error.reason}") from error
    except ValueError as error:
        if str(error).startswith("line "):
            raise
        raise ValueError(f"line {line}: {error}") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{json.dumps(value, default=str)[:40]} is no object")
    return value


def _too_long() -> ValueError:
    return ValueError(f"it has no end within {LONGEST_ROW >> 20} MB, the most that a row may have")


class _Array:
    """An array of objects, read a block at a time."""

    def __init__(self, text: IO[str], begun: str, line: int) -> None:
        self._text, self._held, self._line = text, begun, line
        self._at = begun.index("[") + 1

    def rows(self) -> Iterator[Row]:
        try:
            first = True
            while not self._skipped("]"):
                if not first and not self._skipped(","):
                    raise ValueError("a comma or ] should follow the object")
                self._skipped("")
                value, size = self._value()
                yield self._line, _object(value), size
                first = False
            if not self._skipped("") or self._more():
                raise ValueError("more follows the array")
        except ValueError as error:
            raise ValueError(f"line {self._line}: {error}") from error

    def _skipped(self, sign: str) -> bool:
        """Whether this sign comes next, which is passed over with the blanks before it; for none,
        whether nothing comes."""
        while (end := _blanks_end(self._held, self._at)) == len(self._held):
            self._move(end)
            if not self._more():
                return not sign
        self._move(end)
        if sign and self._held[end] == sign:
            self._move(end + 1)
            return True
        return False

    def _value(self) -> tuple[Any, int]:
        while True:
            try:
                value, end = _value_at(self._held, self._at, _STRICT)
            except RepeatedName:
                raise
            except ValueError:
                if not self._more():
                    raise
                continue
            size = end - self._at
            self._move(end)
            return value, size

    def _move(self, at: int) -> None:
        self._line += self._held.count("\n", self._at, at)
        self._at = at

    def _more(self) -> bool:
        """Reads on; the held text doubles, so that little of it is parsed more than twice."""
        left = len(self._held) - self._at
        if left > LONGEST_ROW:
            raise _too_long()
        block = self._text.read(max(_BLOCK, left))
        self._held, self._at = self._held[self._at :] + block, 0
        return bool(block)


_BLANKS_OF_NUMBERS = "".join(map(chr, range(33)))
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

    Texts of char and varchar are as they were written. Raises FineTime.
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
    match = _FLOAT.fullmatch(text.strip(_BLANKS_OF_NUMBERS)) if _may_be_number(text) else None
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
    number = _plain_number(text.strip(_BLANKS_OF_NUMBERS)) if _may_be_number(text) else None
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
    day = (
        _day(re.split("[ T]", text.strip(_BLANKS_OF_NUMBERS), maxsplit=1)[0])
        if len(text) >= 8
        else None
    )
    return day.isoformat() if day else None


def _moment(text: str) -> str | None:
    """A day, perhaps with a time. Raises FineTime."""
    match = _TIME.fullmatch(text.strip(_BLANKS_OF_NUMBERS)) if len(text) >= 8 else None
    day = _day(match[1]) if match else None
    if match is None or day is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[1:4])
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction, finer = (match[5] or "").ljust(6, "0")[:6], (match[5] or "")[6:]
    if finer.strip("0"):
        raise FineTime(f"{text!r} has nanoseconds")
    return f"{day.isoformat()} {hour:02}:{minute:02}:{second:02}.{fraction}"
