"""The log restores the state, by replay and through a snapshot."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from acid_platform import AcidError
from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import encode
from acid_platform.metastore.pasts import CursorMove, SinkBatch
from acid_platform.metastore.records import LockRequest, RowReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import stored_kinds
from acid_platform.metastore.server.store import Store, Unsaved, machine_at
from acid_platform.transactions import TxnType
from acid_platform.transactions.concurrency import LockType
from acid_platform.transactions.row_sets import RowSet
from tests.metastore.world import DELETE, INSERT, UPDATE, Txn, Waits, World

TABLES = ("t", "u")
PARTITIONS = {"t": (None,), "u": ("p=1", "p=2")}


def picture(state: State, *, over: bool = True) -> dict[str, Any]:
    """Everything that has to survive, sorted."""
    rows = stored_kinds.live_rows(state)
    if over:
        rows |= stored_kinds.ended_rows(state)
    text = {
        name: sorted(json.dumps(row, sort_keys=True) for row in part) for name, part in rows.items()
    }
    return {**text, "counters": stored_kinds.counters(state)}


def prepared() -> World:
    world = World()
    world.create()
    world.create("u", partitioned=True)
    world.set("hive.compactor.aborted.txn.time.threshold", "0h")
    world.set("acid.conflict.memory.bytes", "9")  # the second row set makes room for itself (P38)
    return world


class Chaos:
    """Calls chosen by numbers; errors are expected."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.open: list[Txn] = []
        self.compactions: list[tuple[Any, int, int]] = []

    def step(self, action: int, one: int, two: int) -> None:
        table = TABLES[one % 2]
        partition = PARTITIONS[table][two % len(PARTITIONS[table])]
        with suppress(AcidError, Waits):
            self._act(action, table, partition, one, two)

    def _act(self, action: int, table: str, partition: str | None, one: int, two: int) -> None:
        world, operation = self.world, (INSERT, UPDATE, DELETE)[two % 3]
        if action in (0, 1):
            lock = (LockType.SHARED_WRITE, LockType.EXCL_WRITE)[one // 2 % 2]
            dynamic = partition if action else None
            self.open.append(world.write(table, operation, dynamic, lock, wait=two))
        elif action == 2:
            kind = (TxnType.DEFAULT, TxnType.READ_ONLY)[one % 2]
            self.open.append(world.begin(kind=kind, tables=None if two % 2 else [table]))
        elif action in (3, 4, 5) and self.open:
            txn = self.open.pop(one % len(self.open))
            writes = []
            if f"default.{table}" in txn.write_ids and two % 4:
                overwrite = two % 4 == 3
                writes = [world.report(txn, table, partition, operation, overwrite=overwrite)]
            named = RowSet(f"{two}@{one}:{one},{two + 1}")
            changed = [RowReport(table, partition, operation, named)] if one % 3 else []
            world.commit(txn, *writes, changed=changed)
        elif action == 6 and self.open:
            world.abort(self.open.pop(one % len(self.open)))
        elif action == 7 and self.open:
            world.sees(self.open[one % len(self.open)], table)
        elif action == 8 and self.open:
            request = LockRequest(table, LockType.SHARED_READ, None, partition)
            world.lock(self.open[one % len(self.open)], request, wait=1)
        elif action == 9:
            world.request(("major", "minor")[two % 2], table, partition)
        elif action == 10 and (task := world.take_task(f"host-{two}")):
            txn_id, merge = world.begin_compaction(task)
            self.compactions.append((task, txn_id, merge.high_watermark))
        elif action == 11 and self.compactions:
            task, txn_id, high = self.compactions.pop()
            if two % 3 == 0:
                named = {"directories": [f"base_{high:07d}_v{txn_id:07d}"], "wait": two}
                world.send("request_publication", **world.owner(task), txn=txn_id, **named)
            if two % 5 == 0:
                world.call("fail_compaction", **world.owner(task), txn=txn_id, error="x")
            else:
                world.commit_compaction(task, txn_id, f"base_{high:07d}_v{txn_id:07d}")
        elif action == 12 and (ready := world.ready()):
            world.cleaning("start_cleaning", ready[one % len(ready)])
            op = ("mark_cleaned", "cleaning_failed", "cleaning_again")[two % 3]
            more: dict[str, dict[str, Any]] = {
                "mark_cleaned": {"removed": None if one % 2 else [one], "held": [two] * (two % 2)},
                "cleaning_failed": {"error": "x"},
            }
            world.cleaning(op, ready[one % len(ready)], **more.get(op, {}))
        elif action == 13:
            world.tick((two + 1) * 20_000)
        elif action == 14:
            world.call("revoke_workers", host=f"host-{two}")
        elif action == 15 and two == 7:
            txn = world.begin(LockRequest(table, LockType.EXCLUSIVE, None, partition), wait=0)
            world.call("drop", txn=txn.id, name=table, partition=partition)
            if table == "t":
                world.create()
        elif action == 16 and self.open:
            as_of = {"write_id": two, "time": None, "tag": None}
            txn = self.open[one % len(self.open)]
            world.call("past", txn=txn.id, table=table, as_of=as_of)
        elif action == 17:
            if two % 2:
                world.call("drop_tag", table=table, name=str(one // 4))
            else:
                expires = world.clock.moment().wall + two * 20_000 if two % 3 else 0
                made = {"name": str(one // 4), "as_of": None, "expires": expires, "user": ""}
                world.call("create_tag", table=table, **made)
                if two % 5 == 4:
                    world.call("end_history", table=table, partitions=["", f"p={one % 3}"])
        elif action == 18 and self.open:
            asked = LockRequest(table, LockType.EXCL_WRITE, operation, partition)
            txn_id = self.open[one % len(self.open)].id if two % 4 else 0
            lock = encode(asked if txn_id else LockRequest(table, LockType.SHARED_READ))
            more_asked = {"zero_wait": False, "finishes": two % 3 == 0}
            ext = world.call("request_lock", txn=txn_id, locks=[lock], **more_asked)["ext"]
            world.call("check_lock", ext=ext)
        elif action == 19 and self.open:
            # Reads the changes for a consumer, and commits with its cursor, or forgets it.
            consumer, txn = str(one // 5), self.open.pop(one % len(self.open))
            since = {"consumer": consumer}
            found = world.call("changes", txn=txn.id, table=table, since=since, until=None)
            if two == 9:
                world.call("forget_cursor", table=table, consumer=consumer)
            before = (found.get("cursor") or {}).get("moment", 0) + (two == 8)
            move = CursorMove(consumer, table, before, found["after"]["moment"])
            world.call("commit", txn=txn.id, writes=[], cursors=[encode(move)])
        elif action == 20 and self.open:
            # Commits a batch of a stream, perhaps again, or forgets its sink.
            sink, txn = str(one // 5), self.open.pop(one % len(self.open))
            if two == 9:
                world.call("forget_sink", table=table, sink=sink)
            batch = SinkBatch(sink, table, f"q{one % 2}", two, one)
            world.call("commit", txn=txn.id, writes=[], sinks=[encode(batch)])
        elif action == 21:
            world.call("finish_write", table=table, write_id=one)
            for left in world.call("unpublished")["tasks"]:
                world.call("end_publication", ext=left["lock"])
        elif action == 22:
            if two % 2:
                made = {"comment": str(one), "properties": {str(two): "x"}}
                world.call("create_database", name=f"d{one % 3}", if_not_exists=False, **made)
            else:
                change = {"properties": {str(two): str(one)}, "owner": f"o{one}"}
                world.call("alter_database", name=f"d{one % 3}", **change)
        elif action == 23:
            world.call("undrop", table=table, rename=None if two % 2 else f"t{one}")


steps = st.lists(
    st.tuples(st.integers(0, 23), st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=60
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(steps)
def test_P3_replaying_the_events_gives_the_same_state(chosen: list[tuple[int, int, int]]) -> None:
    world = prepared()
    chaos = Chaos(world)
    for step in chosen:
        chaos.step(*step)
    again = Machine()
    again.replay(world.events)
    assert picture(again.state) == picture(world.state)


@pytest.mark.more
@settings(parent=quick, max_examples=12)
@given(steps, st.integers(0, 60), st.integers(0, 10))
def test_P3_the_log_gives_back_the_state(
    chosen: list[tuple[int, int, int]], marked: int, later: int
) -> None:
    """A snapshot of one moment is written from the log and adopted a while later."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = LocalLog(directory)
        log.create()
        log.open_to_append()
        store = Store(log, directory)
        store.load()
        world = prepared()
        chaos = Chaos(world)
        written, position, recent = 0, 0, Unsaved(0, 0, 0, {})
        for number, step in enumerate(chosen):
            chaos.step(*step)
            if number == marked:
                store.append(world.events[written:])
                written = len(world.events)
                position, recent = store.end.position, Unsaved.of(world.state)
            if number == marked + later:
                if written < len(world.events):
                    store.append(world.events[written:])
                    written = len(world.events)
                saver = Store(LocalLog(directory), directory)
                saver.save(machine_at(saver, position).state, 0)
                saver.close()
                store.open_newest()
                recent.forget(world.state)
        if written < len(world.events):
            store.append(world.events[written:])
        assert picture(machine_at(store).state) == picture(world.state)
        store.save(world.state, 0)
        state, events = store.load()
        store.close()
        assert events == []
        assert picture(state, over=False) == picture(world.state, over=False)


@quick
@given(steps)
def test_the_invariants_of_every_state(chosen: list[tuple[int, int, int]]) -> None:
    world = prepared()
    chaos = Chaos(world)
    for step in chosen:
        chaos.step(*step)
        state = world.state
        for table in state.tables.values():
            ids = [row.write_id for row in table.writes]
            assert ids == sorted(set(ids)) and all(
                write_id < table.next_write_id for write_id in ids
            )
            assert table.by_txn == {row.txn_id: row.write_id for row in table.writes}
        working = [row for row in state.queue.values() if row.state is CompactionState.WORKING]
        entities = [(row.table_id, row.partition) for row in working]
        assert len(entities) == len(set(entities))
        for ext, entry in state.locks.items():
            owner = state.txns.get(entry.txn_id)
            ended = owner is None or not owner.is_open
            # A publication outlives its compaction until the output is gone (P46).
            assert entry.ext == ext
            assert not entry.txn_id or not ended or (entry.publishes and entry.acquired)
        alone = {ext for ext, entry in state.locks.items() if not entry.txn_id}
        assert set(state.lock_beats) == alone, "a lock without a transaction has its own heartbeat"
        assert set(state.heartbeats) == {txn.txn_id for txn in state.open_txns()}


@quick
@example([(0, 0, 0), (0, 1, 0), (0, 1, 0), (3, 0, 0), (15, 0, 7)])
@given(steps)
def test_S4_P12_a_snapshot_never_changes(chosen: list[tuple[int, int, int]]) -> None:
    """A lease sees the same of its tables at its end as at its beginning."""
    world = prepared()
    chaos = Chaos(world)
    first: dict[int, tuple[Txn, list[int]]] = {}
    for step in chosen:
        chaos.step(*step)
        if len(first) < 4:
            lease = world.read(["t"] if world.state.names.get("default.t") else [])
            first[lease.id] = lease, _visible(world, lease)
    for lease, seen in first.values():
        try:
            now = _visible(world, lease)
            table = world.state.tables[world.state.names["default.t"]].record
            if table.table_id == 1:
                assert now == seen
            else:  # dropped and created again: another table, in which the lease sees nothing (P22)
                assert all(write_id <= table.floor for write_id in now)
        except AcidError:
            # Reaped, or its table was dropped: it must see nothing.
            ended = world.call("txn_states", txns=[lease.id])["states"][str(lease.id)] != "o"
            assert ended or world.state.names["default.t"] != 1


def _visible(world: World, lease: Txn) -> list[int]:
    listed = world.sees(lease)
    return [write_id for write_id in range(1, 80) if listed.is_valid(write_id)]
