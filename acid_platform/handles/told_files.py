"""The files of a table after each of its commits, as readers of other formats are told them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import cached_property

from acid_platform.errors import UnsupportedLayout
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.iceberg.columns import Json, Plain, plain, schema_fields, simple_type
from acid_platform.iceberg.data_files import path_of
from acid_platform.iceberg.position_deletes import tested
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.deletes import kept_keys
from acid_platform.scan.open import select_entities
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import SourceFile, resolve
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.partition_texts import partition_value


@dataclass(frozen=True)
class ToldState:
    """What a snapshot of the table shows."""

    scan: Scan
    """Without its files."""
    fields: list[Json]
    """The fields of the schema, as Iceberg has them."""
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


class ToldPast:
    """The states of a table that a lease sees."""

    def __init__(self, view: SnapshotView, record: TableRecord, only_now: bool = False) -> None:
        """`only_now`: the present one is that of each moment, as a branch has no other."""
        self._view, self._name, self._only_now = view, record.name, only_now
        columns, _ = columns_of_record(record)
        self._names = [(column.id, column.name) for column in columns]

    def state(self, moment: int) -> ToldState:
        """The table as it was then. Raises UnsupportedLayout for a table that readers of other
        formats would not read as this platform does."""
        as_of = None if self._only_now else AsOf(moment=moment)
        layout, write_ids, txns = self._view.source(self._view.request(self._name, as_of=as_of))
        if layout.format.name != "parquet":
            raise UnsupportedLayout(
                f"{self._name} is stored in {layout.format.name}, and readers of Iceberg and"
                f" DuckLake take the files of tables in Parquet: ALTER TABLE {self._name} SET"
                " FILEFORMAT PARQUET writes its rows so"
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
        return ToldState(scan, fields, found)


def differs(source: SourceFile, size: int, rows: int) -> bool:
    """Whether another file has the path of one of which this was told."""
    return size != source.size or source.rows not in (None, rows)


def touched_files(
    state: ToldState, entity: EntityScan, new: Container[str], told: frozenset[str] | None
) -> dict[str, SourceFile]:
    """The files of which other rows may be hidden than when these events were told, by their paths
    as readers get them; `told` None: nobody knows. `new`: files that were not told."""
    fresh = [each for each in entity.sources.deletes if told is None or each.path not in told]
    keys = kept_keys(state.scan.files, fresh, state.scan.write_ids)
    newer, touched = replace(entity, deletes=keys), dict[str, SourceFile]()
    for source in entity.sources.inserts:
        path = path_of(state.scan, source)
        if path in new or tested(newer, source):
            touched[path] = source
    return touched
