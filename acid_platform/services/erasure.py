"""Erasure requests: deleting rows from every file, also from files of old snapshots.

DELETE only hides rows. The steps after it: `queue` and `compact` (major compactions), perhaps
`end_history`, `clean` (the Cleaner), `prove` (every file is read). If something has to wait, a
later request continues from there (P71). Only `compact` may start Spark.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acid_platform.base.arguments import require_condition
from acid_platform.compaction.cleaning_plan import PINNED, no_cleanup
from acid_platform.compaction.states import CompactionKind, CompactionState, ErasureState
from acid_platform.errors import (
    AlreadyScheduled,
    CorruptFile,
    LeaseHeld,
    NoSuchPartition,
    UnsupportedStatement,
)
from acid_platform.layout.names import (
    parse_directory,
    partition_name,
    partition_values,
    span,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.compaction import CompactionTask
from acid_platform.metastore.records import Holder
from acid_platform.services import cleaner, worker, worker_id
from acid_platform.services.cleaner import ExplainedPath, Fate
from acid_platform.services.worker import CompactionOutcome
from acid_platform.tables.record_layout import columns_of_record, listed_layout
from acid_platform.transactions.concurrency import LockType

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import Metastore
    from acid_platform.scan.search import FoundFile, Searched

_END_HISTORY = "; --end-history (end_history=True) ends the history of its partition"
CLEANER_WAIT_SECONDS = 60.0
"""How long to wait for another Cleaner to end its cycle."""


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """Which rows of which table to erase; `condition` includes the partition."""

    table: str
    condition: str

    @classmethod
    def of(
        cls,
        metastore: Metastore,
        table: str,
        where: str,
        partition: Mapping[str, Any] | str | None = None,
    ) -> ErasureRequest:
        """Checks a request, before anything is deleted.

        Raises NoSuchTable, NoSuchPartition, InvalidExpression, UnknownColumn, and
        UnsupportedStatement: for an insert-only table, for one that keeps its files (NO_CLEANUP),
        and for a predicate that only Spark evaluates, since the erasure could not be proven.
        """
        require_condition("where", where)
        record = metastore.table(table)
        layout = listed_layout(metastore, record)
        columns, keys = columns_of_record(record)
        if layout.insert_only:
            raise UnsupportedStatement(
                f"{record.name} is insert-only, so single rows can't be deleted: overwrite its"
                " partitions without them"
            )
        if no_cleanup(record.properties):
            raise UnsupportedStatement(
                f"{record.name} keeps its old files (NO_CLEANUP): set it to false, then erase"
            )
        from acid_platform.predicates.arrow_predicates import arrow_predicate

        arrow_predicate(where, (*columns, *keys), record.name)
        if partition is None:
            return cls(record.name, where)
        name = partition_name(partition_values(partition, keys, record.name))
        if name not in layout.partitions and not layout.files.exists(f"{layout.path}/{name}"):
            raise NoSuchPartition(f"{record.name} has no partition {name}")
        from acid_platform.predicates.analysis import partition_condition

        return cls(record.name, f"({where}) AND {partition_condition(name, keys)}")


@dataclass(frozen=True, slots=True)
class Remaining:
    """A file that still holds such rows, why, and the transactions that need it."""

    path: str
    """Relative to the table's directory."""
    rows: int | None
    """None if it has the columns of before they were changed, so the rows can't be told."""
    reason: str
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was done, and which files still hold matching rows."""

    request: ErasureRequest
    deleted: int
    """The number of rows that were still visible."""
    rewritten: tuple[str, ...]
    """Directories that compactions have written, relative to the table's."""
    removed: tuple[str, ...]
    """`path (reason)` for everything of the table that the Cleaner removed."""
    files: int
    """The number of files that were read for the proof."""
    remaining: tuple[Remaining, ...]
    own: frozenset[int] = frozenset()
    """The transactions in `waits_for` that the caller's own handle keeps open."""
    dropped: tuple[int, ...] = ()
    """The ids of dropped tables of this name whose files are still there, and were not read."""

    @property
    def erased(self) -> bool:
        """Whether no file holds a matching row."""
        return not self.remaining

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The transactions that keep files from being removed."""
        return tuple(sorted({held.txn for file in self.remaining for held in file.holders}))

    @property
    def counts(self) -> dict[str, int]:
        return {
            "rows deleted": self.deleted,
            "directories rewritten": len(self.rewritten),
            "directories removed": len(self.removed),
            "files read": self.files,
            "files still holding rows": len(self.remaining),
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{value} {name}" for name, value in self.counts.items())
        table, ids = self.request.table, ", ".join(map(str, self.dropped))
        if ids:
            counts += (
                f"; not read: files of dropped tables of this name (ids {ids}): acid show dropped"
                " says until when they stay; to erase there, acid undrop, erase, DROP TABLE … PURGE"
            )
        if self.erased:
            return f"{table}: erased: {counts}"
        return f"{table}: not erased: {counts}: " + "; ".join(self.reasons())

    def reasons(self) -> list[str]:
        """One line for each reason, since thousands of files may remain for the same reason."""
        groups: defaultdict[tuple[str, tuple[Holder, ...], bool], list[Remaining]] = defaultdict(
            list
        )
        for left in self.remaining:
            groups[left.reason, left.holders, left.rows is None].append(left)
        lines = []
        for (reason, holders, _), files in groups.items():
            held = f", held by {', '.join(map(str, holders))}: " * bool(holders)
            if self.own & {holder.txn for holder in holders}:
                held += (
                    "this handle has read them and keeps them readable: call wh.release(), or end"
                    " its snapshot or transaction, and erase again"
                )
            elif holders:
                ended = (
                    "been merged or dropped"
                    if any(holder.branch for holder in holders)
                    else "ended"
                )
                held += f"erase again when that has {ended}"
            known = [file.rows for file in files if file.rows is not None]
            what = (
                f"with {sum(known)} rows"
                if known
                else "of before the table's columns were changed, on which no condition is tested"
            )
            lines.append(f"{len(files)} files {what}, such as {files[0].path}: {reason}{held}")
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.request.table,
            "erased": self.erased,
            **self.counts,
            "dropped tables not read": list(self.dropped),
            "remaining": [
                {
                    "path": file.path,
                    "rows": file.rows,
                    "reason": file.reason,
                    "held by": list(map(str, file.holders)),
                }
                for file in self.remaining
            ],
        }


# --- steps --------------------------------------------------------------------------------------


def queue(metastore: Metastore, request: ErasureRequest) -> bool:
    """Requests major compactions of the partitions whose files still hold such rows.

    Partitions that only wait for the Cleaner are left out. Returns whether the table has
    compactions in the queue.
    """
    record = metastore.table(request.table)
    going = [
        path
        for path in cleaner.explain(metastore)
        if path.table == request.table and path.rule != "C16" and path.fate is not Fate.KEPT
    ]
    registered = (
        {entry.name for entry in metastore.call(ops.GetPartitions(request.table))}
        if record.partitioned
        else {""}
    )
    partitions = {
        file.partition if file.partition in registered else None
        for file in _search(metastore, request).matches
        if file.writer is None and not _explained(file.path, going)
    }
    for partition in sorted(partitions, key=str):
        # None in a partitioned table: aborted writers left files in unregistered partitions.
        with suppress(AlreadyScheduled, NoSuchPartition):
            metastore.request_compaction(
                request.table, partition or None, CompactionKind.MAJOR.value, initiator=worker_id()
            )
    return bool(_queued(metastore, request.table))


def compact(warehouse: Warehouse, request: ErasureRequest) -> tuple[CompactionOutcome, ...]:
    """Executes the queued compactions of the table, and waits for those of other Workers.

    A failure is returned, not raised: `prove` reports what is left because of it.
    """
    outcomes = []
    while outcome := worker.work_once(warehouse, table=request.table):
        outcomes.append(outcome)
    for task in _queued(warehouse.metastore, request.table):
        warehouse.metastore.wait_compaction(task.id)
    return tuple(outcomes)


def end_history(metastore: Metastore, request: ErasureRequest) -> tuple[str, ...]:
    """Ends the history of the partitions in which only a retention or a tag keeps such rows.

    Returns them, '' for an unpartitioned table. What they show now stays, and so does all that
    the table's other partitions have shown.
    """
    fates = [path for path in cleaner.explain(metastore) if path.table == request.table]
    partitions = {
        file.partition
        for file in _search(metastore, request).matches
        if (fate := _explained(file.path, fates)) and fate.rule == PINNED
    }
    if partitions:
        metastore.call(ops.EndHistory(request.table, tuple(sorted(partitions))))
    return tuple(sorted(partitions))


def clean(metastore: Metastore, request: ErasureRequest) -> tuple[str, ...]:
    """Runs cycles of the Cleaner until one removes nothing; returns what was removed of the table.

    Raises LeaseHeld if another Cleaner does not end its cycle within CLEANER_WAIT_SECONDS.
    """
    removed: list[str] = []
    while lines := [
        line
        for cleaned in _cycle(metastore)
        for line in cleaned.removed
        if cleaned.table == request.table
    ]:
        removed += lines
    return tuple(removed)


def _cycle(metastore: Metastore) -> list[cleaner.CleaningResult]:
    deadline = time.monotonic() + CLEANER_WAIT_SECONDS
    while True:
        try:
            return cleaner.run(metastore)
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def prove(
    metastore: Metastore,
    request: ErasureRequest,
    deleted: int,
    outcomes: Sequence[CompactionOutcome],
    removed: tuple[str, ...],
) -> Erasure:
    """Reads every file of the table, and explains those that still hold such rows.

    Raises CorruptFile if a file could not be searched, since nothing is proven then.
    """
    searched = _search(metastore, request)
    unreadable = [file for file in searched.matches if file.error]
    if unreadable:
        raise CorruptFile(
            f"{request.table}: it can't be proven that the rows are gone, since {len(unreadable)}"
            f" files could not be searched, such as: {unreadable[0].error}"
        )
    rewritten = tuple(
        f"{outcome.task.partition or ''}/{output.directory}".lstrip("/")
        for outcome in outcomes
        for output in outcome.outputs
    )
    remaining = _explain(metastore, request, searched.matches, outcomes) if searched.matches else ()
    holders = {held.txn for file in remaining for held in file.holders}
    own = frozenset(filter(metastore.beats.keeps, holders))
    dropped = tuple(
        each.table.table_id
        for each in metastore.call(ops.GetDroppedTables())
        if each.table.name == request.table
    )
    return Erasure(request, deleted, rewritten, removed, searched.files, remaining, own, dropped)


def answer(metastore: Metastore, recorded: int, result: Erasure, run_id: str) -> None:
    """Records how a recorded request ended, unless it is settled already."""
    state = ErasureState.ERASED if result.erased else ErasureState.WAITING
    if any(
        erasure.id == recorded and erasure.state.open
        for erasure in metastore.call(ops.GetErasures())
    ):
        metastore.call(
            ops.AnswerErasure(recorded, state, str(result), tuple(sorted(result.waits_for)), run_id)
        )


def _search(metastore: Metastore, request: ErasureRequest) -> Searched:
    def open_txns(ids: Sequence[int]) -> set[int]:
        return {
            txn
            for txn, state in metastore.call(ops.GetTxnStates(tuple(ids))).items()
            if state == "o"
        }

    layout = listed_layout(metastore, metastore.table(request.table))
    from acid_platform.scan.search import search_files

    return search_files(layout, request.condition, open_txns)


def _queued(metastore: Metastore, table: str) -> list[CompactionTask]:
    unfinished = (CompactionState.INITIATED, CompactionState.WORKING)
    return [
        task
        for task in metastore.call(ops.GetQueue())
        if task.table == table and task.state in unfinished
    ]


# --- reasons and holders -------------------------------------------------------------------------


def _explain(
    metastore: Metastore,
    request: ErasureRequest,
    files: Sequence[FoundFile],
    outcomes: Sequence[CompactionOutcome],
) -> tuple[Remaining, ...]:
    fates = [path for path in cleaner.explain(metastore) if path.table == request.table]
    open_txns = {holder.txn: holder for holder in metastore.call(ops.GetOpenTxns())}
    live = {
        f"{entity.partition or ''}/{directory.name}".strip("/")
        for entity in metastore.entities(request.table)
        for directory in entity.directories
        if not directory.obsolete
    }
    failed = {
        outcome.task.partition or "": f"its compaction {outcome.state}: {outcome.reason}"
        for outcome in outcomes
        if outcome.state is not worker.End.PUBLISHED
    }
    with metastore.open_snapshot([request.table]) as lease:
        unfinished = lease.valid_write_ids(request.table).open
    lockers = {
        lock.txn
        for lock in metastore.call(ops.GetLocks())
        if f"{lock.database}.{lock.table}" == request.table
        and lock.lock is not LockType.SHARED_READ
    }
    writers = tuple(open_txns[txn] for txn in sorted(lockers) if txn in open_txns)

    branches = {
        write_id: branch.name
        for branch in metastore.call(ops.GetBranches(judged=False))
        for write_id in branch.write_ids.get(request.table, ())
    }

    def reason(file: FoundFile) -> tuple[str, tuple[Holder, ...]]:
        directory = parse_directory(file.path.rpartition("/")[0].rpartition("/")[2])
        branch = directory and branches.get(span(directory)[1])
        if branch:
            return f"written on branch {branch}: merge it and erase again, or drop it", ()
        if file.writer is not None:
            holders = (open_txns[file.writer],) if file.writer in open_txns else ()
            return "being written, not yet read", holders
        if file.path.rpartition("/")[0] in live:
            if unfinished:
                ids = ", ".join(map(str, unfinished))
                names = sorted({branches[each] for each in unfinished if each in branches})
                where = f", of branch {', '.join(names)}" if names else ""
                return f"a compaction stops below write ids that are open: {ids}{where}", writers
            return failed.get(
                file.partition, "written since, or not yet compacted: run it again"
            ), ()
        fate = _explained(file.path, fates)
        if fate is not None:
            advice = _END_HISTORY * (fate.rule == PINNED)
            return f"{fate.reason}{advice}", fate.holders
        return failed.get(file.partition, "no cleaning covers it: see `acid fsck`"), ()

    return tuple(
        Remaining(file.path, None if file.outdated else file.rows, *reason(file)) for file in files
    )


def _explained(path: str, fates: Iterable[ExplainedPath]) -> ExplainedPath | None:
    """What the Cleaner says about the directory or file, or about the whole partition."""
    matching = [
        (len(key), fate)
        for fate in fates
        if not (key := f"{fate.partition or ''}/{fate.path}".strip("/"))
        or path == key
        or path.startswith(f"{key}/")
    ]
    return max(matching, key=lambda pair: pair[0])[1] if matching else None
