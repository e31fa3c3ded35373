"""One client of benchmarks/logs.py, also for the program of another checkout.

`python -P log_worker.py WHERE NUMBER SECONDS` commits for so many seconds, and prints as JSON how
long each transaction took.
"""

from __future__ import annotations

import json
import sys
import time

from acid_platform.errors import WriteConflict
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType

TABLES, PARTITIONS = 20, 50
FILES = RecordedFiles.parse('[["bucket_00000",100,1]]')


def main(where: str, number: int, seconds: float) -> None:
    taken: list[float] = []
    with Metastore.connect(where) as client:
        began = time.monotonic()
        count = number
        while time.monotonic() - began < seconds:
            count += 1
            name, part = f"bench.t{count % TABLES}", f"p={count * 7 % PARTITIONS}"
            start = time.perf_counter()
            txn = client.begin(
                locks=[LockRequest(name, LockType.SHARED_WRITE, RowOperation.UPDATE, part)]
            )
            write_id = txn.write_ids[name]
            directory = f"delta_{write_id:07d}_{write_id:07d}_0000"
            try:
                txn.commit(
                    CommitContents(
                        (WriteReport(name, part, RowOperation.UPDATE, directory, FILES),)
                    )
                )
            except WriteConflict:
                continue
            taken.append(time.perf_counter() - start)
    print(json.dumps(taken))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
