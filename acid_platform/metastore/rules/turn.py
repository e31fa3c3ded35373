"""One request being handled: what it may read, and the events that it records.

A handler looks at the state, records events and answers. Recording applies the event at once, so
that the next line sees its effect; nothing else changes the state. The same events applied to the
same state always give the same state: that is how the journal is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from acid_platform.errors import AcidError
from acid_platform.metastore.rules.state import Ended, State

Body = dict[str, Any]
Apply = Callable[[State, int, Body], None]


@dataclass(frozen=True, slots=True)
class Event:
    """A change that was decided, as the journal has it. `at` is milliseconds UTC."""

    kind: str
    at: int
    body: Body


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to the request `request_id`; `stored` is what `outcome` keeps of it."""

    request_id: str
    value: dict[str, Any]


class Past(Protocol):
    """What the folded tables know and memory does not hold."""

    def past_txn(self, txn_id: int) -> Ended | None:
        """A transaction that ended before the last fold."""

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        """Files of directories that were committed before the last fold: by partition and name of
        the directory the text form of their `Contents` (P26)."""


class Parked(Exception):
    """The request waits for a lock; its answer follows with another request or a tick."""


@dataclass(slots=True)
class Turn:
    """One request at one moment."""

    state: State
    now: int
    """By the wall clock, in milliseconds UTC: for what is recorded and shown, not for timeouts."""
    request_id: str
    op: str
    apply: dict[str, Apply]
    past: Past
    events: list[Event] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def record(self, kind: str, /, **body: Any) -> None:
        self.apply[kind](self.state, self.now, body)
        self.events.append(Event(kind, self.now, body))

    @property
    def steady(self) -> int:
        """By the steady clock, in milliseconds: for timeouts (P29)."""
        return self.state.timers.now

    def wall(self, steady: int) -> int:
        """The wall clock's time of a moment of the steady clock, as that clock is set now."""
        return self.now - self.steady + steady

    def ended(self, txn_id: int) -> Ended | None:
        return self.state.ended.get(txn_id) or self.past.past_txn(txn_id)

    def answer_parked(self, request_id: str, txn_id: int, op: str, reply: dict[str, Any]) -> None:
        """Answers an earlier request, and keeps the outcome (P3)."""
        self.record("replied", request_id=request_id, txn=txn_id, op=op, reply=reply)
        self.replies.append(Reply(request_id, reply))


def error_reply(error: AcidError) -> dict[str, Any]:
    return {"error": [type(error).__name__, str(error)]}
