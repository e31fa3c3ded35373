"""Opening, heartbeats, the reaper, write ids, and how transactions end (T rules, P2, P6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from acid_platform import (
    InvalidDefinition,
    NoSuchPartition,
    NoSuchTxn,
    OverwriteThenWrite,
    ReadOnlyTxn,
    SnapshotExpired,
    TooManyOpenTxns,
    TxnAborted,
    WriteConflict,
)
from acid_platform.metastore.messages import encode
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.metastore.rules.state import Ended
from acid_platform.transactions import RowOperation, TxnType
from tests.contents import counts
from tests.metastore.world import DELETE, INSERT, UPDATE, R, Txn, W, World, X

TIMEOUT = 300_000


def batch(world: World, count: int) -> list[int]:
    ids: list[int] = world.call("open_batch", count=count, kind=0, info={})["txns"]
    return ids


def test_T1_T3_batches(world: World) -> None:
    assert batch(world, 5) == [1, 2, 3, 4, 5]
    now = world.clock.now_ms()
    for row in world.call("transactions")["rows"]:
        assert (row["state"], row["startedtime"], row["lastheartbeattime"]) == ("OPEN", now, now)
    assert batch(world, 1500) == list(range(6, 1006))
    with pytest.raises(InvalidDefinition):
        batch(world, 0)


def test_T2_limit_with_hysteresis(world: World) -> None:
    world.set("hive.max.open.txns", "10")
    batch(world, 10)
    world.clock.advance(1000)
    with pytest.raises(TooManyOpenTxns, match=r"10 .*limit 10"):
        world.begin()
    world.call("abort", txn=1, reason="")
    world.clock.advance(1000)
    with pytest.raises(TooManyOpenTxns):
        world.begin()
    world.call("abort", txn=2, reason="")
    world.clock.advance(1000)
    assert world.begin().id == 11


def test_T2_the_gauge_may_be_overshot_between_counts(world: World) -> None:
    world.set("hive.max.open.txns", "2")
    batch(world, 2)
    assert world.begin().id == 3
    world.clock.advance(1000)
    with pytest.raises(TooManyOpenTxns):
        world.begin()


def test_T13_T15_expiry_needs_the_reaper(world: World) -> None:
    saved, lost = world.write(), world.write()
    world.tick()
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat_one", txn=saved.id, read=False)
    world.tick()
    world.call("heartbeat_one", txn=saved.id, read=False)
    with pytest.raises(TxnAborted, match="no heartbeat for 300 s"):
        world.call("heartbeat_one", txn=lost.id, read=False)
    assert [row["transaction_id"] for row in world.call("locks")["rows"]] == [saved.id]


def test_T14_a_heartbeat_before_the_reaper_counts_whoever_else_is_reaped(
    world: World,
) -> None:
    """In one loop nothing can happen between selecting and aborting (P1)."""
    ids = batch(world, 3)
    world.clock.advance(TIMEOUT + 1)
    world.call("heartbeat", txns=[2])
    world.tick()
    assert [*world.call("txn_states", txns=ids)["states"].values()] == ["a", "o", "a"]


def test_T13_strictly_older_than_the_timeout(world: World) -> None:
    txn = world.begin()
    world.tick()
    world.tick(TIMEOUT)
    assert world.call("outcome_of_txn", txn=txn.id)["state"] == "o"


def test_P9_a_shorter_interval_of_the_reaper_counts_at_once(world: World) -> None:
    world.begin()
    world.tick()
    world.set("hive.txn.timeout", "6s")
    world.set("hive.timedout.txn.reaper.interval", "1s")
    world.tick(1000)
    lost = world.begin()
    world.tick(7000)
    assert world.call("outcome_of_txn", txn=lost.id)["state"] == "o"
    world.set("hive.timedout.txn.reaper.start", "0s")
    world.tick()
    assert world.call("outcome_of_txn", txn=lost.id)["state"] == "a"


def test_P2_the_loser_of_reap_and_commit_learns_who_won(world: World) -> None:
    first, second = world.write(), world.write()
    world.tick()
    world.commit(first)
    world.tick(TIMEOUT + 1)
    assert world.call("outcome_of_txn", txn=first.id)["state"] == "c"
    with pytest.raises(TxnAborted, match="no heartbeat"):
        world.commit(second)


def test_P7_a_restart_gives_one_fresh_timeout(world: World) -> None:
    txn = world.begin()
    world.clock.advance(TIMEOUT)
    world.machine.wake(world.clock.moment())
    world.tick(TIMEOUT)
    assert world.call("outcome_of_txn", txn=txn.id)["state"] == "o"
    world.tick(180_000)
    assert world.call("outcome_of_txn", txn=txn.id)["state"] == "a"


def requests_of_a_transaction(world: World) -> dict[str, tuple[str, dict[str, Any]]]:
    """Operations whose whole answer is built anew when it was lost, with their arguments."""
    world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    begin = {"locks": [], "wait": 60, "zero_wait": None, "info": {}, "tables": []}
    lock = [encode(LockRequest("t", W, INSERT))]
    return {
        "begin": ("begin", {**begin, "kind": TxnType.DEFAULT.value}),
        "begin with locks": ("begin", {**begin, "kind": TxnType.DEFAULT.value, "locks": lock}),
        "lease": ("begin", {**begin, "kind": TxnType.READ_ONLY.value, "tables": ["t"]}),
        "lock": ("lock", {"txn": world.begin().id, "locks": lock, "wait": 60, "zero_wait": False}),
        "compaction": ("begin_compaction", {**world.owner(task), "info": {}}),
    }


@pytest.mark.parametrize("what", ["begin", "begin with locks", "lease", "lock", "compaction"])
@pytest.mark.parametrize("saved", [False, True])
def test_P3_a_lost_answer_of_a_transaction_that_was_reaped_may_be_asked_for_again(
    world: World, what: str, saved: bool
) -> None:
    op, args = requests_of_a_transaction(world)[what]
    request_id = world.send(op, **args)
    assert "value" in world.answers[request_id]
    kept = world.state.outcomes[request_id]
    world.tick()
    world.tick(TIMEOUT + 1)
    if saved:  # memory keeps only aborted transactions that left files
        world.machine._past = Snapshot(world.state.ended)
        world.state.ended = {}
    world.take(world.handle(op, args, request_id))
    expected = SnapshotExpired if what == "lease" else TxnAborted
    with pytest.raises(expected, match="no heartbeat for 300 s"):
        world.answer(request_id)
    assert world.machine.expand(kept.op, kept.reply) == world.answers[request_id]


class Snapshot:
    """The transactions that are no longer in memory."""

    def __init__(self, ended: dict[int, Ended]) -> None:
        self._ended = ended

    def past_txn(self, txn_id: int) -> Ended | None:
        return self._ended.get(txn_id)

    def recorded(self, table_id: int, partitions: Sequence[str | None]) -> dict[Any, str]:
        return {}


def test_T8_range_heartbeat_never_raises(world: World) -> None:
    ids = batch(world, 6)
    world.call("abort", txn=2, reason="")
    world.call("commit", txn=6, writes=[])
    world.clock.advance(TIMEOUT)
    answer = world.call("heartbeat", txns=[1, 2, 3, 99, 5, 6])
    assert (answer["aborted"], answer["unknown"]) == ([2], [99, 6])
    world.tick()
    world.tick(TIMEOUT - 1000)
    states = world.call("txn_states", txns=[*ids, 99])["states"]
    assert states == {"1": "o", "2": "a", "3": "o", "4": "a", "5": "o", "6": "c", "99": "u"}


def test_P7_the_metastore_tells_the_interval(world: World) -> None:
    assert world.call("heartbeat", txns=[])["interval"] == TIMEOUT // 2
    world.set("acid.heartbeat.interval", "2s")
    assert world.call("heartbeat", txns=[])["interval"] == 2000


def test_T7_T10_commit_twice_is_one_commit(world: World) -> None:
    txn = world.write()
    assert world.commit(txn) == world.commit(txn) == {"commit_id": 1}
    calls: dict[str, dict[str, Any]] = {
        "abort": {"reason": ""},
        "heartbeat_one": {"read": False},
        "commit": {"writes": []},
    }
    for op, args in calls.items():
        if op != "commit":
            with pytest.raises(NoSuchTxn, match="already committed"):
                world.call(op, txn=txn.id, **args)
        with pytest.raises(NoSuchTxn, match="no transaction 99"):
            world.call(op, txn=99, **args)


def test_T12_abort(world: World) -> None:
    txn = world.write()
    world.abort(txn)
    world.abort(txn)
    with pytest.raises(TxnAborted):
        world.commit(txn)
    open_one = world.begin()
    answer = world.call("abort_many", txns=[open_one.id, txn.id, 99], reason="")
    assert answer == {"aborted": [open_one.id], "message": "aborted 1 of 3"}


def test_T11_T46_an_aborted_writer_keeps_its_components(world: World) -> None:
    writer, idle = world.write(), world.begin()
    world.abort(writer)
    world.abort(idle)
    world.tick(61_000)
    assert [row["txnid"] for row in world.call("transactions")["rows"]] == [writer.id]
    assert world.entity().aborted == 1


# --- write ids ---------------------------------------------------------------------------------


def test_T17_no_write_id_for_ended_or_reading_transactions(world: World) -> None:
    gone, reader = world.begin(), world.read()
    world.abort(gone)
    for txn, error in ((gone, TxnAborted), (reader, ReadOnlyTxn)):
        with pytest.raises(error):
            world.allocate(txn.id, "t")
    assert world.state.table("t").next_write_id == 1


def test_T18_T19_T21_order_of_allocation(world: World) -> None:
    world.create("u")
    older, newer = world.begin(), world.begin()
    assert world.allocate(newer.id, "t") == 1
    assert world.allocate(older.id, "t") == 2
    assert world.allocate(newer.id, "T") == 1
    assert world.allocate(newer.id, "u") == 1


def test_T17_T18_T19_write_ids_of_several(world: World) -> None:
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


def test_P6_write_ids_come_with_the_locks(world: World) -> None:
    holder = world.write(lock=X, operation=UPDATE)
    waiting = world.begin_request(LockRequest("t", W, INSERT))
    other = world.create("u")
    assert other and waiting not in world.answers
    world.commit(holder)
    assert world.answer(waiting)["write_ids"] == {"default.t": 2}
    assert holder.write_ids == {"default.t": 1}


def test_T17_a_reader_may_not_lock_for_writing(world: World) -> None:
    with pytest.raises(ReadOnlyTxn):
        world.write(kind=TxnType.READ_ONLY)


# --- what is touched, conflicts ----------------------------------------------------------------


def two(world: World, one: tuple[object, ...], other: tuple[object, ...]) -> tuple[str, ...]:
    """Commits two overlapping writers in this order and returns how each ended."""
    txns = [world.write("t", op, part) for op, part in (one, other)]  # type: ignore[arg-type]
    ends = []
    for txn in txns:
        try:
            world.commit(txn)
            ends.append("c")
        except WriteConflict:
            ends.append("a")
    return tuple(ends)


T31 = [
    ((UPDATE, None), (UPDATE, None), "a"),
    ((UPDATE, None), (DELETE, None), "a"),
    ((DELETE, None), (DELETE, None), "a"),
    ((INSERT, None), (UPDATE, None), "c"),
    ((UPDATE, None), (INSERT, None), "c"),
    ((INSERT, None), (INSERT, None), "c"),
]


@pytest.mark.parametrize(("one", "other", "end"), T31)
def test_T31_first_committer_wins(
    world: World, one: tuple[object, ...], other: tuple[object, ...], end: str
) -> None:
    assert two(world, one, other) == ("c", end)


@pytest.mark.parametrize(("partition", "end"), [("p=1", "a"), ("p=2", "c")])
def test_T37_static_partitions(partition: str, end: str) -> None:
    world = World()
    world.create(partitioned=True)
    assert two(world, (UPDATE, "p=1"), (UPDATE, partition)) == ("c", end)


@pytest.mark.parametrize(("partition", "end"), [("p=1", "a"), ("p=2", "c")])
def test_T26_T27_T37_dynamic_partitions_are_those_reported(partition: str, end: str) -> None:
    world = World()
    world.create(partitioned=True)
    one, other = world.write(operation=UPDATE), world.write(operation=UPDATE)
    world.commit(one, world.report(one, "t", "p=1", UPDATE))
    if end == "a":
        with pytest.raises(WriteConflict, match=r"default\.t p=1"):
            world.commit(other, world.report(other, "t", partition, UPDATE))
    else:
        world.commit(other, world.report(other, "t", partition, UPDATE))
    assert world.call("outcome_of_txn", txn=other.id)["state"] == end


def test_T27_T38_an_update_that_matched_nothing(world: World) -> None:
    dynamic = LockRequest("t", W, UPDATE, dynamic=True)
    empty, static, other = world.begin(dynamic), world.write(operation=UPDATE), world.write()
    world.commit(world.write(operation=UPDATE))
    world.commit(empty)
    assert len(world.state.write_set[1][None]) == 1
    with pytest.raises(WriteConflict):
        world.commit(static)
    world.commit(other)


def test_T28_a_dynamic_writer_that_aborts_keeps_its_row() -> None:
    world = World()
    world.create(partitioned=True)
    txn = world.write(operation=UPDATE)
    world.abort(txn)
    rows = world.state.components[txn.id]
    assert [(row.partition, row.dynamic, row.operation) for row in rows] == [(None, True, UPDATE)]


def test_T26_the_strictest_operation_of_a_dynamic_table() -> None:
    world = World()
    world.create(partitioned=True)
    txn = world.begin(LockRequest("t", W, INSERT), LockRequest("t", W, DELETE))
    assert [component.operation for component in world.state.components[txn.id]] == [UPDATE]


def test_T32_serial_transactions_do_not_conflict(world: World) -> None:
    world.commit(world.write(operation=UPDATE))
    assert two(world, (UPDATE, None), (INSERT, None)) == ("c", "c")


def test_T32_the_older_may_commit_first(world: World) -> None:
    older, newer = world.write(operation=UPDATE), world.write(operation=UPDATE)
    world.commit(older)
    with pytest.raises(WriteConflict, match=r"\[2, now\] overlaps .*\[1, 2\]"):
        world.commit(newer)


def test_T34_an_insert_overwrite_conflicts_with_an_update(world: World) -> None:
    early = world.begin()
    overwriter = world.write("t", UPDATE, lock=X)
    report = WriteReport("t", None, UPDATE, "base_0000001", counts(1, 1), True)
    world.commit(overwriter, report)
    world.lock(early, LockRequest("t", W, UPDATE))
    with pytest.raises(WriteConflict):
        world.commit(early)


def test_T4_a_transaction_opened_after_a_commit_sees_it(world: World) -> None:
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


def test_T33_the_loser_is_aborted_and_excluded(world: World) -> None:
    winner, loser = world.write(operation=UPDATE), world.write(operation=UPDATE)
    world.commit(winner)
    with pytest.raises(WriteConflict):
        world.commit(loser)
    assert world.call("outcome_of_txn", txn=loser.id)["reason"].startswith(
        "write conflict on default.t: update of transaction [2, now] overlaps"
    )
    assert [change.txn_id for change in world.state.write_set[1][None]] == [winner.id]
    assert world.snapshot_text() == "default.t:2:9223372036854775807::2"


def test_T35_exclusive_writes_are_serialised_by_their_locks(world: World) -> None:
    world.set("hive.txn.xlock.write", "true")
    first = world.write(operation=UPDATE, lock=X)
    request = world.begin_request(LockRequest("t", X, UPDATE))
    world.commit(first)
    second = world.answer(request)
    world.call("commit", txn=second["txn"], writes=[])


def test_T35_not_when_the_other_is_outside_the_snapshot(world: World) -> None:
    world.set("hive.txn.xlock.write", "true")
    early = world.begin()
    late = world.write(operation=UPDATE, lock=X)
    world.commit(late)
    assert world.lock(early, LockRequest("t", X, UPDATE))["stale"]
    with pytest.raises(WriteConflict):
        world.commit(early)


def test_T40_stale_says_that_a_conflict_committed_before_the_grant(world: World) -> None:
    holder = world.write(operation=UPDATE, lock=X)
    updating = world.begin_request(LockRequest("t", W, UPDATE))
    inserting = world.begin_request(LockRequest("t", W, INSERT))
    world.commit(holder)
    assert world.answer(updating)["stale"] and not world.answer(inserting)["stale"]
    assert not world.write(operation=UPDATE).stale


def test_P6_an_insert_below_a_committed_overwrite_conflicts(world: World) -> None:
    insert, overwrite = world.begin(), world.begin()
    world.allocate(insert.id, "t")
    world.lock(overwrite, LockRequest("t", X, UPDATE))
    world.commit(overwrite, WriteReport("t", None, UPDATE, "base_0000002", counts(1, 1), True))
    world.lock(insert, LockRequest("t", W, INSERT))
    with pytest.raises(WriteConflict, match="an overwrite that would hide it"):
        world.commit(insert)


def test_P6_overwrite_then_write_of_one_entity(world: World) -> None:
    txn = world.write(operation=UPDATE, lock=X)
    base = WriteReport("t", None, UPDATE, "base_0000001", counts(1, 1), True)
    with pytest.raises(OverwriteThenWrite, match="transaction 1 was aborted"):
        world.commit(txn, base, world.report(txn))
    with pytest.raises(TxnAborted):
        world.commit(txn, base)
    assert not world.state.locks


def test_a_report_needs_a_write_lock(world: World) -> None:
    world.create("u")
    txn = world.write()
    report = WriteReport("u", None, INSERT, "delta_0000001_0000001_0000", counts(1, 1))
    with pytest.raises(InvalidDefinition, match=r"default\.u .*without a write lock"):
        world.commit(txn, report)
    assert world.call("outcome_of_txn", txn=txn.id)["state"] == "a" and not world.state.locks
    with pytest.raises(NoSuchPartition):
        world.commit(
            world.write(),
            WriteReport("t", "p=1", INSERT, "delta_0000002_0000002_0000", counts(1, 1)),
        )


@pytest.mark.parametrize(
    ("name", "operation", "overwrite"),
    [
        ("delete_delta_{0}_{0}_0000", DELETE, False),
        ("delete_delta_{0}_{0}_0000", INSERT, False),
        ("delta_{0}_{0}_0000", UPDATE, False),
        ("base_{0}", INSERT, True),
    ],
)
def test_a_commit_changes_rows_only_under_a_lock_that_says_so(
    world: World, name: str, operation: RowOperation, overwrite: bool
) -> None:
    def report(txn: Txn) -> WriteReport:
        directory = name.format(f"{txn.write_ids['default.t']:07d}")
        return WriteReport("t", None, operation, directory, counts(1, 1), overwrite)

    txn = world.write()
    with pytest.raises(InvalidDefinition, match="changes rows, and its lock there is for INSERT"):
        world.commit(txn, report(txn))
    assert world.call("outcome_of_txn", txn=txn.id)["state"] == "a"
    txn = world.write(operation=DELETE)
    world.commit(txn, report(txn))


def test_a_commit_holds_directories_of_its_own_write_id(world: World) -> None:
    txn, other = world.write(), world.write()
    theirs = f"{other.write_ids['default.t']:07d}"
    report = WriteReport("t", None, INSERT, f"delta_{theirs}_{theirs}_0000", counts(1, 1))
    with pytest.raises(InvalidDefinition, match="where it has the write id 1"):
        world.commit(txn, report)
    world.commit(other, report)


def test_transactions_of_a_stream_share_a_directory_of_inserted_rows(world: World) -> None:
    one, other, later = world.write(), world.write(), world.write()
    report = WriteReport("t", None, INSERT, "delta_0000001_0000002", counts(1, 1))
    world.commit(one, report)
    world.commit(other, report)
    with pytest.raises(InvalidDefinition, match="where it has the write id 3"):
        world.commit(later, report)
    deleting = world.write(operation=DELETE)
    deletes = WriteReport("t", None, DELETE, "delete_delta_0000003_0000004_0000", counts(1, 1))
    with pytest.raises(InvalidDefinition, match="where it has the write id 4"):
        world.commit(deleting, deletes)


# --- leases --------------------------------------------------------------------------------------


def test_T39_read_only_commits_leave_no_trace(world: World) -> None:
    reader = world.begin(LockRequest("t", R), kind=TxnType.READ_ONLY)
    world.commit(reader)
    assert not world.state.write_set and not world.state.components and not world.state.locks


def test_P12_a_lease_ends_after_the_last_read(world: World) -> None:
    lease = world.read(["t"])
    world.tick()
    for _ in range(3):
        world.clock.advance(1_500_000)
        world.call("heartbeat_one", txn=lease.id, read=True)
        world.tick()
    hour = 3_600_000
    for _ in range(13):
        world.clock.advance(hour // 12)
        if world.call("heartbeat", txns=[lease.id])["aborted"]:
            break
        world.tick()
    with pytest.raises(SnapshotExpired, match=r"acid\.read\.lease\.max"):
        world.sees(lease)


def test_P12_a_lease_dies_with_its_process(world: World) -> None:
    lease = world.read(["t"])
    world.tick()
    world.tick(TIMEOUT + 1)
    with pytest.raises(SnapshotExpired, match="no heartbeat"):
        world.call("heartbeat_one", txn=lease.id, read=True)


def test_P12_leases_are_shown(world: World) -> None:
    world.begin(kind=TxnType.READ_ONLY, tables=["t"], user="ann")
    row = world.call("transactions")["rows"][0]
    assert (row["type"], row["user"], row["tables"]) == ("READ_ONLY", "ann", ["default.t"])
