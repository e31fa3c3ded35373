"""The metastore's state machine: it takes a request and its moment, and returns events and answers.

It is deterministic, without a clock, files or a database, so that a simulator can drive it.
`replay` applies journaled events; the result is the state that recorded them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

from acid_platform.base.clock import Moment
from acid_platform.errors import AcidError, MetastoreDamaged
from acid_platform.metastore import operations as ops
from acid_platform.metastore import rules
from acid_platform.metastore.codec import JsonObject, decode, encode
from acid_platform.metastore.operations.base import (
    OPERATIONS,
    Answer,
    MetastoreOperation,
    write_answer,
)
from acid_platform.metastore.rules import (
    compactions,
    housekeeping,
    identity,
    locking,
    reading,
    timers,
    txns,
)
from acid_platform.metastore.rules.compactions import CompactionCommitted
from acid_platform.metastore.rules.endings import Aborted, Committed
from acid_platform.metastore.rules.locking import LockRemoved
from acid_platform.metastore.rules.snapshots import low_mark
from acid_platform.metastore.rules.state import Ended, State
from acid_platform.metastore.rules.table_declarations import TableAltered
from acid_platform.metastore.rules.turn import (
    HANDLERS,
    Parked,
    Past,
    Recorded,
    Replied,
    Reply,
    Turn,
    error_reply,
)

for _module in iter_modules(rules.__path__, f"{rules.__name__}."):
    import_module(_module.name)  # completes HANDLERS and EVENTS

EXPAND: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.Begin: reading.begun,
    ops.Lock: txns.granted,
    ops.BeginCompaction: compactions.begun,
}
"""Builds the whole answer from the state and the kept record, each time it is given."""

_FREES = (Committed, Aborted, LockRemoved, CompactionCommitted, TableAltered)
"""Events that may unblock a waiting lock request, or show that it need not wait any longer."""


class _NoPast:
    """The Past of a machine without a file: memory holds everything."""

    def past_txn(self, txn_id: int) -> Ended | None:  # noqa: ARG002 (Past declares it)
        return None

    def recorded(
        self,
        table_id: int,  # noqa: ARG002 (Past declares it)
        partitions: Sequence[str | None],  # noqa: ARG002
    ) -> Mapping[tuple[str | None, str], str]:
        return {}


@dataclass(frozen=True, slots=True)
class Handled:
    """The result of a request: events for the journal, then answers, perhaps to other requests."""

    events: list[Recorded]
    replies: list[Reply]


class Machine:
    """One state and the rules that change it. `past` knows what only a snapshot has."""

    def __init__(self, state: State | None = None, past: Past | None = None) -> None:
        self.state = state or State()
        self._past = past or _NoPast()
        self._schedule = housekeeping.Schedule()

    def replay(self, recorded: Iterable[Recorded]) -> None:
        """Raises MetastoreDamaged for an event that can't follow on those before it."""
        for record in recorded:
            try:
                record.event.apply(self.state, record.at)
            except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
                raise MetastoreDamaged(
                    f"the event {record.kind} of moment {record.at} does not fit what the log holds"
                    f" before it: {type(error).__name__}: {error}; restore a backup"
                ) from error

    def wake(self, moment: Moment) -> None:
        """To be called at a start, after `replay`: every open transaction gets one fresh timeout
        (P7)."""
        # Above every moment that a client knows: a client that asks for changes since then gets
        # all.
        self.state.awake = self.state.next_moment + 1
        self.state.forgotten = max(self.state.forgotten, low_mark(self.state))
        timers.wake(self.state, moment)
        self._schedule = housekeeping.Schedule(started=moment.steady)

    def _turn(self, moment: Moment, request_id: str = "") -> Turn:
        self.state.timers.now = moment.steady
        return Turn(self.state, moment.wall, request_id, self._past)

    def handle(
        self, operation: MetastoreOperation[object], request_id: str, moment: Moment
    ) -> Handled:
        """Decides one request; errors are answers too. A request that was seen before gets its old
        answer."""
        turn = self._turn(moment, request_id)
        if self.waits(request_id):
            return Handled([], [])
        kind = type(operation)
        repeatable = kind.repeatable
        if not repeatable and (outcome := self.state.outcomes.get(request_id)) is not None:
            return Handled([], [Reply(request_id, self.expand(outcome.op, outcome.reply))])
        txn = getattr(operation, "txn", None)
        reply: Answer | None
        try:
            answer = HANDLERS[kind](turn, operation)
            txn = getattr(answer, "txn", txn)
            reply = {"value": _recorded_answer(kind, answer)}
        except Parked:
            reply = None
        except AcidError as error:
            reply = error_reply(error)
        self._settle(turn)
        if reply is not None:
            if turn.events and not repeatable:
                turn.record(Replied(request_id, txn or 0, kind.op, reply))
            turn.replies.append(Reply(request_id, reply, kind.op))
        return self._handled(turn)

    def tick(self, moment: Moment) -> Handled:
        """Does what is due by itself: reaper, lock waits, leases, purges."""
        turn = self._turn(moment)
        housekeeping.tick(turn, self._schedule)
        self._settle(turn)
        return self._handled(turn)

    def purge(self, moment: Moment) -> Handled:
        """Forgets what nobody needs, even if that is not due yet: the next snapshot then
        writes less."""
        turn = self._turn(moment)
        housekeeping.purge(turn)
        return self._handled(turn)

    def copied(self, moment: Moment) -> Handled:
        """Notes that the metastore's files are a copy: tables outside of it are not ours (P31)."""
        turn = self._turn(moment)
        identity.copied(turn)
        return self._handled(turn)

    def waits(self, request_id: str) -> bool:
        """Whether the request is parked: its lock is not granted yet."""
        return request_id in self.state.waiting

    def expand(self, op: str, reply: Answer) -> Answer:
        """The whole answer, built from what was kept of it."""
        kind = OPERATIONS.get(op)
        if kind is None or kind.outcome is None or "value" not in reply:
            return reply
        try:
            whole = EXPAND[kind](self.state, self._past, decode(kind.outcome, reply["value"]))
        except AcidError as error:
            return error_reply(error)
        return {"value": write_answer(kind, whole)}

    def _settle(self, turn: Turn) -> None:
        looked_at = 0
        while any(isinstance(record.event, _FREES) for record in turn.events[looked_at:]):
            looked_at = len(turn.events)
            locking.settle(turn)

    def _handled(self, turn: Turn) -> Handled:
        replies = [
            replace(reply, value=self.expand(reply.op, reply.value)) for reply in turn.replies
        ]
        return Handled(turn.events, replies)


def _recorded_answer(kind: type[MetastoreOperation[object]], answer: object) -> JsonObject:
    return write_answer(kind, answer) if kind.outcome is None else encode(answer)
