"""What the directories of tables tell, to adopt a table that others have written and to restore a
metastore: the files, the highest ids in use (P24), and which warehouse they belong to (P31). Starts
no Spark."""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from acid_platform.base.location import Location
from acid_platform.base.paths import is_uri
from acid_platform.base.progress import tell
from acid_platform.errors import (
    BackupRefused,
    CorruptFile,
    InvalidDefinition,
    MalformedName,
    UnsupportedLayout,
    WarehouseMismatch,
)
from acid_platform.formats.file_access import (
    columns_with_ids,
    format_of,
    matching_parts,
    reading,
    require_exact_decimals,
    stored_types,
)
from acid_platform.layout.file_entries import EntityListing, FileEntry, Footer
from acid_platform.layout.formats import ACID_FORMAT, FileFormat, is_insert_only
from acid_platform.layout.names import (
    BaseName,
    highest_write_id,
    is_hidden,
    parse_directory,
    parse_partition,
    refuse_names,
    temporary_owner,
)
from acid_platform.layout.types import Column, HiveType
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.contract import open_log
from acid_platform.metastore.operations.tables import AdoptTable
from acid_platform.metastore.places import Places, is_relative
from acid_platform.metastore.records import TableRecord, WriteReport
from acid_platform.metastore.server.restore import (
    Highest,
    Known,
    Owner,
    Present,
    Restored,
    restore_directory,
    restore_metastore,
)
from acid_platform.scan.selection import select
from acid_platform.scan.source_files import RowIdentity, entity_sources
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import Declaration
from acid_platform.tables.joining import IDENTITY, new_identity_file, own_identity
from acid_platform.tables.locations import require_place
from acid_platform.tables.record_layout import by_directory, surveyed, without_malformed
from acid_platform.transactions import ValidTxnList, ValidWriteIdList


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
        unlisted = {directory for directory in names if directory not in recorded(name or None)}
        fresh = surveyed(files, record, name or None, listing, unlisted) if unlisted else []
        present.append(Present(name or None, tuple(sorted(names)), tuple(fresh)))
    return Highest(highest.write_id, highest.txn_id, tuple(present))


def restore(
    location: Location, file: str, replace: bool = False, keep_settings: bool = False
) -> Restored:
    """Makes the warehouse's metastore from a backup; root and metastore get a new identity.

    `replace`: puts the files of a directory aside, or removes from PostgreSQL or a bucket what an
    earlier restore left there. `keep_settings`: see restore_metastore.

    Raises BackupRefused, WarehouseMismatch if the root belongs to another warehouse than the
    backup, or has its metastore elsewhere, and what restore_metastore raises.
    """
    identity_file = own_identity(location)
    new, places = new_identity_file(location), Places(location.warehouse)

    def accept(identity: str | None) -> None:
        if (
            identity_file is not None
            and identity is not None
            and identity_file.identity != identity
        ):
            raise WarehouseMismatch(
                f"{location.warehouse} is the warehouse {identity_file.identity}, and {file} is a"
                f" backup of {identity}; restore into a copy of that one's directories, or remove"
                f" {IDENTITY} if the tables' directories are its own"
            )

    def highest(record: TableRecord, recorded: Known) -> Highest:
        inside = is_relative(record.location)
        if not inside and places.inward(record.location) != record.location:
            raise BackupRefused(
                f"{file} is no backup of a metastore: {record.name} is at {record.location}, which"
                " is in the warehouse, and would count as outside of it"
            )
        there = dataclasses.replace(record, location=places.outward(record.location))
        found = highest_of(there, recorded)
        names = [record.place_of(present.partition) for present in found.present]
        elsewhere = inside and _leads_elsewhere(places.root, names)
        return dataclasses.replace(found, elsewhere=elsewhere)

    owner = Owner(new.identity, accept, lambda: new.replace(location.warehouse))
    if not location.shared:
        home = Home(Path(location.metastore))
        return restore_directory(home, file, highest, replace, owner, keep_settings)
    log = open_log(location.metastore)
    if log.exists and not (replace and log.remove_unused()):
        raise BackupRefused(
            f"{location.metastore} holds a metastore already: name another prefix, schema or"
            " database; what an interrupted restore left, and no metastore ever served, is removed"
            " by `acid metastore restore FILE --replace`"
        )
    return restore_metastore(log, file, highest, owner, keep_settings)


def _leads_elsewhere(root: str, names: Iterable[str]) -> bool:
    """Whether symbolic links lead from one of these directories below the root to another one."""
    if is_uri(root):
        return False
    real = os.path.realpath(root)
    return any(os.path.realpath(f"{real}/{name}") != f"{real}/{name}" for name in names)


def _directories(location: str, depth: int) -> Iterator[str]:
    files, root = Files.of(location)
    for partition in files.partition_directories(root, depth):
        for info in files.children(f"{root}/{partition}".rstrip("/")):
            yield info.base_name
    if depth:
        yield from files.temporaries(root)


@dataclass(frozen=True, slots=True)
class Survey:
    """Partitions and directories of a table on disk, and the highest ids in their names."""

    partitions: tuple[str, ...]
    directories: tuple[WriteReport, ...]
    write_id: int
    txn_id: int
    listings: tuple[EntityListing, ...] = ()
    """The listing of the table, or of each partition in their order."""

    @property
    def sample(self) -> str:
        """The path of a data file in the last directory that has one, or empty."""
        return next(iter(deque(data_files(self), maxlen=1)), "")

    def aborted(self, snapshot: ValidWriteIdList | None) -> frozenset[int]:
        """Write ids that the snapshot does not see: they count as aborted for ever."""
        if snapshot is None:
            return frozenset()
        later = range(snapshot.high_watermark + 1, self.write_id + 1)
        return frozenset({*snapshot.open, *snapshot.aborted, *later})


def survey(
    table: str,
    location: str,
    depth: int,
    properties: Mapping[str, str] | None = None,
) -> Survey:
    """Looks at `depth` levels of partition directories, and at the footer of each file.

    `properties` are those of the table: they say which format its files have. Raises
    InvalidDefinition if the directory does not exist, MalformedName, CorruptFile,
    UnsupportedLayout.
    """
    files, root = Files.of(location)
    if not files.is_directory(root):
        raise InvalidDefinition(f"{table}: there is no directory {location}")
    if files.local:
        deque(files.below_strange(root), 0)  # before links lead the listings in circles
    names = files.partition_directories(root, depth)
    listings = files.entities([f"{root}/{name}".rstrip("/") for name in names])
    properties = dict(properties or {})
    record = TableRecord(0, table, location, (), properties=properties)
    reports: list[WriteReport] = []
    for number, (name, listing) in enumerate(zip(names, listings, strict=True)):
        tell(f"{table} {name}".rstrip(), number, len(names))
        reports += surveyed(files, record, name or None, listing)
    partitions = tuple(names) if depth else ()

    highest = highest_ids(location, depth)
    return Survey(partitions, tuple(reports), highest.write_id, highest.txn_id, tuple(listings))


@dataclass(frozen=True, slots=True)
class Adopted:
    """A table that was adopted, and what was found in its directory."""

    record: TableRecord
    survey: Survey
    left_out: tuple[str, ...]
    """Directories of compactions that `txns` does not see."""


def adopt(
    metastore: Metastore,
    table: str,
    location: str,
    columns: tuple[Column, ...] | None,
    partitioned_by: Sequence[str] = (),
    clustered_by: tuple[Sequence[str], int] | None = None,
    snapshot: ValidWriteIdList | None = None,
    properties: Mapping[str, str] | None = None,
    txns: ValidTxnList | None = None,
    partitions: Collection[str] | None = None,
    confirm: Callable[[], None] = lambda: None,
    comments: Mapping[str, str] | None = None,
) -> Adopted:
    """Registers an existing directory as a table, see `Warehouse.adopt_table` (P24).

    `columns` None: those of one of the files. `txns`: the transactions of the metastore that the
    directory had; a compaction that it does not see is left out, since its directory may be half
    written. None: every compaction counts. `partitions`: those that were registered there; a
    directory of another partition is refused. None: every directory that is found. `confirm` is
    called when everything was read and nothing is registered yet; what it raises ends the adoption.
    `comments`: of columns and partition columns, by their names.

    Raises TableExists, InvalidDefinition, MalformedName, UnsupportedLayout, CorruptFile.
    """
    refuse_names(table, location)
    where = require_place(metastore, table, location)
    surveyed = survey(table, where, len(partitioned_by), properties)
    files, root = Files.of(where)
    last_id, has_ids = 0, FileFormat.of(dict(properties or {})).has_column_ids
    with_ids = list(data_files(surveyed, only_with_ids=not has_ids))
    if has_ids or with_ids:
        columns, last_id = _with_ids(files, root, with_ids, columns, table)
    elif columns is None:
        columns = columns_of_file(files, surveyed.sample, table)
    declared = Declaration.of(
        table, columns, partitioned_by, clustered_by, properties, True, comments
    )
    keys = [column.name for column in declared.partition_columns]
    expected = (
        None
        if partitions is None
        else {parse_partition(partition, keys) for partition in partitions}
    )
    for partition in surveyed.partitions:
        values = parse_partition(partition, keys)
        if values is None:
            raise InvalidDefinition(
                f"{table}: {root}/{partition} is no partition of {', '.join(keys)}"
            )
        if expected is not None and values not in expected:
            raise InvalidDefinition(
                f"{table}: {root}/{partition} is not registered as a partition; register it there"
                " (MSCK REPAIR TABLE), or move it away"
            )
    visible, left_out = _without_unseen(surveyed, txns)
    require_readable(visible, snapshot, properties, txns)
    if FileFormat.of(declared.properties).has_declared_types:
        require_declared_char(files, table, data_files(visible), declared.columns)
        for path in data_files(visible, only_without_keys=True):
            require_exact_decimals(files, path, declared.columns)
    confirm()
    metastore.create_database(table.partition(".")[0], if_not_exists=True)
    record = declared.record(table, metastore.places.inward(where))
    known = last_id > max(record.ids_of_columns)
    adopt_it = AdoptTable(
        # Nobody knows which of the files have other names and types of columns.
        replace(record, last_column_id=last_id if known else 0, retyped=surveyed.write_id),
        surveyed.write_id,
        surveyed.txn_id,
        tuple(sorted(surveyed.aborted(snapshot))),
        tuple({*surveyed.partitions, *(partitions or ())}),
        tuple(visible.directories),
    )
    return Adopted(metastore.call(adopt_it), surveyed, left_out)


def _without_unseen(surveyed: Survey, txns: ValidTxnList | None) -> tuple[Survey, tuple[str, ...]]:
    """The survey without the directories of compactions that `txns` does not see, and those."""
    if txns is None:
        return surveyed, ()

    def is_visible(report: WriteReport) -> bool:
        name = parse_directory(report.directory) if report.directory else None
        return name is None or txns.is_valid(name.visibility)

    left_out = tuple(
        f"{report.partition or ''}/{report.directory}".lstrip("/")
        for report in surveyed.directories
        if not is_visible(report)
    )
    return replace(surveyed, directories=tuple(filter(is_visible, surveyed.directories))), left_out


def data_files(
    adopted: Survey, only_without_keys: bool = False, only_with_ids: bool = False
) -> Iterator[str]:
    """Paths that show the types of all files: one of each directory, which one statement wrote,
    and every original file. `only_without_keys`: of all files those without the ACID columns;
    `only_with_ids`: those of a format that has an id of each column."""
    partitions = adopted.partitions or (None,) * len(adopted.listings)
    listings = dict(zip(partitions, adopted.listings, strict=True))
    for report in adopted.directories:
        if report.directory.startswith("delete_"):
            continue
        data = [file for file in report.contents.files if file.size and not is_hidden(file.name)]
        if only_without_keys:
            data = [
                character
                for character in data
                if character.footer is not None and not character.footer.acid
            ]
        if only_with_ids:
            data = [file for file in data if file.footer and _has_ids(file.footer)]
        for file in data[:1] if report.directory and not only_without_keys else data:
            yield f"{listings[report.partition].location}/{file.below(report.directory).path}"


def _has_ids(footer: Footer) -> bool:
    return FileFormat(footer.format or ACID_FORMAT.name, keyed=footer.acid).has_column_ids


def require_readable(
    adopted: Survey,
    snapshot: ValidWriteIdList | None,
    properties: Mapping[str, str] | None,
    txns: ValidTxnList | None = None,
) -> None:
    """Checks that `snapshot` can be read correctly; None means everything that was found.

    Readers of an adopted table use the records and no longer list directories (P26), so this is
    where foreign or misplaced files are noticed. Raises MalformedName, UnsupportedLayout,
    CorruptFile.
    """
    write_ids = ValidWriteIdList.of("", adopted.write_id, aborted=adopted.aborted(snapshot))
    recorded: dict[str | None, dict[str, FileEntry]] = {}
    for report in adopted.directories:
        recorded.setdefault(report.partition, {}).update(
            (entry.path, entry)
            for entry in (file.below(report.directory) for file in report.contents.files)
        )
    partitions = adopted.partitions or (None,) * len(adopted.listings)
    for partition, listing in zip(partitions, adopted.listings, strict=True):
        # Old history may be gone; a reader that asks for it gets the error.
        directory = select(
            listing,
            write_ids,
            txns or ValidTxnList.everything(),
            cleaning=True,
            insert_only=is_insert_only(dict(properties or {})),
        )
        entries = recorded.get(partition, {})
        footers = {path: entry.footer for path, entry in entries.items() if entry.footer}
        lengths = {
            path: entry.length for path, entry in entries.items() if entry.length is not None
        }
        sources = entity_sources(directory, footers, lengths)
        for source in (*sources.inserts, *sources.deletes):
            path = source.path.removeprefix(f"{listing.location}/")
            if source.identity is RowIdentity.STORED and not footers[path].acid:
                raise CorruptFile(
                    f"{source.path} lacks the six ACID columns; restore it, or move"
                    " it out of the table"
                )


def columns_of_file(files: Files, path: str, table: str) -> tuple[Column, ...]:
    """The columns of a table, read from one of its ORC files.

    Raises InvalidDefinition, CorruptFile.
    """
    if not path:
        raise InvalidDefinition(
            f"{table}: there is no data file to read the columns from; give schema='id int, …'"
        )
    columns = tuple(Column(name, kind) for name, kind in stored_types(files, path)[1])
    if all(column.name.startswith("_col") for column in columns):
        raise InvalidDefinition(
            f"{path} names no columns ({columns[0].name}, …); give"
            " schema='id int, …' in their order"
        )
    return columns


def _with_ids(
    files: Files,
    root: str,
    paths: Sequence[str],
    columns: tuple[Column, ...] | None,
    table: str,
) -> tuple[tuple[Column, ...], int]:
    """The columns with the ids by which these files know them, and the highest id of all; `columns`
    None: those of the newest file.

    A name stands for the column that the newest file with it means. Raises InvalidDefinition for
    two names of one column, and what `columns_with_ids` raises.
    """
    newest, last = dict[str, Column](), 0
    inside = sorted(path.removeprefix(f"{root}/") for path in paths)
    for path in sorted(inside, key=highest_write_id, reverse=True):
        stored = columns_with_ids(files, f"{root}/{path}")
        columns = columns or stored
        last = max(last, *(column.id for column in stored))
        newest = {column.name: column for column in stored} | newest
    if columns is None:
        raise InvalidDefinition(
            f"{table}: there is no data file to read the columns from; give schema='id int, …'"
        )
    numbered, names = list[Column](), dict[int, str]()
    for column in columns:
        known = newest.get(column.name)
        last = last if known else last + 1
        number = known.id if known else last
        if number in names:
            raise InvalidDefinition(
                f"{table}: {names[number]} and {column.name} are names of one column, which was"
                " renamed; declare one of them"
            )
        names[number] = column.name
        numbered.append(replace(column, id=number))
    return tuple(numbered), last


_OTHER_TEXTS = ("string", "varchar")


def require_declared_char(
    files: Files, table: str, paths: Iterable[str], columns: Sequence[Column]
) -> None:
    """Raises InvalidDefinition for a CHAR of one of the ORC files that is declared otherwise.

    Hive strips the trailing blanks of such a value; ORC's library for C++, and so Arrow, does not.
    """
    if not any(kind.kind in _OTHER_TEXTS for column in columns for kind in column.type.walk()):
        return
    for path in paths:
        stored: dict[str, HiveType] = {}
        with suppress(UnsupportedLayout):  # a union, say, which its reader refuses
            stored = _stored(files, path, columns)
        for column in columns:
            kind = stored.get(column.name)
            if kind is not None and _hides_char(kind, column.type):
                raise InvalidDefinition(
                    f"{table}: {path} holds column {column.name} as {kind}, and {column.type} would"
                    f" show its blanks in some engines; declare it as {kind}, or copy the rows with"
                    " Hive if other files hold another type"
                )


def _stored(files: Files, path: str, columns: Sequence[Column]) -> dict[str, HiveType]:
    with reading(path):
        has_ids = format_of(files, path) == "parquet" and any(column.id for column in columns)
    if has_ids:
        kinds = {column.id: column.type for column in columns_with_ids(files, path)}
        return {column.name: kinds[column.id] for column in columns if column.id in kinds}
    _, fields = stored_types(files, path)
    if all(name.startswith("_col") for name, _ in fields):
        return {column.name: kind for column, (_, kind) in zip(columns, fields, strict=False)}
    return dict(fields)


def _hides_char(stored: HiveType, declared: HiveType) -> bool:
    return any(
        part.kind == "char" and other.kind in _OTHER_TEXTS
        for part, other in matching_parts(stored, declared)
    )
