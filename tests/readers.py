"""Runs a test with all readers, on the same files and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.acid_files import AcidTable, open_scan, proven
from tests.notation import txns, write_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK = pytest.param("spark", marks=pytest.mark.spark)
SPARKS_OWN = pytest.param("sparks-own", marks=[pytest.mark.spark, pytest.mark.slow])


@pytest.fixture(params=["arrow", SPARK, SPARKS_OWN], autouse=True)
def all_readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader that `AcidTable` uses: `to_arrow`, or Spark's `read` by our format or without."""
    if request.param == "arrow":
        return "arrow"
    from acid_platform.engine.spark.failures import install_expiry
    from acid_platform.engine.spark.live_rows import READER_VARIABLE
    from acid_platform.engine.spark.query import table_rows

    if request.param == "sparks-own":
        monkeypatch.setenv(READER_VARIABLE, "spark")
    spark = request.getfixturevalue("spark")
    install_expiry(spark)

    def frame(
        table: AcidTable,
        w: str = "99:M::",
        x: str = "",
        columns: list[str] | None = None,
        where: str | None = None,
        row_id: bool = False,
    ) -> DataFrame:
        scan = proven(open_scan(table.layout, write_ids(w), txns(x), where))
        return table_rows(lambda: spark, scan, columns, where, row_id, "db.t")

    def read(table: AcidTable, *args: object, **options: object) -> pa.Table:
        return frame(table, *args, **options).toArrow()  # type: ignore[arg-type]

    def count(table: AcidTable, *args: str) -> int:
        return int(frame(table, *args).count())

    monkeypatch.setattr(AcidTable, "read", read)
    monkeypatch.setattr(AcidTable, "count", count)
    return "spark"
