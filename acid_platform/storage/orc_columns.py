"""Arrow arrays as the streams of ORC columns, a stripe at a time, vectorised.

ORC specification v1, "Column Encodings". A column is encoded by its Hive type; below a NULL nothing
is stored. Row groups are given by their bounds: row numbers of the column, the first 0 and the last
its length. Each stream says where each row group begins in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.layout.orc_runs import Runs, bits, integers, octets, seek_bit, varints
from acid_platform.layout.orc_statistics import Statistics, float_bounds
from acid_platform.layout.types import HiveType
from acid_platform.storage.arrow_types import arrow_type, offsets_of

_EPOCH = 1_420_070_400
"""2015-01-01 in seconds since 1970: ORC counts timestamps from there."""
_NANOS = 1_000_000_000
_NANOS_OF = {"s": _NANOS, "ms": 1_000_000, "us": 1000, "ns": 1}
_SAMPLE = 10_000
_REPEATED = 0.5
"""A dictionary is made where no more than this share of the first rows is distinct."""
_WIDE = 1 << 47
"""Sums of values below it, 10,000 of them, fit 64 bits."""


class Kind(IntEnum):
    """ORC's Stream.Kind, those that are written here."""

    PRESENT = 0
    DATA = 1
    LENGTH = 2
    DICTIONARY_DATA = 3
    SECONDARY = 5
    ROW_INDEX = 6


class Encoding(IntEnum):
    """ORC's ColumnEncoding.Kind, those that are written here."""

    DIRECT = 0
    DIRECT_V2 = 2
    DICTIONARY_V2 = 3


@dataclass(frozen=True, slots=True)
class Stream:
    """`seeks` of each row group: its byte in `content`, then what to skip there. A dictionary has
    none."""

    kind: Kind
    content: bytes
    seeks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One column of one stripe, without those below it."""

    type: HiveType
    streams: tuple[Stream, ...]
    groups: tuple[Statistics, ...]
    """Of each row group."""
    encoding: Encoding = Encoding.DIRECT
    dictionary_size: int = 0


@dataclass(slots=True)
class _Values:
    """What a type's encoder answers, of the values that are not NULL."""

    streams: list[Stream]
    encoding: Encoding = Encoding.DIRECT
    low: Sequence[object] = ()
    high: Sequence[object] = ()
    total: Sequence[object] = ()
    """Of each row group that has a value."""
    dictionary_size: int = 0
    below: Iterable[EncodedColumn] = ()
    """Encoded as they are asked for: no more than one column is held at a time."""


def encode(array: pa.Array, kind: HiveType, bounds: np.ndarray) -> Iterator[EncodedColumn]:
    """The column, then those below it, as ORC numbers them.

    `array` has the type that `arrow_type` gives `kind`, or is one of type null; `bounds`: int64
    (groups + 1,).
    """
    streams: list[Stream] = []
    inner = bounds
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        present = bits(valid)
        streams.append(
            Stream(
                Kind.PRESENT,
                present.content,
                tuple(seek_bit(present, int(at)) for at in bounds[:-1]),
            )
        )
        inner = np.concatenate(([0], np.cumsum(valid, dtype=np.int64)))[bounds]
        array = (
            array.filter(pa.array(valid))
            if array.null_count < len(array)
            else pa.array([], arrow_type(kind))
        )
    found = _ENCODERS[kind.kind](array, kind, inner)
    yield EncodedColumn(
        kind,
        (*streams, *found.streams),
        tuple(_statistics(found, bounds, inner)),
        found.encoding,
        found.dictionary_size,
    )
    yield from found.below


def _statistics(found: _Values, bounds: np.ndarray, inner: np.ndarray) -> Iterator[Statistics]:
    measured = [iter(one) for one in (found.low, found.high, found.total)]
    for rows, count in zip(np.diff(bounds).tolist(), np.diff(inner).tolist(), strict=True):
        said = [next(one, None) if count else None for one in measured]
        yield Statistics(count, count < rows, *said)


def _starts(inner: np.ndarray) -> np.ndarray:
    """Of the groups that have a value: the first."""
    return inner[:-1][np.diff(inner) > 0]


def _seeks(runs: Runs, inner: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(runs.seek(at) for at in inner[:-1].tolist())


def _bytes_at(ends: np.ndarray, inner: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Seeks in a stream whose value i ends at byte ends[i]."""
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
    """Exact, whatever they are."""
    starts = _starts(inner)
    if not len(starts):
        return []
    if min(low) > -_WIDE and max(high) < _WIDE:
        return [int(one) for one in np.add.reduceat(values, starts, dtype=np.int64)]
    upper = np.add.reduceat(values >> 32, starts, dtype=np.int64).tolist()
    lower = np.add.reduceat(values & 0xFFFFFFFF, starts, dtype=np.int64).tolist()
    return [(one << 32) + rest for one, rest in zip(upper, lower, strict=True)]


def _int64(array: pa.Array) -> np.ndarray:
    found: np.ndarray = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def _integral(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    values = _int64(array)
    low, high = _extremes(values, inner)
    total = _sums(values, inner, low, high)
    if kind.kind == "tinyint":
        runs = octets(values.astype(np.uint8))
        return _Values(
            [Stream(Kind.DATA, runs.content, _seeks(runs, inner))],
            Encoding.DIRECT,
            low,
            high,
            total,
        )
    runs = integers(values)
    return _Values(
        [Stream(Kind.DATA, runs.content, _seeks(runs, inner))], Encoding.DIRECT_V2, low, high, total
    )


def _date(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    return _integral(array.view(pa.int32()), kind, inner)


def _boolean(array: pa.Array, _kind: HiveType, inner: np.ndarray) -> _Values:
    values = array.to_numpy(zero_copy_only=False).astype(bool)
    runs = bits(values)
    seeks = tuple(seek_bit(runs, at) for at in inner[:-1].tolist())
    trues = _sums(values.astype(np.int64), inner, [0], [1])
    return _Values([Stream(Kind.DATA, runs.content, seeks)], total=trues)


def _floating(array: pa.Array, _kind: HiveType, inner: np.ndarray) -> _Values:
    values = array.to_numpy(zero_copy_only=False)
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
        bounds = [float_bounds(*one) for one in edges]
        low, high = [one for one, _ in bounds], [one for _, one in bounds]
    size = values.dtype.itemsize
    seeks = tuple((size * at,) for at in inner[:-1].tolist())
    content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return _Values([Stream(Kind.DATA, content, seeks)], Encoding.DIRECT, low, high, total)


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
            Stream(Kind.DATA, content, _bytes_at(ends, inner)),
            Stream(Kind.SECONDARY, scales.content, _seeks(scales, inner)),
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
    """Of the groups that have a value."""
    return ((start, end) for start, end in pairwise(inner.tolist()) if end > start)


def _timestamp(array: pa.Array, _kind: HiveType, inner: np.ndarray) -> _Values:
    factor = _NANOS_OF[array.type.unit]
    values = _int64(array.view(pa.int64()))
    low, high = _extremes(values, inner)
    seconds = values // (_NANOS // factor)
    nanos = (values - seconds * (_NANOS // factor)) * factor
    # As all writers of ORC do; readers take it back.
    seconds += (seconds < 0) & (nanos > 999_999)
    data, rest = integers(seconds - _EPOCH), integers(_shortened(nanos), signed=False)
    return _Values(
        [
            Stream(Kind.DATA, data.content, _seeks(data, inner)),
            Stream(Kind.SECONDARY, rest.content, _seeks(rest, inner)),
        ],
        Encoding.DIRECT_V2,
        [one * factor for one in low],
        [one * factor for one in high],
    )


def _shortened(nanos: np.ndarray) -> np.ndarray:
    """Two zeros at the end or more go into the lowest three bits: how many, less one."""
    values, zeros = nanos.copy(), np.zeros(len(nanos), np.int64)
    some = nanos != 0
    for count in range(2, 9):
        fits = some & (nanos % 10**count == 0)
        if not fits.any():
            break
        values[fits] = nanos[fits] // 10**count
        zeros[fits] = count - 1
    return values << 3 | zeros


def _bytes(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    if kind.kind != "binary" and _repeats(array):
        found = _dictionary(array, inner)
        if found is not None:
            return found
    content, lengths, ends = _content(array)
    sizes = integers(lengths, signed=False)
    streams = [
        Stream(Kind.DATA, content, _bytes_at(ends, inner)),
        Stream(Kind.LENGTH, sizes.content, _seeks(sizes, inner)),
    ]
    total = _sums(lengths, inner, [0], [int(lengths.max(initial=0))])
    if kind.kind == "binary":
        return _Values(streams, Encoding.DIRECT_V2, total=total)
    edges = [pc.min_max(array.slice(start, end - start)) for start, end in _slices(inner)]
    return _Values(
        streams,
        Encoding.DIRECT_V2,
        [one["min"].as_py() for one in edges],
        [one["max"].as_py() for one in edges],
        total,
    )


def _content(array: pa.Array) -> tuple[bytes, np.ndarray, np.ndarray]:
    """All bytes, the length of each value, and where each ends."""
    if not len(array):
        return b"", np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    places = places.astype(np.int64)
    content = data[int(places[0]) : int(places[-1])].to_pybytes() if data else b""
    return content, np.diff(places), places[1:] - places[0]


def _repeats(array: pa.Array) -> bool:
    sample = array.slice(0, _SAMPLE)
    return len(array) > 1 and pc.count_distinct(sample).as_py() <= _REPEATED * len(sample)


def _dictionary(array: pa.Array, inner: np.ndarray) -> _Values | None:
    """None where too many values are distinct after all."""
    encoded = array.dictionary_encode()
    words = encoded.dictionary
    if len(words) > _REPEATED * len(array):
        return None
    order = pc.sort_indices(words).to_numpy()
    ranks = np.empty(len(words), np.int64)
    ranks[order] = np.arange(len(words))
    indexes = ranks[encoded.indices.to_numpy()]
    words = words.take(pa.array(order))
    content, lengths, _ = _content(words)
    data, sizes = integers(indexes, signed=False), integers(lengths, signed=False)
    low, high = _extremes(indexes, inner)
    texts = words.to_pylist()
    return _Values(
        [
            Stream(Kind.DATA, data.content, _seeks(data, inner)),
            Stream(Kind.LENGTH, sizes.content),
            Stream(Kind.DICTIONARY_DATA, content),
        ],
        Encoding.DICTIONARY_V2,
        [texts[one] for one in low],
        [texts[one] for one in high],
        _sums(lengths[indexes], inner, [0], [int(lengths.max())]),
        len(words),
    )


def _text(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    return _bytes(array.view(pa.binary()), kind, inner)  # files may hold what is no UTF-8


def _struct(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    return _Values(
        [],
        below=(
            one
            for index, (_, child) in enumerate(kind.children)
            for one in encode(array.field(index), child, inner)
        ),
    )


def _repeated(array: pa.Array, kind: HiveType, inner: np.ndarray) -> _Values:
    """Lists and maps: lengths, and the children one after another."""
    places = _int64(offsets_of(array)) if len(array) else np.zeros(1, np.int64)
    first, last = int(places[0]), int(places[-1])
    runs = integers(np.diff(places), signed=False)
    children = (array.keys, array.items) if kind.kind == "map" else (array.values,)
    below = (
        one
        for content, (_, child) in zip(children, kind.children, strict=True)
        for one in encode(content.slice(first, last - first), child, places[inner] - first)
    )
    return _Values(
        [Stream(Kind.LENGTH, runs.content, _seeks(runs, inner))], Encoding.DIRECT_V2, below=below
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
