"""ORC's run length encodings of integers, bytes, bits and decimals, on whole NumPy arrays.

ORC specification v1, "Run Length Encoding". Integers use version 2 with the direct, delta and fixed
delta encodings; short repeat and patched base are optional for a writer. All runs of a stripe but
the last have full length, so a row group may begin inside a run: its position is the start of the
run and the number of values to skip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from acid_platform.formats.orc.protobuf import UnreadableMessage, read_varint, varint, zigzag

_VALUES = 512
_BYTES = 128
_RUNS_AT_ONCE = 64
"""Runs that are encoded together: few enough for the processor's cache."""

_WIDTHS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
"""Bit widths in use: whole bytes and their divisors pack fast, and lose little once deflated."""
_CODES = {1: 0, 2: 1, 4: 3, 8: 7, 16: 15, 24: 23, 32: 27, 40: 28, 48: 29, 56: 30, 64: 31}
_LARGEST = np.array([(1 << width) - 1 for width in _WIDTHS], np.uint64)
_DIRECT, _DELTA = 0x40, 0xC0
_SAFE = 1 << 62
"""Differences of values below this bound fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Runs:
    """An encoded stream in runs of `length` values, the last one perhaps shorter."""

    content: bytes
    starts: tuple[int, ...]
    """The byte at which each run begins, and the end."""
    length: int

    def seek(self, index: int) -> tuple[int, int]:
        """The position of value `index`: the byte of its run, and the values to skip in the run."""
        run, skipped = divmod(index, self.length)
        return self.starts[run], skipped


def integers(values: np.ndarray, signed: bool = True) -> Runs:
    """Encodes int64 (n,) in RLE version 2; values of unsigned streams must not be negative."""
    parts: list[bytes] = []
    sizes = [0]
    for rows in _matrices(values):
        encoded, lengths = _runs(rows, signed)
        parts += encoded
        sizes += lengths
    return Runs(b"".join(parts), tuple(accumulate(sizes)), _VALUES)


def _matrices(values: np.ndarray) -> Iterator[np.ndarray]:
    """The values as matrices int64 (k, n) with one run per row."""
    whole = len(values) // _VALUES * _VALUES
    for at in range(0, whole, _VALUES * _RUNS_AT_ONCE):
        yield values[at : min(at + _VALUES * _RUNS_AT_ONCE, whole)].reshape(-1, _VALUES)
    if whole < len(values):
        yield values[whole:].reshape(1, -1)


def _runs(rows: np.ndarray, signed: bool) -> tuple[list[bytes], list[int]]:
    """Encodes each row of int64 (k, n) as direct, delta or fixed delta, whichever is smallest.

    Returns the encoded bytes, in pieces, and the number of bytes of each row.
    """
    count = rows.shape[1]
    if count > 2 and (step := _only_step(rows)) is not None:
        firsts = rows[:, 0].tolist() if step else [int(rows[0, 0])]
        runs = [_fixed(count) + _based(first, step, signed) for first in firsts]
        runs *= len(rows) // len(runs)  # of one value, all runs are equal
        return runs, list(map(len, runs))
    low, high = rows.min(axis=1), rows.max(axis=1)
    extremes = np.maximum(_zigzags(low), _zigzags(high)) if signed else high.view(np.uint64)
    direct = np.searchsorted(_LARGEST, extremes)
    if count < 3:
        return _direct(rows, direct, signed)
    steps = rows[:, 1:] - rows[:, :-1]
    least, most = steps.min(axis=1), steps.max(axis=1)
    if ((least < 0) & (most >= 0)).all():  # no row only rises or only falls
        return _direct(rows, direct, signed)
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
        iter(_whole(*encoded))
        for encoded in (
            _direct(rows[~delta], direct[~delta], signed),
            _deltas(rows[delta], steps[delta], wide[delta], signed),
        )
    )
    mixed = [next(rest if is_delta else plain) for is_delta in delta.tolist()]
    return mixed, list(map(len, mixed))


def _only_step(rows: np.ndarray) -> int | None:
    """The difference of each value to the one before it, if it is the same everywhere: of columns
    with one value, and of rowIds."""
    values = rows.reshape(-1)
    first, second, last = (int(values[at]) for at in (0, 1, -1))
    step = second - first
    if last - first != step * (len(values) - 1) or max(abs(first), abs(last)) >= _SAFE:
        return None
    return step if (values[1:] - values[:-1] == step).all() else None


def _whole(parts: list[bytes], sizes: list[int]) -> Iterator[bytes]:
    """The bytes of each row, of which `sizes` are the lengths."""
    content, at = b"".join(parts), 0
    for size in sizes:
        yield content[at : at + size]
        at += size


def _direct(rows: np.ndarray, widths: np.ndarray, signed: bool) -> tuple[list[bytes], list[int]]:
    """Direct encoding of each row; `widths` (k,) are indexes into _WIDTHS."""
    coded = _zigzags(rows) if signed else rows.view(np.uint64)
    if len(set(widths.tolist())) == 1:
        packed = _headed(_DIRECT, rows.shape[1], coded, int(widths[0]))
        return [packed.tobytes()], [packed.shape[1]] * len(rows)
    encoded = _by_width(_DIRECT, rows.shape[1], coded, widths)
    return encoded, list(map(len, encoded))


def _by_width(encoding: int, count: int, values: np.ndarray, widths: np.ndarray) -> list[bytes]:
    encoded = [b""] * len(values)
    for width in set(widths.tolist()):
        chosen = np.flatnonzero(widths == width)
        for index, packed in zip(
            chosen.tolist(), _headed(encoding, count, values[chosen], width), strict=True
        ):
            encoded[index] = packed.tobytes()
    return encoded


def _deltas(
    rows: np.ndarray, steps: np.ndarray, widths: np.ndarray, signed: bool
) -> tuple[list[bytes], list[int]]:
    """Delta encoding of monotonic rows; a width of -1 means a constant step."""
    count = rows.shape[1]
    firsts, seconds = rows[:, 0].tolist(), steps[:, 0].tolist()
    packed = _by_width(_DELTA, count, np.abs(steps[:, 1:]).view(np.uint64), widths)
    encoded = [
        each[:2] + _based(first, second, signed) + each[2:]
        for each, first, second in zip(packed, firsts, seconds, strict=True)
    ]
    return encoded, list(map(len, encoded))


def _fixed(count: int) -> bytes:
    return bytes((_DELTA | (count - 1) >> 8, (count - 1) & 255))


def _based(first: int, step: int, signed: bool) -> bytes:
    return varint(zigzag(first) if signed else first) + varint(zigzag(step))


def _headed(encoding: int, count: int, values: np.ndarray, width: int) -> np.ndarray:
    """uint64 (k, n) → bytes (k, 2 + m): each row packed, after its header for `count` values."""
    if width < 0:
        return np.broadcast_to(np.frombuffer(_fixed(count), np.uint8), (len(values), 2))
    packed = _pack(values, _WIDTHS[width])
    headed = np.empty((len(values), 2 + packed.shape[1]), np.uint8)
    headed[:, 0] = encoding | _CODES[_WIDTHS[width]] << 1 | (count - 1) >> 8
    headed[:, 1] = (count - 1) & 255
    headed[:, 2:] = packed
    return headed


def _zigzags(values: np.ndarray) -> np.ndarray:
    """Zigzag encoding, int64 → uint64."""
    encoded: np.ndarray = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return encoded


def _pack(values: np.ndarray, width: int) -> np.ndarray:
    """uint64 (k, n) → bytes (k, m): each value in `width` bits, highest bit first."""
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
    """Encodes uint8 (n,) in ORC's byte RLE: blocks of 128, a run if all bytes are equal."""
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
    """Encodes bool (n,), eight values to a byte, the first in the highest bit; see `seek_bit`."""
    return octets(np.packbits(values))


def seek_bit(runs: Runs, index: int) -> tuple[int, int, int]:
    """The position of bit `index`: its run, the bytes to skip in it, the bits to skip then."""
    return *runs.seek(index // 8), index % 8


def varints(low: np.ndarray, high: np.ndarray | None = None) -> tuple[bytes, np.ndarray]:
    """Encodes numbers as zigzag varints; also returns the byte at which each ends, int64 (n,).

    `low`, int64 (n,), holds the values; with `high`, int64 (n,), the two are the lower and upper 64
    bits of 128-bit values.
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
    """The zigzag values in groups of 7 bits, lowest first; as many as the largest value needs."""
    if high is None:
        values = _zigzags(low)
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


# --- runs of others, looked at before a reader makes room for what they say -----------------------

_BITS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""Bit widths of version 2 by their codes."""
MOST_RUNS = 1 << 22
"""Runs of a stream; each takes about a microsecond."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    count: int
    most: int
    """No value is larger; of some runs it is more than the largest."""
    values: Callable[[], np.ndarray]


def unsigned_runs(blocks: Iterable[bytes], count: int, version: int) -> Iterator[StoredRun]:
    """The runs of a stream with the first `count` of its values, which are not negative.

    `version`: 1 or 2 of the encoding. Raises UnreadableMessage for a negative value, and for more
    than MOST_RUNS. A stream may end before, as the reader will find.
    """
    following, held, at = iter(blocks), b"", 0
    run = _run_of_1 if version == 1 else _run_of_2
    for _ in range(MOST_RUNS):
        while count > 0:
            try:
                read, end = run(held, at)
                if end > len(held):
                    raise IndexError
                break
            except (IndexError, UnreadableMessage):
                more = next(following, None)
                if more is None:
                    return
                held, at = held[at:] + more, 0
        if count <= 0:
            return
        yield read
        count, at = count - read.count, end
    raise UnreadableMessage(f"a stream has more than {MOST_RUNS:,} runs")


def _run_of_1(data: bytes, at: int) -> tuple[StoredRun, int]:
    head, at = data[at], at + 1
    if head < 128:
        step, at = (data[at] + 128) % 256 - 128, at + 1
        first, at = read_varint(data, at)
        return _steps(head + 3, first, step), at
    values = []
    for _ in range(256 - head):
        value, at = read_varint(data, at)
        values.append(value)
    return StoredRun(len(values), max(values), lambda: np.array(values, np.uint64)), at


def _run_of_2(data: bytes, at: int) -> tuple[StoredRun, int]:
    head = data[at]
    kind, code = head >> 6, head >> 1 & 31
    if kind == 0:
        end = at + 2 + (head >> 3 & 7)
        return _steps((head & 7) + 3, int.from_bytes(data[at + 1 : end], "big"), 0), end
    bits, count, at = _BITS[code], ((head & 1) << 8 | data[at + 1]) + 1, at + 2
    if kind == 1:
        end = at + (count * bits + 7) // 8
        return StoredRun(count, (1 << bits) - 1, partial(_packed, data, at, count, bits)), end
    if kind == 2:
        return _patched(data, at, count, bits)
    first, at = read_varint(data, at)
    turned, at = read_varint(data, at)
    step = turned >> 1 ^ -(turned & 1)
    if code == 0 or count < 3:
        return _steps(count, first, step), at
    most = first + (abs(step) + (count - 2) * ((1 << bits) - 1) if step >= 0 else 0)

    def values() -> np.ndarray:
        steps = _packed(data, at, count - 2, bits).astype(np.float64)
        signed = np.concatenate(([float(first), float(step)], steps if step >= 0 else -steps))
        return _not_negative(np.cumsum(signed))

    return StoredRun(count, most, values), at + ((count - 2) * bits + 7) // 8


def _steps(count: int, first: int, step: int) -> StoredRun:
    last = first + step * (count - 1)
    if last < 0:
        raise UnreadableMessage("a length is negative")
    return StoredRun(
        count,
        max(first, last),
        lambda: first + step * np.arange(count, dtype=np.float64),
    )


def _patched(data: bytes, at: int, count: int, bits: int) -> tuple[StoredRun, int]:
    """A run in which few values have more bits than the others."""
    width, of_patch = (data[at] >> 5) + 1, _BITS[data[at] & 31]
    of_gap, patches = (data[at + 1] >> 5) + 1, data[at + 1] & 31
    base = int.from_bytes(data[at + 2 : at + 2 + width], "big")
    sign = 1 << 8 * width - 1
    first = at + 2 + width
    last = first + (count * bits + 7) // 8
    together = next((each for each in _BITS if each >= of_gap + of_patch), 64)

    def values() -> np.ndarray:
        found = _packed(data, first, count, bits).astype(np.float64)
        row = 0
        for patch in _packed(data, last, patches, together).tolist():
            row += int(patch) >> of_patch
            if row < count:
                found[row] += (int(patch) & (1 << of_patch) - 1) * 2.0**bits
        return _not_negative(found + (float(base) if base < sign else float(sign - base)))

    most = (base if base < sign else 0) + (1 << bits + of_patch) - 1
    return StoredRun(count, most, values), last + (patches * together + 7) // 8


def _packed(data: bytes, at: int, count: int, bits: int) -> np.ndarray:
    """Unsigned numbers (count,) of so many bits each, uint64."""
    content = np.frombuffer(data, np.uint8, (count * bits + 7) // 8, at)
    each = np.unpackbits(content)[: count * bits].reshape(count, bits)
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint64)
    result: np.ndarray = (each.astype(np.uint64) << shifts).sum(axis=1, dtype=np.uint64)
    return result


def _not_negative(values: np.ndarray) -> np.ndarray:
    if len(values) and values.min() < 0:
        raise UnreadableMessage("a length is negative")
    return values
