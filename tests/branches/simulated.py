"""The metastore's rules of branches, step by step in this process, beside a model that counts what
happened: who began, committed, merged, dropped, and when. It knows nothing of ids, lists and
moments, by which the rules decide.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace

from acid_platform.errors import AcidError
from acid_platform.metastore.records import RowReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import stored_kinds
from acid_platform.transactions import RowOperation, TxnType, ValidWriteIdList
from tests.metastore.test_row_conflicts import rows
from tests.metastore.world import INSERT, OVERWRITE, UPDATE, Txn, W, World, X

PLACES = (("t", None), ("u", "p=1"), ("u", "p=2"))
DAY = 86_400_000


@dataclass
class Writer:
    txn: Txn
    side: str
    began: int
    sees: frozenset[int]
    place: tuple[str, str | None]
    operation: RowOperation
    rows: frozenset[int] = frozenset()

    def meets(self, other: Writer) -> bool:
        """Whether it can't be committed after the other, which it did not see. New rows are hidden
        by an overwrite only if that began later."""
        if self.place != other.place:
            return False
        if other.operation is OVERWRITE and self.operation is INSERT:
            return self.began < other.began
        kinds = {self.operation, other.operation}
        return OVERWRITE in kinds or bool(self.rows & other.rows)


@dataclass
class Reader:
    txn: Txn
    side: str
    sees: frozenset[int]


@dataclass
class Side:
    """The parent, or a branch: who has committed there, and when."""

    base: frozenset[int] = frozenset()
    made: int = 0
    until: int = 0
    own: dict[int, tuple[int, Writer]] = field(default_factory=dict)

    @property
    def shown(self) -> frozenset[int]:
        return self.base | self.own.keys()

    def since(self, began: int, sees: frozenset[int]) -> list[Writer]:
        """Who has committed here since, and is not seen."""
        return [
            writer for at, writer in self.own.values() if at > began and writer.txn.id not in sees
        ]


class Simulated:
    """One run. `run` raises AssertionError where the rules and the model differ."""

    def __init__(self, seed: int) -> None:
        self.random, self.seed = random.Random(seed), seed
        self.world = World()
        self.world.create("t")
        self.world.create("u", partitioned=True)
        self.now = 0
        self.sides = {"": Side()}
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.owners: dict[tuple[str, int], int] = {}
        """Of each write id of a table its transaction."""
        self.steps: list[str] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += 1
            verbs = {
                self.begin: 8,
                self.commit: 7,
                self.abort: 1,
                self.read: 3,
                self.leave: 2,
                self.make: 2 if len(self.sides) < 4 else 0,
                self.merge: 1.5,
                self.drop: 0.5,
                self.wait: 1,
                self.start_again: 1,
            }
            try:
                verb = self.random.choices([*verbs], [*verbs.values()])[0]
                verb()
                if verb in (self.merge, self.drop, self.wait) or not self.now % 4:
                    self.check()
            except Exception as error:
                told = "\n".join(self.steps[-40:])
                raise AssertionError(f"seed {self.seed}: {error!r}\n{told}") from error

    def note(self, *what: object) -> None:
        self.steps.append(" ".join(map(str, what)))

    def side(self) -> str:
        return self.random.choice([*self.sides])

    # --- transactions -------------------------------------------------------------------------

    def begin(self) -> None:
        side, place = self.side(), self.random.choice(PLACES)
        operation = self.random.choice([INSERT, UPDATE, UPDATE, UPDATE, OVERWRITE])
        locked = [writer for writer in self.writers if writer.place[0] == place[0]]
        if len(self.writers) > 4 or (operation is OVERWRITE and locked):
            return
        if any(writer.operation is OVERWRITE for writer in locked):
            return
        kind = UPDATE if operation is OVERWRITE else operation
        lock = X if operation is OVERWRITE else W
        txn = self.world.write(place[0], kind, place[1], lock, branch=side)
        changed = frozenset(self.random.sample(range(1, 9), 2)) if kind is UPDATE else frozenset()
        sees = self.sides[side].shown
        self.owners[place[0], txn.write_ids[f"default.{place[0]}"]] = txn.id
        self.writers.append(Writer(txn, side, self.now, sees, place, operation, changed))
        self.note("begin", txn.id, side, place, operation.name, sorted(changed))

    def commit(self) -> None:
        if not self.writers:
            return
        writer = self.writers.pop(self.random.randrange(len(self.writers)))
        side, (table, partition) = self.sides[writer.side], writer.place
        refused = any(map(writer.meets, side.since(writer.began, writer.sees)))
        self.note("commit", writer.txn.id, "refused" if refused else "")
        overwrite = writer.operation is OVERWRITE
        kind = UPDATE if overwrite else writer.operation
        report = self.world.report(writer.txn, table, partition, kind, overwrite=overwrite)
        changed = (
            [] if overwrite else [RowReport(table, partition, kind, rows(*sorted(writer.rows)))]
        )
        try:
            self.world.commit(writer.txn, report, changed=changed if writer.rows else ())
        except AcidError as error:
            assert refused and type(error).__name__ == "WriteConflict", error
            return
        assert not refused, "it was committed"
        side.own[writer.txn.id] = (self.now, writer)

    def abort(self) -> None:
        if self.writers:
            writer = self.writers.pop()
            self.note("abort", writer.txn.id)
            self.world.abort(writer.txn)

    def read(self) -> None:
        if len(self.readers) < 6:
            side = self.side()
            txn = self.world.begin(kind=TxnType.READ_ONLY, tables=None, branch=side)
            self.note("read", txn.id, side)
            self.readers.append(Reader(txn, side, self.sides[side].shown))

    def leave(self) -> None:
        if self.readers:
            self.world.commit(self.readers.pop(0).txn)

    # --- branches -----------------------------------------------------------------------------

    def make(self) -> None:
        name = f"b{self.now}"
        until = 0
        if self.random.random() < 0.3:
            until = self.world.clock.moment().wall + self.random.randrange(1, 3) * DAY
        self.note("make", name, until)
        self.world.call("create_branch", name=name, info={}, until=until)
        self.sides[name] = Side(self.sides[""].shown, self.now, until)

    def merge(self) -> None:
        name = self.side()
        if not name:
            return
        side, parent = self.sides[name], self.sides[""]
        running = any(writer.side == name for writer in self.writers)
        others = parent.since(side.made, frozenset())
        meets = any(mine.meets(writer) for _, mine in side.own.values() for writer in others)
        (listed,) = self.world.call("branches", name=name)["rows"]
        assert bool(listed["refused"]) == (running or meets), listed
        self.note("merge", name, "running" if running else "meets" if meets else "")
        try:
            self.world.call("merge_branch", name=name)
        except AcidError as error:
            expected = "BranchInUse" if running else "WriteConflict" if meets else ""
            assert type(error).__name__ == expected, error
            return
        assert not running and not meets, "it was merged"
        parent.own |= {txn_id: (self.now, mine) for txn_id, (_, mine) in side.own.items()}
        self.ended(name)

    def drop(self) -> None:
        if name := self.side():
            self.note("drop", name)
            self.world.call("drop_branch", name=name)
            self.ended(name)

    def ended(self, name: str) -> None:
        del self.sides[name]
        for gone in [each for each in self.writers if each.side == name]:
            self.refuses(gone.txn, "TxnAborted")
            self.writers.remove(gone)
        for reader in [each for each in self.readers if each.side == name]:
            self.refuses(reader.txn, "SnapshotExpired")
            self.readers.remove(reader)

    def refuses(self, txn: Txn, error: str) -> None:
        try:
            self.world.sees(txn)
        except AcidError as refused:
            assert type(refused).__name__ == error, refused
        else:
            raise AssertionError(f"{txn.id} goes on")

    def wait(self) -> None:
        """A day, in which whoever runs sends heartbeats, and some branches end."""
        for _ in range(self.random.choice((1, 2))):
            beating = [each.txn.id for each in (*self.writers, *self.readers)]
            self.world.clock.advance(DAY // 2)
            now = self.world.clock.moment()
            for ids in (self.world.state.heartbeats, self.world.state.reads):
                ids.update(dict.fromkeys(set(beating) & ids.keys(), now.steady))
            self.world.tick()
        self.note("wait")
        for name, side in [*self.sides.items()]:
            if side.until and side.until <= now.wall:
                self.note("ended", name)
                self.ended(name)

    def start_again(self) -> None:
        """From a snapshot of the metastore, or by a replay of all events."""
        before = self.world.state
        if self.random.random() < 0.5:
            self.note("restart")
            stored = json.loads(json.dumps(stored_kinds.live_rows(before)))
            numbers = stored_kinds.counters(before)
            machine = Machine(stored_kinds.restore(stored, numbers))
        else:
            self.note("replay")
            machine = Machine()
            machine.replay(self.world.events)
        machine.wake(self.world.clock.moment())
        after: State = machine.state
        assert (after.branches, after.branch_commits) == (before.branches, before.branch_commits)
        assert _unordered(after) == _unordered(before)
        self.world.machine = machine

    # --- what each sees -----------------------------------------------------------------------

    def check(self) -> None:
        known = {
            txn_id: writer
            for side in self.sides.values()
            for txn_id, (_, writer) in side.own.items()
        }
        for reader in self.readers:
            self.check_lists(reader.txn, reader.sees)
        for writer in self.writers:
            self.check_lists(writer.txn, writer.sees | {writer.txn.id}, writer.place[0])
        for name, side in self.sides.items():
            fresh = self.world.begin(kind=TxnType.READ_ONLY, tables=None, branch=name)
            self.check_lists(fresh, side.shown)
            shown = self.world.call("partitions", name="u", txn=fresh.id)["partitions"]
            touched = {known[txn_id].place for txn_id in side.shown}
            wanted = sorted(partition for _, partition in touched if partition)
            assert [row["name"] for row in shown] == wanted, (name, shown, wanted)
            self.world.commit(fresh)

    def check_lists(self, txn: Txn, sees: frozenset[int], only: str = "") -> None:
        for table in [only] if only else ["t", "u"]:
            listed: ValidWriteIdList = self.world.sees(txn, table)
            for (name, write_id), owner in self.owners.items():
                if name == table:
                    valid = listed.is_valid(write_id)
                    assert valid == (owner in sees), (txn.id, table, write_id, owner, str(listed))


def _unordered(state: State) -> list[object]:
    """Its transactions; two that were open at once may be restored in another order."""
    return [replace(txn, sees=tuple(sorted(txn.sees))) for txn in state.txns.values()]
