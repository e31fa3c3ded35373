"""Whether a compaction kept what it had to keep: profiles of rows, and their differences.

A profile is a sum over rows, so that tasks profile their buckets apart and the order of rows does
not matter. Sums are taken modulo 2^64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared of one set of rows: before (inputs, deletes applied) and after (output).

    `row_id_checksum` sums a 64-bit hash of (originalTransaction, bucket, rowId) over the rows,
    `column_checksums` one of each value. `delete_events` and their checksum count
    for a minor compaction, which keeps them. `disordered` counts files that lack the key index,
    which is only written where keys ascend. Which hash is taken is the caller's choice; it must be
    the same on both sides.
    """

    rows: int = 0
    row_id_checksum: int = 0
    delete_events: int = 0
    delete_event_checksum: int = 0
    column_checksums: Mapping[str, int] = field(default_factory=dict)
    null_counts: Mapping[str, int] = field(default_factory=dict)
    disordered: int = 0


class Invariant(Enum):
    """What a compaction has to keep, as people read it."""

    ROWS = "rows"
    ROW_IDS = "row ids"
    DELETE_EVENTS = "delete events"
    VALUES = "column values"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number on both sides of a compaction; None where a side lacks the column."""

    invariant: Invariant
    what: str
    expected: int | None
    actual: int | None

    @property
    def kept(self) -> bool:
        return self.expected == self.actual

    def __str__(self) -> str:
        expected, actual = (
            "absent" if one is None else str(one) for one in (self.expected, self.actual)
        )
        return f"{self.what}: expected {expected}, got {actual}"


def combine(profiles: Iterable[Profile]) -> Profile:
    """The profile of all rows together."""
    totals: Counter[str] = Counter()
    checksums: Counter[str] = Counter()
    nulls: Counter[str] = Counter()
    for one in profiles:
        totals.update(
            rows=one.rows,
            row_ids=one.row_id_checksum,
            events=one.delete_events,
            event_ids=one.delete_event_checksum,
            disordered=one.disordered,
        )
        checksums.update(one.column_checksums)
        nulls.update(one.null_counts)
    return Profile(
        rows=totals["rows"],
        row_id_checksum=totals["row_ids"] & _MASK,
        delete_events=totals["events"],
        delete_event_checksum=totals["event_ids"] & _MASK,
        column_checksums={name: value & _MASK for name, value in checksums.items()},
        null_counts=dict(nulls),
        disordered=totals["disordered"],
    )


def measures(expected: Profile, actual: Profile) -> tuple[Measure, ...]:
    """Everything that is compared, by name, columns in order of their names."""
    events = Invariant.DELETE_EVENTS
    found = [
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
        found += [
            Measure(
                Invariant.VALUES, f"{title} of column {name}", before.get(name), after.get(name)
            )
            for name in sorted({*before, *after})
        ]
    return tuple(found)


def compare(expected: Profile, actual: Profile) -> tuple[Measure, ...]:
    """What a compaction changed; empty for a right one."""
    return tuple(one for one in measures(expected, actual) if not one.kept)
