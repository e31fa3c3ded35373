"""Hive's bucket hash on Arrow arrays: which bucket a row belongs to (F11).

Version 2 is Murmur3 with Hive's own quirks, version 1 is Java's hashCode. The table property
`bucketing_version` selects the version; the default is 1. Both differ from Spark's `hash` and
`bucketBy`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.errors import InvalidDefinition, WrongType
from acid_platform.layout.types import HiveType

SEED = 104729
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_FLOATS = {
    "float": (pa.float32(), np.int32, np.float32, ">f4"),
    "double": (pa.float64(), np.int64, np.float64, ">f8"),
}
_WHOLE = {
    "tinyint": (pa.int8(), ">i1"),
    "smallint": (pa.int16(), ">i2"),
    "int": (pa.int32(), ">i4"),
    "bigint": (pa.int64(), ">i8"),
}
_TEXT = ("string", "varchar", "char", "binary")

Hash = Callable[[pa.Array, HiveType], np.ndarray]


@dataclass(frozen=True, slots=True)
class Bucketing:
    """CLUSTERED BY (`columns`) INTO `count` BUCKETS, with bucketing_version `version`."""

    columns: tuple[str, ...]
    count: int
    version: int = 2


def bucket_ids(
    columns: Sequence[pa.Array], types: Sequence[HiveType], buckets: int, version: int
) -> np.ndarray:
    """The bucket number of each row, int32 (n,); `columns` are in CLUSTERED BY order.

    A NULL hashes to 0. Raises InvalidDefinition for a type that can't be hashed as Hive does, for
    versions other than 1 and 2, and for fewer than one bucket; WrongType if an array does not hold
    values of its type.
    """
    if buckets < 1 or not columns:
        raise InvalidDefinition(
            f"{len(columns)} bucket columns into {buckets} buckets: CLUSTERED BY (…) INTO n BUCKETS"
            " needs at least one column and one bucket"
        )
    hashes = bucket_hashes(columns, types, version)
    return (hashes & 0x7FFFFFFF) % np.int32(buckets)


def bucket_hashes(
    columns: Sequence[pa.Array], types: Sequence[HiveType], version: int
) -> np.ndarray:
    """The combined hash of each row, int32 (n,). Raises as `bucket_ids`."""
    if version not in (1, 2):
        raise InvalidDefinition(f"bucketing_version={version} is unknown; use 1 or 2")
    for kind in types:
        refuse_unhashable(kind)
    hash_column = _hash2 if version == 2 else _hash1
    combined: np.ndarray = np.zeros(len(columns[0]), np.int32)
    for array, kind in zip(columns, types, strict=True):
        combined = combined * np.int32(31) + hash_column(_array(array), kind)
    return combined


def refuse_unhashable(kind: HiveType) -> None:
    """Raises InvalidDefinition for a type that can't be a bucket column."""
    hashed = (*_FLOATS, *_WHOLE, *_TEXT, "boolean", "date", "array", "map", "struct")
    for part in kind.walk():
        if part.kind not in hashed:
            raise InvalidDefinition(
                f"{part} can't be part of a bucket column, because Hive hashes its own serialised"
                " form of it; cluster by another column"
            )


def _array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _hash2(array: pa.Array, kind: HiveType) -> np.ndarray:
    """Version 2; types that it does not define hash as in version 1."""
    name = kind.kind
    if name in ("smallint", "int", "bigint"):
        target, big_endian = _WHOLE[name]
        return _nulled(_fixed(_numbers(array, target).astype(big_endian)), array)
    if name == "date":
        return _nulled(_fixed(_numbers(array, pa.int32()).astype(">i4")), array)
    if name in _FLOATS:
        _, _, target, big_endian = _FLOATS[name]
        # Hive's quirk: the bits, as an integer, are converted to a float once more.
        return _nulled(_fixed(_bits(array, name).astype(target).astype(big_endian)), array)
    if name in _TEXT:
        return _nulled(_murmur_of_bytes(*_bytes(array, name == "char")), array)
    return _common(array, kind, _hash2)


def _hash1(array: pa.Array, kind: HiveType) -> np.ndarray:
    name = kind.kind
    if name in _WHOLE or name == "date":
        target = _WHOLE[name][0] if name in _WHOLE else pa.int32()
        return _nulled(_folded(_numbers(array, target)), array)
    if name in _FLOATS:
        return _nulled(_folded(_bits(array, name)), array)
    if name in _TEXT:
        start = 0 if name == "string" else 1
        content, starts, lengths = _bytes(array, name == "char")
        return _nulled(_polynomial(content.view(np.int8), starts, lengths, start), array)
    return _common(array, kind, _hash1)


def _common(array: pa.Array, kind: HiveType, child_hash: Hash) -> np.ndarray:
    """The types that both versions hash alike."""
    match kind.kind:
        case "boolean":
            return _nulled(_numbers(array, pa.bool_()).astype(np.int32), array)
        case "tinyint":
            return _nulled(_numbers(array, pa.int8()).astype(np.int32), array)
        case "struct":
            total: np.ndarray = np.zeros(len(array), np.int32)
            for i, (_, child) in enumerate(kind.children):
                # Unlike field(), struct_field respects slices and NULLs of the parent.
                field = _array(pc.struct_field(array, [i]))
                total = total * np.int32(31) + child_hash(field, child)
            return _nulled(total, array)
        case "array":
            elements = child_hash(array.flatten(), kind.children[0][1])
            lengths = _lengths(array)
            return _nulled(_polynomial(elements, np.cumsum(lengths) - lengths, lengths), array)
        case _:
            pairs = _pairs(array)
            entries = pairs.flatten()
            (_, key), (_, value) = kind.children
            # Version 2 also hashes the values of a map as version 1 does.
            mixed = child_hash(pc.struct_field(entries, [0]), key) ^ _hash1(
                pc.struct_field(entries, [1]), value
            )
            return _nulled(_summed(mixed, _lengths(pairs)), array)


def _pairs(array: pa.Array) -> pa.ListArray:
    """A map as a list of structs."""
    pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    return array.cast(pa.list_(pair))


def _nulled(hashes: np.ndarray, array: pa.Array) -> np.ndarray:
    if array.null_count:
        hashes[pc.is_null(array).to_numpy(zero_copy_only=False)] = 0
    return hashes


def _numbers(array: pa.Array, target: pa.DataType) -> np.ndarray:
    """Values as NumPy numbers of type `target`, (n,); any number for NULL. Raises WrongType."""
    try:
        if pa.types.is_date(array.type):
            array = array.cast(pa.date32()).cast(pa.int32())
        numbers: np.ndarray = (
            array.cast(target)
            .fill_null(False if pa.types.is_boolean(target) else 0)
            .to_numpy(zero_copy_only=False)
        )
    except pa.ArrowInvalid as error:
        raise WrongType(f"a bucket column holds a value that is not {target}: {error}") from error
    return numbers


def _bits(array: pa.Array, name: str) -> np.ndarray:
    """IEEE bits as a signed integer; every NaN becomes Java's canonical NaN."""
    target, integer, _, _ = _FLOATS[name]
    values = _numbers(array, target).copy()
    values[np.isnan(values)] = np.nan
    return values.view(integer)


def _folded(values: np.ndarray) -> np.ndarray:
    """Java's hashCode of an int or long."""
    if values.dtype.itemsize < 8:
        return values.astype(np.int32)
    unsigned = values.astype(np.int64).view(np.uint64)
    return (unsigned ^ (unsigned >> np.uint64(32))).astype(np.uint32).view(np.int32)


def _lengths(array: pa.Array) -> np.ndarray:
    lengths = pc.list_value_length(array).fill_null(0).cast(pa.int64())
    return np.asarray(lengths.to_numpy(zero_copy_only=False))


def _summed(elements: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    sums = np.concatenate([[0], np.cumsum(elements.astype(np.int64))])
    ends = np.cumsum(lengths)
    wide = sums[ends] - sums[ends - lengths]
    return np.asarray(wide.astype(np.uint64).astype(np.uint32).view(np.int32))


def _bytes(array: pa.Array, stripped: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All bytes, uint8 (m,); the start and the length of each value, int64 (n,)."""
    try:
        if stripped:
            array = pc.utf8_rtrim(array.cast(pa.large_string()), " ")
        binary = array.cast(pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise WrongType(f"a bucket column is not text: {error}") from error
    _, offsets, data = binary.buffers()
    edges = np.frombuffer(offsets, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(edges)
    if binary.null_count:  # the bytes below a NULL are undefined
        lengths = np.where(pc.is_null(binary).to_numpy(zero_copy_only=False), 0, lengths)
    return content, edges[:-1], lengths


def _polynomial(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, start: int = 0
) -> np.ndarray:
    """r = 31 r + value, from `start`, for each run of values."""
    total = np.full(len(starts), start, np.int32)
    rows = np.flatnonzero(lengths)
    position = 0
    while len(rows):
        total[rows] = total[rows] * np.int32(31) + values[starts[rows] + position]
        position += 1
        rows = rows[lengths[rows] > position]
    return total


def _fixed(big_endian: np.ndarray) -> np.ndarray:
    """Murmur3 of values of 2, 4 or 8 bytes each."""
    count, width = len(big_endian), big_endian.dtype.itemsize
    hashes = np.full(count, SEED, np.uint32)
    content = big_endian.tobytes()
    if width == 2:
        pair = np.frombuffer(content, np.int8).reshape(count, 2).astype(np.int32).view(np.uint32)
        hashes ^= _scrambled(pair[:, 0] ^ pair[:, 1] << np.uint32(8))
    else:
        for block in np.frombuffer(content, "<u4").reshape(count, width // 4).T:
            hashes = _mixed(hashes, block)
    return _finished(hashes, np.uint32(width))


def _rotated(values: np.ndarray, by: int) -> np.ndarray:
    turned: np.ndarray = (values << np.uint32(by)) | (values >> np.uint32(32 - by))
    return turned


def _scrambled(blocks: np.ndarray) -> np.ndarray:
    return np.asarray(_rotated(blocks * _C1, 15) * _C2)


def _mixed(hashes: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    turned = _rotated(hashes ^ _scrambled(blocks), 13)
    return np.asarray(turned * np.uint32(5) + np.uint32(0xE6546B64))


def _finished(hashes: np.ndarray, lengths: np.ndarray | np.uint32) -> np.ndarray:
    hashes ^= lengths
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
    return np.asarray(hashes.view(np.int32))


def _murmur_of_bytes(content: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Murmur3 x86-32 of each value; the 1 to 3 bytes of its tail are sign-extended."""
    hashes = np.full(len(starts), SEED, np.uint32)
    blocks = lengths // 4
    wide = content.astype(np.uint32)
    rows = np.flatnonzero(blocks)
    position = 0
    while len(rows):
        at = starts[rows] + 4 * position
        block = (
            wide[at]
            | wide[at + 1] << np.uint32(8)
            | wide[at + 2] << np.uint32(16)
            | wide[at + 3] << np.uint32(24)
        )
        hashes[rows] = _mixed(hashes[rows], block)
        position += 1
        rows = rows[blocks[rows] > position]
    tail = lengths - 4 * blocks
    ends = starts + 4 * blocks
    signed = content.view(np.int8).astype(np.int32).view(np.uint32)
    last = np.zeros(len(starts), np.uint32)
    for index in (2, 1, 0):
        rows = np.flatnonzero(tail > index)
        last[rows] ^= signed[ends[rows] + index] << np.uint32(8 * index)
    rows = np.flatnonzero(tail)
    hashes[rows] ^= _scrambled(last[rows])
    return _finished(hashes, lengths.astype(np.uint32))
