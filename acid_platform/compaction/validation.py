"""Checks whether a compaction kept its rows, by comparing profiles of its input and output.

A profile is a sum over rows modulo 2^64, so tasks can profile their buckets separately and the
order of rows does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared between the inputs of a compaction (with deletes applied) and its output.

    `row_id_checksum` is the sum of a 64-bit hash of (originalTransaction, bucket, rowId) over the
    rows, `column_checksums` the sum of a hash of each value. `delete_events` and their checksum
    matter for a minor compaction, which keeps delete events. `disordered` counts files without a
    key index, which is only written if the keys ascend. The caller chooses the hash; it must be the
    same on both sides.
    """

    rows: int = 0
    row_id_checksum: int = 0
    delete_events: int = 0
    delete_event_checksum: int = 0
    column_checksums: Mapping[str, int] = field(default_factory=dict)
    null_counts: Mapping[str, int] = field(default_factory=dict)
    disordered: int = 0


class Invariant(Enum):
    """What a compaction has to keep; the values are shown to users."""

    ROWS = "rows"
    ROW_IDS = "row ids"
    DELETE_EVENTS = "delete events"
    VALUES = "column values"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Measure:
    """A number before and after a compaction; None if that side lacks the column."""

    invariant: Invariant
    what: str
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        expected, actual = (
            "absent" if value is None else str(value) for value in (self.expected, self.actual)
        )
        return f"{self.what}: expected {expected}, got {actual}"


def combine(profiles: Iterable[Profile]) -> Profile:
    every = list(profiles)
    checksums: Counter[str] = Counter()
    nulls: Counter[str] = Counter()
    for profile in every:
        checksums.update(profile.column_checksums)
        nulls.update(profile.null_counts)
    return Profile(
        rows=sum(one.rows for one in every),
        row_id_checksum=sum(one.row_id_checksum for one in every) & _MASK,
        delete_events=sum(one.delete_events for one in every),
        delete_event_checksum=sum(one.delete_event_checksum for one in every) & _MASK,
        column_checksums={name: value & _MASK for name, value in checksums.items()},
        null_counts=dict(nulls),
        disordered=sum(one.disordered for one in every),
    )


def measures(expected: Profile, actual: Profile) -> tuple[Measure, ...]:
    """All measures of two profiles; columns are sorted by name."""
    events = Invariant.DELETE_EVENTS
    compared = [
        Measure(Invariant.ROWS, "rows", expected.rows, actual.rows),
        Measure(Invariant.ROW_IDS, "row ids", expected.row_id_checksum, actual.row_id_checksum),
        Measure(events, "delete events", expected.delete_events, actual.delete_events),
        Measure(
            events, "delete event ids", expected.delete_event_checksum, actual.delete_event_checksum
        ),
        Measure(Invariant.ORDER, "files out of order", expected.disordered, actual.disordered),
    ]
    for title, before, after in (
        ("checksum", expected.column_checksums, actual.column_checksums),
        ("null count", expected.null_counts, actual.null_counts),
    ):
        compared += [
            Measure(
                Invariant.VALUES, f"{title} of column {name}", before.get(name), after.get(name)
            )
            for name in sorted({*before, *after})
        ]
    return tuple(compared)


def compare(expected: Profile, actual: Profile) -> tuple[Measure, ...]:
    """The measures that a compaction changed; empty if it is correct."""
    return tuple(
        measure for measure in measures(expected, actual) if measure.expected != measure.actual
    )
