"""Random histories of inserts, deletes, aborts and compactions, against a model of sets."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform.compaction.plan import CompactionSettings, NothingToDo, plan_compaction
from acid_platform.compaction.states import CompactionKind
from acid_platform.scan.selection import select
from acid_platform.transactions import ValidTxnList
from tests.acid_files import AcidTable, P
from tests.notation import write_ids

Key = tuple[int, int, int]


@dataclass
class History:
    """What was written; `rows` and `deletes` have the write id that wrote them."""

    table: AcidTable
    rows: dict[Key, int] = field(default_factory=dict)
    deletes: list[tuple[Key, int]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    high: int = 0
    compactions: int = 0

    def visible(self, high: int, hidden: set[int]) -> set[Key]:
        def seen(write_id: int) -> bool:
            return write_id <= high and write_id not in hidden

        gone = {key for key, write_id in self.deletes if seen(write_id)}
        return {key for key, write_id in self.rows.items() if seen(write_id)} - gone

    def lists(self, high: int) -> str:
        return f"{high}:M::{','.join(map(str, sorted(self.aborted)))}"

    def statement(self, data: st.DataObject, number: int) -> None:
        live = sorted(self.visible(self.high, self.aborted - {self.high}))
        new = [
            (self.high, P + (bucket << 16) + number, row)
            for bucket in (0, 1)
            for row in range(data.draw(st.integers(0, 3)))
        ]
        for bucket in (0, 1):
            part = [key for key in new if (key[1] >> 16) & 0xFFF == bucket]
            if part:
                self.table.inserts(
                    f"d{self.high}.{number}/bucket_0000{bucket}", [(*key, str(key)) for key in part]
                )
        if live:
            gone = sorted(data.draw(st.sets(st.sampled_from(live), max_size=4)))
            if gone:
                self.table.deletes(f"D{self.high}.{number}", gone, current=self.high)
            self.deletes += [(key, self.high) for key in gone]
        self.rows |= {key: self.high for key in new}

    def transaction(self, data: st.DataObject) -> None:
        self.high += 1
        for number in range(data.draw(st.integers(1, 2))):
            self.statement(data, number)
        if data.draw(st.integers(0, 4)) == 0:
            self.aborted.add(self.high)

    def compact(self, kind: str) -> None:
        lists = write_ids(self.lists(self.high)).for_compactor()
        txn_id = 100 + self.compactions
        listing = self.table.layout.files.entity(str(self.table.root))
        seen = select(listing, lists, ValidTxnList.of(2000, open=[txn_id]))
        plan = plan_compaction(seen, CompactionKind(kind), lists, txn_id, CompactionSettings())
        if not isinstance(plan, NothingToDo):
            self.table.compact(kind, self.lists(self.high), txn_id)
            self.compactions += 1


@settings(max_examples=15)
@given(st.data(), st.booleans())
def test_every_snapshot_of_a_random_history_is_what_the_model_says(
    data: st.DataObject, converted: bool
) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        history = History(AcidTable(root))
        if converted:
            history.table.raw("o", [str((0, P, 0)), str((0, P, 1))])
            history.rows |= {(0, P, 0): 0, (0, P, 1): 0}
        for step in data.draw(
            st.lists(st.sampled_from(["txn"] * 4 + ["minor", "major"]), min_size=2, max_size=8)
        ):
            if step == "txn":
                history.transaction(data)
            else:
                history.compact(step)
        unresolved = ", ".join(f"{100 + i} open" for i in range(history.compactions))
        newest = history.lists(history.high)
        expected = history.visible(history.high, history.aborted)
        # With and without the compactions' output; the old directories are all still there.
        for x in ("", unresolved):
            assert set(history.table.ids(newest, x)) == expected
            assert history.table.values(newest, x) == sorted(map(str, expected))
            assert history.table.count(newest, x) == len(expected)
        for high in range(history.high):
            older = history.table.ids(history.lists(high), unresolved)
            assert set(older) == history.visible(high, history.aborted)
            assert len(older) == len(set(older))
    finally:
        shutil.rmtree(root)
