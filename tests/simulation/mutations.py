"""Mutations of the metastore: each breaks one rule, by a faulty function in place of the real one.

The simulator has to catch each of them (test_mutations.py), which shows that its invariants are
effective. A mutation refers to functions, not to their text: the code may be renamed and rewritten
as long as the function has the same meaning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from acid_platform.metastore import pasts
from acid_platform.metastore.rules import (
    cleaning,
    commits,
    compactions,
    declared,
    locking,
    machine,
    other_engine_requests,
    reading,
    snapshots,
    table_declarations,
    timers,
    txns,
    write_set,
)
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.turn import Event
from acid_platform.metastore.server import stored_kinds
from acid_platform.metastore.server.group_commit import GroupCommit
from acid_platform.metastore.server.store import Store, Unsaved
from acid_platform.transactions import (
    RowOperation,
    TxnState,
    ValidTxnList,
    ValidWriteIdList,
    concurrency,
)
from acid_platform.transactions.concurrency import LockType
from acid_platform.transactions.row_sets import ColumnSpans, KeyHashes, Region, RowSet
from tests.simulation.simulator import STEADY, WALL
from tests.simulation.storage import MemoryLog

_PACKAGE = "acid_platform."


@dataclass(frozen=True, slots=True)
class Faulty:
    """`faulty` replaces a function or method; it gets the real one before its arguments."""

    rule: str
    what: str
    real: Callable[..., Any]
    faulty: Callable[..., Any]
    seed: int = 1
    """The first seed; a mutation that is hard to catch names a seed that catches it soon."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        real, faulty = self.real, self.faulty

        def replacement(*args: Any, **named: Any) -> Any:
            return faulty(real, *args, **named)

        places = list(_places(real))
        assert places, f"nothing refers to {real.__qualname__}"
        _put(places, replacement)
        try:
            yield
        finally:
            _put(places, real)


@dataclass(frozen=True, slots=True)
class Cell:
    """Inverts one cell of a literal table."""

    rule: str
    what: str
    table: dict[Any, bool]
    key: tuple[Any, Any]
    seed: int = 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        self.table[self.key] = not self.table[self.key]
        try:
            yield
        finally:
            self.table[self.key] = not self.table[self.key]


def _places(real: Callable[..., Any]) -> Iterator[tuple[Any, str]]:
    """Every place that refers to the function: its class, or modules and their tables."""
    owner, _, name = real.__qualname__.rpartition(".")
    if owner:
        yield getattr(sys.modules[real.__module__], owner), name
        return
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_PACKAGE):
            for key, value in list(vars(module).items()):
                if value is real:
                    yield module, key
                elif isinstance(value, dict) and not key.startswith("__"):
                    yield from ((value, entry) for entry in value if value[entry] is real)


def _put(places: list[tuple[Any, str]], function: Any) -> None:
    for holder, key in places:
        if isinstance(holder, dict):
            holder[key] = function
        else:
            setattr(holder, key, function)


# --- ways to be faulty ----------------------------------------------------------------------------


def _without_updates(looked: Any) -> Any:
    return replace(looked, inserted=tuple(looked.new_rows))


def _always(answer: Any) -> Callable[..., Any]:
    """A function that does nothing and always answers this."""
    return lambda _real, *_args, **_named: answer


def _replay_without(kind: type[Event]) -> Callable[..., Any]:
    return lambda real, self, recorded: real(
        self, [record for record in recorded if not isinstance(record.event, kind)]
    )


def _snapshot_without(table: str, lost: Callable[[Any], bool]) -> Callable[..., Any]:
    """A snapshot that leaves some rows of a live table out."""

    def live_rows(real: Any, state: Any, *names: Any) -> Any:
        every = real(state, *names)
        return every | {table: [row for row in every.get(table, ()) if not lost(row)]}

    return live_rows


def _revived(real: Any, turn: Any, operation: Any) -> Any:
    for txn_id in operation.txns:
        if txn_id in turn.state.txns:
            turn.state.txns[txn_id] = replace(turn.state.txns[txn_id], state=TxnState.OPEN)
    return real(turn, operation)


def _unlocked(real: Any, turn: Any, operation: Any) -> Any:
    entry = turn.state.locks.get(operation.ext)
    if entry is None or not entry.acquired:
        return real(turn, operation)
    return turn.record(locking.LockRemoved(ext=entry.ext))


def _write_id_used_twice(real: Any, state: Any, table_id: int, txn_id: int, write_id: int) -> None:
    real(state, table_id, txn_id, write_id)
    state.tables[table_id].next_write_id = max(write_id, 2)


def _new_snapshot(real: Any, event: Any, state: Any, at: int) -> None:
    txn_id = state.locks[event.ext].txn_id
    real(event, state, at)
    if txn_id:
        state.txns[txn_id] = replace(state.txns[txn_id], taken=state.moment())


def _locked_alone(real: Any, state: Any, txn: Any, reports: Any) -> Any:
    """What the lock named, without the partitions that a dynamic write has found."""
    components, reported = real(state, txn, reports)
    dynamic = {row.table_id for row in state.components.get(txn.txn_id, ()) if row.dynamic}
    return [row for row in components if row.table_id not in dynamic], reported


def _every_id_is_seen(real: Any, table: Any, txns: Any) -> ValidWriteIdList:
    listed = real(table, txns)
    return ValidWriteIdList.of(listed.table, listed.high_watermark, (), listed.aborted)


def _last_insert_alone(real: Any, state: Any, row: Any) -> None:
    real(state, row)
    if row.operation is RowOperation.INSERT:
        state.inserts[row.table_id][row.partition] = [row]


def _asleep(real: Any, state: Any, moment: Any) -> None:
    beats = dict(state.heartbeats)
    real(state, moment)
    state.heartbeats = beats


def _floor_forgotten(real: Any, event: Any, state: Any, at: int) -> None:
    table, partition = state.tables[event.row.table_id], event.row.partition
    floors = table.floors.get(partition, ())
    real(event, state, at)
    if partition is not None:
        table.floors[partition] = floors


def _everything_is_gone(real: Any, event: Any, state: Any, at: int) -> None:
    directories = state.directories.get(event.report.entity, {})
    real(replace(event, report=replace(event.report, gone=tuple(directories))), state, at)


def _nothing_is_gone(real: Any, event: Any, state: Any, at: int) -> None:
    real(replace(event, report=replace(event.report, gone=())), state, at)


def _end_of_any(_real: Any, turn: Any, operation: Any) -> None:
    if operation.ext in turn.state.locks:
        turn.record(locking.LockRemoved(ext=operation.ext))


def _no_first_batch(_real: Any, store: Any, epoch: int, now: int) -> None:
    store._epoch = store.end.epoch


def _before_the_end(real: Any, store: Any, *until: Any) -> Any:
    """What was read before an error is lost, and not read again."""
    begun = store.end
    try:
        return real(store, *until)
    except Exception:
        store.end = max(begun, store.end, key=lambda end: end.position)
        return []


_R, _W, _X, _E = (
    LockType.SHARED_READ,
    LockType.SHARED_WRITE,
    LockType.EXCL_WRITE,
    LockType.EXCLUSIVE,
)
_I, _U, _D = RowOperation.INSERT, RowOperation.UPDATE, RowOperation.DELETE
_O = RowOperation.OVERWRITE

# fmt: off
_TABLES = (
    Cell("T31", "two deletes do not conflict", concurrency.CONFLICTING, (_D, _D), 16),
    Cell("T31", "an update does not conflict with a delete", concurrency.CONFLICTING, (_U, _D), 6),
    Cell("T31", "an insert conflicts with an update", concurrency.CONFLICTING, (_I, _U)),
    Cell("L2", "an update goes in beside an exclusive writer", concurrency.WAITS, (_W, _X), 5),
    Cell("L2", "two exclusive writers", concurrency.WAITS, (_X, _X)),
    Cell("L2", "a reader beside a drop", concurrency.WAITS, (_R, _E)),
    Cell("L2", "a drop beside a reader", concurrency.WAITS, (_E, _R)),
    Cell("L2", "readers wait for writers", concurrency.WAITS, (_R, _W)),
    Cell("P30", "an overwrite does not conflict with inserts", concurrency.CONFLICTING, (_O, _I)),
    Cell("P30", "an overwrite conflicts with no delete", concurrency.CONFLICTING, (_O, _D), 6),
    Cell("P30", "two overwrites do not conflict", concurrency.CONFLICTING, (_O, _O), 21),
    Cell("P30", "an insert conflicts with an overwrite", concurrency.CONFLICTING, (_I, _O), 4),
)

_LIFE = (
    Faulty("T7", "a heartbeat revives what was aborted", txns.heartbeat, _revived),
    Faulty("T10", "a commit of an aborted transaction counts", txns.open_now,
           lambda real, state, past, txn_id: (
               state.txns.get(txn_id) or real(state, past, txn_id)), 9),
    Faulty("T13", "the reaper takes those at the timeout too", timers.dead,
           lambda real, state, beats: real(state, {id_: at - 1 for id_, at in beats.items()})),
    Faulty("T16", "locks without a transaction never expire",
           other_engine_requests.expire_alone, _always(None)),
    Faulty("T22", "a write id is used twice", locking.add_write_id, _write_id_used_twice),
    Faulty("P7", "no fresh timeout after a restart", timers.wake, _asleep),
    Faulty("P12", "a lease never ends", machine.end_leases, _always(None), 30),
    Faulty("P29", "everything counts by the wall clock", Machine._turn,
           lambda real, self, moment, *request: real(
               self, replace(moment, steady=moment.wall - WALL + STEADY), *request)),
    Faulty("P29", "a shorter timeout counts before it is known", timers.patience,
           lambda _real, state, _last: state.settings.integer("hive.txn.timeout")),
    Faulty("P3", "replay skips the grants", Machine.replay, _replay_without(locking.LockGranted)),
    Faulty("P3", "replay skips the aborts", Machine.replay, _replay_without(write_set.Aborted)),
    Faulty("P3", "replay skips the purges", Machine.replay,
           _replay_without(machine.Purged), 4),
    Faulty("P3", "a snapshot drops an ended transaction", stored_kinds.ended_rows,
           lambda real, state: (rows := real(state)) | {"txns": rows["txns"][1:]}),
    Faulty("P3", "a snapshot drops the waiting locks", stored_kinds.live_rows,
           _snapshot_without("locks", lambda row: not row["acquired"])),
)

_LOCKS = (
    Faulty("L2", "nobody waits for those who wait", locking.first_block,
           lambda real, state, entry: real(state, replace(entry, ext=0))),
    Faulty("L2", "who waits is never granted", locking.settle, _always(None)),
    Faulty("L3", "the first component decides for all", locking.first_block,
           lambda real, state, entry: real(
               state, replace(entry, components=entry.components[:1]))),
    Faulty("L5", "own locks block", locking.first_block,
           lambda real, state, entry: real(state, replace(entry, txn_id=0))),
    Faulty("L6", "a lock of the database guards nothing", concurrency.same_resource,
           lambda real, first, second: first.table and second.table and real(first, second), 4),
    Faulty("L10", "no read is refused at once", locking.stand_in_line,
           lambda real, turn, entry, needs, _zero_wait=False: real(turn, entry, needs)),
    Faulty("L11", "a wait is never over", locking.expire_waits, _always(None)),
    Faulty("L15", "what a transaction holds may be unlocked", other_engine_requests.unlock,
           _unlocked, 11),
    Faulty("P46", "a publication meets only publications", concurrency.blocked_by,
           lambda real, asked, held: real(
               replace(asked, other_engine=False), replace(held, other_engine=False)), 24),
    Faulty("P46", "somebody ends the publication of a compaction that goes on",
           compactions.ended, _end_of_any, 4),
    Faulty("P48", "a request waits for one that waits for its transaction",
           locking._waits_for, _always(False)),
)

_CONFLICTS = (
    Faulty("T27", "the partitions of a dynamic write are not looked at",
           commits._touched, _locked_alone),
    Faulty("T31", "a commit without the conflict check", write_set.conflict, _always(None)),
    Faulty("T32", "who opened at the commit id does not overlap", concurrency.overlaps,
           lambda _real, mine, theirs: (
               mine.txn_id != theirs.txn_id and mine.txn_id < theirs.commit_id), 20),
    Faulty("T37", "nothing is the same entity", concurrency.same_entity, _always(False)),
    Faulty("T40", "no write is ever stale", txns.stale, _always(False)),
    Faulty("T44", "the write set is purged one commit early", write_set.purge,
           lambda real, state, writers: real(state, writers + 1), 175),
    Faulty("P6", "nothing is said about writes below an overwrite", concurrency.conflicts,
           lambda real, mine, theirs: real(replace(mine, write_id=0), theirs), 27),
    Faulty("P30", "a lock for an overwrite is an overwrite", commits._as_done,
           lambda _real, component, _overwritten: component, 32),
    Faulty("P30", "of inserts the last one alone is kept", write_set.add,
           _last_insert_alone, 147),
    Faulty("P30", "a snapshot forgets the inserts", stored_kinds.live_rows,
           _snapshot_without("write_set", lambda row: row["operation"] == _I.value)),
    Faulty("P30", "no overwrite is told that it is lost", txns.lost_overwrite, _always("")),
    Faulty("P38", "rows that both have changed are overlooked", RowSet.shared, _always([]), 50),
    Faulty("P38", "changes of different rows conflict", RowSet.shared,
           lambda real, *sets: real(*sets) or [(1, 0, 0)], 9),
    Faulty("P38", "the partition rule can't be chosen", write_set.by_row, _always(True), 11),
    Faulty("P38", "the rows of a commit are not kept", write_set.within_memory, _always({}), 9),
    Faulty("P51", "nobody misses what another one inserts", write_set.skew, _always(None), 13),
    Faulty("P51", "what the snapshot sees conflicts", snapshots.snapshot, _always(None), 13),
    Faulty("P51", "all keys meet", Region.meets, _always(True), 13),
    Faulty("P51", "no hashes meet", KeyHashes.meets, _always(False), 65),
    Faulty("P51", "no spans meet", ColumnSpans.meets, _always(False), 65),
    Faulty("P51", "an UPDATE brings no rows", concurrency.missed_by,
           lambda real, looker, other: real(looker, _without_updates(other)), 13),
    Faulty("P51", "columns that no condition reads meet", Region.meets,
           lambda real, one, other: real(replace(one, compared=()), other), 65),
    Faulty("P51", "who gives keys has not looked for them", concurrency.missed_by,
           lambda real, looker, other: real(_without_updates(looker), other), 78),
    Faulty("P51", "a snapshot forgets who looked for what", stored_kinds.live_rows,
           _snapshot_without("looked", lambda _row: True), 13),
    Faulty("P51", "who looked is forgotten one commit early", write_set.purge,
           lambda real, state, writers: real(state, writers + 1), 13),
    *(Cell("P51", f"the cell {key}", concurrency.SKEWED, key, 13) for key in concurrency.SKEWED),
)

_SNAPSHOTS = (
    Faulty("S2", "a snapshot reaches above its own transaction", ValidTxnList.for_reader,
           lambda real, self, me: real(self, max(me, self.high_watermark))),
    Faulty("S4", "each lock takes a new snapshot", locking.LockGranted.apply, _new_snapshot),
    Faulty("S4", "who ended is forgotten while a snapshot lists him",
           machine._still_seen, _always([])),
    Faulty("S8", "open write ids are seen", snapshots.write_ids, _every_id_is_seen),
    Faulty("T45", "the mapping is purged under open snapshots", snapshots.low_mark,
           lambda _real, state: min(
               [state.next_txn, *(txn.txn_id for txn in state.open_txns())]), 11),
    Faulty("P5", "what was purged is not counted", snapshots.write_ids,
           lambda real, table, txns: real(replace(table, purged=0), txns), 5),
    Faulty("P29", "a snapshot is called the newest although its tables were changed since",
           reading._same, _always(True)),
    Faulty("P36", "a past snapshot sees the later commits", pasts.before_commits,
           lambda real, write_ids, txns, _later: real(write_ids, txns, ()), 3),
    Faulty("P36", "a past snapshot sees the next commit", snapshots.commits_after,
           lambda real, *moment: real(*moment)[1:], 3),
)

_DECLARATIONS = (
    Faulty("P22", "a partition made again shows what was dropped", commits.Dropped.apply,
           _floor_forgotten, 20),
    Faulty("P28", "partitions of now instead of then", declared.seen_partitions,
           lambda real, state, _txn, table: real(state, None, table)),
    Faulty("P28", "names and columns of now instead of then", declared.seen_table,
           lambda real, state, _txn, name: real(state, None, name)),
    Faulty("P28", "a change does not look at the version that it read",
           declared.require_version, _always(None)),
    Faulty("P28", "a write goes on after its columns were changed", declared.unchanged,
           lambda real, state, txn, name, _columns=True: real(state, txn, name, False), 17),
    Faulty("P28", "columns are changed while a write waits",
           locking._changed_meanwhile, _always(None), 36),
    Faulty("P28", "a dropped table is forgotten too soon", declared._Ends.table,
           _always(True), 12),
    Faulty("P28", "a snapshot keeps no earlier declarations", stored_kinds.live_rows,
           _snapshot_without("earlier_tables", lambda _row: True)),
)

_CLEANING = (
    Faulty("P4", "aborted write ids are forgotten early", machine._forgettable,
           lambda _real, _state, table, _low: set(table.aborted), 7),
    Faulty("P11", "who asks after a cleaning is not told", locking.may_read, _always(True)),
    Faulty("P21", "a compaction and a Cleaner work on one entity",
           table_declarations.being_cleaned, _always(False)),
    Faulty("P21", "a compaction that was taken away is published", compactions.owned,
           lambda real, state, asked: state.queue.get(asked.id) or real(state, asked), 6),
    Faulty("C26", "a compaction is taken that a lock keeps from its own",
           locking.held_up, _always(None)),
    Faulty("C40", "the Cleaner waits for nobody", snapshots.holders, _always([])),
    Faulty("C41", "the next transaction id without + 1", compactions.CompactionCommitted.apply,
           lambda real, event, state, at: real(
               replace(event, next_txn=event.next_txn - 1), state, at), 64),
    Faulty("C42", "leases of all tables do not count", snapshots.holders,
           lambda real, *below: [txn for txn in real(*below) if not txn.all_tables], 20),
    Faulty("S17", "the Cleaner trusts compactions that not all see", snapshots.cleaner_lists,
           lambda real, state, table, _watermark, *more: real(
               state, table, state.next_txn, *more), 41),
    Faulty("P26", "files are given to who asks after a cleaning",
           locking.check_files, _always(None)),
    Faulty("P26", "the files of commits are not recorded", write_set.place_directory,
           lambda real, state, entity, recorded: (
               real(state, entity, recorded),
               state.contents[entity].pop(recorded.directory.name))),
    Faulty("P26", "a snapshot forgets the files of directories",
           stored_kinds.recorded_rows, _always([])),
    Faulty("P26", "a cleaning forgets every directory",
           cleaning.Cleaned.apply, _everything_is_gone),
    Faulty("P26", "what was cleaned stays known", cleaning.Cleaned.apply, _nothing_is_gone, 2),
    Faulty("P36", "the Cleaner ignores the retention", snapshots.horizon,
           lambda _real, state, _table, _now, _ended=0: state.next_moment, 3),
    Faulty("P36", "the Cleaner ignores tags and who reads the past", snapshots.pins_of,
           _always([]), 9),
)

_LOG = (
    Faulty("P10", "an append does not look at its position", MemoryLog.require_free,
           _always(None)),
    Faulty("P10", "an epoch has no first batch", Store.begin_epoch, _no_first_batch),
    Faulty("P10", "who was replaced goes on with the memory it has", GroupCommit.step_down,
           lambda _real, self: self.end_saving()),
    Faulty("P10", "a leader goes on in the epoch of another", Store._require_leading,
           lambda _real, self: setattr(self, "_epoch", self.end.epoch)),
    Faulty("P3", "memory stays ahead of the log after an append that failed",
           GroupCommit._reload, _always(None)),
    Faulty("P3", "an append that failed may get through later", Store.settle, _always(None)),
    Faulty("P10", "who follows skips what it could not read", Store.follow, _before_the_end, 16),
    Faulty("P3", "memory forgets what came after a snapshot", Unsaved.forget,
           lambda real, _self, state: real(Unsaved.of(state), state)),
)
# fmt: on

MUTATIONS: tuple[Faulty | Cell, ...] = (
    *_TABLES,
    *_LIFE,
    *_LOCKS,
    *_CONFLICTS,
    *_SNAPSHOTS,
    *_DECLARATIONS,
    *_CLEANING,
    *_LOG,
)
