"""Text that is not UTF-8, as in files that Hive wrote from Latin-1: named or kept, and it breaks
nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from pyspark.sql import SparkSession

from acid_platform import InvalidExpression, NeedsSpark, Table, UnsupportedLayout, Warehouse
from acid_platform.engine.local.computation import compute, reading
from tests.conftest import temporary_warehouse

LATIN = [b"ok", b"caf\xe9", b"\xff\xfe"]
ROWS = pa.table({"id": pa.array([0, 1, 2], pa.int32()), "s": pa.array(LATIN).view(pa.string())})


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as opened:
        yield opened


@pytest.fixture
def table(warehouse: Warehouse, tmp_path: Path) -> Table:
    (tmp_path / "latin").mkdir()
    orc.write_table(ROWS, tmp_path / "latin" / "000000_0")
    return warehouse.adopt_table("db.latin", tmp_path / "latin")


READS: dict[str, Callable[[Warehouse, Table], object]] = {
    "to_arrow": lambda _, table: table.to_arrow(),
    "count": lambda _, table: table.count("s = 'ok'"),
    **{
        text: lambda warehouse, _, text=text: warehouse.sql(text).to_arrow()  # type: ignore[misc, union-attr]
        for text in (
            "SELECT * FROM db.latin",
            "SELECT upper(s) FROM db.latin",
            "SELECT id FROM db.latin WHERE s LIKE 'caf_'",
            "SELECT s, count(*) FROM db.latin GROUP BY s",
        )
    },
    "update": lambda _, table: table.update({"s": "concat(s, 'x')"}, "id = 1"),
    "copy": lambda _, table: table.update({"id": "id + 10"}, "id = 1"),
}


@pytest.mark.more
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_it_is_named_and_other_columns_are_read(
    warehouse: Warehouse, table: Table, read: Callable[[Warehouse, Table], object]
) -> None:
    for compacted in (False, True):
        if compacted:
            table.compact("major")  # keeps the bytes, and says so
        with pytest.raises(NeedsSpark, match="not UTF-8 in the column s; decode"):
            read(warehouse, table)
        assert table.count("id > 0") == 2


def test_files_of_parquet_too(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "latin").mkdir()
    parquet.write_table(ROWS, tmp_path / "latin" / "a")
    warehouse.sql(
        f"CREATE EXTERNAL TABLE p (id int, s string) STORED AS PARQUET LOCATION '{tmp_path}/latin'"
    )
    with pytest.raises(UnsupportedLayout, match="not UTF-8 in the column s; declare it binary"):
        warehouse.sql("SELECT s FROM p").to_arrow()  # type: ignore[union-attr]
    assert warehouse.sql("SELECT id FROM p").to_arrow().num_rows == 3  # type: ignore[union-attr]


def computed() -> None:
    compute("SELECT upper(s) FROM latin", {"latin": ROWS})


def queried() -> None:
    with reading({}) as connection:
        connection.register("latin", ROWS)
        connection.execute("SELECT upper(s) FROM latin").fetchall()


@pytest.mark.parametrize("query", [computed, queried])
def test_an_error_inside_of_duckdb_ends_one_query_alone(query: Callable[[], None]) -> None:
    for _ in range(2):
        with pytest.raises(NeedsSpark, match="DuckDB failed"):
            query()
        assert compute("SELECT 1 AS one", {}).to_pylist() == [{"one": 1}]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_names_it_and_decodes_it(
    warehouse: Warehouse, table: Table, spark: SparkSession, tmp_path: Path
) -> None:
    with Warehouse.open(warehouse.path, spark, engine="spark") as opened:
        for _ in range(2):
            with pytest.raises(InvalidExpression, match="the column s has text that is not UTF-8"):
                opened.sql("SELECT s FROM db.latin").to_arrow()  # type: ignore[union-attr]
            text = "SELECT decode(CAST(s AS binary), 'ISO-8859-1') FROM db.latin WHERE id < 2"
            rows = opened.sql(text).to_arrow().column(0).to_pylist()  # type: ignore[union-attr]
            assert sorted(rows) == ["café", "ok"]
            opened.table("db.latin").update({"id": "id + 0"}, "id = 1")  # copies the bytes
        with pytest.raises(NeedsSpark, match="not UTF-8"):
            table.to_arrow()
