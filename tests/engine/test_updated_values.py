"""trinodb/trino #14519: UPDATE of an ACID table sometimes corrupted the data.

Includes earlier faults of updates: columns assigned in another order than the table's
(review of #5861), a filter on the partition ignored (#7300). Values are compared with those that
Python computes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from acid_platform import Warehouse
from tests.conftest import a_warehouse

pytestmark = pytest.mark.spark

warehouse = a_warehouse(in_spark=True, scope="function")

NAMES = ("a", "b", "c", "d")
Row = dict[str, int | str | None]


def stored(warehouse: Warehouse, name: str) -> list[str]:
    table = warehouse.table(name)
    found = sorted(repr(row.asDict()) for row in table.read().collect())
    assert found == sorted(map(repr, table.to_arrow().to_pylist()))
    return found


def expected(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize(
    "layout", [{"partitioned_by": ["p string"]}, {"clustered_by": (["k"], 3)}], ids=str
)
def test_updates_of_any_columns_in_any_order_leave_the_others(
    warehouse: Warehouse, layout: Mapping[str, object]
) -> None:
    chance = random.Random(14519)
    columns = "k int, a int, b string, c int, d string"
    inside = {"p": "x"} if "partitioned_by" in layout else {}
    table = warehouse.create_table("db.updated", columns, **layout)  # type: ignore[arg-type]
    rows: list[Row] = [
        {
            "k": k,
            "a": k,
            "b": f"b{k}",
            "c": None if k % 3 else -k,
            "d": None if k % 4 else "d",
            **({"p": "xyz"[k % 3]} if inside else {}),
        }
        for k in range(60)
    ]
    for part in (rows[:30], rows[30:]):
        table.insert(
            warehouse.spark.createDataFrame(
                [tuple(row.values()) for row in part], columns + (", p string" if inside else "")
            ).repartition(3)
        )
    for number in range(4):
        chosen = chance.sample(NAMES, chance.randint(1, 4))
        remainder = chance.randrange(5)
        where = f"k % 5 = {remainder}" + (" AND p = 'x'" if inside else "")
        new: dict[str, int | str | None] = {
            name: None if chance.random() < 0.3 else number if name in "ac" else f"{name}{number}"
            for name in chosen
        }
        table.update(
            {name: "NULL" if value is None else repr(value) for name, value in new.items()}, where
        )
        for row in rows:
            k = row["k"]
            assert isinstance(k, int)
            if k % 5 == remainder and row.get("p", "x") == "x":
                row.update(new)
        assert stored(warehouse, "db.updated") == expected(rows), (number, new, where)
