"""Tests of SQL files: what they find, and what their mistakes lead to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from acid_platform import Warehouse
from acid_platform.cli.main import main
from acid_platform.errors import InvalidDefinition
from acid_platform.sql.sql_tests import WrongRows, sql_tests
from tests.conftest import a_warehouse

warehouse = a_warehouse("local")
TOTALS = "SELECT day, sum(amount) AS amount FROM shop.orders WHERE day <= :until GROUP BY day"
GIVEN = """
    given:
      shop.orders:
        columns: id int, day date, amount decimal(9,2)
        rows:
          - {id: 1, day: 2024-03-01, amount: 2.5}
          - {id: 2, day: 2024-03-01, amount: null}
          - {id: 3, day: 2024-03-02, amount: 1}
          - {id: 4, day: 2024-03-03, amount: 9}
    parameters: {until: 2024-03-02}
"""


def written(folder: Path, tests: str, sql: str = TOTALS) -> Path:
    (folder / "totals.sql").write_text(sql)
    (folder / "totals.test.yaml").write_text(textwrap.dedent(tests))
    return folder


def in_one(parts: str) -> str:
    return "sums:" + textwrap.indent(textwrap.dedent(parts), "  ")


def test_rows_in_any_order_and_of_the_columns_that_are_named(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    both = "[{AMOUNT: 1, day: 2024-03-02}, {day: 2024-03-01, AMOUNT: 2.50}]"
    for expect in (both, "[{amount: 1}, {amount: 2.5}]"):
        [test] = sql_tests(written(tmp_path, in_one(GIVEN + f"\n    expect: {expect}")))
        assert str(test) == "totals: sums"
        test.check(warehouse)


@pytest.mark.parametrize(
    ("expect", "difference"),
    [
        ("[]", ["  + 2024-03-01 | 2.50", "  + 2024-03-02 | 1.00"]),
        ("[{amount: 1}]", ["  + 2.50"]),
        ("[{amount: 1}, {amount: 1}, {amount: 2.5}]", ["  - 1.00"]),
        ("[{amount: null}, {amount: 2.5}]", ["  - NULL", "  + 1.00"]),
    ],
)
def test_other_rows_are_told(
    warehouse: Warehouse, tmp_path: Path, expect: str, difference: list[str]
) -> None:
    [test] = sql_tests(written(tmp_path, in_one(GIVEN + f"\n    expect: {expect}")))
    with pytest.raises(WrongRows, match="totals: sums: other rows than expected") as error:
        test.check(warehouse)
    assert sorted(str(error.value).splitlines()[2:]) == sorted(difference)


def test_a_file_that_changes_a_table_and_rows_whose_types_follow_from_them(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    tests = """
        given:
          d.target: [{id: 1, tags: [a]}, {id: 2, tags: null}]
          d.source: [{id: 2, name: "x'y"}]
        expect: [{id: 1, tags: [a]}]
    """
    sql = "DELETE FROM d.target WHERE id IN (SELECT id FROM d.source WHERE name = 'x\\'y')"
    [test] = sql_tests(written(tmp_path, in_one(tests), sql) / "totals.test.yaml")
    test.check(warehouse)
    test.check(warehouse)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no tests; write NAME:"),
        ("a: [", "is no YAML"),
        ("a: {given: {}}", "a has no expect:"),
        ("a: {expect: [], gave: 1}", "a has gave:; there are given, parameters, expect"),
        ("a: {expect: {id: 1}}", "expect: is no list of rows"),
        ("a: {expect: [], given: [1]}", "have a value for each name"),
        ("a: {expect: [], given: {d.t: {rows: []}}}", "d.t has rows, or columns: as text and"),
    ],
)
def test_a_file_that_is_no_test(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        sql_tests(written(tmp_path, text))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{}", r"totals\.sql uses shop\.orders, which given: has not"),
        (
            "{shop.orders: [{id: 1}], shop.order: [{id: 1}]}",
            r"given: has shop\.order, and totals\.sql uses shop\.orders",
        ),
        ("{shop.orders: []}", r"shop\.orders has no rows; say its columns: too"),
        ("{shop.orders: [{id: 1}, {id: a}]}", r"the rows of shop\.orders: "),
    ],
)
def test_a_test_that_does_not_fit_its_file(
    warehouse: Warehouse, tmp_path: Path, given: str, message: str
) -> None:
    parts = f"given: {given}\nparameters: {{until: 2024-01-01}}\nexpect: []"
    [test] = sql_tests(written(tmp_path, in_one("\n" + parts)))
    with pytest.raises(InvalidDefinition, match=message):
        test.check(warehouse)


def test_the_command_tells_each_test(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["test", str(tmp_path)])
    assert (told.exit_code, told.output) == (
        1,
        f"error: there is no file *.test.yaml in {tmp_path}\n",
    )
    right = in_one(GIVEN + "\n    expect: [{amount: 1}, {amount: 2.5}]")
    wrong = right.replace("sums", "fails").replace("2.5}]", "2.6}]")
    told = CliRunner().invoke(main, ["test", str(written(tmp_path, f"{right}\n{wrong}"))])
    assert told.exit_code == 1
    assert told.output.splitlines() == [
        "ok totals: sums",
        "FAILED totals: fails: other rows than expected",
        "    amount",
        "  - 2.60",
        "  + 2.50",
        "error: 1 of 2 tests failed",
    ]
