"""What real engines said to the gateway, replayed: it still answers as it did to them (P34).

`make interop ARGS=--record` writes the recordings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import temporary_warehouse
from tests.gateway.clients import connected
from tests.gateway.conftest import serving
from tests.interop.recording import Player
from tests.interop.values import our_rows

RECORDED = sorted(Path(__file__).with_name("recorded").glob("*.jsonl"))


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_P34_an_engine_is_answered_as_when_it_was_recorded(path: Path, tmp_path: Path) -> None:
    """Every answer is the recorded one, and after each statement the tables hold the same rows."""
    with (
        temporary_warehouse(tmp_path / "wh", engine="local") as warehouse,
        serving(warehouse) as server,
        connected(server.address) as client,
    ):
        player = Player(client, tmp_path / "wh")
        for step in steps_of(path):
            if "ours" in step:
                warehouse.sql(step["ours"])
                continue
            player.play(step)
            assert player.differ == []
            rows = {name: our_rows(warehouse, name)[0] for name in warehouse.tables()}
            assert rows == step["rows"], step["sql"]


def test_P34_the_recordings_of_two_engines_are_there() -> None:
    assert {path.stem.partition("-")[0] for path in RECORDED} == {"hive", "trino"}


def test_P34_an_answer_that_differs_is_found(tmp_path: Path) -> None:
    """Otherwise the replay would prove nothing."""
    step = {
        "sql": "SHOW SCHEMAS",
        "calls": [{"call": "get_all_databases", "arguments": [], "answer": ["default", "other"]}],
    }
    with (
        temporary_warehouse(tmp_path / "wh", engine="local") as warehouse,
        serving(warehouse) as server,
        connected(server.address) as client,
    ):
        player = Player(client, tmp_path / "wh")
        player.play(step)
        assert "get_all_databases" in player.differ[0]
