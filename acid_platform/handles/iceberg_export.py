"""Tells a table of Parquet files to readers of Iceberg, commit by commit, without copying a row."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from acid_platform.base.clock import wall_ms
from acid_platform.base.paths import user_path
from acid_platform.errors import UnsupportedLayout
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.iceberg.columns import (
    Json,
    Plain,
    name_mapping,
    partition_fields,
    plain,
    schema_fields,
    simple_type,
)
from acid_platform.iceberg.data_files import counted, file_entry, path_of
from acid_platform.iceberg.position_deletes import (
    Positions,
    hidden_rows,
    joined,
    read_positions,
    tested,
    without,
    write_positions,
)
from acid_platform.iceberg.table_metadata import DATA, DELETES, Change, TableMetadata
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf, TableCommit
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.deletes import kept_keys
from acid_platform.scan.open import select_entities
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import SourceFile, resolve
from acid_platform.services import leading
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.partition_texts import partition_value

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

_MOST_DELETE_FILES = 16
"""So many files of deleted positions in a partition become one."""
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
    full = table_name(name)
    with (
        leading(warehouse.metastore, f"export of {full} to Iceberg") as renew,
        warehouse.leases.brief(full) as view,
    ):
        record = view.table(full)
        commits = warehouse.metastore.call(ops.GetCommits(record.name))
        identity = warehouse.metastore.call(ops.GetIdentity()).id
        files, root = warehouse.files, f"{warehouse.path}/_iceberg"
        if into is not None:
            files, root = Files.of(user_path(into))
        path = f"{root}/{record.name.replace('.', '/', 1)}"
        metadata = _metadata_of(record, files, path, f"{identity}/{record.table_id}")
        told = _Telling(view, record, metadata).catch_up(commits, renew)
        expired = metadata.keep({commit.moment for commit in commits})
        named = metadata.name(_tagged(warehouse, record, commits))
        if told or expired or named:
            metadata.write()
            metadata.remove_old(wall_ms())
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


def _differs(told: Json, source: SourceFile) -> bool:
    """Whether another file has the path of one that was told."""
    same_rows = source.rows in (None, told["record_count"])
    return told["file_size_in_bytes"] != source.size or not same_rows


@dataclass(frozen=True)
class _State:
    """What a snapshot of the table shows."""

    scan: Scan
    """Without its files."""
    fields: list[Json]
    entities: dict[tuple[Plain, ...], list[EntityScan]]
    """By the values of the partition columns."""

    @cached_property
    def files(self) -> dict[tuple[Plain, ...], dict[str, SourceFile]]:
        """The files of rows by their paths as readers get them."""
        return {
            values: {
                path_of(self.scan, source): source
                for entity in entities
                for source in entity.sources.inserts
            }
            for values, entities in self.entities.items()
        }

    @property
    def events(self) -> frozenset[str]:
        """The files of delete events."""
        return frozenset(
            source.path
            for entities in self.entities.values()
            for entity in entities
            for source in entity.sources.deletes
        )


class _Telling:
    """Tells the commits of a table that its metadata does not have yet."""

    def __init__(self, view: SnapshotView, record: TableRecord, metadata: TableMetadata) -> None:
        self._view, self._name, self._metadata = view, record.name, metadata
        columns, keys = columns_of_record(record)
        self._names = [(column.id, column.name) for column in columns]
        if not FileFormat.of(record.properties).keyed:
            mapping = json.dumps(name_mapping(schema_fields(columns, keys, record.name)))
            if metadata.properties.get(_MAPPING, mapping) != mapping:
                metadata.begin_again()
            metadata.properties = {_MAPPING: mapping}
        self._events: frozenset[str] | None = None
        """The files of delete events of the snapshot that was told last; None: nobody knows."""

    def catch_up(self, commits: Sequence[TableCommit], renew: Callable[[], object]) -> int:
        """Tells the commits that are new; returns how many were. Raises as `_state`."""
        metadata, last = self._metadata, self._metadata.last
        if last is not None:
            at = {commit.moment: commit.at for commit in commits}.get(last.moment)
            if last.moment >= commits[0].moment and at != last.at:
                metadata.begin_again()  # the metastore was restored to an earlier state
            elif at is not None:
                self._events = self._state(last.moment).events
        last, told = metadata.last, 0
        for commit in commits:
            if last is None or commit.moment > last.moment:
                renew()
                told += self._tell(commit, commit is commits[-1])
        return told

    def _tell(self, commit: TableCommit, newest: bool) -> bool:
        """Adds the snapshot after a commit, unless it is an older one that can't be told."""
        try:
            state = self._state(commit.moment)
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

    def _state(self, moment: int) -> _State:
        """Raises UnsupportedLayout for a table or a file that readers of Iceberg would not read as
        this platform does."""
        layout, write_ids, txns = self._view.source(
            self._view.request(self._name, as_of=AsOf(moment=moment))
        )
        if layout.format.name != "parquet":
            raise UnsupportedLayout(
                f"{self._name} is stored in {layout.format.name}, and readers of Iceberg take the"
                f" files of tables in Parquet: ALTER TABLE {self._name} SET FILEFORMAT PARQUET"
                " writes its rows so"
            )
        if layout.insert_only and [(each.id, each.name) for each in layout.columns] != self._names:
            raise UnsupportedLayout(f"{self._name} had other columns then, which are found by name")
        kinds = [simple_type(column.type) for column in layout.partition_columns]
        found: dict[tuple[Plain, ...], list[EntityScan]] = {}
        directories = select_entities(layout, self._view.listings(layout), write_ids, txns)
        since = max(layout.rewritten, 1 + layout.retyped)
        for name, directory in directories.items():
            sources = resolve(layout.files, directory, layout.columns, since)
            inserts = tuple(source for source in sources.inserts if source.rows != 0)
            keys = kept_keys(layout.files, sources.deletes, write_ids)
            texts = layout.values(name)
            pairs = zip(texts, layout.partition_columns, strict=True)
            values = [partition_value(text, column.type) for text, column in pairs]
            own = tuple(plain(*each) for each in zip(values, kinds, strict=True))
            entity = EntityScan(replace(sources, inserts=inserts), keys, name, texts)
            found.setdefault(own, []).append(entity)
        fields = schema_fields(layout.columns, layout.partition_columns, self._name)
        columns = (layout.columns, layout.partition_columns)
        scan = Scan(layout.files, layout.path, *columns, (), write_ids, layout.format)
        return _State(scan, fields, found)

    def _change(self, state: _State) -> Change | None:
        """What the snapshot has and the one before did not, or the other way round; None if a file
        of both has another size now."""
        known = {file["file_path"]: file for file in self._metadata.live(DATA)}
        now = {path: each for files in state.files.values() for path, each in files.items()}
        if any(_differs(known[path], now[path]) for path in known.keys() & now.keys()):
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
                touched = self._touched(state, entity, new)
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

    def _touched(
        self, state: _State, entity: EntityScan, new: dict[str, SourceFile]
    ) -> dict[str, SourceFile]:
        """The files of which other rows may be hidden than in the snapshot before."""
        events, told = entity.sources.deletes, self._events
        fresh = [each for each in events if told is None or each.path not in told]
        keys = kept_keys(state.scan.files, fresh, state.scan.write_ids)
        newer, touched = replace(entity, deletes=keys), dict[str, SourceFile]()
        for source in entity.sources.inserts:
            path = path_of(state.scan, source)
            if path in new or tested(newer, source):
                touched[path] = source
        return touched

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
