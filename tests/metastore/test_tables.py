"""Declarations, settings, adoption (P8, P9, P24)."""

from __future__ import annotations

import random

import pytest

from acid_platform import (
    DeclarationChanged,
    InvalidDefinition,
    NoSuchPartition,
    NoSuchTable,
    SettingRefused,
    TableExists,
)
from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.server import stored_kinds
from tests.contents import counts
from tests.metastore.world import INSERT, E, W, World


def test_names_are_lower_case_and_default(world: World) -> None:
    assert world.call("table", name="T")["table"]["name"] == "default.t"
    assert world.call("table", name="default.t")["table"]["table_id"] == 1
    with pytest.raises(TableExists):
        world.create("T")
    again = {"name": "t", "location": "/w/t", "columns": [["id", "int"]]}
    answer = world.call("create_table", table=again, if_not_exists=True)
    assert answer["table"]["table_id"] == 1


@pytest.mark.parametrize(
    "table",
    [
        {"name": "nowhere.t"},
        {"columns": []},
        {"columns": [["id", "int"], ["ID", "string"]]},
        {"partition_columns": [["id", "int"]]},
        {"bucket_columns": ["id"], "bucket_count": 0},
        {"bucket_columns": ["x"], "bucket_count": 2},
        {"bucket_columns": [], "bucket_count": 2},
        {"location": ""},
        {"location": "/w/t"},
        {"name": "default.a.b"},
        {"name": "default.*"},
        {"name": "default.a*"},
    ],
)
def test_declarations_that_cant_be_honoured(world: World, table: dict[str, object]) -> None:
    whole = {"name": "u", "location": "/w/u", "columns": [["id", "int"]], **table}
    with pytest.raises(InvalidDefinition):
        world.call("create_table", table=whole, if_not_exists=False)
    assert len(world.call("tables")["tables"]) == 1


def test_a_place_near_that_of_another_table_is_found_without_a_look_at_all() -> None:
    """As if each were compared: locations of three letters at three depths, made and dropped."""
    chance, world, places = random.Random(7), World(), dict[str, str]()
    for number in range(300):
        name, parts = f"t{number}", chance.choices(["a", "a-", "a0", "é"], k=chance.randint(1, 3))
        where = chance.choice(["", "", "/", "s3://"]) + "/".join(parts)

        def near(other: str, where: str = where) -> bool:
            return f"{other}/".startswith(f"{where}/") or f"{where}/".startswith(f"{other}/")

        met = {taken for taken, other in places.items() if near(other)}
        outside = {taken for taken, other in places.items() if other[0] == "/" or ":" in other}
        found = world.call("tables_near", name=f"default.{name}", location=where)["tables"]
        assert {table["name"].partition(".")[2] for table in found} == met | outside
        if met:
            with pytest.raises(InvalidDefinition, match=r"location of|enclose each other"):
                world.create(name, location=where)
            gone = chance.choice(sorted(met))
            drop = world.begin(LockRequest(gone, E))
            world.call("drop", txn=drop.id, name=gone, partition=None)
            del places[gone]
            for row in [*world.state.drops()]:
                del world.state.queue[row.id]  # as if the Cleaner had been there
        else:
            world.create(name, location=where)
            places[name] = where
    rows, numbers = stored_kinds.live_rows(world.state), stored_kinds.counters(world.state)
    again = stored_kinds.restore(rows, numbers)
    kept = {again.tables[number].record.name for number in again.occupied.near("a")}
    kept = {name.partition(".")[2] for name in kept}
    assert kept == {name for name, where in places.items() if where.split("/")[0] == "a"}


@pytest.mark.parametrize("name", ["*", "a*", "a.b", "a`b"])
def test_names_that_mean_something_else_in_a_statement(world: World, name: str) -> None:
    """A lock of `db.*` is one of a whole database, and grants and assets take stars too."""
    named = {"name": f"default.{name}", "columns": [["id", "int"]]}
    external = {"external": {"location": "/w/u", "format": "orc"}}
    new = {"if_not_exists": True, "or_replace": False}
    doors: list[tuple[str, dict[str, object]]] = [
        ("create_table", {"table": {**named, "location": "/w/u"}, **new}),
        ("create_view", {"view": {**named, "query": "SELECT 1 AS id"}, **new}),
        ("create_view", {"view": {**named, "query": "", **external}, **new}),
        ("alter_table", {"name": "t", "rename": f"default.{name}"}),
        ("create_database", {"name": name, "if_not_exists": True}),
    ]
    for door, arguments in doors:
        with pytest.raises(InvalidDefinition, match=r"contains '[.*`]', which .* choose another"):
            world.call(door, **arguments)
    assert len(world.call("tables")["tables"]) == 1 and world.call("views")["views"] == []


def test_databases(world: World) -> None:
    world.call("create_database", name="Sales", if_not_exists=False)
    with pytest.raises(TableExists):
        world.call("create_database", name="sales", if_not_exists=False)
    world.create("sales.t", location="/w/sales")
    with pytest.raises(InvalidDefinition, match=r"holds sales\.t"):
        world.call("drop_database", name="sales")
    with pytest.raises(InvalidDefinition, match="always there"):
        world.call("drop_database", name="default")
    assert world.call("databases")["databases"] == ["default", "sales"]


def test_what_is_said_about_a_database(world: World) -> None:
    world.call("create_database", name="d", if_not_exists=False, comment="a", properties={"b": "c"})
    change = {"name": "D", "properties": {"e": "f", "b": None}, "owner": "ann"}
    answer = world.call("alter_database", comment=None, owner_kind="ROLE", **change)["database"]
    assert (answer["comment"], answer["properties"]) == ("a", {"e": "f"})
    assert (answer["owner"], answer["owner_kind"]) == ("ann", "ROLE")
    assert world.call("database", name="d")["database"] == answer
    world.call("alter_database", name="d", comment="")
    assert world.call("database", name="d")["database"] == {**answer, "comment": ""}
    for refused in ({"comment": "\ud800"}, {"properties": {"x": "\ud800"}}, {"owner": ""}):
        with pytest.raises(InvalidDefinition):
            world.call("alter_database", name="d", **refused)
    with pytest.raises(NoSuchTable):
        world.call("alter_database", name="nowhere", comment="x")


def test_comments_of_columns(world: World) -> None:
    """A change of columns keeps the comments of those that keep their names."""
    world.insert()
    columns = [["id", "int"], ["v", "string"]]
    world.call("alter_table", name="t", columns=columns, comments={"id": "key", "v": "text"})
    answer = world.call("alter_table", name="t", columns=[["id", "bigint"], ["w", "string"]])
    assert answer["table"]["comments"] == {"id": "key"}
    answer = world.call("alter_table", name="t", rename="s", properties={"a": "1"})
    assert answer["table"]["comments"] == {"id": "key"}
    with pytest.raises(InvalidDefinition, match="no column 'v' to comment"):
        world.call("alter_table", name="s", comments={"v": "gone"})
    assert world.call("alter_table", name="s", comments={})["table"]["comments"] == {}


def test_constraints(world: World) -> None:
    """A column with a constraint can't go, and open writers have to begin again."""
    world.insert()
    check = {"name": "c", "kind": "CHECK", "columns": ["id"], "text": "id > 0"}
    before = world.begin()
    world.sees(before)
    answer = world.call("alter_table", name="t", constraints=[check])
    assert [one["name"] for one in answer["table"]["constraints"]] == ["c"]
    with pytest.raises(DeclarationChanged, match="constraints of"):
        world.lock(before, LockRequest("t", W, INSERT))
    with pytest.raises(InvalidDefinition, match="constraint c names it"):
        world.call("alter_table", name="t", columns=[["other", "int"]])
    for wrong in ([check, check], [{**check, "name": ""}], [{**check, "columns": ["x"]}]):
        with pytest.raises(InvalidDefinition):
            world.call("alter_table", name="t", constraints=wrong)
    answer = world.call("alter_table", name="t", columns=[["id", "bigint"]], constraints=[])
    assert answer["table"]["constraints"] == []


def test_alter_table(world: World) -> None:
    world.insert()
    more = {"columns": [["id", "int"], ["v", "string"]], "properties": {"a": "1", "b": "2"}}
    world.call("alter_table", name="t", rename=None, **more)
    answer = world.call("alter_table", name="t", rename="s", columns=None, properties={"a": None})
    assert answer["table"]["name"] == "default.s" and answer["table"]["properties"] == {"b": "2"}
    assert answer["table"]["columns"] == [["id", "int"], ["v", "string"]]
    with pytest.raises(InvalidDefinition):
        world.call(
            "alter_table", name="s", rename=None, columns=[["id", "int"]] * 2, properties=None
        )
    with pytest.raises(NoSuchTable, match=r"no table default\.t"):
        world.call("table", name="t")
    assert world.write("s", INSERT).write_ids == {"default.s": 2}


def test_T24_partitions() -> None:
    world = World()
    world.create(partitioned=True)
    answer = world.call("add_partitions", name="t", partitions=["P=1", "p=1", "p=2"])
    assert answer["added"] == ["p=1", "p=2"]
    assert world.call("add_partitions", name="t", partitions=["p=2"])["added"] == []
    for wrong in ("q=1", "p=1/q=2", "p"):
        with pytest.raises(NoSuchPartition):
            world.call("add_partitions", name="t", partitions=[wrong])
    world.insert(partition="p=3")
    names = [partition["name"] for partition in world.call("partitions", name="t")["partitions"]]
    assert names == ["p=1", "p=2", "p=3"]


def test_P9_settings_are_checked_and_kept(world: World) -> None:
    with pytest.raises(SettingRefused, match=r"hive\.txn\.timeout='0s'"):
        world.set("hive.txn.timeout", "0s")
    with pytest.raises(SettingRefused, match="no setting"):
        world.set("hive.txn.tiemout", "10s")
    world.set("hive.txn.timeout", "10s")
    with pytest.raises(SettingRefused, match="must be below"):
        world.set("acid.heartbeat.interval", "10s")
    answer = world.call("settings")
    assert answer["set"] == {"hive.txn.timeout": "10s"} and answer["heartbeat"] == 5000
    assert answer["settings"]["hive.compactor.delta.num.threshold"] == "10"


def test_P24_adoption(world: World) -> None:
    table = {
        "name": "old",
        "location": "/w/old",
        "columns": [["id", "int"]],
        "partition_columns": [["p", "int"]],
    }
    reports = [
        WriteReport("old", "p=1", INSERT, "base_0000004_v0000070", counts(5, 50)),
        WriteReport("old", "p=1", INSERT, "delta_0000006_0000006_0000", counts(1, 10)),
        WriteReport("old", "p=2", INSERT, "", counts(3, 30, files=2)),
    ]
    world.call(
        "adopt_table",
        table=table,
        write_id=7,
        txn_id=70,
        aborted=[7],
        partitions=["p=3"],
        directories=[encode(report) for report in reports],
    )
    txn = world.write("old", INSERT, "p=1")
    assert txn.id == 71 and txn.write_ids == {"default.old": 8}
    reader = world.read()
    assert str(world.sees(reader, "old")) == "default.old:8:8:8:7"
    names = [partition["name"] for partition in world.call("partitions", name="old")["partitions"]]
    assert names == ["p=1", "p=2", "p=3"]
    known = world.state.directories[2, "p=1"]
    assert [table.name for table in known.values()] == [
        "base_0000004_v0000070",
        "delta_0000006_0000006_0000",
    ]
    originals = world.state.directories[2, "p=2"][""]
    assert (originals.low, originals.high, originals.bytes, originals.base) == (0, 0, 30, False)
