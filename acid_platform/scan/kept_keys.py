"""The deleted keys of recent snapshots, kept for the next read of the same files.

Every delete makes another small file, and opening these is much of a short read. The bytes of a
recorded path never change, so what was decoded stays true.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from acid_platform.base.recent import Recent
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys, load_keys
from acid_platform.scan.source_files import SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList

MAX_BYTES = 32 << 20
"""The limit for all kept keys together."""

_kept: Recent[Hashable, DeleteKeys] = Recent(10_000, MAX_BYTES)


def kept_keys(
    files: Files, sources: Sequence[SourceFile], write_ids: ValidWriteIdList
) -> DeleteKeys:
    """What `load_keys` returns; nothing is read if these files were loaded for these write ids.

    The arrays are read-only. Thread-safe. Raises as `load_keys`.
    """
    if not sources:
        return NO_DELETES
    key = (tuple((files.uri(source.path), source) for source in sources), write_ids)
    keys = _kept.get(key)
    if keys is None:
        keys = load_keys(files, sources, write_ids)
        arrays = [keys.write_ids, keys.buckets, keys.row_ids]
        arrays += [] if keys.own is None else [keys.own]
        for array in arrays:
            array.flags.writeable = False
        _kept.put(key, keys, sum(array.nbytes for array in arrays) + 1000)
    return keys
