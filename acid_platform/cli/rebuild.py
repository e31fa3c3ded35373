"""Making a new metastore from the directories of a warehouse that lost its metastore (P24, P31).

Each directory `db.db/t` is adopted as the table `db.t`. Starts no Spark.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from acid_platform.base.location import Location
from acid_platform.base.progress import tell
from acid_platform.errors import AcidError, InvalidDefinition, RebuildRefused
from acid_platform.formats.file_access import format_of, reading
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.names import is_hidden, parse_directory, partition_segment
from acid_platform.layout.table_properties import FILE_FORMAT, TRANSACTIONAL_KIND
from acid_platform.scan.source_files import read_footer
from acid_platform.storage.files import Files
from acid_platform.tables.adoption import Survey, survey
from acid_platform.tables.joining import join, own_identity, rebuilding, table_directories

UNKNOWN = (
    "which write ids were aborted or still open: all that are found count as committed",
    "which tables were dropped but not yet cleaned: they are back; a renamed table has the name of"
    " its directory",
    "columns as they were declared: they are those of one data file; partition columns are int,"
    " bigint, date or string by their values",
    "buckets (CLUSTERED BY) and properties, such as orc.compress and compaction thresholds",
    "tables outside of the warehouse, views, settings, history, erasure requests",
)
"""What the directories can't tell."""

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BUCKET = re.compile(r"bucket_\d+.*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RebuiltTable:
    """A directory and its table. `note`: why it is no table, or what to check."""

    table: str
    location: str
    columns: str = ""
    partitioned_by: str = ""
    partitions: int = 0
    highest_write_id: int = 0
    note: str = ""


def rebuild(place: Location) -> list[RebuiltTable]:
    """Makes the metastore and a new identity of the warehouse; continues after an interruption.

    Raises RebuildRefused if there is a metastore, WarehouseMismatch if it is elsewhere.
    """
    own_identity(place)
    unfinished = rebuilding(place)
    if place.made and not unfinished.exists():
        raise RebuildRefused(
            f"{place.metastore} holds a metastore; to replace it, stop it and move its"
            " journal-*.log and snapshot-*.duckdb away together"
        )
    directories = list(table_directories(place.warehouse))
    Path(place.metastore).mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished.touch(0o600)
    rebuilt_tables = []
    with Warehouse(place.warehouse, join(place, empty=True)) as warehouse:
        present = set(warehouse.tables())
        for number, (database, table, location) in enumerate(directories):
            name = f"{database}.{table}".lower()
            tell(name, number, len(directories))
            if name not in present:
                rebuilt_tables.append(_adopt(warehouse, name, location))
    unfinished.unlink()
    return rebuilt_tables


def _adopt(warehouse: Warehouse, name: str, location: str) -> RebuiltTable:
    try:
        keys = _keys(location)
        surveyed = survey(name, location, len(keys))
        properties, note = _kind(location, surveyed)
        with warnings.catch_warnings():  # that everything counts as committed is in UNKNOWN
            warnings.simplefilter("ignore")
            table = warehouse.adopt_table(
                name,
                location,
                partitioned_by=[f"`{key}` {kind}" for key, kind in keys],
                properties=properties,
            )
    except AcidError as error:
        return RebuiltTable(name, location, note=f"not a table yet: {error}")
    record = table.record
    columns, keys_text = (
        ", ".join(f"{column} {kind}" for column, kind in some)
        for some in (record.columns, record.partition_columns)
    )
    return RebuiltTable(
        record.name,
        record.location,
        columns,
        keys_text,
        len(surveyed.partitions),
        surveyed.write_id,
        note,
    )


def _keys(location: str) -> list[tuple[str, str]]:
    """Partition columns from the names of directories, with types that fit all their values."""
    files, root = Files.of(location)
    keys: list[tuple[str, str]] = []
    level = [root]
    while True:
        inside = [
            info
            for path in level
            for info in files.children(path)
            if not info.is_file and not is_hidden(info.base_name)
        ]
        pairs = [partition_segment(info.base_name) for info in inside]
        names = {pair[0] for pair in pairs if pair}
        if not inside or None in pairs or len(names) != 1:
            return keys
        keys.append((names.pop(), _type([pair[1] for pair in pairs if pair])))
        level = [info.path for info in inside]


def _type(values: list[str | None]) -> str:
    texts = [value for value in values if value is not None]
    if texts and all(_INTEGER.fullmatch(value) for value in texts):
        return "int" if all(-(2**31) <= int(value) < 2**31 for value in texts) else "bigint"
    if texts and all(_DATE.fullmatch(value) for value in texts):
        return "date"
    return "string"


def _kind(location: str, surveyed: Survey) -> tuple[dict[str, str], str]:
    """Properties that the files show, and what to check. Raises InvalidDefinition."""
    if not surveyed.sample:
        raise InvalidDefinition("there is no data file to read the columns from")
    files, path = Files.of(location)[0], surveyed.sample
    with reading(path):
        stored = format_of(files, path)
        keyed = stored == "parquet" and read_footer(files, path).acid
    if keyed:
        return {FILE_FORMAT.name: "parquet"}, ""
    if stored != "orc":
        raise InvalidDefinition(
            f"{path} is no ORC file, and does not tell the types that were declared;"
            " adopt_table(name, location, 'id int, …',"
            f" properties={{'{TRANSACTIONAL_KIND.name}': 'insert_only',"
            f" '{FILE_FORMAT.name}': '{stored or '…'}'}})"
        )
    directory, _, name = path.rpartition("/")
    if parse_directory(directory.rpartition("/")[2]) and not _BUCKET.fullmatch(name):
        # Not named by bucket: these rows have no row ids.
        return {TRANSACTIONAL_KIND.name: "insert_only"}, "assumed to be insert-only"
    return {}, ""
