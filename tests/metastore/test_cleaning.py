"""What the Cleaner may remove, and when (C37 to C56, P21, P22, P25)."""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform import (
    CompactionLost,
    InvalidDefinition,
    LockNotAcquired,
    NoSuchPartition,
    NoSuchTable,
    Terminal,
    WriteConflict,
)
from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.operations.compaction import (
    CleaningTask,
    CompactionTask,
    EntityCleaning,
)
from acid_platform.metastore.records import LockRequest
from acid_platform.scan.selection import highest_floor
from acid_platform.transactions import TxnType, ValidTxnList
from tests.metastore.world import DELETE, INSERT, READ_TASK, E, R, World

SECOND = 1000


def test_C40_C41_the_boundary(world: World) -> None:
    """Txn 10 compacts, reader 11 opens before it commits: 12 is the next id."""
    for _ in range(9):
        world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    compaction, merge = world.begin_compaction(task)
    reader = world.read(["t"])
    assert (compaction, reader.id) == (10, 11)
    world.commit_compaction(task, compaction, f"base_{merge.high_watermark:07d}_v0000010")
    assert world.state.queue[task.id].next_txn_id == 12
    after = world.read(["t"])
    assert world.ready() == []
    (blocked,) = world.blocked()
    assert "(next id 12) are open" in blocked["reason"] and [
        holder["txn"] for holder in blocked["holders"]
    ] == [11]
    world.commit(reader)
    (ready,) = world.ready()
    assert ready.write_ids.high_watermark == 9 and ready.valid_txns.is_valid(10)
    world.commit(after)


@pytest.mark.parametrize(("watermark", "free"), [("table", True), ("global", False)])
def test_C42_another_table_holds_only_the_global_watermark(
    world: World, watermark: str, free: bool
) -> None:
    world.set("acid.cleaner.watermark", watermark)
    world.create("u")
    world.insert()
    world.write("u")
    world.compact()
    assert bool(world.ready()) is free


@pytest.mark.parametrize("how", ["lock", "list", "snapshot of all", "writer"])
def test_C41_transactions_that_asked_for_the_table_block_cleaning(world: World, how: str) -> None:
    world.insert()
    if how == "lock":
        world.begin(LockRequest("t", R), kind=TxnType.READ_ONLY)
    elif how == "list":
        world.sees(world.begin())
    elif how == "snapshot of all":
        world.read(None)
    else:
        world.write("t", INSERT)
    world.compact()
    assert world.ready() == [] and len(world.blocked()[0]["holders"]) == 1


def test_S17_the_cleaners_lists_hold_what_every_snapshot_sees(world: World) -> None:
    world.insert()
    world.compact()
    lost = world.write()
    world.abort(lost)
    world.insert()
    (ready,) = world.ready()
    assert ready.write_ids.high_watermark == ready.highest_write_id == 1
    assert ready.write_ids.is_aborted(2) and not ready.write_ids.is_valid(3)
    assert ready.location == "/w/t" and isinstance(ready, EntityCleaning)


def test_C39_the_lower_watermark_first(world: World) -> None:
    world.insert()
    reader = world.read(["t"])
    world.compact()
    world.insert()
    second = world.compact()
    world.commit(reader)
    (first,) = world.ready()
    assert first.highest_write_id == 1
    assert first.valid_txns.is_valid(second.txn_id)
    world.clean(first)
    assert [directory.high for directory in world.entity().directories] == [1, 2, 2]
    (last,) = world.ready()
    assert last.highest_write_id == 2
    world.clean(last)
    (base,) = world.entity().directories
    assert base.name == f"base_0000002_v{second.txn_id:07d}"


def only_the_first(world: World, first: CompactionTask, second: CompactionTask) -> CleaningTask:
    """The cleaning that is allowed while a transaction from between two compactions is open."""
    (ready,) = world.ready()
    assert ready.id == first.id
    assert ready.valid_txns.is_valid(first.txn_id)
    assert not ready.valid_txns.is_valid(second.txn_id)
    return ready


def test_C41_a_compaction_unseen_by_a_snapshot_allows_no_cleaning(world: World) -> None:
    """A reader that opened between two compactions needs what the second shadows."""
    world.insert()
    first = world.compact()
    reader = world.read(["t"])
    world.insert()
    only_the_first(world, first, world.compact())
    world.commit(reader)


def test_P11_a_table_first_asked_for_after_a_cleaning_has_all_its_files(world: World) -> None:
    """A reader from between two compactions has not asked for the table: nothing is hidden yet."""
    world.insert()
    first = world.compact()
    late = world.begin()
    world.insert()
    world.clean(only_the_first(world, first, world.compact()))
    assert world.sees(late).high_watermark == 1


def test_C38_delayed_cleanup(world: World) -> None:
    world.set("hive.compactor.delayed.cleanup.enabled", "true")
    world.insert()
    world.compact()
    world.clock.advance(300 * SECOND)
    assert world.ready() == [] and "delayed cleanup" in world.blocked()[0]["reason"]
    world.clock.advance(1)
    assert len(world.ready()) == 1


def test_C48_P25_retries_count_from_the_failed_attempt(world: World) -> None:
    world.insert()
    world.compact()
    world.clock.advance(3600 * SECOND)
    for wait in (300, 600, 1200, 2400, 4800):
        (task,) = world.ready()
        world.cleaning("start_cleaning", task)
        world.cleaning("cleaning_failed", task, error="no route")
        world.clock.advance(wait * SECOND - 1)
        assert world.ready() == [] and "no route" in world.blocked()[0]["reason"]
        world.clock.advance(1)
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.cleaning("cleaning_failed", task, error="no route")
    (row,) = world.rows()
    assert (row["state"], row["errormessage"]) == ("failed", "no route")


def test_C47_something_left_stays_for_the_next_cycle(world: World) -> None:
    world.insert()
    world.compact()
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.cleaning("cleaning_again", task)
    assert world.ready()[0].id == task.id and world.states() == ["ready for cleaning"]


def test_C49_mark_cleaned(world: World) -> None:
    world.insert()
    lost = world.write()
    world.abort(lost)
    world.insert()
    late = world.write()
    world.compact()
    world.abort(late)
    (task,) = world.ready()
    world.clean(task)
    assert world.states() == ["succeeded"]
    assert world.state.components == {lost.id: [], late.id: world.state.components[late.id]}
    (base,) = world.entity().directories
    assert base.base


def test_C53_only_what_was_removed_is_forgotten(world: World) -> None:
    stuck, gone = world.write(), world.write()
    world.abort(stuck)
    world.abort(gone)
    world.insert()
    world.compact()
    world.clean(world.ready()[0], removed=[2])
    assert world.entity().aborted == 1
    assert world.state.components[gone.id] == []


def test_C44_no_cleanup_refuses(world: World) -> None:
    properties = {"NO_CLEANUP": "true"}
    world.call("alter_table", name="t", columns=None, rename=None, properties=properties)
    world.insert()
    world.compact()
    (task,) = world.ready()
    assert task.properties["NO_CLEANUP"] == "true"
    world.cleaning("refuse_cleaning", task, reason="NO_CLEANUP")
    assert world.states() == ["refused"] and world.ready() == []


def test_P21_cleaning_and_compaction_do_not_overlap(world: World) -> None:
    world.insert()
    world.compact()
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    with pytest.raises(CompactionLost, match="at work"):
        world.cleaning("start_cleaning", task)
    world.insert()
    world.request()
    assert world.take_task() is None
    world.cleaning("mark_cleaned", task, removed=None)
    with pytest.raises(CompactionLost):
        world.cleaning("mark_cleaned", task, removed=None)
    assert world.take_task() is not None
    world.insert()


def test_P21_no_cleaning_while_a_compaction_works(world: World) -> None:
    world.insert()
    world.compact()
    world.insert()
    world.request()
    world.take_task()
    assert world.ready() == [] and "a compaction of it is working" in world.blocked()[0]["reason"]


def test_P21_a_cleaner_that_died_is_replaced(world: World) -> None:
    world.insert()
    world.compact()
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.clock.advance(300 * SECOND)
    world.clean(task)
    assert world.states() == ["succeeded"]


# --- aborted transactions ------------------------------------------------------------------------


def test_C50_thresholds(world: World) -> None:
    world.set("hive.compactor.abortedtxn.threshold", "3")
    for _ in range(3):
        world.abort(world.write())
    assert world.ready() == []
    world.abort(world.write())
    (task,) = world.ready()
    assert (task.id, task.highest_write_id) == (0, 4)
    world.clean(task)
    assert world.ready() == [] and world.entity().aborted == 0


@pytest.mark.parametrize(
    ("partitions", "partition", "taken"),
    [(0, None, True), (2, "p=1", True), (2, None, True), (1001, None, False)],
)
def test_C50_the_next_cleaning_takes_few_aborts_along(
    partitions: int, partition: str | None, taken: bool
) -> None:
    """But not while an older transaction is open: then nothing could be removed."""
    world = World()
    world.create(partitioned=partitions > 0)
    if partitions:
        names = [f"p={number}" for number in range(partitions)]
        world.call("add_partitions", name="t", partitions=names)
    early = world.read()
    world.abort(world.write("t", INSERT, partition))

    def every() -> list[Any]:
        return [READ_TASK(task) for task in world.call("cleaning", every=True)["ready"]]

    assert world.ready() == every() == []
    world.commit(early)
    assert world.ready() == [] and len(every()) == taken
    for task in every():
        world.clean(task)
    assert every() == []


def test_C2_C50_one_old_abort(world: World) -> None:
    world.abort(world.write())
    world.clock.advance(12 * 3600 * SECOND)
    assert world.ready() == []
    world.clock.advance(1)
    assert [task.id for task in world.ready()] == [0]
    world.set("hive.compactor.clean.aborts.using.cleaner", "false")
    assert world.ready() == []


def old_abort(world: World) -> None:
    world.set("hive.compactor.aborted.txn.time.threshold", "0h")
    world.abort(world.write())
    world.clock.advance(1)


def test_C51_the_lists_stop_below_open_transactions(world: World) -> None:
    world.insert()
    world.write("t", INSERT)
    old_abort(world)
    world.insert()
    (task,) = world.ready()
    assert task.highest_write_id == task.write_ids.high_watermark == 1
    assert task.write_ids.aborted == (3,) and task.valid_txns.high_watermark == 1


def test_C51_readers_of_any_table_keep_their_files(world: World) -> None:
    """What a snapshot of any table excludes must not make a directory look obsolete."""
    world.insert()
    writer = world.write("t", DELETE)
    reader = world.read()
    world.commit(writer, world.report(writer, operation=DELETE))
    old_abort(world)
    (task,) = world.ready()
    assert task.valid_txns.high_watermark < writer.id < reader.id


def test_C54_aborts_are_retried_without_limit(world: World) -> None:
    old_abort(world)
    for attempt in range(7):
        (task,) = world.ready()
        world.cleaning("start_cleaning", task)
        world.cleaning("cleaning_failed", task, error="busy")
        assert world.ready() == []
        world.clock.advance(300 * SECOND * 2**attempt)
    assert len(world.ready()) == 1


def test_C53_mixed_data_waits_for_a_compaction(world: World) -> None:
    old_abort(world)
    world.clean(world.ready()[0], removed=[])
    assert world.ready() == [] and "mixed" in world.blocked()[0]["reason"]


def test_C55_partitions_unknown() -> None:
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    old_abort(world)
    (task,) = world.ready()
    assert (task.partition, task.location) == (None, "/w/t")
    assert world.entity(None).aborted == 1
    world.clean(task, removed=[2])
    assert world.ready() == []


def test_P4_an_aborted_compaction_stays_excluded_until_a_later_base(world: World) -> None:
    world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    lost, _ = world.begin_compaction(task)
    world.call("fail_compaction", **world.owner(task), txn=lost, error="killed")
    world.compact()
    world.clean(world.ready()[0])
    world.tick(61_000)
    early = world.begin()
    assert early.valid_txns.is_aborted(lost) and world.entity().aborted == 0
    world.commit(early)
    world.insert()
    world.compact()
    world.tick(61_000)
    assert not world.begin().valid_txns.is_aborted(lost)


def test_P4_an_aborted_compaction_stays_excluded_for_snapshots_without_the_later_base(
    world: World,
) -> None:
    """A snapshot taken after a wait for a lock still sees nothing above its own id."""
    world.create("u")
    world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    lost, _ = world.begin_compaction(task)
    world.call("fail_compaction", **world.owner(task), txn=lost, error="killed")
    world.compact()
    world.clean(world.ready()[0])
    holder = world.begin(LockRequest("u", E))
    waiting = world.begin_request(LockRequest("u", R), zero_wait=False, wait=600)
    world.insert()
    world.compact()
    world.tick(61_000)
    world.commit(holder)
    answer = world.answer(waiting)
    assert ValidTxnList.parse(answer["valid_txns"]).is_aborted(lost)


# --- dropped tables and partitions -------------------------------------------------------------


def drop(world: World, table: str = "t", partition: str | None = None) -> None:
    txn = world.begin(LockRequest(table, E, None, partition))
    world.call("drop", txn=txn.id, name=table, partition=partition)


def test_P22_files_of_a_dropped_table_outlive_its_readers(world: World) -> None:
    world.insert()
    reader = world.read(["t"])
    world.sees(reader)
    drop(world)
    with pytest.raises(NoSuchTable):
        world.call("table", name="t")
    assert world.ready() == [] and "are open" in world.blocked()[0]["reason"]
    world.commit(reader)
    (task,) = world.ready()
    assert (task.location, task.reused) == ("/w/t", False)
    world.clean(task)
    assert world.states() == ["succeeded"] and world.ready() == []


def test_P22_a_table_created_again_at_the_same_place(world: World) -> None:
    world.insert()
    world.insert()
    drop(world)
    world.create()
    record = world.call("table", name="t")["table"]
    assert record["floor"] == 2 and record["table_id"] == 2
    assert world.write("t", INSERT).write_ids == {"default.t": 3}
    (task,) = world.ready()
    assert task.reused and task.highest_write_id == 2


def test_P22_a_partition_created_again() -> None:
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    world.insert(partition="p=2")
    drop(world, partition="P=1")
    assert [
        partition["name"] for partition in world.call("partitions", name="t")["partitions"]
    ] == ["p=2"]
    with pytest.raises(NoSuchPartition):
        drop(world, partition="p=1")
    world.call("abort_many", txns=[world.state.last_txn], reason="")
    world.insert(partition="p=1")
    records = {
        partition["name"]: partition["floors"]
        for partition in world.call("partitions", name="t")["partitions"]
    }
    assert records == {"p=1": [3], "p=2": []}
    (task,) = world.ready()
    assert (task.location, task.reused, task.highest_write_id) == ("/w/t/p=1", True, 3)
    world.insert(partition="p=3")
    assert world.entity("p=3").directories


def test_P22_a_partition_dropped_twice_before_the_first_drop_is_cleaned() -> None:
    """A snapshot from between the drops sees only the first drop."""
    world = World()
    world.set("acid.history.retention", "1ms")
    world.create(partitioned=True)
    world.insert(partition="p=1")
    drop(world, partition="p=1")
    world.insert(partition="p=1")
    between = world.read(["t"])
    drop(world, partition="p=1")
    world.insert(partition="p=1")
    (record,) = world.call("partitions", name="t")["partitions"]
    assert record["floors"] == [2, 4]
    assert highest_floor(world.sees(between), *record["floors"]) == 2
    assert highest_floor(world.sees(world.read(["t"])), *record["floors"]) == 4
    world.commit(between)
    drop(world, partition="p=1")
    for txn in list(world.state.open_txns()):
        world.call("abort", txn=txn.txn_id, reason="")
    world.tick(61_000)
    assert world.state.table("t").floors == {"p=1": (6,)}


def test_P22_forgotten_write_ids_hide_nothing_from_snapshots_before_the_drop() -> None:
    """The partition that is created again has other floors than the one that old readers see."""
    world = World()
    world.set("acid.history.retention", "1ms")
    world.create(partitioned=True)
    world.insert(partition="p=1")
    world.abort(world.write(partition="p=1"))
    world.compact_away_aborts("p=1")
    assert world.state.table("t").forgotten == 2
    held = world.read(["t"])
    drop(world, partition="p=1")
    world.insert(partition="p=1")
    (record,) = world.call("partitions", name="t")["partitions"]
    assert record["floors"] == [3]
    assert highest_floor(world.sees(held), *record["floors"]) == 0
    assert highest_floor(world.sees(world.read(["t"])), *record["floors"]) == 3


def test_P4_P22_the_location_of_a_dropped_table_is_remembered(world: World) -> None:
    """A late writer may still publish there after the drop has left the history."""
    world.insert()
    drop(world)
    world.clean(world.ready()[0])
    world.state.past_drops.clear()
    world.create()
    assert world.call("table", name="t")["table"]["floor"] == 1


def floor(world: World, partition: str) -> int:
    records = world.call("partitions", name="t")["partitions"]
    (found,) = next(record["floors"] for record in records if record["name"] == partition)
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("last", ["aborted", "open", "committed"])
def test_P22_a_drop_is_seen_whatever_became_of_the_write_before_it(last: str) -> None:
    """The floor is the drop's own write id, so exactly the snapshots after the drop see it."""
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    other = world.write(partition="p=2")
    before = world.read(["t"])
    if last == "aborted":
        world.abort(other)
    elif last == "committed":
        world.commit(other)
    drop(world, partition="p=1")
    world.insert(partition="p=1")
    after = world.read(["t"])
    assert world.sees(after).is_valid(floor(world, "p=1"))
    assert not world.sees(before).is_valid(floor(world, "p=1"))


def test_P22_a_transaction_with_a_write_id_drops_no_partition() -> None:
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    txn = world.begin(LockRequest("t", E, None, "p=1"))
    world.allocate(txn.id, "t")
    with pytest.raises(InvalidDefinition, match="has writes; begin another"):
        world.call("drop", txn=txn.id, name="t", partition="p=1")


def test_P4_a_new_table_starts_above_the_write_ids_of_the_dropped_one(
    world: World,
) -> None:
    """A reaped writer of the old table may still publish there."""
    world.abort(world.write())
    world.insert()
    drop(world)
    world.clean(world.ready()[0])
    world.create()
    assert world.write().write_ids == {"default.t": 3}


def test_P22_a_writer_with_an_older_write_id_conflicts() -> None:
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    early = world.write(partition="p=2")
    drop(world, partition="p=1")
    world.lock(early, LockRequest("t", E, INSERT, "p=1"))
    with pytest.raises(WriteConflict, match="an overwrite that would hide it"):
        world.commit(early, world.report(early, "t", "p=1"))


def test_P22_dropping_needs_the_lock_and_ends_compactions(world: World) -> None:
    world.insert()
    world.compact()
    world.insert()
    world.request()
    txn = world.begin()
    with pytest.raises(Terminal, match="without EXCLUSIVE lock"):
        world.call("drop", txn=txn.id, name="t", partition=None)
    world.abort(txn)
    drop(world)
    (row,) = world.rows()
    assert row["state"] == CompactionState.READY_FOR_CLEANING.text
    assert world.take_task() is None and not world.state.directories


def test_P22_a_dropped_partition_is_never_removed_whole() -> None:
    """A writer may have published there already, and commit after the cleaning."""
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    drop(world, partition="p=1")
    writer = world.write(partition="p=1")
    (task,) = world.ready()
    assert (task.reused, task.highest_write_id) == (True, 2)
    world.commit(writer, world.report(writer, "t", "p=1"))
    drop(world)
    assert [task.reused for task in world.ready() if task.partition == "p=1"] == [True]


def test_P22_tables_dropped_at_one_location_are_removed_in_order(world: World) -> None:
    """The files of the first table may still be read after the second table is dropped, too."""
    world.insert()
    reader = world.read(["t"])
    drop(world)
    world.create()
    world.insert()
    world.compact()
    assert world.ready() == []
    assert any("dropped from /w/t is still" in blocked["reason"] for blocked in world.blocked())
    drop(world)
    assert world.ready() == []
    world.commit(reader)
    (first,) = world.ready()
    assert (first.table_id, first.highest_write_id, first.reused) == (1, 1, True)
    world.clean(first)
    assert [(task.table_id, task.reused) for task in world.ready()] == [(2, False)]


def test_P22_no_table_is_created_where_one_is_being_removed(world: World) -> None:
    drop(world)
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    with pytest.raises(LockNotAcquired, match="is being removed"):
        world.create()
    world.cleaning("mark_cleaned", task, removed=None)
    world.create()


def test_P4_nothing_is_forgotten_while_a_dropped_partition_may_be_read() -> None:
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1")
    world.abort(world.write(partition="p=1"))
    reader = world.read(["t"])
    drop(world, partition="p=1")
    world.overwrite(partition="p=2")
    world.state.components.clear()
    world.tick(61_000)
    assert world.state.table("t").aborted == {2}
    world.commit(reader)
    world.clean(world.ready()[0])
    world.tick(61_000)
    assert world.state.table("t").aborted == set()
