"""The metastore after kills, with a torn log, a full disk, and a long history (P2, P3).

`make test-all` runs a tenth of what `make test-full` runs.
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

import duckdb
import pytest

from acid_platform import (
    AcidError,
    MetastoreDamaged,
    MetastoreIncompatible,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    OutcomeUnknown,
)
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Endpoint, Home
from acid_platform.metastore.log.contract import (
    Header,
    decode_batches,
    encode_batch,
    segment_first,
    segment_name,
)
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.transactions import (
    AbortTxn,
    Begin,
    CommitContents,
    CommitTxn,
    GetTxnStates,
)
from acid_platform.metastore.records import ClientInfo, LockRequest, WriteReport
from acid_platform.metastore.server.store import Store, machine_at
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from benchmarks.metastore import fill
from tests.contents import counts
from tests.declared import declare
from tests.metastore.processes import end, gone

FORK = multiprocessing.get_context("fork")
CLIENTS = 8
LARGE = ClientInfo(description="x" * 8000)
"""Makes the log grow, so that a snapshot is due soon."""
TABLES = [f"t{number}" for number in range(4)]


@dataclass
class Work:
    """What one client knows about its transactions, each of which writes two tables."""

    acknowledged: dict[int, dict[str, int]] = field(default_factory=dict)
    """Write ids by table of each transaction whose commit was answered."""
    aborted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    resolved: int = 0
    """The number of broken calls whose outcome was learnt by request id."""


def _client(directory: Path, number: int, stop: Any, answers: Any) -> None:
    chance, work = random.Random(number), Work()
    recover = Link._recover

    def counting(link: Link, request: Any, why: str) -> Any:
        answer = recover(link, request, why)
        work.resolved += isinstance(request.operation, Begin | CommitTxn | AbortTxn)
        return answer

    Link._recover = counting  # type: ignore[method-assign, assignment]
    with Metastore.connect(directory) as metastore:
        while not stop.is_set():
            names = chance.sample(TABLES, 2)
            locks = [
                LockRequest(table, LockType.SHARED_WRITE, RowOperation.INSERT) for table in names
            ]
            try:
                txn = metastore.begin(locks=locks, info=LARGE)
            except (OutcomeUnknown, MetastoreUnavailable):
                continue
            ids = {name: txn.write_ids[f"default.{name}"] for name in names}
            try:
                if chance.random() < 0.2:
                    txn.abort()
                    work.aborted.append(txn.id)
                    continue
                txn.commit(
                    CommitContents(
                        tuple(
                            WriteReport(
                                name,
                                None,
                                RowOperation.INSERT,
                                f"delta_{write_id:07d}_{write_id:07d}_0000",
                                counts(1, 10),
                            )
                            for name, write_id in ids.items()
                        )
                    )
                )
                work.acknowledged[txn.id] = ids
            except (OutcomeUnknown, MetastoreUnavailable):
                work.unknown.append(txn.id)
    answers.put(work)


def _kill_often(directory: Path, kills: int, chance: random.Random) -> None:
    """Kills as many processes, each of which had begun an epoch."""
    home, killed = Home(directory), set[int]()
    while len(killed) < kills:
        endpoint = Endpoint.read(home)
        if endpoint is None or endpoint.epoch in killed or gone(endpoint.pid):
            time.sleep(0.002)
            continue
        time.sleep(0.1 + 0.4 * chance.random())
        try:
            os.kill(endpoint.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed.add(endpoint.epoch)


@pytest.mark.more
@pytest.mark.parametrize(
    "kills",
    [4, pytest.param(50, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.soak)],
)
@pytest.mark.timeout(900)
def test_P3_kills_under_eight_writers_lose_split_and_repeat_no_commit(
    tmp_path: Path, kills: int
) -> None:
    directory = tmp_path / "metastore"
    with Metastore.connect(directory) as metastore:
        for name in TABLES:
            declare(metastore, name, f"/w/{name}", [("id", "int")])
        # Snapshots as often as possible: most kills hit one of them.
        metastore.set("acid.metastore.snapshot.bytes", "1")
    answers, stop = FORK.Queue(), FORK.Event()
    clients = [
        FORK.Process(target=_client, args=(directory, number, stop, answers))
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    _kill_often(directory, kills, random.Random(kills))
    stop.set()
    works: list[Work] = [answers.get(timeout=120) for _ in clients]
    for client in clients:
        client.join()
    with Metastore.connect(directory) as metastore:
        assert metastore.status()["epoch"] > kills
        states: dict[int, str] = {}
        rows = {name: metastore.history(name) for name in TABLES}
        known = [
            *(txn for work in works for txn in work.acknowledged),
            *(txn for work in works for txn in (*work.aborted, *work.unknown)),
        ]
        for begin in range(0, len(known), 1000):
            states |= metastore.call(GetTxnStates(tuple(known[begin : begin + 1000])))
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


# --- damaged files ------------------------------------------------------------------------------

_WRITE = """
import os, sys
from pathlib import Path
from acid_platform.metastore.log import local
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server.store import Store, machine_at
local._SEGMENT_BYTES = 2000
log = local.LocalLog(Path(sys.argv[1]))
log.create()
log.open_to_append()
store = Store(log, Path(sys.argv[1]))
machine = Machine(store.load()[0])
for number in range(60):
    tail = "x" * (number * 7 % 90)
    events = [Recorded.parse("database", number, {"name": f"d{number}_{part}{tail}"})
              for part in range(number % 5 + 1)]
    machine.replay(events)
    store.append(events)
    if number in (15, 30, 45):
        store.save(machine.state, 0)
        log.release()
os._exit(0)
"""
BATCHES = [number % 5 + 1 for number in range(60)]
SAVED = 46
"""The number of batches in the snapshot."""


@dataclass(frozen=True)
class Files:
    """The files of a killed store, and where they may be damaged."""

    directory: Path
    parts: dict[str, bytes]

    @property
    def segments(self) -> list[str]:
        """The names of the segments that are needed, oldest first."""
        names = sorted(name for name in self.parts if segment_first(name))
        begin = max(n for n, name in enumerate(names) if (segment_first(name) or 0) <= SAVED + 1)
        return names[begin:]

    def opened(self, part: str, data: bytes) -> list[int]:
        """The number of events in each batch that is found if this file has these bytes.

        Raises MetastoreIncompatible, MetastoreDamaged, duckdb.Error.
        """
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        for name, whole in self.parts.items():
            (self.directory / name).write_bytes(data if name == part else whole)
        log = LocalLog(self.directory)
        store = Store(log, self.directory)
        try:
            log.open_to_append()
            state = machine_at(store).state
        finally:
            store.close()
        found: dict[int, int] = {}
        for name, record in state.databases.items():
            if name != "default":
                found[record.created] = found.get(record.created, 0) + 1
        assert [*found] == [*range(len(found))]
        return [*found.values()]


def ends(data: bytes) -> list[int]:
    """Where each batch of a segment ends; older ones follow in a file that was used before."""
    header = Header.parse(data)
    assert header is not None
    batches, _ = decode_batches(data, header)
    at, found = len(header.line), []
    for each in batches:
        at += len(encode_batch(each, header.seed))
        found.append(at)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("damaged")
    subprocess.run([sys.executable, "-c", _WRITE, str(directory)], check=True)
    parts = {path.name: path.read_bytes() for path in directory.iterdir()}
    made = Files(directory, parts)
    others = set(parts) - set(made.segments)
    assert others <= {f"snapshot-{SAVED:016}.duckdb", "journal.spare"} and len(made.segments) > 1
    assert made.opened("", b"") == BATCHES
    return made


PLACES = [20, pytest.param(200, marks=pytest.mark.slow)]


@pytest.mark.parametrize("places", PLACES)
def test_P3_a_torn_log_gives_a_clean_prefix(files: Files, places: int) -> None:
    name = files.segments[-1]
    data, chance = files.parts[name], random.Random(places)
    batches, before = ends(data), (segment_first(name) or 0) - 1
    for _ in range(places):
        at = chance.randrange(data.index(b"\n") + 1, len(data))
        whole = sum(1 for end in batches if end <= at)
        assert files.opened(name, data[:at]) == BATCHES[: before + whole]


@pytest.mark.parametrize("places", PLACES)
def test_P3_a_flipped_bit_of_the_log_is_refused(files: Files, places: int) -> None:
    """Except in the last batch, which looks torn, and in older batches behind it."""
    chance, refused = random.Random(places), 0
    for number in range(places):
        name = chance.choice(files.segments) if number else files.segments[-1]
        data, last = files.parts[name], name == files.segments[-1]
        batches, first = ends(data), segment_first(name) or 0
        # What the snapshot has is not read.
        needed = [end for n, end in enumerate(batches) if first + n > SAVED]
        begin = 0 if number else batches[-2]  # at least one flip is in the last batch
        at = chance.randrange(begin, len(data) if chance.random() < 0.3 else needed[-1])
        flipped = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        if at < (batches[-2] if last else batches[-1]):
            with pytest.raises(MetastoreDamaged, match="restore a backup"):
                files.opened(name, flipped)
            refused += 1
        else:
            torn = last and at < batches[-1]
            assert files.opened(name, flipped) == BATCHES[: 60 - torn]
    assert places / 3 < refused < places


@pytest.mark.more
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_P3_damage_to_a_snapshot_loses_nothing_silently(
    files: Files, places: int, damage: str
) -> None:
    part = f"snapshot-{SAVED:016}.duckdb"
    data, chance, refused = files.parts[part], random.Random(places), 0
    for _ in range(places):
        at = chance.randrange(len(data))
        rest = b"" if damage == "cut" else bytes([data[at] ^ (1 << chance.randrange(8))])
        rest += b"" if damage == "cut" else data[at + 1 :]
        try:
            assert files.opened(part, data[:at] + rest) == BATCHES
        except (MetastoreIncompatible, MetastoreDamaged, duckdb.Error):
            refused += 1
    assert refused > 0


@pytest.mark.more
def test_P3_missing_files_are_refused(tmp_path: Path) -> None:
    home, aside = Home(tmp_path / "metastore"), tmp_path / "aside"
    journal = home.path / segment_name(1)
    with Metastore.connect(home.path) as metastore:
        metastore.create_database("d")
        assert journal.stat().st_mode & 0o777 == 0o600
        end(metastore)
        metastore.create_database("e")
        pid = metastore.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        while not gone(pid):
            time.sleep(0.01)
    (snapshot,) = home.path.glob("snapshot-*.duckdb")
    journal.rename(aside)
    with pytest.raises(MetastoreDamaged, match=r"a snapshot and no journal.*restore a backup"):
        Metastore.connect(home.path)
    aside.rename(journal)
    snapshot.rename(aside)  # the log still has everything
    with Metastore.connect(home.path) as metastore:
        assert metastore.databases() == ["d", "default", "e"]
        end(metastore)
    # A log that is older than its snapshot has lost something.
    batches = ends(journal.read_bytes())
    whole = journal.read_bytes()
    journal.write_bytes(whole[: batches[-2]])
    with pytest.raises(MetastoreDamaged, match=r"there is a snapshot of batch .*restore a backup"):
        Metastore.connect(home.path)
    journal.write_bytes(whole)
    with Metastore.connect(home.path) as metastore:
        assert metastore.databases() == ["d", "default", "e"]
        end(metastore)


# --- full disk ----------------------------------------------------------------------------------


def test_P3_a_full_disk_fails_its_batches_and_later_ones_work(tmp_path: Path) -> None:
    """A limit of the file size stands for a full disk, since it needs no privileges."""
    directory = tmp_path / "metastore"
    with Metastore.connect(directory) as metastore:
        pid = metastore.status()["pid"]
        done: list[str] = []
        unlimited = resource.RLIM_INFINITY
        for turn in range(3):
            # Room for a few kilobytes of log.
            size = (directory / segment_name(1)).stat().st_size
            position = metastore.status()["position"]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 12_000, unlimited))
            for number in range(100):
                name = f"d{turn}_{number}_{'x' * 200}"
                try:
                    metastore.create_database(name)
                    done.append(name)
                except MetastoreWriteFailed as error:
                    assert "nothing was changed: [Errno 27] File too large" in str(error)
                    break
            assert 5 < number < 99
            status = metastore.status()
            assert (status["pid"], status["failed_writes"]) == (pid, turn + 1)
            assert status["position"] == position + number
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
            metastore.create_database(f"after{turn}")
            done.append(f"after{turn}")
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
        declare(metastore, "t", "/w/t", [("id", "int")])
        end(metastore)
    (snapshot,) = directory.glob("snapshot-*.duckdb")
    fill(snapshot, 10_000_000)
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


@pytest.mark.more
@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(900)
def test_memory_of_open_leases_is_bounded(tmp_path: Path, count: int) -> None:
    with Metastore.connect(tmp_path / "metastore") as metastore:
        declare(metastore, "t", "/w/t", [("id", "int")])
        before = metastore.status()["resident_bytes"]
        leases = [metastore.open_snapshot(["t"]) for _ in range(count)]
        used = metastore.status()["resident_bytes"] - before
        assert used < (16 << 20) + count * 8192
        assert metastore.status()["open"] == len(leases)
        metastore.query("SELECT 1")
        with pytest.raises(AcidError):
            metastore.drop("missing")
        end(metastore)
