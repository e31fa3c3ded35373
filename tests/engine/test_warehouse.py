"""Tables through the public face: verbs, snapshots, leases, conflicts, compaction, cleaning."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pandas as pd
import pytest

from acid_platform import (
    NotEnoughHistory,
    SnapshotExpired,
    Table,
    Warehouse,
)
from acid_platform.services import cleaner
from tests.conftest import MOSTLY_LOCAL, a_warehouse, compact_with

pytestmark = pytest.mark.spark

warehouse = a_warehouse(in_spark=True, scope="function")


def rows(table: Table, **kwargs: object) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in table.read(**kwargs).collect()), key=str)  # type: ignore[arg-type]


def directories(table: Table) -> list[str]:
    root = Path(table.location)
    return sorted(
        str(Path(where, one).relative_to(root))
        for where, inside, _ in os.walk(root)
        for one in inside
        if one.startswith(("base", "del", "_tmp"))
    )


@pytest.fixture
def months(warehouse: Warehouse) -> Table:
    table = warehouse.create_table("db.m", "id int, v string", partitioned_by=["month int"])
    table.insert(pd.DataFrame({"id": range(6), "v": list("abcdef"), "month": [1, 1, 2, 2, 3, 3]}))
    return table


def test_partitioned_verbs_touch_only_the_partitions_that_they_must(months: Table) -> None:
    assert months.partitions() == ["month=1", "month=2", "month=3"]
    assert months.update({"v": "upper(v)"}, "month = 2 and id > 2") == 1
    assert months.delete("id = 5") == 1
    assert rows(months) == [(0, "a", 1), (1, "b", 1), (2, "c", 2), (3, "D", 2), (4, "e", 3)]
    assert directories(months) == [
        "month=1/delta_0000001_0000001_0000",
        "month=2/delete_delta_0000002_0000002_0000",
        "month=2/delta_0000001_0000001_0000",
        "month=2/delta_0000002_0000002_0000",
        "month=3/delete_delta_0000003_0000003_0000",
        "month=3/delta_0000001_0000001_0000",
    ]
    assert rows(months, columns=["v"], where="month = 2") == [("D",), ("c",)]
    assert [row["write_id"] for row in months.history()][-1] == 3


def test_T34_overwrite_replaces_the_partitions_of_its_rows_or_the_named_one(months: Table) -> None:
    months.overwrite([{"id": 9, "v": "z", "month": 1}])
    assert rows(months, where="month = 1") == [(9, "z", 1)]
    assert len(rows(months)) == 5
    months.overwrite([], partition={"month": 2})
    assert rows(months, where="month = 2") == []
    assert "month=2/base_0000003" in directories(months)


def test_T15_a_reader_in_a_loop_sees_each_statement_whole_or_not_at_all(
    warehouse: Warehouse, months: Table
) -> None:
    """Statements touch every partition; a read in the middle of one would find two values of v."""
    seen: list[set[tuple[str, int]]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = months.to_arrow(columns=["v", "id"]).to_pylist()
            seen.append({(row["v"], len(found)) for row in found})

    months.update({"v": "'0'"})
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in (1, 2):
            with warehouse.transaction() as txn:
                table = txn.table("db.m")
                table.delete("id % 2 = 0")
                table.update({"v": f"'{number}'"})
                table.insert(
                    [{"id": one, "v": str(number), "month": one // 2 + 1} for one in (0, 2, 4)]
                )
        months.compact("major")
        cleaner.run(warehouse.metastore)
    finally:
        done.set()
        reader.join()
    assert all(len(one) == 1 for one in seen), [one for one in seen if len(one) != 1]
    assert {count for ((_, count),) in seen} == {6}
    # It read between the commits, not only before and after them.
    assert len({value for ((value, _),) in seen}) > 2 and len(seen) > 10


def test_P12_a_frame_keeps_its_rows_through_update_compaction_and_cleaning(
    warehouse: Warehouse, months: Table
) -> None:
    before = months.read()
    filtered = before.filter("month <= 2").select("id", "v")
    months.update({"v": "'x'"})
    months.delete("id = 0")
    outcomes = months.compact("major")
    assert {row["state"] for row in outcomes} == {"ready for cleaning"}
    cleaner.run(warehouse.metastore)
    assert "month=1/delta_0000001_0000001_0000" in directories(months)
    assert sorted(row.v for row in before.collect()) == list("abcdef")
    assert sorted(row.v for row in filtered.collect()) == list("abcd")
    warehouse.release()
    assert any(done.removed for done in cleaner.run(warehouse.metastore))
    assert all("/base_0000003_v" in directory for directory in directories(months))
    assert rows(months) == [(i, "x", i // 2 + 1) for i in range(1, 6)]
    with pytest.raises(SnapshotExpired, match="read"):
        before.count()
    with pytest.raises(SnapshotExpired, match="read"):
        filtered.toPandas()


def test_P13_a_write_id_list_reads_an_older_state_while_its_files_are_there(
    warehouse: Warehouse, months: Table
) -> None:
    old = months.snapshot().write_ids
    months.delete("month = 3")
    assert len(rows(months, snapshot=str(old))) == 6
    assert len(rows(months)) == 4
    months.compact("major", partition="month=3")
    warehouse.release()
    cleaner.run(warehouse.metastore)
    with pytest.raises(NotEnoughHistory):
        months.read(snapshot=old)


@MOSTLY_LOCAL
def test_minor_compaction_keeps_every_row_id_and_deletes(
    warehouse: Warehouse, compactor: str
) -> None:
    compact_with(warehouse, compactor)
    table = warehouse.create_table("db.t", "id int")
    for i in range(3):
        table.insert([{"id": i}, {"id": i + 10}])
    table.delete("id = 11")
    expected = rows(table, row_id=True)
    (done,) = table.compact("minor")
    assert done["state"] == "ready for cleaning"
    warehouse.release()
    cleaner.run(warehouse.metastore)
    txn = done["txnid"]
    assert directories(table) == [
        f"delete_delta_0000001_0000004_v{txn:07d}",
        f"delta_0000001_0000004_v{txn:07d}",
    ]
    assert rows(table, row_id=True) == expected
