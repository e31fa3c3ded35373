"""A condition that one of a thousand files can match: no other file is opened (P26)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import CorruptFile, Warehouse
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.slow

FILES = 1000
ROWS = 10
"""In each file; their ids ascend from file to file."""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warehouse whose table has a thousand files, of which all but the 501st hold only zeros."""
    home = tmp_path_factory.mktemp("selective") / "warehouse"
    with temporary_warehouse(home, engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id bigint, v string")
        with warehouse.transaction() as txn:
            for first in range(0, FILES * ROWS, ROWS):
                ids = list(range(first, first + ROWS))
                txn.table("db.t").insert(pa.table({"id": ids, "v": [f"v{one}" for one in ids]}))
        files = sorted(Path(table.location).rglob("bucket_*"))
        assert len(files) == FILES
        for number, file in enumerate(files):
            if number != 500:
                file.write_bytes(bytes(file.stat().st_size))
        yield home


def test_P26_the_local_engine_opens_one_of_a_thousand_files(damaged: Path) -> None:
    with Warehouse.open(damaged, engine="local") as warehouse:
        table = warehouse.table("db.t")
        assert table.to_arrow(where="id = 5007").to_pylist() == [{"id": 5007, "v": "v5007"}]
        found = warehouse.sql("SELECT v FROM db.t WHERE id BETWEEN 5003 AND 5004 ORDER BY id")
        assert [tuple(row) for row in found.collect()] == [("v5003",), ("v5004",)]
        assert table.count() == FILES * ROWS, "which needs no file"
        with pytest.raises(CorruptFile):
            table.to_arrow(where="id = 4999")
        warehouse.release()


@pytest.mark.spark
def test_P26_spark_opens_one_of_a_thousand_files(damaged: Path, spark: SparkSession) -> None:
    with Warehouse.open(damaged, spark=spark, engine="spark") as warehouse:
        table = warehouse.table("db.t")
        frame = table.read(where="id = 5007")
        assert [tuple(row) for row in frame.collect()] == [(5007, "v5007")]
        assert len(frame.inputFiles()) == 1
        found = warehouse.sql("SELECT v FROM db.t WHERE id BETWEEN 5003 AND 5004 ORDER BY id")
        assert [tuple(row) for row in found.collect()] == [("v5003",), ("v5004",)]
        with pytest.raises(CorruptFile):
            table.read(where="id = 4999").select("v").collect()
        warehouse.release()
