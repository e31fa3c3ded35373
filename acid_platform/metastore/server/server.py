"""The metastore process: one thread that owns the state and the file (P1, P2, P7).

Each round takes all requests that have arrived. Requests that record nothing are answered at once.
The others, with those that arrive in the meantime, are decided and written together
(group_commit.py).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from acid_platform.clock import Clock, SystemClock
from acid_platform.errors import (
    AcidError,
    MetastoreIncompatible,
    MetastoreUnavailable,
    StandbyRefused,
    WarehouseMoved,
)
from acid_platform.metastore import wire
from acid_platform.metastore.address import parse_address, show_address
from acid_platform.metastore.codec import JsonObject
from acid_platform.metastore.endpoint import (
    Endpoint,
    Home,
    refuse_network_file_system,
)
from acid_platform.metastore.operations import Operation, Row, read_operation, write_answer
from acid_platform.metastore.operations.replication import (
    Follow,
    Followed,
    ForgetStandby,
    Promote,
)
from acid_platform.metastore.operations.shows import GetStatus, Stop
from acid_platform.metastore.operations.tables import GetSettings
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.connections import Connection, Connections
from acid_platform.metastore.server.group_commit import MALFORMED, GroupCommit, Request
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.server.metrics import histogram
from acid_platform.metastore.server.replication import Replication
from acid_platform.metastore.server.standby import Standby
from acid_platform.metastore.wire import PROTOCOL, STANDBY

_LOG = logging.getLogger("acid_platform.metastore")
_TICK_SECONDS = 0.2
_FIRST_CLIENT_SECONDS = 10.0
_LONGEST_REQUEST_ID = 64
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Server:
    """Serves one metastore directory, whose lock the caller holds. `run` returns when it stops."""

    def __init__(
        self,
        home: Home,
        clock: Clock | None = None,
        service: tuple[str, bytes] | None = None,
    ) -> None:
        """`service`: a TCP address `host:port` to listen on too, and the key of its clients."""
        refuse_network_file_system(home)
        if home.unfinished.exists():
            raise MetastoreIncompatible(
                f"a restore into {home.path} was interrupted; run `acid metastore restore FILE"
                " --replace` again, or `acid metastore standby --of ADDRESS --replace` if that was"
                " interrupted"
            )
        self._home = home
        self._place = _inodes(home)
        self.moved = False
        """Whether `run` ended because the directory is no longer at its path (P31)."""
        membership = Membership.read(home)
        follows = membership.role == STANDBY
        self._require_service(membership, service)
        self.commits = GroupCommit(home.database, clock or SystemClock(), follows)
        self.outdated = ""
        """Why `run` ended, if this is a standby that has to be made anew."""
        self._waiting: dict[str, Connection] = {}
        self._held: list[Request] = []
        """Requests that came while the synchronous standby was missing."""
        self._held_since: float | None = None
        self._unsent: list[Reply] = []
        """Answers that wait until the standby has what they show."""
        self._stopping = False
        self._ticked = time.monotonic()
        # The client that started the process needs a moment to connect.
        self._idle_since = self._ticked + _FIRST_CLIENT_SECONDS
        self._address = str(home.socket())
        self._service = ""
        listeners = [(self._bind(), home.authkey())]
        if service:
            listener = _listen(service[0])
            self._service = show_address(*listener.getsockname()[:2])
            listeners.append((listener, service[1]))
        self._connections = Connections(listeners)
        self._standby: Standby | None = None
        if follows:
            self._standby = Standby(
                home, membership, self.commits, self._service, self._connections.ring
            )
        self._lead(membership)
        Endpoint(self._address, os.getpid(), self.commits.epoch, PROTOCOL).publish(home)

    def run(self) -> None:
        _LOG.info("epoch %d serves %s %s", self.commits.epoch, self._address, self._service)
        try:
            while not self._stopping:
                ticked = self._round()
                if self.moved or (ticked and self._idle()):
                    break
        finally:
            self._close()

    def stop(self, *_: object) -> None:
        """Ends `run` after the current round; safe in a signal handler."""
        self._connections.ring()
        self._stopping = True

    def _bind(self) -> socket.socket:
        # The name appears only once the socket listens, and replaces that of a dead process.
        draft = f"{self._address}.{os.getpid() % 1_000_000}"
        with suppress(FileNotFoundError):
            os.unlink(draft)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(draft)
        os.chmod(draft, 0o600)
        listener.listen(128)
        self._socket = os.stat(draft).st_ino
        os.rename(draft, self._address)
        return listener

    # --- one round ----------------------------------------------------------------------------

    def _round(self) -> bool:
        """Handles what has arrived; returns True if it also did what is due by itself.

        First it checks that its directory is still there, so that it writes nothing at a path where
        another warehouse may be by now.
        """
        requests = self._receive(_TICK_SECONDS)
        self.moved = _inodes(self._home) != self._place
        if self.moved:
            self._send(Reply(request.id, error_reply(self._moved_away())) for request in requests)
            return True
        due = time.monotonic() - self._ticked >= _TICK_SECONDS / 2
        if due:
            self._waiting = {
                request_id: connection
                for request_id, connection in self._waiting.items()
                if not connection.closed
            }
        if self._standby is not None:
            self._stand_by(self._standby, requests)
        else:
            self._serve(requests, due)
        if due:
            self._ticked = time.monotonic()
        return due

    def _serve(self, requests: list[Request], due: bool) -> None:
        """A primary's round."""
        requests = self._take_follows(requests)
        self._acknowledge()
        if self._unsent or not self._replication.leads():
            requests = self._hold(requests)
        else:
            requests, self._held, self._held_since = [*self._held, *requests], [], None
            self._tell_role(wire.PRIMARY)
            self._unsent, requests = self.commits.answer_reads(requests)
            self._acknowledge()
            requests += self._take_follows(self._receive(0))
            if requests or due:
                others = [
                    request for request in requests if type(request.operation) not in HANDLERS
                ]
                self._unsent += self.commits.round(others, self._waiting if due else None)
                self._acknowledge()
        self._send(self._replication.answers(self.commits.last))
        own = [request for request in requests if type(request.operation) in HANDLERS]
        self._send(self._own(request) for request in own)
        self.moved = _inodes(self._home) != self._place
        if not self.moved:
            self.commits.fold_if_due()

    def _acknowledge(self) -> None:
        """Sends the answers once the standby has what they show, and can't have been promoted.

        This process may have been suspended at any moment before, also after it took the requests.
        """
        replication = self._replication
        if self._unsent and replication.has(self.commits.last) and replication.leads():
            replies, self._unsent = self._unsent, []
            self._send(replies)

    # --- replication --------------------------------------------------------------------------

    @staticmethod
    def _require_service(membership: Membership, service: object) -> None:
        """Raises MetastoreIncompatible: the other one must be able to connect."""
        if not service and (membership.role == STANDBY or membership.synchronous):
            raise MetastoreIncompatible(
                f"this metastore is a {membership.role} in replication, so it must listen: start it"
                " with `acid metastore start --listen HOST:PORT`"
            )

    def _lead(self, membership: Membership) -> None:
        self._replication = Replication(
            self._home,
            membership,
            lambda: self.commits.state.settings,
            self.commits.store.records(),
        )
        self.commits.on_written = self._replication.written
        waits = self._replication.requires_standby
        self._tell_role(STANDBY if self._standby else wire.WAITING if waits else wire.PRIMARY)

    def _tell_role(self, role: str) -> None:
        self._connections.role = role
        self._connections.term = self._replication.membership.term

    def _take_follows(self, requests: list[Request]) -> list[Request]:
        """Hands the standby's requests to replication, and returns the others."""
        others = []
        for request in requests:
            if not isinstance(request.operation, Follow):
                others.append(request)
                continue
            last = self.commits.last
            refused = self._replication.follow(request.id, request.operation, last)
            if refused:
                self._send([refused])
        return others

    def _hold(self, requests: list[Request]) -> list[Request]:
        """Keeps requests until the standby is back, and returns those on the process itself.

        After a while clients are told: over TCP by the end of the connection, since they may find
        the standby that was promoted.
        """
        own, others = self._split(requests)
        self._held += others
        self._held = [request for request in self._held if request.id in self._waiting]
        if self._replication.leads():
            self._held_since = None
            return own
        now = time.monotonic()
        self._held_since = self._held_since or now
        if now - self._held_since > self._replication.patience:
            self._tell_role(wire.WAITING)
            late, self._held = self._held, []
            for request_id in [*(reply.request_id for reply in self._unsent), *_ids(late)]:
                connection = self._waiting.get(request_id)
                if connection is not None and connection.remote:
                    self._waiting.pop(request_id)
                    self._connections.drop(connection)
            absent = error_reply(self._replication.absent())
            self._send(Reply(request.id, absent) for request in late)
        return own

    def _split(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """The requests on the process itself, and the others, except for the settings: every client
        asks for them first, and they are answered here."""
        asked = [request for request in requests if isinstance(request.operation, GetSettings)]
        replies, _ = self.commits.answer_reads(asked)
        self._send(replies)
        own = [request for request in requests if type(request.operation) in HANDLERS]
        return own, [each for each in requests if each not in own and each not in asked]

    def _stand_by(self, standby: Standby, requests: list[Request]) -> None:
        """A standby's round."""
        standby.apply()
        own, others = self._split(requests)
        refusal = error_reply(standby.refusal())
        self._send(Reply(request.id, refusal) for request in others)
        self._send(self._own(request) for request in own)
        if self._standby and standby.may_promote():
            with suppress(StandbyRefused):  # the primary has answered after all
                self._promote(standby, incomplete=False)
        self.outdated = standby.outdated
        if self.outdated:
            self.stop()
        self.commits.fold_if_due()

    def _promote(self, standby: Standby, incomplete: bool) -> int:
        """Raises StandbyRefused, OSError, and what loading raises."""
        membership = standby.promote(incomplete)
        self._standby = None
        self.commits.take_over()
        self._lead(membership)
        _LOG.warning("promoted: the primary of term %d", membership.term)
        return membership.term

    def _follow_for(self, _operation: Follow) -> Followed:
        """Refuses; a primary answers it later, see `_take_follows`. Raises MetastoreUnavailable."""
        raise self._standby.refusal() if self._standby else self._replication.absent()

    def _promote_for(self, operation: Promote) -> int:
        if self._standby is None:
            raise StandbyRefused("this metastore is the primary already")
        return self._promote(self._standby, operation.incomplete)

    def _forget_for(self, _operation: ForgetStandby) -> str:
        if self._standby is not None:
            raise StandbyRefused("this metastore is a standby itself")
        return self._replication.forget()

    # --- requests -----------------------------------------------------------------------------

    def _receive(self, seconds: float) -> list[Request]:
        requests = []
        for connection, payload in self._connections.wait(seconds):
            try:
                request_id, op, args = _message(payload)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self._connections.drop(
                    connection, f"a message that is not a request: {error!r:.200}"
                )
                continue
            self._waiting[request_id] = connection
            try:
                requests.append(Request(request_id, read_operation(op, args)))
            except AcidError as error:
                self._send([Reply(request_id, error_reply(error))])
            except MALFORMED as error:
                self._send([self.commits.bad(request_id, op, error)])
        return requests

    def _send(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            connection = self._waiting.pop(reply.request_id, None)
            if connection is not None:
                self._connections.send(connection, _ENCODE(reply.value).encode())

    def _own(self, request: Request) -> Reply:
        kind = type(request.operation)
        try:
            answer = HANDLERS[kind](self, request.operation)
        except AcidError as error:
            return Reply(request.id, error_reply(error))
        return Reply(request.id, {"value": write_answer(kind, answer)})

    def _stop_for(self, _operation: Stop) -> int:
        self.stop()
        return os.getpid()

    def _status_for(self, _operation: GetStatus) -> Row:
        return self.status()

    def status(self) -> Row:
        state, done, last = self.commits.state, self.commits.counters, self.commits.last
        return {
            "pid": os.getpid(),
            "epoch": self.commits.epoch,
            "directory": str(self._home.path),
            "address": self._address,
            "listen": self._service,
            **(self._standby.status() if self._standby else self._replication.status(last)),
            "clients": self._connections.known,
            "open": sum(1 for _ in state.open_txns()),
            "aborted": sum(1 for _ in state.aborted_txns()),
            "waiting": len(state.waiting),
            "tables": len(state.tables),
            "last_txn": state.last_txn,
            "changed_rows": state.row_bytes,
            "doubtful": sum(len(table.doubtful) for table in state.tables.values()),
            "journal": self.commits.store.journal_length,
            "requests": done.requests,
            "commits": done.batches,
            "events": done.events,
            "commit_ms": round(1000 * done.writing.total / max(done.batches, 1), 3),
            "write_latency": histogram(done.writing),
            "folds": done.folds,
            "fold_latency": histogram(done.folding),
            "failed_writes": done.failed_writes,
            "failed_folds": done.failed_folds,
            "bad_requests": done.bad_requests,
            "refused": self._connections.refused,
            "cpu_seconds": time.process_time(),
            "resident_bytes": psutil.Process().memory_info().rss,
        }

    # --- its life -----------------------------------------------------------------------------

    def _idle(self) -> bool:
        """Whether no client is connected and nothing has been open for long enough. A service
        stays."""
        busy = self._service or self._connections.any or next(self.commits.state.open_txns(), None)
        if busy:
            self._idle_since = time.monotonic()
            return False
        most = self.commits.state.settings.integer("acid.metastore.idle.exit") / 1000
        return time.monotonic() - self._idle_since > most

    def _moved_away(self) -> WarehouseMoved:
        return WarehouseMoved(
            f"{self._home.path} was moved, removed or replaced: nothing was done; open the"
            " warehouse where it is now"
        )

    def _close(self) -> None:
        self._stopping = True
        if self._standby is not None:
            self._standby.stop()
        self.moved = self.moved or _inodes(self._home) != self._place
        with suppress(FileNotFoundError):
            if os.stat(self._address).st_ino == self._socket:
                os.unlink(self._address)
        if self.moved:
            # The log moved with the directory and has every commit. DuckDB would write and remove
            # its own log at the old path, so the process ends as in a crash.
            self._connections.close()
            _LOG.warning("epoch %d ends: %s", self.commits.epoch, self._moved_away())
            return
        with suppress(FileNotFoundError):
            os.unlink(self._home.endpoint)
        # Before the last fold: clients in a handshake then look for another process.
        self._connections.close()
        self.commits.close()
        _LOG.info("epoch %d ends", self.commits.epoch)


def _inodes(home: Home) -> list[tuple[int, int]] | None:
    """The inodes of the directory's path and of its lock; None if one is missing."""
    try:
        stats = [os.stat(path) for path in (home.path, home.lock)]
    except OSError:
        return None
    return [(stat.st_dev, stat.st_ino) for stat in stats]


HANDLERS: dict[type[Operation[object]], Callable[..., object]] = {
    GetStatus: Server._status_for,
    Stop: Server._stop_for,
    Follow: Server._follow_for,
    Promote: Server._promote_for,
    ForgetStandby: Server._forget_for,
}
"""Operations on the process."""


def _ids(requests: Iterable[Request]) -> list[str]:
    return [request.id for request in requests]


def _message(payload: bytes) -> tuple[str, str, JsonObject]:
    """Id, operation and arguments of a request.

    Raises ValueError, KeyError, TypeError or RecursionError if the bytes are not a request.
    """
    message = json.loads(payload.decode())
    request_id, op, args = message["id"], message["op"], message["args"]
    if not (isinstance(request_id, str) and isinstance(op, str) and isinstance(args, dict)):
        raise TypeError("id and op are texts, args is an object")
    if len(request_id) > _LONGEST_REQUEST_ID:
        raise ValueError("the id is too long")
    return request_id, op, args


def _listen(address: str) -> socket.socket:
    """Raises MetastoreUnavailable, InvalidDefinition."""
    host, port = parse_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise MetastoreUnavailable(f"the metastore can't listen on {address}: {error}") from error


def install_signals(server: Server) -> None:
    """SIGTERM stops the server cleanly; the terminal's signals are for its clients."""
    signal.signal(signal.SIGTERM, server.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
