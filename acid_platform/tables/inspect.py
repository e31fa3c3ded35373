"""Listing a table's directories with what the current snapshot reads. Starts no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.layout.formats import is_insert_only
from acid_platform.metastore.operations.tables import GetPartitions
from acid_platform.scan.acid_directory import DirectoryLine, timeline
from acid_platform.scan.selection import highest_floor, select
from acid_platform.storage.files import Files

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore


def directories(metastore: Metastore, table: str, below: str = "") -> list[DirectoryLine]:
    """Every base, delta and delete_delta of a table; `below` selects partitions, such as `year=1`.

    Holds a read lease while it lists. Raises NoSuchTable, MalformedName, CorruptFile.
    """
    record = metastore.table(table)
    with metastore.open_snapshot([record.name]) as lease:
        write_ids = lease.valid_write_ids(record.name)
        floors: dict[str, tuple[int, ...]] = {"": ()}
        if record.partitioned:
            partitions = metastore.call(GetPartitions(record.name))
            floors = {
                partition.name: partition.floors
                for partition in sorted(partitions, key=lambda partition: partition.name)
                if f"{partition.name}/".startswith(f"{below}/" if below else "")
            }
        files, root = Files.of(record.location)
        listings = files.entities([f"{root}/{name}".rstrip("/") for name in floors])
        return [
            line
            for (name, own), listing in zip(floors.items(), listings, strict=True)
            for line in timeline(
                listing,
                select(
                    listing,
                    write_ids,
                    lease.valid_txns,
                    floor=highest_floor(write_ids, record.floor, *own),
                    insert_only=is_insert_only(record.properties),
                ),
                name,
            )
        ]
