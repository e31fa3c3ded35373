"""Rules that no other file has a test for."""

from __future__ import annotations

import random

import pytest

from acid_platform import (
    InvalidDefinition,
    LockNotAcquired,
    LockTimeout,
    NoSuchLock,
    ReadOnlyTxn,
    TableExists,
    UnsupportedStatement,
)
from acid_platform.base.config import LockSettings
from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType, Statement, lock_of
from tests.contents import counts
from tests.metastore.world import DELETE, INSERT, UPDATE, E, R, Txn, W, World, X

TIMEOUT = 300_000


def locks(world: World) -> list[tuple[int, str]]:
    return [(row["transaction_id"], row["lock_state"]) for row in world.call("locks")["rows"]]


# --- types, write ids ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "REPL_CREATED"),
        (3, "MATER_VIEW_REBUILD"),
        (4, "COMPACTION"),
        (5, "SOFT_DELETE"),
        (6, "REBALANCE_COMPACTION"),
        (7, "unknown"),
    ],
)
def test_P1_types_that_are_not_built_are_refused_by_name(
    world: World, number: int, name: str
) -> None:
    begin = {"kind": number, "locks": [], "wait": 0, "zero_wait": None, "info": {}, "tables": []}
    with pytest.raises(UnsupportedStatement, match=name):
        world.call("begin", **begin)
    with pytest.raises(UnsupportedStatement, match=name):
        world.call("open_batch", kind=number, count=1, info={})
    assert world.state.last_txn == 0


def test_T20_write_ids_of_exclusive_writers_commit_in_their_order(world: World) -> None:
    """They are allocated with the lock, so no second allocation is needed (P6)."""
    opened = [world.begin() for _ in range(4)]
    requests = [world.lock_request(txn, LockRequest("t", X, UPDATE)) for txn in reversed(opened)]
    committed = []
    for txn, request in zip(reversed(opened), requests, strict=True):
        committed.append(world.answer(request)["write_ids"]["default.t"])
        world.call("abort", txn=txn.id, reason="")
    assert committed == [1, 2, 3, 4]


def test_T22_a_converted_table_goes_on_above_its_seed_and_is_seeded_once(world: World) -> None:
    table = {"name": "old", "location": "/w/old", "columns": [["id", "int"]]}
    seed = {
        "table": table,
        "write_id": 7,
        "txn_id": 0,
        "aborted": [],
        "partitions": [],
        "directories": [],
    }
    world.call("adopt_table", **seed)
    with pytest.raises(TableExists):
        world.call("adopt_table", **seed)
    assert world.write("old").write_ids == {"default.old": 8}


def test_T22_a_rename_takes_everything_along(world: World) -> None:
    kept, lost = world.insert(), world.write()
    world.abort(lost)
    world.call("alter_table", name="t", rename="s", columns=None, properties=None)
    assert world.write("s").write_ids == {"default.s": 3}
    listed = world.sees(world.read(), "s")
    assert listed.is_valid(kept.write_ids["default.t"]) and listed.aborted == (2,)


def test_T22_a_drop_removes_everything_about_the_table(world: World) -> None:
    world.commit(world.write("t", UPDATE))
    world.abort(world.write())
    txn = world.begin(LockRequest("t", E))
    world.call("drop", txn=txn.id, name="t", partition=None)
    assert not world.state.tables and not world.state.write_set
    assert not any(world.state.components.values()) and not world.state.directories


# --- what was touched ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lock", "operation", "recorded"),
    [
        (R, None, []),
        (R, INSERT, [INSERT]),
        (W, INSERT, [INSERT]),
        (W, UPDATE, [UPDATE]),
        (W, DELETE, [DELETE]),
        (X, None, [UPDATE]),
        (E, None, []),
    ],
)
def test_T23_only_writes_are_recorded_and_with_their_lock(
    world: World, lock: LockType, operation: RowOperation | None, recorded: list[RowOperation]
) -> None:
    txn = world.begin(LockRequest("t", lock, operation))
    rows = world.state.components.get(txn.id, [])
    assert [row.operation for row in rows] == recorded


def test_T23_a_waiting_request_has_touched_nothing(world: World) -> None:
    world.begin(LockRequest("t", E))
    world.begin_request(LockRequest("t", W, UPDATE))
    assert not any(world.state.components.values())
    assert world.state.table("t").next_write_id == 1


def test_T25_a_static_partition_is_in_its_row_and_none_in_that_of_a_whole_table(
    world: World,
) -> None:
    world.create("u", partitioned=True)
    txn = world.begin(LockRequest("u", W, UPDATE, "P=1"), LockRequest("t", W, UPDATE))
    rows = world.state.components[txn.id]
    assert [(row.partition, row.dynamic) for row in rows] == [("p=1", False), (None, False)]


def test_T29_a_directory_that_is_reported_twice_counts_once(world: World) -> None:
    """The report is part of the commit, and a repeated commit has no second effect."""
    txn = world.write("t", UPDATE)
    report = encode(world.report(txn, operation=UPDATE))
    sent = {"txn": txn.id, "writes": [report]}
    first = world.handle("commit", sent, "one")
    again = world.handle("commit", sent, "one")
    other = world.handle("commit", sent, "two")
    assert first.events and not again.events and not other.events
    assert first.replies[0].value == again.replies[0].value == other.replies[0].value
    assert len(world.state.written) == len(world.state.write_set[1][None]) == 1


# --- locks ---------------------------------------------------------------------------------------


def alone(world: World, lock: LockType = R, wait: float = 60) -> str:
    return world.send("lock_alone", locks=[encode(LockRequest("t", lock))], wait=wait)


def test_T16_a_lock_without_a_transaction_lives_by_its_own_heartbeats(world: World) -> None:
    kept, lost = (world.answer(alone(world))["ext"] for _ in range(2))
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat_lock", ext=kept)
    world.tick()
    assert [row["lockid"] for row in world.call("locks")["rows"]] == [f"{kept}.1"]
    with pytest.raises(NoSuchLock):
        world.call("heartbeat_lock", ext=lost)


def test_T16_a_request_behind_an_expired_lock_is_granted(world: World) -> None:
    alone(world, E)
    writer = world.begin_request(LockRequest("t", W, INSERT), wait=10_000)
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat", txns=[1])
    world.tick()
    assert world.answer(writer)["write_ids"] == {"default.t": 1}


def test_T16_a_waiting_request_expires_too(world: World) -> None:
    holder = world.begin(LockRequest("t", E))
    request = alone(world, R, wait=10_000)
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat", txns=[holder.id])
    world.tick()
    with pytest.raises(LockTimeout, match="no heartbeat for 300 s"):
        world.answer(request)


def test_T16_P7_a_restart_gives_locks_a_fresh_timeout_too(world: World) -> None:
    alone(world, E)
    again = Machine()
    again.replay(world.events)
    world.clock.advance(TIMEOUT)
    again.wake(world.clock.moment())
    world.machine = again
    world.tick(TIMEOUT)
    assert locks(world) == [(0, "ACQUIRED")]
    world.tick(180_000)
    assert locks(world) == []


def test_T16_nothing_is_written_without_a_transaction(world: World) -> None:
    with pytest.raises(ReadOnlyTxn):
        world.call("lock_alone", locks=[encode(LockRequest("t", W, INSERT))], wait=0)
    assert locks(world) == []


def test_L5_L16_locks_without_a_transaction_compete_with_all(world: World) -> None:
    first, second = alone(world, E), alone(world, E)
    assert locks(world) == [(0, "ACQUIRED"), (0, "WAITING")]
    world.call("unlock", ext=world.answer(first)["ext"])
    assert world.answer(second)["ext"] == 2 and locks(world) == [(0, "ACQUIRED")]


def test_L16_a_request_that_is_sent_again_is_the_same_one(world: World) -> None:
    """It must not wait for its own first copy, with or without a transaction."""
    args = {"locks": [encode(LockRequest("t", E))], "wait": 60}
    for _ in range(2):
        world.take(world.handle("lock_alone", args, "held"))
        world.take(world.handle("lock_alone", args, "parked"))
    assert locks(world) == [(0, "ACQUIRED"), (0, "WAITING")]
    world.call("unlock", ext=world.answer("held")["ext"])
    assert world.answer("parked")["ext"] == 2


def test_L15_the_locks_of_a_transaction_end_with_it(world: World) -> None:
    holder = world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT))
    with pytest.raises(InvalidDefinition, match="commit or abort"):
        world.call("unlock", ext=1)
    assert world.call("unlock", ext=99) == {}
    world.call("unlock", ext=2)
    with pytest.raises(LockNotAcquired, match="withdrawn"):
        world.answer(waiting)
    assert locks(world) == [(holder.id, "ACQUIRED")]
    assert world.call("outcome_of_txn", txn=2)["state"] == "a"


def test_L14_requests_for_all_locks_at_once_never_deadlock(world: World) -> None:
    """Some transaction can always go on, until all have ended."""
    for name in ("u", "v"):
        world.create(name)
    for seed in range(60):
        draw = random.Random(seed)
        requests = {}
        for _ in range(8):
            names = draw.sample(["t", "u", "v"], draw.randint(1, 3))
            wishes = [
                LockRequest(name, draw.choice([R, W, X, E]), RowOperation.SELECT) for name in names
            ]
            requests[world.begin_request(*wishes, zero_wait=False)] = wishes
        for _ in range(8):
            granted = [request for request in requests if request in world.answers]
            assert granted, f"seed {seed}: {locks(world)}"
            chosen = draw.choice(granted)
            del requests[chosen]
            world.commit(Txn(world.answer(chosen)))
        assert not requests and not world.state.locks


def test_L2_X_EXCL_WRITE_lets_readers_in_and_one_writer(world: World) -> None:
    world.write("t", UPDATE, lock=X)
    assert world.begin(LockRequest("t", R)).id == 2
    for lock in (W, X, E):
        with pytest.raises(LockTimeout, match=r"EXCL_WRITE of default\.t"):
            world.begin(LockRequest("t", lock, UPDATE), wait=0)


@pytest.mark.parametrize(("exclusive", "second"), [(False, "conflict"), (True, "waits")])
def test_T35_L2_two_updates_under_both_settings_of_xlock_write(
    world: World, exclusive: bool, second: str
) -> None:
    """By default both run and the later commit loses; with exclusive writes the second waits."""
    world.set("hive.txn.xlock.write", str(exclusive).lower())
    lock, operation = lock_of(Statement.UPDATE, LockSettings(xlock_write=exclusive))
    first = world.write("t", operation, lock=lock)
    request = world.begin_request(LockRequest("t", lock, operation))
    assert (request in world.answers) == (second == "conflict")
    world.commit(first)
    txn = Txn(world.answer(request))
    ended = world.handle("commit", {"txn": txn.id, "writes": []}, "end").replies[0].value
    assert ("error" in ended) == (second == "conflict")


# --- snapshots -----------------------------------------------------------------------------------


def test_S9_a_write_id_without_a_mapping_counts_as_committed(world: World) -> None:
    txn = world.insert()
    lost = world.write()
    world.abort(lost)
    world.tick(61_000)
    listed = world.sees(world.read())
    assert listed.is_valid(txn.write_ids["default.t"])
    assert not listed.is_valid(lost.write_ids["default.t"])


def test_S10_P5_is_not_how_the_high_watermark_is_found(world: World) -> None:
    """S10 would give 2, with 2 as its only exception, and so hide write ids 3 and 4."""
    world.insert()
    blocker = world.begin()
    world.abort(world.write())
    world.insert()
    world.insert()
    world.commit(blocker)
    world.tick(61_000)
    listed = world.sees(world.read())
    assert (listed.high_watermark, listed.aborted) == (4, (2,))
    assert listed.is_valid(4)


def test_P24_an_adopted_table_without_a_snapshot_counts_everything_as_committed(
    world: World,
) -> None:
    table = {"name": "old", "location": "/w/old", "columns": [["id", "int"]]}
    report = WriteReport("old", None, INSERT, "delta_0000003_0000003_0000", counts(1, 1))
    world.call(
        "adopt_table",
        table=table,
        write_id=3,
        txn_id=40,
        aborted=[],
        partitions=[],
        directories=[encode(report)],
    )
    reader = world.read()
    assert reader.id == 41 and world.sees(reader, "old").high_watermark == 3
    assert world.sees(reader, "old").aborted == ()
