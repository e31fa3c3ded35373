"""A backfill as a person starts it, over one Spark Connect server.

For each partition the daemon creates a run with its own process and transaction, two at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from acid_platform import Warehouse
from tests.conftest import temporary_warehouse
from tests.connect_server import connect_server
from tests.metastore.processes import until
from tests.orchestration import monthly
from tests.orchestration.monthly import MONTHS, TABLE
from tests.orchestration.processes import PAUSE, DagsterProcesses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOCATION = "defs"
KEYS = MONTHS.get_partition_keys()


@dataclass(frozen=True, slots=True)
class Place:
    dagster: DagsterProcesses
    warehouse: Warehouse

    def backfill(self, keys: Sequence[str]) -> list[dg.RunRecord]:
        """Runs a backfill and returns its successful runs in the order of their partitions."""
        instance = self.dagster.instance
        wanted = self.dagster.backfill(monthly.sales.key, keys)

        def ended() -> bool:
            found = instance.get_backfill(wanted)
            assert found
            return found.status.name.startswith(("COMPLETED", "FAILED", "CANCELED"))

        until(ended, 900, PAUSE)
        runs = instance.get_run_records(dg.RunsFilter(tags={"dagster/backfill": wanted}))
        assert {one.dagster_run.status for one in runs} == {dg.DagsterRunStatus.SUCCESS}
        return sorted(runs, key=_partition)

    def run_of_month(self) -> dict[int, str]:
        """The run that wrote each month's rows; each month has as many rows as its number says."""
        rows = self.warehouse.table(TABLE.name).to_arrow().to_pylist()
        counted = {
            month: [one["run"] for one in rows if one["month"] == month] for month in range(1, 13)
        }
        assert {month: len(runs) for month, runs in counted.items()} == {
            month: month for month in range(1, 13)
        }
        assert all(len(set(runs)) == 1 for runs in counted.values())
        return {month: runs[0] for month, runs in counted.items()}


def _partition(run: dg.RunRecord) -> str:
    return run.dagster_run.tags["dagster/partition"]


def at_a_time(runs: Sequence[dg.RunRecord]) -> int:
    """The most of them that ran at one moment."""
    moments = sorted(
        [(one.start_time or 0.0, 1) for one in runs] + [(one.end_time or 0.0, -1) for one in runs]
    )
    return max(sum(step for _, step in moments[:end]) for end in range(len(moments) + 1))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with connect_server(tmp_path / "spark.log") as (remote, _):
        environment = {"ACID_WAREHOUSE": str(tmp_path / "wh"), "ACID_SPARK_REMOTE": remote}
        with (
            temporary_warehouse(tmp_path / "wh") as warehouse,
            DagsterProcesses(
                tmp_path / "dagster", monthly.__name__, (LOCATION,), environment, runs_at_a_time=2
            ) as dagster,
        ):
            yield Place(dagster, warehouse)


def test_a_backfill_of_twelve_months_two_runs_at_a_time(place: Place) -> None:
    assert len(KEYS) == 12
    runs = place.backfill(KEYS)
    assert [_partition(one) for one in runs] == KEYS
    assert at_a_time(runs) == 2
    run_ids = [one.dagster_run.run_id for one in runs]
    assert list(place.run_of_month().values()) == run_ids
    history = place.warehouse.table(TABLE.name).history()
    assert len({one["txn"] for one in history}) == 12
    assert {one["run_id"] for one in history} == set(run_ids)
    assert place.dagster.instance.get_materialized_partitions(monthly.sales.key) == set(KEYS)

    # One month again: its rows are replaced, and the other eleven are as they were.
    [again] = place.backfill(["2023-03-01"])
    before = dict(zip(range(1, 13), run_ids, strict=True))
    assert place.run_of_month() == before | {3: again.dagster_run.run_id}
    after = place.warehouse.table(TABLE.name).history()
    new = {(one["run_id"], one["partition"]) for one in after if one not in history}
    assert new == {(again.dagster_run.run_id, "year=2023/month=3")}
