"""The requests of a command grow linearly with the tables that it looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.base.location import Location
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import GetCleanings, GetEntities
from acid_platform.metastore.operations.listings import RunQuery
from acid_platform.metastore.operations.tables import (
    GetDatabases,
    GetDoubtful,
    GetPartitions,
    GetRecorded,
    GetTables,
    GetTablesNear,
    RegisterPartitions,
)
from acid_platform.services import fsck
from acid_platform.services.explain_services import explain_compactions, wishes_of
from tests.cli.small import Small
from tests.declared import declare

pytestmark = pytest.mark.more

ASKED = (
    GetTables,
    GetTablesNear,
    GetEntities,
    GetPartitions,
    GetRecorded,
    GetDoubtful,
    GetCleanings,
    RunQuery,
    GetDatabases,
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    where = Location.of(tmp_path / "wh")
    with Metastore.connect(where.metastore) as metastore:
        metastore.create_database("db")
        yield Small(Path(where.warehouse), metastore)
        metastore.stop()


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of records that the metastore has sent, by operation."""
    counted: Counter[str] = Counter()
    call = Metastore.call

    def counting(self: Metastore, operation: Any) -> Any:
        answer = call(self, operation)
        if isinstance(operation, ASKED):
            records: Any = answer
            if isinstance(operation, RunQuery):
                records = answer.rows
            elif isinstance(operation, GetCleanings):
                records = [*answer.ready, *answer.blocked]
            counted[operation.op] += len(records)
        return answer

    monkeypatch.setattr(Metastore, "call", counting)
    return counted


def add_tables(small: Small, *numbers: int) -> None:
    for number in numbers:
        table = Small(small.path, small.metastore, f"db.t{number}")
        declare(
            small.metastore,
            table.name,
            str(table.table),
            [("id", "int"), ("v", "string")],
            [("p", "int")],
            properties={"transactional": "true"},
        )
        for partition in ("p=1", "p=2"):
            small.metastore.call(RegisterPartitions(table.name, (partition,)))
            table.insert((1, "a"), partition=partition)
            table.insert((2, "b"), partition=partition)


def test_fsck_is_linear_in_tables(small: Small, answered: Counter[str]) -> None:
    add_tables(small, 1, 2, 3)
    assert fsck.examine(small.metastore).healthy
    few = Counter(answered)
    add_tables(small, 4, 5, 6)
    answered.clear()
    assert fsck.examine(small.metastore).healthy
    assert answered == {name: 2 * count for name, count in few.items()}


def test_fsck_asks_for_the_dropped_only_where_it_finds_unknown_directories(
    small: Small, answered: Counter[str]
) -> None:
    add_tables(small, 1, 2)
    with small.metastore.open_snapshot(["db.t2"]):  # the Cleaner has to leave p=2
        small.metastore.drop("db.t2", "p=2")
        report = fsck.examine(small.metastore)
        assert report.healthy, report.findings
        assert answered[GetCleanings.op] == 1
    (small.table.parent / "t1" / "p=3" / "delta_0000001_0000001_0000").mkdir(parents=True)
    report = fsck.examine(small.metastore, ["db.t1"])
    assert any(finding.thing == "db.t1/p=3" for finding in report.findings)


def test_a_column_moves_without_a_look_at_other_tables(
    small: Small, answered: Counter[str]
) -> None:
    add_tables(small, 1, 2, 3)
    with Warehouse(str(small.path), small.metastore) as warehouse:
        warehouse.create_table("db.u", "id int, v string").change_column("v", "v string", "")
    assert answered["entities"] <= 2, "its own directories, before it is locked and then"


def test_a_new_table_is_made_without_a_look_at_others(small: Small, answered: Counter[str]) -> None:
    add_tables(small, 1, 2, 3)
    with Warehouse.open(small.path, engine="local", branch="") as warehouse:
        answered.clear()
        warehouse.create_table("db.u", "id int")
        assert not answered["tables"] and answered["tables_near"] <= 2 * 3, "they are outside"
        warehouse.sql("ALTER TABLE db.u RENAME TO db.w")
        made = warehouse.create_table("db.u", "id int")
        assert made.record.location.endswith("db.db/u_2")


def test_an_explanation_asks_once_for_each_table(small: Small, answered: Counter[str]) -> None:
    add_tables(small, 1, 2)
    explain_compactions(small.metastore, wishes_of("db.t1", ["p=1", "p=2"], "major"))
    assert answered["entities"] == 2, "its two partitions"
