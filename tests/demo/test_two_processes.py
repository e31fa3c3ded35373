"""A reader sees only committed batches of an ingesting process, even if that process dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO

import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from acid_platform.metastore.operations.transactions import GetTxnStates
from acid_platform.services import cleaner
from assets import flights_source
from assets.flights import FLIGHTS
from tests.conftest import temporary_warehouse

WEEKS = 3
IMPATIENT = {
    "hive.txn.timeout": "6s",
    "hive.timedout.txn.reaper.start": "0s",
    "hive.timedout.txn.reaper.interval": "1s",
    "hive.compactor.abortedtxn.threshold": "0",
}


def _told(stream: IO[str]) -> str:
    line = stream.readline()
    assert line, "the ingesting process ended too early"
    return line.strip()


def _weeks_seen(warehouse: Warehouse) -> Counter[int]:
    """Rows by week of what a reader sees now."""
    rows = warehouse.table(FLIGHTS.name).read(["month", "day"]).groupBy("month", "day").count()
    seen: Counter[int] = Counter()
    for month, day, count in rows.collect():
        seen[
            (flights_source.FIRST_DAY.replace(month=month, day=day) - flights_source.FIRST_DAY).days
            // 7
        ] += count
    return seen


def _directories(root: Path, write_id: int) -> list[str]:
    return [str(path.relative_to(root)) for path in root.glob(f"*/*delta_{write_id:07d}_*")]


@pytest.mark.slow
@pytest.mark.spark
def test_P2_a_reader_sees_committed_batches_only_and_a_killed_writer_leaves_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    expected = {week: len(flights_source.delivery(week).flights) for week in range(WEEKS + 1)}
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        for name, value in IMPATIENT.items():
            warehouse.metastore.set(name, value)
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.demo.ingest", str(tmp_path / "wh"), str(WEEKS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert writer.stdout
        try:
            looks = 0
            committed = -1
            while not (line := _told(writer.stdout)).startswith("written"):
                committed = int(line.removeprefix("committed "))
                seen = _weeks_seen(warehouse)
                looks += 1
                # While the writer goes on, readers see whole weeks without gaps; none disappears.
                assert dict(seen) == {week: expected[week] for week in range(len(seen))}
                assert len(seen) > committed
            assert (looks, committed) == (WEEKS, WEEKS - 1)
            doomed = int(line.removeprefix("written "))
            root = Path(warehouse.table(FLIGHTS.name).location)
            assert _directories(root, WEEKS + 1), "the batch is on disk"
            assert sorted(_weeks_seen(warehouse)) == list(range(WEEKS))
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        finally:
            writer.kill()
        assert sorted(_weeks_seen(warehouse)) == list(range(WEEKS))
        deadline = time.monotonic() + 60
        while warehouse.metastore.call(GetTxnStates((doomed,)))[doomed] == "o":
            assert time.monotonic() < deadline, "the reaper did not abort the transaction"
            time.sleep(0.2)
        assert warehouse.metastore.call(GetTxnStates((doomed,)))[doomed] == "a"
        warehouse.release()
        removed = [line for done in cleaner.run(warehouse.metastore) for line in done.removed]
        assert len(removed) >= 1
        assert not _directories(root, WEEKS + 1)
        assert dict(_weeks_seen(warehouse)) == {week: expected[week] for week in range(WEEKS)}
