"""Columns of tables with rows get other names, are dropped and replaced, with either engine.

A name may be used again for another type: files of deleted rows still hold the old column, and no
reader may open them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from acid_platform import AcidError, InvalidDefinition, NotErased, Table, UnknownColumn, Warehouse
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.operations.tables import GetLastWriteId
from acid_platform.services import cleaner
from acid_platform.tables.declaration import Changing, altered
from tests.conftest import IN_ORC, quick_then_slow

KEPT = {"acid.history.retention": "1h"}
INSERT_ONLY = {**KEPT, "transactional_properties": "insert_only"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"properties": KEPT},
    "partitioned": {"properties": KEPT, "partitioned_by": ["p int"]},
    "insert_only": {"properties": INSERT_ONLY},
    "hive3": {"properties": {**KEPT, "acid.layout": "hive3"}},
    "bucketed": {"properties": KEPT, "clustered_by": (["id"], 2)},
    "parquet": {"properties": {**INSERT_ONLY, "acid.format": "parquet"}},
}
ROWS = [{"id": id, "v": f"v{id}", "s": {"x": id, "y": None}} for id in (1, 2, 3)]


def created(
    warehouse: Warehouse, name: str, kind: str = "plain", properties: Mapping[str, str] = {}
) -> Table:
    """A table with three rows in two inserts."""
    columns = "id int, v string, s struct<x:int,y:string>"
    declared = {**KINDS[kind], "properties": {**KINDS[kind]["properties"], **properties}}
    table = warehouse.create_table(f"db.{name}", columns, **declared)
    for rows in (ROWS[:2], ROWS[2:]):
        table.insert(
            [{**row, "p": row["id"] % 2} if kind == "partitioned" else row for row in rows]
        )
    return table


def rows_of(table: Table, columns: list[str], **past: Any) -> list[tuple[Any, ...]]:
    rows = table.to_arrow(columns, **past).to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in rows)


def row_ids(warehouse: Warehouse, table: Table) -> list[tuple[Any, ...]]:
    text = "row__id.writeid, row__id.bucketid, row__id.rowid"
    return sorted(warehouse.sql(f"SELECT id, {text} FROM {table.name}").collect())


def last_write_id(warehouse: Warehouse, table: Table) -> int:
    return warehouse.metastore.call(GetLastWriteId(table.record.table_id))


@pytest.mark.parametrize("kind", quick_then_slow(KINDS, 3))
def test_P36_a_renamed_column_keeps_its_values_and_its_past(
    warehouse: Warehouse, kind: str
) -> None:
    table = created(warehouse, f"renamed_{kind}", kind)
    full = kind not in ("insert_only", "parquet")
    if full:
        table.update({"v": "'new'"}, "id = 1")
        table.delete("id = 3")
    table.tag("then")
    expected = [(1, "new"), (2, "v2")] if full else [(1, "v1"), (2, "v2"), (3, "v3")]
    before = row_ids(warehouse, table) if full else None
    warehouse.sql(f"ALTER TABLE {table.name} RENAME COLUMN v TO word")
    assert [column.name for column in table.columns][:3] == ["id", "word", "s"]
    assert rows_of(table, ["id", "word"]) == expected
    found = warehouse.sql(f"SELECT id, word, s.x FROM {table.name} WHERE word = 'v2'")
    assert found.collect() == [(2, "v2", 2)]
    if full:
        assert row_ids(warehouse, table) == before
        assert table.update({"word": "'newer'"}, "word = 'new'") == 1
        if kind != "hive3":  # its compactions end the history
            table.compact("major")
        assert rows_of(table, ["id", "word"]) == [(1, "newer"), (2, "v2")]
    assert rows_of(table, ["id", "v"], as_of="then") == expected
    cleaner.run(warehouse.metastore)
    assert rows_of(table, ["id", "v"], as_of="then") == expected
    with pytest.raises(UnknownColumn):
        table.to_arrow(["v"])
    with pytest.raises(UnknownColumn, match="v"):
        table.rollback_to("then")


@pytest.mark.parametrize("kind", quick_then_slow(KINDS, 3))
def test_a_dropped_name_is_used_again_for_another_type(warehouse: Warehouse, kind: str) -> None:
    table = created(warehouse, f"dropped_{kind}", kind)
    table.tag("then")
    warehouse.sql(f"ALTER TABLE {table.name} DROP COLUMN v")
    warehouse.sql(f"ALTER TABLE {table.name} ADD COLUMN v array<int>")
    assert rows_of(table, ["id", "v"]) == [(1, None), (2, None), (3, None)]
    place = {"p": 1} if kind == "partitioned" else {}
    table.insert([{"id": 4, "s": None, "v": [7], **place}])
    assert rows_of(table, ["id", "v"])[3] == (4, [7])
    assert rows_of(table, ["id", "v"], as_of="then") == [(1, "v1"), (2, "v2"), (3, "v3")]
    with pytest.raises(UnknownColumn, match="had the column v string then"):
        table.rollback_to("then")


def test_text_files_know_columns_by_their_place(warehouse: Warehouse) -> None:
    properties = {"transactional_properties": "insert_only", "acid.format": "csv"}
    table = warehouse.create_table("db.places", "id int, v string", properties=properties)
    with pytest.raises(InvalidDefinition, match="put new columns last"):
        table.replace_columns("w int, id int")


def test_P39_consumers_of_changes_see_no_change(warehouse: Warehouse) -> None:
    table = created(warehouse, "feed")
    caught_up = last_write_id(warehouse, table)
    warehouse.sql(f"ALTER TABLE {table.name} RENAME COLUMN v TO w")
    warehouse.sql(f"ALTER TABLE {table.name} DROP COLUMN s")
    renamed = last_write_id(warehouse, table)
    assert table.changes_arrow(caught_up).read_all().num_rows == 0
    table.update({"w": "'x'"}, "id = 1")
    table.delete("id = 2")
    changes = table.changes_arrow(caught_up).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["w"]) for row in changes) == [
        ("delete", 2, "v2"),
        ("update_postimage", 1, "x"),
        ("update_preimage", 1, "v1"),
    ]
    with pytest.raises(InvalidDefinition, match=f"until write id {caught_up}, and since write id"):
        table.changes_arrow(0)
    then = table.changes_arrow(0, caught_up).read_all().to_pylist()
    assert sorted((row["id"], row["v"]) for row in then) == [(1, "v1"), (2, "v2"), (3, "v3")]
    assert table.changes_arrow(renamed).read_all().num_rows == 3


def test_nothing_has_changed_if_the_commit_fails(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(warehouse, "crashed", "partitioned")
    with monkeypatch.context() as patched:

        def refused(*_: object, **__: object) -> None:
            raise InvalidDefinition("refused")

        patched.setattr(OpenTransaction, "commit", refused)
        with pytest.raises(InvalidDefinition, match="refused"):
            table.rename_column("v", "w")
    assert rows_of(table, ["id", "v"]) == [(1, "v1"), (2, "v2"), (3, "v3")]
    cleaner.run(warehouse.metastore)
    table.rename_column("v", "w")
    table.insert([{"id": 4, "w": "v4", "s": None, "p": 5}])
    assert rows_of(table, ["id", "w"]) == [(1, "v1"), (2, "v2"), (3, "v3"), (4, "v4")]


def second_renamed(new: str) -> Changing:
    return lambda record: altered(record.columns[1][0], new)(record)


def test_rows_that_others_write_at_the_same_time_are_not_lost(warehouse: Warehouse) -> None:
    table = created(warehouse, "beside")
    written: list[int] = []

    def write() -> None:
        for id in range(10, 16):
            name = table.columns[1].name
            try:
                table.insert([{"id": id, name: "mine", "s": None}])
                written.append(id)
            except AcidError:  # the column is gone
                pass

    writer = threading.Thread(target=write)
    writer.start()
    for name in ("w", "x"):
        table.change_columns(second_renamed(name))
    writer.join()
    assert [id for id, _ in rows_of(table, ["id", "x"])] == [1, 2, 3, *sorted(written)]
    assert {word for id, word in rows_of(table, ["id", "x"]) if id > 9} <= {"mine"}


def test_explain_tells_what_is_written_again(warehouse: Warehouse) -> None:
    table = created(warehouse, "explained", properties=IN_ORC)

    def explained(text: str) -> str:
        return "\n".join(warehouse.sql(f"EXPLAIN ALTER TABLE {table.name} {text}")["Explain"])

    assert "lock db.explained: EXCLUSIVE" in explained("DROP COLUMN v")
    assert "every file is read and written again, with its row ids: 2 files" in explained(
        "RENAME COLUMN v TO w"
    )
    assert "no file is written" in explained("CHANGE id id bigint")
    assert "no file is written" in explained("ADD COLUMN n int")
    assert rows_of(table, ["id", "v"])[0] == (1, "v1")
    with pytest.raises(InvalidDefinition, match="decides the bucket"):
        created(warehouse, "by_id", "bucketed").drop_columns("id")
    with pytest.raises(InvalidDefinition, match="would have no column"):
        table.drop_columns("id", "v", "s")


def test_an_erasure_is_not_proven_while_files_of_other_columns_stay(warehouse: Warehouse) -> None:
    table = created(warehouse, "erased", properties=IN_ORC)
    table.rename_column("v", "w")
    with pytest.raises(NotErased, match="before the table's columns were changed"):
        table.erase("w = 'v1'")
    warehouse.sql("ALTER TABLE db.erased SET TBLPROPERTIES ('acid.history.retention'='0s')")
    assert table.erase("w = 'v1'").erased
    assert rows_of(table, ["id", "w"]) == [(2, "v2"), (3, "v3")]


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


def test_a_rollback_over_a_name_used_again_loses_nothing(warehouse: Warehouse) -> None:
    table = renamed(warehouse, "back", "string", "int", [])
    before = table.to_arrow().to_pylist()
    with pytest.raises(AcidError, match="a"):  # 'text' is no int
        table.rollback_to("then")
    assert table.to_arrow().to_pylist() == before
    assert table.to_arrow(as_of="then").to_pylist() == [{"id": 1, "a": "text"}]
