"""The model of the metastore: it predicts the answers without the code under test.

`apply` gets each request with its answer, in the order in which they were decided, once they are
durable. It raises Broken if the rules require another answer. Moments are counted by `now`, one
number for each thing that happens, so that "overlaps" and "is seen" are defined by what happened
and not by comparing ids.
"""

from __future__ import annotations

from tests.simulation.book import Touched
from tests.simulation.claims import Json, claim, expect, full, value
from tests.simulation.lookers import Looker, Regions, regions_of
from tests.simulation.pasts import Pasts
from tests.simulation.rules import CHANGES, READ_ONLY, Claim, Drop, Rows, Txn, Write


class Model(Pasts):
    """The whole model: requests, and how transactions end."""

    # --- what comes in ----------------------------------------------------------------------

    def wake(self, clock: int) -> None:
        """Open transactions, waiting requests and cleanings get a whole timeout again (P7)."""
        self.started, self.reaped, self.shortened = clock, -self.interval, clock
        for txn in self.open.values():
            txn.beat = txn.read = clock
        for lock in self.queue:
            lock.beat, lock.deadline = clock, clock + lock.wait
        self.cleaning = dict.fromkeys(self.cleaning, clock)

    def apply(
        self,
        request_id: str,
        op: str,
        args: Json,
        replies: dict[str, Json],
        clock: int,
        repeated: bool,
    ) -> None:
        """`repeated`: the request was sent again, and what it did is durable (P3)."""
        self.parked_answers = {}
        own = replies.pop(request_id, None)
        if repeated and op not in _REPEATED:
            before = self.answers.get(request_id)
            claim(
                "P3",
                before is None or own is None or _same(before, own),
                f"{request_id} was answered {before}, and then {own}",
            )
        else:
            handler = getattr(self, f"on_{op}", None)
            if handler is not None:
                handler(request_id, args, own, clock)
            if own is not None:
                self.answers[request_id] = own
        self._parked(replies)

    def tick(self, clock: int, alive: frozenset[str], replies: dict[str, Json]) -> None:
        """Ends waits and leases, and reaps, in this order."""
        self.parked_answers = {}
        for lock in self.queue:
            if not lock.granted and lock.request_id in alive:
                lock.beat = clock
                if lock.txn:
                    self._heard(self.txns[lock.txn], clock)
        for lock in list(self.queue):
            if not lock.granted and lock.deadline <= clock:
                self._end_wait(lock, "LockTimeout")
        for txn in list(self.open.values()):
            if txn.kind == READ_ONLY and clock - txn.read > self.lease:
                self._abort(txn)
        if clock >= max(self.started + self.delay, self.reaped + self.interval):
            self.reaped = clock
            for txn in list(self.open.values()):
                if clock - txn.beat > self._patience(txn.beat):
                    claim("P29", clock - txn.beat > txn.told, txn, "knows of no shorter timeout")
                    self._abort(txn)
            for lock in list(self.queue):
                if not lock.txn and clock - lock.beat > self._patience(lock.beat):
                    self._gone(lock, "LockTimeout")
            if clock - self.shortened > self.longer:
                self.longer = 0
        self._settle()
        self._parked(replies)

    def _parked(self, replies: dict[str, Json]) -> None:
        """Exactly the requests that need not wait any more are answered, and answered right."""
        told = {
            key: reply["error"][0] if "error" in reply else "granted"
            for key, reply in replies.items()
        }
        claim("L2 L3", told == self.parked_answers, "answered", told, "not", self.parked_answers)
        for key, reply in replies.items():
            self.answers[key] = reply
            if "value" in reply and "valid_txns" in reply["value"]:
                self._check_grant(reply["value"])

    # --- ends -------------------------------------------------------------------------------

    def on_commit(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        known = self.txns.get(args["txn"])
        if known is not None and known.state == "c":
            claim("T10", "commit_id" in value("T10", own), own)
            return
        txn = self._live("T10", args["txn"], own)
        if txn is None:
            return
        placed = []
        made = {
            (self.names[full(write["table"])], write["partition"])
            for write in args["writes"]
            if write["overwrite"] and full(write["table"]) in self.names
        }
        touched = set()
        for touch in txn.touches:
            if not touch.dynamic:
                # A locked overwrite that did not happen counts as an update (T38).
                unmade = touch.operation == "o" and (touch.table_id, touch.partition) not in made
                touched.add((touch.table_id, touch.partition, "u" if unmade else touch.operation))
        refused = self._refused_writes(txn, args["writes"]) or self._refused_columns(
            txn, args.get("columns", {})
        )
        if refused:
            expect("P6 P28", own, refused)
            self._abort(txn)
            self._settle()
            return
        claims = {touched_by for touched_by in touched if touched_by[2] in CHANGES}
        for report in args["writes"]:
            table = self._table(report["table"])
            assert table is not None
            operation = "o" if report["overwrite"] else report["operation"]
            touched.add((table.id, report["partition"], operation))
            claims.add((table.id, report["partition"], operation))
            placed.append((table, report))
        changed = self._changed(txn, args.get("changed", []))
        reason = self.conflict(txn, touched, changed)
        if self.conflict(txn, touched):
            self.row_conflicts["conflicts" if reason else "spared"] += 1
        regions = self._regions(txn, args)
        reason = reason or self._skewed(txn, regions)
        if not reason and self.forgetful and own is not None and "error" in own:
            # Rows of older commits may be forgotten (P38), and what they looked for (P51).
            reason = self.conflict(txn, touched) or self._skewed(txn, regions, False)
        if reason:
            expect(f"T31 P6 P38 P51 ({reason})", own, "WriteConflict")
            self._abort(txn)
        else:
            claim("T31", "commit_id" in value("T31", own), own)
            for name, added in args.get("columns", {}).items():
                self._widen(self.tables[self.names[full(name)]], added)
            self._commit(txn)
            for table, report in placed:
                entity = self.entity(table.id, report["partition"])
                entity.writes.append(
                    Write(
                        txn.write_ids[table.id],
                        txn.id,
                        report["directory"].startswith("delete"),
                        report["overwrite"],
                        txn.committed,
                    )
                )
                if report["partition"] is not None:
                    self._register(table, [report["partition"]], txn.committed)
            if regions.sought and regions.inserted:
                self.lookers.append(Looker(txn.id, txn.committed, regions))
            for place in sorted(claims, key=str):
                table_id, partition, operation = place
                rows = changed.get(place)
                self.entity(table_id, partition).claims.append(
                    Claim(txn.id, txn.write_ids[table_id], operation, txn.committed, rows)
                )
                self._replace(txn, place, rows or frozenset())
        self._settle()

    def _changed(self, txn: Txn, reports: list[Json]) -> dict[Touched, Rows]:
        """The rows that a commit names; those of a table that others changed do not count."""
        return {
            (self.names[full(report["table"])], report["partition"], report["operation"]): rows_in(
                report["rows"]
            )
            for report in reports
            if self.by_row and not self._refused_change(txn, report["table"])
        }

    def _regions(self, txn: Txn, args: Json) -> Regions:
        """The keys that a commit names, but for tables that others changed."""
        return regions_of(
            {
                side: [
                    (self.names[full(report["table"])], report["region"])
                    for report in args.get(side, ())
                    if not self._refused_change(txn, report["table"])
                ]
                for side in ("sought", "inserted")
            }
        )

    def _skewed(self, txn: Txn, regions: Regions, told: bool = True) -> str:
        """Somebody whom the snapshot misses has brought what it looked for, and looked for what it
        brings (P51). `told`: the keys are known, not only the tables."""
        if not regions.sought or not regions.inserted:
            return ""
        for other in self.lookers:
            if other.committed > txn.opened and not self.sees(txn, self.txns[other.txn]):
                theirs = other.regions
                if regions.missed(theirs, told) and theirs.missed(regions, told):
                    self.row_conflicts["skewed"] += 1
                    return f"{other.txn} and it have each brought what the other looked for"
                self.row_conflicts["not skewed"] += 1
        return ""

    def _replace(self, txn: Txn, place: Touched, rows: Rows) -> None:
        """Every row is changed once: there is no lost update, and no row becomes two (P38)."""
        gone = self.entity(*place[:2]).gone
        for row in rows:
            claim("P38", row not in gone, txn, "changes", row, "again, after", gone.get(row))
            gone[row] = txn.id

    def _refused_writes(self, txn: Txn, reports: list[Json]) -> str | None:
        changed = (self._refused_change(txn, report["table"]) for report in reports)
        refused = next((error for error in changed if error), None)
        if refused:
            return refused
        places = [(full(report["table"]), report["partition"]) for report in reports]
        again = any(
            report["overwrite"] and places.count(place) > 1
            for report, place in zip(reports, places, strict=True)
        )
        return "OverwriteThenWrite" if again else None

    def _refused_columns(self, txn: Txn, columns: dict[str, list[list[str]]]) -> str | None:
        for name, added in columns.items():
            changed = self._refused_change(txn, name)
            if changed:
                return changed
            known = dict(self.tables[self.names[full(name)]].columns)
            if any(known.get(column, kind) != kind for column, kind in added):
                return "DeclarationChanged"
        return None

    def on_abort(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self.txns.get(args["txn"])
        if txn is None or txn.state == "c":
            expect("T12", own, "NoSuchTxn")
            return
        claim("T12", value("T12", own) == {}, own)
        if txn.state == "o":
            self._abort(txn)
            self._settle()

    def on_abort_many(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        live = [txn_id for txn_id in args["txns"] if txn_id in self.open]
        claim("T12", value("T12", own)["aborted"] == live, own, live)
        for txn_id in live:
            self._abort(self.txns[txn_id])
        self._settle()

    # --- tables -----------------------------------------------------------------------------

    def on_drop(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("P22", args["txn"], own)
        if txn is None:
            return
        table, partition = self._table(args["name"]), args["partition"]
        if table is None:
            expect("P22", own, "NoSuchTable")
            return
        if partition is not None and partition not in table.partitions:
            expect("P22", own, "NoSuchPartition")
            return
        value("P22", own)
        for compaction_id in list(self.working):
            if self.busy[compaction_id][0] == table.id and partition in (
                None,
                self.busy[compaction_id][1],
            ):
                claim(
                    "C36",
                    self.working[compaction_id][2] not in self.open,
                    "dropped while compacted:",
                    compaction_id,
                )
                del self.working[compaction_id]
        if partition is None:
            table.dropped = self.now + 1
            del self.names[table.name]
            self._forget_publications(table.id)
        else:
            drop_id = self._allocate(txn, table)
        self._commit(txn)
        if partition is not None:
            self._unregister(table, partition, txn.committed)
            entity = self.entity(table.id, partition)
            entity.drops.append(Drop(txn.id, txn.committed, drop_id))
            entity.claims = [Claim(txn.id, drop_id, "o", txn.committed)]
        self._settle()


def rows_in(text: str) -> Rows:
    """The rows of a set that a simulated writer sent: single rows of one bucket."""
    found = set()
    for group in text.partition("@")[2].split(";") if text else ():
        write_id, _, steps = group.partition(":")
        row = 0
        for step in steps.split(","):
            row += int(step)
            found.add((int(write_id), row))
    return frozenset(found)


_REPEATED = (
    "heartbeat_lock",
    "heartbeat",
    "heartbeat_one",
    "valid_write_ids",
    "txn_states",
    "cleaning",
    "table",
    "partitions",
    "past",
    "changes",
    "check_lock",
    "unpublished",
)


def _same(one: Json, other: Json) -> bool:
    """Expanded answers change with the state, but an error stays an error."""
    if "error" in one or "error" in other:
        return True
    return bool(one["value"].get("txn") == other["value"].get("txn"))
