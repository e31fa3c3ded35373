"""Protects blocks that DuckDB overwrites in place until its checkpoint is complete (P27).

A checkpoint writes new blocks, syncs them, and then writes one header that makes them valid. But
metadata blocks (256 KB, with one checksum) that have room are overwritten while the old header
still needs them: if a power cut tears such a write, DuckDB refuses the file. So their content is
copied first, together with the current headers. As long as the file has these headers, it needs the
copied content, whatever the blocks hold now; once a header has changed, the copy is useless.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from acid_platform.base.disk import sync_data, sync_path

_HEADERS = 3 * 4096
"""The main header and two that alternate; the blocks follow."""
_MAGIC = b"acid metastore blocks 1\n"


def beside(database: Path) -> Path:
    """The file that holds the copied blocks of a metastore file."""
    return database.with_suffix(".blocks")


def keep(opened: int, aside: Path, numbers: Sequence[int], size: int) -> None:
    """Copies these blocks of `size` bytes, and the headers, from the open file. Raises OSError."""
    made = not aside.exists()
    parts = [os.pread(opened, _HEADERS, 0)]
    for number in numbers:
        parts += [number.to_bytes(8, "little"), os.pread(opened, size, _HEADERS + number * size)]
    body = b"".join((len(numbers).to_bytes(8, "little"), size.to_bytes(8, "little"), *parts))
    # Overwrites the previous copy. If this write is torn, the checkpoint has not begun, and the
    # copy is ignored.
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(_MAGIC + zlib.crc32(body).to_bytes(8, "little") + body)
        file.truncate()
        file.flush()
        sync_data(file.fileno())
    if made:
        sync_path(aside.parent)


def put_back(database: Path) -> bool:
    """Undoes an interrupted checkpoint before the file is opened; returns False if there was none.

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
