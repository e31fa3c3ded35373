"""Tables as Dagster shows them: asset keys, schema, and what the metastore knows of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from acid_platform.layout.types import parse_columns
from acid_platform.metastore.names import table_name
from acid_platform.metastore.records import EntityState, TableRecord

STORAGE_KIND = "hive acid (orc)"


def asset_key(table: str) -> dg.AssetKey:
    """The asset of table `db.t` is `db/t`; a name without a database is in `default`."""
    return dg.AssetKey(table_name(table).split("."))


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A table that an asset owns. Columns are written as in Warehouse.create_table; None: those of
    the first rows that are written."""

    name: str
    """`db.t`, in any case; without a database it is in `default`."""
    columns: str | None = None
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", table_name(self.name))

    @property
    def key(self) -> dg.AssetKey:
        return asset_key(self.name)

    @property
    def database(self) -> str:
        return self.name.partition(".")[0]

    @property
    def metadata(self) -> dict[str, object]:
        """What is known of the table before its first materialization."""
        known: dict[str, object] = {
            "dagster/table_name": self.name,
            "dagster/storage_kind": STORAGE_KIND,
        }
        if self.columns is not None:
            own, keys = (
                [(one.name, str(one.type)) for one in parse_columns(text)] if text else []
                for text in (self.columns, ", ".join(self.partitioned_by))
            )
            known["dagster/column_schema"] = _schema(own, keys)
        return known


@dataclass(frozen=True, slots=True)
class TableStats:
    """Live directories of a table by the metastore's count: no file is listed (P8).

    `rows` are the live rows: what data directories hold less the delete events beside them.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    partitions: int = 0
    bases: int = 0
    deltas: int = 0
    delete_deltas: int = 0
    write_id: int = 0
    """The highest that any of them holds."""
    counted: bool = True
    """Whether all rows were counted when they were written; adopted files were not (P24)."""

    @property
    def directories(self) -> int:
        return self.bases + self.deltas + self.delete_deltas

    @classmethod
    def of(
        cls, entities: Iterable[EntityState], table: str, partition: str | None = None
    ) -> TableStats:
        """Of a table, or of one partition of it."""
        chosen = [
            one for one in entities if one.table == table and partition in (None, one.partition)
        ]
        live = [
            directory for one in chosen for directory in one.directories if not directory.obsolete
        ]
        return cls(
            rows=sum(-one.rows if one.deletes else one.rows for one in live),
            bytes=sum(one.bytes for one in live),
            files=sum(one.files for one in live),
            partitions=sum(1 for one in chosen if one.partition and one.directories),
            bases=sum(one.base for one in live),
            deltas=sum(not one.base and not one.deletes for one in live),
            delete_deltas=sum(one.deletes for one in live),
            write_id=max((one.high for one in live), default=0),
            counted=not any(one.bytes and not one.rows for one in live),
        )

    def metadata(self, prefix: str = "") -> dict[str, dg.MetadataValue]:
        """Counts of directories, files and bytes, as Dagster metadata."""
        return {
            f"{prefix}base directories": dg.MetadataValue.int(self.bases),
            f"{prefix}delta directories": dg.MetadataValue.int(self.deltas),
            f"{prefix}delete_delta directories": dg.MetadataValue.int(self.delete_deltas),
            f"{prefix}files": dg.MetadataValue.int(self.files),
            f"{prefix}bytes": dg.MetadataValue.int(self.bytes),
        }


def table_metadata(record: TableRecord, stats: TableStats) -> dict[str, dg.MetadataValue]:
    """What each materialization says of its table; keys with `dagster/` are Dagster's own."""
    return {
        "dagster/table_name": dg.MetadataValue.text(record.name),
        "dagster/storage_kind": dg.MetadataValue.text(STORAGE_KIND),
        "dagster/uri": dg.MetadataValue.text(record.location),
        "dagster/row_count": dg.MetadataValue.int(stats.rows),
        "dagster/column_schema": dg.MetadataValue.table_schema(
            _schema(record.columns, record.partition_columns)
        ),
        **stats.metadata(),
    }


def _schema(
    columns: Sequence[tuple[str, str]], partition_columns: Sequence[tuple[str, str]]
) -> dg.TableSchema:
    own = [dg.TableColumn(name, kind) for name, kind in columns]
    keys = [
        dg.TableColumn(name, kind, tags={"partition_column": ""})
        for name, kind in partition_columns
    ]
    return dg.TableSchema(columns=[*own, *keys])
