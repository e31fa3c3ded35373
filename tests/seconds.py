"""How long `make test` takes, file by file: `make test ARGS="-p tests.seconds"` records it.

A plugin of pytest. tests/tooling/test_repository.py compares the record with the budget.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

RECORD = Path(__file__).with_suffix(".json")
BUDGET = 500
"""Of two processes in five minutes, less what they need to start and to collect the tests."""

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        write(_seconds)


def write(seconds: dict[str, float]) -> None:
    """Writes the record; files that take less than a tenth of a second together have one line."""
    record = {file: round(spent, 1) for file, spent in sorted(seconds.items()) if spent >= 0.1}
    record["others"] = round(sum(spent for spent in seconds.values() if spent < 0.1), 1)
    RECORD.write_text(json.dumps(record, indent=0) + "\n")
