"""The files behind the state machine: a journal (journal.py), and the tables into which it is
folded (database.py).

One thread of one process uses them. Nothing else may open the DuckDB file (see database.py). The
log exists while the store is open, and after a crash.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from acid_platform.base.disk import sync_path, sync_paths
from acid_platform.errors import (
    MetastoreDamaged,
    MetastoreIncompatible,
)
from acid_platform.metastore.codec import decode
from acid_platform.metastore.endpoint import Ground
from acid_platform.metastore.operations import Values
from acid_platform.metastore.operations.replication import Batch
from acid_platform.metastore.records import HistoryRow
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import blocks, journal, state_rows, wal
from acid_platform.metastore.server import metastore_schema as schema
from acid_platform.metastore.server.database import Database, Error
from acid_platform.metastore.server.export import Export
from acid_platform.metastore.server.manifest_table import Manifests

_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

GROUND = "ground"
HISTORY = "history"
"""Keys in `meta`."""


class Store:
    """Opens and, if need be, creates or migrates the files.

    Raises MetastoreInUse, MetastoreIncompatible, MetastoreDamaged, OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._log_path = path, journal.beside(path)
        begun = path.with_name(f"{path.name}.begun")
        if begun.exists():  # created in part, so nobody used it, and DuckDB may refuse it
            for left in (
                path,
                wal.beside(path),
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
        if fresh := not path.exists():
            begun.touch(0o600)
            sync_path(path.parent)
        self._open()
        if fresh:
            # Synced once, whoever created the directories of the metastore and the warehouse.
            sync_paths(
                str(parent) for parent in path.absolute().parents[:3] if os.access(parent, os.R_OK)
            )
            begun.unlink()
            self._database.sync_names()

    def _open(self) -> None:
        self._database = Database(self._path)
        self._manifests = Manifests(self._database.read)
        try:
            self._database.sync_names()  # a write-ahead log that opening has just removed
            self._make_tables()
            meta = self._database.meta()
            folded = int(meta.get("log_seq", "0"))
            identity = meta.get(schema.LOG)
            if identity is None:
                # The tables have everything. If there is a log, a crash left it: before the tables
                # counted it, or after they stopped counting it.
                identity = journal.create(self._log_path)
                with self._database.transaction():
                    self._database.set_meta({schema.LOG: identity})
                # Checkpointed, since knowing of the log must not depend on DuckDB's own log.
                self._database.checkpoint()
            self._log = journal.Log(self._log_path, identity, folded)
        except MetastoreDamaged as error:
            self._database.close()
            if not (torn := wal.aside(self._path)).exists():
                raise
            raise MetastoreDamaged(
                f"{error} ({torn.name} has what was last cut off from DuckDB's log)"
            ) from error
        except BaseException:
            self._database.close()
            raise

    # --- what the server needs --------------------------------------------------------------

    def append(self, events: Sequence[Recorded]) -> journal.Record:
        """Makes the events durable, with one fdatasync. Raises OSError."""
        return self._log.append(len(events), _ENCODE([record.as_json() for record in events]))

    def append_batch(self, batch: Batch) -> list[Recorded]:
        """Makes a batch of the primary durable, and returns its events.

        Raises OSError, and MetastoreDamaged if it is not the next.
        """
        if batch.first != self.last + 1:
            raise MetastoreDamaged(
                f"the primary sent event {batch.first} to {self._path}, which ends with event"
                f" {self.last}; make this standby anew (`acid metastore standby --of ADDRESS"
                " --replace`)"
            )
        self._log.append(batch.last - batch.first + 1, batch.text)
        return _events(batch.text)

    def records(self) -> list[journal.Record]:
        """The journal's batches that are not folded. Raises MetastoreDamaged, OSError."""
        return self._log.records()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._log.last

    def load(self) -> tuple[State, list[Recorded]]:
        """The state of the last fold, and the events since.

        Raises Error, MetastoreDamaged, OSError.
        """
        rows = {name: self._database.read(name, columns) for name, columns in schema.LIVE.items()}
        meta = self._database.meta()
        counters = {key: int(value) for key, value in meta.items() if key in state_rows.COUNTERS}
        if "next_txn" not in meta:
            # Nothing was folded yet: a new file starts with the default database.
            rows["databases"] = state_rows.live_rows(State())["databases"]
        events = [event for batch in self._log.records() for event in _events(batch.text)]
        state = state_rows.restore(rows, counters)
        # The first fold writes everything: no table has the default database yet.
        self._folded = state_rows.keyed(state) if "next_txn" in meta else None
        return state, events

    def fold(self, state: State, forget_before: int) -> None:
        """Moves the journal into the tables, in one transaction; `checkpoint` should follow.

        Live tables get only what differs from the last fold. Ended transactions and outcomes older
        than `forget_before` are deleted (P3). Raises Error; the journal is then unchanged. After a
        crash in between, the tables say which events they have.
        """
        live = state_rows.keyed(state)
        with self._database.transaction():
            for name, rows in state_rows.ended_rows(state).items():
                self._database.write(name, schema.KEPT[name], rows)
            for name, records in live.items():
                self._write_difference(name, records)
            self._write_recorded(state, live)
            self._database.execute("DELETE FROM txns WHERE ended < $1", [forget_before])
            self._database.execute('DELETE FROM outcomes WHERE "at" < $1', [forget_before])
            counters = {key: str(counter) for key, counter in state_rows.counters(state).items()}
            self._database.set_meta({**counters, "log_seq": str(self._log.last)})
        self._folded = live
        with suppress(OSError):  # otherwise the log stays as it is until the next fold
            self._database.sync_names()
            self._log.rewind()

    def _write_difference(self, name: str, records: dict[tuple[Any, ...], Any]) -> None:
        """Equal records are mostly the same objects, so comparing them costs little."""
        if self._folded is None:
            self._database.execute(f'DELETE FROM "{name}"')
        before = (self._folded or {}).get(name, {})
        new = [
            (key, record)
            for key, record in records.items()
            if (old := before.get(key)) is not record and old != record
        ]
        changed = {key for key, _ in new}
        gone = [key for key in before if key in changed or key not in records]
        columns = schema.LIVE[name]
        self._database.delete(name, {key: columns[key] for key in state_rows.KEYS[name]}, gone)
        self._database.write(
            name, columns, [state_rows.keyed_row(name, key, value) for key, value in new]
        )

    def _write_recorded(self, state: State, live: state_rows.Keyed) -> None:
        """Writes the files of new directories, and deletes those of directories that are gone."""
        columns = schema.RECORDED["manifests"]
        known, before = (
            {**each.get("directories", {}), **each.get("dropped_directories", {})}
            for each in (live, self._folded or {})
        )
        gone = [key for key in before if key not in known]
        keys = ("table_id", "partition", "directory")
        self._database.delete("manifests", {key: columns[key] for key in keys}, gone)
        fresh = state_rows.recorded_rows(state)
        self._database.write("manifests", columns, fresh)
        self._manifests.forget(
            [
                *((key[0], key[1]) for key in gone),
                *((row["table_id"], row["partition"]) for row in fresh),
            ]
        )

    def checkpoint(self) -> None:
        """See `Database.checkpoint`. Also truncates a journal that has grown long."""
        self._database.checkpoint()
        self._log.shrink()

    def query(self, sql: str) -> tuple[list[str], Values]:
        """See `Database.query`."""
        return self._database.query(sql)

    def past_txn(self, txn_id: int) -> Ended | None:
        """A transaction that ended before the last fold."""
        rows = self._database.read("txns", schema.KEPT["txns"], "WHERE txn_id = $1", [txn_id])
        return decode(Ended, rows[-1]) if rows else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        """The folded files of directories, by partition and directory (P26). Raises Error."""
        return self._manifests.of(table_id, partitions)

    def past_outcome(self, request_id: str) -> Outcome | None:
        """The reply to a request from before the last fold (P3)."""
        where = "WHERE request_id = $1"
        rows = self._database.read("outcomes", schema.KEPT["outcomes"], where, [request_id])
        return decode(Outcome, rows[-1]) if rows else None

    def history(self, table_id: int) -> list[HistoryRow]:
        """The folded writes of a table, oldest first."""
        where = "WHERE table_id = $1 ORDER BY write_id, directory"
        rows = self._database.read("writes", schema.KEPT["writes"], where, [table_id])
        return [decode(HistoryRow, row) for row in rows]

    @property
    def journal_length(self) -> int:
        """The number of events that are not folded yet."""
        return self._log.length

    def next_epoch(self) -> int:
        """Counts the starts of the metastore. Raises Error, OSError."""
        meta = self._database.meta()
        epoch = int(meta.get("epoch", "0")) + 1
        named = {} if HISTORY in meta else {HISTORY: secrets.token_hex(8)}
        with self._database.transaction():
            self._database.set_meta({"epoch": str(epoch), **named, **self._database.made_by()})
        self._database.checkpoint()
        return epoch

    @property
    def history_id(self) -> str:
        """The id of the sequence of events that goes on here, also at a standby (P40).

        A copy and a restored metastore get another, since their events differ from then on.
        """
        return self._database.meta()[HISTORY]

    def begin_history(self) -> None:
        """Raises Error."""
        with self._database.transaction():
            self._database.set_meta({HISTORY: secrets.token_hex(8)})

    @property
    def made(self) -> int:
        """The moment of a backup, in milliseconds UTC; 0 if this is none."""
        return int(self._database.meta().get(schema.MADE, "0"))

    @made.setter
    def made(self, moment: int) -> None:
        with self._database.transaction():
            self._database.set_meta({schema.MADE: str(moment)})

    def export(self) -> Export:
        """Begins a backup, and ends an older one that was abandoned. Raises Error."""
        self.end_exports()
        made = Export(self._database.connection.cursor())
        self._exports[made.token] = made
        return made

    def exported(self, token: str) -> Export | None:
        return self._exports.get(token)

    def forget_meta(self, key: str) -> None:
        self._database.connection.execute("DELETE FROM meta WHERE key = $1", [key])

    @property
    def ground(self) -> Ground | None:
        """Where the file was at its last start; None for a new file."""
        known = self._database.meta().get(GROUND)
        return None if known is None else Ground.parse(known)

    @ground.setter
    def ground(self, found: Ground) -> None:
        with self._database.transaction():
            self._database.set_meta({GROUND: str(found)})

    @property
    def ground_now(self) -> Ground:
        return Ground.of(self._path)

    def end_exports(self) -> None:
        for export in self._exports.values():
            export.close()
        self._exports = {}

    def reopen(self) -> None:
        """After a failed write: only the content of the files counts (P3). Raises as
        opening does."""
        self._let_go()
        self._open()

    def close(self) -> None:
        """Removes the log if the tables have everything, so that one file is all that is left."""
        if not self._log.length:
            with suppress(Error, OSError):
                self.forget_meta(schema.LOG)
                self._database.checkpoint()  # otherwise the tables might ask for a log that is gone
                self._log_path.unlink()
                blocks.beside(self._path).unlink()
        self._let_go()

    def _let_go(self) -> None:
        # All cursors: closing the last one releases the file.
        self.end_exports()
        self._log.close()
        self._database.close()

    def _make_tables(self) -> None:
        """Makes the tables of a new file, or brings those of an older version to this one."""
        made = self._database.scalar(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta'"
        )
        version = int(self._database.meta()["schema_version"]) if made else 0
        if version > schema.VERSION:
            raise MetastoreIncompatible(
                f"{self._path} has schema version {version}, this program knows {schema.VERSION};"
                " use the newer program that wrote it"
            )
        if version == schema.VERSION:
            return
        if not version:
            self._advance(schema.NEW, schema.VERSION)
        else:
            for older in range(version, schema.VERSION):
                self._advance(schema.MIGRATIONS[older - 1], older + 1)
        self._database.checkpoint()

    def _advance(self, statements: Sequence[str], version: int) -> None:
        with self._database.transaction():
            for statement in statements:
                self._database.execute(statement)
            made_by = self._database.made_by()
            self._database.set_meta({"schema_version": str(version), **made_by})


def _events(text: str) -> list[Recorded]:
    return [Recorded.parse(kind, at, body) for kind, at, body in json.loads(text)]
