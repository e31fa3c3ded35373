"""What is checked: expectations and suites when a module is loaded, and before a commit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import CheckErrored, InvalidDefinition
from acid_platform.orchestration import (
    Expectation,
    Finding,
    TableDeclaration,
    acid_asset,
    evaluate_profile,
    evaluation,
    table_checks,
)
from acid_platform.orchestration.checks import expectations_of
from acid_platform.orchestration.evaluation import errored, evaluate
from tests.conftest import temporary_warehouse
from tests.orchestration.conftest import Place, failure, run

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


@pytest.mark.more
def test_a_profile_of_a_query_is_judged_without_great_expectations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless an expectation asks for it."""
    judged = []
    monkeypatch.setattr(evaluation, "evaluate", lambda frame, given: judged.append(given) or [])
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        warehouse.create_table("db.t", "id int").insert([{"id": 1}, {"id": 2}])
        aggregates = {"n": "count(*)"}
        wanted = [between("two", 2, 2), between("three", 3, 3, blocking=False)]
        with warehouse.transaction() as txn:
            txn.table("db.t").insert([{"id": 3}])
            found = evaluate_profile(txn.sql, aggregates, wanted, "db.t WHERE id > 0")
            txn.abort()
        assert [(one.name, one.passed) for one in found] == [("two", False), ("three", True)]
        assert found[0].details["profile"] == {"n": 3} and not judged
        other = [Expectation("odd", "ExpectColumnMedianToBeBetween", {"column": "n"})]
        assert evaluate_profile(warehouse.sql, aggregates, other, "db.t") == [] and judged == [
            other
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


NOT_NULL = "ExpectColumnValuesToNotBeNull"
BETWEEN = "ExpectColumnValuesToBeBetween"
IN_SET = "ExpectColumnValuesToBeInSet"
ID = {"column": "id"}

WRONG: list[tuple[Expectation, str]] = [
    (Expectation("e", "ExpectColumnValuesToNotBeNul", ID), f"did you mean '{NOT_NULL}'"),
    (Expectation("e", NOT_NULL, {"colum": "id"}), "no argument 'colum'; it takes .*'column'"),
    (Expectation("e", NOT_NULL, {}), "needs the argument 'column'"),
    (Expectation("e", BETWEEN, {**ID, "minimum": 1}), "no argument 'minimum'"),
    (Expectation("e", BETWEEN, {**ID, "mostly": 95}), "a number from 0 to 1"),
    (Expectation("e", IN_SET, ID), "needs the argument 'value_set'"),
    (Expectation("e", NOT_NULL, {**ID, "meta": {}}), "sets 'meta' itself"),
    (Expectation("e", Expectation, {}), "give the name of the class as text"),  # type: ignore[arg-type]
    (Expectation("is it?", NOT_NULL, ID), r"'is it\?' is no name of a check"),
    (Expectation("", NOT_NULL, ID), "'' is no name of a check"),
]


@pytest.mark.parametrize(("expectation", "why"), WRONG)
def test_a_mistake_is_told_when_the_module_is_loaded(expectation: Expectation, why: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"asset of db.t: .*{why}"):
        acid_asset(table=TableDeclaration("db.t", "id int"), expectations=[expectation])
    with pytest.raises(InvalidDefinition, match=f"the checks c of db.t: .*{why}"):
        table_checks("c", "db.t", [expectation])


RIGHT = [
    Expectation("a", NOT_NULL, {**ID, "mostly": 0.5}),
    Expectation("b", BETWEEN, {**ID, "min_value": 1, "strict_min": True}),
    Expectation("c", "ExpectColumnValuesToBeIncreasing", ID),  # it has no schema
    Expectation("d", "ExpectTableRowCountToEqual", {"value": 3}),
    Expectation("e", "ExpectCompoundColumnsToBeUnique", {"column_list": ["id", "v"]}),
    Expectation("f", NOT_NULL, {**ID, "row_condition": "id > 1", "condition_parser": "pandas"}),
]


def test_what_great_expectations_takes_is_taken() -> None:
    import great_expectations as gx

    acid_asset(table=TableDeclaration("db.t", "id int, v string"), expectations=RIGHT)
    for expectation in RIGHT:
        getattr(gx.expectations, expectation.kind)


def test_what_the_body_evaluates_may_have_a_kind_of_its_own() -> None:
    acid_asset(table="db.t", checks=[Expectation("own", "sum of all", {"limit": 3})])
    with pytest.raises(InvalidDefinition, match="'two words' is no name of a check"):
        acid_asset(table="db.t", checks=[Expectation("two words", "any", {})])


LOAD = f"""
import sys
from acid_platform.orchestration import Expectation, acid_asset
own = Expectation("e", "{NOT_NULL}", {{"column": "id"}})
print(len(acid_asset(table="db.t", expectations=[own, *sys.argv[1:]])(lambda: []).check_keys))
print("great_expectations" in sys.modules)
"""


@pytest.mark.more
def test_the_check_at_load_imports_no_great_expectations(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    listed = [{"type": "expect_column_to_exist", "kwargs": {"column": "id"}}]
    suite.write_text(json.dumps({"expectations": listed}))
    shown = subprocess.run(
        [sys.executable, "-c", LOAD, suite], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "2\nFalse\n"


TABLE = TableDeclaration("shop.orders", "id bigint, amount double")
ROWS = {"id": [1, 2], "amount": [5.0, 500.0]}
SUITE = {
    "name": "orders",
    "expectations": [
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "amount", "min_value": 0, "max_value": 100},
            "meta": {"check": "amounts_are_small"},
            "severity": "warning",
        },
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id", "mostly": 0.5}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}},
    ],
}


def great_expectations() -> Any:
    """Its annotations do not tell what it exports."""
    return import_module("great_expectations")


def suite(folder: Path, **changes: Any) -> Path:
    path = folder / "orders.json"
    path.write_text(json.dumps(SUITE | changes))
    return path


def materialized(
    place: Place, expectations: list[Any], rows: Callable[..., object]
) -> dg.ExecuteInProcessResult:
    @acid_asset(table=TABLE, expectations=expectations)
    def orders() -> object:
        return rows(ROWS)

    return run(place, orders)


def checks(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    return {
        each.check_name: (each.passed, each.severity.value)
        for each in result.get_asset_check_evaluations()
    }


# --- when a module is loaded ---------------------------------------------------------------------


def test_each_expectation_of_a_file_is_a_check(tmp_path: Path) -> None:
    own = Expectation("table_row_count_to_be_between", "ExpectTableRowCountToEqual", {"value": 2})
    found = expectations_of([own, suite(tmp_path)], "here")
    assert [(one.name, one.kind, one.blocking) for one in found[1:]] == [
        ("amounts_are_small", "ExpectColumnValuesToBeBetween", False),
        ("column_values_to_not_be_null_id", "ExpectColumnValuesToNotBeNull", True),
        ("column_values_to_not_be_null_id_2", "ExpectColumnValuesToNotBeNull", True),
        ("table_row_count_to_be_between_2", "ExpectTableRowCountToBeBetween", True),
    ]
    assert found[1].arguments == {"column": "amount", "min_value": 0, "max_value": 100}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "can't read .*orders.json: No such file"),
        ("{", "orders.json is no JSON file"),
        ("[" * 50_000, "orders.json is no JSON file"),
        (
            '{"validation_definitions": []}',
            "of a checkpoint give the suites",
        ),
        ("[]", "no expectation suite"),
        (
            '{"expectations": [{"type": "expect_gold", "kwargs": {}}]}',
            "no class 'expect_gold'; import the module",
        ),
        (
            '{"expectations": [{"type": "expect_column_to_exist",'
            ' "kwargs": {"column": {"$PARAMETER": "c"}}}]}',
            "has the parameter c",
        ),
        (
            '{"expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "c"}}]}',
            "names the column 'c'; the columns are amount, id",
        ),
    ],
)
def test_a_file_that_is_no_suite_is_told(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "orders.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidDefinition, match=f"asset of shop.orders: .*{why}"):
        acid_asset(table=TABLE, expectations=[path])
    with pytest.raises(InvalidDefinition, match="not int"):
        table_checks("c", "shop.orders", [3])  # type: ignore[list-item]


# --- on rows before their commit -----------------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("rows", [pd.DataFrame, pa.table])
def test_a_suite_is_checked_before_the_commit(
    place: Place, tmp_path: Path, rows: Callable[..., object]
) -> None:
    result = materialized(place, [suite(tmp_path)], rows)
    assert result.success
    assert checks(result) == {
        "amounts_are_small": (False, "WARN"),
        "column_values_to_not_be_null_id": (True, "ERROR"),
        "column_values_to_not_be_null_id_2": (True, "ERROR"),
        "table_row_count_to_be_between": (True, "ERROR"),
    }
    [blocking, *_] = SUITE["expectations"]
    assert isinstance(blocking, dict)
    path = suite(tmp_path, expectations=[{**blocking, "severity": "critical"}])
    again = materialized(place, [path], lambda given: rows({"id": [3], "amount": [700.0]}))
    assert checks(again) == {"amounts_are_small": (False, "ERROR")}
    assert place.warehouse.table("shop.orders").to_arrow().num_rows == 2


def test_the_object_gives_what_its_file_gives(tmp_path: Path) -> None:
    gx = great_expectations()
    path = suite(tmp_path)
    loaded = gx.ExpectationSuite(**json.loads(path.read_text()))
    assert expectations_of([loaded], "here") == expectations_of([path], "here")


@pytest.mark.spark
@pytest.mark.slow
def test_a_class_of_the_user_is_evaluated(spark: Any, place: Place) -> None:
    gx = great_expectations()

    base: Any = gx.expectations.ExpectColumnValuesToBeBetween

    class ExpectAmountsOfOrders(base):  # type: ignore[misc]
        column: str = "amount"
        max_value: float = 100

    own = gx.ExpectationSuite(name="own", expectations=[ExpectAmountsOfOrders()])
    result = materialized(place, [own], pa.table)
    assert not result.success
    assert list(checks(result).values()) == [(False, "ERROR")]


@pytest.mark.spark
@pytest.mark.slow
def test_a_suite_on_spark(spark: Any, place: Place, tmp_path: Path) -> None:
    result = materialized(
        place, [suite(tmp_path)], lambda rows: spark.createDataFrame(pd.DataFrame(rows))
    )
    assert result.success, failure(result)
    assert checks(result)["amounts_are_small"] == (False, "WARN")


# --- Data Docs -----------------------------------------------------------------------------------


@pytest.mark.more
def test_pages_are_written_where_the_setting_says(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACID_DATA_DOCS", str(tmp_path / "docs"))
    result = materialized(place, [suite(tmp_path)], pa.table)
    [first, *others] = result.get_asset_check_evaluations()
    [link] = {str(one.metadata["data docs site"].value) for one in (first, *others)}
    page = Path(link)
    text = page.read_text()
    assert result.run_id in link and "shop.orders" in text and "500" in text
    assert (tmp_path / "docs" / "shop.orders" / page.parts[-7] / "index.html").exists()
    monkeypatch.setenv("ACID_DATA_DOCS_URL", "https://docs.example/gx/")
    again = materialized(place, [suite(tmp_path)], pa.table)
    [first, *_] = again.get_asset_check_evaluations()
    assert isinstance(first.metadata["data docs site"], dg.UrlMetadataValue)
    assert str(first.metadata["data docs site"].value).startswith("https://docs.example/gx/shop.o")


@pytest.mark.more
def test_a_run_goes_on_if_the_pages_can_t_be_written(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").write_text("a file")
    monkeypatch.setenv("ACID_DATA_DOCS", str(tmp_path / "docs"))
    result = materialized(place, [suite(tmp_path)], pa.table)
    assert result.success
    [first, *_] = result.get_asset_check_evaluations()
    assert "data docs site" not in first.metadata
