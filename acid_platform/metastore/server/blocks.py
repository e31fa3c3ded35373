"""Blocks that DuckDB rewrites in place, kept aside until its checkpoint is whole (P27).

A checkpoint writes new blocks, syncs, and then one header that makes them count. But metadata
blocks (256 KB, with one checksum) that have room are written over while the old header still needs
them: a power cut that tears such a write leaves a file that DuckDB refuses. So their content is
kept aside first, with the headers of that moment. While the file still has these headers, they need
that content, whatever the blocks hold now; once a header has changed, the copy is of no use.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from acid_platform.disk import sync_data, sync_path

_HEADERS = 3 * 4096
"""The main header, and two that take turns; blocks follow."""
_MAGIC = b"acid metastore blocks 1\n"


def beside(database: Path) -> Path:
    """Where the blocks of a metastore file are kept aside."""
    return database.with_suffix(".blocks")


def keep(opened: int, aside: Path, numbers: Sequence[int], size: int) -> None:
    """Copies these blocks of `size` bytes, and the headers, from the open file. Raises OSError."""
    made = not aside.exists()
    parts = [os.pread(opened, _HEADERS, 0)]
    for number in numbers:
        parts += [number.to_bytes(8, "little"), os.pread(opened, size, _HEADERS + number * size)]
    body = b"".join((len(numbers).to_bytes(8, "little"), size.to_bytes(8, "little"), *parts))
    # Over the one before: what is torn here is not used, as the checkpoint has not begun then.
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(_MAGIC + zlib.crc32(body).to_bytes(8, "little") + body)
        file.truncate()
        file.flush()
        sync_data(file.fileno())
    if made:
        sync_path(aside.parent)


def put_back(database: Path) -> bool:
    """Undoes an interrupted checkpoint, before the file is opened; False: there was none.

    Raises OSError.
    """
    try:
        content = beside(database).read_bytes()
    except FileNotFoundError:
        return False
    start = len(_MAGIC) + 8
    body = content[start:]
    if content[:start] != _MAGIC + zlib.crc32(body).to_bytes(8, "little"):
        return False
    count, size = (int.from_bytes(body[at : at + 8], "little") for at in (0, 8))
    headers, at = body[16 : 16 + _HEADERS], 16 + _HEADERS
    with open(database, "r+b") as file:
        if file.read(_HEADERS) != headers:
            return False
        for _ in range(count):
            file.seek(_HEADERS + int.from_bytes(body[at : at + 8], "little") * size)
            file.write(body[at + 8 : at + 8 + size])
            at += 8 + size
        file.flush()
        sync_data(file.fileno())
    return True
