"""Small assets of pandas, Arrow and lists are materialized, checked and compacted where there is
neither Spark nor Great Expectations (P33)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import temporary_warehouse

PROGRAM = Path(__file__).with_name("without_spark.py")
ROOT = Path(__file__).resolve().parents[2]
AGAIN = ("b", "b again", "c", "c again", "both", "both again")


@pytest.mark.slow
def test_P33_local_rows_inputs_and_checks_need_no_spark(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        done = subprocess.run(
            [sys.executable, PROGRAM, warehouse.path],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ACID_ENGINE": "local"},
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    told, rows = json.loads(done.stdout.splitlines()[-1])
    success = [True, ["local"], {}, []]
    assert told["a"] == [True, ["local"], {"ids_are_given": True}, []]
    assert {name: told[name] for name in AGAIN} == dict.fromkeys(AGAIN, success)
    assert told["f"][:3] == [False, [], {"ids_are_small": False}]
    assert "aborted because it failed ids_are_small of db.f" in told["f"][3][0]
    assert told["checks"][2] == {"ids_are_given": True, "ids_are_small": False}
    assert len(rows["db.a"]) == 20 and rows["db.f"] == []
    assert rows["db.b"] == [{"id": number, "region": "eu"} for number in range(3)]
    assert rows["db.c"] == [{"n": 20, "day": "monday"}] * 2
    assert told["compacted"] == [True, "ready for cleaning"]
    two = [{"id": 1, "v": "x"}, {"id": 2, "v": None}]
    assert [sorted(rows[name], key=lambda row: row["id"]) for name in ("db.d", "db.e")] == [
        two,
        two,
    ]
