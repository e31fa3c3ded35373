"""Hive type and column declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import InvalidDefinition
from acid_platform.engine.spark.scan import cheapest
from acid_platform.layout.types import HiveType, parse_columns, parse_type

PRIMITIVES = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp with local time zone",
    "decimal(7,2)",
    "varchar(10)",
    "char(3)",
]
types = st.recursive(
    st.sampled_from([parse_type(primitive) for primitive in PRIMITIVES]),
    lambda inner: st.one_of(
        inner.map(lambda element: HiveType("array", (), (("element", element),))),
        st.tuples(inner, inner).map(
            lambda two: HiveType("map", (), (("key", two[0]), ("value", two[1])))
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda some: HiveType("struct", (), tuple((f"f{i}", x) for i, x in enumerate(some)))
        ),
    ),
    max_leaves=6,
)


@given(types)
def test_types_round_trip_through_hives_text(one: HiveType) -> None:
    assert parse_type(str(one)) == one


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("INT", "int"),
        ("integer", "int"),
        ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("struct< A : int , b:array<string> >", "struct<a:int,b:array<string>>"),
        ("map<string,\nbigint>", "map<string,bigint>"),
    ],
)
def test_types_are_read_leniently_and_printed_in_one_form(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "intt",
        "decimal(39,1)",
        "decimal(2,3)",
        "decimal(1,2,3)",
        "array<int",
        "array<>",
        "int int",
        "struct<a int>",
        "map<int>",
        "varchar",
        "timestamp with zone",
        "int;",
        "array<int>>",
    ],
)
def test_a_bad_type_is_named_in_the_error(text: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"write e\.g\."):
        parse_type(text)


def test_columns_are_lower_case_and_unique() -> None:
    parsed = parse_columns("ID int, `Note` struct<A:int>, d decimal(7,2)")
    assert [str(column) for column in parsed] == ["id int", "note struct<a:int>", "d decimal(7,2)"]
    with pytest.raises(InvalidDefinition, match="twice"):
        parse_columns("a int, A string")


def test_the_cheapest_leaf_is_a_narrow_primitive() -> None:
    columns = parse_columns("s string, b bigint, f boolean, a array<int>")
    assert str(cheapest(columns)) == "f boolean"
    assert cheapest(parse_columns("a array<int>")) is None


@pytest.mark.parametrize("name", ["a b", "a.b", "1a", "1", "é", "имя", "select", "int", "struct"])
def test_fields_may_have_each_name_that_the_type_texts_of_hive_carry(name: str) -> None:
    hive = parse_type(f"array<struct<`{name.upper()}`: int, ok:string>>")
    assert hive.children[0][1].children[0][0] == name
    assert str(hive) == f"array<struct<{name}:int,ok:string>>"
    assert parse_type(str(hive)) == hive


@pytest.mark.parametrize(
    "name",
    [
        *("$id", "a-b", "a,b", "a:b", "a<b", "a>b", "a(b)", "@x", "a'b", 'a"b', "a``b", "a/b"),
        *("😎", "", " a", "a ", "a\n", "a\u0301", "\ud800"),
    ],
)
def test_other_fields_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidDefinition, match="a field of a struct can't be called"):
        parse_type(f"map<string,struct<ok:int,`{name}`:int>>")


def test_two_fields_that_differ_by_case_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match="the field 'a' twice"):
        parse_type("struct<a:int,`A`:string>")
