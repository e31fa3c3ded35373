"""Restoring a metastore: which ids the tables' directories show to be in use (P24), and which
warehouse it belongs to (P31). Starts no Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from acid_platform.base.location import Location
from acid_platform.errors import BackupRefused, MalformedName, WarehouseMismatch
from acid_platform.layout.names import BaseName, parse_directory, temporary_owner
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.open_log import open_log
from acid_platform.metastore.places import Places
from acid_platform.metastore.records import TableRecord
from acid_platform.metastore.server.restore import (
    Highest,
    Known,
    Owner,
    Present,
    Restored,
    restore_directory,
    restore_metastore,
)
from acid_platform.storage.files import Files
from acid_platform.tables.joining import IDENTITY, new_identity_file, own_identity
from acid_platform.tables.record_layout import by_directory, surveyed, without_malformed


def highest_ids(location: str, depth: int) -> Highest:
    """The highest write id and transaction id in the names of a table's directories.

    `depth` is the number of partition columns. Malformed names are skipped; fsck reports them.
    """
    write_id = txn_id = 0
    for name in _directories(location, depth):
        txn_id = max(txn_id, temporary_owner(name) or 0)
        with suppress(MalformedName):
            parsed = parse_directory(name)
            if parsed is not None:
                high = parsed.write_id if isinstance(parsed, BaseName) else parsed.high
                write_id, txn_id = max(write_id, high), max(txn_id, parsed.visibility)
    return Highest(write_id, txn_id)


def highest_of(record: TableRecord, recorded: Known = lambda _partition: ()) -> Highest:
    """The highest ids of a recorded table, and the files of directories that are not `recorded`.

    `recorded` returns the directories of a partition. Raises CorruptFile.
    """
    depth = len(record.partition_columns)
    highest = highest_ids(record.location, depth)
    files, root = Files.of(record.location)
    present = []
    for name in files.partition_directories(root, depth) if depth else [""]:
        listing = without_malformed(files.entity(f"{root}/{name}".rstrip("/")))
        names = by_directory(listing)
        unlisted = {one for one in names if one not in recorded(name or None)}
        fresh = surveyed(files, record, name or None, listing, unlisted) if unlisted else []
        present.append(Present(name or None, tuple(sorted(names)), tuple(fresh)))
    return Highest(highest.write_id, highest.txn_id, tuple(present))


def restore(place: Location, file: str, replace: bool = False) -> Restored:
    """Makes the warehouse's metastore from a backup; root and metastore get a new identity.

    `replace`: puts the files of a directory aside, or removes from PostgreSQL or a bucket what an
    earlier restore left there.

    Raises BackupRefused, WarehouseMismatch if the root belongs to another warehouse than the
    backup, or has its metastore elsewhere, and what restore_metastore raises.
    """
    identity_file = own_identity(place)
    new, places = new_identity_file(place), Places(place.warehouse)

    def accept(identity: str | None) -> None:
        if (
            identity_file is not None
            and identity is not None
            and identity_file.identity != identity
        ):
            raise WarehouseMismatch(
                f"{place.warehouse} is the warehouse {identity_file.identity}, and {file} is a"
                f" backup of {identity}; restore into a copy of that one's directories, or remove"
                f" {IDENTITY} if the tables' directories are its own"
            )

    def highest(record: TableRecord, recorded: Known) -> Highest:
        return highest_of(
            dataclasses.replace(record, location=places.outward(record.location)), recorded
        )

    owner = Owner(new.identity, accept, lambda: new.replace(place.warehouse))
    if not place.shared:
        home = Home(Path(place.metastore))
        return restore_directory(home, file, highest, replace, owner)
    log = open_log(place.metastore)
    if log.exists and not (replace and log.remove_unused()):
        raise BackupRefused(
            f"{place.metastore} holds a metastore already: name another prefix, schema or database;"
            " what an interrupted restore left, and no metastore ever served, is removed by `acid"
            " metastore restore FILE --replace`"
        )
    return restore_metastore(log, file, highest, owner)


def _directories(location: str, depth: int) -> Iterator[str]:
    files, root = Files.of(location)
    for partition in files.partition_directories(root, depth):
        for info in files.children(f"{root}/{partition}".rstrip("/")):
            yield info.base_name
    if depth:
        yield from files.temporaries(root)
