"""Answers the calls of Hive's Metastore protocol from a warehouse's metastore."""

from __future__ import annotations

import logging
import threading

from acid_platform.errors import AcidError
from acid_platform.gateway.catalog import Catalog
from acid_platform.gateway.compactions import Compactions
from acid_platform.gateway.definitions import Definitions
from acid_platform.gateway.failures import tell
from acid_platform.gateway.partitions import Partitions
from acid_platform.gateway.protocol import Call, Undecodable, known_calls, load
from acid_platform.gateway.server import Bounds, Server
from acid_platform.gateway.session import Session
from acid_platform.gateway.statistics import Statistics
from acid_platform.gateway.transactions import Transactions
from acid_platform.metastore.client.metastore import Metastore

_LOG = logging.getLogger(__name__)


class Gateway(Catalog, Session, Transactions, Compactions, Definitions, Partitions, Statistics):
    """All calls. It may be used from several threads."""

    def __init__(self, metastore: Metastore, lock_wait: float = 2.0) -> None:
        """`lock_wait`: for how many seconds a lock request is held back before the client learns
        that it waits. Raises UnsupportedStatement if thriftpy2 is missing."""
        load()
        self._metastore = metastore
        self._lock_wait = lock_wait
        self._connection = threading.local()

    def _locker(self) -> set[int]:
        """The transactions for which this connection, which has its own thread, asked for locks."""
        known: set[int] = self._connection.__dict__.setdefault("txns", set())
        return known

    def answer(self, payload: bytes, peer: str) -> bytes:
        """The answer to one message, also to one that is wrong or fails."""
        try:
            call = Call.decode(payload)
        except Undecodable as error:
            _LOG.warning("%s: a call that can't be decoded: %s", peer, error)
            return Call("", 0, []).malformed(f"the call can't be decoded: {error}")
        method = getattr(self, call.name, None) if call.name in known_calls() else None
        if method is None:
            _LOG.warning("%s: unknown call %s", peer, call.name)
            return call.unknown()
        try:
            return call.answer(method(*call.arguments))
        except AcidError as error:
            _LOG.info("%s: %s: %s: %s", peer, call.name, type(error).__name__, error)
            return tell(call, error)
        except Exception as error:
            _LOG.exception("%s: %s failed", peer, call.name)
            return call.failed(f"{call.name} failed: {type(error).__name__}: {error}")

    def listen(self, host: str, port: int, bounds: Bounds | None = None) -> Server:
        """A server that answers from now on; call its `serve`. Raises InvalidDefinition."""
        return Server(host, port, self.answer, self._metastore.disconnect, bounds)
