"""P28: a snapshot sees the declarations of its moment, and a change names what it read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from acid_platform import (
    DeclarationChanged,
    NoSuchTable,
    SnapshotExpired,
    WriteConflict,
)
from acid_platform.metastore.messages import encode
from acid_platform.metastore.operations.compaction import EntityCleaning
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server import stored_kinds
from tests.metastore.world import DELETE, INSERT, UPDATE, E, Txn, W, World


def drop(world: World, name: str, partition: str | None = None) -> None:
    txn = world.begin(LockRequest(name, E, None, partition))
    world.call("drop", txn=txn.id, name=name, partition=partition)


def alter(world: World, name: str, read: Sequence[int] | None = None, **change: Any) -> Any:
    return world.call(
        "alter_table",
        **{
            "name": name,
            "columns": None,
            "properties": None,
            "rename": None,
            "read": read,
            **change,
        },
    )["table"]


def add(world: World, name: str, *columns: str) -> Any:
    record = table(world, name)
    wide = [*record["columns"], *([column, "int"] for column in columns)]
    return alter(world, name, [record["table_id"], record["version"]], columns=wide)


def table(world: World, name: str, txn: Txn | None = None) -> Any:
    return world.call("table", name=name, txn=txn.id if txn else 0)["table"]


def columns(world: World, name: str, txn: Txn | None = None) -> list[str]:
    return [column for column, _ in table(world, name, txn)["columns"]]


def partitions(world: World, name: str, txn: Txn | None = None) -> list[str]:
    answer = world.call("partitions", name=name, txn=txn.id if txn else 0)
    return [partition["name"] for partition in answer["partitions"]]


def commit(world: World, txn: Txn, added: dict[str, list[list[str]]], *writes: WriteReport) -> None:
    world.call("commit", txn=txn.id, writes=[encode(write) for write in writes], columns=added)


def forget_past(world: World) -> None:
    """Ticks until every purge has run."""
    world.tick(3_600_000)


@pytest.fixture
def parts(world: World) -> World:
    """`t` unpartitioned, `u` with rows in two partitions."""
    world.create("u", partitioned=True)
    for partition in ("p=1", "p=2"):
        world.insert("u", partition)
    world.insert("t")
    return world


# --- what an older snapshot sees ------------------------------------------------------------------


def test_P28_a_dropped_partition_stays_for_older_snapshots(parts: World) -> None:
    reader, writer = parts.read(None), parts.begin()
    drop(parts, "u", "p=1")
    newer = parts.read(None)
    for older in (reader, writer):
        assert partitions(parts, "u", older) == ["p=1", "p=2"]
        listed = parts.sees(older, "u")
        assert listed.is_valid(1) and listed.is_valid(2) and not listed.is_valid(3)
    assert partitions(parts, "u", newer) == partitions(parts, "u") == ["p=2"]
    parts.insert("u", "p=1")
    assert partitions(parts, "u", newer) == ["p=2"] != partitions(parts, "u")
    assert partitions(parts, "u", reader) == ["p=1", "p=2"]


def test_P28_each_life_of_a_partition_has_its_own_floors(parts: World) -> None:
    first = parts.read(None)
    drop(parts, "u", "p=1")
    parts.insert("u", "p=1")
    second = parts.read(None)

    def floors(txn: Txn) -> list[list[int]]:
        found = parts.call("partitions", name="u", txn=txn.id)["partitions"]
        return [partition["floors"] for partition in found]

    assert (floors(first), floors(second)) == ([[], []], [[3], []])


def test_P28_older_snapshots_still_read_a_dropped_table(parts: World) -> None:
    """They see its write ids, columns, partitions and directories; the name has a new table."""
    old = table(parts, "u")
    reader = parts.read(None)
    drop(parts, "u")
    new = parts.create("u", location="/w/other")
    assert table(parts, "u", reader) == old
    assert partitions(parts, "u", reader) == ["p=1", "p=2"]
    assert parts.sees(reader, "u").high_watermark == 2
    assert set(directories(parts.state, (old["table_id"], "p=1"))) == {"delta_0000001_0000001_0000"}
    assert table(parts, "u")["table_id"] == new
    assert table(parts, "u", parts.read(None))["table_id"] == new


def test_P28_a_rename_changes_nothing_for_older_snapshots(parts: World) -> None:
    reader = parts.read(None)
    alter(parts, "u", rename="v")
    created = parts.create("u", location="/w/other")
    assert table(parts, "u", reader)["location"] == "/w/u"
    assert parts.sees(reader, "u").high_watermark == 2
    with pytest.raises(NoSuchTable, match=f"when transaction {reader.id} took"):
        table(parts, "v", reader)
    assert table(parts, "v")["location"] == "/w/u" and table(parts, "u")["table_id"] == created


def test_P28_columns_and_properties_are_those_of_the_snapshot(world: World) -> None:
    snapshots = [world.read(None)]
    for number in range(3):
        add(world, "t", f"c{number}")
        alter(world, "t", properties={"n": str(number)})
        snapshots.append(world.read(None))
    seen = [
        (len(columns(world, "t", snapshot)), table(world, "t", snapshot)["properties"].get("n"))
        for snapshot in snapshots
    ]
    assert seen == [(1, None), (2, "0"), (3, "1"), (4, "2")]


def test_P28_views_are_those_of_the_snapshot(world: World) -> None:
    def make(query: str) -> None:
        view = {"name": "v", "query": query, "columns": [["x", "int"]]}
        world.call("create_view", view=view, if_not_exists=False, or_replace=True)

    def queries(txn: Txn | None) -> list[str]:
        found = world.call("views", txn=txn.id if txn else 0)["views"]
        return [view["query"] for view in found]

    before = world.read(None)
    make("SELECT 1 AS x")
    first = world.read(None)
    make("SELECT 2 AS x")
    second = world.read(None)
    world.call("drop_view", name="v")
    assert [queries(txn) for txn in (before, first, second, None)] == [
        [],
        ["SELECT 1 AS x"],
        ["SELECT 2 AS x"],
        [],
    ]


def test_P28_only_writers_see_a_table_newer_than_their_snapshot(world: World) -> None:
    """A run creates the table that it writes after it has taken its snapshot."""
    writer, reader = world.begin(), world.read(None)
    world.create("new")
    with pytest.raises(NoSuchTable, match="begin again"):
        table(world, "new", reader)
    assert columns(world, "new", writer) == ["id"]
    locked = Txn(world.lock(writer, LockRequest("new", W, INSERT)))
    world.commit(locked, world.report(locked, "new"))


def test_P28_an_ended_lease_sees_nothing(world: World) -> None:
    reader = world.read(None)
    world.tick(10 * 3_600_000)
    with pytest.raises(SnapshotExpired):
        table(world, "t", reader)


# --- writing what has changed ---------------------------------------------------------------------


def test_P28_nothing_is_written_into_a_new_table_of_the_same_name(parts: World) -> None:
    writer = parts.begin()
    drop(parts, "t")
    with pytest.raises(DeclarationChanged, match=r"t was dropped since transaction \d+ took"):
        parts.lock(writer, LockRequest("t", W, INSERT))
    parts.create("t", location="/w/new", columns=[["other", "string"]])
    with pytest.raises(DeclarationChanged, match="t was dropped and made again since"):
        parts.lock(writer, LockRequest("t", W, INSERT))
    with pytest.raises(DeclarationChanged, match="made again"):
        parts.allocate(writer.id, "t")
    assert parts.state.table("t").writes == []


def test_P28_a_write_id_without_a_lock_does_not_outlive_the_table(world: World) -> None:
    writer = world.begin()
    writer.write_ids["default.t"] = world.allocate(writer.id, "t")
    drop(world, "t")
    world.create("t", location="/w/new")
    report = world.report(writer)
    with pytest.raises(DeclarationChanged, match="made again"):
        world.commit(writer, report)


def test_P28_a_write_after_a_rename_or_another_column_is_refused(world: World) -> None:
    writer = world.begin()
    add(world, "t", "note")
    world.lock(writer, LockRequest("t", W, INSERT))  # rows without the column have NULL there
    world.abort(writer)
    writer = world.begin()
    alter(world, "t", columns=[["id", "bigint"], ["note", "int"]])
    with pytest.raises(DeclarationChanged, match=r"columns of default\.t were changed"):
        world.lock(writer, LockRequest("t", W, UPDATE))
    writer = world.begin()
    alter(world, "t", rename="s")
    with pytest.raises(DeclarationChanged, match=r"t was renamed to default\.s"):
        world.lock(writer, LockRequest("t", W, DELETE))


def test_P28_a_lock_that_waits_while_the_columns_change(world: World) -> None:
    alone = world.begin(LockRequest("t", E))
    writer = world.begin()
    waiting = world.lock_request(writer, LockRequest("t", W, INSERT))
    alter(world, "t", columns=[["id", "bigint"]])
    world.commit(alone)
    with pytest.raises(DeclarationChanged, match=r"columns of default\.t"):
        world.answer(waiting)


# --- changes against what was read ----------------------------------------------------------------


def test_P28_a_change_for_another_version_is_refused(world: World) -> None:
    read = table(world, "t")
    add(world, "t", "mine")
    with pytest.raises(DeclarationChanged, match="altered or made again since it was read"):
        alter(world, "t", [read["table_id"], read["version"]], columns=[["id", "int"]])
    assert columns(world, "t") == ["id", "mine"]
    read = table(world, "t")
    drop(world, "t")
    world.create("t")
    with pytest.raises(DeclarationChanged):
        alter(world, "t", [read["table_id"], read["version"]], columns=[["id", "int"]])


def test_P28_properties_are_merged_key_by_key(world: World) -> None:
    alter(world, "t", properties={"a": "1"})
    alter(world, "t", properties={"b": "2"})
    assert table(world, "t")["properties"] == {"a": "1", "b": "2"}


def test_P28_new_columns_become_visible_with_their_rows(world: World) -> None:
    """Two backfills add the same column; each commit adds what is not there yet."""
    writers = [world.write("t", INSERT) for _ in range(3)]
    before = world.read(None)
    for writer, new in zip(writers, (["a"], ["b", "a"], ["c"]), strict=True):
        commit(world, writer, {"t": [[name, "int"] for name in new]})
    assert columns(world, "t") == ["id", "a", "b", "c"]
    assert columns(world, "t", before) == ["id"]


def test_P28_a_column_of_another_type_conflicts(world: World) -> None:
    first, second = world.write("t", INSERT), world.write("t", INSERT)
    commit(world, first, {"t": [["note", "string"]]})
    with pytest.raises(DeclarationChanged, match=r"note int to default\.t, which has got note str"):
        commit(world, second, {"t": [["note", "int"]]})
    world.abort(second)
    assert table(world, "t")["columns"] == [["id", "int"], ["note", "string"]]


def test_P28_concurrent_columns_conflict_where_files_know_them_by_position(world: World) -> None:
    """One file would have (id, a) and another (id, b): b would be read as a."""
    properties = {"transactional_properties": "insert_only", "acid.format": "csv"}
    world.create("c", properties=properties)
    first, second = world.write("c", INSERT), world.write("c", INSERT)
    commit(world, first, {"c": [["a", "int"]]})
    with pytest.raises(DeclarationChanged, match="know columns by their position"):
        commit(world, second, {"c": [["b", "int"]]})


def test_P28_concurrent_columns_conflict_where_files_know_them_by_id(world: World) -> None:
    """The column of each would have the id 2 in its files. Others that are the same do no harm."""
    world.create("p", properties={"acid.format": "parquet"})
    first, second, third = (world.write("p", INSERT) for _ in range(3))
    commit(world, first, {"p": [["a", "int"]]})
    with pytest.raises(DeclarationChanged, match="know columns by their id"):
        commit(world, second, {"p": [["b", "int"]]})
    commit(world, third, {"p": [["a", "int"], ["b", "int"]]})
    assert columns(world, "p") == ["id", "a", "b"]


def test_P28_a_conflict_adds_no_columns(world: World) -> None:
    first, second = world.write("t", UPDATE), world.write("t", UPDATE)
    world.commit(first, world.report(first, operation=UPDATE))
    with pytest.raises(WriteConflict):
        commit(world, second, {"t": [["a", "int"]]}, world.report(second, operation=UPDATE))
    assert columns(world, "t") == ["id"]


def test_P28_a_compaction_goes_on_under_the_new_name(parts: World) -> None:
    """The name may belong to another table by then."""
    parts.request("major", "u", "p=1")
    alter(parts, "u", rename="v")
    parts.create("u", partitioned=True, location="/w/other")
    task = parts.take_task("host-1")
    assert task is not None and task.table == "default.v"
    parts.begin_compaction(task)
    (entry,) = parts.state.locks.values()
    assert [component.table for component in entry.components] == ["v"]


# --- forgetting -----------------------------------------------------------------------------------


def test_P28_what_nobody_sees_is_forgotten(parts: World) -> None:
    parts.set("acid.read.lease.max", "9h")
    parts.set("hive.txn.timeout", "9h")
    parts.set("acid.history.retention", "1ms")
    state, reader = parts.state, parts.read(None)
    old = table(parts, "u")["table_id"]
    add(parts, "t", "a")
    parts.insert("t")
    drop(parts, "u", "p=1")
    forget_past(parts)
    assert state.table("t").earlier and state.table("u").dropped_partitions
    drop(parts, "u")
    forget_past(parts)
    assert partitions(parts, "u", reader) == ["p=1", "p=2"] and state.dropped_directories
    parts.commit(reader)
    forget_past(parts)
    # The Cleaner has not removed its files yet.
    assert not state.table("t").earlier and old in state.dropped_tables
    for task in parts.ready():
        parts.clean(task)
    forget_past(parts)
    assert not state.dropped_tables and not state.dropped_directories


def test_P28_a_table_first_asked_for_after_its_files_are_gone_is_refused(parts: World) -> None:
    parts.set("hive.txn.timeout", "9h")
    late = parts.begin()  # it has a snapshot but has not asked for the table
    drop(parts, "u")
    for task in parts.ready():
        parts.clean(task)
    forget_past(parts)
    assert columns(parts, "u", late) == ["id"]
    with pytest.raises(SnapshotExpired, match="after the Cleaner removed"):
        parts.sees(late, "u")


def test_P28_a_cleaning_forgets_only_what_it_removed(world: World) -> None:
    """An aborted write is cleaned before every snapshot sees a compaction: the directories that the
    compaction replaced stay recorded as long as their files."""
    world.insert()
    reader = world.read(["t"])
    world.compact()
    world.abort(world.write())
    world.set("hive.compactor.abortedtxn.threshold", "0")
    (cleaning,) = [task for task in world.ready() if isinstance(task, EntityCleaning)]
    world.clean(cleaning)
    assert "delta_0000001_0000001_0000" in world.state.directories[1, None]
    world.commit(reader)


def test_P28_a_restart_keeps_all_of_it(parts: World) -> None:
    """Both by replay and by a snapshot."""
    view = {"name": "v", "query": "SELECT 1 AS x", "columns": [["x", "int"]]}
    parts.call("create_view", view=view, if_not_exists=False, or_replace=False)
    reader = parts.read(None)
    parts.call("drop_view", name="v")
    add(parts, "t", "a")
    alter(parts, "t", rename="s")
    drop(parts, "u", "p=1")
    drop(parts, "u")
    parts.create("u")
    replayed = Machine()
    replayed.replay(parts.events)
    rows = json.loads(json.dumps(stored_kinds.live_rows(parts.state)))
    saved = Machine(stored_kinds.restore(rows, stored_kinds.counters(parts.state)))
    for machine in (parts.machine, replayed, saved):
        parts.machine = machine
        assert columns(parts, "t", reader) == ["id"] and columns(parts, "s") == ["id", "a"]
        assert partitions(parts, "u", reader) == ["p=1", "p=2"] and partitions(parts, "u") == []
        assert len(parts.call("views", txn=reader.id)["views"]) == 1
        assert stored_kinds.live_rows(machine.state) == stored_kinds.live_rows(saved.state)
