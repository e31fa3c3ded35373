"""A column that was renamed while the table had no rows: its name is used again for another type.

The files of the deleted rows still hold the old column. No reader may open them.
"""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform import AcidError, Table, Warehouse

VALUES: dict[str, tuple[Any, Any]] = {
    "string": ("text", "again"),
    "int": (3, 4),
    "bigint": (1 << 40, 5),
    "double": (1.5, 2.5),
    "boolean": (True, False),
    "binary": (b"x", b"y"),
    "char(3)": ("ab ", "x  "),
    "array<int>": ([1], [2, 3]),
    "array<string>": (["a"], ["b"]),
    "struct<b:int>": ({"b": 1}, {"b": 2}),
    "struct<b:string,c:int>": ({"b": "x", "c": 1}, {"b": "y", "c": 2}),
    "map<string,int>": ([("k", 1)], [("l", 2)]),
}
"""An old and a new value of each type."""


def renamed(warehouse: Warehouse, name: str, old: str, new: str, keys: list[str]) -> Table:
    """A table whose column `a` was of one type and is of another one; it has one row."""
    table = warehouse.create_table(f"db.{name}", f"id int, a {old}", partitioned_by=keys)
    place = {"p": 1} if keys else {}
    table.insert([{"id": 1, "a": VALUES[old][0], **place}])
    table.tag("then")
    table.delete()
    table.change_column("a", f"z {old}")
    table.add_columns(f"a {new}")
    table.insert([{"id": 2, "a": VALUES[new][1], **place}])
    return table


def require_readable(warehouse: Warehouse, table: Table, old: str, new: str) -> None:
    wanted = VALUES[new][1]
    assert table.to_arrow(["id", "a"]).to_pylist() == [{"id": 2, "a": wanted}], (old, new)
    found = warehouse.sql(f"SELECT id, a FROM {table.name}").to_arrow()
    assert found.to_pylist() == [{"id": 2, "a": wanted}], (old, new)
    then = table.to_arrow(["id", "a"], as_of="then").to_pylist()
    assert then == [{"id": 1, "a": VALUES[old][0]}], (old, new)


@pytest.mark.slow
def test_every_type_may_follow_every_other_under_its_name(warehouse: Warehouse) -> None:
    kinds = list(VALUES)
    pairs = [(old, new) for old in kinds for new in kinds if old != new]
    chosen = pairs[::31] if warehouse.engines.preference == "spark" else pairs[::11]
    for number, (old, new) in enumerate(chosen):
        keys = ["p int"] if number % 3 == 0 else []
        table = renamed(warehouse, f"t{number}", old, new, keys)
        require_readable(warehouse, table, old, new)
        if number % 4 == 0:
            assert table.update({"id": "2"}, "id = 2") == 1
            table.compact("major")
            require_readable(warehouse, table, old, new)
            assert table.delete("id = 2") == 1


def test_two_columns_change_their_names(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.swap", "id int, a string, b array<int>")
    table.insert([{"id": 1, "a": "t", "b": [1]}])
    table.delete()
    for old, new in (("a", "x string"), ("b", "a array<int>"), ("x", "b string")):
        table.change_column(old, new)
    table.insert([{"id": 2, "a": [7], "b": "u"}])
    assert table.to_arrow().to_pylist() == [{"id": 2, "b": "u", "a": [7]}]
    assert table.count("b = 'u'") == 1


def test_a_rollback_over_a_name_used_again_loses_nothing(warehouse: Warehouse) -> None:
    table = renamed(warehouse, "back", "string", "int", [])
    before = table.to_arrow().to_pylist()
    with pytest.raises(AcidError, match="a"):  # 'text' is no int
        table.rollback_to("then")
    assert table.to_arrow().to_pylist() == before
    assert table.to_arrow(as_of="then").to_pylist() == [{"id": 1, "a": "text"}]
