"""What a catalog of DuckLake says of columns, of files and of the values in them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from acid_platform.layout.file_entries import ColumnRange, RangeKind
from acid_platform.layout.types import INTEGRAL, Column, HiveType, nested_id

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_LAST_DAY = datetime.date.max.toordinal()

_TYPES = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    **dict.fromkeys(("string", "varchar", "char"), "varchar"),
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp with local time zone": "timestamptz",
    "array": "list",
    "map": "map",
    "struct": "struct",
}

ColumnRow = tuple[int, int, str, str, int | None]
"""The id of a column or of a field inside, its place, name and type, and what it is inside of."""
Mapped = tuple[tuple[int, str, int, int | None, bool], ...]
"""How the columns of a file are found by name: the number of the row, the name, the column, the
number of the row that it is inside of, and whether its value stands in the path."""
Stats = tuple[int, int, int, str | None, str | None]
"""A column, how many of its values are not NULL and how many are, and bounds of the values."""


def column_rows(columns: Sequence[Column]) -> list[ColumnRow]:
    """The columns, and the fields inside of them, as a catalog lists them."""
    rows: list[ColumnRow] = []

    def add(number: int, name: str, kind: HiveType, root: int, path: str, inside: int | None):  # type: ignore[no-untyped-def]
        text = "decimal({},{})".format(*kind.sizes) if kind.kind == "decimal" else _TYPES[kind.kind]
        rows.append((number, len(rows), name, text, inside))
        for part, child in kind.children:
            add(nested_id(root, path + part), part, child, root, f"{path}{part}.", number)

    for column in columns:
        add(column.id, column.name, column.type, column.id, "", None)
    return rows


def mapped(columns: Iterable[Column], in_path: Iterable[Column]) -> Mapped:
    """How columns are found, each by its name in a file or in its path."""
    rows: list[tuple[int, str, int, int | None, bool]] = []

    def add(name: str, number: int, kind: HiveType, root: int, path: str, inside: int | None):  # type: ignore[no-untyped-def]
        own = len(rows)
        rows.append((own, name, number, inside, False))
        for part, child in kind.children:
            add(part, nested_id(root, path + part), child, root, f"{path}{part}.", own)

    for column in columns:
        add(column.name, column.id, column.type, column.id, "", None)
    rows += [(len(rows) + n, each.name, each.id, None, True) for n, each in enumerate(in_path)]
    return tuple(rows)


_BOUNDED = {
    RangeKind.INTEGER: INTEGRAL,
    RangeKind.DECIMAL: ("decimal",),
    RangeKind.DATE: ("date",),
    RangeKind.TEXT: ("string", "varchar"),
}


def bounds(
    columns: Iterable[Column], rows: int, ranges: Mapping[str, ColumnRange]
) -> Iterator[Stats]:
    """What is known of the values of a file, as texts."""
    for column in columns:
        known = ranges.get(column.name)
        if known is not None and column.type.kind in _BOUNDED.get(known.kind, ()):
            low, high = (_text(bound, known.kind) for bound in (known.low, known.high))
            yield column.id, rows - known.nulls, known.nulls, low, high


def _text(bound: int | Decimal | str | None, kind: RangeKind) -> str | None:
    if isinstance(bound, int) and kind is RangeKind.DATE:
        day = bound + _EPOCH
        return datetime.date.fromordinal(day).isoformat() if 0 < day <= _LAST_DAY else None
    return None if bound is None else f"{bound:f}" if isinstance(bound, Decimal) else str(bound)


@dataclass(frozen=True, slots=True)
class LakeKey:
    """A partition column with its value in the path of a file."""

    column: Column
    text: str | None

    def stats(self, rows: int) -> Stats:
        some = self.text is not None
        return self.column.id, rows * some, rows * (not some), self.text, self.text


@dataclass(frozen=True, slots=True)
class LastTold:
    """A table's name, and the first and the last of its commits that readers find."""

    name: str
    first: int
    moment: int
    at: int


@dataclass(slots=True)
class LakeFile:
    """A file of rows in a catalog."""

    number: int
    path: str
    size: int
    rows: int
    begin: int
    first_row: int
    mapping: int | None
    stats: Sequence[Stats] = ()
    end: int | None = None
    fresh: bool = True
    """Whether the catalog does not have it yet."""
