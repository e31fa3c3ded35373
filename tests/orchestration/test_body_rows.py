"""Rows of a body in this process are looked at as Spark looks at them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import NeedsSpark, WrongType
from acid_platform.engine.interface import Result
from acid_platform.layout.types import parse_columns
from acid_platform.orchestration.body_rows import LocalRows, body_rows
from tests.conftest import temporary_warehouse

COLUMNS = parse_columns("i int, s string, f double, d date, n decimal(9,2), p int, c string")


def local(**columns: list[Any]) -> LocalRows:
    kinds = {
        "i": pa.int32(),
        "s": pa.string(),
        "f": pa.float64(),
        "d": pa.date32(),
        "n": pa.decimal128(9, 2),
    }
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return LocalRows(pa.table(arrays), COLUMNS, "db.t")


FEW = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["", "a", "A", "a "]),
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
    st.sampled_from([Decimal("1.00"), Decimal("1.50")]),
)


def as_spark_groups(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("NaN" if value != value else value for value in row)


@pytest.mark.more
@given(st.lists(FEW, max_size=12))
def test_equal_keys_are_those_that_spark_groups(given_rows: list[tuple[Any, ...]]) -> None:
    names = ("i", "s", "f", "d", "n")
    columns = {name: [row[at] for row in given_rows] for at, name in enumerate(names)}
    for key in (names, ("f",), ("s", "i")):
        places = [names.index(name) for name in key]
        groups = [as_spark_groups(tuple(row[at] for at in places)) for row in given_rows]
        rows = local(**columns)
        twice = rows.twice(key)
        assert (twice is None) == (len(set(groups)) == len(groups))
        if twice is not None:
            assert groups.count(as_spark_groups(tuple(twice[name] for name in key))) > 1
        distinct = rows.distinct(key)
        assert isinstance(distinct, pa.Table) and distinct.column_names == list(key)
        found = [as_spark_groups(tuple(row.values())) for row in distinct.to_pylist()]
        assert len(found) == len(set(groups)) and set(found) == set(groups)


def test_a_null_in_a_key_is_told_with_its_row() -> None:
    rows = local(i=[1, 2, None], s=["a", None, "c"])
    assert rows.with_null(["i"]) == {"i": None, "s": "c"}
    assert rows.with_null(["s", "i"]) == {"i": 2, "s": None}
    assert local(i=[1], s=[None]).with_null(["i"]) is None
    assert local(i=[], s=[]).with_null(["i", "s"]) is None


def test_a_run_s_partition_values_become_columns_of_the_table_s_types() -> None:
    rows = local(i=[1, 2]).with_constants({"p": "7", "c": "x y"})
    assert rows.names == ["i", "p", "c"]
    assert rows.rows.schema.field("p").type == pa.int32()
    assert rows.rows.to_pylist() == [{"i": 1, "p": 7, "c": "x y"}, {"i": 2, "p": 7, "c": "x y"}]
    with pytest.raises(WrongType, match="'seven' is no value of the column 'p' int"):
        local(i=[1]).with_constants({"p": "seven"})


def test_P33_a_result_of_a_body_above_the_limit_is_not_held_in_memory(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id bigint")
        table.insert(pa.table({"id": np.arange(300_000)}))
        result = warehouse.sql("SELECT id FROM db.t")
        assert isinstance(result, Result)
        rows = body_rows(warehouse, result, table.columns, "db.t")
        assert isinstance(rows, LocalRows) and rows.rows.num_rows == 300_000
        warehouse.metastore.set("acid.local.max.bytes", "1000000")
        with pytest.raises(NeedsSpark, match="more than 1,000,000 bytes"):
            body_rows(warehouse, result, table.columns, "db.t")
        other = SimpleNamespace(renamed=lambda names: f"of Spark: {names}")
        auto = result.or_else(lambda why: other)  # type: ignore[arg-type, return-value]
        assert auto.held(1_000_000) == "of Spark: ['id']"
