"""Encoding Arrow arrays as the streams of ORC columns, one stripe at a time, vectorised.

ORC specification v1, "Column Encodings". The Hive type of a column decides its encoding; a NULL
stores nothing below it. Row groups are given by their bounds, row numbers from 0 to the length of
the column. Each stream records the position at which each row group begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.formats.orc.column_statistics import ColumnStatistics, float_bounds
from acid_platform.formats.orc.runs import Runs, bits, integers, octets, seek_bit, varints
from acid_platform.layout.types import HiveType
from acid_platform.values.arrow_types import arrow_type, from_numpy, offsets_of, values_of

_EPOCH = 1_420_070_400
"""2015-01-01 in seconds since 1970: ORC counts timestamps from there."""
_NANOS = 1_000_000_000
_NANOS_OF = {"s": _NANOS, "ms": 1_000_000, "us": 1000, "ns": 1}
_SAMPLE = 10_000
_REPEATED = 0.5
"""Texts get a dictionary if at most this share of the first rows is distinct."""
_WIDE = 1 << 47
"""The sum of 10,000 values below this bound fits 64 bits."""


class StreamKind(IntEnum):
    """The members of ORC's Stream.Kind that are written here."""

    PRESENT = 0
    DATA = 1
    LENGTH = 2
    DICTIONARY_DATA = 3
    SECONDARY = 5
    ROW_INDEX = 6


class Encoding(IntEnum):
    """The members of ORC's ColumnEncoding.Kind that are written here."""

    DIRECT = 0
    DIRECT_V2 = 2
    DICTIONARY_V2 = 3


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of a column. `seeks` holds the position of each row group: its byte in `content`,
    then the values to skip. The streams of a dictionary have none."""

    kind: StreamKind
    content: bytes
    seeks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One column of one stripe, without its child columns."""

    type: HiveType
    streams: tuple[Stream, ...]
    groups: tuple[ColumnStatistics, ...]
    """Statistics of each row group."""
    encoding: Encoding = Encoding.DIRECT
    dictionary_size: int = 0


@dataclass(slots=True)
class _Values:
    """The result of a type's encoder for the values that are not NULL.

    `low`, `high` and `total` have an entry for each row group that has a value.
    """

    streams: list[Stream]
    encoding: Encoding = Encoding.DIRECT
    low: Sequence[object] = ()
    high: Sequence[object] = ()
    total: Sequence[object] = ()
    dictionary_size: int = 0
    below: tuple[Unencoded, ...] = ()
    """The child columns."""


@dataclass(frozen=True, slots=True)
class Unencoded:
    """The values of a column in a stripe; it may have child columns.

    `values` have the type `arrow_type(type)` or type null. `bounds`: int64 (groups + 1,).
    """

    values: pa.Array | pa.ChunkedArray
    type: HiveType
    bounds: np.ndarray

    @property
    def plain_struct(self) -> bool:
        """Whether this has no values of its own, only child columns."""
        return self.type.kind == "struct" and not self.values.null_count


def encode_all(column: Unencoded) -> Iterator[EncodedColumn]:
    """The column, then its child columns, in the order of ORC's column numbers.

    Lazy, so that only one is in memory at a time.
    """
    encoded, below = encode(column)
    yield encoded
    for child in below:
        yield from encode_all(child)


def encode(column: Unencoded) -> tuple[EncodedColumn, tuple[Unencoded, ...]]:
    """The column without its child columns, and these."""
    array, kind, bounds = column.values, column.type, column.bounds
    if isinstance(array, pa.ChunkedArray) and not column.plain_struct:
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    streams: list[Stream] = []
    inner = bounds
    if array.null_count:
        valid = values_of(array.is_valid())
        streams.append(_of_bits(StreamKind.PRESENT, valid, bounds))
        inner = np.concatenate(([0], np.cumsum(valid, dtype=np.int64)))[bounds]
        array = (
            array.filter(from_numpy(valid))
            if array.null_count < len(array)
            else pa.nulls(0, arrow_type(kind))
        )
    values = _ENCODERS[kind.kind](array, kind, inner)
    encoded = EncodedColumn(
        kind,
        (*streams, *values.streams),
        tuple(_statistics(values, bounds, inner)),
        values.encoding,
        values.dictionary_size,
    )
    return encoded, values.below


def _statistics(
    values: _Values, bounds: np.ndarray, inner: np.ndarray
) -> Iterator[ColumnStatistics]:
    measured = [iter(per_group) for per_group in (values.low, values.high, values.total)]
    lengths = ((each[1:] - each[:-1]).tolist() for each in (bounds, inner))
    for rows, count in zip(*lengths, strict=True):
        measures = [next(measure, None) if count else None for measure in measured]
        yield ColumnStatistics(count, count < rows, *measures)


def _starts(inner: np.ndarray) -> np.ndarray:
    """The index of the first value of each row group that has one."""
    return inner[:-1][inner[1:] > inner[:-1]]


def _positioned(kind: StreamKind, runs: Runs, inner: np.ndarray) -> Stream:
    return Stream(kind, runs.content, tuple(runs.seek(at) for at in inner[:-1].tolist()))


def _of_bits(kind: StreamKind, values: np.ndarray, inner: np.ndarray) -> Stream:
    runs = bits(values)
    return Stream(kind, runs.content, tuple(seek_bit(runs, at) for at in inner[:-1].tolist()))


def _bytes_at(ends: np.ndarray, inner: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Positions of the row groups in a stream whose value i ends at byte ends[i]."""
    return tuple((int(ends[at - 1]) if at else 0,) for at in inner[:-1].tolist())


def _extremes(values: np.ndarray, inner: np.ndarray) -> tuple[list[int], list[int]]:
    starts = _starts(inner)
    if not len(starts):
        return [], []
    return (
        np.minimum.reduceat(values, starts).tolist(),
        np.maximum.reduceat(values, starts).tolist(),
    )


def _sums(values: np.ndarray, inner: np.ndarray, low: list[int], high: list[int]) -> list[int]:
    """The exact sum of each row group that has a value; 64 bits may not hold it."""
    starts = _starts(inner)
    if not len(starts):
        return []
    if min(low) > -_WIDE and max(high) < _WIDE:
        return [int(total) for total in np.add.reduceat(values, starts, dtype=np.int64)]
    upper = np.add.reduceat(values >> 32, starts, dtype=np.int64).tolist()
    lower = np.add.reduceat(values & 0xFFFFFFFF, starts, dtype=np.int64).tolist()
    return [(high << 32) + rest for high, rest in zip(upper, lower, strict=True)]


def _int64(array: pa.Array) -> np.ndarray:
    integers: np.ndarray = values_of(array).astype(np.int64, copy=False)
    return integers


def _integral(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    values = _int64(array)
    low, high = _extremes(values, inner)
    total = _sums(values, inner, low, high)
    small = kind.kind == "tinyint"
    runs = octets(values.astype(np.uint8)) if small else integers(values)
    encoding = Encoding.DIRECT if small else Encoding.DIRECT_V2
    return _Values([_positioned(StreamKind.DATA, runs, inner)], encoding, low, high, total)


def _date(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    return _integral(array.view(pa.int32()), kind, inner)


def _boolean(array: pa.Array, _kind: HiveType, inner: np.ndarray) -> _Values:
    values = values_of(array)
    trues = _sums(values.astype(np.int64), inner, [0], [1])
    return _Values([_of_bits(StreamKind.DATA, values, inner)], total=trues)


def _floating(array: pa.Array, _kind: HiveType, inner: np.ndarray) -> _Values:
    values = values_of(array)
    starts = _starts(inner)
    low: list[float] = []
    high: list[float] = []
    total: list[float] = []
    if len(starts):
        with np.errstate(invalid="ignore", over="ignore"):
            edges = zip(
                *(each.reduceat(values, starts).tolist() for each in (np.minimum, np.maximum)),
                strict=True,
            )
            total = np.add.reduceat(values, starts, dtype=np.float64).tolist()
        bounds = [float_bounds(*edge) for edge in edges]
        low, high = [least for least, _ in bounds], [most for _, most in bounds]
    size = values.dtype.itemsize
    seeks = tuple((size * at,) for at in inner[:-1].tolist())
    content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return _Values([Stream(StreamKind.DATA, content, seeks)], Encoding.DIRECT, low, high, total)


def _decimal(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    halves = np.zeros((0, 2), np.int64)
    if len(array):
        halves = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
        halves = halves[array.offset : array.offset + len(array)]
    values = np.ascontiguousarray(halves[:, 0])
    if kind.sizes[0] <= 18:
        content, ends = varints(values)
        low, high = _extremes(values, inner)
        total = _sums(values, inner, low, high)
    else:
        upper = np.ascontiguousarray(halves[:, 1])
        content, ends = varints(values, upper)
        low, high, total = _long_decimals(values, upper, inner)
    scales = integers(np.full(len(array), kind.sizes[1], np.int64))
    return _Values(
        [
            Stream(StreamKind.DATA, content, _bytes_at(ends, inner)),
            _positioned(StreamKind.SECONDARY, scales, inner),
        ],
        Encoding.DIRECT_V2,
        low,
        high,
        total,
    )


def _long_decimals(
    lower: np.ndarray, upper: np.ndarray, inner: np.ndarray
) -> tuple[list[int], list[int], list[int]]:
    low, high, total = [], [], []
    for start, end in _slices(inner):
        whole = [
            (above << 64) + below
            for above, below in zip(
                upper[start:end].tolist(), lower[start:end].view(np.uint64).tolist(), strict=True
            )
        ]
        low.append(min(whole))
        high.append(max(whole))
        total.append(sum(whole))
    return low, high, total


def _slices(inner: np.ndarray) -> Iterator[tuple[int, int]]:
    """(start, end) of each row group that has a value."""
    return ((start, end) for start, end in pairwise(inner.tolist()) if end > start)


def _timestamp(array: pa.Array, _kind: HiveType, inner: np.ndarray) -> _Values:
    factor = _NANOS_OF[array.type.unit]
    values = _int64(array.view(pa.int64()))
    low, high = _extremes(values, inner)
    seconds = values // (_NANOS // factor)
    nanos = (values - seconds * (_NANOS // factor)) * factor
    # All ORC writers round negative seconds this way, and readers undo it.
    seconds += (seconds < 0) & (nanos > 999_999)
    data, rest = integers(seconds - _EPOCH), integers(_shortened(nanos), signed=False)
    return _Values(
        [
            _positioned(StreamKind.DATA, data, inner),
            _positioned(StreamKind.SECONDARY, rest, inner),
        ],
        Encoding.DIRECT_V2,
        [value * factor for value in low],
        [value * factor for value in high],
    )


def _shortened(nanos: np.ndarray) -> np.ndarray:
    """ORC's form of nanoseconds: two or more trailing zeros are dropped, and counted in 3 bits."""
    some = nanos != 0
    if not some.any():  # whole seconds
        return nanos
    values, zeros = nanos.copy(), np.zeros(len(nanos), np.int64)
    for count in range(2, 9):
        fits = some & (nanos % 10**count == 0)
        if not fits.any():
            break
        values[fits] = nanos[fits] // 10**count
        zeros[fits] = count - 1
    return values << 3 | zeros


def _bytes(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    if kind.kind != "binary" and _may_repeat(array):
        encoded = _dictionary(array, inner)
        if encoded is not None:
            return encoded
    content, lengths, ends = _content(array)
    sizes = integers(lengths, signed=False)
    streams = [
        Stream(StreamKind.DATA, content, _bytes_at(ends, inner)),
        _positioned(StreamKind.LENGTH, sizes, inner),
    ]
    total = _sums(lengths, inner, [0], [int(lengths.max(initial=0))])
    if kind.kind == "binary":
        return _Values(streams, Encoding.DIRECT_V2, total=total)
    edges = [pc.min_max(array.slice(start, end - start)) for start, end in _slices(inner)]
    return _Values(
        streams,
        Encoding.DIRECT_V2,
        [edge["min"].as_py() for edge in edges],
        [edge["max"].as_py() for edge in edges],
        total,
    )


def _content(array: pa.Array) -> tuple[bytes, np.ndarray, np.ndarray]:
    """All bytes; the length of each value and the byte at which it ends, int64 (n,)."""
    if not len(array):
        return b"", np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    places = places.astype(np.int64)
    content = data[int(places[0]) : int(places[-1])].to_pybytes() if data else b""
    return content, np.diff(places), places[1:] - places[0]


def _may_repeat(array: pa.Array) -> bool:
    """Whether a dictionary is worth an attempt; of few texts it is made without counting before."""
    if len(array) <= _SAMPLE:
        return len(array) > 1
    return bool(pc.count_distinct(array.slice(0, _SAMPLE)).as_py() <= _REPEATED * _SAMPLE)


def _dictionary(array: pa.Array, inner: np.ndarray) -> _Values | None:
    """The dictionary encoding; None if too many values turn out to be distinct."""
    encoded = array.dictionary_encode()
    words = encoded.dictionary
    if len(words) > _REPEATED * len(array):
        return None
    order = values_of(pc.sort_indices(words))
    ranks = np.empty(len(words), np.int64)
    ranks[order] = np.arange(len(words))
    indexes = ranks[values_of(encoded.indices)]
    words = words.take(from_numpy(order))
    content, lengths, _ = _content(words)
    data, sizes = integers(indexes, signed=False), integers(lengths, signed=False)
    low, high = _extremes(indexes, inner)
    texts = words.to_pylist()
    return _Values(
        [
            _positioned(StreamKind.DATA, data, inner),
            Stream(StreamKind.LENGTH, sizes.content),
            Stream(StreamKind.DICTIONARY_DATA, content),
        ],
        Encoding.DICTIONARY_V2,
        [texts[index] for index in low],
        [texts[index] for index in high],
        _sums(lengths[indexes], inner, [0], [int(lengths.max())]),
        len(words),
    )


def _text(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    return _bytes(array.view(pa.binary()), kind, inner)  # files may hold invalid UTF-8


def _struct(array: pa.StructArray | pa.ChunkedArray, kind: HiveType, inner: np.ndarray) -> _Values:
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return _Values(
        [],
        below=tuple(
            Unencoded(pa.chunked_array([chunk.field(index) for chunk in chunks]), child, inner)
            for index, (_, child) in enumerate(kind.children)
        ),
    )


def _repeated(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    """Lists and maps: the lengths, then the children one after another."""
    places = _int64(offsets_of(array)) if len(array) else np.zeros(1, np.int64)
    first, last = int(places[0]), int(places[-1])
    runs = integers(np.diff(places), signed=False)
    children = (array.keys, array.items) if kind.kind == "map" else (array.values,)
    below = tuple(
        Unencoded(content.slice(first, last - first), child, places[inner] - first)
        for content, (_, child) in zip(children, kind.children, strict=True)
    )
    return _Values(
        [_positioned(StreamKind.LENGTH, runs, inner)],
        Encoding.DIRECT_V2,
        below=below,
    )


_ENCODERS: dict[str, Callable[[pa.Array, HiveType, np.ndarray], _Values]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _integral),
    **dict.fromkeys(("string", "char", "varchar"), _text),
    **dict.fromkeys(("timestamp", "timestamp with local time zone"), _timestamp),
    **dict.fromkeys(("array", "map"), _repeated),
    "boolean": _boolean,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "date": _date,
    "binary": _bytes,
    "struct": _struct,
}
