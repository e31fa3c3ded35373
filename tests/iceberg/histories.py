"""Random histories of tables in Parquet: what readers of Iceberg have to find after each step."""

from __future__ import annotations

import datetime
import random
from contextlib import suppress
from decimal import Decimal
from typing import Any

from acid_platform import Table, Warehouse
from acid_platform.errors import AlreadyScheduled

COLUMNS = (
    "id int, k bigint, tiny tinyint, small smallint, yes boolean, f float, d double,"
    " m decimal(9,2), wide decimal(38,10), s string, v varchar(12), c char(4), b binary,"
    " day date, at timestamp, moment timestamp with local time zone"
)
_TEXTS = ("", "a", "ä ß", "it's", "%2F/=", "zz" * 40)
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (-1, 2, 30),
    "string": ("a b%", "é=/", "x"),
    "date": (datetime.date(1960, 2, 29), datetime.date(2024, 1, 1)),
    "decimal(5,2)": (Decimal("-1.50"), Decimal("2.25")),
}
"""Values of a partition column by its type."""


def row(dice: random.Random, number: int, first_year: int) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "k": dice.randrange(-(2**63), 2**63),
        "tiny": dice.randrange(-128, 128),
        "small": dice.randrange(-(2**15), 2**15),
        "yes": dice.random() < 0.5,
        "f": dice.choice([0.0, -1.5, 3.25, float("inf")]),
        "d": dice.uniform(-1e9, 1e9),
        "m": Decimal(dice.randrange(-(10**9) + 1, 10**9)) / 100,
        "wide": Decimal(dice.randrange(-(10**20), 10**20)) / 10**10,
        "s": dice.choice(_TEXTS),
        "v": dice.choice(_TEXTS)[:12],
        "c": dice.choice(_TEXTS)[:4],
        "b": dice.randbytes(dice.randrange(4)),
        "day": datetime.date(first_year, 1, 1) + datetime.timedelta(days=dice.randrange(300_000)),
        "at": datetime.datetime(1890, 1, 1) + datetime.timedelta(seconds=dice.random() * 6e9),
        "moment": datetime.datetime(1890, 1, 1) + datetime.timedelta(seconds=dice.random() * 6e9),
    }
    return {"id": number, **{n: None if dice.random() < 0.1 else v for n, v in whole.items()}}


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
        columns = COLUMNS.partition(", at ")[0] if insert_only else COLUMNS
        self.table: Table = warehouse.create_table(
            name, columns, partitioned_by=[keys] if keys else (), properties=properties
        )
        self._warehouse, self._dice, self.insert_only = warehouse, random.Random(seed), insert_only
        self._partition, _, kind = keys.partition(" ")
        self._values = VALUES.get(kind, ())
        self._number = self._added = 0

    def _rows(self, count: int) -> list[dict[str, Any]]:
        made = []
        names = [name for name, _ in self.table.record.columns]
        for _ in range(count):
            whole = row(self._dice, self._number, 1600 if self.insert_only else 1400)
            self._number += 1
            values = {name: whole.get(name) for name in names}
            if self._partition:
                values[self._partition] = self._dice.choice([*self._values, None])
            made.append(values)
        return made

    def step(self) -> str:
        """One change; says which."""
        dice, table = self._dice, self.table
        steps = ["insert", "insert", "overwrite", "compact", "add"]
        if not self.insert_only:
            steps += ["delete", "delete", "update", "update", "merge", "minor", "rename", "drop"]
        kind = dice.choice(steps)
        low = dice.randrange(max(self._number, 1))
        names = [n for n, _ in table.record.columns if n not in ("id", "k")]
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
                table.add_columns(f"more_{self._added} {dice.choice(['int', 'string', 'date'])}")
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
            case "drop" if len(names) > 4:
                table.drop_columns(dice.choice(names))
            case _:
                return ""
        return kind
