"""The metastore's simulated clients: writers, readers, Workers, a Cleaner, an administrator.

An actor has at most one request under way. If the answer is lost it asks for the outcome, and sends
the request again only if it was never seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from tests.simulation.disk import Directory, Place
from tests.simulation.process import Request
from tests.simulation.rules import DEFAULT

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]
PARTITIONS = ("p=1", "p=2", "p=3")
REPEATABLE = (
    "heartbeat_lock",
    "heartbeat",
    "heartbeat_one",
    "valid_write_ids",
    "cleaning",
    "table",
    "partitions",
    "past",
    "changes",
    "check_lock",
    "unpublished",
)
"""Operations that are sent again without asking for the outcome (machine.py)."""


@dataclass(slots=True)
class Reader:
    """A snapshot that a client holds: its lists, by table id."""

    txn: int
    valid_txns: ValidTxnList
    lists: dict[int, ValidWriteIdList] = field(default_factory=dict)


@dataclass(slots=True)
class Session(Reader):
    """A transaction from its owner's point of view."""

    kind: int = DEFAULT
    write_ids: dict[str, int] = field(default_factory=dict)
    plans: list[LockRequest] = field(default_factory=list)
    """The writes that its locks allow."""
    places: dict[str, str] = field(default_factory=dict)
    """The locations of the tables that it may write, by their full names."""
    published: list[tuple[Place, Directory]] = field(default_factory=list)
    slow: bool = False
    """It mostly sends heartbeats only."""
    committing: bool = False
    """It has requested its commit: everything that it writes was published before."""


class Actor:
    def __init__(self, sim: Simulation, number: int) -> None:
        self.sim, self.number = sim, number
        self.pending: Request | None = None
        self.then: Callable[[Json], None] | None = None
        self.connected = True
        self.next: tuple[Callable[[Json], None] | None, str, Json] | None = None
        """Its next request, which takes precedence over a random one."""

    @property
    def chance(self) -> float:
        return self.sim.random.random()

    def readers(self) -> list[Reader]:
        return []

    def act(self) -> None:
        if self.pending is None:
            if self.next is not None:
                (then, op, args), self.next = self.next, None
                self.ask(then, op, **args)
            else:
                self.go_on()
        elif not self.connected:
            self._recover(self.pending)
        elif self.chance < 0.01:
            self.sim.note("client", self.number, "dies waiting")
            self.sim.forget(self.pending.id)
            self.pending = None
            self.lost()

    def go_on(self) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The process of this client has died, and with it what it knew."""

    def plan(self, then: Callable[[Json], None] | None, op: str, **args: Any) -> None:
        """Plans a request for its next turn, since none may be sent while an answer is handled."""
        self.next = (then, op, args)

    def ask(self, then: Callable[[Json], None] | None, op: str, **args: Any) -> None:
        self.then, self.connected = then, True
        self.pending = self.sim.send(self.number, op, **args)

    def answered(self, request_id: str, reply: Json) -> None:
        if self.pending is not None and self.pending.id == request_id:
            request, then = self.pending, self.then
            self.pending = self.then = None
            self._acknowledge(request, reply)
            if then is not None:
                then(reply)

    def _acknowledge(self, request: Request, reply: Json) -> None:
        if "value" not in reply:
            self.sim.counts[f"{request.op}: {reply['error'][0]}"] += 1
            return
        if request.op in ("commit", "drop", "commit_compaction"):
            self.sim.acknowledged[request.args["txn"]] = "c"
        elif request.op == "abort":
            self.sim.acknowledged[request.args["txn"]] = "a"

    def disconnected(self) -> None:
        self.connected = False

    def _recover(self, request: Request) -> None:
        if request.op in REPEATABLE:
            self.connected = True
            self.sim.submit(request)
            return
        found = self.sim.outcome(request)
        self.sim.note("client", self.number, "asks for", request.id, found)
        self.sim.counts[f"outcome {found['seen']}"] += 1
        if found["seen"] == "done":
            self.answered(request.id, found["answer"])
        elif found["seen"] == "unseen" and self.chance < 0.3:
            self.pending = None
            self.lost()
        else:
            self.connected = True
            self.sim.submit(request)

    def pick(self, *choices: Any) -> Any:
        return self.sim.random.choice(choices)
