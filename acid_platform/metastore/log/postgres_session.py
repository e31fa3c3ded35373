"""Connections to the PostgreSQL of a log: bounded in time, and opened again when they are lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlunsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from acid_platform.base.paths import parts_of_url, without_credentials
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreDamaged,
    MetastoreRefused,
    MetastoreUnavailable,
)

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
        self._connection: _Connection | None = None
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

    def _open(self) -> _Connection:
        if self._connection is None:
            opened = _Connection.connect(autocommit=True, **self._parameters)
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


class _Connection(psycopg.Connection[TupleRow]):
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
