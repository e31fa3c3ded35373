"""Partition pruning is conservative: a partition that could match is never dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import InvalidExpression
from acid_platform.layout.types import HiveType, parse_columns
from acid_platform.predicates.analysis import columns_of, parsed
from acid_platform.predicates.arrow_predicates import may_match
from acid_platform.values.partition_texts import partition_value

COLUMNS = parse_columns("m int, k string, d date")
VALUES = ("3", "a", "2020-01-02")


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("m = 3", True),
        ("m = 4", False),
        ("m <> 3", False),
        ("m in (1, 3)", True),
        ("m in (1, 2)", False),
        ("m between 3 and 5", True),
        ("m between 4 and 5", False),
        ("m > 2 and k = 'a'", True),
        ("m > 2 and k = 'b'", False),
        ("k = 'b' or m = 3", True),
        ("k = 'b' or m = 4", False),
        ("(m = 4)", False),
        ("m = -3", False),
        ("3 = m", True),
        ("d = '2020-01-02'", True),
        ("d < '2020-01-02'", False),
        ("d >= DATE '2020-01-03'", False),
        ("d = cast('2020-01-02' AS date)", True),
        ("m is null", False),
        ("m is not null", True),
        ("m = null", False),
        ("true", True),
        ("false", False),
        ("not m = 3", False),
        ("m = '4'", False),
        ("k like 'b%'", False),
        ("not m = null", False),
        ("m <=> 4", False),
        # An expression that is not understood keeps the partition.
        ("id = 7", True),
        ("m = 4 or id = 7", True),
        ("m = 4 and id = 7", False),
        ("m + 1 = 9", True),
        ("upper(k) = 'Z'", True),
        ("k = 4", True),
        ("m in (select 1)", True),
        ("t.m = 4", True),
        ("m = 3.0", True),
    ],
)
def test_partitions_that_can_not_match_are_pruned(where: str, kept: bool) -> None:
    assert may_match(where, COLUMNS, [VALUES]) == [kept]


@pytest.mark.parametrize("where", ["m = 3", "m <> 3", "m < 9", "m in (1)", "m between 1 and 9"])
def test_comparisons_with_the_null_partition_select_nothing(where: str) -> None:
    null = (None, "a", None)
    assert may_match(where, COLUMNS, [null]) == [False]
    assert may_match("m is null", COLUMNS, [null, VALUES]) == [True, False]


@pytest.mark.parametrize(
    ("kind", "value", "where", "kept"),
    [
        # Spark reads such a value as NULL, so that these rows are selected.
        ("int", "1.5", "p IS NULL", True),
        ("int", "1.5", "p > 1", False),
        ("tinyint", "300", "p IS NULL", True),
        ("int", "x", "p IS NULL", True),
        ("date", "2020-02-30", "p IS NULL", True),
        ("decimal(3,1)", "1e9", "p IS NULL", True),
        # And these as values that the type can hold.
        ("decimal(5,1)", "1.25", "p = 1.3", True),
        ("decimal(5,1)", "1.25", "p = 1.25", False),
        ("date", "2020-1-5", "p = '2020-01-05'", True),
        ("int", " 7 ", "p = 7", True),
        ("char(3)", "a", "p = 'a'", True),
        ("varchar(1)", "ab", "p = 'a'", True),
    ],
)
def test_P16_values_are_pruned_as_they_are_read(
    kind: str, value: str, where: str, kept: bool
) -> None:
    assert may_match(where, parse_columns(f"p {kind}"), [(value,)]) == [kept]


@given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
def test_integer_comparisons_are_pythons(value: int, literal: int, operator: str) -> None:
    python = {"=": "==", "<>": "!="}.get(operator, operator)
    expected = eval(f"{value} {python} {literal}")
    partitions = [(str(value), "a", None)]
    assert may_match(f"m {operator} {literal}", COLUMNS, partitions) == [expected]


def test_columns_of_a_predicate() -> None:
    assert columns_of("a = 1 and upper(B) in ('x', c)") == {"a", "b", "c"}
    assert columns_of("s.field > 2") == {"s", "field"}
    assert columns_of("exists(xs, x -> x > a)") is None
    with pytest.raises(InvalidExpression):
        columns_of("a = = 1")


def test_P26_a_predicate_is_parsed_once_for_all_partitions() -> None:
    where = "m = 7 and s in ('x', 'only here')"
    before = parsed.cache_info().misses
    for number in range(100):
        may_match(where, COLUMNS, [(str(number), "a", None)])
    assert parsed.cache_info().misses == before + 1


@pytest.mark.parametrize(
    ("kind", "bits"), [("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)]
)
def test_F4_whole_numbers_beyond_their_type_are_null(kind: str, bits: int) -> None:
    limit = 1 << bits - 1
    for value in (-limit, limit - 1):
        assert partition_value(f" {value} ", HiveType(kind)) == value
    for value in (-limit - 1, limit):
        assert partition_value(str(value), HiveType(kind)) is None


@pytest.mark.parametrize("operator", ["OR", "AND"])
def test_P78_a_long_chain_is_no_deep_tree_for_partitions(operator: str) -> None:
    """As deep as the parser lets a condition be."""
    where = f" {operator} ".join(f"p >= {number}" for number in range(400, 1380))
    found = may_match(where, parse_columns("p int"), [["399"], ["400"], ["2000"]])
    assert found == [False, operator == "OR", True]
