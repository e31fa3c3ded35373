"""Running statements that declare databases, tables, views and partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from acid_platform.errors import (
    InvalidDefinition,
    NoSuchPartition,
    NoSuchTable,
    TableExists,
    UnsupportedStatement,
)
from acid_platform.metastore.operations.history import PlaceTag
from acid_platform.metastore.operations.tables import (
    DeclareView,
    DropView,
    RegisterPartitions,
    RemoveDatabase,
)
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import ViewRecord
from acid_platform.sql import run_queries
from acid_platform.sql.answers import Done
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.partition_specs import matching, whole_name
from acid_platform.sql.statements import (
    AddColumns,
    AddPartitions,
    ChangeColumn,
    CreateDatabase,
    CreateTable,
    CreateTag,
    CreateView,
    Definition,
    DropDatabase,
    DropPartitions,
    DropTable,
    DropTag,
    RenameTable,
    RollBack,
    SetProperties,
)
from acid_platform.sql.text import Query
from acid_platform.sql.views import columns_read, named, self_contained, tables_read

if TYPE_CHECKING:
    from acid_platform.engine.results import Result
    from acid_platform.handles.warehouse import Warehouse


def define(warehouse: Warehouse, catalog: Catalog, statement: Definition) -> Done:
    """Runs the statement.

    Raises TableExists, NoSuchTable, NoSuchPartition, InvalidDefinition, UnsupportedStatement,
    LockTimeout.
    """
    metastore = warehouse.metastore
    match statement:
        case CreateDatabase():
            metastore.create_database(statement.name, statement.if_not_exists)
        case DropDatabase():
            _drop_database(warehouse, catalog, statement)
        case CreateTable():
            return _create_table(warehouse, catalog, statement)
        case CreateView():
            _create_view(warehouse, catalog, statement)
        case DropTable():
            _drop_table(warehouse, catalog, statement)
        case AddColumns():
            warehouse.table(catalog.target(statement.table).name).add_columns(statement.columns)
        case ChangeColumn():
            table = warehouse.table(catalog.target(statement.table).name)
            table.change_column(statement.old, statement.column, statement.after)
        case RenameTable():
            warehouse.table(catalog.target(statement.table).name).rename(catalog.full(statement.to))
        case AddPartitions():
            _add_partitions(warehouse, catalog, statement)
        case DropPartitions():
            _drop_partitions(warehouse, catalog, statement)
        case SetProperties():
            record = catalog.target(statement.table)
            metastore.alter_table(record.name, properties=statement.properties)
        case RollBack():
            table = warehouse.table(catalog.target(statement.table).name)
            rows = table.rollback_to(statement.as_of)
            return Done.changed(_NAMES[RollBack], rows)
        case CreateTag():
            _create_tag(warehouse, catalog, statement)
        case DropTag():
            table = warehouse.table(catalog.target(statement.table).name)
            if not statement.if_exists or statement.name in {tag.name for tag in table.tags()}:
                table.drop_tag(statement.name)
    return Done(_NAMES[type(statement)])


_NAMES: dict[type, str] = {
    CreateDatabase: "CREATE DATABASE",
    DropDatabase: "DROP DATABASE",
    CreateTable: "CREATE TABLE",
    CreateView: "CREATE VIEW",
    DropTable: "DROP TABLE",
    AddColumns: "ALTER TABLE ADD COLUMNS",
    ChangeColumn: "ALTER TABLE CHANGE",
    RenameTable: "ALTER TABLE RENAME",
    AddPartitions: "ALTER TABLE ADD PARTITION",
    DropPartitions: "ALTER TABLE DROP PARTITION",
    SetProperties: "ALTER TABLE SET TBLPROPERTIES",
    RollBack: "ALTER TABLE ROLLBACK",
    CreateTag: "ALTER TABLE CREATE TAG",
    DropTag: "ALTER TABLE DROP TAG",
}


def _create_tag(warehouse: Warehouse, catalog: Catalog, statement: CreateTag) -> None:
    name = catalog.target(statement.table).name
    kept = timedelta(days=statement.days)
    expires = AsOf.of(datetime.now(UTC) + kept).time if statement.days else 0
    warehouse.metastore.call(
        PlaceTag(
            name,
            statement.name,
            as_of=statement.as_of,
            expires=expires or 0,
            user=warehouse.info().user,
        )
    )


def name_of(statement: Definition) -> str:
    """The name of the statement, for messages."""
    return _NAMES[type(statement)]


def _drop_database(warehouse: Warehouse, catalog: Catalog, statement: DropDatabase) -> None:
    metastore = warehouse.metastore
    if statement.if_exists and statement.name not in metastore.databases():
        return
    catalog.require_database(statement.name)
    if statement.cascade and statement.name != "default":
        inside = f"{statement.name}."
        for view in catalog.views:
            if view.startswith(inside):
                metastore.call(DropView(view))
        for table in warehouse.tables():
            if table.startswith(inside):
                metastore.drop_table(table)
    metastore.call(RemoveDatabase(statement.name))


def _create_table(warehouse: Warehouse, catalog: Catalog, statement: CreateTable) -> Done:
    full = catalog.full(statement.name)
    catalog.require_database(full.partition(".")[0])
    if statement.query is not None:
        return _create_from_query(warehouse, catalog, statement, full)
    untyped = [key for key in statement.keys if " " not in key]
    if untyped:
        raise InvalidDefinition(f"{full}: partition column {untyped[0]} needs a type")
    warehouse.create_table(
        full,
        statement.columns,
        statement.keys,
        statement.clustered_by,
        statement.properties,
        statement.if_not_exists,
        statement.location,
    )
    return Done("CREATE TABLE")


def _create_from_query(
    warehouse: Warehouse, catalog: Catalog, statement: CreateTable, full: str
) -> Done:
    """Creates the table empty, then inserts its rows at once; if that fails, drops the table."""
    if full in warehouse.tables():
        if statement.if_not_exists:
            return Done("CREATE TABLE")
        raise TableExists(f"table {full} already exists; use IF NOT EXISTS, or another name")
    assert statement.query is not None
    result = _run(warehouse, catalog, statement.query)
    by_name = {column.name: column for column in result.declared()}
    if len(by_name) < len(result.columns):
        raise InvalidDefinition(
            f"{full}: two columns of the query have the same name; rename one with AS"
        )
    keys = []
    for key in statement.keys:
        name = key.split(" ")[0].strip("`").lower()
        if name not in by_name:
            raise InvalidDefinition(f"{full}: the query has no column {name!r} to partition by")
        keys.append(str(by_name.pop(name)) if " " not in key else key)
    if not by_name:
        raise InvalidDefinition(f"{full}: every column of the query is a partition column")
    columns = ", ".join(f"`{column.name}` {column.type}" for column in by_name.values())
    table = warehouse.create_table(
        full,
        columns,
        keys,
        statement.clustered_by,
        statement.properties,
        location=statement.location,
    )
    try:
        rows = table.insert(result)
    except BaseException:
        warehouse.drop_table(table.name)
        raise
    return Done.changed("CREATE TABLE", rows)


def _run(warehouse: Warehouse, catalog: Catalog, query: Query) -> Result:
    """The query's rows at a fresh snapshot, with the declarations of that snapshot (P28)."""
    with warehouse.leases.lasting(*run_queries.tables_of(catalog, query)) as view:
        seen = Catalog(warehouse.metastore, catalog.current_database, view)
        return run_queries.run(warehouse, seen, query, view.scans)


def _create_view(warehouse: Warehouse, catalog: Catalog, statement: CreateView) -> None:
    full = catalog.full(statement.name)
    catalog.require_database(full.partition(".")[0])
    if statement.if_not_exists and full in catalog.views:
        return
    query = self_contained(statement.query, catalog.current_database, catalog.declared)
    tables_read(query, catalog.current_database, catalog.view_query, (full,))
    result = _run(warehouse, catalog, query)
    columns = result.declared()
    names = statement.columns or tuple(column.name for column in columns)
    if len(names) != len(columns):
        raise InvalidDefinition(
            f"view {full} names {len(names)} columns, but its query has {len(columns)}"
        )
    if len(set(names)) < len(names):
        raise InvalidDefinition(f"view {full}: two columns have the same name; rename one with AS")
    warehouse.metastore.call(
        DeclareView(
            ViewRecord(
                full,
                query.text if list(names) == result.columns else named(query, names),
                tuple(
                    (name, str(column.type)) for name, column in zip(names, columns, strict=True)
                ),
                reads=columns_read(query, catalog.declared),
            ),
            statement.if_not_exists,
            statement.or_replace,
        )
    )


def _drop_table(warehouse: Warehouse, catalog: Catalog, statement: DropTable) -> None:
    full = catalog.full(statement.name)
    is_view = full in catalog.views
    if statement.view:
        if is_view:
            warehouse.metastore.call(DropView(full))
        elif full in warehouse.tables():
            raise UnsupportedStatement(f"{full} is a table; use DROP TABLE {full}")
        elif not statement.if_exists:
            raise NoSuchTable(f"there is no view {full}; SHOW TABLES lists tables and views")
    elif is_view:
        raise UnsupportedStatement(f"{full} is a view; use DROP VIEW {full}")
    elif not statement.if_exists or full in warehouse.tables():
        warehouse.drop_table(catalog.record(full).name)


def _add_partitions(warehouse: Warehouse, catalog: Catalog, statement: AddPartitions) -> None:
    record = catalog.target(statement.table)
    names = [whole_name(spec, record) for spec in statement.partitions]
    if not statement.if_not_exists:
        existing = sorted(set(names) & set(warehouse.metastore.partitions(record.name)))
        if existing:
            raise TableExists(
                f"{record.name} already has partition {existing[0]}; use ADD IF NOT EXISTS"
            )
    warehouse.metastore.call(RegisterPartitions(record.name, tuple(names)))


def _drop_partitions(warehouse: Warehouse, catalog: Catalog, statement: DropPartitions) -> None:
    record = catalog.target(statement.table)
    names: dict[str, None] = {}
    for spec in statement.partitions:
        try:
            names.update(dict.fromkeys(matching(warehouse.metastore, record, spec)))
        except NoSuchPartition:
            if not statement.if_exists:
                raise
    for name in names:
        warehouse.metastore.drop_partition(record.name, name)
