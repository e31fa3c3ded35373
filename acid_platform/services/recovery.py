"""What a table's directories tell about the ids that were given out (P24). Starts no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from acid_platform.errors import MalformedName
from acid_platform.layout.names import BaseName, parse_directory, temporary_owner
from acid_platform.metastore.backup import Highest
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.files import Files


def highest_ids(location: str, depth: int) -> Highest:
    """The highest write id and transaction id in the names of a table's directories.

    `depth` is the number of partition columns. Names that follow no grammar tell nothing; fsck is
    who complains about them.
    """
    write_id = txn_id = 0
    for name in _directories(location, depth):
        txn_id = max(txn_id, temporary_owner(name) or 0)
        with suppress(MalformedName):
            found = parse_directory(name)
            if found is not None:
                high = found.write_id if isinstance(found, BaseName) else found.high
                write_id, txn_id = max(write_id, high), max(txn_id, found.visibility)
    return Highest(write_id, txn_id)


def highest_of(record: TableRecord) -> Highest:
    """The same of a table that the metastore knows."""
    return highest_ids(record.location, len(record.partition_columns))


def _directories(location: str, depth: int) -> Iterator[str]:
    files, root = Files.of(location)
    for partition in files.partition_directories(root, depth):
        for info in files.children(f"{root}/{partition}".rstrip("/")):
            yield info.base_name
    if depth:
        yield from files.temporaries(root)
