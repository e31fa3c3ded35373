"""All tables of a snapshot as views of a DuckDB database, for people and BI tools."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from acid_platform.engine.local.duckdb_types import identifier
from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.reads import TableRead
from acid_platform.scan.scans import Scan


def with_views(tables: Mapping[str, Scan]) -> duckdb.DuckDBPyConnection:
    """A database in memory with a schema for each database and a view for each table.

    `tables` go by `database.table`. A view reads its files when it is queried, all columns of it,
    batch by batch. The caller closes the connection.
    """
    connection = duckdb.connect()
    for number, (name, scan) in enumerate(tables.items()):
        database, _, table = name.partition(".")
        source = f"acid_{number}"
        connection.register(source, QuerySource(TableRead(scan), filtered=False))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(database)}")
        connection.execute(
            f"CREATE VIEW {identifier(database)}.{identifier(table)} AS SELECT * FROM {source}"
        )
    return connection
