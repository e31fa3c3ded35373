"""Mutations of the metastore: each deliberately breaks a rule in one place.

The simulator has to catch every mutation (test_mutations.py), which shows that its invariants are
effective. A mutation names the rule, the function, a text in the function and its replacement. It
fails to apply if the text is gone, so the list can't become stale unnoticed.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from acid_platform.metastore import pasts
from acid_platform.metastore.rules import (
    cleaning,
    cleaning_survey,
    commits,
    compaction_queue,
    compactions,
    declared,
    drops,
    foreign_transactions,
    history,
    housekeeping,
    lock_index,
    lock_requests,
    locking,
    machine,
    manifests,
    publications,
    reading,
    snapshots,
    time_travel,
    timers,
    txns,
    write_set,
)
from acid_platform.metastore.server import state_rows
from acid_platform.transactions import Operation, conflicts, lists, locks, row_sets
from acid_platform.transactions.locks import LockType
from tests.simulation.simulator import STEADY, WALL

_PACKAGES = ("acid_platform.metastore.", "acid_platform.transactions.")


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` becomes `new` in the source of a function, or of a method as `Class.method`."""

    rule: str
    what: str
    module: ModuleType
    function: str
    old: str
    new: str
    seed: int = 1
    """The first seed; a mutation that is hard to catch names a seed that catches it soon."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        owner, _, name = self.function.rpartition(".")
        holder: Any = getattr(self.module, owner) if owner else self.module
        real: FunctionType = getattr(holder, name)
        source = textwrap.dedent(inspect.getsource(real))
        assert source.count(self.old) == 1, f"{self.function} has {self.old!r} not exactly once"
        scope = vars(self.module)
        made: dict[str, Any] = {}
        exec(
            "from __future__ import annotations\n" + source.replace(self.old, self.new), scope, made
        )
        places = list(_places(real)) if not owner else [(holder, name)]
        _put(places, made[name])
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


def _places(real: FunctionType) -> Iterator[tuple[Any, str]]:
    """Every place that refers to the function, including tables of handlers and effects."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith(_PACKAGES):
            continue
        for key, value in list(vars(module).items()):
            if value is real:
                yield module, key
            elif key in ("APPLY", "HANDLERS", "EXPAND"):
                for op, handler in value.items():
                    if handler is real:
                        yield value, op


def _put(places: list[tuple[Any, str]], function: Any) -> None:
    for holder, key in places:
        if isinstance(holder, dict):
            holder[key] = function
        else:
            setattr(holder, key, function)


_R, _W, _X, _E = (
    LockType.SHARED_READ,
    LockType.SHARED_WRITE,
    LockType.EXCL_WRITE,
    LockType.EXCLUSIVE,
)
_I, _U, _D = Operation.INSERT, Operation.UPDATE, Operation.DELETE
_O = Operation.OVERWRITE

_EARLY_WRITE_IDS = """\
for touched in entry.touches:
        if entry.txn_id not in turn.state.tables[touched.table_id].by_txn:
            turn.record(events.WriteIdAllocated(entry.txn_id, touched.table_id,
                        turn.state.tables[touched.table_id].next_write_id, ()))
    if blocked:
        raise Parked"""

_RULE_S10 = """\
mapped = [row.write_id for row in table.writes if row.write_id <= high]
    if mapped and all(own in aborted or own in hidden for own in mapped):
        return ValidWriteIdList.of(table.record.name, min(mapped), (), (min(mapped),))
    return ValidWriteIdList.of("""

_ALL_THAT_IS_SEEN = """\
and write_ids(table, seen) == write_ids(table, now)
        and seen_partitions(state, txn, table) == seen_partitions(state, None, table)
        and _same_directories(state, seen, table)"""
"""Each of the three notices a commit, so that without one of them the others do."""

MUTATIONS: tuple[Edit | Cell, ...] = (
    Edit(
        "T7",
        "a heartbeat revives what was aborted",
        txns,
        "heartbeat",
        "if txn and txn.is_open:\n",
        "if txn:\n            turn.state.txns[txn_id] = replace(txn, state=TxnState.OPEN)\n",
    ),
    Edit(
        "T10",
        "a commit of an aborted transaction counts",
        txns,
        "open_now",
        "if txn is not None and txn.is_open:",
        "if txn is not None:",
        seed=9,
    ),
    Edit(
        "T11",
        "an abort keeps the locks",
        commits,
        "close",
        "for ext in list(state.locks_by_txn.get(txn_id, ())):",
        "for ext in list(state.locks_by_txn.get(txn_id, ())) if commit_id else ():",
    ),
    Edit(
        "T13",
        "the reaper takes those at the timeout too",
        timers,
        "dead",
        "now = state.timers.now",
        "now = state.timers.now + 1",
    ),
    Edit(
        "T16",
        "locks without a transaction never expire",
        locking,
        "expire_alone",
        "dead(turn.state, turn.state.lock_beats)",
        "[]",
    ),
    Edit(
        "T16",
        "locks without a transaction do not compete",
        locking,
        "first_block",
        "if 0 != other.txn_id == entry.txn_id:",
        "if other.txn_id == entry.txn_id:",
        seed=25,
    ),
    Edit(
        "L15",
        "what a transaction holds may be unlocked",
        locking,
        "unlock",
        "if entry.txn_id and entry.acquired:",
        "if False:",
        seed=11,
    ),
    Edit(
        "T18",
        "a second allocation gives another write id",
        txns,
        "_allocate",
        "if write_id is None:",
        "if True:",
    ),
    Edit(
        "T22",
        "a write id is used twice",
        locking,
        "add_write_id",
        "table.next_write_id = write_id + 1",
        "table.next_write_id = max(write_id, 2)",
    ),
    Edit(
        "T27",
        "the partitions of a dynamic write are not looked at",
        commits,
        "_touched",
        "if written not in final:",
        "if written not in final and not cover[0].dynamic:",
    ),
    Edit(
        "T31",
        "a commit without the conflict check",
        commits,
        "commit",
        "write_set.conflict(turn.state, txn, components, changed)",
        "None",
    ),
    Edit(
        "T32",
        "who opened at the commit id does not overlap",
        conflicts,
        "overlaps",
        "mine.txn_id <= theirs.commit_id",
        "mine.txn_id < theirs.commit_id",
        seed=20,
    ),
    Cell("T31", "two deletes do not conflict", conflicts.CONFLICTING, (_D, _D), seed=16),
    Cell(
        "T31", "an update does not conflict with a delete", conflicts.CONFLICTING, (_U, _D), seed=6
    ),
    Cell("T31", "an insert conflicts with an update", conflicts.CONFLICTING, (_I, _U)),
    Edit(
        "T37",
        "all partitions are one",
        conflicts,
        "same_entity",
        "mine.table_id == theirs.table_id and mine.partition == theirs.partition",
        "mine.table_id == theirs.table_id and mine.partition != theirs.partition",
    ),
    Edit(
        "P38",
        "rows that both have changed are overlooked",
        row_sets,
        "RowSet.shared",
        "found.append((write_id, bucket, row))",
        "pass",
    ),
    Edit(
        "P38",
        "changes of different rows conflict",
        conflicts,
        "conflicts",
        "if rows else None",
        "",
    ),
    Edit(
        "P38",
        "a commit that names no rows is taken for one that changed none",
        conflicts,
        "conflicts",
        'return f"{reason}, and {unnamed} did not name its rows"',
        "return None",
    ),
    Edit(
        "P38",
        "what exceeds the memory is taken for unchanged",
        write_set,
        "forget_rows",
        "replace(row, rows=None)",
        "replace(row, rows=RowSet())",
        seed=182,
    ),
    Edit(
        "P38",
        "rows are dropped while a concurrent writer is open",
        write_set,
        "forget_rows",
        "for by_partition in state.write_set.values():",
        "for by_partition in state.write_set.values():\n"
        "        for partition in by_partition:\n"
        "            by_partition[partition] = [\n"
        "                row for row in by_partition[partition] if row.commit_id > upto\n"
        "            ]",
        seed=2,
    ),
    Edit(
        "P38",
        "commits with the id of the transaction are not compared",
        write_set,
        "_since",
        "bisect_left(rows, txn_id,",
        "bisect_left(rows, txn_id + 1,",
        seed=20,
    ),
    Edit(
        "P38",
        "the partition rule can't be chosen",
        write_set,
        "by_row",
        'chosen.lower() == "row"',
        "True",
        seed=3,
    ),
    Edit(
        "P38",
        "the rows of a commit are not kept",
        commits,
        "_kept",
        "return changed",
        "return {}",
    ),
    Edit(
        "P38",
        "a fold loses the changed rows",
        state_rows,
        "keyed_row",
        "**(value if isinstance(value, dict) else encode(value)),",
        "**(value if isinstance(value, dict) else encode(value)),\n"
        "        **_OMITTED.get(table, {}),",
    ),
    Edit(
        "T44",
        "the write set is purged one commit early",
        write_set,
        "purge",
        "row.commit_id >= writers",
        "row.commit_id > writers",
        seed=175,
    ),
    Edit(
        "T45",
        "the mapping is purged under open snapshots",
        snapshots,
        "low_mark",
        "if first(departed.txn_id) < departed.closed",
        "if False",
    ),
    Edit(
        "P29",
        "a snapshot is called the newest although something was committed since",
        reading,
        "_same",
        _ALL_THAT_IS_SEEN,
        "and True",
    ),
    Edit(
        "P29",
        "a snapshot is called the newest although the table was changed since",
        reading,
        "_same",
        "and record == table.record",
        "and True",
    ),
    Edit(
        "P29",
        "a writer's own snapshot serves other reads",
        reading,
        "is_newest",
        "seen is None or txn.kind is not TxnType.READ_ONLY",
        "seen is None",
    ),
    Edit(
        "S1",
        "open transactions are left out of the snapshot",
        snapshots,
        "_list_at",
        "txn.kind is not TxnType.READ_ONLY",
        "txn.kind is TxnType.COMPACTION",
    ),
    Edit(
        "S2",
        "a snapshot reaches above its own transaction",
        lists,
        "ValidTxnList.for_reader",
        "min(me, self.high_watermark)",
        "self.high_watermark",
    ),
    Edit(
        "S4",
        "each lock takes a new snapshot",
        locking,
        "_grant",
        "if not txn.has_snapshot:",
        "if True:",
    ),
    Edit(
        "S8",
        "write ids above the snapshot are not hidden",
        snapshots,
        "write_ids",
        "hidden.update(write_id for write_id in above if write_id < high)",
        "pass",
    ),
    Edit(
        "L2",
        "nobody waits for those who wait",
        locking,
        "first_block",
        "if other.ext >= entry.ext and not other.acquired:",
        "if not other.acquired:",
    ),
    Edit(
        "S4",
        "who ended since is not in the snapshot any more",
        snapshots,
        "_list_at",
        "for departed in reversed(state.departed):",
        "for departed in ():",
    ),
    Edit(
        "S4",
        "who ended is forgotten while a snapshot lists him",
        housekeeping,
        "_still_seen",
        "if first(departed.txn_id) < departed.gone",
        "if False",
    ),
    Edit(
        "L2",
        "who waits is never granted",
        locking,
        "settle",
        "elif first_block(turn.state, entry) is None:",
        "elif not turn.state.locks:",
    ),
    Edit(
        "L3",
        "the first component decides for all",
        locking,
        "first_block",
        "for component in entry.components:",
        "for component in entry.components[:1]:",
    ),
    Edit(
        "L5",
        "own locks block",
        locking,
        "first_block",
        "if 0 != other.txn_id == entry.txn_id:",
        "if False:",
    ),
    Edit(
        "L6",
        "a lock of the database guards nothing",
        locks,
        "same_resource",
        "return True\n    if first.table != second.table:",
        "return False\n    if first.table != second.table:",
        seed=4,
    ),
    Edit(
        "L10",
        "no read is refused at once",
        locking,
        "stand_in_line",
        "if zero_wait and blocked.asked.lock",
        "if False and blocked.asked.lock",
    ),
    Edit(
        "L11",
        "a wait is never over",
        locking,
        "expire_waits",
        "entry is None or turn.state.timers.wait_ends[ext] > turn.steady",
        "True",
    ),
    Cell("L2", "an update goes in beside an exclusive writer", locks.WAITS, (_W, _X)),
    Cell("L2", "two exclusive writers", locks.WAITS, (_X, _X)),
    Cell("L2", "a reader beside a drop", locks.WAITS, (_R, _E)),
    Cell("L2", "a drop beside a reader", locks.WAITS, (_E, _R)),
    Cell("L2", "readers wait for writers", locks.WAITS, (_R, _W)),
    Edit(
        "P3",
        "the outcome is not kept",
        machine,
        "Machine.handle",
        "if turn.events and not repeatable:",
        "if False:",
    ),
    Edit(
        "P3",
        "replay skips the grants",
        machine,
        "Machine.replay",
        "for record in recorded:",
        "for record in (event for event in recorded if event.kind != 'grant'):",
    ),
    Edit(
        "P3",
        "replay skips the aborts",
        machine,
        "Machine.replay",
        "for record in recorded:",
        "for record in (event for event in recorded if event.kind != 'abort'):",
    ),
    Edit(
        "P3",
        "replay skips the purges",
        machine,
        "Machine.replay",
        "for record in recorded:",
        "for record in (event for event in recorded if event.kind != 'purged'):",
        seed=4,
    ),
    Edit(
        "P3",
        "a fold drops an ended transaction",
        state_rows,
        "ended_rows",
        "_encoded(state.ended.values())",
        "_encoded(list(state.ended.values())[1:])",
    ),
    Edit(
        "P3",
        "a fold drops the waiting locks",
        state_rows,
        "keyed",
        "for entry in state.locks.values()",
        "for entry in state.locks.values() if entry.acquired",
    ),
    Edit(
        "P3",
        "a fold forgets the aborted write ids",
        state_rows,
        "_table_row",
        '"aborted": ranges(table.aborted)',
        '"aborted": []',
        seed=7,
    ),
    Edit(
        "P4",
        "aborted write ids are forgotten early",
        housekeeping,
        "_forgettable",
        "if write_id <= top} - mapped - waiting",
        "}",
        seed=7,
    ),
    Edit(
        "P4",
        "an aborted compaction is forgotten with its files",
        cleaning,
        "_cleaned",
        "kept.append(replace(component, cleaned=True))",
        "pass",
        seed=58,
    ),
    Edit(
        "P5",
        "rule S10 instead of the purged watermark",
        snapshots,
        "write_ids",
        "return ValidWriteIdList.of(",
        _RULE_S10,
        seed=6,
    ),
    Edit(
        "P5",
        "what was purged is not counted",
        snapshots,
        "write_ids",
        "high, above = table.purged, []",
        "high, above = 0, []",
        seed=5,
    ),
    Edit(
        "P6",
        "write ids come before the locks",
        locking,
        "stand_in_line",
        "if blocked:\n        raise Parked",
        _EARLY_WRITE_IDS,
    ),
    Edit(
        "P6",
        "nothing is said about writes below an overwrite",
        conflicts,
        "conflicts",
        "if overwritten and",
        "if False and",
        seed=4,
    ),
    Edit(
        "P6",
        "a commit that is refused leaves its transaction open",
        commits,
        "commit",
        "end(turn, txn.txn_id,",
        "conflict and end(turn, txn.txn_id,",
        seed=5,
    ),
    Cell("P30", "an overwrite does not conflict with inserts", conflicts.CONFLICTING, (_O, _I)),
    Cell(
        "P30",
        "an overwrite does not conflict with a delete",
        conflicts.CONFLICTING,
        (_O, _D),
        seed=6,
    ),
    Cell("P30", "two overwrites do not conflict", conflicts.CONFLICTING, (_O, _O), seed=21),
    Cell(
        "P30",
        "a delete does not conflict with an overwrite",
        conflicts.CONFLICTING,
        (_D, _O),
        seed=19,
    ),
    Cell("P30", "an insert conflicts with an overwrite", conflicts.CONFLICTING, (_I, _O), seed=4),
    Cell("P30", "an update conflicts with an insert", conflicts.CONFLICTING, (_U, _I)),
    Edit(
        "P30",
        "inserts are left out of the write set",
        commits,
        "_commit",
        "if row.operation is Operation.INSERT and",
        "if False and",
    ),
    Edit(
        "P30",
        "an insert was committed when it began",
        commits,
        "_commit",
        "event.commit_id,\n                    row.write_id",
        "txn_id,\n                    row.write_id",
    ),
    Edit(
        "P30",
        "an overwrite is an update",
        commits,
        "_touched",
        "Operation.OVERWRITE if report.overwrite",
        "Operation.UPDATE if report.overwrite",
    ),
    Edit(
        "P30",
        "a lock for an overwrite is an overwrite",
        commits,
        "_as_done",
        "return replace(component, operation=Operation.UPDATE)",
        "return component",
        seed=22,
    ),
    Edit(
        "P30",
        "an overwrite conflicts with what it has seen",
        write_set,
        "conflict",
        "if serial or touched.operation is Operation.OVERWRITE:",
        "if serial:",
        seed=6,
    ),
    Edit(
        "P30",
        "an overwrite conflicts with nothing that came before its grant",
        write_set,
        "conflict",
        "seen is not None and seen.is_valid(theirs.txn_id)",
        "theirs.commit_id <= txn.txn_id",
        seed=3,
    ),
    Edit(
        "P30",
        "of inserts the last one alone is kept",
        write_set,
        "add",
        "[*highest, row]",
        "[row]",
        seed=106,
    ),
    Edit(
        "P30",
        "of inserts the one of the highest transaction alone is kept",
        write_set,
        "add",
        "[*highest, row]",
        "highest or [row]",
        seed=3,
    ),
    Edit(
        "P30",
        "a fold forgets the inserts",
        write_set,
        "every_row",
        "(state.write_set, state.inserts)",
        "(state.write_set,)",
    ),
    Edit(
        "P30",
        "dynamic overwrites are lost by a commit into any partition",
        locking,
        "lost_overwrite",
        "and not touched.dynamic",
        "",
    ),
    Edit(
        "P30",
        "no overwrite is told that it is lost",
        locking,
        "lost_overwrite",
        "touched.operation is Operation.OVERWRITE and",
        "False and",
    ),
    Edit(
        "T40",
        "what was inserted makes no snapshot stale",
        locking,
        "stale",
        "entry.touches",
        "[touched for touched in entry.touches if touched.operation.value != 'o']",
    ),
    Edit(
        "T40",
        "dynamic writes are never stale",
        locking,
        "stale",
        "entry.touches",
        "[touched for touched in entry.touches if not touched.dynamic]",
    ),
    Edit(
        "P7",
        "no fresh timeout after a restart",
        timers,
        "wake",
        "state.heartbeats[txn.txn_id] = now",
        "pass",
    ),
    Edit(
        "P11",
        "who asks after a cleaning is not told",
        lock_requests,
        "may_read",
        "return asked or",
        "return True or",
    ),
    Edit(
        "P12", "a lease never ends", housekeeping, "end_leases", "turn.steady - most", "0", seed=10
    ),
    Edit(
        "P21",
        "a compaction begins under the Cleaner's hands",
        compaction_queue,
        "take",
        " and not being_cleaned(state, entity)",
        "",
    ),
    Edit(
        "C26",
        "a compaction is taken that a lock keeps from its own",
        compaction_queue,
        "take",
        " or locking.held_up(state, row)",
        "",
    ),
    Edit(
        "P21",
        "a cleaning begins while a compaction works",
        cleaning_survey,
        "survey",
        "if entity in working:",
        "if False:",
    ),
    Edit(
        "P21",
        "a compaction that was taken away is published",
        compactions,
        "owned",
        "row.state is not _W or (row.worker, row.attempt) != owner",
        "row.worker is None",
        seed=6,
    ),
    Edit(
        "P22",
        "a partition made again shows what was dropped",
        drops,
        "_dropped",
        "(*former.floors, row.highest_write_id)",
        "former.floors",
        seed=2,
    ),
    Edit(
        "P26",
        "a fold forgets the files of directories",
        state_rows,
        "recorded_rows",
        "if name in directories(",
        "if name not in directories(",
    ),
    Edit(
        "P26",
        "a fold forgets the files of what was dropped",
        state_rows,
        "recorded_rows",
        "directories(state, (table_id, partition))",
        "state.directories.get((table_id, partition), {})",
        seed=133,
    ),
    Edit(
        "P26",
        "files of before the last fold are not looked up",
        manifests,
        "_recorded",
        "if lacking else {}",
        "if False else {}",
    ),
    Edit(
        "P26",
        "files are looked up for entities without new ones alone",
        manifests,
        "_recorded",
        "directory.recorded and name not in state.contents.get((table_id, partition), {})",
        "directory.recorded and (table_id, partition) not in state.contents",
    ),
    Edit(
        "P26",
        "files are forgotten with a dropped partition",
        drops,
        "_dropped",
        "kept.update(state.directories.pop(entity))",
        "kept.update(state.directories.pop(entity)), state.contents.pop(entity, None)",
    ),
    Edit(
        "P26",
        "the files of a compaction are not recorded",
        compactions,
        "_compacted",
        "directory, contents)",
        "directory, None)",
    ),
    Edit(
        "P26",
        "a cleaning forgets what it did not remove",
        cleaning,
        "_cleaned",
        "if event.gone is None else event.gone",
        "",
        seed=3,
    ),
    Edit(
        "P26",
        "a cleaning forgets every directory",
        cleaning,
        "_cleaned",
        "_shadowed(known, event.highest) if event.gone is None else event.gone",
        "list(known)",
    ),
    Edit(
        "P26",
        "what was cleaned stays known",
        cleaning,
        "_cleaned",
        "known.pop(name, None)",
        "pass",
        seed=2,
    ),
    Edit(
        "P26",
        "files are given although the lease has ended",
        manifests,
        "manifest",
        "txn = require_open(turn, operation.txn)",
        "txn = turn.state.txns.get(operation.txn) or turn.state.ended[operation.txn]\n"
        '    if not hasattr(txn, "taken"):\n        return []',
        seed=3,
    ),
    Edit(
        "P26",
        "files are given to who asks after a cleaning",
        manifests,
        "manifest",
        "check_files(txn, table)",
        "pass",
    ),
    Edit(
        "P26",
        "files are given of the table that has the name now",
        manifests,
        "manifest",
        "seen_table(turn.state, txn, operation",
        "seen_table(turn.state, None, operation",
    ),
    Edit(
        "P26",
        "a start forgets what was not recorded",
        state_rows,
        "_restore_compactions",
        'if not row["recorded"]:',
        "if False:",
        seed=3,
    ),
    Edit(
        "P26",
        "what was not recorded is not noted",
        commits,
        "place",
        "elif not new.recorded:",
        "elif False:",
        seed=2,
    ),
    Edit(
        "P26",
        "a directory without files counts as recorded",
        manifests,
        "unrecorded",
        "if not directory.recorded]",
        "if directory.recorded]",
        seed=2,
    ),
    Edit(
        "P28",
        "partitions of now instead of then",
        declared,
        "seen_partitions",
        "moment = moment_of(state, txn)",
        "moment = state.next_moment",
    ),
    Edit(
        "P28",
        "names and columns of now instead of then",
        declared,
        "seen_table",
        "if txn is None or moment == state.next_moment:",
        "if True:",
    ),
    Edit(
        "P28",
        "a change does not look at the version that it read",
        declared,
        "require_version",
        "if read is not None and",
        "if False and",
    ),
    Edit(
        "P28",
        "columns of a commit replace those of others",
        declared,
        "widened",
        "columns=(*record.columns, *new)",
        "columns=(*before.columns, *new)",
        seed=39,
    ),
    Edit(
        "P28",
        "a column of a commit takes the other's type",
        declared,
        "widened",
        "if known.get(column, kind) != kind:",
        "if False:",
    ),
    Edit(
        "P28",
        "the directories of what was dropped are forgotten at once",
        drops,
        "_dropped",
        "kept.update(state.directories.pop(entity))",
        "del state.directories[entity]",
    ),
    Edit(
        "P28",
        "a dropped table is forgotten under open snapshots",
        declared,
        "_Ends.table",
        "table.dropped <= self.oldest",
        "True",
        seed=12,
    ),
    Edit(
        "P28",
        "a dropped table is forgotten before it is removed",
        declared,
        "_Ends.table",
        " and table.record.table_id not in self._removing",
        "",
    ),
    Edit(
        "P28",
        "a dropped partition is forgotten under open snapshots",
        declared,
        "_Ends.partitions",
        "dropped <= oldest",
        "True",
        seed=41,
    ),
    Edit(
        "P28",
        "a dropped partition is forgotten before it is removed",
        declared,
        "_Ends.partitions",
        " and name not in removing",
        "",
    ),
    Edit(
        "P28",
        "earlier columns and names are forgotten under open snapshots",
        declared,
        "forget",
        "if ends.asked(table, declaration)",
        "if False",
    ),
    Edit(
        "P28",
        "a lock takes the new table of an old name",
        lock_requests,
        "resolve",
        "unchanged(state, txn, request.table, operation.writes)",
        "state.table(request.table)",
    ),
    Edit(
        "P28",
        "a write goes on after its columns were changed",
        declared,
        "unchanged",
        "if columns and",
        "if False and",
    ),
    Edit(
        "P28",
        "columns are changed while a write waits",
        locking,
        "_changed_meanwhile",
        "if txn is not None:",
        "if False:",
        seed=31,
    ),
    Edit(
        "P28",
        "a fold keeps no earlier declarations",
        state_rows,
        "keyed",
        "for table_id, table in known\n            for earlier in table.earlier",
        "for table_id, table in ()\n            for earlier in table.earlier",
    ),
    Edit(
        "P29",
        "everything counts by the wall clock",
        machine,
        "Machine._turn",
        "= moment.steady",
        f"= moment.wall - {WALL - STEADY}",
    ),
    Edit(
        "P29",
        "a wait for a lock ends by the wall clock",
        locking,
        "expire_waits",
        "turn.state.timers.wait_ends[ext] > turn.steady",
        "entry.deadline > turn.now",
    ),
    Edit(
        "P29",
        "a restart does not give the whole wait again",
        timers,
        "wake",
        "now + entry.deadline - entry.requested",
        "now",
    ),
    Edit(
        "P29",
        "a Cleaner at work is forgotten by a restart",
        timers,
        "wake",
        "dict.fromkeys(state.cleaning, now)",
        "{}",
    ),
    Edit(
        "P29",
        "a shorter timeout counts before it is known",
        timers,
        "patience",
        "max(timeout, state.longest_timeout)",
        "timeout",
    ),
    Edit(
        "P29",
        "a shorter timeout never counts",
        timers,
        "patience",
        "if last <= state.timers.shortened",
        "if True",
    ),
    Edit(
        "P29",
        "a restart takes the shorter timeout for known",
        timers,
        "wake",
        "shortened=now",
        "shortened=NEVER",
    ),
    Edit(
        "P29",
        "a fold forgets the longer timeout",
        state_rows,
        "counters",
        "in COUNTERS",
        "in COUNTERS[:-1]",
    ),
    Edit(
        "C40",
        "the Cleaner waits for nobody",
        snapshots,
        "holders",
        "if txn.txn_id < below and",
        "if False and",
    ),
    Edit(
        "C41",
        "the next transaction id without + 1",
        compactions,
        "_finish",
        "next_txn=turn.state.next_txn",
        "next_txn=turn.state.last_txn",
        seed=7,
    ),
    Edit(
        "C41",
        "the next transaction id of a drop without + 1",
        drops,
        "drop",
        "next_txn_id=state.next_txn",
        "next_txn_id=state.last_txn",
        seed=102,
    ),
    Edit("C42", "leases of all tables do not count", snapshots, "holders", "txn.all_tables or", ""),
    Edit(
        "S17",
        "the Cleaner trusts compactions that not all see",
        snapshots,
        "cleaner_lists",
        "opened = {txn.txn_id for txn in state.open_txns() if txn.txn_id <= high} | unsafe",
        "opened, high = set(), state.last_txn",
        seed=7,
    ),
    Edit(
        "P36",
        "the Cleaner ignores the retention",
        cleaning_survey,
        "_later",
        "history.horizon(turn.state, table, turn.now)",
        "turn.state.next_moment",
        seed=3,
    ),
    Edit(
        "P36",
        "the Cleaner ignores tags",
        history,
        "pins",
        "for tag in tags]",
        "for tag in ()]",
        seed=12,
    ),
    Edit(
        "P36",
        "a past does not know the aborted write ids that a compaction has passed",
        pasts,
        "before_commits",
        "while top > 0 and top in opened:",
        "while top > 0 and (top in opened or top in aborted):",
        seed=1605,
    ),
    Edit(
        "P36",
        "the drop of a table ends what readers of its past need of a dropped partition",
        cleaning_survey,
        "_kept",
        "turn.state.known_table(row.table_id)",
        "turn.state.tables.get(row.table_id)",
        seed=216,
    ),
    Edit(
        "P36",
        "the Cleaner ignores who reads the past",
        history,
        "pins",
        "for pin in txn.pins",
        "for pin in ()",
        seed=3,
    ),
    Edit(
        "P36",
        "the past before a cleaning is still answered",
        cleaning,
        "_cleaning",
        "history.advance(table, event.since)",
        "pass",
        seed=3,
    ),
    Edit(
        "P36",
        "a past snapshot sees the next commit",
        history,
        "after",
        "bisect_right(table.commits, moment, key=_MOMENT)",
        "bisect_right(table.commits, moment, key=_MOMENT) + 1",
        seed=3,
    ),
    Edit(
        "P36",
        "a past snapshot sees later compactions",
        pasts,
        "before_commits",
        "hidden.union(txns.open)",
        "txns.open",
        seed=3,
    ),
    Edit(
        "P36",
        "a past snapshot sees later writes",
        pasts,
        "before_commits",
        "opened = {commit.write_id for commit in later if commit.write_id}.union(write_ids.open)",
        "opened = set(write_ids.open)",
        seed=3,
    ),
    Edit(
        "P36",
        "the declaration of then is forgotten",
        declared,
        "_Ends.of",
        "min(self.oldest, history.oldest(self._state, table))",
        "self.oldest",
        seed=3,
    ),
    Edit(
        "P36",
        "a dropped partition that a tag needs is removed",
        cleaning_survey,
        "_kept",
        "if not pin.write_ids.is_valid(row.highest_write_id):",
        "if False:",
        seed=51,
    ),
    Edit(
        "P36",
        "a commit is missing in the history",
        commits,
        "_commit",
        "if table_id in state.tables:\n",
        "if table_id in state.tables and txn_id % 3:\n",
        seed=3,
    ),
    Edit(
        "P36",
        "the newest snapshot is given for an older one",
        time_travel,
        "_pin_after",
        "commit.moment)",
        "table.commits[-1].moment)",
        seed=3,
    ),
    Edit(
        "P46",
        "an abort ends the publication",
        commits,
        "close",
        "if end_state is TxnState.COMMITTED or not held:",
        "if True:",
        seed=14,
    ),
    Edit(
        "P46",
        "other engines are not known as such",
        foreign_transactions,
        "request_lock",
        "foreign=True",
        "foreign=False",
        seed=9,
    ),
    Edit(
        "P46",
        "a publication meets only publications",
        locks,
        "blocked_by",
        "requested.lock is existing.lock or requested.foreign or existing.foreign",
        "requested.lock is existing.lock",
        seed=9,
    ),
    Edit(
        "P46",
        "locks are not renamed with their table",
        lock_index,
        "follow_rename",
        "if not (entry.acquired or entry.publishes)",
        "if True",
        seed=9,
    ),
    Edit(
        "P46",
        "two publications of one entity at a time",
        locks,
        "blocked_by",
        "requested.lock is existing.lock or requested.foreign or existing.foreign",
        "requested.foreign or existing.foreign",
        seed=64,
    ),
    Edit(
        "P48",
        "a request waits for one that waits for its transaction",
        locking,
        "first_block",
        "not other.acquired and _waits_for(state, other, entry.txn_id)",
        "False",
    ),
    Edit(
        "P46",
        "somebody ends the publication of a compaction that goes on",
        publications,
        "ended",
        "if not entry.publishes or (txn is not None and txn.is_open):",
        "if False:",
        seed=4,
    ),
)
