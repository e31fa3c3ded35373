"""Past snapshots and tags as the model knows them (P36)."""

from __future__ import annotations

from tests.simulation.claims import Json, claim, expect, value
from tests.simulation.rules import READ_ONLY, Txn
from tests.simulation.upkeep import Upkeep

_LAST = 1 << 40
"""Above every transaction id."""


class Pasts(Upkeep):
    """Which past snapshots must be answered, and the readers of then."""

    def on_past(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("P36", args["txn"], own)
        if txn is None:
            return
        table = self.seen(txn, args["table"])
        if table is None:
            expect("P36", own, "NoSuchTable")
            return
        if table.dropped:
            expect("P36", own, "NotEnoughHistory")
            return
        if not self._may_read(txn, table):
            expect("P11", own, "SnapshotExpired")
            return
        write_id, tag = args["as_of"]["write_id"], args["as_of"]["tag"]
        if tag is not None:
            if (table.id, tag) not in self.tagged:
                expect("P36", own, "NoSuchPast")
                return
            value("P36", own)
        else:
            owner = self.txns.get(table.owners.get(write_id, 0))
            forever = dict(table.declared[-1].properties).get("acid.history.retention") == "3650d"
            if owner is not None and owner.state == "c":
                # What committed while the table was dropped has changed nothing in it (P83).
                forever = forever and table.at(owner.committed) is not None
                if forever or (own is not None and "value" in own):
                    value("P36", own)
                else:
                    expect("P36", own, "NotEnoughHistory")
            elif write_id == table.floor and own is not None and "value" in own:
                pass
            else:
                expect("P36", own, "NoSuchPast", "NotEnoughHistory")
        if own is not None and "value" in own:
            txn.read = clock
            txn.needs.setdefault(table.name, table.id)

    def on_changes(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        """Those since the commit of a write id, up to the snapshot of the transaction (P39)."""
        txn = self._live("P39", args["txn"], own)
        if txn is None:
            return
        table = self.seen(txn, args["table"])
        if table is None:
            expect("P39", own, "NoSuchTable")
            return
        if table.dropped:
            expect("P39", own, "NotEnoughHistory")
            return
        if not self._may_read(txn, table):
            expect("P11", own, "SnapshotExpired")
            return
        owner = self.txns.get(table.owners.get(args["since"]["write_id"], 0))
        forever = dict(table.declared[-1].properties).get("acid.history.retention") == "3650d"
        if own is not None and "value" in own:
            claim("P39", owner is None or owner.state == "c", "changes since", owner)
            value("P39", own)
            txn.read = clock
            txn.needs.setdefault(table.name, table.id)
        elif owner is None or owner.state != "c" or owner.committed >= txn.snapshot:
            expect("P39", own, "NoSuchPast", "NotEnoughHistory", "InvalidDefinition")
        elif forever and table.id not in self.ended:
            expect("P39", own, "InvalidDefinition")  # a column of then is gone
        else:
            expect("P39", own, "NotEnoughHistory", "InvalidDefinition")

    def reader_after(self, table_id: int, write_id: int) -> Txn:
        """A reader whose snapshot sees exactly the commits up to that of the write id."""
        table = self.tables[table_id]
        owner = self.txns.get(table.owners.get(write_id, 0))
        claim("P36", owner is None or owner.state == "c", "a past after", owner)
        return self._reader_at(owner.committed if owner else table.declared[0].since)

    def reader_now(self) -> Txn:
        """A reader whose snapshot sees everything that is committed."""
        return self._reader_at(self.now)

    def _reader_at(self, moment: int) -> Txn:
        return Txn(_LAST, READ_ONLY, 0, 0, 0, 0, True, snapshot=moment + 1)

    def on_create_tag(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        table = self._table(args["table"])
        if table is None:
            expect("P36", own, "NoSuchTable")
            return
        value("P36", own)
        self.tagged[table.id, args["name"]] = self._reader_at(self.now)

    def on_end_history(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        table = self._table(args["table"])
        if table is None:
            expect("P36", own, "NoSuchTable")
            return
        value("P36", own)
        if args["partitions"]:
            self.ended.add(table.id)

    def on_drop_tag(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        table = self._table(args["table"])
        if table is not None and (table.id, args["name"]) in self.tagged:
            value("P36", own)
            del self.tagged[table.id, args["name"]]
        else:
            expect("P36", own, "NoSuchTable", "NoSuchPast")
