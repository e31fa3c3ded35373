"""Tables that Hive wrote, read by Spark at every snapshot: rows and row ids equal Hive's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from acid_platform import NotEnoughHistory
from acid_platform.engine.spark.scan import read_frame
from acid_platform.scan.open import open_scan
from acid_platform.transactions import ValidTxnList
from tests.acid_files import proven
from tests.hive_tables import assert_expected, opened, snapshots


@pytest.mark.spark
@pytest.mark.parametrize(("root", "snapshot"), snapshots())
def test_S_every_snapshot_of_hives_tables(
    spark: SparkSession, tmp_path: Path, root: Path, snapshot: dict[str, Any]
) -> None:
    table, write_ids = opened(root, tmp_path, snapshot)
    if "error" in snapshot:
        with pytest.raises(NotEnoughHistory, match="read a newer snapshot"):
            open_scan(table, write_ids, ValidTxnList.everything())
        return
    scan = open_scan(table, write_ids, ValidTxnList.everything())
    assert_expected(read_frame(spark, scan, row_id=True).toArrow(), table, snapshot)
    # Without identities, files without ACID columns are read by Spark itself. With recorded keys,
    # fewer ACID columns are decoded.
    assert read_frame(spark, proven(scan)).count() == snapshot["rows"]
    assert_expected(read_frame(spark, proven(scan), row_id=True).toArrow(), table, snapshot)
