"""Partitions get other values, and those that a comparison names are dropped; either engine."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pytest

from acid_platform import (
    NoSuchPartition,
    Table,
    Warehouse,
)
from acid_platform.metastore.client.metastore import Metastore

KEPT = {"acid.history.retention": "1h"}


def created(warehouse: Warehouse, name: str, **properties: str) -> Table:
    """Rows 1 to 5, of which 4 has no hour, in partitions of three days."""
    table = warehouse.create_table(
        f"db.{name}", "id int", ["ds string", "hr int"], properties={**KEPT, **properties}
    )
    warehouse.sql(
        f"INSERT INTO {table.name} VALUES (1, '2024-01-01', 1), (2, '2024-01-02', 2),"
        " (3, '2024-01-02', 12), (4, '2024-01-03', NULL), (5, '2024-01-03', 3)"
    )
    return table


def places(table: Table, **past: Any) -> list[tuple[Any, ...]]:
    rows = table.to_arrow(["id", "ds", "hr"], **past).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("kind", ["default", "insert_only"])
def test_a_partition_gets_other_values(warehouse: Warehouse, kind: str) -> None:
    table = created(warehouse, f"moved_{kind}", transactional_properties=kind)
    table.tag("then")
    then = places(table)
    warehouse.sql(
        f"ALTER TABLE {table.name} PARTITION (ds='2024-01-02', hr=12)"
        " RENAME TO PARTITION (ds='2024-01-04', hr=0)"
    )
    assert (3, "2024-01-04", 0) in places(table)
    assert len(places(table)) == 5
    assert "ds=2024-01-02/hr=12" not in table.partitions()
    assert "ds=2024-01-04/hr=0" in table.partitions()
    assert places(table, as_of="then") == then
    changes = table.changes_arrow("then").read_all().to_pylist()
    assert Counter((row["_change_type"], row["id"], row["hr"]) for row in changes) == Counter(
        [("delete", 3, 12), ("insert", 3, 0)]
    )
    table.rollback_to("then")
    assert places(table) == then


def test_rows_that_others_write_into_the_old_partition_stay(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(warehouse, "beside")
    begin = Metastore.begin

    def slow(self: Metastore, *args: Any, **named: Any) -> Any:
        if named.get("locks") and named["locks"][0].partition == "ds=2024-01-01/hr=1":
            monkeypatch.undo()
            table.insert([{"id": 9, "ds": "2024-01-01", "hr": 1}])
        return begin(self, *args, **named)

    monkeypatch.setattr(Metastore, "begin", slow)
    assert table.rename_partition("ds=2024-01-01/hr=1", "ds=2024-01-09/hr=1") == 1
    assert (9, "2024-01-01", 1) in places(table)
    assert (1, "2024-01-09", 1) in places(table)
    assert len(places(table)) == 6


# --- one form of each value ----------------------------------------------------------------------

MOMENT = datetime.datetime(2024, 1, 1, 0, 0, 0, 500000)
MIDNIGHT = "p=2024-01-01 00%3A00%3A00"


def test_a_timestamp_has_one_partition_at_every_door(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.moments", "id int", partitioned_by=["p timestamp"])
    table.insert([{"id": 1, "p": MOMENT}])
    assert table.partitions() == [f"{MIDNIGHT}.5"]
    assert table.insert([{"id": 2}], fixed={"p": MOMENT}) == 1
    assert table.insert([{"id": 3}], fixed={"p": "2024-01-01T00:00:00.500"}) == 1
    warehouse.sql(
        "INSERT INTO db.moments PARTITION (p=TIMESTAMP'2024-01-01 00:00:00.500') VALUES (4)"
    )
    assert table.partitions() == [f"{MIDNIGHT}.5"] and table.count() == 4
    table.compact("major", {"p": MOMENT}, wait=False)
    assert table.overwrite([{"id": 5, "p": MOMENT}], partition={"p": MOMENT}) == 1
    assert table.overwrite([{"id": 6}], fixed={"p": MOMENT}) == 1
    assert table.count() == 1
    table.truncate({"p": MOMENT})
    assert table.count() == 0
    warehouse.sql(
        "ALTER TABLE db.moments DROP IF EXISTS PARTITION (p=TIMESTAMP'2024-01-01 00:00:00.500')"
    )
    assert table.partitions() == []
    for text in ("2024-01-01", "2024-01-01 00:00:00", "2024-01-01 0:0:0.0", "2024-01-01T00:00:00"):
        warehouse.sql(f"ALTER TABLE db.moments ADD IF NOT EXISTS PARTITION (p='{text}')")
    assert table.partitions() == [MIDNIGHT]
    warehouse.sql(
        "ALTER TABLE db.moments PARTITION (p='2024-01-01') RENAME TO PARTITION (p='2024-1-2')"
    )
    table.drop_partition({"p": datetime.date(2024, 1, 2)})
    assert table.partitions() == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [("tinyint", 300), ("int", 99999999999), ("varchar(2)", "abcdef"), ("timestamp", "1.1.2024")],
)
def test_a_value_outside_of_its_type_is_no_partition(
    warehouse: Warehouse, kind: str, value: object
) -> None:
    name = f"db.outside_{kind[:3]}"
    table = warehouse.create_table(name, "id int", partitioned_by=[f"p {kind}"])
    rows = [{"id": 1}]
    for door in (
        lambda: warehouse.sql(f"ALTER TABLE {name} ADD PARTITION (p='{value}')"),
        lambda: warehouse.sql(f"ALTER TABLE {name} DROP PARTITION (p='{value}')"),
        lambda: warehouse.sql(f"INSERT INTO {name} PARTITION (p='{value}') VALUES (1)"),
        lambda: table.insert(rows, fixed={"p": value}),
        lambda: table.overwrite(rows, fixed={"p": value}),
        lambda: table.overwrite(rows, partition={"p": value}),
        lambda: table.truncate({"p": value}),
    ):
        with pytest.raises(NoSuchPartition) as told:
            door()
        assert all(part in str(told.value) for part in ("p=", str(value), name, kind))
    assert table.partitions() == []
