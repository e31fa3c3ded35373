"""The record of the files that a commit published in a directory.

The text form is part of a commit, of the journal and of the metastore's tables, and readers get it
unchanged. The metastore parses it only once, to check it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from acid_platform.errors import CorruptFile
from acid_platform.layout.file_entries import ColumnRange, FileEntry, Footer, KeyRanges, RangeKind

_ACID, _POSITIONAL = 1, 2
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """The data files of one base, delta or delete_delta, or the original files of an entity.

    Paths are relative to the directory, those of original files to the entity. The text form is a
    JSON list of `[path, size, rows, flags, length, ranges, keys]`, where `keys` are the lowest and
    highest write id, bucket property and rowId. Flag 1 is set for a file with ACID columns, flag 2
    for a file without column names; trailing defaults (1, null, {}, null) are left out.
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
        except (ValueError, TypeError, ArithmeticError) as error:
            raise CorruptFile(
                f"can't parse a record of files: {error!r} in {text[:200]!r};"
                " restore the metastore from a backup"
            ) from error


NOTHING = RecordedFiles()


def _packed(entry: FileEntry) -> list[Any]:
    footer = entry.footer
    if footer is None:
        raise ValueError(f"{entry.path} can't be recorded without its footer")
    flags = _ACID * footer.acid + _POSITIONAL * footer.positional
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
    footer = Footer(rows, bool(flags & _ACID), bool(flags & _POSITIONAL))
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
