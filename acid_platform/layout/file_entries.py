"""The files of an entity, which `select` takes as input.

An entity is an unpartitioned table or a partition. Readers use the files that commits recorded
(P26); the Cleaner and fsck list the directory. These are values only: nothing here lists files.

A range of values may be too wide but never too narrow: an uncertain bound is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from types import MappingProxyType

MOST_TEXT = 32
"""The longest recorded text bound in characters; a longer one is cut if the result is a bound."""


class RangeKind(Enum):
    """The type of the bounds of a column."""

    INTEGER = "i"
    DECIMAL = "d"
    """Bounds are exact decimals, which the JSON form stores as texts such as `-1.50`."""
    DATE = "t"
    """Days since 1970."""
    TEXT = "s"
    OTHER = "-"
    """No bounds: only the number of NULLs is known."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Every value that is not NULL lies in `low`..`high`; None: unknown, or there is no value.

    `nulls` is the number of NULLs in the file; `values` tells whether any row is not NULL.
    """

    kind: RangeKind
    low: int | Decimal | str | None
    high: int | Decimal | str | None
    nulls: int
    values: bool = True


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """What the statistics of a file say of its row keys, inclusive bounds.

    A file has them only if all of its rows are insert events with a complete key.
    """

    write_ids: tuple[int, int]
    buckets: tuple[int, int]
    """Bucket properties, not bucket numbers."""
    row_ids: tuple[int, int]

    def without_gaps(self, rows: int | None) -> bool:
        """Whether so many rows have these keys one after another, with one write id and bucket.

        The rowIds of a file are unique (P15).
        """
        (first, last), one = self.row_ids, len({*self.write_ids}) == len({*self.buckets}) == 1
        return one and rows == last - first + 1


def text_range(low: str, high: str, nulls: int) -> ColumnRange:
    """The range of texts, which are ordered by code points.

    A long `low` is cut, which still leaves a bound; a long `high` is left out.
    """
    return ColumnRange(
        RangeKind.TEXT, low[:MOST_TEXT], high if len(high) <= MOST_TEXT else None, nulls
    )


NO_RANGES: Mapping[str, ColumnRange] = {}


@dataclass(frozen=True, slots=True)
class Footer:
    """What a reader must know about a file before it reads it.

    `positional`: all columns are named `_colN`. `rows` is -1 if nobody has counted them.
    """

    rows: int
    acid: bool
    positional: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file; `path` is relative to its directory and "/"-separated, `size` is in bytes.

    A recorded file has its `footer` and the `ranges` of its columns, so a reader need not open it.
    `footer` is None if nobody has read it yet.
    """

    path: str
    size: int
    footer: Footer | None = None
    length: int | None = None
    """The number of bytes that a streaming writer committed; None: the whole file."""
    ranges: Mapping[str, ColumnRange] = field(default_factory=lambda: NO_RANGES, compare=False)
    """The known bounds of each column's values; keys are column names in lower case."""
    keys: KeyRanges | None = field(default=None, compare=False)
    """None for a file without ACID columns, of delete events, or whose statistics don't tell."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def below(self, directory: str) -> FileEntry:
        """The file with its path relative to the parent of `directory`."""
        return replace(self, path=f"{directory}/{self.path}") if directory else self


@dataclass(frozen=True, slots=True)
class EntityListing:
    """The files of an entity, in any order, and its direct sub-directories.

    `directories` includes empty directories: an empty base replaces everything before it (F3).
    `data_formats` maps a direct child to the `dataFormat` in its `_metadata_acid`; `versioned`
    names the direct children with a version file.
    """

    location: str
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...] = ()
    data_formats: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    versioned: frozenset[str] = frozenset()
    adopted: frozenset[str] = frozenset()
    """Direct children that existed when the table was adopted. The directories that a base among
    them replaced may be gone."""

    def joined(self, others: Iterable[EntityListing]) -> EntityListing:
        """The union of this listing and others of the same entity."""
        listings = (self, *others)
        return EntityListing(
            self.location,
            tuple(file for listing in listings for file in listing.files),
            tuple(sorted({name for listing in listings for name in listing.directories})),
            {name: kind for listing in listings for name, kind in listing.data_formats.items()},
            frozenset().union(*(listing.versioned for listing in listings)),
            frozenset().union(*(listing.adopted for listing in listings)),
        )
