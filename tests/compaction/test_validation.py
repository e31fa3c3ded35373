"""Profiles of rows before and after a compaction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.compaction.profiles import (
    Invariant,
    Measure,
    Profile,
    combine,
    compare,
    measures,
)

BEFORE = Profile(10, 111, 2, 22, {"id": 5, "v": 6}, {"id": 0, "v": 3})


def test_equal_profiles_have_no_difference() -> None:
    assert compare(BEFORE, replace(BEFORE, column_checksums={"v": 6, "id": 5})) == ()


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (replace(BEFORE, rows=9), [(Invariant.ROWS, "rows", 10, 9)]),
        (replace(BEFORE, row_id_checksum=112), [(Invariant.ROW_IDS, "row ids", 111, 112)]),
        (replace(BEFORE, delete_events=3), [(Invariant.DELETE_EVENTS, "delete events", 2, 3)]),
        (
            replace(BEFORE, delete_event_checksum=23),
            [(Invariant.DELETE_EVENTS, "delete event ids", 22, 23)],
        ),
        (
            replace(BEFORE, column_checksums={"id": 5, "v": 7}),
            [(Invariant.VALUES, "checksum of column v", 6, 7)],
        ),
        (
            replace(BEFORE, null_counts={"id": 1, "v": 3}),
            [(Invariant.VALUES, "null count of column id", 0, 1)],
        ),
        (
            replace(BEFORE, column_checksums={"id": 5}),
            [(Invariant.VALUES, "checksum of column v", 6, None)],
        ),
        (
            replace(BEFORE, null_counts={"id": 0, "v": 3, "w": 0}),
            [(Invariant.VALUES, "null count of column w", None, 0)],
        ),
        (replace(BEFORE, disordered=2), [(Invariant.ORDER, "files out of order", 0, 2)]),
        (
            replace(BEFORE, rows=9, column_checksums={"id": 1, "v": 1}),
            [
                (Invariant.ROWS, "rows", 10, 9),
                (Invariant.VALUES, "checksum of column id", 5, 1),
                (Invariant.VALUES, "checksum of column v", 6, 1),
            ],
        ),
    ],
)
def test_each_difference_is_named(
    after: Profile, expected: list[tuple[Invariant, str, int | None, int | None]]
) -> None:
    assert compare(BEFORE, after) == tuple(Measure(*measure) for measure in expected)


def test_every_invariant_is_measured() -> None:
    assert {measure.invariant for measure in measures(BEFORE, BEFORE)} == set(Invariant)


def test_a_difference_reads_as_a_sentence() -> None:
    assert str(Measure(Invariant.ROWS, "rows", 10, 9)) == "rows: expected 10, got 9"
    assert str(Measure(Invariant.VALUES, "checksum of column v", 6, None)) == (
        "checksum of column v: expected 6, got absent"
    )


numbers = st.integers(0, 2**64 - 1)
columns = st.fixed_dictionaries({"id": numbers, "v": numbers})
profiles = st.builds(
    Profile,
    st.integers(0, 10**12),
    numbers,
    st.integers(0, 10**6),
    numbers,
    columns,
    columns,
    st.integers(0, 9),
)


@given(st.lists(profiles, max_size=5), st.integers(0, 5))
def test_tasks_may_profile_apart_and_in_any_order(parts: list[Profile], cut: int) -> None:
    whole = combine(parts)
    assert whole.rows == sum(part.rows for part in parts)
    assert compare(whole, combine(reversed(parts))) == ()
    assert compare(whole, combine([combine(parts[:cut]), combine(parts[cut:])])) == ()
    assert whole.row_id_checksum == sum(part.row_id_checksum for part in parts) % 2**64
