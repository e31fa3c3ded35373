"""Transactions, locks and write ids as the model knows them (T, L and P6 rules)."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.claims import Json, claim, expect, full, value
from tests.simulation.declarations import Declarations
from tests.simulation.rules import (
    DEFAULT,
    READ_ONLY,
    STRICTEST,
    WRITES,
    Lock,
    Resource,
    Table,
    Touch,
    Txn,
    waits,
)

_FOREIGN_WAIT = 24 * 3600


class Line(Declarations):
    """The open transactions, and which request waits for which."""

    # --- transactions -----------------------------------------------------------------------

    def on_begin(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._opened(args["kind"], clock, args["tables"] is None)
        if args["locks"]:
            self._asked(txn, request_id, args, own, clock, begun=True)
            return
        missing = [name for name in args["tables"] or () if full(name) not in self.names]
        if missing:
            expect("T1", own, "NoSuchTable")
            self._abort(txn)
            return
        for name in args["tables"] or ():
            txn.needs[full(name)] = self.names[full(name)]
        self._snapshot(txn)
        self._check_grant(value("T1", own))

    def on_open_batch(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        ids = value("T1", own)["txns"]
        made = [self._opened(args["kind"], clock, False) for _ in range(args["count"])]
        for txn in made:
            self._snapshot(txn)
        claim("T1 T3", ids == [txn.id for txn in made], ids)

    def _opened(self, kind: int, clock: int, all_tables: bool) -> Txn:
        self.now += 1
        txn = Txn(self.last_txn + 1, kind, self.now, clock, clock, self.timeout, all_tables)
        self.txns[txn.id] = self.open[txn.id] = txn
        return txn

    def _snapshot(self, txn: Txn) -> None:
        if not txn.snapshot:
            self.now += 1
            txn.snapshot = self.now
            txn.unseen = frozenset(
                txn_before.id
                for txn_before in self.open.values()
                if txn_before.kind != READ_ONLY and txn_before.id < txn.id
            )

    def on_lock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("T7", args["txn"], own)
        if txn is not None:
            self._asked(txn, request_id, args, own, clock, begun=False)

    def _asked(
        self, txn: Txn, request_id: str, args: Json, own: Json | None, clock: int, *, begun: bool
    ) -> None:
        """A lock request is granted, refused or made to wait (L2, L3, L10, L11)."""
        refused = self._refused(txn, args["locks"])
        if refused is None:
            lock = self._lock(txn, request_id, args, clock, begun)
            blocked = next(
                (resource for resource in lock.resources if self._blocked(lock, resource)), None
            )
            zero_wait = args["zero_wait"]
            if zero_wait is None:
                zero_wait = not self.exclusive_writes
            if blocked is None:
                self._join(txn, lock)
                self._grant(lock)
                self._check_grant(value("L2", own))
                return
            if zero_wait and blocked.lock == "r":
                refused = "LockNotAcquired"
            elif lock.deadline <= clock:
                refused = "LockTimeout"
            else:
                claim("L2 L3", own is None, f"{lock} does not wait: {own}")
                self._join(txn, lock)
                return
        expect("L2 L10 L11 T17", own, refused)
        if begun:
            self._abort(txn)
            self._settle()

    def _refused(self, txn: Txn, requests: list[Json]) -> str | None:
        for request in requests:
            if request["table"].endswith(".*"):
                continue
            operation = request["operation"] or STRICTEST[request["lock"]]
            changed = self._refused_change(txn, request["table"], operation in WRITES)
            if changed:
                return changed
            table = self._table(request["table"])
            assert table is not None
            if operation in WRITES and txn.kind != DEFAULT:
                return "ReadOnlyTxn"
            if operation != "i" and request["lock"] != "e" and not self._may_read(txn, table):
                return "SnapshotExpired"
        return None

    def _lock(self, txn: Txn, request_id: str, args: Json, clock: int, begun: bool) -> Lock:
        resources, touches, tables = [], [], {}
        for component in args["locks"]:
            if component["table"].endswith(".*"):
                resources.append(Resource(component["table"][:-2], None, None, component["lock"]))
                continue
            table = self._table(component["table"])
            assert table is not None
            tables[table.name] = table.id
            db, short = table.name.split(".")
            resources.append(Resource(db, short, component["partition"], component["lock"]))
            operation = component["operation"] or STRICTEST[component["lock"]]
            if operation in WRITES:
                dynamic = component["partition"] is None and (
                    table.partitioned or component["dynamic"]
                )
                touches.append(Touch(table.id, component["partition"], operation, dynamic))
        wait = round(args["wait"] * 1000)
        return Lock(
            txn.id,
            request_id,
            begun,
            resources,
            self._strictest(touches),
            tables,
            wait,
            clock + wait,
        )

    def _strictest(self, touches: list[Touch]) -> list[Touch]:
        """The strictest operation stands for all dynamic writes of a table (T26)."""
        found = [touched for touched in touches if not touched.dynamic]
        for table_id in dict.fromkeys(touched.table_id for touched in touches if touched.dynamic):
            asked = {
                touched.operation
                for touched in touches
                if touched.dynamic and touched.table_id == table_id
            }
            strictest = "o" if "o" in asked else "i" if asked == {"i"} else "u"
            found.append(Touch(table_id, None, strictest, True))
        return found

    def _join(self, txn: Txn, lock: Lock) -> None:
        for name, table_id in lock.tables.items():
            if self._may_read(txn, self.tables[table_id]):
                txn.needs.setdefault(name, table_id)
        self._stand_in_line(lock)

    def _stand_in_line(self, lock: Lock) -> None:
        self.last_ext += 1
        lock.ext = self.last_ext
        self.queue.append(lock)

    def _blocked(self, lock: Lock, asked: Resource) -> bool:
        """Whether an earlier request blocks it, held or waiting, but not its own (L2, L5).

        A publication waits for later locks too that are held: who holds a lock does not wait for a
        publication that waits (P46), nor for a request that waits for this lock (P48).
        """
        later = False
        for other in self.queue:
            if other is lock:
                later = True
                continue
            mine = 0 != other.txn == lock.txn
            if mine or (later and not other.granted):
                continue
            if other.publishes and not other.granted and self._holds(lock.txn):
                continue
            if not other.granted and self._in_the_way(lock.txn, other):
                continue
            if any(waits(asked, resource) for resource in other.resources):
                return True
        return False

    def _in_the_way(self, txn: int, waiting: Lock) -> bool:
        return txn != 0 and any(
            waits(wanted, held)
            for lock in self.queue
            if lock.txn == txn and lock.granted
            for held in lock.resources
            for wanted in waiting.resources
        )

    def _holds(self, txn: int) -> bool:
        return txn != 0 and any(lock.txn == txn and lock.granted for lock in self.queue)

    def _grant(self, lock: Lock) -> None:
        """Allocates the write ids, in the order of the grants (P6)."""
        lock.granted = True
        if not lock.txn:
            return
        txn = self.txns[lock.txn]
        for touch in lock.touches:
            self._allocate(txn, self.tables[touch.table_id])
        txn.touches += lock.touches
        self._snapshot(txn)

    def _settle(self) -> None:
        """No request waits that could be granted (L2), and none is granted in part (L3)."""
        for lock in list(self.queue):
            if lock.granted or lock not in self.queue:
                continue
            refused = self._changed_meanwhile(lock)
            if refused:
                self._end_wait(lock, refused)
            elif not any(self._blocked(lock, resource) for resource in lock.resources):
                self._grant(lock)
                self.parked_answers[lock.request_id] = "granted"

    def _changed_meanwhile(self, lock: Lock) -> str | None:
        if any(self.names.get(name) != table for name, table in lock.tables.items()):
            return "NoSuchTable"
        written = {touched.table_id for touched in lock.touches}
        found = (
            self._refused_change(self.txns[lock.txn], name, table in written)
            for name, table in lock.tables.items()
            if lock.txn
        )
        return next((error for error in found if error), None)

    def _end_wait(self, lock: Lock, error: str) -> None:
        self.queue.remove(lock)
        self.parked_answers[lock.request_id] = error
        if lock.begun:
            self._abort(self.txns[lock.txn])

    def on_request_lock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        """Another engine asks; it is answered at once, and asks again while it waits (P34)."""
        txn = self._live("T7", args["txn"], own)
        if txn is None:
            return
        refused = self._refused(txn, args["locks"])
        if refused is not None:
            expect("P34", own, refused)
            return
        asked = {**args, "wait": _FOREIGN_WAIT}
        lock = self._lock(txn, f"{request_id}/lock", asked, clock, False)
        lock.resources = [replace(resource, other_engine=True) for resource in lock.resources]
        blocked = any(self._blocked(lock, resource) for resource in lock.resources)
        self._join(txn, lock)
        if not blocked:
            self._grant(lock)
        answer = value("P34", own)
        claim("P46", answer == {"ext": lock.ext, "acquired": not blocked}, answer, "not", lock)

    def on_check_lock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        lock = next((queued for queued in self.queue if queued.ext == args["ext"]), None)
        if lock is None:
            expect("L12", own, "NoSuchLock")
        else:
            claim("P46", value("P34", own)["acquired"] == lock.granted, own, "not", lock)
            self._heard(self.txns[lock.txn], clock)

    def on_lock_alone(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        nobody = Txn(0, READ_ONLY, 0, clock, clock, self.timeout, True)
        refused = self._refused(nobody, args["locks"])
        if refused is not None:
            expect("T16", own, refused)
            return
        lock = self._lock(nobody, request_id, args, clock, False)
        lock.beat = clock
        blocked = any(self._blocked(lock, resource) for resource in lock.resources)
        if blocked and lock.deadline <= clock:
            expect("L11 L16", own, "LockTimeout")
            return
        self._stand_in_line(lock)
        if blocked:
            claim("L16", own is None, lock, "does not wait:", own)
        else:
            self._grant(lock)
            claim("T16", value("T16", own)["ext"] == lock.ext, own, lock)

    def on_heartbeat_lock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        lock = next(
            (queued for queued in self.queue if queued.ext == args["ext"] and not queued.txn), None
        )
        if lock is None:
            expect("L12", own, "NoSuchLock")
        else:
            value("L12", own)
            lock.beat = clock

    def on_unlock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        lock = next((queued for queued in self.queue if queued.ext == args["ext"]), None)
        if lock is not None and lock.txn and lock.granted:
            expect("L15", own, "InvalidDefinition")
            return
        value("L15", own)
        if lock is not None:
            self._gone(lock, "LockNotAcquired")
            self._settle()

    def _gone(self, lock: Lock, error: str) -> None:
        if lock.granted:
            self.queue.remove(lock)
        else:
            self._end_wait(lock, error)

    def _allocate(self, txn: Txn, table: Table) -> int:
        if table.id not in txn.write_ids:
            txn.write_ids[table.id] = table.next_write_id
            table.owners[table.next_write_id] = txn.id
            table.next_write_id += 1
        return txn.write_ids[table.id]

    def on_allocate_many(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        """The clients ask for one transaction at a time."""
        table = self._table(args["table"])
        if table is None:
            expect("T17", own, "NoSuchTable")
            return
        (txn_id,) = args["txns"]
        txn = self._live("T17", txn_id, own)
        if txn is None:
            return
        changed = self._refused_change(txn, args["table"])
        if txn.kind != DEFAULT:
            expect("T17", own, "ReadOnlyTxn")
        elif changed:
            expect("T17", own, changed)
        else:
            if table.id not in txn.write_ids and self._may_read(txn, table):
                txn.needs.setdefault(table.name, table.id)
            expected = [[txn.id, self._allocate(txn, table)]]
            got = value("T17", own)["write_ids"]
            claim("T18 T19 T21", got == expected, f"write ids {got}, not {expected}")

    def on_heartbeat(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        answer = value("T8", own)
        states = {
            txn_id: self.txns[txn_id].state if txn_id in self.txns else "u"
            for txn_id in args["txns"]
        }
        expected = [txn_id for txn_id in args["txns"] if states[txn_id] == "a"]
        claim("T8", answer["aborted"] == expected, answer, states)
        unknown = [txn_id for txn_id in args["txns"] if states[txn_id] in "uc"]
        claim("T8", answer["unknown"] == unknown, answer, states)
        for txn_id in args["txns"]:
            if states[txn_id] == "o":
                self._heard(self.txns[txn_id], clock)

    def on_heartbeat_one(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("T7", args["txn"], own)
        if txn is not None:
            value("T7", own)
            self._heard(txn, clock)
            if args["read"]:
                txn.read = clock

    def _heard(self, txn: Txn, clock: int) -> None:
        """The answer tells the interval of heartbeats, and so the timeout."""
        txn.beat, txn.told = clock, self.timeout

    def on_set(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        value("P9", own)
        if args["name"] == "hive.txn.timeout":
            timeout = int(args["value"].rstrip("s")) * 1000
            if timeout < self.timeout and (self.open or self.queue or self.cleaning):
                self.longer, self.shortened = max(self.longer, self.timeout), clock
            self.timeout = timeout

    def _patience(self, last: int) -> int:
        """A client without a heartbeat since the timeout was shortened may not know it (P29)."""
        return max(self.timeout, self.longer) if last <= self.shortened else self.timeout

    def _live(self, rule: str, txn_id: int, own: Json | None) -> Txn | None:
        """The open transaction; for any other the error must be right (T7, T10, T15)."""
        txn = self.txns.get(txn_id)
        if txn is not None and txn.state == "o":
            return txn
        if txn is None or txn.state == "c":
            expect(rule, own, "NoSuchTxn")
        elif txn.kind == READ_ONLY:
            expect(rule, own, "SnapshotExpired", "TxnAborted")
        else:
            expect(rule, own, "TxnAborted")
        return None

    def _abort(self, txn: Txn) -> None:
        if txn.state == "o":
            self._ended(txn, "a")

    def _commit(self, txn: Txn) -> None:
        self._ended(txn, "c")
        txn.committed = self.now

    def _ended(self, txn: Txn, state: str) -> None:
        self.now += 1
        txn.state = state
        del self.open[txn.id]
        for lock in [queued for queued in self.queue if queued.txn == txn.id]:
            if state == "a" and lock.publishes and lock.granted:
                continue  # until its output is gone (P46)
            if lock in self.queue:
                self.queue.remove(lock)
                if not lock.granted and not self.parked_answers.get(lock.request_id):
                    self.parked_answers[lock.request_id] = "TxnAborted"
