"""Under kills, stalls, DDL and damage every read equals the model of its snapshot, or raises.

`make lab-chaos` is the full run; these tests run a small one, and show that it finds faults.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Damage, Evidence, check
from tests.conftest import slow_then_soak

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since it forks."""
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
def test_P26_P28_P29_P30_no_read_is_wrong_in_a_short_run() -> None:
    done = run(
        "--commits", "10", "--kills", "5", "--stalls", "1", "--reads", "20", "--seconds", "120"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_P26_P28_P29_P30_no_read_is_wrong_in_a_long_run(tmp_path: Path) -> None:
    done = run(
        "--keep",
        str(tmp_path),
        "--commits",
        "250",
        "--kills",
        "80",
        "--stalls",
        "25",
        "--reads",
        "700",
        "--seed",
        "1",
        "--seconds",
        "1000",
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutation", slow_then_soak(["listing", "partitions"], 1))
def test_a_fault_in_the_readers_is_found(mutation: str) -> None:
    done = run(
        "--commits",
        "200",
        "--kills",
        "20",
        "--stalls",
        "5",
        "--reads",
        "1200",
        "--mutation",
        mutation,
        "--seconds",
        "1000",
    )
    assert done.returncode == 1 and "missing" in done.stdout, done.stdout + done.stderr


# --- the checker ----------------------------------------------------------------------------------

LIST = "db.t:3:9223372036854775807::"


Line = dict[str, Any]


def write(order: int, write_id: int, kind: str, ids: list[int], **more: Any) -> list[Line]:
    """A committed transaction of one statement; its id is ten times the write id."""
    told = {"actor": "w", "txn": 10 * write_id, "table": "db.t", "table_id": 1, "partition": None}
    line = {
        **told,
        "what": "write",
        "kind": kind,
        "ids": ids,
        "write_id": write_id,
        "list": f"db.t:{write_id}:9223372036854775807::",
        **more,
    }
    ends = [{**told, "what": "commit"}, {**told, "what": "ended", "state": "c"}]
    return [
        {**event, "at": order + number / 10, "order": (order, number)}
        for number, event in enumerate([line, *ends])
    ]


def read(**fields: Any) -> Line:
    at = {"at": 21.0, "from": 20.0, "to": 20.1, "began": 20.0, "order": (20, 0), "actor": "r"}
    return {
        "what": "read",
        "mode": "to_arrow",
        "table": "db.t",
        "table_id": 1,
        "txn": 99,
        "list": LIST,
        "declared": ["id", "v"],
        "columns": ["id", "v"],
        "strange": [],
        **at,
        **fields,
    }


HISTORY = [
    *write(1, 1, "insert", [1, 2]),
    *write(2, 2, "delete", [1]),
    *write(3, 3, "insert", [3, 4]),
]


def wrong(*lines: Line, states: dict[int, str] | None = None, damaged: bool = False) -> list[str]:
    damages = [Damage("db.db/t/delta/bucket", "cut", 20.0, 20.5)] if damaged else []
    told = {10: "c", 20: "c", 30: "c", 40: "c", **(states or {})}
    return check(Evidence([*HISTORY, *lines], told, damages, [])).wrong


def test_a_right_read_is_right() -> None:
    assert wrong(read(ids={"": [2, 3, 4]}), read(count=3)) == []
    assert wrong(read(ids={"": [3, 4]}, least=3)) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (read(ids={"": [2, 4]}), "1 missing: row 3: insert by write id 3 of transaction 30 (c)"),
        (read(ids={"": [1, 2, 3, 4]}), "1 extra: row 1"),
        (read(ids={"": [2, 2, 3, 4]}), "1 extra: row 2"),
        (read(count=4), "counted 4, 3 are right"),
        (read(ids={"": [2, 3, 4]}, strange=[[2, "v3"]]), "values of others"),
        (
            read(ids={"": [2]}, list="db.t:3:3:3:"),
            "acknowledged before, and is not in the snapshot",
        ),
        (read(ids={"": [2, 3, 4]}, **{"from": 2.9, "to": 3.0}), "after the snapshot, and is in it"),
        (read(error="CorruptFile", text=""), "no file was damaged then"),
        (read(error="OSError", text=""), "no read may raise that"),
        (read(ids={"": [2, 3, 4]}, columns=["id"]), "declared are"),
    ],
)
def test_a_wrong_read_is_found(line: Line, told: str) -> None:
    found = wrong(line)
    assert any(told in finding for finding in found), found


def test_an_error_with_a_reason_is_right() -> None:
    assert wrong(read(error="CorruptFile", text=""), damaged=True) == []
    assert wrong(read(error="SnapshotExpired", text="")) == []


def test_an_overwrite_that_hides_what_it_did_not_see_is_found() -> None:
    over = write(4, 4, "overwrite", [9], list="db.t:4:3:3:")
    assert "hides write id 3" in wrong(*over)[0]
    assert wrong(*write(4, 4, "overwrite", [9])) == []


def test_a_lost_commit_and_a_row_deleted_twice_are_found() -> None:
    assert "the writer was told c" in wrong(states={30: "a"})[0]
    assert "not known" in wrong(states={30: "u"})[0]
    assert "row 1 was deleted by" in wrong(*write(4, 4, "delete", [1]))[0]
