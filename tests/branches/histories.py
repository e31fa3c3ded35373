"""Random histories on a parent and its branches, with a model of what each shows.

A row of the model has a number that no other row ever had, which stands for its row key: an UPDATE
keeps it. A branch can be merged unless both sides changed the same row, or one replaced a whole
entity in which the other wrote anything.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acid_platform import Warehouse
from acid_platform.errors import AcidError, WriteConflict
from acid_platform.services import cleaner

Rows = dict[int, tuple[int, int, str]]
"""By number: id, partition and value."""
Entity = tuple[str, int]

TABLES = {"db.flat": ("orc", 0), "db.parts": ("orc", 3), "db.keyed": ("parquet", 0)}
"""The format of each, and how many partitions it has; 0: it has none."""


@dataclass
class Changes:
    """What one side has done since a branch was made."""

    changed: set[int] = field(default_factory=set)
    replaced: set[Entity] = field(default_factory=set)
    touched: set[Entity] = field(default_factory=set)

    def meets(self, other: Changes) -> bool:
        return bool(
            self.changed & other.changed
            or self.replaced & other.touched
            or self.touched & other.replaced
        )

    def add(self, other: Changes) -> None:
        self.changed |= other.changed
        self.replaced |= other.replaced
        self.touched |= other.touched


@dataclass
class Side:
    """The parent, or a branch: what it shows, and where its changes are noted."""

    warehouse: Warehouse
    tables: dict[str, Rows]
    notes: list[Changes] = field(default_factory=list)


@dataclass
class Branch(Side):
    base: dict[str, Rows] = field(default_factory=dict)
    own: Changes = field(default_factory=Changes)
    since: Changes = field(default_factory=Changes)
    """What was done to the parent since the branch was made."""


class History:
    """One random history. `run` raises AssertionError where the warehouse and the model differ."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place, self.seed = place, seed
        self.numbers = 0
        self.log: list[str] = []
        self.branches: dict[str, Branch] = {}
        self.parent = Side(self.open(""), {name: {} for name in TABLES})
        for name, (stored, partitions) in TABLES.items():
            self.parent.warehouse.create_table(
                name,
                "id int, v string",
                partitioned_by=["p int"] if partitions else [],
                properties={} if stored == "orc" else {"acid.format": stored},
            )

    def open(self, branch: str) -> Warehouse:
        return Warehouse.open(self.place, engine="local", branch=branch)

    def run(self, steps: int) -> None:
        for table in TABLES:
            self.insert("parent", self.parent, table)
        for _ in range(steps):
            verbs = {
                self.write: 12,
                self.make: 3 if len(self.branches) < 2 else 0,
                self.end: 2 if self.branches else 0,
                self.compact: 2,
                self.clean: 2,
                self.restart: 1,
            }
            self.random.choices([*verbs], [*verbs.values()])[0]()
            self.check()
        while self.branches:
            self.end()
            self.check()

    def note(self, text: str) -> None:
        self.log.append(text)

    # --- what happens -------------------------------------------------------------------------

    def write(self) -> None:
        name, side = self.random.choice([("parent", self.parent), *self.branches.items()])
        verb = self.random.choices([self.insert, self.change, self.overwrite], [4, 6, 1])[0]
        verb(name, side, self.random.choice([*TABLES]))

    def insert(self, name: str, side: Side, table: str, partition: int | None = None) -> None:
        """`partition`: all of it is replaced."""
        parts = TABLES[table][1]
        new: Rows = {}
        for _ in range(self.random.randint(1, 4)):
            self.numbers += 1
            where = self.random.randrange(parts) if parts and partition is None else partition or 0
            new[self.numbers] = (self.random.randrange(30), where, f"v{self.numbers}")
        spelled = ", ".join(
            f"({key}, '{text}'{f', {where}' if parts and partition is None else ''})"
            for key, where, text in new.values()
        )
        into = "INTO" if partition is None else "OVERWRITE"
        where = f" PARTITION (p={partition})" if parts and partition is not None else ""
        self.note(f"{name}: INSERT {into} {table}{where} {spelled}")
        side.warehouse.sql(f"INSERT {into} TABLE {table}{where} VALUES {spelled}")
        side.tables[table].update(new)
        self.noted(side, table, new.values())

    def overwrite(self, name: str, side: Side, table: str) -> None:
        where = self.random.randrange(max(1, TABLES[table][1]))
        old = {key: row for key, row in side.tables[table].items() if row[1] == where}
        for key in old:
            del side.tables[table][key]
        self.insert(name, side, table, where)
        for changes in side.notes:
            changes.replaced.add((table, where))
            changes.changed |= old.keys()

    def change(self, name: str, side: Side, table: str) -> None:
        rows = side.tables[table]
        if not rows:
            return
        low = self.random.choice([row[0] for row in rows.values()])
        chosen = {key: row for key, row in rows.items() if low <= row[0] < low + 3}
        condition = f"id >= {low} AND id < {low + 3}"
        if self.random.random() < 0.5:
            self.note(f"{name}: DELETE {table} {condition}")
            side.warehouse.sql(f"DELETE FROM {table} WHERE {condition}")
            for key in chosen:
                del rows[key]
        else:
            self.numbers += 1
            self.note(f"{name}: UPDATE {table} {condition} to u{self.numbers}")
            side.warehouse.sql(f"UPDATE {table} SET v = 'u{self.numbers}' WHERE {condition}")
            rows.update({key: (*row[:2], f"u{self.numbers}") for key, row in chosen.items()})
        self.noted(side, table, chosen.values())
        for changes in side.notes:
            changes.changed |= chosen.keys()

    def noted(self, side: Side, table: str, rows: Sequence[tuple[int, int, str]]) -> None:
        for changes in side.notes:
            changes.touched |= {(table, row[1]) for row in rows}

    def make(self) -> None:
        name = f"b{len(self.log)}"
        self.note(f"make {name}")
        self.parent.warehouse.branches.create(name)
        base = {table: dict(rows) for table, rows in self.parent.tables.items()}
        branch = Branch(self.open(name), {table: dict(rows) for table, rows in base.items()})
        branch.base, branch.notes = base, [branch.own]
        self.parent.notes.append(branch.since)
        self.branches[name] = branch

    def end(self) -> None:
        """Merges a branch, or drops it."""
        name = self.random.choice([*self.branches])
        branch, refused = self.branches.pop(name), False
        self.parent.notes = [each.since for each in self.branches.values()]
        branches = self.parent.warehouse.branches
        meets = branch.own.meets(branch.since)
        listed = branches.require(name).refused
        assert bool(listed) == meets, (self.seed, name, listed, self.log)
        if self.random.random() < 0.8:
            self.note(f"merge {name}")
            try:
                branches.merge(name)
            except WriteConflict:
                refused = True
            assert refused == meets, (self.seed, name, self.log)
            if not refused:
                self.merged(branch)
                branch.warehouse.close()
                return
        self.note(f"drop {name}")
        branches.drop(name)
        branch.warehouse.close()

    def merged(self, branch: Branch) -> None:
        for table, base in branch.base.items():
            mine, rows = branch.tables[table], self.parent.tables[table]
            for key in base.keys() - mine.keys():
                del rows[key]
            new = branch.own.changed | (mine.keys() - base.keys())
            rows.update({key: row for key, row in mine.items() if key in new})
        for changes in self.parent.notes:
            changes.add(branch.own)

    def compact(self) -> None:
        table = self.random.choice([*TABLES])
        parts = TABLES[table][1]
        kind = self.random.choice(["minor", "major"])
        where = {"p": self.random.randrange(parts)} if parts else None
        self.note(f"compact {table} {kind} {where}")
        try:
            self.parent.warehouse.table(table).compact(kind, partition=where, wait=True)
        except AcidError as error:  # no such partition yet
            self.note(f"{type(error).__name__}")

    def clean(self) -> None:
        self.note("clean")
        cleaner.run(self.parent.warehouse.metastore)

    def restart(self) -> None:
        self.note("restart")
        self.parent.warehouse.metastore.stop()

    # --- what each shows ----------------------------------------------------------------------

    def check(self) -> None:
        for name, side in [("parent", self.parent), *self.branches.items()]:
            fresh = self.open("" if name == "parent" else name)
            for warehouse in (side.warehouse, fresh):
                for table, (_, parts) in TABLES.items():
                    shown = warehouse.table(table).to_arrow().to_pylist()
                    found = sorted((row["id"], row.get("p", 0), row["v"]) for row in shown)
                    wanted = sorted(side.tables[table].values())
                    assert found == wanted, (self.seed, name, table, found, wanted, self.log)
                    (count,) = warehouse.sql(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"]
                    assert count.as_py() == len(wanted), (self.seed, name, table, parts, self.log)
            fresh.close()
