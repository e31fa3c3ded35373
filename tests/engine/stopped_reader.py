"""A reader that is stopped (SIGSTOP) in the middle of a read, as when a laptop is closed.

`python -m tests.engine.stopped_reader WAREHOUSE TABLE MODE` stops itself after it has taken its
snapshot and before it resolves a file; in mode `late`, after it has resolved all files and before
it reads one. When it is continued it prints the number of rows, or the name of the error.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from acid_platform import AcidError, Warehouse
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.scan.scans import ArrowScan

MODES = (
    "count",
    "to_arrow",
    "late",
    "read",
    "sql",
    "snapshot to_arrow",
    "snapshot read",
    "txn to_arrow",
    "txn read",
)


def stop_once(holder: Any, name: str, before: bool) -> None:
    """Stops this process before or after the first call of a method."""
    real: Callable[..., Any] = getattr(holder, name)

    @wraps(real)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        setattr(holder, name, real)
        if before:
            os.kill(os.getpid(), signal.SIGSTOP)
            return real(*args, **kwargs)
        answer = real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGSTOP)
        return answer

    setattr(holder, name, stopping)


def rows(warehouse: Warehouse, name: str, mode: str) -> int:
    table = warehouse.table(name)
    match mode:
        case "count":
            return table.count()
        case "to_arrow" | "late":
            return int(table.to_arrow().num_rows)
        case "read":
            return table.read().count()
        case "sql":
            return int(warehouse.sql(f"SELECT * FROM {name}").count())  # type: ignore[union-attr]
    kind, _, verb = mode.partition(" ")
    opened = warehouse.snapshot() if kind == "snapshot" else warehouse.transaction()
    seen = opened.table(name)
    return int(seen.to_arrow().num_rows) if verb == "to_arrow" else seen.read().count()


def main(location: str, table: str, mode: str) -> None:
    if mode == "late":
        stop_once(ArrowScan, "table", before=True)
    else:
        stop_once(OpenTransaction, "valid_write_ids", before=False)
    with Warehouse.open(location) as warehouse:
        try:
            print(f"{rows(warehouse, table, mode)} rows")
        except AcidError as error:
            print(type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
