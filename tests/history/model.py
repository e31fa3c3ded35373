"""One model of a table's history: statements of every kind, and the rows after each commit.

A test chooses the steps, and looks at what it is about: after each commit (`committed`), after each
step, or in the end. Ids are never used twice, so that each row is followed by its id.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import pyarrow as pa
import pytest

from acid_platform import (
    AlreadyScheduled,
    CompactionRefused,
    NotEnoughHistory,
    Table,
    Transaction,
    Warehouse,
    WriteConflict,
)
from acid_platform.handles.transaction import TransactionTable
from acid_platform.metastore.operations.tables import GetLastWriteId
from acid_platform.services import cleaner

Row = tuple[str | None, int]
"""v and p."""
Rows = dict[int, Row]
"""By id."""
STATEMENTS = ("insert", "update", "update", "delete", "merge")
WRITES = (
    *["insert"] * 4,
    *["update"] * 3,
    *["delete"] * 2,
    *["merge"] * 3,
    *["transaction"] * 3,
    *["crossed"] * 2,
    "abort",
    "overwrite",
    "truncate",
    "drop partition",
)
SERVICES = (*["minor"] * 2, *["major"] * 2, *["clean"] * 3)
KINDS = ("plain", "partitioned", "bucketed")
_NUMBERS = count(1)


@dataclass
class Begun:
    """A transaction that others don't see, and what it has done to the rows as it began."""

    txn: Transaction
    rows: Rows
    behind: int
    """So many commits came before it."""
    write_id: int = 0
    touched: set[int] = field(default_factory=set)
    """The ids that it updated or deleted, among those that it saw."""
    left: dict[int, Row | None] = field(default_factory=dict)
    """What it leaves of each id that it wrote; None: deleted."""
    searched: bool = False
    """Whether it ran an UPDATE or DELETE, even one that matched no row (T38)."""


class History:
    """A table, and the rows after each of its commits."""

    def __init__(
        self,
        warehouse: Warehouse,
        seed: int,
        kind: str = "plain",
        retention: str = "",
        detection: str = "row",
    ) -> None:
        self.warehouse, self.random = warehouse, random.Random(f"{kind} {seed}")
        self.kind, self.detection = kind, detection
        properties = {"acid.conflict.detection": detection}
        self.table = warehouse.create_table(
            f"db.h{next(_NUMBERS)}",
            "id int, v string" + ("" if kind == "partitioned" else ", p int"),
            partitioned_by=["p int"] if kind == "partitioned" else [],
            clustered_by=(["id"], 2) if kind == "bucketed" else None,
            properties=properties | ({"acid.history.retention": retention} if retention else {}),
        )
        self.rows: Rows = {}
        self.next = 1
        self.past: list[tuple[int, Rows]] = [(0, {})]
        """Write ids in the order of their commits, and the rows after each."""
        self.whole: set[int] = set()
        """Write ids that replace rows: equal rows are deleted and inserted too."""
        self.added = 0
        self.joined, self.refused = 0, 0
        """Commits of transactions that did not see another one's: those that were made, and not."""

    def play(self, steps: Iterable[str]) -> None:
        for what in steps:
            self.step(what)

    def step(self, what: str) -> None:
        if what in STATEMENTS:
            self.rows, _ = self.statement(self.table, what, self.rows)
            self.committed()
        else:
            getattr(self, what.replace(" ", "_"))()

    def last(self) -> int:
        return self.warehouse.metastore.call(GetLastWriteId(self.table.record.table_id))

    def committed(self, write_id: int | None = None) -> None:
        self.past.append((write_id or self.last(), dict(self.rows)))

    # --- statements -----------------------------------------------------------------------------

    def fresh(self, number: int = 3) -> Rows:
        ids = range(self.next, self.next + number)
        self.next += number
        return {id: (f"n{id}" if id % 5 else None, id % 2) for id in ids}

    def some(self, rows: Rows) -> list[int]:
        return [id for id in sorted(rows) if self.random.random() < 0.4]

    def statement(
        self, table: Table | TransactionTable, what: str, rows: Rows, alone: bool = True
    ) -> tuple[Rows, set[int]]:
        """Runs a statement on a table with these rows. Returns those after it, and the ids that it
        updated or deleted. `alone`: no other transaction runs beside it. If one does, all rows get
        the same text, since a range of texts may cross the other's (P51)."""
        chosen, text = self.some(rows), f"{what[0]}{self.random.randrange(10**6)}"
        where = f"id IN ({', '.join(map(str, chosen)) or '-1'})"
        match what:
            case "insert":
                new = self.fresh()
                table.insert(arrow(new))
                return rows | new, set()
            case "update":
                longer = alone and self.random.random() < 0.5
                value = f"concat(coalesce(v, ''), '{text}')" if longer else f"'{text}'"
                assert table.update({"v": value}, where) == len(chosen)
                changed: Rows = {
                    id: ((rows[id][0] or "") * longer + text, rows[id][1]) for id in chosen
                }
                return rows | changed, {*chosen}
            case "delete":
                assert table.delete(where) == len(chosen)
                return {id: row for id, row in rows.items() if id not in chosen}, {*chosen}
        changed, new = {id: (text, rows[id][1]) for id in chosen}, self.fresh(2)
        table.merge(
            arrow(changed | new),
            "t.id = s.id",
            when_matched_update={"v": "s.v"},
            when_matched_delete="s.id % 3 = 0",
            when_not_matched_insert="*",
        )
        gone = {id for id in chosen if id % 3 == 0}
        return {id: row for id, row in (rows | changed | new).items() if id not in gone}, {*chosen}

    # --- transactions ---------------------------------------------------------------------------

    def transaction(self) -> None:
        """Rows are inserted, changed twice and removed by statements of one transaction."""
        with self.warehouse.transaction() as txn:
            rows = self.rows
            for what in self.random.choices(STATEMENTS, k=self.random.randrange(2, 5)):
                rows, _ = self.statement(txn.table(self.table.name), what, rows)
        self.rows = rows
        self.committed()

    def abort(self) -> None:
        with suppress(ZeroDivisionError), self.warehouse.transaction() as txn:
            table = txn.table(self.table.name)
            table.insert(arrow({-1: ("aborted", 1)}))
            table.delete("id % 2 = 0")
            raise ZeroDivisionError

    def crossed(self) -> None:
        """Transactions that don't see each other run their statements by turns, beside compactions.

        A commit succeeds if and only if no other has changed its rows since it began, whichever
        write id is the higher one; no update is lost, and no row becomes two (P38).
        """
        commits: list[Begun] = []
        open_now: list[Begun] = []
        for number in range(self.random.randrange(4, 9)):
            if len(open_now) < 2 or (len(open_now) < 3 and self.random.random() < 0.2):
                open_now.append(Begun(self.warehouse.transaction(), self.rows, len(commits)))
            begun = self.random.choice(open_now)
            if begun.write_id and self.random.random() < 0.3:
                open_now.remove(begun)
                self.end(begun, commits)
            elif number and self.random.random() < 0.1:
                self.step(self.random.choice(("minor", "major")))
            else:
                # A MERGE that inserts also looks for the keys of new rows (P51).
                what = self.random.choice(("insert", "update", "update", "delete"))
                table = begun.txn.table(self.table.name)
                rows, touched = self.statement(table, what, begun.rows, alone=False)
                begun.write_id = begun.txn.write_ids[self.table.name]
                begun.searched |= what != "insert"
                begun.touched |= touched
                begun.left |= {
                    id: rows.get(id)
                    for id in rows.keys() | begun.rows.keys()
                    if rows.get(id) != begun.rows.get(id)
                }
                begun.rows = rows
        for begun in open_now:
            self.end(begun, commits)
        self.require(self.table.to_arrow().to_pylist())

    def end(self, begun: Begun, commits: list[Begun]) -> None:
        """Commits it, or sees that it is refused."""
        missed = commits[begun.behind :]
        lost = any(begun.touched & other.touched for other in missed)
        if self.detection == "partition":
            lost = begun.searched and any(other.searched for other in missed)
        if lost:
            self.refused += 1
            with pytest.raises(WriteConflict):
                begun.txn.commit()
            return
        self.joined += bool(missed)
        begun.txn.commit()
        if begun.write_id:
            commits.append(begun)
            left = self.rows | begun.left
            self.rows = {id: row for id, row in left.items() if row is not None}
            self.committed(begun.write_id)

    # --- what replaces rows ---------------------------------------------------------------------

    def overwrite(self) -> None:
        new: Rows = {id: (v, 1) for id, (v, _) in self.fresh(2).items()}
        if self.kind == "partitioned":
            self.table.overwrite(arrow(new), "p=1")
            self.rows = {id: row for id, row in self.rows.items() if row[1] != 1}
        else:
            self.table.overwrite(arrow(new))
            self.rows = {}
        self.rows = self.rows | new
        self.committed()

    def truncate(self) -> None:
        self.table.truncate()
        self.rows = {}
        self.committed()

    def drop_partition(self) -> None:
        if "p=0" in self.table.partitions():
            self.table.drop_partition("p=0")
            self.rows = {id: row for id, row in self.rows.items() if row[1] != 0}
            self.committed()

    def rollback(self) -> None:
        write_id, rows = self.random.choice(self.past[-4:])
        try:
            self.table.rollback_to(write_id)
        except NotEnoughHistory:
            return
        self.rows = dict(rows)
        if self.last() != max(each for each, _ in self.past):
            self.whole.add(self.last())
            self.committed()

    # --- services -------------------------------------------------------------------------------

    def minor(self) -> None:
        self.compact("minor")

    def major(self) -> None:
        self.compact("major")

    def compact(self, kind: Literal["minor", "major"]) -> None:
        # Nothing was written since the last one, or there are too few directories.
        with suppress(AlreadyScheduled, CompactionRefused):
            self.table.compact(kind)

    def clean(self) -> None:
        for result in cleaner.run(self.warehouse.metastore):
            assert not result.error, result

    def add_column(self) -> None:
        if self.added < 2:
            self.added += 1
            self.table.add_columns(f"c{self.added} int")

    # --- what others say ------------------------------------------------------------------------

    def require(self, found: Iterable[dict[str, object]], rows: Rows | None = None) -> None:
        """That these are the rows: those of now, or others."""
        listed = list(found)
        stored = {row["id"]: (row["v"], row["p"]) for row in listed}
        assert stored == (self.rows if rows is None else rows)
        assert len(listed) == len(stored), "a row became two"


def arrow(rows: Rows) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(list(rows), pa.int32()),
            "v": pa.array([v for v, _ in rows.values()], pa.string()),
            "p": pa.array([p for _, p in rows.values()], pa.int32()),
        }
    )
