"""Running statements that declare databases, tables and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from acid_platform.errors import (
    InvalidDefinition,
    NoSuchTable,
    TableExists,
    UnsupportedStatement,
)
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.table_properties import (
    CODEC,
    COMMENT,
    FILE_FORMAT,
    LAYOUT,
    TRANSACTIONAL_KIND,
    registered,
)
from acid_platform.layout.types import parse_columns
from acid_platform.metastore.operations.tables import (
    AlterDatabase,
    DeclareView,
    DropView,
    RemoveDatabase,
)
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import OwnerKind, ViewRecord
from acid_platform.sql import run_queries
from acid_platform.sql.answers import Done
from acid_platform.sql.catalog import Catalog, columns_read, named, self_contained, tables_read
from acid_platform.sql.column_lists import constraint_of
from acid_platform.sql.declarations import STORED_AS
from acid_platform.sql.sql_session import create_temporary
from acid_platform.sql.statements import (
    ALTER,
    COMMENTED,
    LABEL,
    NAME,
    ONE,
    TABLE,
    TEXT,
    CommandRun,
    Commands,
    CreateTable,
    CreateView,
)
from acid_platform.sql.text import Query
from acid_platform.tables.declaration import Declaration

if TYPE_CHECKING:
    from acid_platform.engine.interface import Result
    from acid_platform.handles.table import Table
    from acid_platform.handles.transaction import Transaction


DEFINITIONS = Commands(alone=True)


# --- databases ------------------------------------------------------------------------------------


@DEFINITIONS(
    "CREATE DATABASE",
    rf"create (?:database|schema) (?P<if_not_exists>if not exists )?(?P<database>{ONE})"
    rf"(?: comment (?P<comment>{TEXT}))?(?: with dbproperties ?\((?P<properties>.+)\))?",
)
def create_database(
    run: CommandRun,
    database: str,
    if_not_exists: bool = False,
    comment: str = "",
    properties: Mapping[str, str] | None = None,
) -> None:
    run.metastore.create_database(database, if_not_exists, comment, properties)


@DEFINITIONS(
    "ALTER DATABASE SET DBPROPERTIES",
    rf"alter (?:database|schema) (?P<database>{ONE})"
    r" set dbproperties ?\((?P<properties>.+)\)",
)
def set_database_properties(run: CommandRun, database: str, properties: Mapping[str, str]) -> None:
    """The other properties stay, as in Hive."""
    run.catalog.require_database(database)
    run.metastore.call(AlterDatabase(database, properties=dict(properties)))


@DEFINITIONS(
    "ALTER DATABASE SET OWNER",
    rf"alter (?:database|schema) (?P<database>{ONE})"
    rf" set owner (?P<owner_kind>user|role) (?P<owner>{LABEL})",
)
def set_database_owner(run: CommandRun, database: str, owner_kind: OwnerKind, owner: str) -> None:
    run.catalog.require_database(database)
    change = AlterDatabase(database, owner=owner, owner_kind=owner_kind)
    run.metastore.call(change)


@DEFINITIONS(
    "DROP DATABASE",
    rf"drop (?:database|schema) (?P<if_exists>if exists )?(?P<database>{ONE})"
    r"(?: (?:restrict|(?P<cascade>cascade)))?",
)
def drop_database(
    run: CommandRun,
    database: str,
    if_exists: bool = False,
    cascade: bool = False,
) -> None:
    warehouse, metastore = run.warehouse, run.metastore
    if if_exists and database not in metastore.databases():
        return
    run.catalog.require_database(database)
    if cascade and database != "default":
        inside = f"{database}."
        for view in (*run.catalog.views, *run.catalog.externals):
            if view.startswith(inside):
                metastore.call(DropView(view))
        for table in warehouse.tables():
            if table.startswith(inside):
                metastore.drop(table)
    metastore.call(RemoveDatabase(database))


@DEFINITIONS(
    "COMMENT ON DATABASE",
    rf"comment on (?:database|schema|namespace) (?P<database>{ONE}) is {COMMENTED}",
)
def comment_database(run: CommandRun, database: str, comment: str = "") -> None:
    run.catalog.require_database(database)
    run.metastore.call(AlterDatabase(database, comment=comment))


# --- tables ---------------------------------------------------------------------------------------


@DEFINITIONS("COMMENT ON TABLE", rf"comment on (?:table|view) {TABLE} is {COMMENTED}")
def comment_table(run: CommandRun, table: str, comment: str = "") -> None:
    """Also of a view."""
    full = run.catalog.full(table)
    other = run.catalog.views.get(full)
    if other is None:
        name = run.catalog.target(table).name
        run.metastore.alter_table(name, properties={COMMENT: comment or None})
        return
    rest = {name: text for name, text in other.properties.items() if name != COMMENT}
    commented = replace(other, properties={**rest, **({COMMENT: comment} if comment else {})})
    if full in run.catalog.temporary:
        run.session.temporary.declared[full] = commented
    else:
        run.metastore.call(DeclareView(commented, False, True, read=other.version))


@DEFINITIONS("ALTER TABLE ADD CONSTRAINT", rf"{ALTER} add (?P<constraint>constraint {ONE} .+)")
def add_constraint(run: CommandRun, table: str, constraint: str) -> None:
    parsed = run.in_database(constraint_of(constraint))
    run.handle(table).add_constraint(parsed)


@DEFINITIONS("ALTER TABLE DROP CONSTRAINT", rf"{ALTER} drop constraint (?P<constraint>{ONE})")
def drop_constraint(run: CommandRun, table: str, constraint: str) -> None:
    run.handle(table).drop_constraint(constraint.strip("`"))


@DEFINITIONS("ALTER TABLE RENAME", rf"{ALTER} rename to (?P<to>{NAME})")
def rename_table(run: CommandRun, table: str, to: str) -> None:
    run.handle(table).rename(run.catalog.stored(to))


@DEFINITIONS("ALTER TABLE SET TBLPROPERTIES", rf"{ALTER} set tblproperties ?\((?P<properties>.+)\)")
def set_properties(run: CommandRun, table: str, properties: Mapping[str, str]) -> None:
    """With `transactional_properties=default` an insert-only table is converted first; with another
    `acid.format` the files of one with full ACID are written again."""
    record = run.catalog.target(table)
    stored = properties.get(FILE_FORMAT.name)
    if stored is not None and not is_insert_only(record.properties):
        run.handle(table).store_as(stored)
        properties = {name: properties[name] for name in properties if name != FILE_FORMAT.name}
        if not properties:
            return
    kind = properties.get(TRANSACTIONAL_KIND.name, "")
    if kind.lower() == "default" and is_insert_only(record.properties):
        convert_to_acid(run, table)
        rest = {name: properties[name] for name in properties if name != TRANSACTIONAL_KIND.name}
        if not rest:
            return
        properties = rest
    run.metastore.alter_table(record.name, properties=properties)


@DEFINITIONS("ALTER TABLE SET FILEFORMAT", rf"{ALTER} set fileformat (?P<to>\w+)")
def set_format(run: CommandRun, table: str, to: str) -> None:
    run.handle(table).store_as(STORED_AS.get(to.lower(), to))


@DEFINITIONS("ALTER TABLE CONVERT TO ACID", rf"{ALTER} convert to acid")
def convert_to_acid(run: CommandRun, table: str) -> None:
    run.handle(table).convert_to_acid()


@DEFINITIONS(
    "ALTER TABLE UNSET TBLPROPERTIES",
    rf"{ALTER} unset tblproperties(?: (?P<if_exists>if exists))? ?\((?P<keys>.+)\)",
)
def unset_properties(
    run: CommandRun,
    table: str,
    keys: Sequence[str],
    if_exists: bool = False,
) -> None:
    """Raises InvalidDefinition for a property that the table does not have."""
    record = run.catalog.target(table)
    missing = [key for key in keys if key not in record.properties]
    if missing and not if_exists:
        raise InvalidDefinition(
            f"{record.name} has no property {missing[0]!r}; SHOW TBLPROPERTIES {record.name} lists"
            " them, or use IF EXISTS"
        )
    run.metastore.alter_table(record.name, properties=dict.fromkeys(keys))


@DEFINITIONS("DROP TABLE", rf"drop table (?P<if_exists>if exists )?{TABLE}(?P<purge> purge)?")
def drop_table(run: CommandRun, table: str, if_exists: bool = False, purge: str = "") -> None:
    full = run.catalog.full(table)
    if full in run.catalog.views:
        raise UnsupportedStatement(f"{full} is a view; use DROP VIEW {full}")
    if full in run.catalog.temporary:
        run.session.temporary.drop(full)
        return
    if full in run.catalog.externals:
        run.metastore.call(DropView(full))  # its files stay
        return
    if not if_exists or full in run.warehouse.tables():
        run.warehouse.drop_table(run.catalog.record(full).name, purge=bool(purge))


@DEFINITIONS("UNDROP TABLE", rf"undrop table {TABLE}(?: as (?P<to>{NAME}))?")
def undrop_table(run: CommandRun, table: str, to: str | None = None) -> None:
    other = None if to is None else run.catalog.full(to)
    run.warehouse.undrop(run.catalog.full(table), other)


@DEFINITIONS("DROP VIEW", rf"drop view (?P<if_exists>if exists )?{TABLE}(?: purge)?")
def drop_view(run: CommandRun, table: str, if_exists: bool = False) -> None:
    full = run.catalog.full(table)
    if full in run.catalog.views and full in run.catalog.temporary:
        run.session.temporary.drop(full)
    elif full in run.catalog.views:
        run.metastore.call(DropView(full))
    elif full in run.warehouse.tables() or full in run.catalog.externals:
        raise UnsupportedStatement(f"{full} is a table; use DROP TABLE {full}")
    elif not if_exists:
        raise NoSuchTable(f"there is no view {full}; SHOW TABLES lists tables and views")


# --- the past -------------------------------------------------------------------------------------


def _as_of(version: int | None, time: datetime | None, label: str | None) -> AsOf | None:
    """The snapshot that a write id, a time or a tag names; None without them."""
    if version is not None:
        return AsOf(write_id=version)
    if time is not None:
        return AsOf.of(time)
    return None if label is None else AsOf(tag=label)


@DEFINITIONS(
    "ALTER TABLE ROLLBACK",
    rf"{ALTER} rollback to (?:version )?(?:(?P<version>\d+)|timestamp '(?P<time>[^']*)'"
    rf"|(?:tag )?(?P<label>{LABEL}))",
)
def roll_back(
    run: CommandRun,
    table: str,
    version: int | None = None,
    time: datetime | None = None,
    label: str | None = None,
) -> Done:
    as_of = _as_of(version, time, label)
    assert as_of is not None
    rows = run.handle(table).rollback_to(as_of)
    return Done.changed("ALTER TABLE ROLLBACK", rows)


@DEFINITIONS(
    "ALTER TABLE CREATE TAG",
    rf"{ALTER} create tag (?P<tag>{LABEL})"
    r"(?: (?:for system_)?(?:as of version|version as of) (?P<version>\d+)"
    r"| (?:as of timestamp|for system_time as of) '(?P<time>[^']*)'"
    rf"| as of tag (?P<label>{LABEL}))?(?: retain (?P<days>\d+) days?)?",
)
def create_tag(
    run: CommandRun,
    table: str,
    tag: str,
    version: int | None = None,
    time: datetime | None = None,
    label: str | None = None,
    days: int = 0,
) -> None:
    """`days` 0: the tag does not expire."""
    expires = timedelta(days=days) if days else None
    run.handle(table).tag(tag, _as_of(version, time, label), expires)


@DEFINITIONS(
    "ALTER TABLE DROP TAG", rf"{ALTER} drop tag (?P<if_exists>if exists )?(?P<tag>{LABEL})"
)
def drop_tag(run: CommandRun, table: str, tag: str, if_exists: bool = False) -> None:
    handle = run.handle(table)
    if not if_exists or tag in {each.name for each in handle.tags()}:
        handle.drop_tag(tag)


# --- CREATE, which `declarations` parses ----------------------------------------------------------


def create_table(run: CommandRun, declared: CreateTable) -> Done | None:
    full = run.catalog.stored(declared.name)
    run.catalog.require_database(full.partition(".")[0])
    if declared.temporary:
        shape = _like(run, declared) if declared.like else declared
        rows = _rows_of(run, declared.query) if declared.query else None
        return create_temporary(run.session, full, shape, rows)
    if declared.query is not None:
        return _create_from_query(run, declared, declared.query)
    if declared.like:
        declared = _like(run, declared)
    untyped = [key for key in declared.keys if " " not in key]
    if untyped:
        raise InvalidDefinition(f"{full}: partition column {untyped[0]} needs a type")
    _made(run, declared)
    return None


def _made(run: CommandRun, declared: CreateTable) -> Table:
    return run.warehouse.create_table(
        run.catalog.stored(declared.name),
        declared.columns,
        declared.keys,
        declared.clustered_by,
        declared.properties,
        declared.if_not_exists,
        declared.location,
        declared.comments,
        constraints=[run.in_database(constraint) for constraint in declared.constraints],
    )


def _like(run: CommandRun, declared: CreateTable) -> CreateTable:
    """The columns and their comments, partition columns, buckets and file format of the other
    table, or the columns of a view; nothing else of it. Raises NoSuchTable."""
    view = run.catalog.views.get(run.catalog.full(declared.like))
    if view is not None:
        return replace(declared, columns=_listed(view.columns), comments=view.comments)
    record, _ = run.declared(declared.like)
    format_of_files = {
        name: text
        for name, text in record.properties.items()
        if (entry := registered(name)) and (entry.fixed or entry in (CODEC, LAYOUT))
    }
    stored = {FILE_FORMAT.name: FILE_FORMAT.text(record.properties)}  # ORC is not among them
    return replace(
        declared,
        columns=_listed(record.columns),
        keys=tuple(_listed([key]) for key in record.partition_columns),
        clustered_by=(record.bucket_columns, record.bucket_count) if record.bucket_count else None,
        properties={**stored, **format_of_files, **declared.properties},
        comments=record.comments,
    )


def _listed(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)


def _create_from_query(run: CommandRun, declared: CreateTable, query: Query) -> Done | None:
    """Creates the table empty, then inserts its rows at once; if that fails, drops the table."""
    warehouse, full = run.warehouse, run.catalog.stored(declared.name)
    if full in warehouse.tables():
        if declared.or_replace:
            return _replace_from_query(run, declared, query)
        if declared.if_not_exists:
            return None
        raise TableExists(f"table {full} already exists; use IF NOT EXISTS, or another name")
    result = _rows_of(run, query)
    table = _made(run, replace(_with_columns_of(full, declared, result), if_not_exists=False))
    try:
        with run_queries.deriving(run.catalog, query, result.columns):
            rows = table.insert(result)
    except BaseException:
        run.metastore.drop(table.name, unwritten=True)
        raise
    return Done.changed("CREATE TABLE", rows)


def _replace_from_query(run: CommandRun, declared: CreateTable, query: Query) -> Done:
    """Gives the table the columns and rows of the query in one commit; its history stays."""
    from acid_platform.handles.column_rewrite import ReplaceTable, remade

    warehouse, own, full = run.warehouse, run.catalog, run.catalog.stored(declared.name)
    if declared.location is not None:
        raise UnsupportedStatement(
            f"CREATE OR REPLACE TABLE {full} with LOCATION: the table stays where it is; leave that"
            " part out"
        )

    def replaced(txn: Transaction) -> int:
        temporary = own.temporary
        then = Catalog(run.metastore, own.current_database, txn.view, temporary=temporary)
        with txn.writing():
            rows = run_queries.run(warehouse, then, query)
            shape = _with_columns_of(full, declared, rows)
            asked = Declaration.of(
                full,
                parse_columns(shape.columns),
                shape.keys,
                shape.clustered_by,
                shape.properties,
                comments=shape.comments,
            )
            return txn.run(ReplaceTable(full, rows, asked))

    return Done.changed("CREATE TABLE", remade(warehouse, full, replaced))


def _with_columns_of(full: str, declared: CreateTable, result: Result) -> CreateTable:
    """The declaration with the columns of a query. Raises InvalidDefinition."""
    by_name = {column.name: column for column in result.declared()}
    if len(by_name) < len(result.columns):
        raise InvalidDefinition(
            f"{full}: two columns of the query have the same name; rename one with AS"
        )
    keys = []
    for key in declared.keys:
        name = key.split(" ")[0].strip("`").lower()
        if name not in by_name:
            raise InvalidDefinition(f"{full}: the query has no column {name!r} to partition by")
        keys.append(str(by_name.pop(name)) if " " not in key else key)
    if not by_name:
        raise InvalidDefinition(f"{full}: every column of the query is a partition column")
    columns = _listed([(column.name, str(column.type)) for column in by_name.values()])
    return replace(declared, columns=columns, keys=tuple(keys))


def _rows_of(run: CommandRun, query: Query) -> Result:
    """The query's rows at a fresh snapshot, with the declarations of that snapshot (P28)."""
    warehouse, own = run.warehouse, run.catalog
    with warehouse.leases.lasting(*run_queries.tables_of(own, query)) as view:
        at_snapshot = Catalog(
            warehouse.metastore, own.current_database, view, temporary=own.temporary
        )
        return run_queries.run(warehouse, at_snapshot, query)


def create_view(run: CommandRun, declared: CreateView) -> None:
    full, lasting = run.catalog.stored(declared.name), not declared.temporary
    if lasting:
        run.catalog.require_database(full.partition(".")[0])
    else:
        full = declared.name
    known = run.catalog.views if lasting else run.catalog.temporary
    if declared.if_not_exists and full in known:
        return
    if not lasting and full in known and not declared.or_replace:
        raise TableExists(f"temporary view {full} exists; use CREATE OR REPLACE, or another name")
    reads = run_queries.names_in(run.catalog, declared.query)
    if lasting and (hidden := [name for name in reads if name in run.catalog.temporary]):
        raise UnsupportedStatement(
            f"view {full} can't read {hidden[0]}, a temporary table, which only this session sees"
        )
    query = self_contained(declared.query, run.catalog.current_database, run.catalog.declared)
    tables_read(query, run.catalog.current_database, run.catalog.view_query, (full,))
    result = _rows_of(run, query)
    columns = result.declared()
    names = declared.columns or tuple(column.name for column in columns)
    if len(names) != len(columns):
        raise InvalidDefinition(
            f"view {full} names {len(names)} columns, but its query has {len(columns)}"
        )
    if len(set(names)) < len(names):
        raise InvalidDefinition(f"view {full}: two columns have the same name; rename one with AS")
    view = ViewRecord(
        full,
        query.text if list(names) == result.columns else named(query, names),
        tuple((name, str(column.type)) for name, column in zip(names, columns, strict=True)),
        reads=columns_read(query, run.catalog.declared),
        properties=dict(declared.properties),
        comments=dict(declared.comments),
    )
    if lasting:
        run.metastore.call(DeclareView(view, declared.if_not_exists, declared.or_replace))
    else:
        run.session.temporary.declared[full] = view


def alter_view(run: CommandRun, declared: CreateView) -> None:
    """Gives a view another query; its comment and properties stay. Raises NoSuchTable."""
    full = run.catalog.stored(declared.name)
    present = run.catalog.views.get(full)
    if present is None:
        run.catalog.target(declared.name)
        raise UnsupportedStatement(f"{full} is a table; ALTER TABLE changes it")
    create_view(run, replace(declared, or_replace=True, properties=present.properties))
