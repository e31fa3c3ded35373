"""SQL finds in the local engine what Great Expectations finds in Spark."""

from __future__ import annotations

import datetime
import itertools
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import NeedsSpark, Warehouse
from acid_platform.errors import CheckErrored
from acid_platform.orchestration.check_results import Finding
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.evaluation import CheckedRows, evaluate
from acid_platform.orchestration.sql_checks import IN_SQL, unlike
from acid_platform.values.arrow_types import declared_text
from tests.conftest import temporary_warehouse

DAYS = [datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]
TIMES = [datetime.datetime(1969, 12, 31, 23, 59, 59, 5), datetime.datetime(2024, 2, 29)]
NAN = float("nan")
COLUMNS: dict[str, list[pa.Array]] = {
    # Of each type: with NULL and repeats, and without either.
    "tinyint": [pa.array([1, 2, 2, None, 5], pa.int8()), pa.array([1, 2, 3, 4, 5], pa.int8())],
    "smallint": [pa.array([1, 2, 2, None, 5], pa.int16()), pa.array([5, 4, 3, 2, 1], pa.int16())],
    "int": [pa.array([1, 2, 2, None, 5], pa.int32()), pa.array([1, 9, 3, 4, 5], pa.int32())],
    "bigint": [pa.array([2**60, 2, 2, None, 5]), pa.array([2**60 + 1, -2, 3, 4, 5])],
    "double": [pa.array([0.5, NAN, -0.0, None, -3.25]), pa.array([1e300, 1.0, 2.0, 3.0, 4.5])],
    "string": [pa.array(["a", "b", "b", None, ""]), pa.array(["a", "B", "c", "ü", "e"])],
    "boolean": [pa.array([True, False, None, True, True]), pa.array([True] * 5)],
    "decimal": [
        pa.array([Decimal("1.25"), None, None, Decimal(0), Decimal("-9.99")], pa.decimal128(9, 2)),
        pa.array([Decimal(number) for number in range(5)], pa.decimal128(9, 2)),
    ],
    "date": [pa.array([*DAYS, None, *DAYS]), pa.array(DAYS[:1] * 5)],
    "timestamp": [
        pa.array([*TIMES, None, *TIMES], pa.timestamp("us")),
        pa.array([*TIMES, *TIMES, TIMES[0]], pa.timestamp("us")),
    ],
    "float": [pa.array([0.5, 1, 1, None, -3.25], pa.float32()), pa.array([NAN] * 5, pa.float32())],
}
ROWS = pa.table(
    {f"{kind}_{place}": array for kind, pair in COLUMNS.items() for place, array in enumerate(pair)}
)
VALUES: dict[str, list[Any]] = {
    **{name: [2, 2**60, 0.5, Decimal("1.5")] for name in ("tinyint", "smallint", "int", "bigint")},
    **{name: [1, 0.5, Decimal("1.5"), -1e300] for name in ("double", "float")},
    "decimal": [0, 1.25, Decimal("1.25")],
    "string": ["b", "", "ü"],
    "boolean": [True, False],
    "date": DAYS,
    "timestamp": TIMES,
}
"""With what a column of each type is compared."""


def arguments(kind: str) -> Iterator[dict[str, Any]]:
    """Arguments with which the expectation holds for some of the columns, and fails for others."""
    types = IN_SQL[kind].types
    columns = [f"{each}_{place}" for each in types for place in (0, 1)]
    if "Mean" in kind:  # the local engine leaves sums that no double holds to Spark
        columns.remove("bigint_1")
        columns.remove("bigint_0")
    match kind:
        case "ExpectTableRowCountToBeBetween":
            yield from ({"min_value": 1, "max_value": 9}, {"min_value": 6}, {"max_value": 4})
        case "ExpectTableRowCountToEqual":
            yield from ({"value": 5}, {"value": 0})
        case "ExpectTableRowCountToEqualOtherTable":
            yield {"other_table_name": "d.t"}
        case "UnexpectedRowsExpectation":
            for bound in (0, 2, 9):
                found = f"SELECT int_0, count(*) AS n FROM {{batch}} AS b WHERE int_1 > {bound}"
                yield {"unexpected_rows_query": f"{found} GROUP BY int_0 ;"}
        case "ExpectColumnValuesToBeInSet" | "ExpectColumnValuesToNotBeInSet":
            for name in columns:
                values = VALUES[name.partition("_")[0]]
                yield {"column": name, "value_set": values[:2]}
                yield {"column": name, "value_set": values[-1:], "mostly": 0.3}
        case "ExpectCompoundColumnsToBeUnique":
            for left, right in zip(columns, columns[1:] + columns[:1], strict=True):
                yield {"column_list": [left, right]}
        case _ if kind.startswith("ExpectColumnPair"):
            alike = [name for name in columns if not name.startswith(("string", "date", "times"))]
            pairs = [*zip(alike, alike[1:] + alike[:1], strict=True)]
            pairs += [(f"{each}_0", f"{each}_1") for each in ("string", "date", "timestamp")]
            for left, right in pairs:
                yield {"column_A": left, "column_B": right}
                if "Greater" in kind:
                    yield {"column_A": left, "column_B": right, "or_equal": True}
        case _ if "Regex" in kind:
            for name, regex in itertools.product(columns, ("^[ab]$", "B|^$", "x")):
                yield {"column": name, "regex": regex}
            yield {"column": "string_0", "regex": "b", "mostly": 0.5}
        case "ExpectColumnValueLengthsToEqual":
            yield from ({"column": name, "value": 1} for name in columns)
            yield {"column": "string_0", "value": 1, "mostly": 0.5}
        case _ if "Between" in kind:
            counts = "Lengths" in kind or "Count" in kind
            for name in columns:
                for value in [1, 3] if counts else VALUES[name.partition("_")[0]]:
                    yield {"column": name, "min_value": value}
                    yield {"column": name, "max_value": value, "strict_max": True}
                    yield {
                        "column": name,
                        "min_value": value,
                        "strict_min": True,
                        "max_value": value,
                    }
            if "Values" in kind or "Lengths" in kind:
                yield {
                    "column": columns[0],
                    "min_value": VALUES.get(types[0], [1])[0] if not counts else 1,
                    "mostly": 0.5,
                }
        case _:
            for number, name in enumerate(columns):
                yield {"column": name}
                if number % 2:
                    yield {"column": name, "mostly": 0.5}


EXPECTATIONS = [
    Expectation(f"{kind} {number}", kind, given)
    for kind in IN_SQL
    for number, given in enumerate(arguments(kind))
]


def told(findings: list[Finding]) -> dict[str, Any]:
    """What is told of each.

    In SQL alone checks that passed tell what they observed, no rows are 0 rows, and decimals are
    exact. Great Expectations in Spark shows equal values in an order of its own, and no NaN, and
    none of the rows that a query finds.
    """
    answers = {}
    for finding in findings:
        details = dict(finding.metadata["details"].value)
        if finding.passed and "mostly" not in details:
            for name in ("observed_value", "unexpected_percent"):
                details.pop(name, None)
        if "unexpected_count" in details:
            details["unexpected_count"] = details["unexpected_count"] or 0
        if not {"date", "timestamp"} & {str(details.get("column", "")).partition("_")[0]}:
            for name in {"observed_value"} & {*details}:
                details[name] = details[name] and float(details[name])
        if finding.kind == "UnexpectedRowsExpectation":
            details.pop("partial_unexpected_list", None)
        for name in {"unexpected_rows", "partial_unexpected_list"} & {*details}:
            texts = [json.dumps(each, sort_keys=True) for each in details.pop(name)]
            shown = [text for text in texts if "NaN" not in text]
            details |= {name: sorted(shown) if "Unique" in finding.kind else shown} if shown else {}
        answers[f"{finding.name} {finding.arguments}"] = json.dumps(
            [finding.passed, details], sort_keys=True
        )
    return answers


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0)], ids=["rows", "none"])
def test_P33_sql_and_great_expectations_find_the_same(
    spark: SparkSession, warehouse: Warehouse, rows: pa.Table
) -> None:
    key = ["bigint_1", "string_1"]
    table = warehouse.create_table("d.t", declared_text(rows.schema), if_not_exists=True)
    table.overwrite(rows, engine="local")
    ours = told(CheckedRows(warehouse, "d.t").evaluate(EXPECTATIONS, key))
    frame = spark.createDataFrame(rows).coalesce(1).cache()
    # Great Expectations knows no other table in Spark.
    theirs = told(evaluate(frame, [one for one in EXPECTATIONS if "Other" not in one.kind], key))
    assert {name: (ours[name], told) for name, told in theirs.items() if ours[name] != told} == {}


def test_P33_each_argument_is_compared() -> None:
    for kind, check in IN_SQL.items():
        used = {name for each in EXPECTATIONS if each.kind == kind for name in each.arguments}
        assert set(check.arguments) <= used, kind


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("ExpectColumnMedianToBeBetween", {"column": "a"}, "ExpectColumnMedianToBeBetween"),
        ("ExpectColumnValuesToNotBeNull", {"column": "a", "row_condition": "b"}, "row_condition"),
        ("ExpectColumnValuesToBeUnique", {"column": "d"}, r"of d \(double\)"),
        ("ExpectColumnValuesToBeBetween", {"column": "a", "min_value": "1"}, r"of a \(int\)"),
        ("ExpectColumnValuesToBeInSet", {"column": "a", "value_set": [1, None]}, r"of a \(int\)"),
        ("ExpectColumnValuesToBeInSet", {"column": "a", "value_set": [True]}, r"of a \(int\)"),
        ("ExpectColumnValuesToBeBetween", {"column": "d", "max_value": NAN}, r"of d \(double\)"),
        ("ExpectColumnPairValuesToBeEqual", {"column_A": "a", "column_B": "a"}, "beside itself"),
        ("ExpectColumnPairValuesToBeEqual", {"column_A": "a", "column_B": "s"}, "of a .* and s"),
        ("ExpectColumnMeanToBeBetween", {"column": "d"}, r"of d \(double\)"),
        ("ExpectTableRowCountToEqual", {"value": "5"}, "of rows"),
    ],
)
def test_P33_what_was_not_compared_is_left_to_great_expectations(
    kind: str, given: dict[str, Any], why: str
) -> None:
    types = {"a": "int", "d": "double", "s": "string"}
    assert re.search(why, unlike(Expectation("x", kind, given), types))


def test_P33_a_check_of_no_column_errs_without_spark() -> None:
    given = Expectation("x", "ExpectColumnMedianToBeBetween", {"column": "other"})
    with pytest.raises(CheckErrored, match="'x' could not be evaluated: there is no column other"):
        unlike(given, {"a": "int"})


def of_two_tables(**queries: str) -> list[Expectation]:
    kind = "UnexpectedRowsExpectation"
    return [
        Expectation(name, kind, {"unexpected_rows_query": text}) for name, text in queries.items()
    ]


def test_P33_checks_of_two_tables_need_no_spark(tmp_path: Path) -> None:
    counts = [
        Expectation(name, "ExpectTableRowCountToEqualOtherTable", {"other_table_name": f"d.{name}"})
        for name in ("same", "more")
    ]
    stray = "SELECT b.a FROM {{batch}} AS b LEFT ANTI JOIN {} AS o ON b.a = o.a -- strays"
    queries = of_two_tables(
        known=stray.format("d.more"),
        stray=stray.format("d.same"),
        braces="SELECT a FROM {batch} WHERE CAST(a AS string) RLIKE '^[0-9]{{2}}$'",
    )
    with temporary_warehouse(tmp_path / "wh", engine="local") as local:
        for name, values in {"t": [1, 2, 3], "same": [1, 7], "more": [2, 1, 7]}.items():
            local.create_table(f"d.{name}", "a int").insert([{"a": value} for value in values])
        rows = CheckedRows(local, "d.t", "a < 3")
        found = {one.name: one for one in rows.evaluate([*counts, *queries])}
        passed = {name for name, one in found.items() if one.passed}
        assert passed == {"same", "known", "braces"}
        assert found["more"].details["observed_value"] == {"self": 2, "other": 3}
        assert found["stray"].details["observed_value"] == 1
        assert found["stray"].samples == [{"a": "2"}]
        for text, why in {
            "SELECT a FROM d.nowhere": "there is no table d.nowhere",
            "SELECT b FROM {batch}": "b",
            "SELECT a FROM {rows}": "{batch} stands for the rows",
            "DELETE FROM d.same": "",
        }.items():
            with pytest.raises(CheckErrored, match=f"'x' could not be evaluated: .*{why}"):
                rows.evaluate(of_two_tables(x=text))
        assert local.table("d.same").count() == 2


def test_P33_the_local_engine_names_the_check_that_needs_spark(tmp_path: Path) -> None:
    median = Expectation("half", "ExpectColumnMedianToBeBetween", {"column": "a", "min_value": 0})
    count = Expectation("count", "ExpectTableRowCountToEqual", {"value": 1})
    with temporary_warehouse(tmp_path / "wh", engine="local") as local:
        local.create_table("d.t", "a int").insert([{"a": 1}])
        rows = CheckedRows(local, "d.t")
        assert [finding.passed for finding in rows.evaluate([count])] == [True]
        with pytest.raises(NeedsSpark, match="ExpectColumnMedianToBeBetween in the check half"):
            rows.evaluate([count, median])
