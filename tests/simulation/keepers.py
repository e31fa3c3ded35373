"""Actors that maintain tables: Workers that compact, and a Cleaner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from acid_platform.metastore.messages import converters, decode, encode
from acid_platform.metastore.operations.compaction import CleaningTask, DropCleaning, Unpublication
from acid_platform.transactions import RowOperation, ValidTxnList, ValidWriteIdList
from tests.simulation.actors import PARTITIONS, Actor
from tests.simulation.checks import check_readers
from tests.simulation.disk import Directory, Place, select, settled
from tests.simulation.manifests import check_forgotten, report_of

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]


class Worker(Actor):
    """Takes compactions, publishes their output, and sometimes comes too late."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.owner: Json = {}
        self.task: Json = {}
        self.txn = 0
        self.output: list[tuple[Place, Directory]] = []
        self.seen: tuple[ValidTxnList, ValidWriteIdList] | None = None
        self.publication = 0
        self.published = 0
        """How many directories are in place."""
        self.committing = False

    def lost(self) -> None:
        """Its output may appear later, and only in part."""
        for place, directory in self.output if not self.committing else ():
            if self.careful and (not self.publication or self.txn in self.sim.unstaged):
                continue  # it may not rename anything yet, or can't any more (P46)
            if self.chance < 0.7:
                self.sim.late.append(
                    (place, replace(directory, tags=frozenset({(directory.high, 0, False)})))
                )
        self._forget()

    def _forget(self) -> None:
        self.owner, self.task, self.txn, self.output, self.seen = {}, {}, 0, [], None
        self.publication = self.published = 0
        self.committing = False

    @property
    def careful(self) -> bool:
        """Whether other engines read, for which a minor compaction has to ask (P46)."""
        return self.sim.visited and self.task.get("kind") == "minor"

    def go_on(self) -> None:
        chance = self.chance
        if not self.task:
            if chance < 0.05:
                self.ask(None, "revoke_workers", host=f"w{self.pick(9, 10)}")
            elif chance < 0.5:
                name = self.pick("t", "u", "v", "w", *["t"] * (4 * self.sim.visited))
                partition = None if name == "t" else self.pick(*PARTITIONS)
                self.ask(
                    None,
                    "request_compaction",
                    table=name,
                    partition=partition,
                    kind=self.pick("major", "minor", *["minor"] * (2 * self.sim.visited)),
                    properties={},
                    initiator="i",
                )
            else:
                self.ask(self._taken, "take_compaction", worker=f"w{self.number}-1")
        elif not self.txn:
            self.ask(self._begun, "begin_compaction", **self.owner, info={})
        elif chance < 0.15:
            self.ask(None, "heartbeat", txns=[self.txn])
        elif not self.output:
            self._write()
        elif chance < 0.25:
            self.lost()
        elif chance < 0.4:
            self.ask(
                lambda reply: self.lost(), "fail_compaction", **self.owner, txn=self.txn, error="x"
            )
        elif self.careful and not self.publication:
            self.ask(
                self._granted,
                "request_publication",
                **self.owner,
                txn=self.txn,
                directories=[directory.name for _, directory in self.output],
                wait=self.pick(0, 0, 0, 5, 20),
            )
        elif self.careful and self.txn in self.sim.unstaged:
            self._forget()
        elif self.careful and self.published < len(self.output):
            self.sim.disk.publish(*self.output[self.published])
            self.published += 1
        else:
            writes = [
                encode(
                    report_of(
                        directory, self.task["table"], self.task["partition"], RowOperation.COMPACT
                    )
                )
                for _, directory in self.output
            ]
            for place, directory in self.output if not self.careful else ():
                self.sim.disk.publish(place, directory)
            self.committing = True
            self.ask(
                self._committed, "commit_compaction", **self.owner, txn=self.txn, writes=writes
            )

    def _taken(self, reply: Json) -> None:
        if reply["value"]["task"] is not None:
            self.task = reply["value"]["task"]
            self.owner = {key: self.task[key] for key in ("id", "worker", "attempt")}

    def _begun(self, reply: Json) -> None:
        if "error" in reply:
            if reply["error"][0] == "LockNotAcquired":
                owner = self.owner
                self._forget()
                self.plan(None, "fail_compaction", **owner, txn=None, error="locked", again=True)
            else:
                self._forget()
            return
        value = reply["value"]
        self.txn, self.task = value["txn"], value["task"]
        merge = ValidWriteIdList.parse(value["compactor_list"])
        self.seen = ValidTxnList.parse(value["valid_txns"]), merge

    def _write(self) -> None:
        """A base of everything up to the high watermark, or one delta of each kind (C31)."""
        self.sim.write()
        if self.sim.model.txns[self.txn].state != "o" or self.seen is None:
            self.lost()
            return
        txns, merge = self.seen
        partition = self.task["partition"]
        place: Place = (self.sim.model.tables[self.task["table_id"]].location, partition)
        high = merge.high_watermark
        floor = 0
        known = self.sim.process.machine.state.tables.get(self.task["table_id"])
        if known is not None:
            record = known.partitions.get(partition) if partition else None
            floor = settled(merge, known.record.floor, *(record.floors if record else ()))
        files = [
            directory
            for directory in self.sim.disk.places.get(place, {}).values()
            if directory.high <= high
        ]
        found = select(files, merge, txns, floor)
        tags = found.tags(merge)
        if self.task["kind"] == "major":
            if high > 0 and (found.base is None or found.base.high < high) and tags:
                one = Directory(True, False, high, high, self.txn, frozenset(tags))
                self.output.append((place, one))
        else:
            low = min((delta.low for delta in found.deltas), default=0)
            top = max((delta.high for delta in found.deltas), default=0)
            for deletes in (False, True):
                # Deltas and delete_deltas are rewritten, even if there is only one of the kind.
                inputs = [delta for delta in found.deltas if delta.deletes == deletes]
                if inputs and len(found.deltas) > 1:
                    merged = frozenset(
                        tag
                        for directory in inputs
                        for tag in directory.tags
                        if directory.visibility or merge.is_valid(tag[0])
                    )
                    one = Directory(False, deletes, low, top, self.txn, merged)
                    self.output.append((place, one))
        if not self.output:
            owner, txn = self.owner, self.txn
            self._forget()
            self.ask(None, "fail_compaction", **owner, txn=txn, error="nothing to do")

    def _granted(self, reply: Json) -> None:
        if "value" in reply:
            self.publication = reply["value"]["ext"]
        elif reply["error"][0] == "LockTimeout":
            owner, txn = self.owner, self.txn
            self._forget()
            self.plan(None, "fail_compaction", **owner, txn=txn, error="others read")
        else:
            self._forget()

    def _committed(self, reply: Json) -> None:
        """A Worker that lost its task removes the output, or dies before (P21)."""
        if "error" in reply and self.chance < 0.6:
            for place, directory in self.output:
                self.sim.disk.remove(place, [directory.name])
            if self.publication:
                self.plan(None, "end_publication", ext=self.publication)
        if "value" in reply:
            check_readers(self.sim, {self.task["table_id"]})
        self._forget()


READ_TASK: Callable[[Any], CleaningTask] = converters(CleaningTask)[1]


class Cleaner(Actor):
    """Removes what the metastore allows, some time after it was allowed."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.task: CleaningTask | None = None
        self.removed = False
        self.gone: list[str] = []
        self.held: list[int] = []
        """The moments of pins for which it left directories in place."""
        self.left: set[str] = set()
        """Known directories that stay, without dropped ones, which a purge may forget."""

    def lost(self) -> None:
        self.task, self.removed, self.gone, self.left, self.held = None, False, [], set(), []

    def go_on(self) -> None:
        if self.task is None:
            if self.sim.visited and self.chance < 0.3:
                self.ask(self._unpublish, "unpublished")
            else:
                self.ask(self._found, "cleaning")
        elif not self.removed:
            self._remove(self.task)
        elif self.chance < 0.1:
            self.lost()
        elif self.chance < 0.2:
            self.ask(lambda reply: self.lost(), "cleaning_failed", **_named(self.task), error="x")
        else:
            task, gone, left = self.task, self.gone, self.left
            self.ask(
                lambda reply: self._marked(reply, task, gone, left),
                "mark_cleaned",
                **_named(task),
                removed=None,
                gone=gone,
                held=self.held,
            )

    def _marked(self, reply: Json, task: CleaningTask, gone: list[str], left: set[str]) -> None:
        if "value" in reply:
            check_forgotten(self.sim, (task.table_id, task.partition), gone, left)
        self.lost()

    def _found(self, reply: Json) -> None:
        ready = reply["value"]["ready"]
        if ready:
            task = READ_TASK(self.pick(*ready))
            self.plan(self._started, "start_cleaning", **_named(task))

    def _unpublish(self, reply: Json) -> None:
        """Removes what a Worker staged, so that it can rename nothing more, and what it renamed."""
        if not reply["value"]["tasks"]:
            return
        task = decode(Unpublication, self.pick(*reply["value"]["tasks"]))
        self.sim.counts["output removed"] += 1
        self.sim.unstaged.add(task.txn_id)
        self.sim.late = [
            (place, one) for place, one in self.sim.late if one.visibility != task.txn_id
        ]
        place: Place = (self.sim.model.tables[task.table_id].location, task.partition)
        self.sim.disk.remove(place, task.directories)
        self.plan(None, "end_publication", ext=task.lock)

    def _started(self, reply: Json) -> None:
        if "value" in reply:
            self.task, self.removed = READ_TASK(reply["value"]["task"]), False
            kind = "compaction" if self.task.id else "abort"
            drops = isinstance(self.task, DropCleaning)
            self.sim.counts[f"cleaning {'drop' if drops else kind}"] += 1

    def _remove(self, task: CleaningTask) -> None:
        """Removes them; afterwards every open snapshot must still find all that it needs."""
        self.sim.write()
        self.removed = True
        disk, state = self.sim.disk, self.sim.process.machine.state
        if isinstance(task, DropCleaning):
            location, _, partition = task.location.partition("/p=")
            place: Place = (location, f"p={partition}" if partition else None)
            disk.remove_location(place, task.highest_write_id if task.reused else None)
            self._check(task)
            return
        location = self.sim.model.tables[task.table_id].location
        known = state.tables.get(task.table_id)
        if known is None:
            return
        unknown = task.partition is None and known.record.partitioned
        for partition in (
            sorted(disk.partitions(location), key=str) if unknown else [task.partition]
        ):
            record = known.partitions.get(partition) if partition else None
            floor = settled(task.write_ids, known.record.floor, *(record.floors if record else ()))
            names = disk.removable(
                (location, partition),
                task.write_ids,
                task.valid_txns,
                floor,
                task.highest_write_id,
                unknown,
            )
            floors = (known.record.floor, *(record.floors if record else ()))
            pinned = {
                name
                for pin in task.pins
                for name in disk.needed(
                    (location, partition),
                    pin.write_ids,
                    pin.txns,
                    settled(pin.write_ids, *floors),
                    -1,
                )
            }
            if pinned.intersection(names):
                self.sim.counts["pinned"] += 1
                self.held = [pin.moment for pin in task.pins]
                names = [name for name in names if name not in pinned]
            self.sim.note("removes", partition, names)
            self.sim.counts["removed"] += len(names)
            disk.remove((location, partition), names)
            self.gone += names
        entity = task.table_id, task.partition
        self.left = set(state.directories.get(entity, ())) - set(self.gone)
        self._check(task)

    def _check(self, task: CleaningTask) -> None:
        same = {
            table.id
            for table in self.sim.model.tables.values()
            if task.location.startswith(table.location) or table.id == task.table_id
        }
        check_readers(self.sim, same)


def _named(task: CleaningTask) -> Json:
    return {
        "id": task.id,
        "table": task.table,
        "table_id": task.table_id,
        "partition": task.partition,
        "highest_write_id": task.highest_write_id,
    }
