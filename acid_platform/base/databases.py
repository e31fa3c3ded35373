"""Databases of DuckDB that see nothing but what they are given (P67).

Only this module opens one: the linter refuses `duckdb.connect` elsewhere. DuckDB itself would read
files and addresses that a query or a view names, load extensions, even from the network, and take
variables of Python for tables. What it spills lies in a private place (P69).

A file that somebody else may have made is attached under a name, read only, and never becomes the
current database: so its macros, types and views are never found by a name in our queries.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from acid_platform.base.local_files import require_regular, spill_directory

Error = duckdb.Error
"""The error that DuckDB raises."""
Connection = duckdb.DuckDBPyConnection

_CLOSED = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def in_memory(files: Mapping[str, Path] | None = None, **config: str | int) -> Connection:
    """An empty database, which can reach nothing but these files, each attached under its name.

    Raises duckdb.Error, OSError.
    """
    connection = not_yet_closed(**config)
    try:
        for name, file in (files or {}).items():
            attach(connection, file, name)
        close_off(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def with_directories(directories: Iterable[str], **config: str | int) -> Connection:
    """An empty database, which can read nothing but files in these directories. Raises
    duckdb.Error."""
    connection = not_yet_closed(**config)
    try:
        if allowed := [f"{directory.rstrip('/')}/" for directory in directories]:
            connection.execute("SET allowed_directories = $1", [allowed])
            connection.execute("SET parquet_metadata_cache = true")
        close_off(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def not_yet_closed(**config: str | int) -> Connection:
    """An empty database for statements of ours, which attach files; then `close_off` follows."""
    return duckdb.connect(config={**_CLOSED, "temp_directory": spill_directory(), **config})


def attach(
    connection: Connection, file: Path, name: str, write: bool = False, more: str = ""
) -> None:
    """`more`: options of a new file. Raises duckdb.Error, and OSError for a file to be read that is
    not there, or is none."""
    if not write:
        require_regular(file)
        for beside in file.parent.glob(f"{glob.escape(file.name)}.wal*"):  # read, too
            require_regular(beside)
    quoted = str(file).replace("'", "''")
    options = "TYPE duckdb" if write else "TYPE duckdb, READ_ONLY"
    try:
        connection.execute(f"ATTACH '{quoted}' AS {name} ({options}{more})")
    except duckdb.Error:
        if not write:
            file.stat()
        raise


def close_off(connection: Connection) -> None:
    """From now on it opens no other file, and no statement changes that."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: str
    generated: bool
    default: str | None


def stored_tables(
    connection: Connection, database: str
) -> dict[tuple[str, str], tuple[TableColumn, ...]]:
    """The tables of an attached file with their columns, by schema and name.

    A view is none of them: its text could read anything, or compute for ever.
    """
    listed = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = $1"
    tables = {*connection.execute(listed, [database]).fetchall()}
    columns: dict[tuple[str, str], list[TableColumn]] = {}
    rows = connection.execute(
        "SELECT schema_name, table_name, column_name, data_type, is_generated, column_default"
        " FROM duckdb_columns() WHERE database_name = $1 ORDER BY column_index",
        [database],
    ).fetchall()
    for schema, table, *values in rows:
        if (schema, table) in tables:
            columns.setdefault((schema, table), []).append(TableColumn(*values))
    return {name: tuple(listed) for name, listed in columns.items()}
