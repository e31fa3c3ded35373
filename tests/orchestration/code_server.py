"""`dagster api grpc` that starts runs at once, as forks of a process with all imports done.

Dagster's own server starts an interpreter for each run, and a launch returns only after the
imports, which would take most of the time of these tests. Everything else is Dagster's own.
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
"""The modules that a run imports, including its instance's storage."""

if __name__ == "__main__":
    module = sys.argv[sys.argv.index("-m") + 1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*OF_RUNS, module])
    with patch.object(multiprocessing, "get_context", return_value=context):
        main()  # type: ignore[no-untyped-call]  # Dagster's
