"""Looking up the tables and views that a statement names, and the queries of views.

CREATE VIEW keeps the text that the user wrote; each table in it is replaced by the columns that the
view needs of it: ``(SELECT `a`, `b` FROM `d`.`t`) AS `t` ``. So `*`, natural joins and names
without a table mean later what they meant at first, whatever columns the table gets, here and in
every engine that reads the text through the gateway.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.base.arguments import nearest_name
from acid_platform.base.config import Settings
from acid_platform.errors import InvalidDefinition, NoSuchTable, UnknownColumn, UnsupportedStatement
from acid_platform.handles.snapshot_views import ScanRequest, SnapshotView
from acid_platform.layout.acid_keys import VIRTUAL_COLUMNS
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, HiveType, parse_type
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import PastTable, TableRecord, ViewRecord
from acid_platform.scan.scans import Scan
from acid_platform.sql.column_references import resolve
from acid_platform.sql.query_tables import ViewQuery, one_more
from acid_platform.sql.scopes import NamedColumns, full_name, stored_tables
from acid_platform.sql.text import Edit, Query, edited, place, query, span
from acid_platform.sql.time_travel import changes_between, unmarked
from acid_platform.tables.declaration import wider

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan

_NONE: Mapping[str, ViewRecord] = MappingProxyType({})


class Catalog:
    """The tables and views for one statement; each is looked up once.

    Their declarations are those of `snapshot`; None: the current ones. `tables` are full names that
    are not views. `temporary` are the session's own tables, which hide others of their names, and
    its views, by names of no database: queries have them expanded (see `temporary_views`).
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
        return name.lower() if name.lower() in self.temporary else self.stored(name)

    def stored(self, name: str) -> str:
        """The full name of what is declared, or is to be, whatever temporary view has the name."""
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
        return {name: view for name, view in self._others.items() if view.external is not None}

    @property
    def metastore_id(self) -> int:
        """Tells the tables of one warehouse in this process from those of another."""
        return id(self._metastore)

    def all_tables(self, names: Iterable[str]) -> bool:
        """Whether none of the full names can be that of a view."""
        return all(map(self._is_table, names))

    def tables_behind(self, full: str) -> frozenset[str] | None:
        """The tables that a view reads, through other views too; none for an external table, and
        None for a name that is neither."""
        if full not in self._others:
            return None
        names, tables = [full], set[str]()
        for name in names:  # which grows
            view = self._others.get(name)
            if view is None:
                tables.add(name)
            else:
                names += [each for each, _ in view.reads if each not in names]
        return frozenset(tables)

    def view(self, full: str) -> ViewRecord | None:
        return None if self._is_table(full) else self.views.get(full)

    def external(self, full: str) -> ViewRecord | None:
        """The external or temporary table of this name, None for any other name."""
        return None if self._is_table(full) else self.externals.get(full)

    def _is_table(self, full: str) -> bool:
        return full in self._tables and full not in self.temporary

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
            self._refuse_others(
                full,
                "which has no history; name the tables that it reads",
                "which has no history: its files are read as they are now",
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
                if full.count(".") > 1:
                    hint = "a name has two parts, each in quotes of its own: `db`.`t`"
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
            self._refuse_others(
                full,
                "whose changes nobody records; name the tables that it reads",
                "whose changes nobody records",
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
        if full in self.temporary and full in self.externals:
            raise UnsupportedStatement(
                f"{full} is a temporary table, which only INSERT and TRUNCATE change; CREATE TABLE"
                " makes one that every statement changes"
            )
        try:
            return self.record(name)
        except NoSuchTable as error:
            found = error
        self._refuse_others(
            full,
            "which can only be read; name the table that it reads",
            "whose files are only read; INSERT its rows into another table",
        )
        raise found

    def _refuse_others(self, full: str, view: str, external: str) -> None:
        """Raises UnsupportedStatement, with why and what to do, for what is no table here."""
        for names, what in (
            (self.views, f"a view, {view}"),
            (self.externals, f"an external table, {external}"),
        ):
            if full in names:
                raise UnsupportedStatement(f"{full} is {what}")

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
            hint = f"did you mean {near}?" if near else f"CREATE DATABASE {quoted(name)} makes it"
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


Columns = Sequence[tuple[str, str]]
"""Names and types."""
Reads = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Full names of tables and views, each with the columns that a view reads of it."""


def self_contained(written: Query, database: str, columns_of: Callable[[str], Columns]) -> Query:
    """A query that means the same in every session and after its tables got other columns.

    `database` is the session's, `columns_of` gives the columns of a table or view by its full name.
    Raises UnsupportedStatement for `*` beside virtual columns.
    """
    tree = written.tree
    tables = stored_tables(tree)
    names = resolve(tree, tables, lambda full: [name for name, _ in columns_of(full)], database)
    edits = [*names.edits]
    naming = NamedColumns.of(tree)
    for table in tables:
        full, where, alias = full_name(table, database), place(table), names.aliases[id(table)]
        select = table.find_ancestor(exp.Select)
        stored = ".".join(quoted(part) for part in full.split("."))
        as_it_is = select is not None and _only_columns(select, table)
        if not as_it_is:
            stored = f"(SELECT {_listed(naming, table, columns_of(full))} FROM {stored})"
        edits.append(Edit(where.start, where.stop, stored))
        if where.alias is not None and not (as_it_is and alias == table.name):
            edits.append(Edit(where.alias, where.alias, f" AS {quoted(alias)}"))
    return query(edited(written.text, edits))


def columns_read(written: Query, columns_of: Callable[[str], Columns]) -> Reads:
    """What a self-contained query reads of each table and view."""
    tree = written.tree
    naming = NamedColumns.of(tree)
    reads: dict[str, dict[str, str]] = {}
    for table in stored_tables(tree):
        full = full_name(table, "")
        columns = dict(columns_of(full))
        needed = naming.needed(table, columns) or ()
        reads.setdefault(full, {}).update((name, columns[name]) for name in needed)
    return tuple((full, tuple(columns.items())) for full, columns in reads.items())


def named(written: Query, columns: Sequence[str]) -> str:
    """The text of the query with other names for its columns."""
    return f"SELECT * FROM (\n{written.text}\n) AS `v` ({', '.join(map(quoted, columns))})"


def query_now(view: ViewRecord, columns_of: Callable[[str], Columns]) -> Query:
    """The query of a view with the types of its creation, over the present tables.

    A value of a widened column that does not fit the type of then is an error when it is read.
    Raises NoSuchTable, UnknownColumn, InvalidDefinition for a table that no longer has a column
    that the view reads, or has it with a type from which there is no way back.
    """
    casts: dict[str, dict[str, str]] = {}
    for full, columns in view.reads:
        now = dict(columns_of(full)) if columns else {}
        for name, then in columns:
            if name not in now:
                raise UnknownColumn(
                    f"view {view.name} reads column {name!r} of {full}, which has no such column"
                    " any more; make the view again with CREATE OR REPLACE VIEW"
                )
            if now[name] != then:
                cast = _narrowed(quoted(name), parse_type(now[name]), parse_type(then), view.name)
                if cast is None:
                    raise InvalidDefinition(
                        f"view {view.name} reads column {name!r} of {full} as {then}, but it is"
                        f" {now[name]} now; make the view again with CREATE OR REPLACE VIEW"
                    )
                casts.setdefault(full, {})[name] = f"{cast} AS {quoted(name)}"
    written = query(view.query)
    edits = [
        Edit(*span(column.this), casts[full][column.name.lower()])
        for table in stored_tables(written.tree)
        if (full := full_name(table, "")) in casts and (select := table.find_ancestor(exp.Select))
        for column in select.expressions
        if column.name.lower() in casts[full]
    ]
    return query(edited(view.query, edits)) if edits else written


def tables_read(
    written: Query,
    database: str,
    view_query: ViewQuery,
    above: tuple[str, ...] = (),
    known: dict[str, set[str]] | None = None,
) -> set[str]:
    """The full names of the tables that a query reads, also through views, each of which is looked
    at once.

    `above` are the views that it is part of. Raises InvalidDefinition for a view that reads itself.
    """
    of_views = {} if known is None else known
    names = set[str]()
    for table in stored_tables(written.tree):
        name = full_name(table, database)
        if name in of_views and name not in above:
            names |= of_views[name]
            continue
        view = view_query(name)
        if view is None:
            names.add(name)
        else:
            inside = one_more(above, name)
            of_views[name] = tables_read(view, database, view_query, inside, of_views)
            names |= of_views[name]
    return names


def _only_columns(select: exp.Select, table: exp.Table) -> bool:
    """Whether a SELECT lists columns of this table and does nothing else."""
    clauses = {name for name, value in select.args.items() if value}
    return (
        clauses <= {"expressions", "from_"}
        and select.args["from_"].this is table
        and {name for name, value in table.args.items() if value} <= {"this", "db"}
        and all(
            isinstance(item, exp.Column) and len(item.parts) == 1 and not item.is_star
            for item in select.expressions
        )
    )


def _listed(naming: NamedColumns, table: exp.Table, columns: Columns) -> str:
    """The columns that a query needs of a table, as a list in SQL."""
    names = [name for name, _ in columns]
    needed = naming.needed(table, names)
    select = table.find_ancestor(exp.Select)
    virtual = {
        column.name.lower()
        for column in (select.find_all(exp.Column) if select else ())
        if column.name.lower() in VIRTUAL_COLUMNS
        and column.table.lower() in ("", table.alias_or_name.lower())
    }
    if virtual and needed is None:
        raise UnsupportedStatement(
            f"a view with * and {min(virtual)} is not supported; name the columns of {table.name}"
        )
    listed = [*(names if needed is None else needed), *sorted(virtual, reverse=True)]
    return ", ".join(map(quoted, listed)) or "1"


def _narrowed(value: str, now: HiveType, then: HiveType, view: str) -> str | None:
    """A value in the narrower type of then, or an error if it does not fit; None if none is known.

    Reading rounds nothing and cuts nothing off. SQL has no way back to char and varchar.
    """
    if not wider(then, now) or then.kind in CHAR_TYPES:
        return None
    if {then.kind, now.kind} <= {*INTEGRAL, "decimal"} and then.sizes[1:] == now.sizes[1:]:
        return f"CAST({value} AS {then})"
    text = f"concat({sql_string(f'view {view}: ')}, CAST({value} AS string)"
    failure = f"CAST(CAST({text}, {sql_string(f' is no {then}')}) AS int) AS {then})"
    cast = f"CAST({value} AS {then})"
    fits = f"CAST({cast} AS {now}) = {value}"
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {fits} THEN {cast} ELSE {failure} END"
