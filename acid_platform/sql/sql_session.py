"""A SQL session: runs statements, and keeps the current database, the open transaction and its
temporary tables.

Those are ORC files in a directory of this process, nowhere declared. A file never changes: INSERT
adds one, and INSERT OVERWRITE and TRUNCATE go on in another directory, so that results which were
not computed yet keep their rows.
"""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from acid_platform.base.first_use import Recent
from acid_platform.base.local_files import ScratchDirectory, scratch_directory
from acid_platform.base.logs import statement_span
from acid_platform.engine.interface import Result, one_moment
from acid_platform.errors import (
    AcidError,
    NoSuchTable,
    TableExists,
    TxnAborted,
    UnsupportedStatement,
)
from acid_platform.formats.data_file import Keyed
from acid_platform.formats.file_access import new_file, to_be_stored
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.handles.transaction import Transaction, autocommit, locks_at_begin
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.names import refuse_names
from acid_platform.layout.table_properties import FILE_FORMAT, refuse_promises
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.operations.listings import Shown
from acid_platform.metastore.records import ExternalFiles, LockRequest, TableRecord, ViewRecord
from acid_platform.predicates.analysis import shallow
from acid_platform.sql import run_queries
from acid_platform.sql.answers import Answer, Done, Outcome, ShownResult
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.parse import NO_STATEMENT, ScriptStatement, parse, split
from acid_platform.sql.scripts import Parameters, bound
from acid_platform.sql.statements import (
    Change,
    Command,
    CreateTable,
    Insert,
    Statement,
    Truncate,
    names_read,
    rows_read,
)
from acid_platform.sql.text import Query
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import check_columns, comments_of
from acid_platform.tables.external_tables import as_table, files_of
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.local_rows import local_table


@dataclass(slots=True)
class TemporaryTables:
    """By their full names; views by theirs. Files go with `close`, or when this process ends."""

    declared: dict[str, ViewRecord] = field(default_factory=dict)
    _directory: ScratchDirectory | None = None

    @property
    def views(self) -> dict[str, str]:
        """The queries of the temporary views, by their names, which are of no database."""
        every = self.declared.items()
        return {name: view.query for name, view in every if view.external is None}

    def place(self) -> str:
        """A new directory."""
        if self._directory is None:
            self._directory = scratch_directory("temporary")
        directory = Path(self._directory.name, uuid.uuid4().hex)
        directory.mkdir()
        return str(directory)

    def drop(self, full: str) -> None:
        """Its files stay until the session ends, for results that are computed later."""
        del self.declared[full]

    def close(self) -> None:
        self.declared.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


def create_temporary(
    session: SqlSession, full: str, declared: CreateTable, rows: Result | None
) -> Done | None:
    """Raises TableExists, InvalidDefinition, UnsupportedStatement for what such a table can't
    have."""
    if full in session.temporary.declared:
        if declared.if_not_exists:
            return None
        raise TableExists(f"temporary table {full} exists; use IF NOT EXISTS, or another name")
    refuse_promises(full, declared.properties)
    without = {
        "PARTITIONED BY": bool(declared.keys) and not declared.like,
        "CLUSTERED BY": declared.clustered_by is not None and not declared.like,
        "LOCATION": declared.location is not None,
        "constraints": bool(declared.constraints),
    }
    if refused := [name for name, stated in without.items() if stated]:
        raise UnsupportedStatement(
            f"CREATE TEMPORARY TABLE with {refused[0]} is not supported; leave that part out"
        )
    refuse_names(full)
    text = ", ".join(filter(None, (declared.columns, *declared.keys)))
    columns = parse_columns(text) if rows is None else rows.declared()
    check_columns(full, columns, (), written_before=True)
    view = ViewRecord(
        full,
        "",
        tuple((column.name, str(column.type)) for column in columns),
        properties={
            name: text for name, text in declared.properties.items() if name != FILE_FORMAT.name
        },
        comments=comments_of(full, columns, declared.comments),
        external=ExternalFiles(session.temporary.place(), ACID_FORMAT.name),
    )
    count = 0 if rows is None else _written(view, columns, rows)
    session.temporary.declared[full] = view
    return None if rows is None else Done.changed("CREATE TABLE", count)


_DECLARATIONS = "information_schema."
"""The database whose tables are made for each statement that names them."""


def change_temporary(
    session: SqlSession, catalog: Catalog, full: str, statement: Insert | Truncate
) -> Done:
    """INSERT INTO or OVERWRITE, or TRUNCATE. Raises UnsupportedStatement in a transaction, which
    could not take it back, and WrongType."""
    from acid_platform.sql.run_changes import inserted_rows  # not for a SELECT

    if session.in_transaction:
        raise UnsupportedStatement(
            f"{full} is a temporary table, which can't be changed in a transaction; COMMIT first"
        )
    if full.startswith(_DECLARATIONS):
        raise UnsupportedStatement(f"{full} tells what is declared, and can only be read")
    view = session.temporary.declared[full]
    if isinstance(statement, Truncate):
        session.temporary.declared[full] = _emptied(session, view)
        return Done("TRUNCATE")
    record = as_table(view)
    reads = rows_read(statement, record)
    with session.reading(catalog, [] if reads is None else [reads]) as at_snapshot:
        _, rows = inserted_rows(session.warehouse, at_snapshot, statement, record)
        columns, _ = columns_of_record(record)
        changed = _emptied(session, view) if statement.overwrite else view
        count = _written(changed, columns, rows)
    session.temporary.declared[full] = changed
    return Done.changed("INSERT", count)


def _emptied(session: SqlSession, view: ViewRecord) -> ViewRecord:
    return replace(view, external=replace(files_of(view), location=session.temporary.place()))


def _written(view: ViewRecord, columns: tuple[Column, ...], rows: Result) -> int:
    """Adds a file with the rows; columns that they lack are NULL. Returns their number."""
    kinds = {column.name: arrow_type(column.type) for column in columns}

    def conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
        table = local_table(pa.Table.from_batches([batch]), columns, view.name)
        arrays = [
            table.column(name).combine_chunks()
            if name in table.column_names
            else pa.nulls(batch.num_rows, kind)
            for name, kind in kinds.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(kinds))

    batches = (conformed(batch) for batch in rows.batches() if batch.num_rows)
    files, directory = Files.of(files_of(view).location)
    path = f"{directory}/{uuid.uuid4().hex}"
    stored = FileFormat()
    writer = new_file(files, path, columns, stored, "zlib")
    try:
        for batch in batches:
            arrays = [to_be_stored(array, stored) for array in batch.columns]
            values = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
            writer.put(Keyed(None, 0, values))
        return writer.close()
    except BaseException:
        writer.give_up()
        raise


MOST_CHARACTERS = 10_000
"""The longest script whose parsed queries are used again the next time.

Nobody changes the tree of a query; those of other statements are changed while they run.
"""


class SqlSession:
    """The SQL session of a warehouse handle: its current database and its open transaction."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.transaction: Transaction | None = None
        self.current_database = "default"
        self.settings: dict[str, str] = {}
        """What this session has SET, also what nothing here reads and nobody stores."""
        self._parsed: Recent[str, tuple[tuple[ScriptStatement, Statement], ...]] = Recent(256)
        self._views: dict[str, frozenset[str]] = {}
        """Names that were views or external tables when they were last read, and the tables that
        each of them reads."""
        self._known: dict[str, TableRecord] = {}
        """The tables that this session has changed, by their full names."""
        self.temporary = TemporaryTables()
        """The tables and views of this session, which nobody else sees."""

    @property
    def in_transaction(self) -> bool:
        return self.transaction is not None

    def run(
        self, script: str, engine: str | None = None, parameters: Parameters | None = None
    ) -> Answer:
        """Runs a script; returns the result of the last statement. Raises as `steps`."""
        outcome = list(self.steps(script, engine, parameters))[-1][1]
        if isinstance(outcome, Shown):
            return ShownResult.of(outcome, lambda: self.warehouse.spark)
        return outcome

    def steps(
        self, script: str, engine: str | None = None, parameters: Parameters | None = None
    ) -> Iterator[tuple[ScriptStatement, Outcome]]:
        """Runs a script; yields each statement with its result. The first error ends the script.

        The whole script is parsed before anything runs. A statement that fails inside a transaction
        rolls it back, as in Hive. `engine`: see Warehouse.using. `parameters`: values for the
        script's `:name`, see `parameters.bound`. Raises UnsupportedStatement, InvalidExpression and
        whatever the statements raise.
        """
        if parameters or ":" in script:
            script = bound(script, parameters or {})
        statements = self._parsed.get(script)
        if statements is None:
            with shallow("the script"):
                statements = tuple(_parsed(split(script)))
            lasting = all(
                isinstance(statement, Query) and not statement.momentary
                for _, statement in statements
            )
            if lasting and len(script) <= MOST_CHARACTERS:
                self._parsed.put(script, statements)
        if not statements:
            raise UnsupportedStatement(NO_STATEMENT)
        for number, (written, statement) in enumerate(statements, 1):
            try:
                own = self.transaction.id if self.transaction else 0
                with (
                    statement_span(type(statement).__name__, own, self.warehouse.run_id),
                    one_moment(),
                    self.warehouse.using(engine),
                    shallow("the statement"),
                ):
                    if _DECLARATIONS[:-1] in written.plain.lower():
                        self._declare_everything(written.plain)
                    answer = self._run(statement)
            except BaseException as error:
                self._roll_back_after(error)
                _locate(error, number, len(statements), written)
                raise
            yield written, answer

    def close(self) -> None:
        """Rolls back the open transaction, if any, and removes the temporary tables."""
        if self.transaction is not None:
            with suppress(AcidError):
                self.transaction.abort("ROLLBACK")
            self.transaction = None
        self.temporary.close()

    def _declare_everything(self, text: str) -> None:
        """Makes the tables of `information_schema` that a statement names, as they are now."""
        from acid_platform.sql import information_schema

        if information_schema.DATABASE in self.warehouse.metastore.databases():
            return
        for name in information_schema.named_in(text):
            full = f"{information_schema.DATABASE}.{name}"
            self.temporary.declared.pop(full, None)
            rows = information_schema.rows_of(self.warehouse, name)
            create_temporary(self, full, CreateTable(full, ""), rows)

    def _run(self, statement: Statement) -> Outcome:
        catalog = self._catalog_of()
        if views := self.temporary.views:
            from acid_platform.sql.temporary_views import expanded

            statement = expanded(statement, views)
        if isinstance(statement, Query):
            return self._select(catalog, statement)
        if isinstance(statement, Change):
            return self._change(catalog, statement)
        if statement.alone and self.in_transaction:
            raise UnsupportedStatement(
                f"{statement.name} can't be part of a transaction; COMMIT first"
            )
        return statement.run(self, catalog)

    @contextmanager
    def reading(
        self, catalog: Catalog, queries: Sequence[Query], changed: Sequence[str] = ()
    ) -> Iterator[Catalog]:
        """The catalog of one snapshot: the transaction's, or a new one (P28), in which the tables
        of the queries and those of `changed` are as they are now."""
        if self.transaction is not None:
            yield self._catalog_of(self.transaction.view)
            return
        named = {name for query in queries for name in run_queries.names_in(catalog, query)}
        leases = self.warehouse.leases
        with ExitStack() as stack:
            view = None
            if not self._views.keys() & named:
                try:
                    view = stack.enter_context(leases.lasting(*sorted(named.union(changed))))
                except NoSuchTable:  # a view, or misspelt
                    self._learn(catalog, named)
            if view is None:
                tables = {
                    name for query in queries for name in run_queries.tables_of(catalog, query)
                }
                view = stack.enter_context(leases.lasting(*sorted(tables.union(changed))))
            yield self._catalog_of(view, view.tables)

    def _catalog_of(
        self, snapshot: SnapshotView | None = None, tables: Collection[str] = ()
    ) -> Catalog:
        metastore = self.warehouse.metastore
        return Catalog(metastore, self.current_database, snapshot, tables, self.temporary.declared)

    def _select(self, catalog: Catalog, query: Query) -> Result:
        with self.reading(catalog, [query]) as at_snapshot:
            if not self.in_transaction:
                answer = run_queries.from_records(self.warehouse, at_snapshot, query)
                if isinstance(answer, Result):
                    return answer
                query = answer
            return run_queries.run(self.warehouse, at_snapshot, query)

    def _change(self, catalog: Catalog, statement: Change) -> Done:
        from acid_platform.sql.run_changes import Changes, checked_rows  # not for a SELECT

        begun = False
        checked: TableRecord | None = None
        rows = None

        def change(txn: Transaction) -> Done:
            nonlocal begun
            begun = True
            own = self._catalog_of(txn.view, txn.view.transaction.described)
            for part in statement.parts:
                self._known[catalog.full(part.table)] = own.target(part.table)
            with txn.writing():
                return Changes(self.warehouse, own, txn, checked, rows).run(statement)

        full = catalog.full(statement.table)
        own = self.temporary.declared.get(full)
        if own is not None and own.external and isinstance(statement, Insert | Truncate):
            return change_temporary(self, catalog, full, statement)
        if self.transaction is not None:
            return change(self.transaction)

        def committed(reads: Collection[str]) -> Done:
            records = [self._declared(catalog, part.table) for part in statement.parts]
            wanted = [part.lock_at_begin for part in statement.parts]
            locks: Sequence[LockRequest] = ()
            nonlocal checked, rows
            with suppress(AcidError):  # the transaction sees whether that is still wrong
                rows = checked_rows(statement, records[0])
                checked = records[0] if rows else None
                locks = locks_at_begin(self.warehouse, zip(records, wanted, strict=True))
            reads = {*reads} - {record.name for record in records}
            return autocommit(self.warehouse, records[0].name, change, locks, sorted(reads))

        named = {*names_read(statement, self.current_database)}
        for _ in range(2):
            reads = self._tables_of(named) - {*catalog.temporary}
            try:
                return committed(reads)
            except NoSuchTable:  # what it names is a view, was dropped, or is misspelt
                if begun:
                    raise
            self._known.clear()
            self._learn(catalog, named)
            if self._tables_of(named) - {*catalog.temporary} == reads:
                break
        return committed(())

    def _learn(self, catalog: Catalog, names: Collection[str]) -> None:
        """Keeps which of the names are views or external tables now."""
        found = {name: catalog.tables_behind(name) for name in names}
        self._views.update((name, tables) for name, tables in found.items() if tables is not None)

    def _tables_of(self, names: Collection[str]) -> set[str]:
        """The tables that a transaction is asked for, as far as this session knows: it is asked
        about others, and about views, when they are read."""
        return {table for name in names for table in self._views.get(name, (name,))}

    def _declared(self, catalog: Catalog, name: str) -> TableRecord:
        """A table as this session saw it last: enough to tell the lock with which a transaction
        begins, which then sees the declaration. Raises as `Catalog.target`."""
        full = catalog.full(name)
        known = None if full in catalog.temporary else self._known.get(full)
        return known or catalog.target(name)

    def _roll_back_after(self, error: BaseException) -> None:
        txn, self.transaction = self.transaction, None
        if txn is None:
            return
        if not isinstance(error, TxnAborted):
            with suppress(AcidError):
                txn.abort(f"{type(error).__name__}: {error}"[:500])
        note = f"transaction {txn.id} was rolled back"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _parsed(script: Sequence[ScriptStatement]) -> Iterator[tuple[ScriptStatement, Statement]]:
    for number, written in enumerate(script, 1):
        try:
            yield written, parse(written)
        except AcidError as error:
            _locate(error, number, len(script), written)
            raise


def _locate(error: BaseException, number: int, count: int, written: ScriptStatement) -> None:
    """Adds to the error which statement of a script it is of."""
    if count > 1:
        error.add_note(f"statement {number} of {count}: {textwrap.shorten(written.plain, 80)}")


_BOUNDS = ("START TRANSACTION", "COMMIT", "ROLLBACK")


class TransactionSession(SqlSession):
    """Statements of one transaction. One that fails leaves it open, as a verb does."""

    def __init__(self, warehouse: Warehouse, transaction: Transaction) -> None:
        super().__init__(warehouse)
        self.transaction = transaction

    def _run(self, statement: Statement) -> Outcome:
        if isinstance(statement, Command) and statement.name in _BOUNDS:
            raise UnsupportedStatement(
                f"{statement.name} inside of txn.sql: the block that began the transaction ends it;"
                " raise an error to have it aborted"
            )
        return super()._run(statement)

    def _roll_back_after(self, error: BaseException) -> None:
        """Leaves that to the transaction's block."""
