"""Explains what a service would do next, as rows for people and programs.

Nothing here changes anything or starts Spark. A compaction is explained by the plan that the Worker
executes, so the two can't drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from acid_platform.compaction.execution import select_compactable
from acid_platform.compaction.plan import (
    CompactionSettings,
    NothingToDo,
    forecast,
    plan_compaction,
)
from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.scan.open import chosen_partitions
from acid_platform.services import cleaner, initiator
from acid_platform.tables.record_layout import recorded_listings, table_layout

Row = dict[str, Any]
ReportedRows = Mapping[str | None, Mapping[str, int]]
"""The reported rows of each directory, by partition (P8)."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[Row, ...]
    empty: str = "nothing"


@dataclass(frozen=True, slots=True)
class PlannedCompaction:
    """A compaction that may run; `why` says who asked for it."""

    table: str
    partition: str | None
    kind: CompactionKind
    why: str = ""


def wishes_of(table: str, partitions: Iterable[str | None], kind: str) -> list[PlannedCompaction]:
    """One compaction of this kind for each of these partitions of a table."""
    return [PlannedCompaction(table, partition, CompactionKind(kind)) for partition in partitions]


def reported_rows(metastore: Metastore, table: str) -> ReportedRows:
    """The reported rows of each partition of a table; None stands for an unpartitioned table."""
    return {
        entity.partition: {directory.name: directory.rows for directory in entity.directories}
        for entity in metastore.entities(table)
    }


# --- sections -----------------------------------------------------------------------------------


def explain_initiator(metastore: Metastore, now_ms: int) -> list[Section]:
    """Every decision, and the compactions that the Initiator would request."""
    decisions = initiator.explain(metastore, now_ms)
    rows = tuple(decision_row(decided) for decided in decisions)
    wishes = [
        PlannedCompaction(decided.table, decided.partition, decided.decision.kind, "the Initiator")
        for decided in decisions
        if decided.decision.kind
    ]
    return [Section("decisions", rows, "no candidates"), *explain_compactions(metastore, wishes)]


def decision_row(decided: initiator.Initiated) -> Row:
    """The Initiator's decision as a row of SHOW output."""
    decision = decided.decision
    return {
        "table": decided.table,
        "partition": decided.partition or "",
        "compaction": decision.kind.value if decision.kind else "none",
        "reason": decision.reason,
    }


def explain_worker(metastore: Metastore) -> list[Section]:
    """The compactions that wait in the queue, in its order (C26)."""
    return explain_compactions(
        metastore,
        [
            PlannedCompaction(task.table, task.partition, task.kind, f"request {task.id}")
            for task in metastore.call(ops.GetQueue())
            if task.state is CompactionState.INITIATED
        ],
    )


def explain_compactions(metastore: Metastore, wishes: Iterable[PlannedCompaction]) -> list[Section]:
    """Costs and savings, then the directories that are read and written."""
    # One call per table, however many partitions it has: the metastore answers for the table.
    rows_of = cache(lambda table: reported_rows(metastore, table))
    explained = [_explained(metastore, wish, rows_of) for wish in wishes]
    directories = tuple(row for _, rows in explained for row in rows)
    return [
        Section("compactions", tuple(row for row, _ in explained), "none would run"),
        Section("directories", directories, "none"),
    ]


def _explained(
    metastore: Metastore, wish: PlannedCompaction, rows_of: Callable[[str], ReportedRows]
) -> tuple[Row, list[Row]]:
    """What the compaction would cost and save if it began now, as the next transaction, and each
    directory that it would read or write.

    Raises NoSuchTable, and what the selection raises.
    """
    record = metastore.table(wish.table)
    settings = CompactionSettings.of(metastore.in_force, {}, record.properties)
    with metastore.open_snapshot([record.name]) as lease:
        layout = table_layout(record, lease)
        lists = lease.valid_write_ids(record.name).for_compactor(), lease.valid_txns
        partitions = chosen_partitions(layout, only=wish.partition or "")
        listings = recorded_listings(layout, lease, partitions)
        directory, write_ids = select_compactable(layout, listings, *lists)
    next_txn = metastore.status()["last_txn"] + 1
    plan = plan_compaction(directory, wish.kind, write_ids, next_txn, settings)
    entity = {"table": wish.table, "partition": wish.partition or ""}
    named = {**entity, "compaction": wish.kind.value, "asked by": wish.why}
    if isinstance(plan, NothingToDo):
        return {**named, "result": str(plan)}, []
    expected = forecast(plan, rows_of(record.name).get(wish.partition, {}))
    read, written, scans = expected.read, expected.written, expected.pays_back_after
    summary = {
        **named,
        "result": "would run",
        "rows read": read.rows,
        "bytes read": read.bytes,
        "rows written": written.rows,
        "bytes written": written.bytes,
        "saved per scan": expected.saving,
        "pays back": "never" if scans is None else f"after {scans} scans",
    }
    directories = [
        {
            **entity,
            "action": action,
            "directory": share.directory,
            "rows": share.amount.rows,
            "bytes": share.amount.bytes,
            "files": share.amount.files,
        }
        for action, shares in (("read", expected.inputs), ("write", expected.outputs))
        for share in shares
    ]
    return summary, directories


def explain_cleaner(metastore: Metastore) -> list[Section]:
    """What would be removed, what stays, and which transactions the rest waits for."""
    rows = tuple(
        {
            "table": path.table,
            "partition": path.partition or "",
            "path": path.path,
            "fate": path.fate.value,
            "reason": path.reason,
            "held by": ", ".join(map(str, path.holders)),
        }
        for path in cleaner.explain(metastore)
    )
    return [Section("cleaning", rows, "nothing is obsolete")]
