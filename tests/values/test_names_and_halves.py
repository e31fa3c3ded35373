"""Names that no path holds, and text with half of a character, are refused before a write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    NoSuchPartition,
    UnknownColumn,
    Warehouse,
    WrongType,
)
from tests.conftest import a_warehouse, temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "n" * 300
HALF = "a\ud800b"
COLUMNS = "id int, v string, s struct<x:string>, m map<string,int>"
Case = tuple[str, type[Exception] | tuple[type[Exception], ...], Callable[[Warehouse, Path], Any]]


def _rows(form: str, row: dict[str, object]) -> Any:
    """pandas 3 makes no text column of half a character, only one of objects."""
    if form != "pandas":
        return [row]
    of_objects = {name: object for name, value in row.items() if value == HALF}
    return pd.DataFrame(
        {name: pd.Series([value], dtype=of_objects.get(name)) for name, value in row.items()}
    )


def _insert(form: str, **values: object) -> Callable[[Warehouse, Path], Any]:
    return lambda wh, _: wh.table("d.t").insert(_rows(form, {"id": 1, "p": "x", **values}))


def _sql(text: str) -> Callable[[Warehouse, Path], Any]:
    return lambda wh, _: wh.sql(text)


def _names(name: str) -> list[Case]:
    """What makes a name."""
    wrong = (InvalidDefinition, InvalidExpression) if name == HALF else InvalidDefinition
    return [
        ("table", wrong, lambda wh, _: wh.create_table(f"d.{name}", "id int")),
        ("database", wrong, lambda wh, _: wh.create_table(f"{name}.t", "id int")),
        ("column", wrong, lambda wh, _: wh.create_table("d.x", f"`{name}` int")),
        (
            "partition column",
            wrong,
            lambda wh, _: wh.create_table("d.x", "i int", [f"`{name}` int"]),
        ),
        (
            "location",
            wrong,
            lambda wh, at: wh.create_table("d.x", "i int", location=f"{at}/{name}"),
        ),
        ("rename", wrong, lambda wh, _: wh.table("d.t").rename(f"d.{name}")),
        ("add column", wrong, lambda wh, _: wh.table("d.t").add_columns(f"`{name}` int")),
        ("adopt", wrong, lambda wh, at: wh.adopt_table(f"d.{name}", f"{at}/none")),
        ("adopt a place", wrong, lambda wh, at: wh.adopt_table("d.a", f"{at}/{name}")),
        ("CREATE TABLE", wrong, _sql(f"CREATE TABLE d.`{name}` (id int)")),
        ("CREATE DATABASE", wrong, _sql(f"CREATE DATABASE `{name}`")),
        ("RENAME", wrong, _sql(f"ALTER TABLE d.t RENAME TO d.`{name}`")),
        ("partition", (WrongType, NoSuchPartition), _insert("dict", p=name)),
        ("partition of pandas", (WrongType, NoSuchPartition), _insert("pandas", p=name)),
        ("whole", WrongType, lambda wh, _: wh.table("d.t").overwrite([{"id": 1}], {"p": name})),
        ("merged", WrongType, lambda wh, _: _merge(wh, {"id": 1, "p": name})),
    ]


def _merge(warehouse: Warehouse, row: dict[str, object]) -> object:
    return warehouse.table("d.t").merge([row], "t.id = s.id", None, None, "*")


TEXTS: list[Case] = [
    *((f"value of {form}", WrongType, _insert(form, v=HALF)) for form in ("dict", "pandas")),
    *((f"field of {form}", WrongType, _insert(form, s={"x": HALF})) for form in ("dict", "pandas")),
    *((f"key of {form}", WrongType, _insert(form, m=[(HALF, 1)])) for form in ("dict", "pandas")),
    ("column of rows", UnknownColumn, _insert("dict", **{HALF: 1})),
    ("merged value", WrongType, lambda wh, _: _merge(wh, {"id": 1, "v": HALF, "p": "x"})),
    (
        "property",
        InvalidDefinition,
        lambda wh, _: wh.create_table("d.x", "i int", properties={"comment": HALF}),
    ),
    ("count", InvalidExpression, lambda wh, _: wh.table("d.t").count(f"v = '{HALF}'")),
    ("to_arrow", InvalidExpression, lambda wh, _: wh.table("d.t").to_arrow(where=f"v = '{HALF}'")),
    ("delete", InvalidExpression, lambda wh, _: wh.table("d.t").delete(f"v = '{HALF}'")),
    ("update", InvalidExpression, lambda wh, _: wh.table("d.t").update({"v": f"'{HALF}'"})),
    ("lookup", InvalidDefinition, lambda wh, _: wh.table(f"d.{HALF}").count()),
    ("field", InvalidDefinition, lambda wh, _: wh.create_table("d.x", f"s struct<`{HALF}`:int>")),
    ("CREATE VIEW", InvalidExpression, _sql(f"CREATE VIEW d.v AS SELECT '{HALF}' AS a")),
    ("SELECT", InvalidExpression, _sql(f"SELECT '{HALF}'")),
    ("INSERT", InvalidExpression, _sql(f"INSERT INTO d.t (id, v, p) VALUES (1, '{HALF}', 'x')")),
]
LONG_ONLY: list[Case] = [
    ("INSERT", WrongType, _sql(f"INSERT INTO d.t (id, p) VALUES (1, '{LONG}')")),
    ("escaped", WrongType, _insert("dict", p="/" * 100)),
    ("emoji", WrongType, _insert("dict", p="\U0001f600" * 70)),
    ("ADD PARTITION", WrongType, _sql(f"ALTER TABLE d.t ADD PARTITION (p = '{LONG}')")),
    ("CREATE VIEW", InvalidDefinition, _sql(f"CREATE VIEW d.{LONG} AS SELECT 1 AS a")),
]


def _check(warehouse: Warehouse, path: Path, cases: list[Case]) -> None:
    table = warehouse.create_table("d.t", COLUMNS, ["p string"], if_not_exists=True)
    before = sorted(warehouse.tables()), table.count(), table.partitions()
    for what, kinds, act in cases:
        with pytest.raises(kinds):
            act(warehouse, path)
            pytest.fail(what)
    assert (sorted(warehouse.tables()), table.count(), table.partitions()) == before
    # 255 bytes are a name of a directory; nothing of what failed is in the way.
    assert table.insert([{"id": 1, "p": "x" * 253}]) == 1
    table.truncate()


local = a_warehouse("local")


@pytest.mark.parametrize(
    "cases", [_names(LONG) + LONG_ONLY, _names(HALF), TEXTS], ids=["long", "half", "texts"]
)
def test_names_and_texts_are_refused(cases: list[Case], local: Warehouse, tmp_path: Path) -> None:
    _check(local, tmp_path, cases)


@pytest.mark.spark
@pytest.mark.slow
def test_names_and_texts_are_refused_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "wh", spark, "spark") as warehouse:
        _check(warehouse, tmp_path, _names(LONG) + LONG_ONLY + _names(HALF) + TEXTS)
