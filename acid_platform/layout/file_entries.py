"""The files of an entity, which `select` takes as input.

An entity is an unpartitioned table or a partition. Readers use the files that commits recorded
(P26); the Cleaner and fsck list the directory. These are values only: nothing here lists files.

A range of values may be too wide but never too narrow: an uncertain bound is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any

from acid_platform.base.paths import leads_out
from acid_platform.errors import CorruptFile
from acid_platform.layout.types import Column

MOST_COLUMNS = 64
"""Only this many first columns of a table have ranges, to keep the records small."""
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
        (first, last), alike = self.row_ids, len({*self.write_ids}) == len({*self.buckets}) == 1
        return alike and rows == last - first + 1


def text_range(low: str, high: str, nulls: int) -> ColumnRange:
    """The range of texts, which are ordered by code points.

    A long `low` is cut, which still leaves a bound; a long `high` is left out.
    """
    return ColumnRange(
        RangeKind.TEXT, low[:MOST_TEXT], high if len(high) <= MOST_TEXT else None, nulls
    )


NO_RANGES: Mapping[str, ColumnRange] = {}


def of_id(number: int) -> str:
    """The key in a record of the column with this id."""
    return f"#{number}"


@dataclass(frozen=True, slots=True)
class Footer:
    """What a reader must know about a file before it reads it.

    `acid`: it stores keys. `positional`: all columns are named `_colN`. `rows` is
    -1 if nobody has counted them.
    """

    rows: int
    acid: bool
    positional: bool = False
    format: str | None = None
    """None: ORC if it stores keys; else its first bytes tell, or it is text or Avro."""
    exact: bool = False
    """Whether it is known that its decimals have the digits of their types, and its times no
    nanoseconds, as those that this platform writes; others may write what no type here holds."""


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
    """The known bounds of each column's values; keys are column names in lower case, or, of a file
    whose columns have ids, `of_id`. Readers ask `ranges_of`."""
    keys: KeyRanges | None = field(default=None, compare=False)
    """None for a file without ACID columns, of delete events, or whose statistics don't tell."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def keyed_format(self) -> str:
        """The format of a file of a table whose rows have keys: ORC, unless its record says
        otherwise."""
        return (self.footer and self.footer.format) or "orc"

    @property
    def has_ids(self) -> bool:
        """Whether its columns have ids: if one has another name now, it is found all the same."""
        return bool(self.footer and self.footer.acid and self.footer.format == "parquet")

    def ranges_of(self, columns: Sequence[Column]) -> Mapping[str, ColumnRange]:
        """The known bounds of the values of these columns of its table, by their names."""
        if not self.has_ids:
            return self.ranges
        keys = {column.name: of_id(column.id) for column in columns}
        return {name: self.ranges[key] for name, key in keys.items() if key in self.ranges}

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


# --- records of a commit --------------------------------------------------------------------------

_ACID, _POSITIONAL, _EXACT = 1, 2, 16
_FORMATS = {"orc": 4, "parquet": 8}
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """The data files of one base, delta or delete_delta, or the original files of an entity.

    Paths are relative to the directory, those of original files to the entity. The text form is a
    JSON list of `[path, size, rows, flags, length, ranges, keys]`, where `keys` are the lowest and
    highest write id, bucket property and rowId. Flag 1 is set for a file with ACID columns, flag 2
    for a file without column names, flag 4 for ORC without keys, flag 8 for Parquet and flag 16 for
    an exact one, see Footer; trailing defaults (1, null, {}, null) are left out.
    """

    files: tuple[FileEntry, ...] = ()

    @property
    def rows(self) -> int:
        return sum(max(file.footer.rows, 0) for file in self.files if file.footer)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def __str__(self) -> str:
        return _ENCODE([_packed(file) for file in self.files])

    @classmethod
    def parse(cls, text: str) -> RecordedFiles:
        """Parses the text form. Raises CorruptFile."""
        try:
            return cls(tuple(_unpacked(*packed) for packed in json.loads(text)))
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise CorruptFile(
                f"can't parse a record of files: {error!r} in {text[:200]!r};"
                " restore the metastore from a backup"
            ) from error


NOTHING = RecordedFiles()


def _packed(entry: FileEntry) -> list[Any]:
    footer = entry.footer
    if footer is None:
        raise ValueError(f"{entry.path} can't be recorded without its footer")
    flags = _ACID * footer.acid + _POSITIONAL * footer.positional + _EXACT * footer.exact
    flags += _FORMATS.get(footer.format or "", 0)
    ranges = {
        name: [
            bounds.kind.value,
            _plain(bounds.low),
            _plain(bounds.high),
            bounds.nulls,
            int(bounds.values),
        ]
        for name, bounds in entry.ranges.items()
    }
    keys = entry.keys and [*entry.keys.write_ids, *entry.keys.buckets, *entry.keys.row_ids]
    whole: list[Any] = [entry.path, entry.size, footer.rows, flags, entry.length, ranges, keys]
    defaults: tuple[Any, ...] = (None, {}, None, _ACID)
    for default in defaults:
        if whole[-1] != default:
            break
        whole.pop()
    return whole


def _plain(bound: int | Decimal | str | None) -> int | str | None:
    return str(bound) if isinstance(bound, Decimal) else bound


def _unpacked(
    path: str,
    size: int,
    rows: int,
    flags: int = _ACID,
    length: int | None = None,
    ranges: Mapping[str, Any] | None = None,
    keys: list[int] | None = None,
) -> FileEntry:
    if leads_out(path):
        raise ValueError(f"{path!r} is no file below its directory")
    stored = next((name for name, flag in _FORMATS.items() if flags & flag), None)
    acid, positional, exact = (bool(flags & flag) for flag in (_ACID, _POSITIONAL, _EXACT))
    footer = Footer(rows, acid, positional, stored, exact)
    return FileEntry(
        path,
        size,
        footer,
        length,
        {name: _range(*packed) for name, packed in (ranges or {}).items()},
        None if keys is None else _keys(*keys),
    )


def _keys(low: int, high: int, bucket: int, last: int, first_row: int, last_row: int) -> KeyRanges:
    return KeyRanges((low, high), (bucket, last), (first_row, last_row))


def _range(kind: str, low: Any, high: Any, nulls: int, values: int) -> ColumnRange:
    range_kind = RangeKind(kind)
    if range_kind is RangeKind.DECIMAL:
        low, high = (None if bound is None else Decimal(bound) for bound in (low, high))
    return ColumnRange(range_kind, low, high, nulls, bool(values))


_POSITION_NAME = re.compile(r"_col\d+")


def is_positional(names: Sequence[str]) -> bool:
    """Whether all columns are named `_col0`, `_col1`, …, as old writers named them."""
    return bool(names) and all(map(_POSITION_NAME.fullmatch, names))
