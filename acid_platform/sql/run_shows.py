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
from acid_platform.sql.declarations import STORED_AS
from acid_platform.sql.statements import Show, ShowKind

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord, ViewRecord
    from acid_platform.sql.catalog import Catalog

Pairs = Sequence[tuple[str, str]]


def show(warehouse: Warehouse, catalog: Catalog, statement: Show) -> Shown:
    """The rows of a SHOW or DESCRIBE.

    Raises NoSuchTable, NoSuchPartition for a table that is not partitioned, InvalidDefinition for
    an unknown database.
    """
    match statement.listing:
        case ShowKind.DATABASES:
            names = warehouse.metastore.databases()
            return Shown.lines("database_name", [n for n in names if matches(statement.like, n)])
        case ShowKind.TABLES:
            return Shown.lines("tab_name", _tables(warehouse, catalog, statement))
        case ShowKind.TRANSACTIONS:
            return Shown(show_columns.TRANSACTIONS, tuple(warehouse.metastore.transactions()))
        case ShowKind.LOCKS:
            return _locks(warehouse, catalog, statement)
        case ShowKind.COMPACTIONS:
            return Shown(show_columns.COMPACTIONS, tuple(warehouse.metastore.compactions()))
        case ShowKind.HISTORY:
            record = catalog.target(statement.name)
            return Shown(show_columns.HISTORY, tuple(warehouse.metastore.history(record.name)))
        case ShowKind.TAGS:
            from acid_platform.display import tag_rows

            (kept,) = warehouse.metastore.call(GetKept(catalog.target(statement.name).name))
            return Shown(show_columns.TAGS, tuple(tag_rows(kept)))
        case ShowKind.PARTITIONS:
            record = catalog.target(statement.name)
            if not record.partitioned:
                raise NoSuchPartition(
                    f"{record.name} is not partitioned; DESCRIBE {record.name} shows its columns"
                )
            return Shown.lines("partition", sorted(warehouse.metastore.partitions(record.name)))
    view = catalog.views.get(catalog.full(statement.name))
    match statement.listing:
        case ShowKind.CREATE_TABLE:
            text = create_view(view) if view else create_table(catalog.record(statement.name))
            return Shown.lines("createtab_stmt", text.splitlines())
        case ShowKind.FORMATTED if view is None:
            record = catalog.record(statement.name)
            return _described([*_columns(record), *_formatted(warehouse, record)])
        case _ if view is None:
            return _described(_columns(catalog.record(statement.name)))
    rows = [(name, kind, "") for name, kind in view.columns]
    if statement.listing is ShowKind.FORMATTED:
        rows += [*_heading("# View Information"), ("View Expanded Text:", view.query, "")]
    return _described(rows)


def matches(pattern: str, name: str) -> bool:
    """Hive's LIKE of SHOW: `*` and `%` match any text, `|` separates alternatives; ignores case."""
    if not pattern:
        return True
    parts = (
        re.escape(alternative).replace(r"\*", ".*").replace("%", ".*")
        for alternative in pattern.split("|")
    )
    return any(re.fullmatch(part, name, re.IGNORECASE) for part in parts)


def _tables(warehouse: Warehouse, catalog: Catalog, statement: Show) -> list[str]:
    """Names of tables and views, as in Hive."""
    database = catalog.require_database(statement.name or catalog.current_database)
    names = (name.partition(".") for name in (*warehouse.tables(), *catalog.views))
    return sorted(
        table for db, _, table in names if db == database and matches(statement.like, table)
    )


def _locks(warehouse: Warehouse, catalog: Catalog, statement: Show) -> Shown:
    rows = warehouse.metastore.locks()
    if statement.name:
        database, _, table = catalog.record(statement.name).name.partition(".")
        rows = [row for row in rows if (row["database"], row["table"]) == (database, table)]
    return Shown(show_columns.LOCKS, tuple(rows))


# --- one table ------------------------------------------------------------------------------------

Described = tuple[str, str, str]


def _described(rows: Sequence[Described]) -> Shown:
    columns = ("col_name", "data_type", "comment")
    return Shown(columns, tuple(dict(zip(columns, row, strict=True)) for row in rows))


def _heading(title: str) -> list[Described]:
    return [("", "", ""), (title, "", "")]


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


def _listed(pairs: Pairs) -> str:
    return ",\n".join(f"  `{name}` {kind}" for name, kind in pairs)
