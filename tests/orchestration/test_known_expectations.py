"""Mistakes in expectations are told when the module is loaded, without Great Expectations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition
from acid_platform.orchestration import Expectation, TableDeclaration, acid_asset, table_checks

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
