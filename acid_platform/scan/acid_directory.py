"""An entity as a snapshot sees it: what is read of it, and what is not, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import AcidName, BaseName, DeltaName, parse_directory

_Name = TypeVar("_Name", BaseName, DeltaName)


@dataclass(frozen=True, slots=True)
class _Visible(Generic[_Name]):
    name: _Name
    directory: str
    """The directory's name as found on disk."""
    files: tuple[FileEntry, ...]
    test_rows: bool = False
    """Whether each row or event must be tested by its own currentTransaction (S15), because a write
    id in the directory's range is invalid."""
    above: int = -1
    """Drop inserted rows with currentTransaction <= above, which an earlier directory also holds;
    always -1 for a base."""
    raw: bool = False
    """Whether files are not named `bucket_N`: LOAD DATA, or an insert-only table."""
    compacted: bool = False
    """Whether a compactor wrote it, so that it has no rows or events of aborted write ids."""
    versioned: bool = False
    """Whether it has a version file, so that an ACID writer wrote it, not LOAD DATA."""
    side_files: tuple[FileEntry, ...] = ()
    """`_flush_length` files of a streaming writer, at most one per data file."""


@dataclass(frozen=True, slots=True)
class VisibleBase(_Visible[BaseName]):
    """The base that a snapshot reads."""


@dataclass(frozen=True, slots=True)
class VisibleDelta(_Visible[DeltaName]):
    """A delta or delete_delta that a snapshot reads."""


@dataclass(frozen=True, slots=True)
class Removable:
    """A directory or original file that this snapshot no longer needs, and why."""

    path: str
    reason: str
    rule: str


@dataclass(frozen=True, slots=True)
class Invisible:
    """A directory that is neither read nor removable: another snapshot may need it."""

    path: str
    name: AcidName
    reason: str


@dataclass(frozen=True, slots=True)
class AcidDirectory:
    """An entity as a snapshot sees it; every ACID directory is in exactly one of the lists.

    `deltas` are in the order of the algorithm, delete_deltas before deltas of the same range.
    `originals` are in the order that determines their row ids, and empty if there is a base.
    """

    location: str
    base: VisibleBase | None
    deltas: tuple[VisibleDelta, ...]
    originals: tuple[FileEntry, ...]
    obsolete: tuple[Removable, ...]
    aborted: tuple[Removable, ...]
    invisible: tuple[Invisible, ...] = ()
    zero_length: tuple[str, ...] = ()
    """Empty bucket files in the directories that are read: treated as absent, worth a warning."""
    insert_only: bool = False
    """Whether the table is insert-only, so that its files are plain files in the table's format."""

    @property
    def sources(self) -> tuple[VisibleBase | VisibleDelta, ...]:
        """The ACID directories that are read: the base, then the deltas."""
        return self.deltas if self.base is None else (self.base, *self.deltas)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All data files that are read."""
        return (*self.originals, *(file for source in self.sources for file in source.files))

    @property
    def paths(self) -> tuple[str, ...]:
        """The directories and original files that are read, relative to the entity."""
        directories = (source.directory for source in self.sources)
        return (*directories, *(file.path for file in self.originals))

    @property
    def names(self) -> frozenset[str]:
        """The names of all listed ACID directories and obsolete files, whether read or not."""
        return frozenset(
            {
                *(source.directory for source in self.sources),
                *(removable.path for removable in self.obsolete),
                *(removable.path for removable in self.aborted),
                *(hidden.path for hidden in self.invisible),
            }
        )

    @property
    def inserts(self) -> tuple[VisibleDelta, ...]:
        return tuple(delta for delta in self.deltas if not delta.name.deletes)

    @property
    def delete_deltas(self) -> tuple[VisibleDelta, ...]:
        return tuple(delta for delta in self.deltas if delta.name.deletes)


class DirectoryKind(Enum):
    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"
    ORIGINAL = "original"


class Sight(Enum):
    """How a snapshot treats a directory."""

    READ = "read"
    OBSOLETE = "obsolete"
    ABORTED = "aborted"
    INVISIBLE = "not visible"


@dataclass(frozen=True, slots=True)
class DirectoryLine:
    """A directory or an original file; a base covers all write ids from 1, so its `low` is 1."""

    partition: str
    directory: str
    kind: DirectoryKind
    low: int
    high: int
    bytes: int
    files: int
    sight: Sight
    reason: str


def timeline(
    listing: EntityListing, directory: AcidDirectory, partition: str = ""
) -> tuple[DirectoryLine, ...]:
    """The directories by their highest write id, a base after deltas; hidden files do not count."""
    sizes: dict[str, list[int]] = {}
    for entry in listing.files:
        sizes.setdefault(entry.path.partition("/")[0], []).append(entry.size)
        sizes.setdefault(entry.path, []).append(entry.size)
    lines = []
    for path, sight, reason in _with_sight(directory):
        kind, low, high = _span(parse_directory(path))
        file_sizes = sizes.get(path, [])
        if kind is DirectoryKind.ORIGINAL:
            file_sizes = file_sizes[:1]
        lines.append(
            DirectoryLine(
                partition, path, kind, low, high, sum(file_sizes), len(file_sizes), sight, reason
            )
        )
    return tuple(
        sorted(
            lines,
            key=lambda line: (line.high, line.kind is DirectoryKind.BASE, line.low, line.directory),
        )
    )


def _with_sight(directory: AcidDirectory) -> Iterator[tuple[str, Sight, str]]:
    for source in directory.sources:
        yield source.directory, Sight.READ, ""
    for entry in directory.originals:
        yield entry.path, Sight.READ, "original file"
    for removable in directory.obsolete:
        yield removable.path, Sight.OBSOLETE, removable.reason
    for removable in directory.aborted:
        yield removable.path, Sight.ABORTED, removable.reason
    for hidden in directory.invisible:
        yield hidden.path, Sight.INVISIBLE, hidden.reason


def _span(name: AcidName | None) -> tuple[DirectoryKind, int, int]:
    if name is None:
        return DirectoryKind.ORIGINAL, 0, 0
    if isinstance(name, BaseName):
        return DirectoryKind.BASE, 1, max(name.write_id, 0)
    return (
        (DirectoryKind.DELETE_DELTA if name.deletes else DirectoryKind.DELTA),
        name.low,
        name.high,
    )
