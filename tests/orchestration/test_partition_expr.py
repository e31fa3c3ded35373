"""partition_expr: partition keys name partitions of the table, or an error says why not."""

from __future__ import annotations

import dagster as dg
import pytest

from acid_platform import InvalidDefinition, NoSuchPartition
from acid_platform.layout.types import parse_columns
from acid_platform.orchestration.partition_keys import PartitionExpr, PartitionText, literal

DAILY = dg.DailyPartitionsDefinition("2024-01-01")
MONTHLY = dg.MonthlyPartitionsDefinition("2024-01-01")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
CUSTOMERS = dg.DynamicPartitionsDefinition(name="customers")
BOTH = dg.MultiPartitionsDefinition({"date": DAILY, "region": REGIONS})


def parsed(
    text: PartitionText, definition: dg.PartitionsDefinition[str], columns: str
) -> PartitionExpr:
    return PartitionExpr.parse(text, definition, parse_columns(columns), "db.t")


@pytest.mark.parametrize(
    ("text", "definition", "columns", "key", "values"),
    [
        ("day", DAILY, "day date", "2024-03-01", {"day": "2024-03-01"}),
        ("day", DAILY, "day string", "2024-03-01", {"day": "2024-03-01"}),
        ("day=%Y%m%d", DAILY, "day int", "2024-03-01", {"day": "20240301"}),
        (
            "year=%Y/month=%m",
            MONTHLY,
            "year int, month int",
            "2024-03-01",
            {"year": "2024", "month": "3"},
        ),
        ("month=%Y-%m", MONTHLY, "month string", "2024-03-01", {"month": "2024-03"}),
        (
            "at",
            dg.HourlyPartitionsDefinition("2024-01-01-00:00"),
            "at timestamp",
            "2024-03-01-05:00",
            {"at": "2024-03-01 05:00:00"},
        ),
        ("region", REGIONS, "region string", "eu", {"region": "eu"}),
        ("customer", CUSTOMERS, "customer int", "7", {"customer": "7"}),
        (
            "customer",
            dg.StaticPartitionsDefinition(["007"]),
            "customer int",
            "007",
            {"customer": "7"},
        ),
        (
            {"date": "day", "region": "region"},
            BOTH,
            "region string, day date",
            dg.MultiPartitionKey({"date": "2024-03-01", "region": "eu"}),
            {"day": "2024-03-01", "region": "eu"},
        ),
    ],
)
def test_a_key_names_a_partition(
    text: PartitionText,
    definition: dg.PartitionsDefinition[str],
    columns: str,
    key: str,
    values: dict[str, str],
) -> None:
    scope = parsed(text, definition, columns).scope([key])
    assert scope.values == {str(key): values}
    assert scope.constants == values and scope.single == values


@pytest.mark.parametrize(
    ("text", "definition", "columns", "why"),
    [
        ("dya", DAILY, "day date", "'dya' is not a partition column of the table; they are day"),
        ("id", DAILY, "day date", "'id' is not a partition column"),
        ("day", DAILY, "day int", "add a time format for day int, such as 'day=%m'"),
        (
            "region=%Y",
            REGIONS,
            "region string",
            "has a time format, but its partitions are not time windows",
        ),
        ("day/day", DAILY, "day date", "names day twice"),
        ("month=%m", DAILY, "month int", "2024-01-01 and 2024-01-02 are both month=1"),
        ("month=%m", MONTHLY, "month int", "2024-01-01 and 2025-01-01 are both month=1"),
        ("n", dg.StaticPartitionsDefinition(["1", "01"]), "n int", "1 and 01 are both n=1"),
        ("day", BOTH, "region string, day date", "must name each dimension of its asset"),
        ({"date": "day"}, BOTH, "region string, day date", "{'date': …, 'region': …}"),
        ({"date": "day"}, DAILY, "day date", "must be a string"),
    ],
)
def test_what_can_t_map_is_told_when_it_is_defined(
    text: PartitionText, definition: dg.PartitionsDefinition[str], columns: str, why: str
) -> None:
    with pytest.raises(InvalidDefinition) as told:
        parsed(text, definition, columns)
    assert why in str(told.value) and "db.t" in str(told.value)


def test_a_dynamic_key_that_another_key_could_replace_is_refused() -> None:
    with pytest.raises(NoSuchPartition, match=r"'007' and '7' of db\.t would both be"):
        parsed("customer", CUSTOMERS, "customer int").scope(["007"])


def test_a_dynamic_key_that_the_column_can_t_hold_is_told_in_the_run() -> None:
    with pytest.raises(NoSuchPartition, match=r"customer='x' is not a partition of db\.t"):
        parsed("customer", CUSTOMERS, "customer int").scope(["x"])


@pytest.mark.parametrize("key", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_key_that_would_be_the_partition_of_NULL_is_refused(key: str) -> None:
    with pytest.raises(NoSuchPartition, match=r"of db\.t is not a value of customer"):
        parsed("customer", CUSTOMERS, "customer string").scope([key])
    with pytest.raises(NoSuchPartition, match="is not a value of region"):
        parsed("region", dg.StaticPartitionsDefinition(["eu", key]), "region string")


def test_a_range_of_keys_is_one_predicate() -> None:
    days = parsed("day", DAILY, "day date").scope(["2024-03-01", "2024-03-02"])
    assert days.where == "`day` IN ('2024-03-01', '2024-03-02')"
    assert (days.single, days.constants) == (None, {})
    months = parsed("year=%Y/month=%m", MONTHLY, "year int, month int").scope(
        ["2024-02-01", "2024-03-01"]
    )
    assert months.where == "(`year` = 2024 AND `month` = 2) OR (`year` = 2024 AND `month` = 3)"
    assert months.constants == {"year": "2024"}


def test_a_scope_holds_the_partitions_below_it() -> None:
    scope = parsed("day", DAILY, "day date, region string").scope(["2024-03-01"])
    assert scope.single is None  # the table is partitioned further: rows name the region
    found = ["day=2024-03-01/region=eu", "day=2024-03-02/region=eu", "day=2024-03-01/region=us"]
    assert [scope.holds(one) for one in found] == [True, False, True]
    assert scope.of_key("2024-03-01", found) == [found[0], found[2]]


WEEKLY = dg.WeeklyPartitionsDefinition("2024-01-07")
LATE_DAYS = dg.DailyPartitionsDefinition("2024-01-01", hour_offset=5)


@pytest.mark.parametrize(
    ("text", "definition", "columns", "key", "there", "refused"),
    [
        ("day", WEEKLY, "day date", "2024-01-07", ["day=2024-01-07", "day=2024-01-14"], ""),
        ("day", WEEKLY, "day date", "2024-01-07", ["day=2024-01-06", "day=2024-01-09"], "09"),
        ("day", WEEKLY, "day string", "2024-01-07", ["day=2024-01-13", "day=x"], "13"),
        ("day=%Y%m%d", WEEKLY, "day int", "2024-01-07", ["day=20240108"], "20240108"),
        ("day", LATE_DAYS, "day date", "2024-01-07", ["day=2024-01-07", "day=2024-01-08"], ""),
        (
            "year=%Y/month=%m",
            dg.TimeWindowPartitionsDefinition(
                "2024-01-01", "%Y-%m-%d", cron_schedule="0 0 1 1,7 *"
            ),
            "year int, month int",
            "2024-01-01",
            ["year=2023/month=12", "year=2024/month=7", "year=2024/month=2"],
            "year=2024/month=2",
        ),
        (
            {"date": "day", "region": "region"},
            dg.MultiPartitionsDefinition({"date": WEEKLY, "region": REGIONS}),
            "region string, day date",
            dg.MultiPartitionKey({"date": "2024-01-07", "region": "eu"}),
            ["region=us/day=2024-01-08", "region=eu/day=2024-01-09"],
            "region=eu/day=2024-01-09",
        ),
        ("region", REGIONS, "region string", "eu", ["region=us"], ""),
    ],
)
def test_partitions_of_shorter_times_are_asked_about(
    text: PartitionText,
    definition: dg.PartitionsDefinition[str],
    columns: str,
    key: str,
    there: list[str],
    refused: str,
) -> None:
    scope = parsed(text, definition, columns).scope([key])
    if not refused:
        scope.require_whole(there)
        return
    with pytest.raises(InvalidDefinition, match=f"has the partition .*{refused}, whose time"):
        scope.require_whole(there)


@pytest.mark.parametrize(
    ("value", "quoted", "text"),
    [
        ("3", False, "3"),
        ("eu", True, "'eu'"),
        ("O'Hare", True, r"'O\'Hare'"),
    ],
)
def test_values_are_quoted_as_spark_reads_them(value: str, quoted: bool, text: str) -> None:
    assert literal(value, quoted) == text
