"""Both engines give the same changes, and record which events are updates alike (P33, P39)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import SnapshotExpired, Warehouse
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse
from tests.history.model import KINDS
from tests.history.test_changes import STEPS, ChangedHistory

pytestmark = pytest.mark.spark


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """The rows as texts; times without the zone that a result in UTC has."""
    shown = [
        {
            name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return Counter(str(sorted(row.items())) for row in shown)


def written(wh: Warehouse, name: str, engine: str) -> list[dict[str, Any]]:
    """The changes of a table after statements of one engine."""
    table = wh.create_table(
        name,
        "id int, v string, at timestamp, c char(4), d decimal(9,2)",
        ["p string"],
        properties={"acid.history.retention": "1h"},
    )
    source = pa.table(
        {
            "id": pa.array([2, 3, 4, 5, 6, 20, 21], pa.int32()),
            "v": ["s"] * 7,
            "p": ["a"] * 3 + ["b"] * 4,
        }
    )
    with wh.using(engine):
        wh.sql(
            f"INSERT INTO {name} SELECT id, concat('v', id), TIMESTAMP '2026-01-01 12:00:00', 'x',"
            " 1.5, IF(id < 5, 'a', 'b') FROM (SELECT explode(sequence(1, 9)) AS id)"
            if engine == "spark"
            else f"INSERT INTO {name} VALUES "
            + ", ".join(
                f"({id}, 'v{id}', TIMESTAMP '2026-01-01 12:00:00', 'x', 1.5,"
                f" '{'a' if id < 5 else 'b'}')"
                for id in range(1, 10)
            )
        )
        wh.sql(f"UPDATE {name} SET v = 'u' WHERE id IN (1, 5, 6)")
        table.merge(
            source,
            "t.id = s.id",
            when_matched_update={"v": "s.v"},
            when_matched_delete="s.id IN (3, 6)",
            when_not_matched_insert="*",
        )
        with wh.transaction() as txn:
            inside = txn.table(name)
            inside.update({"v": "'t'"}, "id < 3")
            inside.delete("id = 1")
            inside.update({"v": "concat(v, 't')"}, "id < 9")
            inside.delete("p = 'b' AND id < 9")
    table.compact("major")
    cleaner.run(wh.metastore)
    return table.changes_arrow(0).read_all().to_pylist()


@pytest.mark.slow
def test_P39_both_engines_write_and_read_the_same_changes(
    tmp_path: Path, spark: SparkSession
) -> None:
    with temporary_warehouse(tmp_path, spark=spark) as wh:
        every = {engine: written(wh, engine, engine) for engine in ("local", "spark")}
        kinds = {
            name: Counter(
                (row["_change_type"], row["_write_id"], row["id"], row["v"]) for row in rows
            )
            for name, rows in every.items()
        }
        assert kinds["local"] == kinds["spark"]
        of_merge = Counter(row["_change_type"] for row in every["spark"] if row["_write_id"] == 3)
        assert of_merge == {"insert": 2, "delete": 2, "update_preimage": 3, "update_postimage": 3}
        of_transaction = [row for row in every["spark"] if row["_write_id"] == 4]
        assert {row["id"]: row["_change_type"] for row in of_transaction if row["id"] == 1} == {
            1: "delete"
        }
        for name, rows in every.items():
            table = wh.table(name)
            frame = table.changes(0)
            assert frame.columns == list(rows[0])
            assert counted([row.asDict() for row in frame.collect()]) == counted(rows)
            query = f"SELECT * FROM table_changes('{name}', 0, 3) WHERE _change_type <> 'insert'"
            for engine in ("local", "spark"):
                with wh.using(engine):
                    answer = wh.sql(query)
                    assert answer.engine == engine
                    found = counted(answer.to_arrow().to_pylist())
                wanted = [
                    row for row in rows if row["_write_id"] <= 3 and row["_change_type"] != "insert"
                ]
                assert found == counted(wanted), (name, engine)
        lost = wh.table("local").changes(1)
        wh.sql("ALTER TABLE local SET TBLPROPERTIES ('acid.history.retention'='0s')")
        wh.release()
        cleaner.run(wh.metastore)
        with pytest.raises(SnapshotExpired, match="is gone"):
            lost.count()
        assert wh.table("local").changes(None, columns=["id"]).count() == wh.table("local").count()


class MixedHistory(ChangedHistory):
    """Each statement and compaction is executed by one of the engines, at random."""

    def step(self, what: str) -> None:
        with self.warehouse.using(self.random.choice(["local", "spark"])):
            super().step(what)

    def compare(self, low: int, high: int, found: list[dict[str, Any]]) -> None:
        """The changes as read by both engines."""
        super().compare(low, high, found)
        frame = self.table.changes(self.past[low][0], self.past[high][0])
        super().compare(low, high, [row.asDict() for row in frame.collect()])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 209))
def test_P39_histories_of_both_engines(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    with temporary_warehouse(tmp_path, spark=spark) as wh:
        history = MixedHistory(wh, seed, KINDS[seed % 3], "1h")
        history.step("insert")
        for _ in range(16):
            history.step(history.random.choice(STEPS))
        assert history.check(forever=True, pairs=4) == 4
