"""The DuckDB file of the metastore: rows, transactions, checkpoints and queries.

Nothing else may open the file, not even to read it: POSIX locks are released when any handle of the
file is closed, so closing a second handle would release DuckDB's lock.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from acid_platform.base.disk import sync_path
from acid_platform.errors import (
    InvalidExpression,
    MetastoreIncompatible,
    MetastoreInUse,
    UnsupportedStatement,
)
from acid_platform.metastore.server import blocks, state_rows, wal
from acid_platform.metastore.server.stored_kinds import Columns

_CONFIG: dict[str, str | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "128MB",
    "wal_autocheckpoint": "1TB",  # `Store.checkpoint` does it instead: see blocks.py.
    "fsync_mode": "STANDARD",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_QUERY_SECONDS = 10.0
_QUERY_ROWS = 100_000

Error = duckdb.Error
"""The error that DuckDB raises."""


class Database:
    """The open file, for one thread. Raises MetastoreInUse, MetastoreIncompatible, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            blocks.put_back(path)
        self.connection = _connect(path)
        # Stays open as long as DuckDB has the file: closing any handle would release DuckDB's lock.
        self.file = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        self.connection.close()
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.connection.begin()
        try:
            yield
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        # Reads all rows: an appender can begin only when no statement is unfinished.
        self.connection.execute(sql, list(values)).fetchall()

    def write(self, name: str, columns: Columns, rows: list[state_rows.Row]) -> None:
        """Writes rows with an appender: a third of the CPU of an INSERT with lists."""
        if not rows:
            return
        texts = [number for number, kind in enumerate(columns.values()) if kind == "JSON"]
        values = [[row[key] for key in columns] for row in rows]
        for value in values:
            for number in texts:
                value[number] = _ENCODE(value[number])
        appender = self.connection.appender(name, columns=list(columns))
        appender.append_rows(values)
        appender.flush()

    def read(
        self, name: str, columns: Columns, where: str = "", values: Sequence[Any] = ()
    ) -> list[state_rows.Row]:
        listed = ", ".join(f'"{key}"' for key in columns)
        result = self.connection.execute(f'SELECT {listed} FROM "{name}" {where}', list(values))
        keys, json_keys = list(columns), [key for key, kind in columns.items() if kind == "JSON"]
        rows = [dict(zip(keys, row, strict=True)) for row in result.fetchall()]
        for row in rows:
            for key in json_keys:
                row[key] = json.loads(row[key])
        return rows

    def scalar(self, sql: str) -> Any:
        ((value,),) = self.connection.execute(sql).fetchall()
        return value

    def meta(self) -> dict[str, str]:
        return dict(self.connection.execute("SELECT key, value FROM meta").fetchall())

    def set_meta(self, values: dict[str, str]) -> None:
        self.execute("DELETE FROM meta WHERE key IN (SELECT unnest($1))", [[*values]])
        self.execute(
            "INSERT INTO meta SELECT unnest($1), unnest($2)", [[*values], [*values.values()]]
        )

    def delete(self, name: str, keys: Mapping[str, str], gone: Sequence[tuple[Any, ...]]) -> None:
        """Deletes the rows of a table that have one of these keys; `keys` are their columns and
        types."""
        if not gone:
            return
        listed = ", ".join(
            f'unnest(${number}::{kind}[]) AS "{key}"'
            for number, (key, kind) in enumerate(keys.items(), 1)
        )
        same = " AND ".join(f'"{name}"."{key}" IS NOT DISTINCT FROM gone."{key}"' for key in keys)
        self.execute(
            f'DELETE FROM "{name}" USING (SELECT {listed}) AS gone WHERE {same}',
            [list(values) for values in zip(*gone, strict=True)],
        )

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the file. Raises Error or OSError; nothing is
        lost then."""
        numbers = self.connection.execute(
            "SELECT block_id FROM pragma_metadata_info() WHERE free_blocks > 0"
        ).fetchall()
        size = int(self.scalar("SELECT block_size FROM pragma_database_size()"))
        blocks.keep(self.file, blocks.beside(self.path), [number for (number,) in numbers], size)
        self.connection.execute("CHECKPOINT")
        # DuckDB would refuse the file if a power cut brought back a log from two checkpoints ago.
        self.sync_names()

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        """Column names and rows of one SELECT, at most 100,000 rows and 10 s.

        Raises UnsupportedStatement for anything but one SELECT, InvalidExpression if it fails.
        """
        try:
            statements = self.connection.extract_statements(sql)
        except Error as error:
            raise InvalidExpression(f"the metastore can't parse {sql!r}: {error}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UnsupportedStatement(f"the metastore answers one SELECT at a time, not {sql!r}")
        watchdog = threading.Timer(_QUERY_SECONDS, self.connection.interrupt)
        watchdog.start()
        try:
            self.connection.execute("BEGIN TRANSACTION READ ONLY")
            cursor = self.connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return names, [list(row) for row in cursor.fetchmany(_QUERY_ROWS)]
        except Error as error:
            raise InvalidExpression(f"{sql!r} failed: {error}") from error
        finally:
            watchdog.cancel()
            self.connection.execute("ROLLBACK")

    def made_by(self) -> dict[str, str]:
        """Which programs read and write the file, for people who find an old one (P8)."""
        storage = self.scalar(
            "SELECT tags['storage_version'] FROM duckdb_databases()"
            " WHERE database_name = current_database()"
        )
        return {"duckdb_version": duckdb.__version__, "storage_version": str(storage)}

    def sync_names(self) -> None:
        """Syncs the names of files. DuckDB syncs the content that it writes, but not the creation
        or removal of a file. Raises OSError."""
        sync_path(self.path.parent)


def _opened(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(path), config=_CONFIG)
    except Error as error:
        if not wal.cut(path, str(error)):
            raise
    return duckdb.connect(str(path), config=_CONFIG)


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        connection = _opened(path)
    except Error as error:
        holder = re.search(r"PID (\d+)", str(error))
        if holder:
            raise MetastoreInUse(
                f"{path} is in use by process {holder[1]}; stop that process, or connect to it"
            ) from error
        raise MetastoreIncompatible(f"{path} can't be opened: {error}") from error
    connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    connection.execute("SET lock_configuration = true")
    [(mode,)] = connection.execute(
        "SELECT value FROM duckdb_settings() WHERE name = 'fsync_mode'"
    ).fetchall()
    if mode not in ("STANDARD", "FULL"):
        connection.close()
        raise MetastoreIncompatible(
            f"{path} would be written without fsync (fsync_mode {mode!r}); commits would"
            " not be durable"
        )
    return connection
