"""Checksums of row keys that do not depend on the order of the rows."""

from __future__ import annotations

import numpy as np

MODULUS = 2_147_483_647
"""Hashes of rows are taken modulo it, so that their sum over 4 billion rows fits Spark's bigint."""

_SEED = np.uint64(42)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def row_id_checksum(write_ids: np.ndarray, buckets: np.ndarray, row_ids: np.ndarray) -> int:
    """Sum over the rows of Spark's `pmod(xxhash64(write id, bucket property, rowId), MODULUS)`.

    The arrays have shape (n,) and hold bigint, int and bigint.
    """
    with np.errstate(over="ignore"):
        hashes = np.full(len(row_ids), _SEED)
        hashes = _hash_long(write_ids, hashes)
        hashes = _hash_int(buckets, hashes)
        hashes = _hash_long(row_ids, hashes)
    return int((hashes.view(np.int64) % MODULUS).sum(dtype=np.int64))


def _hash_long(values: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """XXH64 of 8 bytes each; `seeds` uint64 (n,)."""
    words = values.astype(np.int64, copy=False).view(np.uint64)
    mixed = seeds + _P5 + np.uint64(8)
    mixed ^= _rotated(words * _P2, 31) * _P1
    return _avalanched(_rotated(mixed, 27) * _P1 + _P4)


def _hash_int(values: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """XXH64 of 4 bytes each."""
    words = values.astype(np.int64, copy=False).view(np.uint64) & np.uint64(0xFFFFFFFF)
    mixed = seeds + _P5 + np.uint64(4)
    mixed ^= words * _P1
    return _avalanched(_rotated(mixed, 23) * _P2 + _P3)


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _avalanched(words: np.ndarray) -> np.ndarray:
    words = words ^ (words >> np.uint64(33))
    words = words * _P2
    words = words ^ (words >> np.uint64(29))
    words = words * _P3
    mixed: np.ndarray = words ^ (words >> np.uint64(32))
    return mixed
