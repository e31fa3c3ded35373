"""The deleted keys of recent snapshots, kept for the next read of the same files.

Every delete makes another small file, and opening these is much of a short read. The bytes of a
recorded path never change (P18), so what was decoded stays true.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np

from acid_platform.scan.deletes import NO_DELETES, DeleteKeys, load_keys
from acid_platform.scan.source_files import SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList

MAX_BYTES = 32 << 20
"""The limit for all kept keys together."""

_kept: OrderedDict[Hashable, DeleteKeys] = OrderedDict()
_guard = threading.Lock()


def kept_keys(
    files: Files, sources: Sequence[SourceFile], write_ids: ValidWriteIdList
) -> DeleteKeys:
    """What `load_keys` returns; nothing is read if these files were loaded for these write ids.

    The arrays are read-only. Thread-safe. Raises as `load_keys`.
    """
    if not sources:
        return NO_DELETES
    key = (tuple((files.uri(source.path), source) for source in sources), write_ids)
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    keys = load_keys(files, sources, write_ids)
    for array in _arrays(keys):
        array.flags.writeable = False
    if _bytes(keys) > MAX_BYTES // 2:  # it would evict all others
        return keys
    with _guard:
        _kept[key] = keys
        while sum(map(_bytes, _kept.values())) > MAX_BYTES:
            _kept.popitem(last=False)
    return keys


def _arrays(keys: DeleteKeys) -> list[np.ndarray]:
    arrays = [keys.write_ids, keys.buckets, keys.row_ids]
    return arrays if keys.own is None else [*arrays, keys.own]


def _bytes(keys: DeleteKeys) -> int:
    return sum(array.nbytes for array in _arrays(keys)) + 1000
