"""Compares one entity (a partition or an unpartitioned table) with the metastore's records.

Before that, names and places of its files: what readers reject, and what they ignore."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from acid_platform.errors import AcidError, MalformedName
from acid_platform.layout.file_entries import EntityListing, FileEntry, RecordedFiles
from acid_platform.layout.formats import FileFormat, is_insert_only
from acid_platform.layout.names import (
    FLUSH_LENGTH_SUFFIX,
    VERSION,
    VERSION_FILE,
    AcidName,
    BaseName,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_directory,
    span,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore, OpenTransaction
from acid_platform.metastore.records import EntityDirectory, RecordedDirectory, TableRecord
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import data_files, highest_floor, select, shadows
from acid_platform.services.fsck.content import EntityContents
from acid_platform.services.fsck.findings import COPY, MOVE, Check, Findings, write_version_file
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import by_directory, entity_listing


def readable_part(out: Findings, listing: EntityListing, insert_only: bool) -> EntityListing:
    """The listing without entries that make a reader fail; each of those becomes a finding."""
    inside: dict[str, list[FileEntry]] = defaultdict(list)
    loose: list[FileEntry] = []
    for entry in listing.files:
        child, slash, _ = entry.path.partition("/")
        if slash and claims_to_be_acid(child):
            inside[child].append(entry)
        elif not is_hidden(child):
            loose.append(entry)
    bad = {
        child
        for child in sorted({*listing.directories, *inside})
        if claims_to_be_acid(child) and not _fit(out, listing, child, inside[child], insert_only)
    }
    based = any(
        isinstance(parse_directory(child), BaseName)
        for child in {*listing.directories, *inside} - bad
        if claims_to_be_acid(child)
    )
    bad |= {entry.path for entry in loose if not _loose(out, entry, insert_only, based)}
    return replace(
        listing,
        files=tuple(
            file for file in listing.files if not bad & {file.path, file.path.partition("/")[0]}
        ),
        directories=tuple(name for name in listing.directories if name not in bad),
    )


def _fit(
    out: Findings, listing: EntityListing, child: str, files: list[FileEntry], insert_only: bool
) -> bool:
    """Whether an ACID directory can be read, judged by names alone."""
    try:
        parse_directory(child, child)
        contents = data_files(listing.location, child, files, insert_only)
    except AcidError as error:
        out.error(Check.NAME, child, str(error), "until then the table can't be read")
        return False
    for path in contents.zero_length:
        what = "the file is empty; readers treat it as absent"
        step = "restore it if rows are missing, else remove it"
        out.warning(Check.CONTENT, path, what, step)
    nested = {
        "/".join(parts[:2])
        for entry in files
        if len(parts := entry.path.split("/")) > 2 and claims_to_be_acid(parts[1])
    }
    for path in sorted(nested):
        what = (
            "an ACID directory inside another one: nobody reads its rows"
            " (a rename onto a directory that was there nests it)"
        )
        step = "compare it with the outer directory, then move it out of the table"
        out.error(Check.NAME, path, what, step)
    return True


def _loose(out: Findings, entry: FileEntry, insert_only: bool, based: bool) -> bool:
    """Whether a file outside of ACID directories can be an original file."""
    child = entry.path.partition("/")[0]
    if claims_to_be_acid(child):
        out.error(Check.NAME, entry.path, "a file with the name of an ACID directory", MOVE)
        return False
    if insert_only or original_bucket(entry.name) is not None or not entry.size:
        return True
    text = "no original file (NNNNNN_N[_copy_K]), so its rows can't have row ids"
    if based:
        out.warning(Check.NAME, entry.path, f"{text}; the base replaces it", MOVE)
    else:
        out.error(Check.NAME, entry.path, f"{text}: reading the table fails", MOVE)
    return False


@dataclass(frozen=True, slots=True)
class EntityLook:
    """Checks one entity.

    `recorded`: its recorded directories with their files (P26); `last_write_id`: the highest of
    the table that was allocated; `rows`: whether to read row keys.
    """

    out: Findings
    metastore: Metastore
    files: Files
    record: TableRecord
    lease: OpenTransaction
    recorded: Sequence[RecordedDirectory]
    last_write_id: int
    floors: tuple[int, ...]
    rows: bool

    @property
    def committed(self) -> dict[str, EntityDirectory]:
        return {entry.directory.name: entry.directory for entry in self.recorded}

    def look(self, listing: EntityListing, registered: bool) -> None:
        """Reports all findings; of an unregistered partition, only that it exists."""
        insert_only = is_insert_only(self.record.properties)
        listing = readable_part(self.out, listing, insert_only)
        self.out.directories += len(listing.directories)
        write_ids = self.lease.valid_write_ids(self.record.name)
        self._never_given(listing)
        floor = highest_floor(write_ids, self.record.floor, *self.floors)
        try:
            listed, entity = (
                select(
                    looked_at,
                    write_ids,
                    self.lease.valid_txns,
                    floor=floor,
                    insert_only=insert_only,
                )
                for looked_at in (listing, entity_listing(listing.location, self.recorded))
            )
        except AcidError as error:
            self.out.error(Check.HISTORY, "", str(error), "until then the table can't be read")
            return
        if not registered:
            self._not_registered(listed)
            return
        entity = without(entity, {*self._missing(listing), *self._files_of(listing)})
        self._unknown(listed)
        if not insert_only:
            self._markers(listing, entity)
        EntityContents(
            self.out,
            self.files,
            write_ids,
            self.committed,
            self.record.bucket_count,
            FileFormat.of(self.record.properties),
            self.rows,
        ).look(entity)

    def _never_given(self, listing: EntityListing) -> None:
        unknown = []
        for directory in listing.directories:
            name = acid_name(directory)
            if name is None:
                continue
            if span(name)[1] > self.last_write_id:
                what = (
                    f"no transaction got write id {span(name)[1]} yet ({self.last_write_id} is the"
                    " highest): once one gets it, these rows appear or its write fails"
                )
                self.out.error(Check.NEVER_GIVEN, directory, what, MOVE)
            elif name.visibility > self.lease.id:
                unknown.append((directory, name.visibility))
        states = self.metastore.call(ops.GetTxnStates(tuple(txn for _, txn in unknown)))
        for directory, txn in unknown:
            if states[txn] == "u":
                what = f"there is no transaction {txn} yet: once there is, the directory is visible"
                self.out.error(Check.NEVER_GIVEN, directory, what, MOVE)

    def _not_registered(self, entity: AcidDirectory) -> None:
        if entity.sources or entity.originals:
            what = "the partition is not registered: nobody reads its rows"
            step = (
                "drop the table and adopt it again with all its partitions, or move it out of the"
                " table"
            )
            self.out.warning(Check.PARTITION, "", what, step)
        self._aborted(entity)

    def _files_of(self, listing: EntityListing) -> Iterator[str]:
        """Compares the files of each directory with what its commit recorded (P26).

        Yields the paths of files that are gone or have another size.
        """
        there = by_directory(listing)
        for entry in self.recorded:
            name = entry.directory.name
            if name not in there or entry.directory.obsolete:
                continue
            recorded = {
                file.below(name).path: file for file in RecordedFiles.parse(entry.contents).files
            }
            present = {file.path: file for file in there[name]}
            for path, file in sorted(recorded.items()):
                if path not in present:
                    what = f"write id {entry.directory.high} committed it, but it is not there"
                    self.out.error(Check.MISSING, path, what, COPY)
                    yield path
                elif present[path].size != file.size:
                    what = (
                        f"has {present[path].size} bytes, and write id"
                        f" {entry.directory.high} committed it with {file.size}"
                    )
                    self.out.error(Check.CONTENT, path, what, COPY)
                    yield path
            for path in sorted(present.keys() - recorded.keys()):
                if not path.endswith(FLUSH_LENGTH_SUFFIX):
                    what = (
                        f"the commit of write id {entry.directory.high} did not"
                        " write it: nobody reads it here, but other engines do"
                    )
                    self.out.warning(Check.UNKNOWN, path, what, MOVE)

    def _missing(self, listing: EntityListing) -> Iterator[str]:
        """Yields directories that are needed but not there."""
        there = {*listing.directories, *({""} if self._has_originals(listing) else ())}
        names = [directory.acid_name for directory in self.committed.values()]
        for name, directory in sorted(self.committed.items()):
            needed = (
                not directory.obsolete
                and directory.high > max(self.floors, default=0)
                and not any(shadows(other, directory.acid_name) for other in names)
            )
            if needed and name not in there and (name or directory.files):
                where = (
                    f"from transaction {directory.txn}"
                    if directory.txn
                    else "adopted with its table"
                )
                what = f"was committed ({directory.rows} rows, {where}), but is missing"
                self.out.error(Check.MISSING, name, what, COPY)
                yield name

    def _has_originals(self, listing: EntityListing) -> bool:
        return any(
            "/" not in file.path or acid_name(file.path.partition("/")[0]) is None
            for file in listing.files
        )

    def _unknown(self, entity: AcidDirectory) -> None:
        for source in entity.sources:
            if source.directory not in self.committed:
                self._stranger(source.name, source.directory)
        if entity.originals and "" not in self.committed:
            what = (
                "an original file that was not adopted"
                " with the table: nobody reads it here, but other engines do"
            )
            self.out.error(Check.UNKNOWN, entity.originals[0].path, what, MOVE)
        for removable in entity.obsolete:
            if (
                acid_name(removable.path) is not None
                and removable.path not in self.committed
                and removable.rule != "P22"
            ):
                what = f"no transaction reported it; nobody reads it: {removable.reason}"
                step = "the cleaning after the next compaction removes it"
                self.out.warning(Check.UNKNOWN, removable.path, what, step)
        self._aborted(entity)

    def _stranger(self, name: AcidName, directory: str) -> None:
        low, high = span(name)
        if any(entry.low <= low and high <= entry.high for entry in self.committed.values()):
            what = (
                f"the transaction of write id {high} reported other"
                " directories only: nobody reads it here, but other engines do"
            )
            self.out.error(Check.UNKNOWN, directory, what, MOVE)
        else:
            what = (
                f"no transaction reported write id {high}: nobody reads"
                " it here, but other engines do"
            )
            self.out.warning(Check.UNKNOWN, directory, what, MOVE)

    def _aborted(self, entity: AcidDirectory) -> None:
        for removable in entity.aborted:
            step = "nothing to do: the next cleaning removes it (`acid run cleaner`)"
            self.out.note(Check.ABORTED, removable.path, removable.reason, step)

    def _markers(self, listing: EntityListing, entity: AcidDirectory) -> None:
        """Checks version files: our writers always write one; Hive 2 and LOAD DATA don't."""
        for source in entity.sources:
            path = f"{entity.location}/{source.directory}"
            if source.directory in listing.versioned:
                content = self.files.read(f"{path}/{VERSION_FILE}")[:1]
                if content != VERSION:
                    what = (
                        f"holds {content.decode(errors='replace')!r} instead of"
                        f" {VERSION.decode()!r}: readers assume another ACID version"
                    )
                    self.out.error(Check.MARKER, f"{source.directory}/{VERSION_FILE}", what, COPY)
            elif (
                source.directory in self.committed
                and self.committed[source.directory].txn
                and not source.raw
            ):
                what = f"no {VERSION_FILE}: Trino refuses the table"
                self.out.warning(
                    Check.MARKER,
                    source.directory,
                    what,
                    "--repair writes it",
                    write_version_file(self.files, path),
                )


def without(entity: AcidDirectory, reported: Collection[str]) -> AcidDirectory:
    """The directory without the files and directories that have a finding already."""

    def left(files: tuple[FileEntry, ...]) -> tuple[FileEntry, ...]:
        return tuple(file for file in files if file.path not in reported)

    base = entity.base
    return replace(
        entity,
        base=None
        if base is None or base.directory in reported
        else replace(base, files=left(base.files)),
        deltas=tuple(
            replace(delta, files=left(delta.files))
            for delta in entity.deltas
            if delta.directory not in reported
        ),
        originals=left(entity.originals),
    )


def acid_name(directory: str) -> AcidName | None:
    """The parsed name; None also for a malformed name, which `readable_part` reports."""
    try:
        return parse_directory(directory)
    except MalformedName:
        return None
