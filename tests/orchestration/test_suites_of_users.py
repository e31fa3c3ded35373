"""Suites and checkpoints of Great Expectations, as users have them, are the checks of an asset."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import InvalidDefinition
from acid_platform.orchestration import (
    Expectation,
    SparkResource,
    TableDeclaration,
    acid_asset,
    table_checks,
)
from acid_platform.orchestration.suites import expectations_of
from tests.orchestration.conftest import Place, quiet

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

    return dg.materialize(
        [orders],
        instance=place.instance,
        run_config=quiet(),
        raise_on_error=False,
        resources={"warehouse": place.resource, "spark": SparkResource()},
    )


def checks(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    return {
        each.check_name: (each.passed, each.severity.value)
        for each in result.get_asset_check_evaluations()
    }


def error(result: dg.ExecuteInProcessResult) -> str:
    [failure] = [
        event.step_failure_data.error for event in result.all_events if event.is_step_failure
    ]
    assert failure is not None
    return "\n".join(part.message for part in (failure, failure.cause) if part)


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
        ("{}", "neither an expectation suite nor a checkpoint"),
        ("[]", "neither an expectation suite nor a checkpoint"),
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


# --- checkpoints ---------------------------------------------------------------------------------


def file_context(folder: Path, kind: str = "pandas") -> Any:
    """A data context with a checkpoint of the suite, whose action updates its Data Docs."""
    gx = great_expectations()
    context = gx.get_context(mode="file", project_root_dir=folder)
    context.variables.progress_bars = {"globally": False}
    own = context.suites.add(gx.ExpectationSuite(**SUITE))
    sources: Any = context.data_sources
    source = sources.add_pandas("rows") if kind == "pandas" else sources.add_spark("rows")
    batch = source.add_dataframe_asset("orders").add_batch_definition_whole_dataframe("all")
    definition = gx.ValidationDefinition(name="orders", data=batch, suite=own)
    context.validation_definitions.add(definition)
    return context.checkpoints.add(
        gx.Checkpoint(
            name="orders",
            validation_definitions=[definition],
            actions=[gx.checkpoint.UpdateDataDocsAction(name="docs")],
        )
    )


def test_a_checkpoint_is_run_with_its_actions(place: Place, tmp_path: Path) -> None:
    checkpoint = file_context(tmp_path)
    path = tmp_path / "gx" / "checkpoints" / "orders.json"
    for given in (path, checkpoint):
        result = materialized(place, [given], pa.table)
        assert result.success
        assert checks(result)["amounts_are_small"] == (False, "WARN")
        assert len(checks(result)) == 4
        [first, *_] = result.get_asset_check_evaluations()
        site = str(first.metadata["data docs site"].value)
        page = Path(site.removeprefix("file://"))
        assert page.is_relative_to(tmp_path / "gx") and "amount" in page.read_text()
    assert len([*(tmp_path / "gx" / "uncommitted" / "validations").rglob("*.json")]) == 2


def test_an_error_of_a_checkpoint_is_no_failed_check(place: Place, tmp_path: Path) -> None:
    gx = great_expectations()
    checkpoint = file_context(tmp_path)
    own = checkpoint.validation_definitions[0].suite
    wrong = gx.expectations.ExpectColumnValuesToMatchRegex(column="id", regex="(")
    own.add_expectation(wrong)
    result = materialized(place, [checkpoint], pa.table)
    assert not result.success and checks(result) == {}
    assert "'column_values_to_match_regex_id' of the checkpoint orders could not" in error(result)
    own.expectations[0].max_value = "many"
    own.save()
    result = materialized(place, [checkpoint], pa.table)
    assert "the checkpoint orders raised an error" in error(result)
    assert place.warehouse.table("shop.orders").to_arrow().num_rows == 0


def test_a_checkpoint_that_reads_elsewhere_is_refused(place: Place, tmp_path: Path) -> None:
    gx = great_expectations()
    context = gx.get_context(mode="ephemeral")
    (tmp_path / "orders.csv").write_text("id,amount\n1,2\n")
    batch = (
        context.data_sources.add_pandas_filesystem("files", base_directory=tmp_path)
        .add_csv_asset("orders")
        .add_batch_definition_path("all", path="orders.csv")
    )
    own = context.suites.add(gx.ExpectationSuite(**SUITE))
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name="orders", data=batch, suite=own)
    )
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(name="orders", validation_definitions=[definition])
    )
    result = materialized(place, [checkpoint], pa.table)
    assert "the checkpoint orders reads orders of files by itself" in error(result)


@pytest.mark.spark
@pytest.mark.slow
def test_suites_and_checkpoints_on_spark(spark: Any, place: Place, tmp_path: Path) -> None:
    checkpoint = file_context(tmp_path, "spark")
    for given in (suite(tmp_path), checkpoint):
        result = materialized(
            place, [given], lambda rows: spark.createDataFrame(pd.DataFrame(rows))
        )
        assert result.success, error(result)
        assert checks(result)["amounts_are_small"] == (False, "WARN")


# --- Data Docs -----------------------------------------------------------------------------------


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


def test_a_run_goes_on_if_the_pages_can_t_be_written(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").write_text("a file")
    monkeypatch.setenv("ACID_DATA_DOCS", str(tmp_path / "docs"))
    result = materialized(place, [suite(tmp_path)], pa.table)
    assert result.success
    [first, *_] = result.get_asset_check_evaluations()
    assert "data docs site" not in first.metadata
