"""The tail of a finished ORC file: user metadata added, column types declared (F8).

An ORC footer is a protobuf message, so appending serialised `UserMetadataItem`s (field 5) behind
it, as one more uncompressed chunk, gives a valid longer footer; the postscript is rewritten with
the new length. Spark's and Arrow's writers have no option for these keys.

Nor do they write CHAR and VARCHAR, and Spark no TIMESTAMP WITH LOCAL TIME ZONE. Their values are
stored exactly as those of STRING, and of TIMESTAMP in UTC (P17); only the footer tells them apart,
so a file gets them by a new footer.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from acid_platform.errors import CorruptFile
from acid_platform.layout import protobuf
from acid_platform.layout.protobuf import delimited, unpacked
from acid_platform.layout.types import LOCAL_ZONE, Column, HiveType

TAIL_BYTES = 1 << 14
"""Enough of a file's end: the postscript is at most 255 bytes."""

_MAGIC = b"ORC"
_DEFAULT_BLOCK = 1 << 18
_ZLIB = 1

# Fields of the messages that are touched here.
_TAIL_FOOTER = 2
TYPES, _USER_METADATA, _CALENDAR = 4, 5, 11
_PROLEPTIC = 2
KIND, SUBTYPES, _LENGTH = 1, 2, 4
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE, _METADATA_LENGTH = 1, 2, 3, 5

_DECLARED = {"varchar": 16, "char": 17, LOCAL_ZONE: 18}
_WRITTEN = {7: ("varchar", "char"), 9: (LOCAL_ZONE,), 18: (LOCAL_ZONE,)}
"""ORC's numbers of STRING, TIMESTAMP and TIMESTAMP_INSTANT, and what each may be declared as."""


@dataclass(frozen=True, slots=True)
class NewTail:
    """Cut `drop` bytes off the end of the file, then append `append`."""

    drop: int
    append: bytes


@dataclass(frozen=True, slots=True)
class Postscript:
    """The end of an ORC file, which tells how to read what lies before it."""

    fields: tuple[protobuf.Field, ...]
    size: int
    """Bytes, with the one that tells how many they are."""

    @classmethod
    def of(cls, tail: bytes, path: str) -> Postscript:
        """Of a file whose last bytes are `tail`. Raises CorruptFile."""
        length = tail[-1] if tail else 0
        content = tail[-1 - length : -1]
        if length < 4 or len(content) < length or not content.endswith(_MAGIC):
            raise CorruptFile(f"{path} does not end in an ORC postscript; was its writer killed?")
        try:
            return cls(tuple(protobuf.fields(content)), length + 1)
        except (IndexError, ValueError) as error:
            raise CorruptFile(f"{path} has an unreadable ORC postscript: {error}") from error

    def _value(self, number: int) -> int:
        return next((one.value for one in self.fields if one.number == number), 0)

    @property
    def compression(self) -> int:
        """ORC's number of the codec; 0: none."""
        return self._value(_COMPRESSION)

    @property
    def footer_length(self) -> int:
        return self._value(_FOOTER_LENGTH)

    @property
    def metadata_length(self) -> int:
        """Of the statistics of the stripes, which lie before the footer."""
        return self._value(_METADATA_LENGTH)

    def chunks(self, content: bytes) -> bytes:
        """Content in the file's codec: chunks with their lengths, deflated or as they are."""
        if not self.compression:
            return content
        block = self._value(_BLOCK_SIZE) or _DEFAULT_BLOCK
        parts = (content[at : at + block] for at in range(0, len(content), block))
        return b"".join(_chunk(one, self.compression) for one in parts)

    def renewed(self, footer: int, metadata: int | None = None) -> bytes:
        """The last bytes of a file whose footer and metadata have these lengths."""
        lengths = {_FOOTER_LENGTH: footer}
        if metadata is not None:
            lengths[_METADATA_LENGTH] = metadata
        content = b"".join(
            protobuf.number(one.number, lengths[one.number]) if one.number in lengths else one.raw
            for one in self.fields
        )
        return content + bytes([len(content)])


def _chunk(content: bytes, compression: int) -> bytes:
    """The lowest bit of a chunk's length says that it is stored as it is."""
    if compression == _ZLIB:
        deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        small = deflater.compress(content) + deflater.flush()
        if len(small) < len(content):
            return (len(small) << 1).to_bytes(3, "little") + small
    return (len(content) << 1 | 1).to_bytes(3, "little") + content


def footer_of(file_tail: bytes) -> bytes:
    """ORC's message Footer out of the decompressed tail of a file, its message FileTail."""
    return next(one.payload for one in protobuf.fields(file_tail) if one.number == _TAIL_FOOTER)


def is_proleptic(footer: bytes) -> bool:
    """Whether days before 15 October 1582 are Gregorian ones too; else they are Julian."""
    return any(
        one.number == _CALENDAR and one.value == _PROLEPTIC for one in protobuf.fields(footer)
    )


def has_declared(columns: Sequence[Column]) -> bool:
    """Whether a type of theirs has to be declared in the footer."""
    return any(one.kind in _DECLARED for column in columns for one in column.type.walk())


def declared_footer(footer: bytes, columns: Sequence[Column], acid: bool, path: str) -> bytes:
    """The footer of a file of these columns, with their CHAR, VARCHAR and instants declared.

    `acid`: the columns are those of the struct `row`. Raises CorruptFile when the file does not
    have the columns.
    """
    try:
        found = list(protobuf.fields(footer))
        types = [one.payload for one in found if one.number == TYPES]
        row = unpacked(types[0], SUBTYPES)[-1] if acid else 0
        wanted: dict[int, HiveType] = {}
        for number, column in zip(unpacked(types[row], SUBTYPES), columns, strict=True):
            wanted.update(_leaves(types, number, column.type))
    except (IndexError, ValueError) as error:
        raise CorruptFile(
            f"{path} does not have the columns that were written: {error}; run the statement again"
        ) from error
    numbers = iter(range(len(types)))
    return b"".join(
        delimited(TYPES, _declaration(wanted[number]))
        if one.number == TYPES and (number := next(numbers)) in wanted
        else one.raw
        for one in found
    )


def _leaves(types: Sequence[bytes], number: int, hive: HiveType) -> Iterator[tuple[int, HiveType]]:
    """The column numbers at and below `number` whose types have to be declared."""
    if hive.kind in _DECLARED:
        kind = next((one.value for one in protobuf.fields(types[number]) if one.number == KIND), 0)
        if hive.kind not in _WRITTEN.get(kind, ()):
            raise ValueError(f"column {number} of kind {kind} can't be declared as {hive}")
        yield number, hive
    below = unpacked(types[number], SUBTYPES)
    for child, (_, type_of_child) in zip(below, hive.children, strict=True):
        yield from _leaves(types, child, type_of_child)


def _declaration(hive: HiveType) -> bytes:
    kind = protobuf.number(KIND, _DECLARED[hive.kind])
    return kind + b"".join(protobuf.number(_LENGTH, size) for size in hive.sizes)


def user_metadata_fields(items: Mapping[str, bytes]) -> bytes:
    """To be appended to a footer."""
    return b"".join(
        delimited(_USER_METADATA, delimited(1, key.encode()) + delimited(2, value))
        for key, value in items.items()
    )


def with_user_metadata(
    tail: bytes, items: Mapping[str, bytes], path: str, footer: bytes | None = None
) -> NewTail:
    """The change that adds `items` to the file whose last bytes are `tail`.

    With `footer`, decompressed, this one replaces the file's. `path` is for the error text. Raises
    CorruptFile when the tail is not an ORC postscript.
    """
    old = Postscript.of(tail, path)
    extra = old.chunks((footer or b"") + user_metadata_fields(items))
    kept = 0 if footer is not None else old.footer_length
    return NewTail(old.footer_length - kept + old.size, extra + old.renewed(kept + len(extra)))
