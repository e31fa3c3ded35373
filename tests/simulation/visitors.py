"""Occasional clients: administrators, and a client that locks without a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions.concurrency import LockType
from tests.simulation.actors import PARTITIONS, Actor
from tests.simulation.rules import DEFAULT

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]


class Bystander(Actor):
    """Holds locks without a transaction: keeps them alive, releases or forgets them (T16)."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.ext = 0

    def lost(self) -> None:
        self.ext = 0

    def go_on(self) -> None:
        chance = self.chance
        if chance < 0.05:
            # The lock may be anybody's: a transaction's lock must be refused (L15).
            last = self.sim.model.last_ext
            self.ask(None, "unlock", ext=max(1, last - self.sim.random.randrange(6)))
        elif not self.ext:
            lock = LockType.EXCLUSIVE if self.chance < 0.25 else LockType.SHARED_READ
            wish = LockRequest(self.pick("t", "u", "v"), lock)
            self.ask(self._locked, "lock_alone", locks=[encode(wish)], wait=self.pick(0, 5, 20))
        elif chance < 0.5:
            self.ask(self._alive, "heartbeat_lock", ext=self.ext)
        elif chance < 0.9:
            self.ask(None, "unlock", ext=self.ext)
            self.ext = 0
        else:
            self.ext = 0

    def _locked(self, reply: Json) -> None:
        if "value" in reply:
            self.ext = reply["value"]["ext"]

    def _alive(self, reply: Json) -> None:
        if "error" in reply:
            self.ext = 0


class Admin(Actor):
    """Drops and creates tables and partitions, and aborts what blocks that."""

    undrops: ClassVar[bool] = False
    """Whether it also brings tables back (P83); not by default, as `Traveller.follows`."""

    def go_on(self) -> None:
        sim, chance = self.sim, self.chance
        missing = [table for table in ("t", "u", "v") if f"default.{table}" not in sim.model.names]
        if self.undrops and chance < 0.8:
            if not missing:
                self._drop(self.pick("t", "u", "v"), None)
                return
            name = self.pick(*missing)
            rename = self.pick(None, None, "u", "v") if name != "t" else None
            self.ask(self._back, "undrop", table=name, rename=rename)
            return
        if missing and chance < 0.6:
            used = {sim.model.tables[table_id].location for table_id in sim.model.names.values()}
            places = [f"/w/{missing[0]}", f"/w/{missing[0]}{missing[0]}", f"/w/x{sim.steps}"]
            (place, *_) = [unused for unused in places if unused not in used]
            self.ask(
                None, "create_table", table=sim.declared(missing[0], place), if_not_exists=False
            )
        elif chance < 0.2:
            last = sim.model.last_txn
            ids = [max(1, last - sim.random.randrange(12)) for _ in range(2)]
            self.ask(None, "abort_many", txns=sorted({*ids, last + 5}), reason="")
        elif chance < 0.3:
            self.ask(
                None,
                "add_partitions",
                name=self.pick("u", "v", "w"),
                partitions=[self.pick(*PARTITIONS)],
            )
        elif chance < 0.9:
            name = self.pick("u", "v", "w")
            self._drop(name, self.pick(*PARTITIONS))
        else:
            self._drop(self.pick("t", "u", "v", "w"), None)

    def _back(self, reply: Json) -> None:
        if "value" in reply:
            self.sim.counts["undrop: back"] += 1

    def _drop(self, name: str, partition: str | None) -> None:
        wish = LockRequest(name, LockType.EXCLUSIVE, None, partition)

        def then(reply: Json) -> None:
            if "value" in reply:
                self.plan(None, "drop", txn=reply["value"]["txn"], name=name, partition=partition)

        self.ask(
            then,
            "begin",
            kind=DEFAULT,
            locks=[encode(wish)],
            wait=30,
            zero_wait=False,
            info={},
            tables=[],
        )


class Declarer(Actor):
    """Adds and changes columns, sets properties, renames (P28)."""

    def go_on(self) -> None:
        name, chance = self.pick("t", "u", "v", "w"), self.chance
        if chance < 0.55:
            self.ask(lambda reply: self._read(reply, name), "table", name=name)
        elif chance < 0.75:
            self._alter(name, properties={self.pick("a", "b"): str(self.sim.steps)})
        elif name != "t":
            other = self.pick("u", "v", "w")
            if self.chance < 0.2:
                self._alter(name, rename=other)  # a client that does not wait for the others
            else:
                self._rename(name, other)

    def _read(self, reply: Json, name: str) -> None:
        """If another client changes the table between read and change, no change may be lost."""
        if "value" in reply:
            record = reply["value"]["table"]
            columns = record["columns"]
            columns = [*columns, [f"c{self.sim.steps}", "int"]] if len(columns) < 9 else columns[:1]
            if self.chance < 0.1:
                kind = {"int": "bigint", "bigint": "int"}[columns[0][1]]
                columns = [[columns[0][0], kind], *columns[1:]]
            self.plan(
                None,
                "alter_table",
                name=name,
                columns=columns,
                properties=None,
                rename=None,
                read=[record["table_id"], record["version"]],
            )

    def _alter(self, name: str, **change: Any) -> None:
        self.ask(
            None,
            "alter_table",
            **{
                "name": name,
                "columns": None,
                "properties": None,
                "rename": None,
                "read": None,
                **change,
            },
        )

    def _rename(self, name: str, other: str) -> None:
        wish = LockRequest(name, LockType.EXCLUSIVE)

        def then(reply: Json) -> None:
            if "value" in reply:
                txn = reply["value"]["txn"]
                self.plan(
                    lambda _: self.plan(None, "commit", txn=txn, writes=[]),
                    "alter_table",
                    name=name,
                    columns=None,
                    properties=None,
                    rename=other,
                    read=None,
                )

        self.ask(
            then,
            "begin",
            kind=DEFAULT,
            locks=[encode(wish)],
            wait=30,
            zero_wait=False,
            info={},
            tables=[],
        )
