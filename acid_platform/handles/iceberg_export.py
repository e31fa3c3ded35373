"""Tells a table of Parquet files to readers of Iceberg, commit by commit, without copying a row."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.base.clock import wall_ms
from acid_platform.base.paths import user_path
from acid_platform.errors import UnsupportedLayout
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.handles.told_files import ToldPast, ToldState, differs, touched_files
from acid_platform.iceberg.columns import (
    Json,
    Plain,
    name_mapping,
    partition_fields,
    schema_fields,
    simple_type,
)
from acid_platform.iceberg.data_files import counted, file_entry
from acid_platform.iceberg.position_deletes import (
    Positions,
    hidden_rows,
    joined,
    read_positions,
    without,
    write_positions,
)
from acid_platform.iceberg.table_metadata import DATA, DELETES, Change, TableMetadata
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.pasts import TableCommit
from acid_platform.metastore.records import TableRecord
from acid_platform.services import leading
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import columns_of_record

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

_MOST_DELETE_FILES = 16
"""So many files of deleted positions in a partition become one."""
_BRANCH = "_branch_"
"""How the directory begins that tells the tables of a branch; its transaction follows."""
_MAPPING = "schema.name-mapping.default"
"""The property that tells by which names columns are found in files without ids."""


@dataclass(frozen=True, slots=True)
class IcebergExport:
    """What readers of Iceberg find of a table."""

    table: str
    directory: str
    """The table's directory for them, a path or URI."""
    metadata: str
    """The newest metadata file."""
    snapshot: int
    """The id of the newest snapshot."""
    snapshots: int
    """How many can be read."""
    told: int
    """How many of them this call has added."""
    files: int
    """The files of rows of the newest, and those with deleted positions."""
    delete_files: int

    def __str__(self) -> str:
        return (
            f"{self.table}: snapshot {self.snapshot} and {self.snapshots - 1} older for Iceberg in"
            f" {self.directory}, {self.told} of them new; {self.files} files, {self.delete_files}"
            " with deleted positions"
        )


def export_iceberg(warehouse: Warehouse, name: str, into: str | None = None) -> IcebergExport:
    """Warehouse.export_iceberg."""
    full, name_of_branch = table_name(name), warehouse.metastore.branch
    # Asked before the snapshot is taken: what comes in between is told again, and none is missed.
    branch = warehouse.branches.require(name_of_branch, judged=False) if name_of_branch else None
    own = f"/{_BRANCH}{branch.txn}" if branch else ""
    with (
        leading(warehouse.metastore, f"export of {full}{own} to Iceberg") as renew,
        warehouse.leases.brief(full) as view,
    ):
        record = view.table(full)
        commits: Sequence[TableCommit] = (
            [_shown_by(branch, view, record)]
            if branch
            else warehouse.metastore.call(ops.GetCommits(record.name))
        )
        identity = warehouse.metastore.call(ops.GetIdentity()).id
        files, root = warehouse.files, f"{warehouse.path}/_iceberg"
        if into is not None:
            files, root = Files.of(user_path(into))
        path = f"{root}{own}/{record.name.replace('.', '/', 1)}"
        metadata = _metadata_of(record, files, path, f"{identity}/{record.table_id}{own}")
        told = _Telling(view, record, metadata, branch is not None).catch_up(commits, renew)
        expired = metadata.keep({commit.moment for commit in commits})
        named = branch is None and metadata.name(_tagged(warehouse, record, commits))
        if told or expired or named:
            metadata.write()
            metadata.remove_old(wall_ms())
        if branch:
            _remove_ended(warehouse, files, root)
    return IcebergExport(
        record.name,
        metadata.where(path),
        metadata.where(metadata.newest_file),
        metadata.snapshots[-1]["snapshot-id"],
        len(metadata.snapshots),
        told,
        len(metadata.live(DATA)),
        len(metadata.live(DELETES)),
    )


def _remove_ended(warehouse: Warehouse, files: Files, root: str) -> None:
    """Removes what was told of branches that have ended: it has values of their rows."""
    told = [info.path for info in files.children(root) if info.base_name.startswith(_BRANCH)]
    alive = {f"{_BRANCH}{row.txn}" for row in warehouse.branches.list(judged=False)}
    for path in told:
        if path.rpartition("/")[2] not in alive:
            files.delete_directory(path)


def _shown_by(branch: BranchRow, view: SnapshotView, record: TableRecord) -> TableCommit:
    """The state of a table that a branch shows, as one commit: the number of those on the branch
    tells it from others."""
    written = view.lists(record.name)[0].high_watermark
    return TableCommit(1 + branch.commits, written, branch.txn, branch.created + branch.commits)


def _tagged(
    warehouse: Warehouse, record: TableRecord, commits: Sequence[TableCommit]
) -> dict[str, int]:
    """The tags of the table, each with the last commit that it sees."""
    (kept,) = warehouse.metastore.call(ops.GetKept(record.name))
    seen = {
        tag.name: [commit.moment for commit in commits if commit.moment <= tag.pin.moment]
        for tag in kept.tags
    }
    return {name: max(moments) for name, moments in seen.items() if moments}


def told_metadata(warehouse: Warehouse, name: str) -> tuple[str, bytes]:
    """Tells what is new, as `export_iceberg`; returns the newest metadata file and its content."""
    exported = export_iceberg(warehouse, name)
    files, path = Files.of(user_path(exported.metadata))
    return exported.metadata, files.read(path)


def _metadata_of(record: TableRecord, files: Files, path: str, identity: str) -> TableMetadata:
    _, keys = columns_of_record(record)
    kinds = [simple_type(column.type) for column in keys]
    number = str(uuid.uuid5(uuid.NAMESPACE_OID, identity))
    return TableMetadata(files, path, number, partition_fields(keys), kinds).load()


class _Telling:
    """Tells the commits of a table that its metadata does not have yet."""

    def __init__(
        self, view: SnapshotView, record: TableRecord, metadata: TableMetadata, only_now: bool
    ) -> None:
        self._past, self._name = ToldPast(view, record, only_now), record.name
        self._metadata = metadata
        columns, keys = columns_of_record(record)
        if not FileFormat.of(record.properties).keyed:
            mapping = json.dumps(name_mapping(schema_fields(columns, keys, record.name)))
            if metadata.properties.get(_MAPPING, mapping) != mapping:
                metadata.begin_again()
            metadata.properties = {_MAPPING: mapping}
        self._events: frozenset[str] | None = None
        """The files of delete events of the snapshot that was told last; None: nobody knows."""

    def catch_up(self, commits: Sequence[TableCommit], renew: Callable[[], object]) -> int:
        """Tells the commits that are new; returns how many were. Raises as `ToldPast.state`."""
        metadata, last = self._metadata, self._metadata.last
        if last is not None:
            at = {commit.moment: commit.at for commit in commits}.get(last.moment)
            if last.moment >= commits[0].moment and at != last.at:
                metadata.begin_again()  # the metastore was restored to an earlier state
            elif at is not None:
                self._events = self._past.state(last.moment).events
        last, told = metadata.last, 0
        for commit in commits:
            if last is None or commit.moment > last.moment:
                renew()
                told += self._tell(commit, commit is commits[-1])
        return told

    def _tell(self, commit: TableCommit, newest: bool) -> bool:
        """Adds the snapshot after a commit, unless it is an older one that can't be told."""
        try:
            state = self._past.state(commit.moment)
            change = self._change(state)
        except UnsupportedLayout:
            if newest:
                raise
            return False
        if change is None:  # other files at the same paths, as after a restored backup
            self._metadata.begin_again()
            self._events = None
            change = self._change(state)
            assert change is not None
        self._metadata.tell(commit, state.fields, change)
        self._events = state.events
        return True

    def _change(self, state: ToldState) -> Change | None:
        """What the snapshot has and the one before did not, or the other way round; None if a file
        of both has another size now."""
        known = {file["file_path"]: file for file in self._metadata.live(DATA)}
        now = {path: each for files in state.files.values() for path, each in files.items()}
        if any(
            differs(now[path], known[path]["file_size_in_bytes"], known[path]["record_count"])
            for path in known.keys() & now.keys()
        ):
            return None
        added, removed, positions = list[Json](), known.keys() - now.keys(), list[Json]()
        deletes, gone = self._deletes_by_partition(), dict[tuple[Plain, ...], set[str]]()
        for path in removed:
            gone.setdefault(tuple(known[path]["partition"]), set()).add(path)
        retyped = self._metadata.retyped(state.fields)
        for values, entities in state.entities.items():
            files, hidden = state.files[values], Positions()
            fresh = {
                path: counted(state.scan, source, self._name)
                for path, source in files.items()
                if retyped or path not in known
            }
            new = {path: source for path, source in fresh.items() if path not in known}
            columns = state.scan.columns
            added += (file_entry(path, each, columns, values) for path, each in new.items())
            for entity in entities:
                touched = touched_files(state, entity, new, self._events)
                found = hidden_rows(state.scan, entity, [*touched.values()])
                pairs = zip(touched, found, strict=True)
                hidden |= {path: each for path, each in pairs if len(each) or path in known}
            told = deletes.pop(values, [])
            replaced, rows = self._deletes(told, hidden, gone.get(values, set()))
            removed |= replaced
            if rows:
                positions.append(self._written(rows) | {"partition": list(values)})
        removed |= {file["file_path"] for files in deletes.values() for file in files}
        return Change(added, removed, positions)

    def _deletes_by_partition(self) -> dict[tuple[Plain, ...], list[Json]]:
        """The files of positions of the snapshot before."""
        found: dict[tuple[Plain, ...], list[Json]] = {}
        for file in self._metadata.live(DELETES):
            found.setdefault(tuple(file["partition"]), []).append(file)
        return found

    def _deletes(
        self, told: list[Json], hidden: Positions, gone: Collection[str]
    ) -> tuple[set[str], Positions]:
        """The files of positions of a partition that go, and the positions of a new one. `hidden`:
        of the files of which some may be new; `gone`: files of rows that are no longer there."""
        if not told:
            return set(), joined({}, hidden)
        if not gone and not hidden:
            return set(), {}
        paths = [file["file_path"] for file in told]
        before = read_positions(self._metadata.files, map(self._metadata.inside, paths))
        more = {path: without(rows, before.get(path)) for path, rows in hidden.items()}
        shown = any(len(without(before[p], hidden[p])) for p in hidden.keys() & before.keys())
        several = len(told) >= _MOST_DELETE_FILES and any(map(len, more.values()))
        if not (shown or several or before.keys() & gone):
            return set(), joined({}, more)
        kept = {path: rows for path, rows in before.items() if path not in gone}
        return set(paths), joined(kept, hidden)

    def _written(self, positions: Positions) -> Json:
        metadata = self._metadata
        path = metadata.new_file("deletes.parquet")
        metadata.written.append(path)
        return write_positions(metadata.files, path, metadata.where(path), positions)
