"""Running the statements that steer the session and operate the warehouse; SET: `run_settings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.compaction.states import CompactionKind
from acid_platform.errors import NoSuchTxn, OutcomeUnknown, UnsupportedStatement
from acid_platform.metastore.operations.compaction import AbortCompactions
from acid_platform.metastore.shown import Shown
from acid_platform.sql.answers import Done
from acid_platform.sql.commands import ALTER, ONE, Commands
from acid_platform.sql.partition_specs import PartitionSpec, matching

if TYPE_CHECKING:
    from acid_platform.handles.transaction import Transaction
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.sql_session import SqlSession

OPERATIONS = Commands()


@OPERATIONS("USE", rf"use (?:database )?(?P<database>{ONE})")
def use(session: SqlSession, catalog: Catalog, database: str) -> None:
    session.current_database = catalog.require_database(database)


# --- transactions ---------------------------------------------------------------------------------


@OPERATIONS("START TRANSACTION", r"(?:start transaction|begin)")
def start(session: SqlSession, _catalog: Catalog) -> Done:
    if session.transaction is not None:
        raise UnsupportedStatement(
            f"transaction {session.transaction.id} is already open; COMMIT or ROLLBACK ends it"
        )
    session.transaction = session.warehouse.transaction()
    return Done("START TRANSACTION", f"transaction {session.transaction.id} is open")


@OPERATIONS("COMMIT", r"commit(?: work)?")
def commit(session: SqlSession, _catalog: Catalog) -> Done:
    txn = _open_transaction(session, "COMMIT")
    try:
        txn.commit()
    except OutcomeUnknown:
        session.transaction = None  # after any other error the session rolls back
        raise
    session.transaction = None
    return Done("COMMIT", f"transaction {txn.id} is committed")


@OPERATIONS("ROLLBACK", r"rollback(?: work)?")
def roll_back(session: SqlSession, _catalog: Catalog | None = None) -> Done:
    txn, session.transaction = _open_transaction(session, "ROLLBACK"), None
    txn.abort("ROLLBACK")
    return Done("ROLLBACK", f"transaction {txn.id} is rolled back")


def _open_transaction(session: SqlSession, statement: str) -> Transaction:
    if session.transaction is None:
        raise NoSuchTxn(f"{statement}: no transaction is open; START TRANSACTION opens one")
    return session.transaction


@OPERATIONS("ABORT TRANSACTIONS", r"abort transactions (?P<ids>\d+(?:[ ,]+\d+)*)")
def abort_transactions(session: SqlSession, _catalog: Catalog, ids: tuple[int, ...]) -> Done:
    return Done("ABORT TRANSACTIONS", session.warehouse.abort_transactions(ids))


# --- compactions ----------------------------------------------------------------------------------


@OPERATIONS("ABORT COMPACTIONS", r"abort compactions (?P<ids>\d+(?:[ ,]+\d+)*)")
def abort_compactions(session: SqlSession, _catalog: Catalog, ids: tuple[int, ...]) -> Shown:
    messages = session.warehouse.metastore.call(AbortCompactions(ids))
    rows = ({"compactionid": id_, "status": message} for id_, message in messages.items())
    return Shown(("compactionid", "status"), tuple(rows))


@OPERATIONS(
    "ALTER TABLE COMPACT",
    rf"{ALTER}(?: (?P<spec>partition ?\(.+\)))? compact '(?P<kind>minor|major)'"
    r"(?P<wait> and wait)?",
)
def compact(
    session: SqlSession,
    catalog: Catalog,
    table: str,
    kind: CompactionKind,
    spec: PartitionSpec | None = None,
    wait: bool = False,
) -> Done:
    record, warehouse = catalog.target(table), session.warehouse
    targets: list[str | None] = [None]
    if record.partitioned or spec is not None:
        names = warehouse.metastore.partitions(record.name)
        targets = [*(sorted(names) if spec is None else matching(names, record, spec))]
    rows = warehouse.compact(record.name, targets, kind, wait)
    ids = tuple(int(row["compactionid"]) for row in rows)
    messages = [f"Compaction enqueued with id {id_}" for id_ in ids]
    if wait:
        messages += [
            f"Compaction with id {row['compactionid']} finished with status: {row['state']}"
            for row in rows
        ]
    return Done("COMPACT", "\n".join(messages) or "nothing to compact", ids=ids)
