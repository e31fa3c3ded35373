"""Sets of changed rows: their text, their intersection, and what shortening them does (P38)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import MalformedRows
from acid_platform.transactions.row_sets import RowSet
from acid_platform.write.publishing import NO_ROWS, ChangedRows

Key = tuple[int, int, int]
"""Write id, bucket property, rowId."""

BUCKETS = (0, 536870912, 536936448)
keys = st.tuples(st.integers(0, 4), st.sampled_from(BUCKETS), st.integers(0, 40))
key_sets = st.sets(keys, max_size=60)
large = st.sets(st.integers(0, 1 << 33), min_size=1, max_size=40)


def rows_of(chosen: Iterable[Key]) -> ChangedRows:
    listed = list(chosen)
    return ChangedRows.of(*(np.array([key[at] for key in listed], np.int64) for at in range(3)))


def keys_in(text: str) -> set[Key]:
    """Another parser of the text form, one row at a time."""
    found: set[Key] = set()
    for part in text.removeprefix("~").split():
        bucket, listed = part.split("@")
        for group in listed.split(";"):
            write_id, body = group.split(":")
            steps, _, lengths = body.partition("/")
            first = 0
            counts = lengths.split(",") if lengths else ["1"] * len(steps.split(","))
            for step, count in zip(steps.split(","), counts, strict=True):
                first += int(step)
                found |= {(int(write_id), int(bucket), first + row) for row in range(int(count))}
    return found


def set_of(chosen: Iterable[Key], limit: int = 1 << 20) -> RowSet:
    made = rows_of(chosen).row_set(limit)
    assert made is not None
    return RowSet.parse(str(made)).checked()


def test_P38_the_text_form() -> None:
    chosen = {(3, 536870912, row) for row in (0, 1, 2, 3, 4, 7, 9)}
    chosen |= {(4, 536870912, 8), (3, 536936448, 1)}
    assert set_of(chosen).text == "536870912@3:0,7,2/5,1,1;4:8 536936448@3:1"
    assert set_of([]).text == "" and set_of([]).exact


@given(key_sets)
def test_P38_a_set_has_exactly_its_rows(chosen: set[Key]) -> None:
    assert keys_in(set_of(chosen).text) == chosen


@given(key_sets)
def test_P38_a_set_that_fits_is_not_shortened(chosen: set[Key]) -> None:
    whole = set_of(chosen)
    assert not chosen or set_of(chosen, len(whole.text)) == whole


@given(key_sets, key_sets)
def test_P38_shared_rows_are_those_of_the_naive_intersection(
    mine: set[Key], other: set[Key]
) -> None:
    found = set_of(mine).shared(set_of(other), 1000)
    assert bool(found) == bool(mine & other)
    assert set(found) <= mine & other
    assert len(set_of(other).shared(set_of(mine), 2)) == min(2, len(found))


@given(large, large, st.booleans())
def test_P38_shared_rows_of_large_row_ids(mine: set[int], other: set[int], runs: bool) -> None:
    if runs:  # neighbours, so that lengths differ from 1
        mine, other = mine | {row + 1 for row in mine}, other | {row + 1 for row in other}
    other |= {min(mine)}
    found = set_of((1, 0, row) for row in mine).shared(set_of((1, 0, row) for row in other), 10**6)
    assert {row for _, _, row in found} <= mine & other and found


@given(key_sets, key_sets, st.integers(1, 200))
def test_P38_a_shortened_set_misses_no_row(mine: set[Key], other: set[Key], limit: int) -> None:
    short = rows_of(mine).row_set(limit)
    if short is None:
        groups = {key[:2] for key in mine}
        assert len(groups) * 4 > limit // 4, "few groups fit always"
        return
    short = RowSet.parse(short.text).checked()
    assert len(short.text) <= limit
    assert keys_in(short.text) >= mine
    assert not short.exact or keys_in(short.text) == mine
    if mine & other:
        assert short.shared(set_of(other)) and set_of(other).shared(short)


def test_P38_shortening_fills_the_smallest_gaps_first() -> None:
    rows = rows_of([(1, 0, row) for row in (0, 2, 4, 1000, 1002, 5000)])
    short = rows.shortened(3)
    assert short is not None and not short.exact
    assert [*zip(short.firsts, short.lasts, strict=True)] == [(0, 4), (1000, 1002), (5000, 5000)]
    assert rows.shortened(6) is rows
    assert rows_of([(write_id, 0, 1) for write_id in range(4)]).shortened(3) is None


@pytest.mark.more
@given(st.lists(key_sets, max_size=4))
def test_P38_a_union_has_the_rows_of_all_statements(parts: list[set[Key]]) -> None:
    union = ChangedRows.union(rows_of(part) for part in parts).row_set(1 << 20)
    assert union is not None
    assert keys_in(union.text) == set().union(*parts)


@given(key_sets, key_sets)
def test_P38_a_union_with_a_shortened_set_misses_no_row(mine: set[Key], other: set[Key]) -> None:
    short = rows_of(mine).shortened(15) or NO_ROWS
    union = ChangedRows.union([short, rows_of(other)]).row_set(1 << 20)
    assert union is not None
    RowSet.parse(union.text).checked()
    assert keys_in(union.text) >= other | (mine if len(short) else set())
    assert union.exact == short.exact


def test_P38_without_a_budget_nothing_is_named() -> None:
    assert rows_of([(1, 0, 1)]).row_set(0) is None


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1",
        "1@",
        "1@2",
        "1@2:",
        "1@2:a",
        "1@2:01",
        "1@2:3,",
        "1@2:3 ",
        "1@2:-3",
        "1@2:3~",
        "\n",
    ],
)
def test_P38_a_text_that_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(MalformedRows):
        RowSet.parse(text)


@pytest.mark.parametrize("body", ["3,0", "3,1/2,1", "3/0", "3,1/1", "3/1,1"])
def test_P38_runs_that_do_not_ascend_are_refused(body: str) -> None:
    """They could hide a row from the search."""
    with pytest.raises(MalformedRows):
        RowSet.parse(f"1@2:{body}").checked()
