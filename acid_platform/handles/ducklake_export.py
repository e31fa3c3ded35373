"""Tells tables of Parquet files to a plain DuckDB by a catalog of DuckLake, without copying a row.

A run tells all tables of the catalog up to one moment of the metastore, so that a snapshot shows
each table as it was then, and never another one later.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np

from acid_platform.base.local_files import scratch_directory
from acid_platform.base.paths import user_path
from acid_platform.errors import NeedsSpark, SnapshotExpired, UnsupportedLayout
from acid_platform.formats.file_access import columns_with_ids
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.handles.told_files import ToldPast, ToldState, differs, touched_files
from acid_platform.iceberg.columns import PARTITION_COLUMNS
from acid_platform.iceberg.data_files import counted, path_of
from acid_platform.iceberg.ducklake_catalog import Lake
from acid_platform.iceberg.ducklake_rows import (
    LakeFile,
    LakeKey,
    LastTold,
    bounds,
    column_rows,
    mapped,
)
from acid_platform.iceberg.position_deletes import hidden_rows, without
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import table_name
from acid_platform.layout.types import Column
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.pasts import TableCommit
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.services import leading
from acid_platform.storage.durability import replace_file
from acid_platform.storage.files import Files
from acid_platform.values.partition_texts import fixed_value

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

_PLACE = "_ducklake/catalog.ducklake"
_BRANCH_PLACE = "_ducklake/_branch_{}.ducklake"
"""By the transaction of the branch."""
_IN_PATHS = frozenset(
    ("tinyint", "smallint", "int", "bigint", "string", "varchar", "date", "decimal", "boolean")
)
"""Types of partition columns whose values DuckDB reads from paths as they are here."""


@dataclass(frozen=True, slots=True)
class DuckLakeExport:
    """What a plain DuckDB finds."""

    catalog: str
    """The file to attach, a path or URI."""
    snapshot: int
    """The newest snapshot: a moment of the metastore."""
    snapshots: int
    """How many can be read."""
    told: int
    """How many commits this call has added."""
    tables: tuple[str, ...]
    left_out: dict[str, str]
    """Tables that readers would not read as they are here, each with the reason."""

    def __str__(self) -> str:
        lines = [
            f"{len(self.tables)} tables for DuckDB in {self.catalog}: snapshot {self.snapshot} and"
            f" {self.snapshots - 1} older, {self.told} commits new"
        ]
        lines += [f"left out: {why}" for why in self.left_out.values()]
        return "\n".join(lines)


def export_ducklake(
    warehouse: Warehouse, tables: Iterable[str] = (), into: str | None = None
) -> DuckLakeExport:
    """Warehouse.export_ducklake."""
    named = {table_name(name) for name in ([tables] if isinstance(tables, str) else tables)}
    metastore = warehouse.metastore
    # Asked before the snapshot is taken: what comes in between is told again, and none is missed.
    on = metastore.branch
    branch = warehouse.branches.require(on, judged=False) if on else None
    default = _BRANCH_PLACE.format(branch.txn) if branch else _PLACE
    files, path = warehouse.files, f"{warehouse.path}/{default}"
    if into is not None:
        files, path = Files.of(user_path(into))
    identity = metastore.call(ops.GetIdentity()).id
    data = warehouse.path if warehouse.files.local else warehouse.files.uri(warehouse.path)
    with (
        leading(metastore, f"export to DuckLake in {path}") as renew,
        scratch_directory("ducklake") as scratch,
    ):
        before = _fetched(files, path, Path(scratch))
        new = Path(scratch) / "new.ducklake"
        with Lake.begin(new, before, identity, data) as lake:
            told = lake.told()
            records = {each.table_id: each for each in metastore.tables()}
            for name in named - {each.name for each in records.values()}:
                metastore.table(name)  # raises NoSuchTable
            wanted = [
                record
                for record in sorted(records.values(), key=lambda each: each.name)
                if (record.name in named or record.table_id in told if named else _fits(record))
            ]
            with warehouse.leases.brief() if branch else nullcontext() as view:
                telling = _Catalog(warehouse, lake, told, renew, branch, view)
                telling.tell(wanted, named)
            snapshots = telling.snapshots
            lake.finish(snapshots)
        if telling.changed or before is None:
            files.make_directory(path.rpartition("/")[0])
            replace_file(files, path, new.read_bytes())
        if branch:
            _remove_ended(warehouse)
    return DuckLakeExport(
        path if files.local else files.uri(path),
        max(snapshots, default=0),
        len(snapshots),
        telling.added,
        tuple(telling.names),
        telling.left_out,
    )


def _remove_ended(warehouse: Warehouse) -> None:
    """Removes the catalogs of branches that have ended: they have values of their rows."""
    alive = {_BRANCH_PLACE.format(row.txn) for row in warehouse.branches.list(judged=False)}
    directory, _, spelled = _BRANCH_PLACE.rpartition("/")
    for info in warehouse.files.children(f"{warehouse.path}/{directory}"):
        own = info.base_name.startswith(spelled.partition("{")[0])
        if own and f"{directory}/{info.base_name}" not in alive:
            warehouse.files.delete_file(info.path)


def _fits(record: TableRecord) -> bool:
    return FileFormat.of(record.properties).name == "parquet"


def _fetched(files: Files, path: str, scratch: Path) -> Path | None:
    """The catalog of before, on this machine."""
    if files.local:
        return Path(path) if files.exists(path) else None
    copy = scratch / "before.ducklake"
    with suppress(FileNotFoundError), files.system.open_input_stream(path) as stream:
        with copy.open("wb") as target:
            shutil.copyfileobj(stream, target)
        return copy
    return None


class _Catalog:
    """Brings the tables of a catalog up to one moment."""

    def __init__(
        self,
        warehouse: Warehouse,
        lake: Lake,
        told: dict[int, LastTold],
        renew: Callable[[], object],
        branch: BranchRow | None,
        view: SnapshotView | None,
    ) -> None:
        """`branch`, and the `view` of it: all tables are told as this shows them."""
        self._branch, self._view = branch, view
        self._warehouse, self._lake, self._told, self._renew = warehouse, lake, told, renew
        self.snapshots: dict[int, int] = {}
        """The time of each moment that can be read."""
        self.names: list[str] = []
        self.left_out: dict[str, str] = {}
        self.added = 0
        self.changed = False

    def tell(self, records: Sequence[TableRecord], named: Collection[str]) -> None:
        """Raises UnsupportedLayout for a table of `named`; others are left out then."""
        moments = [self._commits(each)[-1].moment for each in records]
        # Whoever is asked from now on tells every commit up to this moment.
        newest = max(moments, default=0)
        for gone in self._told.keys() - {each.table_id for each in records}:
            self._lake.forget(gone)
            self.changed = True
        for record in records:
            self._renew()
            try:
                self._table(record, newest)
            except UnsupportedLayout as error:
                if record.name in named:
                    raise
                self._lake.forget(record.table_id)
                self.changed |= record.table_id in self._told
                self.left_out[record.name] = str(error)
            else:
                self.names.append(record.name)

    def _commits(self, record: TableRecord) -> Sequence[TableCommit]:
        """A branch has one, whose number is that of the commits on it."""
        if (branch := self._branch) is not None:
            moment = 1 + branch.commits
            return [TableCommit(moment, moment, branch.txn, branch.created + moment)]
        return self._warehouse.metastore.call(ops.GetCommits(record.name))

    def _table(self, record: TableRecord, newest: int) -> None:
        warehouse, number = self._warehouse, record.table_id
        own = nullcontext(self._view) if self._view else warehouse.leases.brief(record.name)
        with own as view:
            listed = self._commits(record)
            commits = [commit for commit in listed if commit.moment <= newest]
            if not commits:
                raise SnapshotExpired(
                    f"the history of {record.name} up to moment {newest} was cleaned meanwhile;"
                    " export again"
                )
            table = _Table(
                ToldPast(view, view.table(record.name), self._branch is not None),
                record,
                self._lake,
            )
            first = table.catch_up(commits, self._told.get(number), self._renew)
        last = LastTold(record.name, max(first, commits[0].moment), *_key(commits[-1]))
        self.added += table.added
        self.changed |= last != self._told.get(number)
        self._lake.reached(number, last)
        self.snapshots |= dict(_key(each) for each in commits if each.moment >= first)


def _key(commit: TableCommit) -> tuple[int, int]:
    return commit.moment, commit.at


class _Table:
    """Tells the commits of one table."""

    def __init__(self, past: ToldPast, record: TableRecord, lake: Lake) -> None:
        self._past, self._name, self._lake, self._number = past, record.name, lake, record.table_id
        self._keyed = FileFormat.of(record.properties).keyed
        self.added = 0
        self._load()

    def _load(self) -> None:
        lake, number = self._lake, self._number
        self._live, self._mappings = lake.files(number), lake.mappings(number)
        self._columns, self._next_row = lake.columns(number), lake.next_row(number)
        self._events: frozenset[str] | None = None
        """The files of delete events of the commit that was told last; None: nobody knows."""
        self._changed: list[LakeFile] = []
        """Files that the catalog does not have yet, or that end."""
        self._deleted: list[tuple[int, int, np.ndarray]] = []
        self._hidden: dict[int, np.ndarray] = {}
        """The positions that were told, of files of which that is known."""
        self._stored: dict[str, tuple[Column, ...]] = {}
        """The columns of the files of a directory, which one statement wrote."""

    def _begin_again(self) -> None:
        self._lake.forget(self._number)
        self._load()

    def catch_up(
        self, commits: Sequence[TableCommit], told: LastTold | None, renew: Callable[[], object]
    ) -> int:
        """Tells the commits that are new; returns from which one on readers find the table.

        Raises UnsupportedLayout if the last one can't be told.
        """
        if told is not None and not (
            told.moment < commits[0].moment or (told.moment, told.at) in map(_key, commits)
        ):
            self._begin_again()  # the metastore was restored to an earlier state
            told = None
        first, last = (None, -1) if told is None else (told.first, told.moment)
        if last >= commits[0].moment and last < commits[-1].moment:
            with suppress(UnsupportedLayout):
                self._events = self._past.state(last).events
        for commit in commits:
            if commit.moment <= last:
                continue
            renew()
            try:
                state = self._past.state(commit.moment)
                if self._has_others(state):  # as after a restored backup
                    self._begin_again()
                    first = None
                self._tell(commit.moment, state)
            except UnsupportedLayout:
                if commit is commits[-1]:
                    raise
                self._begin_again()
                first = None
            else:
                first = commit.moment if first is None else first
                self.added += 1
        self._lake.tell(self._number, self._changed, self._deleted)
        assert first is not None
        return first

    def _has_others(self, state: ToldState) -> bool:
        """Whether other files are at paths that were told."""
        return any(
            path in self._live and differs(source, self._live[path].size, self._live[path].rows)
            for files in state.files.values()
            for path, source in files.items()
        )

    def _tell(self, moment: int, state: ToldState) -> None:
        """Raises UnsupportedLayout, and has told nothing then."""
        scan, live = state.scan, self._live
        keys = [
            replace(column, id=PARTITION_COLUMNS + n)
            for n, column in enumerate(scan.partition_columns)
        ]
        columns = column_rows([*scan.columns, *keys])
        retyped = {row[0]: row[3] for row in columns} != {row[0]: row[3] for row in self._columns}
        fresh, hidden = dict[str, LakeFile](), dict[str, np.ndarray]()
        for entity in (each for entities in state.entities.values() for each in entities):
            paths = {path_of(scan, source): source for source in entity.sources.inserts}
            known = {
                path: counted(scan, source, self._name)
                for path, source in paths.items()
                if retyped or path not in live
            }
            new = known.keys() - live.keys()
            touched = touched_files(state, entity, new, self._events)
            found = hidden_rows(scan, entity, [*touched.values()])
            hidden |= zip(touched, found, strict=True)
            again = {path for path in touched.keys() - new if self._shown(path, hidden[path])}
            if new or again:
                in_path = self._in_path(scan, entity, keys)
                for path in sorted(new | again):
                    source = known.get(path) or counted(scan, paths[path], self._name)
                    fresh[path] = self._file(moment, path, scan, source, in_path)
        present = {path for files in state.files.values() for path in files}
        for path in (live.keys() - present) | (live.keys() & fresh.keys()):
            file = live.pop(path)
            file.end = moment
            if not file.fresh:
                self._changed.append(file)
        live |= fresh
        self._changed += fresh.values()
        for path, rows in hidden.items():
            told = self._hidden_of(live[path])
            if len(rows) > len(told):
                self._deleted.append((live[path].number, moment, without(rows, told)))
                self._hidden[live[path].number] = rows
        if columns != self._columns:
            self._lake.declare(self._number, moment, columns)
            self._columns = columns
        self._events = state.events

    def _hidden_of(self, file: LakeFile) -> np.ndarray:
        """The positions of the file that are told as hidden."""
        found = self._hidden.get(file.number)
        if found is None:
            none = np.zeros(0, np.int64)
            found = none if file.fresh else self._lake.positions(self._number, file.number)
            self._hidden[file.number] = found
        return found

    def _shown(self, path: str, hidden: np.ndarray) -> bool:
        """Whether a row of the file that was hidden is not any more."""
        return len(without(self._hidden_of(self._live[path]), hidden)) > 0

    def _file(
        self, moment: int, path: str, scan: Scan, source: SourceFile, in_path: Sequence[LakeKey]
    ) -> LakeFile:
        number, rows = self._lake.new_file(), source.rows or 0
        first, self._next_row = self._next_row, self._next_row + rows
        mapping = None
        if scan.partition_columns or not self._keyed:
            mapping = self._mapping(scan, source, [each.column for each in in_path if each.text])
        stats = [*bounds(scan.columns, rows, source.ranges), *(key.stats(rows) for key in in_path)]
        return LakeFile(number, path, source.size, rows, moment, first, mapping, stats)

    def _mapping(self, scan: Scan, source: SourceFile, in_path: Sequence[Column]) -> int:
        columns = scan.columns
        if self._keyed:
            if source.directory not in self._stored:
                self._stored[source.directory] = columns_with_ids(scan.files, source.path)
            columns = self._stored[source.directory]
        rows = mapped(columns, in_path)
        if rows not in self._mappings:
            self._mappings[rows] = self._lake.map(self._number, rows)
        return self._mappings[rows]

    def _in_path(self, scan: Scan, entity: EntityScan, keys: Sequence[Column]) -> list[LakeKey]:
        """The values of the partition columns. Raises UnsupportedLayout for one that DuckDB reads
        from the path as another, or not at all."""
        segments = dict(part.partition("=")[::2] for part in entity.partition.split("/") if part)
        above = {part.partition("=")[0] for part in scan.location.split("/") if "=" in part}
        found = list[LakeKey]()
        for column, text in zip(keys, entity.values, strict=True):
            try:
                value = fixed_value(text, column).as_py()
                fits = column.type.kind in _IN_PATHS and column.name not in above
            except NeedsSpark:
                fits = False
            if text is not None:
                fits &= unquote(segments.get(column.name, "")) == text and text.lower() != "null"
            if not fits:
                raise UnsupportedLayout(
                    f"{self._name}: DuckDB would not read {entity.partition} of {scan.location} as"
                    f" the value of the partition column {column}; write it into a table without"
                    " that partition column"
                )
            found.append(LakeKey(column, None if value is None else text))
        return found
