"""Dropped tables come back as they were, or the reason is named (P83): the metastore's part."""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform.errors import DeclarationChanged, InvalidDefinition, NoSuchTable, TableExists
from acid_platform.metastore.records import LockRequest
from tests.metastore.test_cleaning import drop
from tests.metastore.world import DELETE, INSERT, UPDATE, E, World


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    return world


def undrop(world: World, table: str = "t", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = world.call("undrop", table=table, **more)["table"]
    return found


def dropped(world: World) -> list[tuple[str, int, str]]:
    rows = world.call("dropped_tables")["tables"]
    return [(row["table"]["name"], row["until"] - row["dropped"], row["refused"]) for row in rows]


def kept(world: World, days: int = 7) -> None:
    world.set("acid.history.retention", f"{days}d")


def test_P83_a_table_comes_back_with_its_rows_history_and_tags(world: World) -> None:
    kept(world)
    world.insert()
    tag = world.call("create_tag", table="t", name="x", as_of=None, expires=0, user="u")
    world.abort(world.write())
    world.insert()
    before = world.read(["t"])
    lists = world.sees(before)
    known = {name: dict(each) for name, each in world.state.directories.items()}
    drop(world)
    world.tick(60_000)
    assert dropped(world) == [("default.t", 7 * 86_400_000, "")] and not world.ready()
    record = undrop(world)
    assert (record["table_id"], record["name"]) == (1, "default.t")
    assert dropped(world) == [] and world.state.directories == known
    now = world.read(["t"])
    assert str(world.sees(now)) == str(lists) == str(world.sees(before))
    past = world.call("past", txn=now.id, table="t", as_of={"tag": "x"})
    assert past["pin"] == tag["pin"]
    (entry,) = world.call("kept", table="t")["tables"]
    assert entry["since"] < world.clock.moment().wall
    writer = world.write(operation=UPDATE)
    assert writer.write_ids == {"default.t": 4}
    world.commit(writer, world.report(writer, operation=DELETE))


def test_P83_without_a_retention_a_table_comes_back_until_the_cleaner_begins(world: World) -> None:
    world.insert()
    drop(world)
    assert dropped(world) == [("default.t", -world.clock.moment().wall, "")]
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.cleaning("cleaning_failed", task, error="x")
    with pytest.raises(InvalidDefinition, match="the removal of its files has begun"):
        undrop(world)
    world.tick(400_000)
    world.clean(world.ready()[0])
    with pytest.raises(NoSuchTable, match="has files left"):
        undrop(world)


def test_P83_purge_keeps_nothing(world: World) -> None:
    kept(world)
    world.insert()
    txn = world.begin(LockRequest("t", E))
    world.call("drop", txn=txn.id, name="t", partition=None, purge=True)
    (task,) = world.ready()
    world.clean(task)
    assert dropped(world) == []


def test_P83_an_older_snapshot_reads_and_writes_nothing(world: World) -> None:
    """What others committed before the drop is no longer compared with its rows."""
    world.insert()
    early, reader = world.begin(tables=["t"]), world.read(["t"])
    world.sees(early)
    seen = str(world.sees(reader))
    world.insert()
    drop(world)
    undrop(world)
    assert str(world.sees(reader)) == seen
    with pytest.raises(DeclarationChanged, match="was dropped and brought back"):
        world.lock(early, LockRequest("t", E, INSERT))


def test_P83_a_writer_with_a_write_id_of_before_is_in_the_way(world: World) -> None:
    world.insert()
    writer = world.begin()
    world.allocate(writer.id, "t")
    drop(world)
    with pytest.raises(InvalidDefinition, match=f"transaction {writer.id} has got a write id"):
        undrop(world)
    world.abort(writer)
    undrop(world)


def test_P83_a_name_and_a_place_that_are_in_use(world: World) -> None:
    kept(world)
    world.insert()
    drop(world)
    world.create(location="/w/t_2")
    with pytest.raises(TableExists, match="back AS another name"):
        undrop(world)
    with pytest.raises(InvalidDefinition, match="there is no such database"):
        undrop(world, rename="other.t")
    assert undrop(world, rename="old")["location"] == "/w/t"
    drop(world, "old")
    world.create("late", location="/w/t")
    with pytest.raises(InvalidDefinition, match="late is at its place"):
        undrop(world, "old")
    drop(world, "late")
    with pytest.raises(InvalidDefinition, match="which was dropped since, was at its place"):
        undrop(world, "old")
    assert undrop(world, "late")["name"] == "default.late"


def test_P83_the_last_of_a_name_or_that_of_an_id(world: World) -> None:
    kept(world)
    drop(world)
    world.create(location="/w/second")
    drop(world)
    with pytest.raises(NoSuchTable, match="has the id 9; there are 1, 2"):
        undrop(world, table_id=9)
    assert undrop(world)["location"] == "/w/second"
    assert undrop(world, table_id=1, rename="first")["location"] == "/w/t"


def test_P83_partitions_that_were_dropped_before_stay_dropped() -> None:
    world = World()
    kept(world)
    world.create(partitioned=True)
    for partition in ("p=1", "p=2", "p=2"):
        world.insert(partition=partition)
        if partition == "p=2":
            drop(world, partition="p=2")
    world.insert(partition="p=1")
    world.insert(partition="p=2")
    present = {name: dict(each) for name, each in world.state.directories.items()}
    apart = {name: dict(each) for name, each in world.state.dropped_directories.items()}
    drop(world)
    assert not world.ready()
    undrop(world)
    assert world.state.directories == present
    assert world.state.dropped_directories == apart
    assert [task.partition for task in world.ready()] == []
    world.tick(8 * 86_400_000)
    assert {task.partition for task in world.ready()} == {"p=2"}


def test_P83_a_cleaning_of_its_partition_begins_the_removal() -> None:
    """A tag may need what the partition has left."""
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    drop(world, partition="p=1")
    drop(world)
    (part,) = (task for task in world.ready() if task.partition)
    world.cleaning("start_cleaning", part)
    with pytest.raises(InvalidDefinition, match="the removal of its files has begun"):
        undrop(world)


def test_P83_the_output_of_an_aborted_compaction_is_in_the_way(world: World) -> None:
    world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    txn, _ = world.begin_compaction(task)
    world.call("fail_compaction", **world.owner(task), txn=txn, error="x")
    drop(world)
    with pytest.raises(InvalidDefinition, match="an aborted compaction had left files"):
        undrop(world)


def test_P83_sinks_and_consumers_go_on(world: World) -> None:
    txn = world.begin()
    batch = {"sink": "s", "table": "t", "query": "q", "batch": 3, "rows": 5}
    world.call("commit", txn=txn.id, writes=[], sinks=[batch])
    drop(world)
    undrop(world)
    assert [row["sink"]["batch"] for row in world.call("sinks", table="t")["sinks"]] == [3]
    drop(world)
    world.clean(world.ready()[0])
    world.tick(61_000)
    assert not world.state.sinks
