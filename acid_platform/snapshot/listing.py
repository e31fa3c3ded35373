"""The files of one entity directory: the input of every selection.

An entity is an unpartitioned table or one partition. A reader gets the files that commits recorded
(P26); the Cleaner and fsck list the directory. Plain values: nothing here lists files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from acid_platform.snapshot.ranges import ColumnRange

NO_RANGES: Mapping[str, ColumnRange] = {}


@dataclass(frozen=True, slots=True)
class Footer:
    """What a reader must know of a file before it reads it. `positional`: all columns are named
    `_colN`. `rows` -1: nobody has counted them."""

    rows: int
    acid: bool
    positional: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file; `path` is relative to its directory and "/"-separated, `size` in bytes.

    A recorded file has its `footer` and the `ranges` of its columns, so that a reader need not
    look into it. `footer` None: nobody has looked yet.
    """

    path: str
    size: int
    footer: Footer | None = None
    length: int | None = None
    """Only so many bytes were committed by a streaming writer (F9); None: all."""
    ranges: Mapping[str, ColumnRange] = field(default_factory=lambda: NO_RANGES, compare=False)
    """What is known of the values of each column, by its name in lower case."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def below(self, directory: str) -> FileEntry:
        """The same file with a path relative to the parent of its directory."""
        return replace(self, path=f"{directory}/{self.path}") if directory else self


@dataclass(frozen=True, slots=True)
class EntityListing:
    """The files of one entity, in any order, and its direct sub-directories.

    `directories` names empty directories too: an empty base means that everything before it is
    gone (F3). `data_formats` maps a direct child to the `dataFormat` of its
    `_metadata_acid`; `versioned` names those with a version file.
    """

    location: str
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...] = ()
    data_formats: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    versioned: frozenset[str] = frozenset()
    adopted: frozenset[str] = frozenset()
    """Direct children that were there when the table was adopted: what a base among them replaced
    may be gone, and nobody knows."""

    def joined(self, others: Iterable[EntityListing]) -> EntityListing:
        """With what other listings of the same entity have."""
        every = (self, *others)
        return EntityListing(
            self.location,
            tuple(file for one in every for file in one.files),
            tuple(sorted({name for one in every for name in one.directories})),
            {name: kind for one in every for name, kind in one.data_formats.items()},
            frozenset().union(*(one.versioned for one in every)),
            frozenset().union(*(one.adopted for one in every)),
        )
