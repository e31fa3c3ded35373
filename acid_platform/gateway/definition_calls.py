"""Calls that make, drop and alter databases and tables. What can't be kept is refused by name:
nothing is reported as done that was not done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acid_platform.base.table_properties import FILE_FORMAT
from acid_platform.errors import (
    DeclarationChanged,
    NoSuchTable,
    UnsupportedStatement,
)
from acid_platform.gateway import shapes
from acid_platform.gateway.catalog_calls import VIEW
from acid_platform.gateway.dropping import drop
from acid_platform.gateway.protocol import load
from acid_platform.gateway.settings import LOCATIONS
from acid_platform.gateway.statistics_calls import keep_counts
from acid_platform.gateway.truncating import truncate
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.foreign_transactions import FinishWrite
from acid_platform.metastore.operations.tables import DropView, RemoveDatabase
from acid_platform.metastore.records import TableRecord
from acid_platform.metastore.table_names import table_name
from acid_platform.storage.durability import make_root
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import (
    Declaration,
    change_column,
    widened,
)
from acid_platform.tables.locations import confine, create

_OF_ENGINES = frozenset(
    {
        shapes.VERSION,
        "transient_lastDdlTime",
        "last_modified_by",
        "last_modified_time",
        "numFiles",
        "numRows",
        "rawDataSize",
        "totalSize",
        "numFilesErasureCoded",
        "numPartitions",
        "COLUMN_STATS_ACCURATE",
        "STATS_GENERATED_VIA_STATS_TASK",
        "DO_NOT_UPDATE_STATS",
        "auto.purge",
        "trino_version",
        "trino_query_id",
        "presto_version",
        "presto_query_id",
    }
)
"""Parameters that engines set by themselves and that are no properties: counts, see `statistics`,
and their own versions."""


class Definitions:
    """The part of the gateway that changes declarations. Method names are the protocol's."""

    _metastore: Metastore
    _locations: str
    """Directories outside of the warehouse in which tables may be made."""

    def _own(self) -> list[int] | None:
        """The transactions of the user who has logged in; None without a login."""
        raise NotImplementedError

    def _locker(self) -> set[int]:
        """The transactions for which this connection has asked for locks."""
        raise NotImplementedError

    # --- databases ------------------------------------------------------------------------------

    def create_database(self, database: Any) -> None:
        """Raises TableExists, InvalidDefinition, UnsupportedStatement."""
        name = database.name.lower()
        usual = self.require_usual(name, database.locationUri)
        if database.description or _kept(database.parameters):
            raise UnsupportedStatement(f"database {name} can't keep a comment or parameters")
        self._metastore.create_database(name)
        make_root(*Files.of(usual))  # Trino makes no table in a database without a directory

    def require_usual(self, database: str, location: str | None) -> str:
        """The directory of a database, which `location` must name if it is given.

        Raises UnsupportedStatement.
        """
        root = self._metastore.places.root
        usual = f"{root}/{database}.db"
        if location and shapes.path(location) != shapes.path(usual):
            raise UnsupportedStatement(
                f"database {database} can't have the location {location}, only {usual}; in Hive,"
                " set hive.metastore.warehouse.dir and hive.metastore.warehouse.external.dir to"
                f" {shapes.uri(root)}"
            )
        return usual

    def drop_database(self, name: str, _delete: bool, cascade: bool) -> None:
        database = name.lower()
        if cascade:
            for record in self._metastore.tables():
                if shapes.split(record.name)[0] == database:
                    drop(self._metastore, record.name, None, self._locker())
            for view in self._metastore.views():
                if shapes.split(view.name)[0] == database:
                    self._metastore.call(DropView(view.name))
        self._metastore.call(RemoveDatabase(database))

    def drop_database_req(self, request: Any) -> None:
        try:
            self.drop_database(request.name, request.deleteData, request.cascade)
        except NoSuchTable:
            if not request.ignoreUnknownDb:
                raise

    # --- tables ---------------------------------------------------------------------------------

    def create_table(self, new: Any) -> None:
        """Raises TableExists, InvalidDefinition, UnsupportedStatement."""
        name = table_name(f"{new.dbName}.{new.tableName}")
        if name.partition(".")[0] not in self._metastore.databases():
            raise NoSuchTable(f"there is no database {new.dbName}")
        parameters = _kept(new.parameters)
        _require_table(name, new, parameters)
        clustered = (new.sd.bucketCols, new.sd.numBuckets) if new.sd.bucketCols else None
        properties = {**parameters, **_format(name, new.sd, parameters)}
        declared = Declaration.of(
            name,
            tuple(Column(one.name.lower(), parse_type(one.type)) for one in new.sd.cols),
            [f"{one.name} {one.type}" for one in new.partitionKeys or ()],
            clustered,
            properties,
        )
        create(self._metastore, name, declared, self._wanted(name, new.sd.location))

    def _wanted(self, name: str, location: str | None) -> str | None:
        """The location to ask for; None for the usual one. Raises InvalidDefinition for one where
        no client may make a table (P49)."""
        database, short = shapes.split(name)
        usual = f"{self._metastore.places.root}/{database}.db/{short}"
        if not location or shapes.path(location) == shapes.path(usual):
            return None
        where = shapes.path(location)
        confine(self._metastore, name, where, self._locations, LOCATIONS)
        return where

    def create_table_with_environment_context(self, new: Any, _context: Any) -> None:
        self.create_table(new)

    def create_table_req(self, request: Any) -> None:
        """Raises UnsupportedStatement for constraints."""
        kinds = (
            "primaryKeys",
            "foreignKeys",
            "uniqueConstraints",
            "notNullConstraints",
            "defaultConstraints",
            "checkConstraints",
        )
        given = [kind for kind in kinds if getattr(request, kind)]
        if given:
            raise UnsupportedStatement(f"{request.table.tableName}: {given[0]} can't be kept")
        self.create_table(request.table)

    def drop_table(self, database: str, name: str, delete: bool | None) -> None:
        """Drops a table, under the lock that the client may hold, or a view."""
        full = table_name(f"{database}.{name}")
        if any(view.name == full for view in self._metastore.views()):
            self._metastore.call(DropView(full))
            return
        self._metastore.table(full)
        if delete is False:
            raise UnsupportedStatement(f"{full}: a table can't be dropped without its files")
        drop(self._metastore, full, None, self._locker())

    def drop_table_with_environment_context(
        self, database: str, name: str, delete: bool | None, _context: Any
    ) -> None:
        self.drop_table(database, name, delete)

    def truncate_table_req(self, request: Any) -> Any:
        """Empties a table, or partitions of it, in a transaction of this connection."""
        name = table_name(f"{request.dbName}.{request.tableName}")
        mine = self._locker()
        truncate(self._metastore, name, request.partNames, request.writeId or 0, mine)
        return load().TruncateTableResponse()

    def _refuse_rename(
        self, record: TableRecord, columns: Sequence[tuple[str, str]] | None
    ) -> None:
        """Raises UnsupportedStatement for a new name of a column of files, also of deleted rows."""
        gone = [name for name, _ in record.columns if columns and name not in dict(columns)]
        if gone and any(one.directories for one in self._metastore.entities(record.name)):
            raise UnsupportedStatement(
                f"{record.name}: its files find {gone[0]} by its name, and every reader would read"
                " NULL under another one; rename it by ALTER TABLE … CHANGE of this platform, which"
                " hides the files of deleted rows, or CREATE VIEW with the new name"
            )

    def truncate_table(self, database: str, name: str, partitions: Sequence[str] | None) -> None:
        """Raises UnsupportedStatement: without a write id it would be no transaction."""
        truncate(self._metastore, table_name(f"{database}.{name}"), partitions, 0, self._locker())

    def alter_table(self, database: str, name: str, new: Any) -> None:
        """Changes columns, properties and the name, and keeps the counts.

        The client sends the whole table as it wants it, so it must have seen the present one.
        Raises DeclarationChanged, InvalidDefinition, UnsupportedStatement.
        """
        record = self._metastore.table(f"{database}.{name}")
        renamed = table_name(f"{new.dbName}.{new.tableName}")
        columns = _columns(record, new)
        self._refuse_rename(record, columns)
        properties = _changed_properties(record, new.parameters or {})
        keep_counts(record, None, new.parameters or {})
        if renamed == record.name and columns is None and not properties:
            return
        seen = (new.parameters or {}).get(shapes.VERSION)
        if seen not in (None, shapes.version_of(record)):
            raise DeclarationChanged(f"{record.name} was altered since it was read; read it again")
        self._metastore.alter_table(
            record.name,
            columns,
            properties or None,
            renamed if renamed != record.name else None,
            record,
        )

    def alter_table_with_environment_context(
        self, database: str, name: str, new: Any, _context: Any
    ) -> None:
        self.alter_table(database, name, new)

    def alter_table_with_cascade(self, database: str, name: str, new: Any, _cascade: bool) -> None:
        self.alter_table(database, name, new)

    def alter_table_req(self, request: Any) -> Any:
        """As `alter_table`; with a write id, the engine has written all its files too (P47)."""
        self.alter_table(request.dbName, request.tableName, request.table)
        if request.writeId and request.writeId > 0:
            now = request.table  # it may have a new name
            name = f"{now.dbName}.{now.tableName}"
            own = self._own()
            txns = None if own is None else tuple(own)
            self._metastore.call(FinishWrite(name, request.writeId, txns))
        return load().AlterTableResponse()


def _kept(parameters: Mapping[str, str] | None) -> dict[str, str]:
    given = parameters or {}
    return {name: text for name, text in given.items() if name not in _OF_ENGINES}


def _require_table(name: str, new: Any, parameters: Mapping[str, str]) -> None:
    """Raises UnsupportedStatement for what is not a transactional table that can be kept whole."""
    if new.tableType == VIEW:
        raise UnsupportedStatement(f"{name}: make views with `acid sql`")
    external = parameters.get("EXTERNAL", "").lower() == "true"
    if external or parameters.get("transactional", "").lower() != "true":
        raise UnsupportedStatement(
            f"{name}: every table here is managed and transactional; in Trino, say WITH"
            " (transactional = true), in Hive TBLPROPERTIES ('transactional' = 'true')"
        )
    if new.sd.sortCols:
        raise UnsupportedStatement(f"{name}: SORTED BY is not kept")
    commented = [one.name for one in (*new.sd.cols, *(new.partitionKeys or ())) if one.comment]
    if commented:
        raise UnsupportedStatement(f"{name}: the comment of column {commented[0]} can't be kept")


def _format(name: str, descriptor: Any, parameters: Mapping[str, str]) -> dict[str, str]:
    """The property that says the file format. Raises UnsupportedStatement."""
    serde = descriptor.serdeInfo.serializationLib if descriptor.serdeInfo else None
    known = {storage.serde: format_ for format_, storage in shapes.STORAGE.items()}
    if serde not in known:
        raise UnsupportedStatement(f"{name}: files of {serde} are not written here; use ORC")
    stored = known[serde]
    if stored == "orc" or FILE_FORMAT.name in parameters:
        return {}
    return {FILE_FORMAT.name: stored}


def _columns(record: TableRecord, new: Any) -> Sequence[tuple[str, str]] | None:
    """The new columns, or None if they stay. Raises InvalidDefinition, UnknownColumn,
    UnsupportedStatement."""
    kept: tuple[tuple[str, object, object], ...] = (
        ("location", shapes.path(new.sd.location or record.location), shapes.path(record.location)),
        ("partition columns", _pairs(new.partitionKeys or ()), record.partition_columns),
        ("bucket columns", tuple(new.sd.bucketCols or ()), record.bucket_columns),
        ("SerDe", new.sd.serdeInfo.serializationLib, shapes.storage_of(record).serde),
    )
    for what, asked, given in kept:
        if asked != given:
            raise UnsupportedStatement(
                f"{record.name}: its {what} can't be changed from {given} to {asked}"
            )
    commented = [one.name for one in new.sd.cols if one.comment]
    if commented:
        raise UnsupportedStatement(
            f"{record.name}: the comment of column {commented[0]} can't be kept"
        )
    wanted, present = _pairs(new.sd.cols), record.columns
    if wanted == present:
        return None
    if wanted[: len(present)] == present:
        added = ", ".join(f"{column} {kind}" for column, kind in wanted[len(present) :])
        return widened(record, added).columns
    differ = [(old, given) for old, given in zip(present, wanted, strict=False) if old != given]
    if len(wanted) != len(present) or len(differ) != 1:
        raise UnsupportedStatement(
            f"{record.name}: columns can be added at the end, or one be renamed or widened; asked"
            f" for {list(wanted)}"
        )
    ((old, _), (column, kind)) = differ[0]
    return change_column(record, old, Column(column, parse_type(kind)), None)


def _pairs(columns: Sequence[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((one.name.lower(), one.type) for one in columns)


def _changed_properties(
    record: TableRecord, parameters: Mapping[str, str]
) -> dict[str, str | None]:
    """What the client set or removed."""
    shown, given = _kept(shapes.parameters_of(record)), _kept(parameters)
    changed: dict[str, str | None] = {
        name: text for name, text in given.items() if shown.get(name) != text
    }
    removed = sorted({*record.properties} - {*given} - _OF_ENGINES)
    return {**changed, **dict.fromkeys(removed)}
