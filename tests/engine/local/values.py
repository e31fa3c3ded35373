"""A table with values of every type for differential tests: extremes, NULLs, and all pairs."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa

from acid_platform.layout.types import Column, parse_columns
from acid_platform.values.arrow_types import arrow_type

_NAN, _INF = float("nan"), float("inf")
D = Decimal
DATES = [
    None,
    datetime.date(1970, 1, 1),
    datetime.date(1969, 12, 31),
    datetime.date(2020, 2, 29),
    datetime.date(1, 1, 1),
    datetime.date(9999, 12, 31),
    datetime.date(2024, 12, 30),
    datetime.date(1900, 3, 1),
    datetime.date(2021, 1, 3),
]
TIMES = [
    None,
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2020, 2, 29, 12, 34, 56, 789000),
    datetime.datetime(1, 1, 1),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2020, 2, 29),
    datetime.datetime(1900, 3, 1, 5),
    datetime.datetime(2021, 1, 3, 0, 0, 0, 1),
]
VALUES: dict[str, tuple[str, list[object]]] = {
    "t": ("tinyint", [None, 0, 1, -1, 127, -128, 5, -7, 2]),
    "h": ("smallint", [None, 0, 1, -1, 32767, -32768, 5, -7, 300]),
    "i": ("int", [None, 0, 1, -1, 2**31 - 1, -(2**31), 5, -7, 70000]),
    "l": ("bigint", [None, 0, 1, -1, 2**63 - 1, -(2**63), 5, -7, 2**53 + 1]),
    "d": (
        "decimal(10,2)",
        [None, *map(D, ("0", "0.01", "-0.01", "99999999.99", "-99999999.99", "1.5", "2.25", "5"))],
    ),
    "k": (
        "decimal(38,10)",
        [
            None,
            *map(D, ("0", "1.5", "-0.0000000001", "9999999999999999999999999999.9999999999")),
            *map(D, ("-9999999999999999999999999999", "5", "0.1", "123456789012345678.123456789")),
        ],
    ),
    "w": (
        "decimal(5,0)",
        [None, *map(D, ("0", "1", "-1", "99999", "-99999", "5", "-7", "300"))],
    ),
    "f": ("float", [None, 0.0, -0.0, _NAN, _INF, -_INF, 1.5, -2.5, 3.4e38, 16777216.0, 0.1]),
    "x": ("double", [None, 0.0, -0.0, _NAN, _INF, -_INF, 1.5, -2.5, 1e300, 2.0**63, 0.1]),
    "s": (
        "string",
        [
            None,
            "",
            "a",
            "Ab ",
            "Müller",
            " 12",
            "-5",
            "true",
            "2020-01-31",
            "ab",
            "日e\u0301🏳️‍🌈x",
            "1.5e3",
        ],
    ),
    "c": ("char(5)", [None, "     ", "ab   ", "abcde", "a b  ", "ä    "]),
    "v": ("varchar(5)", [None, "", "ab", "abcde", "a b", "ab "]),
    "z": ("boolean", [None, True, False]),
    "e": ("date", list(DATES)),
    "m": ("timestamp", list(TIMES)),
    "b": ("binary", [None, b"", b"\x00", b"a", b"\xff", b"ab"]),
    "n": (
        "array<int>",
        [
            None,
            [],
            [1, 2, 3],
            [3, 1, None, 2, 1],
            [None],
            [2**31 - 1, -(2**31), 0],
            [5],
            [1, 1],
            [None, -1, None, 7],
        ],
    ),
    "o": (
        "array<string>",
        [None, [], ["a", "b"], ["b", None, "a", "b"], [None], ["", "ä", "Z"], ["B", "a", "日"]],
    ),
    "p": (
        "array<double>",
        [
            None,
            [],
            [0.0, -0.0],
            [_NAN, 1.0, None, -_INF, _INF],
            [1.5, _NAN, _NAN, -0.0, 0.0],
            [2.0],
            [-0.0, 5.0],
        ],
    ),
    "q": (
        "map<string,int>",
        [
            None,
            [],
            [("a", 1), ("b", 2)],
            [("b", None), ("a", 7)],
            [("", 0)],
            [("ab", 5), ("a", -7), ("日", None)],
        ],
    ),
    "r": (
        "struct<p:int,q:string>",
        [
            None,
            {"p": 1, "q": "a"},
            {"p": None, "q": "b"},
            {"p": 5, "q": None},
            {"p": None, "q": None},
        ],
    ),
    "g": (
        "string",
        [
            None,
            "2016-04-08",
            "2016-04-08 10:20:30",
            "08/04/2016",
            "2020-02-30",
            "2016-4-8",
            "20160408",
            "0001-01-01",
            "",
            "foo",
            "2016-04-08 ",
        ],
    ),
    "j": (
        "string",
        [
            None,
            '{"a":1,"b":0.8}',
            '{"a":{"b":[1,2,{"c":"x"}]},"b":"y"}',
            '[{"a":"b"},{"a":"c"}]',
            '{"a":null,"b":true}',
            '{"a":1',
            "",
            "1",
            '{"a" : "ä\\u00e4\\n", "b": [ ] }',
            '{"a":1,"a":2}',
            "[1,2,[3]]",
            '{"b":1.50,"a":1e3}',
        ],
    ),
    "u": (
        "string",
        [
            None,
            "http://spark.apache.org/path?query=1",
            "https://u:p@host.org:8080/a/b%20c?x=1&y=2&x=3#frag",
            "ftp://host",
            "a b+c%2Bä*~-._",
            "",
            "mailto:a@b.c",
            "http://host?y=%C3%A4",
        ],
    ),
}
"""Type and values by the letter of the type; each type has two columns, such as `ta` and `tb`."""
KINDS = {letter: kind for letter, (kind, _) in VALUES.items()}
ROWS = 132

COLUMNS: tuple[Column, ...] = parse_columns(
    "id int, " + ", ".join(f"{x}a {kind}, {x}b {kind}" for x, kind in KINDS.items())
)


def table() -> pa.Table:
    """Rows with all pairs of the values of each type, except for the types with many values."""
    data: dict[str, list[object]] = {"id": list(range(ROWS))}
    for letter, (_, values) in VALUES.items():
        size = len(values)
        data[f"{letter}a"] = [values[row % size] for row in range(ROWS)]
        data[f"{letter}b"] = [values[row // size % size] for row in range(ROWS)]
    return pa.table(
        {column.name: pa.array(data[column.name], arrow_type(column.type)) for column in COLUMNS}
    )
