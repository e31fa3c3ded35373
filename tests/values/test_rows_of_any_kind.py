"""Random frames, written as each kind of rows by each verb: stored as they are, or refused with the
name of the column that does not fit.

What is stored comes from the model of `generated_rows`, not from the code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import NeedsSpark, UnknownColumn, Warehouse, WrongType
from acid_platform.layout.types import Column, HiveType
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.local_rows import local_table
from tests.conftest import slow_then_soak, temporary_warehouse
from tests.values.generated_rows import REFUSED, Maker, comparable, random_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform import Table


@dataclass(frozen=True)
class Lent:
    """Rows of another library, which only lends Arrow's data, as a frame of Polars does."""

    rows: pa.Table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Frame:
    """Some rows, by column as (value, what is stored of it), in the order of the columns."""

    columns: tuple[Column, ...]
    """Those of the table, the first is `id`."""
    values: Mapping[str, list[tuple[object, object]]]
    """By the name of the column as the rows spell it; the rows may lack a column of the table."""
    count: int

    def refused(self, name: str) -> bool:
        return any(expected is REFUSED for _, expected in self.values[name])

    @property
    def faulty(self) -> list[str]:
        """The columns of the table with a value that is refused."""
        return [name.lower() for name in self.values if self.refused(name)]

    def stored(self, pandas: bool) -> list[dict[str, object]]:
        """The rows of the table; NaN at the top of a column of pandas means NULL."""
        rows: list[dict[str, object]] = [
            {column.name: None for column in self.columns} for _ in range(self.count)
        ]
        for name, pairs in self.values.items():
            for row, (_, expected) in zip(rows, pairs, strict=True):
                nothing = pandas and isinstance(expected, float) and expected != expected
                row[name.lower()] = None if nothing else expected
        return rows

    def dicts(self) -> list[dict[str, object]]:
        return [
            {name: pairs[row][0] for name, pairs in self.values.items()}
            for row in range(self.count)
        ]

    def pandas(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                name: pd.Series([value for value, _ in pairs], dtype=object)
                for name, pairs in self.values.items()
            }
        )

    def indexed(self) -> pd.DataFrame:
        return self.pandas().set_index(next(name for name in self.values if name.lower() == "id"))

    def arrow(self, chosen: random.Random, of_spark: bool = False) -> pa.Table:
        """The rows as other types of Arrow; those of a faulty column have an unknown field."""
        fitting = [
            {name: pairs[row][0] for name, pairs in self.values.items() if not self.refused(name)}
            for row in range(self.count)
        ]
        plain = local_table(fitting, self.columns, "db.t")
        arrays: dict[str, pa.Array] = {}
        for name in self.values:
            if self.refused(name):
                field = pa.array([{"nosuch": 1}] * self.count, pa.struct([("nosuch", pa.int32())]))
                arrays[name] = field
            else:
                arrays[name] = _respelled(
                    plain.column(name.lower()).combine_chunks(), chosen, of_spark
                )
        return pa.table(arrays)


def _respelled(array: pa.Array, chosen: random.Random, of_spark: bool) -> pa.Array:
    """The values with fields in another order and letter case, in types that hold the same."""
    kind, nulls = array.type, array.is_null()
    if pa.types.is_struct(kind):
        order = list(range(kind.num_fields))
        chosen.shuffle(order)
        names = [_spelled(kind.field(place).name, chosen) for place in order]
        parts = [_respelled(array.field(place), chosen, of_spark) for place in order]
        return pa.StructArray.from_arrays(parts, names, mask=nulls)
    if pa.types.is_map(kind):
        keys, items = (_respelled(part, chosen, of_spark) for part in (array.keys, array.items))
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=nulls)
    if pa.types.is_list(kind):
        values = _respelled(array.values, chosen, of_spark)
        if of_spark or chosen.random() < 0.5:
            return pa.ListArray.from_arrays(array.offsets, values, mask=nulls)
        offsets = array.offsets.cast(pa.int64())
        return pa.LargeListArray.from_arrays(offsets, values, mask=nulls)
    others = [] if of_spark else OTHER_TYPES.get(str(kind), [])
    return array.cast(chosen.choice([kind, *others]))


OTHER_TYPES: dict[str, list[pa.DataType]] = {
    "int8": [pa.int64()],
    "int32": [pa.int64(), pa.decimal128(12, 1)],
    "string": [pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "binary": [pa.large_binary()],
    "decimal128(5, 2)": [pa.decimal128(20, 4), pa.string()],
    "date32[day]": [pa.date64(), pa.timestamp("s"), pa.string()],
    "timestamp[us]": [pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.string()],
}


def _spelled(name: str, chosen: random.Random) -> str:
    return chosen.choice((name, name.upper(), name.title()))


def frames(seed: int, count: int) -> Iterator[tuple[int, Frame]]:
    """The frames, with the number of the table into which each fits."""
    chosen = random.Random(seed)
    columns: tuple[Column, ...] = ()
    for number in range(count):
        if number % 4 == 0:
            kinds = [random_type(chosen, depth=2) for _ in range(chosen.randint(1, 3))]
            named = (Column(f"c{place}_x", kind) for place, kind in enumerate(kinds))
            columns = (Column("id", HiveType("int")), *named)
        maker = Maker(chosen, 90 if number % 2 else 0)
        size = chosen.randint(1, 4)
        values: dict[str, list[tuple[object, object]]] = {}
        for column in chosen.sample(columns, len(columns)):
            if column.name == "id":
                values[_spelled("id", chosen)] = [(row, row) for row in range(size)]
            elif chosen.random() < 0.9:
                pairs = [maker.value(column.type) for _ in range(size)]
                values[_spelled(column.name, chosen)] = pairs
        yield number // 4, Frame(columns, values, size)


Write = Callable[["Table", Any, Frame], object]


def _overwrite(table: Table, rows: Any, _: Frame) -> object:
    return table.overwrite(rows)


def _insert(table: Table, rows: Any, _: Frame) -> object:
    table.truncate()
    return table.insert(rows)


def _merge_new(table: Table, rows: Any, _: Frame) -> object:
    table.truncate()
    return table.merge(rows, "t.id = s.id", when_not_matched_insert="*")


def _merge_known(table: Table, rows: Any, frame: Frame) -> object:
    table.overwrite([{"id": row} for row in range(frame.count)])
    own = [name.lower() for name in frame.values if name.lower() != "id"]
    changed = {name: f"s.{name}" for name in own} or {"id": "s.id"}
    return table.merge(rows, "t.id = s.id", when_matched_update=changed)


VERBS: dict[str, Write] = {
    "overwrite": _overwrite,
    "insert": _insert,
    "merge new rows": _merge_new,
    "merge known rows": _merge_known,
}
KINDS = ("dicts", "pandas", "index of pandas", "arrow", "lent arrow")


def _rows(kind: str, frame: Frame, chosen: random.Random, spark: SparkSession | None) -> Any:
    match kind:
        case "dicts":
            return frame.dicts()
        case "pandas":
            return frame.pandas()
        case "index of pandas":
            return frame.indexed()
        case "arrow":
            return frame.arrow(chosen)
        case "lent arrow":
            return Lent(frame.arrow(chosen))
    assert spark is not None
    return spark.createDataFrame(frame.arrow(chosen, of_spark=True))


def _check(
    warehouses: Mapping[str, Warehouse], seed: int, count: int, spark: SparkSession | None
) -> None:
    chosen = random.Random(seed)
    tables: dict[tuple[int, str], Table] = {}
    outcomes = {"stored": 0, "refused": 0}
    kinds = (*KINDS, "spark") if spark else KINDS
    for number, frame in frames(seed, count):
        outcomes["refused" if frame.faulty else "stored"] += 1
        for kind in kinds:
            verb = chosen.choice(list(VERBS))
            rows = _rows(kind, frame, chosen, spark)
            for engine, warehouse in warehouses.items():
                if (number, engine) not in tables:
                    text = ", ".join(f"{column.name} {column.type}" for column in frame.columns)
                    tables[number, engine] = warehouse.create_table(f"f{seed}.t{number}", text)
                if kind == "spark" and engine == "local":
                    continue
                where = (seed, number, kind, verb, engine, frame)
                _check_one(tables[number, engine], kind, verb, rows, frame, where)
    assert min(outcomes.values()) > count // 10, outcomes


def _check_one(table: Table, kind: str, verb: str, rows: Any, frame: Frame, where: object) -> None:
    try:
        VERBS[verb](table, rows, frame)
    except NeedsSpark:
        inside = {part.kind for column in frame.columns for part in column.type.walk()}
        in_a_map = "map" in inside and inside & {"char", "varchar", "timestamp"}
        assert in_a_map or verb.startswith("merge"), where
        return
    except (WrongType, UnknownColumn) as error:
        assert frame.faulty, (str(error), where)
        assert any(name in str(error) for name in frame.faulty), (str(error), where)
        return
    assert not frame.faulty, where
    made = table.to_arrow().sort_by("id")
    stored = frame.stored(pandas="pandas" in kind)
    for column in frame.columns:
        assert made.schema.field(column.name).type == arrow_type(column.type)
        right = [row[column.name] for row in stored]
        assert comparable(made.column(column.name).to_pylist()) == comparable(right), where


@pytest.mark.more
def test_twelve_frames_are_stored_as_they_are_or_refused(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as local:
        _check({"local": local}, 11, 12, None)


@pytest.mark.more
@pytest.mark.spark
def test_a_few_frames_are_stored_alike_by_both_engines(tmp_path: Path, spark: SparkSession) -> None:
    with (
        temporary_warehouse(tmp_path / "local", engine="local") as local,
        temporary_warehouse(tmp_path / "spark", spark, "spark") as with_spark,
    ):
        _check({"local": local, "spark": with_spark}, 12, 4, spark)


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", slow_then_soak(range(20, 30), 1))
def test_500_frames_are_stored_alike_by_both_engines(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    with (
        temporary_warehouse(tmp_path / "local", engine="local") as local,
        temporary_warehouse(tmp_path / "spark", spark, "spark") as with_spark,
    ):
        _check({"local": local, "spark": with_spark}, seed, 50, spark)
