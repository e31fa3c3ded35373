"""What a table's declaration says about its files: columns, buckets, codec, and where they are; and
which of them a snapshot may read: those that the metastore recorded (P26)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from acid_platform.errors import MalformedName
from acid_platform.formats.file_access import WRITTEN_FORMATS, recorded_file
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.file_entries import EntityListing, FileEntry, Footer, RecordedFiles
from acid_platform.layout.formats import FileFormat, is_insert_only
from acid_platform.layout.names import (
    FLUSH_LENGTH_SUFFIX,
    DeltaName,
    is_hidden,
    original_bucket,
    parse_bucket_file,
    parse_directory,
)
from acid_platform.layout.table_properties import BUCKETING_VERSION, DISTRIBUTION
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.client.metastore import Metastore, OpenTransaction
from acid_platform.metastore.operations.tables import GetPartitions
from acid_platform.metastore.records import (
    PartitionRecord,
    PastTable,
    RecordedDirectory,
    TableRecord,
    WriteReport,
)
from acid_platform.scan.acid_directory import DirectoryLine, timeline
from acid_platform.scan.open import Listings, TableLayout
from acid_platform.scan.selection import highest_floor, select
from acid_platform.scan.source_files import flush_length
from acid_platform.storage.files import Files, in_threads
from acid_platform.transactions import RowOperation


def distributed(record: TableRecord) -> bool:
    """Whether rows are brought together by partition before Spark writes them."""
    return DISTRIBUTION.text(record.properties) == "partition"


def columns_of_record(record: TableRecord) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Table columns and partition columns as typed values."""
    own = zip(record.columns, record.ids_of_columns, strict=True)
    return (
        tuple(Column(name, parse_type(kind), number) for (name, kind), number in own),
        tuple(Column(name, parse_type(kind)) for name, kind in record.partition_columns),
    )


def all_columns_of(record: TableRecord) -> tuple[Column, ...]:
    """The table's columns, then its partition columns."""
    own, keys = columns_of_record(record)
    return (*own, *keys)


def table_layout(
    record: TableRecord, txn: OpenTransaction, partitions: Sequence[PartitionRecord] | None = None
) -> TableLayout:
    """Where a table is, and the partitions that `txn` sees.

    `partitions`: those whose changes are read.
    """
    if partitions is None and record.partitioned:
        partitions = txn.partition_records(record.name)
    return _layout(record, partitions or ())


def past_layout(past: PastTable) -> TableLayout:
    """Where a table was, its partitions then, and those of them whose history has ended (P36)."""
    return replace(_layout(past.table, past.partitions), ended=past.ended)


def listed_layout(metastore: Metastore, record: TableRecord) -> TableLayout:
    """Where a table and its partitions are now, for callers that list directories themselves."""
    partitions = metastore.call(GetPartitions(record.name)) if record.partitioned else ()
    return _layout(record, partitions)


def _layout(record: TableRecord, partitions: Sequence[PartitionRecord]) -> TableLayout:
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
        record.floor,
        FileFormat.of(record.properties),
        bucketing(record),
        record.rewritten,
        record.retyped,
    )


def bucketing(record: TableRecord) -> Bucketing | None:
    """The table's CLUSTERED BY; as in Hive, the bucketing version is 1 without the property."""
    if not record.bucket_count:
        return None
    version = int(BUCKETING_VERSION.text(record.properties))
    return Bucketing(record.bucket_columns, record.bucket_count, version)


# --- the files that commits recorded --------------------------------------------------------------


def recorded_listings(
    layout: TableLayout, txn: OpenTransaction, partitions: Sequence[str]
) -> Listings:
    """The files that `txn` may read of partitions ('' for an unpartitioned table): those that
    commits recorded, and its own.

    The recorded files of a partition that was dropped are kept for older snapshots (P22): of one
    that only the transaction itself has written, nobody is asked. Raises SnapshotExpired or
    TxnAborted once the transaction has ended, CorruptFile.
    """
    seen = [name for name in partitions if name not in layout.new]
    entities = txn.manifest(layout.name, [name or None for name in seen])
    recorded = dict(zip(seen, entities, strict=True))
    listings = {
        name: entity_listing(layout.place(name), recorded.get(name, ())) for name in partitions
    }
    for name in {own.partition for own in layout.own} & listings.keys():
        own = [each for each in layout.own if each.partition == name]
        where = layout.place(name)
        new = [directory_listing(where, each.name, each.contents) for each in own]
        listings[name] = listings[name].joined(new)
    return listings


def entity_listing(location: str, directories: Sequence[RecordedDirectory]) -> EntityListing:
    """The recorded files of one entity. Raises CorruptFile."""
    return EntityListing(location, ()).joined(
        [
            directory_listing(
                location,
                recorded.directory.name,
                RecordedFiles.parse(recorded.contents),
                recorded.directory.compacted,
                recorded.directory.versioned,
                adopted=not recorded.directory.txn,
            )
            for recorded in directories
        ]
    )


def directory_listing(
    location: str,
    name: str,
    contents: RecordedFiles,
    compacted: bool = False,
    versioned: bool = True,
    adopted: bool = False,
) -> EntityListing:
    """A directory with its files; '' stands for the original files of an entity."""
    return EntityListing(
        location,
        tuple(file.below(name) for file in contents.files),
        (name,) if name else (),
        {name: "compacted"} if compacted else {},
        frozenset({name} if versioned else ()),
        frozenset({name} if adopted else ()),
    )


def surveyed(
    files: Files,
    record: TableRecord,
    partition: str | None,
    listing: EntityListing,
    only: Container[str] | None = None,
) -> list[WriteReport]:
    """A report for each directory of an entity, or for those in `only`, made from file footers.

    '' stands for original files. Raises MalformedName, CorruptFile.
    """
    stored = FileFormat.of(record.properties)
    reports = []
    for name, entries in sorted(by_directory(listing).items()):
        if only is not None and name not in only:
            continue
        parsed = parse_directory(name) if name else None
        deletes = isinstance(parsed, DeltaName) and parsed.deletes
        contents = _looked_into(files, listing.location, name, entries, stored, deletes)
        reports.append(
            WriteReport(
                record.name,
                partition,
                RowOperation.INSERT,
                name,
                contents,
                compacted=listing.data_formats.get(name) == "compacted",
                versioned=name in listing.versioned,
            )
        )
    return reports


def by_directory(listing: EntityListing) -> dict[str, list[FileEntry]]:
    """The files of each ACID directory of an entity; '' stands for its original files.

    Paths stay relative to the entity. Raises MalformedName.
    """

    def is_acid(child: str) -> bool:
        return parse_directory(child, f"{listing.location}/{child}") is not None

    files: dict[str, list[FileEntry]] = {
        name: [] for name in listing.directories if not is_hidden(name) and is_acid(name)
    }
    for entry in listing.files:
        child, slash, _ = entry.path.partition("/")
        if not is_hidden(child):
            files.setdefault(child if slash and is_acid(child) else "", []).append(entry)
    return files


def without_malformed(listing: EntityListing) -> EntityListing:
    """The listing without directories whose names only resemble ACID names."""

    def is_malformed(child: str) -> bool:
        try:
            parse_directory(child)
        except MalformedName:
            return True
        return False

    bad = {name for name in listing.directories if is_malformed(name)}
    return replace(
        listing,
        directories=tuple(name for name in listing.directories if name not in bad),
        files=tuple(file for file in listing.files if file.path.partition("/")[0] not in bad),
    )


def _looked_into(
    files: Files,
    location: str,
    directory: str,
    entries: Sequence[FileEntry],
    stored: FileFormat,
    deletes: bool,
) -> RecordedFiles:
    sides = {
        entry.path.removesuffix(FLUSH_LENGTH_SUFFIX): entry
        for entry in entries
        if entry.path.endswith(FLUSH_LENGTH_SUFFIX)
    }
    prefix = f"{directory}/" if directory else ""

    def look(entry: FileEntry) -> FileEntry:
        path, name = f"{location}/{entry.path}", entry.path.removeprefix(prefix)
        is_bucket = parse_bucket_file(entry.name) or original_bucket(entry.name) is not None
        if not entry.size or (stored.keyed and not is_bucket):
            # Readers of the directory refuse an unknown name.
            return FileEntry(name, entry.size, Footer(0, stored.keyed and bool(is_bucket)))
        side = sides.get(entry.path)
        length = None if side is None else flush_length(files.read(f"{location}/{side.path}"))
        if stored.name not in WRITTEN_FORMATS:
            return FileEntry(name, entry.size, Footer(-1, False))
        return recorded_file(files, path, name, stored, deletes, length=length)

    data = [entry for entry in entries if not entry.path.endswith(FLUSH_LENGTH_SUFFIX)]
    return RecordedFiles(tuple(in_threads(look, data)))


# --- what a snapshot reads of a directory ---------------------------------------------------------


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
