"""Three stores that run the same transaction: the metastore, SQLite and PostgreSQL.

A transaction is: open, write id, shared-write lock on one partition, snapshot; heartbeat; commit
with conflict check and write report. The metastore needs three calls. The databases need thirteen
SQL statements in three durable transactions, as Hive's metastore does.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import duckdb
import psutil
import psycopg

from acid_platform import WriteConflict
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.server.store import write_copy
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from benchmarks.upkeep import FILES
from tests.declared import declare
from tests.log.postgres_server import PostgresServer

TABLES, PARTITIONS = 100, 10

Session = Callable[[int, int], int | None]
"""Runs a transaction on a table and a partition; returns its id once the commit is acknowledged, or
None after a write conflict."""


class Contender(Protocol):
    """A store. `open_session` is called in each client process."""

    name: str

    def start(self) -> None: ...

    def open_session(self) -> Session: ...

    def processes(self) -> list[psutil.Process]:
        """The server processes; empty if clients do all the work themselves."""

    def stop(self) -> set[int]:
        """Stop the store; returns the ids of all committed transactions in its files."""


class OurMetastore:
    name = "metastore"

    def __init__(self, directory: Path) -> None:
        self.home = directory

    def start(self) -> None:
        with Metastore.connect(self.home) as client:
            client.create_database("bench", if_not_exists=True)
            if not client.tables():
                for number in range(TABLES):
                    where, keys = f"{self.home}/t{number}", [("p", "int")]
                    declare(client, f"bench.t{number}", where, partition_columns=keys)

    def open_session(self) -> Session:
        return self.session_of(self.home)

    @staticmethod
    def session_of(where: Path | str) -> Session:
        client = Metastore.connect(where)

        def transaction(table: int, partition: int) -> int | None:
            name, part = f"bench.t{table}", f"p={partition}"
            txn = client.begin(
                locks=[LockRequest(name, LockType.SHARED_WRITE, RowOperation.UPDATE, part)]
            )
            txn.heartbeat()
            write_id = txn.write_ids[name]
            directory = f"delta_{write_id:07d}_{write_id:07d}_0000"
            try:
                txn.commit(
                    CommitContents(
                        (WriteReport(name, part, RowOperation.UPDATE, directory, FILES),)
                    )
                )
            except WriteConflict:
                return None
            return txn.id

        return transaction

    def status(self) -> dict[str, Any]:
        with Metastore.connect(self.home) as client:
            return client.status()

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self.status()["pid"])]

    def stop(self) -> set[int]:
        with Metastore.connect(self.home) as client:
            process = psutil.Process(client.status()["pid"])
            client.stop()
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)
        with TemporaryDirectory() as scratch:
            copy = Path(scratch, "copy.duckdb")
            write_copy(LocalLog(self.home), copy)
            return _durable(copy)


def _durable(copy: Path) -> set[int]:
    """The ids of the transactions that committed and whose reports are in the file."""
    with duckdb.connect(str(copy), read_only=True) as file:
        states = file.execute("SELECT txn_id FROM txns WHERE state = 'c'").fetchall()
        written = file.execute("SELECT DISTINCT txn FROM writes").fetchall()
    return {row[0] for row in states} & {row[0] for row in written}


# --- databases ----------------------------------------------------------------------------------

_TABLES_SQL = """
CREATE TABLE txns (txn_id {serial}, state TEXT, started BIGINT, heartbeat BIGINT);
CREATE INDEX open_txns ON txns (txn_id) WHERE state = 'o';
CREATE TABLE next_write_id (table_id INTEGER PRIMARY KEY, next BIGINT);
CREATE TABLE txn_to_write_id (table_id INTEGER, write_id BIGINT, txn_id BIGINT);
CREATE TABLE locks (txn_id BIGINT, table_id INTEGER, part TEXT, kind TEXT);
CREATE INDEX locks_by_entity ON locks (table_id, part);
CREATE INDEX locks_by_txn ON locks (txn_id);
CREATE TABLE components (txn_id BIGINT, table_id INTEGER, part TEXT, write_id BIGINT);
CREATE INDEX components_by_txn ON components (txn_id);
CREATE TABLE write_set (table_id INTEGER, part TEXT, txn_id BIGINT, commit_id BIGINT);
CREATE INDEX write_set_by_entity ON write_set (table_id, part, commit_id);
CREATE TABLE writes (txn_id BIGINT, table_id INTEGER, part TEXT, write_id BIGINT, directory TEXT);
"""
_OPEN = "INSERT INTO txns (state, started, heartbeat) VALUES ('o', $1, $2) RETURNING txn_id"
_WRITE_ID = "UPDATE next_write_id SET next = next + 1 WHERE table_id = $1 RETURNING next"
_MAP = "INSERT INTO txn_to_write_id VALUES ($1, $2, $3)"
_BLOCKED = "SELECT count(*) FROM locks WHERE table_id = $1 AND part = $2 AND kind <> 'w'"
_LOCK = "INSERT INTO locks VALUES ($1, $2, $3, 'w')"
_COMPONENT = "INSERT INTO components VALUES ($1, $2, $3, $4)"
_SNAPSHOT = "SELECT txn_id FROM txns WHERE state = 'o'"
_BEAT = "UPDATE txns SET heartbeat = $1 WHERE txn_id = $2 AND state = 'o'"
_END = "UPDATE txns SET state = $1 WHERE txn_id = $2 AND state = 'o' RETURNING txn_id"
_CONFLICT = "SELECT count(*) FROM write_set WHERE table_id = $1 AND part = $2 AND commit_id >= $3"
_WRITE_SET = "INSERT INTO write_set VALUES ($1, $2, $3, (SELECT max(txn_id) FROM txns))"
_REPORT = "INSERT INTO writes VALUES ($1, $2, $3, $4, $5)"
_UNLOCK = "DELETE FROM locks WHERE txn_id = $1"
_FORGET = "DELETE FROM components WHERE txn_id = $1"

Execute = Callable[..., Any]


def _session(run: Execute, begin: str) -> Session:
    def transaction(table: int, partition: int) -> int | None:
        now, part = time.time_ns() // 1_000_000, f"p={partition}"
        run(begin)
        txn = int(run(_OPEN, (now, now))[0][0])
        write_id = int(run(_WRITE_ID, (table,))[0][0])
        run(_MAP, (table, write_id, txn))
        assert int(run(_BLOCKED, (table, part))[0][0]) == 0
        run(_LOCK, (txn, table, part))
        run(_COMPONENT, (txn, table, part, write_id))
        run(_SNAPSHOT)
        run("COMMIT")
        run(_BEAT, (now, txn))
        run(begin)
        conflict = int(run(_CONFLICT, (table, part, txn))[0][0])
        if not conflict:
            run(_WRITE_SET, (table, part, txn))
            run(_REPORT, (txn, table, part, write_id, f"delta_{write_id:07d}_{write_id:07d}_0000"))
        run(_UNLOCK, (txn,))
        run(_FORGET, (txn,))
        run(_END, ("a" if conflict else "c", txn))
        run("COMMIT")
        return None if conflict else txn

    return transaction


class Sqlite:
    """SQLite, whose clients write the file themselves; WAL, synchronous=FULL."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._file = directory / "sqlite.db"

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, timeout=120, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def start(self) -> None:
        connection = self._connect()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_TABLES_SQL.format(serial="INTEGER PRIMARY KEY AUTOINCREMENT"))
        connection.executemany(
            "INSERT INTO next_write_id VALUES (?, 0)", [(number,) for number in range(TABLES)]
        )
        connection.close()

    def open_session(self) -> Session:
        connection = self._connect()

        def run(sql: str, values: tuple[object, ...] = ()) -> list[Any]:
            return connection.execute(sql.replace("$", "?"), values).fetchall()

        return _session(run, "BEGIN IMMEDIATE")

    def processes(self) -> list[psutil.Process]:
        return []

    def stop(self) -> set[int]:
        connection = self._connect()
        rows = connection.execute(
            "SELECT txn_id FROM txns JOIN writes USING (txn_id) WHERE state = 'c'"
        ).fetchall()
        connection.close()
        return {row[0] for row in rows}


class PostgresOfBenchmark:
    """PostgreSQL with default settings (fsync on), its Unix socket, and prepared statements."""

    name = "postgresql"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.socket_url(), autocommit=True)

    def start(self) -> None:
        self._server.start()
        serial = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        with self._connect() as connection:
            connection.execute(_TABLES_SQL.format(serial=serial).encode())
            connection.execute(
                "INSERT INTO next_write_id SELECT n, 0 FROM generate_series(0, %s) n", [TABLES - 1]
            )

    def open_session(self) -> Session:
        connection = self._connect()

        def run(sql: str, values: tuple[object, ...] = ()) -> list[Any]:
            text = re.sub(r"\$\d", "%s", sql).encode()
            cursor = connection.execute(text, values, prepare=True)
            return cursor.fetchall() if cursor.description else []

        return _session(run, "BEGIN")

    def processes(self) -> list[psutil.Process]:
        parent = psutil.Process(self._server.process())
        return [parent, *parent.children()]

    def stop(self) -> set[int]:
        with self._connect() as connection:
            found = connection.execute(
                "SELECT txn_id FROM txns JOIN writes USING (txn_id) WHERE state = 'c'"
            ).fetchall()
        self._server.close()
        return {txn for (txn,) in found}
