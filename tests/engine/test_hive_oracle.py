"""P23: random histories of DML and compactions; Hive's reader and ours agree with a plain model.

After every step a snapshot is taken and held (P12). In the end each one is read, by us and by Hive
out of the directories that we select for it: rows and row ids must be equal, whatever was compacted
and cleaned meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from acid_platform import Snapshot, Warehouse
from acid_platform.scan.open import chosen_partitions, select_entities
from acid_platform.tables.record_layout import recorded_listings, table_layout
from tests.conftest import compact_with, temporary_warehouse
from tests.history.model import KINDS, SERVICES, WRITES, History, Rows
from tests.hive import RowId, hive_rows_with_ids, link_farm

pytestmark = pytest.mark.spark

STEPS = (*WRITES, *SERVICES)


class HeldHistory(History):
    """Takes a snapshot after each step, and holds it; one engine or the other compacts."""

    def __init__(self, warehouse: Warehouse, seed: int, kind: str) -> None:
        super().__init__(warehouse, seed, kind)
        self.kept: list[tuple[Snapshot, Rows]] = []

    def step(self, what: str) -> None:
        compact_with(self.warehouse, self.random.choice(("spark", "local")))
        super().step(what)
        self.kept.append((self.warehouse.snapshot(), dict(self.rows)))

    # --- agreement -----------------------------------------------------------------------------

    def check(self, spark: SparkSession, scratch: Path) -> int:
        """How many rows Hive returned."""
        compared = 0
        for number, (snapshot, rows) in enumerate(self.kept):
            ours = snapshot.table(self.table.name).read(row_id=True).collect()
            self.require([row.asDict() for row in ours], rows)
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
        write_ids = snapshot._lease.valid_write_ids(self.table.name)
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


def _compared(spark: SparkSession, seed: int, kind: str, length: int) -> int:
    """How many rows of a history's snapshots Hive returned, all of them equal to ours."""
    root = Path(tempfile.mkdtemp())
    try:
        with temporary_warehouse(root / "wh", spark) as warehouse:
            history = HeldHistory(warehouse, seed, kind)
            history.play(["insert", *history.random.choices(STEPS, k=length)])
            rows = history.check(spark, root / "farm")
            for snapshot, _ in history.kept:
                snapshot.close()
            return rows
    finally:
        shutil.rmtree(root)


# No shrinking: a seed of a smaller number is not a simpler history.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.mark.parametrize(("kind", "seed"), [("partitioned", 1)])
def test_P23_hive_agrees_on_every_snapshot_of_a_random_history(
    spark: SparkSession, kind: str, seed: int
) -> None:
    assert _compared(spark, seed, kind, length=7) > 7


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, phases=PHASES)
@given(seed=st.integers(0, 2**32))
def test_P23_hive_agrees_on_every_snapshot_of_many_random_histories(
    spark: SparkSession, kind: str, seed: int
) -> None:
    _compared(spark, seed, kind, length=10)  # a random history may have few rows
