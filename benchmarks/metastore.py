"""The benchmark `metastore`: transactions per second of the metastore, with eight client processes.

Four parts: proof that each durable write is one fdatasync; the metastore, SQLite and PostgreSQL in
alternating slices; the metastore with 0, 1 and 10 million ended transactions; and the long run of
`--duration` seconds beside compaction and cleaning, after which every acknowledged transaction is
looked for in the database.
Writes `<date>-metastore.json` and `.md` to benchmarks/results.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import random
import sys
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import psutil

from acid_platform.metastore.client.metastore import Metastore
from benchmarks import metastore_report
from benchmarks.contenders import (
    PARTITIONS,
    TABLES,
    Contender,
    OurMetastore,
    PostgresOfBenchmark,
    Sqlite,
)
from benchmarks.syncs import count_syncs
from benchmarks.upkeep import keep_short
from tests.log import postgres_server

FORK = multiprocessing.get_context("fork")
HISTORIES = (0, 1_000_000, 10_000_000)
BIN_SECONDS = 10


@dataclass(slots=True)
class Run:
    """What eight clients did in one slice."""

    seconds: float
    latencies: list[float]
    """Seconds of each committed transaction, ascending."""
    ended: list[float]
    """When each was acknowledged, in seconds from the start."""
    ids: list[int]
    conflicts: int
    fewest: int
    """Of the client that committed least."""
    cpu: float = 0.0
    """CPU seconds of the serving processes."""
    memory: list[int] = field(default_factory=list)
    """Resident bytes of them, once a second."""

    @property
    def rate(self) -> float:
        return len(self.ids) / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds."""
        last = len(self.latencies) - 1
        return 1000 * self.latencies[min(last, int(share * len(self.latencies)))]

    def summary(self) -> dict[str, Any]:
        return {
            "per_second": round(self.rate, 1),
            "transactions": len(self.ids),
            "conflicts": self.conflicts,
            "fewest_of_a_client": self.fewest,
            "p50_ms": round(self.percentile(0.5), 2),
            "p95_ms": round(self.percentile(0.95), 2),
            "p99_ms": round(self.percentile(0.99), 2),
            "max_ms": round(1000 * self.latencies[-1], 1),
            "server_cpu_ms": round(1000 * self.cpu / max(1, len(self.ids)), 3),
        }


def client(
    contender: Contender, number: int, start: Any, seconds: float, pause: float, answers: Any
) -> None:
    """`pause`: seconds from the begin of one transaction to that of the next, if it is done by
    then; 0 for one after another."""
    chance = random.Random(number)
    latencies, ended, ids = array("d"), array("d"), array("q")
    conflicts = 0
    transaction = contender.open_session()
    start.wait()
    began_all = time.monotonic()
    due = began_all + pause * chance.random()
    while (began := time.monotonic()) - began_all < seconds:
        if pause and due > began:
            time.sleep(due - began)
            began = time.monotonic()
        due += pause
        txn = transaction(chance.randrange(TABLES), chance.randrange(PARTITIONS))
        if txn is None:
            conflicts += 1
            continue
        now = time.monotonic()
        latencies.append(now - began)
        ended.append(now - began_all)
        ids.append(txn)
    answers.put((latencies, ended, ids, conflicts))


def run_clients(contender: Contender, clients: int, seconds: float, rate: float = 0) -> Run:
    """`rate`: transactions that all clients together begin in a second; 0: as many as they can."""
    start, answers = FORK.Barrier(clients + 1), FORK.Queue()
    every = [
        FORK.Process(
            target=client,
            args=(contender, number, start, seconds, clients / rate if rate else 0.0, answers),
        )
        for number in range(clients)
    ]
    for one in every:
        one.start()
    serving = contender.processes()
    before = _cpu(serving)
    start.wait()
    began = time.monotonic()
    memory = []
    while time.monotonic() - began < seconds:
        memory.append(sum(one.memory_info().rss for one in serving))
        time.sleep(min(1.0, max(0.0, seconds - (time.monotonic() - began))))
    found = [answers.get() for _ in every]
    cpu = _cpu(contender.processes()) - before
    for one in every:
        one.join()
    return Run(
        seconds,
        sorted(one for parts in found for one in parts[0]),
        sorted(one for parts in found for one in parts[1]),
        [one for parts in found for one in parts[2]],
        sum(parts[3] for parts in found),
        min(len(parts[2]) for parts in found),
        cpu,
        memory,
    )


def _cpu(serving: list[psutil.Process]) -> float:
    """Backends of PostgreSQL that have ended count with their parent."""
    total = 0.0
    for one in serving:
        with suppress(psutil.NoSuchProcess):  # a backend that has ended meanwhile
            times = one.cpu_times()
            total += times.user + times.system
    if len(serving) > 1:
        ended = serving[0].cpu_times()
        total += ended.children_user + ended.children_system
    return total


# --- the four parts -----------------------------------------------------------------------------


def prove(directory: Path, clients: int) -> dict[str, Any]:
    """One fdatasync for each durable write; snapshots, which sync too, are kept away meanwhile."""
    ours = OurMetastore(directory)
    ours.start()
    with Metastore.connect(ours.home) as metastore:
        metastore.set("acid.metastore.snapshot.bytes", "1000000000")
    (process,) = ours.processes()
    before = ours.status()
    counted: list[Run] = []
    how, syncs = count_syncs(process, lambda: counted.append(run_clients(ours, clients, 5)))
    writes = ours.status()["commits"] - before["commits"]
    lost = set(counted[0].ids) - ours.stop()
    return {
        "how": how,
        "syncs": syncs,
        "durable_writes": writes,
        "transactions": len(counted[0].ids),
        "lost": len(lost),
    }


def compare(directory: Path, clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    contenders: list[Contender] = [OurMetastore(directory / "ours"), Sqlite(directory)]
    if missing := postgres_server.missing():
        print(f"PostgreSQL is left out: {missing}", flush=True)
    else:
        contenders.append(PostgresOfBenchmark(postgres_server.PostgresServer()))
    runs: dict[str, list[Run]] = {one.name: [] for one in contenders}
    for one in contenders:
        one.start()
    for number in range(rounds):
        # Not always in the same order: the machine may be slower at one moment.
        for one in contenders[number % len(contenders) :] + contenders[: number % len(contenders)]:
            run = run_clients(one, clients, seconds)
            runs[one.name].append(run)
            print(f"  {one.name}: {run.rate:.0f}/s, p50 {run.percentile(0.5):.1f} ms", flush=True)
    result: dict[str, Any] = {"slice_seconds": seconds, "rounds": rounds, "left_out": missing}
    for one in contenders:
        durable = one.stop()
        result[one.name] = {
            **_together(runs[one.name]).summary(),
            "slices_per_second": [round(run.rate, 1) for run in runs[one.name]],
            "lost": sum(1 for run in runs[one.name] for txn in run.ids if txn not in durable),
        }
    return result


def _together(runs: list[Run]) -> Run:
    return Run(
        sum(one.seconds for one in runs),
        sorted(x for one in runs for x in one.latencies),
        [],
        [x for one in runs for x in one.ids],
        sum(one.conflicts for one in runs),
        min(one.fewest for one in runs),
        sum(one.cpu for one in runs),
    )


def beside_history(
    directory: Path, clients: int, rounds: int, seconds: float, most: int
) -> list[dict[str, Any]]:
    """The rate beside as many transactions that ended within the retention, by turns."""
    stores = list[tuple[OurMetastore, list[Run]]]()
    found = list[dict[str, Any]]()
    for count in (one for one in HISTORIES if one <= most):
        ours = OurMetastore(directory / str(count))
        ours.start()
        ours.stop()
        began = time.monotonic()
        if count:
            (snapshot,) = ours.home.glob("snapshot-*.duckdb")
            fill(snapshot, count)
        built, began = time.monotonic() - began, time.monotonic()
        ours.start()
        started = time.monotonic() - began
        print(f"  {count:,} built in {built:.0f} s, starts in {started:.1f} s", flush=True)
        stores.append((ours, list[Run]()))
        found.append(
            {"history": count, "build_seconds": round(built, 1), "start_seconds": round(started, 2)}
        )
    for number in range(rounds):
        first = number % len(stores)
        for ours, runs in stores[first:] + stores[:first]:
            runs.append(run_clients(ours, clients, seconds))
            print(f"  {ours.home.name}: {runs[-1].rate:.0f}/s", flush=True)
    for (ours, runs), one in zip(stores, found, strict=True):
        one |= {
            **_together(runs).summary(),
            "slices_per_second": [round(run.rate, 1) for run in runs],
            "resident_mb": round(max(size for run in runs for size in run.memory) / 2**20),
            "snapshots": ours.status()["snapshots"],
        }
        with Metastore.connect(ours.home) as metastore:
            metastore.stop()
    return found


def fill(file: Path, count: int) -> None:
    """Ended transactions with their outcomes and reports, in the snapshot of a metastore that does
    not run."""
    now = time.time_ns() // 1_000_000
    with duckdb.connect(str(file)) as raw:
        raw.execute(f"""INSERT INTO txns BY NAME SELECT i AS txn_id, 'c' AS state, 0 AS kind,
            {now} - {count} + i AS started, {now} - {count} + i AS ended, i AS commit_id,
            'user' AS "user", 'host' AS host, 'bench' AS agent, '' AS run_id, '' AS description,
            '' AS reason FROM range(1, {count} + 1) r(i)""")
        raw.execute(f"""INSERT INTO outcomes BY NAME SELECT
            printf('%016x', hash(i * 2 + k)) AS request_id, i AS txn_id,
            CASE k WHEN 0 THEN 'begin' ELSE 'commit' END AS op,
            printf('{{"value":{{"txn":%d,"state":"c"}}}}', i) AS reply,
            {now} - {count} + i AS at FROM range(1, {count} + 1) r(i), range(2) s(k)""")
        raw.execute(f"""INSERT INTO writes BY NAME SELECT i % {TABLES} + 1 AS table_id,
            'bench.t' || (i % {TABLES}) AS "table", 'p=' || (i % {PARTITIONS}) AS "partition",
            i // {TABLES} + 1 AS write_id, 'u' AS operation,
            printf('delta_%07d_%07d_0000', i // {TABLES} + 1, i // {TABLES} + 1) AS directory,
            1 AS rows, 100 AS bytes, 1 AS files, false AS overwrite, i AS txn, 'user' AS "user",
            '' AS run_id, {now} - {count} + i AS time FROM range(1, {count} + 1) r(i)""")
        raw.execute("DELETE FROM meta WHERE key = 'next_txn'")
        raw.execute("INSERT INTO meta VALUES ('next_txn', $1)", [str(count + 1)])
        raw.execute(
            f"UPDATE tables SET next_write_id = {count // TABLES + 2},"
            f" purged = {count // TABLES + 1}"
        )


def sustain(directory: Path, clients: int, seconds: float, rate: float) -> dict[str, Any]:
    ours = OurMetastore(directory)
    ours.start()
    stop = FORK.Event()
    upkeep = FORK.Process(target=keep_short, args=(ours.home, stop))
    upkeep.start()
    run = run_clients(ours, clients, seconds, rate)
    stop.set()
    upkeep.join()
    status = ours.status()
    durable = ours.stop()
    bins = [0] * max(1, int(seconds // BIN_SECONDS))
    for at in run.ended:
        if int(at // BIN_SECONDS) < len(bins):
            bins[int(at // BIN_SECONDS)] += 1
    tenth = max(1, len(run.memory) // 10)
    return {
        "seconds": seconds,
        "offered_per_second": rate or None,
        **run.summary(),
        "lost": len(set(run.ids) - durable),
        "twice": len(run.ids) - len(set(run.ids)),
        "per_second_by_10s": [round(one / BIN_SECONDS, 1) for one in bins],
        "memory_mb": [round(one / 2**20, 1) for one in run.memory[::tenth]],
        "memory_mb_last": round(run.memory[-1] / 2**20, 1),
        "durable_writes_per_transaction": round(status["commits"] / len(run.ids), 3),
        "write_latency": {
            key: status["write_latency"][key] for key in ("p50_ms", "p95_ms", "p99_ms")
        },
        "snapshots": status["snapshots"],
        "failed_writes": status["failed_writes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--duration", type=float, default=600, help="seconds of the long run")
    parser.add_argument(
        "--rate",
        type=float,
        default=0,
        help="transactions a second that the long run offers; 0: all it can do",
    )
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--slice", type=float, default=10, help="seconds of one comparing slice")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--history",
        type=int,
        default=HISTORIES[-1],
        help="ended transactions of the longest history",
    )
    parser.add_argument("--only", choices=["proof", "compare", "history", "long"], nargs="*")
    chosen = parser.parse_args()
    parts = chosen.only or ["proof", "compare", "history", "long"]
    report: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.system(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "duckdb": duckdb.__version__,
        "clients": chosen.clients,
        "load_before": [round(one, 2) for one in os.getloadavg()],
    }
    with TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        if "proof" in parts:
            print("proof of fdatasync", flush=True)
            report["proof"] = prove(directory / "proof", chosen.clients)
        if "compare" in parts:
            print("alternating slices", flush=True)
            report["compare"] = compare(directory, chosen.clients, chosen.rounds, chosen.slice)
        if "history" in parts:
            print("beside a history, alternating slices", flush=True)
            report["history"] = beside_history(
                directory / "history", chosen.clients, chosen.rounds, chosen.slice, chosen.history
            )
        if "long" in parts:
            print(f"long run of {chosen.duration:g} s", flush=True)
            report["long"] = sustain(
                directory / "long", chosen.clients, chosen.duration, chosen.rate
            )
    report["load_after"] = [round(one, 2) for one in os.getloadavg()]
    print(metastore_report.write(report))
    sys.exit(1 if metastore_report.lost(report) else 0)


if __name__ == "__main__":
    main()
