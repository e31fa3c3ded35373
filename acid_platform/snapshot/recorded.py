"""The files that a commit published in one directory, as they are recorded (P26). Pure.

The text form travels with a commit, lies in the journal and in the metastore's tables, and is given
to readers as it is: the metastore itself never looks into it but to check it once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from acid_platform.errors import CorruptFile
from acid_platform.snapshot.listing import FileEntry, Footer
from acid_platform.snapshot.ranges import ColumnRange, RangeKind

_ACID, _POSITIONAL = 1, 2
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Contents:
    """The data files of one base, delta or delete_delta, or the original files of an entity.

    Paths are relative to the directory; of original files, to the entity. Text form: a JSON list of
    `[path, size, rows, flags, length, ranges]`, where flags add 1 for a file with ACID columns and
    2 for columns without names; trailing defaults (1, null, {}) are left out.
    """

    files: tuple[FileEntry, ...] = ()

    @property
    def rows(self) -> int:
        return sum(max(one.footer.rows, 0) for one in self.files if one.footer)

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.files)

    def __str__(self) -> str:
        return _ENCODE([_packed(one) for one in self.files])

    @classmethod
    def parse(cls, text: str) -> Contents:
        """Raises CorruptFile when the text is no such form."""
        try:
            return cls(tuple(_unpacked(*one) for one in json.loads(text)))
        except (ValueError, TypeError, ArithmeticError) as error:
            raise CorruptFile(
                f"a record of files can't be read: {error!r} in {text[:200]!r};"
                " restore the metastore from a backup"
            ) from error


NOTHING = Contents()


def _packed(entry: FileEntry) -> list[Any]:
    footer = entry.footer
    if footer is None:
        raise ValueError(f"{entry.path} was not looked into")
    flags = _ACID * footer.acid + _POSITIONAL * footer.positional
    ranges = {
        name: [one.kind.value, _plain(one.low), _plain(one.high), one.nulls, int(one.values)]
        for name, one in entry.ranges.items()
    }
    whole: list[Any] = [entry.path, entry.size, footer.rows, flags, entry.length, ranges]
    defaults: tuple[Any, ...] = ({}, None, _ACID)
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
) -> FileEntry:
    footer = Footer(rows, bool(flags & _ACID), bool(flags & _POSITIONAL))
    return FileEntry(
        path, size, footer, length, {name: _range(*one) for name, one in (ranges or {}).items()}
    )


def _range(kind: str, low: Any, high: Any, nulls: int, values: int) -> ColumnRange:
    known = RangeKind(kind)
    if known is RangeKind.DECIMAL:
        low, high = (None if one is None else Decimal(one) for one in (low, high))
    return ColumnRange(known, low, high, nulls, bool(values))
