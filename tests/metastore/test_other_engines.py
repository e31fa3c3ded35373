"""Transactions that another engine drives: locks that are polled, lists without a lease (P34)."""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform import (
    LockNotAcquired,
    NoSuchLock,
    NoSuchTable,
    ReadOnlyTxn,
    SnapshotExpired,
    TxnAborted,
)
from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.machine import Machine
from acid_platform.transactions import TxnType, ValidTxnList
from tests.metastore.world import DELETE, INSERT, SELECT, UPDATE, E, R, W, World


def opened(world: World, kind: TxnType = TxnType.DEFAULT) -> int:
    (txn,) = world.call("open_batch", count=1, kind=kind.value, info={})["txns"]
    number: int = txn
    return number


def ask(
    world: World, txn: int, *locks: LockRequest, zero_wait: bool = False, finishes: bool = False
) -> dict[str, Any]:
    return world.call(
        "request_lock",
        txn=txn,
        locks=[encode(lock) for lock in locks],
        zero_wait=zero_wait,
        finishes=finishes,
    )


def lists(world: World, seen: ValidTxnList, *tables: str, no_floors: bool = False) -> list[str]:
    asked = {"tables": tables, "valid_txns": str(seen), "no_floors": no_floors}
    answer: list[str] = world.call("write_ids_under", **asked)["lists"]
    return answer


def now(world: World) -> ValidTxnList:
    return ValidTxnList.parse(world.call("txn_list")["valid_txns"])


def test_P34_a_lock_request_is_answered_at_once_and_granted_later(world: World) -> None:
    holder = world.begin(LockRequest("t", E))
    txn = opened(world)
    asked = ask(world, txn, LockRequest("t", W, INSERT))
    assert asked["acquired"] is False
    assert world.call("check_lock", ext=asked["ext"])["acquired"] is False
    assert world.call("touched", txn=txn)["tables"] == []
    world.commit(holder)
    assert world.call("check_lock", ext=asked["ext"])["acquired"] is True
    assert ask(world, txn, LockRequest("t", W, UPDATE))["acquired"] is True
    (touched,) = world.call("touched", txn=txn)["tables"]
    assert touched["table"] == "default.t" and touched["write_id"] == 1


def test_P48_a_lock_that_is_asked_for_again_does_not_wait_for_who_waits_for_it(
    world: World,
) -> None:
    """An engine whose answer was lost asks again, when an overwrite stands in line already."""
    reader, writer, later = opened(world), opened(world), opened(world)
    assert ask(world, reader, LockRequest("t", R))["acquired"]
    overwrite = ask(world, writer, LockRequest("t", E))
    assert not overwrite["acquired"]
    assert ask(world, reader, LockRequest("t", R))["acquired"]
    assert not ask(world, later, LockRequest("t", R))["acquired"], "others stand in line"
    world.call("commit", txn=reader, writes=[])
    assert world.call("check_lock", ext=overwrite["ext"])["acquired"]


def test_P47_a_write_is_unfinished_until_its_engine_says_so(world: World) -> None:
    """Other writes stay as they are; a metastore that starts again knows which are unfinished."""
    txn, other = opened(world), opened(world)
    for one in (txn, other):
        ask(world, one, LockRequest("t", W, INSERT), finishes=True)

    def unfinished(here: World, one: int) -> bool:
        (touched,) = here.call("touched", txn=one)["tables"]
        told: bool = touched["unfinished"]
        return told

    assert (unfinished(world, txn), unfinished(world, other)) == (True, True)
    assert world.call("finish_write", table="t", write_id=7)["awaited"] is False
    assert world.call("finish_write", table="t", write_id=1)["awaited"] is True
    assert world.call("finish_write", table="t", write_id=1)["awaited"] is False
    again = Machine()
    again.replay(world.events)
    assert [again.state.txns[one].unfinished for one in (txn, other)] == [False, True]
    assert (unfinished(world, txn), unfinished(world, other)) == (False, True)
    plain = opened(world)
    ask(world, plain, LockRequest("t", W, INSERT))
    assert not unfinished(world, plain)


def test_P22_other_engines_see_nothing_of_a_dropped_table_whose_files_are_still_there(
    world: World,
) -> None:
    """They know no floors, and go by the directories that they find."""
    for _ in range(3):
        world.insert()
    dropping = world.begin(LockRequest("t", E))
    world.call("drop", txn=dropping.id, name="t", partition=None)
    world.create("t")
    world.insert()

    def theirs() -> list[str]:
        return lists(world, now(world), "default.t", no_floors=True)

    ours = "default.t:4:9223372036854775807::"
    assert theirs() == [f"{ours}1,2,3"]
    assert world.snapshot_text() == ours == lists(world, now(world), "default.t")[0]
    (task,) = world.ready()
    world.clean(task)
    assert theirs() == [ours]


def test_L12_a_waiting_request_lives_by_its_checks(world: World) -> None:
    world.begin(LockRequest("t", E))
    asked = {True: 0, False: 0}
    for checked in asked:
        asked[checked] = ask(world, 0, LockRequest("t", R))["ext"]
    for _ in range(7):
        world.tick(100_000)
        world.call("heartbeat", txns=[1])
        world.call("check_lock", ext=asked[True])
    with pytest.raises(NoSuchLock):
        world.call("check_lock", ext=asked[False])
    assert world.call("check_lock", ext=asked[True])["acquired"] is False


def test_P34_the_request_of_an_aborted_transaction_is_gone(world: World) -> None:
    world.begin(LockRequest("t", E))
    txn = opened(world)
    asked = ask(world, txn, LockRequest("t", R))
    world.call("abort", txn=txn, reason="test")
    with pytest.raises(NoSuchLock):
        world.call("check_lock", ext=asked["ext"])
    with pytest.raises(TxnAborted):
        ask(world, txn, LockRequest("t", R))


def test_L10_a_read_that_may_not_wait_leaves_no_request(world: World) -> None:
    world.begin(LockRequest("t", E))
    with pytest.raises(LockNotAcquired):
        ask(world, opened(world), LockRequest("t", R), zero_wait=True)
    assert len(world.call("locks")["rows"]) == 1


def test_P34_a_read_only_transaction_gets_no_lock_of_a_write(world: World) -> None:
    with pytest.raises(ReadOnlyTxn):
        ask(world, opened(world, TxnType.READ_ONLY), LockRequest("t", W, INSERT))


def test_P34_a_lock_keeps_the_tables_files(world: World) -> None:
    world.insert()
    reader = opened(world)
    ask(world, reader, LockRequest("t", R, SELECT))
    world.overwrite()
    world.compact()
    assert world.ready() == [] and world.blocked()[0]["holders"][0]["txn"] == reader
    world.call("commit", txn=reader, writes=[])
    assert len(world.ready()) == 1


def test_P34_a_list_of_transactions_gives_the_write_ids_of_its_moment(world: World) -> None:
    world.create("u")
    reader = opened(world)
    ask(world, reader, LockRequest("t", R, SELECT))
    before = world.write()
    seen = now(world)
    assert set(seen.open) == {before.id, reader}
    world.commit(before, world.report(before))
    world.insert()
    assert lists(world, seen, "t") == ["default.t:1:1:1:"]
    assert lists(world, now(world), "t", "u") == [
        "default.t:2:9223372036854775807::",
        "default.u:0:9223372036854775807::",
    ]
    with pytest.raises(NoSuchTable):
        lists(world, seen, "t", "nowhere")


def test_P5_a_list_whose_open_transactions_may_be_forgotten_is_refused(world: World) -> None:
    writer = world.write()
    seen = now(world)
    assert lists(world, seen, "t") == ["default.t:1:1:1:"]
    world.commit(writer, world.report(writer))
    # Hive gives up a transaction, opens another, and asks once more with the old list (P34).
    assert lists(world, seen, "t") == ["default.t:1:1:1:"]
    world.tick(61_000)
    # Nobody keeps what is needed to answer: it was purged, and write id 1 would be visible.
    with pytest.raises(SnapshotExpired):
        lists(world, seen, "t")


def test_P34_touched_says_what_was_locked_and_what_was_not(world: World) -> None:
    world.create("p", partitioned=True)
    world.create("u")
    txn = opened(world)
    ask(
        world,
        txn,
        LockRequest("t", W, DELETE),
        LockRequest("p", W, INSERT, None, True),
        LockRequest("u", R, SELECT),
    )
    world.allocate(txn, "u")
    touched = {one["table"]: one for one in world.call("touched", txn=txn)["tables"]}
    assert {name: one["entities"] for name, one in touched.items()} == {
        "default.t": [{"partition": None, "dynamic": False, "operation": "d"}],
        "default.p": [{"partition": None, "dynamic": True, "operation": "i"}],
        "default.u": [],
    }
    assert touched["default.u"]["write_id"] == 1
    assert [one.get("read", []) for one in touched.values()] == [[], [], [None]]
