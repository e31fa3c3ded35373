"""The Initiator's decision whether and how to compact an entity (C5 to C22).

The caller finds the candidates (C1 to C4, C10), enqueues requests and writes the history row
that a decision asks for (C9).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acid_platform.base.config import setting
from acid_platform.base.table_properties import (
    DELTA_NUM,
    DELTA_PCT,
    NO_AUTO_COMPACTION,
    THRESHOLD_PREFIX,
    THRESHOLDS,
)
from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import SettingRefused
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import BaseName, parse_directory
from acid_platform.scan.selection import select
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList

ABORTED_TXNS = "hive.compactor.abortedtxn.threshold"
ABORTED_AGE = "hive.compactor.aborted.txn.time.threshold"
ABORTS_BY_CLEANER = "hive.compactor.clean.aborts.using.cleaner"
FAILED_COMPACTIONS = "hive.compactor.initiator.failed.compacts.threshold"
FAILED_RETRY = "hive.compactor.initiator.failed.retry.time"
INSERT_ONLY = "hive.compactor.compact.insert.only"

_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of the decision; times in milliseconds, defaults as in Hive."""

    delta_num: int = 10
    delta_pct: float = 0.1
    aborted_txns: int = 1000
    aborted_age_ms: int = 12 * _HOUR
    """Negative: the age is ignored."""
    aborts_by_cleaner: bool = True
    failed_compactions: int = 2
    failed_retry_ms: int = 7 * 24 * _HOUR
    """Zero or less: never retry without a manual request."""
    compact_insert_only: bool = True

    @classmethod
    def for_table(
        cls, properties: Mapping[str, str], settings: Mapping[str, str | float]
    ) -> Thresholds:
        """The warehouse's settings, overridden by the table's `compactorthreshold.*` (C22).

        `settings` has Hive's names as keys; text values are parsed as config.py says, numbers are
        taken as they are (times in milliseconds), missing settings have their defaults. Raises
        SettingRefused, naming the property or setting whose value is not allowed.
        """

        overrides = {
            threshold.name.removeprefix(THRESHOLD_PREFIX): text
            for threshold in THRESHOLDS
            if (text := threshold.stated(properties)) is not None
        }

        def value(name: str) -> float:
            return _value(name, overrides, settings)

        return cls(
            delta_num=int(value(DELTA_NUM)),
            delta_pct=value(DELTA_PCT),
            aborted_txns=int(value(ABORTED_TXNS)),
            aborted_age_ms=int(value(ABORTED_AGE)),
            aborts_by_cleaner=bool(value(ABORTS_BY_CLEANER)),
            failed_compactions=int(value(FAILED_COMPACTIONS)),
            failed_retry_ms=int(value(FAILED_RETRY)),
            compact_insert_only=bool(value(INSERT_ONLY)),
        )


def _value(name: str, overrides: Mapping[str, str], settings: Mapping[str, str | float]) -> float:
    known, source = setting(name), name
    raw: str | float = settings.get(name, known.default)
    if name in overrides:
        raw, source = overrides[name], f"table property {THRESHOLD_PREFIX}{name}"
    try:
        number = float(known.parse(raw) if isinstance(raw, str) else raw)
    except SettingRefused:
        number = math.nan
    # Comparisons with NaN are false: such a threshold would silently be off.
    if not math.isfinite(number):
        raise SettingRefused(f"{source}={raw!r} is refused; allowed is {known.allowed}")
    return number


def no_auto_compaction(properties: Mapping[str, str]) -> bool:
    """Whether the properties disable automatic compaction (C5)."""
    return NO_AUTO_COMPACTION.text(properties) == "true"


@dataclass(frozen=True, slots=True)
class LiveDirectory:
    """A directory with committed data, as its writer or compaction reported it.

    `name` is empty for original files. `compacted` distinguishes a hive3 base written by a
    compactor from an overwrite.
    """

    name: str
    bytes: int
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class EntitySize:
    """The data of an entity that a compaction could merge now; sizes in bytes (C13)."""

    base_bytes: int = 0
    original_bytes: int = 0
    delta_bytes: int = 0
    delta_directories: int = 0
    """The number of deltas and delete_deltas together."""
    has_base: bool = False
    has_obsolete_base: bool = False

    @property
    def reference_bytes(self) -> int:
        """The size that deltas are compared with: the base, or else the original files (C13)."""
        return self.base_bytes if self.has_base else self.original_bytes


def entity_size(
    directories: Iterable[LiveDirectory], write_ids: CompactorWriteIdList
) -> EntitySize:
    """The size of what the compactor would select, computed by `select` itself (C13).

    Only whole directories at or below the compactor's high watermark count, but none at or below
    the base and none that a wider delta contains. `directories` must be committed. Raises
    MalformedName and NotEnoughHistory as `select` does.
    """
    acid: dict[str, LiveDirectory] = {}
    original_bytes = 0
    for directory in directories:
        if parse_directory(directory.name) is None:
            original_bytes += directory.bytes
        else:
            acid[directory.name] = directory
    formats = {name: "compacted" for name, directory in acid.items() if directory.compacted}
    listing = EntityListing(write_ids.table, (), tuple(acid), formats)
    seen = select(listing, write_ids, ValidTxnList.everything())
    return EntitySize(
        base_bytes=acid[seen.base.directory].bytes if seen.base else 0,
        original_bytes=original_bytes,
        delta_bytes=sum(acid[delta.directory].bytes for delta in seen.deltas),
        delta_directories=len(seen.deltas),
        has_base=seen.base is not None,
        has_obsolete_base=any(
            isinstance(parse_directory(removable.path), BaseName) for removable in seen.obsolete
        ),
    )


@dataclass(frozen=True, slots=True)
class PastCompaction:
    """A history row of the entity; `age_ms` is the time since the request was enqueued."""

    state: CompactionState
    age_ms: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """Everything that the decision about an entity depends on."""

    size: EntitySize
    no_auto: bool = False
    insert_only: bool = False
    needs_partition: bool = False
    """The table is partitioned and the candidate names no partition (C8)."""
    queue_state: CompactionState | None = None
    history: Sequence[PastCompaction] = ()
    """Newest first."""
    aborted_txns: int = 0
    oldest_abort_age_ms: int | None = None
    """Time since the start of the oldest aborted transaction that wrote to the entity."""
    minor_refused: str = ""
    """Why a minor compaction can't run here; empty if it can (C19)."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The kind of compaction to request (None: none), the deciding rule, and the reason as text."""

    kind: CompactionKind | None
    rule: str
    reason: str
    did_not_initiate: bool = False
    """The caller must write a `did not initiate` history row (C9)."""


def decide(candidate: Candidate, thresholds: Thresholds) -> Decision:
    """Whether the Initiator enqueues a compaction of this entity (C5 to C9, C11 to C21)."""
    return _filtered(candidate, thresholds) or check(candidate, thresholds)


def _filtered(candidate: Candidate, thresholds: Thresholds) -> Decision | None:
    """Why the candidate is dropped regardless of its size, if so; checks in Hive's order."""
    if candidate.no_auto:
        return Decision(None, "C5", f"table property {NO_AUTO_COMPACTION.name} is true")
    if candidate.queue_state in (CompactionState.INITIATED, CompactionState.WORKING):
        return Decision(None, "C6", f"a compaction is already {candidate.queue_state.text}")
    if candidate.insert_only and not thresholds.compact_insert_only:
        return Decision(None, "C7", f"insert-only table and {INSERT_ONLY} is false")
    if candidate.needs_partition and not _old_abort(candidate, thresholds):
        return Decision(None, "C8", "partitioned table, but the candidate names no partition")
    most_failures = thresholds.failed_compactions
    latest = [
        past for past in candidate.history if past.state is not CompactionState.DID_NOT_INITIATE
    ][:most_failures]
    failed = len(latest) == most_failures and all(p.state is CompactionState.FAILED for p in latest)
    # As in Hive, a retry is allowed only after the retry time; <= 0 never allows it.
    retry = thresholds.failed_retry_ms
    if failed and not 0 < retry < min(past.age_ms for past in latest):
        return Decision(
            None,
            "C9",
            f"the last {most_failures} compactions failed; request a compaction yourself, or"
            f" set {FAILED_COMPACTIONS}",
            did_not_initiate=True,
        )
    return None


def check(candidate: Candidate, thresholds: Thresholds) -> Decision:
    """The size check alone: the first rule that applies decides (C11 to C21).

    All comparisons are strict.
    """
    size = candidate.size
    if not thresholds.aborts_by_cleaner and candidate.aborted_txns > thresholds.aborted_txns:
        return Decision(
            CompactionKind.MAJOR,
            "C11",
            f"{candidate.aborted_txns} aborted transactions, more than {thresholds.aborted_txns}",
        )
    if _old_abort(candidate, thresholds):
        return Decision(
            CompactionKind.MINOR,
            "C12",
            "an aborted transaction is"
            f" {candidate.oldest_abort_age_ms} ms old, more than"
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
    if candidate.minor_refused:
        return Decision(
            CompactionKind.MAJOR,
            "C19",
            f"{count}, and no minor compaction: {candidate.minor_refused}",
        )
    return Decision(CompactionKind.MINOR, "C20", count)


def _old_abort(candidate: Candidate, thresholds: Thresholds) -> bool:
    """C2: an abort is too old; the Initiator ignores aborts if the Cleaner handles them."""
    age = candidate.oldest_abort_age_ms
    return (
        not thresholds.aborts_by_cleaner
        and thresholds.aborted_age_ms >= 0
        and age is not None
        and age > thresholds.aborted_age_ms
    )
