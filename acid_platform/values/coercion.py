"""What a column holds of a value of Python: all of it, or what Hive's CAST makes of it.

A value that can't be converted, or that the type can't hold, becomes NULL. Unlike Hive, a whole
number that is too large is not wrapped but NULL too.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

import numpy as np

from acid_platform.layout.names import moment_of_text
from acid_platform.layout.types import CHAR_TYPES, FLOATING, INTEGRAL, TEXTS, TIMESTAMPS, HiveType

_MOMENT = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d+))?)?)?",
    re.ASCII,
)
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_CERTAIN_DIGITS = 15
"""A decimal with so many digits is a double of its own, which every language prints as it is."""
_WHOLE = 1 << 53
"""Each whole number up to this one is a double of its own."""
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class Original:
    """A value as it was given, of a row that was converted."""

    given: str
    """As Python writes it, with its type: `'x' (str)`."""
    row: int
    """The number of the row, from 0."""
    stored: Mapping[str, object]
    """The row after the conversion, without nested columns."""


MOST_ORIGINALS = 10_000
"""So many originals of a column are kept."""


@dataclass(frozen=True, slots=True)
class Coerced:
    """How many values of a column a conversion changed, and the first of them as they were."""

    changed: int = 0
    """Rounded, cut, or without the time of their day."""
    nulled: int = 0
    """NULL now, as they could not be converted."""
    originals: tuple[Original, ...] = field(default=(), compare=False, repr=False)
    """At most `MOST_ORIGINALS`; none of values inside of a nested column."""

    def __add__(self, other: Coerced) -> Coerced:
        originals = (*self.originals, *other.originals)[:MOST_ORIGINALS]
        return Coerced(self.changed + other.changed, self.nulled + other.nulled, originals)

    def __str__(self) -> str:
        parts = [(self.changed, "changed"), (self.nulled, "became NULL")]
        return ", ".join(f"{count:,} {what}" for count, what in parts if count)


@dataclass(slots=True)
class Coercion:
    """Counts what a conversion of rows changes, by column and path: `amount`, `lines[].price`."""

    counts: dict[str, Coerced] = field(default_factory=dict)
    given: dict[str, dict[int, str]] = field(default_factory=dict)
    """By column and number of the row: what the first changed values were."""
    before: int = 0
    """So many rows come before those that are converted now."""

    def count(self, place: str, coerced: Coerced) -> None:
        self.counts[place] = self.counts.get(place, Coerced()) + coerced

    def keep(self, column: str, row: int, value: object) -> None:
        """Remembers a value of a row of those that are converted now, unless it is one of several
        of the row."""
        kept = self.given.setdefault(column, {})
        if len(kept) < MOST_ORIGINALS and "[" not in column:
            kept[self.before + row] = shown(value)


def shown(value: object) -> str:
    """A value as messages name it: in ASCII, at most 80 characters of it, with its type."""
    text = str(value) if isinstance(value, np.number) else ascii(value)
    return f"{text[:80]}{'…' if len(text) > 80 else ''} ({type(value).__name__})"


def description(counts: Mapping[str, Coerced]) -> str:
    """Such as `amount: 2 changed; day: 1 became NULL`."""
    return "; ".join(f"{column}: {coerced}" for column, coerced in counts.items())


class ValuesCoerced(UserWarning):
    """Says which values of which columns a write with `coerce=True` has changed."""


class NoCast(Exception):
    """No value of this kind is converted to that type."""


def cast(value: object, hive: HiveType) -> tuple[object, bool]:
    """What the type holds of a value of Python or NumPy, and whether that is all of it.

    None is NULL. The type is not nested. Raises NoCast.
    """
    if hive.kind == "decimal":
        return _decimal(value, *hive.sizes)
    if hive.kind in CHAR_TYPES:
        return cut(_text(value), hive)
    if hive.kind in INTEGRAL:
        return _whole(value, _BITS[hive.kind])
    if hive.kind in TIMESTAMPS:
        return _moment(value)
    return _CASTS[hive.kind](value)


_NUMBERS = (int, np.integer, float, np.floating, Decimal)
_TAKEN: dict[str, tuple[type, ...]] = {
    "boolean": (bool, np.bool_),
    **dict.fromkeys((*INTEGRAL, *FLOATING), _NUMBERS),
    "decimal": (*_NUMBERS, str),
    **dict.fromkeys(TEXTS, (str, bool, np.bool_, int, np.integer)),
    "binary": (bytes, bytearray, memoryview),
    **dict.fromkeys(("date", *TIMESTAMPS), (str, np.datetime64, datetime.date)),
}
"""The values that a column takes without being asked to convert them."""


def whole_value(value: object, hive: HiveType) -> object | None:
    """What a column of the type, which is not nested, holds of a value that it takes as it is; None
    for a value of another kind, and for one that would change.

    A text has to be written as the type writes its values. A CHAR or VARCHAR may be too long, which
    storing it tells. A moment is no day if it has a zone.
    """
    kind = hive.kind
    if not isinstance(value, _TAKEN[kind]) or (
        isinstance(value, bool | np.bool_) and kind not in ("boolean", *TEXTS)
    ):
        return None
    if kind in TEXTS:
        return plain_text(value)
    if isinstance(value, str):
        exact = NUMBER.fullmatch(value) if kind == "decimal" else moment_of_text(value)
        if exact is None:
            return None
    elif kind == "decimal" and isinstance(value, float | np.floating) and not _is_printed(value):
        return None
    stored, whole = cast(value, hive)
    return stored if whole else None


def cut(text: str, hive: HiveType) -> tuple[str, bool]:
    """As much of the text as a CHAR or VARCHAR holds; trailing blanks don't count."""
    length = hive.sizes[0]
    return text[:length], len(text.rstrip(" ")) <= length


# --- numbers --------------------------------------------------------------------------------------


def _number(value: object) -> Decimal | float | None:
    """A finite number as a Decimal, another one as a float; None for a text that is no number."""
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return Decimal(int(value))
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            return float(value)
        return Decimal(int(value) if _is_certain(value) else str(value))
    if isinstance(value, Decimal):
        return value if value.is_finite() else float(value)
    if isinstance(value, str):
        text = value.strip()
        return Decimal(text) if NUMBER.fullmatch(text) else _SPECIAL.get(text)
    raise NoCast


def _decimal(value: object, precision: int, scale: int) -> tuple[Decimal | None, bool]:
    number = _number(value)
    if not isinstance(number, Decimal):
        return None, False
    try:
        with localcontext(prec=76):
            rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:  # more than 76 digits
        return None, False
    if rounded.copy_abs() >= Decimal(10) ** (precision - scale):
        return None, False
    return rounded if rounded else rounded.copy_abs(), rounded == number


def _whole(value: object, bits: int) -> tuple[int | None, bool]:
    number = _number(value)
    if not isinstance(number, Decimal):
        return None, False
    if isinstance(value, float | np.floating) and value == int(value):
        number = Decimal(int(value))  # it is printed with fewer digits than it has
    whole, limit = int(number), 1 << bits - 1
    return (whole, whole == number) if -limit <= whole < limit else (None, False)


def _real(value: object) -> tuple[float | None, bool]:
    number = _number(value)
    if number is None:
        return None, False
    real = float(value) if isinstance(value, float | np.floating) else float(number)
    whole = isinstance(value, int | np.integer)
    exact = real == number if whole else not math.isinf(real) or isinstance(number, float)
    return real, exact


def _single(value: object) -> tuple[float | None, bool]:
    real, exact = _real(value)
    if real is None:
        return None, False
    with np.errstate(over="ignore"):
        single = float(np.float32(real))
    whole = isinstance(value, int | np.integer)
    same = single == real if whole else math.isinf(single) == math.isinf(real)
    return single, exact and same


def _boolean(value: object) -> tuple[bool | None, bool]:
    if isinstance(value, str):
        word = _WORDS.get(value.strip().lower())
        return word, word is not None
    number = _number(value)
    return (None, False) if number is None or number != number else (number != 0, number in (0, 1))


def _is_printed(value: float | np.floating) -> bool:
    """Whether the float is what it is printed as: it has at most 15 digits, or is a whole number.

    `12.1` is 12.1, although no float is exactly that; `0.1 + 0.2`, NaN and infinity are not.
    """
    if not math.isfinite(value):
        return False
    digits = Decimal(str(value)).normalize().as_tuple().digits
    return len(digits) <= _CERTAIN_DIGITS or _is_certain(value)


def _is_certain(value: float | np.floating) -> bool:
    """Whether it is a whole number, and small enough that each other one is another float."""
    return abs(float(value)) <= _WHOLE and float(value).is_integer()


# --- texts ----------------------------------------------------------------------------------------


def plain_text(value: object) -> str | None:
    """Texts, booleans and whole numbers as in SQL; None for anything else."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int | np.integer) else None


def _text(value: object) -> str:
    """As Hive writes the value."""
    if (text := plain_text(value)) is not None:
        return text
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, float | np.floating):
        return java_float(value)
    if isinstance(value, datetime.date | np.datetime64) and not getattr(value, "tzinfo", None):
        day = not isinstance(value, datetime.datetime | np.datetime64)
        moment, exact = _moment(value)
        if moment is not None and exact:
            text = moment.isoformat(" ")
            return text[:10] if day else text.rstrip("0") if "." in text else text
    raise NoCast


def java_float(value: float | np.floating) -> str:
    """A number as Java's Double.toString and Float.toString write it."""
    if value != value:
        return "NaN"
    if value in (math.inf, -math.inf):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(float(value)) < 1e7:
        return str(np.format_float_positional(value, unique=True, trim="0"))
    text = str(np.format_float_scientific(value, unique=True, trim="0", exp_digits=1))
    return text.replace("e+", "E").replace("e", "E")


def _string(value: object) -> tuple[str, bool]:
    return _text(value), True


def _binary(value: object) -> tuple[bytes, bool]:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), True
    if not isinstance(value, str):
        raise NoCast
    try:
        return value.encode(), True
    except UnicodeEncodeError:  # half of a character
        raise NoCast from None


# --- days and moments -----------------------------------------------------------------------------


def _moment(value: object) -> tuple[datetime.datetime | None, bool]:
    """Digits below a microsecond are left out, as tables of this platform hold none (P17)."""
    if isinstance(value, str):
        return _parsed(value.strip())
    if isinstance(value, np.datetime64):
        micros = value.astype("datetime64[us]")
        item = micros.item()
        if not isinstance(item, datetime.datetime):
            return None, False
        return item, bool(micros == value)
    if isinstance(value, datetime.datetime):
        below = bool(getattr(value, "nanosecond", 0))
        to_python = getattr(value, "to_pydatetime", None)
        return (value if to_python is None else to_python(warn=False)), not below
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time()), True
    raise NoCast  # of a number, nobody can tell the unit


def _parsed(text: str) -> tuple[datetime.datetime | None, bool]:
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        moment = moment_of_text(text)  # with a zone
        return moment, moment is not None
    *numbers, fraction = parts.groups()
    digits = (fraction or "").ljust(6, "0")
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, int(digits[:6]))
    except ValueError:  # such as the 30th of February
        return None, False
    return moment, not digits[6:].strip("0")


def _day(value: object) -> tuple[datetime.date | None, bool]:
    moment, exact = _moment(value)
    if moment is None:
        return None, False
    return moment.date(), exact and moment.tzinfo is None and moment.time() == datetime.time()


_CASTS: dict[str, Callable[[object], tuple[object, bool]]] = {
    "boolean": _boolean,
    "float": _single,
    "double": _real,
    "string": _string,
    "binary": _binary,
    "date": _day,
}
