"""Results of Great Expectations become findings; a check that can't run becomes an error."""

from __future__ import annotations

import dagster as dg
import pandas as pd
import pytest

from acid_platform import CheckErrored
from acid_platform.orchestration.check_results import Finding
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.evaluation import errored, evaluate

FRAME = pd.DataFrame({"n": [1, 2, 300], "word": ["a", "b", None]})


def between(name: str, low: int, high: int, blocking: bool = True) -> Expectation:
    return Expectation(
        name,
        "ExpectColumnValuesToBeBetween",
        {"column": "n", "min_value": low, "max_value": high},
        blocking=blocking,
    )


def test_findings_come_in_the_order_of_the_expectations() -> None:
    wanted = [between("narrow", 1, 2), between("wide", 0, 1000), between("none", 5, 6)]
    found = evaluate(FRAME, wanted)
    assert [(one.name, one.passed) for one in found] == [
        ("narrow", False),
        ("wide", True),
        ("none", False),
    ]


def test_a_failure_is_explained_by_counts_and_examples() -> None:
    [one] = evaluate(FRAME, [between("narrow", 1, 2)])
    assert one.details["unexpected_count"] == 1
    assert one.details["partial_unexpected_list"] == [300]
    result = one.result(dg.AssetKey(["db", "t"]))
    assert not result.passed and result.severity is dg.AssetCheckSeverity.ERROR


@pytest.mark.parametrize(
    ("passed", "blocking", "blocks"),
    [(True, True, False), (True, False, False), (False, False, False), (False, True, True)],
)
def test_only_a_blocking_failure_blocks(passed: bool, blocking: bool, blocks: bool) -> None:
    assert Finding("x", passed, blocking).blocks is blocks


@pytest.mark.parametrize(
    "expectation",
    [
        Expectation("gone", "ExpectColumnValuesToNotBeNull", {"column": "missing"}),
        Expectation("regex", "ExpectColumnValuesToMatchRegex", {"column": "word", "regex": "("}),
        Expectation("text", "ExpectColumnMaxToBeBetween", {"column": "word", "min_value": 1}),
    ],
)
def test_an_expectation_that_raises_is_no_failed_check(expectation: Expectation) -> None:
    with pytest.raises(CheckErrored, match=f"'{expectation.name}' could not be evaluated"):
        evaluate(FRAME, [between("wide", 0, 1000), expectation])


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (None, None),
        ({}, None),
        ({"raised_exception": False, "exception_message": None}, None),
        ({"raised_exception": True, "exception_message": "flat"}, "flat"),
        ({"('metric',)": {"raised_exception": False}}, None),
        (
            {
                "('a',)": {"raised_exception": False},
                "('b',)": {"raised_exception": True, "exception_message": "nested"},
            },
            "nested",
        ),
    ],
)
def test_both_shapes_of_exception_info(info: dict[str, object] | None, message: str | None) -> None:
    assert errored(info) == message
