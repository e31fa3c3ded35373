"""The handling of one request: what it may read, and the events that it records.

An event is a change of the state: what the rules decide and the log stores. A log outlives its
program: a field that is added needs a default, and a kind keeps its name. An event stands beside
the operations that record it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar, dataclass_transform

from acid_platform.errors import AcidError
from acid_platform.metastore.messages import Answer, JsonObject, MetastoreOperation, decode, encode
from acid_platform.metastore.rules.state import Ended, Outcome, State


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Event:
    """A change of the state, a frozen dataclass. `kind` is its name in the log."""

    kind: ClassVar[str]

    def __init_subclass__(cls, *, kind: str) -> None:
        cls.kind = kind
        EVENTS[kind] = dataclass(frozen=True)(cls)

    def apply(self, state: State, at: int, /) -> None:
        """Changes the state; `at` is the moment in milliseconds UTC."""
        raise NotImplementedError


EVENTS: dict[str, type[Event]] = {}
"""All events by their kinds; the import of rules.machine completes them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event and its moment, in milliseconds UTC."""

    at: int
    event: Event

    @property
    def kind(self) -> str:
        return self.event.kind

    def as_json(self) -> tuple[str, int, JsonObject]:
        return self.event.kind, self.at, encode(self.event)

    @classmethod
    def parse(cls, kind: str, at: int, body: JsonObject) -> Recorded:
        return cls(at, decode(EVENTS[kind], body))


class Replied(Event, kind="replied"):
    """The outcome of a request (P3)."""

    request_id: str
    txn: int
    op: str
    reply: Answer

    def apply(self, state: State, at: int) -> None:
        state.outcomes[self.request_id] = Outcome(
            self.request_id, self.txn, self.op, self.reply, at
        )


Handler = Callable[..., object]
"""Decides an operation: takes the turn and the operation, and returns the declared answer, or the
record that is kept of it."""
HANDLERS: dict[type[MetastoreOperation[object]], Handler] = {}
"""The handler of each operation; the import of rules.machine completes it."""

F = TypeVar("F", bound=Handler)


def handles(operation: type[MetastoreOperation[object]]) -> Callable[[F], F]:
    """Declares the handler of an operation."""

    def declare(handler: F) -> F:
        HANDLERS[operation] = handler
        return handler

    return declare


@dataclass(frozen=True, slots=True)
class Reply:
    request_id: str
    value: Answer
    op: str = ""
    """The operation that the request asked for, if the answer is to be built from a record."""


class Past(Protocol):
    """What the newest snapshot knows and memory no longer holds."""

    def past_txn(self, txn_id: int) -> Ended | None:
        """A transaction that ended before the newest snapshot."""

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        """The files of directories that were committed before the newest snapshot: the text form of
        their `RecordedFiles` by partition and directory name (P26)."""


class Parked(Exception):
    """The request waits for a lock; it is answered in a later turn."""


@dataclass(slots=True)
class Turn:
    """The handling of one request at one moment."""

    state: State
    now: int
    """The wall clock in milliseconds UTC: for what is recorded and shown, not for timeouts."""
    request_id: str
    past: Past
    events: list[Recorded] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def record(self, event: Event) -> None:
        event.apply(self.state, self.now)
        self.events.append(Recorded(self.now, event))

    @property
    def steady(self) -> int:
        """The steady clock in milliseconds: for timeouts (P29)."""
        return self.state.timers.now

    def wall(self, steady: int) -> int:
        """The wall clock's time at a moment of the steady clock, as the wall clock is set now."""
        return self.now - self.steady + steady

    def ended(self, txn_id: int) -> Ended | None:
        return self.state.ended.get(txn_id) or self.past.past_txn(txn_id)

    def answer_parked(self, request_id: str, txn_id: int, op: str, reply: Answer) -> None:
        """Answers an earlier request and keeps the outcome (P3)."""
        self.record(Replied(request_id, txn_id, op, reply))
        self.replies.append(Reply(request_id, reply, op))


def error_reply(error: AcidError) -> Answer:
    return {"error": [type(error).__name__, str(error)]}
