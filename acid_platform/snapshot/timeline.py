"""Every directory of an entity with its size, and whether the snapshot reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from acid_platform.layout.names import AcidName, BaseName, parse_directory
from acid_platform.snapshot.directory import AcidDirectory
from acid_platform.snapshot.listing import EntityListing


class Kind(Enum):
    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"
    ORIGINAL = "original"


class Sight(Enum):
    """What the snapshot makes of a directory."""

    READ = "read"
    OBSOLETE = "obsolete"
    ABORTED = "aborted"
    INVISIBLE = "not visible"


@dataclass(frozen=True, slots=True)
class DirectoryLine:
    """One directory, or one original file. A base covers all write ids from 1 (`low` is 1)."""

    partition: str
    directory: str
    kind: Kind
    low: int
    high: int
    bytes: int
    files: int
    sight: Sight
    reason: str


def timeline(
    listing: EntityListing, seen: AcidDirectory, partition: str = ""
) -> tuple[DirectoryLine, ...]:
    """In the order of write ids, a base last among equals. Hidden files are not counted."""
    sizes: dict[str, list[int]] = {}
    for entry in listing.files:
        sizes.setdefault(entry.path.partition("/")[0], []).append(entry.size)
        sizes.setdefault(entry.path, []).append(entry.size)
    lines = []
    for path, sight, reason in _judged(seen):
        kind, low, high = _span(parse_directory(path))
        found = sizes.get(path, [])
        if kind is Kind.ORIGINAL:
            found = found[:1]
        lines.append(
            DirectoryLine(partition, path, kind, low, high, sum(found), len(found), sight, reason)
        )
    return tuple(
        sorted(lines, key=lambda one: (one.high, one.kind is Kind.BASE, one.low, one.directory))
    )


def _judged(seen: AcidDirectory) -> Iterator[tuple[str, Sight, str]]:
    for source in seen.sources:
        yield source.directory, Sight.READ, ""
    for entry in seen.originals:
        yield entry.path, Sight.READ, "original file"
    for one in seen.obsolete:
        yield one.path, Sight.OBSOLETE, one.reason
    for one in seen.aborted:
        yield one.path, Sight.ABORTED, one.reason
    for hidden in seen.invisible:
        yield hidden.path, Sight.INVISIBLE, hidden.reason


def _span(name: AcidName | None) -> tuple[Kind, int, int]:
    if name is None:
        return Kind.ORIGINAL, 0, 0
    if isinstance(name, BaseName):
        return Kind.BASE, 1, max(name.write_id, 0)
    return (Kind.DELETE_DELTA if name.deletes else Kind.DELTA), name.low, name.high
