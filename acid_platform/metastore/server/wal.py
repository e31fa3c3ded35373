"""DuckDB's write-ahead log after a power cut in the middle of a write to it (P27).

DuckDB ignores a log that ends within a transaction, but refuses one whose last transaction has the
right length and lacks some of its bytes, as when the file grew before its content was on the disk.
What was being written was not durable, and nothing relied on it: the journal is overwritten only
once the tables have its events. So the log is cut there. Should durable bytes have been damaged
instead, the tables end earlier than the journal begins, which it refuses (journal.py).
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from acid_platform.base.disk import sync_data, sync_path

_REFUSAL = re.compile(r"Corrupt WAL file: entry at byte position (\d+) computed checksum")
_LOG = logging.getLogger(__name__)


def beside(database: Path) -> Path:
    """The path of a metastore file's write-ahead log."""
    return database.with_name(f"{database.name}.wal")


def aside(database: Path) -> Path:
    """The file that gets what is cut off."""
    return database.with_name(f"{database.name}.wal.torn")


def cut(database: Path, refusal: str) -> bool:
    """Cuts the log at the entry that DuckDB's refusal names; False if it names none.

    What follows is put aside first. Raises OSError.
    """
    if (found := _REFUSAL.search(refusal)) is None:
        return False
    position = int(found[1])
    with open(beside(database), "r+b") as log:
        log.seek(position)
        torn = log.read()
        kept = os.open(aside(database), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(kept, "wb") as file:
            file.write(torn)
            file.flush()
            sync_data(file.fileno())
        sync_path(database.parent)
        log.truncate(position)
        log.flush()
        sync_data(log.fileno())
    _LOG.warning(
        "%s ended with a write that a power cut had torn: its last %s bytes are in %s",
        beside(database),
        len(torn),
        aside(database).name,
    )
    return True
