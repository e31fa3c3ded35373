"""Thirty-five cases of transactions, snapshots and locks on the state machine.

Cases 20 and 23 are about the lists only: tests/transactions/test_lists.py has them as literal
tables, and here they are only sampled.
"""

from __future__ import annotations

from itertools import product

import pytest

from acid_platform import (
    InvalidDefinition,
    LockNotAcquired,
    NoSuchTxn,
    ReadOnlyTxn,
    TooManyOpenTxns,
    TxnAborted,
    WriteConflict,
)
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.rules.snapshots import low_mark, txn_list, write_ids
from acid_platform.transactions import RangeResponse, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.locks import LockType
from tests.contents import counts
from tests.metastore.world import DELETE, INSERT, SELECT, UPDATE, E, R, Txn, W, World, X

TIMEOUT = 300_000
NONE = "9223372036854775807"


@pytest.fixture
def parted() -> World:
    """`default.t`, partitioned by p."""
    world = World()
    world.create(partitioned=True)
    return world


def batch(world: World, count: int) -> list[int]:
    ids: list[int] = world.call("open_batch", count=count, kind=0, info={})["txns"]
    return ids


def state_of(world: World, txn: int) -> str:
    found: str = world.call("txn_states", txns=[txn])["states"][str(txn)]
    return found


def rows(world: World) -> list[tuple[int, str]]:
    return [(row["transaction_id"], row["lock_state"]) for row in world.call("locks")["rows"]]


def pick(txn: Txn, name: str = "default.t") -> int:
    return txn.write_ids[name]


def test_case_01_T1_T3_batches(world: World) -> None:
    assert batch(world, 5) == [1, 2, 3, 4, 5]
    now = world.clock.now_ms()
    for row in world.call("transactions")["rows"]:
        assert (row["state"], row["startedtime"], row["lastheartbeattime"]) == ("OPEN", now, now)
    assert batch(world, 1500) == list(range(6, 1006))
    with pytest.raises(InvalidDefinition):
        batch(world, 0)


def test_case_02_T2_limit_of_ten(world: World) -> None:
    world.set("hive.max.open.txns", "10")
    batch(world, 10)
    for ended, opens in ((0, False), (1, False), (2, True)):
        if ended:
            world.call("abort", txn=ended, reason="")
        world.clock.advance(1000)
        if opens:
            assert world.begin().id == 11
        else:
            with pytest.raises(TooManyOpenTxns):
                world.begin()


def test_case_03_T13_T15_a_heartbeat_rescues_until_the_reaper_has_run(world: World) -> None:
    saved, lost = world.write(), world.write()
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat_one", txn=saved.id, read=False)
    world.tick()
    assert (state_of(world, saved.id), state_of(world, lost.id)) == ("o", "a")
    assert rows(world) == [(saved.id, "ACQUIRED")]
    with pytest.raises(TxnAborted):
        world.call("heartbeat_one", txn=lost.id, read=False)


def test_case_04_T14_a_heartbeat_before_the_reaper_counts_whoever_else_is_reaped(
    world: World,
) -> None:
    """In one loop nothing can happen between selecting and aborting (P1)."""
    ids = batch(world, 3)
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat", txns=[2])
    world.tick()
    assert [state_of(world, txn_id) for txn_id in ids] == ["a", "o", "a"]


def test_case_05_T8_range_heartbeat(world: World) -> None:
    batch(world, 5)
    world.call("abort", txn=2, reason="")
    world.commit(Txn({"txn": 4, "valid_txns": f"4:{NONE}::", "write_ids": {}, "stale": False}))
    world.clock.advance(1000)
    answer = world.call("heartbeat", txns=[1, 2, 3, 4, 5])
    assert (answer["aborted"], answer["unknown"]) == ([2], [4])
    now = world.clock.moment().steady
    assert world.state.heartbeats == {1: now, 3: now, 5: now}


def test_case_06_T7_T10_T12_ends_twice(world: World) -> None:
    done, lost, live = world.write(), world.write(), world.write()
    assert world.commit(done) == world.commit(done)
    world.abort(lost)
    with pytest.raises(TxnAborted):
        world.commit(lost)
    with pytest.raises(NoSuchTxn):
        world.abort(done)
    with pytest.raises(NoSuchTxn, match="already committed"):
        world.call("heartbeat_one", txn=done.id, read=False)
    with pytest.raises(NoSuchTxn, match="no transaction 99"):
        world.call("heartbeat_one", txn=99, read=False)
    answer = world.call("abort_many", txns=[live.id, lost.id, 99], reason="")
    assert answer["aborted"] == [live.id] and answer["message"] == "aborted 1 of 3"


def test_case_07_T18_T19_T21_write_ids_in_order_of_allocation(world: World) -> None:
    world.create("u")
    older, newer = world.begin(), world.begin()
    got = [
        world.allocate(txn.id, name)
        for txn, name in ((newer, "t"), (older, "t"), (newer, "t"), (newer, "u"))
    ]
    assert got == [1, 2, 1, 1]


def test_case_08_T17_T18_T19_write_ids_of_several(world: World) -> None:
    five, six, reader = world.begin(), world.begin(), world.read()
    world.abort(six)

    def allocate(*txns: Txn) -> list[list[int]]:
        ids = [txn.id for txn in txns]
        found: list[list[int]] = world.call("allocate_many", table="t", txns=ids)["write_ids"]
        return found

    with pytest.raises(TxnAborted, match=rf"\[{six.id}\]"):
        allocate(five, six)
    with pytest.raises(ReadOnlyTxn):
        allocate(five, reader)
    assert world.state.table("t").next_write_id == 1
    seven = world.begin()
    assert allocate(seven, five) == [[five.id, 1], [seven.id, 2]] == allocate(five, seven)
    with pytest.raises(InvalidDefinition, match="and the others none"):
        allocate(five, world.begin())
    assert world.state.table("t").next_write_id == 3


def test_case_09_T31_T33_the_second_update_is_aborted(parted: World) -> None:
    first, second = (parted.write("t", UPDATE, "p=1") for _ in range(2))
    parted.commit(first, parted.report(first, "t", "p=1", UPDATE))
    with pytest.raises(WriteConflict):
        parted.commit(second, parted.report(second, "t", "p=1", UPDATE))
    assert state_of(parted, second.id) == "a"
    assert [change.txn_id for change in parted.state.write_set[1]["p=1"]] == [first.id]
    assert [written.txn for written in parted.state.written] == [first.id]
    assert parted.sees(parted.read()).aborted == (pick(second),)


def test_case_10_T26_T37_two_partitions_under_the_lock_of_the_table(parted: World) -> None:
    first, second = (parted.write("t", UPDATE) for _ in range(2))
    assert rows(parted) == [(1, "ACQUIRED"), (2, "ACQUIRED")]
    parted.commit(first, parted.report(first, "t", "p=1", UPDATE))
    parted.commit(second, parted.report(second, "t", "p=2", UPDATE))
    assert [state_of(parted, txn.id) for txn in (first, second)] == ["c", "c"]


def test_case_11_T30_T32_overlap_is_what_counts(world: World) -> None:
    world.commit(world.write(operation=UPDATE))
    older, newer = (world.write(operation=UPDATE) for _ in range(2))
    world.commit(older)
    with pytest.raises(WriteConflict):
        world.commit(newer)


@pytest.mark.parametrize(
    ("one", "other", "end"),
    [
        (DELETE, DELETE, "a"),
        (INSERT, UPDATE, "c"),
        (UPDATE, INSERT, "c"),
    ],
)
def test_case_12_T31_T34_operations(world: World, one: object, other: object, end: str) -> None:
    first, second = (world.write("t", op) for op in (one, other))  # type: ignore[arg-type]
    world.commit(first)
    if end == "a":
        with pytest.raises(WriteConflict):
            world.commit(second)
    else:
        world.commit(second)


def test_case_12_T34_an_insert_overwrite_conflicts_with_an_update(world: World) -> None:
    early, reports = world.begin(), []
    overwriter = world.write("t", UPDATE, lock=X)
    reports.append(WriteReport("t", None, UPDATE, "base_0000001", counts(1, 1), True))
    world.commit(overwriter, *reports)
    world.lock(early, LockRequest("t", W, UPDATE))
    with pytest.raises(WriteConflict):
        world.commit(early)


def test_case_13_T27_T38_an_update_of_no_partition(parted: World) -> None:
    empty, other = (parted.write("t", UPDATE) for _ in range(2))
    parted.commit(other, parted.report(other, "t", "p=1", UPDATE))
    parted.commit(empty)
    assert state_of(parted, empty.id) == "c" and not parted.state.components
    assert [row.txn_id for row in parted.state.write_set[1]["p=1"]] == [other.id]


def test_case_14_T28_a_dynamic_writer_aborts_before_its_report(parted: World) -> None:
    parted.abort(parted.write("t", DELETE))
    ((component,),) = parted.state.components.values()
    assert (component.partition, component.dynamic) == (None, True)


def test_case_15_T35_exclusive_write_locks_instead_of_the_check(world: World) -> None:
    world.set("hive.txn.xlock.write", "true")
    first = world.write("t", UPDATE, lock=X)
    second = world.begin_request(LockRequest("t", X, UPDATE))
    assert second not in world.answers
    world.commit(first)
    world.commit(Txn(world.answer(second)))
    assert state_of(world, 2) == "c"


def test_case_16_T31_two_updates_of_an_unpartitioned_table(world: World) -> None:
    first, second = (world.write("t", UPDATE) for _ in range(2))
    world.commit(first)
    assert list(world.state.write_set[1]) == [None]
    with pytest.raises(WriteConflict):
        world.commit(second)


def test_case_17_S2_the_snapshot_of_six(world: World) -> None:
    for _ in range(3):
        world.commit(world.begin())
    world.begin()
    world.abort(world.write())
    six, seven = world.begin(), world.begin()
    world.commit(seven)
    assert str(six.valid_txns) == "6:4:4:5"
    assert six.valid_txns.is_valid(6) and not six.valid_txns.is_valid(7)


def test_case_18_S1_T42_a_reader_is_not_listed_but_holds_the_watermark(world: World) -> None:
    for _ in range(2):
        world.commit(world.begin())
    reader = world.read()
    world.commit(world.begin())
    assert str(world.begin().valid_txns) == f"5:{NONE}::"
    assert (reader.id, low_mark(world.state)) == (3, 3)


def test_case_19_S1_T5_T41_no_id_appears_below_a_snapshot_later(world: World) -> None:
    """An id and its row appear at once (P1), so none is missing and the low mark does not lag."""
    ids = [*batch(world, 3), world.begin().id, *batch(world, 2)]
    listed = txn_list(world.state)
    assert ids == [1, 2, 3, 4, 5, 6] and listed.open == tuple(ids)
    for txn_id in ids:
        world.call("abort", txn=txn_id, reason="")
    assert low_mark(world.state) == 7 and txn_list(world.state).open == ()


def test_case_20_S5_S13_texts_are_read_as_they_are_written() -> None:
    for text in ("12:5:5,9:7,10", f"12:{NONE}::", f"12:{NONE}::7"):
        assert str(ValidTxnList.parse(text)) == text
    for text in ("db.t:12:5:5,9:7,10", f"db.u:3:{NONE}::"):
        assert str(ValidWriteIdList.parse(text)) == text


def test_case_21_S7_S8_a_write_id_of_a_transaction_above_the_watermark(world: World) -> None:
    ids = batch(world, 9)
    for txn in (1, 9, 7):
        world.allocate(txn, "t")
    for txn in ids:
        if txn != 9:
            world.call("commit", txn=txn, writes=[])
    assert str(write_ids(world.state.table("t"), ValidTxnList.of(7))) == "default.t:3:2:2:"


def test_case_22_S7_S9_P5_purged_mappings_and_a_table_never_written(world: World) -> None:
    """P5 instead of S10: the watermark stays at the highest allocated write id."""
    assert world.snapshot_text() == f"default.t:0:{NONE}::"
    for _ in range(5):
        world.insert()
    world.tick(61_000)
    lost = world.write()
    world.abort(lost)
    assert [row.write_id for row in world.state.table("t").writes] == [6]
    listed = world.sees(world.read())
    assert (listed.high_watermark, listed.aborted) == (6, (6,))
    assert all(listed.is_valid(write_id) for write_id in range(1, 6))


def test_case_23_S12_a_base_may_not_hide_an_open_write(world: World) -> None:
    for _ in range(4):
        world.insert()
    world.write()
    world.insert()
    listed = world.sees(world.read())
    assert listed.is_valid_base(4) and not listed.is_valid_base(6)


def test_case_24_S16_what_a_compaction_may_merge(world: World) -> None:
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
    _, merge = world.begin_compaction(task)
    assert (merge.high_watermark, merge.aborted) == (4, (3,))
    assert merge.range_valid(5, 5) is RangeResponse.NONE


WAITS = {R: (E,), W: (X, E), X: (W, X, E), E: (R, W, X, E)}


@pytest.mark.parametrize("waiting", [False, True], ids=["acquired", "waiting"])
@pytest.mark.parametrize(("asked", "existing"), list(product(WAITS, WAITS)))
def test_case_25_L2_every_cell_against_a_holder_and_against_a_waiter(
    asked: LockType, existing: LockType, waiting: bool
) -> None:
    """The first lock is held until the tested lock can be compared with a waiting one."""
    world = World()
    world.create("t", partitioned=True)
    world.call("add_partitions", name="t", partitions=["p=1", "p=2"])
    if waiting:
        # It waits for another transaction's p=2, and is ahead of us on p=1.
        world.begin(LockRequest("t", E, SELECT, "p=2"))
        held = world.begin_request(
            LockRequest("t", existing, SELECT, "p=1"), LockRequest("t", E, SELECT, "p=2")
        )
        assert held not in world.answers
    else:
        world.begin(LockRequest("t", existing, SELECT, "p=1"))
    request = world.begin_request(LockRequest("t", asked, SELECT, "p=1"), zero_wait=False)
    assert (request not in world.answers) == (existing in WAITS[asked])


LEVELS = [
    (("default.*", R, None), ("t", E, None), False),
    (("t", E, None), ("default.*", R, None), False),
    (("default.*", E, None), ("t", R, "p=1"), True),
    (("t", E, None), ("t", R, "p=1"), True),
    (("t", E, "p=1"), ("t", E, "p=2"), False),
]


@pytest.mark.parametrize(("held", "asked", "waits"), LEVELS)
def test_case_26_L4_L6_levels(
    parted: World,
    held: tuple[str, LockType, str | None],
    asked: tuple[str, LockType, str | None],
    waits: bool,
) -> None:
    for name, lock, partition in (held,):
        parted.begin(LockRequest(name, lock, None, partition))
    request = parted.begin_request(LockRequest(asked[0], asked[1], None, asked[2]), zero_wait=False)
    assert (request not in parted.answers) == waits


def test_case_27_L2_nobody_overtakes(world: World) -> None:
    reader = world.begin(LockRequest("t", R))
    world.begin_request(LockRequest("t", E))
    world.begin_request(LockRequest("t", R), zero_wait=False)
    world.commit(reader)
    assert rows(world) == [(2, "ACQUIRED"), (3, "WAITING")]
    world.call("commit", txn=2, writes=[])
    assert rows(world) == [(3, "ACQUIRED")]


def test_case_28_L3_a_request_gets_no_partial_grant_and_keeps_its_place(world: World) -> None:
    world.create("u")
    world.begin(LockRequest("u", X, UPDATE))
    world.begin_request(LockRequest("t", X, UPDATE), LockRequest("u", X, UPDATE))
    world.begin_request(LockRequest("t", X, UPDATE))
    assert [state for _, state in rows(world)] == ["ACQUIRED", "WAITING", "WAITING", "WAITING"]


def test_case_29_L10_zero_wait_reads(world: World) -> None:
    world.begin(LockRequest("t", E))
    with pytest.raises(LockNotAcquired):
        world.begin(LockRequest("t", R), wait=60)
    assert rows(world) == [(1, "ACQUIRED")]
    assert world.begin_request(LockRequest("t", R), zero_wait=False) not in world.answers


def test_case_30_T11_T13_L12_a_client_that_dies_waiting(world: World) -> None:
    world.begin(LockRequest("t", R))
    world.begin_request(LockRequest("t", E), wait=10_000)
    third = world.begin_request(LockRequest("t", R), zero_wait=False, wait=10_000)
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat", txns=[1, 3])
    world.tick()
    assert state_of(world, 2) == "a" and rows(world) == [(1, "ACQUIRED"), (3, "ACQUIRED")]
    assert world.answer(third)["txn"] == 3


def test_case_31_L5_two_locks_of_one_transaction(world: World) -> None:
    txn = world.begin(LockRequest("t", E))
    world.lock(txn, LockRequest("t", R), zero_wait=True, wait=0)
    assert rows(world) == [(1, "ACQUIRED")] * 2


def test_case_32_L15_T16_unlocking_and_locks_without_a_transaction(world: World) -> None:
    txn = world.begin(LockRequest("t", R))
    with pytest.raises(InvalidDefinition, match="not permitted"):
        world.call("unlock", ext=1)
    alone = world.call("lock_alone", locks=[{"table": "t", "lock": "r"}], wait=0)["ext"]
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat", txns=[txn.id])
    world.tick()
    assert rows(world) == [(txn.id, "ACQUIRED")]
    world.call("unlock", ext=alone)


def test_case_33_T43_T44_T46_what_is_purged(world: World) -> None:
    update = world.write("t", UPDATE)
    blocker = world.begin()
    world.commit(update)
    lost = world.write()
    world.abort(lost)
    world.tick(61_000)
    assert world.state.txns.keys() == {blocker.id, lost.id} and world.state.write_set
    world.commit(blocker)
    world.tick(61_000)
    assert not world.state.write_set and world.state.txns.keys() == {lost.id}
    assert world.state.last_txn == lost.id and state_of(world, update.id) == "c"


def test_case_34_L1_a_request_is_only_compared_with_those_before_it(world: World) -> None:
    requests = [world.begin_request(LockRequest("t", X, UPDATE)) for _ in range(5)]
    exts = [row["lockid"] for row in world.call("locks")["rows"]]
    assert exts == [f"{number}.1" for number in range(1, 6)]
    assert [request in world.answers for request in requests] == [True, False, False, False, False]


def test_case_35_T4_a_transaction_opened_after_a_commit_sees_it(world: World) -> None:
    update = world.write("t", UPDATE)
    before = world.begin()
    world.commit(update)
    after = world.begin()
    assert not before.valid_txns.is_valid(update.id) and after.valid_txns.is_valid(update.id)
    world.lock(before, LockRequest("t", W, UPDATE))
    with pytest.raises(WriteConflict):
        world.commit(before)
    world.lock(after, LockRequest("t", W, UPDATE))
    world.commit(after)
