"""Calls that make, drop and alter databases and tables, and that tell of constraints.

What can't be kept is refused by name: nothing is reported as done that was not done. Hive checks
NOT NULL and CHECK by itself before it writes, and gives defaults. What any engine wrote is checked
at its commit: see `external_writes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from acid_platform.base.paths import as_uri
from acid_platform.errors import DeclarationChanged, NoSuchTable, UnsupportedStatement
from acid_platform.gateway import protocol
from acid_platform.gateway.authorization import LOCATIONS, CallHandler
from acid_platform.gateway.catalog_calls import VIEW
from acid_platform.gateway.partition_calls import COUNTS, drop, keep_counts, truncate
from acid_platform.gateway.protocol import USER, load
from acid_platform.layout.names import table_name
from acid_platform.layout.table_properties import FILE_FORMAT, TRANSACTIONAL
from acid_platform.layout.types import DECLARED_ONLY, Column, Constraint, ConstraintKind, parse_type
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import OwnerKind, TableRecord
from acid_platform.storage.durability import make_root
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import Declaration, change_column, widened
from acid_platform.tables.locations import confine, create


class ConstraintForm(NamedTuple):
    """How the protocol tells of the constraints of a kind."""

    listed: str
    """The field with all of them, in answers and in the request for a new table."""
    name: str
    """The field with the name of one."""
    text: str = ""
    """The field with its expression, if it has one."""

    @property
    def struct(self) -> str:
        """One of them; a key has one for each of its columns."""
        return f"SQL{self.answer.removesuffix('sResponse')}"

    @property
    def answer(self) -> str:
        """The struct that answers for this kind alone."""
        return f"{self.listed[0].upper()}{self.listed[1:]}Response"


_FORMS = {
    ConstraintKind.PRIMARY_KEY: ConstraintForm("primaryKeys", "pk_name"),
    ConstraintKind.UNIQUE: ConstraintForm("uniqueConstraints", "uk_name"),
    ConstraintKind.FOREIGN_KEY: ConstraintForm("foreignKeys", "fk_name"),
    ConstraintKind.NOT_NULL: ConstraintForm("notNullConstraints", "nn_name"),
    ConstraintKind.DEFAULT: ConstraintForm("defaultConstraints", "dc_name", "default_value"),
    ConstraintKind.CHECK: ConstraintForm("checkConstraints", "dc_name", "check_expression"),
}


def of_kind(kind: ConstraintKind) -> Callable[[ConstraintCalls, Any], Any]:
    """The call that asks for the constraints of this kind of a table."""

    def method(self: ConstraintCalls, request: Any) -> Any:
        return _answer(kind, self._listed(request.db_name, request.tbl_name, kind))

    return method


class ConstraintCalls(CallHandler):
    def _listed(self, database: str, name: str, kind: ConstraintKind) -> list[Any]:
        """Empty for a view too, of which Hive asks as of a table."""
        with suppress(NoSuchTable):
            return [*_shapes(self._record(database, name), kind)]
        return []

    def get_foreign_keys(self, request: Any) -> Any:
        """Those of a table, of the tables that refer to another, or of one that refer to it."""
        names = [table.name for table in self._metastore.tables()]
        if request.foreign_tbl_name:
            names = [table_name(f"{request.foreign_db_name}.{request.foreign_tbl_name}")]
        listed = [
            key
            for name in names
            for key in self._listed(*protocol.split(name), ConstraintKind.FOREIGN_KEY)
            if not request.parent_tbl_name
            or (key.pktable_db, key.pktable_name)
            == ((request.parent_db_name or "").lower(), request.parent_tbl_name.lower())
        ]
        return _answer(ConstraintKind.FOREIGN_KEY, listed)

    def get_all_table_constraints(self, request: Any) -> Any:
        m, name = load(), (request.dbName, request.tblName)
        listed = {form.listed: self._listed(*name, kind) for kind, form in _FORMS.items()}
        return m.AllTableConstraintsResponse(allTableConstraints=m.SQLAllTableConstraints(**listed))


def _answer(kind: ConstraintKind, listed: list[Any]) -> Any:
    form = _FORMS[kind]
    return getattr(load(), form.answer)(**{form.listed: listed})


def _shapes(record: TableRecord, kind: ConstraintKind) -> Iterator[Any]:
    """The table's constraints of a kind in the protocol's form: one for each column of a key."""
    form, is_key = _FORMS[kind], kind in DECLARED_ONLY
    database, name = protocol.split(record.name)
    for constraint in record.constraints:
        if constraint.kind is not kind:
            continue
        for index, column in enumerate(constraint.columns if is_key else constraint.columns[:1]):
            fields = {
                form.name: constraint.name,
                "enable_cstr": constraint.enabled,
                "validate_cstr": constraint.enabled,
                "rely_cstr": constraint.enabled or constraint.rely,
                "catName": protocol.CATALOG,
            }
            if is_key:
                fields["key_seq"] = index + 1
            if form.text:
                fields[form.text] = constraint.text
            if kind is ConstraintKind.FOREIGN_KEY:
                parent_database, parent = protocol.split(constraint.parent)
                fields |= {
                    "pktable_db": parent_database,
                    "pktable_name": parent,
                    "pkcolumn_name": constraint.parent_columns[index],
                    "pk_name": "",
                    "fktable_db": database,
                    "fktable_name": name,
                    "fkcolumn_name": column,
                    "update_rule": 0,
                    "delete_rule": 0,
                }
            else:
                fields |= {"table_db": database, "table_name": name, "column_name": column}
            yield getattr(load(), form.struct)(**fields)


def constraints_of(request: Any) -> list[Constraint]:
    """The constraints of the protocol's request for a new table."""
    constraints: list[Constraint] = []
    for kind, form in _FORMS.items():
        listed = getattr(request, form.listed) or ()
        if kind not in DECLARED_ONLY:
            constraints += [_declared(kind, [entry]) for entry in listed]
            continue
        by_name: dict[str, list[Any]] = {}
        for entry in listed:
            by_name.setdefault(getattr(entry, form.name) or "", []).append(entry)
        for columns in by_name.values():
            columns.sort(key=lambda column: int(column.key_seq or 0))
            constraints.append(_declared(kind, columns))
    return constraints


def _declared(kind: ConstraintKind, listed: Sequence[Any]) -> Constraint:
    """A constraint; `listed`: for each column of a key, in their order."""
    form, first = _FORMS[kind], listed[0]
    is_foreign = kind is ConstraintKind.FOREIGN_KEY
    columns = [entry.fkcolumn_name if is_foreign else entry.column_name for entry in listed]
    return Constraint(
        getattr(first, form.name) or "",
        kind,
        () if kind is ConstraintKind.CHECK else tuple(column.lower() for column in columns),
        getattr(first, form.text) if form.text else "",
        bool(first.enable_cstr),
        bool(first.rely_cstr),
        table_name(f"{first.pktable_db}.{first.pktable_name}") if is_foreign else "",
        tuple(entry.pkcolumn_name.lower() for entry in listed) if is_foreign else (),
    )


_SET_BY_ENGINES = (
    "transient_lastDdlTime last_modified_by last_modified_time numFilesErasureCoded numPartitions"
    " COLUMN_STATS_ACCURATE STATS_GENERATED_VIA_STATS_TASK DO_NOT_UPDATE_STATS auto.purge"
    " trino_version trino_query_id presto_version presto_query_id"
)
_OF_ENGINES = {protocol.VERSION, *COUNTS, *_SET_BY_ENGINES.split()}
"""Parameters that engines set by themselves and that are no properties: counts, see `statistics`,
and their own versions."""


class DefinitionCalls(CallHandler):
    """Changing declarations."""

    # --- databases ------------------------------------------------------------------------------

    def create_database(self, database: Any) -> None:
        """Raises TableExists, InvalidDefinition, UnsupportedStatement."""
        name = database.name.lower()
        usual = self._require_usual(name, database.locationUri)
        comment, properties = database.description or "", own_parameters(database.parameters)
        self._metastore.call(
            ops.DeclareDatabase(name, False, comment, properties, *_owner(database))
        )
        make_root(*Files.of(usual))  # Trino makes no table in a database without a directory

    def create_database_req(self, request: Any) -> None:
        """Raises what `create_database` raises."""
        if request.dataConnectorName or request.remote_dbname:
            raise UnsupportedStatement(
                f"database {request.databaseName} can't stand for one elsewhere"
            )
        self._require_usual(request.databaseName.lower(), request.managedLocationUri)
        database = load().Database(
            name=request.databaseName,
            description=request.description,
            locationUri=request.locationUri,
            parameters=request.parameters,
            ownerName=request.ownerName,
            ownerType=request.ownerType,
        )
        self.create_database(database)

    def alter_database(self, name: str, new: Any) -> None:
        """Changes the comment, the parameters and the owner to those of `new`, which has all.

        Raises NoSuchTable, InvalidDefinition, UnsupportedStatement.
        """
        record = self._metastore.call(ops.GetDatabase(name))
        if new.name and new.name.lower() != record.name:
            raise UnsupportedStatement(f"database {record.name} can't be renamed to {new.name}")
        self._require_usual(record.name, new.locationUri)
        properties = own_parameters(new.parameters)
        removed = dict.fromkeys({*record.properties} - {*properties})
        changed: dict[str, str | None] = {**properties, **removed}
        owner, kind = _owner(new)
        change = ops.AlterDatabase(record.name, new.description or "", changed, owner or None, kind)
        self._metastore.call(change)

    def _require_usual(self, database: str, location: str | None) -> str:
        """The directory of a database, which `location` must name if it is given.

        Raises UnsupportedStatement.
        """
        root = self._metastore.places.root
        usual = f"{root}/{database}.db"
        if location and protocol.path(location) != protocol.path(usual):
            raise UnsupportedStatement(
                f"database {database} can't have the location {location}, only {usual}; in Hive,"
                " set hive.metastore.warehouse.dir and hive.metastore.warehouse.external.dir to"
                f" {as_uri(root)}"
            )
        return usual

    def drop_database(self, name: str, _delete: bool, cascade: bool) -> None:
        database = name.lower()
        if cascade:
            for record in self._metastore.tables():
                if protocol.split(record.name)[0] == database:
                    drop(self._metastore, record.name, None, self._caller.txns)
            for view in self._metastore.views():
                if protocol.split(view.name)[0] == database:
                    self._metastore.call(ops.DropView(view.name))
        self._metastore.call(ops.RemoveDatabase(database))

    def drop_database_req(self, request: Any) -> None:
        try:
            self.drop_database(request.name, request.deleteData, request.cascade)
        except NoSuchTable:
            if not request.ignoreUnknownDb:
                raise

    # --- tables ---------------------------------------------------------------------------------

    def create_table(self, new: Any, constraints: Sequence[Constraint] = ()) -> None:
        """Raises TableExists, InvalidDefinition, UnsupportedStatement."""
        name = table_name(f"{new.dbName}.{new.tableName}")
        if name.partition(".")[0] not in self._metastore.databases():
            raise NoSuchTable(f"there is no database {new.dbName}")
        parameters = own_parameters(new.parameters)
        _require_table(name, new, parameters)
        declared = Declaration.of(
            name,
            columns_of(new.sd),
            [f"{key.name} {key.type}" for key in new.partitionKeys or ()],
            clustering_of(new.sd),
            {**parameters, **format_property(name, new.sd, parameters)},
            comments=comments_of(new),
            constraints=constraints,
        )
        location = self._location(name, new.sd.location)
        protocol.storage_of(declared.record(name, ""))
        create(self._metastore, name, declared, location)

    def _location(self, name: str, location: str | None) -> str | None:
        """The location to ask for; None for the usual one. Raises InvalidDefinition for one where
        no client may make a table (P49)."""
        database, short = protocol.split(name)
        usual = f"{self._metastore.places.root}/{database}.db/{short}"
        if not location or protocol.path(location) == protocol.path(usual):
            return None
        where = protocol.path(location)
        confine(self._metastore, name, where, self._locations, LOCATIONS)
        return where

    def create_table_req(self, request: Any) -> None:
        """As `create_table`, with the request's constraints."""
        self.create_table(request.table, constraints_of(request))

    def drop_table(self, database: str, name: str, delete: bool | None) -> None:
        """Drops a table, under the lock that the client may hold, or a view."""
        full = table_name(f"{database}.{name}")
        if any(view.name == full for view in self._metastore.views()):
            self._metastore.call(ops.DropView(full))
            return
        self._metastore.table(full)
        if delete is False:
            raise UnsupportedStatement(f"{full}: a table can't be dropped without its files")
        drop(self._metastore, full, None, self._caller.txns)

    def truncate_table_req(self, request: Any) -> Any:
        """Empties a table, or partitions of it, in a transaction of this connection."""
        name = table_name(f"{request.dbName}.{request.tableName}")
        write_id, mine = request.writeId or 0, self._caller.txns
        truncate(self._metastore, name, request.partNames, write_id, mine)
        return load().TruncateTableResponse()

    def _refuse_rename(
        self, record: TableRecord, columns: Sequence[tuple[str, str]] | None
    ) -> None:
        """Raises UnsupportedStatement for a new name of a column of files, also of deleted rows."""
        gone = [name for name, _ in record.columns if columns and name not in dict(columns)]
        if gone and any(entity.directories for entity in self._metastore.entities(record.name)):
            raise UnsupportedStatement(
                f"{record.name}: its files find {gone[0]} by its name, and every reader would read"
                " NULL under another one; rename or drop it by ALTER TABLE … RENAME COLUMN or DROP"
                " COLUMN of this platform, which writes the files again, or CREATE VIEW"
            )

    def truncate_table(self, database: str, name: str, partitions: Sequence[str] | None) -> None:
        """Raises UnsupportedStatement: without a write id it would be no transaction."""
        full, mine = table_name(f"{database}.{name}"), self._caller.txns
        truncate(self._metastore, full, partitions, 0, mine)

    def alter_table(self, database: str, name: str, new: Any) -> None:
        """Changes columns, properties and the name, and keeps the counts.

        The client sends the whole table as it wants it, so it must have seen the present one.
        Raises DeclarationChanged, InvalidDefinition, UnsupportedStatement.
        """
        record = self._record(database, name)
        renamed = table_name(f"{new.dbName}.{new.tableName}")
        columns = _changed_columns(record, new)
        self._refuse_rename(record, columns)
        comments = comments_of(new)
        properties = _changed_properties(record, new.parameters or {})
        keep_counts(record, None, new.parameters or {})
        same_columns = columns is None and comments == record.comments
        if renamed == record.name and same_columns and not properties:
            return
        version = (new.parameters or {}).get(protocol.VERSION)
        if version not in (None, protocol.version_of(record)):
            raise DeclarationChanged(f"{record.name} was altered since it was read; read it again")
        self._metastore.alter_table(
            record.name,
            columns,
            properties or None,
            renamed if renamed != record.name else None,
            record,
            comments,
        )

    def alter_table_req(self, request: Any) -> Any:
        """As `alter_table`; with a write id, the engine has written all its files too (P47)."""
        self.alter_table(request.dbName, request.tableName, request.table)
        if request.writeId and request.writeId > 0:
            now = request.table  # it may have a new name
            name = f"{now.dbName}.{now.tableName}"
            own = self._guard.own(self._caller)
            txns = None if own is None else tuple(own)
            self._metastore.call(ops.FinishWrite(name, request.writeId, txns))
        return load().AlterTableResponse()


def own_parameters(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """Those that are properties, and not set by an engine of its own accord."""
    return {name: text for name, text in (parameters or {}).items() if name not in _OF_ENGINES}


def columns_of(descriptor: Any) -> tuple[Column, ...]:
    return tuple(Column(column.name.lower(), parse_type(column.type)) for column in descriptor.cols)


def clustering_of(descriptor: Any) -> tuple[Sequence[str], int] | None:
    """The bucket columns and the number of buckets."""
    return (descriptor.bucketCols, descriptor.numBuckets) if descriptor.bucketCols else None


def comments_of(declared: Any) -> dict[str, str]:
    """The comments of the columns of the protocol's table, by their names."""
    columns = (*declared.sd.cols, *(declared.partitionKeys or ()))
    return {column.name.lower(): column.comment for column in columns if column.comment}


def _owner(database: Any) -> tuple[str, OwnerKind]:
    """The owner, empty if none is named. Raises UnsupportedStatement for a group."""
    kinds = {number: kind for kind, number in protocol.OWNER_KINDS.items()}
    kind = kinds.get(database.ownerType or USER)
    if kind is None:
        raise UnsupportedStatement(
            f"database {database.name} can't be owned by a group; name a user or a role"
        )
    return database.ownerName or "", kind


def _require_table(name: str, new: Any, parameters: Mapping[str, str]) -> None:
    """Raises UnsupportedStatement for what is not a transactional table that can be kept whole."""
    if new.tableType == VIEW:
        raise UnsupportedStatement(f"{name}: make views with `acid sql`")
    external = parameters.get("EXTERNAL", "").lower() == "true"
    if external or parameters.get(TRANSACTIONAL.name, "").lower() != "true":
        raise UnsupportedStatement(
            f"{name}: every table here is managed and transactional; in Trino, say WITH"
            f" (transactional = true), in Hive TBLPROPERTIES ('{TRANSACTIONAL.name}' = 'true')"
        )
    if new.sd.sortCols:
        raise UnsupportedStatement(f"{name}: SORTED BY is not kept")


def format_property(name: str, descriptor: Any, parameters: Mapping[str, str]) -> dict[str, str]:
    """The property that says the file format. Raises UnsupportedStatement."""
    serde = descriptor.serdeInfo.serializationLib if descriptor.serdeInfo else None
    formats = {storage.serde: format_ for format_, storage in protocol.STORAGE.items()}
    if serde not in formats:
        raise UnsupportedStatement(f"{name}: files of {serde} are not written here; use ORC")
    return {FILE_FORMAT.name: formats[serde]} if FILE_FORMAT.name not in parameters else {}


def _changed_columns(record: TableRecord, new: Any) -> Sequence[tuple[str, str]] | None:
    """The new columns, or None if they stay. Raises InvalidDefinition, UnknownColumn,
    UnsupportedStatement."""
    fixed: tuple[tuple[str, object, object], ...] = (
        (
            "location",
            protocol.path(new.sd.location or record.location),
            protocol.path(record.location),
        ),
        ("partition columns", _pairs(new.partitionKeys or ()), record.partition_columns),
        ("bucket columns", tuple(new.sd.bucketCols or ()), record.bucket_columns),
        ("SerDe", new.sd.serdeInfo.serializationLib, protocol.storage_of(record).serde),
    )
    for what, requested, present in fixed:
        if requested != present:
            raise UnsupportedStatement(
                f"{record.name}: its {what} can't be changed from {present} to {requested}"
            )
    columns, old_columns = _pairs(new.sd.cols), record.columns
    if columns == old_columns:
        return None
    if columns[: len(old_columns)] == old_columns:
        added = ", ".join(f"{column} {kind}" for column, kind in columns[len(old_columns) :])
        return widened(record, added).columns
    changed = [pair for pair in zip(old_columns, columns, strict=False) if pair[0] != pair[1]]
    if len(columns) != len(old_columns) or len(changed) != 1:
        raise UnsupportedStatement(
            f"{record.name}: columns can be added at the end, or one be renamed or widened; asked"
            f" for {list(columns)}"
        )
    (((old, _), (column, kind)),) = changed
    return change_column(record, old, Column(column, parse_type(kind)), None).columns


def _pairs(columns: Sequence[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((column.name.lower(), column.type) for column in columns)


def _changed_properties(
    record: TableRecord, parameters: Mapping[str, str]
) -> dict[str, str | None]:
    """What the client set or removed."""
    shown, sent = own_parameters(protocol.parameters_of(record)), own_parameters(parameters)
    changed = {name: text for name, text in sent.items() if shown.get(name) != text}
    removed = sorted({*record.properties} - {*sent} - _OF_ENGINES)
    return {**changed, **dict.fromkeys(removed)}
