"""The published three-row example, byte for byte where it is published (F6)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from acid_platform import Table, Warehouse
from acid_platform.cli.main import main
from tests.conftest import a_warehouse

pytestmark = pytest.mark.spark

BUCKET = 536870912
INSERT = "delta_0000001_0000001_0000"
UPDATE = ("delete_delta_0000002_0000002_0000", "delta_0000002_0000002_0000")
DELETE = "delete_delta_0000003_0000003_0000"

warehouse = a_warehouse(in_spark=True)


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    """Three inserts in one statement, update of id 3, delete of id 3, major compaction."""
    made = warehouse.create_table("test_db.crud_table", "id int, value string")
    made.insert([{"id": 1, "value": "A"}, {"id": 2, "value": "B"}, {"id": 3, "value": "C"}])
    made.update({"value": "'CUpdated'"}, where="id = 3")
    made.delete("id = 3")
    made.compact("major")
    return made


def directories(table: Table) -> list[str]:
    return sorted(os.listdir(table.location))


def base(table: Table) -> str:
    return next(name for name in directories(table) if name.startswith("base"))


def orcdump(path: str | Path, *arguments: str) -> list[Any]:
    done = CliRunner().invoke(main, ["orcdump", str(path), *arguments])
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("directory", "stats", "last"),
    [
        (INSERT, "3,0,0", (1, 2)),
        (UPDATE[0], "0,0,1", (1, 2)),
        (UPDATE[1], "1,0,0", (2, 0)),
        (DELETE, "0,0,1", (2, 0)),
        ("base", "2,0,0", (1, 1)),
    ],
)
def test_the_footer_says_what_hive_needs(
    table: Table, directory: str, stats: str, last: tuple[int, int]
) -> None:
    name = base(table) if directory == "base" else directory
    assert Path(table.location, name, "_orc_acid_version").read_bytes() == b"2"
    [found] = orcdump(Path(table.location, name, "bucket_00000"), "--meta")
    assert found["schema"] == (
        "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
        "currentTransaction:bigint,row:struct<id:int,value:string>>"
    )
    assert found["user_metadata"]["hive.acid.stats"] == stats
    assert found["user_metadata"]["hive.acid.version"] == "2"
    assert found["user_metadata"]["hive.acid.key.index"] == f"{last[0]},{BUCKET},{last[1]};"


def test_acid_compact_queues_for_a_worker_that_runs_it(warehouse: Warehouse, table: Table) -> None:
    def acid(*arguments: str) -> Any:
        return CliRunner().invoke(main, [*arguments, "--warehouse", warehouse.path])

    table.insert([{"id": 4, "value": "D"}])
    table.insert([{"id": 5, "value": "E"}])
    queued = acid("compact", "test_db.crud_table", "minor")
    assert queued.exit_code == 0, queued.stderr
    assert "acid run worker" in queued.stdout
    worked = acid("run", "worker", "--once")
    assert worked.exit_code == 0, worked.stderr
    assert "of test_db.crud_table: published" in worked.stdout
    assert any(name.startswith("delta_0000004_0000005_v") for name in directories(table))
