"""ORC's encodings of numbers, bits and decimals, a NumPy array at a time.

ORC specification v1, "Run Length Encoding": integers in version 2 (direct, delta and fixed delta;
short repeats and patches are never needed to be right), bytes and bits. Runs have their full length
throughout a stripe, so that a row group may begin inside one: its position is that of the run, and
how many values to skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from acid_platform.layout.protobuf import varint

_VALUES = 512
_BYTES = 128
_RUNS_AT_ONCE = 64
"""So many runs are looked at together: what is computed of them stays in the processor's cache."""

_WIDTHS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
"""Bits of a value: those that end at bytes, which pack fast and lose little once deflated."""
_CODES = {1: 0, 2: 1, 4: 3, 8: 7, 16: 15, 24: 23, 32: 27, 40: 28, 48: 29, 56: 30, 64: 31}
_LARGEST = np.array([(1 << width) - 1 for width in _WIDTHS], np.uint64)
_DIRECT, _DELTA = 0x40, 0xC0
_SAFE = 1 << 62
"""Differences of values below it fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Runs:
    """An encoded stream in runs of `length` values, the last one perhaps shorter."""

    content: bytes
    starts: tuple[int, ...]
    """Byte at which each run begins, and the end."""
    length: int

    def seek(self, index: int) -> tuple[int, int]:
        """Where the value `index` is found: the byte of its run, and the values before it there."""
        run, skipped = divmod(index, self.length)
        return self.starts[run], skipped


def integers(values: np.ndarray, signed: bool = True) -> Runs:
    """int64 (n,) → RLE version 2. Unsigned streams hold lengths and the like, none below 0."""
    parts: list[bytes] = []
    sizes = [0]
    for rows in _matrices(values):
        encoded, lengths = _runs(rows, signed)
        parts += encoded
        sizes += lengths
    return Runs(b"".join(parts), tuple(accumulate(sizes)), _VALUES)


def _matrices(values: np.ndarray) -> Iterator[np.ndarray]:
    """The values, a row for each run."""
    whole = len(values) // _VALUES * _VALUES
    for at in range(0, whole, _VALUES * _RUNS_AT_ONCE):
        yield values[at : min(at + _VALUES * _RUNS_AT_ONCE, whole)].reshape(-1, _VALUES)
    if whole < len(values):
        yield values[whole:].reshape(1, -1)


def _runs(rows: np.ndarray, signed: bool) -> tuple[list[bytes], list[int]]:
    """Each row of int64 (k, n) as whatever takes least of direct, delta and fixed delta.

    Answers their bytes, in pieces, and how many bytes each row takes.
    """
    count = rows.shape[1]
    low, high = rows.min(axis=1), rows.max(axis=1)
    extremes = np.maximum(zigzag(low), zigzag(high)) if signed else high.view(np.uint64)
    direct = np.searchsorted(_LARGEST, extremes)
    if count < 3:
        return _direct(rows, direct, signed)
    steps = np.diff(rows, axis=1)
    least, most = steps.min(axis=1), steps.max(axis=1)
    exact = (low > -_SAFE) & (high < _SAFE)
    wide = np.searchsorted(_LARGEST, np.maximum(np.abs(least), most).view(np.uint64))
    wide = np.maximum(wide, 1)  # a width of 1 can't be told from a fixed delta
    wide[least == most] = -1
    delta = exact & ((least == most) | (((least >= 0) | (most < 0)) & (wide < direct)))
    if not delta.any():
        return _direct(rows, direct, signed)
    if delta.all():
        return _deltas(rows, steps, wide, signed)
    plain, rest = (
        iter(_whole(*found))
        for found in (
            _direct(rows[~delta], direct[~delta], signed),
            _deltas(rows[delta], steps[delta], wide[delta], signed),
        )
    )
    mixed = [next(rest if one else plain) for one in delta.tolist()]
    return mixed, list(map(len, mixed))


def _whole(parts: list[bytes], sizes: list[int]) -> Iterator[bytes]:
    """The bytes of each row."""
    content, at = b"".join(parts), 0
    for size in sizes:
        yield content[at : at + size]
        at += size


def _direct(rows: np.ndarray, widths: np.ndarray, signed: bool) -> tuple[list[bytes], list[int]]:
    """`widths` (k,) count in _WIDTHS."""
    coded = zigzag(rows) if signed else rows.view(np.uint64)
    if len(set(widths.tolist())) == 1:
        packed = _headed(_DIRECT, rows.shape[1], coded, int(widths[0]))
        return [packed.tobytes()], [packed.shape[1]] * len(rows)
    found = _by_width(_DIRECT, rows.shape[1], coded, widths)
    return found, list(map(len, found))


def _by_width(encoding: int, count: int, values: np.ndarray, widths: np.ndarray) -> list[bytes]:
    found = [b""] * len(values)
    for width in set(widths.tolist()):
        chosen = np.flatnonzero(widths == width)
        for index, packed in zip(
            chosen.tolist(), _headed(encoding, count, values[chosen], width), strict=True
        ):
            found[index] = packed.tobytes()
    return found


def _deltas(
    rows: np.ndarray, steps: np.ndarray, widths: np.ndarray, signed: bool
) -> tuple[list[bytes], list[int]]:
    """Rows that never fall or always do; a width of -1: by the same step throughout."""
    count = rows.shape[1]
    firsts, seconds = rows[:, 0].tolist(), steps[:, 0].tolist()
    if (widths < 0).all() and len(set(firsts)) == len(set(seconds)) == 1:
        one = _fixed(count) + _based(firsts[0], seconds[0], signed)
        return [one * len(rows)], [len(one)] * len(rows)
    packed = _by_width(_DELTA, count, np.abs(steps[:, 1:]).view(np.uint64), widths)
    found = [
        each[:2] + _based(first, second, signed) + each[2:]
        for each, first, second in zip(packed, firsts, seconds, strict=True)
    ]
    return found, list(map(len, found))


def _fixed(count: int) -> bytes:
    return bytes((_DELTA | (count - 1) >> 8, (count - 1) & 255))


def _based(first: int, step: int, signed: bool) -> bytes:
    return varint(_zigzag(first) if signed else first) + varint(_zigzag(step))


def _headed(encoding: int, count: int, values: np.ndarray, width: int) -> np.ndarray:
    """uint64 (k, n) → bytes (k, 2 + m): each row behind its head, which says `count` values."""
    if width < 0:
        return np.broadcast_to(np.frombuffer(_fixed(count), np.uint8), (len(values), 2))
    packed = _pack(values, _WIDTHS[width])
    headed = np.empty((len(values), 2 + packed.shape[1]), np.uint8)
    headed[:, 0] = encoding | _CODES[_WIDTHS[width]] << 1 | (count - 1) >> 8
    headed[:, 1] = (count - 1) & 255
    headed[:, 2:] = packed
    return headed


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def zigzag(values: np.ndarray) -> np.ndarray:
    """int64 → uint64, small for what is near 0."""
    found: np.ndarray = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return found


def _pack(values: np.ndarray, width: int) -> np.ndarray:
    """uint64 (k, n) → bytes (k, m), each value in `width` bits, the highest first."""
    if width in (8, 16, 32, 64):
        return values.astype(f">u{width // 8}").view(np.uint8).reshape(len(values), -1)
    if width > 8:
        each = values.astype(">u8").view(np.uint8).reshape(*values.shape, 8)
        return each[:, :, 8 - width // 8 :].reshape(len(values), -1)
    per = 8 // width
    padded = np.zeros((len(values), -(-values.shape[1] // per) * per), np.uint8)
    padded[:, : values.shape[1]] = values
    each = padded.reshape(len(values), -1, per)
    packed = np.zeros(each.shape[:2], np.uint8)
    for index in range(per):
        packed |= each[:, :, index] << (8 - width * (index + 1))
    return packed


def octets(values: np.ndarray) -> Runs:
    """uint8 (n,) → ORC's RLE of bytes: blocks of 128, as a run where all are the same."""
    parts: list[bytes] = []
    starts = [0]
    for at in range(0, len(values), _BYTES):
        block = values[at : at + _BYTES]
        same = len(block) > 2 and bool((block == block[0]).all())
        if same:
            part = bytes((len(block) - 3, int(block[0])))
        else:
            part = bytes((256 - len(block),)) + block.tobytes()
        parts.append(part)
        starts.append(starts[-1] + len(part))
    return Runs(b"".join(parts), tuple(starts), _BYTES)


def bits(values: np.ndarray) -> Runs:
    """bool (n,) → eight to a byte, the first in the highest bit; seek bytes, then count bits."""
    return octets(np.packbits(values))


def seek_bit(runs: Runs, index: int) -> tuple[int, int, int]:
    """Where the bit `index` is found: run, bytes to skip in it, bits to skip in that byte."""
    return *runs.seek(index // 8), index % 8


def varints(low: np.ndarray, high: np.ndarray | None = None) -> tuple[bytes, np.ndarray]:
    """Two's complement numbers as zigzag varints, and the byte at which each ends, int64 (n,).

    `low` int64 (n,): the values; or with `high` int64 (n,) their lower and upper 64 bits.
    """
    groups = _groups_of_7(low, high)
    longest = len(groups)
    sizes = np.ones(len(low), np.uint8)
    for index in range(1, longest):
        sizes[groups[index] != 0] = index + 1
    matrix = np.empty((len(low), longest), np.uint8)
    for index, group in enumerate(groups):
        matrix[:, index] = group | (sizes > index + 1).view(np.uint8) << 7
    content = matrix[np.arange(longest, dtype=np.uint8) < sizes[:, None]]
    return content.tobytes(), np.cumsum(sizes, dtype=np.int64)


def _groups_of_7(low: np.ndarray, high: np.ndarray | None) -> list[np.ndarray]:
    """The bits of the zigzag values, lowest first; as many groups as the largest needs."""
    if high is None:
        values = zigzag(low)
        bits_needed = int(values.max(initial=0)).bit_length()
        return [
            (values >> np.uint64(at)).astype(np.uint8) & 127
            for at in range(0, max(bits_needed, 1), 7)
        ]
    sign = (high >> 63).view(np.uint64)
    lower = (low.view(np.uint64) << np.uint64(1)) ^ sign
    upper = ((high.view(np.uint64) << np.uint64(1)) | (low.view(np.uint64) >> np.uint64(63))) ^ sign
    bits_needed = 64 + int(upper.max(initial=0)).bit_length()
    groups = []
    for at in range(0, bits_needed, 7):
        if at < 64:
            group = lower >> np.uint64(at)
            if at > 57:
                group |= upper << np.uint64(64 - at)
        else:
            group = upper >> np.uint64(at - 64)
        groups.append(group.astype(np.uint8) & 127)
    return groups
