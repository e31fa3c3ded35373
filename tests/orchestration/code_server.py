"""`dagster api grpc` whose runs begin at once, as forks of a process that has imported all.

Dagster's own starts an interpreter for each run, and a launch returns when that has imported all:
most of what a test of several runs would take. Everything else is as it ships.
"""

from __future__ import annotations

import multiprocessing
import sys
from unittest.mock import patch

from dagster._cli import main

OF_RUNS = [
    "dagster._cli.api",
    "dagster._grpc.impl",
    "dagster._core.storage.sqlite_storage",
    "dagster._core.storage.noop_compute_log_manager",
    "dagster._core.launcher",
    "dagster._core.run_coordinator",
]
"""What a run imports, its instance's storage included."""

if __name__ == "__main__":
    module = sys.argv[sys.argv.index("-m") + 1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*OF_RUNS, module])
    with patch.object(multiprocessing, "get_context", return_value=context):
        main()  # type: ignore[no-untyped-call]  # Dagster's
