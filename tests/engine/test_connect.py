"""A client of `make lab-spark-connect` can do everything that a classic session can do.

What statements answer there is in tests/conformance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.connect_server import connect_server, told_by_client

EXPECTED: dict[str, Any] = {
    "insert": [[1, "a", 1], [2, "b", 2], [3, "c", 1], [4, "d", 2], [5, "e", 1], [6, "e", 1]],
    "update": [3, [[4, "D", 2], [5, "E", 1], [6, "E", 1]]],
    "delete": [1, [[1], [3], [4], [5], [6]]],
    "minor": [["ready for cleaning", "ready for cleaning"], True],
    "major": [["ready for cleaning", "ready for cleaning"], True],
    "insert_only": [["ready for cleaning"], [[1], [2]]],
    "expiry": "SnapshotExpired",
    "abort": "TxnAborted",
    "materialization": [True, True, [[0, "x"], [1, "x"], [2, "x"]]],
    "blocked": [False, False, [[0, "x"], [1, "x"], [2, "x"]]],
    "compaction_job": [True, [[0, "x"], [2, "x"]]],
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each step of over_connect.py gave, over a server of our own."""
    root = tmp_path_factory.mktemp("connect")
    with connect_server(root / "server.log") as (remote, _):
        yield told_by_client(remote, root / "wh")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", EXPECTED)
def test_over_spark_connect(told: dict[str, Any], step: str) -> None:
    assert told[step] == EXPECTED[step]
