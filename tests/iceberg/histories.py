"""Random histories of tables in Parquet: what readers of Iceberg have to find after each step."""

from __future__ import annotations

import datetime
import random
import re
import struct
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any

from acid_platform import Table, Warehouse
from acid_platform.errors import AlreadyScheduled
from acid_platform.layout.types import LOCAL_ZONE, Column, HiveType
from acid_platform.tables.record_layout import columns_of_record

_SIMPLE = (
    "id int, k bigint, tiny tinyint, small smallint, yes boolean, f float, d double,"
    " s string, v varchar(12), c char(4), b binary, day date"
)
_NESTED = (
    "st struct<a:int,b:string,deep:struct<x:double,y:decimal(7,3)>>, l array<int>,"
    " ls array<struct<a:tinyint,b:varchar(5)>>, ll array<array<date>>, ms map<string,float>,"
    " ml map<int,array<string>>, sm struct<l:array<decimal(20,5)>,m:map<string,struct<n:bigint>>>"
)
_TIMES = "at timestamp, moment timestamp with local time zone, ts struct<at:timestamp,b:binary>"
"""Not for insert-only tables: their files are Hive's, whose times readers of Iceberg don't take."""
_TEXTS = ("", "a", "ä ß", "it's", "%2F/=", "zz" * 40)
_MOST_DIGITS = Context(prec=60)
_INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_FLOATS = (0.0, -0.0, -1.5, 3.25, float("inf"), float("-inf"), float("nan"))
PARTITION_VALUES: dict[str, tuple[Any, ...]] = {
    "int": (-1, 2, 30),
    "tinyint": (-128, 0),
    "bigint": (-(2**63), 2**62),
    "boolean": (True, False),
    "string": ("a b%", "é=/", "x"),
    "varchar(8)": ("a b%", "é=/"),
    "date": (datetime.date(1960, 2, 29), datetime.date(2024, 1, 1)),
    "timestamp": (datetime.datetime(1960, 2, 29, 1, 2, 3, 4567), datetime.datetime(2024, 1, 1)),
    "decimal(5,2)": (Decimal("-1.50"), Decimal("2.25")),
    "decimal(38,10)": (Decimal("-1.5"), Decimal(2**90)),
}
"""Values of a partition column by its type; NULL is another one."""


def columns_of(number: int, insert_only: bool) -> str:
    """The columns of a table; ten tables with numbers in a row have decimals of all precisions."""
    dice = random.Random(number)
    digits = range(1 + number % 10, 39, 10)
    decimals = ", ".join(f"m{each} decimal({each},{dice.randrange(each + 1)})" for each in digits)
    if insert_only:  # of a decimal inside of a column no bound is recorded: such a file is refused
        return ", ".join([_SIMPLE, decimals, re.sub(r"decimal\(\d+,\d+\)", "bigint", _NESTED)])
    return ", ".join([_SIMPLE, decimals, _NESTED, _TIMES])


def value(dice: random.Random, kind: HiveType, first_year: int, nulls: float = 0.1) -> Any:
    """Any value of the type, or NULL."""

    def inside(name: str, nulls: float = 0.1) -> Any:
        return value(dice, dict(kind.children)[name], first_year, nulls)

    def days() -> int:
        first = datetime.date(first_year, 1, 1).toordinal()
        return dice.choice([first, datetime.date.max.toordinal(), first + dice.randrange(300_000)])

    def moment() -> datetime.datetime:
        day = datetime.datetime.fromordinal(days())
        return day + datetime.timedelta(microseconds=dice.randrange(86_400_000_000))

    if dice.random() < nulls:
        return None
    match kind.kind:
        case "boolean":
            return dice.random() < 0.5
        case "tinyint" | "smallint" | "int" | "bigint":
            most = 1 << _INTEGERS[kind.kind]
            return dice.choice([-most, most - 1, 0, dice.randrange(-most, most)])
        case "float" | "double":
            number = dice.choice([*_FLOATS, dice.uniform(-1e9, 1e9)])
            return (
                number if kind.kind == "double" else struct.unpack("f", struct.pack("f", number))[0]
            )
        case "decimal":
            digits, places = kind.sizes
            most = 10**digits - 1
            whole = dice.choice([-most, most, 0, dice.randrange(-most, most)])
            return Decimal(whole).scaleb(-places, _MOST_DIGITS)
        case "string":
            return dice.choice(_TEXTS)
        case "varchar" | "char":
            return dice.choice(_TEXTS)[: kind.sizes[0]]
        case "binary":
            return dice.randbytes(dice.randrange(4))
        case "date":
            return datetime.date.fromordinal(days())
        case "timestamp":
            return moment()
        case "array":
            return [inside("element") for _ in range(dice.randrange(4))]
        case "map":
            keys = {inside("key", 0): inside("value") for _ in range(dice.randrange(4))}
            return list(keys.items())
        case "struct":
            return {name: inside(name) for name, _ in kind.children}
    assert kind.kind == LOCAL_ZONE, kind
    return moment()


class History:
    """A table that changes step by step; the same steps for the same seed."""

    def __init__(
        self,
        warehouse: Warehouse,
        name: str,
        seed: int,
        keys: str = "",
        insert_only: bool = False,
        retention: str = "7d",
    ) -> None:
        properties = {"acid.format": "parquet", "acid.history.retention": retention}
        if insert_only:
            properties["transactional_properties"] = "insert_only"
        parts = [part for part in keys.split(", ") if part]
        self.table: Table = warehouse.create_table(
            name, columns_of(seed, insert_only), partitioned_by=parts, properties=properties
        )
        self._warehouse, self._dice, self.insert_only = warehouse, random.Random(seed), insert_only
        self._parts = {
            part.partition(" ")[0]: PARTITION_VALUES[part.partition(" ")[2]] for part in parts
        }
        self._number = self._added = 0

    @property
    def _columns(self) -> list[Column]:
        return [*columns_of_record(self.table.record)[0]]

    def _rows(self, count: int) -> list[dict[str, Any]]:
        made, columns = [], self._columns
        first_year = 1600 if self.insert_only else 1
        for _ in range(count):
            values = {each.name: value(self._dice, each.type, first_year) for each in columns}
            parts = {name: self._dice.choice([*v, None]) for name, v in self._parts.items()}
            made.append({**values, **parts, "id": self._number})
            self._number += 1
        return made

    def step(self) -> str:
        """One change; says which."""
        dice, table = self._dice, self.table
        steps = ["insert", "insert", "overwrite", "compact", "add"]
        if not self.insert_only:
            steps += ["delete", "delete", "update", "update", "merge", "minor", "rename", "drop"]
            steps += ["widen"]
        kind = dice.choice(steps)
        low = dice.randrange(max(self._number, 1))
        columns = [each for each in self._columns if each.name not in ("id", "k")]
        names = [each.name for each in columns]
        match kind:
            case "insert":
                table.insert(self._rows(dice.randrange(1, 40)))
            case "overwrite" if dice.random() < 0.3:
                table.overwrite(self._rows(dice.randrange(0, 10)))
            case "compact" | "minor":
                with suppress(AlreadyScheduled):
                    table.compact(kind="minor" if kind == "minor" else "major")
            case "add":
                self._added += 1
                added = dice.choice(["int", "string", "date", "struct<a:int,l:array<string>>"])
                table.add_columns(f"more_{self._added} {added}")
            case "delete":
                table.delete(f"id between {low} and {low + dice.randrange(20)}")
            case "update":
                table.update({"k": "id + 1"}, where=f"id % {dice.randrange(2, 9)} = 0")
            case "merge":
                rows = self._rows(5)
                old = dice.sample(range(self._number), 3)
                for each, number in zip(rows, old, strict=False):
                    each["id"] = number
                table.merge(rows, "t.id = s.id", {"k": "s.k"}, when_not_matched_insert="*")
            case "rename":
                called = dice.choice(names)
                table.rename_column(called, f"{called}_")
            case "drop" if len(names) > 8:
                table.drop_columns(dice.choice(names))
            case "widen":
                wider = [(each.name, text) for each in columns if (text := _wider(each.type))]
                if not wider:
                    return ""
                called, text = dice.choice(wider)
                table.change_column(called, f"{called} {text}")
            case _:
                return ""
        return kind


def _wider(kind: HiveType) -> str:
    """A type into which readers of Iceberg convert the values; empty: there is none."""
    if kind.kind == "decimal":
        digits, places = kind.sizes
        return f"decimal({digits + 2},{places})" if digits < 37 else ""
    narrow = ("tinyint", "smallint", "int", "float")
    wide = ("smallint", "int", "bigint", "double")
    return dict(zip(narrow, wide, strict=True)).get(kind.kind, "")
