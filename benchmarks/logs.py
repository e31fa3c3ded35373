"""`python -m benchmarks.logs [--before CHECKOUT]`: the metastore's log on each place.

- Eight clients commit into a log in a local directory, in PostgreSQL and in an object store, by
  turns; `--before` names a checkout of an earlier version, whose local metastore takes turns too.
- How long a start takes after 1, 10 and 100 MB of log.
- A metastore with many tables, recorded files and ended transactions: start, size, memory, and the
  cost of a snapshot.

An object store is started as ACID_TEST_S3 says, or as moto's, which is slow itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psutil

from acid_platform.base.clock import SystemClock
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.server.group_commit import GroupCommit
from acid_platform.metastore.server.saving import start_saving
from acid_platform.metastore.server.server import log_of
from acid_platform.metastore.server.store import Store
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from benchmarks.log_worker import FILES, TABLES
from benchmarks.results import machine, save
from tests.crash.check import _Link as InProcess
from tests.declared import declare
from tests.log.members import Members
from tests.log.servers import serving

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = 8


# --- transactions ---------------------------------------------------------------------------------


def commits(where: str, seconds: float, checkout: Path = ROOT) -> list[float]:
    """How long each transaction of all clients took, in seconds."""
    command = [str(checkout / ".venv" / "bin" / "python"), "-P"]
    command += [str(ROOT / "benchmarks" / "log_worker.py"), where]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    clients = [
        subprocess.Popen(
            [*command, str(number), str(seconds)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(CLIENTS)
    ]
    taken: list[float] = []
    for client in clients:
        output, _ = client.communicate()
        assert client.returncode == 0
        taken += json.loads(output)
    return taken


def prepare(client: Metastore, root: str) -> None:
    client.create_database("bench", if_not_exists=True)
    for number in range(TABLES):
        declare(client, f"bench.t{number}", f"{root}/t{number}", partition_columns=[("p", "int")])


@contextmanager
def local(directory: Path) -> Iterator[str]:
    with Metastore.connect(directory) as client:
        prepare(client, str(directory))
        yield str(directory)
        client.stop()


@contextmanager
def before(checkout: Path, directory: Path) -> Iterator[str]:
    code = (
        "import sys; from benchmarks.contenders import OurMetastore; from pathlib import Path;"
        " OurMetastore(Path(sys.argv[1])).start()"
    )
    python = str(checkout / ".venv" / "bin" / "python")
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run([python, "-P", "-c", code, str(directory)], env=environment, check=True)
    yield str(directory)
    pid = json.loads((directory / "endpoint.json").read_text())["pid"]
    psutil.Process(pid).terminate()


@contextmanager
def shared(log: str, directory: Path) -> Iterator[str]:
    with serving(log) as (where, _), Members(where, directory, 2) as members:
        members.start()
        with Metastore.connect(where) as client:
            prepare(client, str(directory))
        yield where


def compare(directory: Path, rounds: int, seconds: float, checkout: Path | None) -> dict[str, Any]:
    """Each slice begins with an empty metastore: one that grows becomes slower."""
    contenders: dict[str, tuple[Callable[[Path], Any], Path]] = {"local": (local, ROOT)}
    if checkout is not None:
        contenders["before"] = (partial(before, checkout), checkout)
    for log in ("postgres", "s3"):
        contenders[log] = (partial(shared, log), ROOT)
    names = list(contenders)
    taken: dict[str, list[list[float]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            opened, program = contenders[name]
            place = directory / f"{name}-{number}"
            place.mkdir()
            with opened(place) as where:
                taken[name].append(commits(where, seconds, program))
            print(f"  {name}: {len(taken[name][-1]) / seconds:.0f}/s", flush=True)
    return {name: _summary(slices, seconds) for name, slices in taken.items()}


def _summary(slices: list[list[float]], seconds: float) -> dict[str, Any]:
    every = sorted(one for each in slices for one in each)
    return {
        "per_second": round(statistics.median(len(each) for each in slices) / seconds, 1),
        "p50_ms": round(1000 * every[len(every) // 2], 2),
        "p95_ms": round(1000 * every[int(len(every) * 0.95)], 2),
        "p99_ms": round(1000 * every[int(len(every) * 0.99)], 2),
        "slices_per_second": [round(len(each) / seconds, 1) for each in slices],
    }


# --- a start --------------------------------------------------------------------------------------


def starts(directory: Path, sizes: list[int]) -> list[dict[str, Any]]:
    """After so many MB of log since the newest snapshot."""
    results = []
    for size in sizes:
        home = directory / f"{size}mb"
        home.mkdir(mode=0o700)
        log = log_of(Home(home))
        log.create()
        log.open_to_append()
        commits = GroupCommit(Store(log, home), SystemClock())
        commits.lead()
        with Metastore(InProcess(commits)) as client:  # type: ignore[arg-type]
            prepare(client, str(home))
            while commits.store.unsaved_bytes < size << 20:
                _commit(client, commits.store.end.position)
            position = commits.store.end.position
        commits.store.close()
        seconds, memory = _start(home)
        results.append(
            {"mb": size, "batches": position, "start_seconds": seconds, "resident_mb": memory}
        )
        print(f"  {results[-1]}", flush=True)
    return results


def _commit(client: Metastore, count: int) -> None:
    name, part = f"bench.t{count % TABLES}", f"p={count % 50}"
    txn = client.begin(locks=[LockRequest(name, LockType.SHARED_WRITE, RowOperation.UPDATE, part)])
    directory = f"delta_{txn.write_ids[name]:07d}_{txn.write_ids[name]:07d}_0000"
    txn.commit(CommitContents((WriteReport(name, part, RowOperation.UPDATE, directory, FILES),)))


def _start(home: Path) -> tuple[float, int]:
    """Seconds until a client has an answer, and the server's memory in MB."""
    began = time.monotonic()
    with Metastore.connect(home) as client:
        seconds = time.monotonic() - began
        memory = psutil.Process(client.status()["pid"]).memory_info().rss >> 20
        client.stop()
    return round(seconds, 2), memory


# --- a large state --------------------------------------------------------------------------------


def large(directory: Path, tables: int, files: int, ended: int) -> dict[str, Any]:
    home = directory / "large"
    with Metastore.connect(home) as client:
        prepare(client, str(home))
        with client.begin(
            locks=[LockRequest("bench.t0", LockType.SHARED_WRITE, RowOperation.UPDATE, "p=1")]
        ) as txn:
            write_id = txn.write_ids["bench.t0"]
            name = f"delta_{write_id:07d}_{write_id:07d}_0000"
            txn.commit(
                CommitContents((WriteReport("bench.t0", "p=1", RowOperation.UPDATE, name, FILES),))
            )
        client.stop()
    (file,) = home.glob("snapshot-*.duckdb")
    began = time.monotonic()
    _fill(file, tables, files, ended)
    result: dict[str, Any] = {
        "tables": tables,
        "files": files,
        "ended_transactions": ended,
        "fill_seconds": round(time.monotonic() - began, 1),
        "snapshot_mb": file.stat().st_size >> 20,
    }
    began = time.monotonic()
    with Metastore.connect(home) as client:
        result["start_seconds"] = round(time.monotonic() - began, 2)
        process = psutil.Process(client.status()["pid"])
        result["resident_mb"] = process.memory_info().rss >> 20
        client.create_database("fresh")
        result["position"] = position = client.status()["position"]
        result["query_seconds"] = _timed(lambda: client.query("SELECT count(*) FROM txns"))
        saving = start_saving(LocalLog(home), position, 0)
        peak, longest = 0, 0.0
        began = time.monotonic()
        while saving.poll() is None:
            start = time.perf_counter()
            client.create_database(f"d{time.monotonic_ns()}")
            longest = max(longest, time.perf_counter() - start)
            peak = max(peak, psutil.Process(saving.pid).memory_info().rss)
            time.sleep(0.02)
        assert saving.returncode == 0
        result["save_seconds"] = round(time.monotonic() - began, 1)
        result["saver_peak_mb"] = peak >> 20
        result["longest_commit_ms_meanwhile"] = round(1000 * longest, 1)
        client.stop()
    return result


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return round(time.monotonic() - began, 2)


def _fill(file: Path, tables: int, files: int, ended: int) -> None:
    """Makes rows from those of a table, a directory and a transaction that are there."""
    now = time.time_ns() // 1_000_000
    with duckdb.connect(str(file)) as raw:
        raw.execute(f"""INSERT INTO tables BY NAME SELECT * EXCLUDE (i) REPLACE (
            1000 + i AS table_id, 'bench.x' || i AS name, '/x/' || i AS location)
            FROM (SELECT * FROM tables LIMIT 1), range({tables}) r(i)""")
        each = max(1, files // 10)
        listed = ",".join(f'["bucket_{number:05}",1000,10]' for number in range(10))
        for name, more in (("directories", ""), ("manifests", f", '[{listed}]' AS contents")):
            key = "name" if name == "directories" else "directory"
            raw.execute(f"""INSERT INTO {name} BY NAME SELECT * EXCLUDE (i) REPLACE (
                1000 + i % {tables} AS table_id, NULL AS "partition",
                printf('base_%07d', i // {tables} + 1) AS {key}{more})
                FROM (SELECT * FROM {name} LIMIT 1), range({each}) r(i)""")
        raw.execute(f"""INSERT INTO txns BY NAME SELECT * EXCLUDE (i) REPLACE (
            1000 + i AS txn_id, {now} - {ended} + i AS ended)
            FROM (SELECT * FROM txns LIMIT 1), range({ended}) r(i)""")
        raw.execute(f"""INSERT INTO outcomes BY NAME SELECT * EXCLUDE (i) REPLACE (
            printf('%016x', hash(i)) AS request_id, {now} - {ended} + i AS "at")
            FROM (SELECT * FROM outcomes LIMIT 1), range({ended}) r(i)""")
        raw.execute("UPDATE meta SET value = $1 WHERE key = 'next_txn'", [str(2000 + ended)])
        raw.execute("UPDATE meta SET value = $1 WHERE key = 'next_table'", [str(2000 + tables)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice", type=float, default=8)
    parser.add_argument("--starts", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--tables", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--ended", type=int, default=10_000_000)
    parser.add_argument("--only", choices=["compare", "starts", "large"], nargs="*")
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    parts = chosen.only or ["compare", "starts", "large"]
    report: dict[str, Any] = {"machine": machine(), "clients": CLIENTS}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        os.chmod(name, 0o711)  # PostgreSQL has a user of its own
        directory = Path(name)
        if "compare" in parts:
            report["compare"] = compare(directory, chosen.rounds, chosen.slice, chosen.before)
        if "starts" in parts:
            report["starts"] = starts(directory, chosen.starts)
        if "large" in parts:
            report["large"] = large(directory, chosen.tables, chosen.files, chosen.ended)
    print(json.dumps(report, indent=1))
    if chosen.results is not None:
        save(chosen.results, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
