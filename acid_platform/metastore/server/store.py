"""The files behind the state machine: a journal (journal.py), and tables that it is folded into.

Used by one thread of one process. Nothing else may open the DuckDB file, not even to read it:
closing a second handle would drop DuckDB's lock on it, as POSIX locks do. The log is there while
the store is open, and after a crash.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from acid_platform.disk import sync_path, sync_paths
from acid_platform.errors import (
    InvalidExpression,
    MetastoreDamaged,
    MetastoreIncompatible,
    MetastoreInUse,
    UnsupportedStatement,
)
from acid_platform.metastore import schema
from acid_platform.metastore.codec import decode
from acid_platform.metastore.endpoint import Ground
from acid_platform.metastore.records import HistoryRow
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import blocks, journal, state_rows
from acid_platform.metastore.server.export import Export
from acid_platform.metastore.server.manifest_table import Manifests

_CONFIG: dict[str, str | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "128MB",
    "wal_autocheckpoint": "1TB",  # `Store.checkpoint` does it: see blocks.py
    "fsync_mode": "STANDARD",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_QUERY_SECONDS = 10.0
_QUERY_ROWS = 100_000

GROUND = "ground"
"""Key in `meta`."""

Error = duckdb.Error
"""What DuckDB raises."""


class Store:
    """Opens and, if need be, creates or migrates the files.

    Raises MetastoreInUse, MetastoreIncompatible, MetastoreDamaged, OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._log_path = path, journal.beside(path)
        begun = path.with_name(f"{path.name}.begun")
        if begun.exists():  # it was never finished, so nobody used it, and DuckDB may refuse it
            for left in (
                path,
                path.with_name(f"{path.name}.wal"),
                self._log_path,
                blocks.beside(path),
            ):
                left.unlink(missing_ok=True)
        if self._log_path.exists() and not path.exists():
            raise MetastoreDamaged(
                f"{path} is missing beside its log {self._log_path.name}; put it back, or restore a"
                " backup (`acid metastore restore FILE`)"
            )
        self._exports: dict[str, Export] = {}
        self._folded: state_rows.Keyed | None = None
        """What the live tables hold, once that is known."""
        self._manifests = Manifests(self._read)
        if fresh := not path.exists():
            begun.touch(0o600)
            self._sync_names()
        self._open()
        if fresh:
            # Once for all, whoever made the directories: those of the metastore and warehouse.
            sync_paths(str(one) for one in path.absolute().parents[:3] if os.access(one, os.R_OK))
            begun.unlink()
            self._sync_names()

    def _open(self) -> None:
        if self._path.exists():
            blocks.put_back(self._path)
        self._connection = _connect(self._path)
        # Open as long as DuckDB has it: to close any handle would drop DuckDB's lock.
        self._file = os.open(self._path, os.O_RDONLY)
        try:
            self._sync_names()  # a write-ahead log that this has just removed
            self._migrate()
            meta = self._meta()
            folded = int(meta.get("log_seq", "0"))
            identity = meta.get(schema.LOG)
            if identity is None:
                # The tables have everything; a log that is there was left by a crash before it
                # counted, or after it did.
                identity = journal.create(self._log_path)
                with self._transaction():
                    self._set_meta({schema.LOG: identity})
                # Into the file: that there is a log must not depend on DuckDB's own.
                self.checkpoint()
            self._log = journal.Log(self._log_path, identity, folded)
        except BaseException:
            self._connection.close()
            os.close(self._file)
            raise

    # --- what the server needs --------------------------------------------------------------

    def append(self, events: Sequence[Recorded]) -> None:
        """Makes the events durable, with one fdatasync. Raises OSError."""
        text = _ENCODE([record.as_json() for record in events])
        self._log.append(len(events), text)

    def load(self) -> tuple[State, list[Recorded]]:
        """The state of the last fold, and the events since.

        Raises Error, MetastoreDamaged, OSError.
        """
        rows = {name: self._read(name, columns) for name, columns in schema.LIVE.items()}
        meta = self._meta()
        counters = {key: int(value) for key, value in meta.items() if key in state_rows.COUNTERS}
        if "next_txn" not in meta:
            # Nothing was folded yet: a new file starts with the default database.
            rows["databases"] = state_rows.live_rows(State())["databases"]
        events = [
            Recorded.parse(kind, at, body)
            for batch in self._log.records()
            for kind, at, body in json.loads(batch.text)
        ]
        state = state_rows.restore(rows, counters)
        # The first fold writes everything: the default database is in no table yet.
        self._folded = state_rows.keyed(state) if "next_txn" in meta else None
        return state, events

    def fold(self, state: State, forget_before: int) -> None:
        """Moves the journal into the tables, in one transaction; `checkpoint` should follow.

        Of live tables what differs from the last fold is written. Ended transactions and outcomes
        older than `forget_before` are deleted (P3). Raises Error; then the journal is as it was.
        After a crash in between the tables say what they have.
        """
        live = state_rows.keyed(state)
        with self._transaction():
            for name, rows in state_rows.ended_rows(state).items():
                self._write(name, schema.KEPT[name], rows)
            for name, records in live.items():
                self._write_difference(name, records)
            self._write_recorded(state, live)
            self._execute("DELETE FROM txns WHERE ended < $1", [forget_before])
            self._execute('DELETE FROM outcomes WHERE "at" < $1', [forget_before])
            counters = {key: str(one) for key, one in state_rows.counters(state).items()}
            self._set_meta({**counters, "log_seq": str(self._log.last)})
        self._folded = live
        with suppress(OSError):  # else the log stays as it is until the next fold
            self._sync_names()
            self._log.rewind()

    def _write_difference(self, name: str, records: dict[tuple[Any, ...], Any]) -> None:
        """Equal records are mostly the same objects, so that to compare costs little."""
        if self._folded is None:
            self._execute(f'DELETE FROM "{name}"')
        before = (self._folded or {}).get(name, {})
        new = [
            (key, one)
            for key, one in records.items()
            if (old := before.get(key)) is not one and old != one
        ]
        changed = {key for key, _ in new}
        gone = [key for key in before if key in changed or key not in records]
        columns = schema.LIVE[name]
        self._delete(name, {key: columns[key] for key in state_rows.KEYS[name]}, gone)
        self._write(name, columns, [state_rows.keyed_row(name, key, one) for key, one in new])

    def _write_recorded(self, state: State, live: state_rows.Keyed) -> None:
        """Files of new directories; those of directories that are gone are deleted."""
        columns = schema.RECORDED["manifests"]
        known, before = (
            {**each.get("directories", {}), **each.get("dropped_directories", {})}
            for each in (live, self._folded or {})
        )
        gone = [key for key in before if key not in known]
        keys = ("table_id", "partition", "directory")
        self._delete("manifests", {key: columns[key] for key in keys}, gone)
        fresh = state_rows.recorded_rows(state)
        self._write("manifests", columns, fresh)
        self._manifests.forget(
            [
                *((key[0], key[1]) for key in gone),
                *((row["table_id"], row["partition"]) for row in fresh),
            ]
        )

    def _delete(self, name: str, keys: Mapping[str, str], gone: Sequence[tuple[Any, ...]]) -> None:
        """Rows of a table with one of these keys; `keys`: its columns and their types."""
        if not gone:
            return
        listed = ", ".join(
            f'unnest(${number}::{kind}[]) AS "{key}"'
            for number, (key, kind) in enumerate(keys.items(), 1)
        )
        same = " AND ".join(f'"{name}"."{key}" IS NOT DISTINCT FROM gone."{key}"' for key in keys)
        self._execute(
            f'DELETE FROM "{name}" USING (SELECT {listed}) AS gone WHERE {same}',
            [list(values) for values in zip(*gone, strict=True)],
        )

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the file. Raises Error, OSError; nothing is lost then."""
        numbers = self._connection.execute(
            "SELECT block_id FROM pragma_metadata_info() WHERE free_blocks > 0"
        ).fetchall()
        size = int(self._scalar("SELECT block_size FROM pragma_database_size()"))
        blocks.keep(self._file, blocks.beside(self._path), [one for (one,) in numbers], size)
        self._connection.execute("CHECKPOINT")
        # DuckDB would refuse the file beside a log that comes back after two checkpoints.
        self._sync_names()

    def past_txn(self, txn_id: int) -> Ended | None:
        """A transaction that ended before the last fold."""
        rows = self._read("txns", schema.KEPT["txns"], "WHERE txn_id = $1", [txn_id])
        return decode(Ended, rows[-1]) if rows else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        """Files of directories that are folded, by partition and directory (P26). Raises Error."""
        return self._manifests.of(table_id, partitions)

    def past_outcome(self, request_id: str) -> Outcome | None:
        """The reply to a request before the last fold (P3)."""
        where = "WHERE request_id = $1"
        rows = self._read("outcomes", schema.KEPT["outcomes"], where, [request_id])
        return decode(Outcome, rows[-1]) if rows else None

    def history(self, table_id: int) -> list[HistoryRow]:
        """Folded writes of a table, oldest first."""
        where = "WHERE table_id = $1 ORDER BY write_id, directory"
        rows = self._read("writes", schema.KEPT["writes"], where, [table_id])
        return [decode(HistoryRow, row) for row in rows]

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        """Column names and rows of one SELECT, at most 100,000 rows and 10 s.

        Raises UnsupportedStatement for anything but one SELECT, InvalidExpression if it fails.
        """
        try:
            statements = self._connection.extract_statements(sql)
        except Error as error:
            raise InvalidExpression(f"the metastore can't parse {sql!r}: {error}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UnsupportedStatement(f"the metastore answers one SELECT at a time, not {sql!r}")
        watchdog = threading.Timer(_QUERY_SECONDS, self._connection.interrupt)
        watchdog.start()
        try:
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
            cursor = self._connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return names, [list(row) for row in cursor.fetchmany(_QUERY_ROWS)]
        except Error as error:
            raise InvalidExpression(f"{sql!r} failed: {error}") from error
        finally:
            watchdog.cancel()
            self._connection.execute("ROLLBACK")

    @property
    def journal_length(self) -> int:
        """Events that are not folded yet."""
        return self._log.length

    def next_epoch(self) -> int:
        """Counts the starts of the metastore. Raises Error, OSError."""
        epoch = int(self._meta().get("epoch", "0")) + 1
        with self._transaction():
            self._set_meta({"epoch": str(epoch), **self._made_by()})
        self.checkpoint()
        return epoch

    def _made_by(self) -> dict[str, str]:
        """What reads and writes the file, for people who meet an old one (P8)."""
        storage = self._scalar(
            "SELECT tags['storage_version'] FROM duckdb_databases()"
            " WHERE database_name = current_database()"
        )
        return {"duckdb_version": duckdb.__version__, "storage_version": str(storage)}

    def export(self) -> Export:
        """Begins a backup; an older one that was left is given up. Raises Error."""
        self.end_exports()
        made = Export(self._connection.cursor())
        self._exports[made.token] = made
        return made

    def exported(self, token: str) -> Export | None:
        return self._exports.get(token)

    def forget_meta(self, key: str) -> None:
        self._connection.execute("DELETE FROM meta WHERE key = $1", [key])

    @property
    def ground(self) -> Ground | None:
        """Where the file was at its last start; None of a new one and of an older version."""
        known = self._meta().get(GROUND)
        return None if known is None else Ground.parse(known)

    @ground.setter
    def ground(self, found: Ground) -> None:
        with self._transaction():
            self._set_meta({GROUND: str(found)})

    @property
    def ground_now(self) -> Ground:
        return Ground.of(self._path)

    def end_exports(self) -> None:
        for one in self._exports.values():
            one.close()
        self._exports = {}

    def reopen(self) -> None:
        """After a failed write: only what the files hold counts (P3). Raises as opening does."""
        self._let_go()
        self._manifests = Manifests(self._read)
        self._open()

    def close(self) -> None:
        """A log of which the tables have everything is removed: then one file is all there is."""
        if not self._log.length:
            with suppress(Error, OSError):
                self.forget_meta(schema.LOG)
                self.checkpoint()  # or the tables might ask for a log that is gone
                self._log_path.unlink()
                blocks.beside(self._path).unlink()
        self._let_go()

    def _let_go(self) -> None:
        # All cursors: the file is let go with the last of them.
        self.end_exports()
        self._log.close()
        self._connection.close()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    # --- DuckDB -----------------------------------------------------------------------------

    def _sync_names(self) -> None:
        """DuckDB syncs what it writes, but neither the name of a file that it has made nor that one
        is gone. Raises OSError."""
        sync_path(self._path.parent)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        # To the end: an appender begins only when no statement is left unfinished.
        self._connection.execute(sql, list(values)).fetchall()

    def _write(self, name: str, columns: schema.Columns, rows: list[state_rows.Row]) -> None:
        """By an appender, which takes a third of the CPU of an INSERT with lists."""
        if not rows:
            return
        texts = [number for number, kind in enumerate(columns.values()) if kind == "JSON"]
        values = [[row[key] for key in columns] for row in rows]
        for one in values:
            for number in texts:
                one[number] = _ENCODE(one[number])
        appender = self._connection.appender(name, columns=list(columns))
        appender.append_rows(values)
        appender.flush()

    def _read(
        self, name: str, columns: schema.Columns, where: str = "", values: Sequence[Any] = ()
    ) -> list[state_rows.Row]:
        listed = ", ".join(f'"{key}"' for key in columns)
        found = self._connection.execute(f'SELECT {listed} FROM "{name}" {where}', list(values))
        keys, json_keys = list(columns), [key for key, kind in columns.items() if kind == "JSON"]
        rows = [dict(zip(keys, row, strict=True)) for row in found.fetchall()]
        for row in rows:
            for key in json_keys:
                row[key] = json.loads(row[key])
        return rows

    def _scalar(self, sql: str) -> Any:
        ((value,),) = self._connection.execute(sql).fetchall()
        return value

    def _meta(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT key, value FROM meta").fetchall())

    def _set_meta(self, values: dict[str, str]) -> None:
        self._execute("DELETE FROM meta WHERE key IN (SELECT unnest($1))", [[*values]])
        self._execute(
            "INSERT INTO meta SELECT unnest($1), unnest($2)", [[*values], [*values.values()]]
        )

    def _migrate(self) -> None:
        made = self._scalar("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta'")
        version = int(self._meta().get("schema_version", "0")) if made else 0
        if version > schema.VERSION:
            raise MetastoreIncompatible(
                f"{self._path} has schema version {version}, this program knows {schema.VERSION};"
                " use the newer program that wrote it"
            )
        for number in range(version, schema.VERSION):
            with self._transaction():
                meta = {"schema_version": str(number + 1), **self._made_by()}
                if number + 1 == schema.LOG_VERSION:
                    # Before the table is dropped; after a crash it is done again.
                    meta[schema.LOG] = journal.create(self._log_path, self._journal())
                for statement in schema.MIGRATIONS[number]:
                    self._execute(statement)
                self._set_meta(meta)
        if version < schema.VERSION:
            self.checkpoint()

    def _journal(self) -> list[journal.Record]:
        """The journal of a file before LOG_VERSION."""
        records, last = [], 0
        for (text,) in self._connection.execute(
            "SELECT events FROM journal ORDER BY seq"
        ).fetchall():
            first, last = last + 1, last + len(json.loads(text))
            records.append(journal.Record(first, last, text))
        return records


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        connection = duckdb.connect(str(path), config=_CONFIG)
    except Error as error:
        holder = re.search(r"PID (\d+)", str(error))
        if holder:
            raise MetastoreInUse(
                f"{path} is in use by process {holder[1]}; stop that one, or connect to it"
            ) from error
        raise MetastoreIncompatible(f"{path} can't be opened: {error}") from error
    connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    connection.execute("SET lock_configuration = true")
    [(mode,)] = connection.execute(
        "SELECT value FROM duckdb_settings() WHERE name = 'fsync_mode'"
    ).fetchall()
    if mode not in ("STANDARD", "FULL"):
        connection.close()
        raise MetastoreIncompatible(
            f"{path} would be written without fsync (fsync_mode {mode!r}); commits would"
            " not be durable"
        )
    return connection
