"""The metastore's state machine: a request and its moment in, events and answers out.

Deterministic, without a clock, files or a database, so that a simulator can drive it. `replay`
applies events that were kept; the result is the state that they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from acid_platform.clock import Moment
from acid_platform.errors import AcidError, UnsupportedStatement
from acid_platform.metastore.rules import (
    candidates,
    cleaning,
    commits,
    compactions,
    erasures,
    housekeeping,
    identity,
    locking,
    manifests,
    restoring,
    shows,
    tables,
    timers,
    txns,
    views,
)
from acid_platform.metastore.rules.state import Ended, State
from acid_platform.metastore.rules.turn import Apply, Event, Parked, Past, Reply, Turn, error_reply

APPLY: dict[str, Apply] = {
    **tables.APPLY,
    **txns.APPLY,
    **locking.APPLY,
    **commits.APPLY,
    **compactions.APPLY,
    **cleaning.APPLY,
    **housekeeping.APPLY,
    **restoring.APPLY,
    **views.APPLY,
    **erasures.APPLY,
    **manifests.APPLY,
    **identity.APPLY,
}
"""What each kind of event does to the state."""

HANDLERS = {
    **tables.HANDLERS,
    **txns.HANDLERS,
    **locking.HANDLERS,
    **commits.HANDLERS,
    **compactions.HANDLERS,
    **cleaning.HANDLERS,
    **candidates.HANDLERS,
    **restoring.HANDLERS,
    **shows.HANDLERS,
    **views.HANDLERS,
    **erasures.HANDLERS,
    **erasures.READS,
    **manifests.HANDLERS,
    **manifests.READS,
    **identity.HANDLERS,
    **identity.READS,
}
"""What each request decides."""

EXPAND: dict[str, Callable[[State, dict[str, Any]], dict[str, Any]]] = {
    "begin": txns.granted,
    "lock": txns.granted,
    "begin_compaction": compactions.begun,
}
"""Answers that are kept short and made whole from the state whenever they are given."""

READS = {
    *shows.HANDLERS,
    *candidates.HANDLERS,
    *erasures.READS,
    *manifests.READS,
    *identity.READS,
    "doubtful",
    "heartbeat",
    "heartbeat_one",
    "heartbeat_lock",
    "granted",
}
"""Requests that record nothing."""

REPEATABLE = {*READS, "valid_write_ids", "allocate"}
"""Requests that may simply be sent again; of all others the outcome is kept (P3)."""

_FREES = {"commit", "abort", "unlock", "compacted", "altered"}
"""What may let a lock request go on, or shows that it need not wait any longer."""


class _NoPast:
    """Of a machine without a file: memory has everything."""

    def past_txn(self, txn_id: int) -> Ended | None:
        return None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        return {}


@dataclass(frozen=True, slots=True)
class Handled:
    """What a request led to: events for the journal, then answers, perhaps to other requests."""

    events: list[Event]
    replies: list[Reply]


class Machine:
    """One state and the rules that change it. `past` knows what was folded."""

    def __init__(self, state: State | None = None, past: Past | None = None) -> None:
        self.state = state or State()
        self._past = past or _NoPast()
        self._schedule = housekeeping.Schedule()

    def replay(self, events: Iterable[Event]) -> None:
        for event in events:
            APPLY[event.kind](self.state, event.at, event.body)

    def wake(self, moment: Moment) -> None:
        """At a start, after `replay`: every open transaction gets one fresh timeout (P7)."""
        # Above what anybody was told: whoever asks for changes since then gets everything.
        self.state.awake = self.state.next_moment + 1
        timers.wake(self.state, moment)
        self._schedule = housekeeping.Schedule(started=moment.steady)

    def _turn(self, moment: Moment, request_id: str, op: str) -> Turn:
        self.state.timers.now = moment.steady
        return Turn(self.state, moment.wall, request_id, op, APPLY, self._past)

    def handle(self, op: str, args: dict[str, Any], request_id: str, moment: Moment) -> Handled:
        """Decides one request; errors are answers. A request seen before gets its old answer."""
        turn = self._turn(moment, request_id, op)
        if op in ("begin", "lock", "lock_alone") and self.waits(request_id):
            return Handled([], [])
        known = self.state.outcomes.get(request_id) if op not in REPEATABLE else None
        if known is not None:
            return Handled([], [Reply(request_id, self.expand(known.op, known.reply))])
        reply: dict[str, Any] | None
        try:
            if op not in HANDLERS:
                raise UnsupportedStatement(f"the metastore has no call {op!r}")
            reply = {"value": HANDLERS[op](turn, args)}
        except Parked:
            reply = None
        except AcidError as error:
            reply = error_reply(error)
        self._settle(turn)
        if reply is not None:
            if turn.events and op not in REPEATABLE:
                txn = reply.get("value", {}).get("txn") or args.get("txn") or 0
                turn.record("replied", request_id=request_id, txn=txn, op=op, reply=reply)
            turn.replies.append(Reply(request_id, self.expand(op, reply)))
        return Handled(turn.events, turn.replies)

    def tick(self, moment: Moment) -> Handled:
        """Does what is due by itself: reaper, waits, leases, purges."""
        turn = self._turn(moment, "", "tick")
        housekeeping.tick(turn, self._schedule)
        self._settle(turn)
        return Handled(turn.events, turn.replies)

    def purge(self, moment: Moment) -> Handled:
        """Forgets what nobody needs, whether or not that is due: a fold has less to write then."""
        turn = self._turn(moment, "", "purge")
        housekeeping.purge(turn)
        return Handled(turn.events, turn.replies)

    def copied(self, moment: Moment) -> Handled:
        """At a start, when the files are found to be a copy (P31)."""
        turn = self._turn(moment, "", "copied")
        identity.copied(turn)
        return Handled(turn.events, turn.replies)

    def waits(self, request_id: str) -> bool:
        """Whether the request is parked: its lock is not granted yet."""
        return request_id in self.state.waiting

    def expand(self, op: str, reply: dict[str, Any]) -> dict[str, Any]:
        """The whole answer, from what was kept of it."""
        whole = EXPAND.get(op)
        if whole is None or "error" in reply:
            return reply
        try:
            return {"value": whole(self.state, reply["value"])}
        except AcidError as error:
            return error_reply(error)

    def _settle(self, turn: Turn) -> None:
        while any(event.kind in _FREES for event in turn.events):
            before = len(turn.events)
            locking.settle(turn)
            if not any(event.kind in _FREES for event in turn.events[before:]):
                break
        turn.replies = [
            replace(one, value=self.expand(self._op_of(one), one.value)) for one in turn.replies
        ]

    def _op_of(self, reply: Reply) -> str:
        kept = self.state.outcomes.get(reply.request_id)
        return kept.op if kept else ""
