"""Looking up the tables and views that a statement names."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Protocol

from acid_platform.config import Settings
from acid_platform.errors import InvalidDefinition, NoSuchTable, UnsupportedStatement
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord, ViewRecord


class Declared(Protocol):
    """A source of tables and views: the metastore's current ones, or a snapshot's (P28)."""

    def table(self, name: str) -> TableRecord: ...

    def views(self) -> list[ViewRecord]: ...

    @property
    def in_force(self) -> Settings: ...


class Catalog:
    """The tables and views for one statement; each is looked up once.

    `seen` are the declarations of a snapshot; None: the current ones. `tables` are full names that
    are known not to be views.
    """

    def __init__(
        self,
        metastore: Metastore,
        database: str,
        seen: Declared | None = None,
        tables: Collection[str] = (),
    ) -> None:
        self._metastore = metastore
        self._seen: Declared = seen or metastore
        self.current_database = database
        self._tables = tables
        self._records: dict[str, TableRecord] = {}

    @property
    def in_force(self) -> Settings:
        """The settings with which a statement runs."""
        return self._seen.in_force

    def full(self, name: str) -> str:
        return (name if "." in name else f"{self.current_database}.{name}").lower()

    @cached_property
    def views(self) -> dict[str, ViewRecord]:
        return {view.name: view for view in self._seen.views()}

    @property
    def metastore_id(self) -> int:
        """Tells the tables of one warehouse in this process from those of another."""
        return id(self._metastore)

    def all_tables(self, names: Iterable[str]) -> bool:
        """Whether all the full names are known to be tables."""
        return all(name in self._tables for name in names)

    def view_query(self, full: str) -> str | None:
        view = None if full in self._tables else self.views.get(full)
        return view.query if view else None

    def record(self, name: str) -> TableRecord:
        """The record of a table to read. Raises NoSuchTable, which suggests a similar name."""
        full = self.full(name)
        if full not in self._records:
            try:
                self._records[full] = self._seen.table(full)
            except NoSuchTable as error:
                known = [*(table.name for table in self._metastore.tables()), *self.views]
                if full in known:
                    raise  # it was created after the snapshot
                near = _nearest(full, known)
                hint = (
                    f"did you mean {near}?" if near else "SHOW DATABASES and SHOW TABLES list them"
                )
                raise NoSuchTable(f"there is no table {full}; {hint}") from error
        return self._records[full]

    def target(self, name: str) -> TableRecord:
        """The record of a table to change. Raises NoSuchTable, UnsupportedStatement for a view."""
        full = self.full(name)
        if full in self.views:
            raise UnsupportedStatement(
                f"{full} is a view, which can only be read; name the table that it reads"
            )
        return self.record(name)

    def columns(self, full: str) -> tuple[str, ...]:
        record = self.record(full)
        return tuple(name for name, _ in (*record.columns, *record.partition_columns))

    def require_database(self, name: str) -> str:
        """Raises InvalidDefinition, which suggests a similar name, if there is no such database."""
        known = self._metastore.databases()
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "SHOW DATABASES lists them"
            raise InvalidDefinition(f"there is no database {name}; {hint}")
        return name


def _nearest(full: str, known: Iterable[str]) -> str | None:
    """The table with the most similar name, preferably in the same database."""
    database, _, table = full.partition(".")
    names = sorted(known)
    similar = difflib.get_close_matches(table, [name.partition(".")[2] for name in names])
    ranked = sorted(
        (name for name in names if name.partition(".")[2] in similar),
        key=lambda name: (
            similar.index(name.partition(".")[2]),
            not name.startswith(f"{database}."),
        ),
    )
    return ranked[0] if ranked else None
