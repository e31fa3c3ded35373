"""The metastore process: one thread that owns the state and the file (P1 to P3, P7).

Each round takes all requests that are there, decides them in memory, makes their events durable
with one INSERT, and only then answers. If the INSERT fails, memory is rebuilt from the file and
every client of the round is told to ask for the outcome.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from acid_platform.clock import Clock, SystemClock
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreUnavailable,
)
from acid_platform.metastore import image
from acid_platform.metastore.codec import encode
from acid_platform.metastore.counters import Counters, histogram
from acid_platform.metastore.endpoint import (
    Endpoint,
    Home,
    refuse_network_file_system,
)
from acid_platform.metastore.machine import Machine
from acid_platform.metastore.peers import Peer, Peers
from acid_platform.metastore.store import Error, Store
from acid_platform.metastore.target import parse_address, show_address
from acid_platform.metastore.turn import Event, Reply, error_reply
from acid_platform.metastore.wire import PROTOCOL

_LOG = logging.getLogger("acid_platform.metastore")
_TICK_SECONDS = 0.2
_LONGEST_REQUEST_ID = 64
_WRONG_ARGUMENTS = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A request and who sent it."""

    peer: Peer
    id: str
    op: str
    args: Json


class BadRequest(Exception):
    """A request that the rules can't even refuse: an argument is missing, or of another type."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.op)
        self.message = message


class Server:
    """Serves one metastore directory, whose lock the caller holds. `run` returns when it stops."""

    def __init__(
        self, home: Home, clock: Clock | None = None,
        service: tuple[str, bytes] | None = None,
    ) -> None:
        """`service` is a TCP address `host:port` to listen on too, and the key of its clients."""
        refuse_network_file_system(home)
        if home.unfinished.exists():
            raise MetastoreIncompatible(
                f"a restore into {home.path} was interrupted; run `acid metastore restore FILE"
                " --replace` again"
            )
        self._home, self._clock = home, clock or SystemClock()
        self._lock = os.stat(home.lock).st_ino
        self._store = Store(home.database)
        self._epoch = self._store.next_epoch()
        self._machine = self._load()
        self._waiting: dict[str, Peer] = {}
        self._stopping = False
        self._ahead = False
        self._counters = Counters()
        self._since_fold = 0
        self._folded_at = self._idle_since = self._ticked = time.monotonic()
        self._address = str(home.socket())
        self._service = ""
        listeners = [(self._bind(), home.authkey())]
        if service:
            listener = _listen(service[0])
            self._service = show_address(*listener.getsockname()[:2])
            listeners.append((listener, service[1]))
        self._peers = Peers(listeners)
        Endpoint(self._address, os.getpid(), self._epoch, PROTOCOL).publish(home)

    def run(self) -> None:
        _LOG.info("epoch %d serves %s %s", self._epoch, self._address, self._service)
        try:
            while not self._stopping:
                ticked = self._round()
                if ticked and (self._idle() or self._replaced()):
                    break
        finally:
            self._close()

    def stop(self, *_: Any) -> None:
        """Ends `run` after the round that is going on; safe in a signal handler."""
        self._peers.ring()
        self._stopping = True

    def _bind(self) -> socket.socket:
        # The name appears only when the socket listens, and replaces that of a dead process.
        draft = f"{self._address}.{os.getpid() % 1_000_000}"
        with suppress(FileNotFoundError):
            os.unlink(draft)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(draft)
        os.chmod(draft, 0o600)
        listener.listen(128)
        os.rename(draft, self._address)
        return listener

    def _round(self) -> bool:
        """Handles what has come; True if it also did what is due by itself."""
        messages = []
        for peer, payload in self._peers.wait(_TICK_SECONDS):
            try:
                messages.append(_message(peer, payload))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self._peers.drop(peer, f"a message that is no request: {error!r:.200}")
        due = time.monotonic() - self._ticked >= _TICK_SECONDS / 2
        self._serve(messages, due)
        self._fold_if_due()
        if due:
            self._ticked = time.monotonic()
        return due

    def _send(self, request_id: str, value: Json) -> None:
        peer = self._waiting.pop(request_id, None)
        if peer is not None:
            self._peers.send(peer, _ENCODE(value).encode())

    # --- requests ---------------------------------------------------------------------------

    def _serve(self, messages: list[Message], due: bool = False) -> None:
        """Decides, writes, answers: one group commit."""
        now = self._clock.now_ms()
        while True:
            try:
                replies = self._decide(messages, now, due)
                break
            except BadRequest as bad:
                self._counters.bad_requests += 1
                _LOG.warning("a bad request: %s", bad, exc_info=True)
                self._forget_round(now)
                text = f"{bad.message.op} is called in a way that this metastore does not know:"
                said = InvalidDefinition(f"{text} {bad.__cause__!r}; nothing was changed")
                self._send(bad.message.id, error_reply(said))
                messages = [one for one in messages if one.id != bad.message.id]
            except Exception as error:
                self._fail(messages, error)
                return
        self._counters.requests += len(messages)
        for reply in replies:
            self._send(reply.request_id, reply.value)
        for message in messages:
            if message.op in _OWN:
                self._send(message.id, self._own(message.op, message.args))

    def _decide(self, messages: list[Message], now: int, due: bool) -> list[Reply]:
        """The answers, once they are durable. Raises BadRequest, and whatever a write raises."""
        events: list[Event] = []
        replies: list[Reply] = []
        for message in messages:
            self._waiting[message.id] = message.peer
            if message.op in _OWN:
                continue
            try:
                handled = self._machine.handle(message.op, message.args, message.id, now)
            except _WRONG_ARGUMENTS as error:
                raise BadRequest(message) from error
            events += handled.events
            replies += handled.replies
        if due:
            self._keep_waiting_alive(now)
            handled = self._machine.tick(now)
            events += handled.events
            replies += handled.replies
        if events:
            self._write(events)
        return replies

    def _forget_round(self, now: int) -> None:
        """Nothing was written: memory becomes what the file holds, who lives stays alive."""
        known = self._machine.state
        state, events = self._store.load()
        fresh = Machine(state)
        fresh.replay(events)
        fresh.wake(now)
        for mine, theirs in ((state.heartbeats, known.heartbeats), (state.reads, known.reads)):
            mine.update({txn: at for txn, at in theirs.items() if txn in mine})
        self._machine.state = state

    def _fail(self, messages: list[Message], error: Exception) -> None:
        """Memory may be ahead of the file, or behind it: only the file counts (P3)."""
        self._counters.failed_writes += 1
        _LOG.error("a round of %d requests failed", len(messages), exc_info=error)
        self._ahead = True
        self._machine = self._load(reopen=True)
        self._ahead = False
        transient = self._machine.state.settings.transient(str(error))
        for message in messages:
            self._send(message.id, {"ask": str(error), "transient": transient})

    def _write(self, events: list[Event]) -> None:
        started = time.perf_counter()
        self._store.append(events)
        self._counters.writing.add(time.perf_counter() - started)
        self._counters.batches += 1
        self._counters.events += len(events)
        self._since_fold += len(events)

    def _keep_waiting_alive(self, now: int) -> None:
        """A client that waits for a lock is alive while its connection is (L12)."""
        self._waiting = {one: peer for one, peer in self._waiting.items() if not peer.closed}
        state = self._machine.state
        if self._waiting:
            for entry in state.locks.values():
                if not entry.acquired and entry.request_id in self._waiting:
                    beats = state.heartbeats if entry.txn_id else state.lock_beats
                    beats[entry.txn_id or entry.ext] = now

    def _own(self, op: str, args: Json) -> Json:
        """Requests about the process or the file rather than the state."""
        try:
            return {"value": _OWN[op](self, args)}
        except AcidError as error:
            return error_reply(error)
        except _WRONG_ARGUMENTS as error:
            return error_reply(InvalidDefinition(f"{op} lacks an argument, or has a wrong one:"
                                                 f" {error!r}"))
        except Error as error:
            return error_reply(MetastoreUnavailable(f"the metastore can't use its file: {error}"))

    def outcome(self, args: Json) -> Json:
        """What became of a request (P3): `done` with its answer, `waiting`, or `unseen`."""
        request_id = args["request_id"]
        if self._machine.waits(request_id):
            return {"seen": "waiting"}
        kept = self._machine.state.outcomes.get(request_id) or self._store.past_outcome(request_id)
        if kept is None:
            return {"seen": "unseen"}
        return {"seen": "done", "answer": self._machine.expand(kept.op, kept.reply)}

    def query(self, args: Json) -> Json:
        """One SELECT over the tables, which are brought up to date first."""
        self._fold()
        columns, rows = self._store.query(args["sql"])
        return {"columns": columns, "rows": [[_plain(one) for one in row] for row in rows]}

    def history(self, args: Json) -> Json:
        record = self._machine.state.table(args["name"]).record
        late = [one for one in self._machine.state.written if one.table_id == record.table_id]
        every = (*self._store.history(record.table_id), *late)
        return {
            "rows": [{**encode(one), "operation": one.operation.name.lower()} for one in every]
        }

    def status(self, args: Json) -> Json:
        state, done = self._machine.state, self._counters
        return {
            "pid": os.getpid(),
            "epoch": self._epoch,
            "directory": str(self._home.path),
            "address": self._address,
            "listen": self._service,
            "clients": self._peers.known,
            "open": sum(1 for _ in state.open_txns()),
            "aborted": sum(1 for _ in state.aborted_txns()),
            "waiting": sum(1 for entry in state.locks.values() if not entry.acquired),
            "tables": len(state.tables),
            "last_txn": state.last_txn,
            "doubtful": sum(len(one.doubtful) for one in state.tables.values()),
            "journal": self._store.journal_length,
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
            "refused": self._peers.refused,
            "cpu_seconds": time.process_time(),
            "resident_bytes": psutil.Process().memory_info().rss,
        }

    def backup_begin(self, args: Json) -> Json:
        """Begins a backup of what holds now."""
        self._fold()
        made = self._store.export()
        return {"token": made.token, "meta": made.meta, "rows": made.rows}

    def backup_part(self, args: Json) -> Json:
        """Raises MetastoreUnavailable if the backup is not going on any more."""
        made = self._store.exported(args["token"])
        if made is None:
            raise MetastoreUnavailable(
                "the backup was interrupted: the metastore started again, or another backup began;"
                " begin it again"
            )
        return {"part": made.part(args["table"], args["part"])}

    def backup_end(self, args: Json) -> Json:
        self._store.end_exports()
        return {}

    def halt(self, args: Json) -> Json:
        self.stop()
        return {"pid": os.getpid()}

    # --- file -------------------------------------------------------------------------------

    def _load(self, *, reopen: bool = False) -> Machine:
        """Memory as the file has it. Raises Error if the file can't be read."""
        if reopen:
            self._store.reopen()
        state, events = self._store.load()
        machine = Machine(state, self._store.past_txn)
        machine.replay(events)
        machine.wake(self._clock.now_ms())
        return machine

    def _fold_if_due(self) -> None:
        if not self._since_fold:
            return
        state = self._machine.state
        many = len(state.ended) >= state.settings.integer("acid.metastore.fold.transactions")
        late = 1000 * (time.monotonic() - self._folded_at) >= (
            state.settings.integer("acid.metastore.fold.interval"))
        if many or late:
            try:
                self._fold()
            except Error:
                _LOG.exception("fold failed; the journal goes on")
                self._counters.failed_folds += 1
                self._folded_at = time.monotonic()

    def _fold(self) -> None:
        started = time.perf_counter()
        state = self._machine.state
        keep = state.settings.integer("acid.outcome.retention")
        self._store.fold(state, self._clock.now_ms() - keep)
        image.forget_ended(state)
        self._since_fold, self._folded_at = 0, time.monotonic()
        self._store.checkpoint()
        self._counters.folds += 1
        self._counters.folding.add(time.perf_counter() - started)

    def _idle(self) -> bool:
        """Nobody is connected, nothing is open, and that for long enough. A service stays."""
        busy = self._service or self._peers.any or next(self._machine.state.open_txns(), None)
        if busy:
            self._idle_since = time.monotonic()
            return False
        most = self._machine.state.settings.integer("acid.metastore.idle.exit") / 1000
        return time.monotonic() - self._idle_since > most

    def _replaced(self) -> bool:
        """The directory was removed, and perhaps made again: then another process serves it."""
        try:
            return os.stat(self._home.lock).st_ino != self._lock
        except FileNotFoundError:
            return True

    def _close(self) -> None:
        self._stopping = True
        if not self._replaced():
            for path in (self._home.endpoint, self._address):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        # Before the fold: whoever waits for a handshake looks for another process.
        self._peers.close()
        try:
            if not self._ahead:
                self._fold()
        except Error:
            _LOG.exception("the last fold failed; the next start replays the journal")
        self._store.close()
        _LOG.info("epoch %d ends", self._epoch)


_OWN = {
    "outcome": Server.outcome, "query": Server.query, "history": Server.history,
    "status": Server.status, "stop": Server.halt, "backup_begin": Server.backup_begin,
    "backup_part": Server.backup_part, "backup_end": Server.backup_end,
}


def _message(peer: Peer, payload: bytes) -> Message:
    """Raises ValueError, KeyError, TypeError, RecursionError if the bytes are no request."""
    said = json.loads(payload)
    request_id, op, args = said["id"], said["op"], said["args"]
    if not (isinstance(request_id, str) and isinstance(op, str) and isinstance(args, dict)):
        raise TypeError("id and op are texts, args is an object")
    if len(request_id) > _LONGEST_REQUEST_ID:
        raise ValueError("the id is too long")
    return Message(peer, request_id, op, args)


def _listen(address: str) -> socket.socket:
    """Raises MetastoreUnavailable, InvalidDefinition."""
    host, port = parse_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise MetastoreUnavailable(f"the metastore can't listen on {address}: {error}") from error


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def install_signals(server: Server) -> None:
    """SIGTERM stops cleanly; the terminal's signals are for its clients."""
    signal.signal(signal.SIGTERM, server.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
