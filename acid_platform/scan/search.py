"""Finds the files in a table's directory that hold rows a predicate accepts, visible or not.

Unlike a reader, which follows its snapshot, the search covers everything on disk: obsolete and
aborted directories, deleted rows, `_tmp_` directories, dropped partitions. Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyarrow import fs

from acid_platform.errors import AcidError, UnsupportedLayout
from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import open_file, reading
from acid_platform.layout import names
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.names import partition_segment
from acid_platform.predicates.arrow_predicates import ArrowPredicate, arrow_predicate, may_match
from acid_platform.scan.open import TableLayout
from acid_platform.scan.scans import ArrowScan, EntityScan, Scan
from acid_platform.scan.source_files import RowIdentity, SourceFile, read_footer
from acid_platform.transactions import ValidWriteIdList

_THREADS = 4
_WITHOUT_ROWS = (names.VERSION_FILE, names.METADATA_FILE, "_SUCCESS")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file with matching rows, or a file that could not be searched."""

    path: str
    """Relative to the table's directory."""
    partition: str
    """The partition whose directory it is in; '' if it is in none."""
    rows: int = 0
    error: str = ""
    """Why the file could not be searched."""
    writer: int | None = None
    """The open transaction that is still writing the file, which therefore was not read."""
    outdated: bool = False
    """Whether it has the columns of before they were changed, on which no condition is tested."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of a search: the number of `files` read, and those with matching rows."""

    files: int
    matches: tuple[FoundFile, ...]


def search_files(
    table: TableLayout, where: str, open_txns: Callable[[Sequence[int]], set[int]]
) -> Searched:
    """Searches every file below the table's directory, except in partitions that can't match.

    The search repeats until a listing has no new files. `open_txns` returns those of the given
    transactions that are open: files in their `_tmp_` directories are reported, not read. Raises
    InvalidExpression, UnknownColumn, UnsupportedStatement.
    """
    search = _Search(
        table, where, arrow_predicate(where, (*table.columns, *table.partition_columns), table.name)
    )
    judged: dict[str, FoundFile] = {}
    while True:
        listed = list(search.files())
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
            results = pool.map(search.judge, *zip(*fresh, strict=True))
            judged |= {file.path: file for file in results}
    present = [judged[path] for path, _ in listed if path in judged]
    unread = [
        FoundFile(path, search.partition(path), writer=owners[path])
        for path, _ in listed
        if path not in judged
    ]
    matching = [file for file in present if file.rows or file.error or file.outdated]
    return Searched(len(present), (*matching, *unread))


@dataclass(frozen=True, slots=True)
class _Search:
    table: TableLayout
    where: str
    predicate: ArrowPredicate

    def files(self) -> Iterator[tuple[str, int]]:
        """Path and size of each file whose partition may match the predicate, sorted by path."""
        start = len(self.table.path) + 1
        below = self.table.files.below(self.table.path)
        for info in sorted(below, key=lambda info: str(info.path)):
            path = info.path[start:]
            if info.type == fs.FileType.File and info.size and not _without_rows(info.base_name):
                values = self._values(path)
                texts = [text for value in values.values() if value for text in value]
                if None in values.values() or may_match(
                    self.where, self.table.partition_columns, [texts]
                ) == [True]:
                    yield path, info.size

    def partition(self, path: str) -> str:
        """The partition in a path; '' if the path does not name every partition column."""
        depth = len(self.table.partition_columns)
        parts = path.split("/")[:-1]
        keys = [pair[0] for part in parts[:depth] if (pair := partition_segment(part))]
        return "/".join(parts[:depth]) if depth and keys == self._keys() else ""

    def judge(self, path: str, size: int) -> FoundFile:
        try:
            if names.highest_write_id(path) < self.table.rewritten and not self._has_ids(path):
                return FoundFile(path, self.partition(path), outdated=True)
            return FoundFile(path, self.partition(path), self._rows(path, size))
        except AcidError as error:
            if not self.table.files.exists(f"{self.table.path}/{path}"):
                return FoundFile(path, "")  # the Cleaner has removed it in the meantime
            return FoundFile(path, self.partition(path), error=str(error))

    def _rows(self, path: str, size: int) -> int:
        full = f"{self.table.path}/{path}"
        footer = read_footer(self.table.files, full)
        if footer.acid and self._deletes_alone(full):
            return 0
        identity = RowIdentity.STORED if footer.acid else RowIdentity.RUN
        source = SourceFile(
            full,
            identity,
            size,
            "",
            0,
            0,
            rows=footer.rows,
            positional=footer.positional,
            format=None,
        )
        by_column = self._values(path)
        values = [by_column[name] for name in self._keys()]
        unknown = self.predicate.columns & {key for key in self._keys() if by_column[key] is None}
        if unknown:
            raise UnsupportedLayout(
                f"{full} is not in a partition directory, so its {', '.join(sorted(unknown))} is"
                " unknown; move it out of the table"
            )
        scan = Scan(
            self.table.files,
            self.table.path,
            self.table.columns,
            self.table.partition_columns,
            (EntityScan.of_file(source, tuple(texts[0] if texts else None for texts in values)),),
            ValidWriteIdList.of(self.table.name, 0),
        )
        return ArrowScan(scan, (), self.predicate).count(threads=1)

    def _has_ids(self, path: str) -> bool:
        """Whether its columns are found by ids, under whatever names it has them."""
        if not self.table.format.has_column_ids:
            return False
        footer = read_footer(self.table.files, f"{self.table.path}/{path}")
        return FileEntry(path, 0, footer).has_ids

    def _deletes_alone(self, path: str) -> bool:
        """Whether the file holds delete events, which have no values.

        Raises UnsupportedLayout if they do.
        """
        with reading(path):
            return open_file(self.table.files, FilePath(path, None)).holds_deletes()

    def _keys(self) -> list[str]:
        return [column.name for column in self.table.partition_columns]

    def _values(self, path: str) -> dict[str, tuple[str | None] | None]:
        """The partition values in a path, each in a tuple; None if the path lacks the column."""
        by_column = dict(pair for part in path.split("/")[:-1] if (pair := partition_segment(part)))
        return {name: (by_column[name],) if name in by_column else None for name in self._keys()}


def _owner(path: str) -> int | None:
    """The transaction whose `_tmp_` directory contains the path; None if there is none."""
    owners: Iterable[int | None] = map(names.temporary_owner, path.split("/")[:-1])
    return next((owner for owner in owners if owner is not None), None)


def _without_rows(name: str) -> bool:
    """Whether it is a marker, a side file, or a checksum file that Hadoop writes next to a file."""
    return (
        name in _WITHOUT_ROWS
        or name.endswith(names.FLUSH_LENGTH_SUFFIX)
        or (name.startswith(".") and name.endswith(".crc"))
    )
