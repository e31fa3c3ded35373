"""A backfill of thirty runs on a branch, by Dagster's daemon (P81): all of it is seen at once."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import temporary_warehouse
from tests.metastore.processes import until
from tests.orchestration import branch_days
from tests.orchestration.processes import PAUSE, DagsterProcesses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
_PATIENCE = 900
_BAD = "2024-01-13"


def test_P81_thirty_runs_are_seen_when_the_last_is_mended(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text(_BAD)
    environment = {"ACID_WAREHOUSE": str(tmp_path / "warehouse"), branch_days.BAD: str(bad)}
    processes = DagsterProcesses(
        tmp_path / "dagster", branch_days.__name__, ("defs",), environment, 2
    )
    seen = set[int]()
    with temporary_warehouse(tmp_path / "warehouse") as warehouse, processes as dagster:

        def counted() -> int:
            there = "shop.days" in warehouse.tables()
            seen.add(rows := warehouse.table("shop.days").count() if there else 0)
            return rows

        def ended() -> bool:
            counted()
            found = dagster.instance.get_backfill(backfill)
            return found is not None and found.status.name.startswith(("COMPLETED", "FAILED"))

        def runs() -> list[dg.DagsterRun]:
            return dagster.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))

        dagster.switch_on("defs", "merge_branches")
        keys = branch_days.DAYS.get_partition_keys()
        backfill = dagster.backfill(branch_days.days.key, keys, {"acid/branch": "run"})
        until(ended, _PATIENCE, PAUSE)
        assert len(runs()) == 30
        until(lambda: "kept" in _said(dagster, runs()), 120, PAUSE)
        assert seen == {0}, "nobody sees a day whose check has not passed"
        [branch] = warehouse.branches.list()
        assert branch.name == f"backfill/{backfill}"

        bad.write_text("")
        # The check looks at all days, so it has failed from that day on.
        failed = [run for run in runs() if run.tags["dagster/partition"] >= _BAD]
        for run in sorted(failed, key=lambda run: run.tags["dagster/partition"]):
            dagster.repeat(run.run_id)
        until(lambda: counted() == 60, _PATIENCE, PAUSE)
        assert seen == {0, 60}, "thirty days at one moment"
        until(lambda: not warehouse.branches.list(), 60, PAUSE)
        assert warehouse.table("shop.days").count("amount > 10000") == 0


def _said(dagster: DagsterProcesses, runs: list[dg.DagsterRun]) -> str:
    """What the pages of the runs show."""
    return "\n".join(
        entry.message for run in runs for entry in dagster.instance.all_logs(run.run_id)
    )
