"""The state machine and its log: no answer is sent before its effects are durable (P3).

A round of requests is decided in memory, its events are made durable with one append to the log,
and only then are the answers sent. If the append fails, memory is rebuilt from the log, and every
client of the round is told to ask for the outcome.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from acid_platform.base.clock import Clock, Moment
from acid_platform.base.databases import Error
from acid_platform.errors import AcidError, InvalidDefinition, MetastoreUnavailable
from acid_platform.metastore import operations as ops
from acid_platform.metastore.endpoint import Ground
from acid_platform.metastore.log.contract import PositionTaken
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import Answer, MetastoreOperation, Row, write_answer
from acid_platform.metastore.rules.branch_commits import newest_on
from acid_platform.metastore.rules.declared import commits_on, seen_table
from acid_platform.metastore.rules.snapshots import snapshot, write_ids
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Recorded, Reply, error_reply
from acid_platform.metastore.server.metrics import Counters
from acid_platform.metastore.server.store import Store, Unsaved, machine_at, start_saving

_LOG = logging.getLogger("acid_platform.metastore")
_SMALL_BYTES = 32 << 20
"""A snapshot of this size is written in a moment."""
_SAVE_AGAIN_SECONDS = 60.0
"""How long after a snapshot that failed the next is tried."""


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


@dataclass(frozen=True, slots=True)
class _Saving:
    """A position that a snapshot will have soon, what memory will then forget, and the size of the
    log up to there since the snapshot before."""

    position: int
    recent: Unsaved
    bytes: int


class GroupCommit:
    """Reads the log up to its end; `lead` has to precede the first round.

    Raises MetastoreIncompatible, MetastoreDamaged, OSError, and what the log raises.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.counters = Counters()
        self.before_release: Callable[[], None] = lambda: None
        """Called when a new snapshot makes batches superfluous."""
        self._clock = clock
        self._started = clock.moment()
        self._ahead = self._stale = False
        self._unsent: list[Reply] = []
        """The answers of a round that is not durable yet."""
        self._saver: subprocess.Popen[bytes] | None = None
        self._saving: _Saving | None = None
        self._save_after = 0.0
        self.machine = machine_at(store)

    @property
    def epoch(self) -> int:
        return self.store.end.epoch

    def lead(self, epoch: int = 0) -> None:
        """Begins an epoch, and keeps what is open alive.

        `epoch` is 0 for the next one in a log that nobody else can append to. Raises PositionTaken
        if a later leader was faster.
        """
        store = self.store
        if epoch or self._stale:
            self.follow()
        epoch = epoch or store.end.epoch + 1
        while True:
            try:
                store.begin_epoch(epoch, self.now_wall)
                break
            except PositionTaken:
                end = store.end
                self.follow()
                if store.end.epoch >= epoch or store.end == end:
                    raise
        self.machine.wake(self._clock.moment())
        self._notice_copy()

    def follow(self) -> None:
        """Applies the batches that another process has appended."""
        if self._stale:
            self.machine, self._saving = machine_at(self.store), None
        self._stale = True  # unless all of it can be read
        self.machine.replay(self.store.follow())
        self._stale = False
        if self._saving is not None:
            self._adopt()
        elif self.store.unsaved_bytes >= self._save_bytes:
            self._mark()  # the leader saves at about the same place

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
            except PositionTaken:
                raise
            except Exception as error:
                return refused + self._fail(requests, error)
        self.counters.requests += len(requests)
        for request in requests:
            handler = HANDLERS.get(type(request.operation))
            if handler is not None:
                replies.append(self.answer(request, partial(handler, self)))
        return refused + replies

    def _decide(
        self, requests: Sequence[Request], now: Moment, due: Container[str] | None
    ) -> list[Reply]:
        """The answers, once their effects are durable. Raises BadRequest, and whatever a write
        raises."""
        events: list[Recorded] = []
        replies = self._unsent = list[Reply]()
        for request in requests:
            if type(request.operation) in HANDLERS:
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
        if self.saves_soon:
            events += self.machine.purge(now).events
        if events:
            self._write(events)
        self._unsent = []
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
        self.store.append(events)
        self.counters.writing.add(time.perf_counter() - started)
        self.counters.batches += 1
        self.counters.events += len(events)

    # --- memory as the log has it -------------------------------------------------------------

    def _reload(self, now: Moment) -> None:
        """Raises what opening raises."""
        self._saving = None
        self.machine = machine_at(self.store)
        self.machine.wake(now)

    def step_down(self) -> None:
        """Another process may lead: memory may have what the log does not, and is read again."""
        self.end_saving()
        self._stale = True

    def _notice_copy(self) -> None:
        """Notices that the files were copied: the original may still be in use (P31)."""
        log = self.store.log
        if not isinstance(log, LocalLog) or log.begun_at == log.place:
            return
        before, here = Ground.parse(log.begun_at), Ground.parse(log.place)
        copied = not before.holds(here)
        log.note_place(copied)
        if not copied:
            return
        events = self.machine.copied(self._clock.moment()).events
        if events:
            _LOG.warning(
                "%s is a copy of %s: external locations are read only until `acid metastore"
                " take-over`",
                here.path,
                before.path,
            )
            self._write(events)

    def _forget_round(self, now: Moment) -> None:
        """Rebuilds memory from the log, since nothing was written. Heartbeats are kept."""
        before = self.state
        self._reload(now)
        state = self.state
        for mine, theirs in ((state.heartbeats, before.heartbeats), (state.reads, before.reads)):
            # Oldest heartbeat first. A transaction that ended only in the lost round counts as new.
            new = ((txn_id, now.steady) for txn_id in mine if txn_id not in theirs)
            for txn, at in (*theirs.items(), *new):
                if txn in mine:
                    touch(mine, txn, at)

    def _fail(self, requests: Sequence[Request], error: Exception) -> list[Reply]:
        """Memory may be ahead of the log or behind it, so it is rebuilt from the log (P3)."""
        self.counters.failed_writes += 1
        _LOG.error("a round of %d requests failed", len(requests), exc_info=error)
        self._ahead = True
        self.store.log.open_to_append()
        self._reload(self._clock.moment())
        if not isinstance(self.store.log, LocalLog):
            self.store.settle(self.now_wall)
        self._ahead = False
        answer: Answer = {"ask": str(error), "transient": self.state.settings.transient(str(error))}
        asked = [request.id for request in requests]
        asked += [reply.request_id for reply in self._unsent]
        self._unsent = []
        # A request that waits in the log goes on waiting.
        waiting = self.state.waiting
        return [Reply(each, answer) for each in dict.fromkeys(asked) if each not in waiting]

    # --- snapshots ----------------------------------------------------------------------------

    @property
    def _save_bytes(self) -> int:
        """How much the log may grow until a snapshot is due: more if a snapshot is large."""
        least = self.state.settings.integer("acid.metastore.snapshot.bytes")
        return max(least, self.store.saved_bytes // 4)

    @property
    def saves_soon(self) -> bool:
        """Whether the log has grown so much that a snapshot is due."""
        return (
            self.store.unsaved_bytes >= self._save_bytes
            and self._saver is None
            and time.monotonic() >= self._save_after
        )

    def save_if_due(self) -> None:
        """Has a process of its own write a snapshot from the log, so that nobody waits for it."""
        if self._saver is not None:
            if self._saver.poll() is None:
                return
            failed, self._saver = self._saver.returncode, None
            if failed:
                _LOG.error("the snapshot failed with exit code %d; the log grows", failed)
                self.counters.failed_snapshots += 1
                self._saving, self._save_after = None, time.monotonic() + _SAVE_AGAIN_SECONDS
            else:
                self.counters.snapshots += 1
                self._adopt()
        elif self.saves_soon:
            self._mark()
            self._saver = start_saving(self.store.log, self.store.end.position, self._oldest_kept())

    def save(self) -> None:
        """Writes a snapshot of the end of the log here. Raises Error, OSError."""
        self.end_saving()
        self.store.save(self.state, self._oldest_kept())
        self.before_release()
        self.counters.snapshots += 1

    def _mark(self) -> None:
        store = self.store
        self._saving = _Saving(store.end.position, Unsaved.of(self.state), store.unsaved_bytes)

    def _adopt(self) -> None:
        """Forgets what the newest snapshot has."""
        self.store.open_newest()
        if self._saving is not None and self._saving.position <= self.store.saved:
            self._saving.recent.forget(self.state)
            self.store.unsaved_bytes -= self._saving.bytes
            self._saving = None
            self.before_release()

    def end_saving(self) -> None:
        if self._saver is not None:
            self._saver.kill()
            self._saver.wait()
        self._saver = self._saving = None

    def _oldest_kept(self) -> int:
        """The moment before which ended transactions and outcomes may be forgotten.

        A wall clock that was set forward since the start is ignored: a client may still ask for the
        outcome of its request (P3, P29).
        """
        keep = self.state.settings.integer("acid.outcome.retention")
        now = self._clock.moment()
        return min(now.wall, self._started.wall + now.steady - self._started.steady) - keep

    def close(self) -> None:
        """Writes a last snapshot unless that would take long, and closes the log."""
        self.end_saving()
        small = self.store.saved_bytes < _SMALL_BYTES
        try:
            if not self._ahead and self.store.unsaved_bytes and small:
                self.save()
        except Exception:
            _LOG.exception("the last snapshot failed; the next start reads the log")
        self.store.close()

    def answer(self, request: Request, handler: Callable[[Any], object]) -> Reply:
        """The answer of a handler outside of the rules."""
        kind = type(request.operation)
        try:
            return Reply(request.id, {"value": write_answer(kind, handler(request.operation))})
        except AcidError as error:
            return Reply(request.id, error_reply(error))
        except (Error, OSError) as error:
            unreadable = MetastoreUnavailable(f"its snapshot can't be read: {error}")
            return Reply(request.id, error_reply(unreadable))
        except Exception as error:
            return self.bad(request.id, kind.op, error)


def outcome(group: GroupCommit, operation: ops.GetOutcome) -> Answer | None:
    request_id = operation.request_id
    past = group.state.outcomes.get(request_id) or group.store.past_outcome(request_id)
    return None if past is None else group.machine.expand(past.op, past.reply)


def history(group: GroupCommit, operation: ops.GetHistory) -> list[Row]:
    """Raises NoSuchTable, NoSuchBranch."""
    state = group.state
    if not operation.branch:
        return group.store.history(state, state.table(operation.name).record.table_id)
    reader = newest_on(state, operation.branch)
    table, record = seen_table(state, reader, operation.name)
    seen = snapshot(state, replace(reader, txn_id=state.next_txn))
    assert seen is not None, "a branch has a snapshot"
    valid = write_ids(table, seen)
    own = [row for commit in commits_on(state, reader.branch) for row in commit.written]
    rows = group.store.history(state, record.table_id, own)
    return [row for row in rows if valid.is_valid(row["write_id"])]


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.GetOutcome: outcome,
    ops.GetHistory: history,
}
"""Operations that also read what memory no longer holds."""
