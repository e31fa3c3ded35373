"""Changes of the state: what the rules decide and the log stores.

A log outlives its program: a field that is added needs a default, and a kind keeps its name. An
event stands beside the operations that record it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, dataclass_transform

from acid_platform.metastore.codec import JsonObject, decode, encode
from acid_platform.metastore.operations.base import Answer
from acid_platform.metastore.rules.state import Outcome, State


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
