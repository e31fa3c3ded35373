"""The part of PostgreSQL's client library, libpq, that prepared statements need.

A benchmark should add no driver to the dependencies, and use nothing slower than libpq itself.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

_COMMAND_OK, _TUPLES_OK = 1, 2
_CONNECTION_OK = 0


class PostgresError(Exception):
    """An error from the server."""


def library() -> ctypes.CDLL | None:
    """libpq; None if it is not installed."""
    name = ctypes.util.find_library("pq")
    if name is None:
        return None
    pq = ctypes.CDLL(name)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    texts = ctypes.POINTER(ctypes.c_char_p)
    for function, result, arguments in (
        ("PQconnectdb", pointer, [text]),
        ("PQstatus", number, [pointer]),
        ("PQerrorMessage", text, [pointer]),
        ("PQfinish", None, [pointer]),
        ("PQexec", pointer, [pointer, text]),
        ("PQclear", None, [pointer]),
        ("PQprepare", pointer, [pointer, text, text, number, pointer]),
        ("PQexecPrepared", pointer, [pointer, text, number, texts, pointer, pointer, number]),
        ("PQresultStatus", number, [pointer]),
        ("PQntuples", number, [pointer]),
        ("PQnfields", number, [pointer]),
        ("PQgetvalue", text, [pointer, number, number]),
    ):
        symbol = getattr(pq, function)
        symbol.restype, symbol.argtypes = result, arguments
    return pq


class Postgres:
    """A connection; statements are prepared when they are first executed."""

    def __init__(self, conninfo: str) -> None:
        pq = library()
        assert pq is not None
        self._pq: Any = pq
        self._connection = pq.PQconnectdb(conninfo.encode())
        self._prepared: dict[str, bytes] = {}
        if pq.PQstatus(self._connection) != _CONNECTION_OK:
            raise PostgresError(self._pq.PQerrorMessage(self._connection).decode())

    def execute(self, sql: str, values: tuple[object, ...] = ()) -> list[list[str]]:
        name = self._prepared.get(sql)
        if name is None:
            name = self._prepared[sql] = f"s{len(self._prepared)}".encode()
            self._rows(self._pq.PQprepare(self._connection, name, sql.encode(), 0, None))
        given = (ctypes.c_char_p * len(values))(*(str(value).encode() for value in values))
        return self._rows(
            self._pq.PQexecPrepared(self._connection, name, len(values), given, None, None, 0)
        )

    def script(self, sql: str) -> None:
        self._rows(self._pq.PQexec(self._connection, sql.encode()))

    def close(self) -> None:
        self._pq.PQfinish(self._connection)

    def _rows(self, result: int) -> list[list[str]]:
        try:
            status = self._pq.PQresultStatus(result)
            if status not in (_COMMAND_OK, _TUPLES_OK):
                raise PostgresError(self._pq.PQerrorMessage(self._connection).decode())
            width = range(self._pq.PQnfields(result))
            return [
                [self._pq.PQgetvalue(result, row, column).decode() for column in width]
                for row in range(self._pq.PQntuples(result))
            ]
        finally:
            self._pq.PQclear(result)
