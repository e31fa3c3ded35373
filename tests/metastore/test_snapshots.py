"""Transaction lists and write id lists (S rules, P4, P5), and purges."""

from __future__ import annotations

import tracemalloc

import pytest

from acid_platform import NoSuchTable, SnapshotExpired
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.snapshots import low_mark, txn_list, write_ids
from acid_platform.metastore.server import stored_kinds
from acid_platform.transactions import ValidTxnList
from tests.metastore.world import INSERT, OVERWRITE, UPDATE, E, Txn, W, World, X

NONE = "9223372036854775807"


def test_S1_S2_the_list_of_a_transaction(world: World) -> None:
    for _ in range(3):
        world.commit(world.begin())
    world.begin()
    world.abort(world.write())
    sixth = world.begin()
    world.commit(world.begin())
    assert sixth.id == 6 and str(sixth.valid_txns) == "6:4:4:5"
    assert sixth.valid_txns.is_valid(6) and not sixth.valid_txns.is_valid(7)


def test_S1_T42_readers_are_left_out_but_hold_the_watermark(world: World) -> None:
    world.commit(world.begin())
    reader = world.read()
    later = world.begin()
    assert str(later.valid_txns) == f"{later.id}:{NONE}::"
    assert low_mark(world.state) == reader.id


def test_S1_T5_T41_no_id_appears_below_a_snapshot_later(world: World) -> None:
    """An id and its row appear at once (P1), so none is missing and the low mark does not lag."""
    batch = {"kind": 0, "info": {}}
    ids = world.call("open_batch", count=3, **batch)["txns"] + [world.begin().id]
    ids += world.call("open_batch", count=2, **batch)["txns"]
    listed = txn_list(world.state)
    assert ids == [1, 2, 3, 4, 5, 6] and listed.open == tuple(ids)
    for txn_id in ids:
        world.call("abort", txn=txn_id, reason="")
    assert low_mark(world.state) == 7 and txn_list(world.state).open == ()


def test_S4_the_list_is_taken_once(world: World) -> None:
    reader = world.read()
    world.insert()
    first = world.sees(reader)
    world.insert()
    assert str(world.sees(reader)) == str(first) == f"default.t:0:{NONE}::"


def test_S4_a_snapshot_is_the_same_whoever_ended_since(world: World) -> None:
    """It is kept as a moment, from which the open transactions can be found again."""
    open_then, aborted_then = world.write(), world.write()
    world.abort(aborted_then)
    late = world.write()
    reader = world.read()
    said = str(reader.valid_txns)
    assert said == f"4:1:{open_then.id},{late.id}:{aborted_then.id}"
    world.commit(open_then)
    world.abort(late)
    world.state.components.clear()  # as if all were cleaned
    world.tick(61_000)
    assert [txn.txn_id for txn in world.state.departed] == [1, 2, 3]
    assert world.call("granted", txn=reader.id)["valid_txns"] == said
    assert low_mark(world.state) == 1
    world.commit(reader)
    world.tick(61_000)
    assert world.state.departed == [] and low_mark(world.state) == 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["writers", "readers"])
def test_T2_memory_does_not_grow_with_the_square_of_the_open_transactions(kind: str) -> None:
    """With 10,000 open at once, no transaction's memory grows with the number of the others."""
    world = World()
    for number in range(10):
        world.create(f"t{number}")
    number = 0 if kind == "writers" else 2
    tracemalloc.start()
    sizes = []
    for batch in range(20):
        ids = world.call("open_batch", count=500, kind=number, info={})["txns"]
        if kind == "writers":
            world.call("allocate_many", txns=ids, table=f"t{batch % 10}")
        world.events.clear()
        world.answers.clear()
        world.state.outcomes.clear()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    first, last = sizes[9] - sizes[4], sizes[19] - sizes[14]
    assert last < 1.5 * first and sizes[-1] < 10_000 * 2_000
    assert len(stored_kinds.live_rows(world.state)["open_txns"]) == 10_000


def test_S4_the_first_lock_takes_the_snapshot(world: World) -> None:
    holder = world.write(operation=UPDATE, lock=X)
    request = world.begin_request(LockRequest("t", W, INSERT))
    world.commit(holder)
    assert world.answer(request)["valid_txns"] == f"2:{NONE}::"


def test_S7_S8_write_ids_below_and_above_the_watermark(world: World) -> None:
    six, seven = world.begin(), None
    for _ in range(5):
        world.commit(world.begin())
    seven = world.begin()
    world.commit(world.begin())
    nine = world.begin()
    assert (six.id, seven.id, nine.id) == (1, 7, 9)
    for txn in (six, nine, seven):
        world.allocate(txn.id, "t")
    world.commit(seven)
    world.abort(six)
    listed = write_ids(world.state.table("t"), ValidTxnList.of(8))
    assert str(listed) == "default.t:3:2:2:1"


def test_S7_a_table_never_written(world: World) -> None:
    assert world.snapshot_text() == f"default.t:0:{NONE}::"


def test_S8_open_and_aborted(world: World) -> None:
    world.insert()
    world.write()
    world.abort(world.write())
    world.insert()
    assert world.snapshot_text() == "default.t:4:2:2:3"


def test_P5_a_purged_mapping_stays_visible(world: World) -> None:
    """Txn 9 has write id 3, aborted; txn 7 has write id 4; the mapping of 7 is purged first."""
    world.insert()
    world.insert()
    seven, nine = world.begin(), world.begin()
    assert world.allocate(nine.id, "t") == 3
    assert world.allocate(seven.id, "t") == 4
    world.abort(nine)
    world.commit(seven)
    world.tick(61_000)
    table = world.state.table("t")
    assert not table.writes and table.purged == 4
    assert world.snapshot_text() == f"default.t:4:{NONE}::3"


def test_T45_an_open_snapshot_keeps_the_mapping(world: World) -> None:
    early = world.write()
    reader = world.read()
    world.commit(early, world.report(early))
    world.tick(61_000)
    assert str(world.sees(reader)) == "default.t:1:1:1:"
    world.commit(reader)
    world.tick(61_000)
    assert not world.state.table("t").writes
    assert world.snapshot_text() == f"default.t:1:{NONE}::"


def test_T44_write_set_rows_go_below_the_oldest_writer(world: World) -> None:
    update = world.write(operation=UPDATE)
    blocker = world.write("t", INSERT)
    world.commit(update)
    world.tick(61_000)
    assert len(world.state.write_set[1][None]) == 1
    world.call("heartbeat", txns=[blocker.id])
    world.commit(blocker)
    world.tick(61_000)
    assert not world.state.write_set


def test_T43_aborted_transactions_go_with_their_components(world: World) -> None:
    txn = world.write()
    world.abort(txn)
    world.tick(61_000)
    assert txn.id in world.state.txns
    world.state.components.pop(txn.id)
    world.tick(61_000)
    assert txn.id not in world.state.txns
    assert world.state.last_txn == txn.id


def test_P4_an_aborted_write_id_outlives_its_transaction(world: World) -> None:
    world.set("acid.history.retention", "1ms")
    world.insert()
    lost = world.write()
    world.abort(lost)
    world.insert()
    world.set("hive.compactor.aborted.txn.time.threshold", "0h")
    world.clock.advance(1)
    world.clean(world.ready()[0])
    world.tick(61_000)
    assert lost.id not in world.state.txns and not world.state.table("t").writes
    assert world.snapshot_text() == f"default.t:3:{NONE}::2"
    world.compact()
    world.tick(61_000)
    assert world.snapshot_text() == f"default.t:3:{NONE}::"
    assert world.state.table("t").forgotten == 2


def test_P4_every_partition_needs_a_base_before_an_id_is_forgotten() -> None:
    world = World()
    world.set("acid.history.retention", "1ms")
    world.create(partitioned=True)
    world.insert(partition="p=1")
    world.insert(partition="p=2")
    world.abort(world.write(partition="p=1"))
    world.compact_away_aborts("p=1")
    assert world.state.table("t").aborted == {3}
    world.insert(partition="p=2")
    world.compact(partition="p=2")
    world.tick(61_000)
    assert not world.state.table("t").aborted
    world.insert(partition="p=3")
    records = world.call("partitions", name="t")["partitions"]
    assert {record["name"]: record["floors"] for record in records} == {
        "p=1": [],
        "p=2": [],
        "p=3": [3],
    }


def test_P4_nothing_is_forgotten_under_an_older_open_write(world: World) -> None:
    old = world.begin()
    world.allocate(old.id, "t")
    world.abort(world.write())
    world.state.components.clear()
    world.overwrite()
    world.tick(61_000)
    assert world.state.table("t").aborted == {2}


def test_S16_the_compactor_stops_below_an_open_write(world: World) -> None:
    for number in range(1, 9):
        if number == 5:
            world.write()
        elif number == 3:
            world.abort(world.write())
        else:
            world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    txn, merge = world.begin_compaction(task)
    assert (merge.high_watermark, merge.aborted, merge.open) == (4, (3,), ())
    assert world.state.queue[task.id].highest_write_id == 4
    assert not txn_list(world.state).is_valid(txn)


def test_P11_first_asked_after_a_cleaning(world: World) -> None:
    world.insert()
    asked, late, everything = world.read(["t"]), world.read(), world.read(None)
    inserter, updater = world.begin(), world.begin()
    world.compact()
    assert world.ready() == []
    world.commit(asked)
    world.commit(everything)
    world.clean(world.ready()[0])
    with pytest.raises(SnapshotExpired, match="begin again"):
        world.sees(late)
    with pytest.raises(SnapshotExpired):
        world.lock(updater, LockRequest("t", W, UPDATE))
    world.lock(inserter, LockRequest("t", W, INSERT))
    with pytest.raises(SnapshotExpired):
        world.sees(inserter)
    world.commit(inserter)
    assert world.sees(world.read()).high_watermark == 2


def test_P11_a_statement_that_waits_for_its_lock_keeps_the_files_that_it_will_read(
    world: World,
) -> None:
    world.create("u")
    world.insert()
    holder = world.begin(LockRequest("u", X, OVERWRITE))
    waiting = world.begin_request(LockRequest("u", X, OVERWRITE), tables=["t"], describe=True)
    world.compact()
    for task in world.ready():
        world.clean(task)
    world.abort(holder)
    late = Txn(world.answer(waiting))
    assert world.sees(late).high_watermark == 1


def test_P28_a_table_that_a_waiting_statement_reads_is_dropped_meanwhile(world: World) -> None:
    world.create("u")
    holder = world.begin(LockRequest("u", X, OVERWRITE))
    waiting = world.begin_request(LockRequest("u", X, OVERWRITE), tables=["t"])
    world.call("drop", txn=world.begin(LockRequest("t", E)).id, name="t", partition=None)
    world.abort(holder)
    with pytest.raises(NoSuchTable, match="dropped while"):
        world.answer(waiting)
    assert not [*world.state.open_txns()]
