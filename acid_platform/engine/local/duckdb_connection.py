"""DuckDB as a calculator: a database in memory that sees nothing but what it is given."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import duckdb

from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.local.running import stoppable
from acid_platform.engine.local.translation.duckdb_failures import raise_as_ours
from acid_platform.engine.local.translation.duckdb_types import identifier
from acid_platform.engine.reads import TableRead
from acid_platform.scan.scans import Scan
from acid_platform.storage.per_process import PerProcess

MEMORY_SHARE = 0.25
"""The part of the machine's memory that queries may take before they spill to disk."""
MOST_BYTES = 1 << 30
"""More than this they don't take, on any machine."""


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that sees nothing: what it registers is its own.

    All connections of this process share one empty database in memory, with its limit: to make a
    database takes 50 ms, to connect to it less than one.
    """
    return _DATABASE.get().cursor()


def new_database() -> duckdb.DuckDBPyConnection:
    """An empty database in memory, which can read no file and no variable of this process."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # psutil is slow to import
    limit = int(min(MOST_BYTES, memory * MEMORY_SHARE))
    database = duckdb.connect(
        config={
            "memory_limit": f"{limit >> 20}MB",
            "temp_directory": os.path.join(
                tempfile.gettempdir(), f"acid_platform_duckdb_{os.getpid()}"
            ),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
    )
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


_DATABASE = PerProcess(new_database)


@contextmanager
def reading(
    sources: Mapping[str, Callable[[], QuerySource]],
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for a block, with the sources as tables, each under its name.

    Raises what went wrong in a source, and DuckDB's errors as ours.
    """
    opened = {name: make() for name, make in sources.items()}
    connection = connect()
    try:
        for name, source in opened.items():
            connection.register(name, source)
        try:
            with stoppable(connection), raise_as_ours():
                yield connection
        except Exception:
            for source in opened.values():
                source.raise_failure()
            raise
    finally:
        connection.close()


def with_views(tables: Mapping[str, Scan]) -> duckdb.DuckDBPyConnection:
    """A database for people and BI tools: a schema for each database, a view for each table.

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
