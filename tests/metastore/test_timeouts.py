"""Timeouts follow the steady clock, and what clients know about them (P7, P29)."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acid_platform import CompactionLost, LeaseHeld, LockTimeout, TooManyOpenTxns
from acid_platform.base.clock import MAX_STEP_MS, SystemClock
from acid_platform.metastore.client.open_transaction import Heartbeats, OpenTransaction
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import encode
from acid_platform.metastore.operations.compaction import GetMoment
from acid_platform.metastore.operations.listings import GetOutcome
from acid_platform.metastore.operations.tables import DeclareDatabase
from acid_platform.metastore.operations.transactions import Alive, Granted, Heartbeat
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server import stored_kinds
from acid_platform.metastore.server.group_commit import GroupCommit, outcome
from acid_platform.metastore.server.group_commit import Request as Asked
from acid_platform.metastore.server.store import Store
from acid_platform.services import initiator
from acid_platform.transactions import TxnType, ValidTxnList
from tests.clocks import ManualClock
from tests.metastore.local import local_metastore
from tests.metastore.processes import until
from tests.metastore.world import INSERT, E, W, Waits, World

DAY, TIMEOUT = 86_400_000, 300_000
LONG = 180_000
"""Longer than the reaper's interval and its start delay."""

jumps = pytest.mark.parametrize("jump", [-DAY, DAY])


def state(world: World, txn: int) -> str:
    found: str = world.call("outcome_of_txn", txn=txn)["state"]
    return found


def reopened(world: World, saved: bool = False) -> None:
    """The metastore restarts, from a snapshot or from all events."""
    if saved:
        rows, counters = stored_kinds.live_rows(world.state), stored_kinds.counters(world.state)
        again = Machine(stored_kinds.restore(rows, counters))
    else:
        again = Machine()
        again.replay(world.events)
    again.wake(world.clock.moment())
    world.machine = again


# --- the wall clock jumps ------------------------------------------------------------------------


@jumps
def test_P29_a_jump_of_the_wall_clock_aborts_nobody_and_stops_no_reaper(
    world: World, jump: int
) -> None:
    alive, lost, lease = world.write(), world.write(), world.read()
    world.tick(LONG)
    world.clock.set_wall(jump)
    world.tick()
    assert [state(world, txn.id) for txn in (alive, lost, lease)] == ["o", "o", "o"]
    world.call("heartbeat", txns=[alive.id, lease.id])
    world.tick(TIMEOUT - LONG + 1)
    world.tick(LONG - 1)
    assert [state(world, txn.id) for txn in (alive, lost, lease)] == ["o", "a", "o"]


@jumps
def test_P29_P12_a_lease_ends_its_maximum_after_the_last_read(world: World, jump: int) -> None:
    lease = world.read()
    world.clock.set_wall(jump)
    for _ in range(36):
        world.call("heartbeat", txns=[lease.id])
        world.tick(100_000)
    assert state(world, lease.id) == "o"
    world.tick(1)
    assert state(world, lease.id) == "a"


@jumps
def test_P29_L11_a_lock_request_waits_as_long_as_it_asked(world: World, jump: int) -> None:
    world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT), wait=60)
    world.clock.set_wall(jump)
    world.tick(59_999)
    with pytest.raises(Waits):
        world.answer(waiting)
    world.tick(1)
    with pytest.raises(LockTimeout, match="within 60 s"):
        world.answer(waiting)


@jumps
def test_P29_P7_a_restart_gives_a_waiting_lock_its_whole_time_again(
    world: World, jump: int
) -> None:
    world.begin(LockRequest("t", E))
    waiting = world.begin_request(LockRequest("t", W, INSERT), wait=60)
    world.tick(59_999)
    world.clock.set_wall(jump)
    reopened(world)
    world.tick(59_999)
    with pytest.raises(Waits):
        world.answer(waiting)
    world.tick(1)
    with pytest.raises(LockTimeout, match="within 60 s"):
        world.answer(waiting)


@jumps
def test_P29_T16_a_lock_without_a_transaction_lives_by_its_own_heartbeats(
    world: World, jump: int
) -> None:
    ext = world.call("lock_alone", locks=[encode(LockRequest("t", E))], wait=0)["ext"]
    world.tick(LONG)
    world.clock.set_wall(jump)
    world.tick(TIMEOUT - LONG)
    assert world.call("locks")["rows"]
    world.call("heartbeat_lock", ext=ext)
    world.tick(TIMEOUT)
    assert world.call("locks")["rows"]
    world.tick(LONG)
    assert not world.call("locks")["rows"]


@jumps
def test_P29_T2_the_gauge_is_counted_at_its_interval(world: World, jump: int) -> None:
    world.set("hive.max.open.txns", "2")
    world.begin()
    world.begin()
    world.clock.set_wall(jump)
    world.begin()
    world.clock.advance(1000)
    with pytest.raises(TooManyOpenTxns):
        world.begin()


@jumps
def test_P29_P9_a_service_keeps_its_lease_for_one_timeout(world: World, jump: int) -> None:
    world.call("hold_service", service="Cleaner", holder="one")
    world.clock.set_wall(jump)
    world.clock.advance(TIMEOUT)
    with pytest.raises(LeaseHeld):
        world.call("hold_service", service="Cleaner", holder="other")
    world.clock.advance(1)
    world.call("hold_service", service="Cleaner", holder="other")


@jumps
@pytest.mark.parametrize("restart", [False, True])
def test_P29_P21_a_dead_cleaner_blocks_its_entity_for_one_timeout(
    world: World, jump: int, restart: bool
) -> None:
    world.insert()
    world.insert()
    world.compact()
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.clock.set_wall(jump)
    if restart:
        reopened(world)
    world.clock.advance(TIMEOUT - 1)
    assert [blocked["reason"] for blocked in world.blocked()] == ["a Cleaner is at work on it"]
    world.clock.advance(1)
    assert [ready.id for ready in world.ready()] == [task.id]


@jumps
def test_P29_C38_delayed_cleanup_waits_exactly_the_retention(world: World, jump: int) -> None:
    """Foreign readers hold no lease: a clock set forward must not remove their files (P25)."""
    world.set("hive.compactor.delayed.cleanup.enabled", "true")
    world.insert()
    world.insert()
    world.compact()
    world.clock.set_wall(jump)
    world.clock.advance(300_000)
    until_then = world.clock.now_ms()
    (blocked,) = world.blocked()
    assert blocked["reason"] == f"delayed cleanup, until {until_then}"
    world.clock.advance(1)
    assert len(world.ready()) == 1


@jumps
@pytest.mark.parametrize("restart", [False, True])
def test_P29_C48_a_failed_cleaning_is_tried_again_after_its_wait(
    world: World, jump: int, restart: bool
) -> None:
    world.insert()
    world.insert()
    world.compact()
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.cleaning("cleaning_failed", task, error="no network")
    world.clock.set_wall(jump)
    if restart:
        reopened(world)  # how much time has passed is unknown: at most the whole wait is left
    if not restart or jump < 0:
        world.clock.advance(299_999)
        assert "no network" in world.blocked()[0]["reason"]
        world.clock.advance(1)
    assert [ready.id for ready in world.ready()] == [task.id]


@jumps
def test_P29_C54_a_failed_cleaning_of_aborts_is_retried(world: World, jump: int) -> None:
    world.set("hive.compactor.abortedtxn.threshold", "0")
    world.abort(world.write())
    (task,) = world.ready()
    world.cleaning("start_cleaning", task)
    world.cleaning("cleaning_failed", task, error="no network")
    world.clock.set_wall(jump)
    world.clock.advance(299_999)
    assert "no network" in world.blocked()[0]["reason"]
    world.clock.advance(1)
    assert len(world.ready()) == 1


@jumps
@pytest.mark.parametrize("restart", [False, True])
def test_P29_C25_a_worker_at_work_is_not_revoked(world: World, jump: int, restart: bool) -> None:
    world.set("hive.compactor.worker.timeout", "1000s")
    world.insert()
    world.insert()
    world.request()
    task = world.take_task()
    assert task is not None
    txn, _ = world.begin_compaction(task)
    world.clock.set_wall(jump)
    if restart:
        reopened(world)
    world.clock.advance(1_000_000)
    assert world.call("revoke_workers", host=None)["ids"] == []
    world.clock.advance(1)
    assert world.call("revoke_workers", host=None)["ids"] == [task.id]
    with pytest.raises(CompactionLost):
        world.commit_compaction(task, txn)


@jumps
def test_P29_C1_the_initiator_misses_nothing_that_changed(world: World, jump: int) -> None:
    metastore = local_metastore(world)
    world.insert()
    since = metastore.call(GetMoment())
    assert not initiator.run(metastore, world.clock.now_ms(), since)
    world.clock.set_wall(jump)
    world.insert()
    assert [request.table for request in initiator.run(metastore, world.clock.now_ms(), since)] == [
        "default.t"
    ]
    since = metastore.call(GetMoment())
    reopened(world)
    assert len(initiator.run(metastore, world.clock.now_ms(), since)) == 1


@jumps
def test_P29_listings_show_times_by_the_present_wall_clock(world: World, jump: int) -> None:
    txn = world.write()
    world.clock.advance(5000)
    world.clock.set_wall(jump)
    world.clock.advance(2000)
    (row,) = world.call("transactions")["rows"]
    assert row["lastheartbeattime"] == world.clock.now_ms() - 7000
    assert world.call("locks")["rows"][0]["last_heartbeat"] == world.clock.now_ms() - 7000
    world.commit(txn)
    assert world.state.ended[txn.id].ended == world.clock.now_ms()


def test_P29_P3_a_clock_set_forward_forgets_no_outcome(tmp_path: Path) -> None:
    clock = ManualClock()
    log = LocalLog(tmp_path)
    log.create()
    log.open_to_append()
    commits = GroupCommit(Store(log, tmp_path), clock)
    commits.lead()
    commits.round([Asked("one", DeclareDatabase("d", if_not_exists=False))], None)
    for passed, seen in ((0, "done"), (DAY + 1, "unseen")):
        clock.set_wall(30 * DAY)
        clock.advance(passed)
        commits.round([Asked(seen, DeclareDatabase(seen, if_not_exists=False))], None)
        commits.save()
        assert (outcome(commits, GetOutcome("one")) is None) == (seen == "unseen")
    commits.close()


def test_P29_time_while_the_process_was_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While suspended the metastore hears of no client, so their silence proves nothing."""
    passed = [7_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: passed[0])
    clock = SystemClock()
    first = clock.moment().steady
    passed[0] += 1_500_000_000
    assert clock.moment().steady == first + 1500
    passed[0] += 3600 * 1_000_000_000
    assert clock.moment().steady == first + 1500 + MAX_STEP_MS


# --- the timeout changes -------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["no", "replayed", "saved"])
def test_P29_a_shorter_timeout_spares_uninformed_clients(world: World, restart: str) -> None:
    """Silent clients were told 150 s between heartbeats; the others learnt of 3 s."""
    ignorant, told = world.write(), world.write()
    world.set("hive.timedout.txn.reaper.start", "0s")
    world.set("hive.timedout.txn.reaper.interval", "1s")
    world.clock.advance(1)
    world.set("hive.txn.timeout", "6s")
    world.clock.advance(1)
    assert world.call("heartbeat", txns=[told.id])["interval"] == 3000
    later = world.write()
    if restart != "no":
        reopened(world, restart == "saved")
    world.clock.advance(1)
    for txn in (told, later):
        assert world.call("heartbeat_one", txn=txn.id, read=False) == {"interval": 3000}
    world.tick(6000)
    assert {state(world, txn.id) for txn in (ignorant, told, later)} == {"o"}
    world.tick(1000)
    assert [state(world, txn.id) for txn in (ignorant, told, later)] == ["o", "a", "a"]
    world.tick(TIMEOUT - 7010)
    assert state(world, ignorant.id) == "o"
    world.call("heartbeat", txns=[ignorant.id])
    world.tick(6000)
    assert state(world, ignorant.id) == "o"
    world.tick(1000)
    assert state(world, ignorant.id) == "a"
    assert world.state.longest_timeout == 0
    reopened(world)
    last = world.write()
    world.clock.advance(7001)
    world.tick()
    assert state(world, last.id) == "a"


def test_P29_a_silent_client_gets_one_old_timeout(world: World) -> None:
    lost = world.write()
    world.tick(LONG)
    world.set("hive.txn.timeout", "6s")
    world.tick(TIMEOUT - LONG)
    assert state(world, lost.id) == "o"
    world.tick(LONG)
    assert state(world, lost.id) == "a"


def test_P29_a_shorter_timeout_counts_at_once_if_no_client_knows_the_longer(world: World) -> None:
    world.set("hive.txn.timeout", "6s")
    reopened(world)
    txn = world.write()
    world.clock.advance(LONG)
    world.tick()
    assert state(world, txn.id) == "a"


def test_P29_a_longer_timeout_counts_at_once(world: World) -> None:
    world.set("hive.txn.timeout", "6s")
    world.clock.advance(1)
    txn = world.write()
    world.set("hive.txn.timeout", "600s")
    world.tick(600_000)
    assert state(world, txn.id) == "o"
    world.tick(LONG)
    assert state(world, txn.id) == "a"


def test_P29_each_answer_about_a_transaction_has_the_interval(world: World) -> None:
    mine, other = local_metastore(world), local_metastore(world)
    assert mine.beats.interval == other.beats.interval == 150
    txn = other.begin()
    mine.set("hive.txn.timeout", "6s")
    assert (mine.beats.interval, other.beats.interval) == (3, 150)
    txn.heartbeat()
    assert other.beats.interval == 3
    mine.set("acid.heartbeat.interval", "1s")
    txn.lock("t", "SHARED_READ")
    assert (mine.beats.interval, other.beats.interval) == (1, 1)
    for connected in (mine, other):
        connected.close()


class Answers:
    """A metastore that counts heartbeats and answers an interval of a minute."""

    beats = 0

    def call(self, operation: Heartbeat) -> Alive:
        self.beats += 1
        return Alive([], [], 60_000)

    def close(self) -> None:
        """Does nothing: there is no connection."""


def test_P29_a_shorter_interval_brings_the_next_heartbeat_forward() -> None:
    link: Any = Answers()
    beats = Heartbeats(link)
    granted = Granted(1, ValidTxnList.parse("9:9::"), {}, {}, False, "", 60_000, {})
    metastore: Any = SimpleNamespace(call=link.call, beats=beats)
    txn = OpenTransaction(metastore, TxnType.DEFAULT, granted)
    until(lambda: beats._shares)
    beats.learn(1)
    until(lambda: link.beats == 1)
    assert not txn.ended and beats.interval == 60
    beats.close()
