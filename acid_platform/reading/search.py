"""Which files of a table's directory hold rows that a predicate accepts, whoever could see them.

A reader looks at what its snapshot sees; this looks at everything that lies there: obsolete and
aborted directories, deleted rows, `_tmp_` directories, dropped partitions. Without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from acid_platform.errors import AcidError, UnsupportedLayout
from acid_platform.layout import names, schema
from acid_platform.layout.partitions import partition_segment
from acid_platform.reading.arrow_predicates import ArrowPredicate, arrow_predicate
from acid_platform.reading.predicates import may_match
from acid_platform.reading.selection import TableLayout
from acid_platform.snapshot.sources import EntitySources, Source, SourceKind
from acid_platform.storage.arrow_scan import ArrowScan, EntityRead
from acid_platform.storage.arrow_types import arrow_type, partition_value
from acid_platform.storage.deletes import NO_DELETES
from acid_platform.storage.orc import acid_columns, open_orc, reading
from acid_platform.storage.sources import read_footer
from acid_platform.transactions import ValidWriteIdList

_THREADS = 4
_WITHOUT_ROWS = (names.VERSION_FILE, names.METADATA_FILE, "_SUCCESS")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file with rows that match, or one that can't be judged."""

    path: str
    """Below the table's directory."""
    partition: str
    """Of the directory that it lies in; '' at the table's root."""
    rows: int = 0
    error: str = ""
    """Why nobody can say what it holds."""
    writer: int | None = None
    """The open transaction that is still writing it: not read."""


@dataclass(frozen=True, slots=True)
class Searched:
    """`found`: without the files that hold no matching row. `files`: how many were read."""

    files: int
    found: tuple[FoundFile, ...]


def search_files(
    table: TableLayout, where: str, open_txns: Callable[[Sequence[int]], set[int]]
) -> Searched:
    """Reads every file below the table's directory that its partition does not rule out.

    Every file of the last listing was read, also those that came meanwhile. `open_txns` says which
    of some transactions are open: their `_tmp_` directories are told, not read. Raises
    InvalidExpression, UnknownColumn, UnsupportedStatement.
    """
    look = _Look(
        table, where, arrow_predicate(where, (*table.columns, *table.partition_columns), table.name)
    )
    judged: dict[str, FoundFile] = {}
    while True:
        listed = list(look.files())
        owners = {path: owner for path, _ in listed if (owner := _owner(path)) is not None}
        writing = open_txns(sorted(set(owners.values()))) if owners else set()
        fresh = [
            (path, size)
            for path, size in listed
            if path not in judged and owners.get(path) not in writing
        ]
        if not fresh:
            break
        with ThreadPoolExecutor(_THREADS) as pool:
            judged |= {one.path: one for one in pool.map(look.judge, *zip(*fresh, strict=True))}
    present = [judged[path] for path, _ in listed if path in judged]
    unread = [
        FoundFile(path, look.partition(path), writer=owners[path])
        for path, _ in listed
        if path not in judged
    ]
    found = [one for one in present if one.rows or one.error]
    return Searched(len(present), (*found, *unread))


@dataclass(frozen=True, slots=True)
class _Look:
    table: TableLayout
    where: str
    predicate: ArrowPredicate

    def files(self) -> Iterator[tuple[str, int]]:
        """Path and size of each file that can hold rows of the predicate, in order."""
        selector = fs.FileSelector(self.table.path, allow_not_found=True, recursive=True)
        start = len(self.table.path) + 1
        for info in sorted(
            self.table.files.system.get_file_info(selector), key=lambda one: str(one.path)
        ):
            path = info.path[start:]
            if info.type == fs.FileType.File and info.size and not _without_rows(info.base_name):
                values = self._values(path)
                if None in values.values() or may_match(
                    self.where,
                    self.table.partition_columns,
                    [text for one in values.values() if one for text in one],
                ):
                    yield path, info.size

    def partition(self, path: str) -> str:
        """The partition directory that a path lies in; '' if it does not name every column."""
        depth = len(self.table.partition_columns)
        parts = path.split("/")[:-1]
        keys = [pair[0] for one in parts[:depth] if (pair := partition_segment(one))]
        return "/".join(parts[:depth]) if depth and keys == self._keys() else ""

    def judge(self, path: str, size: int) -> FoundFile:
        try:
            return FoundFile(path, self.partition(path), self._rows(path, size))
        except AcidError as error:
            if not self.table.files.exists(f"{self.table.path}/{path}"):
                return FoundFile(path, "")  # cleaned away meanwhile
            return FoundFile(path, self.partition(path), error=str(error))

    def _rows(self, path: str, size: int) -> int:
        full = f"{self.table.path}/{path}"
        footer = read_footer(self.table.files, full)
        if footer.acid and self._deletes_alone(full):
            return 0
        kind = SourceKind.ACID if footer.acid else SourceKind.RAW
        source = Source(full, kind, size, "", 0, 0, rows=footer.rows, positional=footer.positional)
        values = {
            column.name: pa.scalar(partition_value(text[0], column.type), arrow_type(column.type))
            for column in self.table.partition_columns
            if (text := self._values(path)[column.name])
        }
        unknown = self.predicate.columns & set(self._keys()) - set(values)
        if unknown:
            raise UnsupportedLayout(
                f"{full} lies in no partition, so that its"
                f" {', '.join(sorted(unknown))} is unknown; move it out of the"
                " table"
            )
        everything = EntityRead(EntitySources("", (source,), ()), NO_DELETES, values)
        return ArrowScan(
            self.table.files,
            self.table.columns,
            self.table.partition_columns,
            (everything,),
            ValidWriteIdList.of(self.table.name, 0),
            (),
            self.predicate,
        ).count(threads=1)

    def _deletes_alone(self, path: str) -> bool:
        """Delete events name rows and hold no values. Raises UnsupportedLayout when some do."""
        with reading(path):
            file = open_orc(self.table.files, path)
            operation, *_, row = acid_columns(file, path)
            kinds = pc.unique(file.read(columns=[operation]).column(0)).to_pylist()
            if kinds != [schema.DELETE_EVENT]:
                return False
            if any(
                file.read_stripe(index, columns=[row]).column(0).is_valid().true_count
                for index in range(file.nstripes)
            ):
                raise UnsupportedLayout(
                    f"{path} holds delete events with values, which no writer"
                    " of ACID version 2 makes; restore the file"
                )
        return True

    def _keys(self) -> list[str]:
        return [column.name for column in self.table.partition_columns]

    def _values(self, path: str) -> dict[str, tuple[str | None] | None]:
        """The partition values in a path, each in a tuple; None where it tells none."""
        found = dict(pair for one in path.split("/")[:-1] if (pair := partition_segment(one)))
        return {name: (found[name],) if name in found else None for name in self._keys()}


def _owner(path: str) -> int | None:
    """The transaction whose `_tmp_` directory a path lies in."""
    owners: Iterable[int | None] = map(names.temporary_owner, path.split("/")[:-1])
    return next((one for one in owners if one is not None), None)


def _without_rows(name: str) -> bool:
    """Markers, side files, and the checksums that Hadoop puts beside local files."""
    return (
        name in _WITHOUT_ROWS
        or name.endswith(names.FLUSH_LENGTH_SUFFIX)
        or (name.startswith(".") and name.endswith(".crc"))
    )
