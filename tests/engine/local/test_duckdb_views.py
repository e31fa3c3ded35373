"""`Warehouse.duckdb()`: every table as a view at one leased snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from acid_platform.scan.scans import ArrowScan
from acid_platform.services import cleaner
from tests.conftest import IN_ORC, temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(*ids: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"id": list(ids), "v": [f"v{i}" for i in ids], "month": [i % 2 for i in ids]}
    )


@pytest.mark.spark
def test_P12_views_show_one_snapshot_as_long_as_its_lease(
    tmp_path: Path, spark: SparkSession
) -> None:
    with temporary_warehouse(tmp_path, spark) as warehouse:
        table = warehouse.create_table("a.t", "id int, v string", partitioned_by=["month int"])
        warehouse.create_table("b.empty", "d decimal(5,2), c char(3), ts timestamp")
        table.insert(rows(1, 2, 3))
        table.delete("id = 2")
        connection = warehouse.duckdb()
        try:
            everything = "SELECT id, v, month FROM a.t ORDER BY id"
            wanted = [(1, "v1", 1), (3, "v3", 1)]
            assert connection.sql(everything).fetchall() == wanted
            assert connection.sql("SELECT count(*) FROM b.empty").fetchall() == [(0,)]
            assert [str(kind) for kind in connection.sql("FROM b.empty").types] == [
                "DECIMAL(5,2)",
                "VARCHAR",
                "TIMESTAMP",
            ]
            table.insert(rows(9, 10))
            warehouse.sql("ALTER TABLE a.t PARTITION (month=1) COMPACT 'major' AND WAIT")
            cleaner.run(warehouse.metastore)
            assert connection.sql(everything).fetchall() == wanted
            assert connection.sql(f"SELECT count(*) FROM ({everything})").fetchall() == [(2,)]
            warehouse.release()
            cleaner.run(warehouse.metastore)
            with pytest.raises(duckdb.Error, match="gone"):
                connection.sql(everything).fetchall()
        finally:
            connection.close()
        again = warehouse.duckdb()
        assert again.sql("SELECT id FROM a.t ORDER BY id").fetchall() == [(1,), (3,), (9,), (10,)]
        again.close()


def test_duckdb_is_told_how_many_rows_a_table_has_and_decodes_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without numbers of rows its order of joins is a guess: TPC-DS 64 took 33 s, not 0.2."""
    read: list[tuple[str, ...]] = []
    batches = ArrowScan.batches

    def noted(scan: ArrowScan, threads: int | None = None) -> object:
        read.append(scan.schema.names)
        return batches(scan, threads)

    monkeypatch.setattr(ArrowScan, "batches", noted)
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        large = warehouse.create_table(
            "a.large",
            "id int, v string, w int, x timestamp with local time zone",
            properties=IN_ORC,
        )
        large.insert(pa.table({"id": range(2000), "v": ["v"] * 2000, "w": range(2000)}))
        large.delete("id = 7")
        small = warehouse.create_table("a.small", "id int, n string", properties=IN_ORC)
        small.insert([{"id": 8, "n": "eight"}])
        join = "SELECT sum(l.w) AS w FROM a.large l JOIN a.small s ON l.id = s.id"
        result = warehouse.sql(join)
        assert "~2,000 rows" in result.plan() and "~1 row " in result.plan()
        assert result.collect() == [(8,)]
        connection = warehouse.duckdb()
        try:
            for columns, wanted in {
                "sum(w), count(*)": [(2_000 * 1_999 // 2 - 7, 1_999)],
                "count(*)": [(1_999,)],
                "max(x), min(v), max(id)": [(None, "v", 1_999)],
            }.items():
                read.clear()
                assert connection.sql(f"SELECT {columns} FROM a.large").fetchall() == wanted
                assert [sorted(names) for names in read] == [
                    {"sum": ["w"], "count": ["id"]}.get(columns.partition("(")[0], ["id", "v", "x"])
                ]
        finally:
            connection.close()
