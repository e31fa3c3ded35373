"""All directories of an entity with their sizes, and whether the snapshot reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import AcidName, BaseName, parse_directory
from acid_platform.scan.acid_directory import AcidDirectory


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
