"""The row keys that a snapshot's delete deltas delete in one entity, and which rows have them.

Every delete makes another small file, and opening these is much of a short read: the keys of recent
snapshots are kept for the next read of the same files, and keys that are too many for one process
are read by Spark's tasks instead. The bytes of a recorded path never change, so what was decoded
stays true; a warehouse that is made again, or restored, at the same place writes the path at
another time, which is a part of the key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeVar

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


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Deleted keys of one entity: int64 arrays (n,), unique, sorted by (write id, bucket, rowId).

    `buckets` holds bucket properties, not bucket numbers.
    """

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray
    own: np.ndarray | None = None
    """Mask (n,) of keys that an event with the row's own write id deletes; set by `load_keys`."""

    def of_own_rows(self) -> DeleteKeys:
        """The keys of rows that were inserted under the same write id as their delete event."""
        assert self.own is not None, "only load_keys knows the write ids of events"
        return DeleteKeys(self.write_ids[self.own], self.buckets[self.own], self.row_ids[self.own])

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def numbers(self) -> frozenset[int]:
        """The bucket numbers of the deleted keys."""
        return frozenset(decode_bucket(int(bucket)).number for bucket in _distinct(self.buckets))

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
        left, right = np.searchsorted(self.of_group(write_id, bucket), [first, last + 1])
        return int(right - left)

    def of_group(self, write_id: int, bucket: int) -> np.ndarray:
        """The deleted rowIds of a write id and bucket property, int64 (n,), ascending strictly."""
        low, high = np.searchsorted(self.write_ids, [write_id, write_id + 1])
        start, end = low + np.searchsorted(self.buckets[low:high], [bucket, bucket + 1])
        return self.row_ids[start:end]


_Loaded = TypeVar("_Loaded")
_NO_IDS = np.empty(0, np.int64)
_NO_KEYS = (_NO_IDS, _NO_IDS, _NO_IDS, np.empty(0, bool))
NO_DELETES = DeleteKeys(*_NO_KEYS)


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending.

    np.unique builds a hash table, which takes seconds for millions of values; a stable sort is
    nearly free for values that are already in order.
    """
    ascending = np.sort(values, kind="stable")
    return np.asarray(ascending[group_begins(ascending)])


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
    return _sorted(
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
    """All keys that `load_keys` has returned."""
    return _sorted([(part.write_ids, part.buckets, part.row_ids, part.own) for part in parts])


def _sorted(parts: list[Any]) -> DeleteKeys:
    """The keys of events: write ids, bucket properties, rowIds, and which are of own rows."""
    parts[:] = [part for part in parts if len(part[0])]
    parts.sort(key=lambda part: tuple(int(column[0]) for column in part[:3]))
    *keys, own_events = _joined(parts)
    if ascend(*keys):
        return DeleteKeys(keys[0], keys[1], keys[2], own_events)
    order = np.lexsort(keys[::-1])
    for index, column in enumerate(keys):
        keys[index] = column[order]
    own_events = own_events[order]
    fresh = group_begins(*keys)
    if not fresh.all():
        own_events = np.logical_or.reduceat(own_events, np.flatnonzero(fresh))
        keys = [column[fresh] for column in keys]
    return DeleteKeys(keys[0], keys[1], keys[2], own_events)


def _joined(parts: list[Any]) -> list[np.ndarray]:
    """Write ids, bucket properties, rowIds and the mask of all parts. Empties `parts`: there may be
    tens of millions of keys, so that each copy counts."""
    if len(parts) < 2:
        return list(parts.pop() if parts else _NO_KEYS)
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    joined_columns = []
    for column in columns:
        joined_columns.append(np.concatenate(column))
        column.clear()
    return joined_columns


def file_events(
    files: Files,
    source: SourceFile,
    write_ids: ValidWriteIdList,
    own: bool,
    buckets: np.ndarray | None,
) -> tuple[np.ndarray, ...]:
    """The keys of the events of one file that apply, as `load_keys` selects them: write ids, bucket
    properties, rowIds, and the mask of those with the row's own write id. Raises as it does."""
    path = source.path
    parts = []
    with reading(path):
        for operation, *keys in open_source(files, source).key_parts(*KeyPart):
            require_operation(operation, DELETE_EVENT, path)
            if len(keys[3]) and (last := int(keys[3].max())) > source.high:
                raise CorruptFile(
                    f"{path} has a delete event of write id {last}, but the write ids of its"
                    f" directory end at {source.high}; restore it"
                )
            parts.append(_counted(keys, path, write_ids, own, buckets))
    return tuple(_joined(parts))


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
            gone = self._keys.of_group(int(w[0]), int(b[0]))
            return _without(r, gone) if len(gone) else keep
        # Otherwise there are usually few runs of equal (write id, bucket).
        heads = np.flatnonzero(group_begins(w, b))
        if len(heads) > _MOST_RUNS:
            return self._ranked.survivors(keep, heads, w, b, r)
        for start, end in pairwise([*heads.tolist(), len(r)]):
            gone = self._keys.of_group(int(w[start]), int(b[start]))
            if len(gone):
                keep[start:end] = _without(r[start:end], gone)
        return keep

    def survivors_of_run(self, write_id: int, bucket: int, first: int, rows: int) -> np.ndarray:
        """As `survivors`, for so many rows with the rowIds from `first` on."""
        keep = np.ones(rows, bool)
        gone = self._keys.of_group(write_id, bucket)
        low, high = np.searchsorted(gone, [first, first + rows])
        keep[gone[low:high] - first] = False
        return keep

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
        self._row_ids = _distinct(keys.row_ids)
        groups = self._group(keys.write_ids, keys.buckets)
        self._groups = _distinct(groups)
        self._keys = np.sort(
            np.searchsorted(self._groups, groups) * len(self._row_ids)
            + np.searchsorted(self._row_ids, keys.row_ids),
            kind="stable",
        )

    def survivors(
        self, keep: np.ndarray, heads: np.ndarray, w: np.ndarray, b: np.ndarray, r: np.ndarray
    ) -> np.ndarray:
        """`keep` without the deleted rows; `heads` are the first rows of the runs."""
        group = _rank(self._groups, self._group(w[heads], b[heads]))
        lengths = np.diff(heads, append=len(r))
        candidates = np.flatnonzero(np.repeat(group >= 0, lengths))
        rank = _rank(self._row_ids, r[candidates])
        hit = rank >= 0
        candidates, rank = candidates[hit], rank[hit]
        of_row = np.repeat(group, lengths)[candidates]
        gone = _rank(self._keys, of_row * len(self._row_ids) + rank) >= 0
        keep[candidates[gone]] = False
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
        arrays = [keys.write_ids, keys.buckets, keys.row_ids]
        arrays += [] if keys.own is None else [keys.own]
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
    def row_ids(self) -> np.ndarray:
        return self._loaded.row_ids

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
