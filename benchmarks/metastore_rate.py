"""Business transactions per second of one metastore: begin with lock and write id, heartbeat,
commit with one report. Eight client processes, uniformly over 100 tables x 10 partitions.

    python -m benchmarks.metastore_rate [--seconds 8] [--clients 8]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from acid_platform.metastore import LockRequest, Metastore, WriteReport
from acid_platform.transactions import Operation
from acid_platform.transactions.locks import LockType

TABLES, PARTITIONS = 100, 10


def work(directory: Path, number: int, start: Any, seconds: float, answers: Any) -> None:
    chance = random.Random(number)
    latencies = []
    with Metastore.connect(directory) as metastore:
        start.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            table = f"bench.t{chance.randrange(TABLES)}"
            partition = f"p={chance.randrange(PARTITIONS)}"
            lock = LockRequest(table, LockType.SHARED_WRITE, Operation.INSERT, partition)
            txn = metastore.begin(locks=[lock])
            txn.heartbeat()
            write_id = txn.write_ids[table]
            name = f"delta_{write_id:07d}_{write_id:07d}_0000"
            txn.commit([WriteReport(table, partition, Operation.INSERT, name, 1, 100, 1)])
            latencies.append(time.perf_counter() - began)
    answers.put(latencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, default=8)
    chosen = parser.parse_args()
    context = multiprocessing.get_context("fork")
    with TemporaryDirectory() as directory:
        home = Path(directory) / "metastore"
        with Metastore.connect(home) as metastore:
            metastore.create_database("bench")
            for number in range(TABLES):
                metastore.create_table(
                    f"bench.t{number}", f"{directory}/t{number}", [("id", "int")], [("p", "int")]
                )
            start, answers = context.Event(), context.Queue()
            clients = [
                context.Process(target=work, args=(home, number, start, chosen.seconds, answers))
                for number in range(chosen.clients)
            ]
            for one in clients:
                one.start()
            before = metastore.status()
            start.set()
            latencies = sorted(one for _ in clients for one in answers.get())
            after = metastore.status()
            for one in clients:
                one.join()
            count = len(latencies)
            stored = metastore.query("SELECT count(DISTINCT txn) FROM writes")[1][0][0]
            metastore.stop()
    cpu = 1000 * (after["cpu_seconds"] - before["cpu_seconds"]) / count
    commits = after["commits"] - before["commits"]
    print(f"{count / chosen.seconds:.0f} transactions/s, {chosen.clients} clients")
    print(f"{cpu:.2f} ms server CPU per transaction, {commits / count:.2f} durable writes")
    print(f"latency p50 {1000 * statistics.median(latencies):.1f} ms,"
          f" p99 {1000 * latencies[int(count * 0.99)]:.1f} ms")
    print(f"lost: {count - stored}")


if __name__ == "__main__":
    main()
