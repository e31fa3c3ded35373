"""A reader gets the files that commits recorded, as long as its snapshot is alive (P26)."""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform.errors import SnapshotExpired
from acid_platform.layout.file_entries import FileEntry, Footer, RecordedFiles
from acid_platform.metastore.records import WriteReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server.state_tables import RecordedCache
from acid_platform.metastore.server.store import Store
from tests.metastore.world import INSERT, Txn, World
from tests.simulation.storage import Memory


def contents(*sizes: int) -> RecordedFiles:
    return RecordedFiles(
        tuple(
            FileEntry(f"bucket_{number:05d}", size, Footer(size // 10, True))
            for number, size in enumerate(sizes)
        )
    )


def insert(
    world: World, files: RecordedFiles, table: str = "t", partition: str | None = None
) -> str:
    """Commits one delta with these files and returns its name."""
    txn = world.write(table, INSERT, partition)
    (write_id,) = txn.write_ids.values()
    name = f"delta_{write_id:07d}_{write_id:07d}_0000"
    world.commit(txn, WriteReport(table, partition, INSERT, name, files))
    return name


def files_of(world: World, txn: Txn, table: str = "t", *partitions: str | None) -> list[Any]:
    """For each partition the recorded files by directory name."""
    answer = world.call("manifest", txn=txn.id, table=table, partitions=list(partitions or [None]))
    return [
        {
            entry["directory"]["name"]: None
            if entry["contents"] is None
            else RecordedFiles.parse(entry["contents"])
            for entry in entity
        }
        for entity in answer["entities"]
    ]


def test_P26_a_snapshot_is_given_the_files_of_each_commit(world: World) -> None:
    name, later = insert(world, contents(100, 50)), insert(world, contents(70))
    reader = world.read(["t"])
    assert files_of(world, reader) == [{name: contents(100, 50), later: contents(70)}]
    (row,) = (written for written in world.state.written if written.directory == name)
    assert (row.files, row.bytes, row.rows) == (2, 150, 15)


def test_P26_uncommitted_directories_are_not_given(world: World) -> None:
    txn = world.write("t")
    reader = world.read(["t"])
    assert files_of(world, reader) == [{}]
    world.call("abort", txn=txn.id, reason="")
    assert files_of(world, reader) == [{}]


def test_P29_files_are_answered_while_the_snapshot_lives_and_not_after(world: World) -> None:
    insert(world, contents(100))
    reader = world.read(["t"])
    files_of(world, reader)
    world.tick(3_700_000)
    with pytest.raises(SnapshotExpired):
        files_of(world, reader)


def test_P28_a_snapshot_is_given_the_files_of_a_dropped_partition(world: World) -> None:
    world.create("u", partitioned=True)
    name = insert(world, contents(30), "u", "p=1")
    reader = world.read(["u"])
    drop(world, "u", "p=1")
    insert(world, contents(40), "u", "p=1")
    assert files_of(world, reader, "u", "p=1")[0][name] == contents(30)


def drop(world: World, table: str, partition: str | None) -> None:
    from acid_platform.metastore.records import LockRequest
    from acid_platform.transactions.concurrency import LockType

    txn = world.begin(LockRequest(table, LockType.EXCLUSIVE, None, partition))
    world.call("drop", txn=txn.id, name=table, partition=partition)


def saved(world: World, store: Store) -> World:
    """The same metastore after a snapshot and a restart."""
    store.append(world.events)
    store.save(world.state, 0)
    again = World()
    again.machine = Machine(store.load()[0], store)
    again.machine.wake(world.clock.moment())
    again.clock, again.requests = world.clock, world.requests + 1_000
    return again


def test_P26_files_are_known_after_a_snapshot_and_a_restart(world: World) -> None:
    store = Memory().store()
    name = insert(world, contents(100))
    world = saved(world, store)
    later = insert(world, contents(70))
    wanted = {name: contents(100), later: contents(70)}
    assert files_of(world, world.read(["t"])) == [wanted]
    store.append(world.events)
    store.save(world.state, 0)
    assert later not in world.state.contents.get((1, None), {})
    assert files_of(world, world.read(["t"])) == [wanted]


def test_P26_files_of_removed_directories_are_forgotten(world: World) -> None:
    store = Memory().store()
    name = insert(world, contents(100))
    world = saved(world, store)
    task = world.compact()
    (ready,) = world.ready()
    world.clean(ready)
    assert task is not None
    world = saved(world, store)
    assert name not in files_of(world, world.read(["t"]))[0]
    assert store.recorded(1, [None]) == {} or (None, name) not in store.recorded(1, [None])


def test_P26_the_least_recently_used_entity_is_evicted() -> None:
    rows = {
        f"p={number}": [
            {"table_id": 1, "partition": f"p={number}", "directory": "d", "contents": "x" * 100}
        ]
        for number in range(10)
    }
    asked: list[Any] = []

    def read(name: str, columns: Any, where: str, values: Any) -> list[dict[str, Any]]:
        asked.append(values[1:])
        wanted = values[1] if isinstance(values[1], list) else [values[1]]
        return [row for table in wanted for row in rows[table]]

    cache = RecordedCache(read, most=3_000)
    for number in range(10):
        assert cache.of(1, [f"p={number}"]) == {(f"p={number}", "d"): "x" * 100}
    asked.clear()
    cache.of(1, ["p=9"])
    assert asked == []
    cache.of(1, ["p=0", "p=9"])
    assert asked == [["p=0"]]
