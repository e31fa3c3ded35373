"""Clients that write and read: they open, lock, commit, forget to commit, and die."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import RowOperation, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.concurrency import LockType
from tests.simulation.actors import PARTITIONS, Actor, Reader, Session
from tests.simulation.checks import check_read
from tests.simulation.disk import Directory, Place
from tests.simulation.lookers import FORMS, looked_for
from tests.simulation.manifests import report_of
from tests.simulation.rules import DEFAULT, READ_ONLY

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]


class Writer(Actor):
    """Opens transactions and leases, locks, reads, writes, commits, forgets to commit, dies."""

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
            # Without locks: a write id now, and the lock perhaps after others have written (P6).
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
        """Its files stay, and some are published only later (P4)."""
        session = self.session
        if session is not None and session.kind == DEFAULT and not session.committing:
            for plan in session.plans:
                place_one = self._directory(session, plan, self.pick(*PARTITIONS))
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
            self.ask(
                lambda reply: self._begun(reply, DEFAULT, plans),
                "begin",
                kind=DEFAULT,
                locks=[encode(plan) for plan in plans],
                wait=wait,
                zero_wait=self.pick(None, False, True),
                info={},
                tables=[],
            )
        elif chance < 0.7:
            self.ask(
                lambda reply: self._begun(reply, DEFAULT, []),
                "begin",
                kind=DEFAULT,
                locks=[],
                wait=0,
                zero_wait=None,
                info={},
                tables=[],
            )
        elif chance < 0.95:
            tables = self.pick(None, [], ["t"], ["u", "v"], ["v"])
            self.ask(
                lambda reply: self._begun(reply, READ_ONLY, []),
                "begin",
                kind=READ_ONLY,
                locks=[],
                wait=0,
                zero_wait=None,
                info={},
                tables=tables,
            )
        elif chance < 0.98:
            locks = [LockRequest(self.pick("t", "u"), LockType.SHARED_READ)]
            self.ask(
                lambda reply: self._begun(reply, READ_ONLY, []),
                "begin",
                kind=READ_ONLY,
                locks=[encode(lock) for lock in locks],
                wait=wait,
                zero_wait=None,
                info={},
                tables=[],
            )
        else:
            self.ask(None, "open_batch", count=self.pick(1, 2, 3), kind=DEFAULT, info={})

    def _begun(self, reply: Json, kind: int, plans: list[LockRequest]) -> None:
        if "value" in reply:
            value = reply["value"]
            self.session = Session(
                value["txn"],
                ValidTxnList.parse(value["valid_txns"]),
                kind=kind,
                write_ids=dict(value["write_ids"]),
                plans=list(plans),
                slow=self.chance < self.sim.slow,
            )
            self._learn(self.session, value["lists"])

    def _plans(self) -> list[LockRequest]:
        return [self._plan() for _ in range(self.pick(1, 1, 1, 2))]

    def _plan(self, chosen: float = 0.0) -> LockRequest:
        table = self.pick("t", "t", "t", "u", "u", "u", "v", "v", "w")
        partition = None
        if table != "t" and self.chance < 0.7:
            partition = self.pick(*PARTITIONS)
        chance = chosen or self.chance
        if chance < 0.08:
            return LockRequest(table, LockType.SHARED_READ, None, partition)
        if chance < 0.12:
            return LockRequest(table, LockType.EXCLUSIVE, None, partition)
        if chance < 0.13:
            return LockRequest("default.*", self.pick(LockType.SHARED_READ, LockType.EXCLUSIVE))
        dynamic = table == "t" and self.chance < 0.1
        strict = self.sim.settings["hive.txn.xlock.write"] == "true"
        operation = (
            RowOperation.OVERWRITE
            if chance < 0.25
            else self.pick(
                RowOperation.INSERT, RowOperation.INSERT, RowOperation.UPDATE, RowOperation.DELETE
            )
        )
        return LockRequest(table, self._lock_for(operation, strict), operation, partition, dynamic)

    def _lock_for(self, operation: RowOperation, strict: bool) -> LockType:
        """Like lock_of. With exclusive writes a TRUNCATE admits inserts, an OVERWRITE does not."""
        if operation is RowOperation.OVERWRITE:
            return LockType.EXCLUSIVE if strict and self.chance < 0.5 else LockType.EXCL_WRITE
        if operation is RowOperation.INSERT:
            return LockType.SHARED_READ if strict else LockType.SHARED_WRITE
        return LockType.EXCL_WRITE if strict else LockType.SHARED_WRITE

    def _lock(self, session: Session) -> None:
        # A transaction that has only read so far mostly replaces what it has read (P30).
        plans = self._plans() if session.plans or self.chance < 0.3 else [self._plan(0.13)]
        held = [name.removeprefix("default.") for name in session.write_ids]
        if held and self.chance < 0.5:
            fitting = [plan for plan in (self._plan() for _ in range(4)) if plan.table in held]
            plans = fitting[:1] or plans

        def then(reply: Json) -> None:
            if "value" in reply:
                session.plans += plans
                session.write_ids.update(reply["value"]["write_ids"])
                self._learn(session, reply["value"]["lists"])
            elif reply["error"][0] not in ("LockTimeout", "LockNotAcquired"):
                self.lost()

        self.ask(
            then,
            "lock",
            txn=session.txn,
            locks=[encode(plan) for plan in plans],
            wait=self.pick(0, 3, 8),
            zero_wait=self.pick(None, False),
        )

    def _allocate(self, session: Session) -> None:
        table = self.pick("t", "u")

        def then(reply: Json) -> None:
            if "value" in reply:
                name = f"default.{table}"
                ((_, session.write_ids[name]),) = reply["value"]["write_ids"]
                txn = self.sim.model.txns[session.txn]
                seen = self.sim.model.seen(txn, name) if txn.state == "o" else None
                if seen is not None:
                    session.places[name] = seen.location

        self.ask(then, "allocate_many", txns=[session.txn], table=table)

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
            self._list(session, name, text)

    def _list(self, session: Session, name: str, text: str) -> None:
        """Notes a list; the table's name is that of the snapshot."""
        model = self.sim.model
        txn = model.txns.get(session.txn)
        if txn is not None and txn.state == "o":
            table = model.seen(txn, name)
            if table is None:  # it was made after the snapshot, and has been dropped since
                made_later = [made for made in model.tables.values() if not made.at(txn.snapshot)]
                assert any(made.dropped for made in made_later)
                return
            session.lists.setdefault(table.id, ValidWriteIdList.parse(text))
            if name in session.write_ids:
                session.places.setdefault(name, table.location)

    def _read(self, session: Session) -> None:
        name = self.pick("t", "u", "v", "w")

        def then(reply: Json) -> None:
            if "value" in reply:
                self._list(session, f"default.{name}", reply["value"]["list"])
                self._look(session)
            elif reply["error"][0] in ("TxnAborted", "NoSuchTxn"):
                self.lost()

        def declared(reply: Json) -> None:
            if "error" in reply and reply["error"][0] in ("TxnAborted", "NoSuchTxn"):
                self.lost()

        chance = self.chance
        if chance < 0.3 and session.lists:
            self._look(session)
        elif chance < 0.6:
            op = self.pick("table", "partitions")
            self.ask(declared, op, name=name, txn=session.txn)
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
        """The directory that the plan allows; `chosen` is the partition of a dynamic write."""
        name = f"default.{plan.table}"
        write_id, location = session.write_ids.get(name), session.places.get(name)
        if plan.operation is None or write_id is None or location is None:
            return None
        partitioned = plan.table != "t"
        partition = plan.partition or (chosen if partitioned else None)
        overwrite = plan.operation is RowOperation.OVERWRITE
        deletes = plan.operation is RowOperation.DELETE
        tag = (write_id, session.txn, deletes)
        one = Directory(overwrite, deletes, write_id, write_id, 0, frozenset({tag}))
        return (location, partition), one

    def _publish(self, session: Session) -> None:
        for plan in session.plans:
            found = self._directory(session, plan, self.pick(*PARTITIONS))
            if found is None or found in session.published:
                continue
            others = [
                (place, directory) for place, directory in session.published if place == found[0]
            ]
            if any(directory.base or found[1].base for _, directory in others):
                continue
            session.published.append(found)
            self.sim.disk.publish(*found)

    def _end(self, session: Session) -> None:
        if self.chance < 0.15:
            self.ask(lambda reply: self._aborted(session), "abort", txn=session.txn, reason="")
            return
        if session.kind == DEFAULT and self.chance < 0.9:
            self._publish(session)
        names = {location: name for name, location in session.places.items()}
        reports = [
            encode(
                report_of(
                    directory,
                    names[place[0]],
                    place[1],
                    RowOperation.UPDATE if directory.base else self._operation(directory),
                )
            )
            for place, directory in session.published
        ]
        columns = {}
        if session.places and self.chance < 0.1:
            kind = self.pick("int", "int", "string")
            columns = {self.pick(*sorted(session.places)): [[f"d{self.pick(1, 2)}", kind]]}
        bases = [report for report in reports if report["overwrite"]]
        if bases and self.chance < 0.05:
            delta = bases[0]["directory"].replace("base", "delta") + bases[0]["directory"][4:]
            again = {"overwrite": False, "operation": "i", "directory": delta}
            reports.append(bases[0] | again)  # a client that does not know P6
        session.committing = True
        self.ask(
            lambda reply: self._committed(reply, session),
            "commit",
            txn=session.txn,
            writes=reports,
            columns=columns,
            changed=self._changed(session, reports),
            **self._looked_for(session),
        )

    def _looked_for(self, session: Session) -> Json:
        """In some runs, the keys that it looked for and brought (P51)."""
        choice = self.sim.key_choice
        if choice is None or choice.random() < 0.3:
            return {}
        return looked_for(sorted(session.places), choice, FORMS[self.sim.seed // 13 % len(FORMS)])

    def _changed(self, session: Session, reports: list[Json]) -> list[Json]:
        """Rows that its updates and deletes may have changed; sometimes it names none (P38)."""
        txn, choice = self.sim.model.txns.get(session.txn), self.sim.row_choice
        places = [
            (plan.table, plan.partition, plan.operation.value)
            for plan in session.plans
            if plan.operation in (RowOperation.UPDATE, RowOperation.DELETE)
            and (plan.partition is not None or (plan.table == "t" and not plan.dynamic))
        ]
        places += [
            (report["table"], report["partition"], report["operation"])
            for report in reports
            if report["operation"] == RowOperation.DELETE.value
        ]
        changed, taken = [], set[tuple[str, str | None, tuple[int, int]]]()
        for table, partition, operation in dict.fromkeys(places):
            name = f"default.{table.removeprefix('default.')}"
            known = self.sim.model.seen(txn, name) if txn is not None and txn.state == "o" else None
            if known is None or not txn.snapshot or choice.random() < 0.2:
                continue
            left = [
                row
                for row in self.sim.model.rows(txn, known, partition)
                if (name, partition, row) not in taken
            ]
            chosen = sorted(choice.sample(left, min(len(left), choice.choice((0, 1, 1, 2)))))
            taken |= {(name, partition, row) for row in chosen}
            changed.append(
                {
                    "table": name,
                    "partition": partition,
                    "operation": operation,
                    "rows": text_of(chosen),
                }
            )
        return changed

    def _operation(self, one: Directory) -> RowOperation:
        if one.deletes:
            return RowOperation.DELETE
        return RowOperation.INSERT

    def _committed(self, reply: Json, session: Session) -> None:
        if "error" in reply:
            self._aborted(session)
        elif self.session is session:
            self.session = None

    def _aborted(self, session: Session) -> None:
        """Removes its files, unless it dies before."""
        if self.chance < 0.5:
            for place, directory in session.published:
                self.sim.disk.remove(place, [directory.name])
        if self.session is session:
            self.session = None


def text_of(rows: list[tuple[int, int]]) -> str:
    """The text of a set of rows of one bucket: (write id, rowId), ascending."""
    groups = []
    for write_id, listed in groupby(rows, key=itemgetter(0)):
        ids = [row for _, row in listed]
        steps = [after - before for before, after in zip([0, *ids], ids, strict=False)]
        groups.append(f"{write_id}:{','.join(map(str, steps))}")
    return f"536870912@{';'.join(groups)}" if groups else ""
