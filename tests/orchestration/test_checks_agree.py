"""Great Expectations finds in pandas what it finds in Spark, where CheckedRows asks pandas."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import NeedsSpark
from acid_platform.orchestration.check_results import Finding
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.evaluation import PANDAS, evaluate, in_pandas

pytestmark = pytest.mark.spark

DAYS = [datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]
COLUMNS: dict[str, list[pa.Array]] = {
    # Of each type: with NULL and repeats, and without either.
    "tinyint": [pa.array([1, 2, 2, None, 5], pa.int8()), pa.array([1, 2, 3, 4, 5], pa.int8())],
    "smallint": [pa.array([1, 2, 2, None, 5], pa.int16()), pa.array([5, 4, 3, 2, 1], pa.int16())],
    "int": [pa.array([1, 2, 2, None, 5], pa.int32()), pa.array([1, 9, 3, 4, 5], pa.int32())],
    "bigint": [pa.array([2**60, 2, 2, None, 5]), pa.array([2**60 + 1, -2, 3, 4, 5])],
    "double": [pa.array([0.5, 1.0, 1.0, 2.0, -3.25]), pa.array([1e300, 1.0, 2.0, 3.0, 4.5])],
    "string": [pa.array(["a", "b", "b", None, ""]), pa.array(["a", "B", "c", "ü", "e"])],
    "boolean": [pa.array([True, False, None, True, True]), pa.array([True] * 5)],
    "decimal": [
        pa.array([Decimal("1.25"), None, None, Decimal(0), Decimal("-9.99")], pa.decimal128(9, 2)),
        pa.array([Decimal(number) for number in range(5)], pa.decimal128(9, 2)),
    ],
    "date": [pa.array([*DAYS, None, *DAYS]), pa.array(DAYS[:1] * 5)],
}
ROWS = pa.table(
    {f"{kind}_{place}": array for kind, pair in COLUMNS.items() for place, array in enumerate(pair)}
    | {
        "bigint_2": COLUMNS["bigint"][1],
        "double_2": pa.array([0.5, None, None, 2.0, -3.25]),
        "not_checked": pa.array([None, 1.0, float("nan"), None, 2.0]),
    }
)
BOUNDS: list[dict[str, Any]] = [
    {"min_value": 1},
    {"min_value": -9, "max_value": 4, "strict_max": True},
    {"min_value": 1, "strict_min": True, "mostly": 0.5},
]


def arguments(kind: str, known: tuple[str, ...]) -> list[dict[str, Any]]:
    """Arguments with which the expectation holds for some of the columns, and fails for others."""
    columns = [f"{one}_{place}" for one in known for place in (0, 1)]
    if len(columns) > 8:  # the types of whole numbers are one in Spark and in Python
        columns = [name for name in columns if name.partition("_")[0] not in ("smallint", "int")]
    numbers = [name for name in columns if not name.startswith("string")]
    whole = [name for name in columns if name.endswith("_1")]  # pairs are without NULL
    pairs = [*zip(whole, whole[1:] + whole[:1], strict=True), ("bigint_1", "bigint_2")]
    match kind:
        case "ExpectTableRowCountToBeBetween":
            return [{"min_value": 1, "max_value": 9}, {"min_value": 6}]
        case "ExpectTableRowCountToEqual":
            return [{"value": 5}, {"value": 0}]
        case "ExpectColumnValuesToBeBetween":
            return [{"column": name, **bound} for name in columns for bound in BOUNDS]
        case "ExpectColumnMinToBeBetween" | "ExpectColumnMaxToBeBetween":
            bounds: list[dict[str, Any]] = [
                {"min_value": 1, "max_value": 5},
                {"max_value": 4},
            ]
            return [{"column": name, **bound} for name in columns for bound in bounds]
        case "ExpectColumnValuesToBeInSet":
            return [
                {"column": name, "value_set": values, **rest}
                for name in columns
                for values in (([1, 2, 5], [2**60, 2, 5]) if name in numbers else (["a", "b", ""],))
                for rest in ({}, {"mostly": 0.3})
            ]
        case "ExpectCompoundColumnsToBeUnique":
            return [
                {"column_list": [left, right]}
                for left, right in zip(columns, columns[1:] + columns[:1], strict=True)
            ]
        case "ExpectColumnPairValuesAToBeGreaterThanB":
            return [
                {"column_A": left, "column_B": right, **rest}
                for left, right in pairs
                for rest in ({}, {"or_equal": True})
            ]
        case "ExpectColumnPairValuesToBeEqual":
            return [
                {"column_A": left, "column_B": right}
                for left, right in pairs
                if (left in numbers) == (right in numbers)
            ]
        case _:
            with_null = ["double_2"] if "double" in known else []  # where NULL is looked for
            given = [{"column": name} for name in (*columns, *with_null)]
            return given + [{**one, "mostly": 0.5} for one in given[::2]]


EXPECTATIONS = [
    Expectation(f"{kind} {number}", kind, given)
    for kind, (known, _) in PANDAS.items()
    for number, given in enumerate(arguments(kind, known))
]


def told(findings: list[Finding]) -> dict[str, str]:
    return {
        finding.name: json.dumps(
            [finding.passed, dict(finding.metadata["details"].value), finding.samples],
            sort_keys=True,
        )
        for finding in findings
    }


@pytest.mark.slow
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0)], ids=["rows", "none"])
def test_P33_pandas_and_spark_find_the_same(spark: SparkSession, rows: pa.Table) -> None:
    key = ["bigint_1", "string_1"]
    ours = evaluate(in_pandas(rows, EXPECTATIONS), EXPECTATIONS, key)
    theirs = evaluate(spark.createDataFrame(rows).coalesce(1).cache(), EXPECTATIONS, key)
    if rows.num_rows:
        assert {finding.passed for finding in ours} == {True, False}
    assert told(ours) == told(theirs)


def test_P33_each_argument_is_compared() -> None:
    for kind, (_, known) in PANDAS.items():
        used = {name for one in EXPECTATIONS if one.kind == kind for name in one.arguments}
        assert known <= used, kind


def test_P33_what_pandas_can_t_tell_is_left_to_spark() -> None:
    compared = Expectation("c", "ExpectColumnValuesToBeBetween", {"column": "x", "min_value": 0})
    looked_through = Expectation("n", "ExpectColumnValuesToNotBeNull", {"column": "x"})
    for strange, one in (
        (float("nan"), compared),
        (None, compared),
        (float("nan"), looked_through),
    ):
        with pytest.raises(NeedsSpark, match="NULL or NaN in the column x"):
            in_pandas(pa.table({"x": pa.array([1.0, strange], pa.float64())}), [one])
    pair = Expectation("p", "ExpectColumnPairValuesToBeEqual", {"column_A": "x", "column_B": "y"})
    with pytest.raises(NeedsSpark, match="NULL in a pair of columns"):
        in_pandas(pa.table({"x": pa.array([1]), "y": pa.array([None], pa.int64())}), [pair])


@pytest.mark.parametrize("strings", [False, True], ids=["texts are objects", "as in pandas 3"])
def test_P33_null_is_found_in_every_type_alike(strings: bool) -> None:
    values: dict[str, pa.Array] = {
        "string": pa.array(["a", None, "b", None]),
        "decimal": pa.array([Decimal(1), None, Decimal(2), None], pa.decimal128(9, 2)),
        "double": pa.array([1.5, None, 2.5, None]),
        "date": pa.array([DAYS[0], None, DAYS[1], None]),
        "int": pa.array([1, None, 2, None], pa.int32()),
    }
    checks = [
        Expectation("all", "ExpectColumnValuesToNotBeNull", {"column": "x"}),
        Expectation("half", "ExpectColumnValuesToNotBeNull", {"column": "x", "mostly": 0.5}),
    ]
    answers = {}
    for kind, array in values.items():
        rows = pa.table({"x": array, "key": [1, 2, 3, 4], "other": [None, 1.0, float("nan"), 0.0]})
        with pd.option_context("future.infer_string", strings):
            answers[kind] = told(evaluate(in_pandas(rows, checks), checks, ["key", "other"]))
    assert len({json.dumps(answer) for answer in answers.values()}) == 1
    assert json.loads(answers["decimal"]["all"])[0] is False
    assert json.loads(answers["decimal"]["half"])[0] is True
