"""`Warehouse.duckdb()`: every table as a view at one leased snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import pytest

from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse

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
