"""The tail of an ORC file: its postscript and footer, and another footer for a finished file (F8).

The writers of Spark and Arrow can't write CHAR and VARCHAR, and Spark can't write TIMESTAMP WITH
LOCAL TIME ZONE. Values of these types are stored like STRING, and like TIMESTAMP in UTC; only the
footer distinguishes them, so a new footer is enough.

An update is a delete event and an insert event of the same statement. The file of the insert events
of a bucket has the inserted rows first and then the updated ones, in the order of their old keys,
which is the order of the delete events. The footer marks the delete events of updates, and so the
marks also say which row became which.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from acid_platform.base.file_bounds import (
    LARGEST_FOOTER,
    LARGEST_PIECE,
    LONGEST_ROW,
    MOST_NESTED,
    MOST_PARTS,
    MOST_REPEATED,
    MOST_UNPACKED,
)
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.orc import protobuf
from acid_platform.formats.orc.protobuf import delimited, read_varint, unpacked
from acid_platform.layout.types import LOCAL_ZONE, Column, HiveType

TAIL_BYTES = 1 << 14
"""Bytes to read from the end of a file, more than the postscript's 255."""

_LARGEST_BLOCK = 1 << 23
"""Bytes of a chunk; its head has no room for more."""
MAGIC = b"ORC"
_DEFAULT_BLOCK = 1 << 18
_ZLIB, _SNAPPY, _LZ4, _ZSTD = 1, 2, 4, 5
"""ORC's codecs without LZO, which Arrow does not read."""

# Field numbers of the messages that are edited here.
_TAIL_FOOTER = 2
STRIPES, TYPES, USER_METADATA, ROWS, STATISTICS = range(3, 8)
_WRITER, _CALENDAR, _VERSION = 9, 11, 12
_CPP = 1
_PROLEPTIC = 2
KIND, SUBTYPES, _LENGTH, _PRECISION, _SCALE = 1, 2, 4, 5, 6
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE, _METADATA_LENGTH = 1, 2, 3, 5
_POSTSCRIPT = {*range(1, 8), 8000}
"""All fields of a postscript."""

KINDS = {
    "boolean": 0,
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "bigint": 4,
    "float": 5,
    "double": 6,
    "string": 7,
    "binary": 8,
    "timestamp": 9,
    "array": 10,
    "map": 11,
    "struct": 12,
    "decimal": 14,
    "date": 15,
    "varchar": 16,
    "char": 17,
    LOCAL_ZONE: 18,
}
"""ORC's number of each kind of type."""
_DECLARED = ("varchar", "char", LOCAL_ZONE)
_WRITTEN = {
    KINDS["string"]: ("varchar", "char"),
    KINDS["timestamp"]: (LOCAL_ZONE,),
    KINDS[LOCAL_ZONE]: (LOCAL_ZONE,),
}
"""The types that a column of each kind may be declared as."""


@dataclass(frozen=True, slots=True)
class Postscript:
    """The PostScript message at the end of an ORC file, which describes the parts before it."""

    fields: tuple[protobuf.Field, ...]
    size: int
    """Length in bytes, including the final length byte."""

    @classmethod
    def read(cls, stream: pa.NativeFile, size: int, path: str) -> tuple[Postscript, bytes]:
        """The postscript of a file of so many bytes, and its last bytes. Raises CorruptFile."""
        stream.seek(max(0, size - TAIL_BYTES))
        tail = bytes(stream.read(min(size, TAIL_BYTES)))
        length = tail[-1] if tail else 0
        content = tail[-1 - length : -1]
        read: tuple[protobuf.Field, ...] = ()
        with suppress(IndexError, ValueError):
            read = tuple(protobuf.fields(content))
        if not content.endswith(MAGIC):  # Hive 0.11 wrote the magic at the beginning only
            stream.seek(0)
            known = {field.number for field in read} <= _POSTSCRIPT
            if bytes(stream.read(len(MAGIC))) != MAGIC or not known:
                read = ()
        if not read or len(content) < length:
            raise CorruptFile(
                f"{path} does not end in an ORC postscript at byte {size}; was its writer killed?"
                " Restore it or drop its transaction"
            )
        return cls(read, length + 1), tail

    def _value(self, number: int) -> int:
        return next((field.value for field in self.fields if field.number == number), 0)

    @property
    def compression(self) -> int:
        """ORC's codec number; 0: uncompressed."""
        return self._value(_COMPRESSION)

    @property
    def footer_length(self) -> int:
        return self._value(_FOOTER_LENGTH)

    def opened(self, content: bytes, path: str) -> bytes:
        """What chunks in the file's codec hold, the reverse of `chunks`. Raises CorruptFile."""
        if self._value(_BLOCK_SIZE) > _LARGEST_BLOCK:
            most = self._value(_BLOCK_SIZE)
            raise CorruptFile(f"{path} has ORC chunks of up to {most:,} bytes")
        parts, opened = [], 0
        try:
            for part in self.blocks(content):
                parts.append(part)
                opened += len(part)
                if opened > LARGEST_FOOTER:
                    raise ValueError(f"it has more than {LARGEST_FOOTER:,} bytes")
        except (ValueError, IndexError, OSError, zlib.error) as error:
            raise CorruptFile(f"{path} has an ORC footer that can't be opened: {error}") from error
        return b"".join(parts)

    def blocks(self, content: bytes) -> Iterator[bytes]:
        """What chunks in the file's codec hold, one after another. Raises ValueError, IndexError,
        OSError, zlib.error."""
        if not self.compression:
            yield content
            return
        at, most = 0, min(self._value(_BLOCK_SIZE) or _DEFAULT_BLOCK, _LARGEST_BLOCK)
        while at < len(content):
            head = int.from_bytes(content[at : at + 3], "little")
            chunk = content[at + 3 : at + 3 + (head >> 1)]
            at += 3 + (head >> 1)
            yield chunk if head & 1 else _inflated(self.compression, chunk, most)

    def chunks(self, content: bytes) -> bytes:
        """The content in the file's codec: chunks with headers, deflated or stored."""
        if not self.compression:
            return content
        block = self._value(_BLOCK_SIZE) or _DEFAULT_BLOCK
        parts = (content[at : at + block] for at in range(0, len(content), block))
        return b"".join(_chunk(part, self.compression) for part in parts)

    def renewed(self, footer: int, metadata: int | None = None) -> bytes:
        """The postscript bytes of a file whose footer, and perhaps metadata, have these lengths."""
        lengths = {_FOOTER_LENGTH: footer}
        if metadata is not None:
            lengths[_METADATA_LENGTH] = metadata
        content = b"".join(
            protobuf.number(field.number, lengths[field.number])
            if field.number in lengths
            else field.raw
            for field in self.fields
        )
        return content + bytes([len(content)])


def _inflated(codec: int, chunk: bytes, most: int) -> bytes:
    """A chunk of up to `most` bytes. Raises ValueError, OSError, IndexError, zlib.error."""
    if codec == _ZLIB:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(chunk, most)
    if codec == _ZSTD:
        with pa.input_stream(pa.py_buffer(chunk), compression="zstd") as stream:
            return bytes(stream.read(most))
    if codec in (_SNAPPY, _LZ4):
        # Arrow makes room for as many bytes as the chunk says that it holds.
        size = lz4_size(chunk) if codec == _LZ4 else read_varint(chunk, 0)[0]
        if size > most:
            raise ValueError(f"a chunk of {size:,} bytes, and at most {most:,} are declared")
        return bytes(pa.Codec("lz4_raw" if codec == _LZ4 else "snappy").decompress(chunk, size))
    raise ValueError(f"codec {codec} is not known")


def lz4_size(block: bytes) -> int:
    """How many bytes a raw block of LZ4 holds. Raises IndexError for one that is cut off."""
    at = size = 0

    def run(first: int) -> int:
        nonlocal at
        count = first
        while first == 15:
            more = block[at]
            at, count = at + 1, count + more
            first = 15 if more == 255 else 0
        return count

    while at < len(block):
        token, at = block[at], at + 1
        literals = run(token >> 4)
        at, size = at + literals, size + literals
        if at < len(block):  # the last sequence has no match
            at += 2
            size += 4 + run(token & 15)
    return size


def _chunk(content: bytes, compression: int) -> bytes:
    """A chunk with its header, whose lowest bit says that the chunk is stored uncompressed."""
    if compression == _ZLIB:
        deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        small = deflater.compress(content) + deflater.flush()
        if len(small) < len(content):
            return (len(small) << 1).to_bytes(3, "little") + small
    return (len(content) << 1 | 1).to_bytes(3, "little") + content


def require_shallow(footer: bytes, path: str) -> None:
    """Raises CorruptFile for types that are nested deeper than MOST_NESTED, or in a circle: Arrow
    follows them until its stack ends, and with it the process. Raises UnsupportedLayout for a file
    of values that are no rows.

    The footer may be followed by zeros.
    """
    depths: list[int] = []
    try:
        if any(number == MOST_PARTS for number, _ in enumerate(protobuf.fields(footer))):
            raise ValueError(f"it has more than {MOST_PARTS:,} parts")
        types = [field.payload for field in protobuf.fields(footer) if field.number == TYPES]
        for number, content in enumerate(types):
            depths += [0] * (number + 1 - len(depths))
            if len(content) > LONGEST_ROW:
                raise ValueError(f"type {number} takes {len(content):,} bytes")
            for child in unpacked(content, SUBTYPES):
                if not number < child < len(types):
                    raise ValueError(f"type {number} has the part {child}")
                depths += [0] * (child + 1 - len(depths))
                depths[child] = depths[number] + 1
            if depths[number] > MOST_NESTED:
                raise ValueError(f"types are nested deeper than {MOST_NESTED} levels")
    except (IndexError, ValueError) as error:
        raise CorruptFile(f"{path} has an ORC footer that can't be read: {error}") from error
    kinds = {number: kind for kind, number in KINDS.items()}
    if types and (kind := kinds.get(value_of(types[0], KIND), "a union")) != "struct":
        raise UnsupportedLayout(
            f"{path} is an ORC file of {kind} values, and a table has rows with columns; write it"
            " again as a struct"
        )


def value_of(message: bytes, field: int) -> int:
    """The first number of a field, or 0. Raises UnreadableMessage."""
    return next((part.value for part in protobuf.fields(message) if part.number == field), 0)


def _is_old_decimal(kind: bytes) -> bool:
    # Most types are no decimals, and are not parsed for it; a longer varint of 14 begins with 142.
    if KINDS["decimal"] not in kind and KINDS["decimal"] | 128 not in kind:
        return False
    return value_of(kind, KIND) == KINDS["decimal"] and not value_of(kind, _PRECISION)


def has_old_decimals(footer: bytes) -> bool:
    """Whether it has decimals without a precision, as Hive 0.11 wrote them: each value has a scale
    of its own."""
    types = (field.payload for field in protobuf.fields(footer) if field.number == TYPES)
    return any(map(_is_old_decimal, types))


def with_scale(footer: bytes, scale: int) -> bytes:
    """The footer, in which decimals without a precision have 38 digits and this scale."""
    declared = protobuf.number(_PRECISION, 38) + protobuf.number(_SCALE, scale)
    return b"".join(
        delimited(TYPES, protobuf.number(KIND, KINDS["decimal"]) + declared)
        if field.number == TYPES and _is_old_decimal(field.payload)
        else field.raw
        for field in protobuf.fields(footer)
    )


def require_bounds(footer: bytes, size: int, path: str) -> None:
    """Raises CorruptFile for a stripe that is not in a file of so many bytes, or has far more rows
    than it takes bytes there."""
    try:
        every = list(stripes(footer))
        columns = sum(field.number == TYPES for field in protobuf.fields(footer))
    except ValueError as error:
        raise CorruptFile(f"{path} has an ORC footer that can't be read: {error}") from error
    for index, stripe in enumerate(every):
        if stripe.offset + stripe.stored > size:
            raise CorruptFile(
                f"{path}: its footer says that stripe {index} ends at byte"
                f" {stripe.offset + stripe.stored:,}, and it has {size:,}; restore it"
            )
        if stripe.rows > MOST_REPEATED * stripe.stored:
            raise stripe.too_large(index, 8 * stripe.rows * columns, path)


@dataclass(frozen=True, slots=True)
class Stripe:
    """A stripe by its first byte and the lengths of its parts in bytes."""

    offset: int
    index: int
    data: int
    footer: int
    rows: int

    @property
    def footer_offset(self) -> int:
        return self.offset + self.index + self.data

    @property
    def stored(self) -> int:
        """Its bytes in the file."""
        return self.index + self.data + self.footer

    def unpacks_to_much(self, size: int) -> bool:
        """Whether values of so many bytes are far more than it has."""
        return size > max(MOST_UNPACKED * self.stored, LARGEST_PIECE)

    def too_large(self, number: int, size: int, path: str) -> CorruptFile:
        """The error for the stripe of this number, whose values would take so many bytes."""
        return CorruptFile(
            f"{path}: stripe {number} takes {self.stored:,} bytes, and its values would take"
            f" {size >> 20:,} MB; write it again with smaller stripes"
        )


def stripes(footer: bytes) -> Iterator[Stripe]:
    """The stripes that a file's footer names, which most writers put before all that is long.

    Raises UnreadableMessage.
    """
    for field in protobuf.fields(footer):
        if field.number == STRIPES:
            values = {part.number: part.value for part in protobuf.fields(field.payload)}
            yield Stripe(*(values.get(key, 0) for key in range(1, 6)))


def is_ours(footer: bytes) -> bool:
    """Whether this platform wrote the file: with the id of ORC's C++ writer, but no version of it.

    Its timestamps are in UTC.
    """
    values = {field.number: field.value for field in protobuf.fields(footer)}
    return values.get(_WRITER) == _CPP and _VERSION not in values


def footer_of(file_tail: bytes) -> bytes:
    """The Footer message in a decompressed FileTail message."""
    return next(
        field.payload for field in protobuf.fields(file_tail) if field.number == _TAIL_FOOTER
    )


def is_proleptic(footer: bytes) -> bool:
    """Whether the footer says that days before 15 October 1582 are Gregorian, not Julian."""
    return any(
        field.number == _CALENDAR and field.value == _PROLEPTIC for field in protobuf.fields(footer)
    )


def has_declared(columns: Sequence[Column]) -> bool:
    """Whether a column has a type that must be declared in the footer."""
    return any(part.kind in _DECLARED for column in columns for part in column.type.walk())


def declared_footer(footer: bytes, columns: Sequence[Column], path: str) -> bytes:
    """The footer with CHAR, VARCHAR and TIMESTAMP WITH LOCAL TIME ZONE columns declared.

    Raises CorruptFile if the file does not have these columns.
    """
    try:
        footer_fields = list(protobuf.fields(footer))
        types = [field.payload for field in footer_fields if field.number == TYPES]
        declared: dict[int, HiveType] = {}
        for number, column in zip(unpacked(types[0], SUBTYPES), columns, strict=True):
            declared.update(_leaves(types, number, column.type))
    except (IndexError, ValueError) as error:
        raise CorruptFile(
            f"{path} does not have the expected columns: {error}; run the statement again"
        ) from error
    numbers = iter(range(len(types)))
    return b"".join(
        delimited(TYPES, _declaration(declared[number]))
        if field.number == TYPES and (number := next(numbers)) in declared
        else field.raw
        for field in footer_fields
    )


def _leaves(types: Sequence[bytes], number: int, hive: HiveType) -> Iterator[tuple[int, HiveType]]:
    """The numbers of the columns at and below `number` whose types must be declared."""
    if hive.kind in _DECLARED:
        kind = value_of(types[number], KIND)
        if hive.kind not in _WRITTEN.get(kind, ()):
            raise ValueError(f"column {number} of kind {kind} can't be declared as {hive}")
        yield number, hive
    below = unpacked(types[number], SUBTYPES)
    for child, (_, type_of_child) in zip(below, hive.children, strict=True):
        yield from _leaves(types, child, type_of_child)


def _declaration(hive: HiveType) -> bytes:
    kind = protobuf.number(KIND, KINDS[hive.kind])
    return kind + b"".join(protobuf.number(_LENGTH, size) for size in hive.sizes)


def user_metadata_fields(items: Mapping[str, bytes]) -> bytes:
    """User metadata as serialised fields, to append to a footer."""
    return b"".join(
        delimited(USER_METADATA, delimited(1, key.encode()) + delimited(2, value))
        for key, value in items.items()
    )


_ALL, _NONE = b"all", b"none"


def write_updates(updated: np.ndarray) -> bytes:
    """The text for the footer; `updated` is a mask (n,) of all delete events of the file."""
    if updated.all():
        return _ALL
    if not updated.any():
        return _NONE
    return base64.b64encode(zlib.compress(np.packbits(updated).tobytes()))


def read_updates(text: bytes | None, rows: int, path: str) -> np.ndarray:
    """The mask (rows,); False for all events if the writer told nothing. Raises CorruptFile."""
    if text is None or text == _NONE:
        return np.zeros(rows, bool)
    if text == _ALL:
        return np.ones(rows, bool)
    try:
        packed = np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), np.uint8)
        if len(packed) != (rows + 7) // 8:
            raise ValueError(f"{len(packed)} bytes for {rows} events")
    except (ValueError, zlib.error) as error:
        raise CorruptFile(
            f"{path}: the footer does not tell which events are updates: {error}; restore it"
        ) from error
    return np.unpackbits(packed, count=rows).astype(bool)
