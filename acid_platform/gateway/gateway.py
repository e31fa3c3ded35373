"""Answers the calls of Hive's Metastore protocol from a warehouse's metastore."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from acid_platform.errors import AcidError, NotAuthorized
from acid_platform.gateway.authorization import Authorizer, Guard
from acid_platform.gateway.bounds import Bounds
from acid_platform.gateway.caller import Caller
from acid_platform.gateway.compaction_calls import Compactions
from acid_platform.gateway.databases import plain_names
from acid_platform.gateway.error_replies import tell
from acid_platform.gateway.gateway_server import Entry, GatewayServer
from acid_platform.gateway.protocol import Call, Undecodable, known_calls, load
from acid_platform.gateway.requests import Requests
from acid_platform.gateway.session_calls import SessionCalls
from acid_platform.gateway.statistics_calls import StatisticsCalls
from acid_platform.gateway.transaction_calls import Transactions
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import WriteReport

_LOG = logging.getLogger(__name__)


class Gateway(Requests, SessionCalls, Transactions, Compactions, StatisticsCalls):
    """All calls. It may be used from several threads."""

    def __init__(
        self,
        metastore: Metastore,
        lock_wait: float = 2.0,
        authorizer: Authorizer | None = None,
        locations: str = "",
    ) -> None:
        """`lock_wait`: for how many seconds a lock request is held back before the client learns
        that it waits. `authorizer` None allows everything. `locations`: directories outside of the
        warehouse in which clients may make tables, separated by commas. Raises UnsupportedStatement
        if thriftpy2 is missing."""
        load()
        self._metastore = metastore
        self._lock_wait = lock_wait
        self._locations = locations
        self._guard = Guard(metastore, authorizer)
        self._present = threading.local()

    def _locker(self) -> set[int]:
        """The transactions for which the connection whose call is answered asked for locks."""
        caller: Caller = self._present.caller
        return caller.txns

    def _own(self) -> list[int] | None:
        return self._guard.own(self._present.caller)

    def _admit_commit(self, writes: Sequence[WriteReport]) -> None:
        self._guard.admit_commit(writes, self._present.caller)

    def answer(self, payload: bytes, peer: Caller) -> bytes:
        """The answer to one message, also to one that is wrong, fails or is not allowed.

        It is empty for a call that wants none: Hive's clients say `shutdown` before they go.
        """
        self._present.caller = peer
        try:
            call = Call.decode(payload)
        except Undecodable as error:
            _LOG.warning("%s: a call that can't be decoded: %s", peer, error)
            return Call("", 0, []).malformed(f"the call can't be decoded: {error}")
        method = getattr(self, call.name, None) if call.name in known_calls() else None
        if call.oneway and method is None:
            return b""
        if method is None:
            _LOG.warning("%s: unknown call %s", peer, call.name)
            return call.unknown()
        try:
            call.arguments = plain_names(call.arguments)
            self._guard.admit(call, peer)
            answer = method(*call.arguments)
            self._guard.answered(call, peer, answer)
            return call.answer(answer)
        except NotAuthorized as error:
            _LOG.warning("%s: %s", peer, error)
            return tell(call, error)
        except AcidError as error:
            _LOG.info("%s: %s: %s: %s", peer, call.name, type(error).__name__, error)
            return tell(call, error)
        except Exception as error:
            _LOG.exception("%s: %s failed", peer, call.name)
            return call.failed(f"{call.name} failed: {type(error).__name__}: {error}")

    def refuse(self, payload: bytes, reason: str) -> bytes:
        """The answer to a call of which only the name is looked at; empty if it is none."""
        call = Call.named(payload)
        return b"" if call is None else call.failed(reason)

    def listen(
        self,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        entry: Entry | None = None,
        report: Callable[[GatewayServer], None] | None = None,
    ) -> GatewayServer:
        """A server that answers from now on; call its `serve`. Raises InvalidDefinition."""
        return GatewayServer(
            host,
            port,
            self.answer,
            self._metastore.disconnect,
            bounds,
            self.refuse,
            entry,
            report,
        )
