"""Compaction and cleaning as the model knows them (C and P21 rules)."""

from __future__ import annotations

from acid_platform.metastore.operations.compaction import DropCleaning
from tests.simulation.claims import Json, claim, expect, value
from tests.simulation.line import Line
from tests.simulation.rules import COMPACTION, Lock, Resource


class Upkeep(Line):
    """The running compactions and cleanings, and the transactions that a cleaning waits for."""

    def on_take_compaction(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        task = value("C26", own)["task"]
        if task is not None:
            entity = (task["table_id"], task["partition"])
            busy = {self.busy[compaction_id] for compaction_id in self.working}
            claim("C26 P21", task["id"] not in self.working and entity not in busy, task)
            claim("P21", not self._cleans(entity, clock), "a Cleaner is at work on", task)
            lock = self._lock_of(0, request_id, task)
            claim("C26", not self._blocked(lock, lock.resources[0]), "takes what is locked", task)
            self.busy[task["id"]] = entity
            self.working[task["id"]] = (task["worker"], task["attempt"], 0)

    def on_begin_compaction(
        self, request_id: str, args: Json, own: Json | None, clock: int
    ) -> None:
        if own is not None and own.get("error", [""])[0] == "CompactionLost":
            return
        self._owned("C28", args)
        txn = self._opened(COMPACTION, clock, False)
        if own is not None and "error" in own:
            expect("C28", own, "LockNotAcquired", "SnapshotExpired")
            self._abort(txn)
            self._settle()
            return
        answer = value("C28", own)
        claim("C28", answer["txn"] == txn.id and not answer["write_ids"], answer)
        task = answer["task"]
        lock = self._lock_of(txn.id, request_id, task)
        claim("C28", not self._blocked(lock, lock.resources[0]), "compacts what is locked", task)
        self._join(txn, lock)
        self._grant(lock)
        self.working[task["id"]] = (task["worker"], task["attempt"], txn.id)

    @staticmethod
    def _lock_of(txn: int, request_id: str, task: Json) -> Lock:
        """The lock with which a compaction begins."""
        db, short = task["table"].split(".")
        wanted = [Resource(db, short, task["partition"], "r")]
        tables = {task["table"]: task["table_id"]}
        return Lock(txn, request_id, False, wanted, [], tables, 0, 0)

    def on_request_publication(
        self, request_id: str, args: Json, own: Json | None, clock: int
    ) -> None:
        """The publication waits for other engines that read, and for other publications (P46)."""
        if own is not None and "error" in own:
            expect("P46", own, "CompactionLost", "TxnAborted", "NoSuchTxn", "LockTimeout")
            if own["error"][0] != "LockTimeout":
                return
        self._owned("P21", args)
        table_id, partition = self.busy[args["id"]]
        name = self.tables[table_id].name
        db, short = name.split(".")
        wait = round(args["wait"] * 1000)
        lock = Lock(
            args["txn"],
            request_id,
            False,
            [Resource(db, short, partition, "p")],
            [],
            {name: table_id},
            wait,
            clock + wait,
        )
        blocked = self._blocked(lock, lock.resources[0])
        if blocked and not wait:
            expect("P46", own, "LockTimeout")
            return
        self._stand_in_line(lock)
        if blocked:
            claim("P46", own is None, lock, "does not wait:", own)
        else:
            self._grant(lock)
            claim("P46", value("P46", own) == {"txn": lock.txn, "ext": lock.ext}, own, lock)

    def on_end_publication(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        lock = next((queued for queued in self.queue if queued.ext == args["ext"]), None)
        if lock is None:
            value("P46", own)
            return
        if not lock.publishes or lock.txn in self.open:
            expect("P46", own, "InvalidDefinition")
            return
        value("P46", own)
        self.queue.remove(lock)
        self._settle()

    def on_commit_compaction(
        self, request_id: str, args: Json, own: Json | None, clock: int
    ) -> None:
        if own is not None and "error" in own:
            expect("P21", own, "CompactionLost", "TxnAborted", "NoSuchTxn")
            return
        value("P21", own)
        self._owned("P21", args)
        txn = self.txns[args["txn"]]
        claim(
            "P2 P21",
            txn.state == "o" and self.working[args["id"]][2] == txn.id,
            f"compaction {args} published by {txn}",
        )
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
        for compaction_id in value("C25", own)["ids"]:
            _, _, txn_id = self.working.pop(compaction_id)
            if txn_id and self.txns[txn_id].state == "o":
                self._abort(self.txns[txn_id])
        self._settle()

    def _owned(self, rule: str, args: Json) -> None:
        owner = self.working.get(args["id"])
        claim(
            rule,
            owner is not None and owner[:2] == (args["worker"], args["attempt"]),
            f"{args} done for {owner}",
        )

    def on_start_cleaning(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        """No transaction opened before the commit may still need what is removed (C41, C42)."""
        if own is None or "error" in own:
            return
        task = own["value"]["task"]
        entity = (task["table_id"], task["partition"])
        claim(
            "P21",
            entity not in {self.busy[compaction_id] for compaction_id in self.working},
            "compacted:",
            task,
        )
        claim("P21", not self._cleans(entity, clock), "cleaned already:", task)
        self.cleaning[entity] = clock
        table = self.tables[task["table_id"]]
        is_drop = task["is"] == DropCleaning.__name__
        if task["id"] and not is_drop:
            moment = self.compacted[task["id"]]
        elif is_drop:
            drops = self.entity(task["table_id"], task["partition"]).drops
            moment = (
                table.dropped
                if task["partition"] is None
                else min(drop.committed for drop in drops if drop.up_to >= task["highest_write_id"])
            )
        else:
            moment = 0
        for txn in self.open.values():
            needs = self.everyone_holds or txn.all_tables or table.id in txn.needs.values()
            claim(
                "C41",
                not (txn.opened < moment and needs),
                "cleaning",
                task["id"],
                "starts while this opened before is open:",
                txn,
            )
        table.cleaned_up_to = max(table.cleaned_up_to, task["next_txn_id"])

    def _cleans(self, entity: tuple[int, str | None], clock: int) -> bool:
        """Whether a Cleaner works on it; a dead Cleaner counts for one timeout."""
        since = self.cleaning.get(entity)
        return since is not None and clock - since < self._patience(since)

    def on_mark_cleaned(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        if own is not None and "value" in own:
            self.cleaning.pop((args["table_id"], args["partition"]), None)

    on_cleaning_failed = on_mark_cleaned
