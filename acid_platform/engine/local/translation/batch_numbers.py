"""As batch_functions.py: numbers, vectors, bits, bytes and hashes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import struct
import zlib
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from acid_platform.engine.local.translation.batch_functions import (
    BATCHES,
    FailedBatch,
    batch_of,
    needs_spark_error,
)

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
        raise FailedBatch("[WRONG_TYPE] [ARITHMETIC_OVERFLOW] overflow")
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


# --- vectors --------------------------------------------------------------------------------------


def _whole(*vectors: list[float]) -> None:
    """Raises unless all sums of products are exact: in which order Spark adds them is unknown."""
    first = vectors[0]
    for vector in vectors:
        if len(vector) != len(first) or not vector:
            raise needs_spark_error("vectors that are empty or not of one length")
        if not all(x is not None and abs(x) < 2048 and x == int(x) for x in vector):
            raise needs_spark_error("vectors of anything but small whole numbers")
    if sum(max(abs(x) for x in each) ** 2 for each in zip(*vectors, strict=True)) * 4 >= 1 << 24:
        raise needs_spark_error("vectors of many numbers")


@batch_of("FLOAT[], FLOAT[]", "FLOAT")
def _vector_product(a: list[float], b: list[float]) -> float:
    _whole(a, b)
    return sum((x * y for x, y in zip(a, b, strict=True)), 0.0)


@batch_of("FLOAT[], FLOAT[]", "FLOAT")
def _vector_distance(a: list[float], b: list[float]) -> float:
    _whole(a, b)
    return float(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5)


@batch_of("FLOAT[], FLOAT", "FLOAT")
def _vector_norm(vector: list[float], degree: float) -> float:
    _whole(vector)
    if degree not in (1, 2, float("inf")):
        raise needs_spark_error("a norm of another degree than 1, 2 and infinity")
    if degree == 2:
        return float(sum(x * x for x in vector) ** 0.5)
    return float(sum(map(abs, vector)) if degree == 1 else max(map(abs, vector)))


@batch_of("FLOAT[], FLOAT", "FLOAT[]")
def _vector_normalized(vector: list[float], degree: float) -> list[float]:
    norm = _vector_norm(vector, degree)
    if norm == 0 or norm != int(norm):
        raise needs_spark_error("a vector whose norm is no whole number")
    return [x / norm for x in vector]


# --- bits and bytes -------------------------------------------------------------------------------

_MOST = 1 << 20
"""Bytes of a value that a length asks for; more may take the memory of this process."""


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _shifts(bits: int, kind: str) -> None:
    for name, shift in {
        "left": lambda value, by: _signed(value << (by % bits), bits),
        "right": lambda value, by: value >> (by % bits),
        "unsigned": lambda value, by: _signed((value & ((1 << bits) - 1)) >> (by % bits), bits),
    }.items():
        batch_of(f"{kind}, INTEGER", kind, f"shift{name}_{bits}")(shift)


_shifts(32, "INTEGER")
_shifts(64, "BIGINT")


@batch_of("VARCHAR", "BLOB")
def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex("0" * (len(text) % 2) + text) if text.isalnum() or not text else None
    except ValueError:
        return None


@batch_of("BLOB", "VARCHAR")
def _base32_text(value: bytes) -> str:
    return base64.b32encode(value).decode()


@batch_of("VARCHAR", "BLOB")
def _unbase32(text: str) -> bytes:
    try:
        return base64.b32decode(text)
    except ValueError:
        raise needs_spark_error("from_base32 of a text that is not strictly in base 32") from None


@batch_of("VARCHAR", "BLOB")
def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise needs_spark_error("unbase64 of a text that is not strictly in base 64") from None


@batch_of("BLOB", "BIGINT")
def _crc32(value: bytes) -> int:
    return zlib.crc32(value)


@batch_of("BLOB, INTEGER", "VARCHAR")
def _sha2(value: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, value).hexdigest()


@batch_of("BLOB, BLOB, VARCHAR", "BLOB")
def _hmac_of(key: bytes, value: bytes, algorithm: str) -> bytes:
    name = {"SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512",
            "SHA-1": "sha1"}.get(algorithm)  # fmt: skip
    if name is None or not key:
        raise needs_spark_error(f"hmac by {algorithm}")
    return hmac.new(key, value, name).digest()


_CHARSETS = {"UTF-8": "utf-8", "US-ASCII": "ascii", "ISO-8859-1": "latin-1",
             "UTF-16BE": "utf-16-be", "UTF-16LE": "utf-16-le"}  # fmt: skip


@batch_of("VARCHAR, VARCHAR", "BLOB")
def _encode(text: str, charset: str) -> bytes:
    try:
        return text.encode(_CHARSETS[charset.upper()])
    except (KeyError, UnicodeError):
        raise needs_spark_error(f"encode of this text in {charset}") from None


@batch_of("BLOB, VARCHAR", "VARCHAR")
def _decode(value: bytes, charset: str) -> str:
    try:
        return value.decode(_CHARSETS[charset.upper()])
    except (KeyError, UnicodeError):
        raise needs_spark_error(f"decode of these bytes from {charset}") from None


@batch_of("BLOB", "BOOLEAN")
def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeError:
        return False
    return True


@batch_of("BLOB", "VARCHAR")
def _valid_utf8(value: bytes) -> str:
    return value.decode(errors="replace")


def _padded(value: bytes, length: int, pad: bytes) -> bytes:
    if length > _MOST:
        raise needs_spark_error("a pad to so many bytes")
    missing = max(0, length - len(value))
    return (pad * (missing // len(pad) + 1))[:missing] if pad else b""


@batch_of("BLOB, BIGINT, BLOB", "BLOB")
def _lpad_bytes(value: bytes, length: int, pad: bytes) -> bytes:
    return (_padded(value, length, pad) + value) if length > len(value) else value[: max(0, length)]


@batch_of("BLOB, BIGINT, BLOB", "BLOB")
def _rpad_bytes(value: bytes, length: int, pad: bytes) -> bytes:
    return (value + _padded(value, length, pad)) if length > len(value) else value[: max(0, length)]


# --- hashes ---------------------------------------------------------------------------------------

_32, _64 = (1 << 32) - 1, (1 << 64) - 1


def _mixed(hash_: int, word: int) -> int:
    word = (word & _32) * 0xCC9E2D51 & _32
    word = (word << 15 | word >> 17) & _32
    hash_ ^= word * 0x1B873593 & _32
    hash_ = (hash_ << 13 | hash_ >> 19) & _32
    return (hash_ * 5 + 0xE6546B64) & _32


def _finished(hash_: int, length: int) -> int:
    hash_ ^= length
    hash_ = (hash_ ^ hash_ >> 16) * 0x85EBCA6B & _32
    hash_ = (hash_ ^ hash_ >> 13) * 0xC2B2AE35 & _32
    return _signed(hash_ ^ hash_ >> 16, 32)


@batch_of("INTEGER, INTEGER", "INTEGER", nulls=True)
def _hash_int(value: int | None, seed: int) -> int:
    return seed if value is None else _finished(_mixed(seed & _32, value), 4)


@batch_of("BIGINT, INTEGER", "INTEGER", nulls=True)
def _hash_long(value: int | None, seed: int) -> int:
    if value is None:
        return seed
    return _finished(_mixed(_mixed(seed & _32, value), value >> 32), 8)


@batch_of("BLOB, INTEGER", "INTEGER", nulls=True)
def _hash_bytes(value: bytes | None, seed: int) -> int:
    if value is None:
        return seed
    hash_, whole = seed & _32, len(value) // 4 * 4
    for (word,) in struct.iter_unpack("<I", value[:whole]):
        hash_ = _mixed(hash_, word)
    for byte in struct.unpack(f"{len(value) - whole}b", value[whole:]):
        hash_ = _mixed(hash_, byte)
    return _finished(hash_, len(value))


def _of_lists(compute: Callable[..., int]) -> None:
    """The hash of an array is that of one element after another."""

    def folded(values: list[Any] | None, seed: int) -> int:
        for value in values or ():
            seed = compute(value, seed)
        return seed

    name = compute.__name__.strip("_")
    kind, gives = BATCHES[f"acid_{name}"].takes
    batch_of(f"{kind}[], {gives}", gives, f"{name}s", nulls=True)(folded)


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _left(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _64


def _ended(hash_: int) -> int:
    hash_ = (hash_ ^ hash_ >> 33) * _P2 & _64
    hash_ = (hash_ ^ hash_ >> 29) * _P3 & _64
    return _signed(hash_ ^ hash_ >> 32, 64)


def _with_long(hash_: int, value: int) -> int:
    hash_ ^= _left((value & _64) * _P2 & _64, 31) * _P1 & _64
    return (_left(hash_, 27) * _P1 + _P4) & _64


def _with_int(hash_: int, value: int) -> int:
    hash_ ^= (value & _32) * _P1 & _64
    return (_left(hash_, 23) * _P2 + _P3) & _64


@batch_of("INTEGER, BIGINT", "BIGINT", nulls=True)
def _xx_int(value: int | None, seed: int) -> int:
    return seed if value is None else _ended(_with_int((seed + _P5 + 4) & _64, value))


@batch_of("BIGINT, BIGINT", "BIGINT", nulls=True)
def _xx_long(value: int | None, seed: int) -> int:
    return seed if value is None else _ended(_with_long((seed + _P5 + 8) & _64, value))


@batch_of("BLOB, BIGINT", "BIGINT", nulls=True)
def _xx_bytes(value: bytes | None, seed: int) -> int:
    if value is None:
        return seed
    size, position = len(value), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while position <= size - 32:
            for lane, word in enumerate(struct.unpack_from("<4Q", value, position)):
                lanes[lane] = _left((lanes[lane] + word * _P2) & _64, 31) * _P1 & _64
            position += 32
        hash_ = sum(_left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _64
        for lane in lanes:
            hash_ ^= _left(lane * _P2 & _64, 31) * _P1 & _64
            hash_ = (hash_ * _P1 + _P4) & _64
    else:
        hash_ = (seed + _P5) & _64
    hash_ = (hash_ + size) & _64
    while position <= size - 8:
        hash_ = _with_long(hash_, struct.unpack_from("<Q", value, position)[0])
        position += 8
    if position <= size - 4:
        hash_ = _with_int(hash_, struct.unpack_from("<I", value, position)[0])
        position += 4
    for byte in value[position:]:
        hash_ = _left(hash_ ^ byte * _P5 & _64, 11) * _P1 & _64
    return _ended(hash_)


for _compute in (_hash_int, _hash_long, _hash_bytes, _xx_int, _xx_long, _xx_bytes):
    _of_lists(_compute)
