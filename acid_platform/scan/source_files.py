"""The files of an entity as a reader opens them: their format, their rows and their row ids.

File names are not enough: only footers tell whether files of LOAD DATA have ACID columns and how
many rows original files hold, and only the side file tells how much of a streaming file is
committed. So a caller reads what `missing_footers` and `side_files` ask for:

    footers = {}
    while paths := missing_footers(directory, footers):
        footers |= {path: <footer of location/path> for path in paths}
    lengths = {path: <last value of the side file> for path, side in side_files(directory)}
    sources = entity_sources(directory, footers, lengths)

`resolve` does exactly this. All paths in these mappings are relative to the entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import DataFile, FilePath
from acid_platform.formats.file_access import open_file, reading
from acid_platform.layout.acid_keys import Bucket
from acid_platform.layout.file_entries import NO_RANGES, ColumnRange, FileEntry, Footer, KeyRanges
from acid_platform.layout.formats import ACID_FORMAT
from acid_platform.layout.names import (
    FLUSH_LENGTH_SUFFIX,
    BaseName,
    DeltaName,
    original_bucket,
    parse_bucket_file,
)
from acid_platform.layout.types import TIMESTAMPS, Column
from acid_platform.scan.acid_directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.storage.files import Files, in_threads


class RowIdentity(Enum):
    """Where the keys of a file's rows are."""

    STORED = "stored"
    """Each row stores its key."""
    RUN = "run"
    """They follow from the positions: an original file, or one of LOAD DATA (F15)."""
    NONE = "none"
    """Rows have no keys: an insert-only table, or an external one."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that a snapshot reads, with the tests that its rows need.

    All rows of a file that stores no keys have `write_id`; it needs neither `test_rows` nor
    `above`. With a run of keys, the row at position `i` has (`write_id`, `bucket`, `first_row_id`
    + i), and was inserted by `write_id`.
    """

    path: str
    """Absolute path within the file system."""
    identity: RowIdentity
    size: int
    directory: str
    """Name of the base or delta; empty for an original file."""
    low: int
    high: int
    """The rows were inserted with write ids in low..high, which is 0..N for a base."""
    number: int | None = None
    """The bucket number of all rows; None if rows of several buckets may be in the file."""
    test_rows: bool = False
    """Keep only rows (or events) whose currentTransaction is valid (S15)."""
    above: int = -1
    """Keep only rows with currentTransaction > above."""
    length: int | None = None
    """Committed length in bytes, at which an ORC tail ends (F9); None: the whole file."""
    write_id: int = 0
    bucket: int = 0
    """Bucket property of the rows of a run."""
    first_row_id: int = 0
    rows: int | None = None
    """The row count of a file with a run of keys; of others only if it is recorded."""
    positional: bool = False
    """Whether columns match by position: its names are `_col0`, `_col1`, …"""
    ranges: Mapping[str, ColumnRange] = field(default_factory=lambda: NO_RANGES, compare=False)
    """Bounds of the values of each column, as far as they are recorded."""
    keys: KeyRanges | None = field(default=None, compare=False)
    """Recorded bounds of the stored keys: all its rows are complete insert events."""
    modified: int | None = None
    """When a file of delete events was written, in nanoseconds since 1970, as its store says; the
    file of another warehouse at the same place has another time."""

    format: str | None = ACID_FORMAT.name
    """None: nobody has recorded it, and the first bytes tell."""
    by_arrow: bool = False
    """Whether Arrow reads it for both engines, as the format or Hive's serde says, and not Spark's
    own reader."""

    exact: bool = False
    """See Footer."""
    as_declared: bool = False
    """Whether it is known that its columns have the names and types of the table's declaration."""

    def is_sure(self, column: Column) -> bool:
        """Whether the column has no decimal with more digits than its type and no nanoseconds, by
        what is recorded; else its values have to be looked at (P64)."""
        kinds = {part.kind for part in column.type.walk()}
        if self.exact or kinds.isdisjoint(("decimal", *TIMESTAMPS)):
            return True
        known = self.ranges.get(column.name)
        if column.type.kind != "decimal" or known is None:
            return False
        precision, scale = column.type.sizes
        bounds = [known.low, known.high] if known.values else []
        return all(
            isinstance(bound, Decimal) and bound.copy_abs() < 10 ** (precision - scale)
            for bound in bounds
        )

    @property
    def streamed(self) -> bool:
        """Whether its rows come to Spark by Arrow, since Spark has no reader of its own for it that
        finds their columns and keys."""
        return self.by_arrow or (
            self.identity is not RowIdentity.NONE
            and self.format != ACID_FORMAT.name
            and not self.in_parquet
        )

    @property
    def in_parquet(self) -> bool:
        """Whether it stores rows with keys for which readers of plain Parquet need nothing but the
        recorded keys, and the declared columns."""
        return (
            self.keyed and self.format == "parquet" and self.as_declared and self.keys is not None
        )

    @property
    def keyed(self) -> bool:
        """Whether it stores the keys of its rows."""
        return self.identity is RowIdentity.STORED


@dataclass(frozen=True, slots=True)
class EntitySources:
    """All files of an entity that a snapshot reads, in the order of the selection."""

    location: str
    inserts: tuple[SourceFile, ...]
    deletes: tuple[SourceFile, ...]
    """Files of delete deltas, always with stored keys. An event counts if its own id is valid,
    whatever `test_rows` says."""


def side_files(directory: AcidDirectory) -> tuple[tuple[str, FileEntry], ...]:
    """(path of a data file, its `_flush_length` file) for the side files that have to be read."""
    return tuple(
        (side.path.removesuffix(FLUSH_LENGTH_SUFFIX), side)
        for source in directory.sources
        for side in source.side_files
    )


def flush_length(content: bytes) -> int:
    """The committed length in a side file: its last complete 8-byte big-endian value.

    0 if there is none: nothing of the data file was committed yet, so it is not read (F9).
    """
    whole = len(content) // 8 * 8
    return int.from_bytes(content[whole - 8 : whole], "big") if whole else 0


def missing_footers(directory: AcidDirectory, footers: Mapping[str, Footer]) -> tuple[str, ...]:
    """Paths of the files whose footer is needed but neither recorded nor in `footers`.

    These are one file of each directory that LOAD DATA may have made, all files of a directory that
    it did make, and all original files. None are needed for insert-only tables or for directories
    of an ACID writer.
    """
    if directory.insert_only:
        return ()
    needed = [*directory.originals]
    for source in _inserts(directory):
        if _undecided(source):
            first, *others = source.files
            needed.append(first)
            footer = _footer(first, footers)
            if footer is not None and not footer.acid:
                needed += others
    return tuple(entry.path for entry in needed if _footer(entry, footers) is None)


def _footer(entry: FileEntry, footers: Mapping[str, Footer]) -> Footer | None:
    return entry.footer or footers.get(entry.path)


def _required(entry: FileEntry, footers: Mapping[str, Footer]) -> Footer:
    return entry.footer or footers[entry.path]


def entity_sources(
    directory: AcidDirectory,
    footers: Mapping[str, Footer],
    lengths: Mapping[str, int],
    columns: Sequence[Column] = (),
    since: int | None = None,
) -> EntitySources:
    """The files of `directory` as sources; files with flush length 0 are left out.

    `footers` has all that `missing_footers` asks for; `lengths` maps the data file of each of
    `side_files` to its flush length. Raises CorruptFile for a directory that mixes files with and
    without ACID columns, for files without them in a place that LOAD DATA can't write to, for an
    original file with them, for a file shorter than its flush length, and for overlapping deltas
    of an insert-only table.
    """
    inserts = [*_originals(directory, footers)]
    for source in _inserts(directory):
        if directory.insert_only:
            inserts += _plain(directory, source)
        elif _undecided(source) and not _required(source.files[0], footers).acid:
            inserts += _loaded(directory, source, footers)
        else:
            inserts += _acid(directory, source, lengths, columns, since)
    deletes = [
        file for source in directory.delete_deltas for file in _acid(directory, source, lengths)
    ]
    return EntitySources(directory.location, tuple(inserts), tuple(deletes))


def _is_exact(entry: FileEntry) -> bool:
    return entry.footer is not None and entry.footer.exact


def _rows(entry: FileEntry) -> int | None:
    return entry.footer.rows if entry.footer and entry.footer.rows >= 0 else None


def _inserts(directory: AcidDirectory) -> Iterator[VisibleBase | VisibleDelta]:
    if directory.base:
        yield directory.base
    yield from directory.inserts


def _undecided(source: VisibleBase | VisibleDelta) -> bool:
    """Whether only a footer can tell if the files have ACID columns.

    Files named `000000_0` may lack them; so may `bucket_N` if LOAD DATA may have put it there, and
    there is no version file or side file of an ACID writer.
    """
    if not source.files or source.side_files:
        return False
    return source.raw or (_may_be_loaded(source) and not source.versioned)


def _may_be_loaded(source: VisibleBase | VisibleDelta) -> bool:
    """Whether LOAD DATA may have made it: a `delta_N_N_S` or an overwrite base (F15)."""
    if source.compacted:
        return False
    name = source.name
    return name.low == name.high if isinstance(name, DeltaName) else name.write_id >= 0


def _span(source: VisibleBase | VisibleDelta) -> tuple[int, int]:
    name = source.name
    return (0, max(name.write_id, 0)) if isinstance(name, BaseName) else (name.low, name.high)


def _number(entry: FileEntry) -> int | None:
    parsed = parse_bucket_file(entry.name)
    return parsed.bucket if parsed else original_bucket(entry.name)


def _acid(
    directory: AcidDirectory,
    source: VisibleBase | VisibleDelta,
    lengths: Mapping[str, int],
    columns: Sequence[Column] = (),
    since: int | None = None,
) -> Iterator[SourceFile]:
    low, high = _span(source)
    # Hive's query-based compaction may have put rows of several buckets into one file.
    one_bucket = isinstance(source.name, DeltaName) and low == high and not source.compacted
    for entry in source.files:
        path = f"{directory.location}/{entry.path}"
        length = lengths.get(entry.path, entry.length)
        if length == 0:
            continue
        if length is not None and length > entry.size:
            raise CorruptFile(
                f"{path} has {entry.size} bytes, but its {FLUSH_LENGTH_SUFFIX} file records"
                f" {length} committed bytes; restore the file"
            )
        yield SourceFile(
            path,
            RowIdentity.STORED,
            entry.size,
            source.directory,
            low,
            high,
            _number(entry) if one_bucket else None,
            source.test_rows,
            source.above,
            length,
            rows=_rows(entry),
            ranges=entry.ranges_of(columns),
            keys=entry.keys,
            format=entry.keyed_format,
            exact=_is_exact(entry),
            as_declared=since is not None and high >= since,
        )


def _plain(directory: AcidDirectory, source: VisibleBase | VisibleDelta) -> Iterator[SourceFile]:
    if source.above >= 0:
        raise CorruptFile(
            f"{directory.location}/{source.directory} holds rows that an earlier base or delta also"
            " holds, and rows of an insert-only table have no keys to tell; remove one of the two"
        )
    yield from _without_keys(directory, source.directory, source.files, *_span(source))


def _without_keys(
    directory: AcidDirectory, where: str, files: Sequence[FileEntry], low: int, high: int
) -> Iterator[SourceFile]:
    """Sources of an insert-only table."""
    for entry in files:
        yield SourceFile(
            f"{directory.location}/{entry.path}",
            RowIdentity.NONE,
            entry.size,
            where,
            low,
            high,
            write_id=high,
            rows=_rows(entry),
            ranges=entry.ranges,
            format=entry.footer.format if entry.footer else None,
            exact=_is_exact(entry),
        )


def _originals(directory: AcidDirectory, footers: Mapping[str, Footer]) -> Iterator[SourceFile]:
    if directory.insert_only:
        return _without_keys(directory, "", directory.originals, 0, 0)
    return _numbered(directory, "", directory.originals, footers, 0, 0)


def _loaded(
    directory: AcidDirectory, source: VisibleBase | VisibleDelta, footers: Mapping[str, Footer]
) -> Iterator[SourceFile]:
    name = source.name
    if not _may_be_loaded(source):
        raise CorruptFile(
            f"{directory.location}/{source.files[0].path} lacks the ACID columns, but LOAD DATA"
            f" can't have put it into {source.directory}; restore the directory"
        )
    if isinstance(name, DeltaName):
        write_id, statement = name.high, name.statement or 0
    else:
        write_id, statement = name.write_id, 0
    yield from _numbered(directory, source.directory, source.files, footers, write_id, statement)


def _numbered(
    directory: AcidDirectory,
    where: str,
    files: Sequence[FileEntry],
    footers: Mapping[str, Footer],
    write_id: int,
    statement: int,
) -> Iterator[SourceFile]:
    """Sources with a run of keys; rowIds count on across the files of a bucket, sorted by path."""
    rows: dict[int, int] = {}
    for entry in files:
        path = f"{directory.location}/{entry.path}"
        number = _number(entry)
        footer = _required(entry, footers)
        if number is None or footer.acid:
            raise CorruptFile(
                f"{path} has ACID columns, but is among files without them; restore"
                f" {directory.location}/{where or 'and its base and deltas'}"
            )
        first = rows.get(number, 0)
        rows[number] = first + footer.rows
        yield SourceFile(
            path,
            RowIdentity.RUN,
            entry.size,
            where,
            write_id,
            write_id,
            number,
            write_id=write_id,
            bucket=Bucket(number, statement).property,
            first_row_id=first,
            rows=footer.rows,
            positional=footer.positional,
            ranges=entry.ranges,
            format=footer.format or ACID_FORMAT.name,
            exact=footer.exact,
        )


def resolve(
    files: Files,
    directory: AcidDirectory,
    columns: Sequence[Column] = (),
    since: int | None = None,
) -> EntitySources:
    """The files that a snapshot reads, as sources; opens only the footers that it needs. `columns`:
    those of the table, of which the sources tell the recorded bounds; files of write ids `since`
    then have them as they are declared.

    Raises CorruptFile, also if a listed file is gone.
    """
    footers: dict[str, Footer] = {}
    while paths := missing_footers(directory, footers):
        opened = in_threads(lambda path: read_footer(files, f"{directory.location}/{path}"), paths)
        footers |= zip(paths, opened, strict=True)
    lengths = {}
    for path, side in side_files(directory):
        with reading(f"{directory.location}/{side.path}"):
            lengths[path] = flush_length(files.read(f"{directory.location}/{side.path}"))
    return entity_sources(directory, footers, lengths, columns, since)


def read_footer(files: Files, path: str) -> Footer:
    """The footer of a file of a table with full CRUD, or of LOAD DATA. Raises CorruptFile."""
    with reading(path):
        return open_file(files, FilePath(path, None), strange=True).summary


def open_source(files: Files, source: SourceFile) -> DataFile:
    """The file of a source, up to its flush length. Raises as `open_file`."""
    return open_file(files, source)
