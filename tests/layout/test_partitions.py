"""Names of partition directories (F4)."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import NoSuchPartition
from acid_platform.layout.names import (
    DEFAULT_PARTITION,
    escape,
    parse_partition,
    partition_name,
    partition_segment,
    partition_values,
    unescape,
)
from acid_platform.layout.types import parse_columns

ESCAPED = "\"#%'*/:=?\\{[]^" + "".join(map(chr, range(32))) + "\x7f"
KEPT = "aZ09 +&}._-~@!$(),;<>|`äß€😀"


@pytest.mark.parametrize(
    ("segment", "value"),
    [
        ("p=a%3Ab", "a:b"),
        ("p=__HIVE_DEFAULT_PARTITION__", None),
        ("p=a b", "a b"),
        ("p=100%25", "100%"),
        ("p=%zz", "%zz"),
        ("p=a=b", "a=b"),
        ("p=%", "%"),
        ("p=%4", "%4"),
    ],
)
def test_F4_values_of_directories(segment: str, value: str | None) -> None:
    assert partition_segment(segment) == ("p", value)
    assert parse_partition(segment, ["p"]) == (value,)


@pytest.mark.parametrize("char", ESCAPED)
def test_F4_escaped_characters(char: str) -> None:
    assert escape(char) == f"%{ord(char):02X}"


@pytest.mark.parametrize("char", KEPT)
def test_characters_that_stay(char: str) -> None:
    assert escape(char) == char


def test_F4_null_and_the_empty_string_become_the_default_partition() -> None:
    expected = f"p={DEFAULT_PARTITION}"
    assert partition_name({"p": None}) == partition_name({"p": ""}) == expected


def test_column_names_are_lower_case_and_both_sides_are_escaped() -> None:
    assert partition_name({"Month": "3", "a b:c": "x/y"}) == "month=3/a b%3Ac=x%2Fy"


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("month=3/day=4", ["month", "day"], ("3", "4")),
        ("MONTH=3/day=4", ["Month", "Day"], ("3", "4")),
        ("day=4/month=3", ["month", "day"], None),
        ("month=3", ["month", "day"], None),
        ("month=3/day=4/hour=5", ["month", "day"], None),
        ("month=3/stray/day=4", ["month", "day"], None),
        ("month=3/delta_1_1", ["month"], None),
        ("month", ["month"], None),
        ("=3", [""], None),
    ],
)
def test_only_the_declared_columns_make_a_partition(
    name: str, columns: list[str], expected: tuple[str, ...] | None
) -> None:
    assert parse_partition(name, columns) == expected


def test_values_are_never_normalised() -> None:
    assert parse_partition("p=01", ["p"]) == ("01",)
    assert parse_partition("p=2024-1-1", ["p"]) == ("2024-1-1",)


text = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.more
@given(text)
def test_escape_round_trip(value: str) -> None:
    assert unescape(escape(value)) == value
    assert "/" not in escape(value)
    assert "=" not in escape(value)


@given(st.dictionaries(st.sampled_from(["a", "month", "x y", "p:q"]), st.none() | text, min_size=1))
def test_partition_name_round_trip(values: dict[str, str | None]) -> None:
    """NULL, the empty string and the default partition's name share a directory that reads NULL."""
    read_back = parse_partition(partition_name(values), list(values))
    assert read_back == tuple(
        None if value in (None, "", DEFAULT_PARTITION) else value for value in values.values()
    )


@pytest.mark.parametrize(
    ("kind", "given", "written"),
    [
        ("decimal(10,2)", "1.5", "1.50"),
        ("decimal(10,2)", Decimal("1.500"), "1.50"),
        ("decimal(10,2)", " -1 ", "-1.00"),
        ("decimal(10,2)", "-0.0", "0.00"),
        (
            "decimal(38,0)",
            "-12345678901234567890123456789012345678",
            "-12345678901234567890123456789012345678",
        ),
        ("decimal(38,38)", "1e-38", f"0.{'0' * 37}1"),
        ("date", "2024-1-5", "2024-01-05"),
        ("date", datetime.datetime(2024, 1, 5), "2024-01-05"),
        ("timestamp", datetime.datetime(2024, 1, 5, 0, 0, 0, 500000), "2024-01-05 00:00:00.5"),
        ("timestamp", datetime.date(2024, 1, 5), "2024-01-05 00:00:00"),
        ("timestamp", "2024-1-5", "2024-01-05 00:00:00"),
        ("timestamp", "2024-01-05T12:30", "2024-01-05 12:30:00"),
        ("timestamp", "2024-01-05 1:2:3.0", "2024-01-05 01:02:03"),
        ("timestamp", "2024-01-05 12:30:01.500000000", "2024-01-05 12:30:01.5"),
        ("timestamp", "2024-01-05T12:30:01.000007+02:00", "2024-01-05 10:30:01.000007"),
        ("timestamp", datetime.datetime(2024, 1, 5, tzinfo=datetime.UTC), "2024-01-05 00:00:00"),
        ("varchar(2)", "ab  ", "ab"),
        ("varchar(2)", "é€", "é€"),
        ("tinyint", -128, "-128"),
        ("smallint", "32767", "32767"),
        ("bigint", 2**63 - 1, "9223372036854775807"),
        ("float", "-Infinity", "-Infinity"),
        ("int", " 03", "3"),
        ("bigint", 3.0, "3"),
        ("boolean", True, "true"),
        ("boolean", "TRUE", "true"),
        ("double", 1, "1.0"),
        ("double", "0.1", "0.1"),
        ("string", "1.50", "1.50"),
    ],
)
def test_F4_a_value_has_one_directory(kind: str, given: object, written: str) -> None:
    columns = parse_columns(f"p {kind}")
    assert partition_values({"P": given}, columns, "db.t") == {"p": written}
    assert partition_values(f"p={written}", columns, "db.t") == {"p": written}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("decimal(10,2)", "1.505"),
        ("decimal(3,2)", "10"),
        ("decimal(10,2)", "x"),
        ("decimal(10,2)", "NaN"),
        ("date", "2024-02-30"),
        ("date", "x"),
        ("date", datetime.datetime(2024, 1, 5, 1)),
        ("int", "1_0"),
        ("int", 1.5),
        ("int", True),
        ("tinyint", 300),
        ("tinyint", -129),
        ("smallint", "32768"),
        ("int", 99999999999),
        ("bigint", 2**63),
        ("varchar(2)", "abcdef"),
        ("timestamp", "x"),
        ("timestamp", "2024-02-30 00:00:00"),
        ("timestamp", "2024-01-05 24:00:00"),
        ("timestamp", "2024-01-05 00:00:00.0000001"),
        ("timestamp", 5),
        ("boolean", "yes"),
        ("float", "1e39"),
        ("double", "1e400"),
        ("double", "x"),
    ],
)
def test_a_directory_with_an_invalid_value_is_no_partition(kind: str, given: object) -> None:
    with pytest.raises(NoSuchPartition, match="is not a partition of db"):
        partition_values({"p": given}, parse_columns(f"p {kind}"), "db.t")


def test_a_partition_that_another_engine_named_keeps_its_name() -> None:
    columns = parse_columns("p decimal(10,2)")
    assert partition_values("p=1.5", columns, "db.t", ["p=1.5"]) == {"p": "1.5"}
    assert partition_values("p=1.5", columns, "db.t", ["p=2.5"]) == {"p": "1.50"}
