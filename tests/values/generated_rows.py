"""Rows with nested values, each with what a table has to store of it: a model of the conversions.

The expectation is made together with the value, from tables of examples, and not computed from it.
"""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from acid_platform.layout.types import HiveType, parse_type

NAN = float("nan")
DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 30, 1, 5)
MIDNIGHT = datetime.datetime(2024, 2, 29)


class Refused:
    """The expectation of a value that no row may hold."""

    def __repr__(self) -> str:
        return "REFUSED"


REFUSED = Refused()
_NULLS = [(None, None), (pd.NA, None), (pd.NaT, None)]
_NOT_EVEN_A_TEXT = [(b"7", REFUSED), (True, REFUSED), (DAY, REFUSED), ([1], REFUSED)]
_NO_NUMBER = [("7", REFUSED), *_NOT_EVEN_A_TEXT]


def _whole(limit: int) -> list[tuple[object, object]]:
    return [
        *_NULLS,
        *_NO_NUMBER,
        (limit - 1, limit - 1),
        (-limit, -limit),
        (limit, REFUSED),
        (-limit - 1, REFUSED),
        (np.int8(7), 7),
        (2.0, 2),
        (np.float64(-3.0), -3),
        (Decimal("4.0"), 4),
        (NAN, None),
        (1.5, REFUSED),
        (Decimal("1.5"), REFUSED),
        (float("inf"), REFUSED),
    ]


LEAVES: dict[str, list[tuple[object, object]]] = {
    "boolean": [
        *_NULLS,
        (True, True),
        (np.False_, False),
        (NAN, None),
        (1, REFUSED),
        ("t", REFUSED),
    ],
    "tinyint": _whole(1 << 7),
    "smallint": _whole(1 << 15),
    "int": _whole(1 << 31),
    "bigint": [
        *_whole(1 << 63),
        (2.0**60, 1 << 60),  # is printed with 16 digits
        (np.float32(123456792), 123456792),  # is printed with 8 digits
        (np.float16(65504), 65504),
    ],
    "float": [
        *_NULLS,
        *_NO_NUMBER,
        (NAN, NAN),
        (0.5, 0.5),
        (np.float32(2.5), 2.5),
        (3, 3.0),
        (Decimal("1.25"), 1.25),
        (float("-inf"), float("-inf")),
        (1e300, REFUSED),
        ((1 << 24) + 1, REFUSED),
    ],
    "double": [
        *_NULLS,
        *_NO_NUMBER,
        (NAN, NAN),
        (0.1, 0.1),
        (-0.0, -0.0),
        (np.float64(NAN), NAN),
        (np.float32(0.1), 0.10000000149011612),
        (1 << 53, float(1 << 53)),
        (Decimal("0.1"), 0.1),
        ((1 << 53) + 1, REFUSED),
        (10**400, REFUSED),
    ],
    "decimal(5,2)": [
        *_NULLS,
        *_NOT_EVEN_A_TEXT,
        (Decimal("1.25"), Decimal("1.25")),
        (Decimal("-999.99"), Decimal("-999.99")),
        (7, Decimal("7.00")),
        (np.int16(8), Decimal("8.00")),
        (NAN, None),
        (Decimal("1.255"), REFUSED),
        (Decimal("1000"), REFUSED),
        (1000, REFUSED),
        (1.5, Decimal("1.50")),
        (12.1, Decimal("12.10")),
        (np.float32(0.1), Decimal("0.10")),
        (np.float64(-0.25), Decimal("-0.25")),
        (0.1 + 0.2, REFUSED),
        (1.005, REFUSED),
        (1000.0, REFUSED),
        (float("inf"), REFUSED),
        ("7", Decimal("7.00")),
        ("-12.10", Decimal("-12.10")),
        ("1e2", Decimal("100.00")),
        (".5", Decimal("0.50")),
        ("12.345", REFUSED),
        ("1000", REFUSED),
        (" 7", REFUSED),
        ("1,5", REFUSED),
        ("NaN", REFUSED),
        ("", REFUSED),
    ],
    "string": [
        *_NULLS,
        ("", ""),
        ("007", "007"),
        ("\U0001f600", "\U0001f600"),
        (np.str_("x"), "x"),
        (7, "7"),
        (True, "true"),
        (NAN, None),
        (1.5, REFUSED),
        (b"x", REFUSED),
        (DAY, REFUSED),
        ("a\ud800", REFUSED),
        ({"a": 1}, REFUSED),
    ],
    "varchar(3)": [*_NULLS, ("abc", "abc"), ("ab   ", "ab "), ("abcd", REFUSED), (1.5, REFUSED)],
    "char(3)": [*_NULLS, ("ab", "ab "), ("abc  ", "abc"), ("abcd", REFUSED), (b"a", REFUSED)],
    "binary": [*_NULLS, (b"\xff", b"\xff"), (bytearray(b"x"), b"x"), ("x", REFUSED), (1, REFUSED)],
    "date": [
        *_NULLS,
        (DAY, DAY),
        (MIDNIGHT, DAY),
        (pd.Timestamp(MIDNIGHT), DAY),
        (np.datetime64("2024-02-29"), DAY),
        (np.datetime64("NaT"), None),
        (NOON, REFUSED),
        (pd.Timestamp("2024-02-29 00:00:00.000000001"), REFUSED),
        ("2024-02-29", DAY),
        ("2024-02-29 00:00:00", DAY),
        ("2024-02-30", REFUSED),
        ("2024-02-29 12:30", REFUSED),
        ("2024-2-29", REFUSED),
        ("29.02.2024", REFUSED),
        ("", REFUSED),
        (5, REFUSED),
        (1.5, REFUSED),
    ],
    "timestamp": [
        *_NULLS,
        (NOON, NOON),
        (DAY, MIDNIGHT),
        (pd.Timestamp(NOON), NOON),
        (np.datetime64("2024-02-29T12:30:01.000005000", "ns"), NOON),
        (pd.Timestamp("2024-01-01 00:00:00.000000001"), REFUSED),
        (np.datetime64("2024-01-01T00:00:00.000000001", "ns"), REFUSED),
        ("2024-02-29 00:00:00", MIDNIGHT),
        ("2024-02-29", MIDNIGHT),
        ("2024-02-29T12:30:01.000005", NOON),
        ("2024-02-29T12:30:01.000005Z", NOON),
        ("2024-02-29 14:30:01.000005+02:00", NOON),
        ("2024-02-29 12:30:01.000005001", REFUSED),
        ("2024-02-29 24:00", REFUSED),
        ("noon", REFUSED),
        (1.5, REFUSED),
        (5, REFUSED),
    ],
}
"""For each type, values and what is stored of them."""
_KEYS: dict[str, list[object]] = {
    "string": ["k", "K", "", "\u00e9"],
    "int": [0, 1, -7],
    "bigint": [1 << 40, 5],
    "struct<a:int,b:string>": [{"a": 1, "b": "x"}, {"b": "y", "A": 1}],
}
_FIELDS = ("a", "b", "name", "a b", "c.d", "1x", "\u00e9", "select")


def random_type(random_: random.Random, depth: int = 3) -> HiveType:
    """A type whose structs have names that need backticks, too."""
    kind = random_.choice(("leaf", "struct", "array", "map") if depth else ("leaf",))
    if kind == "leaf":
        return parse_type(random_.choice(list(LEAVES)))
    if kind == "array":
        return parse_type(f"array<{random_type(random_, depth - 1)}>")
    if kind == "map":
        key = random_.choice(list(_KEYS))
        return parse_type(f"map<{key},{random_type(random_, depth - 1)}>")
    names = random_.sample(_FIELDS, random_.randint(1, 4))
    return parse_type(
        f"struct<{','.join(f'{name}:{random_type(random_, depth - 1)}' for name in names)}>"
    )


@dataclass
class Maker:
    """Makes values. `faults`: of how many of a thousand parts something is wrong."""

    random: random.Random
    faults: int

    def value(self, hive: HiveType) -> tuple[object, object]:
        """A value and what is stored of it, or REFUSED."""
        if not hive.nested:
            values = LEAVES[str(hive)]
            fitting = [pair for pair in values if pair[1] is not REFUSED]
            return self.random.choice(values if self._wrong() else fitting)
        if self.random.random() < 0.1:
            return None, None
        if self._wrong():
            return self.random.choice((5, "text", b"x", [{"nosuch": 1}, 3])), REFUSED
        if hive.kind == "struct":
            return self._struct(hive)
        if hive.kind == "array":
            parts = [self.value(hive.children[0][1]) for _ in range(self.random.randint(0, 3))]
            given: Any = [value for value, _ in parts]
            return tuple(given) if self.random.random() < 0.3 else given, _all(parts)
        return self._map(hive)

    def _wrong(self) -> bool:
        return self.random.randrange(1000) < self.faults

    def _struct(self, hive: HiveType) -> tuple[object, object]:
        given: dict[str, object] = {}
        stored: dict[str, object] = {}
        wrong = False
        for name, kind in hive.children:
            if self.random.random() < 0.15:  # a field that the rows lack
                stored[name] = None
                continue
            value, expected = self.value(kind)
            spelled = self.random.choice((name, name, name.upper(), name.title()))
            given[spelled] = value
            stored[name] = expected
            wrong = wrong or expected is REFUSED
        if self._wrong():
            name = self.random.choice(hive.children)[0]
            given[self.random.choice((name + "x", "nosuch", name[::-1] + "_"))] = 1
            wrong = True
        if self._wrong():
            first = hive.children[0][0]
            given |= {first.upper(): None, first.lower(): None}
            wrong = wrong or first.upper() != first.lower()
        names = list(given)
        self.random.shuffle(names)
        return {name: given[name] for name in names}, REFUSED if wrong else stored

    def _map(self, hive: HiveType) -> tuple[object, object]:
        (_, key_type), (_, item_type) = hive.children
        keys = list(_KEYS[str(key_type)])
        self.random.shuffle(keys)
        keys = keys[: self.random.randint(0, 3)]
        items = [self.value(item_type) for _ in keys]
        pairs = list(zip(keys, (value for value, _ in items), strict=True))
        stored = _all(items)
        if isinstance(stored, list):
            own = [
                {name.lower(): key[name] for name in sorted(key, key=str.lower)}
                if isinstance(key, dict)
                else key
                for key in keys
            ]
            stored = list(zip(own, stored, strict=True))
        if pairs and self._wrong():
            pairs.append((self.random.choice((None, pairs[0][0])), None))
            return pairs, REFUSED
        if key_type.nested or self.random.random() < 0.5:
            return pairs, stored
        return dict(pairs), stored


def _all(parts: list[tuple[object, object]]) -> object:
    wrong = any(expected is REFUSED for _, expected in parts)
    return REFUSED if wrong else [expected for _, expected in parts]


def comparable(value: object) -> object:
    """The value in a form in which NaN equals NaN, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return value
