"""Random histories on a parent and two branches, with a model of what each shows.

A row of the model has a number that no other row ever had, which stands for its row key: an UPDATE
keeps it. A branch can be merged unless both sides changed the same row, or one replaced a whole
entity in which the other changed rows, or wrote some before, or the parent has dropped, renamed or
given other columns to a table that the branch has written. Columns that were added at the end do no
harm.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

from acid_platform import Warehouse
from acid_platform.errors import (
    AcidError,
    DeclarationChanged,
    InvalidDefinition,
    NoSuchTable,
    NotErased,
    WriteConflict,
)
from acid_platform.services import cleaner

Row = tuple[int, int, str]
"""Id, partition and value."""
Entity = tuple[int, int]
"""The number of a table, and a partition."""
Columns = tuple[tuple[str, int], ...]
"""Each column with a number that no other column ever had."""

KINDS = {"flat": ("orc", 0), "parts": ("orc", 3), "keyed": ("parquet", 0), "months": ("parquet", 2)}
"""The format of each kind of table, and how many partitions it has; 0: it has none."""


@dataclass
class Table:
    """A table as one side sees it. Its first two columns are an id and the value; all that were
    added later are NULL."""

    number: int
    kind: str
    name: str
    columns: Columns
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return KINDS[self.kind][1]

    @property
    def parquet(self) -> bool:
        return KINDS[self.kind][0] == "parquet"

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    def copy(self) -> Table:
        return Table(self.number, self.kind, self.name, self.columns, dict(self.rows))


@dataclass
class Changes:
    """What one side has done since a branch was made."""

    changed: set[int] = field(default_factory=set)
    altered: set[Entity] = field(default_factory=set)
    """In which rows were changed."""
    inserted: dict[Entity, int] = field(default_factory=dict)
    """When first, by the number that is counted up."""
    replaced: dict[Entity, int] = field(default_factory=dict)
    """When last."""

    @property
    def touched(self) -> set[Entity]:
        return {*self.altered, *self.inserted}

    def meets(self, since: Changes) -> bool:
        """Whether these can't come after what was done since the branch was made. New rows are
        hidden by what replaced their entity only if that came later."""
        return bool(
            self.changed & since.changed
            or self.replaced.keys() & since.touched
            or self.altered & since.replaced.keys()
            or any(at < since.replaced.get(entity, 0) for entity, at in self.inserted.items())
        )

    def insert(self, entity: Entity, at: int) -> None:
        self.inserted[entity] = min(at, self.inserted.get(entity, at))

    def replace(self, entity: Entity, at: int) -> None:
        self.replaced[entity] = max(at, self.replaced.get(entity, at))

    def add(self, other: Changes) -> None:
        self.changed |= other.changed
        self.altered |= other.altered
        for entity, at in other.inserted.items():
            self.insert(entity, at)
        for entity, at in other.replaced.items():
            self.replace(entity, at)


@dataclass
class Side:
    """The parent, or a branch: its tables by their numbers, and where its changes are noted."""

    warehouse: Warehouse
    tables: dict[int, Table]
    notes: list[Changes] = field(default_factory=list)


@dataclass
class Branch(Side):
    base: dict[int, Table] = field(default_factory=dict)
    own: Changes = field(default_factory=Changes)
    since: Changes = field(default_factory=Changes)
    """What was done to the parent since the branch was made."""

    def wrote(self, number: int) -> bool:
        return any(table == number for table, _ in self.own.touched)


class History:
    """One random history. `run` raises AssertionError where the warehouse and the model differ."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place, self.seed = place, seed
        self.numbers = 0
        self.log: list[str] = []
        self.branches: dict[str, Branch] = {}
        self.parent = Side(self.open(""), {})
        for kind in KINDS:
            self.declare(kind)

    def open(self, branch: str) -> Warehouse:
        return Warehouse.open(self.place, engine="local", branch=branch)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def run(self, steps: int) -> None:
        for table in self.parent.tables.values():
            self.insert("parent", self.parent, table)
        for _ in range(steps):
            verbs = {
                self.write: 14,
                self.make: 4 if len(self.branches) < 2 else 0,
                self.end: 2 if self.branches else 0,
                self.alter: 2,
                self.erase: 1,
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

    def sql(self, name: str, side: Side, statement: str) -> None:
        self.note(f"{name}: {statement}")
        side.warehouse.sql(statement)

    # --- rows ---------------------------------------------------------------------------------

    def write(self) -> None:
        name, side = self.random.choice([("parent", self.parent), *self.branches.items()])
        table = self.random.choice([*side.tables.values()])
        verb = self.random.choices([self.insert, self.change, self.overwrite], [4, 6, 1])[0]
        if isinstance(side, Branch) and not self.unchanged(side, table.number):
            self.refused(name, side, table)
        else:
            verb(name, side, table)

    def unchanged(self, branch: Branch, number: int) -> bool:
        """Whether the parent's declaration lets the branch write the table."""
        now, then = self.parent.tables.get(number), branch.base[number]
        return (
            now is not None
            and now.name == then.name
            and now.columns[: len(then.columns)] == then.columns
        )

    def refused(self, name: str, side: Side, table: Table) -> None:
        statement = f"UPDATE {table.name} SET {table.names[1]} = 'x'"
        try:
            self.sql(name, side, statement)
        except (DeclarationChanged, NoSuchTable):
            return
        raise AssertionError(f"{self.seed}: {name} wrote what was declared anew: {self.log}")

    def insert(self, name: str, side: Side, table: Table, partition: int | None = None) -> None:
        """`partition`: all of it is replaced."""
        new: dict[int, Row] = {}
        for _ in range(self.random.randint(1, 4)):
            where = partition or 0
            if table.partitions and partition is None:
                where = self.random.randrange(table.partitions)
            key = self.number()
            new[key] = (self.random.randrange(30), where, f"v{key}")
        listed = ", ".join(table.names[:2])
        inner = table.partitions and partition is None
        spelled = ", ".join(
            f"({key}, '{text}'{f', {where}' if inner else ''})" for key, where, text in new.values()
        )
        into = "INTO" if partition is None else "OVERWRITE"
        fixed = f" PARTITION (p={partition})" if table.partitions and not inner else ""
        columns = f"({listed}{', p' if inner else ''})"
        self.sql(name, side, f"INSERT {into} TABLE {table.name}{fixed} {columns} VALUES {spelled}")
        table.rows.update(new)
        at = self.number()
        for changes in side.notes:
            for row in new.values():
                changes.insert((table.number, row[1]), at)

    def overwrite(self, name: str, side: Side, table: Table) -> None:
        where = self.random.randrange(max(1, table.partitions))
        old = {key: row for key, row in table.rows.items() if row[1] == where}
        for key in old:
            del table.rows[key]
        self.insert(name, side, table, where)
        for changes in side.notes:
            changes.replace((table.number, where), self.numbers)
            changes.changed |= old.keys()

    def some(self, table: Table) -> tuple[dict[int, Row], str]:
        """Some of its rows, and the condition that finds them."""
        low = self.random.choice([row[0] for row in table.rows.values()])
        chosen = {key: row for key, row in table.rows.items() if low <= row[0] < low + 3}
        column = table.names[0]
        return chosen, f"{column} >= {low} AND {column} < {low + 3}"

    def change(self, name: str, side: Side, table: Table) -> None:
        if not table.rows:
            return
        chosen, condition = self.some(table)
        if self.random.random() < 0.5:
            self.sql(name, side, f"DELETE FROM {table.name} WHERE {condition}")
            for key in chosen:
                del table.rows[key]
        else:
            text = f"u{self.number()}"
            column = table.names[1]
            self.sql(name, side, f"UPDATE {table.name} SET {column} = '{text}' WHERE {condition}")
            table.rows.update({key: (*row[:2], text) for key, row in chosen.items()})
        self.removed(side, table, chosen)

    def removed(self, side: Side, table: Table, chosen: dict[int, Row]) -> None:
        for changes in side.notes:
            changes.altered |= {(table.number, row[1]) for row in chosen.values()}
            changes.changed |= chosen.keys()

    def erase(self) -> None:
        """On the parent. While there is a branch, it names who has the rows."""
        table = self.random.choice([*self.parent.tables.values()])
        if not table.rows:
            return
        chosen, condition = self.some(table)
        self.note(f"erase {table.name} {condition}")
        self.parent.warehouse.release()
        try:
            self.parent.warehouse.table(table.name).erase(condition)
        except NotErased as error:
            self.note(f"not erased: {error}")
            named = [name for name in self.branches if f"branch {name}" in str(error)]
            assert named, (self.seed, str(error), self.log)
        else:
            held = [
                name
                for name, branch in self.branches.items()
                for own in branch.tables.values()
                if own.number == table.number and own.rows.keys() & chosen.keys()
            ]
            assert not held, (self.seed, held, self.log)
        for key in chosen:
            del table.rows[key]
        self.removed(self.parent, table, chosen)

    # --- declarations -------------------------------------------------------------------------

    def declare(self, kind: str) -> None:
        stored, partitions = KINDS[kind]
        number = self.number()
        name = f"db.{kind}"
        table = Table(number, kind, name, (("id", self.number()), ("v", self.number())))
        self.note(f"create {name}")
        self.parent.warehouse.create_table(
            name,
            "id int, v string",
            partitioned_by=["p int"] if partitions else [],
            properties={} if stored == "orc" else {"acid.format": stored},
        )
        self.parent.tables[number] = table

    def alter(self) -> None:
        """On the parent, since no branch may."""
        table = self.random.choice([*self.parent.tables.values()])
        verbs = (self.add_column, self.rename_column, self.drop_column, self.rename, self.replace)
        self.random.choices(verbs, [3, 3, 2, 2, 1])[0](table)
        if self.branches:
            name, branch = self.random.choice([*self.branches.items()])
            try:
                dropped = self.random.choice([*branch.tables.values()])
                self.sql(name, branch, f"DROP TABLE {dropped.name}")
            except (InvalidDefinition, DeclarationChanged, NoSuchTable):
                return
            raise AssertionError(f"{self.seed}: {name} dropped a table: {self.log}")

    def written(self, table: Table, statement: str) -> bool:
        """Whether a statement ran for which ORC, which knows columns by their names, is written
        again: a branch with rows there is in its way."""
        wrote = [name for name, branch in self.branches.items() if branch.wrote(table.number)]
        try:
            self.sql("parent", self.parent, statement)
        except InvalidDefinition as error:
            assert any(f"branch {name} " in str(error) for name in wrote), (self.seed, self.log)
            return False
        assert not wrote, (self.seed, wrote, self.log)
        if not table.parquet:
            at = self.number()
            for changes in self.parent.notes:
                for where in range(max(1, table.partitions)):
                    changes.replace((table.number, where), at)
        return True

    def add_column(self, table: Table) -> None:
        column = (f"c{self.number()}", self.number())
        self.sql("parent", self.parent, f"ALTER TABLE {table.name} ADD COLUMNS ({column[0]} int)")
        table.columns = (*table.columns, column)

    def rename_column(self, table: Table) -> None:
        place = self.random.randrange(len(table.columns))
        old, number = table.columns[place]
        new = f"n{self.number()}"
        if self.written(table, f"ALTER TABLE {table.name} RENAME COLUMN {old} TO {new}"):
            columns = [*table.columns]
            columns[place] = (new, number)
            table.columns = tuple(columns)

    def drop_column(self, table: Table) -> None:
        if len(table.columns) > 2:
            *kept, (name, _) = table.columns
            if self.written(table, f"ALTER TABLE {table.name} DROP COLUMN {name}"):
                table.columns = tuple(kept)

    def rename(self, table: Table) -> None:
        name = f"db.r{self.number()}"
        self.sql("parent", self.parent, f"ALTER TABLE {table.name} RENAME TO {name}")
        table.name = name

    def replace(self, table: Table) -> None:
        """Another one in the place of a table, with its first name."""
        self.sql("parent", self.parent, f"DROP TABLE {table.name}")
        del self.parent.tables[table.number]
        if f"db.{table.kind}" not in {other.name for other in self.parent.tables.values()}:
            self.declare(table.kind)

    # --- branches -----------------------------------------------------------------------------

    def make(self) -> None:
        name = f"b{len(self.log)}"
        self.note(f"make {name}")
        self.parent.warehouse.branches.create(name)
        base = {number: table.copy() for number, table in self.parent.tables.items()}
        branch = Branch(self.open(name), {number: table.copy() for number, table in base.items()})
        branch.base, branch.notes = base, [branch.own]
        self.parent.notes.append(branch.since)
        self.branches[name] = branch

    def end(self) -> None:
        """Merges a branch, or drops it."""
        name = self.random.choice([*self.branches])
        branch, refused = self.branches.pop(name), False
        self.parent.notes = [each.since for each in self.branches.values()]
        branches = self.parent.warehouse.branches
        anew = [
            number
            for number in branch.tables
            if branch.wrote(number) and not self.unchanged(branch, number)
        ]
        meets = bool(anew) or branch.own.meets(branch.since)
        listed = branches.require(name).refused
        assert bool(listed) == meets, (self.seed, name, listed, anew, self.log)
        if self.random.random() < 0.8:
            self.note(f"merge {name}")
            try:
                branches.merge(name)
            except (WriteConflict, DeclarationChanged, NoSuchTable) as error:
                refused = True
                assert str(error.__cause__ or error) == listed, (self.seed, str(error), listed)
                both = branch.own.changed & branch.since.changed
                base = [
                    table.rows[key]
                    for table in branch.base.values()
                    for key in both & table.rows.keys()
                ]
                named = re.findall(r"\(\w+ = (\d+), \w+ = '(\w+)'", str(error))
                assert bool(named) == bool(error.__cause__), (self.seed, str(error))
                assert {*named} <= {(str(row[0]), row[2]) for row in base}, (self.seed, str(error))
            assert refused == meets, (self.seed, name, self.log)
            if not refused:
                self.merged(branch)
                branch.warehouse.close()
                return
        self.note(f"drop {name}")
        branches.drop(name)
        branch.warehouse.close()

    def merged(self, branch: Branch) -> None:
        for number, base in branch.base.items():
            if not branch.wrote(number):
                continue
            mine, rows = branch.tables[number].rows, self.parent.tables[number].rows
            for key in base.rows.keys() - mine.keys():
                del rows[key]
            new = branch.own.changed | (mine.keys() - base.rows.keys())
            rows.update({key: row for key, row in mine.items() if key in new})
        for changes in self.parent.notes:
            changes.add(branch.own)

    # --- services -----------------------------------------------------------------------------

    def compact(self) -> None:
        table = self.random.choice([*self.parent.tables.values()])
        kind = self.random.choice(["minor", "major"])
        where = {"p": self.random.randrange(table.partitions)} if table.partitions else None
        self.note(f"compact {table.name} {kind} {where}")
        try:
            self.parent.warehouse.table(table.name).compact(kind, partition=where, wait=True)
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
                for table in side.tables.values():
                    self.check_table(name, warehouse, table)
            fresh.release()
            fresh.close()

    def check_table(self, name: str, warehouse: Warehouse, table: Table) -> None:
        shown = warehouse.table(table.name).to_arrow()
        partitioned = ["p"] if table.partitions else []
        assert shown.column_names == [*table.names, *partitioned], (self.seed, name, self.log)
        first, second, *added = table.names
        found = sorted((row[first], row.get("p", 0), row[second]) for row in shown.to_pylist())
        wanted = sorted(table.rows.values())
        assert found == wanted, (self.seed, name, table.name, found, wanted, self.log)
        assert all(shown[column].null_count == len(wanted) for column in added)
        (count,) = warehouse.sql(f"SELECT count(*) AS n FROM {table.name}").to_arrow()["n"]
        assert count.as_py() == len(wanted), (self.seed, name, table.name, self.log)
