"""P23: random histories of DML and compactions; Hive's reader and ours agree with a plain model.

After every step a snapshot is taken and held (P12). In the end each one is read, by us and by Hive
out of the directories that we select for it: rows and row ids must be equal, whatever was compacted
and cleaned meanwhile.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from acid_platform import AlreadyScheduled, CompactionRefused, Snapshot, Table, Warehouse
from acid_platform.handles.transaction import TransactionTable
from acid_platform.scan.open import chosen_partitions, select_entities
from acid_platform.services import cleaner
from acid_platform.tables.record_layout import recorded_listings, table_layout
from tests.conftest import compact_with, temporary_warehouse
from tests.hive import RowId, hive_rows_with_ids, link_farm

pytestmark = pytest.mark.spark

Rows = dict[int, tuple[str | None, int]]
"""id → v, p: what the table holds."""
STEPS = (
    "insert",
    "update",
    "delete",
    "merge",
    "several",
    "abort",
    "overwrite",
    "minor",
    "major",
    "clean",
)
KEYS = 12


@dataclass
class History:
    """One table and its model; a step changes both."""

    warehouse: Warehouse
    table: Table
    random: random.Random
    rows: Rows = field(default_factory=dict)
    kept: list[tuple[Snapshot, Rows]] = field(default_factory=list)
    steps: int = 0

    def ids(self) -> list[int]:
        return sorted(self.random.sample(range(KEYS), self.random.randint(0, 6)))

    def run(self, step: str) -> None:
        self.steps += 1
        match step:
            case "minor" | "major":
                self._compact(step)
            case "clean":
                cleaner.run(self.warehouse.metastore)
            case "several":
                self._transaction(lambda: None)
            case "abort":
                before = dict(self.rows)
                with pytest.raises(ZeroDivisionError):
                    self._transaction(lambda: 1 // 0)
                self.rows = before
            case "overwrite":
                rows: Rows = {one: (f"o{self.steps}", one % 2) for one in self.ids()}
                # Of a partitioned table only the partitions that the rows name are replaced.
                named = {p for _, p in rows.values()}
                kept = {
                    one: row
                    for one, row in self.rows.items()
                    if self.table.partition_columns and row[1] not in named
                }
                self.table.overwrite(_dicts(rows) or self.table.read().limit(0))
                self.rows = {**kept, **rows} if rows or not kept else self.rows
            case _:
                self._statement(self.table, step)
        self.kept.append((self.warehouse.snapshot(), dict(self.rows)))

    def _transaction(self, last: Callable[[], object]) -> None:
        with self.warehouse.transaction() as txn:
            for step in self.random.choices(STEPS[:4], k=self.random.randint(2, 3)):
                self._statement(txn.table(self.table.name), step)
            last()

    def _statement(self, table: Table | TransactionTable, step: str) -> None:
        ids, new = self.ids(), f"{step[0]}{self.steps}"
        listed = ", ".join(map(str, ids)) or "NULL"
        match step:
            case "insert":
                rows: Rows = {
                    number: (new if number % 3 else None, number % 2)
                    for number in ids
                    if number not in self.rows
                }
                if rows:
                    table.insert(_dicts(rows))
                self.rows |= rows
            case "update":
                table.update({"v": f"concat(coalesce(v, ''), '{new}')"}, f"id IN ({listed})")
                self.rows |= {
                    number: ((self.rows[number][0] or "") + new, self.rows[number][1])
                    for number in ids
                    if number in self.rows
                }
            case "delete":
                table.delete(f"id IN ({listed})")
                self.rows = {one: row for one, row in self.rows.items() if one not in ids}
            case _:
                source: Rows = {number: (new, number % 2) for number in ids}
                if source:
                    table.merge(
                        _dicts(source),
                        "t.id = s.id",
                        when_matched_update={"v": "s.v"},
                        when_matched_delete="t.id % 4 = 1",
                        when_not_matched_insert="*",
                    )
                gone = {number for number in ids if number in self.rows and number % 4 == 1}
                self.rows = {
                    one: row for one, row in {**self.rows, **source}.items() if one not in gone
                }

    def _compact(self, kind: Literal["minor", "major"]) -> None:
        compact_with(self.warehouse, ("spark", "local")[self.steps % 2])
        partitions: Sequence[str | None] = self.table.partitions() or [None]
        for partition in partitions:
            with suppress(CompactionRefused, AlreadyScheduled):  # too few directories
                self.table.compact(kind, partition=partition)

    # --- agreement -----------------------------------------------------------------------------

    def check(self, spark: SparkSession, scratch: Path) -> int:
        """How many rows Hive returned."""
        compared = 0
        for number, (snapshot, rows) in enumerate(self.kept):
            ours = snapshot.table("db.t").read(row_id=True).collect()
            assert {row["id"]: (row["v"], row["p"]) for row in ours} == rows
            assert len(ours) == len(rows)
            hive = self._hive(spark, snapshot, scratch / str(number))
            assert hive == Counter(
                (self._partition(row), tuple(row["row__id"]), self._printed(row)) for row in ours
            )
            compared += hive.total()
        return compared

    def _partition(self, row: Row) -> int | None:
        return row["p"] if self.table.partition_columns else None

    def _printed(self, row: Row) -> str:
        stored = [row[name] for name, _ in self.table.record.columns]
        return "{" + ", ".join("null" if one is None else str(one) for one in stored) + "}"

    def _hive(
        self, spark: SparkSession, snapshot: Snapshot, scratch: Path
    ) -> Counter[tuple[int | None, RowId, str]]:
        found: Counter[tuple[int | None, RowId, str]] = Counter()
        write_ids = snapshot._lease.valid_write_ids("db.t")
        layout = table_layout(self.table.record, snapshot._lease)
        files = recorded_listings(layout, snapshot._lease, chosen_partitions(layout))
        seen = select_entities(layout, files, write_ids, snapshot._lease.valid_txns)
        for partition, directory in seen.items():
            farm = link_farm(directory, scratch / (partition or "t"))
            values = layout.values(partition)
            value = int(values[0] or 0) if values else None
            if farm.is_dir():
                found.update(
                    (value, key, row)
                    for key, row in hive_rows_with_ids(
                        spark, farm, list(self.table.record.columns), write_ids
                    )
                )
        return found


def _dicts(rows: Rows) -> list[dict[str, object]]:
    return [{"id": one, "v": v, "p": p} for one, (v, p) in rows.items()]


def _compared(spark: SparkSession, seed: int, shape: str, length: int) -> int:
    """How many rows of a history's snapshots Hive returned, all of them equal to ours."""
    draw = random.Random(f"{shape} {seed}")
    root = Path(tempfile.mkdtemp())
    try:
        with temporary_warehouse(root / "wh", spark) as warehouse:
            history = History(warehouse, _table(warehouse, shape), draw)
            for step in ["insert", *draw.choices(STEPS, k=length)]:
                history.run(step)
            rows = history.check(spark, root / "farm")
            for snapshot, _ in history.kept:
                snapshot.close()
            return rows
    finally:
        shutil.rmtree(root)


def _table(warehouse: Warehouse, shape: str) -> Table:
    if shape == "partitioned":
        return warehouse.create_table("db.t", "id int, v string", partitioned_by=["p int"])
    clustered = (["id"], 3) if shape == "bucketed" else None
    return warehouse.create_table("db.t", "id int, v string, p int", clustered_by=clustered)


SHAPES = ("plain", "partitioned", "bucketed")
# No shrinking: a seed of a smaller number is not a simpler history.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.mark.parametrize(("shape", "seed"), [("partitioned", 1)])
def test_P23_hive_agrees_on_every_snapshot_of_a_random_history(
    spark: SparkSession, shape: str, seed: int
) -> None:
    assert _compared(spark, seed, shape, length=7) > 7


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=5, phases=PHASES)
@given(seed=st.integers(0, 2**32))
def test_P23_hive_agrees_on_every_snapshot_of_many_random_histories(
    spark: SparkSession, shape: str, seed: int
) -> None:
    _compared(spark, seed, shape, length=10)  # a random history may have few rows
