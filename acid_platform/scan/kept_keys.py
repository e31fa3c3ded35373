"""Deleted keys that need not be read: those of recent snapshots, which are kept for the next read
of the same files, and those that are too many for one process, which Spark's tasks read instead.

Every delete makes another small file, and opening these is much of a short read. The bytes of a
recorded path never change, so what was decoded stays true; a warehouse that is made again, or
restored, at the same place writes the path at another time, which is a part of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, partial

import numpy as np

from acid_platform.base.recent import Recent
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys, joined, load_each, load_keys
from acid_platform.scan.source_files import SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList

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
            keys = joined(load_each(files, sources, lambda one: kept_keys(files, [one], write_ids)))
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
        (one for one in write_ids.open if one <= highest),
        (one for one in write_ids.aborted if one <= highest),
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

    Files that end at a flush length are always loaded, since Spark can't read them. Raises as
    `load_keys`.
    """
    load = partial(kept_keys, files, sources, write_ids)
    counts = [source.rows for source in sources]
    counted = [count for count in counts if count is not None]
    if len(counted) < len(counts) or any(source.length is not None for source in sources):
        return load()
    if sum(counted) <= most:
        return load()
    return UnreadKeys(sum(counted), max(source.high for source in sources), load)
