"""A flat ORC file as an ACID one: the same stripes, the values below the struct `row`.

Spark's writer makes objects of every field of a struct and none of plain columns: flat, an INSERT
takes two thirds of the CPU time (benchmarks/writing.py). A struct without a NULL has no data of its
own, so only the numbers of columns change, which stand in the footers; and its row index is that of
the root, which counts the same rows.

Columns of the flat file: 0 the root, 1 to 5 the row's identity, from 6 on the values. Of the nested
one: 6 is `row`, and each value has the next number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acid_platform.layout.orc_tail import KIND, SUBTYPES, TYPES
from acid_platform.layout.protobuf import delimited, fields, number, packed, unpacked
from acid_platform.layout.schema import ACID_COLUMNS

_ROW = 6
_STRUCT = 12
_NAMES = 3

# Of the footer
_CONTENT_LENGTH, _STRIPES, _STATISTICS = 2, 3, 7
# Of a stripe's entry in it
_OFFSET, _INDEX, _DATA, _FOOTER = 1, 2, 3, 4
# Of a stripe's own footer, and of a stream in it
_STREAMS, _ENCODINGS = 1, 2
_STREAM_KIND, _COLUMN, _LENGTH = 1, 2, 3
_ROW_INDEX, _INDEXES = 6, (6, 7, 8)
"""Streams before the data: row indexes and two kinds of bloom filters."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """Where a stripe lies: bytes of the file."""

    offset: int
    index: int
    data: int
    footer: int
    raw: bytes

    @property
    def footer_at(self) -> int:
        return self.offset + self.index + self.data

    @property
    def end(self) -> int:
        return self.footer_at + self.footer

    def moved(self, offset: int, index: int, footer: int) -> bytes:
        """Its entry in the footer, elsewhere and with other lengths."""
        changed = {_OFFSET: offset, _INDEX: index, _FOOTER: footer}
        return b"".join(
            number(one.number, changed[one.number]) if one.number in changed else one.raw
            for one in fields(self.raw)
        )


@dataclass(frozen=True, slots=True)
class NestedStripe:
    """What becomes of a stripe: its bytes up to `cut`, those from `again` to `until` once more as
    the row index of `row`, the others up to its footer, and the new `footer`, uncompressed."""

    cut: int
    again: int
    until: int
    footer: bytes


def stripes_of(footer: bytes) -> list[Stripe]:
    """The stripes of a file, in their order. Raises KeyError for an entry without a place."""
    found = []
    for one in fields(footer):
        if one.number == _STRIPES:
            said = {each.number: each.value for each in fields(one.payload)}
            found.append(
                Stripe(said[_OFFSET], said.get(_INDEX, 0), said[_DATA], said[_FOOTER], one.payload)
            )
    return found


def nested_stripe(stripe: Stripe, footer: bytes) -> NestedStripe:
    """`footer`: the stripe's own, decompressed."""
    streams: list[bytes] = []
    encodings: list[bytes] = []
    rest: list[bytes] = []
    at = cut = stripe.offset
    again = until = slot = 0
    for one in fields(footer):
        if one.number == _STREAMS:
            said = {each.number: each.value for each in fields(one.payload)}
            kind, column, length = (said.get(key, 0) for key in (_STREAM_KIND, _COLUMN, _LENGTH))
            streams.append(_stream(one.payload, column))
            if kind == _ROW_INDEX and column == 0:
                again, until = at, at + length
            at += length
            if kind in _INDEXES and column < _ROW:
                cut, slot = at, len(streams)
        elif one.number == _ENCODINGS:
            encodings.append(one.raw)
        else:
            rest.append(one.raw)
    if until > again:
        index = (
            number(_STREAM_KIND, _ROW_INDEX)
            + number(_COLUMN, _ROW)
            + number(_LENGTH, until - again)
        )
        streams.insert(slot, delimited(_STREAMS, index))
    encodings.insert(_ROW, encodings[0])
    return NestedStripe(cut, again, until, b"".join([*streams, *encodings, *rest]))


def nested_metadata(metadata: bytes) -> bytes:
    """The statistics of all stripes, decompressed."""
    return b"".join(
        delimited(one.number, b"".join(_with_row([each.raw for each in fields(one.payload)])))
        for one in fields(metadata)
    )


def nested_footer(
    footer: bytes, entries: Sequence[bytes], grown: int, columns: Sequence[str]
) -> bytes:
    """The file's footer. `entries` are the moved stripes, which are `grown` bytes longer together;
    `columns` name the values. Raises ValueError when the file has others."""
    found = list(fields(footer))
    renewed = {
        _STRIPES: iter(entries),
        TYPES: _types([one.payload for one in found if one.number == TYPES], columns),
        _STATISTICS: iter(_with_row([one.payload for one in found if one.number == _STATISTICS])),
    }
    parts = []
    for one in found:
        if one.number in renewed:
            parts.append(delimited(one.number, next(renewed[one.number])))
        elif one.number == _CONTENT_LENGTH:
            parts.append(number(_CONTENT_LENGTH, one.value + grown))
        else:
            parts.append(one.raw)
    # One more of each than before; a message keeps their order wherever they stand.
    parts += [delimited(key, left) for key, rest in renewed.items() for left in rest]
    return b"".join(parts)


def _with_row(of_columns: list[bytes]) -> list[bytes]:
    """The struct counts what the root counts."""
    return [*of_columns[:_ROW], of_columns[0], *of_columns[_ROW:]]


def _shifted(column: int) -> int:
    return column + (column >= _ROW)


def _stream(payload: bytes, column: int) -> bytes:
    return delimited(
        _STREAMS,
        b"".join(
            number(_COLUMN, _shifted(column)) if one.number == _COLUMN else one.raw
            for one in fields(payload)
        ),
    )


def _types(types: Sequence[bytes], columns: Sequence[str]) -> Iterator[bytes]:
    values = [_shifted(one) for one in unpacked(types[0], SUBTYPES)[_ROW - 1 :]]
    if len(values) != len(columns):
        raise ValueError(f"{len(values)} values for {len(columns)} columns")
    yield _struct(range(1, _ROW + 1), ACID_COLUMNS)
    yield from types[1:_ROW]
    yield _struct(values, columns)
    for one in types[_ROW:]:
        below = unpacked(one, SUBTYPES)
        yield b"".join(
            [
                *(each.raw for each in fields(one) if each.number != SUBTYPES),
                packed(SUBTYPES, map(_shifted, below)) if below else b"",
            ]
        )


def _struct(children: Sequence[int], names: Sequence[str]) -> bytes:
    return (
        number(KIND, _STRUCT)
        + packed(SUBTYPES, children)
        + b"".join(delimited(_NAMES, name.encode()) for name in names)
    )
