"""P23: random histories of DML and compactions; Hive's reader and ours agree with a plain model.

After every step the snapshot is kept as a write id list. In the end each list is read again, by us
(P13) and by Hive out of the directories that we select for it: rows and row ids must be equal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from acid_platform.table import Table
from acid_platform.transaction import TransactionTable
from acid_platform.transactions import ValidWriteIdList
from acid_platform.warehouse import Warehouse
from tests.conftest import temporary_warehouse
from tests.hive import RowId, hive_rows_with_ids, link_farm

pytestmark = pytest.mark.spark

Rows = dict[int, tuple[str | None, int]]
"""id → v, p: what the table holds."""
STEPS = ("insert", "update", "delete", "merge", "several", "abort", "overwrite", "minor", "major")
KEYS = 12


@dataclass
class History:
    """One table and its model; a step changes both."""

    table: Table
    data: st.DataObject
    rows: Rows = field(default_factory=dict)
    kept: list[tuple[ValidWriteIdList, Rows]] = field(default_factory=list)
    steps: int = 0

    def ids(self, least: int = 0) -> list[int]:
        return sorted(self.data.draw(
            st.sets(st.integers(0, KEYS - 1), min_size=least, max_size=6), label="ids"))

    def run(self, step: str) -> None:
        self.steps += 1
        match step:
            case "minor" | "major":
                self._compact(step)
            case "several":
                self._transaction(lambda: None)
            case "abort":
                before = dict(self.rows)
                with pytest.raises(ZeroDivisionError):
                    self._transaction(lambda: 1 // 0)
                self.rows = before
            case "overwrite":
                rows = {one: (f"o{self.steps}", one % 2) for one in self.ids()}
                # Of a partitioned table only the partitions that the rows name are replaced.
                named = {p for _, p in rows.values()}
                kept = {one: row for one, row in self.rows.items()
                        if self.table.partition_columns and row[1] not in named}
                self.table.overwrite(_dicts(rows) or self.table.read().limit(0))
                self.rows = {**kept, **rows} if rows or not kept else self.rows
            case _:
                self._statement(self.table, step)
        self.kept.append((self.table.snapshot().write_ids, dict(self.rows)))

    def _transaction(self, last: Callable[[], object]) -> None:
        with self.table._warehouse.transaction() as txn:
            for step in self.data.draw(
                    st.lists(st.sampled_from(STEPS[:4]), min_size=2, max_size=3), label="several"):
                self._statement(txn.table(self.table.name), step)
            last()

    def _statement(self, table: Table | TransactionTable, step: str) -> None:
        ids, new = self.ids(), f"{step[0]}{self.steps}"
        listed = ", ".join(map(str, ids)) or "NULL"
        match step:
            case "insert":
                rows: Rows = {one: (new if one % 3 else None, one % 2)
                              for one in ids if one not in self.rows}
                if rows:
                    table.insert(_dicts(rows))
                self.rows |= rows
            case "update":
                table.update({"v": f"concat(coalesce(v, ''), '{new}')"}, f"id IN ({listed})")
                self.rows |= {one: ((self.rows[one][0] or "") + new, self.rows[one][1])
                              for one in ids if one in self.rows}
            case "delete":
                table.delete(f"id IN ({listed})")
                self.rows = {one: row for one, row in self.rows.items() if one not in ids}
            case _:
                source = {one: (new, one % 2) for one in ids}
                if source:
                    table.merge(
                        _dicts(source), "t.id = s.id", when_matched_update={"v": "s.v"},
                        when_matched_delete="t.id % 4 = 1", when_not_matched_insert="*")
                gone = {one for one in ids if one in self.rows and one % 4 == 1}
                self.rows = {one: row for one, row in {**self.rows, **source}.items()
                             if one not in gone}

    def _compact(self, kind: str) -> None:
        partitions = self.table.partitions() if self.table.partition_columns else [None]
        for partition in partitions:
            self.table.compact(kind, partition=partition)  # type: ignore[arg-type]

    # --- agreement -----------------------------------------------------------------------------

    def check(self, spark: SparkSession, scratch: Path) -> None:
        for number, (write_ids, rows) in enumerate(self.kept):
            ours = self.table.read(snapshot=write_ids, row_id=True).collect()
            assert {row["id"]: (row["v"], row["p"]) for row in ours} == rows
            assert len(ours) == len(rows)
            assert self._hive(spark, write_ids, scratch / str(number)) == Counter(
                (row["p"] if self.table.partition_columns else None, tuple(row["row__id"]),
                 f"{{{row['id']}, {'null' if row['v'] is None else row['v']}"
                 f"{'' if self.table.partition_columns else ', ' + str(row['p'])}}}")
                for row in ours)

    def _hive(
        self, spark: SparkSession, write_ids: ValidWriteIdList, scratch: Path
    ) -> Counter[tuple[int | None, RowId, str]]:
        found: Counter[tuple[int | None, RowId, str]] = Counter()
        scan = self.table._warehouse.leased_scan(self.table.record, None, write_ids)
        for entity in scan.entities:
            farm = link_farm(entity.directory, scratch / (entity.partition or "t"))
            value = int(entity.values[0] or 0) if entity.values else None
            if farm.is_dir():
                found.update((value, key, row) for key, row in hive_rows_with_ids(
                    spark, farm, list(self.table.record.columns), write_ids))
        return found


def _dicts(rows: Rows) -> list[dict[str, object]]:
    return [{"id": one, "v": v, "p": p} for one, (v, p) in rows.items()]


def _holds(
    spark: SparkSession, data: st.DataObject, shape: str, length: int
) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        with temporary_warehouse(root / "wh", spark) as warehouse:
            history = History(_table(warehouse, shape), data)
            history.run("insert")
            for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=length,
                                           max_size=length), label="steps"):
                history.run(step)
            history.check(spark, root / "farm")
    finally:
        shutil.rmtree(root)


def _table(warehouse: Warehouse, shape: str) -> Table:
    if shape == "partitioned":
        return warehouse.create_table("db.t", "id int, v string", partitioned_by=["p int"])
    clustered = (["id"], 3) if shape == "bucketed" else None
    return warehouse.create_table("db.t", "id int, v string, p int", clustered_by=clustered)


# No shrinking: a history costs many Spark jobs; the failing one is printed by its draws.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
HEALTH = list(HealthCheck)


@settings(max_examples=1, phases=PHASES, suppress_health_check=HEALTH, database=None)
@given(data=st.data(), shape=st.sampled_from(["plain", "partitioned", "bucketed"]))
def test_P23_hive_agrees_on_every_snapshot_of_a_random_history(
    spark: SparkSession, data: st.DataObject, shape: str
) -> None:
    _holds(spark, data, shape, length=6)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("shape", ["plain", "partitioned", "bucketed"])
@settings(max_examples=5, phases=PHASES, suppress_health_check=HEALTH)
@given(data=st.data())
def test_P23_hive_agrees_on_every_snapshot_of_many_random_histories(
    spark: SparkSession, data: st.DataObject, shape: str
) -> None:
    _holds(spark, data, shape, length=10)
