"""Who calls the metastore: writers and readers, Workers, a Cleaner, an administrator.

An actor has at most one request under way. When the answer is lost it asks for the outcome, and
only sends again what was never seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.records import CleaningTask, LockRequest, WriteReport
from acid_platform.transactions import Operation, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.locks import LockType
from tests.simulation.checks import check_read, check_readers
from tests.simulation.disk import Directory, Place, select, settled
from tests.simulation.process import Request
from tests.simulation.rules import COMPACTION, DEFAULT, READ_ONLY

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]
PARTITIONS = ("p=1", "p=2", "p=3")
REPEATABLE = (
    "heartbeat_lock", "heartbeat", "heartbeat_one", "valid_write_ids", "allocate", "cleaning",
)
"""Sent again without asking (machine.py)."""


@dataclass(slots=True)
class Reader:
    """A snapshot that somebody holds: its lists, by table id."""

    txn: int
    valid_txns: ValidTxnList
    lists: dict[int, ValidWriteIdList] = field(default_factory=dict)


@dataclass(slots=True)
class Session(Reader):
    """A transaction as its owner knows it."""

    kind: int = DEFAULT
    write_ids: dict[str, int] = field(default_factory=dict)
    plans: list[LockRequest] = field(default_factory=list)
    """What its locks allow it to write."""
    published: list[tuple[Place, Directory]] = field(default_factory=list)
    slow: bool = False
    """Mostly it only says that it is alive."""


class Actor:
    def __init__(self, sim: Simulation, number: int) -> None:
        self.sim, self.number = sim, number
        self.pending: Request | None = None
        self.then: Callable[[Json], None] | None = None
        self.connected = True
        self.next: tuple[Callable[[Json], None] | None, str, Json] | None = None
        """What it does next, whatever else it would choose."""

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
            self.sim.process.connected.discard(self.pending.id)
            self.pending = None
            self.lost()

    def go_on(self) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The process of this client is gone, with what it knew."""

    def plan(self, then: Callable[[Json], None] | None, op: str, **args: Any) -> None:
        """Asks at its next turn: an answer is no moment to ask."""
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


class Writer(Actor):
    """Opens transactions and leases, locks, reads, writes, commits, forgets to, dies."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.session: Session | None = None

    def readers(self) -> list[Reader]:
        return [self.session] if self.session else []

    def go_on(self) -> None:
        if self.session is None:
            self._begin()
            return
        if self.session.slow and self.chance < 0.7:
            self._beat(self.session)
            return
        chance = self.chance
        if self.session.kind == DEFAULT and not self.session.plans and chance < 0.5:
            # Begun without locks: a write id now, and the lock perhaps after others wrote (P6).
            (self._lock if self.session.write_ids else self._allocate)(self.session)
        elif chance < 0.3:
            self._end(self.session)
        elif chance < 0.6:
            self._read(self.session)
        elif chance < 0.72:
            self._beat(self.session)
        elif chance < 0.82 and self.session.kind == DEFAULT:
            self._lock(self.session)
        elif chance < 0.9 and self.session.kind == DEFAULT:
            self._allocate(self.session)
        elif chance < 0.93:
            self._publish(self.session)
        elif chance < 0.945:
            self.sim.note("client", self.number, "dies")
            self.lost()

    def lost(self) -> None:
        """Its files stay where they are, and some come only now (P4)."""
        if self.session is not None and self.session.kind == DEFAULT:
            for plan in self.session.plans:
                place_one = self._directory(self.session, plan, self.pick(*PARTITIONS))
                if place_one is not None and self.chance < 0.5:
                    self.sim.late.append(place_one)
        self.session = None
        self.next = None

    # --- begin ------------------------------------------------------------------------------

    def _begin(self) -> None:
        chance = self.chance
        wait = self.pick(0, 4, 10, 60)
        if chance < 0.6:
            plans = self._plans()
            self.ask(lambda reply: self._begun(reply, DEFAULT, plans), "begin", kind=DEFAULT,
                     locks=[encode(one) for one in plans], wait=wait,
                     zero_wait=self.pick(None, False, True), info={}, tables=[])
        elif chance < 0.7:
            self.ask(lambda reply: self._begun(reply, DEFAULT, []), "begin", kind=DEFAULT, locks=[],
                     wait=0, zero_wait=None, info={}, tables=[])
        elif chance < 0.95:
            tables = self.pick(None, [], ["t"], ["u", "v"], ["v"])
            self.ask(lambda reply: self._begun(reply, READ_ONLY, []), "begin", kind=READ_ONLY,
                     locks=[], wait=0, zero_wait=None, info={}, tables=tables)
        elif chance < 0.98:
            locks = [LockRequest(self.pick("t", "u"), LockType.SHARED_READ)]
            self.ask(lambda reply: self._begun(reply, READ_ONLY, []), "begin", kind=READ_ONLY,
                     locks=[encode(one) for one in locks], wait=wait, zero_wait=None, info={},
                     tables=[])
        else:
            self.ask(None, "open_batch", count=self.pick(1, 2, 3), kind=DEFAULT, info={})

    def _begun(self, reply: Json, kind: int, plans: list[LockRequest]) -> None:
        if "value" in reply:
            value = reply["value"]
            self.session = Session(value["txn"], ValidTxnList.parse(value["valid_txns"]),
                                   kind=kind, write_ids=dict(value["write_ids"]), plans=list(plans),
                                   slow=self.chance < self.sim.slow)
            self._learn(self.session, value["lists"])

    def _plans(self) -> list[LockRequest]:
        return [self._plan() for _ in range(self.pick(1, 1, 1, 2))]

    def _plan(self) -> LockRequest:
        table = self.pick("t", "t", "u", "u", "v")
        partition = None
        if table != "t" and self.chance < 0.7:
            partition = self.pick(*PARTITIONS)
        chance = self.chance
        if chance < 0.08:
            return LockRequest(table, LockType.SHARED_READ, None, partition)
        if chance < 0.12:
            return LockRequest(table, LockType.EXCLUSIVE, None, partition)
        if chance < 0.13:
            return LockRequest("default.*", self.pick(LockType.SHARED_READ, LockType.EXCLUSIVE))
        if chance < 0.25:
            return LockRequest(table, LockType.EXCL_WRITE, Operation.UPDATE, partition)
        operation = self.pick(Operation.INSERT, Operation.INSERT, Operation.UPDATE,
                              Operation.DELETE)
        strict = self.sim.settings["hive.txn.xlock.write"] == "true"
        lock = LockType.EXCL_WRITE if strict and operation is not Operation.INSERT else (
            LockType.SHARED_WRITE)
        dynamic = table == "t" and self.chance < 0.1
        return LockRequest(table, lock, operation, partition, dynamic)

    def _lock(self, session: Session) -> None:
        plans = self._plans()
        held = [name.removeprefix("default.") for name in session.write_ids]
        if held and self.chance < 0.5:
            fitting = [one for one in (self._plan() for _ in range(4)) if one.table in held]
            plans = fitting[:1] or plans

        def then(reply: Json) -> None:
            if "value" in reply:
                session.plans += plans
                session.write_ids.update(reply["value"]["write_ids"])
                self._learn(session, reply["value"]["lists"])
            elif reply["error"][0] not in ("LockTimeout", "LockNotAcquired"):
                self.lost()

        self.ask(then, "lock", txn=session.txn, locks=[encode(one) for one in plans],
                 wait=self.pick(0, 3, 8), zero_wait=self.pick(None, False))

    def _allocate(self, session: Session) -> None:
        table = self.pick("t", "u")

        def then(reply: Json) -> None:
            if "value" in reply:
                session.write_ids[f"default.{table}"] = reply["value"]["write_id"]

        self.ask(then, "allocate", txn=session.txn, table=table)

    def _beat(self, session: Session) -> None:
        def then(reply: Json) -> None:
            if "error" in reply or session.txn in reply["value"].get("aborted", ()):
                self.lost()

        if self.chance < 0.5:
            self.ask(then, "heartbeat", txns=[session.txn, max(1, session.txn - 3)])
        else:
            self.ask(then, "heartbeat_one", txn=session.txn, read=self.chance < 0.3)

    # --- reading ----------------------------------------------------------------------------

    def _learn(self, session: Session, lists: dict[str, str]) -> None:
        for name, text in lists.items():
            table_id = self.sim.model.names.get(name)
            if table_id is not None:
                session.lists.setdefault(table_id, ValidWriteIdList.parse(text))

    def _read(self, session: Session) -> None:
        name = self.pick("t", "u", "v")

        def then(reply: Json) -> None:
            if "value" in reply:
                listed = ValidWriteIdList.parse(reply["value"]["list"])
                table_id = self.sim.model.names.get(f"default.{name}")
                if table_id is not None and table_id not in session.lists:
                    session.lists[table_id] = listed
                self._look(session)
            elif reply["error"][0] in ("TxnAborted", "NoSuchTxn"):
                self.lost()

        if self.chance < 0.4 and session.lists:
            self._look(session)
        else:
            self.ask(then, "valid_write_ids", txn=session.txn, table=name)

    def _look(self, session: Session) -> None:
        txn = self.sim.model.txns.get(session.txn)
        if txn is not None and txn.state == "o":
            for table_id, listed in session.lists.items():
                table = self.sim.model.tables[table_id]
                check_read(self.sim, txn, table, listed, session.valid_txns)

    # --- writing ----------------------------------------------------------------------------

    def _directory(
        self, session: Session, plan: LockRequest, chosen: str
    ) -> tuple[Place, Directory] | None:
        """What the plan lets it write; `chosen` is the partition of a dynamic one."""
        write_id = session.write_ids.get(f"default.{plan.table}")
        if plan.operation is None or plan.table.endswith("*") or write_id is None:
            return None
        partitioned = plan.table != "t"
        partition = plan.partition or (chosen if partitioned else None)
        overwrite = plan.lock is LockType.EXCL_WRITE and plan.operation is Operation.UPDATE
        deletes = plan.operation is Operation.DELETE
        tag = (write_id, session.txn, deletes)
        one = Directory(overwrite, deletes, write_id, write_id, 0, frozenset({tag}))
        return (f"/w/{plan.table}", partition), one

    def _publish(self, session: Session) -> None:
        for plan in session.plans:
            found = self._directory(session, plan, self.pick(*PARTITIONS))
            if found is None or found in session.published:
                continue
            others = [(place, one) for place, one in session.published if place == found[0]]
            if any(one.base or found[1].base for _, one in others):
                continue
            session.published.append(found)
            self.sim.disk.publish(*found)

    def _end(self, session: Session) -> None:
        if self.chance < 0.15:
            self.ask(lambda reply: self._aborted(session), "abort", txn=session.txn, reason="")
            return
        if session.kind == DEFAULT and self.chance < 0.9:
            self._publish(session)
        reports = [
            encode(WriteReport(
                place[0].removeprefix("/w/"), place[1],
                Operation.UPDATE if one.base else self._operation(one), one.name, 1, 1, 1,
                one.base))
            for place, one in session.published
        ]
        self.ask(lambda reply: self._committed(reply, session), "commit", txn=session.txn,
                 writes=reports)

    def _operation(self, one: Directory) -> Operation:
        if one.deletes:
            return Operation.DELETE
        return Operation.INSERT

    def _committed(self, reply: Json, session: Session) -> None:
        if "error" in reply:
            self._aborted(session)
        elif self.session is session:
            self.session = None

    def _aborted(self, session: Session) -> None:
        """It takes its files away, unless it dies before."""
        if self.chance < 0.5:
            for place, one in session.published:
                self.sim.disk.remove(place, [one.name])
        if self.session is session:
            self.session = None


class Worker(Actor):
    """Takes compactions, publishes their output, and sometimes comes too late."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.owner: Json = {}
        self.task: Json = {}
        self.txn = 0
        self.output: list[tuple[Place, Directory]] = []
        self.seen: tuple[ValidTxnList, ValidWriteIdList] | None = None

    def lost(self) -> None:
        """What still comes of it is not even whole."""
        for place, one in self.output:
            if self.chance < 0.7:
                self.sim.late.append((place, replace(one, tags=frozenset({(one.high, 0, False)}))))
        self._forget()

    def _forget(self) -> None:
        self.owner, self.task, self.txn, self.output, self.seen = {}, {}, 0, [], None

    def go_on(self) -> None:
        chance = self.chance
        if not self.task:
            if chance < 0.05:
                self.ask(None, "revoke_workers", host=f"w{self.pick(9, 10)}")
            elif chance < 0.5:
                name = self.pick("t", "u", "v")
                partition = None if name == "t" else self.pick(*PARTITIONS)
                self.ask(None, "request_compaction", table=name, partition=partition,
                         kind=self.pick("major", "minor"), properties={}, initiator="i")
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
            self.ask(lambda reply: self.lost(), "fail_compaction", **self.owner, txn=self.txn,
                     error="x")
        else:
            writes = [
                encode(WriteReport(self.task["table"], self.task["partition"], Operation.COMPACT,
                                   one.name, 1, 1, 1))
                for _, one in self.output
            ]
            for place, one in self.output:
                self.sim.disk.publish(place, one)
            self.ask(self._committed, "commit_compaction", **self.owner, txn=self.txn,
                     writes=writes)

    def _taken(self, reply: Json) -> None:
        if reply["value"]["task"] is not None:
            self.task = reply["value"]["task"]
            self.owner = {key: self.task[key] for key in ("id", "worker", "attempt")}

    def _begun(self, reply: Json) -> None:
        if "error" in reply:
            if reply["error"][0] == "LockNotAcquired":
                owner = self.owner
                self._forget()
                self.plan(None, "fail_compaction", **owner, txn=None, error="locked")
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
        name, partition = self.task["table"].removeprefix("default."), self.task["partition"]
        place: Place = (f"/w/{name}", partition)
        high = merge.high_watermark
        floor = 0
        known = self.sim.process.machine.state.tables.get(self.task["table_id"])
        if known is not None:
            record = known.partitions.get(partition) if partition else None
            floor = settled(merge, known.record.floor, *(record.floors if record else ()))
        files = [one for one in self.sim.disk.places.get(place, {}).values() if one.high <= high]
        found = select(files, merge, txns, floor)
        tags = found.tags(merge)
        if self.task["kind"] == "major":
            if high > 0 and (found.base is None or found.base.high < high) and tags:
                one = Directory(True, False, high, high, self.txn, frozenset(tags))
                self.output.append((place, one))
        else:
            for deletes in (False, True):
                inputs = [one for one in found.deltas if one.deletes == deletes]
                if len(inputs) > 1:
                    merged = frozenset(
                        tag for one in inputs for tag in one.tags
                        if one.visibility or merge.is_valid(tag[0]))
                    low, top = min(one.low for one in inputs), max(one.high for one in inputs)
                    one = Directory(False, deletes, low, top, self.txn, merged)
                    self.output.append((place, one))
        if not self.output:
            owner, txn = self.owner, self.txn
            self._forget()
            self.ask(None, "fail_compaction", **owner, txn=txn, error="nothing to do")

    def _committed(self, reply: Json) -> None:
        """Who lost it takes the output away, or dies before (P21)."""
        if "error" in reply and self.chance < 0.6:
            for place, one in self.output:
                self.sim.disk.remove(place, [one.name])
        if "value" in reply:
            check_readers(self.sim, {self.task["table_id"]})
        self._forget()


class Cleaner(Actor):
    """Removes what the metastore allows, with time between being allowed and doing it."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.task: CleaningTask | None = None
        self.removed = False

    def lost(self) -> None:
        self.task, self.removed = None, False

    def go_on(self) -> None:
        if self.task is None:
            self.ask(self._found, "cleaning")
        elif not self.removed:
            self._remove(self.task)
        elif self.chance < 0.1:
            self.lost()
        elif self.chance < 0.2:
            self.ask(lambda reply: self.lost(), "cleaning_failed", **_named(self.task), error="x")
        else:
            self.ask(lambda reply: self.lost(), "mark_cleaned", **_named(self.task), removed=None)

    def _found(self, reply: Json) -> None:
        ready = reply["value"]["ready"]
        if ready:
            task = decode(CleaningTask, self.pick(*ready))
            self.plan(self._started, "start_cleaning", **_named(task))

    def _started(self, reply: Json) -> None:
        if "value" in reply:
            self.task, self.removed = decode(CleaningTask, reply["value"]["task"]), False
            self.sim.counts[f"cleaning {self.task.kind}"] += 1

    def _remove(self, task: CleaningTask) -> None:
        """Afterwards every open snapshot of the table must find all that it needs."""
        self.sim.write()
        self.removed = True
        disk, state = self.sim.disk, self.sim.process.machine.state
        if task.kind == "drop":
            location, _, partition = task.location.partition("/p=")
            place: Place = (location, f"p={partition}" if partition else None)
            disk.remove_location(place, task.highest_write_id if task.reused else None)
            self._check(task)
            return
        location = f"/w/{task.table.removeprefix('default.')}"
        known = state.tables.get(task.table_id)
        if known is None:
            return
        unknown = task.partition is None and known.record.partitioned
        for partition in (sorted(disk.partitions(location), key=str) if unknown
                          else [task.partition]):
            record = known.partitions.get(partition) if partition else None
            floor = settled(task.write_ids, known.record.floor, *(record.floors if record else ()))
            names = disk.removable((location, partition), task.write_ids, task.valid_txns, floor,
                                   task.highest_write_id, unknown)
            self.sim.note("removes", partition, names)
            self.sim.counts["removed"] += len(names)
            disk.remove((location, partition), names)
        self._check(task)

    def _check(self, task: CleaningTask) -> None:
        same = {one.id for one in self.sim.model.tables.values()
                if one.name == task.table or one.id == task.table_id}
        check_readers(self.sim, same)


def _named(task: CleaningTask) -> Json:
    return {"id": task.id, "table": task.table, "table_id": task.table_id,
            "partition": task.partition, "highest_write_id": task.highest_write_id}


class Bystander(Actor):
    """Holds locks without a transaction, keeps them alive, gives them up, forgets them (T16)."""

    def __init__(self, sim: Simulation, number: int) -> None:
        super().__init__(sim, number)
        self.ext = 0

    def lost(self) -> None:
        self.ext = 0

    def go_on(self) -> None:
        chance = self.chance
        if chance < 0.05:
            # Whose lock it is does not matter: what a transaction holds is refused (L15).
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
    """Drops and creates tables and partitions, aborts what is in the way."""

    def go_on(self) -> None:
        sim, chance = self.sim, self.chance
        missing = [one for one in ("t", "u", "v") if f"default.{one}" not in sim.model.names]
        if missing and chance < 0.6:
            from tests.simulation.simulator import declared

            self.ask(None, "create_table", table=declared(missing[0]), if_not_exists=False)
        elif chance < 0.2:
            last = sim.model.last_txn
            ids = [max(1, last - sim.random.randrange(12)) for _ in range(2)]
            self.ask(None, "abort_many", txns=sorted({*ids, last + 5}), reason="")
        elif chance < 0.3:
            self.ask(None, "add_partitions", name=self.pick("u", "v"),
                     partitions=[self.pick(*PARTITIONS)])
        elif chance < 0.9:
            name = self.pick("u", "v")
            self._drop(name, self.pick(*PARTITIONS))
        else:
            self._drop(self.pick("t", "u", "v"), None)

    def _drop(self, name: str, partition: str | None) -> None:
        wish = LockRequest(name, LockType.EXCLUSIVE, None, partition)

        def then(reply: Json) -> None:
            if "value" in reply:
                self.plan(None, "drop", txn=reply["value"]["txn"], name=name, partition=partition)

        self.ask(then, "begin", kind=DEFAULT, locks=[encode(wish)], wait=30, zero_wait=False,
                 info={}, tables=[])


__all__ = [
    "COMPACTION", "Actor", "Admin", "Bystander", "Cleaner", "Reader", "Session", "Worker", "Writer",
]
