"""SHOW and DESCRIBE as pandas DataFrames, with the column names that Hive prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from acid_platform.errors import InvalidDefinition, NoSuchPartition
from acid_platform.sql.statements import Listing, Show, matches

if TYPE_CHECKING:
    from acid_platform.metastore.records import TableRecord
    from acid_platform.warehouse import Warehouse


def show(warehouse: Warehouse, statement: Show) -> pd.DataFrame:
    """Raises NoSuchTable, NoSuchPartition for a table without partitions, InvalidDefinition for an
    unknown database."""
    from acid_platform.sql.execute import table_record

    match statement.listing:
        case Listing.DATABASES:
            names = warehouse.metastore.databases()
            return _lines("database_name", [n for n in names if matches(statement.like, n)])
        case Listing.TABLES:
            return _lines("tab_name", _tables(warehouse, statement))
        case Listing.TRANSACTIONS:
            return warehouse.show_transactions()
        case Listing.LOCKS:
            return warehouse.show_locks()
        case Listing.COMPACTIONS:
            return warehouse.show_compactions()
    record = table_record(warehouse, statement.name)
    match statement.listing:
        case Listing.PARTITIONS:
            if not record.partitioned:
                raise NoSuchPartition(f"{record.name} is not a partitioned table; DESCRIBE"
                                      f" {record.name} shows its columns")
            return _lines("partition", sorted(warehouse.metastore.partitions(record.name)))
        case Listing.CREATE_TABLE:
            return _lines("createtab_stmt", create_table(record).splitlines())
        case _:
            return describe(record)


def _lines(column: str, values: list[str]) -> pd.DataFrame:
    return pd.DataFrame({column: pd.Series(values, dtype=object)})


def _tables(warehouse: Warehouse, statement: Show) -> list[str]:
    database = statement.name or "default"
    if database not in warehouse.metastore.databases():
        raise InvalidDefinition(f"there is no database {database}; SHOW DATABASES lists them")
    found = (name.partition(".") for name in warehouse.tables())
    return [table for db, _, table in found if db == database and matches(statement.like, table)]


def describe(record: TableRecord) -> pd.DataFrame:
    """Hive's DESCRIBE: all columns, then the partition columns once more under a heading."""
    rows = [(name, kind, "") for name, kind in (*record.columns, *record.partition_columns)]
    if record.partition_columns:
        rows += [("", "", ""), ("# Partition Information", "", ""),
                 ("# col_name", "data_type", "comment")]
        rows += [(name, kind, "") for name, kind in record.partition_columns]
    return pd.DataFrame(rows, columns=["col_name", "data_type", "comment"])


def create_table(record: TableRecord) -> str:
    """A CREATE TABLE statement that declares the same table."""
    database, _, table = record.name.partition(".")

    def columns(pairs: tuple[tuple[str, str], ...]) -> str:
        return ",\n".join(f"  `{name}` {kind}" for name, kind in pairs)

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [f"CREATE TABLE `{database}`.`{table}`(", f"{columns(record.columns)})"]
    if record.partition_columns:
        lines += ["PARTITIONED BY (", f"{columns(record.partition_columns)})"]
    properties = ",\n".join(
        f"  {quoted(key)}={quoted(value)}" for key, value in sorted(record.properties.items()))
    lines += ["STORED AS ORC", "LOCATION", f"  {quoted(record.location)}", "TBLPROPERTIES (",
              f"{properties})"]
    return "\n".join(lines)
