"""A reader keeps its lease only while a new one would see the same (P11, P12, P28, P29)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import NoSuchTable, NoSuchTxn, SnapshotExpired
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import TxnType
from tests.metastore.world import DELETE, INSERT, UPDATE, E, Txn, W, World, X

NAMES = ["default.p", "default.t"]


def newest(world: World, txn: Txn, *tables: str) -> bool:
    answer = world.call("is_newest", txn=txn.id, tables=list(tables) or NAMES)
    return bool(answer["newest"])


def seen(world: World, txn: Txn) -> dict[str, Any]:
    """All that a snapshot sees of both tables, each by its own message."""
    return {
        name: {
            "record": world.call("table", name=name, txn=txn.id)["table"],
            "list": str(world.sees(txn, name)),
            "partitions": world.call("partitions", name=name, txn=txn.id)["partitions"],
            "files": world.call("manifest", txn=txn.id, table=name, partitions=[None, "p=1"]),
            "views": world.call("views", txn=txn.id)["views"],
        }
        for name in NAMES
    }


@pytest.fixture
def world() -> World:
    return made()


def made() -> World:
    world = World()
    world.create("t")
    world.create("p", partitioned=True)
    world.create("other")
    world.insert("t")
    world.insert("p", "p=1")
    world.insert("other")
    return world


def alter(world: World, **change: Any) -> None:
    nothing = dict.fromkeys(("columns", "properties", "rename", "read"))
    world.call("alter_table", **{**nothing, "name": "t", **change})


def drop(world: World, table: str, partition: str | None) -> None:
    txn = world.begin(LockRequest(table, E, None, partition))
    world.call("drop", txn=txn.id, name=table, partition=partition)


def drop_and_make(world: World) -> None:
    drop(world, "t", None)
    world.create("t")


def create_view(world: World) -> None:
    view = {"name": "default.v", "query": "SELECT 1", "columns": []}
    world.call("create_view", view=view, if_not_exists=False, or_replace=True)


def leave_open(world: World) -> None:
    world.write("t")


def abort(world: World) -> None:
    world.abort(world.write("t"))


def delete(world: World) -> None:
    txn = world.write("t", DELETE)
    world.commit(txn, world.report(txn, "t", operation=DELETE))


CHANGES: dict[str, Callable[[World], object]] = {
    "insert": lambda world: world.insert("t"),
    "delete": delete,
    "overwrite": lambda world: world.overwrite("t"),
    "compact": lambda world: world.compact(),
    "insert into a partition": lambda world: world.insert("p", "p=1"),
    "add a partition": lambda world: world.call("add_partitions", name="p", partitions=["p=2"]),
    "drop a partition": lambda world: drop(world, "p", "p=1"),
    "add a column": lambda world: alter(world, columns=[["id", "int"], ["v", "string"]]),
    "set a property": lambda world: alter(world, properties={"a": "b"}),
    "drop and make": drop_and_make,
    "create a view": create_view,
}
"""Each is seen by a new snapshot."""
OTHERS: dict[str, Callable[[World], object]] = {
    "another table": lambda world: world.insert("other"),
    "another lease": lambda world: world.read(NAMES),
    "abort": abort,
    "leave open": leave_open,
}


@pytest.mark.parametrize("change", CHANGES)
def test_P11_a_change_of_what_is_seen_ends_the_use_of_a_lease(world: World, change: str) -> None:
    lease = world.read(NAMES)
    assert newest(world, lease)
    CHANGES[change](world)
    assert not newest(world, lease)
    assert newest(world, world.read(NAMES))


@pytest.mark.parametrize("other", ["another table", "another lease"])
def test_P11_what_others_do_elsewhere_leaves_a_lease_in_use(world: World, other: str) -> None:
    lease = world.read(NAMES)
    OTHERS[other](world)
    assert newest(world, lease)


def test_P11_a_writer_that_commits_after_the_snapshot_ends_the_use(world: World) -> None:
    writer = world.write("t")
    lease = world.read(NAMES)
    assert newest(world, lease)
    world.commit(writer, world.report(writer, "t"))
    assert not newest(world, lease)


def test_P11_a_compaction_that_commits_after_the_snapshot_ends_the_use(world: World) -> None:
    world.request()
    task = world.take_task()
    assert task is not None
    txn, merge = world.begin_compaction(task)
    lease = world.read(NAMES)
    assert newest(world, lease)
    world.commit_compaction(task, txn, f"base_{merge.high_watermark:07d}_v{txn:07d}")
    assert not newest(world, lease)


def test_P12_a_lease_is_renewed_by_its_use_and_not_by_a_refusal(world: World) -> None:
    world.set("acid.read.lease.max", "60s")
    lease, unused = world.read(NAMES), world.read(NAMES)
    for _ in range(3):
        world.clock.advance(40_000)
        assert newest(world, lease)
        world.tick()
    with pytest.raises(SnapshotExpired):
        newest(world, unused)
    world.insert("t")
    for _ in range(2):
        world.clock.advance(40_000)
        world.call("heartbeat_one", txn=world.read().id, read=False)
        world.tick()
    with pytest.raises(SnapshotExpired):
        newest(world, lease)


def test_P12_only_tables_that_the_lease_protects_count(world: World) -> None:
    assert not newest(world, world.read(["default.t"]), "default.p")
    assert not newest(world, world.read(NAMES), "default.nosuch")
    ended = world.read(NAMES)
    world.commit(ended)
    with pytest.raises(NoSuchTxn):
        newest(world, ended)
    assert not newest(world, world.begin())


@given(st.lists(st.sampled_from([*CHANGES, *OTHERS]), max_size=6), st.integers(0, 5))
def test_P11_a_lease_that_is_still_used_sees_what_a_new_one_sees(steps: list[str], at: int) -> None:
    world = made()
    lease = None
    for number, step in enumerate(steps):
        if number == min(at, len(steps) - 1):
            lease = world.read(NAMES)
        try:
            (CHANGES | OTHERS)[step](world)
        except Exception:  # e.g. a partition that is gone: the change was refused
            continue
    lease = lease or world.read(NAMES)
    if newest(world, lease):
        assert seen(world, lease) == seen(world, world.read(NAMES))


def begun_with(world: World, request: str) -> dict[str, list[str]]:
    """What the answer says of tables, which is what its client would be told if it asked."""
    answer = world.answer(request)
    txn, tables = Txn(answer), {table["record"]["name"]: table for table in answer["seen"]}
    told = seen(world, txn)
    for name, table in tables.items():
        assert table["record"] == told[name]["record"]
        if table["partitions"] is not None:
            assert table["partitions"] == told[name]["partitions"]
        if table["directories"] is not None:
            files = world.call("manifest", txn=txn.id, table=name, partitions=[None])["entities"]
            assert [table["directories"]] == files
    return {
        name: [key for key in ("partitions", "directories") if table[key] is not None]
        for name, table in tables.items()
    }


def test_P28_a_lease_begins_with_what_its_snapshot_sees(world: World) -> None:
    lease: dict[str, Any] = {"kind": TxnType.READ_ONLY, "tables": NAMES}
    request = world.begin_request(**lease, describe=True)
    assert begun_with(world, request) == {
        "default.p": ["partitions"],
        "default.t": ["directories"],
    }
    assert "seen" not in world.answer(world.begin_request(**lease))
    with pytest.raises(NoSuchTable):
        world.answer(world.begin_request(**{**lease, "tables": ["default.no"]}, describe=True))


def test_P3_P28_a_writer_begins_with_what_its_snapshot_sees(world: World) -> None:
    for operation, told in ((INSERT, []), (UPDATE, ["directories"])):
        request = world.begin_request(LockRequest("t", W, operation), describe=True)
        kept = world.state.outcomes[request]
        assert world.machine.expand(kept.op, kept.reply) == world.answers[request]
        assert begun_with(world, request) == {"default.t": told}


def test_P28_a_writer_that_waits_for_its_lock_asks_for_what_it_sees(world: World) -> None:
    holder = world.write(operation=UPDATE, lock=X)
    request = world.begin_request(LockRequest("t", W, INSERT), describe=True)
    world.commit(holder)
    assert "seen" not in world.answer(request)
