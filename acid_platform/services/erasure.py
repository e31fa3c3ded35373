"""Erasure requests: rows that no file may hold any more, not even one of an old snapshot.

DELETE only hides rows. The steps after it: `queue` and `compact` (major compactions), `clean` (the
Cleaner), `prove` (every file is read). A later request goes on where an earlier one had to wait.
Only `compact` may start Spark.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acid_platform.compaction.cleaner import no_cleanup
from acid_platform.compaction.states import CompactionKind, CompactionState, ErasureState
from acid_platform.errors import (
    AlreadyScheduled,
    CorruptFile,
    LeaseHeld,
    NoSuchPartition,
    UnsupportedStatement,
)
from acid_platform.layout.partitions import partition_name, partition_values
from acid_platform.metastore.records import CompactionTask, Holder
from acid_platform.reading.arrow_predicates import arrow_predicate
from acid_platform.reading.predicates import partition_condition
from acid_platform.reading.search import FoundFile, Searched, search_files
from acid_platform.services import cleaner, worker
from acid_platform.services.cleaner import Explained, Fate
from acid_platform.services.worker import Outcome
from acid_platform.tables.context import Context, columns_of_record, table_layout, worker_id
from acid_platform.transactions.locks import LockType

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore

CLEANER_WAIT_SECONDS = 60.0
"""For another Cleaner that is in the middle of a cycle."""


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """Which rows of which table; `condition` includes the partition."""

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
        """Checks everything before anything is deleted.

        Raises NoSuchTable, NoSuchPartition, InvalidExpression, UnknownColumn, and
        UnsupportedStatement: for an insert-only table, for one that keeps its files (NO_CLEANUP),
        and for a predicate that only Spark evaluates, since the end could not be proven then.
        """
        record = metastore.table(table)
        layout = table_layout(metastore, record, None)
        columns, keys = columns_of_record(record)
        if layout.insert_only:
            raise UnsupportedStatement(
                f"{record.name} is insert-only, so that single rows can't be deleted: overwrite its"
                " partitions without them"
            )
        if no_cleanup(record.properties):
            raise UnsupportedStatement(
                f"{record.name} keeps its old files (NO_CLEANUP, C44): set it to false, then erase"
            )
        arrow_predicate(where, (*columns, *keys), record.name)
        if partition is None:
            return cls(record.name, where)
        name = partition_name(partition_values(partition, keys, record.name))
        if name not in layout.partitions and not layout.files.exists(f"{layout.path}/{name}"):
            raise NoSuchPartition(f"{record.name} has no partition {name}")
        return cls(record.name, f"({where}) AND {partition_condition(name, keys)}")


@dataclass(frozen=True, slots=True)
class Remaining:
    """A file that still holds such rows, why, and who keeps it."""

    path: str
    """Below the table's directory."""
    rows: int
    reason: str
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was done, and what every file says now."""

    request: ErasureRequest
    deleted: int
    """Rows that were visible until now."""
    rewritten: tuple[str, ...]
    """Directories that compactions have written anew, below the table's."""
    removed: tuple[str, ...]
    """`path (rule: reason)` of what the Cleaner has removed of the table."""
    files: int
    """Files that were read at the end."""
    remaining: tuple[Remaining, ...]

    @property
    def erased(self) -> bool:
        """No file holds a matching row."""
        return not self.remaining

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Transactions that are in the way."""
        return tuple(sorted({held.txn for one in self.remaining for held in one.holders}))

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
        told = ", ".join(f"{value} {name}" for name, value in self.counts.items())
        if self.erased:
            return f"{self.request.table}: erased: {told}"
        return f"{self.request.table}: not erased: {told}: " + "; ".join(self.reasons())

    def reasons(self) -> list[str]:
        """A line for all files that remain for one reason, since there may be thousands."""
        groups: defaultdict[tuple[str, tuple[Holder, ...]], list[Remaining]] = defaultdict(list)
        for one in self.remaining:
            groups[one.reason, one.holders].append(one)
        lines = []
        for (reason, holders), files in groups.items():
            held = (
                f", held by {', '.join(map(str, holders))}: run it again when that has ended"
                if holders
                else ""
            )
            lines.append(
                f"{len(files)} files with {sum(one.rows for one in files)} rows, such as"
                f" {files[0].path}: {reason}{held}"
            )
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.request.table,
            "erased": self.erased,
            **self.counts,
            "remaining": [
                {
                    "path": one.path,
                    "rows": one.rows,
                    "reason": one.reason,
                    "held by": list(map(str, one.holders)),
                }
                for one in self.remaining
            ],
        }


# --- steps --------------------------------------------------------------------------------------


def queue(metastore: Metastore, request: ErasureRequest) -> bool:
    """Asks for major compactions of the partitions whose files still hold such rows.

    Not where the Cleaner has all that it needs. Answers whether any compaction of the table waits.
    """
    record = metastore.table(request.table)
    going = [
        one
        for one in cleaner.explain(metastore)
        if one.table == request.table and one.rule != "C16" and one.fate is not Fate.KEPT
    ]
    known = (
        {one.name for one in metastore.partition_records(request.table)}
        if record.partitioned
        else {""}
    )
    wanted = {
        one.partition if one.partition in known else None
        for one in _search(metastore, request).found
        if one.writer is None and not _explained(one.path, going)
    }
    for partition in sorted(wanted, key=str):
        # None of a partitioned table: what aborted writers left in partitions that nobody knows.
        with suppress(AlreadyScheduled, NoSuchPartition):
            metastore.request_compaction(
                request.table, partition or None, CompactionKind.MAJOR.value, initiator=worker_id()
            )
    return bool(_queued(metastore, request.table))


def compact(context: Context, request: ErasureRequest) -> tuple[Outcome, ...]:
    """Works off the queue of the table, and waits for what another Worker has taken of it.

    A failure is answered, not raised: `prove` tells what is left because of it.
    """
    done = []
    while outcome := worker.work_once(context, table=request.table):
        done.append(outcome)
    for task in _queued(context.metastore, request.table):
        context.metastore.wait_compaction(task.id)
    return tuple(done)


def clean(metastore: Metastore, request: ErasureRequest) -> tuple[str, ...]:
    """The Cleaner's cycles until one removes nothing; what went of the table.

    Raises LeaseHeld when another Cleaner does not end its cycle within CLEANER_WAIT_SECONDS.
    """
    removed: list[str] = []
    while lines := [
        line for one in _cycle(metastore) for line in one.removed if one.task.table == request.table
    ]:
        removed += lines
    return tuple(removed)


def _cycle(metastore: Metastore) -> list[cleaner.Cleaned]:
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
    outcomes: Sequence[Outcome],
    removed: tuple[str, ...],
) -> Erasure:
    """Reads every file of the table, and explains those that still hold such rows.

    Raises CorruptFile for files that can't be judged: that is no success.
    """
    searched = _search(metastore, request)
    unreadable = [one for one in searched.found if one.error]
    if unreadable:
        raise CorruptFile(
            f"{request.table}: it can't be proven that the rows are gone, {len(unreadable)} files"
            " can't be judged: " + "; ".join(one.error for one in unreadable)
        )
    rewritten = tuple(
        f"{one.task.partition or ''}/{output.directory}".lstrip("/")
        for one in outcomes
        for output in one.outputs
    )
    remaining = _explain(metastore, request, searched.found, outcomes) if searched.found else ()
    return Erasure(request, deleted, rewritten, removed, searched.files, remaining)


def answer(metastore: Metastore, recorded: int, result: Erasure, run_id: str) -> None:
    """Records what became of a recorded request, unless that is settled already."""
    state = ErasureState.ERASED if result.erased else ErasureState.WAITING
    if any(one.id == recorded and one.state.open for one in metastore.erasures()):
        metastore.answer_erasure(recorded, state, str(result), result.waits_for, run_id)


def _search(metastore: Metastore, request: ErasureRequest) -> Searched:
    def open_txns(ids: Sequence[int]) -> set[int]:
        return {txn for txn, state in metastore.txn_states(ids).items() if state == "o"}

    layout = table_layout(metastore, metastore.table(request.table), None)
    return search_files(layout, request.condition, open_txns)


def _queued(metastore: Metastore, table: str) -> list[CompactionTask]:
    unfinished = (CompactionState.INITIATED, CompactionState.WORKING)
    return [task for task in metastore.queue() if task.table == table and task.state in unfinished]


# --- why, and who -------------------------------------------------------------------------------


def _explain(
    metastore: Metastore,
    request: ErasureRequest,
    found: Sequence[FoundFile],
    outcomes: Sequence[Outcome],
) -> tuple[Remaining, ...]:
    fates = [one for one in cleaner.explain(metastore) if one.table == request.table]
    open_txns = {holder.txn: holder for holder in metastore.open_txns()}
    live = {
        f"{entity.partition or ''}/{one.name}".strip("/")
        for entity in metastore.entities(request.table)
        for one in entity.directories
        if not one.obsolete
    }
    failed = {
        one.task.partition or "": f"its compaction {one.state}: {one.reason}"
        for one in outcomes
        if one.state != "published"
    }
    with metastore.open_snapshot([request.table]) as lease:
        unfinished = lease.valid_write_ids(request.table).open
    writers = tuple(
        open_txns[txn]
        for txn in sorted(
            {
                lock.txn
                for lock in metastore.lock_states()
                if f"{lock.database}.{lock.table}" == request.table
                and lock.lock is not LockType.SHARED_READ
            }
        )
        if txn in open_txns
    )

    def judged(one: FoundFile) -> Remaining:
        if one.writer is not None:
            held = (open_txns[one.writer],) if one.writer in open_txns else ()
            return Remaining(one.path, one.rows, "being written, not yet read", held)
        if one.path.rpartition("/")[0] in live:
            if unfinished:
                ids = ", ".join(map(str, unfinished))
                return Remaining(
                    one.path,
                    one.rows,
                    f"a compaction stops below write ids that are open (S16): {ids}",
                    writers,
                )
            return Remaining(
                one.path,
                one.rows,
                failed.get(one.partition, "written since, or not yet compacted: run it again"),
            )
        fate = _explained(one.path, fates)
        if fate is not None:
            rule = "" if fate.rule in fate.reason else f" ({fate.rule})"
            return Remaining(one.path, one.rows, f"{fate.reason}{rule}", fate.holders)
        return Remaining(
            one.path, one.rows, failed.get(one.partition, "no cleaning covers it: see `acid fsck`")
        )

    return tuple(map(judged, found))


def _explained(path: str, fates: Iterable[Explained]) -> Explained | None:
    """What the Cleaner says of the directory or file, or of the whole partition."""
    matching = []
    for one in fates:
        key = f"{one.partition or ''}/{one.path}".strip("/")
        if not key or path == key or path.startswith(f"{key}/"):
            matching.append((len(key), one))
    return max(matching, key=lambda pair: pair[0])[1] if matching else None
