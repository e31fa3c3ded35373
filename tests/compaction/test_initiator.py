"""The Initiator's decision: C5 to C22, on both sides of every boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acid_platform import NotEnoughHistory, SettingRefused
from acid_platform.base.config import Settings
from acid_platform.compaction.states import (
    CompactionKind,
    CompactionState,
    EntitySize,
    LiveDirectory,
    entity_size,
)
from acid_platform.metastore.operations.compaction import EndedCompaction, EntityCounters
from acid_platform.services.initiator import (
    Decision,
    Thresholds,
    check,
    decide,
    no_auto_compaction,
)
from acid_platform.transactions import ValidWriteIdList
from tests.notation import names, write_ids

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR
HOUR = 3_600_000
DAY = 24 * HOUR
DEFAULT = Thresholds()
DUE = EntitySize(reference_bytes=100, delta_bytes=90, delta_directories=3)
"""Sizes that ask for MAJOR."""


NOW = 1000 * DAY
INSERT_ONLY = {"transactional_properties": "insert_only"}


def counters(size: EntitySize, **changes: Any) -> EntityCounters:
    facts = {"table": "db.t", "partition": None, "partitioned": False, "properties": {}}
    return EntityCounters(size=size, **{**facts, **changes})


def answer(decision: Decision) -> tuple[CompactionKind | None, str]:
    assert decision.reason
    return decision.kind, decision.rule


def size(
    base: int | None = None,
    deltas: int = 0,
    directories: int = 0,
    originals: int = 0,
    obsolete_base: bool = False,
) -> EntitySize:
    return EntitySize(originals if base is None else base, deltas, directories, obsolete_base)


@pytest.mark.parametrize(
    ("entity", "expected"),
    [
        # C15, C21: exactly 10 % is not more than 10 %.
        (size(base=100_000, deltas=10_000, directories=1), (None, "C17")),
        (size(base=100_000, deltas=10_100, directories=1), (MAJOR, "C15")),
        (size(base=100_000, deltas=10_001, directories=1), (MAJOR, "C15")),
        (size(base=30, deltas=3, directories=1), (None, "C17")),
        # C17, C20: 10 directories are not more than 10.
        (size(base=10**9, deltas=100, directories=10), (None, "C17")),
        (size(base=10**9, deltas=100, directories=11), (MINOR, "C20")),
        # C14, C18.
        (size(deltas=100, directories=11), (MAJOR, "C18")),
        (size(deltas=100, directories=10), (None, "C17")),
        (size(originals=1000, deltas=100, directories=1), (None, "C17")),
        (size(originals=1000, deltas=101, directories=1), (MAJOR, "C15")),
        (size(originals=10**9, deltas=100, directories=11), (MINOR, "C20")),
        # C13: with a base the originals do not count.
        (size(base=1000, originals=10**9, deltas=101, directories=1), (MAJOR, "C15")),
        # A truncated base has no bytes: as good as none.
        (size(base=0, deltas=100, directories=11), (MAJOR, "C18")),
        # C16.
        (size(base=1000, obsolete_base=True), (MAJOR, "C16")),
        (size(base=1000, deltas=1, directories=1, obsolete_base=True), (None, "C17")),
        # C21: an empty table.
        (size(), (None, "C17")),
        (size(directories=11), (MINOR, "C20")),
    ],
)
def test_C13_to_C21_sizes(entity: EntitySize, expected: tuple[CompactionKind | None, str]) -> None:
    assert answer(check(counters(entity), DEFAULT, NOW)) == expected


def test_C19_minor_not_possible() -> None:
    sizes = size(base=10**9, deltas=100, directories=11)
    entity = replace(counters(sizes, both_kinds=True), properties={"acid.layout": "hive3"})
    decision = check(entity, DEFAULT, NOW)
    assert answer(decision) == (MAJOR, "C19")
    assert "layout hive3 with deltas and delete_deltas" in decision.reason
    assert answer(check(replace(entity, both_kinds=False), DEFAULT, NOW)) == (MINOR, "C20")
    assert answer(check(replace(entity, properties={}), DEFAULT, NOW)) == (MINOR, "C20")
    few = replace(entity, size=replace(sizes, delta_directories=10))
    assert answer(check(few, DEFAULT, NOW)) == (None, "C17")


def test_C2_C11_many_aborts() -> None:
    """C50: in cleaner mode nothing is enqueued."""
    in_charge, many = replace(DEFAULT, aborts_by_cleaner=False), counters(size(), aborted=1001)
    assert answer(check(many, in_charge, NOW)) == (MAJOR, "C11")
    assert answer(check(replace(many, aborted=1000), in_charge, NOW)) == (None, "C17")
    assert answer(check(many, replace(DEFAULT, aborts_by_cleaner=True), NOW)) == (None, "C17")


@pytest.mark.parametrize(
    ("age", "threshold", "by_cleaner", "expected"),
    [
        (13 * HOUR, 12 * HOUR, False, (MINOR, "C12")),
        (12 * HOUR + 1, 12 * HOUR, False, (MINOR, "C12")),
        (12 * HOUR, 12 * HOUR, False, (None, "C17")),
        (13 * HOUR, -1, False, (None, "C17")),
        (1, 0, False, (MINOR, "C12")),
        (None, 0, False, (None, "C17")),
        (13 * HOUR, 12 * HOUR, True, (None, "C17")),
    ],
)
def test_C2_C12_old_abort(
    age: int | None,
    threshold: int,
    by_cleaner: bool,
    expected: tuple[CompactionKind | None, str],
) -> None:
    thresholds = replace(DEFAULT, aborted_age_ms=threshold, aborts_by_cleaner=by_cleaner)
    oldest = 0 if age is None else NOW - age
    entity = counters(size(), aborted=1, oldest_abort=oldest)
    assert answer(check(entity, thresholds, NOW)) == expected


def test_C11_comes_before_C12_before_the_sizes() -> None:
    thresholds = replace(DEFAULT, aborts_by_cleaner=False)
    both = counters(DUE, aborted=1001, oldest_abort=NOW - 13 * HOUR)
    assert answer(check(both, thresholds, NOW)) == (MAJOR, "C11")
    assert answer(check(replace(both, aborted=1), thresholds, NOW)) == (MINOR, "C12")
    recent = replace(both, aborted=1, oldest_abort=NOW - 1)
    assert answer(check(recent, thresholds, NOW)) == (MAJOR, "C15")


# --- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [("NO_AUTO_COMPACTION", "true"), ("no_auto_compaction", "TRUE"), ("NO_AUTO_COMPACTION", "no")],
)
def test_C5_no_auto_compaction(name: str, text: str) -> None:
    off = text != "no"
    properties = {name: text if off else "false"}
    assert no_auto_compaction(properties) is off and not no_auto_compaction({})
    entity = replace(counters(DUE), properties=properties)
    assert answer(decide(entity, DEFAULT, NOW)) == ((None, "C5") if off else (MAJOR, "C15"))


@pytest.mark.parametrize("state", list(CompactionState))
def test_C6_only_waiting_and_working_rows_block(state: CompactionState) -> None:
    """Ready for cleaning does not."""
    blocks = state in (CompactionState.INITIATED, CompactionState.WORKING)
    assert answer(decide(counters(DUE, queued=state), DEFAULT, NOW)) == (
        (None, "C6") if blocks else (MAJOR, "C15")
    )


def test_C7_insert_only() -> None:
    """Eleven deltas with a base are MINOR, unless insert-only compaction is off."""
    crud = counters(size(base=10**9, deltas=100, directories=11))
    insert_only = replace(crud, properties=INSERT_ONLY)
    off = replace(DEFAULT, compact_insert_only=False)
    assert answer(decide(insert_only, DEFAULT, NOW)) == (MINOR, "C20")
    assert answer(decide(insert_only, off, NOW)) == (None, "C7")
    assert answer(decide(crud, off, NOW)) == (MINOR, "C20")


def test_C8_partitioned_table_without_partition() -> None:
    entity = counters(DUE, partitioned=True, oldest_abort=NOW - 13 * HOUR)
    assert answer(decide(entity, DEFAULT, NOW)) == (None, "C8")
    in_charge = replace(DEFAULT, aborts_by_cleaner=False)
    assert answer(decide(entity, in_charge, NOW)) == (MINOR, "C12")
    assert answer(decide(replace(entity, oldest_abort=NOW - 1), in_charge, NOW)) == (None, "C8")


FAILED, DONE, REFUSED, SKIPPED = (
    CompactionState.FAILED,
    CompactionState.SUCCEEDED,
    CompactionState.REFUSED,
    CompactionState.DID_NOT_INITIATE,
)


def ended(state: CompactionState, age_ms: int) -> EndedCompaction:
    return EndedCompaction(state, NOW - age_ms)


@pytest.mark.parametrize(
    ("states", "ages", "blocked"),
    [
        ((), (), False),
        ((FAILED,), (1,), False),
        ((FAILED, FAILED), (1, 2), True),
        ((FAILED, DONE, FAILED), (1, 2, 3), False),
        ((FAILED, REFUSED), (1, 2), False),
        ((FAILED, REFUSED, FAILED), (1, 2, 3), False),
        ((SKIPPED, FAILED, SKIPPED, FAILED), (1, 2, 3, 4), True),
        ((FAILED, SKIPPED), (1, 2), False),
        ((DONE, FAILED, FAILED), (1, 2, 3), False),
        ((FAILED, FAILED, DONE), (1, 2, 3), True),
        ((FAILED, FAILED), (8 * DAY, 9 * DAY), False),
        ((FAILED, FAILED), (7 * DAY, 9 * DAY), True),
        ((FAILED, FAILED), (7 * DAY + 1, 9 * DAY), False),
        ((FAILED, FAILED), (DAY, 9 * DAY), True),
        ((SKIPPED, FAILED, FAILED), (1, 8 * DAY, 9 * DAY), False),
    ],
)
def test_C9_too_many_failures(
    states: tuple[CompactionState, ...], ages: tuple[int, ...], blocked: bool
) -> None:
    """The retry time counts from the newest failed request."""
    history = tuple(map(ended, states, ages))
    decision = decide(counters(DUE, history=history), DEFAULT, NOW)
    assert answer(decision) == ((None, "C9") if blocked else (MAJOR, "C15"))
    assert decision.did_not_initiate is blocked


@pytest.mark.parametrize("retry", [0, -1])
def test_C9_without_a_retry_time_it_never_opens(retry: int) -> None:
    history = (ended(FAILED, 99 * DAY), ended(FAILED, 100 * DAY))
    thresholds = replace(DEFAULT, failed_retry_ms=retry)
    assert answer(decide(counters(DUE, history=history), thresholds, NOW)) == (None, "C9")


def test_C9_the_threshold_says_how_many() -> None:
    history = (ended(FAILED, 1), ended(FAILED, 2))
    three = replace(DEFAULT, failed_compactions=3)
    assert answer(decide(counters(DUE, history=history), three, NOW)) == (MAJOR, "C15")
    one = replace(DEFAULT, failed_compactions=1)
    assert answer(decide(counters(DUE, history=history[:1]), one, NOW)) == (None, "C9")


def test_C5_to_C9_are_asked_in_this_order() -> None:
    entity = replace(
        counters(
            DUE,
            partitioned=True,
            queued=CompactionState.WORKING,
            history=(ended(FAILED, 1), ended(FAILED, 2)),
        ),
        properties={"NO_AUTO_COMPACTION": "true", **INSERT_ONLY},
    )
    thresholds = replace(DEFAULT, compact_insert_only=False)
    rules = []
    changes: list[dict[str, Any]] = [
        {"properties": INSERT_ONLY},
        {"queued": None},
        {"properties": {}},
        {"partitioned": False},
        {"history": ()},
        {},
    ]
    for change in changes:
        rules.append(decide(entity, thresholds, NOW).rule)
        entity = replace(entity, **change)
    assert rules == ["C5", "C6", "C7", "C8", "C9", "C15"]


# --- thresholds ---------------------------------------------------------------------------------

NUM, PCT = "hive.compactor.delta.num.threshold", "hive.compactor.delta.pct.threshold"
PROPERTY = "compactorthreshold."


def test_C22_defaults_are_those_of_the_registry() -> None:
    assert Thresholds.for_table({}, Settings.of()) == DEFAULT


def test_C22_table_properties_win_on_their_table_only() -> None:
    settings = Settings.of({NUM: "20", PCT: "0.5"})
    own = Thresholds.for_table({PROPERTY + NUM: "3", PROPERTY + PCT: "0.01"}, settings)
    assert (own.delta_num, own.delta_pct) == (3, 0.01)
    other = Thresholds.for_table({"compactor.x": "1"}, settings)
    assert (other.delta_num, other.delta_pct) == (20, 0.5)
    entity = counters(size(base=10**6, deltas=100, directories=4))
    assert answer(check(entity, own, NOW)) == (MINOR, "C20")
    assert answer(check(entity, other, NOW)) == (None, "C17")


def test_C22_times_and_flags() -> None:
    thresholds = Thresholds.for_table(
        {},
        Settings.of(
            {
                "hive.compactor.aborted.txn.time.threshold": "1h",
                "hive.compactor.initiator.failed.retry.time": "5ms",
                "hive.compactor.clean.aborts.using.cleaner": "false",
                "hive.compactor.compact.insert.only": "FALSE",
                "hive.compactor.abortedtxn.threshold": "7",
                "hive.compactor.initiator.failed.compacts.threshold": "4",
            }
        ),
    )
    assert thresholds == Thresholds(
        aborted_txns=7,
        aborted_age_ms=HOUR,
        aborts_by_cleaner=False,
        failed_compactions=4,
        failed_retry_ms=5,
        compact_insert_only=False,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((NUM, text) for text in ("ten", "-1", "1.5", "")),
        *((PCT, text) for text in ("10%", "-0.1", "nan", "inf")),
    ],
)
def test_C22_a_bad_number_is_refused_with_its_property(name: str, text: str) -> None:
    with pytest.raises(SettingRefused, match=f"table property {PROPERTY}{name}='{text}'"):
        Thresholds.for_table({PROPERTY + name: text}, Settings.of())


def test_C22_a_bad_setting_is_refused_by_name() -> None:
    with pytest.raises(SettingRefused, match=r"hive\.compactor\.abortedtxn\.threshold='many'"):
        Settings.of({"hive.compactor.abortedtxn.threshold": "many"})


# --- sizes --------------------------------------------------------------------------------------


def live(text: str) -> list[LiveDirectory]:
    """`b5=100 d6=10`; a name `-` stands for original files."""
    found = []
    for word in text.split():
        name, _, count = word.partition("=")
        found.append(LiveDirectory("" if name == "-" else names(name)[0], int(count)))
    return found


@pytest.mark.parametrize(
    ("found", "w", "expected"),
    [
        ("d1=5 D1=3 d2=7", "2:M::", size(deltas=15, directories=3)),
        # Write id 5 is open among 1 to 12.
        ("d1=1 d4=1 d5=1 d6=1 d12=1", "12:5:5:", size(deltas=2, directories=2)),
        ("d1-8v20=1 d2=1", "12:5:5:", size(deltas=1, directories=1)),
        ("d1=1 d2=1", "2:M::2", size(deltas=1, directories=1)),
        # Nothing at or below the base counts.
        ("b5=100 d3=9 D5=9 d6=7", "6:M::", size(base=100, deltas=7, directories=1)),
        ("b5=100 b9=900 d3=9", "9:M::", size(base=900, obsolete_base=True)),
        ("b5=100 b9v20=80", "9:M::", size(base=80, obsolete_base=True)),
        ("b5=100 b9=900 d6=1", "9:8:8:", size(base=100, deltas=1, directories=1)),
        # A compacted delta stands for what it contains.
        ("d1=9 d2=9 D2=9 d1-2v20=5 d3=1", "3:M::", size(deltas=6, directories=2)),
        # Original files, in any number of reports.
        ("-=70 -=30 d1=5", "1:M::", size(originals=100, deltas=5, directories=1)),
        ("-=100 b1v9=60", "1:M::", size(base=60, originals=100)),
        ("b1=0 d2=4", "2:M::", size(base=0, deltas=4, directories=1)),
        ("", "0:M::", size()),
    ],
)
def test_S16_C13_entity_size(found: str, w: str, expected: EntitySize) -> None:
    assert entity_size(live(found), write_ids(w).for_compactor()) == expected


def test_P23_a_hive3_base_is_judged_as_compacted() -> None:
    """An abort at the base's own number does not take a compacted base away (S12)."""
    compactor = ValidWriteIdList.of("db.t", 5, aborted=[5]).for_compactor()
    base = LiveDirectory("base_0000005", 10, compacted=True)
    assert entity_size([base], compactor).reference_bytes == 10
    assert entity_size([replace(base, compacted=False)], compactor).reference_bytes == 0


def test_C23_a_base_above_every_committed_write_raises() -> None:
    compactor = ValidWriteIdList.of("db.t", 5, open=[2]).for_compactor()
    with pytest.raises(NotEnoughHistory):
        entity_size(live("b4v20=1"), compactor)
