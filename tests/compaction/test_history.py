"""One entity through any history of writes, compactions, cleanings and held snapshots.

A model in memory knows what every transaction did; the directories are only ever read through
`select`, merged as `plan_compaction` says and removed as `plan_cleaning` says. Whatever the order
of events, each open snapshot must see exactly its own rows, each once, until it ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from acid_platform.compaction.cleaning_plan import CleaningPlan, plan_cleaning
from acid_platform.compaction.plan import CompactionPlan, CompactionSettings, plan_compaction
from acid_platform.compaction.states import CompactionKind
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import BaseName, DeltaName, span
from acid_platform.scan.acid_directory import VisibleBase, VisibleDelta
from acid_platform.scan.selection import select
from acid_platform.transactions import TxnState, ValidTxnList, ValidWriteIdList

pytestmark = pytest.mark.more

Row = tuple[int, int]
"""Write id that inserted it, and a number."""
ORIGINALS: list[Row] = [(0, 0), (0, 1)]


@dataclass
class Content:
    """What a directory holds."""

    rows: list[Row] = field(default_factory=list)
    deletes: list[tuple[Row, int]] = field(default_factory=list)
    """Deleted row and the write id that deletes it."""


@dataclass
class Txn:
    number: int
    state: TxnState = TxnState.OPEN
    commit_id: int = 0
    read_only: bool = False
    write_id: int = 0
    statements: int = 0
    overwrites: bool = False
    inserted: list[Row] = field(default_factory=list)
    deleted: list[Row] = field(default_factory=list)


@dataclass
class Snapshot:
    owner: Txn
    txns: ValidTxnList
    writes: ValidWriteIdList

    @property
    def own_writes(self) -> ValidWriteIdList:
        own = self.owner.write_id
        return self.writes.seeing(own) if own else self.writes


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[Txn] = []
        self.writers: list[Snapshot] = []
        self.readers: list[Snapshot] = []
        self.directories: dict[str, Content] = {}
        self.originals = False
        self.working: tuple[Txn, CompactionPlan] | None = None
        self.ready: list[tuple[int, int, int]] = []
        """Highest write id and next transaction id of compactions that wait for the Cleaner."""

    # --- the metastore, as far as it matters ------------------------------------------------

    def begin(self, read_only: bool = False) -> Txn:
        txn = Txn(len(self.all) + 1, read_only=read_only)
        self.all.append(txn)
        return txn

    def txn_list(self, high_watermark: int, excepted: frozenset[int] = frozenset()) -> ValidTxnList:
        """The list up to a transaction; those in `excepted` count as open."""
        known = [txn for txn in self.all[:high_watermark] if not txn.read_only]
        return ValidTxnList.of(
            high_watermark,
            [txn.number for txn in known if txn.state is TxnState.OPEN or txn.number in excepted],
            [txn.number for txn in known if txn.state is TxnState.ABORTED],
        )

    def write_list(self, txns: ValidTxnList) -> ValidWriteIdList:
        """S7 and S8, with P5's high watermark."""
        writes = {txn.write_id: txn.number for txn in self.all if txn.write_id}
        top = max((w for w, txn in writes.items() if txn <= txns.high_watermark), default=0)
        invalid = {w: txn for w, txn in writes.items() if w <= top and not txns.is_valid(txn)}
        return ValidWriteIdList.of(
            "db.t",
            top,
            [w for w, txn in invalid.items() if not txns.is_aborted(txn)],
            [w for w, txn in invalid.items() if txns.is_aborted(txn)],
        )

    def snapshot(self, owner: Txn) -> Snapshot:
        txns = self.txn_list(len(self.all)).for_reader(owner.number)
        return Snapshot(owner, txns, self.write_list(txns))

    def min_open(self) -> int:
        opened = [txn.number for txn in self.all if txn.state is TxnState.OPEN]
        return min(opened, default=len(self.all) + 1)

    def end(self, txn: Txn, state: TxnState) -> None:
        txn.state = state
        txn.commit_id = len(self.all)

    # --- directories --------------------------------------------------------------------------

    def listing(self) -> EntityListing:
        files = [FileEntry(f"{name}/bucket_00000", 10) for name in self.directories]
        files += [FileEntry("000000_0", 10)] if self.originals else []
        return EntityListing("wh/t", tuple(files), tuple(self.directories))

    def read(self, snapshot: Snapshot) -> list[Row]:
        writes = snapshot.own_writes
        seen = select(self.listing(), writes, snapshot.txns)
        rows = list(ORIGINALS) if seen.originals else []
        deleted: set[Row] = set()
        for source in seen.sources:
            content = self.directories[source.directory]
            rows += [
                row
                for row in content.rows
                if row[0] > source.above and (not source.test_rows or writes.is_valid(row[0]))
            ]
            deleted |= {
                row for row, by in content.deletes if not source.test_rows or writes.is_valid(by)
            }
        return [row for row in rows if row not in deleted]

    def model(self, snapshot: Snapshot) -> list[Row]:
        writes = snapshot.own_writes
        valid = [
            number for number in self.all if number.write_id and writes.is_valid(number.write_id)
        ]
        since = max((number.write_id for number in valid if number.overwrites), default=0)
        rows = list(ORIGINALS) if self.had_originals and not since else []
        rows += [row for number in valid if number.write_id >= since for row in number.inserted]
        deleted = {row for number in valid for row in number.deleted}
        return [row for row in rows if row not in deleted]

    @initialize(originals=st.booleans())
    def create(self, originals: bool) -> None:
        self.originals = self.had_originals = originals

    # --- writers ------------------------------------------------------------------------------

    @rule()
    def begin_write(self) -> None:
        self.writers.append(self.snapshot(self.begin()))

    def next_statement(self, txn: Txn) -> int:
        if not txn.write_id:
            txn.write_id = max((number.write_id for number in self.all), default=0) + 1
        txn.statements += 1
        return txn.statements - 1

    def publish(self, name: DeltaName | BaseName, content: Content) -> None:
        assert str(name) not in self.directories
        self.directories[str(name)] = content

    @precondition(lambda self: self.writers)
    @rule(which=st.integers(0, 9), insert=st.integers(0, 2), delete=st.integers(0, 9))
    def statement(self, which: int, insert: int, delete: int) -> None:
        """An INSERT, DELETE or UPDATE: one delta, one delete_delta or a pair."""
        snapshot = self.writers[which % len(self.writers)]
        txn = snapshot.owner
        visible = sorted(self.model(snapshot))
        victims = visible[delete : delete + 1]
        if txn.overwrites or not (insert or victims):
            return
        number = self.next_statement(txn)
        low = txn.write_id
        rows = [(low, len(txn.inserted) + k) for k in range(insert)]
        if rows:
            self.publish(DeltaName(low, low, number), Content(rows=rows))
        if victims:
            self.publish(
                DeltaName(low, low, number, deletes=True),
                Content(deletes=[(row, low) for row in victims]),
            )
        txn.inserted += rows
        txn.deleted += victims

    @precondition(lambda self: self.writers)
    @rule(which=st.integers(0, 9), insert=st.integers(0, 2))
    def overwrite(self, which: int, insert: int) -> None:
        txn = self.writers[which % len(self.writers)].owner
        if txn.statements:
            return
        self.next_statement(txn)
        txn.overwrites = True
        txn.inserted = [(txn.write_id, k) for k in range(insert)]
        self.publish(BaseName(txn.write_id), Content(rows=list(txn.inserted)))

    @precondition(lambda self: self.writers)
    @rule(which=st.integers(0, 9), commit=st.booleans())
    def end_write(self, which: int, commit: bool) -> None:
        """First committer wins (T31), and no write lands below a committed overwrite (P6)."""
        txn = self.writers.pop(which % len(self.writers)).owner
        done = [
            number for number in self.all if number.state is TxnState.COMMITTED and number.write_id
        ]
        changes = bool(txn.deleted or txn.overwrites)
        conflict = any(
            (changes and (line.deleted or line.overwrites) and txn.number <= line.commit_id)
            or (line.overwrites and txn.write_id and txn.write_id < line.write_id)
            for line in done
        )
        self.end(txn, TxnState.COMMITTED if commit and not conflict else TxnState.ABORTED)

    @rule(insert=st.integers(0, 2), delete=st.integers(0, 9), commit=st.booleans())
    def write_at_once(self, insert: int, delete: int, commit: bool) -> None:
        """Begin, one statement, end: builds up what compactions have to merge."""
        self.begin_write()
        last = len(self.writers) - 1
        self.statement(last, insert, delete)
        self.end_write(last, commit)

    # --- readers ------------------------------------------------------------------------------

    @rule()
    def open_snapshot(self) -> None:
        self.readers.append(self.snapshot(self.begin(read_only=True)))

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 9))
    def close_snapshot(self, which: int) -> None:
        self.end(self.readers.pop(which % len(self.readers)).owner, TxnState.COMMITTED)

    # --- compaction and cleaning: never both at once for one entity (P21) -------------------------

    @precondition(lambda self: self.working is None)
    @rule(kind=st.sampled_from(CompactionKind))
    def start_compaction(self, kind: CompactionKind) -> None:
        txn = self.begin()
        txns = self.txn_list(len(self.all))
        writes = self.write_list(txns).for_compactor()
        plan = plan_compaction(
            select(self.listing(), writes, txns), kind, writes, txn.number, CompactionSettings()
        )
        if isinstance(plan, CompactionPlan):
            self.working = txn, plan
            return
        self.end(txn, TxnState.COMMITTED)
        if plan.to_cleaning:
            self.ready.append((writes.high_watermark, len(self.all) + 1, txn.number))

    @precondition(lambda self: self.working is not None)
    @rule(commit=st.booleans(), crash=st.booleans())
    def finish_compaction(self, commit: bool, crash: bool) -> None:
        assert self.working is not None
        (txn, plan), self.working = self.working, None
        sources: list[VisibleBase | VisibleDelta] = [*plan.inputs.inserts]
        sources += [plan.inputs.base] if plan.inputs.base else []
        aborted = set(plan.write_ids.aborted)
        rows = list(ORIGINALS) if plan.inputs.originals else []
        for source in sources:
            rows += [
                row
                for row in self.directories[source.directory].rows
                if row[0] > source.above and row[0] not in aborted
            ]
        events = [
            event
            for source in plan.inputs.delete_deltas
            for event in self.directories[source.directory].deletes
            if event[1] not in aborted
        ]
        if plan.output_base:
            gone = {row for row, _ in events}
            self.publish(plan.output_base, Content([row for row in rows if row not in gone]))
        if plan.output_delta and rows:
            self.publish(plan.output_delta, Content(rows=rows))
        if plan.output_delete_delta and events and not crash:
            self.publish(plan.output_delete_delta, Content(deletes=events))
        published = bool(plan.output_base or rows or events) and not crash
        self.end(txn, TxnState.COMMITTED if commit and published else TxnState.ABORTED)
        if txn.state is TxnState.COMMITTED:
            high = max(0, *(span(name)[1] for name in plan.outputs))
            self.ready.append((high, len(self.all) + 1, txn.number))

    @precondition(lambda self: self.ready and self.working is None)
    @rule()
    def clean(self) -> None:
        """C39 to C47: the lowest first, and only when everybody who opened before has ended.

        Later compactions that an open snapshot may not see count as open (S17).
        """
        self.ready.sort()
        highest, next_txn, _ = self.ready[0]
        low = self.min_open()
        if next_txn > low:
            return
        # S17: what a later compaction made may be hidden from a snapshot that is still open.
        unseen = frozenset(compaction for _, after, compaction in self.ready if after > low)
        txns = self.txn_list(low - 1, unseen)
        self.remove(txns, self.write_list(txns).capped(highest), highest, False)
        self.ready.pop(0)

    @precondition(lambda self: self.working is None)
    @rule(only_aborted=st.booleans())
    def clean_aborted(self, only_aborted: bool) -> None:
        """C50 to C52, C55: nobody waits, but the lists stop below what any snapshot excludes."""
        low = min(
            [self.min_open(), *(reader.txns.min_open for reader in self.readers + self.writers)]
        )
        txns = self.txn_list(low - 1)
        writes = self.write_list(txns)
        highest = writes.high_watermark
        self.remove(txns, writes, highest, only_aborted)

    def remove(
        self, txns: ValidTxnList, writes: ValidWriteIdList, highest: int, only_aborted: bool
    ) -> None:
        plan = self.cleaning_plan(txns, writes, highest, only_aborted)
        for removal in plan.removals:
            if removal.path == "000000_0":
                self.originals = False
            else:
                del self.directories[removal.path]
        assert self.cleaning_plan(txns, writes, highest, only_aborted).removals == ()
        left = {by for content in self.directories.values() for _, by in content.deletes}
        left |= {row[0] for content in self.directories.values() for row in content.rows}
        assert not left & set(plan.removed_aborted_write_ids), "C49, P4: forgotten, but on disk"

    def cleaning_plan(
        self, txns: ValidTxnList, writes: ValidWriteIdList, highest: int, only_aborted: bool
    ) -> CleaningPlan:
        seen = select(self.listing(), writes, txns, cleaning=True)
        return plan_cleaning(seen, writes, highest, only_aborted=only_aborted)

    # --- what must always hold ------------------------------------------------------------------

    @invariant()
    def every_snapshot_sees_its_rows_exactly_once(self) -> None:
        now = Snapshot(Txn(0), (txns := self.txn_list(len(self.all))), self.write_list(txns))
        for snapshot in (now, *self.readers, *self.writers):
            assert Counter(self.read(snapshot)) == Counter(self.model(snapshot)), snapshot


History.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestS18C36C41EveryHistory = History.TestCase
