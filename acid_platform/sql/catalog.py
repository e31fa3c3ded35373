"""Looking up the tables and views that a statement names."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from acid_platform.base.config import Settings
from acid_platform.base.visible import nearest_name
from acid_platform.errors import InvalidDefinition, NoSuchTable, UnsupportedStatement
from acid_platform.handles.snapshot_view import ScanRequest, SnapshotView
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import PastTable, TableRecord, ViewRecord
from acid_platform.scan.scans import Scan
from acid_platform.sql.text import Query
from acid_platform.sql.time_travel import changes_between, unmarked
from acid_platform.sql.views import query_now

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan

_NONE: Mapping[str, ViewRecord] = MappingProxyType({})


class Catalog:
    """The tables and views for one statement; each is looked up once.

    Their declarations are those of `snapshot`; None: the current ones. `tables` are full names that
    are not views. `temporary` are the session's own tables, which hide others of their names.
    """

    def __init__(
        self,
        metastore: Metastore,
        database: str,
        snapshot: SnapshotView | None = None,
        tables: Collection[str] = (),
        temporary: Mapping[str, ViewRecord] = _NONE,
    ) -> None:
        self._metastore = metastore
        self._declared: SnapshotView | Metastore = snapshot or metastore
        self._snapshot = snapshot
        self.current_database = database
        self._tables = tables
        self.temporary = temporary
        self._records: dict[str, TableRecord] = {}
        self._pasts: dict[str, PastTable] = {}
        self._changes: dict[str, ChangeScan] = {}

    @property
    def in_force(self) -> Settings:
        """The settings with which a statement runs."""
        return self._declared.in_force

    def full(self, name: str) -> str:
        return (name if "." in name else f"{self.current_database}.{name}").lower()

    @cached_property
    def _others(self) -> dict[str, ViewRecord]:
        """What is no table of the warehouse: views, external and temporary tables."""
        return {**{view.name: view for view in self._declared.views()}, **self.temporary}

    @cached_property
    def views(self) -> dict[str, ViewRecord]:
        return {name: view for name, view in self._others.items() if view.external is None}

    @cached_property
    def externals(self) -> dict[str, ViewRecord]:
        return {name: one for name, one in self._others.items() if one.external is not None}

    @property
    def metastore_id(self) -> int:
        """Tells the tables of one warehouse in this process from those of another."""
        return id(self._metastore)

    def all_tables(self, names: Iterable[str]) -> bool:
        """Whether none of the full names can be that of a view."""
        return all(name in self._tables and name not in self.temporary for name in names)

    def view(self, full: str) -> ViewRecord | None:
        return None if full in self._tables else self.views.get(full)

    def external(self, full: str) -> ViewRecord | None:
        """The external table of this name, None for any other name."""
        if full in self.temporary:
            return self.temporary[full]
        return None if full in self._tables else self.externals.get(full)

    def view_query(self, full: str) -> Query | None:
        """The query of a view over the present tables; None for any other name.

        Raises NoSuchTable, UnknownColumn, InvalidDefinition: see query_now.
        """
        view = self.view(full)
        hidden = [name for name, _ in view.reads if name in self.temporary] if view else []
        if hidden:
            raise UnsupportedStatement(
                f"view {full} reads {hidden[0]}, which a temporary table of this session hides;"
                " give that one another name"
            )
        return query_now(view, self.declared) if view else None

    def record(self, name: str) -> TableRecord:
        """The record of a table to read; of the past, if the name is marked (P36).

        Raises NoSuchTable, which suggests a similar name, UnsupportedStatement for the past of a
        view, and NoSuchPast and NotEnoughHistory.
        """
        changes = changes_between(self.full(name))
        if changes is not None:
            return self.record(changes[0])
        full, as_of = unmarked(self.full(name))
        if as_of is not None:
            if full in self.views:
                raise UnsupportedStatement(
                    f"{full} is a view, which has no history; name the tables that it reads"
                )
            if full in self.externals:
                raise UnsupportedStatement(
                    f"{full} is an external table, which has no history: its files are read as they"
                    " are now"
                )
            past = self.past(name)
            return self.record(full) if past is None else past.table
        if full not in self._records:
            try:
                self._records[full] = self._declared.table(full)
            except NoSuchTable as error:
                names = [*(table.name for table in self._metastore.tables()), *self._others]
                if full in names:
                    raise  # it was created after the snapshot
                near = _nearest(full, names)
                hint = (
                    f"did you mean {near}?" if near else "SHOW DATABASES and SHOW TABLES list them"
                )
                raise NoSuchTable(f"there is no table {full}; {hint}") from error
        return self._records[full]

    def past(self, name: str) -> PastTable | None:
        """How a table with a marked name was; None for other names, and without a snapshot."""
        marked = self.full(name)
        full, as_of = unmarked(marked)
        if as_of is None or self._snapshot is None:
            return None
        if marked not in self._pasts:
            self.record(full)  # an unknown name gets the error that suggests a similar one
            self._pasts[marked] = self._snapshot.past(full, as_of)
        return self._pasts[marked]

    def changes(self, name: str) -> ChangeScan | None:
        """The changes that a name stands for (P39); None for other names.

        Raises UnsupportedStatement for those of a view, NoSuchTable, NoSuchPast, NotEnoughHistory.
        """
        marked = self.full(name)
        between = changes_between(marked)
        if between is None:
            return None
        if marked not in self._changes:
            full, since, until = between
            if full in self.views:
                raise UnsupportedStatement(
                    f"{full} is a view, whose changes nobody records; name the tables that it reads"
                )
            if full in self.externals:
                raise UnsupportedStatement(
                    f"{full} is an external table, whose changes nobody records"
                )
            self.record(full)  # an unknown name gets the error that suggests a similar one
            if self._snapshot is None:
                raise UnsupportedStatement(f"the changes of {full} can only be read in a query")
            self._changes[marked] = self._snapshot.changes(full, since, until)
        return self._changes[marked]

    def scans(self, requests: Sequence[ScanRequest]) -> list[Scan]:
        """Scans of several tables at the snapshot; without one no table can be read."""
        if not requests:
            return []
        assert self._snapshot is not None
        return self._snapshot.scans(requests)

    def target(self, name: str) -> TableRecord:
        """The record of a table to change. Raises NoSuchTable, UnsupportedStatement for a view."""
        changes = changes_between(self.full(name))
        if changes is not None:
            raise UnsupportedStatement(
                f"the changes of {changes[0]} can only be read; name the table itself"
            )
        full, as_of = unmarked(self.full(name))
        if as_of is not None:
            raise UnsupportedStatement(
                f"{full} can't be changed as of {as_of}; ALTER TABLE … ROLLBACK TO undoes changes"
            )
        if full in self.temporary:
            raise UnsupportedStatement(
                f"{full} is a temporary table, which only INSERT and TRUNCATE change; CREATE TABLE"
                " makes one that every statement changes"
            )
        try:
            return self.record(name)
        except NoSuchTable:
            if full in self.views:
                raise UnsupportedStatement(
                    f"{full} is a view, which can only be read; name the table that it reads"
                ) from None
            if full in self.externals:
                raise UnsupportedStatement(
                    f"{full} is an external table, whose files are only read; INSERT its rows into"
                    " another table"
                ) from None
            raise

    def columns(self, full: str) -> tuple[str, ...]:
        """The names of the columns of a table or view, those of partitions included."""
        changes = self.changes(full)
        if changes is not None:
            return tuple(column.name for column in changes.columns)
        return tuple(name for name, _ in self.declared(full))

    def declared(self, full: str) -> tuple[tuple[str, str], ...]:
        """The names and types of the columns of a table or view. Raises NoSuchTable."""
        if (view := self.view(full) or self.external(full)) is not None:
            return view.columns
        record = self.record(full)
        return (*record.columns, *record.partition_columns)

    def require_database(self, name: str) -> str:
        """Raises InvalidDefinition, which suggests a similar name, if there is no such database."""
        databases = self._metastore.databases()
        if name not in databases:
            near = nearest_name(name, databases)
            hint = f"did you mean {near}?" if near else "SHOW DATABASES lists them"
            raise InvalidDefinition(f"there is no database {name}; {hint}")
        return name


def _nearest(full: str, names: Iterable[str]) -> str | None:
    """The table with the most similar name, preferably in the same database."""
    database, _, table = full.partition(".")
    names = sorted(names)
    similar = difflib.get_close_matches(table, [name.partition(".")[2] for name in names])
    ranked = sorted(
        (name for name in names if name.partition(".")[2] in similar),
        key=lambda name: (
            similar.index(name.partition(".")[2]),
            not name.startswith(f"{database}."),
        ),
    )
    return ranked[0] if ranked else None
