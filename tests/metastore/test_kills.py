"""What a kill, a torn log, a full disk and much history do to the metastore (P2, P3).

`make test` runs a tenth of what `make test-full` runs.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from acid_platform.errors import (
    AcidError,
    MetastoreIncompatible,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    OutcomeUnknown,
)
from acid_platform.metastore import LockRequest, Metastore, WriteReport
from acid_platform.metastore.endpoint import Endpoint, Home
from acid_platform.metastore.rpc import Link
from acid_platform.metastore.store import Store
from acid_platform.transactions import Operation
from acid_platform.transactions.locks import LockType
from benchmarks.metastore import fill
from tests.metastore.processes import end, gone

FORK = multiprocessing.get_context("fork")
CLIENTS = 8
TABLES = [f"t{number}" for number in range(4)]


@dataclass
class Work:
    """What one client knows of its transactions: each writes two tables."""

    acknowledged: dict[int, dict[str, int]] = field(default_factory=dict)
    """Write ids by table of each transaction whose commit was answered."""
    aborted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    resolved: int = 0
    """Broken calls whose outcome was learnt by request id."""


def _client(directory: Path, number: int, stop: Any, answers: Any) -> None:
    chance, work = random.Random(number), Work()
    recover = Link._recover

    def counting(link: Link, op: str, *args: Any) -> dict[str, Any]:
        answer = recover(link, op, *args)
        work.resolved += op in ("begin", "commit", "abort")
        return answer

    Link._recover = counting  # type: ignore[method-assign, assignment]
    with Metastore.connect(directory) as metastore:
        while not stop.is_set():
            names = chance.sample(TABLES, 2)
            locks = [LockRequest(one, LockType.SHARED_WRITE, Operation.INSERT) for one in names]
            try:
                txn = metastore.begin(locks=locks)
            except (OutcomeUnknown, MetastoreUnavailable):
                continue
            ids = {name: txn.write_ids[f"default.{name}"] for name in names}
            try:
                if chance.random() < 0.2:
                    txn.abort()
                    work.aborted.append(txn.id)
                    continue
                txn.commit([
                    WriteReport(name, None, Operation.INSERT, f"delta_{one:07d}_{one:07d}_0000",
                                1, 10, 1)
                    for name, one in ids.items()
                ])
                work.acknowledged[txn.id] = ids
            except (OutcomeUnknown, MetastoreUnavailable):
                work.unknown.append(txn.id)
    answers.put(work)


def _kill_often(directory: Path, kills: int, chance: random.Random) -> None:
    home, killed = Home(directory), 0
    while killed < kills:
        found = Endpoint.read(home)
        if found is None or gone(found.pid):
            time.sleep(0.002)
            continue
        time.sleep(0.1 + 0.4 * chance.random())
        try:
            os.kill(found.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed += 1


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_P3_kills_under_eight_writers_lose_halve_and_double_nothing(
    tmp_path: Path, kills: int
) -> None:
    directory = tmp_path / "metastore"
    with Metastore.connect(directory) as metastore:
        for name in TABLES:
            metastore.create_table(name, f"/w/{name}", [("id", "int")])
        # A fold and its checkpoint after every few transactions: most kills hit one of them.
        metastore.set("acid.metastore.fold.transactions", "5")
    answers, stop = FORK.Queue(), FORK.Event()
    clients = [FORK.Process(target=_client, args=(directory, number, stop, answers))
               for number in range(CLIENTS)]
    for one in clients:
        one.start()
    _kill_often(directory, kills, random.Random(kills))
    stop.set()
    works: list[Work] = [answers.get(timeout=120) for _ in clients]
    for one in clients:
        one.join()
    with Metastore.connect(directory) as metastore:
        assert metastore.status()["epoch"] > kills / 2
        states: dict[int, str] = {}
        rows = {name: metastore.history(name) for name in TABLES}
        known = [*(txn for work in works for txn in work.acknowledged),
                 *(txn for work in works for txn in (*work.aborted, *work.unknown))]
        for begin in range(0, len(known), 1000):
            states |= metastore.txn_states(known[begin:begin + 1000])
        end(metastore)
    written: dict[int, dict[str, int]] = {}
    for name, found in rows.items():
        ids = [row["write_id"] for row in found]
        assert len(ids) == len(set(ids)), "a write id was given twice"
        for row in found:
            assert name not in written.setdefault(row["txn"], {}), "done twice"
            written[row["txn"]][name] = row["write_id"]
    acknowledged = {txn: ids for work in works for txn, ids in work.acknowledged.items()}
    assert len(acknowledged) > kills and sum(work.resolved for work in works) > kills / 4
    assert {txn: written.get(txn) for txn in acknowledged} == acknowledged  # none lost
    assert {len(ids) for ids in written.values()} == {2}  # none half done
    assert {states[txn] for txn in acknowledged} == {"c"}
    aborted = {txn for work in works for txn in work.aborted}
    assert not aborted & set(written) and {states[txn] for txn in aborted} <= {"a", "u"}
    unknown = {txn for work in works for txn in work.unknown}
    assert set(written) <= set(acknowledged) | unknown


# --- torn log -----------------------------------------------------------------------------------

_WRITE = """
import os, sys
from pathlib import Path
from acid_platform.metastore.store import Store
from acid_platform.metastore.turn import Event
store = Store(Path(sys.argv[1]))
store.checkpoint()
for number in range(60):
    store.append([Event("database", number, {"name": f"d{number}_{one}" + "x" * (number * 7 % 90)})
                  for one in range(number % 5 + 1)])
os._exit(0)
"""


@pytest.mark.parametrize("places", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_torn_log_gives_a_clean_prefix_or_is_refused(
    tmp_path: Path, places: int, damage: str
) -> None:
    whole, torn = tmp_path / "whole.duckdb", tmp_path / "torn.duckdb"
    subprocess.run([sys.executable, "-c", _WRITE, str(whole)], check=True)
    log = Path(f"{whole}.wal").read_bytes()
    expected = [(number, number % 5 + 1) for number in range(60)]
    chance, opened, refused = random.Random(places), 0, 0
    for _ in range(places):
        at = chance.randrange(len(log))
        flipped = bytes([log[at] ^ (1 << chance.randrange(8))])
        shutil.copy(whole, torn)
        Path(f"{torn}.wal").write_bytes(
            log[:at] if damage == "cut" else log[:at] + flipped + log[at + 1:])
        try:
            store = Store(torn)
        except MetastoreIncompatible as error:
            assert "can't be opened" in str(error)
            refused += 1
        else:
            _, events = store.load()
            store.close()
            batches: dict[int, int] = {}
            for one in events:
                batches[one.at] = batches.get(one.at, 0) + 1
            assert [*batches.items()] == expected[:len(batches)]
            opened += 1
        for one in (torn, Path(f"{torn}.wal")):
            one.unlink(missing_ok=True)
    assert opened + refused == places
    assert opened == places if damage == "cut" else refused > 0


# --- full disk ----------------------------------------------------------------------------------


def test_P3_a_full_disk_fails_its_batches_and_later_ones_work(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk: it needs no privileges."""
    directory = tmp_path / "metastore"
    with Metastore.connect(directory) as metastore:
        pid = metastore.status()["pid"]
        metastore.query("SELECT 1")  # folds, and the log begins anew
        done: list[str] = []
        size = (directory / "metastore.duckdb").stat().st_size
        unlimited = resource.RLIM_INFINITY
        failed = 0
        for turn in range(3):
            # Room for a few kilobytes of log, none for a larger database.
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (6000 if turn else 20_000, unlimited))
            for number in range(100):
                name = f"d{turn}_{number}_{'x' * 200}"
                try:
                    metastore.create_database(name)
                    done.append(name)
                except (MetastoreWriteFailed, OutcomeUnknown):
                    failed += 1
                    break
                pid = metastore.status()["pid"]
            pid = metastore.status()["pid"]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
            metastore.create_database(f"after{turn}")
            done.append(f"after{turn}")
        assert failed == 3 and size > 0
        assert set(metastore.databases()) == {"default", *done}
        os.kill(pid, signal.SIGKILL)
        assert set(metastore.databases()) == {"default", *done}
        end(metastore)


def test_a_read_only_directory_is_refused_by_name(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(MetastoreIncompatible, match="can't use"):
        Metastore.connect(closed / "metastore")


# --- much of everything -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_million_ended_transactions_cost_neither_memory_nor_start(tmp_path: Path) -> None:
    directory = tmp_path / "metastore"
    with Metastore.connect(directory) as metastore:
        metastore.create_table("t", "/w/t", [("id", "int")])
        end(metastore)
    fill(directory / "metastore.duckdb", 10_000_000)
    began = time.monotonic()
    with Metastore.connect(directory) as metastore:
        assert time.monotonic() - began < 20
        for _ in range(50):
            metastore.begin().commit()
        assert metastore.outcome(9_999_999)["state"] == "c"
        metastore.query("SELECT count(*) FROM txns")
        assert metastore.begin().id == 10_000_051
        assert metastore.status()["resident_bytes"] < 700 << 20
        end(metastore)


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_memory_of_open_leases_is_bounded(tmp_path: Path, count: int) -> None:
    with Metastore.connect(tmp_path / "metastore") as metastore:
        metastore.create_table("t", "/w/t", [("id", "int")])
        before = metastore.status()["resident_bytes"]
        leases = [metastore.open_snapshot(["t"]) for _ in range(count)]
        used = metastore.status()["resident_bytes"] - before
        assert used < (16 << 20) + count * 8192
        assert metastore.status()["open"] == len(leases)
        metastore.query("SELECT 1")
        with pytest.raises(AcidError):
            metastore.drop_table("missing")
        end(metastore)
