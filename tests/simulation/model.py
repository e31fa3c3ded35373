"""What the metastore has to answer: a plain second opinion, without the code under test.

`apply` is told each request with its answer, in the order in which they were decided, once they are
durable; it raises Broken when the answer is not the one that the rules ask for. Moments are counted
by `now`, one number per thing that happens, so that "overlaps" and "is seen" are what they mean and
not how ids are compared.
"""

from __future__ import annotations

from typing import Any

from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from tests.simulation.rules import (
    CHANGES,
    COMPACTION,
    DEFAULT,
    READ_ONLY,
    STRICTEST,
    WRITES,
    Claim,
    Drop,
    Entity,
    Lock,
    Resource,
    Table,
    Touch,
    Txn,
    Write,
    waits,
)

Json = dict[str, Any]


class Broken(AssertionError):
    """A rule does not hold."""


def claim(rule: str, holds: bool, *told: object) -> None:
    if not holds:
        raise Broken(f"{rule}: " + " ".join(map(str, told)))


class Model:
    def __init__(self, settings: dict[str, str]) -> None:
        self.timeout = int(settings["hive.txn.timeout"].rstrip("s")) * 1000
        self.interval = int(settings["hive.timedout.txn.reaper.interval"].rstrip("s")) * 1000
        self.delay = int(settings["hive.timedout.txn.reaper.start"].rstrip("s")) * 1000
        self.lease = int(settings["acid.read.lease.max"].rstrip("s")) * 1000
        self.exclusive_writes = settings["hive.txn.xlock.write"] == "true"
        self.everyone_holds = settings["acid.cleaner.watermark"] == "global"
        self.now = 1
        self.txns: dict[int, Txn] = {}
        self.open: dict[int, Txn] = {}
        self.queue: list[Lock] = []
        self.tables: dict[int, Table] = {}
        self.names: dict[str, int] = {}
        self.entities: dict[tuple[int, str | None], Entity] = {}
        self.compacted: dict[int, int] = {}
        """Rows of the compaction queue that wait for cleaning: when they were committed."""
        self.working: dict[int, tuple[str, int, int]] = {}
        """Rows that a Worker has: worker, attempt, transaction."""
        self.busy: dict[int, tuple[int, str | None]] = {}
        """What these rows compact."""
        self.cleaning: dict[tuple[int, str | None], int] = {}
        """What a Cleaner works on, since when by the clock."""
        self.answers: dict[str, Json] = {}
        self.parked_answers: dict[str, str] = {}
        self.started = self.reaped = self.lists = self.last_ext = 0

    @property
    def last_txn(self) -> int:
        return len(self.txns)

    # --- what comes in ----------------------------------------------------------------------

    def wake(self, clock: int) -> None:
        """P7: whoever is open gets one fresh timeout."""
        self.started, self.reaped = clock, 0
        for txn in self.open.values():
            txn.beat = txn.read = clock
        for lock in self.queue:
            lock.beat = clock

    def apply(
        self, request_id: str, op: str, args: Json, replies: dict[str, Json], clock: int,
        repeated: bool,
    ) -> None:
        """`repeated`: the request was sent again, and what it did is durable (P3)."""
        self.parked_answers = {}
        own = replies.pop(request_id, None)
        if repeated and op not in _REPEATED:
            before = self.answers.get(request_id)
            claim("P3", before is None or own is None or _same(before, own),
                  f"{request_id} was answered {before}, and then {own}")
        else:
            handler = getattr(self, f"on_{op}", None)
            if handler is not None:
                handler(request_id, args, own, clock)
            if own is not None:
                self.answers[request_id] = own
        self._parked(replies)

    def tick(self, clock: int, alive: frozenset[str], replies: dict[str, Json]) -> None:
        """Waits, leases, reaper, in this order."""
        self.parked_answers = {}
        for lock in self.queue:
            if not lock.granted and lock.request_id in alive:
                lock.beat = clock
                if lock.txn:
                    self.txns[lock.txn].beat = clock
        for lock in list(self.queue):
            if not lock.granted and lock.deadline <= clock:
                self._end_wait(lock, "LockTimeout")
        for txn in list(self.open.values()):
            if txn.kind == READ_ONLY and clock - txn.read > self.lease:
                self._abort(txn)
        if clock >= max(self.started + self.delay, self.reaped + self.interval):
            self.reaped = clock
            for txn in list(self.open.values()):
                if clock - txn.beat > self.timeout:
                    self._abort(txn)
            for lock in list(self.queue):
                if not lock.txn and clock - lock.beat > self.timeout:
                    self._gone(lock, "LockTimeout")
        self._settle()
        self._parked(replies)

    def _parked(self, replies: dict[str, Json]) -> None:
        """Exactly those who waited and need not any more are answered, each with the right thing.
        """
        told = {key: one["error"][0] if "error" in one else "granted"
                for key, one in replies.items()}
        claim("L2 L3", told == self.parked_answers, "answered", told, "not", self.parked_answers)
        for key, one in replies.items():
            self.answers[key] = one
            if "value" in one and one["value"]["txn"]:
                self._check_grant(one["value"])

    # --- transactions -----------------------------------------------------------------------

    def on_begin(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._opened(args["kind"], clock, args["tables"] is None)
        if args["locks"]:
            self._asked(txn, request_id, args, own, clock, begun=True)
            return
        missing = [one for one in args["tables"] or () if _full(one) not in self.names]
        if missing:
            _expect("T1", own, "NoSuchTable")
            self._abort(txn)
            return
        for one in args["tables"] or ():
            txn.needs[_full(one)] = self.names[_full(one)]
        self._snapshot(txn)
        self._check_grant(_value("T1", own))

    def on_open_batch(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        ids = _value("T1", own)["txns"]
        made = [self._opened(args["kind"], clock, False) for _ in range(args["count"])]
        for txn in made:
            self._snapshot(txn)
        claim("T1 T3", ids == [txn.id for txn in made], ids)

    def _opened(self, kind: int, clock: int, all_tables: bool) -> Txn:
        self.now += 1
        txn = Txn(self.last_txn + 1, kind, self.now, clock, clock, all_tables)
        self.txns[txn.id] = self.open[txn.id] = txn
        return txn

    def _snapshot(self, txn: Txn) -> None:
        if not txn.snapshot:
            self.now += 1
            txn.snapshot = self.now
            txn.unseen = frozenset(
                one.id for one in self.open.values() if one.kind != READ_ONLY and one.id < txn.id)

    def on_lock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("T7", args["txn"], own)
        if txn is not None:
            self._asked(txn, request_id, args, own, clock, begun=False)

    def _asked(
        self, txn: Txn, request_id: str, args: Json, own: Json | None, clock: int, *, begun: bool
    ) -> None:
        """L2, L3, L10, L11: granted, refused or made to wait."""
        refused = self._refused(txn, args["locks"])
        if refused is None:
            lock = self._lock(txn, request_id, args, clock, begun)
            blocked = next((one for one in lock.resources if self._blocked(lock, one)), None)
            zero_wait = args["zero_wait"]
            if zero_wait is None:
                zero_wait = not self.exclusive_writes
            if blocked is None:
                self._join(txn, lock)
                self._grant(lock)
                self._check_grant(_value("L2", own))
                return
            if zero_wait and blocked.lock == "r":
                refused = "LockNotAcquired"
            elif lock.deadline <= clock:
                refused = "LockTimeout"
            else:
                claim("L2 L3", own is None, f"{lock} does not wait: {own}")
                self._join(txn, lock)
                return
        _expect("L2 L10 L11 T17", own, refused)
        if begun:
            self._abort(txn)
            self._settle()

    def _refused(self, txn: Txn, requests: list[Json]) -> str | None:
        for one in requests:
            if one["table"].endswith(".*"):
                continue
            table = self._table(one["table"])
            if table is None:
                return "NoSuchTable"
            operation = one["operation"] or STRICTEST[one["lock"]]
            if operation in WRITES and txn.kind != DEFAULT:
                return "ReadOnlyTxn"
            if operation != "i" and one["lock"] != "e" and not self._may_read(txn, table):
                return "SnapshotExpired"
        return None

    def _lock(
        self, txn: Txn, request_id: str, args: Json, clock: int, begun: bool
    ) -> Lock:
        resources, touches, tables = [], [], {}
        for one in args["locks"]:
            if one["table"].endswith(".*"):
                resources.append(Resource(one["table"][:-2], None, None, one["lock"]))
                continue
            table = self._table(one["table"])
            assert table is not None
            tables[table.name] = table.id
            db, short = table.name.split(".")
            resources.append(Resource(db, short, one["partition"], one["lock"]))
            operation = one["operation"] or STRICTEST[one["lock"]]
            if operation in WRITES:
                dynamic = one["partition"] is None and (table.partitioned or one["dynamic"])
                touches.append(Touch(table.id, one["partition"], operation, dynamic))
        deadline = clock + round(args["wait"] * 1000)
        return Lock(txn.id, request_id, begun, resources, touches, tables, deadline)

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
        """By whoever came earlier, holding or waiting, but not by oneself (L2, L5)."""
        for other in self.queue:
            if other is lock:
                return False
            mine = 0 != other.txn == lock.txn
            if not mine and any(waits(asked, one) for one in other.resources):
                return True
        return False

    def _grant(self, lock: Lock) -> None:
        """P6: the write ids come now, in the order of the grants."""
        lock.granted = True
        if not lock.txn:
            return
        txn = self.txns[lock.txn]
        for touch in lock.touches:
            self._allocate(txn, self.tables[touch.table_id])
        txn.touches += lock.touches
        self._snapshot(txn)

    def _settle(self) -> None:
        """L2: nobody waits who could go on. L3: nobody goes on with a part of what he asked for."""
        for lock in list(self.queue):
            if lock.granted or lock not in self.queue:
                continue
            if any(self.names.get(name) != one for name, one in lock.tables.items()):
                self._end_wait(lock, "NoSuchTable")
            elif not any(self._blocked(lock, one) for one in lock.resources):
                self._grant(lock)
                self.parked_answers[lock.request_id] = "granted"

    def _end_wait(self, lock: Lock, error: str) -> None:
        self.queue.remove(lock)
        self.parked_answers[lock.request_id] = error
        if lock.begun:
            self._abort(self.txns[lock.txn])

    def on_lock_alone(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        nobody = Txn(0, READ_ONLY, 0, clock, clock, True)
        refused = self._refused(nobody, args["locks"])
        if refused is not None:
            _expect("T16", own, refused)
            return
        lock = self._lock(nobody, request_id, args, clock, False)
        lock.beat = clock
        blocked = any(self._blocked(lock, one) for one in lock.resources)
        if blocked and lock.deadline <= clock:
            _expect("L11 L16", own, "LockTimeout")
            return
        self._stand_in_line(lock)
        if blocked:
            claim("L16", own is None, lock, "does not wait:", own)
        else:
            self._grant(lock)
            claim("T16", _value("T16", own)["ext"] == lock.ext, own, lock)

    def on_heartbeat_lock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        lock = next((one for one in self.queue if one.ext == args["ext"] and not one.txn), None)
        if lock is None:
            _expect("L12", own, "NoSuchLock")
        else:
            _value("L12", own)
            lock.beat = clock

    def on_unlock(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        lock = next((one for one in self.queue if one.ext == args["ext"]), None)
        if lock is not None and lock.txn and lock.granted:
            _expect("L15", own, "InvalidDefinition")
            return
        _value("L15", own)
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

    def on_allocate(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("T17", args["txn"], own)
        if txn is None:
            return
        table = self._table(args["table"])
        if txn.kind != DEFAULT:
            _expect("T17", own, "ReadOnlyTxn")
        elif table is None:
            _expect("T17", own, "NoSuchTable")
        else:
            if table.id not in txn.write_ids and self._may_read(txn, table):
                txn.needs.setdefault(table.name, table.id)
            expected = self._allocate(txn, table)
            got = _value("T17", own)["write_id"]
            claim("T18 T19 T21", got == expected, f"write id {got} of {txn.id}, not {expected}")

    def on_heartbeat(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        answer = _value("T8", own)
        states = {one: self.txns[one].state if one in self.txns else "u" for one in args["txns"]}
        expected = [one for one in args["txns"] if states[one] == "a"]
        claim("T8", answer["aborted"] == expected, answer, states)
        unknown = [one for one in args["txns"] if states[one] in "uc"]
        claim("T8", answer["unknown"] == unknown, answer, states)
        for one in args["txns"]:
            if states[one] == "o":
                self.txns[one].beat = clock

    def on_heartbeat_one(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("T7", args["txn"], own)
        if txn is not None:
            _value("T7", own)
            txn.beat = clock
            if args["read"]:
                txn.read = clock

    def _live(self, rule: str, txn_id: int, own: Json | None) -> Txn | None:
        """The open transaction; for others the error must be right (T7, T10, T15)."""
        txn = self.txns.get(txn_id)
        if txn is not None and txn.state == "o":
            return txn
        if txn is None or txn.state == "c":
            _expect(rule, own, "NoSuchTxn")
        elif txn.kind == READ_ONLY:
            _expect(rule, own, "SnapshotExpired", "TxnAborted")
        else:
            _expect(rule, own, "TxnAborted")
        return None

    # --- ends -------------------------------------------------------------------------------

    def on_commit(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        known = self.txns.get(args["txn"])
        if known is not None and known.state == "c":
            claim("T10", _value("T10", own)["state"] == "c", own)
            return
        txn = self._live("T10", args["txn"], own)
        if txn is None:
            return
        placed = []
        touched = {(one.table_id, one.partition, one.operation)
                   for one in txn.touches if not one.dynamic}
        for report in args["writes"]:
            table = self._table(report["table"])
            assert table is not None
            operation = "u" if report["overwrite"] else report["operation"]
            touched.add((table.id, report["partition"], operation))
            placed.append((table, report))
        reason = self._conflict(txn, touched)
        if reason:
            _expect(f"T31 P6 ({reason})", own, "WriteConflict")
            self._abort(txn)
        else:
            claim("T31", _value("T31", own)["state"] == "c", own)
            self._commit(txn)
            for table, report in placed:
                entity = self.entity(table.id, report["partition"])
                entity.writes.append(Write(
                    txn.write_ids[table.id], txn.id, report["directory"].startswith("delete"),
                    report["overwrite"], txn.committed))
                if report["partition"] is not None:
                    table.partitions.add(report["partition"])
            overwritten = {(one.id, report["partition"]) for one, report in placed
                           if report["overwrite"]}
            for table_id, partition, operation in sorted(touched, key=str):
                if operation in CHANGES:
                    self.entity(table_id, partition).claims.append(Claim(
                        txn.id, txn.write_ids[table_id], (table_id, partition) in overwritten,
                        txn.committed))
        self._settle()

    def _conflict(self, txn: Txn, touched: set[tuple[int, str | None, str]]) -> str:
        """First committer wins: nobody overwrites what he has not seen (T31, P6)."""
        for table_id, partition, operation in touched:
            write_id = txn.write_ids[table_id]
            for other in self.entity(table_id, partition).claims:
                if self.exclusive_writes and self.sees(txn, self.txns[other.txn]):
                    continue
                if other.overwrite and write_id < other.write_id:
                    return f"below the overwrite of {other.txn}"
                if operation in CHANGES and other.committed > txn.opened:
                    return f"{other.txn} changed {partition} meanwhile"
        return ""

    def on_abort(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self.txns.get(args["txn"])
        if txn is None or txn.state == "c":
            _expect("T12", own, "NoSuchTxn")
            return
        claim("T12", _value("T12", own)["state"] == "a", own)
        if txn.state == "o":
            self._abort(txn)
            self._settle()

    def on_abort_many(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        live = [one for one in args["txns"] if one in self.open]
        claim("T12", _value("T12", own)["aborted"] == live, own, live)
        for one in live:
            self._abort(self.txns[one])
        self._settle()

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
        for lock in [one for one in self.queue if one.txn == txn.id]:
            if lock in self.queue:
                self.queue.remove(lock)
                if not lock.granted and not self.parked_answers.get(lock.request_id):
                    self.parked_answers[lock.request_id] = "TxnAborted"

    # --- tables -----------------------------------------------------------------------------

    def on_create_table(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        name = _full(args["table"]["name"])
        if name in self.names:
            _expect("create", own, "TableExists")
            return
        if own is not None and own.get("error", [""])[0] == "LockNotAcquired":
            return  # it is being removed
        record = _value("create", own)["table"]
        claim("P22", record["table_id"] == len(self.tables) + 1, record)
        self.tables[record["table_id"]] = Table(
            record["table_id"], name, record["location"], bool(record["partition_columns"]),
            record["floor"], record["floor"] + 1)
        self.names[name] = record["table_id"]

    def on_add_partitions(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        table = self._table(args["name"])
        if table is None:
            _expect("add partitions", own, "NoSuchTable")
            return
        new = [one for one in args["partitions"] if one not in table.partitions]
        claim("add partitions", _value("add partitions", own)["added"] == new, own)
        table.partitions.update(new)

    def on_drop(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("P22", args["txn"], own)
        if txn is None:
            return
        table, partition = self._table(args["name"]), args["partition"]
        if table is None:
            _expect("P22", own, "NoSuchTable")
            return
        if partition is not None and partition not in table.partitions:
            _expect("P22", own, "NoSuchPartition")
            return
        _value("P22", own)
        for one in list(self.working):
            if self.busy[one][0] == table.id and partition in (None, self.busy[one][1]):
                claim("C36", self.working[one][2] not in self.open, "dropped while compacted:", one)
                del self.working[one]
        if partition is None:
            table.dropped = self.now + 1
            del self.names[table.name]
        else:
            drop_id = self._allocate(txn, table)
            table.partitions.remove(partition)
        self._commit(txn)
        if partition is not None:
            entity = self.entity(table.id, partition)
            entity.drops.append(Drop(txn.id, txn.committed, drop_id))
            entity.claims = [Claim(txn.id, drop_id, True, txn.committed)]
        self._settle()

    # --- compaction and cleaning ------------------------------------------------------------

    def on_take_compaction(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        task = _value("C26", own)["task"]
        if task is not None:
            entity = (task["table_id"], task["partition"])
            busy = {self.busy[one] for one in self.working}
            claim("C26 P21", task["id"] not in self.working and entity not in busy, task)
            claim("P21", not self._cleans(entity, clock), "a Cleaner is at work on", task)
            self.busy[task["id"]] = entity
            self.working[task["id"]] = (task["worker"], task["attempt"], 0)

    def on_begin_compaction(self, request_id: str, args: Json, own: Json | None, clock: int
                            ) -> None:
        if own is not None and own.get("error", [""])[0] == "CompactionLost":
            return
        self._owned("C28", args)
        txn = self._opened(COMPACTION, clock, False)
        if own is not None and "error" in own:
            _expect("C28", own, "LockNotAcquired", "SnapshotExpired")
            self._abort(txn)
            self._settle()
            return
        answer = _value("C28", own)
        claim("C28", answer["txn"] == txn.id and not answer["write_ids"], answer)
        task = answer["task"]
        db, short = task["table"].split(".")
        lock = Lock(txn.id, request_id, False, [Resource(db, short, task["partition"], "r")], [],
                    {task["table"]: task["table_id"]}, 0)
        claim("C28", not self._blocked(lock, lock.resources[0]), "compacts what is locked", task)
        self._join(txn, lock)
        self._grant(lock)
        self.working[task["id"]] = (task["worker"], task["attempt"], txn.id)

    def on_commit_compaction(self, request_id: str, args: Json, own: Json | None, clock: int
                             ) -> None:
        if own is not None and "error" in own:
            _expect("P21", own, "CompactionLost", "TxnAborted", "NoSuchTxn")
            return
        _value("P21", own)
        self._owned("P21", args)
        txn = self.txns[args["txn"]]
        claim("P2 P21", txn.state == "o" and self.working[args["id"]][2] == txn.id,
              f"compaction {args} published by {txn}")
        del self.working[args["id"]]
        self._commit(txn)
        self.compacted[args["id"]] = txn.committed
        self._settle()

    def on_fail_compaction(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self.txns.get(args["txn"] or 0)
        if txn is not None and txn.state == "o":
            self._abort(txn)
            self._settle()
        if own is not None and "value" in own:
            self._owned("C32", args)
            del self.working[args["id"]]

    def on_revoke_workers(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        for one in _value("C25", own)["ids"]:
            _, _, txn_id = self.working.pop(one)
            if txn_id and self.txns[txn_id].state == "o":
                self._abort(self.txns[txn_id])
        self._settle()

    def _owned(self, rule: str, args: Json) -> None:
        owner = self.working.get(args["id"])
        claim(rule, owner is not None and owner[:2] == (args["worker"], args["attempt"]),
              f"{args} done for {owner}")

    def on_start_cleaning(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        """C41, C42: nobody who opened before the commit may still need what goes."""
        if own is None or "error" in own:
            return
        task = own["value"]["task"]
        entity = (task["table_id"], task["partition"])
        claim("P21", entity not in {self.busy[one] for one in self.working}, "compacted:", task)
        claim("P21", not self._cleans(entity, clock), "cleaned already:", task)
        self.cleaning[entity] = clock
        table = self.tables[task["table_id"]]
        if task["kind"] == "compaction":
            moment = self.compacted[task["id"]]
        elif task["kind"] == "drop":
            drops = self.entity(task["table_id"], task["partition"]).drops
            moment = table.dropped if task["partition"] is None else min(
                one.committed for one in drops if one.up_to >= task["highest_write_id"])
        else:
            moment = 0
        for txn in self.open.values():
            needs = self.everyone_holds or txn.all_tables or table.id in txn.needs.values()
            claim("C41", not (txn.opened < moment and needs),
                  "cleaning", task["id"], "starts while this opened before is open:", txn)
        table.cleaned_up_to = max(table.cleaned_up_to, task["next_txn_id"])

    def _cleans(self, entity: tuple[int, str | None], clock: int) -> bool:
        """A Cleaner that died is waited for one timeout."""
        return entity in self.cleaning and clock - self.cleaning[entity] < self.timeout

    def on_mark_cleaned(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        if own is not None and "value" in own:
            self.cleaning.pop((args["table_id"], args["partition"]), None)

    on_cleaning_failed = on_mark_cleaned

    # --- what is seen -----------------------------------------------------------------------

    def on_valid_write_ids(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("P12", args["txn"], own)
        if txn is None:
            return
        table = self._table(args["table"])
        if table is None:
            _expect("P12", own, "NoSuchTable")
            return
        if not self._may_read(txn, table):
            _expect("P11", own, "SnapshotExpired")
            return
        answer = _value("P12", own)
        if not txn.all_tables:
            txn.needs.setdefault(table.name, table.id)
        self._snapshot(txn)
        txn.read = clock
        claim("S2", answer["write_id"] == txn.write_ids.get(table.id), answer)
        self._check_list(txn, table, answer["list"])

    def _check_grant(self, answer: Json) -> None:
        """The snapshot and the write ids that a client got with its locks."""
        txn = self.txns[answer["txn"]]
        listed = ValidTxnList.parse(answer["valid_txns"])
        claim("S2", listed.high_watermark == txn.id, listed, txn)
        claim("S1 S2 S4", frozenset(listed.open) == txn.unseen,
              txn, "excepts as open", listed.open, "not", txn.unseen)
        for one in listed.aborted:
            claim("S1", self.txns[one].state == "a" and one < txn.id, txn, "excepts", one)
        expected = {self.tables[one].name: write_id for one, write_id in txn.write_ids.items()
                    if not self.tables[one].dropped}
        claim("P6", answer["write_ids"] == expected, answer["write_ids"], expected)
        for name, text in answer["lists"].items():
            self._check_list(txn, self.tables[txn.needs[name]], text)

    def _check_list(self, txn: Txn, table: Table, text: str) -> None:
        """P5: what is committed and seen is valid. Isolation: what is not seen is not valid."""
        listed = ValidWriteIdList.parse(text)
        self.lists += 1
        every = list(table.owners.items())
        # All of them now and then; the last ones are where lists differ.
        for write_id, owner in every if self.lists % 8 == 0 else every[-40:]:
            if owner == txn.id:
                continue
            other, valid = self.txns[owner], listed.is_valid(write_id)
            if other.state == "c":
                claim("P5 S8 S9", valid == self.sees(txn, other),
                      text, "of", txn, "for write id", write_id, "of", other)
            elif other.state == "o":
                claim("S8", not valid, text, "of", txn, "for open write id", write_id, "of", other)

    def sees(self, txn: Txn, other: Txn) -> bool:
        return other.state == "c" and other.id < txn.id and other.committed < txn.snapshot

    def content(self, txn: Txn, table: Table, partition: str | None) -> set[tuple[int, int, bool]]:
        """What a read of the entity under this transaction's snapshot has to find."""
        entity = self.entity(table.id, partition)
        low = max((one.up_to for one in entity.drops if self.sees(txn, self.txns[one.txn])),
                  default=0)
        seen = [one for one in entity.writes
                if one.write_id > low and self.sees(txn, self.txns[one.txn])]
        base = max((one.write_id for one in seen if one.overwrite), default=0)
        return {(one.write_id, one.txn, one.deletes) for one in seen if one.write_id >= base}

    def entity(self, table_id: int, partition: str | None) -> Entity:
        return self.entities.setdefault((table_id, partition), Entity())

    def _table(self, name: str) -> Table | None:
        table_id = self.names.get(_full(name))
        return None if table_id is None else self.tables[table_id]

    def _may_read(self, txn: Txn, table: Table) -> bool:
        asked = txn.all_tables or table.id in txn.needs.values()
        return asked or txn.id >= table.cleaned_up_to


_REPEATED = (
    "heartbeat_lock", "heartbeat", "heartbeat_one", "valid_write_ids", "allocate", "txn_states",
    "cleaning",
)


def _full(name: str) -> str:
    return name if "." in name else f"default.{name}"


def _value(rule: str, own: Json | None) -> Json:
    claim(rule, own is not None and "value" in own, "answered", own)
    assert own is not None
    value: Json = own["value"]
    return value


def _expect(rule: str, own: Json | None, *errors: str) -> None:
    got = None if own is None else own.get("error", ["value"])[0]
    claim(rule, got in errors, "answered", own, "not", errors)


def _same(one: Json, other: Json) -> bool:
    """Answers that are made whole when they are given change with the state; their kind does not.
    """
    if "error" in one or "error" in other:
        return True
    return bool(one["value"].get("txn") == other["value"].get("txn"))
