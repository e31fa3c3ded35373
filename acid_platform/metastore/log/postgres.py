"""A log in PostgreSQL: one INSERT for each batch, in a schema of its own.

Two writers can't insert the same position: it is the primary key. An INSERT whose outcome is
unknown is tried again; the row says who wrote it. What a snapshot replaces is deleted, except the
first batch of each epoch: a leader that was replaced and does not know it will try that position,
so it must stay taken.

It needs sessions: a pool that gives each transaction another connection does not keep
`synchronous_commit`. The user needs no other right than to create the schema, or to create tables
in one that exists.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlunsplit

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from acid_platform.base.paths import parts_of_url, without_credentials
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreDamaged,
    MetastoreRefused,
    MetastoreUnavailable,
)
from acid_platform.metastore.log import contract
from acid_platform.metastore.log.contract import Batch, Beginning, Leader, SharedLog

SCHEMA = "acid_metastore"
_SCHEMA_PARAMETER = "acid_schema"
_FOREVER = 86_400.0

_Answer = TypeVar("_Answer")

_AGAIN = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
"""The connection was lost, or the server ends, starts, is busy, or has become a replica."""
_NO_LOG = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)


def parsed(url: str) -> tuple[dict[str, Any], str]:
    """libpq's parameters in an address `postgresql://user@host:port/database?…`, and the schema.

    Raises InvalidDefinition, as for a password.
    """
    parts = parts_of_url(url)
    fields = parse_qsl(parts.query, keep_blank_values=True)
    shown = without_credentials(urlunsplit((*parts[:3], "", "")))
    secret = [name for name, _ in fields if "password" in name.lower()]
    if parts.password is not None or secret:
        raise InvalidDefinition(
            f"{shown} is refused: an address holds no password; set PGPASSWORD, or PGPASSFILE, or"
            " name a service of pg_service.conf"
        )
    schema = dict(fields).get(_SCHEMA_PARAMETER) or SCHEMA
    query = urlencode([(name, value) for name, value in fields if name != _SCHEMA_PARAMETER])
    try:
        return dict(conninfo_to_dict(urlunsplit((*parts[:3], query, "")))), schema
    except psycopg.Error as error:
        raise InvalidDefinition(f"{shown} is no address of PostgreSQL: {error}") from error


class PostgresSession:
    """A connection with autocommit, for one thread at a time: others wait."""

    def __init__(self, parameters: Mapping[str, Any], patience: float, seconds: float) -> None:
        """`patience`: for how many seconds a lost connection is opened again. `seconds`: how long a
        statement may take."""
        wait = max(2, round(seconds))
        self._parameters = {
            # Of several hosts, the one that is no replica.
            "target_session_attrs": "read-write",
            "fallback_application_name": "acid metastore",
            "connect_timeout": min(wait, 10),
            "tcp_user_timeout": 1000 * wait,
            "keepalives_idle": wait,
            "keepalives_interval": max(1, wait // 3),
            "keepalives_count": 3,
            **parameters,
        }
        self._patience, self._seconds = patience, seconds
        self._connection: _Session | None = None
        self._guard = threading.RLock()

    def run(self, call: Callable[[psycopg.Connection[TupleRow]], _Answer]) -> _Answer:
        """The answer of `call`, which is called again if the connection was lost in between.

        Raises MetastoreUnavailable after `patience`, MetastoreRefused without the needed rights,
        and MetastoreDamaged if the tables are missing.
        """
        until, pause = time.monotonic() + self._patience, 0.02
        with self._guard:
            while True:
                try:
                    return call(self._open())
                except psycopg.Error as error:
                    self.close()
                    if not isinstance(error, _AGAIN) or time.monotonic() + pause > until:
                        raise self._fault(error) from error
                except BaseException:
                    self.close()
                    raise
                time.sleep(pause * random.uniform(0.5, 1))
                pause = min(2 * pause, 1)

    def _open(self) -> _Session:
        if self._connection is None:
            opened = _Session.connect(autocommit=True, **self._parameters)
            opened.seconds = self._seconds
            self._connection = opened
            # A commit that is acknowledged must be on the disk, whatever the server's default.
            opened.execute(
                f"SET statement_timeout = {round(1000 * self._seconds)};"
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') <> 'remote_apply'"
            )
        return self._connection

    def _fault(self, error: psycopg.Error) -> Exception:
        text = f"PostgreSQL: {' '.join(str(error).split())}"
        if isinstance(error, errors.InsufficientPrivilege):
            return MetastoreRefused(f"{text}; grant the user CREATE, or the rights on the schema")
        if isinstance(error, _NO_LOG):
            return MetastoreDamaged(f"{text}; the schema holds no log of a metastore")
        return MetastoreUnavailable(
            f"{text}; it failed for up to {self._patience:g} s: check the server, then try again"
        )

    def close(self) -> None:
        with self._guard:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


class _Session(psycopg.Connection[TupleRow]):
    """No statement waits longer than `seconds`, even if the server's process is stopped."""

    seconds = _FOREVER

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **keywords: Any) -> Any:
        return super().wait(_bounded(gen, self.seconds), *args, **keywords)


def _bounded(waiting: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """What psycopg waits for, which gets a 0 from time to time while nothing comes."""
    until = time.monotonic() + seconds
    event = next(waiting)
    while True:
        ready = yield event
        if not ready and time.monotonic() > until:
            waiting.close()
            raise psycopg.OperationalError(f"the server did not answer for {seconds:g} s")
        try:
            event = waiting.send(ready)
        except StopIteration as ended:
            return ended.value


_PAGE = 500
"""So many batches are fetched at once."""
_PART = 4 << 20
"""Bytes of a snapshot in one row."""
_SNAPSHOT_SECONDS = 300

_TABLES = """
CREATE TABLE {s}.log (history text NOT NULL, place text NOT NULL, after bigint NOT NULL);
CREATE TABLE {s}.batches (
    position bigint PRIMARY KEY, epoch bigint NOT NULL, made bigint NOT NULL,
    body bytea NOT NULL, checksum bigint NOT NULL, writer text NOT NULL);
CREATE TABLE {s}.snapshots (
    position bigint, part integer, body bytea NOT NULL, PRIMARY KEY (position, part));
ALTER TABLE {s}.snapshots ALTER body SET STORAGE EXTERNAL;
CREATE TABLE {s}.leader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch bigint NOT NULL, address text NOT NULL,
    beat bigint NOT NULL, lease bigint NOT NULL, key text NOT NULL, authority text NOT NULL,
    number text NOT NULL);
"""
_LEADER = "epoch, address, beat, lease, key, authority"

_Connection = psycopg.Connection[TupleRow]


class PostgresLog(SharedLog):
    """Besides the errors of Log, methods raise MetastoreRefused without the needed rights."""

    def __init__(self, url: str, patience: float = 10) -> None:
        """`url`: as libpq takes it, without a password; `acid_schema=` names another schema.

        `patience`: for how many seconds a lost connection is opened again. Connects when needed.
        Raises InvalidDefinition.
        """
        super().__init__(url)
        self._parameters, self._schema = parsed(url)
        seconds = max(1, patience / 2)
        self._session = PostgresSession(self._parameters, patience, seconds)
        self._leading = PostgresSession(self._parameters, patience, seconds)
        self._storing = PostgresSession(self._parameters, patience, _SNAPSHOT_SECONDS)

    @cached_property
    def place(self) -> str:
        """Names the server's identifier too, if the user may know it."""

        def ask(connection: _Connection) -> str:
            info = connection.info
            host = self._parameters.get("host") or info.host or info.hostaddr
            port = self._parameters.get("port") or info.port
            where = f"postgresql://{host}:{port}/{info.dbname}?acid_schema={self._schema}"
            try:
                rows = connection.execute("SELECT system_identifier FROM pg_control_system()")
                return f"{where} of {rows.fetchall()[0][0]}"
            except (errors.InsufficientPrivilege, errors.UndefinedFunction):
                return where

        return self._session.run(ask)

    @cached_property
    def beginning(self) -> Beginning:
        rows = self._rows("SELECT history, place, after FROM {s}.log")
        if len(rows) != 1:
            raise MetastoreDamaged(f"{self.where}: the table log has {len(rows)} rows instead of 1")
        return Beginning(*rows[0])

    @property
    def exists(self) -> bool:
        return bool(
            self._rows(
                "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'log'", self._schema
            )
        )

    # --- appending ------------------------------------------------------------------------------

    def create(self, after: int = 0) -> None:
        """Makes the schema, unless it exists, and its tables. Raises FileExistsError if the schema
        has a log."""
        beginning = Beginning.new(self.place, after)

        def begin(connection: _Connection) -> None:
            try:
                with connection.transaction():
                    schemas = connection.execute(
                        "SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)
                    )
                    if not schemas.fetchall():
                        connection.execute(self._sql("CREATE SCHEMA {s}"))
                    connection.execute(self._sql(_TABLES))
                    connection.execute(
                        self._sql("INSERT INTO {s}.log VALUES (%s, %s, %s)"), astuple(beginning)
                    )
            except (errors.DuplicateTable, errors.DuplicateSchema, errors.UniqueViolation):
                rows = connection.execute(self._sql("SELECT history FROM {s}.log")).fetchall()
                if rows != [(beginning.history,)]:  # else an earlier attempt got through
                    raise FileExistsError(f"{self.place} holds a log already") from None

        self._session.run(begin)
        self.beginning = beginning

    def open_to_append(self) -> None:
        rows = self._rows("SELECT position, epoch FROM {s}.batches ORDER BY position DESC LIMIT 1")
        self._end_at(self._saved(), *(rows[0] if rows else (0, 0)))

    def remove_unused(self) -> bool:
        def remove(connection: _Connection) -> bool:
            with connection.transaction():
                connection.execute(self._sql("LOCK TABLE {s}.batches, {s}.leader"))
                query = self._sql(
                    "SELECT after > 0 AND NOT EXISTS (TABLE {s}.batches)"
                    " AND NOT EXISTS (TABLE {s}.leader) FROM {s}.log"
                )
                unused = connection.execute(query).fetchall() == [(True,)]
                if unused:
                    connection.execute(
                        self._sql("DROP TABLE {s}.log, {s}.batches, {s}.snapshots, {s}.leader")
                    )
            return unused

        return self._storing.run(remove)

    def append(self, batch: Batch) -> None:
        is_next = self._is_next(batch)
        row = (batch.position, *self._values(batch), self._number)

        def insert(connection: _Connection) -> bool:
            places = (batch.position, batch.position)
            if is_next and connection.execute(self._insert, row + places, prepare=True).rowcount:
                return True
            # An earlier attempt may have got through. Its row may be seen before a synchronous
            # replica has it; a commit after it is not acknowledged before.
            return bool(connection.execute(self._touch, row).rowcount)

        if not self._session.run(insert):
            raise self._taken(batch.position)
        if is_next:
            self._last, self._epoch = batch.position, batch.epoch

    @cached_property
    def _insert(self) -> sql.Composed:
        # The batch before may be missing after a failover to a replica that lags.
        return self._sql(
            "INSERT INTO {s}.batches (position, epoch, made, body, checksum, writer)"
            " SELECT %s::bigint, %s::bigint, %s::bigint, %b::bytea, %s::bigint, %s::text"
            " WHERE EXISTS (SELECT FROM {s}.batches WHERE position = %s::bigint - 1)"
            " OR EXISTS (SELECT FROM {s}.log WHERE after = %s::bigint - 1)"
            " ON CONFLICT DO NOTHING"
        )

    @cached_property
    def _touch(self) -> sql.Composed:
        return self._sql(
            "UPDATE {s}.batches SET writer = writer WHERE position = %s AND epoch = %s"
            " AND made = %s AND body = %b AND checksum = %s AND writer = %s"
        )

    def _values(self, batch: Batch) -> tuple[int, int, bytes, int]:
        """Epoch, moment, body and checksum, in which the history stands too."""
        line = contract.encode_batch(batch, zlib.crc32(self.history.encode()))
        return batch.epoch, batch.made, batch.text.encode(), zlib.crc32(line)

    # --- reading --------------------------------------------------------------------------------

    def read(self, after: int) -> Iterator[Batch]:
        """Fetches pages. Raises BatchesForgotten if a snapshot has replaced the batches, even while
        they are read."""
        if after < self.beginning.after:
            raise self._lacks(after + 1)
        while rows := self._rows(
            "SELECT position, epoch, made, body, checksum FROM {s}.batches"
            " WHERE position > %s ORDER BY position LIMIT %s",
            after,
            _PAGE,
        ):
            for position, *values in rows:
                if position != after + 1:
                    raise self._lacks(after + 1)
                batch = self._batch(position, *values)
                yield batch
                after = position
            if len(rows) < _PAGE:
                return

    def _batch(self, position: int, epoch: int, made: int, body: bytes, checksum: int) -> Batch:
        try:
            batch = Batch(position, epoch, made, body.decode())
            if self._values(batch)[-1] == checksum:
                return batch
        except UnicodeDecodeError:
            pass
        raise MetastoreDamaged(
            f"{self.place}: batch {position} is damaged: its checksum differs; restore a backup"
        )

    # --- snapshots ------------------------------------------------------------------------------

    def snapshots(self) -> list[int]:
        rows = self._rows("SELECT position FROM {s}.snapshots WHERE part = 0 ORDER BY position")
        return [int(row[0]) for row in rows]

    def get_snapshot(self, position: int, directory: Path) -> Path:
        """The parts are of one moment: what is deleted meanwhile is still read."""
        path = directory / contract.snapshot_name(position)

        def fetch(connection: _Connection) -> int:
            parts = 0
            with connection.transaction(), path.open("wb") as written:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                query = self._sql(
                    "SELECT body FROM {s}.snapshots WHERE position = %s AND part = %s"
                )
                while part := connection.execute(query, (position, parts), binary=True).fetchone():
                    written.write(part[0])
                    parts += 1
            return parts

        try:
            if not self._storing.run(fetch):
                raise FileNotFoundError(f"{self.place} has no snapshot at {position}")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def put_snapshot(self, position: int, file: Path, keep_since: int | None = None) -> None:
        """One transaction. The moment of a snapshot is that of the batch at its position, which is
        kept with it."""

        def store(connection: _Connection) -> None:
            def execute(text: str, *values: object) -> psycopg.Cursor[TupleRow]:
                return connection.execute(self._sql(text), values)

            with connection.transaction(), file.open("rb") as read:
                execute("DELETE FROM {s}.snapshots WHERE position = %s", position)
                part = 0
                while body := read.read(_PART):
                    execute("INSERT INTO {s}.snapshots VALUES (%s, %s, %b)", position, part, body)
                    part += 1
                oldest = position
                if keep_since is not None:
                    ((newest,),) = execute(
                        "SELECT max(position) FROM {s}.snapshots JOIN {s}.batches USING (position)"
                        " WHERE part = 0 AND made <= %s",
                        keep_since,
                    ).fetchall()
                    oldest = newest or 0
                execute("DELETE FROM {s}.snapshots WHERE position < %s", oldest)
                execute(
                    "DELETE FROM {s}.batches WHERE position < %s AND position NOT IN"
                    " (SELECT min(position) FROM {s}.batches GROUP BY epoch)",
                    oldest,
                )

        self._storing.run(store)
        file.unlink()

    # --- the leader -----------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        query = self._sql(f"SELECT {_LEADER} FROM {{s}}.leader")
        rows = self._leading.run(lambda connection: connection.execute(query).fetchall())
        return Leader(*rows[0]) if rows else None

    def set_leader(self, before: Leader | None, after: Leader) -> bool:
        number = secrets.token_hex(8)  # tells this call, should its answer be lost
        if before is None:
            query = self._sql(
                f"INSERT INTO {{s}}.leader ({_LEADER}, number)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
            )
            values = (*astuple(after), number)
        else:
            query = self._sql(
                f"UPDATE {{s}}.leader SET ({_LEADER}, number) = (%s, %s, %s, %s, %s, %s, %s)"
                f" WHERE ({_LEADER}) = (%s, %s, %s, %s, %s, %s)"
            )
            values = (*astuple(after), number, *astuple(before))

        def replace(connection: _Connection) -> bool:
            if connection.execute(query, values).rowcount:
                return True
            rows = connection.execute(self._sql("SELECT number FROM {s}.leader")).fetchall()
            return rows == [(number,)]

        return self._leading.run(replace)

    def close(self) -> None:
        super().close()
        for session in (self._session, self._leading, self._storing):
            session.close()

    # --- statements -----------------------------------------------------------------------------

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(s=sql.Identifier(self._schema))

    def _rows(self, text: str, *values: object) -> list[TupleRow]:
        query = self._sql(text)
        return self._session.run(
            lambda connection: connection.execute(query, values, binary=True).fetchall()
        )
