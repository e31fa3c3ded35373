"""A snapshot: the state at a position of the log, in a DuckDB file that is only read (P8).

People may open it with any DuckDB of the same version. It has one table for each kind of record
(stored_kinds.py), what has ended, and the files of each directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from acid_platform.errors import MetastoreDamaged, MetastoreIncompatible
from acid_platform.metastore.codec import decode
from acid_platform.metastore.records import HistoryRow
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import metastore_schema as schema
from acid_platform.metastore.server import state_rows
from acid_platform.metastore.server.recorded_cache import RecordedCache
from acid_platform.metastore.server.stored_kinds import Columns

Error = duckdb.Error
"""The error that DuckDB raises."""

OFFLINE: dict[str, str | int | float | list[str]] = {
    "threads": 1,
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
}
_READING = {**OFFLINE, "memory_limit": "128MB", "enable_external_access": "false"}


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
    def parse(cls, meta: Mapping[str, str]) -> Origin:
        """Raises KeyError, ValueError."""
        return cls(int(meta["position"]), int(meta["epoch"]), int(meta["made"]), meta["history"])

    def as_meta(self) -> dict[str, str]:
        return {key: str(value) for key, value in asdict(self).items()}


class StateFile:
    """An open snapshot, for one thread. Raises MetastoreIncompatible, MetastoreDamaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._connection = duckdb.connect(str(path), read_only=True, config=_READING)
        except duckdb.Error as error:
            raise MetastoreIncompatible(f"{path} can't be opened: {error}") from error
        try:
            self.meta = self._meta()
        except BaseException:
            self._connection.close()
            raise
        self.size = path.stat().st_size
        self._recorded = RecordedCache(self._read)

    def _meta(self) -> dict[str, str]:
        try:
            meta = dict(self._connection.execute("SELECT key, value FROM meta").fetchall())
            version = int(meta["schema_version"])
            self.origin = Origin.parse(meta)
        except (duckdb.Error, KeyError, ValueError) as error:
            raise MetastoreDamaged(
                f"{self.path} is no snapshot of a metastore: {error}; restore a backup"
            ) from error
        if version > schema.VERSION:
            raise MetastoreIncompatible(
                f"{self.path} has schema version {version}, this program knows {schema.VERSION};"
                " use the newer program that wrote it"
            )
        self.version = version
        return meta

    def state(self) -> State:
        """Raises duckdb.Error."""
        rows = {name: self._read(name, columns) for name, columns in schema.LIVE.items()}
        numbers = {key: int(self.meta[key]) for key in state_rows.COUNTERS if key in self.meta}
        return state_rows.restore(rows, numbers)

    # --- what memory no longer holds ------------------------------------------------------------

    def past_txn(self, txn_id: int) -> Ended | None:
        """A transaction that had ended."""
        rows = self._read("txns", schema.KEPT["txns"], "WHERE txn_id = $1", [txn_id])
        return decode(Ended, rows[-1]) if rows else None

    def past_outcome(self, request_id: str) -> Outcome | None:
        """The reply to a request (P3)."""
        where = "WHERE request_id = $1"
        rows = self._read("outcomes", schema.KEPT["outcomes"], where, [request_id])
        return decode(Outcome, rows[-1]) if rows else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        """The files of directories, by partition and directory (P26)."""
        return self._recorded.of(table_id, partitions)

    def history(self, table_id: int) -> list[HistoryRow]:
        """The writes of a table, oldest first."""
        where = "WHERE table_id = $1 ORDER BY write_id, directory"
        rows = self._read("writes", schema.KEPT["writes"], where, [table_id])
        return [decode(HistoryRow, row) for row in rows]

    def close(self) -> None:
        self._connection.close()

    def _read(
        self, name: str, columns: Columns, where: str = "", values: Sequence[Any] = ()
    ) -> list[state_rows.Row]:
        listed = ", ".join(f'"{key}"' for key in columns)
        result = self._connection.execute(f'SELECT {listed} FROM "{name}" {where}', list(values))
        keys, json_keys = list(columns), [key for key, kind in columns.items() if kind == "JSON"]
        rows = [dict(zip(keys, row, strict=True)) for row in result.fetchall()]
        for row in rows:
            for key in json_keys:
                row[key] = json.loads(row[key])
        return rows
