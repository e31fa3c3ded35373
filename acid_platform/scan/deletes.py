"""The row keys that a snapshot's delete deltas delete in one entity, and which rows have them.

Every delete makes another small file, and opening these is much of a short read: the keys of recent
snapshots are kept for the next read of the same files, and keys that are too many for one process
are read by Spark's tasks instead. The bytes of a recorded path never change, so what was decoded
stays true; a warehouse that is made again, or restored, at the same place writes the path at
another time, which is a part of the key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from acid_platform.base.first_use import Recent
from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import DELETE_EVENT, KeyPart, require_operation
from acid_platform.formats.file_access import reading
from acid_platform.layout.acid_keys import ascend, codec_versions, decode_bucket
from acid_platform.scan.source_files import SourceFile, open_source
from acid_platform.storage.files import Files, in_threads
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import group_begins

_SMALL_BYTES = 1 << 17


WORD = 64
"""How many rowIds one word of bits tells of."""


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Deleted keys of one entity: 64 bits for each 64 rowIds among which one is deleted, so that
    tens of millions of keys fit into memory.

    The arrays (n,), of n words, are sorted by the first three. `buckets` holds bucket properties,
    not bucket numbers.
    """

    write_ids: np.ndarray
    buckets: np.ndarray
    words: np.ndarray
    """int64: the rowIds divided by 64."""
    bits: np.ndarray
    """uint64: the lowest bit stands for the lowest rowId."""
    own: np.ndarray | None = None
    """As `bits`, the keys that an event with the row's own write id deletes; set by `load_keys`."""

    @classmethod
    def of(
        cls,
        write_ids: np.ndarray,
        buckets: np.ndarray,
        row_ids: np.ndarray,
        own: np.ndarray | None = None,
    ) -> DeleteKeys:
        """The keys in arrays (n,) in any order; `own`: a mask (n,)."""
        bits = np.left_shift(np.uint64(1), (row_ids & (WORD - 1)).astype(np.uint64))
        masks = [bits] if own is None else [bits, np.where(own, bits, np.uint64(0))]
        return cls(*_by_word([write_ids, buckets, row_ids >> _SHIFT, *masks]))

    def of_own_rows(self) -> DeleteKeys:
        """The keys of rows that were inserted under the same write id as their delete event."""
        assert self.own is not None, "only load_keys knows the write ids of events"
        return DeleteKeys(self.write_ids, self.buckets, self.words, self.own).chosen(self.own != 0)

    def chosen(self, which: np.ndarray | slice) -> DeleteKeys:
        """The keys of some of the words, by a mask or a slice."""
        return DeleteKeys(
            self.write_ids[which], self.buckets[which], self.words[which], self.bits[which]
        )

    def groups(self) -> Iterator[DeleteKeys]:
        """The keys of each write id and bucket property."""
        starts = np.flatnonzero(group_begins(self.write_ids, self.buckets)).tolist()
        return (self.chosen(slice(*ends)) for ends in pairwise([*starts, len(self.words)]))

    def __len__(self) -> int:
        return int(np.bitwise_count(self.bits).sum(dtype=np.int64))

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Write ids, bucket properties and rowIds of all keys, in their order, a bounded number at
        a time; at least one part."""
        for start in range(0, len(self.words) or 1, _WORDS_AT_ONCE):
            some = slice(start, start + _WORDS_AT_ONCE)
            numbers, row_ids = _row_ids(self.words[some], self.bits[some])
            yield self.write_ids[some][numbers], self.buckets[some][numbers], row_ids

    def may_touch(self, low: int, high: int, number: int | None) -> bool:
        """Whether a file with write ids low..high of bucket `number` may have deleted rows.

        `number` None: the file may hold rows of any bucket.
        """
        ids = self.write_ids
        # Most files of a table with many small ones are newer than what deletes were of.
        if not len(ids) or high < ids[0] or low > ids[-1]:
            return False
        first, last = np.searchsorted(ids, [low, high + 1])
        if first == last:
            return False
        if number is None:
            return True
        buckets = _distinct(self.buckets[first:last])
        return any(decode_bucket(int(bucket)).number == number for bucket in buckets)

    def within(self, write_id: int, bucket: int, first: int, last: int) -> int:
        """How many deleted keys (write id, bucket property, rowId) have first <= rowId <= last."""
        words, bits = self.of_group(write_id, bucket, first, last)
        if not len(words):
            return 0
        bits = bits.copy()
        if words[0] == first >> _SHIFT:
            bits[0] &= _ALL << np.uint64(first & (WORD - 1))
        if words[-1] == last >> _SHIFT:
            bits[-1] &= _ALL >> np.uint64(WORD - 1 - (last & (WORD - 1)))
        return int(np.bitwise_count(bits).sum(dtype=np.int64))

    def group(self, write_id: int, bucket: int) -> slice:
        """The places of the words of a write id and bucket property."""
        low, high = np.searchsorted(self.write_ids, [write_id, write_id + 1])
        start, end = low + np.searchsorted(self.buckets[low:high], [bucket, bucket + 1])
        return slice(int(start), int(end))

    def of_group(
        self, write_id: int, bucket: int, first: int, last: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The words of a write id and bucket property with rowIds of first..last, and their bits;
        the first and the last may tell of other rowIds too."""
        group = self.group(write_id, bucket)
        words = self.words[group]
        start, end = np.searchsorted(words, [first >> _SHIFT, (last >> _SHIFT) + 1])
        return words[start:end], self.bits[group][start:end]


_Loaded = TypeVar("_Loaded")
_SHIFT = 6
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_WORDS_AT_ONCE = 1 << 12
_NO_IDS, _NO_BITS = np.empty(0, np.int64), np.empty(0, np.uint64)
NO_DELETES = DeleteKeys(_NO_IDS, _NO_IDS, _NO_IDS, _NO_BITS, _NO_BITS)


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending.

    np.unique builds a hash table, which takes seconds for millions of values; a stable sort is
    nearly free for values that are already in order.
    """
    ascending = np.sort(values, kind="stable")
    return np.asarray(ascending[group_begins(ascending)])


def _row_ids(words: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of the word of each rowId, and the rowIds."""
    at = np.flatnonzero(_unpacked(bits))
    numbers = at >> _SHIFT
    return numbers, (words[numbers] << _SHIFT) | (at & (WORD - 1))


def _unpacked(bits: np.ndarray) -> np.ndarray:
    """The bits as a mask (64 n,)."""
    octets = bits.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(octets, bitorder="little").view(bool)


def _by_word(columns: list[np.ndarray]) -> list[np.ndarray]:
    """Write ids, bucket properties, words, and one or more arrays of bits of these; sorted, each
    word once."""
    for _ in range(2):
        keys, masks = columns[:3], columns[3:]
        starts = np.flatnonzero(group_begins(*keys))
        firsts = [key[starts] for key in keys]
        if ascend(*firsts):
            break
        order = np.lexsort(keys[::-1])
        columns = [column[order] for column in columns]
    if len(starts) == len(keys[0]):
        return columns
    return [*firsts, *(np.bitwise_or.reduceat(mask, starts) for mask in masks)]


def valid_ids(current: np.ndarray, write_ids: ValidWriteIdList) -> np.ndarray:
    """Mask (n,) of the events whose own currentTransaction, int64 (n,), the snapshot sees (F16)."""
    valid: np.ndarray = current <= write_ids.high_watermark
    excepted = (*write_ids.open, *write_ids.aborted)
    if excepted:
        valid &= ~np.isin(current, np.array(excepted, np.int64))
    return valid


def load_keys(
    files: Files,
    sources: Sequence[SourceFile],
    write_ids: ValidWriteIdList,
    own: bool = False,
    buckets: Collection[int] | None = None,
) -> DeleteKeys:
    """The keys that these delete files delete for a snapshot.

    An event counts if its own currentTransaction is valid (F16). `own` keeps only keys of rows that
    were inserted under the same write id; `buckets` keeps only keys with one of these bucket
    properties. Raises CorruptFile, also if a listed file is gone (F23), and UnsupportedLayout.
    """
    if not sources:
        return NO_DELETES
    properties = None if buckets is None else np.array(sorted(buckets), np.int64)
    return joined(
        load_each(
            files, sources, lambda source: file_events(files, source, write_ids, own, properties)
        )
    )


def load_each(
    files: Files, sources: Sequence[SourceFile], load: Callable[[SourceFile], _Loaded]
) -> list[_Loaded]:
    """What `load` returns for each file, in order."""
    if files.local and sum(source.size for source in sources) <= _SMALL_BYTES:
        return list(map(load, sources))  # to start threads would take longer
    return in_threads(load, sources)


def joined(parts: Iterable[DeleteKeys]) -> DeleteKeys:
    """All keys of parts that `load_keys` has returned."""
    filled = [part for part in parts if len(part.words)]
    if len(filled) < 2:
        return filled[0] if filled else NO_DELETES
    filled.sort(key=lambda part: tuple(int(ids[0]) for ids in _columns(part)[:3]))
    return DeleteKeys(
        *_by_word([np.concatenate(column) for column in zip(*map(_columns, filled), strict=True)])
    )


def _columns(keys: DeleteKeys) -> list[np.ndarray]:
    every = (keys.write_ids, keys.buckets, keys.words, keys.bits, keys.own)
    return [column for column in every if column is not None]


def file_events(
    files: Files,
    source: SourceFile,
    write_ids: ValidWriteIdList,
    own: bool,
    buckets: np.ndarray | None,
) -> DeleteKeys:
    """The keys of the events of one file that apply, as `load_keys` selects them. Raises as it
    does."""
    path = source.path
    parts = []
    written = _written.get((files.uri(path), source.size, source.modified))
    with reading(path):
        events = [written] if written else open_source(files, source).key_parts(*KeyPart)
        for operation, *keys in events:
            require_operation(operation, DELETE_EVENT, path)
            if len(keys[3]) and (last := int(keys[3].max())) > source.high:
                raise CorruptFile(
                    f"{path} has a delete event of write id {last}, but the write ids of its"
                    f" directory end at {source.high}; restore it"
                )
            parts.append(DeleteKeys.of(*_counted(keys, path, write_ids, own, buckets)))
    return joined(parts)


def _counted(
    keys: list[np.ndarray],
    path: str,
    write_ids: ValidWriteIdList,
    own: bool,
    buckets: np.ndarray | None,
) -> tuple[np.ndarray, ...]:
    """Filters delete events to those that apply.

    `keys` holds the key columns and the write ids of the events. Returns the key columns, and a
    mask of the events whose write id is that of their row.
    """
    codecs = codec_versions(keys[1])
    if len(codecs) and int(codecs.max()) > 1:
        raise CorruptFile(
            f"{path} has a bucket property of codec version {int(codecs.max())}, and"
            " 0 and 1 are known; restore it or drop its transaction"
        )
    valid = valid_ids(keys[3], write_ids)
    of_own_row = keys[3] == keys[0]
    if own:
        valid &= of_own_row
    if buckets is not None:
        valid &= np.isin(keys[1], buckets)
    return keys[0][valid], keys[1][valid], keys[2][valid], of_own_row[valid]


_MOST_RUNS = 256
"""The most runs of equal (write id, bucket) in a batch that are tested one after another."""


class DeletedRows:
    """Tests rows against the deleted keys of one entity; immutable, so threads may share it."""

    def __init__(self, keys: DeleteKeys) -> None:
        self._keys = keys

    def survivors(self, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Mask (n,) of the rows (write id, bucket property, rowId) that are not deleted."""
        keep = np.ones(len(r), bool)
        if not len(r):
            return keep
        if w.min() == w.max() and b.min() == b.max():  # as in the file of an INSERT
            return self._of_group(int(w[0]), int(b[0]), r)
        # Otherwise there are usually few runs of equal (write id, bucket).
        heads = np.flatnonzero(group_begins(w, b))
        if len(heads) > _MOST_RUNS:
            return self._ranked.survivors(keep, heads, w, b, r)
        for start, end in pairwise([*heads.tolist(), len(r)]):
            keep[start:end] = self._of_group(int(w[start]), int(b[start]), r[start:end])
        return keep

    def survivors_of_run(self, write_id: int, bucket: int, first: int, rows: int) -> np.ndarray:
        """As `survivors`, for so many rows with the rowIds from `first` on."""
        words, bits = self._keys.of_group(write_id, bucket, first, first + rows - 1)
        if not len(words):
            return np.ones(rows, bool)
        low = first >> _SHIFT
        every = np.full(((first + rows - 1) >> _SHIFT) - low + 1, _ALL)
        every[words - low] = ~bits
        return _unpacked(every)[first - (low << _SHIFT) :][:rows]

    def _of_group(self, write_id: int, bucket: int, r: np.ndarray) -> np.ndarray:
        """Mask (n,) of the rowIds of a write id and bucket that are not deleted."""
        words, bits = self._keys.of_group(write_id, bucket, int(r.min()), int(r.max()))
        if not len(words):
            return np.ones(len(r), bool)
        return _without(r, _row_ids(words, bits)[1])

    @cached_property
    def _ranked(self) -> _RankedKeys:
        return _RankedKeys(self._keys)


def _without(r: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Mask (n,) of the rowIds that are not in `gone`, which ascends strictly.

    The rowIds of a file ascend too, so that the few deleted ones are looked up among them.
    """
    keep = np.ones(len(r), bool)
    if not (r[1:] > r[:-1]).all():
        keep[np.isin(r, gone)] = False
        return keep
    low, high = np.searchsorted(gone, [r[0], r[-1] + 1])
    gone = gone[low:high]
    at = np.searchsorted(r, gone)
    keep[at[r[at] == gone]] = False
    return keep


class _RankedKeys:
    """Deleted keys for batches in which (write id, bucket) changes often."""

    def __init__(self, keys: DeleteKeys) -> None:
        self._write_ids = _distinct(keys.write_ids)
        self._buckets = _distinct(keys.buckets)
        self._words = _distinct(keys.words)
        groups = self._group(keys.write_ids, keys.buckets)
        self._groups = _distinct(groups)
        self._bits = keys.bits
        # These ascend, as the keys do.
        self._places = np.searchsorted(self._groups, groups) * len(self._words) + np.searchsorted(
            self._words, keys.words
        )

    def survivors(
        self, keep: np.ndarray, heads: np.ndarray, w: np.ndarray, b: np.ndarray, r: np.ndarray
    ) -> np.ndarray:
        """`keep` without the deleted rows; `heads` are the first rows of the runs."""
        group = _rank(self._groups, self._group(w[heads], b[heads]))
        lengths = np.diff(heads, append=len(r))
        candidates = np.flatnonzero(np.repeat(group >= 0, lengths))
        rank = _rank(self._words, r[candidates] >> _SHIFT)
        hit = rank >= 0
        candidates, rank = candidates[hit], rank[hit]
        of_row = np.repeat(group, lengths)[candidates]
        at = _rank(self._places, of_row * len(self._words) + rank)
        candidates, at = candidates[at >= 0], at[at >= 0]
        shifts = (r[candidates] & (WORD - 1)).astype(np.uint64)
        keep[candidates] = (self._bits[at] >> shifts) & np.uint64(1) == 0
        return keep

    def _group(self, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A number for each (write id, bucket); -1 if either has no deletes at all."""
        at_write_id, at_bucket = _rank(self._write_ids, w), _rank(self._buckets, b)
        return np.where(
            (at_write_id >= 0) & (at_bucket >= 0), at_write_id * len(self._buckets) + at_bucket, -1
        )


def _rank(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The position of each value in the sorted array; -1 if the array lacks it."""
    if not len(ascending):
        return np.full(len(values), -1)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[at] == values, at, -1)


MAX_BYTES = 64 << 20
"""The limit for all kept keys together."""

_recent: Recent[Hashable, DeleteKeys] = Recent(20_000, MAX_BYTES)
"""The keys of snapshots and those of single files, which a later snapshot has beside others."""
_written: Recent[Hashable, list[np.ndarray]] = Recent(1_000, MAX_BYTES // 4)
"""The parts of the keys in files that this process has written, which it need not open."""


def keep_written(files: Files, path: str, write_id: int, keys: Sequence[np.ndarray]) -> None:
    """Keeps what a published file of delete events says for the next read: `keys` are the write
    ids, bucket properties and rowIds, int64 (n,), of all rows that this write deleted."""
    if files.local:
        info, events = files.system.get_file_info(path), len(keys[0])
        parts = [np.array([DELETE_EVENT]), *keys, np.full(events, write_id)]
        key = (files.uri(path), info.size, info.mtime_ns)
        _written.put(key, parts, sum(part.nbytes for part in parts) + 1000)


def kept_keys(
    files: Files, sources: Sequence[SourceFile], write_ids: ValidWriteIdList
) -> DeleteKeys:
    """What `load_keys` returns; a file is read once for all lists that say the same of the write
    ids of its events.

    The arrays are read-only. Thread-safe. Raises as `load_keys`.
    """
    if not sources:
        return NO_DELETES
    write_ids = _up_to(write_ids, max(source.high for source in sources))
    key = (tuple((files.uri(source.path), source) for source in sources), write_ids)
    keys = _recent.get(key)
    if keys is None:
        if len(sources) == 1:
            keys = load_keys(files, sources, write_ids)
        else:
            keys = joined(
                load_each(files, sources, lambda source: kept_keys(files, [source], write_ids))
            )
        arrays = _columns(keys)
        for array in arrays:
            array.flags.writeable = False
        _recent.put(key, keys, sum(array.nbytes for array in arrays) + 1000)
    return keys


def _up_to(write_ids: ValidWriteIdList, highest: int) -> ValidWriteIdList:
    """What the list says of the write ids up to `highest`, whatever was written later."""
    if write_ids.high_watermark <= highest:
        return write_ids
    return ValidWriteIdList.of(
        write_ids.table,
        highest,
        [open_id for open_id in write_ids.open if open_id <= highest],
        [aborted_id for aborted_id in write_ids.aborted if aborted_id <= highest],
    )


class UnreadKeys(DeleteKeys):
    """The deleted keys of an entity, which are loaded when one is looked at.

    Spark's scan looks at none: its tasks read the files. The local engine loads them.
    """

    def __init__(self, events: int, newest: int, load: Callable[[], DeleteKeys]) -> None:
        """`events`: the number of delete events; `newest`: the highest write id that has one."""
        for name, value in (("_events", events), ("newest", newest), ("_load", load)):
            object.__setattr__(self, name, value)

    _events: int
    newest: int
    _load: Callable[[], DeleteKeys]

    @cached_property
    def _loaded(self) -> DeleteKeys:
        return self._load()

    @property
    def write_ids(self) -> np.ndarray:
        return self._loaded.write_ids

    @property
    def buckets(self) -> np.ndarray:
        return self._loaded.buckets

    @property
    def words(self) -> np.ndarray:
        return self._loaded.words

    @property
    def bits(self) -> np.ndarray:
        return self._loaded.bits

    @property
    def own(self) -> np.ndarray | None:
        return self._loaded.own

    def __len__(self) -> int:
        """The number of delete events, which is at least that of the keys."""
        return self._events

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def keys_up_to(
    most: int, files: Files, sources: Sequence[SourceFile], write_ids: ValidWriteIdList
) -> DeleteKeys:
    """The deleted keys; UnreadKeys if the files record more than `most` events.

    Files that end at a flush length, or are not ORC, are always loaded, since Spark can't read
    them. Raises as `load_keys`.
    """
    load = partial(kept_keys, files, sources, write_ids)
    counts = [source.rows for source in sources]
    counted = [count for count in counts if count is not None]
    if len(counted) < len(counts) or any(
        source.length is not None or source.streamed for source in sources
    ):
        return load()
    if sum(counted) <= most:
        return load()
    return UnreadKeys(sum(counted), max(source.high for source in sources), load)
