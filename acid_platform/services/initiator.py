"""The Initiator: decides from the metastore's counters which entities need a compaction.

It lists no directory, because writers and compactions report what they publish (P8). A cycle costs
one call for each page of candidates, and pure decisions.

The decision is pure: its caller finds the candidates (C1 to C4, C10), and enqueues the requests and
writes the history rows that it asks for (C9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from acid_platform.base.config import Settings
from acid_platform.compaction.states import CompactionKind, CompactionState, Layout
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    NoSuchPartition,
    NoSuchTable,
    SettingRefused,
    error_class,
)
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.table_properties import (
    DELTA_NUM,
    DELTA_PCT,
    NO_AUTO_COMPACTION,
    THRESHOLD_PREFIX,
    THRESHOLDS,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import EntityCounters
from acid_platform.services import leading, worker_id

FAILED_COMPACTIONS = "hive.compactor.initiator.failed.compacts.threshold"
INSERT_ONLY = "hive.compactor.compact.insert.only"

_HOUR = 3_600_000


def _setting(name: str, default: object) -> Any:
    """A field whose value is that of a setting."""
    return field(default=default, metadata={"setting": name})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of the decision; times in milliseconds, defaults as in Hive."""

    delta_num: int = _setting(DELTA_NUM, 10)
    delta_pct: float = _setting(DELTA_PCT, 0.1)
    aborted_txns: int = _setting("hive.compactor.abortedtxn.threshold", 1000)
    aborted_age_ms: int = _setting("hive.compactor.aborted.txn.time.threshold", 12 * _HOUR)
    """Negative: the age is ignored."""
    aborts_by_cleaner: bool = _setting("hive.compactor.clean.aborts.using.cleaner", True)
    failed_compactions: int = _setting(FAILED_COMPACTIONS, 2)
    failed_retry_ms: int = _setting("hive.compactor.initiator.failed.retry.time", 7 * 24 * _HOUR)
    """Zero or less: never retry without a manual request."""
    compact_insert_only: bool = _setting(INSERT_ONLY, True)

    @classmethod
    def for_table(cls, properties: Mapping[str, str], settings: Settings) -> Thresholds:
        """The warehouse's settings, overridden by the table's `compactorthreshold.*` (C22).

        Raises SettingRefused, naming the property whose value is not allowed.
        """
        values: dict[str, Any] = {
            each.name: settings.value(each.metadata["setting"]) for each in fields(cls)
        }
        for name, threshold in zip(("delta_num", "delta_pct"), THRESHOLDS, strict=True):
            if threshold.stated(properties) is not None:
                try:
                    values[name] = threshold.value(properties)
                except SettingRefused as error:
                    raise SettingRefused(f"table property {error}") from error
        return cls(**values)


def no_auto_compaction(properties: Mapping[str, str]) -> bool:
    """Whether the properties disable automatic compaction (C5)."""
    return NO_AUTO_COMPACTION.text(properties) == "true"


@dataclass(frozen=True, slots=True)
class Decision:
    """The kind of compaction to request (None: none), the deciding rule, and the reason as text."""

    kind: CompactionKind | None
    rule: str
    reason: str
    did_not_initiate: bool = False
    """The caller must write a `did not initiate` history row (C9)."""


def decide(entity: EntityCounters, thresholds: Thresholds, now_ms: int) -> Decision:
    """Whether the Initiator enqueues a compaction of this entity (C5 to C9, C11 to C21)."""
    return _filtered(entity, thresholds, now_ms) or check(entity, thresholds, now_ms)


def _filtered(entity: EntityCounters, thresholds: Thresholds, now_ms: int) -> Decision | None:
    """Why the entity is dropped regardless of its size, if so; checks in Hive's order."""
    if no_auto_compaction(entity.properties):
        return Decision(None, "C5", f"table property {NO_AUTO_COMPACTION.name} is true")
    if entity.queued in (CompactionState.INITIATED, CompactionState.WORKING):
        return Decision(None, "C6", f"a compaction is already {entity.queued.text}")
    if not thresholds.compact_insert_only and is_insert_only(entity.properties):
        return Decision(None, "C7", f"insert-only table and {INSERT_ONLY} is false")
    whole_table = entity.partitioned and entity.partition is None
    if whole_table and not _old_abort(entity, thresholds, now_ms):
        return Decision(None, "C8", "partitioned table, but the candidate names no partition")
    most_failures = thresholds.failed_compactions
    latest = [
        past for past in entity.history if past.state is not CompactionState.DID_NOT_INITIATE
    ][:most_failures]
    failed = len(latest) == most_failures and all(p.state is CompactionState.FAILED for p in latest)
    # As in Hive, a retry is allowed only after the retry time; <= 0 never allows it.
    retry = thresholds.failed_retry_ms
    if failed and not 0 < retry < now_ms - max(past.enqueued for past in latest):
        return Decision(
            None,
            "C9",
            f"the last {most_failures} compactions failed; request a compaction yourself, or"
            f" set {FAILED_COMPACTIONS}",
            did_not_initiate=True,
        )
    return None


def check(entity: EntityCounters, thresholds: Thresholds, now_ms: int) -> Decision:
    """The size check alone: the first rule that applies decides (C11 to C21).

    All comparisons are strict. Raises SettingRefused for a layout that nobody knows.
    """
    size, hive3 = entity.size, Layout.of(entity.properties) is Layout.HIVE3
    if not thresholds.aborts_by_cleaner and entity.aborted > thresholds.aborted_txns:
        return Decision(
            CompactionKind.MAJOR,
            "C11",
            f"{entity.aborted} aborted transactions, more than {thresholds.aborted_txns}",
        )
    if _old_abort(entity, thresholds, now_ms):
        return Decision(
            CompactionKind.MINOR,
            "C12",
            f"an aborted transaction is {now_ms - entity.oldest_abort} ms old, more than"
            f" {thresholds.aborted_age_ms}",
        )
    reference = size.reference_bytes
    no_base = reference == 0 and size.delta_bytes > 0
    if reference > 0 and size.delta_bytes / reference > thresholds.delta_pct:
        return Decision(
            CompactionKind.MAJOR,
            "C15",
            f"deltas are {size.delta_bytes} bytes,"
            f" {size.delta_bytes / reference:.1%} of {reference}, more than"
            f" {thresholds.delta_pct:.1%}",
        )
    if size.delta_bytes == 0 and size.has_obsolete_base:
        return Decision(CompactionKind.MAJOR, "C16", "no delta bytes, but an obsolete base")
    count = f"{size.delta_directories} delta directories"
    if size.delta_directories <= thresholds.delta_num:
        return Decision(
            None,
            "C17",
            f"{count}, not more than {thresholds.delta_num}, and"
            f" {size.delta_bytes} delta bytes against {reference}",
        )
    count += f", more than {thresholds.delta_num}"
    if no_base:
        return Decision(CompactionKind.MAJOR, "C18", f"{count}, and no base")
    if hive3 and entity.both_kinds:  # one rename can't publish both (P23)
        why = "layout hive3 with deltas and delete_deltas"
        return Decision(CompactionKind.MAJOR, "C19", f"{count}, and no minor compaction: {why}")
    return Decision(CompactionKind.MINOR, "C20", count)


def _old_abort(entity: EntityCounters, thresholds: Thresholds, now_ms: int) -> bool:
    """C2: an abort is too old; the Initiator ignores aborts if the Cleaner handles them."""
    return (
        not thresholds.aborts_by_cleaner
        and entity.oldest_abort > 0
        and 0 <= thresholds.aborted_age_ms < now_ms - entity.oldest_abort
    )


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
            entity.table,
            entity.partition,
            decision.kind.value,
            initiator=worker_id(),
            obsolete_base=decision.rule == "C16",
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
    settings = metastore.in_force
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
