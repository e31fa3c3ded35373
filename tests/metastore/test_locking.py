"""The lock queue (L rules)."""

from __future__ import annotations

from itertools import product

import pytest

from acid_platform import LockNotAcquired, LockTimeout, NoSuchTable, TxnAborted
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions.concurrency import LockType
from tests.metastore.world import INSERT, SELECT, UPDATE, E, R, W, World, X

_BEGIN = {"kind": 0, "locks": [], "wait": 0, "zero_wait": None, "info": {}, "tables": []}


def states(world: World) -> list[tuple[int, str]]:
    return [(row["transaction_id"], row["lock_state"]) for row in world.call("locks")["rows"]]


def test_L1_a_request_is_only_compared_with_those_before_it(world: World) -> None:
    requests = [world.begin_request(LockRequest("t", X, UPDATE)) for _ in range(5)]
    exts = [row["lockid"] for row in world.call("locks")["rows"]]
    assert exts == [f"{number}.1" for number in range(1, 6)]
    assert [request in world.answers for request in requests] == [True, False, False, False, False]


WAITS = {R: (E,), W: (X, E), X: (W, X, E), E: (R, W, X, E)}


@pytest.mark.parametrize("waiting", [False, True], ids=["acquired", "waiting"])
@pytest.mark.parametrize(("asked", "existing"), list(product(WAITS, WAITS)))
def test_L2_every_cell_against_a_holder_and_against_a_waiter(
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


def test_L2_first_come_first_served(world: World) -> None:
    reader = world.begin(LockRequest("t", R))
    writer = world.begin_request(LockRequest("t", E))
    later = world.begin_request(LockRequest("t", R), zero_wait=False)
    assert states(world) == [(1, "ACQUIRED"), (2, "WAITING"), (3, "WAITING")]
    world.commit(reader)
    assert states(world) == [(2, "ACQUIRED"), (3, "WAITING")]
    assert writer in world.answers and later not in world.answers
    world.call("commit", txn=2, writes=[])
    assert states(world) == [(3, "ACQUIRED")] and later in world.answers


def test_L3_all_or_nothing(world: World) -> None:
    world.create("u")
    holder = world.begin(LockRequest("u", E))
    both = world.begin_request(LockRequest("t", W, UPDATE), LockRequest("u", W, UPDATE))
    behind = world.begin_request(LockRequest("t", E))
    assert both not in world.answers and behind not in world.answers
    world.abort(holder)
    assert both in world.answers and behind not in world.answers


LEVELS = [
    (("default.*", R, None), ("t", E, None), False),
    (("t", E, None), ("default.*", R, None), False),
    (("default.*", E, None), ("t", R, "p=1"), True),
    (("t", E, None), ("t", R, "p=1"), True),
    (("t", E, "p=1"), ("t", E, "p=2"), False),
]


@pytest.mark.parametrize(("held", "asked", "waits"), LEVELS)
def test_L4_L6_levels(
    held: tuple[str, LockType, str | None],
    asked: tuple[str, LockType, str | None],
    waits: bool,
) -> None:
    parted = World()
    parted.create(partitioned=True)
    name, lock, partition = held
    parted.begin(LockRequest(name, lock, None, partition))
    request = parted.begin_request(LockRequest(asked[0], asked[1], None, asked[2]), zero_wait=False)
    assert (request not in parted.answers) == waits


def test_L5_own_locks_do_not_block(world: World) -> None:
    txn = world.begin(LockRequest("t", E))
    world.lock(txn, LockRequest("t", R))
    assert states(world) == [(1, "ACQUIRED")] * 2


def test_L6_database_locks(world: World) -> None:
    world.begin(LockRequest("default.*", R))
    dropping = world.begin(LockRequest("t", E))
    database = world.begin_request(LockRequest("default.*", E))
    assert database not in world.answers
    world.commit(dropping)
    assert database not in world.answers
    world.call("commit", txn=1, writes=[])
    assert database in world.answers


def test_L7_partitions_lock_apart() -> None:
    world = World()
    world.create(partitioned=True)
    for name in ("p=1", "P=2"):
        world.begin(LockRequest("t", E, SELECT, name))
    table = world.begin_request(LockRequest("t", W, INSERT))
    assert table not in world.answers
    assert [row["partition"] for row in world.call("locks")["rows"]] == ["p=1", "p=2", None]


def test_L10_zero_wait_leaves_nothing(world: World) -> None:
    holder = world.begin(LockRequest("t", E))
    with pytest.raises(LockNotAcquired, match=r"EXCLUSIVE of default\.t .*transaction 1"):
        world.begin(LockRequest("t", R))
    assert states(world) == [(holder.id, "ACQUIRED")]
    assert world.call("outcome_of_txn", txn=2)["state"] == "a"
    open_one = world.begin()
    with pytest.raises(LockNotAcquired):
        world.lock(open_one, LockRequest("t", R), zero_wait=None)
    assert world.call("outcome_of_txn", txn=open_one.id)["state"] == "o"


def test_L10_exclusive_writes_let_reads_wait(world: World) -> None:
    world.set("hive.txn.xlock.write", "true")
    world.begin(LockRequest("t", E))
    assert world.begin_request(LockRequest("t", R)) not in world.answers


def test_L11_timeout_names_the_blocking_lock_and_aborts_what_it_began(world: World) -> None:
    world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT), wait=5)
    world.tick(4999)
    assert waiting not in world.answers
    world.tick(1)
    with pytest.raises(LockTimeout, match=r"within 5 s: SHARED_WRITE .*transaction 1"):
        world.answer(waiting)
    assert world.call("outcome_of_txn", txn=2)["state"] == "a"
    assert states(world) == [(1, "ACQUIRED")]


def test_L11_a_later_request_leaves_its_transaction_open(world: World) -> None:
    world.begin(LockRequest("t", E))
    txn = world.begin()
    with pytest.raises(LockTimeout):
        world.lock(txn, LockRequest("t", W, INSERT), wait=0)
    request = world.lock_request(txn, LockRequest("t", W, INSERT), wait=1)
    world.tick(1000)
    with pytest.raises(LockTimeout):
        world.answer(request)
    assert world.call("outcome_of_txn", txn=txn.id)["state"] == "o"


def test_L11_a_request_behind_a_timed_out_one_is_granted(world: World) -> None:
    world.begin(LockRequest("t", R))
    world.begin_request(LockRequest("t", E), wait=1)
    reader = world.begin_request(LockRequest("t", R), zero_wait=False)
    world.tick(1000)
    assert "txn" in world.answer(reader)


def test_L12_aborted_while_waiting(world: World) -> None:
    holder = world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT))
    next_one = world.begin_request(LockRequest("t", E))
    world.call("abort_many", txns=[2], reason="by hand")
    with pytest.raises(TxnAborted, match="by hand"):
        world.answer(waiting)
    world.commit(holder)
    assert "txn" in world.answer(next_one)


def test_T13_a_dead_waiter_is_reaped_and_the_next_granted(world: World) -> None:
    world.begin(LockRequest("t", R))
    world.begin_request(LockRequest("t", E), wait=10_000)
    last = world.begin_request(LockRequest("t", R), zero_wait=False, wait=10_000)
    world.tick()
    world.clock.advance(300_001)
    world.call("heartbeat", txns=[1, 3])
    world.tick()
    assert world.answer(last)["txn"] == 3


def test_L13_a_stronger_lock_queues(world: World) -> None:
    first, second = world.begin(LockRequest("t", R)), world.begin(LockRequest("t", R))
    upgrade = world.lock_request(first, LockRequest("t", E))
    assert upgrade not in world.answers
    world.commit(second)
    assert upgrade in world.answers


def test_L14_a_deadlock_ends_with_the_wait(world: World) -> None:
    world.create("u")
    first, second = world.begin(LockRequest("t", E)), world.begin(LockRequest("u", E))
    one = world.lock_request(first, LockRequest("u", E), wait=1)
    other = world.lock_request(second, LockRequest("t", E), wait=2)
    world.tick(1000)
    with pytest.raises(LockTimeout):
        world.answer(one)
    world.abort(first)
    assert "txn" in world.answer(other)


def test_P22_a_lock_that_waits_for_a_drop_fails(world: World) -> None:
    dropping = world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT))
    world.call("drop", txn=dropping.id, name="t", partition=None)
    with pytest.raises(NoSuchTable, match="was dropped while"):
        world.answer(waiting)
    assert world.call("outcome_of_txn", txn=2)["state"] == "a"


def test_P3_a_request_sent_again_keeps_its_place(world: World) -> None:
    world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT))
    again = world.handle("begin", _BEGIN, waiting)
    assert not again.events and not again.replies
    world.call("commit", txn=1, writes=[])
    assert len(world.call("locks")["rows"]) == 1
    repeated = world.handle("begin", _BEGIN, waiting)
    assert not repeated.events and repeated.replies[0].value == world.answers[waiting]


def test_show_locks(world: World) -> None:
    world.begin(LockRequest("t", E), user="ann")
    world.begin_request(LockRequest("t", W, INSERT))
    rows = world.call("locks")["rows"]
    assert [row["lockid"] for row in rows] == ["1.1", "2.1"]
    assert rows[0]["user"] == "ann" and rows[0]["blocked_by"] is None
    assert "EXCLUSIVE of default.t" in rows[1]["blocked_by"]
    assert {
        "database",
        "table",
        "partition",
        "lock_type",
        "acquired_at",
        "last_heartbeat",
        "hostname",
        "agent_info",
    } <= rows[0].keys()
