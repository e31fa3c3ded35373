"""The Initiator: decides from the metastore's counters which entities need a compaction.

It lists no directory, because writers and compactions report what they publish (P8). A cycle costs
one call for each page of candidates, and pure decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from acid_platform.base.config import Settings
from acid_platform.base.table_properties import THRESHOLD_PREFIX
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    NoSuchPartition,
    NoSuchTable,
    error_class,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.tasks import EntityCounters
from acid_platform.services.decision import Decision, Thresholds, decide
from acid_platform.services.lease import leading, worker_id

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore


@dataclass(frozen=True, slots=True)
class Initiated:
    """What the Initiator decided about an entity; `id` of the queue row if it requested one."""

    table: str
    partition: str | None
    decision: Decision
    id: int | None = None

    def __str__(self) -> str:
        where = f"{self.table} {self.partition or ''}".rstrip()
        what = self.decision.kind.value if self.decision.kind else "nothing"
        return f"{where}: {what}: {self.decision.reason}"


def explain(metastore: Metastore, now_ms: int) -> list[Initiated]:
    """The decision about every entity. Changes nothing."""
    return [
        Initiated(entity.table, entity.partition, decision)
        for entity, decision in _decisions(metastore, now_ms, since=0)
    ]


def run(metastore: Metastore, now_ms: int, since: int = 0) -> list[Initiated]:
    """Runs one cycle (C1 to C25) and returns every decision.

    Enqueues what the thresholds ask for, then revokes Workers that timed out. `since`: the
    metastore's `moment` at the start of the previous cycle, to look only at what changed since
    (C1). Raises LeaseHeld while another Initiator runs a cycle (P9).
    """
    initiated: list[Initiated] = []
    with leading(metastore, "Initiator") as renew:
        decisions = _decisions(metastore, now_ms, since)
        while some := list(islice(decisions, _AT_ONCE)):
            initiated += _carry_out(metastore, some)
            renew()
        metastore.call(ops.RevokeWorkers(None))
    return initiated


_AT_ONCE = 500
"""How many decisions share one call, and so one write to the journal."""


def _carry_out(
    metastore: Metastore, decided: Sequence[tuple[EntityCounters, Decision]]
) -> Iterator[Initiated]:
    wishes = tuple(
        ops.RequestCompaction(
            entity.table, entity.partition, decision.kind.value, initiator=worker_id()
        )
        for entity, decision in decided
        if decision.kind
    )
    answers = iter(metastore.call(ops.RequestCompactions(wishes)) if wishes else ())
    for entity, decision in decided:
        queued: int | None = None
        try:
            if decision.did_not_initiate:
                metastore.call(
                    ops.RecordNotInitiated(entity.table, entity.partition, decision.reason)
                )
            elif decision.kind:
                answer = next(answers)
                if answer.error is not None:
                    raise error_class(answer.error[0])(answer.error[1])
                queued = answer.id
        except AlreadyScheduled as error:  # by hand, after the page of candidates was read
            decision = Decision(None, "C24", str(error))
        except (NoSuchTable, NoSuchPartition) as error:  # dropped in the meantime
            decision = Decision(None, "C4", str(error))
        yield Initiated(entity.table, entity.partition, decision, queued)


def _decisions(
    metastore: Metastore, now_ms: int, since: int
) -> Iterator[tuple[EntityCounters, Decision]]:
    settings = Settings.of(metastore.settings())
    cached: dict[frozenset[tuple[str, str]], Thresholds] = {}
    for entity in metastore.candidates(since):
        own = frozenset(
            item for item in entity.properties.items() if item[0].startswith(THRESHOLD_PREFIX)
        )
        try:
            thresholds = cached.get(own) or Thresholds.for_table(entity.properties, settings)
            cached[own] = thresholds
            decision = decide(entity, thresholds, now_ms)
            if entity.error and decision.rule not in _BEFORE_SIZES:
                decision = Decision(None, "C23", entity.error, did_not_initiate=True)
            yield entity, decision
        except AcidError as error:  # C23: one broken entity does not stop the cycle
            yield entity, Decision(None, "C23", str(error), did_not_initiate=True)


_BEFORE_SIZES = ("C5", "C6", "C7", "C8", "C9")
"""Rules that reject a candidate without looking at its sizes."""
