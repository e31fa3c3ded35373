"""The Initiator: which entities need a compaction, from the metastore's counters alone.

No directory is listed: writers and compactions report what they publish (P8), so one cycle costs
one call and pure decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.compaction.initiator import (
    Candidate,
    Decision,
    LiveDirectory,
    PastCompaction,
    Thresholds,
    decide,
    entity_size,
    no_auto_compaction,
)
from acid_platform.compaction.states import Layout
from acid_platform.errors import AcidError, AlreadyScheduled
from acid_platform.layout.formats import is_insert_only
from acid_platform.metastore.records import EntityState
from acid_platform.services.context import worker_id

if TYPE_CHECKING:
    from acid_platform.metastore.client import Metastore


@dataclass(frozen=True, slots=True)
class Initiated:
    """What the Initiator decided about one entity; `id` of the queue row if it asked for one."""

    table: str
    partition: str | None
    decision: Decision
    id: int | None = None

    def __str__(self) -> str:
        where = f"{self.table} {self.partition or ''}".rstrip()
        what = self.decision.kind.value if self.decision.kind else "nothing"
        return f"{where}: {what} ({self.decision.rule}) {self.decision.reason}"


def explain(metastore: Metastore, now_ms: int) -> list[Initiated]:
    """The decision about every entity; changes nothing."""
    return [Initiated(entity.table, entity.partition, decision)
            for entity, decision in _decisions(metastore, now_ms)]


def run(metastore: Metastore, now_ms: int) -> list[Initiated]:
    """One cycle: enqueue what the thresholds ask for (C1 to C24); answers every decision."""
    done: list[Initiated] = []
    for entity, decision in _decisions(metastore, now_ms):
        queued: int | None = None
        if decision.did_not_initiate:
            metastore.record_not_initiated(entity.table, entity.partition, decision.reason)
        elif decision.kind:
            try:
                queued = metastore.request_compaction(
                    entity.table, entity.partition, decision.kind.value, initiator=worker_id())
            except AlreadyScheduled as error:  # another Initiator was quicker
                decision = Decision(None, "C24", str(error))
        done.append(Initiated(entity.table, entity.partition, decision, queued))
    return done


def _decisions(metastore: Metastore, now_ms: int) -> Iterator[tuple[EntityState, Decision]]:
    settings = metastore.settings()
    for entity in metastore.entities():
        try:
            thresholds = Thresholds.for_table(entity.properties, settings)
            yield entity, decide(_candidate(entity, now_ms), thresholds)
        except AcidError as error:  # C23: one broken entity does not stop the cycle
            yield entity, Decision(None, "C23", str(error), did_not_initiate=True)


def _candidate(entity: EntityState, now_ms: int) -> Candidate:
    live = [LiveDirectory(one.name, one.bytes) for one in entity.directories]
    return Candidate(
        entity_size(live, entity.write_ids),
        no_auto=no_auto_compaction(entity.properties),
        needs_partition=entity.partitioned and entity.partition is None,
        queue_state=entity.queued,
        history=tuple(PastCompaction(one.state, now_ms - one.enqueued) for one in entity.history),
        aborted_txns=entity.aborted,
        oldest_abort_age_ms=now_ms - entity.oldest_abort if entity.oldest_abort else None,
        minor_refused=_minor_refused(entity),
        insert_only=is_insert_only(entity.properties),
    )


def _minor_refused(entity: EntityState) -> str:
    """Layout hive3 can't publish deltas and delete_deltas by one rename (P23): major then."""
    both = {one.deletes for one in entity.directories if not one.base and not one.obsolete}
    hive3 = Layout.of(entity.properties) is Layout.HIVE3
    return "layout hive3 with deltas and delete_deltas" if hive3 and len(both) == 2 else ""
