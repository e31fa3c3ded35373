"""Turning a flat ORC file into an ACID file: the same stripes, with the values in a struct `row`.

Spark's writer creates an object for every field of a struct, but none for top-level columns. An
INSERT that writes flat files takes two thirds of the CPU time (benchmarks/writing.py). A struct
without NULLs stores no data, so only the column numbers in the footers change; its row index equals
that of the root, which counts the same rows.

Columns of the flat file: 0 is the root, 1 to 5 are the ids, the values follow from 6 on. In the
nested file 6 is `row`, and the number of each value is one higher.
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

# Fields of the message Footer
_CONTENT_LENGTH, _STRIPES, _STATISTICS = 2, 3, 7
# Fields of its StripeInformation
_OFFSET, _INDEX, _DATA, _FOOTER = 1, 2, 3, 4
# Fields of StripeFooter and of its Stream
_STREAMS, _ENCODINGS = 1, 2
_STREAM_KIND, _COLUMN, _LENGTH = 1, 2, 3
_ROW_INDEX, _INDEXES = 6, (6, 7, 8)
"""Stream kinds that precede the data: row indexes and two kinds of bloom filters."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """The offset of a stripe and the lengths of its parts, in bytes; `raw` is its footer entry."""

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
        """The footer entry for the stripe at another offset and with other lengths."""
        changed = {_OFFSET: offset, _INDEX: index, _FOOTER: footer}
        return b"".join(
            number(field.number, changed[field.number]) if field.number in changed else field.raw
            for field in fields(self.raw)
        )


@dataclass(frozen=True, slots=True)
class NestedStripe:
    """How to assemble a nested stripe from the bytes of the flat one.

    First the bytes up to `cut`; then those from `index_from` to `index_to` once more, as the row
    index of `row`; then the rest up to the footer; finally the new `footer`, uncompressed.
    """

    cut: int
    index_from: int
    index_to: int
    footer: bytes


def stripes_of(footer: bytes) -> list[Stripe]:
    """The stripes of a file, in order. Raises KeyError for an entry without an offset."""
    stripes = []
    for field in fields(footer):
        if field.number == _STRIPES:
            values = {each.number: each.value for each in fields(field.payload)}
            stripes.append(
                Stripe(
                    values[_OFFSET],
                    values.get(_INDEX, 0),
                    values[_DATA],
                    values[_FOOTER],
                    field.payload,
                )
            )
    return stripes


def nested_stripe(stripe: Stripe, footer: bytes) -> NestedStripe:
    """How to assemble the nested stripe; `footer` is the stripe's footer, decompressed."""
    streams: list[bytes] = []
    encodings: list[bytes] = []
    rest: list[bytes] = []
    at = cut = stripe.offset
    index_from = index_to = slot = 0
    for field in fields(footer):
        if field.number == _STREAMS:
            values = {each.number: each.value for each in fields(field.payload)}
            kind, column, length = (values.get(key, 0) for key in (_STREAM_KIND, _COLUMN, _LENGTH))
            streams.append(_stream(field.payload, column))
            if kind == _ROW_INDEX and column == 0:
                index_from, index_to = at, at + length
            at += length
            if kind in _INDEXES and column < _ROW:
                cut, slot = at, len(streams)
        elif field.number == _ENCODINGS:
            encodings.append(field.raw)
        else:
            rest.append(field.raw)
    if index_to > index_from:
        index = (
            number(_STREAM_KIND, _ROW_INDEX)
            + number(_COLUMN, _ROW)
            + number(_LENGTH, index_to - index_from)
        )
        streams.insert(slot, delimited(_STREAMS, index))
    encodings.insert(_ROW, encodings[0])
    return NestedStripe(cut, index_from, index_to, b"".join([*streams, *encodings, *rest]))


def nested_metadata(metadata: bytes) -> bytes:
    """The Metadata message (stripe statistics) of the nested file; both are decompressed."""
    return b"".join(
        delimited(field.number, b"".join(_with_row([each.raw for each in fields(field.payload)])))
        for field in fields(metadata)
    )


def nested_footer(
    footer: bytes, entries: Sequence[bytes], grown: int, columns: Sequence[str]
) -> bytes:
    """The Footer message of the nested file.

    `entries` are the entries of the moved stripes, which together are `grown` bytes longer;
    `columns` names the values. Raises ValueError if the file has another number of columns.
    """
    footer_fields = list(fields(footer))
    renewed = {
        _STRIPES: iter(entries),
        TYPES: _types([field.payload for field in footer_fields if field.number == TYPES], columns),
        _STATISTICS: iter(
            _with_row([field.payload for field in footer_fields if field.number == _STATISTICS])
        ),
    }
    parts = []
    for field in footer_fields:
        if field.number in renewed:
            parts.append(delimited(field.number, next(renewed[field.number])))
        elif field.number == _CONTENT_LENGTH:
            parts.append(number(_CONTENT_LENGTH, field.value + grown))
        else:
            parts.append(field.raw)
    # One more of each than before. Only the order among equal fields matters in a message.
    parts += [delimited(key, left) for key, rest in renewed.items() for left in rest]
    return b"".join(parts)


def _with_row(of_columns: list[bytes]) -> list[bytes]:
    """The statistics with those of `row`, which equal the root's."""
    return [*of_columns[:_ROW], of_columns[0], *of_columns[_ROW:]]


def _shifted(column: int) -> int:
    return column + (column >= _ROW)


def _stream(payload: bytes, column: int) -> bytes:
    return delimited(
        _STREAMS,
        b"".join(
            number(_COLUMN, _shifted(column)) if field.number == _COLUMN else field.raw
            for field in fields(payload)
        ),
    )


def _types(types: Sequence[bytes], columns: Sequence[str]) -> Iterator[bytes]:
    values = [_shifted(column) for column in unpacked(types[0], SUBTYPES)[_ROW - 1 :]]
    if len(values) != len(columns):
        raise ValueError(f"the file has {len(values)} values for {len(columns)} columns")
    yield _struct(range(1, _ROW + 1), ACID_COLUMNS)
    yield from types[1:_ROW]
    yield _struct(values, columns)
    for value_type in types[_ROW:]:
        below = unpacked(value_type, SUBTYPES)
        yield b"".join(
            [
                *(each.raw for each in fields(value_type) if each.number != SUBTYPES),
                packed(SUBTYPES, map(_shifted, below)) if below else b"",
            ]
        )


def _struct(children: Sequence[int], names: Sequence[str]) -> bytes:
    return (
        number(KIND, _STRUCT)
        + packed(SUBTYPES, children)
        + b"".join(delimited(_NAMES, name.encode()) for name in names)
    )
