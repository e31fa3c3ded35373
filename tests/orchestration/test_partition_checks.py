"""Evaluations of checks name the partition that they are about, and have numbers (P56)."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from decimal import Decimal
from typing import Any

import dagster as dg
import numpy as np
import pytest

from acid_platform.orchestration import (
    Expectation,
    Finding,
    TableDeclaration,
    acid_asset,
)
from tests.orchestration import conftest
from tests.orchestration.conftest import Place

DAYS = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])
TABLE = TableDeclaration("db.days", "id int", ("day string",))
GIVEN = ("ExpectColumnValuesToNotBeNull", {"column": "id"})
ROWS = {"mon": None, "tue": 1, "wed": 2}

CASES: dict[str, tuple[Expectation, bool]] = {
    "blocks": (Expectation("c", *GIVEN), False),
    "warns": (Expectation("c", *GIVEN, blocking=False), True),
    "sets aside": (Expectation("c", *GIVEN, quarantine=True), True),
    "allows some": (
        Expectation("c", GIVEN[0], {**GIVEN[1], "mostly": 0.9}, blocking=False),
        True,
    ),
    "by the body": (Expectation("c", "", {}, blocking=False), True),
}


def asset(case: str, ranges: bool) -> dg.AssetsDefinition:
    check = CASES[case][0]
    own = case == "by the body"
    checks: dict[str, Any] = {"checks" if own else "expectations": [check]}
    with_ranges: dict[str, Any] = (
        {"backfill_policy": dg.BackfillPolicy.single_run()} if ranges else {}
    )

    @acid_asset(table=TABLE, partitions_def=DAYS, partition_expr="day", **checks, **with_ranges)
    def days(context: dg.AssetExecutionContext, txn: Any) -> Any:
        rows = [{"id": ROWS[key], "day": key} for key in context.partition_keys]
        failed = sum(row["id"] is None for row in rows)
        if not own:
            return rows
        txn.table("db.days").insert(rows)
        return [Finding("c", not failed, blocking=False, details={"rows without id": failed})]

    return days


def evaluations(place: Place, days: dg.AssetsDefinition) -> list[Any]:
    check = dg.AssetCheckKey(days.key, "c")
    history = place.instance.event_log_storage.get_asset_check_execution_history(check, limit=9)
    return [record.evaluation for record in reversed(history) if record.evaluation]


def run(place: Place, days: dg.AssetsDefinition, **more: Any) -> bool:
    return bool(conftest.run(place, days, engine="local", **more).success)


@pytest.mark.more
@pytest.mark.parametrize("case", CASES)
def test_P56_an_evaluation_is_of_the_partition_that_was_checked(place: Place, case: str) -> None:
    """So a good day does not cover a refused one."""
    days = asset(case, ranges=False)
    outcome = {key: run(place, days, partition_key=key) for key in ROWS}
    assert outcome == {"mon": CASES[case][1], "tue": True, "wed": True}
    found = evaluations(place, days)
    assert [(each.partition, each.passed) for each in found] == [
        ("mon", False),
        ("tue", True),
        ("wed", True),
    ]
    name = "rows without id" if case == "by the body" else "failed rows"
    assert [each.metadata[name].value for each in found] == [1, 0, 0]


@pytest.mark.more
@pytest.mark.parametrize("case", CASES)
def test_P56_a_run_for_several_partitions_has_an_evaluation_of_each(
    place: Place, case: str
) -> None:
    days = asset(case, ranges=True)
    span = ("range_start", "mon"), ("range_end", "tue")
    tags = {f"dagster/asset_partition_{name}": key for name, key in span}
    assert run(place, days, tags=tags) is CASES[case][1]
    found = sorted(evaluations(place, days), key=lambda each: str(each.partition))
    assert [(each.partition, each.passed) for each in found] == [("mon", False), ("tue", False)]
    assert {each.metadata["checked together"].value for each in found} == {2}


@pytest.mark.parametrize(
    ("details", "numbers"),
    [
        ({"unexpected_count": np.int64(3)}, {"failed rows": 3}),
        ({"observed_value": Decimal("1.5"), "x": "text"}, {"observed value": 1.5}),
        ({"expectation": "ExpectX", "min_value": 7, "unexpected_count": 0}, {"failed rows": 0}),
        ({"rows": 12, "late": np.float32(0.5)}, {"rows": 12, "late": 0.5}),
        ({"nan": float("nan"), "flag": True, "none": None, "big": 10**30}, {"big": 10**30}),
    ],
)
def test_P56_the_numbers_of_a_finding_are_metadata(
    details: dict[str, Any], numbers: dict[str, Any]
) -> None:
    finding = Finding("c", True, details=details)
    assert finding.numbers == numbers and finding.metadata.keys() >= numbers.keys()
