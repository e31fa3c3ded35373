"""The Initiator's, Worker's and Cleaner's cycles over the metastore's own rules: C1 to C25, P9."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import AcidError, LeaseHeld, LockNotAcquired, NoSuchPartition, Warehouse
from acid_platform.base.config import Settings
from acid_platform.compaction.plan import CompactionSettings
from acid_platform.compaction.states import CompactionKind, EntitySize, LiveDirectory, entity_size
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import encode
from acid_platform.metastore.operations.compaction import (
    AbortCompactions,
    CompactionTask,
    DropCleaning,
    GetCleanings,
    GetMoment,
    MarkCleaned,
    RequestCompactions,
    StartCleaning,
    TakeCompaction,
)
from acid_platform.metastore.records import ClientInfo, LockRequest, WriteReport
from acid_platform.metastore.rules.compaction_queue import _bytes, live_size
from acid_platform.metastore.rules.snapshots import compactor_list
from acid_platform.services import cleaner, initiator, worker
from acid_platform.services.cleaner import Fate
from acid_platform.services.initiator import Initiated
from tests.contents import counts
from tests.metastore.local import local_metastore
from tests.metastore.world import INSERT, UPDATE, E, W, World

ONE_DELTA = {"compactorthreshold.hive.compactor.delta.num.threshold": "0"}
MINUTE = 60_000


@pytest.fixture
def world() -> World:
    made = World()
    made.create("t", properties=ONE_DELTA)
    return made


@pytest.fixture
def metastore(world: World) -> Iterator[Metastore]:
    with local_metastore(world) as joined:
        yield joined


def test_C28_a_table_that_is_locked_waits_and_is_compacted_then(
    world: World, metastore: Metastore
) -> None:
    """A DROP or RENAME that is held up must not make the Initiator leave the table alone (C9)."""
    world.insert()
    world.insert()
    for _ in range(4):
        holder = world.begin(LockRequest("t", E))
        cycle(world, metastore)
        assert metastore.call(TakeCompaction("host-1")) is None
        world.abort(holder)
        world.insert()
    task = taken(world, "host-1")
    holder = world.begin(LockRequest("t", E))
    run = worker.CompactionRun(context_of(metastore), task)
    with pytest.raises(LockNotAcquired) as held:
        run.prepare()
    run.fail(held.value)
    assert metastore.call(TakeCompaction("host-1")) is None
    world.abort(holder)
    assert taken(world, "host-1").id == task.id
    assert [row["state"] for row in metastore.compactions()] == ["working"]


def context_of(metastore: Metastore) -> Warehouse:
    return cast(Warehouse, SimpleNamespace(metastore=metastore, info=ClientInfo))


def looked_at(metastore: Metastore, since: int = 0) -> list[str]:
    return [
        candidate.table.removeprefix("default.")
        + (f" {candidate.partition}" if candidate.partition else "")
        for candidate in metastore.candidates(since)
    ]


def cycle(world: World, metastore: Metastore, since: int = 0) -> list[Initiated]:
    return initiator.run(metastore, world.clock.now_ms(), since)


def taken(world: World, worker: str = "host-2") -> CompactionTask:
    task = world.take_task(worker)
    assert task is not None
    return task


def failed(world: World, table: str = "t") -> None:
    """A compaction that was requested, taken, and failed."""
    world.request(table=table)
    world.call("fail_compaction", **world.owner(taken(world)), txn=0, error="no disk")


def rules(decided: list[Initiated]) -> dict[str, str]:
    return {
        initiated.table.removeprefix("default."): initiated.decision.rule for initiated in decided
    }


# --- candidates ---------------------------------------------------------------------------------


def test_C1_the_first_cycle_looks_at_all_later_ones_at_what_changed(
    world: World, metastore: Metastore
) -> None:
    for name in ("quiet", "failed", "aborted"):
        world.create(name)
        world.insert(name)
    assert looked_at(metastore) == ["t", "quiet", "failed", "aborted"]
    world.clock.advance(MINUTE)
    since = metastore.call(GetMoment())
    assert looked_at(metastore, since) == []
    world.insert("t")
    world.abort(world.write("aborted"))
    failed(world, "failed")
    assert looked_at(metastore, since) == ["t", "failed", "aborted"]


def test_C1_who_remembers_less_than_is_asked_for_answers_all(
    world: World, metastore: Metastore
) -> None:
    """A metastore that was started again does not know what changed before."""
    world.insert()
    since = metastore.call(GetMoment())
    world.clock.advance(MINUTE)
    assert looked_at(metastore, since) == []
    world.machine.wake(world.clock.moment())
    assert looked_at(metastore, since) == ["t"]


def test_C1_an_abort_frees_the_high_watermark_for_every_entity_of_its_table(
    world: World, metastore: Metastore
) -> None:
    held = world.write()
    world.insert()
    assert rules(cycle(world, metastore)) == {"t": "C17"}
    world.clock.advance(MINUTE)
    since = metastore.call(GetMoment())
    world.abort(held)
    assert rules(cycle(world, metastore, since)) == {"t": "C18"}


def test_C3_candidates_come_in_pages_of_the_fetch_size(world: World, metastore: Metastore) -> None:
    world.set("hive.compactor.fetch.size", "100")
    world.create("p", partitioned=True)
    for number in range(150):
        world.insert("p", f"p={number}")
    found = looked_at(metastore)
    assert sorted(found) == sorted(["t", *(f"p p={number}" for number in range(150))])
    page = world.call("candidates", since=0, after=None)
    assert len(page["candidates"]) == 100 and page["after"]


def test_C4_C10_what_was_dropped_is_no_candidate(world: World, metastore: Metastore) -> None:
    world.create("p", partitioned=True)
    world.insert("p", "p=1")
    world.insert("p", "p=2")
    metastore.drop("p", "p=1")
    assert looked_at(metastore) == ["t", "p p=2"]
    metastore.drop("p")
    assert looked_at(metastore) == ["t"]


def test_C41_a_dropped_partition_that_waits_is_explained_with_its_holders(
    world: World, metastore: Metastore
) -> None:
    world.create("p", partitioned=True)
    world.insert("p", "p=1")
    with metastore.open_snapshot(["default.p"]) as lease:
        metastore.drop("p", "p=1")
        [waits] = cleaner.explain(metastore)
        assert (waits.table, waits.partition, waits.path) == ("default.p", "p=1", "")
        assert (waits.fate, waits.rule) == (Fate.WAITS, "C41")
        assert [holder.txn for holder in waits.holders] == [lease.id]


def test_C4_a_table_that_is_dropped_during_the_cycle_stops_nothing(
    world: World, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "u"):
        world.create(name, properties=ONE_DELTA)
        world.insert(name)
    world.insert()
    call = metastore.call

    def dropping(operation: Any) -> Any:
        if isinstance(operation, RequestCompactions):
            metastore.drop("default.gone")
        return call(operation)

    monkeypatch.setattr(metastore, "call", dropping)
    assert rules(cycle(world, metastore)) == {"t": "C18", "gone": "C4", "u": "C18"}


def test_C23_one_broken_entity_leaves_a_row_and_the_cycle_goes_on(
    world: World, metastore: Metastore
) -> None:
    """A layout that nobody knows, in a table that was declared before layouts were checked."""
    world.create("b", properties=ONE_DELTA)
    world.create("c", properties=ONE_DELTA)
    for name in ("t", "b", "c"):
        world.insert(name)
    declared = world.state.table("default.b")
    declared.record = replace(declared.record, properties={**ONE_DELTA, "acid.layout": "hive5"})
    assert rules(cycle(world, metastore)) == {"t": "C18", "b": "C23", "c": "C18"}
    assert sorted(world.states()) == ["did not initiate", "initiated", "initiated"]
    [told] = [row for row in world.rows() if row["state"] == "did not initiate"]
    assert "hive5" in told["errormessage"]


def test_case_06_S16_C31_an_open_write_id_bounds_decision_and_result(
    world: World, metastore: Metastore
) -> None:
    """Write id 5 of 1 to 12 is open: what lies above 4 neither counts nor goes into the base."""
    for _ in range(4):
        world.insert()
    held = world.write()
    for _ in range(7):
        world.insert()
    [found] = metastore.candidates()
    assert found.size == EntitySize(delta_bytes=40, delta_directories=4)
    [decided] = cycle(world, metastore)
    assert decided.decision.reason.startswith("4 delta directories")
    task = taken(world)
    _, merge = world.begin_compaction(task)
    assert (merge.high_watermark, merge.is_valid(6)) == (4, False)
    world.abort(held)


def test_case_07_C5_without_auto_compaction_a_request_by_hand_works(
    world: World, metastore: Metastore
) -> None:
    world.insert()
    metastore.alter_table("t", properties={"no_auto_compaction": "TRUE"})
    assert rules(cycle(world, metastore)) == {"t": "C5"}
    assert world.request() == 1


def test_case_11_C9_after_two_failures_only_a_request_by_hand(
    world: World, metastore: Metastore
) -> None:
    world.insert()
    for _ in range(2):
        failed(world)
    [decided] = cycle(world, metastore)
    assert (decided.decision.rule, decided.id) == ("C9", None)
    assert world.states() == ["failed", "failed", "did not initiate"]
    assert world.request() == 4


def test_case_35_C7_C20_insert_only(world: World, metastore: Metastore) -> None:
    insert_only = {
        "transactional_properties": "insert_only",
        "compactorthreshold.hive.compactor.delta.pct.threshold": "99",
    }
    world.create("i", properties=insert_only)
    world.overwrite("i")
    for _ in range(11):
        world.insert("i")
    decided = {initiated.table: initiated for initiated in cycle(world, metastore)}["default.i"]
    assert (decided.decision.rule, decided.decision.kind) == ("C20", CompactionKind.MINOR)
    world.set("hive.compactor.compact.insert.only", "false")
    assert rules(initiator.explain(metastore, world.clock.now_ms()))["i"] == "C6"
    world.call("abort_compactions", ids=[decided.id])
    assert rules(initiator.explain(metastore, world.clock.now_ms()))["i"] == "C7"


# --- counters -----------------------------------------------------------------------------------


STEPS = ("insert", "delete", "overwrite", "open", "commit", "abort", "minor", "major")


@settings(max_examples=60)
@given(st.data())
def test_C13_the_counters_are_those_of_the_selection(data: st.DataObject) -> None:
    """What is noted at each commit against the selection itself, after any history."""
    world = World()
    world.create()
    opened: list[Any] = []
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=14)):
        match step:
            case "insert":
                world.insert(rows=data.draw(st.integers(1, 5)))
            case "delete":
                txn = world.write(operation=UPDATE)
                world.commit(txn, world.report(txn), world.report(txn, statement=1))
            case "overwrite":
                if not opened:
                    world.overwrite()
            case "open":
                opened.append(world.write())
            case "commit" if opened:
                txn = opened.pop(data.draw(st.integers(0, len(opened) - 1)))
                try:
                    world.commit(txn, world.report(txn))
                except AcidError:
                    continue
            case "abort" if opened:
                world.abort(opened.pop())
            case "major" | "minor":
                _compact(world, step)
    entity = world.entity()
    state = world.state
    listed = compactor_list(state, state.tables[1])
    reference = entity_size(
        [LiveDirectory(directory.name, _bytes(directory)) for directory in entity.directories],
        listed,
    )
    assert live_size(entity.directories, listed) == reference


def _compact(world: World, kind: str) -> None:
    """Publishes what a compaction of the live directories would."""
    high = compactor_list(world.state, world.state.tables[1]).high_watermark
    live = [
        directory
        for directory in world.entity().directories
        if not directory.obsolete and not directory.base and directory.high <= high
    ]
    if len(live) < 2:
        return
    try:
        world.request(kind)
    except AcidError:
        return
    task = taken(world)
    txn, merge = world.begin_compaction(task)
    if kind == "major":
        name = f"base_{merge.high_watermark:07d}_v{txn:07d}"
    else:
        low = min(directory.low for directory in live)
        name = f"delta_{low:07d}_{max(directory.high for directory in live):07d}_v{txn:07d}"
    world.commit_compaction(task, txn, name)


def test_C13_original_files_count_without_a_base() -> None:
    world = World()
    original = WriteReport("t", None, INSERT, "", counts(3, 500))
    world.call(
        "adopt_table",
        txn_id=0,
        write_id=0,
        aborted=[],
        partitions=[],
        table={"name": "t", "location": "/w/t", "columns": [["id", "int"]]},
        directories=[encode(original)],
    )
    world.insert()
    with local_metastore(world) as metastore:
        [found] = metastore.candidates()
    assert found.size == EntitySize(reference_bytes=500, delta_bytes=10, delta_directories=1)


# --- jobs ---------------------------------------------------------------------------------------


HIVES, NEWER, OLDER = (
    f"compactor.{name}"
    for name in ("hive.compactor.job.queue", "mapreduce.job.queuename", "mapred.job.queue.name")
)


@pytest.mark.parametrize(
    ("request_", "table", "expected"),
    [
        ({}, {}, "nightly"),
        ({}, {HIVES: "t"}, "t"),
        ({}, {NEWER: "mr"}, "mr"),
        ({}, {OLDER: "old", NEWER: "mr"}, "mr"),
        ({HIVES: "now"}, {HIVES: "t"}, "now"),
        ({NEWER: "now"}, {HIVES: "t"}, "now"),
    ],
)
def test_C22_the_queue_of_a_job(
    request_: dict[str, str], table: dict[str, str], expected: str
) -> None:
    warehouse = Settings.of({"hive.compactor.job.queue": "nightly"})
    assert CompactionSettings.of(warehouse, request_, table).pool == expected


# --- revocation, leases -------------------------------------------------------------------------


def test_C25_each_cycle_revokes_workers_that_timed_out(world: World, metastore: Metastore) -> None:
    """The row stays with its worker until then, and is taken again after."""
    world.set("hive.compactor.worker.timeout", "60s")
    world.insert()
    world.request()
    task = taken(world, "host-1.1")
    cycle(world, metastore)
    assert world.states() == ["working"]
    world.clock.advance(MINUTE + 1)
    cycle(world, metastore)
    assert world.states() == ["initiated"]
    again = taken(world, "host-2.1")
    assert (again.id, again.attempt) == (task.id, 2)


def test_C25_a_worker_that_starts_frees_what_dead_processes_of_its_host_had(
    world: World, metastore: Metastore
) -> None:
    host = socket.gethostname()
    workers = [
        f"{host}-{os.getpid()}.1",
        f"{host}-999999999.1",
        "elsewhere-999999999.1",
        f"{host}-0a1b2c3d-999999999.1",
    ]
    for number, name in enumerate(workers):
        world.create(f"t{number}")
        world.insert(f"t{number}")
        world.request(table=f"t{number}")
        taken(world, name)
    assert worker.revoke_dead(metastore) == [2]
    assert world.states() == ["working", "initiated", "working", "working"]


def test_P9_one_holds_the_lease_and_a_dead_holder_loses_it(
    world: World, metastore: Metastore
) -> None:
    world.insert()
    world.call("hold_service", service="Initiator", holder="other-1.1")
    with pytest.raises(LeaseHeld, match=r"other-1\.1 runs a cycle of the Initiator"):
        cycle(world, metastore)
    assert world.states() == []
    assert cleaner.run(metastore) == [], "the Cleaner has a lease of its own"
    world.clock.advance(300_001)
    assert rules(cycle(world, metastore)) == {"t": "C18"}
    world.call("hold_service", service="Initiator", holder="other-1.1")
    world.call("release_service", service="Initiator", holder="not mine")
    with pytest.raises(LeaseHeld):
        cycle(world, metastore)


def test_P9_whoever_lost_the_lease_stops_between_two_tasks(
    world: World, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create("u")
    for name in ("t", "u"):
        world.insert(name)
        world.request(table=name)
        task = taken(world)
        txn, _ = world.begin_compaction(task)
        world.commit_compaction(task, txn, f"base_0000001_v{txn:07d}")
    assert len(metastore.call(GetCleanings()).ready) == 2
    seen: list[str] = []

    def slow(joined: Metastore, task: Any) -> None:
        seen.append(task.table)
        world.clock.advance(300_001)
        world.call("hold_service", service="Cleaner", holder="other-1.1")

    monkeypatch.setattr(cleaner, "_clean", slow)
    with pytest.raises(LeaseHeld):
        cleaner.run(metastore)
    assert seen == ["default.t"]


# --- aborts without a partition -------------------------------------------------------------------


def test_C33_aborted_dynamic_partitions_go_straight_to_the_cleaner(
    metastore: Metastore, world: World
) -> None:
    world.set("hive.compactor.clean.aborts.using.cleaner", "false")
    world.create("p", partitioned=True)
    world.insert("p", "p=1")
    with pytest.raises(NoSuchPartition):
        world.request(table="p")
    world.abort(world.begin(LockRequest("p", W, INSERT, None, dynamic=True)))
    cycle(world, metastore)
    assert world.states() == []
    world.clock.advance(13 * 3_600_000)
    [decided] = [initiated for initiated in cycle(world, metastore) if initiated.id]
    assert (decided.partition, decided.decision.rule) == (None, "C12")
    assert world.states() == ["ready for cleaning"]
    [task] = world.ready()
    assert task.partition is None and task.write_ids.aborted == (2,)
    world.clean(task)
    assert world.states() == ["succeeded"]
    assert world.snapshot_text()


def test_C37_only_rows_that_are_ready_for_cleaning_are_cleaned(world: World) -> None:
    world.insert()
    world.request()
    assert world.ready() == []
    task = taken(world)
    assert world.ready() == []
    txn, _ = world.begin_compaction(task)
    assert world.ready() == []
    world.commit_compaction(task, txn, f"base_0000001_v{txn:07d}")
    [ready] = world.ready()
    assert ready.id == task.id
    world.clean(ready)
    assert world.ready() == []


def test_case_26_C44_a_table_that_was_dropped_before_its_cleaning(
    world: World, metastore: Metastore
) -> None:
    """The drop's own row takes the place of the compaction's, and succeeds."""
    world.insert()
    world.compact()
    metastore.drop("t")
    [task] = metastore.call(GetCleanings()).ready
    assert isinstance(task, DropCleaning)
    metastore.call(StartCleaning.of(task))
    metastore.call(MarkCleaned.of(task, task.highest_write_id, None))
    assert world.states() == ["succeeded"]
    assert metastore.call(GetCleanings()).ready == [] == metastore.call(GetCleanings()).blocked


def test_case_32_C59_waiting_ends_with_the_work_or_after_the_timeout_and_cancels_nothing(
    world: World, metastore: Metastore
) -> None:
    world.insert()
    number = world.request()
    assert metastore.wait_compaction(number, timeout=0.05)["state"] == "initiated"
    assert world.states() == ["initiated"]
    task = taken(world)
    assert metastore.wait_compaction(number, timeout=0.05)["state"] == "working"
    txn, _ = world.begin_compaction(task)
    world.commit_compaction(task, txn, f"base_0000001_v{txn:07d}")
    assert metastore.wait_compaction(number)["state"] == "ready for cleaning"
    messages = metastore.call(AbortCompactions((number, 99)))
    assert "not aborted: it is ready for cleaning" in messages[number]
    assert "unknown" in messages[99]
