"""Other engines that use the tables through the gateway: they poll for their locks (P34, P46)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.simulation.actors import PARTITIONS, Actor
from tests.simulation.rules import DEFAULT

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]


class Foreigner(Actor):
    """Reads one or two tables in a transaction, as Trino does; what it reads is checked on disk."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.txn = 0
        self.ext = 0
        self.acquired = False

    def lost(self) -> None:
        self.txn, self.ext, self.acquired = 0, 0, False

    def go_on(self) -> None:
        chance = self.chance
        if chance < 0.01:
            # Whoever says so, the publication of a compaction that goes on stays.
            lock = self.pick(*self.sim.model.queue) if self.sim.model.queue else None
            if lock is not None and (not lock.publishes or lock.txn in self.sim.model.open):
                self.ask(None, "end_publication", ext=lock.ext)
        elif not self.txn:
            self.ask(self._opened, "open_batch", count=1, kind=DEFAULT, info={})
        elif not self.ext or (self.acquired and chance < 0.2):
            self.ask(
                self._asked,
                "request_lock",
                txn=self.txn,
                locks=[encode(self._wish())],
                zero_wait=False,
            )
        elif not self.acquired:
            if chance < 0.05:
                self._end("abort")
            else:
                self.ask(self._checked, "check_lock", ext=self.ext)
        elif chance < 0.6:
            self.ask(None, "heartbeat", txns=[self.txn])
        elif chance < 0.63:
            self.lost()
        else:
            self._end("commit")

    def _wish(self) -> LockRequest:
        name = self.pick("t", "u", "v")
        partition = None if name == "t" else self.pick(None, *PARTITIONS)
        return LockRequest(name, LockType.SHARED_READ, RowOperation.SELECT, partition)

    def _end(self, how: str) -> None:
        more: Json = {"writes": []} if how == "commit" else {"reason": ""}
        txn = self.txn
        self.lost()
        self.ask(None, how, txn=txn, **more)

    def _opened(self, reply: Json) -> None:
        if "value" in reply:
            (self.txn,) = reply["value"]["txns"]

    def _asked(self, reply: Json) -> None:
        if "value" in reply:
            self.ext, self.acquired = reply["value"]["ext"], reply["value"]["acquired"]
            if not self.acquired:
                self.sim.counts["other engines wait"] += 1
        elif reply["error"][0] != "NoSuchTable":
            self.lost()

    def _checked(self, reply: Json) -> None:
        if "value" in reply:
            self.acquired = reply["value"]["acquired"]
        else:
            self.lost()
