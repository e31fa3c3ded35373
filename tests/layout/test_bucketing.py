"""Hive's bucket hash: published values, and a plain scalar implementation."""

from __future__ import annotations

import datetime
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import InvalidDefinition, WrongType
from acid_platform.layout.bucketing import bucket_hashes, bucket_ids
from acid_platform.layout.types import HiveType, parse_type

ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
}


def arrow(kind: HiveType) -> pa.DataType:
    children = [(name, arrow(child)) for name, child in kind.children]
    match kind.kind:
        case "array":
            return pa.list_(children[0][1])
        case "map":
            return pa.map_(children[0][1], children[1][1])
        case "struct":
            return pa.struct(children)
    return ARROW[kind.kind]


def hashes(values: list[Any], type_text: str, version: int) -> list[int]:
    kind = parse_type(type_text)
    found = bucket_hashes([pa.array(values, arrow(kind))], [kind], version)
    assert found.dtype == np.int32
    return [int(bucket) for bucket in found]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 0, 1362653161),
        ("int", 1, 1321152925),
        ("int", 2, -249917244),
        ("int", 3, 1183246022),
        ("int", 42, 1960085659),
        ("int", -1, 1626716813),
        ("int", 300000, -678663480),
        ("smallint", 300, 2107031704),
        ("smallint", -32768, 1342976838),
        ("bigint", 300000000000, -888935297),
        ("string", "", -965378730),
        ("string", "a", 1086686554),
        ("string", "test string", -138301454),
        ("string", "Trino rocks", -399107423),
        ("string", "é", -527561221),
        ("varchar(9)", "a", 1086686554),
        ("char(9)", "a  ", 1086686554),
        ("float", 12.34, -381747602),
        ("double", 12.34, -2070733568),
        ("float", math.nan, -480354314),
        ("date", datetime.date(2015, 11, 19), 8542395),
        ("boolean", True, 1),
        ("boolean", False, 0),
        ("tinyint", -7, -7),
        ("binary", b"a", 1086686554),
        ("int", None, 0),
        ("string", None, 0),
    ],
)
def test_F11_vectors_of_version_2(kind: str, value: object, expected: int) -> None:
    # A NULL comes first, so that arrays with a validity bitmap are tested, too.
    assert hashes([None, value], kind, 2) == [0, expected]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 42, 42),
        ("int", -1, -1),
        ("smallint", 300, 300),
        ("boolean", True, 1),
        ("bigint", 300000000000, 300000000000 // 2**32 ^ (300000000000 % 2**32) - 2**32),
        ("bigint", -1, 0),
        ("date", datetime.date(1970, 1, 11), 10),
        ("string", "a", 97),
        ("string", "ab", 97 * 31 + 98),
        ("string", "é", -61 * 31 - 87),
        ("varchar(9)", "a", 31 + 97),
        ("char(9)", "a  ", 31 + 97),
        ("binary", b"a", 31 + 97),
        ("string", "", 0),
        ("varchar(9)", "", 1),
        ("float", 12.34, 0x414570A4),
        ("float", math.nan, 0x7FC00000),
        ("double", 1.0, 0x3FF00000),
        ("int", None, 0),
        ("varchar(9)", None, 0),
    ],
)
def test_F11_version_1_is_javas_hash_code(kind: str, value: object, expected: int) -> None:
    assert hashes([None, value], kind, 1) == [0, expected]


def test_F11_several_columns_are_combined_in_their_order() -> None:
    columns = [pa.array([1], pa.int32()), pa.array(["a"])]
    kinds = [parse_type("int"), parse_type("string")]
    assert bucket_hashes(columns, kinds, 2).tolist() == [-907245731]
    assert bucket_hashes(columns[::-1], kinds[::-1], 2).tolist() != [-907245731]


@pytest.mark.parametrize(
    ("version", "expected"), [(2, [1, 1, 0, 2, 3, 1]), (1, [0, 1, 2, 3, 2, 3])]
)
def test_F11_bucket_numbers_of_four_buckets(version: int, expected: list[int]) -> None:
    values = pa.chunked_array([pa.array([0, 1, 2], pa.int32()), pa.array([3, 42, -1], pa.int32())])
    found = bucket_ids([values], [parse_type("int")], 4, version)
    assert found.dtype == np.int32
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "kind", ["decimal(7,2)", "timestamp", "array<decimal(7,2)>", "struct<a:int,b:timestamp>"]
)
@pytest.mark.parametrize("version", [1, 2])
def test_F11_types_that_hive_hashes_in_its_own_form_are_refused(kind: str, version: int) -> None:
    with pytest.raises(InvalidDefinition, match="bucket column"):
        bucket_ids([pa.nulls(1)], [parse_type(kind)], 4, version)


@pytest.mark.parametrize(("buckets", "version"), [(0, 2), (-1, 2), (4, 0), (4, 3)])
def test_a_senseless_declaration_is_refused(buckets: int, version: int) -> None:
    with pytest.raises(InvalidDefinition):
        bucket_ids([pa.array([1])], [parse_type("int")], buckets, version)


def test_values_that_do_not_fit_their_type_are_refused() -> None:
    with pytest.raises(WrongType):
        bucket_ids([pa.array([2**40])], [parse_type("int")], 4, 2)
    with pytest.raises(WrongType):
        bucket_ids([pa.array([1.5])], [parse_type("string")], 4, 2)


# --- a plain implementation, value by value ---------------------------------------------------


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def rotl(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return (value << by | value >> 32 - by) & 0xFFFFFFFF


def scramble(block: int) -> int:
    return rotl(block * 0xCC9E2D51, 15) * 0x1B873593 & 0xFFFFFFFF


def murmur(data: bytes) -> int:
    result = 104729
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        result = rotl(result ^ scramble(int.from_bytes(data[at : at + 4], "little")), 13) * 5
        result = result + 0xE6546B64 & 0xFFFFFFFF
    tail = 0
    for index in range(len(data) - whole):
        tail ^= signed(data[whole + index]) << 8 * index
    if whole < len(data):
        result ^= scramble(tail)
    result ^= len(data)
    result = (result ^ result >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    result = (result ^ result >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return wrap(result ^ result >> 16)


def ieee(value: float, kind: str) -> int:
    form = "fi" if kind == "float" else "dq"
    if math.isnan(value):
        return 0x7FC00000 if kind == "float" else 0x7FF8000000000000
    return int(struct.unpack(f">{form[1]}", struct.pack(f">{form[0]}", value))[0])


def plain(value: Any, kind: HiveType, version: int) -> int:
    if value is None:
        return 0
    width = {"smallint": 2, "int": 4, "bigint": 8}
    match kind.kind:
        case "boolean" | "tinyint":
            return int(value)
        case "array":
            result = 0
            for element in value:
                result = 31 * result + plain(element, kind.children[0][1], version)
            return wrap(result)
        case "struct":
            result = 0
            for name, child in kind.children:
                result = 31 * result + plain(value[name], child, version)
            return wrap(result)
        case "map":
            (_, key), (_, item) = kind.children
            return wrap(sum(plain(k, key, version) ^ plain(v, item, 1) for k, v in value))
        case "date":
            days = (value - datetime.date(1970, 1, 1)).days
            return murmur(days.to_bytes(4, "big", signed=True)) if version == 2 else days
        case "float" | "double":
            bits = ieee(value, kind.kind)
            if version == 2 and kind.kind == "double":
                return murmur(struct.pack(">d", float(bits)))
            if version == 2:
                return murmur(struct.pack(">f", float(np.float32(bits))))
            return wrap(bits ^ (bits >> 32 & 0xFFFFFFFF)) if kind.kind == "double" else bits
        case "string" | "varchar" | "char" | "binary":
            data = value if kind.kind == "binary" else value.encode()
            if kind.kind == "char":
                data = data.rstrip(b" ")
            if version == 2:
                return murmur(data)
            result = 0 if kind.kind == "string" else 1
            for byte in data:
                result = 31 * result + signed(byte)
            return wrap(result)
    if version == 2:
        return murmur(value.to_bytes(width[kind.kind], "big", signed=True))
    return wrap(value ^ (value >> 32 & 0xFFFFFFFF)) if kind.kind == "bigint" else int(value)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": whole(8),
    "smallint": whole(16),
    "int": whole(32),
    "bigint": whole(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "date": st.dates(),
    "string": st.text(max_size=20),
    "varchar(30)": st.text(max_size=9),
    "char(30)": st.text(max_size=9),
    "binary": st.binary(max_size=20),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, list[Any]]:
    simple = draw(st.sampled_from(sorted(VALUES)))
    other = draw(st.sampled_from(sorted(VALUES)))
    maybe = st.none() | VALUES[simple]
    text, values = draw(
        st.sampled_from(
            [
                (simple, maybe),
                (f"array<{simple}>", st.none() | st.lists(maybe, max_size=4)),
                (
                    f"array<array<{simple}>>",
                    st.none() | st.lists(st.none() | st.lists(maybe, max_size=3), max_size=3),
                ),
                (
                    f"map<{other},{simple}>",
                    st.none() | st.lists(st.tuples(VALUES[other], maybe), max_size=4),
                ),
                (
                    f"struct<a:{simple},b:{other}>",
                    st.none() | st.fixed_dictionaries({"a": maybe, "b": st.none() | VALUES[other]}),
                ),
            ]
        )
    )
    return text, draw(st.lists(values, max_size=6))


@pytest.mark.more
@settings(max_examples=250)
@given(columns(), st.sampled_from([1, 2]), st.integers(0, 2))
def test_F11_arrays_hash_as_value_by_value(
    column: tuple[str, list[Any]], version: int, skip: int
) -> None:
    """Also for slices, whose buffers start at an offset."""
    text, values = column
    kind = parse_type(text)
    array = pa.array([None, *values, None], arrow(kind))[min(skip, 1) : len(values) + 1]
    expected = [plain(item, kind, version) for item in ([None, *values] if skip == 0 else values)]
    assert bucket_hashes([array], [kind], version).tolist() == expected
