"""Tables in Dagster: asset keys, schemas, and what the metastore knows about their files.

What Dagster shows as Markdown may have texts of others (P67): a query of a view, a value of a
refused row or a comment is written by whoever could write it, and all readers of the pages see that
text: no link, no picture, no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from acid_platform.display.markdown_text import escaped_text
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.formats import ACID_FORMAT
from acid_platform.layout.names import table_name
from acid_platform.layout.table_properties import check
from acid_platform.layout.types import Constraint, ConstraintKind, parse_columns
from acid_platform.metastore.operations.compaction import EntityState
from acid_platform.metastore.records import TableRecord

TABLE_KIND = ACID_FORMAT.name
"""The kind of the asset of a table, unless somebody says another."""
STORAGE_KIND = f"hive acid ({TABLE_KIND})"


def asset_key(table: str) -> dg.AssetKey:
    """The asset key of table `db.t`, `db/t`; a name without a database is in `default`."""
    return dg.AssetKey(table_name(table).split("."))


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A table that an asset owns.

    `columns` is written as in Warehouse.create_table; None: the columns of the first rows.
    """

    name: str
    """`db.t`, in any letter case; `default` is the database if there is none."""
    columns: str | None = None
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    comments: Mapping[str, str] | None = None
    """The comments of columns and partition columns, by their names. As the comment of the table
    and the constraints, they are declared when the table is made."""
    comment: str = ""
    constraints: tuple[Constraint, ...] = ()
    """Such as `Constraint.not_null("id")`."""

    def __post_init__(self) -> None:
        """Raises InvalidDefinition for a name that no table can have, for a column that is declared
        twice, and for a table property that is misspelt or has a value that is not allowed."""
        name = table_name(self.name)
        if not all(name.split(".")) or name.count(".") > 1:
            raise InvalidDefinition(
                f"{self.name!r} is not a name for a table: write orders, or shop.orders"
            )
        own, keys = (
            {column.name for column in parse_columns(text)} if text else set[str]()
            for text in (self.columns, ", ".join(self.partitioned_by))
        )
        if twice := sorted(own & keys):
            raise InvalidDefinition(
                f"{name} declares {', '.join(twice)} twice; a partition column stands in"
                " partitioned_by alone"
            )
        object.__setattr__(self, "name", name)
        check(name, self.properties or {})

    @property
    def key(self) -> dg.AssetKey:
        return asset_key(self.name)

    @property
    def database(self) -> str:
        return self.name.partition(".")[0]

    @property
    def metadata(self) -> dict[str, object]:
        """Metadata that is known before the first materialization."""
        metadata: dict[str, object] = {
            "dagster/table_name": self.name,
            "dagster/storage_kind": STORAGE_KIND,
        }
        if self.columns is not None:
            own, keys = (
                [(column.name, str(column.type)) for column in parse_columns(text)] if text else []
                for text in (self.columns, ", ".join(self.partitioned_by))
            )
            comments = self.comments or {}
            metadata["dagster/column_schema"] = table_schema(own, keys, comments, self.constraints)
        return metadata


@dataclass(frozen=True, slots=True)
class TableStats:
    """Size of a table's live directories, from the metastore's counts; lists no files (P8).

    `rows` is the number of live rows: rows in data directories minus delete events.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    bases: int = 0
    deltas: int = 0
    delete_deltas: int = 0
    write_id: int = 0
    """The highest write id of any live directory."""
    counted: bool = True
    """Whether all rows were counted when they were written; adopted files were not (P24)."""

    @classmethod
    def of(cls, entities: Iterable[EntityState], partition: str | None = None) -> TableStats:
        """The statistics of a table with these entities, or of a partition of it."""
        live = [
            directory
            for entity in entities
            if partition in (None, entity.partition)
            for directory in entity.directories
            if not directory.obsolete
        ]
        return cls(
            rows=sum(
                -directory.rows if directory.deletes else directory.rows for directory in live
            ),
            bytes=sum(directory.bytes for directory in live),
            files=sum(directory.files for directory in live),
            bases=sum(directory.base for directory in live),
            deltas=sum(not directory.base and not directory.deletes for directory in live),
            delete_deltas=sum(directory.deletes for directory in live),
            write_id=max((directory.high for directory in live), default=0),
            counted=not any(directory.bytes and not directory.rows for directory in live),
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


def table_metadata(record: TableRecord, stats: TableStats) -> dict[str, Any]:
    """Metadata of a table for its materializations; keys with `dagster/` are Dagster's own."""
    return {
        **declared_metadata(record),
        "dagster/row_count": dg.MetadataValue.int(stats.rows),
        **stats.metadata(),
    }


def declared_metadata(record: TableRecord) -> dict[str, Any]:
    """The part of it that the rows do not change."""
    return {
        "dagster/table_name": record.name,
        "dagster/storage_kind": STORAGE_KIND,
        "dagster/uri": record.location,
        "dagster/column_schema": table_schema(
            record.columns, record.partition_columns, record.comments, record.constraints
        ),
    }


def table_lineage(sources: Mapping[str, Iterable[tuple[str, str]]]) -> dict[str, object]:
    """Metadata: by column of a table the columns that it is computed of, each with its table.

    Also as a table, since the pages of open-source Dagster do not show `dagster/column_lineage`.
    """
    every = {column: sorted(of_column) for column, of_column in sources.items()}
    deps = {
        column: [dg.TableColumnDep(asset_key(table), name) for table, name in of_column]
        for column, of_column in every.items()
    }
    rows = [
        dg.TableRecord(
            {"column": column, "computed of": ", ".join(".".join(pair) for pair in of_column)}
        )
        for column, of_column in every.items()
    ]
    schema = dg.TableSchema([dg.TableColumn("column"), dg.TableColumn("computed of")])
    return {
        "dagster/column_lineage": dg.TableColumnLineage(deps),
        "sources of columns": dg.MetadataValue.table(rows, schema),
    }


def table_schema(
    columns: Sequence[tuple[str, str]],
    partition_columns: Sequence[tuple[str, str]],
    comments: Mapping[str, str],
    constraints: Sequence[Constraint],
) -> dg.TableSchema:
    texts = {name.lower(): escaped_text(text) for name, text in comments.items() if text}

    def limits(column: str) -> dg.TableColumnConstraints:
        kinds = {constraint.kind for constraint in constraints if constraint.columns == (column,)}
        return dg.TableColumnConstraints(
            nullable=ConstraintKind.NOT_NULL not in kinds, unique=ConstraintKind.UNIQUE in kinds
        )

    own = [dg.TableColumn(name, kind, texts.get(name), limits(name)) for name, kind in columns]
    keys = [
        dg.TableColumn(name, kind, texts.get(name), tags={"partition_column": ""})
        for name, kind in partition_columns
    ]
    return dg.TableSchema(columns=[*own, *keys])
