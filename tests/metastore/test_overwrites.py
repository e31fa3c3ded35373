"""An overwrite conflicts with every commit that its snapshot misses, inserts included (P30)."""

from __future__ import annotations

import pytest

from acid_platform import WriteConflict
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.server import stored_kinds
from tests.contents import counts
from tests.metastore.world import DELETE, INSERT, OVERWRITE, UPDATE, E, R, Txn, W, World, X

IOW = LockRequest("t", X, OVERWRITE)


@pytest.fixture
def parted() -> World:
    made = World()
    made.create(partitioned=True)
    return made


def base(world: World, txn: Txn, partition: str | None = None) -> WriteReport:
    write_id = world.state.tables[1].by_txn[txn.id]
    return WriteReport("t", partition, UPDATE, f"base_{write_id:07d}", counts(1, 1), True)


def test_P30_an_overwrite_that_misses_an_insert_learns_so_with_its_lock(world: World) -> None:
    overwriter = world.begin()
    inserted = world.insert()
    answer = world.lock(overwriter, IOW)
    reason = (
        f"default.t: overwrite of transaction [{overwriter.id}, now] overlaps the insert of"
        f" transaction [{inserted.id}, {inserted.id}]"
    )
    assert answer["stale"] and answer["lost_overwrite"] == reason
    with pytest.raises(WriteConflict, match="overlaps the insert"):
        world.commit(overwriter, base(world, overwriter))
    assert world.state.txns[overwriter.id].reason == f"write conflict on {reason}"
    assert not world.state.locks


def test_P30_what_the_snapshot_sees_is_no_conflict(world: World) -> None:
    world.insert()
    overwriter = world.begin()
    answer = world.lock(overwriter, IOW)
    assert not answer["stale"] and not answer["lost_overwrite"]
    world.commit(overwriter, base(world, overwriter))


@pytest.mark.parametrize("strict", ["false", "true"])
def test_P30_T40_a_snapshot_taken_with_the_lock_sees_the_commit_it_waited_for(
    world: World, strict: str
) -> None:
    world.set("hive.txn.xlock.write", strict)
    inserting = world.write(lock=R if strict == "true" else W)
    waiting = world.begin_request(LockRequest("t", E if strict == "true" else X, OVERWRITE))
    world.commit(inserting, world.report(inserting))
    answer = world.answer(waiting)
    assert not answer["stale"] and not answer["lost_overwrite"]
    overwriter = Txn(answer)
    assert overwriter.valid_txns.is_valid(inserting.id)
    world.commit(overwriter, base(world, overwriter))


def test_P30_a_truncation_beside_inserts_of_exclusive_writes(world: World) -> None:
    """TRUNCATE takes EXCL_WRITE there, which admits the SHARED_READ of an INSERT."""
    world.set("hive.txn.xlock.write", "true")
    inserting, truncating = world.write(lock=R), world.begin(IOW)
    world.commit(inserting, world.report(inserting))
    with pytest.raises(WriteConflict, match="overlaps the insert"):
        world.commit(truncating, base(world, truncating))


@pytest.mark.parametrize("operation", [INSERT, UPDATE, DELETE])
def test_P30_T31_an_insert_conflicts_with_overwrites_only(world: World, operation: object) -> None:
    other = world.begin()
    world.insert()
    answer = world.lock(other, LockRequest("t", W, operation))  # type: ignore[arg-type]
    assert not answer["stale"]
    world.commit(other)


@pytest.mark.parametrize(("written", "conflict"), [("p=1", True), ("p=2", False)])
def test_P30_T37_dynamic_partitions_are_those_really_written(
    parted: World, written: str, conflict: bool
) -> None:
    overwriter = parted.begin()
    parted.insert(partition="p=1")
    answer = parted.lock(overwriter, IOW)
    # A single statement would begin again; for this transaction only the commit decides.
    assert answer["stale"] and not answer["lost_overwrite"]
    if conflict:
        with pytest.raises(WriteConflict, match=r"default\.t p=1: overwrite"):
            parted.commit(overwriter, base(parted, overwriter, written))
    else:
        parted.commit(overwriter, base(parted, overwriter, written))


def test_P30_T37_a_named_partition(parted: World) -> None:
    first, second = parted.begin(), parted.begin()
    parted.insert(partition="p=1")
    named = [LockRequest("t", X, OVERWRITE, partition) for partition in ("p=1", "p=2")]
    assert parted.lock(first, named[0])["lost_overwrite"].startswith("default.t p=1: overwrite")
    answer = parted.lock(second, named[1])
    assert not answer["stale"] and not answer["lost_overwrite"]
    parted.commit(second, base(parted, second, "p=2"))


def test_P30_T38_a_lock_for_an_overwrite_that_was_not_made_is_an_update(world: World) -> None:
    overwriter = world.begin()
    world.insert()
    world.lock(overwriter, IOW)
    world.commit(overwriter)
    assert [change.operation for change in world.state.write_set[1][None]] == [UPDATE]


def test_P30_two_inserts_are_kept_however_many_there_are(world: World) -> None:
    writers = [world.write() for _ in range(9)]
    oldest = world.begin(LockRequest("t", R))
    for writer in (writers[4], writers[8], *writers[:4]):
        world.commit(writer, world.report(writer))
    kept = world.state.inserts[1][None]
    assert [change.txn_id for change in kept] == [writers[8].id, writers[3].id]
    assert not world.state.write_set
    world.tick(120_000)
    assert len(world.state.inserts[1][None]) == 2
    for writer in (*writers[5:8], oldest):
        world.abort(writer)
    world.tick(120_000)
    assert not world.state.inserts


def test_P30_S2_an_insert_of_a_later_transaction_is_missed_though_it_came_first(
    world: World,
) -> None:
    """The snapshot is taken with the lock and sees only one of the two inserts before it."""
    world.create("u")
    early, holder = world.write(), world.write("u", operation=UPDATE, lock=X)
    waiting = world.begin_request(LockRequest("u", X, UPDATE))
    late = world.insert()
    world.commit(early, world.report(early))
    world.commit(holder)
    overwriter = Txn(world.answer(waiting))
    assert late.id > overwriter.id > early.id
    assert [overwriter.valid_txns.is_valid(txn.id) for txn in (early, late)] == [True, False]
    assert "overlaps the insert" in world.lock(overwriter, IOW)["lost_overwrite"]


def test_P30_P3_inserts_are_known_after_a_snapshot_and_after_a_crash(world: World) -> None:
    overwriter = world.begin()
    world.insert()
    saved = stored_kinds.restore(
        stored_kinds.live_rows(world.state), stored_kinds.counters(world.state)
    )
    assert saved.inserts == world.state.inserts and saved.inserts
    replayed = World()
    replayed.machine.replay(world.events)
    assert replayed.state.inserts == world.state.inserts
    for state in (saved, replayed.state):
        again = World()
        again.machine.state, again.requests = state, 100
        assert again.lock(overwriter, IOW)["lost_overwrite"]


def test_P30_P22_a_drop_takes_the_inserts_along(parted: World) -> None:
    keeps = parted.begin()
    parted.insert(partition="p=1")
    parted.insert(partition="p=2")

    def drop(partition: str | None) -> None:
        dropping = parted.begin(LockRequest("t", E, partition=partition))
        parted.call("drop", txn=dropping.id, name="t", partition=partition)

    drop("p=1")
    assert list(parted.state.inserts[1]) == ["p=2"]
    assert [change.operation for change in parted.state.write_set[1]["p=1"]] == [OVERWRITE]
    drop(None)
    assert not parted.state.inserts and not parted.state.write_set
    parted.abort(keeps)
