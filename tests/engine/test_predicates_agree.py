"""One predicate, one answer: Spark's filter, to_arrow, count and partition pruning.

Spark's own filter over the whole table is the measure. Where Arrow can't say the same it refuses.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from acid_platform import AcidError, InvalidExpression, Table, UnsupportedStatement, Warehouse
from acid_platform.layout.types import parse_columns
from acid_platform.predicates.arrow_predicates import may_match
from tests.conftest import a_warehouse

pytestmark = pytest.mark.spark

LOW, WIDE = "-12345678901234567890123456789012345678", "-1234567890123456789012345678.1234567891"
COLUMNS = {
    "i": ("int", ["1", "2", "-2147483648", "NULL"], ["1", "-1.5", "1e0", "'1'", "3000000000"]),
    "b": (
        "bigint",
        ["9007199254740993", "2", "-9223372036854775808", "NULL"],
        ["9007199254740992e0", "9007199254740993", "9223372036854775808", "2.5"],
    ),
    "f": ("double", ["0.1", "double('NaN')", "-0.0", "NULL"], ["0.1", "0.1e0", "0", "'0.1'"]),
    "d": (
        "decimal(10,2)",
        ["1.50", "-1.50", "99999999.99", "NULL"],
        ["1.5", "1.505", "1.5e0", "'1.5'", "2"],
    ),
    "n": ("decimal(38,0)", [LOW, "2", "0", "NULL"], [LOW, "1.5", "2.0", "2e0"]),
    "w": ("decimal(38,10)", [WIDE, "0.1", "2", "NULL"], [WIDE, "0.10000000001", "0.1e0", "2"]),
    "x": (
        "decimal(19,18)",
        ["0.300000000000000001", "0.3", "-0.1", "NULL"],
        ["0.3", "0.3e0", "'0.3'", "0.300000000000000001", "15"],
    ),
    "s": (
        "string",
        ["'a'", "'A '", "'it''s'", "NULL"],
        ["'a'", "'it\\'s'", '"it\'s"', "'a\\u0020'", "''"],
    ),
    "c": ("char(5)", ["'a'", "'abc'", "'b'", "NULL"], ["'a'", "'abc'", "'b'"]),
    "y": (
        "date",
        ["date'1969-12-31'", "date'2024-02-29'", "date'0001-01-01'", "NULL"],
        ["date'2024-02-29'", "'1969-12-31'", "timestamp'1969-12-31 00:00:01'"],
    ),
    "t": (
        "timestamp",
        [
            "timestamp'1969-12-31 23:59:58.5'",
            "timestamp'2024-02-29 12:00:00.000001'",
            "timestamp'1970-01-01'",
            "NULL",
        ],
        ["timestamp'2024-02-29 12:00:00.000001'", "'1969-12-31 23:59:58.5'", "date'1970-01-01'"],
    ),
}
"""Type, values of rows 0 to 3, and literals to compare with. Row 4 is NULL everywhere."""

warehouse = a_warehouse(in_spark=True)


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    """Each row in a partition, so that its file's statistics are its values."""
    kinds = ", ".join(f"{name} {kind}" for name, (kind, *_) in COLUMNS.items())
    made = warehouse.create_table(
        "db.t", f"id int, {kinds}, st struct<c:char(3)>", partitioned_by=["p int"]
    )
    rows = []
    for row in range(5):
        cells = ", ".join(
            f"CAST({[*values, 'NULL'][row]} AS {kind.replace('char(5)', 'string')}) {name}"
            for name, (kind, values, _) in COLUMNS.items()
        )
        rows.append(f"SELECT {row} id, {cells}, named_struct('c', 'a') st, {row} p")
    made.insert(warehouse.spark.sql(" UNION ALL ".join(rows)))
    return made


@pytest.fixture(scope="module")
def truth(table: Table) -> Iterator[DataFrame]:
    # As in Hive, a char has no trailing blanks in expressions; Spark's own frames have them.
    trimmed = {"c": "rtrim(concat(c, ''))", "st": "named_struct('c', rtrim(concat(st.c, '')))"}
    columns = {name: F.expr(text) for name, text in trimmed.items()}
    frame = table.read().withColumns(columns).coalesce(1).cache()
    yield frame
    frame.unpersist()


Answer = list[int] | type[Exception]


def answer(run: Callable[[], Sequence[int]]) -> Answer:
    try:
        return sorted(run())
    except AcidError as error:
        return type(error)
    except PySparkException:
        return PySparkException


def accepted(frame: DataFrame, predicates: list[str]) -> dict[str, Answer]:
    """By predicate the rows that it accepts, in one job unless one of them fails."""
    try:
        texts = [re.sub(" +'", "'", one) for one in predicates]  # only literals for c have blanks
        marks = [F.expr(one).alias(f"p{i}") for i, one in enumerate(texts)]
        rows = frame.select("id", *marks).collect()
    except PySparkException:
        if len(predicates) == 1:
            return {predicates[0]: PySparkException}
        half = len(predicates) // 2
        return accepted(frame, predicates[:half]) | accepted(frame, predicates[half:])
    return {
        one: sorted(row["id"] for row in rows if row[f"p{i}"]) for i, one in enumerate(predicates)
    }


ALWAYS = {
    "i IN (1, NULL)": [0],
    r"i IN (1, 3000000000, NULL) OR s = 'A\u0020'": [0, 1],
    "i NOT IN (1, NULL)": [],
    "d IN (-1.5, NULL) AND b IN (2, NULL)": [1],
    f"n = {LOW}": [0],
    f"w <= {WIDE}": [0],
    "t = timestamp'2024-02-29 12:00:00.000001'": [1],
    "t BETWEEN '2024-02-29' AND '2024-02-29 12:00:00.000001'": [1],
}
"""Predicates of each run, and the rows that they accept."""


def predicates() -> list[str]:
    found = []
    for name, (_, _, literals) in COLUMNS.items():
        for literal, order in itertools.product(literals, ("=", "<>", "<", "<=", ">", ">=", "<=>")):
            found += [f"{name} {order} {literal}", f"NOT ({literal} {order} {name})"]
        for low, high in itertools.permutations([*literals, "NULL"], 2):
            found += [
                f"{name} BETWEEN {low} AND {high}",
                f"{name} IN ({low}, {high})",
                f"{name} NOT IN ({low}, {high}) OR i = 1",
            ]
    found += [
        f"{a} {order} {b}" for a, b in itertools.permutations("ibfdnwx", 2) for order in ("=", "<")
    ]
    return [*found, "i < 12345678901234567890", "st.c = 'a'", "'a' IN (c, 'b')"]


@pytest.mark.parametrize("most", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_arrow_and_pruning_say_what_spark_says(table: Table, truth: DataFrame, most: int) -> None:
    """Sampled with a fixed seed; `slow` takes all of them."""
    everything = predicates()
    sample = [*ALWAYS, *random.Random(15).sample(everything, min(most, len(everything)))]
    expected = {
        key: rows
        for at in range(0, len(sample), 50)
        for key, rows in accepted(truth, sample[at : at + 50]).items()
    }
    assert {where: expected[where] for where in ALWAYS} == ALWAYS
    refusals = (UnsupportedStatement, InvalidExpression)
    wrong = []
    for where, rows in expected.items():
        got = answer(lambda where=where: table.to_arrow(["id"], where)["id"].to_pylist())
        if got not in refusals and rows is not PySparkException and got != rows:
            wrong.append((where, got, rows))
    assert not wrong
    answered = [one for one in expected if isinstance(expected[one], list)]
    assert len(answered) > len(sample) * 0.9
    columns = {column.name: column for column in table.columns}
    texts = [
        row.asDict()
        for row in truth.select("id", *(F.col(name).cast("string") for name in COLUMNS)).collect()
    ]
    for where, row in itertools.product(answered, texts):
        if row["id"] in expected[where]:  # type: ignore[operator]
            keys = [name for name in COLUMNS if name != "s"]
            assert may_match(
                where, [columns[name] for name in keys], [[row[name] for name in keys]]
            ) == [True], (where, row["id"])


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        ("decimal(38,0)", LOW, f"p = {LOW}"),
        ("decimal(38,10)", WIDE, f"p <= {WIDE}"),
        ("decimal(38,0)", LOW, f"p IN (1, {LOW})"),
        ("decimal(38,0)", LOW, f"p = -(-({LOW}))"),
        # Spark compares these as doubles, or in a decimal that has no room for all digits.
        ("bigint", "9007199254740993", "p = 9007199254740992e0"),
        ("decimal(38,0)", "2", "p = 1.5"),
        ("decimal(10,2)", "1.50", "p IN (12345678901234567890123456789012345678, 1.500001)"),
        ("int", None, "p < 12345678901234567890"),
    ],
)
def test_a_partition_that_spark_would_select_is_not_pruned(
    kind: str, value: str | None, where: str
) -> None:
    assert may_match(where, parse_columns(f"p {kind}"), [(value,)]) == [True]


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("n = 1.5", "so Spark rounds"),
        ("x IN (0.3, 0.3e0)", "IN"),
        ("i < 12345678901234567890", "even for NULL"),
        ("i = '1_0'", "not a whole number"),
        ("y = '20240229'", "not a date"),
        ("n = 123456789012345678901234567890123456789", "38 digits"),
        ("f < 1e999", "range"),
    ],
)
def test_what_spark_answers_in_a_way_of_its_own_is_refused_by_arrow(
    table: Table, where: str, named: str
) -> None:
    with pytest.raises((UnsupportedStatement, InvalidExpression), match=named):
        table.count(where)
