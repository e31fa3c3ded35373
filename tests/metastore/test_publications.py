"""While the output of a compaction comes into place, no other engine reads (P46)."""

from __future__ import annotations

import pytest

from acid_platform import (
    CompactionLost,
    InvalidDefinition,
    LockTimeout,
    NoSuchLock,
    TxnAborted,
)
from acid_platform.metastore.messages import decode
from acid_platform.metastore.operations.compaction import CompactionTask, Unpublication
from acid_platform.metastore.operations.transactions import LockProgress
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server import stored_kinds
from acid_platform.transactions.concurrency import LockType
from tests.metastore.test_other_engines import ask, opened
from tests.metastore.world import INSERT, E, R, W, Waits, World

OUTPUT = ("delete_delta_0000001_0000002_v0000009", "delta_0000001_0000002_v0000009")


@pytest.fixture
def compacting(world: World) -> tuple[World, CompactionTask, int]:
    """A Worker that has merged the two inserts of `t`."""
    world.insert()
    world.insert()
    world.request("minor")
    task = world.take_task()
    assert task is not None
    txn, _ = world.begin_compaction(task)
    return world, task, txn


Compacting = tuple[World, CompactionTask, int]


def publication(world: World, task: CompactionTask, txn: int, wait: float = 30) -> str:
    return world.send(
        "request_publication", **world.owner(task), txn=txn, directories=OUTPUT, wait=wait
    )


def publishes(world: World, task: CompactionTask, txn: int, wait: float = 30) -> int:
    ext: int = world.answer(publication(world, task, txn, wait))["ext"]
    return ext


def asked(world: World, txn: int, table: str = "t", lock: LockType = R) -> LockProgress:
    return decode(LockProgress, ask(world, txn, LockRequest(table, lock), zero_wait=True))


def unpublished(world: World) -> list[Unpublication]:
    return [decode(Unpublication, task) for task in world.call("unpublished")["tasks"]]


def acquired(world: World, request: LockProgress) -> bool:
    answer: bool = world.call("check_lock", ext=request.ext)["acquired"]
    return answer


def test_P46_other_engines_wait_until_the_compaction_commits(compacting: Compacting) -> None:
    """Also a read that must not wait (L10): this wait soon ends by itself."""
    world, task, txn = compacting
    publishes(world, task, txn)
    reader = asked(world, opened(world))
    assert not reader.acquired
    world.commit_compaction(task, txn, *OUTPUT)
    assert acquired(world, reader)


def test_P46_the_publication_waits_for_other_engines_that_hold_locks(
    compacting: Compacting,
) -> None:
    world, task, txn = compacting
    foreign = opened(world)
    assert asked(world, foreign).acquired
    request = publication(world, task, txn)
    with pytest.raises(Waits):
        world.answer(request)
    world.call("commit", txn=foreign, writes=[])
    assert world.answer(request)["txn"] == txn


def test_P46_our_own_readers_and_writers_neither_wait_nor_are_waited_for(
    compacting: Compacting,
) -> None:
    world, task, txn = compacting
    world.begin(LockRequest("t", W, INSERT), wait=0)
    publishes(world, task, txn, wait=0)
    assert world.begin(LockRequest("t", R), wait=0, zero_wait=True).id
    assert world.write(wait=0).write_ids
    assert world.read(["t"]).id


def test_P46_other_tables_and_partitions_are_not_concerned() -> None:
    world = World()
    world.create(partitioned=True)
    world.create("u")
    world.insert(partition="p=1")
    world.insert(partition="p=1")
    world.request("minor", partition="p=1")
    task = world.take_task()
    assert task is not None
    txn, _ = world.begin_compaction(task)
    publishes(world, task, txn)
    for partition, may_read in (("p=2", True), ("p=1", False), (None, False)):
        answer = ask(world, opened(world), LockRequest("t", R, None, partition))
        assert answer["acquired"] is may_read, partition
    assert asked(world, opened(world), "u").acquired
    assert ask(world, opened(world), LockRequest("default.*", R))["acquired"]


def test_P46_a_publication_that_waits_too_long_is_told_who_reads(compacting: Compacting) -> None:
    """Nobody is aborted, later readers go on, and the Initiator looks at the table again."""
    world, task, txn = compacting
    foreign = opened(world)
    asked(world, foreign)
    request = publication(world, task, txn, wait=30)
    late = asked(world, opened(world))
    assert not late.acquired, "a stream of readers must not hold up the publication for ever"
    for _ in range(4):
        world.tick(10_000)
        world.call("heartbeat", txns=[txn, foreign])
    with pytest.raises(LockTimeout, match=rf"transaction {foreign}\)"):
        world.answer(request)
    assert acquired(world, late)
    before = world.call("moment")["moment"]
    world.call(
        "compaction_nothing_to_do",
        **world.owner(task),
        txn=txn,
        to_cleaning=False,
        reason="they read",
        again=True,
    )
    assert world.states() == ["refused"]
    page = world.call("candidates", since=before, after=None)
    assert [entry["table"] for entry in page["candidates"]] == ["default.t"]


def test_P46_who_holds_a_lock_does_not_wait_for_a_publication_that_waits(
    compacting: Compacting,
) -> None:
    """Otherwise each would wait for the other. The publication waits for the new lock too."""
    world, task, txn = compacting
    world.create("u")
    elsewhere, reader = opened(world), opened(world)
    assert asked(world, elsewhere, "u").acquired and asked(world, reader).acquired
    request = publication(world, task, txn)
    assert asked(world, reader, "t", W).acquired
    assert asked(world, elsewhere, "t").acquired
    world.call("commit", txn=reader, writes=[])
    with pytest.raises(Waits):
        world.answer(request)
    world.call("commit", txn=elsewhere, writes=[])
    assert world.answer(request)


def test_P46_two_publications_that_wait_for_each_others_readers_come_to_an_end() -> None:
    world = World()
    running = []
    for name in ("t", "u"):
        world.create(name)
        world.insert(name)
        world.insert(name)
        world.request("minor", name)
        task = world.take_task()
        assert task is not None
        running.append((task, world.begin_compaction(task)[0]))
    readers = [opened(world), opened(world)]
    assert asked(world, readers[0], "t").acquired and asked(world, readers[1], "u").acquired
    requests = [publication(world, task, txn) for task, txn in running]
    assert asked(world, readers[0], "u").acquired and asked(world, readers[1], "t").acquired
    for reader in readers:
        world.call("commit", txn=reader, writes=[])
    assert all(world.answer(request) for request in requests)


@pytest.mark.parametrize("how", ["reaped", "aborted", "failed", "revoked"])
def test_P46_after_an_abort_other_engines_wait_until_the_output_is_gone(
    compacting: Compacting, how: str
) -> None:
    world, task, txn = compacting
    publication_id = publishes(world, task, txn)
    match how:
        case "reaped":
            world.tick(301_000)
            world.tick(301_000)
        case "aborted":
            world.call("abort", txn=txn, reason="test")
        case "failed":
            world.call("fail_compaction", **world.owner(task), txn=txn, error="x")
        case "revoked":
            world.call("revoke_workers", host="host-2")
    assert world.call("outcome_of_txn", txn=txn)["state"] == "a"
    reader = asked(world, opened(world))
    assert not reader.acquired
    (row,) = [row for row in world.call("locks")["rows"] if row["lock_state"] == "WAITING"]
    assert (
        "PUBLICATION of default.t" in row["blocked_by"]
        and f"transaction {txn}" in row["blocked_by"]
    )
    (cleaning,) = unpublished(world)
    assert cleaning.directories == OUTPUT and cleaning.txn_id == txn
    assert cleaning.lock == publication_id
    world.call("end_publication", ext=cleaning.lock)
    world.call("end_publication", ext=cleaning.lock)  # a second Cleaner is no error
    assert acquired(world, reader)
    assert not unpublished(world)


def test_P46_the_output_of_a_publication_that_still_waits_is_in_no_place(
    compacting: Compacting,
) -> None:
    world, task, txn = compacting
    foreign = opened(world)
    asked(world, foreign)
    request = publication(world, task, txn)
    world.call("abort", txn=txn, reason="test")
    with pytest.raises(TxnAborted):
        world.answer(request)
    assert not unpublished(world)
    assert asked(world, opened(world)).acquired


def test_P46_the_next_attempt_waits_until_the_output_of_the_last_is_gone(
    compacting: Compacting,
) -> None:
    """Trino would read both outputs of one range of write ids."""
    world, task, txn = compacting
    publishes(world, task, txn)
    world.call("revoke_workers", host="host-2")
    again = world.take_task("host-3")
    assert again is not None
    second, _ = world.begin_compaction(again)
    request = publication(world, again, second)
    with pytest.raises(Waits):
        world.answer(request)
    (cleaning,) = unpublished(world)
    world.call("end_publication", ext=cleaning.lock)
    assert world.answer(request)["txn"] == second
    with pytest.raises(CompactionLost):
        publishes(world, task, txn)


def test_P46_nobody_ends_the_publication_of_a_compaction_that_goes_on(
    compacting: Compacting,
) -> None:
    world, task, txn = compacting
    ext = publishes(world, task, txn)
    with pytest.raises(InvalidDefinition, match=r"no publication of an aborted"):
        world.call("end_publication", ext=ext)
    held = asked(world, opened(world), "t")
    with pytest.raises(InvalidDefinition):
        world.call("end_publication", ext=held.ext)
    with pytest.raises(InvalidDefinition, match="for the Worker of a compaction"):
        world.begin(LockRequest("t", LockType.PUBLICATION))


def test_P46_what_a_commit_recorded_under_the_same_name_is_not_removed(world: World) -> None:
    """With the layout hive3 two compactions may give one name."""
    world.insert()
    world.insert()
    for name in OUTPUT[:1], OUTPUT:
        world.request("minor")
        task = world.take_task()
        assert task is not None
        txn, _ = world.begin_compaction(task)
        publishes(world, task, txn)
        if name == OUTPUT[:1]:
            world.commit_compaction(task, txn, *name)
            world.insert()
    world.call("abort", txn=txn, reason="test")
    (cleaning,) = unpublished(world)
    assert cleaning.directories == OUTPUT[1:]


def test_P46_a_publication_survives_a_restart(compacting: Compacting) -> None:
    """Both ways: replayed from the journal, and read from the tables."""
    world, task, txn = compacting
    publishes(world, task, txn)
    world.call("abort", txn=txn, reason="test")
    replayed = Machine()
    replayed.replay(world.events)
    rows = stored_kinds.live_rows(world.state)
    restored = Machine(stored_kinds.restore(rows, stored_kinds.counters(world.state)))
    for machine in (replayed, restored):
        machine.wake(world.clock.moment())
        assert stored_kinds.live_rows(machine.state)["locks"] == rows["locks"]
        world.machine = machine
        reader = asked(world, opened(world))
        assert not reader.acquired
        (cleaning,) = unpublished(world)
        world.call("end_publication", ext=cleaning.lock)
        assert acquired(world, reader)


def test_P46_a_drop_forgets_the_publication_and_a_rename_keeps_it(compacting: Compacting) -> None:
    world, task, txn = compacting
    publishes(world, task, txn)
    world.call("abort", txn=txn, reason="test")
    world.call("alter_table", name="t", columns=None, rename="renamed", properties=None)
    reader = asked(world, opened(world), "renamed")
    assert not reader.acquired
    (cleaning,) = unpublished(world)
    assert cleaning.table == "default.renamed"
    world.call("abort", txn=world.state.locks[reader.ext].txn_id, reason="test")
    dropping = world.begin(LockRequest("renamed", E), wait=0)
    world.call("drop", txn=dropping.id, name="renamed", partition=None)
    assert not world.state.locks
    assert not unpublished(world)


def test_P46_a_reader_that_gives_up_is_gone_from_the_line(compacting: Compacting) -> None:
    world, task, txn = compacting
    publishes(world, task, txn)
    foreign = opened(world)
    reader = asked(world, foreign)
    world.call("abort", txn=foreign, reason="test")
    with pytest.raises(NoSuchLock):
        world.call("check_lock", ext=reader.ext)
    world.commit_compaction(task, txn, *OUTPUT)
    assert not world.state.locks
