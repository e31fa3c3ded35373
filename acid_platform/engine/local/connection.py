"""DuckDB as a calculator: a database in memory that sees nothing but what it is given."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import duckdb
import psutil

from acid_platform.engine.local.failures import raise_as_ours
from acid_platform.engine.local.sources import Source

MEMORY_SHARE = 0.25
"""The part of the machine's memory that a query may take before it spills to disk."""
MOST_BYTES = 1 << 30


def connect() -> duckdb.DuckDBPyConnection:
    """An empty database in memory, which can read no file, and no variable of this process."""
    limit = int(min(MOST_BYTES, psutil.virtual_memory().total * MEMORY_SHARE))
    connection = duckdb.connect(
        config={
            "memory_limit": f"{limit >> 20}MB",
            "temp_directory": os.path.join(tempfile.gettempdir(), "acid_platform_duckdb"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
    )
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def reading(
    sources: Mapping[str, Callable[[], Source]],
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for a block, with the sources as tables.

    Raises what went wrong in a source, and DuckDB's errors as ours.
    """
    opened = {name: make() for name, make in sources.items()}
    connection = connect()
    try:
        for name, source in opened.items():
            connection.register(name, source)
        try:
            with raise_as_ours():
                yield connection
        except Exception:
            for source in opened.values():
                source.raise_failure()
            raise
    finally:
        connection.close()
