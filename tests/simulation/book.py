"""What the model remembers, and what snapshots must see of it (S rules, P5)."""

from __future__ import annotations

from collections import Counter

from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from tests.simulation.claims import Json, claim, expect, full, value
from tests.simulation.lookers import Looker
from tests.simulation.rules import CHANGES, ROWS_OF_AN_INSERT, Entity, Lock, Rows, Table, Txn

Touched = tuple[int, str | None, str]
"""Table id, partition, operation."""


class Book:
    """Everything that has happened, and what a snapshot sees of it."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.timeout = 300_000
        """`hive.txn.timeout` in milliseconds; at first its default."""
        self.longer, self.shortened = 0, -1
        """An earlier timeout that clients may still count on, and when the shorter one was set."""
        self.interval = int(settings["hive.timedout.txn.reaper.interval"].rstrip("s")) * 1000
        self.delay = int(settings["hive.timedout.txn.reaper.start"].rstrip("s")) * 1000
        self.lease = int(settings["acid.read.lease.max"].rstrip("s")) * 1000
        self.exclusive_writes = settings["hive.txn.xlock.write"] == "true"
        self.by_row = settings["acid.conflict.detection"] == "row"
        self.forgetful = int(settings["acid.conflict.memory.bytes"]) < 1000
        """Whether rows of old commits are forgotten, so that these conflict by partition (P38)."""
        self.row_conflicts: Counter[str] = Counter()
        """Commits that conflict by partition: how many conflict, and how many are spared (P38)."""
        self.lookers: list[Looker] = []
        """What committed transactions looked for and brought (P51)."""
        self.everyone_holds = settings["acid.cleaner.watermark"] == "global"
        self.now = 1
        self.txns: dict[int, Txn] = {}
        self.open: dict[int, Txn] = {}
        self.queue: list[Lock] = []
        self.tables: dict[int, Table] = {}
        self.names: dict[str, int] = {}
        self.entities: dict[tuple[int, str | None], Entity] = {}
        self.compacted: dict[int, int] = {}
        """Rows of the compaction queue that wait for cleaning, with the time of their commit."""
        self.working: dict[int, tuple[str, int, int]] = {}
        """Rows that a Worker has taken: worker, attempt, transaction."""
        self.busy: dict[int, tuple[int, str | None]] = {}
        """The entities that these rows compact."""
        self.cleaning: dict[tuple[int, str | None], int] = {}
        """The entities that a Cleaner works on, and since when."""
        self.tagged: dict[tuple[int, str], Txn] = {}
        """A reader of the moment of each tag, by table and name (P36)."""
        self.ended: set[int] = set()
        """The tables of which the history of a partition was ended."""
        self.answers: dict[str, Json] = {}
        self.parked_answers: dict[str, str] = {}
        self.started = self.reaped = self.lists = self.last_ext = 0

    @property
    def last_txn(self) -> int:
        return len(self.txns)

    # --- what is seen -----------------------------------------------------------------------

    def on_valid_write_ids(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("P12", args["txn"], own)
        if txn is None:
            return
        table = self.seen(txn, args["table"])
        if table is None:
            expect("P12", own, "NoSuchTable")
            return
        if not self._may_read(txn, table):
            expect("P11", own, "SnapshotExpired")
            return
        answer = value("P12", own)
        if not txn.all_tables:
            txn.needs.setdefault(full(args["table"]), table.id)
        self._snapshot(txn)
        txn.read = clock
        self._check_list(txn, table, answer["list"])

    def _check_grant(self, answer: Json) -> None:
        """Checks the snapshot and the write ids that a client got with its locks."""
        txn = self.txns[answer["txn"]]
        listed = ValidTxnList.parse(answer["valid_txns"])
        claim("S2", listed.high_watermark == txn.id, listed, txn)
        claim(
            "S1 S2 S4",
            frozenset(listed.open) == txn.unseen,
            txn,
            "excepts as open",
            listed.open,
            "not",
            txn.unseen,
        )
        for aborted_id in listed.aborted:
            claim(
                "S1",
                self.txns[aborted_id].state == "a" and aborted_id < txn.id,
                txn,
                "excepts",
                aborted_id,
            )
        expected = {
            self.tables[table_id].name: write_id
            for table_id, write_id in txn.write_ids.items()
            if not self.tables[table_id].dropped
        }
        claim("P6", answer["write_ids"] == expected, answer["write_ids"], expected)
        self._check_stale(txn, answer)
        for name, text in answer["lists"].items():
            self._check_list(txn, self.tables[txn.needs[name]], text)

    def _check_list(self, txn: Txn, table: Table, text: str) -> None:
        """What the snapshot sees as committed is valid (P5); what it does not see is not valid."""
        listed = ValidWriteIdList.parse(text)
        self.lists += 1
        every = list(table.owners.items())
        # All of them occasionally, otherwise the last ones, where lists differ.
        for write_id, owner in every if self.lists % 8 == 0 else every[-40:]:
            if owner == txn.id:
                continue
            other, valid = self.txns[owner], listed.is_valid(write_id)
            if other.state == "c":
                claim(
                    "P5 S8 S9",
                    valid == self.sees(txn, other),
                    text,
                    "of",
                    txn,
                    "for write id",
                    write_id,
                    "of",
                    other,
                )
            elif other.state == "o":
                claim("S8", not valid, text, "of", txn, "for open write id", write_id, "of", other)

    def conflict(
        self, txn: Txn, touched: set[Touched], changed: dict[Touched, Rows] | None = None
    ) -> str:
        """First committer wins: no commit replaces what its snapshot misses (T31, P6, P30, P38)."""
        for table_id, partition, operation in touched:
            write_id = txn.write_ids.get(table_id, 0)
            for other in self.entity(table_id, partition).claims:
                seen = self.sees(txn, self.txns[other.txn])
                if seen and self.exclusive_writes:
                    continue
                if operation == "o":
                    if not seen:
                        return f"{other.txn} wrote {partition}, and the snapshot misses it"
                    continue
                if other.operation == "o" and write_id < other.write_id:
                    return f"below the overwrite of {other.txn}"
                rows = (changed or {}).get((table_id, partition, operation))
                if rows is not None and other.rows is not None and not rows & other.rows:
                    continue
                changes = operation in CHANGES and other.operation in CHANGES
                if changes and other.committed > txn.opened:
                    return f"{other.txn} changed {partition} meanwhile"
        return ""

    def _check_stale(self, txn: Txn, answer: Json) -> None:
        """With its lock a transaction learns whether its snapshot misses too much (T40, P30)."""
        held = [lock for lock in self.queue if lock.txn == txn.id]
        touches = held[-1].touches if held else []
        touched = {
            (touched.table_id, partition, touched.operation)
            for touched in touches
            for partition in (
                [touched.partition]
                if not touched.dynamic
                else [
                    name for table_id, name in list(self.entities) if table_id == touched.table_id
                ]
            )
        }
        reason = self.conflict(txn, touched)
        claim("T40", answer["stale"] == bool(reason), txn, answer, reason)
        sure = {
            (touched.table_id, touched.partition, touched.operation)
            for touched in touches
            if touched.operation == "o" and not touched.dynamic
        }
        reason = self.conflict(txn, sure)
        claim("P30", bool(answer["lost_overwrite"]) == bool(reason), txn, answer, reason)

    def sees(self, txn: Txn, other: Txn) -> bool:
        return other.state == "c" and other.id < txn.id and other.committed < txn.snapshot

    def content(self, txn: Txn, table: Table, partition: str | None) -> set[tuple[int, int, bool]]:
        """What a read of the entity under this transaction's snapshot must find."""
        entity = self.entity(table.id, partition)
        low = max(
            (drop.up_to for drop in entity.drops if self.sees(txn, self.txns[drop.txn])), default=0
        )
        seen = [
            write
            for write in entity.writes
            if write.write_id > low and self.sees(txn, self.txns[write.txn])
        ]
        base = max((write.write_id for write in seen if write.overwrite), default=0)
        return {
            (write.write_id, write.txn, write.deletes) for write in seen if write.write_id >= base
        }

    def rows(self, txn: Txn, table: Table, partition: str | None) -> list[tuple[int, int]]:
        """The rows that a statement of this transaction can change: (write id, rowId)."""
        gone = self.entity(table.id, partition).gone
        return [
            (write_id, row)
            for write_id, _, deletes in sorted(self.content(txn, table, partition))
            if not deletes
            for row in range(ROWS_OF_AN_INSERT)
            if (write_id, row) not in gone or not self.sees(txn, self.txns[gone[write_id, row]])
        ]

    def entity(self, table_id: int, partition: str | None) -> Entity:
        return self.entities.setdefault((table_id, partition), Entity())

    def _table(self, name: str) -> Table | None:
        table_id = self.names.get(full(name))
        return None if table_id is None else self.tables[table_id]

    def _may_read(self, txn: Txn, table: Table) -> bool:
        asked = txn.all_tables or table.id in txn.needs.values()
        return asked or txn.id >= table.cleaned_up_to
