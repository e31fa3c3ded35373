"""Lists of columns with comments and constraints. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acid_platform import InvalidDefinition, InvalidExpression, UnsupportedStatement
from acid_platform.errors import AcidError, UnknownColumn
from acid_platform.layout.types import Constraint, ConstraintKind, parse_columns
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.analysis import parsed
from acid_platform.predicates.grammar import SparkSql
from acid_platform.sql.column_lists import ColumnList, constraint_of
from acid_platform.tables.table_constraints import FUNCTIONS, declared_constraints, row_checks


@pytest.mark.parametrize(
    ("text", "columns", "comments", "constraints"),
    [
        ("a int", "a int", {}, []),
        (
            "a map<string,array<int>> COMMENT 'x, y', `b c` decimal(7,2)",
            "a map<string,array<int>>, `b c` decimal(7,2)",
            {"a": "x, y"},
            [],
        ),
        (
            "comment string comment 'c', check int",
            "comment string, check int",
            {"comment": "c"},
            [],
        ),
        (
            "a int NOT NULL ENABLE NOVALIDATE RELY COMMENT 'key' DEFAULT -1",
            "a int",
            {"a": "key"},
            ["NOT NULL (`a`)", "DEFAULT -1"],
        ),
        (
            "a int CONSTRAINT c CHECK (a < 3 AND (a > 1)) UNIQUE NOT ENFORCED RELY,"
            " CHECK (a <> 2), CONSTRAINT p PRIMARY KEY (a, b) DISABLE NOVALIDATE",
            "a int",
            {},
            [
                "CHECK (a < 3 AND (a > 1))",
                "UNIQUE (`a`)",
                "CHECK (a <> 2)",
                "PRIMARY KEY (`a`, `b`)",
            ],
        ),
        (
            "a int REFERENCES u (x) DISABLE, FOREIGN KEY (a) REFERENCES d.u(x) DISABLE NOVALIDATE",
            "a int",
            {},
            [
                "FOREIGN KEY (`a`) REFERENCES `u` (`x`)",
                "FOREIGN KEY (`a`) REFERENCES `d`.`u` (`x`)",
            ],
        ),
        ("d date DEFAULT CAST('2024-01-01' AS date)", "d date", {}, None),
    ],
)
def test_what_stands_beside_a_column(
    text: str, columns: str, comments: dict[str, str], constraints: list[str] | None
) -> None:
    listed = ColumnList.of(text)
    assert (listed.text, listed.comments) == (columns, comments)
    if constraints is not None:
        assert [str(one) for one in listed.constraints] == constraints


def test_words_that_say_how_far_a_constraint_holds() -> None:
    unique = constraint_of("CONSTRAINT U UNIQUE (a, `B c`) DISABLE NOVALIDATE RELY")
    expected = Constraint("u", ConstraintKind.UNIQUE, ("a", "b c"), enabled=False, rely=True)
    assert unique == expected
    assert constraint_of("CHECK (a > 0) NOT ENFORCED").of_rows is False


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("a int COMMENT x", InvalidExpression, "COMMENT needs a text before 'x'"),
        ("a int FOO COMMENT 'x'", InvalidDefinition, "',' expected before 'FOO'"),
        ("a int CHECK a > 0", InvalidExpression, "CHECK needs . before 'a'"),
        ("a int, PRIMARY KEY a", InvalidDefinition, "unknown type 'key'"),
        ("a int, CHECK (a > 0) b", InvalidExpression, "the constraint ends before 'b'"),
        ("a int NOT", InvalidExpression, "not understood before 'NOT'"),
        ("a int CONSTRAINT", InvalidExpression, "a name is needed at its end"),
    ],
)
def test_lists_that_are_no_sql(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_columns(ColumnList.of(text).text)


COLUMNS = parse_columns("a int, b string, c char(3), s struct<x:int>, d date, n decimal(5,2)")
KEYS = parse_columns("p int")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CHECK (rand() > a)", InvalidDefinition, "differ from one time to another"),
        ("CHECK (d < current_date)", InvalidDefinition, "differ from one time to another"),
        ("CHECK (a > (SELECT 1))", InvalidDefinition, "one row alone"),
        ("CHECK (sum(a) > 1)", InvalidDefinition, "one row alone"),
        ("CHECK (1 > 0)", InvalidDefinition, "names no column"),
        ("CHECK (z > 1)", UnknownColumn, "no column 'z'"),
        ("CHECK (t.a > 1)", UnknownColumn, "without its table"),
        ("CHECK (c = 'x')", UnsupportedStatement, "declare it as varchar or string"),
        ("CHECK (p > 1)", UnsupportedStatement, "p is a partition column"),
        ("CHECK (p > a)", UnsupportedStatement, "p is a partition column"),
        ("NOT NULL (p)", UnsupportedStatement, "p is a partition column"),
        ("NOT NULL (z)", UnknownColumn, "no column 'z'"),
        ("PRIMARY KEY (a)", UnsupportedStatement, "add DISABLE NOVALIDATE"),
        ("UNIQUE (a) ENABLE", UnsupportedStatement, "add DISABLE NOVALIDATE"),
        ("CONSTRAINT there UNIQUE (a) DISABLE", InvalidDefinition, "a constraint there already"),
        ("NOT NULL (a)", InvalidDefinition, "drop that first"),
        ("PRIMARY KEY (z) DISABLE", UnknownColumn, "no column 'z'"),
        ("CHECK (b = '" + "x" * 10_000 + "')", InvalidDefinition, "at most 10,000"),
    ],
)
def test_constraints_that_cant_be_kept(text: str, error: type[AcidError], message: str) -> None:
    present = (Constraint("there", ConstraintKind.NOT_NULL, ("a",)),)
    with pytest.raises(error, match=message):
        declared_constraints("db.t", COLUMNS, KEYS, [constraint_of(text)], present)


@pytest.mark.parametrize(
    "condition",
    [
        "b RLIKE '(a+)+$'",
        "NOT b REGEXP 'x'",
        "regexp_like(b, '(a+)+$')",
        "b LIKE '%a%a%a%a%a%'",
        "b LIKE concat(b, '%')",
        "b LIKE ANY ('x', '%a%a%a%a%a%')",
        "b || b || b = 'x'",
        "length(repeat(b, 1000000000)) > 1",
        "assert_true(a > 1) IS NULL",
        "java_method('java.lang.System', 'exit', 1) = b",
        "other.length(b) > 1",
    ],
)
def test_P74_a_condition_that_may_take_long_or_acts_is_refused(condition: str) -> None:
    with pytest.raises(UnsupportedStatement):
        declared_constraints("db.t", COLUMNS, (), [Constraint.check(condition)])


def test_P74_a_stored_condition_that_may_take_long_is_not_run() -> None:
    """Of a table that was declared before such a condition was refused."""
    (cheap,) = declared_constraints("db.t", COLUMNS, (), [Constraint.check("a > 1", "c")])
    stored = TableRecord(1, "db.t", "/t", (("a", "int"), ("b", "string")), constraints=(cheap,))
    assert row_checks(stored).constraints == (cheap,)
    costly = replace(cheap, text="b RLIKE '(a+)+$'")
    with pytest.raises(UnsupportedStatement, match=r"until ALTER TABLE db\.t DROP CONSTRAINT c"):
        row_checks(replace(stored, constraints=(costly,)))


OPERATORS = {"and", "or", "div", "shiftleft", "shiftright", "try_element_at"}
"""What sqlglot reads as an operator if it is written as a function."""


@pytest.mark.more
def test_P74_every_function_is_listed_or_refused() -> None:
    """All that sqlglot knows, and names that it does not."""
    every = {*map(str.lower, SparkSql.Parser.FUNCTIONS), *FUNCTIONS, "reflect", "sleep", "xpath"}
    for name in sorted(every):
        for arguments in ("b", "b, b", "b, b, b"):
            try:
                parsed(f"{name}({arguments}) = b")
            except (InvalidExpression, UnsupportedStatement, ValueError):
                continue
            try:
                declared_constraints(
                    "db.t", COLUMNS, (), [Constraint.check(f"{name}({arguments}) = b")]
                )
            except (UnsupportedStatement, InvalidDefinition):
                continue
            assert name in FUNCTIONS or name in OPERATORS, name


@pytest.mark.parametrize(
    "condition",
    [
        "length(trim(b)) > 3 AND b LIKE '%@%.%'",
        "upper(b) IN ('A', 'B') OR substring(b, 1, 2) = 'x' OR b LIKE ANY ('a%', '%b')",
        "CASE WHEN a > 1 THEN year(d) > 2000 ELSE coalesce(n, 0) >= 0 END",
        "d BETWEEN DATE'2020-01-01' AND date_add(d, 1) AND CAST(b AS int) < 3 AND s.x > 1",
        "if(a > 1, b, 'x') IS NOT NULL AND -a % 2 = 0 AND contains(b, 'x')",
    ],
)
def test_P74_usual_conditions_are_kept(condition: str) -> None:
    (kept,) = declared_constraints("db.t", COLUMNS, (), [Constraint.check(condition)])
    assert kept.text == condition


@pytest.mark.parametrize(
    ("column", "text", "error", "message"),
    [
        *(("a", text, InvalidDefinition, "is a literal") for text in ("upper('x')", "b", "rand()")),
        ("s", "1", UnsupportedStatement, "s struct<x:int> can only have DEFAULT NULL"),
        ("c", "'abcd'", InvalidDefinition, "'abcd' is too long for c char.3"),
    ],
)
def test_values_that_are_no_default(
    column: str, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        declared_constraints("db.t", COLUMNS, (), [Constraint.default(column, text)])


def test_constraints_get_names() -> None:
    constraints = [
        Constraint.not_null("A"),
        Constraint.check("a > 0 AND b > 'x'"),
        Constraint.check("a > 1 AND b > 'y'"),
        Constraint.check("s.x > 1", "Mine"),
        Constraint.default("d", "CURRENT_DATE"),
    ]
    named = declared_constraints("db.t", COLUMNS, KEYS, constraints)
    assert [(one.name, one.columns) for one in named] == [
        ("t_a_not_null", ("a",)),
        ("t_a_b_check", ("a", "b")),
        ("t_a_b_check_2", ("a", "b")),
        ("mine", ("s",)),
        ("t_d_default", ("d",)),
    ]
