"""Threads that insert, and tell what was acknowledged; the test kills it.

Arguments: the warehouse, the number of this process, the log. Each insert has three rows with one
`id`; after it returned, the id goes to the log.
"""

from __future__ import annotations

import os
import sys
import threading

from acid_platform import Warehouse

THREADS = 8


def work(warehouse: Warehouse, first: int, log: int) -> None:
    table, number = warehouse.table("db.t"), first
    while True:
        rows = [{"id": number, "part": part} for part in range(3)]
        assert table.insert(rows) == 3
        os.write(log, f"{number}\n".encode())
        number += THREADS


if __name__ == "__main__":
    location, process, path = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Warehouse.open(location, engine="local") as opened:
        for thread in range(THREADS):
            first = int(process) * 1_000_000 + thread
            threading.Thread(target=work, args=(opened, first, log)).start()
        threading.Event().wait()
