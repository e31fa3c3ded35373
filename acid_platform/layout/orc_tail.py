"""The tail of a finished ORC file: user metadata added, column types declared (spark.md section 4).

An ORC footer is a protobuf message, so appending serialised `UserMetadataItem`s (field 5) behind
it, as one more uncompressed chunk, gives a valid longer footer; the postscript is rewritten with
the new length. Spark's and Arrow's writers have no option for these keys.

Nor do they write CHAR and VARCHAR, and Spark no TIMESTAMP WITH LOCAL TIME ZONE. Their values are
stored exactly as those of STRING, and of TIMESTAMP in UTC (P17); only the footer tells them apart,
so a file gets them by a new footer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from acid_platform.errors import CorruptFile
from acid_platform.layout.types import LOCAL_ZONE, Column, HiveType

TAIL_BYTES = 1 << 14
"""Enough of a file's end: the postscript is at most 255 bytes."""

_FOOTER_LENGTH = 1
_COMPRESSION = 2
_BLOCK_SIZE = 3
_TYPES = 4
_USER_METADATA = 5
_CALENDAR = 11
_PROLEPTIC = 2
_MAGIC = b"ORC"
_DEFAULT_BLOCK = 1 << 18

_TAIL_FOOTER = 2
_SUBTYPES = 2
_KIND = 1
_LENGTH = 4
_DECLARED = {"varchar": 16, "char": 17, LOCAL_ZONE: 18}
_WRITTEN = {7: ("varchar", "char"), 9: (LOCAL_ZONE,), 18: (LOCAL_ZONE,)}
"""ORC's numbers of STRING, TIMESTAMP and TIMESTAMP_INSTANT, and what each may be declared as."""


@dataclass(frozen=True, slots=True)
class NewTail:
    """Cut `drop` bytes off the end of the file, then append `append`."""

    drop: int
    append: bytes


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message: a varint's `value`, or the `payload` of what has a length."""

    number: int
    value: int
    payload: bytes
    raw: bytes
    """With its key."""


def _fields(message: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        value, payload = 0, b""
        if key & 7 == 0:
            value, at = _read_varint(message, at)
        elif key & 7 == 2:
            length, at = _read_varint(message, at)
            payload = message[at:at + length]
            at += length
        else:
            raise ValueError(f"wire type {key & 7}")
        yield _Field(key >> 3, value, payload, message[start:at])


def _delimited(field: int, payload: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(payload)) + payload


def _chunks(content: bytes, block: int) -> bytes:
    """Chunks of a compressed stream that are stored as they are: length, and the bit saying so."""
    parts = (content[at:at + block] for at in range(0, len(content), block))
    return b"".join((len(one) << 1 | 1).to_bytes(3, "little") + one for one in parts)


def is_proleptic(file_tail: bytes) -> bool:
    """Whether days before 15 October 1582 are Gregorian ones too; else they are Julian.

    `file_tail`: the file's decompressed tail, ORC's message FileTail.
    """
    footer = next(one.payload for one in _fields(file_tail) if one.number == _TAIL_FOOTER)
    return any(one.number == _CALENDAR and one.value == _PROLEPTIC for one in _fields(footer))


def has_declared(columns: Sequence[Column]) -> bool:
    """Whether a type of theirs has to be declared in the footer."""
    return any(one.kind in _DECLARED for column in columns for one in column.type.walk())


def declared_footer(
    file_tail: bytes, columns: Sequence[Column], acid: bool, path: str
) -> bytes:
    """The footer of a file of these columns, with their CHAR, VARCHAR and instants declared.

    `file_tail`: the file's decompressed tail, ORC's message FileTail. `acid`: the columns are those
    of the struct `row`. Raises CorruptFile when the file does not have the columns.
    """
    try:
        footer = next(one.payload for one in _fields(file_tail) if one.number == _TAIL_FOOTER)
        fields = list(_fields(footer))
        types = [one.payload for one in fields if one.number == _TYPES]
        row = _subtypes(types[0])[-1] if acid else 0
        wanted: dict[int, HiveType] = {}
        for number, column in zip(_subtypes(types[row]), columns, strict=True):
            wanted.update(_leaves(types, number, column.type))
    except (IndexError, ValueError, StopIteration) as error:
        raise CorruptFile(f"{path} does not have the columns that were written: {error}; run the"
                          " statement again") from error
    numbers = iter(range(len(types)))
    return b"".join(
        _delimited(_TYPES, _declaration(wanted[number]))
        if one.number == _TYPES and (number := next(numbers)) in wanted else one.raw
        for one in fields)


def _subtypes(message: bytes) -> list[int]:
    packed = b"".join(one.payload for one in _fields(message) if one.number == _SUBTYPES)
    found, at = [], 0
    while at < len(packed):
        number, at = _read_varint(packed, at)
        found.append(number)
    return found


def _leaves(types: Sequence[bytes], number: int, hive: HiveType) -> Iterator[tuple[int, HiveType]]:
    """The column numbers at and below `number` whose types have to be declared."""
    if hive.kind in _DECLARED:
        kind = next((one.value for one in _fields(types[number]) if one.number == _KIND), 0)
        if hive.kind not in _WRITTEN.get(kind, ()):
            raise ValueError(f"column {number} of kind {kind} can't be declared as {hive}")
        yield number, hive
    for child, (_, type_of_child) in zip(_subtypes(types[number]), hive.children, strict=True):
        yield from _leaves(types, child, type_of_child)


def _declaration(hive: HiveType) -> bytes:
    kind = _varint(_KIND << 3) + _varint(_DECLARED[hive.kind])
    return kind + b"".join(_varint(_LENGTH << 3) + _varint(size) for size in hive.sizes)


def with_user_metadata(
    tail: bytes, items: Mapping[str, bytes], path: str, footer: bytes | None = None
) -> NewTail:
    """The change that adds `items` to the file whose last bytes are `tail`.

    With `footer`, decompressed, this one replaces the file's. `path` is for the error text. Raises
    CorruptFile when the tail is not an ORC postscript.
    """
    length = tail[-1] if tail else 0
    postscript = tail[-1 - length:-1]
    if length < 4 or len(postscript) < length or not postscript.endswith(_MAGIC):
        raise CorruptFile(f"{path} does not end in an ORC postscript; was its writer killed?")
    try:
        fields = list(_fields(postscript))
    except (IndexError, ValueError) as error:
        raise CorruptFile(f"{path} has an unreadable ORC postscript: {error}") from error
    found = {one.number: one.value for one in fields}
    extra = (footer or b"") + b"".join(
        _delimited(_USER_METADATA, _delimited(1, key.encode()) + _delimited(2, value))
        for key, value in items.items()
    )
    if found.get(_COMPRESSION):
        extra = _chunks(extra, found.get(_BLOCK_SIZE) or _DEFAULT_BLOCK)
    kept = 0 if footer is not None else found.get(_FOOTER_LENGTH, 0)
    replaced = found.get(_FOOTER_LENGTH, 0) - kept
    renewed = b"".join(
        _varint(_FOOTER_LENGTH << 3) + _varint(kept + len(extra))
        if one.number == _FOOTER_LENGTH else one.raw
        for one in fields
    )
    return NewTail(replaced + 1 + length, extra + renewed + bytes([len(renewed)]))
