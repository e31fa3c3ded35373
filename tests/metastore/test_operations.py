"""The declarations of operations and events are complete and agree with handlers and effects."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

import pytest

from acid_platform import NoSuchTable
from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.messages import OPERATIONS, MetastoreOperation, answer_type
from acid_platform.metastore.operations.compaction import CompactionTask, DropTask, GetQueue
from acid_platform.metastore.operations.tables import GetLastWriteId
from acid_platform.metastore.operations.transactions import GetLocks, GetOpenTxns
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules import machine, turn
from acid_platform.metastore.rules.turn import EVENTS, Recorded
from acid_platform.metastore.server import group_commit, querying, server, stored_kinds
from tests.metastore.local import local_metastore
from tests.metastore.world import INSERT, E, W, World

HANDLERS = (turn.HANDLERS, group_commit.HANDLERS, querying.HANDLERS, server.HANDLERS)
LINES = [
    json.loads(line) for line in Path(__file__).with_name("journal.jsonl").read_text().splitlines()
]
"""Events as journals of format 1 have them: what is released keeps their form."""


def test_each_operation_has_one_handler_and_each_handler_its_operation() -> None:
    handled = [kind for handlers in HANDLERS for kind in handlers]
    assert len(handled) == len(set(handled))
    assert set(handled) == set(OPERATIONS.values())
    assert all(kind.op == op for op, kind in OPERATIONS.items())


@pytest.mark.parametrize("kind", OPERATIONS.values(), ids=lambda kind: kind.op)
def test_a_handler_takes_and_answers_what_its_operation_declares(
    kind: type[MetastoreOperation[Any]],
) -> None:
    handler = next(handlers[kind] for handlers in HANDLERS if kind in handlers)
    whole = machine.EXPAND.get(kind)
    assert (whole is None) == (kind.outcome is None)
    hints = get_type_hints(handler, localns={"GroupCommit": object})
    assert (hints.get("operation") or hints["_operation"]) is kind
    answers = answer_type(kind)
    assert hints["return"] == (kind.outcome or answers)
    if whole is not None:
        assert get_type_hints(whole)["return"] == answers
        assert issubclass(kind.outcome or NoneType, get_type_hints(whole)["ticket"])


def test_each_event_has_an_effect() -> None:
    assert all("apply" in vars(kind) for kind in EVENTS.values())


def test_what_reads_may_be_sent_again_and_what_expands_may_not() -> None:
    for kind in OPERATIONS.values():
        assert kind.repeatable or not kind.reads
        assert not (kind.outcome and kind.repeatable)


def test_an_operation_that_reads_is_decided_by_the_rules() -> None:
    """It is answered between two rounds, when the file must not be touched."""
    assert {kind for kind in OPERATIONS.values() if kind.reads} <= set(turn.HANDLERS)


def test_each_event_has_its_form_in_the_journal() -> None:
    assert {kind for kind, _, _ in LINES} == set(EVENTS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line[0]}-{line[1]}")
def test_an_event_is_journaled_as_ever(line: list[Any]) -> None:
    recorded = Recorded.parse(*line)
    assert json.loads(json.dumps(recorded.as_json())) == line
    assert all(hasattr(recorded.event, field.name) for field in fields(type(recorded.event)))  # type: ignore[arg-type]


# --- records for our own code, where people get SHOW ----------------------------------------------


def test_the_queue_has_compactions_and_no_drops() -> None:
    world = World()
    world.create(partitioned=True)
    for partition in ("p=1", "p=2"):
        world.insert(partition=partition)
    world.request(partition="p=1")
    txn = world.begin(LockRequest("t", E, None, "p=2"))
    world.call("drop", txn=txn.id, name="t", partition="p=2")
    (task,) = local_metastore(world).call(GetQueue())
    assert (task.partition, task.state) == ("p=1", CompactionState.INITIATED)
    kinds = {row.partition: type(row) for row in world.state.queue.values()}
    assert kinds == {"p=1": CompactionTask, "p=2": DropTask}
    assert [drop.location for drop in world.state.drops()] == ["/w/t/p=2"]
    assert {row["partname"] for row in world.rows()} == {"p=1", "p=2"}


def test_the_last_write_id_counts_open_and_aborted_writers_and_dropped_tables() -> None:
    """fsck compares the directories of a table with it."""
    world = World()
    table_id = world.create()
    metastore = local_metastore(world)
    assert metastore.call(GetLastWriteId(table_id)) == 0
    world.insert()
    txn = world.begin()
    world.allocate(txn.id, "t")
    assert metastore.call(GetLastWriteId(table_id)) == 2
    world.call("abort", txn=txn.id, reason="")
    drop = world.begin(LockRequest("t", E))
    world.call("drop", txn=drop.id, name="t", partition=None)
    assert metastore.call(GetLastWriteId(table_id)) == 2
    with pytest.raises(NoSuchTable, match="no table with the id 99"):
        metastore.call(GetLastWriteId(99))


def test_a_drop_is_one_after_a_snapshot_too() -> None:
    world = World()
    world.create()
    txn = world.begin(LockRequest("t", E))
    world.call("drop", txn=txn.id, name="t", partition=None)
    rows = json.loads(json.dumps(stored_kinds.live_rows(world.state)))
    restored = stored_kinds.restore(rows, stored_kinds.counters(world.state))
    assert list(restored.queue.values()) == list(world.state.queue.values())
    assert [drop.location for drop in restored.drops()] == ["/w/t"]


def test_open_transactions_and_locks_as_records() -> None:
    world = World()
    world.create()
    world.begin(LockRequest("t", E), user="ann")
    world.begin_request(LockRequest("t", W, INSERT), user="bob")
    metastore = local_metastore(world)
    assert [(txn.txn, txn.user) for txn in metastore.call(GetOpenTxns())] == [
        (1, "ann"),
        (2, "bob"),
    ]
    held, waiting = metastore.call(GetLocks())
    assert (held.table, held.lock, held.acquired, held.user) == ("t", E, True, "ann")
    assert (waiting.txn, waiting.acquired, held.blocked_by) == (2, False, "")
    assert "lock 1, transaction 1" in waiting.blocked_by
