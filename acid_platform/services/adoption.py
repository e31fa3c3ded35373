"""What is found in the directory of a table that others have written (P24). Starts no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.names import is_hidden
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.records import TableRecord, WriteReport
from acid_platform.services.manifest import Progress, surveyed
from acid_platform.services.recovery import highest_ids
from acid_platform.storage.files import Files
from acid_platform.storage.orc import orc_schema
from acid_platform.storage.sources import is_acid
from acid_platform.transactions import ValidWriteIdList


@dataclass(frozen=True, slots=True)
class Survey:
    """Partitions and directories of a table on disk, and the highest ids in their names."""

    partitions: tuple[str, ...]
    directories: tuple[WriteReport, ...]
    write_id: int
    txn_id: int
    sample: str
    """Path of one data file, or empty."""

    def aborted(self, snapshot: ValidWriteIdList | None) -> frozenset[int]:
        """Write ids that never count: those that the snapshot does not see, as aborted for ever."""
        if snapshot is None:
            return frozenset()
        later = range(snapshot.high_watermark + 1, self.write_id + 1)
        return frozenset({*snapshot.open, *snapshot.aborted, *later})


def survey(
    table: str, location: str, depth: int, properties: Mapping[str, str] | None = None,
    progress: Progress = lambda *_: None,
) -> Survey:
    """Looks through `depth` levels of partition directories, and into the footer of each file.

    `properties` are those of the table: they tell in which format its files are. Raises
    InvalidDefinition where nothing is there, MalformedName, CorruptFile.
    """
    files, root = Files.of(location)
    if not files.is_directory(root):
        raise InvalidDefinition(f"{table}: there is no directory {location}")
    names = files.partition_directories(root, depth)
    listings = files.entities([f"{root}/{name}".rstrip("/") for name in names])
    properties = dict(properties or {})
    record = TableRecord(0, table, location, (), properties=properties)
    reports: list[WriteReport] = []
    sample = ""
    for number, (name, listing) in enumerate(zip(names, listings, strict=True)):
        progress(f"{table} {name}".rstrip(), number, len(names))
        for report in surveyed(files, record, name or None, listing):
            reports.append(report)
            assert report.contents is not None
            if not report.directory.startswith("delete_"):
                first = next((one for one in report.contents.files
                              if one.size and not is_hidden(one.name)), None)
                sample = (f"{listing.location}/{first.below(report.directory).path}"
                          if first else sample)
    partitions = tuple(names) if depth else ()
    highest = highest_ids(location, depth)
    return Survey(partitions, tuple(reports), highest.write_id, highest.txn_id, sample)


def columns_of_file(files: Files, path: str, table: str) -> tuple[Column, ...]:
    """The table's columns as one of its ORC files has them. Raises InvalidDefinition, CorruptFile.
    """
    if not path:
        raise InvalidDefinition(f"{table}: there is no data file to take the columns from; give"
                                " schema='id int, …'")
    fields = parse_type(orc_schema(files, path)).children
    if is_acid([name for name, _ in fields]):
        fields = fields[5][1].children
    columns = tuple(Column(name, kind) for name, kind in fields)
    if all(column.name.startswith("_col") for column in columns):
        raise InvalidDefinition(f"{path} names no columns ({columns[0].name}, …); give"
                                " schema='id int, …' in their order")
    return columns
