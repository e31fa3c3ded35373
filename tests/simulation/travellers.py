"""Clients that read the past and tag it, and what they must find (P36).

A past snapshot must show exactly what the table had right after a commit, for as long as a lease or
a tag pins it, whatever is compacted, dropped and cleaned meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from acid_platform.metastore.messages import decode
from acid_platform.metastore.pasts import Pin, Tag, before_commits
from acid_platform.metastore.records import PartitionRecord, PastTable, TableChanges
from acid_platform.metastore.rules.declared import directories
from tests.simulation.actors import Actor
from tests.simulation.claims import claim, full
from tests.simulation.disk import settled
from tests.simulation.rules import READ_ONLY, Table, Txn

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]

RETENTIONS = {"u": "3650d", "v": "8s"}
"""The histories of `u` are never cleaned away, those of `v` soon; `t` has no retention."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A past snapshot that somebody holds; `then` is a reader of that moment, in the model."""

    table_id: int
    then: Txn
    pin: Pin
    partitions: dict[str, tuple[int, ...]]
    """The partitions of then, with their floors."""
    tag: str = ""
    ended: frozenset[str] = frozenset()
    """The partitions whose history had ended when it was asked for."""


class Traveller(Actor):
    """Opens leases, reads the past with them, and makes and drops tags."""

    follows: ClassVar[bool] = False
    """Whether it also asks for changes; not by default, since other seeds would catch mutations."""
    ends: ClassVar[bool] = False
    """Whether it also ends the history of partitions; not by default, as `follows`."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.txn = 0
        self.pins: list[Pinned] = []
        """Those of its lease."""
        self.tags: list[Pinned] = []
        """Those of all tags."""

    def lost(self) -> None:
        self.txn, self.pins = 0, []

    def go_on(self) -> None:
        chance = self.chance
        name = self.pick("t", "u", "v", "w")
        if self.ends and chance > 0.9:
            self._end_history(name)
        elif self.txn and self.follows and chance > 0.4:
            self._follow(name)
        elif not self.txn:
            self.ask(
                self._begun,
                "begin",
                kind=READ_ONLY,
                locks=[],
                wait=0,
                zero_wait=None,
                info={},
                tables=[],
            )
        elif chance < 0.6:
            self._travel(name)
        elif chance < 0.75:
            self.ask(None, "heartbeat_one", txn=self.txn, read=True)
        elif chance < 0.85:
            self._tag(name)
        elif chance < 0.95 and self.tags:
            self._drop_tag(self.pick(*self.tags))
        elif chance < 0.98:
            txn, self.txn, self.pins = self.txn, 0, []
            self.ask(None, "commit", txn=txn, writes=[])

    def _begun(self, reply: Json) -> None:
        if "value" in reply:
            self.txn = reply["value"]["txn"]

    # --- reading --------------------------------------------------------------------------------

    def _travel(self, name: str) -> None:
        table = self.sim.model._table(name)
        owners = table.owners if table else {}
        done = [key for key, txn in owners.items() if self.sim.model.txns[txn].state == "c"]
        write_id = self.sim.random.randrange(-1, len(owners) + 3)
        if done and self.chance < 0.7:
            write_id = self.pick(*done[-8:])
        tag = next((tag for tag in self.tags if table and tag.table_id == table.id), None)
        as_of = {"write_id": write_id}
        if tag is not None and self.chance < 0.3:
            as_of = {"tag": tag.tag}
        txn = self.txn
        self.ask(
            lambda reply: self._arrived(reply, txn, as_of),
            "past",
            txn=txn,
            table=name,
            as_of={"write_id": None, "time": None, "tag": None, **as_of},
        )

    def _was_read(self, what: str, reply: Json, txn: int) -> bool:
        """Whether the lease that asked still holds, and got what it asked for."""
        self.sim.counts[f"{what}: {reply['error'][0] if 'error' in reply else 'read'}"] += 1
        if "error" in reply:
            if reply["error"][0] in ("SnapshotExpired", "TxnAborted", "NoSuchTxn"):
                self.lost()
            return False
        return txn == self.txn

    def _arrived(self, reply: Json, txn: int, as_of: Json) -> None:
        if not self._was_read("past", reply, txn):
            return
        past = decode(PastTable, reply["value"])
        if "tag" in as_of:
            then = next(
                tag.then
                for tag in self.tags
                if (tag.table_id, tag.tag) == (past.table.table_id, as_of["tag"])
            )
        else:
            then = self.sim.model.reader_after(past.table.table_id, as_of["write_id"])
        ended = frozenset(past.ended)
        held = Pinned(past.table.table_id, then, past.pin, _floors(past.partitions), "", ended)
        table = self.sim.model.tables[held.table_id]
        self._check_declaration(table, then, past)
        self.pins.append(held)
        check_pinned(self.sim, held)

    def _check_declaration(self, table: Table, then: Txn, past: PastTable) -> None:
        declared = table.at(then.snapshot)
        claim("P28 P36", declared is not None, "a past before", table.name)
        assert declared is not None
        claim(
            "P28 P36",
            past.table.columns == declared.columns,
            past.table,
            "had not the columns",
            declared.columns,
        )
        if table.partitioned:
            got, expected = set(_floors(past.partitions)), table.partitions_at(then.snapshot)
            claim("P28 P36", got == expected, table.name, "had not", got, "but", expected)

    def _follow(self, name: str) -> None:
        """Asks for the changes since a commit, and then reads what each later commit left (P39)."""
        table = self.sim.model._table(name)
        owners = table.owners if table else {}
        done = [key for key, txn in owners.items() if self.sim.model.txns[txn].state == "c"]
        if not done:
            return
        since = {"write_id": done[-8:][0], "time": None, "tag": None, "consumer": None}
        txn = self.txn
        self.ask(
            lambda reply: self._followed(reply, txn),
            "changes",
            txn=txn,
            table=name,
            since=since,
            until=None,
        )

    def _followed(self, reply: Json, txn: int) -> None:
        if not self._was_read("changes", reply, txn):
            return
        found = decode(TableChanges, reply["value"])
        table_id, state = found.table.table_id, self.sim.process.machine.state
        table, known = self.sim.model.tables[table_id], state.known_table(table_id)
        for place, commit in enumerate(found.commits):
            if not commit.write_id:
                continue
            later = found.commits[place + 1 :]
            lists = before_commits(found.after.write_ids, found.after.txns, later)
            floors = {}
            if known is not None and table.partitioned:
                every = (*known.partitions.values(), *known.dropped_partitions)
                floors = _floors(part for part in every if part.there_at(commit.moment))
            then = self.sim.model.reader_after(table_id, commit.write_id)
            held = Pinned(table_id, then, Pin(table_id, commit.moment, *lists), floors)
            self.pins.append(held)
            check_pinned(self.sim, held)

    def _end_history(self, name: str) -> None:
        table = self.sim.model._table(name)
        if table is None:
            return
        partitions = sorted(table.partitions_at(self.sim.model.now)) if table.partitioned else [""]
        chosen = [each for each in partitions if self.chance < 0.5]

        def ended(reply: Json) -> None:
            self.sim.counts[f"history ended: {'value' in reply}"] += 1

        self.ask(ended, "end_history", table=name, partitions=chosen)

    # --- tags -----------------------------------------------------------------------------------

    def _tag(self, name: str) -> None:
        table = self.sim.model._table(name)
        if table is None:
            return
        label, table_id = f"tag {self.sim.requests}", table.id

        def made(reply: Json) -> None:
            if "value" not in reply:
                return
            tag = decode(Tag, reply["value"])
            claim("P36", tag.pin.table_id == table_id, tag, "is of another table than", table_id)
            state = self.sim.process.machine.state
            known = state.known_table(table_id)
            floors = {}
            if known is not None and table.partitioned:
                every = (*known.partitions.values(), *known.dropped_partitions)
                floors = _floors(part for part in every if part.there_at(tag.pin.moment))
            then = self.sim.model.tagged[table_id, label]
            self.tags.append(Pinned(table_id, then, tag.pin, floors, label))
            self.sim.counts["tag"] += 1

        self.ask(made, "create_tag", table=name, name=label, as_of=None, expires=0, user="")

    def _drop_tag(self, tag: Pinned) -> None:
        table = self.sim.model.tables[tag.table_id]
        self.tags.remove(tag)
        if not table.dropped:
            self.ask(None, "drop_tag", table=full(table.name), name=tag.tag)


def _floors(partitions: Iterable[PartitionRecord]) -> dict[str, tuple[int, ...]]:
    return {each.name: each.floors for each in partitions}


def check_travellers(sim: Simulation, table_ids: set[int]) -> None:
    """Every past snapshot that is pinned still finds what the table had then."""
    if sim.process.batch:
        return
    for actor in sim.actors:
        if isinstance(actor, Traveller):
            txn = sim.model.txns.get(actor.txn)
            pins = list(actor.tags)
            if txn is not None and txn.state == "o":
                pins += actor.pins
            for held in pins:
                if held.table_id in table_ids:
                    check_pinned(sim, held)


def check_pinned(sim: Simulation, held: Pinned) -> None:
    """Skipped while something is decided but not written, and for a tag of a dropped table."""
    table = sim.model.tables[held.table_id]
    if sim.process.batch or (held.tag and table.dropped):
        return
    state = sim.process.machine.state
    for partition in sorted(held.partitions) if table.partitioned else [None]:
        listed, txns = held.pin.write_ids, held.pin.txns
        floor = settled(listed, table.floor, *held.partitions.get(str(partition), ()))
        place = (table.location, partition)
        known = state.known_table(table.id)
        end, _ = (known.ended if known else {}).get(partition or "", (0, 0))
        if (partition or "") in held.ended or (held.tag and end > held.pin.moment):
            sim.counts["past ended"] += 1
            continue
        expected = sim.model.content(held.then, table, partition)
        # A reader of the past gets its directories from the metastore (P26): it does not know any
        # more which transactions were aborted whose output appears late.
        recorded = set(directories(state, (table.id, partition)))
        found = sim.disk.read(place, listed, txns, floor, -1, recorded)
        sim.counts["past read"] += 1
        claim(
            "P36",
            found == expected,
            f"{held} reads {table.name} {partition}: missing {sorted(expected - found)}, too much"
            f" {sorted(found - expected)}; files {sorted(sim.disk.places.get(place, {}))}",
        )
