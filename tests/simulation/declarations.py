"""Declarations as the model knows them: each is valid from one moment to another (P28)."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.book import Book
from tests.simulation.claims import Json, claim, expect, full, value
from tests.simulation.rules import DEFAULT, Declared, PartitionLife, Table, Txn


class Declarations(Book):
    """The declarations of tables, columns, properties and partitions, and who sees which."""

    # --- what a snapshot sees ---------------------------------------------------------------

    def on_table(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = None
        if args.get("txn"):
            txn = self._live("P28", args["txn"], own)
            if txn is None:
                return
        table = self.seen(txn, args["name"])
        if table is None:
            expect("P28", own, "NoSuchTable")
            return
        record = value("P28", own)["table"]
        if txn is None and record["version"] not in table.outdated:
            table.version = record["version"]
        declared = self._declared(txn, table)
        got = (
            record["table_id"],
            record["name"],
            record["location"],
            tuple(map(tuple, record["columns"])),
            tuple(sorted(record["properties"].items())),
        )
        expected = (table.id, declared.name, table.location, declared.columns, declared.properties)
        claim("P28", got == expected, txn, "sees", got, "not", expected)

    def on_partitions(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        txn = self._live("P28", args["txn"], own)
        if txn is None:
            return
        table = self.seen(txn, args["name"])
        if table is None:
            expect("P28", own, "NoSuchTable")
            return
        got = {partition["name"] for partition in value("P28", own)["partitions"]}
        expected = self.partitions_of(txn, table)
        claim("P28", got == expected, txn, "sees partitions", got, "not", expected)

    def partitions_of(self, txn: Txn, table: Table) -> set[str]:
        if not txn.snapshot or table.at(txn.snapshot) is None:
            return table.partitions
        return table.partitions_at(txn.snapshot)

    def _declared(self, txn: Txn | None, table: Table) -> Declared:
        seen = table.at(txn.snapshot) if txn is not None and txn.snapshot else None
        return seen or table.declared[-1]

    def seen(self, txn: Txn | None, name: str) -> Table | None:
        """The table that the name means to it; a writer may have created it after its snapshot."""
        now = self._table(name)
        if txn is None or not txn.snapshot:
            return now
        for table in self.tables.values():
            declared = table.at(txn.snapshot)
            if declared is not None and declared.name == full(name):
                return table
        later = now is not None and now.at(txn.snapshot) is None
        return now if later and txn.kind == DEFAULT else None

    def _refused_change(self, txn: Txn, name: str, columns: bool = True) -> str | None:
        """Why it may not lock or write the table: others have changed it since its snapshot."""
        if not txn.snapshot:
            return None if self._table(name) is not None else "NoSuchTable"
        table = self.seen(txn, name)
        if table is None:
            return "NoSuchTable"
        seen = self._declared(txn, table)
        gone = table.dropped or any(txn.snapshot <= dropped for dropped, _ in table.away)
        same = not gone and table.name == seen.name
        if not same or (columns and table.columns[: len(seen.columns)] != seen.columns):
            return "DeclarationChanged"
        return None

    # --- changes ----------------------------------------------------------------------------

    def on_create_table(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        name = full(args["table"]["name"])
        if name in self.names:
            expect("create", own, "TableExists")
            return
        if own is not None and own.get("error", [""])[0] == "LockNotAcquired":
            return  # it is being removed
        location = args["table"]["location"]
        if any(self.tables[table_id].location == location for table_id in self.names.values()):
            expect("create", own, "InvalidDefinition")
            return
        record = value("create", own)["table"]
        claim("P22", record["table_id"] == len(self.tables) + 1, record)
        self.now += 1
        columns = tuple((column, kind) for column, kind in record["columns"])
        self.tables[record["table_id"]] = Table(
            record["table_id"],
            record["location"],
            bool(record["partition_columns"]),
            record["floor"],
            record["floor"] + 1,
            [Declared(self.now, name, columns, tuple(sorted(record["properties"].items())))],
            record["version"],
        )
        self.names[name] = record["table_id"]

    def on_alter_table(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        table = self._table(args["name"])
        if table is None:
            expect("P28", own, "NoSuchTable")
            return
        if args["read"] is not None and (
            args["read"][0] != table.id or args["read"][1] in table.outdated
        ):
            expect("P28", own, "DeclarationChanged")
            return
        old = table.declared[-1]
        name = full(args["rename"]) if args["rename"] else old.name
        if args["rename"] and name in self.names:
            expect("P28", own, "TableExists")
            return
        columns = tuple((column, kind) for column, kind in args["columns"] or old.columns)
        properties = tuple(sorted({**dict(old.properties), **(args["properties"] or {})}.items()))
        self._alter(table, name, columns, properties)
        record = value("P28", own)["table"]
        table.version = record["version"]
        claim("P28", tuple(map(tuple, record["columns"])) == columns, record, "has not", columns)
        self._settle()

    def _alter(
        self,
        table: Table,
        name: str,
        columns: tuple[tuple[str, str], ...],
        properties: tuple[tuple[str, str], ...],
    ) -> None:
        self.now += 1
        self._follow_rename(table.id, table.name, name)
        del self.names[table.name]
        table.outdated.add(table.version)
        table.declared.append(Declared(self.now, name, columns, properties))
        self.names[name] = table.id

    def on_undrop(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        """It may also be refused for its place, its files, or a writer of before the drop (P83)."""
        name = full(args["rename"] or args["table"])
        if name in self.names:
            expect("P83", own, "TableExists", "NoSuchTable")
            return
        if own is not None and own.get("error", [""])[0] in ("InvalidDefinition", "NoSuchTable"):
            return
        record = value("P83", own)["table"]
        table = self.tables[record["table_id"]]
        claim("P83", bool(table.dropped) and record["name"] == name, record, "was not dropped")
        self.now += 1
        table.away.append((table.dropped, self.now))
        table.dropped = 0
        old = table.declared[-1]
        table.outdated.add(table.version)
        table.declared.append(Declared(self.now, name, old.columns, old.properties))
        table.version, self.names[name] = record["version"], table.id
        for (table_id, _), entity in self.entities.items():
            if table_id == table.id:  # who has an older snapshot may write no more
                entity.claims = []

    def _follow_rename(self, table_id: int, old: str, new: str) -> None:
        """What is held is in the way under the new name too (P46)."""
        before, (db, short) = old.split("."), new.split(".")
        for lock in self.queue:
            if (lock.publishes or lock.granted) and lock.tables.get(old) == table_id:
                lock.tables = {new if name == old else name: i for name, i in lock.tables.items()}
                lock.resources = [
                    replace(resource, db=db, table=short)
                    if [resource.db, resource.table] == before
                    else resource
                    for resource in lock.resources
                ]

    def _forget_publications(self, table_id: int) -> None:
        """All files of a dropped table go."""
        self.queue = [
            lock for lock in self.queue if not (lock.publishes and table_id in lock.tables.values())
        ]

    def _widen(self, table: Table, added: list[list[str]]) -> None:
        """Adds the columns of a commit."""
        old = table.declared[-1]
        known = dict(old.columns)
        new = tuple((column, kind) for column, kind in added if column not in known)
        if new:
            self._alter(table, old.name, (*old.columns, *new), old.properties)
            table.version = -1  # not in the answer of a commit; readers learn it

    def on_add_partitions(self, request_id: str, args: Json, own: Json | None, clock: int) -> None:
        table = self._table(args["name"])
        if table is None:
            expect("add partitions", own, "NoSuchTable")
            return
        new = [partition for partition in args["partitions"] if partition not in table.partitions]
        claim("add partitions", value("add partitions", own)["added"] == new, own)
        self.now += 1
        self._register(table, new, self.now)

    def _register(self, table: Table, names: list[str], moment: int) -> None:
        for name in names:
            if name not in table.partitions:
                table.lives.append(PartitionLife(name, moment))

    def _unregister(self, table: Table, name: str, moment: int) -> None:
        for life in table.lives:
            if life.name == name and not life.dropped:
                life.dropped = moment
