"""SHOW and DESCRIBE, with the column names that Hive prints."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from acid_platform.base.table_properties import FILE_FORMAT
from acid_platform.errors import NoSuchPartition
from acid_platform.layout.sql_text import sql_string
from acid_platform.metastore import show_columns
from acid_platform.metastore.operations.history import GetKept
from acid_platform.metastore.shown import Shown
from acid_platform.sql.commands import LIKE, NAME, TABLE, Commands
from acid_platform.sql.declarations import STORED_AS

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord, ViewRecord
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.sql_session import SqlSession

SHOWS = Commands()


@SHOWS("SHOW DATABASES", rf"show (?:databases|schemas){LIKE}")
def show_databases(session: SqlSession, _catalog: Catalog, like: str = "") -> Shown:
    names = session.warehouse.metastore.databases()
    return Shown.lines("database_name", [name for name in names if matches(like, name)])


@SHOWS("SHOW TABLES", rf"show tables(?: (?:in|from) (?P<database>{NAME}))?{LIKE}")
def show_tables(session: SqlSession, catalog: Catalog, database: str = "", like: str = "") -> Shown:
    """Names of tables and views, as in Hive."""
    database = catalog.require_database(database or catalog.current_database)
    names = (name.partition(".") for name in (*session.warehouse.tables(), *catalog.views))
    return Shown.lines(
        "tab_name",
        sorted(table for db, _, table in names if db == database and matches(like, table)),
    )


@SHOWS("SHOW PARTITIONS", rf"show partitions {TABLE}")
def show_partitions(session: SqlSession, catalog: Catalog, table: str) -> Shown:
    record = catalog.target(table)
    if not record.partitioned:
        raise NoSuchPartition(
            f"{record.name} is not partitioned; DESCRIBE {record.name} shows its columns"
        )
    return Shown.lines("partition", sorted(session.warehouse.metastore.partitions(record.name)))


@SHOWS("SHOW CREATE TABLE", rf"show create table {TABLE}")
def show_create_table(_session: SqlSession, catalog: Catalog, table: str) -> Shown:
    view = catalog.views.get(catalog.full(table))
    text = create_view(view) if view else create_table(catalog.record(table))
    return Shown.lines("createtab_stmt", text.splitlines())


@SHOWS("SHOW TRANSACTIONS", r"show transactions")
def show_transactions(session: SqlSession, _catalog: Catalog) -> Shown:
    return Shown(show_columns.TRANSACTIONS, tuple(session.warehouse.metastore.transactions()))


@SHOWS("SHOW LOCKS", rf"show locks(?: {TABLE})?")
def show_locks(session: SqlSession, catalog: Catalog, table: str = "") -> Shown:
    rows = session.warehouse.metastore.locks()
    if table:
        database, _, short = catalog.record(table).name.partition(".")
        rows = [row for row in rows if (row["database"], row["table"]) == (database, short)]
    return Shown(show_columns.LOCKS, tuple(rows))


@SHOWS("SHOW COMPACTIONS", r"show compactions")
def show_compactions(session: SqlSession, _catalog: Catalog) -> Shown:
    return Shown(show_columns.COMPACTIONS, tuple(session.warehouse.metastore.compactions()))


@SHOWS("SHOW TAGS", rf"show tags {TABLE}")
def show_tags(session: SqlSession, catalog: Catalog, table: str) -> Shown:
    from acid_platform.display import tag_rows

    (history,) = session.warehouse.metastore.call(GetKept(catalog.target(table).name))
    return Shown(show_columns.TAGS, tuple(tag_rows(history)))


@SHOWS("DESCRIBE HISTORY", rf"desc(?:ribe)? history {TABLE}")
def describe_history(session: SqlSession, catalog: Catalog, table: str) -> Shown:
    rows = session.warehouse.metastore.history(catalog.target(table).name)
    return Shown(show_columns.HISTORY, tuple(rows))


@SHOWS("DESCRIBE FORMATTED", rf"desc(?:ribe)? formatted {TABLE}")
def describe_formatted(session: SqlSession, catalog: Catalog, table: str) -> Shown:
    view = catalog.views.get(catalog.full(table))
    if view is None:
        record = catalog.record(table)
        return _described([*_columns(record), *_formatted(session.warehouse, record)])
    text = ("View Expanded Text:", view.query, "")
    return _described([*_of_view(view), *_heading("# View Information"), text])


@SHOWS("DESCRIBE TABLE", rf"desc(?:ribe)? (?:table )?(?!(?:formatted|history) ){TABLE}")
def describe(_session: SqlSession, catalog: Catalog, table: str) -> Shown:
    view = catalog.views.get(catalog.full(table))
    return _described(_of_view(view) if view else _columns(catalog.record(table)))


def matches(pattern: str, name: str) -> bool:
    """Hive's LIKE of SHOW: `*` and `%` match any text, `|` separates alternatives; ignores case."""
    if not pattern:
        return True
    parts = (
        re.escape(alternative).replace(r"\*", ".*").replace("%", ".*")
        for alternative in pattern.split("|")
    )
    return any(re.fullmatch(part, name, re.IGNORECASE) for part in parts)


# --- one table ------------------------------------------------------------------------------------

Described = tuple[str, str, str]
"""Name, type and comment."""


def _described(rows: Sequence[Described]) -> Shown:
    columns = ("col_name", "data_type", "comment")
    return Shown(columns, tuple(dict(zip(columns, row, strict=True)) for row in rows))


def _heading(title: str) -> list[Described]:
    return [("", "", ""), (title, "", "")]


def _of_view(view: ViewRecord) -> list[Described]:
    return [(name, kind, "") for name, kind in view.columns]


def _columns(record: TableRecord) -> list[Described]:
    """Rows of Hive's DESCRIBE: all columns, then the partition columns again under a heading."""
    rows = [(name, kind, "") for name, kind in (*record.columns, *record.partition_columns)]
    if record.partition_columns:
        rows += [*_heading("# Partition Information"), ("# col_name", "data_type", "comment")]
        rows += [(name, kind, "") for name, kind in record.partition_columns]
    return rows


def _formatted(warehouse: Warehouse, record: TableRecord) -> list[Described]:
    database, _, _ = record.name.partition(".")
    created = datetime.datetime.fromtimestamp(record.created / 1000, datetime.UTC)
    rows = [
        *_heading("# Detailed Table Information"),
        ("Database:", database, ""),
        ("CreateTime:", f"{created:%a %b %d %H:%M:%S UTC %Y}", ""),
        ("Location:", record.location, ""),
        ("Table Type:", "MANAGED_TABLE", ""),
        ("Table Parameters:", "", ""),
        *(("", name, value) for name, value in sorted(record.properties.items())),
        *_heading("# Storage Information"),
        ("Stored As:", _stored_as(record), ""),
        ("Num Buckets:", str(record.bucket_count or -1), ""),
        ("Bucket Columns:", f"[{', '.join(record.bucket_columns)}]", ""),
    ]
    if record.partitioned:
        count = len(warehouse.metastore.partitions(record.name))
        rows.append(("Num Partitions:", str(count), ""))
    return rows


def _stored_as(record: TableRecord) -> str:
    name = record.properties.get(FILE_FORMAT.name, "orc").lower()
    return next((word.upper() for word, stored in STORED_AS.items() if stored == name), "ORC")


def create_table(record: TableRecord) -> str:
    """The CREATE TABLE statement that declares this table."""
    lines = [f"CREATE TABLE {_quoted_name(record.name)}(", f"{_listed(record.columns)})"]
    if record.partition_columns:
        lines += ["PARTITIONED BY (", f"{_listed(record.partition_columns)})"]
    if record.bucket_count:
        names = ",\n".join(f"  `{name}`" for name in record.bucket_columns)
        lines += ["CLUSTERED BY (", f"{names})", f"INTO {record.bucket_count} BUCKETS"]
    properties = ",\n".join(
        f"  {sql_string(key)}={sql_string(value)}"
        for key, value in sorted(record.properties.items())
    )
    lines += [
        f"STORED AS {_stored_as(record)}",
        "LOCATION",
        f"  {sql_string(record.location)}",
        "TBLPROPERTIES (",
        f"{properties})",
    ]
    return "\n".join(lines)


def create_view(view: ViewRecord) -> str:
    """The CREATE VIEW statement that declares this view."""
    return f"CREATE VIEW {_quoted_name(view.name)} AS {view.query}"


def _quoted_name(full: str) -> str:
    database, _, name = full.partition(".")
    return f"`{database}`.`{name}`"


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    return ",\n".join(f"  `{name}` {kind}" for name, kind in pairs)
