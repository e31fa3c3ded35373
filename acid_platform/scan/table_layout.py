"""Decides what a read covers: prunes partitions, then selects the directories of each.

The files are those that the metastore recorded for the snapshot. Both lists must be taken before
the files are requested: then a compaction that commits in between is invisible, and its inputs
still exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress

from acid_platform.errors import CorruptFile, NotEnoughHistory
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.partition_names import parse_partition
from acid_platform.layout.types import Column
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import highest_floor, select
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

Listings = Callable[[Sequence[str]], list[EntityListing]]
"""Returns the files of these partitions, in order; '' is an unpartitioned table."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a scan needs to know about a table; `partitions` maps names to floor write ids."""

    name: str
    files: Files
    path: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    partitions: Mapping[str, tuple[int, ...]]
    listings: Listings
    """Returns the files that commits recorded."""
    floor: int = 0
    insert_only: bool = False
    """Whether files are in the table's own format, without ACID columns."""
    format: FileFormat = ACID_FORMAT
    buckets: Bucketing | None = None
    rewritten: int = 0
    """Files with lower write ids have other columns, or another format; no snapshot of now sees
    them."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """The partitions ('' without partition columns) whose files of this past snapshot may be gone,
    since rows were erased from their history, and when: milliseconds UTC."""

    def values(self, partition: str) -> tuple[str | None, ...]:
        """The values of a partition's columns, in order.

        Raises CorruptFile if the partition does not have the table's partition columns.
        """
        if not self.partition_columns:
            return ()
        values = parse_partition(partition, [column.name for column in self.partition_columns])
        if values is None:
            raise CorruptFile(
                f"{self.path}/{partition} does not have the partition columns of {self.name}; move"
                " it away, or drop the partition"
            )
        return values

    def place(self, partition: str) -> str:
        """The path of a partition's directory; the table's path for ''."""
        return f"{self.path}/{partition}".rstrip("/")


def select_entities(
    table: TableLayout,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    where: str | None = None,
    only: str | None = None,
) -> dict[str, AcidDirectory]:
    """What the snapshot sees of each partition that may match `where`; '' if unpartitioned.

    `only` restricts it to one partition. Raises InvalidExpression, NotEnoughHistory, MalformedName,
    UnsupportedLayout, CorruptFile.
    """
    names = sorted(table.partitions) if table.partition_columns else [""]
    names = _matching(where, table, [name for name in names if only in (None, name)])
    for name in filter(table.ended.__contains__, names):
        at = datetime.fromtimestamp(table.ended[name] / 1000, UTC)
        raise NotEnoughHistory(
            f"{f'{table.name} {name}'.rstrip()} is kept since {at:%Y-%m-%d %H:%M:%S} UTC: rows were"
            " erased from its history then"
        )
    listings = table.listings(names)
    return {
        name: select(
            listing,
            write_ids,
            txns,
            floor=highest_floor(write_ids, table.floor, *table.partitions.get(name, ())),
            insert_only=table.insert_only,
        )
        for name, listing in zip(names, listings, strict=True)
    }


def _matching(where: str | None, table: TableLayout, partitions: list[str]) -> list[str]:
    """Those that can have rows that `where` accepts.

    Raises CorruptFile if a partition does not have the table's partition columns.
    """
    values = [table.values(partition) for partition in partitions]
    if where is None:
        return partitions
    from acid_platform.predicates.arrow_predicates import may_match

    return list(compress(partitions, may_match(where, table.partition_columns, values)))
