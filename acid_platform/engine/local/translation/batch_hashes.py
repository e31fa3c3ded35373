"""As batch_functions.py: bits, bytes and hashes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable
from typing import Any

from acid_platform.engine.local.translation.batch_functions import batch_of, needs_spark_error

_MOST = 1 << 20
"""Bytes of a value that a length asks for; more may take the memory of this process."""


# --- bits and bytes -------------------------------------------------------------------------------


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


@batch_of("BLOB", "BLOB")
def _reversed_bytes(value: bytes) -> bytes:
    return value[::-1]


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


def _of_lists(kind: str, gives: str, name: str, compute: Callable[..., int]) -> None:
    """The hash of an array is that of one element after another."""

    def folded(values: list[Any] | None, seed: int) -> int:
        for value in values or ():
            seed = compute(value, seed)
        return seed

    batch_of(f"{kind}[], {gives}", gives, f"{name}s", nulls=True)(folded)


for _kind, _name, _compute in (
    ("INTEGER", "hash_int", _hash_int),
    ("BIGINT", "hash_long", _hash_long),
    ("BLOB", "hash_bytes", _hash_bytes),
):
    _of_lists(_kind, "INTEGER", _name, _compute)

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


for _kind, _name, _compute in (
    ("INTEGER", "xx_int", _xx_int),
    ("BIGINT", "xx_long", _xx_long),
    ("BLOB", "xx_bytes", _xx_bytes),
):
    _of_lists(_kind, "BIGINT", _name, _compute)
