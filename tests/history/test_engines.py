"""Spark reads the past, rolls back and compares as the local engine does (P33, P36)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acid_platform import NotEnoughHistory
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_P36_spark_and_the_local_engine_read_the_same_past(
    tmp_path: Path, spark: SparkSession
) -> None:
    with temporary_warehouse(tmp_path / "wh", spark=spark) as warehouse:

        def run(statement: str, engine: str) -> list[tuple[object, ...]]:
            return sorted(warehouse.sql(statement, engine=engine).collect(), key=str)

        warehouse.sql("CREATE TABLE t (id int, v string) PARTITIONED BY (p int)")
        table = warehouse.table("t")
        table.insert([{"id": i, "v": f"v{i}", "p": i % 2} for i in range(6)])
        table.update({"v": "'u'"}, "id < 3", engine="spark")
        moment = datetime.now(UTC)
        table.delete("p = 0", engine="local")
        table.tag("odd")
        table.compact("major")
        table.add_columns("n int")
        table.insert([{"id": 9, "v": "n", "p": 4, "n": 1}])
        for clause in (
            "FOR SYSTEM_VERSION AS OF 1",
            "VERSION AS OF 2",
            f"FOR SYSTEM_TIME AS OF '{moment:%Y-%m-%d %H:%M:%S.%f}'",
            "VERSION AS OF 'odd'",
        ):
            for query in (
                f"SELECT * FROM t {clause}",
                f"SELECT count(*), min(id) FROM t {clause} x WHERE x.v LIKE 'v%'",
                f"SELECT a.id, b.n FROM t {clause} a LEFT JOIN t b ON a.id = b.id",
            ):
                assert run(query, "spark") == run(query, "local"), query
        for as_of in (0, 1, 2, 3, moment, "odd"):
            found = table.read(as_of=as_of).collect()
            local = table.to_arrow(as_of=as_of).to_pylist()
            assert sorted(map(str, (row.asDict() for row in found))) == sorted(map(str, local))
        assert table.diff(1, 2).added == 3
        with warehouse.using("spark"):
            assert table.diff(1, 2).added == 3
            table.rollback_to(2)
        assert table.count() == 6 and table.diff(2).rows == ()
        warehouse.release()
        frame = table.read(as_of=2)
        table.compact("major")
        warehouse.sql("ALTER TABLE t DROP TAG odd")
        cleaner.run(warehouse.metastore)
        assert frame.count() == 6, "its lease keeps the files"
        warehouse.release()
        cleaner.run(warehouse.metastore)
        with pytest.raises(NotEnoughHistory, match="its history begins at"):
            table.read(as_of=2)
