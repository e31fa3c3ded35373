"""Days and times up to the ends of their types come back as they were, or are refused by name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import InvalidDefinition, NeedsSpark, Warehouse, WrongType
from acid_platform.layout.types import parse_columns
from acid_platform.tables.declaration import check_columns
from tests.conftest import IN_ORC, temporary_warehouse

ENGINES = pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=pytest.mark.spark)]
)
DAYS = [
    -(1 << 31), 1 - (1 << 31), -2_147_400_000, -2_146_000_000, -719_893, -719_529, -719_162,
    -141_438, -141_427, 0, 2_932_896, 2_932_897, (1 << 31) - 2, (1 << 31) - 1,
]  # fmt: skip
MOMENTS = [
    -(1 << 63), 1 - (1 << 63), -9_223_183_684_854_775_809, -9_151_000_000_000_000_000,
    -62_135_596_800_000_000, -12_220_156_800_000_001, -12_219_292_800_000_000, 0,
    253_402_300_800_000_000, 9_223_371_331_200_000_000, (1 << 63) - 2, (1 << 63) - 1,
]  # fmt: skip


def some(kind: str) -> list[int]:
    chosen = random.Random(kind)
    if kind == "date":
        return [*DAYS, *(chosen.randint(-(1 << 31), (1 << 31) - 1) for _ in range(60))]
    low, high = -(1 << 63), (1 << 63) - 1
    near = [chosen.randint(-62_000_000_000_000_000, 62_000_000_000_000_000) for _ in range(30)]
    return [*MOMENTS, *near, *(chosen.randint(low, high) for _ in range(60))]


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, engine: str, tmp_path: Any) -> Iterator[Warehouse]:
    spark: SparkSession | None = request.getfixturevalue("spark") if engine == "spark" else None
    with temporary_warehouse(tmp_path, spark, engine) as opened:
        yield opened


@ENGINES
@pytest.mark.parametrize(
    "properties",
    [IN_ORC, pytest.param({"transactional_properties": "insert_only"}, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_what_is_stored_comes_back_and_the_rest_is_refused(
    warehouse: Warehouse, kind: str, properties: dict[str, str], engine: str
) -> None:
    table = warehouse.create_table("db.t", f"id int, v {kind}", properties=properties)
    whole = pa.int32() if kind == "date" else pa.int64()
    arrow = pa.date32() if kind == "date" else pa.timestamp("us")

    def insert(values: dict[int, int]) -> bool:
        rows = {
            "id": pa.array(list(values), pa.int32()),
            "v": pa.array(list(values.values()), whole).cast(arrow),
        }
        try:
            table.insert(pa.table(rows))
        except (WrongType, NeedsSpark) as error:
            assert "column v" in str(error) or "v date" in str(error) or "v timestamp" in str(error)
            return False
        return True

    chosen = dict(enumerate(some(kind)))
    lowest = -2_147_320_000 if kind == "date" else -9_210_000_000_000_000_000
    assert not insert({0: chosen[0]}), "the lowest value can't be numbered in the Julian calendar"
    early = {place: value for place, value in chosen.items() if value < lowest}
    stored = {place: value for place, value in chosen.items() if value >= lowest}
    if engine == "local":  # earlier days are Spark's
        first = -141_427 if kind == "date" else -141_427 * 86_400_000_000
        stored = {place: value for place, value in stored.items() if value >= first}
    assert insert(stored)
    for place, value in list(early.items())[1:3]:
        if insert({place: value}):
            stored[place] = value
    shown = table.to_arrow().sort_by("id")
    assert dict(
        zip(shown["id"].to_pylist(), shown["v"].cast(whole).to_pylist(), strict=True)
    ) == dict(sorted(stored.items()))
    asked = warehouse.sql("SELECT id, v FROM db.t", engine=engine).to_arrow().sort_by("id")
    values = asked["v"].cast(pa.timestamp("us")).cast(pa.int64()) if kind != "date" else asked["v"]
    assert values.cast(whole).to_pylist() == list(dict(sorted(stored.items())).values())


@ENGINES
def test_names_of_one_or_two_cases_are_columns(warehouse: Warehouse, engine: str) -> None:
    names = ["ß", "\u017f", "\u0131", "K", "ς", "Ω", "ǅ", "é", "ÿ", "ﬁ", "名", "Ⅷ"]
    columns = ", ".join(f"`{name}` int" for name in names)
    table = warehouse.create_table("db.t", columns)
    table.insert([{name: place for place, name in enumerate(names)}])
    for place, name in enumerate(names):
        for spelled in {name, name.lower()}:
            found = warehouse.sql(f"SELECT `{spelled}` FROM db.t WHERE `{spelled}` = {place}")
            assert [tuple(row) for row in found.collect()] == [(place,)], spelled
    with pytest.raises(InvalidDefinition, match="name"):
        table.add_columns("`s` int")


def test_a_type_of_sixty_levels_is_declared_at_once() -> None:
    """A check that walked each level twice never ended."""
    deep = "int"
    for level in range(60):
        deep = f"struct<f{level}:{deep}>"
    check_columns("db.t", parse_columns(f"s {deep}"))
