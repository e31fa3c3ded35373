"""Data contracts become tables and suites, and back, without losing anything unsaid."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.errors import InvalidDefinition
from acid_platform.handles.contracts import contract_of, tables_of_contract
from acid_platform.layout.types import Constraint, ConstraintKind, parse_columns
from acid_platform.orchestration.checks import expectations_of, require_known
from acid_platform.orchestration.evaluation import CheckedRows
from acid_platform.tables.declaration import Declaration
from tests.conftest import temporary_warehouse

pytest.importorskip("open_data_contract_standard")

CONTRACT = """
apiVersion: v3.1.0
kind: DataContract
id: shop-orders
version: 1.1.0
status: active
contractCreatedTs: 2022-11-15T02:59:43+00:00
schema:
  - name: orders
    physicalName: shop.orders
    description: what was bought
    properties:
      - name: id
        logicalType: integer
        required: true
        primaryKey: true
        quality: [{metric: duplicateValues, mustBe: 0, dimension: uniqueness}]
      - name: amount
        physicalType: decimal(9,2)
        description: in euros
        logicalTypeOptions: {minimum: 0, multipleOf: 0.01}
        quality:
          - name: some of it
            type: sql
            query: SELECT sum({property}) FROM {object}
            mustBeGreaterThan: 10
            severity: warning
          - {metric: nullValues, mustBeLessThan: 50, unit: percent, id: mostly-given}
          - {metric: duplicateValues, mustBeLessThan: 5, id: few_twice}
      - {name: day, logicalType: date, partitioned: true, partitionKeyPosition: 1}
      - name: state
        logicalType: string
        enum: [{value: open}, {value: "pa}id"}]
        classification: public
        quality:
          - {type: text, description: must be good}
          - {type: custom, engine: soda, implementation: "x: 1"}
          - id: said
            metric: missingValues
            arguments: {missingValues: ["", "it's"]}
            mustBeLessThan: 1
    quality:
      - {metric: rowCount, mustBeBetween: [0, 4], id: rows}
"""


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as made:
        yield made


def acid(wh: Warehouse, *arguments: str) -> Result:
    environment = {**os.environ, "ACID_WAREHOUSE": str(wh.path), "ACID_ENGINE": "local"}
    return CliRunner().invoke(main, [*arguments], env=environment)


@pytest.mark.more
def test_a_contract_makes_its_table_and_a_suite_that_judges_rows(
    wh: Warehouse, tmp_path: Path
) -> None:
    file, suites = tmp_path / "orders.yaml", tmp_path / "suites"
    file.write_text(CONTRACT)
    answer = acid(wh, "--json", "contract", "import", str(file), "--suites", str(suites))
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.output)
    assert said["tables"][0]["state"] == "made" and said["tables"][0]["rules"] == 7
    assert said["left_out"] == [
        *(f"orders.yaml: {name}" for name in ("id", "version", "status", "contractCreatedTs")),
        "orders.yaml: orders.id: rule duplicateValues: dimension",
        "orders.yaml: orders.amount: rule few_twice: the standard does not say how duplicates are"
        " counted: only mustBe: 0",
        "orders.yaml: orders.amount: logicalTypeOptions.multipleOf",
        "orders.yaml: orders.state: rule: a rule of type text is for people: nothing evaluates it",
        "orders.yaml: orders.state: rule: it is for soda; only greatExpectations is evaluated here",
        "orders.yaml: orders.state: classification",
    ]
    record = wh.table("shop.orders").record
    assert record.columns == (("id", "bigint"), ("amount", "decimal(9,2)"), ("state", "string"))
    assert record.partition_columns == (("day", "date"),)
    assert record.comments == {"amount": "in euros"}
    assert [str(each) for each in record.constraints] == ["NOT NULL (`id`)", "PRIMARY KEY (`id`)"]
    path = suites / "shop.orders.json"
    expectations = expectations_of([path], "test")
    require_known(expectations, "test")
    names = [each.name for each in expectations]
    assert {"some_of_it", "mostly_given", "said", "rows"} < {*names}
    table, day = wh.table("shop.orders"), "2026-12-01"

    def failed() -> set[str]:
        return {name for name, passed in judged(wh, expectations).items() if not passed}

    table.insert([{"id": 1, "amount": "11", "state": "open", "day": day}])
    assert failed() == set()
    table.insert([{"id": 1, "amount": None, "state": "it's", "day": day}] * 3)
    assert failed() == {
        *("column_values_to_be_unique_id", "mostly_given", "said", "rows"),
        "column_values_to_be_in_set_state",
    }
    again = acid(wh, "--json", "contract", "import", str(file))
    assert json.loads(again.output)["tables"][0]["state"] == "is there"
    assert "7 rules; --suites DIR" in json.loads(again.output)["left_out"][-1]
    shown = acid(wh, "contract", "export", "shop.orders", "--suite", str(path))
    (back,), _ = tables_of_contract(shown.output, "back.yaml")
    assert not back.left_out and not back.differences(record)
    assert ordered(back.expectations) == ordered(json.loads(path.read_text())["expectations"])
    wh.sql("ALTER TABLE shop.orders ADD COLUMNS (more int)")
    refused = acid(wh, "contract", "import", str(file))
    assert refused.exit_code == 1 and "is there with other columns" in refused.output


def ordered(expectations: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in expectations)


def judged(wh: Warehouse, expectations: Any) -> dict[str, bool]:
    found = CheckedRows(wh, "shop.orders").evaluate(expectations)
    return {each.name: each.passed for each in found}


@pytest.mark.parametrize(
    ("was", "new", "why"),
    [
        ("kind: DataContract", "kind: Contract", "kind: 'Contract' is not one of"),
        ("logicalType: date", "logicalType: time", "orders.day has no type of Hive"),
        ("required: true", "requierd: true", "schema.0.properties.0"),
        ("apiVersion: v3.1.0", "apiVersion: v2.2.2", "apiVersion is v2.2.2"),
        ("kind:", "kind: [", "is no YAML"),
        ("status: active", "status: &a active\nname: *a", "no aliases"),
    ],
)
def test_what_is_no_contract_is_named_with_its_place(was: str, new: str, why: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"c\.yaml") as refused:
        tables_of_contract(CONTRACT.replace(was, new, 1), "c.yaml")
    assert why in str(refused.value)


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8
)
TYPES = (
    *("int", "bigint", "decimal(9,2)", "double", "string", "varchar(5)", "boolean", "binary"),
    *("timestamp", "array<int>", "map<string,int>", "struct<a:int,b:array<string>>"),
)
COLUMNS = ("a", "b", "c c", "d'e", "f")


@st.composite
def declarations(draw: Any) -> Declaration:
    names = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
    columns = tuple(
        parse_columns(f"`{name.replace('`', '``')}` {draw(st.sampled_from(TYPES))}")[0]
        for name in names
    )
    keys = draw(st.sampled_from([[], ["day date"], ["day date", "p int"]]))
    every = [*names, *(key.split()[0] for key in keys)]
    constraints = [
        Constraint.not_null(name, draw(st.sampled_from(["", f"given_{number}"])))
        for number, name in enumerate(names)
        if draw(st.booleans())
    ]
    if draw(st.booleans()):
        of = tuple(draw(st.permutations(names))[:2])
        rely = draw(st.booleans())
        constraints.append(Constraint("", ConstraintKind.PRIMARY_KEY, of, "", False, rely))
    if draw(st.booleans()):
        of = tuple(draw(st.permutations(names))[:2])
        constraints.append(Constraint("", ConstraintKind.UNIQUE, of, "", False))
    comments = {name: draw(TEXTS) for name in every if draw(st.booleans())}
    properties = draw(st.sampled_from([{}, {"owner.team": "ops"}, {"comment": "all of it"}]))
    clustered = None
    simple = [column.name for column in columns if str(column.type) in ("int", "string")]
    if simple and draw(st.booleans()):
        clustered = (simple, 2)
    return Declaration.of(
        "db.t", columns, keys, clustered, properties, comments=comments, constraints=constraints
    )


@st.composite
def expectations(draw: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    of = {"column": draw(st.sampled_from(columns))}
    numbers = st.integers(0, 9)
    kind, kwargs = draw(
        st.sampled_from(
            [
                ("expect_column_values_to_not_be_null", of),
                ("expect_column_values_to_not_be_null", {**of, "mostly": 0.9}),
                ("expect_column_values_to_be_unique", of),
                ("expect_column_values_to_be_in_set", {**of, "value_set": ["x", 1, None]}),
                ("expect_column_values_to_match_regex", {**of, "regex": draw(TEXTS)}),
                ("expect_column_values_to_be_between", {**of, "min_value": draw(numbers)}),
                ("expect_compound_columns_to_be_unique", {"column_list": list(columns)}),
                ("expect_table_row_count_to_equal", {"value": draw(numbers)}),
                ("expect_table_row_count_to_be_between", {"max_value": draw(numbers)}),
                ("expect_table_row_count_to_be_between", {"min_value": 1, "max_value": 5}),
                ("unexpected_rows_expectation", {"unexpected_rows_query": draw(TEXTS)}),
            ]
        )
    )
    meta = draw(st.sampled_from([{}, {"check": "named"}, {"check": "n_2", "team": "x"}]))
    severity = draw(st.sampled_from([None, "warning", "info", "critical"]))
    said = {"meta": meta, "severity": severity, "description": draw(st.sampled_from(["", "why"]))}
    return {"type": kind, "kwargs": kwargs, **{key: value for key, value in said.items() if value}}


@pytest.mark.more
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_table_and_its_suite_come_back_from_their_contract(data: st.DataObject) -> None:
    declaration = data.draw(declarations())
    record = declaration.record("db.t", "")
    names = tuple(name for name, _ in (*record.columns, *record.partition_columns))
    suite = data.draw(st.lists(expectations(names), max_size=4))
    text = contract_of(record, suite)
    (table,), left_out = tables_of_contract(text, "c.yaml")
    assert left_out == [f"c.yaml: {name}" for name in ("id", "version", "status", "name")]
    assert table.left_out == [] and table.name == "db.t"
    assert table.differences(record) == []
    assert ordered(table.expectations) == ordered(suite)
    assert yaml.safe_load(text)["schema"][0]["physicalName"] == "db.t"
