"""Whether a compaction kept its rows: profiles of its input and output, and their checksums.

A profile is a sum over rows modulo 2^64, so tasks can profile their buckets separately and the
order of rows does not matter. Each value gets a 64-bit hash. Numbers, dates and timestamps are
hashed here; for all other types DuckDB's vectorised hash function is used, in memory, one batch at
a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import PerProcess
from acid_platform.values.arrow_types import from_numpy, values_of

if TYPE_CHECKING:
    import duckdb

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared between the inputs of a compaction (with deletes applied) and its output.

    `row_id_checksum` is the sum of a 64-bit hash of (originalTransaction, bucket, rowId) over the
    rows, `column_checksums` the sum of a hash of each value. `delete_events` and their checksum
    matter for a minor compaction, which keeps delete events. `disordered` counts files without a
    key index, which is only written if the keys ascend. The caller chooses the hash; it must be the
    same on both sides.
    """

    rows: int = 0
    row_id_checksum: int = 0
    delete_events: int = 0
    delete_event_checksum: int = 0
    column_checksums: Mapping[str, int] = field(default_factory=dict)
    null_counts: Mapping[str, int] = field(default_factory=dict)
    disordered: int = 0


class Invariant(Enum):
    """What a compaction has to keep; the values are shown to users."""

    ROWS = "rows"
    ROW_IDS = "row ids"
    DELETE_EVENTS = "delete events"
    VALUES = "column values"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Measure:
    """A number before and after a compaction; None if that side lacks the column."""

    invariant: Invariant
    what: str
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        expected, actual = (
            "absent" if value is None else str(value) for value in (self.expected, self.actual)
        )
        return f"{self.what}: expected {expected}, got {actual}"


def combine(profiles: Iterable[Profile]) -> Profile:
    every = list(profiles)
    checksums: Counter[str] = Counter()
    nulls: Counter[str] = Counter()
    for profile in every:
        checksums.update(profile.column_checksums)
        nulls.update(profile.null_counts)
    return Profile(
        rows=sum(profile.rows for profile in every),
        row_id_checksum=sum(profile.row_id_checksum for profile in every) & _MASK,
        delete_events=sum(profile.delete_events for profile in every),
        delete_event_checksum=sum(profile.delete_event_checksum for profile in every) & _MASK,
        column_checksums={name: value & _MASK for name, value in checksums.items()},
        null_counts=dict(nulls),
        disordered=sum(profile.disordered for profile in every),
    )


def measures(expected: Profile, actual: Profile) -> tuple[Measure, ...]:
    """All measures of two profiles; columns are sorted by name."""
    events = Invariant.DELETE_EVENTS
    compared = [
        Measure(Invariant.ROWS, "rows", expected.rows, actual.rows),
        Measure(Invariant.ROW_IDS, "row ids", expected.row_id_checksum, actual.row_id_checksum),
        Measure(events, "delete events", expected.delete_events, actual.delete_events),
        Measure(
            events, "delete event ids", expected.delete_event_checksum, actual.delete_event_checksum
        ),
        Measure(Invariant.ORDER, "files out of order", expected.disordered, actual.disordered),
    ]
    for title, before, after in (
        ("checksum", expected.column_checksums, actual.column_checksums),
        ("null count", expected.null_counts, actual.null_counts),
    ):
        compared += [
            Measure(
                Invariant.VALUES, f"{title} of column {name}", before.get(name), after.get(name)
            )
            for name in sorted({*before, *after})
        ]
    return tuple(compared)


def compare(expected: Profile, actual: Profile) -> tuple[Measure, ...]:
    """The measures that a compaction changed; empty if it is correct."""
    return tuple(
        measure for measure in measures(expected, actual) if measure.expected != measure.actual
    )


class ValueSums:
    """For each column, the number of NULLs and the sum of the hashes of the other values mod 2^64.

    Timestamps are hashed in nanoseconds; years that these can't hold wrap around.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._checksums: Counter[str] = Counter()
        self._nulls: Counter[str] = Counter()
        self._few: list[pa.RecordBatch] = []
        """Small batches of one schema, to be added together."""
        self._few_bytes = 0
        self._coded: list[tuple[str, pa.Array, pa.Array]] = []
        """The values of columns of texts with a dictionary, and how often each is there."""
        self._coded_bytes = 0

    def add(self, rows: pa.RecordBatch | None) -> None:
        """Add a batch of rows with the columns, in order."""
        if not rows or not self._columns:
            return
        if self._few and self._few[0].schema != rows.schema:
            self._add_few()
        self._few.append(rows)
        self._few_bytes += rows.nbytes
        if self._few_bytes >= _FEW_BYTES:
            self._add_few()

    def _add_few(self) -> None:
        few, self._few, self._few_bytes = self._few, [], 0
        if few:
            for rows in pa.Table.from_batches(few).combine_chunks().to_batches():
                self._add(rows)

    def _add(self, rows: pa.RecordBatch) -> None:
        others: dict[str, pa.Array] = {}
        for name, values in zip(self._columns, rows.columns, strict=True):
            self._nulls[name] += values.null_count
            if pa.types.is_dictionary(values.type):
                self._note_codes(name, values)
            elif (mixed := _mixed(values)) is None:
                others[name] = _hashable(values)
            else:
                self._checksums[name] += mixed
        if others:
            self._add_hashes(others)
        if self._coded_bytes >= _FEW_BYTES:
            self._add_coded()

    def _add_hashes(self, values: Mapping[str, pa.Array]) -> None:
        # The hash of a list ignores NULLs at its end; the hash of its text does not.
        each = ", ".join(
            f"sum(hash(c{i}{f', c{i}::VARCHAR' if pa.types.is_nested(array.type) else ''}))"
            for i, array in enumerate(values.values())
        )
        columns = {f"c{i}": array for i, array in enumerate(values.values())}
        [hashes] = self._computed(each, columns)
        for name, checksum in zip(values, hashes, strict=True):
            self._checksums[name] += int(checksum)

    def _note_codes(self, name: str, values: pa.DictionaryArray) -> None:
        texts = _hashable(values.dictionary)
        codes = values_of(values.indices.drop_null())
        times = np.append(np.bincount(codes, minlength=len(texts)), values.null_count)
        texts = pa.concat_arrays([texts, pa.nulls(1, texts.type)])  # which has a hash, too
        self._coded.append((name, texts, from_numpy(times)))
        self._coded_bytes += times.nbytes + texts.nbytes

    def _add_coded(self) -> None:
        """Each value of a dictionary is hashed once, and counted as often as it is there."""
        coded, self._coded, self._coded_bytes = self._coded, [], 0
        if not coded:
            return
        names, values, times = zip(*coded, strict=True)
        of = np.repeat([self._columns.index(name) for name in names], list(map(len, times)))
        columns = {"c": pa.concat_arrays(values), "n": pa.concat_arrays(times), "o": from_numpy(of)}
        for number, checksum in self._computed(
            "o, sum(hash(c)::HUGEINT * n)", columns, "GROUP BY o"
        ):
            self._checksums[self._columns[number]] += checksum

    def _computed(
        self, items: str, columns: Mapping[str, pa.Array], groups: str = ""
    ) -> list[tuple[int, ...]]:
        if self._connection is None:
            self._connection = _DATABASE.get().cursor()
        self._connection.register("batch", pa.table(dict(columns)))
        return self._connection.execute(f"SELECT {items} FROM batch {groups}").fetchall()

    def profile(self) -> Profile:
        """The checksums and NULL counts so far; the other fields of the profile are unset."""
        self._add_few()
        self._add_coded()
        return combine(
            [
                Profile(
                    column_checksums=dict.fromkeys(self._columns, 0) | self._checksums,
                    null_counts=dict.fromkeys(self._columns, 0) | self._nulls,
                )
            ]
        )


def _new_database() -> duckdb.DuckDBPyConnection:
    """A database in memory for all sums of a process: opening one takes 18 ms, a cursor 0.6 ms.

    With one thread a cursor computes in the thread that calls it.
    """
    from acid_platform.base.databases import in_memory

    return in_memory(threads=1)


_DATABASE = PerProcess(_new_database)


_FEW_BYTES = 1 << 20
"""Smaller batches are hashed with the next ones: each time takes about a millisecond."""
_AT_ONCE = 1 << 15
"""Rows that are hashed together: few enough for the processor's cache."""
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def _mixed(array: pa.Array) -> int | None:
    """The sum of the hashes of numbers, dates and timestamps; None for other types."""
    kind = array.type
    if array.null_count:
        array = array.drop_null()
    if pa.types.is_decimal128(kind):
        words = np.zeros((0, 2), np.uint64)
        if len(array):
            words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)
        words = words[array.offset : array.offset + len(array)]
        if kind.precision <= 18:  # the upper half holds only the sign
            words = words[:, :1]
        return _sum_of_hashes(*words.T)
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_floating(kind):
        whole = array.view(f"int{kind.bit_width}").to_numpy(zero_copy_only=False)
        return _sum_of_hashes(whole.astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_timestamp(kind):
        return _sum_of_hashes(
            array.cast(pa.timestamp("ns"), safe=False)
            .cast(pa.int64())
            .to_numpy(zero_copy_only=False)
            .view(np.uint64)
        )
    return None


def _sum_of_hashes(*words: np.ndarray) -> int:
    """The sum of the hashes of all rows; each of `words` is uint64 (n,), one word of each row."""
    total = 0
    with np.errstate(over="ignore"):
        for at in range(0, len(words[0]), _AT_ONCE):
            mixed = np.zeros(len(words[0][at : at + _AT_ONCE]), np.uint64)
            for word in words:
                mixed += word[at : at + _AT_ONCE]
                for odd in _ODD:
                    mixed *= odd
                    mixed ^= mixed >> np.uint64(32)
            total += int(mixed.sum(dtype=np.uint64))
    return total


def _hashable(array: pa.Array) -> pa.Array:
    """The values in a type in which DuckDB accepts any of them."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())  # files may hold invalid UTF-8
    target = _without_maps(array.type)
    return array if target == array.type else array.cast(target, safe=False)


def _without_maps(kind: pa.DataType) -> pa.DataType:
    """The type with maps as lists of pairs, since files may repeat a key; timestamps in `ns`."""

    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns")
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_maps(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_maps(kind.value_type))
    if pa.types.is_map(kind):
        pair = [("key", _without_maps(kind.key_type)), ("value", _without_maps(kind.item_type))]
        return pa.list_(pa.struct(pair))
    return kind


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
    total = 0
    for at in range(0, len(row_ids), _AT_ONCE):
        ids = slice(at, at + _AT_ONCE)
        with np.errstate(over="ignore"):
            hashes = _hash_long(write_ids[ids], np.full(len(row_ids[ids]), _SEED))
            hashes = _hash_int(buckets[ids], hashes)
            hashes = _hash_long(row_ids[ids], hashes)
        total += int((hashes.view(np.int64) % MODULUS).sum(dtype=np.int64))
    return total


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
