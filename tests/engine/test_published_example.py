"""The published three-row example, byte for byte where it is published (F6)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from acid_platform import Table, Warehouse
from acid_platform.cli.main import main
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

BUCKET = 536870912
INSERT = "delta_0000001_0000001_0000"
UPDATE = ("delete_delta_0000002_0000002_0000", "delta_0000002_0000002_0000")
DELETE = "delete_delta_0000003_0000003_0000"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("published") / "wh", spark) as opened:
        yield opened


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    """Three inserts in one statement, update of id 3, delete of id 3, major compaction."""
    made = warehouse.create_table("test_db.crud_table", "id int, value string")
    made.insert([{"id": 1, "value": "A"}, {"id": 2, "value": "B"}, {"id": 3, "value": "C"}])
    made.update({"value": "'CUpdated'"}, where="id = 3")
    made.delete("id = 3")
    made.compact("major")
    return made


def event(operation: int, original: int, row_id: int, current: int, row: Any) -> dict[str, Any]:
    return {
        "operation": operation,
        "originalTransaction": original,
        "bucket": BUCKET,
        "rowId": row_id,
        "currentTransaction": current,
        "row": row,
    }


def directories(table: Table) -> list[str]:
    return sorted(os.listdir(table.location))


def base(table: Table) -> str:
    return next(name for name in directories(table) if name.startswith("base"))


def orcdump(path: str | Path, *arguments: str) -> list[Any]:
    done = CliRunner().invoke(main, ["orcdump", str(path), *arguments])
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_directories_are_the_published_ones(table: Table) -> None:
    found = directories(table)
    assert found[0].startswith("base_0000003_v")
    assert found[1:] == sorted([INSERT, *UPDATE, DELETE])


@pytest.mark.parametrize(
    ("directory", "events"),
    [
        (
            INSERT,
            [
                event(0, 1, 0, 1, {"id": 1, "value": "A"}),
                event(0, 1, 1, 1, {"id": 2, "value": "B"}),
                event(0, 1, 2, 1, {"id": 3, "value": "C"}),
            ],
        ),
        (UPDATE[0], [event(2, 1, 2, 2, None)]),
        (UPDATE[1], [event(0, 2, 0, 2, {"id": 3, "value": "CUpdated"})]),
        (DELETE, [event(2, 2, 0, 3, None)]),
        (
            "base",
            [
                event(0, 1, 0, 1, {"id": 1, "value": "A"}),
                event(0, 1, 1, 1, {"id": 2, "value": "B"}),
            ],
        ),
    ],
)
def test_orcdump_prints_the_published_events(
    table: Table, directory: str, events: list[dict[str, Any]]
) -> None:
    name = base(table) if directory == "base" else directory
    assert orcdump(Path(table.location, name, "bucket_00000")) == events
    assert Path(table.location, name, "_orc_acid_version").read_bytes() == b"2"


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
    [found] = orcdump(Path(table.location, name, "bucket_00000"), "--meta")
    assert found["schema"] == (
        "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
        "currentTransaction:bigint,row:struct<id:int,value:string>>"
    )
    assert found["user_metadata"]["hive.acid.stats"] == stats
    assert found["user_metadata"]["hive.acid.version"] == "2"
    assert found["user_metadata"]["hive.acid.key.index"] == f"{last[0]},{BUCKET},{last[1]};"


def test_show_compactions_and_the_cleaner_end_the_example(
    warehouse: Warehouse, table: Table
) -> None:
    def acid(*arguments: str) -> Any:
        return CliRunner().invoke(main, [*arguments, "--warehouse", warehouse.path])

    [row] = json.loads(acid("show", "compactions", "--json").stdout)
    assert (row["dbname"], row["tabname"], row["type"], row["state"], row["highestwriteid"]) == (
        "test_db",
        "crud_table",
        "MAJOR",
        "ready for cleaning",
        3,
    )
    sight = {
        line["directory"]: line["sight"]
        for line in json.loads(acid("ls", "test_db.crud_table", "--json").stdout)
    }
    kept = base(table)
    assert sight == {**dict.fromkeys([INSERT, *UPDATE, DELETE], "obsolete"), kept: "read"}
    warehouse.release()
    assert acid("run", "cleaner", "--once").exit_code == 0
    assert directories(table) == [kept]
    assert [tuple(collected) for collected in table.read(row_id=True).orderBy("id").collect()] == [
        (1, "A", (1, BUCKET, 0)),
        (2, "B", (1, BUCKET, 1)),
    ]
    [row] = json.loads(acid("show", "compactions", "--json").stdout)
    assert row["state"] == "succeeded"


def test_acid_sql_reads_the_table(warehouse: Warehouse, table: Table) -> None:
    done = CliRunner().invoke(
        main,
        [
            "sql",
            "SELECT row__id, id, value FROM test_db.crud_table ORDER BY id",
            "--json",
            "--warehouse",
            warehouse.path,
        ],
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"row__id": {"writeid": 1, "bucketid": BUCKET, "rowid": 0}, "id": 1, "value": "A"},
        {"row__id": {"writeid": 1, "bucketid": BUCKET, "rowid": 1}, "id": 2, "value": "B"},
    ]


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
