"""Leases are checked where it matters, and heartbeats arrive in time (P12, P29).

A reader that had been stopped for longer than `hive.txn.timeout`, or a snapshot that had not been
read for `acid.read.lease.max`, used to return no rows as if there were none. And a handle that made
the timeout shorter was reaped, since it kept the heartbeat interval of the old timeout.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from acid_platform import (
    AcidError,
    CorruptFile,
    MetastoreUnavailable,
    NoSuchTxn,
    SnapshotExpired,
    UnknownColumn,
    Warehouse,
)
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.services import cleaner
from tests.compaction.killed_worker import work
from tests.conftest import temporary_warehouse
from tests.engine.stopped_reader import MODES
from tests.metastore.processes import until
from tests.orchestration.local_writes import insert

NAME = "db.t"
REAPER = {"hive.timedout.txn.reaper.interval": "0.1s", "hive.timedout.txn.reaper.start": "0s"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    """A table of two deltas with a row each, without a JVM."""
    with temporary_warehouse(tmp_path / "wh") as opened:
        opened.create_table(NAME, "v string")
        for value in "ab":
            with opened.transaction() as txn:
                insert(txn, NAME, [value])
        yield opened


def clean_away(warehouse: Warehouse) -> None:
    """Compacts and cleans, so that files of snapshots that are no longer open are removed."""
    root = Path(warehouse.table(NAME).location)
    assert work(warehouse, NAME) == "published"
    cleaner.run(warehouse.metastore)
    assert [path.name[:4] for path in root.iterdir()] == ["base"]


@pytest.mark.parametrize("ended", [NoSuchTxn, MetastoreUnavailable])
def test_P29_a_missing_file_is_damage_only_while_the_transaction_is_known_to_be_open(
    warehouse: Warehouse, ended: type[AcidError], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(warehouse.table(NAME).location)
    with warehouse.transaction() as txn:
        table = txn.table(NAME)
        for path in root.glob("delta_0000001_*/bucket_*"):
            path.unlink()
        with pytest.raises(CorruptFile, match="is gone"):
            table.to_arrow()

        def check() -> None:
            raise ended("nobody can tell")

        monkeypatch.setattr(txn.begun, "check", check)
        with pytest.raises(ended, match="nobody can tell"):
            table.to_arrow()
        with pytest.raises(UnknownColumn):  # no file: the first error says what is wrong
            table.to_arrow(["nobody"])


def open_txns(metastore: Metastore) -> list[int]:
    return [row["txnid"] for row in metastore.transactions() if row["state"] == "OPEN"]


@pytest.mark.parametrize(
    "modes", [("count", "txn to_arrow"), pytest.param(MODES, marks=pytest.mark.slow)]
)
def test_P29_a_reader_that_was_stopped_beyond_its_timeout_gives_an_error(
    warehouse: Warehouse, modes: tuple[str, ...]
) -> None:
    """All are stopped together; their leases are reaped, the files compacted and cleaned."""
    metastore = warehouse.metastore
    for name, value in {**REAPER, "hive.txn.timeout": "3s"}.items():
        metastore.set(name, value)
    warehouse.table(NAME).compact("major", wait=False)
    command = [sys.executable, "-m", "tests.engine.stopped_reader", warehouse.path, NAME]
    readers = {
        mode: subprocess.Popen([*command, mode], stdout=subprocess.PIPE, text=True)
        for mode in modes
    }
    processes = {mode: psutil.Process(reader.pid) for mode, reader in readers.items()}
    try:
        until(
            lambda: (
                {
                    mode
                    for mode, process in processes.items()
                    if process.status() == psutil.STATUS_STOPPED
                }
                == set(modes)
            ),
            120,
        )
        until(lambda: not open_txns(metastore), 60)
        metastore.set("hive.txn.timeout", "300s")
        clean_away(warehouse)
    finally:
        for reader in readers.values():
            os.kill(reader.pid, signal.SIGCONT)
    said = {mode: reader.communicate(timeout=300)[0].strip() for mode, reader in readers.items()}
    aborted = dict.fromkeys([mode for mode in modes if mode.startswith("txn")], "TxnAborted")
    assert said == dict.fromkeys(modes, "SnapshotExpired") | aborted
    assert warehouse.table(NAME).count() == 2


@pytest.mark.more
def test_P29_P12_a_snapshot_that_nobody_read_for_too_long_gives_an_error(
    warehouse: Warehouse,
) -> None:
    held = warehouse.snapshot()
    table = held.table(NAME)
    assert table.to_arrow().num_rows == 2
    warehouse.metastore.set("acid.read.lease.max", "0.0001h")
    until(lambda: not open_txns(warehouse.metastore))
    warehouse.table(NAME).compact("major", wait=False)
    clean_away(warehouse)
    with pytest.raises(SnapshotExpired, match="no read for"):
        table.read()
    with pytest.raises(SnapshotExpired, match="no read for"):
        table.to_arrow()
    held.close()


def test_P12_a_snapshot_whose_block_has_ended_gives_an_error(warehouse: Warehouse) -> None:
    with warehouse.snapshot() as held:
        table = held.table(NAME)
        assert table.to_arrow().num_rows == 2
    for read in (table.read, table.to_arrow):
        with pytest.raises(SnapshotExpired, match="its block has ended"):
            read()


@pytest.mark.more
def test_P29_a_shorter_timeout_counts_at_once_for_the_heartbeats_of_every_handle(
    tmp_path: Path,
) -> None:
    """No reaper runs in the first 100 s: the test looks only at heartbeats."""
    with Metastore.connect(tmp_path / "m") as other:
        with Metastore.connect(tmp_path / "m") as first:
            first.set("hive.txn.timeout", "2s")
            mine, theirs = first.begin(), other.begin()

            def beats() -> set[int]:
                return {
                    row["txnid"]
                    for row in first.transactions()
                    if row["lastheartbeattime"] >= row["startedtime"] + 500
                }

            until(lambda: beats() == {mine.id, theirs.id}, 20)
            mine.commit()
            theirs.commit()
        other.stop()
