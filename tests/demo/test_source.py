"""Deliveries add up to the year, are reproducible, and change only rows that exist."""

from __future__ import annotations

import datetime

import pandas as pd
import pytest

from assets import flights_source as source
from assets.flights import WEEKLY, correction, days_predicate, week_of


def test_weeks_cover_the_year_once() -> None:
    days = [day for week in range(source.WEEKS) for day in source.week_days(week)]
    first = datetime.date(2013, 1, 1)
    assert days == [first + datetime.timedelta(days=days_later) for days_later in range(365)]


@pytest.mark.more
def test_deliveries_hold_every_flight_but_the_erased_ones() -> None:
    raw = source.raw_flights()
    delivered = pd.concat([source.delivery(week).flights for week in range(source.WEEKS)])
    assert len(raw) == 336_776
    assert not delivered.duplicated(source.KEY).any()
    missing = raw.loc[raw.index.difference(delivered.index)]
    gone = {tail for tails in source.ERASURES.values() for tail in tails}
    assert set(missing["tailnum"]) <= gone


def test_partition_keys_are_the_first_days_of_the_weeks() -> None:
    keys = WEEKLY.get_partition_keys()
    assert [week_of(key) for key in keys] == list(range(source.WEEKS))
    assert keys == [source.week_days(week)[0].isoformat() for week in range(source.WEEKS)]


@pytest.mark.more
@pytest.mark.parametrize("week", [6, 12, 26, 52])
def test_changes_hit_flights_that_were_delivered_before(week: int) -> None:
    one, again = source.delivery(week), source.delivery(week)
    pd.testing.assert_frame_equal(one.corrections, again.corrections)
    before = source.expected_flights(week).set_index(source.KEY)
    fixed = one.corrections.set_index(source.KEY)
    assert fixed.index.isin(before.index).all()
    assert (fixed["arr_delay"] > before.loc[fixed.index, "arr_delay"]).all()
    if one.resent_day:
        there = (before.index.get_level_values("month") == one.resent_day.month) & (
            before.index.get_level_values("day") == one.resent_day.day
        )
        assert 0 < len(one.resent) < there.sum()  # cancelled flights are not sent again
    for tail in one.erased:
        assert (before["tailnum"] == tail).any()


def test_what_was_erased_does_not_come_back_with_an_earlier_delivery() -> None:
    tails = source.erased_by([26])
    first = source.delivery(0)
    assert tails == set(source.ERASURES[26]) and first.flights["tailnum"].isin(tails).any()
    again = first.without(tails)
    assert not again.flights["tailnum"].isin(tails).any()
    assert len(again.flights) == (~first.flights["tailnum"].isin(tails)).sum()


@pytest.mark.more
def test_what_is_expected_after_all_deliveries() -> None:
    table = source.expected_flights()
    assert not table.duplicated(source.KEY).any()
    assert not table["tailnum"].isin([t for tails in source.ERASURES.values() for t in tails]).any()
    same = table.merge(source.raw_flights(), on=source.KEY, suffixes=("", "_raw"))
    assert len(same) == len(table)
    changed = same["arr_delay"].fillna(-9999) != same["arr_delay_raw"].fillna(-9999)
    assert 0 < changed.sum() < 1000
    delays = source.expected_delays(table)
    assert delays["flights"].sum() == len(table)
    assert delays["arr_delay_minutes"].sum() == table["arr_delay"].sum()


def test_predicates_name_months_so_that_others_are_not_read() -> None:
    days = [datetime.date(2013, 1, 31), datetime.date(2013, 2, 1), datetime.date(2013, 2, 2)]
    assert days_predicate(days) == "(month = 1 AND day IN (31)) OR (month = 2 AND day IN (1, 2))"
    rows = pd.DataFrame(
        {
            "month": [1],
            "day": [31],
            "carrier": ["UA"],
            "flight": [7],
            "origin": ["JFK"],
            "dep_delay": [5],
            "arr_delay": [6],
        }
    )
    assignments, where = correction(rows)
    assert assignments["arr_delay"].endswith("WHEN '1|31|UA|7|JFK' THEN 6 END")
    assert where.startswith("((month = 1 AND day IN (31))) AND concat_ws(")


def test_a_missing_file_says_what_to_do() -> None:
    with pytest.raises(source.SourceMissing, match="make setup"):
        source.data_file("no_such_file.csv")
