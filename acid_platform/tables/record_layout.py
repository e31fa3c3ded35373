"""What a table's declaration says about its files: columns, buckets, codec, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.base.table_properties import BUCKETING_VERSION, DISTRIBUTION
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.formats import FileFormat, is_insert_only
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.client.metastore import Metastore, OpenTransaction
from acid_platform.metastore.operations.tables import GetPartitions
from acid_platform.metastore.records import PartitionRecord, TableRecord
from acid_platform.scan.table_layout import Listings, TableLayout
from acid_platform.storage.files import Files
from acid_platform.tables.table_files import recorded_listings


def distributed(record: TableRecord) -> bool:
    """Whether rows are brought together by partition before Spark writes them."""
    return DISTRIBUTION.text(record.properties) == "partition"


def columns_of_record(record: TableRecord) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Table columns and partition columns as typed values."""
    return (
        tuple(Column(name, parse_type(kind)) for name, kind in record.columns),
        tuple(Column(name, parse_type(kind)) for name, kind in record.partition_columns),
    )


def table_layout(
    record: TableRecord, txn: OpenTransaction, partitions: Sequence[PartitionRecord] | None = None
) -> TableLayout:
    """Where a table is, and the partitions and files that `txn` sees.

    `partitions`: those of a past snapshot.
    """
    if partitions is None and record.partitioned:
        partitions = txn.partition_records(record.name)
    return _layout(record, partitions or (), recorded_listings(record, txn))


def listed_layout(metastore: Metastore, record: TableRecord) -> TableLayout:
    """Where a table and its partitions are now, for callers that list directories themselves."""
    partitions = metastore.call(GetPartitions(record.name)) if record.partitioned else ()
    return _layout(record, partitions, _no_snapshot)


def _layout(
    record: TableRecord, partitions: Sequence[PartitionRecord], listings: Listings
) -> TableLayout:
    files, path = Files.of(record.location)
    columns, partition_columns = columns_of_record(record)
    if not record.partitioned:
        partitions = ()
    floors = {partition.name: partition.floors for partition in partitions}
    return TableLayout(
        record.name,
        files,
        path,
        columns,
        partition_columns,
        floors,
        listings,
        record.floor,
        is_insert_only(record.properties),
        FileFormat.of(record.properties),
        bucketing(record),
        record.rewritten,
    )


def _no_snapshot(_partitions: Sequence[str]) -> list[EntityListing]:
    raise AssertionError("this layout was made without a snapshot, so it has no files to read")


def bucketing(record: TableRecord) -> Bucketing | None:
    """The table's CLUSTERED BY; as in Hive, the bucketing version is 1 without the property."""
    if not record.bucket_count:
        return None
    version = int(BUCKETING_VERSION.text(record.properties))
    return Bucketing(record.bucket_columns, record.bucket_count, version)
