"""The metastore process: one thread that owns the state and the file (P1 to P3, P7).

Each round takes all requests that are there, decides them in memory, makes their events durable
with one INSERT, and only then answers. If the INSERT fails, memory is rebuilt from the file and
every client of the round is told to ask for the outcome.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from typing import Any

from acid_platform.clock import Clock, SystemClock
from acid_platform.errors import AcidError, MetastoreUnavailable
from acid_platform.metastore import image
from acid_platform.metastore.codec import encode
from acid_platform.metastore.endpoint import (
    PROTOCOL,
    Endpoint,
    Home,
    limit_waits,
    refuse_network_file_system,
)
from acid_platform.metastore.machine import Machine
from acid_platform.metastore.store import Error, Store
from acid_platform.metastore.turn import Event, Reply, error_reply

_LOG = logging.getLogger("acid_platform.metastore")
_TICK_SECONDS = 0.2
_FOLD_SECONDS = 60.0
_FOLD_ENDED = 5000
_LARGEST_MESSAGE = 256 << 20

Json = dict[str, Any]


@dataclass(slots=True)
class Counters:
    """What `status` tells about the work done."""

    requests: int = 0
    batches: int = 0
    events: int = 0
    write_seconds: float = 0.0
    failed_writes: int = 0


class Server:
    """Serves one metastore directory, whose lock the caller holds. `run` returns when it stops."""

    def __init__(self, home: Home, clock: Clock | None = None) -> None:
        refuse_network_file_system(home)
        self._home, self._clock = home, clock or SystemClock()
        self._lock = os.stat(home.lock).st_ino
        self._store = Store(home.database)
        self._epoch = self._store.next_epoch()
        self._machine = self._load()
        self._connections: set[Connection[Any, Any]] = set()
        self._arrived: queue.SimpleQueue[Connection[Any, Any]] = queue.SimpleQueue()
        self._waiting: dict[str, Connection[Any, Any]] = {}
        self._bell_out, self._bell_in = os.pipe()
        os.set_blocking(self._bell_in, False)
        os.set_blocking(self._bell_out, False)
        self._stopping = False
        self._ahead = False
        self._counters = Counters()
        self._since_fold = 0
        self._folded_at = self._idle_since = time.monotonic()
        self._address = str(home.socket())
        self._listener = self._bind()
        self._ticked = 0.0
        Endpoint(self._address, os.getpid(), self._epoch, PROTOCOL).publish(home)

    def run(self) -> None:
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        _LOG.info("epoch %d serves %s", self._epoch, self._address)
        try:
            while not self._stopping and not self._idle() and not self._replaced():
                self._round()
        finally:
            self._close()

    def stop(self, *_: Any) -> None:
        """Ends `run` after the round that is going on; safe in a signal handler."""
        self._stopping = True
        with suppress(BlockingIOError):
            os.write(self._bell_in, b"!")

    # --- connections ------------------------------------------------------------------------

    def _bind(self) -> socket.socket:
        # The name appears only when the socket listens, and replaces that of a dead process.
        draft = f"{self._address}.{os.getpid() % 1_000_000}"
        with suppress(FileNotFoundError):
            os.unlink(draft)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(draft)
        listener.listen(128)
        os.rename(draft, self._address)
        return listener

    def _accept(self) -> None:
        """Runs in its own thread: a slow handshake keeps nobody waiting."""
        key = self._home.authkey()
        while not self._stopping:
            try:
                arrived, _ = self._listener.accept()
                limit_waits(arrived)
                connection: Connection[Any, Any] = Connection(arrived.detach())
                deliver_challenge(connection, key)
                answer_challenge(connection, key)
            except (AuthenticationError, EOFError, OSError) as error:
                if not self._stopping:
                    _LOG.warning("refused a connection: %s", error)
                    time.sleep(0.01)
                continue
            self._arrived.put(connection)
            with suppress(BlockingIOError):
                os.write(self._bell_in, b".")

    def _round(self) -> None:
        ready = wait([self._bell_out, *self._connections], _TICK_SECONDS)
        requests: list[tuple[Connection[Any, Any], Json]] = []
        for one in ready:
            if isinstance(one, Connection):
                message = self._receive(one)
                if message is not None:
                    requests.append((one, message))
        with suppress(BlockingIOError):
            os.read(self._bell_out, 4096)
        while not self._arrived.empty():
            self._connections.add(self._arrived.get())
        self._serve(requests)
        self._fold_if_due()

    def _receive(self, connection: Connection[Any, Any]) -> Json | None:
        try:
            message = json.loads(connection.recv_bytes(_LARGEST_MESSAGE))
            return {"id": message["id"], "op": message["op"], "args": message["args"]}
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            self._drop(connection)
            return None

    def _drop(self, connection: Connection[Any, Any]) -> None:
        self._connections.discard(connection)
        for request_id in [key for key, one in self._waiting.items() if one is connection]:
            del self._waiting[request_id]
        connection.close()

    def _send(self, request_id: str, value: Json) -> None:
        connection = self._waiting.pop(request_id, None)
        if connection is None:
            return
        try:
            connection.send_bytes(json.dumps(value, separators=(",", ":")).encode())
        except OSError:
            self._drop(connection)

    # --- requests ---------------------------------------------------------------------------

    def _serve(self, requests: list[tuple[Connection[Any, Any], Json]]) -> None:
        """Decides, writes, answers: one group commit."""
        now = self._clock.now_ms()
        events: list[Event] = []
        replies: list[Reply] = []
        later: list[Json] = []
        try:
            for connection, message in requests:
                self._waiting[message["id"]] = connection
                if message["op"] in _OWN:
                    later.append(message)
                    continue
                handled = self._machine.handle(message["op"], message["args"], message["id"], now)
                events += handled.events
                replies += handled.replies
            if time.monotonic() - self._ticked >= _TICK_SECONDS / 2:
                self._ticked = time.monotonic()
                self._keep_waiting_alive(now)
                handled = self._machine.tick(now)
                events += handled.events
                replies += handled.replies
            if events:
                self._write(events)
        except Exception as error:
            # Memory may be ahead of the file: forget the round, whatever went wrong.
            self._counters.failed_writes += 1
            _LOG.exception("a round of %d requests failed", len(requests))
            self._ahead = True
            self._machine = self._load(reopen=True)
            self._ahead = False
            transient = self._machine.state.settings.transient(str(error))
            told = {"ask": str(error), "transient": transient}
            for request_id in {message["id"] for _, message in requests}:
                self._send(request_id, told)
            return
        self._counters.requests += len(requests)
        for reply in replies:
            self._send(reply.request_id, reply.value)
        for message in later:
            self._send(message["id"], self._own(message["op"], message["args"]))

    def _write(self, events: list[Event]) -> None:
        started = time.perf_counter()
        self._store.append(events)
        self._counters.write_seconds += time.perf_counter() - started
        self._counters.batches += 1
        self._counters.events += len(events)
        self._since_fold += len(events)

    def _keep_waiting_alive(self, now: int) -> None:
        """A client that waits for a lock is alive while its connection is (L12)."""
        if self._waiting:
            for entry in self._machine.state.locks.values():
                if not entry.acquired and entry.request_id in self._waiting:
                    self._machine.state.heartbeats[entry.txn_id] = now

    def _own(self, op: str, args: Json) -> Json:
        """Requests about the process or the file rather than the state."""
        try:
            return {"value": _OWN[op](self, args)}
        except AcidError as error:
            return error_reply(error)
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
            "clients": len(self._connections),
            "open": sum(1 for _ in state.open_txns()),
            "aborted": sum(1 for _ in state.aborted_txns()),
            "waiting": sum(1 for entry in state.locks.values() if not entry.acquired),
            "tables": len(state.tables),
            "last_txn": state.last_txn,
            "journal": self._store.journal_length,
            "requests": done.requests,
            "commits": done.batches,
            "events": done.events,
            "commit_ms": round(1000 * done.write_seconds / done.batches, 3) if done.batches else 0,
            "failed_writes": done.failed_writes,
            "cpu_seconds": time.process_time(),
        }

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
        many = len(self._machine.state.ended) >= _FOLD_ENDED
        late = time.monotonic() - self._folded_at >= _FOLD_SECONDS
        if self._since_fold and (many or late):
            try:
                self._fold()
            except Error:
                _LOG.exception("fold failed; the journal goes on")
                self._folded_at = time.monotonic()

    def _fold(self) -> None:
        state = self._machine.state
        keep = state.settings.integer("acid.outcome.retention")
        self._store.fold(state, self._clock.now_ms() - keep)
        image.forget_ended(state)
        self._since_fold, self._folded_at = 0, time.monotonic()
        self._store.checkpoint()

    def _idle(self) -> bool:
        """Nobody is connected, nothing is open, and that for long enough."""
        busy = self._connections or any(True for _ in self._machine.state.open_txns())
        if busy or not self._arrived.empty():
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
        try:
            if not self._ahead:
                self._fold()
        except Error:
            _LOG.exception("the last fold failed; the next start replays the journal")
        self._store.close()
        # Wakes the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            self._drop(connection)
        _LOG.info("epoch %d ends", self._epoch)


_OWN = {
    "outcome": Server.outcome, "query": Server.query, "history": Server.history,
    "status": Server.status, "stop": Server.halt,
}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def install_signals(server: Server) -> None:
    """SIGTERM stops cleanly; the terminal's signals are for its clients."""
    signal.signal(signal.SIGTERM, server.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
