"""What real engines said to the gateway, replayed: it still answers as it did to them (P34).

`make lab-interop ARGS=--record` writes the recordings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import temporary_warehouse
from tests.gateway.clients import connected, trino_insert
from tests.gateway.conftest import serving
from tests.interop.gateways import serving as interop_serving
from tests.interop.recording import Player, Recording
from tests.interop.values import our_rows

SLOW = ("hive-4.2.0",)
"""It says nearly what Hive 4.0.1 does."""
RECORDED = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted(Path(__file__).with_name("recorded").glob("*.jsonl"))
]


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


@pytest.mark.parametrize("path", RECORDED)
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


@pytest.mark.more
def test_P34_a_recording_is_replayed_with_its_files(tmp_path: Path) -> None:
    """The ids of the transactions are others at the replay."""
    first, second = tmp_path / "first", tmp_path / "second"
    with (
        temporary_warehouse(first, engine="local") as warehouse,
        interop_serving(warehouse) as (gateway, address),
        connected(address) as client,
    ):
        recording = gateway.recording = Recording(first)
        warehouse.create_table("db.t", "id int, v string")
        recording.ours("CREATE TABLE db.t (id int, v string)")
        recording.begin("INSERT INTO t VALUES (1, 'a')")
        trino_insert(client, "db.t", [(1, "a")])
        recording.end("done", {"db.t": our_rows(warehouse, "db.t")[0]})
        recording.write(tmp_path / "told.jsonl", "ours")
    (_, insert) = steps_of(tmp_path / "told.jsonl")
    assert any("files" in call for call in insert["calls"])
    with (
        temporary_warehouse(second, engine="local") as warehouse,
        serving(warehouse) as server,
        connected(server.address) as client,
    ):
        warehouse.create_table("db.other", "id int")
        warehouse.sql("INSERT INTO db.other VALUES (1)")
        warehouse.create_table("db.t", "id int, v string")
        player = Player(client, second)
        player.play(insert)
        assert player.differ == []
        assert our_rows(warehouse, "db.t")[0] == insert["rows"]["db.t"] == ['[1, "a"]']


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
