"""`:name` in a script becomes one literal of the type of its value, and nothing else does."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import InvalidExpression, Warehouse
from acid_platform.engine.interface import Result
from acid_platform.sql.parse import split
from acid_platform.sql.scripts import bound, literal
from acid_platform.sql.text import parsed

NOON = datetime.datetime(2024, 7, 1, 12)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (5, "5"),
        (-5, "(-5)"),
        (np.int64(7), "7"),
        (1.5, "1.5e0"),
        (-1e300, "(-1e+300)"),
        (math.inf, "CAST('Infinity' AS DOUBLE)"),
        (Decimal("1.50"), "1.50"),
        (Decimal("-0.001"), "(-0.001)"),
        (Decimal("1E+3"), "CAST(1000 AS DECIMAL(4,0))"),
        ("it's \\", r"'it\'s \\'"),
        (b"\x01\xff", "X'01FF'"),
        (datetime.date(2024, 1, 2), "DATE '2024-01-02'"),
        (NOON, "TIMESTAMP '2024-07-01 12:00:00'"),
        (pd.Timestamp("2024-07-01 12:00:00.5"), "TIMESTAMP '2024-07-01 12:00:00.500000'"),
        (np.datetime64("2024-07-01T12:00:00", "ns"), "TIMESTAMP '2024-07-01 12:00:00'"),
        (np.datetime64("2024-07-01"), "DATE '2024-07-01'"),
        (np.datetime64("NaT"), "NULL"),
        (pd.NaT, "NULL"),
        (np.float32(0.5), "0.5e0"),
        (
            NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            "TIMESTAMP '2024-07-01 10:00:00'",
        ),
    ],
)
def test_a_value_is_a_literal_of_its_type(value: object, text: str) -> None:
    assert literal("x", value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "is a list, which no literal can state"),
        (np.array([1, 2]), "is a ndarray, which no literal can state"),
        (np.timedelta64(1, "s"), "is a timedelta64, which no literal can state"),
        (np.datetime64(1, "ns"), "is a datetime64, which no literal can state"),
        (10**40, "has 41 digits"),
        (Decimal("1e-40"), "digits; a decimal has at most 38"),
        (Decimal("NaN"), "a decimal is a finite number"),
        (pd.Timestamp("2024-07-01 12:00:00.000000001"), "nanoseconds"),
    ],
)
def test_a_value_that_no_literal_states_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        literal("x", value)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("SELECT :x", "SELECT 1"),
        ("select * from t where a=:x and b IN (:x,:x)", "select * from t where a=1 and b IN (1,1)"),
        ("select ':x', `:x`, :x -- :y\n", "select ':x', `:x`, 1\n"),
        (
            "CREATE TABLE t (s struct<a:int>); SELECT :x",
            "CREATE TABLE t (s struct<a:int>); SELECT 1",
        ),
        ("select a::int, m[:x]", "select a::int, m[1]"),
        ("insert into t values (:x); select 1", "insert into t values (1); select 1"),
    ],
)
def test_where_a_parameter_is(script: str, text: str) -> None:
    assert bound(script, {"x": 1}) == text


def test_a_negative_number_makes_no_comment() -> None:
    assert bound("SELECT a -:x", {"x": -1}) == "SELECT a -(-1)"


@pytest.mark.parametrize(
    ("script", "parameters", "message"),
    [
        ("SELECT :y", {"x": 1}, "parameter :y has no value; there are x"),
        ("SELECT :y", {}, "parameter :y has no value"),
        ("SELECT 1", {"x": 1}, "has no parameter :x"),
        ("SELECT 'a' :x", {"x": "b"}, "stands beside 'a'"),
        ("SELECT :x 'a'", {"x": "b"}, "stands beside 'a'"),
        ("SELECT :x :y", {"x": "b", "y": "c"}, "stands beside"),
    ],
)
def test_scripts_that_are_refused(script: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        bound(script, parameters)


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_no_text_becomes_more_than_one_literal(value: str) -> None:
    (statement,) = split(bound("SELECT :x", {"x": value}))
    tree = parsed(statement.text)
    (only,) = tree.expressions
    assert only.is_string and only.this == value


@pytest.fixture(scope="module")
def warehouse(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(
        "CREATE TABLE t (id int, v string, d date, x double, m decimal(5,2), at timestamp)"
        " PARTITIONED BY (p int)"
    )
    return warehouse


def rows(warehouse: Warehouse, text: str, **parameters: object) -> list[tuple[object, ...]]:
    answer = warehouse.sql(text, parameters)
    assert isinstance(answer, Result)
    return [tuple(row.values()) for row in answer.to_arrow().to_pylist()]


def test_values_are_stored_and_found_as_they_are(warehouse: Warehouse) -> None:
    day = datetime.date(2024, 7, 1)
    values = {
        "id": -3,
        "v": "it's ; -- :v \\ ${x}",
        "d": day,
        "x": 0.1,
        "m": Decimal("1.50"),
        "at": NOON,
    }
    done = warehouse.sql(
        "INSERT INTO t PARTITION (p=:p) VALUES (:id, :v, :d, :x, :m, :at)", {**values, "p": -1}
    )
    assert str(done) == "1 row affected"
    (stored,) = rows(
        warehouse,
        "SELECT * FROM t WHERE id = :id AND v = :v AND d = :d AND x = :x AND m = :m AND at = :at",
        **values,
    )
    assert stored == (*values.values(), -1)
    assert rows(warehouse, "SELECT count(*) FROM t WHERE v <> :v OR id > :id", v="x", id=-3) == [
        (1,)
    ]
    assert str(warehouse.sql("UPDATE t SET v = :v WHERE id = :id", {"v": None, "id": -3})) == (
        "1 row affected"
    )
    assert rows(warehouse, "SELECT v FROM t LIMIT :n", n=1) == [(None,)]


def test_a_script_without_values_is_refused_before_an_engine_reads_it(
    warehouse: Warehouse,
) -> None:
    with pytest.raises(InvalidExpression, match="parameter :day has no value"):
        warehouse.sql("SELECT * FROM t WHERE at > :day")
    assert warehouse.sql("SELECT ':day' AS a").collect() == [(":day",)]
