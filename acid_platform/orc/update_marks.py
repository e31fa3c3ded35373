"""Which delete events of a file belong to updates, as its footer tells.

An update is a delete event and an insert event of the same statement. The file of the insert events
of a bucket has the inserted rows first and then the updated ones, in the order of their old keys,
which is the order of the delete events. So the marks also say which row became which.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np

from acid_platform.errors import CorruptFile

_ALL, _NONE = b"all", b"none"


def write_updates(updated: np.ndarray) -> bytes:
    """The text for the footer; `updated` is a mask (n,) of all delete events of the file."""
    if updated.all():
        return _ALL
    if not updated.any():
        return _NONE
    return base64.b64encode(zlib.compress(np.packbits(updated).tobytes()))


def read_updates(text: bytes | None, rows: int, path: str) -> np.ndarray:
    """The mask (rows,); False for all events if the writer told nothing. Raises CorruptFile."""
    if text is None or text == _NONE:
        return np.zeros(rows, bool)
    if text == _ALL:
        return np.ones(rows, bool)
    try:
        packed = np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), np.uint8)
        if len(packed) != (rows + 7) // 8:
            raise ValueError(f"{len(packed)} bytes for {rows} events")
    except (ValueError, zlib.error) as error:
        raise CorruptFile(
            f"{path}: the footer does not tell which events are updates: {error}; restore it"
        ) from error
    return np.unpackbits(packed, count=rows).astype(bool)
