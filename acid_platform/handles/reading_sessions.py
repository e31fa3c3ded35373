"""What computes the statements of somebody who only reads, in DuckDB's SQL: each statement, or each
transaction, at one snapshot that a read lease holds (P12)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from acid_platform.engine.local.reading_database import ReadingDatabase, ShownTable
from acid_platform.errors import SnapshotExpired
from acid_platform.handles.snapshot_views import HeldLease, LeaseView
from acid_platform.layout.table_properties import COMMENT
from acid_platform.metastore.pasts import NOW, AsOf, past_named
from acid_platform.metastore.records import TableRecord

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

_ROWS = 4096
"""Rows that are given at a time."""


class ReadingSession:
    """Statements of one user, in one thread at a time, but for `interrupt`."""

    def __init__(
        self,
        warehouse: Warehouse,
        user: str,
        readable: Callable[[str], bool],
        memory_mb: int = 256,
    ) -> None:
        """`readable`: whether the user may read a table, asked at each statement: of others not
        even the name is told. `memory_mb`: what its statements may take, in MiB."""
        self._warehouse, self._user, self._readable = warehouse, user, readable
        self._memory = memory_mb
        self._database: ReadingDatabase | None = None
        self._view: LeaseView | None = None
        self._tables: dict[str, TableRecord] = {}
        self._added: set[str] = set()
        self._path: Sequence[str] = ("default",)
        self._as_of: AsOf | None = None
        self._settings: dict[str, str] = {}
        self._alone = threading.Lock()

    # --- for a server ---------------------------------------------------------------------------

    def describe(self, query: str) -> tuple[list[tuple[str, str]], list[str]]:
        """The columns with DuckDB's types, and the types of parameters. Raises AcidError."""
        with self._alone:
            return self._ready(query).describe(query)

    def run(
        self, query: str, selected: str, values: Sequence[tuple[Any, str]]
    ) -> Iterator[list[list[Any]]]:
        """Rows by columns, in parts; see ReadingDatabase.run. Raises AcidError."""
        with self._alone:
            parts = self._ready(query).run(query, selected, values, _ROWS)
        return self._next_of(parts)

    def _next_of(self, parts: Iterator[list[list[Any]]]) -> Iterator[list[list[Any]]]:
        while True:
            with self._alone:
                part = next(parts, None)
            if part is None:
                return
            yield part

    def settle(self) -> None:
        """The next statement takes a new snapshot."""
        with self._alone:
            self._forget()

    def place(self, search_path: Sequence[str], as_of: str, settings: dict[str, str]) -> None:
        """Where names are looked for, and which snapshot is read: a time, a write id or a tag.

        Raises AcidError."""
        with self._alone:
            past = datetime.now(UTC) if as_of.lower() == NOW else past_named(as_of)
            wanted = AsOf.of(past) if as_of else None
            if as_of != self._settings.get("acid.as_of", ""):
                self._forget()
                self._as_of = wanted
            self._path, self._settings = search_path, settings

    def interrupt(self) -> None:
        if self._database is not None:
            self._database.interrupt()

    def close(self) -> None:
        with self._alone:
            self._forget()
            if self._database is not None:
                self._database.close()
                self._database = None

    # --- the snapshot ---------------------------------------------------------------------------

    def _ready(self, query: str) -> ReadingDatabase:
        """The database, with the tables that the query may name."""
        if self._database is None:
            self._database = ReadingDatabase(self._user, self._memory)
        database = self._database
        if not self._tables:
            every = self._warehouse.metastore.tables()
            self._tables = {record.name: record for record in every}
        may = {name: record for name, record in self._tables.items() if self._readable(name)}
        if self._added - may.keys():  # a grant was taken back
            database.clear()
            self._added.clear()
        database.show(map(_shown, may.values()), self._settings)
        words = {*re.findall(r"\w+", query.lower())}
        named = [name for name in may if name.partition(".")[2] in words]
        for name in named:
            if name not in self._added:
                view = self._leased()
                with view.checked():
                    (scan,) = view.scans([view.request(name, as_of=self._as_of)])
                database.add(name, scan)
                self._added.add(name)
        database.look_in(self._path)
        return database

    def _leased(self) -> LeaseView:
        if self._view is None:
            warehouse = self._warehouse
            lease = warehouse.metastore.open_snapshot(None, warehouse.info())
            self._view = LeaseView(HeldLease(lease))
        return self._view

    def _forget(self) -> None:
        self._tables = {}
        self._added.clear()
        if self._database is not None:
            self._database.clear()
        if self._view is not None:
            with suppress(SnapshotExpired):
                self._view.transaction.commit()
            self._view = None


def _shown(record: TableRecord) -> ShownTable:
    columns = (*record.columns, *record.partition_columns)
    comments = record.comments
    return ShownTable(
        record.name,
        tuple((name, kind, comments.get(name, "")) for name, kind in columns),
        record.properties.get(COMMENT, ""),
    )
