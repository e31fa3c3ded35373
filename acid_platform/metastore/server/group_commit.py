"""The state machine and its file: no answer is sent before its effects are durable (P3).

A round of requests is decided in memory, its events are made durable with one append to the log,
and only then are the answers sent. If the append fails, memory is rebuilt from the files, and every
client of the round is told to ask for the outcome.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from acid_platform.base.clock import Clock, Moment
from acid_platform.errors import AcidError, InvalidDefinition, MetastoreUnavailable
from acid_platform.metastore.operations import Answer, MetastoreOperation, write_answer
from acid_platform.metastore.operations.replication import Batch
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server import file_operations, state_rows
from acid_platform.metastore.server.database import Error
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.metrics import Counters
from acid_platform.metastore.server.store import Store

_LOG = logging.getLogger("acid_platform.metastore")


@dataclass(frozen=True, slots=True)
class Request:
    """A client's message; if it is sent again, it has the same id."""

    id: str
    operation: MetastoreOperation[object]


class BadRequest(Exception):
    """A request that the rules can't even refuse. No other request suffers from it."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.operation.op)
        self.request = request


class GroupCommit:
    """Opens the files. Raises MetastoreInUse, MetastoreIncompatible, MetastoreDamaged, OSError."""

    def __init__(self, database: Path, clock: Clock, follows: bool = False) -> None:
        """`follows`: whether it is a standby's, which records only what its primary recorded."""
        self.store = Store(database)
        self.on_written: Callable[[Record], None] = lambda _record: None
        """Called with each batch that is durable."""
        self.before_fold: Callable[[], None] = lambda: None
        """Called before the log may be overwritten; if it raises OSError, the log stays."""
        self.epoch = self.store.next_epoch()
        self.counters = Counters()
        self._clock = clock
        self._started = clock.moment()
        self._ahead = False
        self._since_fold = 0
        self._folded_at = time.monotonic()
        self.machine = self._load()
        if follows:
            self.store.ground = self.store.ground_now
        else:
            self._notice_copy()

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def now_wall(self) -> int:
        """Milliseconds UTC, as events have them."""
        return self._clock.moment().wall

    # --- requests ---------------------------------------------------------------------------

    def answer_reads(self, requests: Sequence[Request]) -> tuple[list[Reply], list[Request]]:
        """Answers the requests that record nothing, and returns the rest for a round.

        Between two rounds everything in memory is durable, so no such answer shows a change that
        could still be lost.
        """
        now, replies, left = self._clock.moment(), list[Reply](), list[Request]()
        for request in requests:
            if not request.operation.reads:
                left.append(request)
                continue
            try:
                replies += self.machine.handle(request.operation, request.id, now).replies
            except (Error, OSError) as error:
                replies += self._fail([request], error)
            except Exception as error:
                replies.append(self.bad(request.id, request.operation.op, error))
        self.counters.requests += len(replies)
        return replies, left

    def round(self, requests: Sequence[Request], due: Container[str] | None) -> list[Reply]:
        """Runs one group commit and returns the answers.

        With `due`, whatever is due by itself is done too; `due` holds the requests that wait for a
        lock and whose client is still connected.
        """
        now = self._clock.moment()
        refused: list[Reply] = []
        while True:
            try:
                replies = self._decide(requests, now, due)
                break
            except BadRequest as bad:
                self._forget_round(now)
                op = bad.request.operation.op
                refused.append(self.bad(bad.request.id, op, bad.__cause__))
                requests = [request for request in requests if request is not bad.request]
            except Exception as error:
                return refused + self._fail(requests, error)
        self.counters.requests += len(requests)
        replies += [
            self._about_file(request)
            for request in requests
            if type(request.operation) in file_operations.HANDLERS
        ]
        return refused + replies

    def _decide(
        self, requests: Sequence[Request], now: Moment, due: Container[str] | None
    ) -> list[Reply]:
        """The answers, once their effects are durable. Raises BadRequest, and whatever a write
        raises."""
        events: list[Recorded] = []
        replies: list[Reply] = []
        for request in requests:
            if type(request.operation) in file_operations.HANDLERS:
                continue
            try:
                handled = self.machine.handle(request.operation, request.id, now)
            except (Error, OSError):
                raise
            except Exception as error:
                raise BadRequest(request) from error
            events += handled.events
            replies += handled.replies
        if due is not None:
            self._keep_waiting_alive(now.steady, due)
            handled = self.machine.tick(now)
            events += handled.events
            replies += handled.replies
        if self._folds_soon():
            events += self.machine.purge(now).events
        if events:
            self._write(events)
        return replies

    def bad(self, request_id: str, op: str, error: BaseException | None) -> Reply:
        """The answer to a request with wrong arguments."""
        self.counters.bad_requests += 1
        _LOG.warning("bad request: %s", op, exc_info=error)
        refused = InvalidDefinition(
            f"{op} has arguments that this metastore does not understand: {error!r}; nothing was"
            " changed"
        )
        return Reply(request_id, error_reply(refused))

    def _keep_waiting_alive(self, now: int, connected: Container[str]) -> None:
        """A client that waits for a lock counts as alive while it is connected (L12)."""
        state = self.state
        for request_id, ext in state.waiting.items():
            if request_id in connected:
                txn_id = state.locks[ext].txn_id
                touch(state.heartbeats if txn_id else state.lock_beats, txn_id or ext, now)

    def _write(self, events: list[Recorded]) -> None:
        started = time.perf_counter()
        self.on_written(self.store.append(events))
        self.counters.writing.add(time.perf_counter() - started)
        self.counters.batches += 1
        self.counters.events += len(events)
        self._since_fold += len(events)

    # --- a standby's ----------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The number of the last durable event."""
        return self.store.last

    def follow(self, batch: Batch) -> None:
        """Makes a batch of the primary durable and applies it. Raises OSError, MetastoreDamaged."""
        events = self.store.append_batch(batch)
        self.machine.replay(events)
        self.counters.batches += 1
        self.counters.events += len(events)
        self._since_fold += len(events)

    def take_over(self) -> None:
        """Loads memory from the files as at a start, since this is the primary from now on."""
        self.machine = self._load()

    # --- memory as the file has it ------------------------------------------------------------

    def _load(self) -> Machine:
        """Raises what `Store.load` raises."""
        state, events = self.store.load()
        machine = Machine(state, self.store)
        machine.replay(events)
        machine.wake(self._clock.moment())
        return machine

    def _notice_copy(self) -> None:
        """Notices that the files were copied: the original may still be in use (P31)."""
        known, present = self.store.ground, self.store.ground_now
        if known is not None and not known.holds(present):
            self.store.begin_history()
            events = self.machine.copied(self._clock.moment()).events
            if events:
                _LOG.warning(
                    "%s is a copy of %s: external locations are read only until `acid"
                    " metastore take-over`",
                    present.path,
                    known.path,
                )
                self._write(events)
        if known != present:
            self.store.ground = present

    def _forget_round(self, now: Moment) -> None:
        """Rebuilds memory from the file, since nothing was written. Heartbeats are kept."""
        known = self.state
        state, events = self.store.load()
        fresh = Machine(state)
        fresh.replay(events)
        fresh.wake(now)
        for mine, theirs in ((state.heartbeats, known.heartbeats), (state.reads, known.reads)):
            # Oldest heartbeat first. A transaction that ended only in the lost round counts as new.
            new = ((txn_id, now.steady) for txn_id in mine if txn_id not in theirs)
            for txn, at in (*theirs.items(), *new):
                if txn in mine:
                    touch(mine, txn, at)
        self.machine.state = state

    def _fail(self, requests: Sequence[Request], error: Exception) -> list[Reply]:
        """Memory may be ahead of the file or behind it, so it is rebuilt from the file (P3)."""
        self.counters.failed_writes += 1
        _LOG.error("a round of %d requests failed", len(requests), exc_info=error)
        self._ahead = True
        self.store.reopen()
        self.machine = self._load()
        self._ahead = False
        answer: Answer = {
            "ask": str(error),
            "transient": self.state.settings.transient(str(error)),
        }
        return [Reply(request.id, answer) for request in requests]

    # --- folds --------------------------------------------------------------------------------

    def fold_if_due(self) -> None:
        if not self._since_fold:
            return
        late = 1000 * (time.monotonic() - self._folded_at) >= (
            self.state.settings.integer("acid.metastore.fold.interval")
        )
        if late or self._folds_soon():
            try:
                self.fold()
            except Exception:
                _LOG.exception("fold failed; the journal goes on")
                self.counters.failed_folds += 1
                self._folded_at = time.monotonic()

    def _folds_soon(self) -> bool:
        limit = self.state.settings.integer("acid.metastore.fold.transactions")
        return len(self.state.ended) >= limit

    def fold(self) -> None:
        """Brings the tables of the file up to date.

        Raises Error, OSError; the journal then simply grows.
        """
        started = time.perf_counter()
        self.before_fold()
        keep = self.state.settings.integer("acid.outcome.retention")
        self.store.fold(self.state, self._oldest_kept(keep))
        state_rows.forget_ended(self.state)
        self._since_fold, self._folded_at = 0, time.monotonic()
        self.store.checkpoint()
        self.counters.folds += 1
        self.counters.folding.add(time.perf_counter() - started)

    def _oldest_kept(self, keep: int) -> int:
        """The moment before which ended transactions and outcomes may be deleted.

        A wall clock that was set forward since the start is ignored: a client may still ask for the
        outcome of its request (P3, P29).
        """
        now = self._clock.moment()
        return min(now.wall, self._started.wall + now.steady - self._started.steady) - keep

    def close(self) -> None:
        try:
            if not self._ahead:
                self.fold()
        except Exception:
            _LOG.exception("the last fold failed; the next start replays the journal")
        self.store.close()

    def _about_file(self, request: Request) -> Reply:
        kind = type(request.operation)
        value: Answer
        try:
            answer = file_operations.HANDLERS[kind](self, request.operation)
            value = {"value": write_answer(kind, answer)}
        except AcidError as error:
            value = error_reply(error)
        except (Error, OSError) as error:
            value = error_reply(MetastoreUnavailable(f"the metastore can't use its file: {error}"))
        except Exception as error:
            return self.bad(request.id, kind.op, error)
        return Reply(request.id, value)
