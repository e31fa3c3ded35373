"""A lazy frame of Polars reads what a whole read has, whatever a query asks of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from acid_platform import AcidError, SnapshotExpired, Table, Warehouse
from acid_platform.handles import lazy_frames
from acid_platform.scan.scans import Scan
from acid_platform.services import cleaner
from tests.conftest import a_warehouse

pytestmark = pytest.mark.more
warehouse = a_warehouse("local")

TYPES = (
    "id int, tiny tinyint, k bigint, yes boolean, f float, d double, m decimal(9,2), s string,"
    " c char(4), v varchar(9), day date, at timestamp, moment timestamp with local time zone,"
    " l array<int>"
)
KEYS = {"": [], "int": ["p int"], "string": ["p string"], "date": ["p date"]}
TEXTS = ("", "a", "a ", "ä", "it's", "b\\", "%", "zz" * 300)
DAYS = [date(1601, 1, 1), date(1970, 1, 1), date(2024, 2, 29)]


def row(dice: random.Random, number: int) -> dict[str, Any]:
    whole = {
        "tiny": dice.randrange(-3, 3),
        "k": dice.choice([-(2**63), 2**63 - 1, number]),
        "yes": dice.random() < 0.5,
        "f": dice.choice([0.1, -0.0, float("nan")]),
        "d": dice.choice([0.0, -0.0, 1e300, float("nan"), float("inf"), 0.1]),
        "m": Decimal(dice.randrange(-300, 300)) / 100,
        "s": dice.choice(TEXTS),
        "c": dice.choice(TEXTS)[:4],
        "v": dice.choice(TEXTS)[:9],
        "day": dice.choice(DAYS) + timedelta(days=dice.randrange(3)),
        "at": datetime(1900, 1, 1) + timedelta(seconds=dice.randrange(4) * 1e9, microseconds=7),
        "moment": datetime(2000, 1, 1) + timedelta(days=dice.randrange(3)),
        "l": [number, None],
    }
    return {"id": number, **{n: None if dice.random() < 0.2 else v for n, v in whole.items()}}


def filled(warehouse: Warehouse, name: str, file_format: str, kind: str, seed: int) -> Table:
    dice = random.Random(seed)
    table = warehouse.create_table(
        name, TYPES, partitioned_by=KEYS[kind], properties={"acid.format": file_format}
    )
    values = {"": [None], "int": [1, 2, None], "string": ["a b", "é%", None], "date": [*DAYS, None]}
    for start in range(0, 120, 40):
        rows = [row(dice, number) for number in range(start, start + 40)]
        table.insert(
            [{**each, **({"p": dice.choice(values[kind])} if kind else {})} for each in rows]
        )
    table.delete("id % 7 = 3")
    table.update({"m": "m + 1"}, where="id % 11 = 1")
    return table


def condition(dice: random.Random, rows: pl.DataFrame, depth: int = 0) -> pl.Expr:
    """A condition as people write it, with values of the rows and others."""
    shape = dice.random()
    if depth < 3 and shape < 0.4:
        first, second = (condition(dice, rows, depth + 1) for _ in "12")
        return dice.choice([first & second, first | second, ~first, first.xor(second)])
    name = dice.choice([each for each in rows.columns if each != "l"])
    column, values = pl.col(name), rows[name].drop_nulls()
    typed = [pl.lit(values[dice.randrange(len(values))], rows.schema[name]) for _ in "12"]
    if rows.schema[name].is_numeric():
        value: Any = dice.choice([*typed, pl.lit(3), 0.5, Decimal("0.505"), 300, None])
    else:
        value = dice.choice(typed)
    compared: list[Callable[[], pl.Expr]] = [
        lambda: column == value,
        lambda: column != value,
        lambda: column < value,
        lambda: column >= value,
        lambda: value > column,
        lambda: column.is_null(),
        lambda: column.is_not_null(),
        lambda: column.eq_missing(value),
        lambda: column.is_between(*typed, closed=dice.choice(["both", "left", "right", "none"])),
        lambda: column.is_in(values.sample(2, seed=1, with_replacement=True).to_list()),
        lambda: column.is_in([None, values[0]], nulls_equal=True),
    ]
    made = dice.choice(compared)()
    return made if isinstance(made, pl.Expr) else pl.lit(made)


@pytest.mark.filterwarnings("ignore:Comparisons with None")
@pytest.mark.parametrize("file_format", ["orc", "parquet"])
@pytest.mark.parametrize("kind", ["", "int", "string", "date"])
def test_random_queries_of_a_lazy_frame_have_the_rows_of_a_whole_read(
    warehouse: Warehouse, file_format: str, kind: str
) -> None:
    table = filled(warehouse, f"lazy.{file_format}_{kind or 'none'}", file_format, kind, 7)
    dice, whole, lazy, told = random.Random(11), table.to_polars(), table.lazy(), 0

    def as_sql(*given: Any) -> str:
        nonlocal told
        text = AS_SQL(*given)
        told += bool(text)
        return text

    with patch.object(lazy_frames, "as_sql", as_sql):
        for number in range(80):
            where, first = condition(dice, whole), dice.randrange(1, 60)
            names = dice.sample(whole.columns, dice.randrange(1, 5))
            query = dice.choice(QUERIES)
            engine = "streaming" if number % 5 == 4 else "in-memory"
            found = query(lazy, where, names, first).collect(engine=engine)
            assert_frame_equal(found, query(whole, where, names, first), check_exact=True)
    assert told > 10


QUERIES: list[Callable[[Any, pl.Expr, list[str], int], Any]] = [
    lambda frame, where, _, __: frame.filter(where),
    lambda frame, where, names, _: frame.filter(where).select(names),
    lambda frame, where, names, first: frame.head(first).filter(where).select(names),
    lambda frame, where, _, first: frame.filter(where).head(first),
    lambda frame, where, _, __: frame.filter(where).select(pl.len()),
    lambda frame, where, names, __: frame.select(names).slice(3, 20),
]
AS_SQL = lazy_frames.as_sql


def files_read(frame: pl.LazyFrame) -> int:
    """How many files a query opens."""
    opened: list[Scan] = []
    with patch("acid_platform.scan.scans.tell_to_read", opened.append):
        frame.collect()
    return sum(len(entity.sources.inserts) for scan in opened for entity in scan.entities)


@pytest.mark.parametrize("file_format", ["orc", "parquet"])
def test_conditions_leave_out_files_and_partitions(warehouse: Warehouse, file_format: str) -> None:
    table = warehouse.create_table(
        f"lazy.files_{file_format}",
        "id int, s string",
        ["day date"],
        properties={"acid.format": file_format},
    )
    for number in range(4):
        day = date(2024, 1, 1 + number % 2)
        table.insert([{"id": number, "s": f"{number}", "day": day}])
    lazy, column = table.lazy(), pl.col

    assert files_read(lazy) == 4
    assert files_read(lazy.filter(column("day") == date(2024, 1, 1))) == 2
    assert files_read(lazy.filter((column("id") > 2) & (column("s").str.len_chars() < 9))) == 1
    assert files_read(lazy.filter(column("id").is_in([0, 3])).select(pl.len())) == 2
    assert files_read(lazy.filter(column("s").is_between(pl.lit("1"), pl.lit("2")))) == 2
    assert files_read(lazy.filter(column("id").is_null() | (column("s") == "2"))) == 1
    assert files_read(lazy.filter(column("id") * 2 > 5)) == 4  # nothing known
    assert (
        files_read(lazy.sql("SELECT id FROM self WHERE day > DATE '2024-01-01' AND s = '1'")) == 1
    )


def test_a_lazy_frame_keeps_its_snapshot_until_the_lease_ends(warehouse: Warehouse) -> None:
    table = warehouse.create_table("lazy.kept", "id int")
    table.insert([{"id": 1}])
    lazy = table.lazy(["id"], "id < 5")
    table.insert([{"id": 2}])
    table.overwrite([{"id": 3}])
    cleaner.run(warehouse.metastore)

    assert lazy.collect().to_dicts() == lazy.collect().to_dicts() == [{"id": 1}]
    assert table.lazy(as_of=2).sort("id").collect()["id"].to_list() == [1, 2]
    warehouse.release()
    with pytest.raises(SnapshotExpired):
        lazy.collect()
    with warehouse.transaction() as txn:
        txn.table("lazy.kept").insert([{"id": 4}])
        within = txn.table("lazy.kept").lazy()
        assert within.select(pl.col("id").sum()).collect().item() == 7
    with pytest.raises(AcidError):
        within.collect()
