"""The compaction queue (C24 to C33, C57 to C62, P21) and the Initiator's view."""

from __future__ import annotations

import pytest

from acid_platform import (
    AlreadyScheduled,
    CompactionLost,
    CompactionRefused,
    InvalidDefinition,
    LockNotAcquired,
    NoSuchPartition,
    TxnAborted,
)
from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.metastore.operations.compaction import CompactionTask
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import ValidTxnList
from tests.metastore.world import DELETE, INSERT, UPDATE, E, R, World, X


def taken(world: World) -> CompactionTask:
    task = world.take_task()
    assert task is not None
    return task


def test_C24_one_request_per_entity(world: World) -> None:
    world.insert()
    number = world.request()
    with pytest.raises(AlreadyScheduled, match=rf"compaction {number} of default\.t is initiated"):
        world.request()
    taken(world)
    with pytest.raises(AlreadyScheduled, match="is working"):
        world.request()


def test_C24_an_initiators_wishes_are_written_at_once_and_each_has_its_own_answer(
    world: World,
) -> None:
    world.create("u")
    for name in ("t", "u"):
        world.insert(name)
    asked = ("u", "nobody", "t", "u")
    wishes = [
        {"table": name, "partition": None, "kind": "major", "initiator": "i-1"} for name in asked
    ]
    answers = world.call("request_compactions", wishes=wishes)["answers"]
    errors = [answer["error"][0] if "error" in answer else answer["id"] for answer in answers]
    assert errors == [1, "NoSuchTable", 2, "AlreadyScheduled"]
    assert "compaction 1 of default.u" in answers[3]["error"][1]
    assert [row["initiatorhost"] for row in world.rows()] == ["i", "i"]
    with pytest.raises(AlreadyScheduled, match="compaction 2"):
        world.request()


def test_C24_ready_for_cleaning_blocks_until_something_is_written(world: World) -> None:
    world.insert()
    reader = world.read(["t"])
    world.compact()
    with pytest.raises(AlreadyScheduled, match="nothing was written since"):
        world.request()
    world.insert()
    assert world.request() == 2
    world.commit(reader)


def test_C27_C58_what_is_refused() -> None:
    world = World()
    world.create(partitioned=True)
    world.create("u")
    world.insert(partition="p=1")
    with pytest.raises(CompactionRefused, match="rebalance"):
        world.request("rebalance", "u")
    with pytest.raises(NoSuchPartition):
        world.request()
    with pytest.raises(NoSuchPartition):
        world.request(partition="p=2")
    assert world.request("MAJOR", partition="P=1") == 1


def test_C26_tasks_are_taken_in_order_and_once() -> None:
    world = World()
    world.create(partitioned=True)
    for name in ("p=1", "p=2"):
        world.insert(partition=name)
        world.request(partition=name)
    first, second = taken(world), taken(world)
    assert (first.id, second.id, first.attempt, first.worker) == (1, 2, 1, "host-2")
    assert world.take_task() is None
    assert first.job == "host-2-compactor-default.t.p=1"


def test_C28_the_transaction_of_a_compaction(world: World) -> None:
    world.insert()
    world.request()
    task = taken(world)
    answer = world.call("begin_compaction", **world.owner(task), info={})
    own = answer["txn"]
    assert ValidTxnList.parse(answer["valid_txns"]).open == (own,)
    assert answer["write_ids"] == {} and world.state.table("t").next_write_id == 2
    (component,) = world.state.components[own]
    assert (component.operation.value, component.write_id) == ("c", 1)
    assert world.state.queue[task.id].txn_id == own


def test_C28_exclusive_lock_puts_the_task_back(world: World) -> None:
    world.insert()
    world.request()
    task = taken(world)
    dropping = world.begin(LockRequest("t", E))
    with pytest.raises(LockNotAcquired):
        world.begin_compaction(task)
    world.call("fail_compaction", **world.owner(task), txn=None, error="locked", again=True)
    assert world.states() == ["initiated"]
    world.commit(dropping)
    assert world.entity().directories[0].obsolete is False
    assert taken(world).attempt == 2


def test_C26_a_task_waits_while_a_lock_keeps_it_from_its_own(world: World) -> None:
    world.insert()
    world.request()
    reader = world.begin(LockRequest("t", R))
    world.begin_request(LockRequest("t", E))  # waits for the reader
    for _ in range(3):
        assert world.call("take_compaction", worker="w")["task"] is None
    assert world.states() == ["initiated"]
    world.commit(reader)
    assert world.call("take_compaction", worker="w")["task"] is None  # now it is granted
    world.tick(301_000)  # its client has died
    assert taken(world).attempt == 1


def test_C30_commit_is_one_step(world: World) -> None:
    world.insert()
    world.insert()
    reader = world.begin()
    row = world.compact()
    assert row.state is CompactionState.READY_FOR_CLEANING and row.worker == ""
    assert row.next_txn_id == world.state.next_txn == reader.id + 2
    assert row.commit_time == world.clock.now_ms() and row.highest_write_id == 2
    kept = {directory.name: directory.obsolete for directory in world.entity().directories}
    assert kept == {
        "delta_0000001_0000001_0000": True,
        "delta_0000002_0000002_0000": True,
        f"base_0000002_v{row.txn_id:07d}": False,
    }
    assert world.call("outcome_of_txn", txn=row.txn_id)["state"] == "c"


def test_C36_writes_go_on_during_a_compaction(world: World) -> None:
    world.insert()
    world.request()
    task = taken(world)
    txn, _ = world.begin_compaction(task)
    world.insert()
    world.commit_compaction(task, txn, f"base_0000001_v{txn:07d}")
    live = [directory.name for directory in world.entity().directories if not directory.obsolete]
    assert live == ["delta_0000002_0000002_0000", f"base_0000001_v{txn:07d}"]


def test_C31_minor_results_replace_what_they_merged(world: World) -> None:
    for _ in range(3):
        world.insert()
    txn = world.write(operation=DELETE)
    world.commit(txn, world.report(txn, operation=DELETE))
    world.request("minor")
    task = taken(world)
    own, _ = world.begin_compaction(task)
    world.commit_compaction(
        task, own, f"delta_0000001_0000003_v{own:07d}", f"delete_delta_0000004_0000004_v{own:07d}"
    )
    live = [directory.name for directory in world.entity().directories if not directory.obsolete]
    assert live == [
        f"delta_0000001_0000003_v{own:07d}",
        f"delete_delta_0000004_0000004_v{own:07d}",
    ]


def test_statements_of_one_write_do_not_replace_each_other(world: World) -> None:
    txn = world.write()
    world.commit(txn, world.report(txn), world.report(txn, statement=1))
    assert [directory.obsolete for directory in world.entity().directories] == [False, False]


def test_P21_only_the_owner_publishes(world: World) -> None:
    world.insert()
    world.request()
    slow = taken(world)
    txn, _ = world.begin_compaction(slow)
    assert world.call("revoke_workers", host="host")["ids"] == [slow.id]
    quick = taken(world)
    assert quick.attempt == 2
    with pytest.raises(CompactionLost, match="attempt 1 of host-2"):
        world.commit_compaction(slow, txn, f"base_0000001_v{txn:07d}")
    assert world.call("outcome_of_txn", txn=txn)["state"] == "a"
    own, _ = world.begin_compaction(quick)
    world.commit_compaction(quick, own, f"base_0000001_v{own:07d}")
    with pytest.raises(CompactionLost):
        world.call("fail_compaction", **world.owner(slow), txn=txn, error="late")
    assert [directory.name for directory in world.entity().directories if directory.base] == [
        f"base_0000001_v{own:07d}"
    ]


def test_P21_one_attempt_has_one_transaction(world: World) -> None:
    world.insert()
    world.request()
    task = taken(world)
    world.begin_compaction(task)
    with pytest.raises(CompactionLost, match="open already"):
        world.begin_compaction(task)


def test_P2_a_reaped_compaction_does_not_publish(world: World) -> None:
    world.insert()
    world.request()
    task = taken(world)
    txn, _ = world.begin_compaction(task)
    world.tick(300_001)
    with pytest.raises(TxnAborted):
        world.commit_compaction(task, txn, f"base_0000001_v{txn:07d}")
    assert [directory.base for directory in world.entity().directories] == [False]


def test_a_compaction_ends_only_by_its_own_commit(world: World) -> None:
    world.insert()
    world.request()
    txn, _ = world.begin_compaction(taken(world))
    with pytest.raises(InvalidDefinition, match="commit_compaction"):
        world.call("commit", txn=txn, writes=[])


@pytest.mark.parametrize(
    ("to_cleaning", "state"), [(True, "ready for cleaning"), (False, "refused")]
)
def test_C29_nothing_to_do(world: World, to_cleaning: bool, state: str) -> None:
    world.insert()
    world.request()
    task = taken(world)
    txn, _ = world.begin_compaction(task)
    world.call(
        "compaction_nothing_to_do",
        **world.owner(task),
        txn=txn,
        to_cleaning=to_cleaning,
        reason="only a base",
    )
    (row,) = world.rows()
    assert (row["state"], row["errormessage"]) == (state, "only a base")
    assert world.call("outcome_of_txn", txn=txn)["state"] == "c"


def test_C32_failure_keeps_the_table_and_excludes_the_output(world: World) -> None:
    world.insert()
    world.request()
    task = taken(world)
    txn, _ = world.begin_compaction(task)
    world.call("fail_compaction", **world.owner(task), txn=txn, error="disk full")
    (row,) = world.rows()
    assert (row["state"], row["errormessage"]) == ("failed", "disk full")
    assert world.begin().valid_txns.is_aborted(txn)
    assert world.entity().history[0].state is CompactionState.FAILED


def test_C25_revocation(world: World) -> None:
    world.create("u")
    world.insert()
    world.insert("u")
    world.request()
    world.request(table="u")
    mine, other = taken(world), world.take_task("elsewhere-9")
    assert other is not None
    assert world.call("revoke_workers", host="host")["ids"] == [mine.id]
    assert world.call("revoke_workers", host=None)["ids"] == []
    world.clock.advance(86_400_001)
    assert world.call("revoke_workers", host=None)["ids"] == [other.id]
    assert [row["workerid"] for row in world.rows()] == ["None", "None"]


def test_C60_abort_compactions(world: World) -> None:
    world.create("u")
    world.insert()
    world.insert("u")
    world.request()
    world.request(table="u")
    taken(world)
    messages = world.call("abort_compactions", ids=[1, 2, 9])["messages"]
    assert messages == {
        "1": "not aborted: it is working, not initiated",
        "2": "aborted",
        "9": "not aborted: it is unknown, not initiated",
    }
    assert world.states() == ["working", "aborted"]
    with pytest.raises(InvalidDefinition):
        world.call("abort_compactions", ids=[])


COLUMNS = [
    "compactionid",
    "dbname",
    "tabname",
    "partname",
    "type",
    "state",
    "workerhost",
    "workerid",
    "enqueuetime",
    "starttime",
    "duration",
    "hadoopjobid",
    "errormessage",
    "initiatorhost",
    "initiatorid",
    "poolname",
    "txnid",
    "nexttxnid",
    "committime",
    "highestwriteid",
]


def test_C61_C62_show_compactions(world: World) -> None:
    world.insert()
    world.request()
    (row,) = world.rows()
    assert list(row) == COLUMNS
    assert (row["state"], row["workerid"], row["partname"]) == ("initiated", "None", "None")
    assert (row["initiatorhost"], row["initiatorid"]) == ("host", "1")
    taken(world)
    (row,) = world.rows()
    assert (row["workerhost"], row["workerid"]) == ("host", "2")
    assert row["hadoopjobid"] == "host-2-compactor-default.t"
    assert world.call("compaction", id=1)["ended"] is False
    with pytest.raises(CompactionRefused, match="no compaction 7"):
        world.call("compaction", id=7)


def test_C9_did_not_initiate(world: World) -> None:
    world.call("record_not_initiated", table="t", partition=None, reason="two failures")
    assert world.states() == ["did not initiate"]
    assert world.entity().history[0].state is CompactionState.DID_NOT_INITIATE


def past(
    world: World,
    state: CompactionState,
    count: int,
    age_days: int = 0,
    kind: CompactionKind = CompactionKind.MAJOR,
) -> None:
    rows = world.state.past.setdefault((1, None), [])
    for _ in range(count):
        number = world.state.next_compaction
        world.state.next_compaction += 1
        ended = world.clock.now_ms() - age_days * 86_400_000
        rows.append(CompactionTask(number, "default.t", 1, None, state, kind=kind, ended=ended))


def test_C57_retention_counts(world: World) -> None:
    for state, count in (
        (CompactionState.SUCCEEDED, 5),
        (CompactionState.FAILED, 4),
        (CompactionState.DID_NOT_INITIATE, 3),
        (CompactionState.REFUSED, 4),
    ):
        past(world, state, count)
    world.tick()
    left = [row["compactionid"] for row in world.rows()]
    assert left == [3, 4, 5, 7, 8, 9, 11, 12, 14, 15, 16]


def test_C57_failed_rows_that_the_failure_check_needs_stay(world: World) -> None:
    world.set("hive.compactor.history.retention.failed", "1")
    past(world, CompactionState.FAILED, 4)
    world.tick()
    assert [row["compactionid"] for row in world.rows()] == [3, 4]


def test_C57_old_failures_go_after_a_success(world: World) -> None:
    past(world, CompactionState.FAILED, 1, age_days=8)
    past(world, CompactionState.SUCCEEDED, 1, kind=CompactionKind.MAJOR)
    past(world, CompactionState.REFUSED, 1, age_days=8)
    world.tick()
    assert world.states() == ["succeeded", "refused"]


# --- what the Initiator sees ---------------------------------------------------------------------


def test_P8_entities_come_from_reports() -> None:
    world = World()
    world.create(partitioned=True)
    world.insert(partition="p=1", rows=5)
    world.overwrite(partition="p=1")
    world.write()
    first, second = world.entity("p=1").directories
    assert (first.name, first.obsolete, first.rows, first.bytes, first.txn) == (
        "delta_0000001_0000001_0000",
        True,
        5,
        50,
        1,
    )
    assert (second.base, second.low, second.high, second.obsolete) == (True, 2, 2, False)
    assert world.entity("p=1").write_ids.high_watermark == 2


def test_C2_aborted_transactions_are_counted_per_entity(world: World) -> None:
    started = world.clock.now_ms()
    for _ in range(2):
        world.abort(world.write(operation=UPDATE))
        world.clock.advance(1000)
    world.write("t", INSERT)
    assert (world.entity().aborted, world.entity().oldest_abort) == (2, started)


def test_C6_queue_state_and_history(world: World) -> None:
    world.insert()
    assert world.entity().queued is None
    world.request()
    assert world.entity().queued is CompactionState.INITIATED
    taken(world)
    assert world.entity().queued is CompactionState.WORKING


def test_P8_history_of_a_table(world: World) -> None:
    world.insert(rows=3)
    txn = world.write(operation=UPDATE, lock=X)
    world.commit(txn, world.report(txn, operation=UPDATE, rows=2))
    rows = [
        (written.write_id, written.operation.value, written.rows, written.txn)
        for written in world.state.written
    ]
    assert rows == [(1, "i", 3, 1), (2, "u", 2, 2)]


def test_C16_what_an_overwrite_replaced_is_cleaned_without_a_worker(world: World) -> None:
    """There is nothing to merge; but what the past, or a later delta, needs is as ever."""
    wish = {"table": "t", "partition": None, "kind": "major", "properties": {}, "initiator": "i"}
    world.overwrite()
    world.overwrite()
    world.call("request_compaction", **wish, obsolete_base=True)
    assert world.states() == ["ready for cleaning"] and world.take_task() is None
    world.clean(world.ready()[0])
    assert [d.name for d in world.entity().directories] == ["base_0000002"]
    world.set("acid.history.retention", "1h")
    world.overwrite()
    world.call("request_compaction", **wish, obsolete_base=True)
    assert not world.ready() and "acid.history.retention" in world.blocked()[0]["reason"]
    world.tick(3_600_001)
    world.clean(world.ready()[0])
    world.overwrite()
    world.insert()
    world.call("request_compaction", **wish, obsolete_base=True)
    assert world.take_task() is not None, "a delta is to be merged"
