"""P33: Spark, Arrow and Hive's own readers return what either engine wrote into insert-only tables,
before and after a compaction by either engine."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import Table, Warehouse
from acid_platform.layout.types import parse_type
from acid_platform.values.arrow_types import arrow_type
from tests.conftest import temporary_warehouse
from tests.hive import hive_plain_rows

pytestmark = pytest.mark.spark

VALUES: dict[str, tuple[str, list[Any]]] = {
    "t": ("tinyint", [-128, 127]),
    "h": ("smallint", [-32768, 7]),
    "i": ("int", [-(2**31), 2**31 - 1]),
    "l": ("bigint", [-(2**63), 2**53 + 1]),
    "f": ("float", [1.5, float("inf")]),
    "x": ("double", [-0.0, 1e300]),
    "z": ("boolean", [True, False]),
    "d": ("decimal(7,2)", [Decimal("1.50"), Decimal("-99999.99")]),
    "k": ("decimal(18,3)", [Decimal("0.001"), Decimal("-999999999999999.999")]),
    "w": ("decimal(38,10)", [Decimal("0"), Decimal("-1234567890123456789012345678.0123456789")]),
    "s": ("string", ["", "é x"]),
    "c": ("char(4)", ["ab", "abcd"]),
    "v": ("varchar(4)", ["", "é b "]),
    "b": ("binary", [b"", b"\x00\xff"]),
    "e": ("date", [datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)]),
    "a": ("array<int>", [[], [1, None]]),
    "m": ("map<string,int>", [[], [("k", 1), ("l", None)]]),
    "r": ("struct<p:int,q:array<string>>", [{"p": 1, "q": None}, {"p": None, "q": ["", None]}]),
}
MOMENTS = [datetime.datetime(1969, 12, 31, 23, 59, 58, 123456), datetime.datetime(2024, 2, 29, 12)]
HIVE_SHOWS = [
    "{-128, -32768, -2147483648, -9223372036854775808, 1.5, -0.0, true, 1.5, 0.001, 0, , ab  , , ,"
    " 1969-12-31, [], {}, {1, null}, 1969-12-31 23:59:58.123456}",
    "{127, 7, 2147483647, 9007199254740993, Infinity, 1.0E300, false, -99999.99,"
    " -999999999999999.999, -1234567890123456789012345678.0123456789, é x, abcd, é b , 00 ff,"
    " 9999-12-31, [1, null], {k=1, l=null}, {null, [, null]}, 2024-02-29 12:00:00}",
    "{" + ", ".join(["null"] * 19) + "}",
]
HIVE_SHOWS_PARQUET = [
    ["-128", "-32768", "-2147483648", "-9223372036854775808", "1.5", "-0.0", "true", "0", "",
     "ab  ", "", "", "1969-12-31", [], [], ["1", None]],
    ["127", "7", "2147483647", "9007199254740993", "Infinity", "1.0E300", "false",
     "-1234567890123456789012345678.0123456789", "é x", "abcd", "é b ", "00 ff", "9999-12-31",
     ["1", None], [["k", "1"], ["l", None]], [None, ["", None]]],
    [None] * 16,
]  # fmt: skip
"""Without small decimals: Hive 2.3 can't read the whole numbers that Spark and Hive 4 write."""


@pytest.fixture(params=["spark", "local"])
def warehouse(
    tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", spark, request.param) as opened:
        yield opened


def given(stored: str) -> tuple[str, pa.Table]:
    """Declarations of the columns, and three rows; the last has only NULLs."""
    kinds = dict(VALUES)
    if stored == "orc":
        kinds["u"] = ("timestamp", MOMENTS)
    else:
        del kinds["d"], kinds["k"]
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items())
    arrays = {
        name: pa.array([*values, None], arrow_type(parse_type(kind)))
        for name, (kind, values) in kinds.items()
    }
    return declared, pa.table(arrays)


def files(table: Table) -> list[str]:
    """The paths of the files that the present snapshot reads."""
    seen = table.snapshot().directories[""]
    sources = [seen.base] if seen.base else []
    return [
        f"{seen.location}/{file.path}"
        for source in (*sources, *seen.deltas)
        for file in source.files
    ]


@pytest.mark.slow
@pytest.mark.parametrize("compactor", ["spark", "local"])
@pytest.mark.parametrize("stored", ["orc", "parquet"])
def test_P33_every_reader_reads_insert_only_files_of_both_engines(
    warehouse: Warehouse, spark: SparkSession, stored: str, compactor: str
) -> None:
    declared, rows = given(stored)
    properties = {"transactional_properties": "insert_only", "acid.format": stored}
    table = warehouse.create_table("db.t", declared, properties=properties)
    columns = list(table.record.columns)
    expected = rows.to_pylist()
    expected[0]["c"] = "ab  "
    hive_shows = HIVE_SHOWS if stored == "orc" else HIVE_SHOWS_PARQUET

    def check() -> None:
        """In any order: Spark compacts the larger file first."""
        ours = table.to_arrow()
        assert sorted(map(str, ours.to_pylist())) == sorted(map(str, expected))
        spark_rows = table.read().toArrow().cast(ours.schema)
        assert sorted(map(str, spark_rows.to_pylist())) == sorted(map(str, expected))
        hive = hive_plain_rows(spark, files(table), columns, stored)
        assert sorted(map(str, hive)) == sorted(map(str, hive_shows))

    table.insert(rows.slice(0, 1))
    table.insert(rows.slice(1))
    check()
    with warehouse.engines.using(compactor):
        table.compact("major")
    [file] = files(table)
    assert "/base_" in file and file.endswith("/000000_0")
    check()
