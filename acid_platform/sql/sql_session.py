"""A SQL session: runs statements, and keeps the current database and the open transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, Union

from acid_platform.base.config import Settings, Treatment, setting
from acid_platform.base.nesting import shallow
from acid_platform.base.recent import Recent
from acid_platform.engine.results import Result
from acid_platform.errors import (
    AcidError,
    NoSuchTable,
    NoSuchTxn,
    OutcomeUnknown,
    TxnAborted,
    UnsupportedStatement,
)
from acid_platform.handles.transaction import Transaction, autocommit
from acid_platform.metastore.operations.compaction import AbortCompactions
from acid_platform.metastore.shown import Shown
from acid_platform.sql import run_queries
from acid_platform.sql.answers import Done
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.parse import parse
from acid_platform.sql.partition_specs import matching
from acid_platform.sql.run_changes import Changes, insert_with_others, target_of
from acid_platform.sql.run_definitions import define, name_of
from acid_platform.sql.run_explain import explain
from acid_platform.sql.run_shows import show
from acid_platform.sql.script import ScriptStatement, split
from acid_platform.sql.statements import (
    SUPPORTED,
    AbortTransactions,
    Change,
    Compact,
    Control,
    Definition,
    Explain,
    Insert,
    SetValue,
    Show,
    Statement,
    Use,
)
from acid_platform.sql.text import Query

if TYPE_CHECKING:
    import pandas as pd

    from acid_platform.handles.warehouse import Warehouse

Answer: TypeAlias = Union[Result, "pd.DataFrame", Done]
"""The result of a SELECT, of a SHOW, and of any other statement."""
Outcome: TypeAlias = Result | Shown | Done
"""An answer before its conversion to pandas, whose import can take longer than the statement."""


LONGEST_KEPT = 10_000
"""Characters of a script whose parsed queries are kept for the next time.

Nobody changes the tree of a query; those of other statements are changed while they run.
"""


class SqlSession:
    """The SQL session of a warehouse handle: its current database and its open transaction."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._txn: Transaction | None = None
        self.current_database = "default"
        self._parsed: Recent[str, tuple[tuple[ScriptStatement, Statement], ...]] = Recent(256)
        self._views: set[str] = set()
        """Names that were views when they were last read."""

    @property
    def in_transaction(self) -> bool:
        return self._txn is not None

    def run(self, script: str, engine: str | None = None) -> Answer:
        """Runs a script; returns the result of the last statement. Raises as `steps`."""
        outcome = list(self.steps(script, engine))[-1][1]
        return outcome.to_pandas() if isinstance(outcome, Shown) else outcome

    def steps(
        self, script: str, engine: str | None = None
    ) -> Iterator[tuple[ScriptStatement, Outcome]]:
        """Runs a script; yields each statement with its result. The first error ends the script.

        The whole script is parsed before anything runs. A statement that fails inside a transaction
        rolls it back, as in Hive. `engine`: see Warehouse.using. Raises UnsupportedStatement,
        InvalidExpression and whatever the statements raise.
        """
        statements = self._parsed.get(script)
        if statements is None:
            with shallow("the script"):
                statements = tuple((written, parse(written)) for written in split(script))
            lasting = all(
                isinstance(statement, Query) and not statement.momentary
                for _, statement in statements
            )
            if lasting and len(script) <= LONGEST_KEPT:
                self._parsed.put(script, statements)
        if not statements:
            raise UnsupportedStatement(f"there is no statement; supported: {', '.join(SUPPORTED)}")
        for written, statement in statements:
            try:
                with self._warehouse.using(engine), shallow("the statement"):
                    answer = self._run(statement)
            except BaseException as error:
                self._roll_back_after(error)
                raise
            yield written, answer

    def close(self) -> None:
        """Roll back the open transaction, if any."""
        with suppress(AcidError):
            self._end(Control.ROLLBACK)

    # --- one statement ------------------------------------------------------------------------

    def _run(self, statement: Statement) -> Outcome:
        warehouse = self._warehouse
        catalog = Catalog(warehouse.metastore, self.current_database)
        if isinstance(statement, Change):
            return self._change(catalog, statement)
        if isinstance(statement, Definition):
            if self._txn is not None:
                raise UnsupportedStatement(
                    f"{name_of(statement)} can't be part of a transaction; COMMIT first"
                )
            return define(warehouse, catalog, statement)
        match statement:
            case Query():
                return self._select(catalog, statement)
            case Show():
                return show(warehouse, catalog, statement)
            case Use():
                self.current_database = catalog.require_database(statement.name)
                return Done("USE")
            case SetValue():
                return self._set(statement)
            case Control.START:
                return self._start()
            case Control():
                return self._end(statement)
            case Compact():
                return self._compact(catalog, statement)
            case AbortTransactions():
                return self._abort(statement)
            case Explain():
                explained = statement.statement
                query = explained if isinstance(explained, Query) else None
                with self._reading(catalog, query) as (seen, scans):
                    return explain(warehouse, seen, explained, scans)

    @contextmanager
    def _reading(
        self, catalog: Catalog, query: Query | None
    ) -> Iterator[tuple[Catalog, run_queries.Scans]]:
        """Declarations and scans of one snapshot: the transaction's, or a new one (P28)."""
        if self._txn is not None:
            yield self._catalog(self._txn), self._txn.view.scans
            return
        named = run_queries.names_in(catalog, query) if query is not None else []
        leases = self._warehouse.leases
        with ExitStack() as stack:
            view = None
            if not self._views & set(named):
                try:
                    view = stack.enter_context(leases.lasting(*named))
                except NoSuchTable:  # a view, or misspelt
                    self._views |= set(named) & set(catalog.views)
            if view is None:
                tables = run_queries.tables_of(catalog, query) if query is not None else ()
                view = stack.enter_context(leases.lasting(*tables))
            seen = Catalog(self._warehouse.metastore, self.current_database, view, view.tables)
            yield seen, view.scans

    def _catalog(self, txn: Transaction) -> Catalog:
        return Catalog(self._warehouse.metastore, self.current_database, txn.view)

    def _select(self, catalog: Catalog, statement: Query) -> Result:
        with self._reading(catalog, statement) as (seen, scans):
            if self._txn is None:
                counted = run_queries.count_from_footers(self._warehouse, seen, statement, scans)
                if counted is not None:
                    return counted
            return run_queries.run(self._warehouse, seen, statement, scans)

    def _change(self, catalog: Catalog, statement: Change) -> Done:
        def work(txn: Transaction) -> Done:
            return Changes(self._warehouse, self._catalog(txn), txn).run(statement)

        if self._txn is not None:
            return work(self._txn)
        if isinstance(statement, Insert):
            done = insert_with_others(self._warehouse, catalog, statement)
            if done is not None:
                return done
        return autocommit(self._warehouse, target_of(statement, catalog).name, work)

    # --- transactions -------------------------------------------------------------------------

    def _start(self) -> Done:
        if self._txn is not None:
            raise UnsupportedStatement(
                f"transaction {self._txn.id} is already open; COMMIT or ROLLBACK ends it"
            )
        self._txn = self._warehouse.transaction()
        return Done("START TRANSACTION", f"transaction {self._txn.id} is open")

    def _end(self, control: Control) -> Done:
        txn = self._txn
        if txn is None:
            raise NoSuchTxn(f"{control.value}: no transaction is open; START TRANSACTION opens one")
        if control is Control.COMMIT:
            try:
                txn.commit()
            except OutcomeUnknown:
                self._txn = None  # after any other error `steps` rolls back
                raise
            self._txn = None
            return Done("COMMIT", f"transaction {txn.id} is committed")
        self._txn = None
        txn.abort("ROLLBACK")
        return Done("ROLLBACK", f"transaction {txn.id} is rolled back")

    def _roll_back_after(self, error: BaseException) -> None:
        txn, self._txn = self._txn, None
        if txn is None:
            return
        if not isinstance(error, TxnAborted):
            with suppress(AcidError):
                txn.abort(f"{type(error).__name__}: {error}"[:500])
        note = f"transaction {txn.id} was rolled back"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    # --- operating ----------------------------------------------------------------------------

    def _set(self, statement: SetValue) -> Outcome:
        """SET changes and shows settings of the whole warehouse (P9)."""
        settings = Settings.of(self._warehouse.metastore.settings())
        if not statement.name:
            return Shown.lines("set", [f"{name}={value}" for name, value in settings.items()])
        if statement.value is None:
            return Shown.lines("set", [f"{statement.name}={settings.text(statement.name)}"])
        known = setting(statement.name)
        self._warehouse.metastore.set(statement.name, statement.value)
        if self._txn is not None:
            self._txn.learn_settings()
        if known.treatment is Treatment.NO_EFFECT:
            return Done("SET", f"OK, but without effect: {known.reason}")
        return Done("SET")

    def _compact(self, catalog: Catalog, statement: Compact) -> Done:
        record = catalog.target(statement.table)
        targets: list[str | None] = [None]
        if statement.partition is not None:
            targets = [*matching(self._warehouse.metastore, record, statement.partition)]
        elif record.partitioned:
            targets = [*sorted(self._warehouse.metastore.partitions(record.name))]
        rows = self._warehouse.compact(record.name, targets, statement.kind, statement.wait)
        ids = tuple(int(row["compactionid"]) for row in rows)
        messages = [f"Compaction enqueued with id {id_}" for id_ in ids]
        if statement.wait:
            messages += [
                f"Compaction with id {row['compactionid']} finished with status: {row['state']}"
                for row in rows
            ]
        return Done("COMPACT", "\n".join(messages) or "nothing to compact", ids=ids)

    def _abort(self, statement: AbortTransactions) -> Outcome:
        if not statement.compactions:
            return Done("ABORT TRANSACTIONS", self._warehouse.abort_transactions(statement.ids))
        messages = self._warehouse.metastore.call(AbortCompactions(tuple(statement.ids)))
        rows = ({"compactionid": id_, "status": told} for id_, told in messages.items())
        return Shown(("compactionid", "status"), tuple(rows))
