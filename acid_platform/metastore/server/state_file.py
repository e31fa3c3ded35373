"""A snapshot: the state at a position of the log, in a DuckDB file that is only read (P8).

People may open it with any DuckDB of the same version. It has one table for each kind of record
(stored_kinds.py), what has ended, and the files of each directory.

The table `manifests` has the files of each directory of an entity (P26). It may have millions of
rows and has no index, so recent results stay in memory, up to a limit.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from acid_platform.base import databases
from acid_platform.base.first_use import Recent
from acid_platform.errors import MetastoreDamaged, MetastoreIncompatible
from acid_platform.metastore.codec import decode
from acid_platform.metastore.log.contract import Batch
from acid_platform.metastore.records import HistoryRow
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import stored_kinds as schema
from acid_platform.metastore.server.stored_kinds import Columns

Entity = tuple[int, str | None]
Read = Callable[[str, Columns, str, Sequence[Any]], list[dict[str, Any]]]
"""Reads rows of a table: its name, its columns, a WHERE clause and the clause's values."""

MOST_CHARACTERS = 64 << 20
"""The most characters that stay in memory, which are about as many bytes."""
_ENTRY = 200
"""Approximate bytes of a directory besides its text."""
_FEW = 100
"""The most partitions in one query; for more, the whole table is read at once."""


class RecordedCache:
    """The recorded files of entities; the least recently used entities are evicted first."""

    def __init__(self, read: Read, most: int = MOST_CHARACTERS) -> None:
        self._read = read
        self._entities: Recent[Entity, dict[str, str]] = Recent(sys.maxsize, most)

    def of(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> dict[tuple[str | None, str], str]:
        """The recorded text of each directory, by partition and name. Raises what `read` raises."""
        recorded: dict[str | None, dict[str, str]] = {}
        for partition in partitions:
            if (contents := self._entities.get((table_id, partition))) is not None:
                recorded[partition] = contents
        lacking = [partition for partition in partitions if partition not in recorded]
        if lacking:
            for partition, contents in self._look_up(table_id, lacking).items():
                recorded[partition] = contents
                self._entities.put((table_id, partition), contents, _size(contents))
        return {
            (partition, name): text
            for partition, contents in recorded.items()
            for name, text in contents.items()
        }

    def _look_up(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> dict[str | None, dict[str, str]]:
        where, values = "WHERE table_id = $1", list[Any]([table_id])
        if len(partitions) == 1:
            where += ' AND "partition" IS NOT DISTINCT FROM $2'
            values.append(partitions[0])
        elif len(partitions) <= _FEW:
            where += ' AND "partition" IN (SELECT unnest($2::VARCHAR[]))'
            values.append([*partitions])
        files: dict[str | None, dict[str, str]] = {partition: {} for partition in partitions}
        for row in self._read("manifests", schema.RECORDED["manifests"], where, values):
            if row["partition"] in files:
                files[row["partition"]][row["directory"]] = row["contents"]
        return files


def _size(contents: Mapping[str, str]) -> int:
    return _ENTRY + sum(_ENTRY + len(name) + len(text) for name, text in contents.items())


_CONFIG: dict[str, str | int] = {"threads": 1, "memory_limit": "128MB"}
_FILE = "snapshot"
"""The name under which a snapshot is attached."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which state a file holds."""

    position: int
    """The batch after which it is the state; 0 for none."""
    epoch: int
    made: int
    """The moment of that batch, in milliseconds UTC."""
    history: str

    @classmethod
    def of(cls, batch: Batch, history: str) -> Origin:
        return cls(batch.position, batch.epoch, batch.made, history)

    @classmethod
    def parse(cls, meta: Mapping[str, str]) -> Origin:
        """Raises KeyError, ValueError."""
        return cls(int(meta["position"]), int(meta["epoch"]), int(meta["made"]), meta["history"])

    def as_meta(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


def open_state(path: Path, directory: Path) -> StateFile:
    """Opens a snapshot, or a copy of it below `directory` with today's tables if it is older.

    Raises MetastoreIncompatible, MetastoreDamaged, OSError.
    """
    file = StateFile(path)
    if file.version == schema.VERSION:
        return file
    file.close()
    copy = directory / f"{path.stem}.{os.getpid()}.migrated"  # others make one too
    shutil.copyfile(path, copy)
    with databases.not_yet_closed(**_CONFIG) as connection:
        databases.attach(connection, copy, _FILE, write=True)
        _require_only_tables(connection, path)
        connection.execute(f"USE {_FILE}")
        for statements in schema.MIGRATIONS[file.version - 1 :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(
            "UPDATE meta SET value = $1 WHERE key = 'schema_version'", [str(schema.VERSION)]
        )
        connection.execute("USE memory")
        connection.execute(f"DETACH {_FILE}")
    return StateFile(copy)


_TABLES = {"meta": schema.META, **schema.EVERY}


def require_state(
    connection: duckdb.DuckDBPyConnection, name: str, path: Path, tables: Iterable[str] = _TABLES
) -> None:
    """Raises MetastoreDamaged unless an attached file has the tables of a state as we make them:
    a view in place of one would read other files, or compute (P67)."""
    stored = databases.stored_tables(connection, name)
    for table in tables:
        expected = {
            databases.TableColumn(column, schema.sql_type(kind), False, None)
            for column, kind in _TABLES[table].items()
        }
        if {*stored.get(("main", table), ())} != expected:
            raise MetastoreDamaged(
                f"{path} is no snapshot of a metastore: its {table!r} is not the table that this"
                " program makes; restore a backup that `acid metastore backup` wrote"
            )


def _require_only_tables(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raises MetastoreDamaged for what statements of a migration would run or find by a name."""
    kinds = {
        "functions": "FROM duckdb_functions() WHERE database_name = $1 AND NOT internal",
        "triggers": "FROM duckdb_triggers() WHERE database_name = $1",
        "types": "FROM duckdb_types() WHERE database_name = $1 AND NOT internal",
        "computed columns": "FROM duckdb_columns() WHERE database_name = $1"
        " AND (is_generated OR column_default IS NOT NULL)",
    }
    for kind, query in kinds.items():
        if connection.execute(query, [_FILE]).fetchall():
            raise MetastoreDamaged(
                f"{path} is no snapshot of a metastore: it has {kind}; restore a backup that `acid"
                " metastore backup` wrote"
            )


def _connected(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        return databases.in_memory({_FILE: path}, **_CONFIG)
    except duckdb.Error as error:
        raise MetastoreIncompatible(f"{path} can't be opened: {error}") from error


def _meta(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    require_state(connection, _FILE, path, ["meta"])
    try:
        meta = dict(connection.execute(f"SELECT key, value FROM {_FILE}.main.meta").fetchall())
        if int(meta["schema_version"]) < 1:
            raise ValueError(f"schema version {meta['schema_version']}")
        Origin.parse(meta)
    except (duckdb.Error, KeyError, ValueError) as error:
        raise MetastoreDamaged(
            f"{path} is no snapshot of a metastore: {error}; restore a backup"
        ) from error
    return meta


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raises MetastoreDamaged for what DuckDB can't read, and for rows that are no records."""
    try:
        yield
    except (duckdb.Error, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise MetastoreDamaged(
            f"{path} can't be read as a snapshot: {type(error).__name__}: {error}; restore a backup"
        ) from error


class StateFile:
    """An open snapshot, for one thread.

    Raises MetastoreIncompatible, MetastoreDamaged, FileNotFoundError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = _connected(path)
        try:
            self.meta = _meta(self._connection, path)
            self.version = int(self.meta["schema_version"])
            if self.version > schema.VERSION:
                raise MetastoreIncompatible(
                    f"{path} has schema version {self.version}, this program knows"
                    f" {schema.VERSION}; use the newer program that wrote it"
                )
            if self.version == schema.VERSION:
                require_state(self._connection, _FILE, path)
        except BaseException:
            self._connection.close()
            raise
        self.origin = Origin.parse(self.meta)
        self.size = path.stat().st_size
        self._recorded = RecordedCache(self._read)

    def state(self) -> State:
        with _whole(self.path):
            rows = {name: self._read(name, columns) for name, columns in schema.LIVE.items()}
            numbers = {key: int(self.meta[key]) for key in schema.COUNTERS if key in self.meta}
            return schema.restore(rows, numbers)

    # --- what memory no longer holds ------------------------------------------------------------

    def past_txn(self, txn_id: int) -> Ended | None:
        with _whole(self.path):
            rows = self._read("txns", schema.KEPT["txns"], "WHERE txn_id = $1", [txn_id])
            return decode(Ended, rows[-1]) if rows else None

    def past_outcome(self, request_id: str) -> Outcome | None:
        where = "WHERE request_id = $1"
        with _whole(self.path):
            rows = self._read("outcomes", schema.KEPT["outcomes"], where, [request_id])
            return decode(Outcome, rows[-1]) if rows else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        with _whole(self.path):
            return self._recorded.of(table_id, partitions)

    def history(self, table_id: int) -> list[HistoryRow]:
        where = "WHERE table_id = $1 ORDER BY write_id, directory"
        with _whole(self.path):
            rows = self._read("writes", schema.KEPT["writes"], where, [table_id])
            return [decode(HistoryRow, row) for row in rows]

    def close(self) -> None:
        self._connection.close()

    def _read(
        self, name: str, columns: Columns, where: str = "", values: Sequence[Any] = ()
    ) -> list[schema.Row]:
        listed = ", ".join(f'"{key}"' for key in columns)
        result = self._connection.execute(
            f'SELECT {listed} FROM {_FILE}.main."{name}" {where}', list(values)
        )
        keys, json_keys = list(columns), [key for key, kind in columns.items() if kind == "JSON"]
        rows = [dict(zip(keys, row, strict=True)) for row in result.fetchall()]
        for row in rows:
            for key in json_keys:
                row[key] = json.loads(row[key])
        return rows
