"""What a service would do next, as rows for people and programs. Nothing is changed, no Spark.

Compactions are explained by the plan that the Worker executes, so that both can't drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acid_platform.compaction.forecast import Forecast, forecast
from acid_platform.compaction.plan import CompactionPlan, NothingToDo, plan_compaction
from acid_platform.compaction.states import CompactionKind, CompactionState, Layout
from acid_platform.reading.selection import select_compactable
from acid_platform.services import cleaner, initiator
from acid_platform.tables.context import table_layout

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """A table of an explanation."""

    title: str
    rows: tuple[Row, ...]
    empty: str = "nothing"


@dataclass(frozen=True, slots=True)
class Wish:
    """A compaction that may run; `why` it was asked for."""

    table: str
    partition: str | None
    kind: CompactionKind
    why: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """What would be made of a wish; a forecast unless there is nothing to do."""

    wish: Wish
    plan: CompactionPlan | NothingToDo
    forecast: Forecast | None


def explain(metastore: Metastore, wish: Wish) -> Explained:
    """The plan as it would be if the compaction began now, as the next transaction.

    Raises NoSuchTable, and what the selection raises.
    """
    record = metastore.table(wish.table)
    with metastore.open_snapshot([record.name]) as lease:
        layout = table_layout(metastore, record, lease)
        seen, listed = select_compactable(
            layout,
            lease.valid_write_ids(record.name).for_compactor(),
            lease.valid_txns,
            wish.partition or "",
        )
    plan = plan_compaction(
        seen,
        wish.kind,
        listed,
        metastore.status()["last_txn"] + 1,
        Layout.of(record.properties),
        insert_only=layout.insert_only,
    )
    if isinstance(plan, NothingToDo):
        return Explained(wish, plan, None)
    return Explained(
        wish, plan, forecast(plan, reported_rows(metastore, wish.table, wish.partition))
    )


def reported_rows(metastore: Metastore, table: str, partition: str | None) -> Mapping[str, int]:
    """Rows of each directory of an entity, as writers and compactions reported them (P8)."""
    return {
        directory.name: directory.rows
        for entity in metastore.entities(table)
        if entity.partition == partition
        for directory in entity.directories
    }


# --- sections -----------------------------------------------------------------------------------


def explain_initiator(metastore: Metastore, now_ms: int) -> list[Section]:
    """Every decision, and the compactions that would be asked for."""
    decided = initiator.explain(metastore, now_ms)
    rows = tuple(
        {
            "table": one.table,
            "partition": one.partition or "",
            "compaction": one.decision.kind.value if one.decision.kind else "none",
            "rule": one.decision.rule,
            "reason": one.decision.reason,
        }
        for one in decided
    )
    wishes = [
        Wish(one.table, one.partition, one.decision.kind, one.decision.rule)
        for one in decided
        if one.decision.kind
    ]
    return [Section("decisions", rows, "no candidates"), *explain_compactions(metastore, wishes)]


def explain_worker(metastore: Metastore) -> list[Section]:
    """What waits in the queue, in its order (C26)."""
    return explain_compactions(
        metastore,
        [
            Wish(task.table, task.partition, task.kind, f"request {task.id}")
            for task in metastore.queue()
            if task.state is CompactionState.INITIATED
        ],
    )


def explain_compactions(metastore: Metastore, wishes: Iterable[Wish]) -> list[Section]:
    """Costs and savings, then the directories that are read and written."""
    every = [explain(metastore, wish) for wish in wishes]
    return [
        Section("compactions", tuple(map(_summary, every)), "none would run"),
        Section("directories", tuple(row for one in every for row in _directories(one)), "none"),
    ]


def _summary(one: Explained) -> Row:
    named = {
        "table": one.wish.table,
        "partition": one.wish.partition or "",
        "compaction": one.wish.kind.value,
        "asked by": one.wish.why,
    }
    if one.forecast is None:
        return {**named, "result": str(one.plan)}
    read, written, scans = one.forecast.read, one.forecast.written, one.forecast.pays_back_after
    return {
        **named,
        "result": "would run",
        "rows read": read.rows,
        "bytes read": read.bytes,
        "rows written": written.rows,
        "bytes written": written.bytes,
        "saved per scan": one.forecast.saving,
        "pays back": "never" if scans is None else f"after {scans} scans",
    }


def _directories(one: Explained) -> Iterator[Row]:
    if one.forecast is not None:
        for action, shares in (("read", one.forecast.inputs), ("write", one.forecast.outputs)):
            for share in shares:
                yield {
                    "table": one.wish.table,
                    "partition": one.wish.partition or "",
                    "action": action,
                    "directory": share.directory,
                    "rows": share.amount.rows,
                    "bytes": share.amount.bytes,
                    "files": share.amount.files,
                }


def explain_cleaner(metastore: Metastore) -> list[Section]:
    """What would be removed, what stays, and who holds what has to wait."""
    rows = tuple(
        {
            "table": one.table,
            "partition": one.partition or "",
            "path": one.path,
            "fate": one.fate.value,
            "rule": one.rule,
            "reason": one.reason,
            "held by": ", ".join(map(str, one.holders)),
        }
        for one in cleaner.explain(metastore)
    )
    return [Section("cleaning", rows, "nothing is obsolete")]
