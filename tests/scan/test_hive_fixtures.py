"""Tables that Hive wrote, read at every snapshot: rows and row ids equal Hive's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acid_platform import NotEnoughHistory
from acid_platform.transactions import ValidTxnList
from tests.acid_files import arrow_scan, open_scan, proven
from tests.hive_tables import HERE, MORE, assert_expected, opened, snapshots, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = ValidTxnList.everything()


@pytest.mark.parametrize(("root", "snapshot"), snapshots())
def test_F12_F16_every_snapshot_of_hives_tables_without_a_jvm(
    tmp_path: Path, root: Path, snapshot: dict[str, Any]
) -> None:
    table, write_ids = opened(root, tmp_path, snapshot)
    if "error" in snapshot:
        with pytest.raises(NotEnoughHistory, match="read a newer snapshot"):
            open_scan(table, write_ids, EVERYTHING)
        return
    assert_expected(arrow_scan(table, write_ids, EVERYTHING, row_id=True).table(), table, snapshot)
    counted = arrow_scan(table, write_ids, EVERYTHING, columns=[])
    assert counted.count() == snapshot["rows"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("root", "snapshot"), [case for case in snapshots() if "error" not in case.values[1]]
)
def test_S_every_snapshot_of_hives_tables(
    spark: SparkSession, tmp_path: Path, root: Path, snapshot: dict[str, Any]
) -> None:
    from acid_platform.engine.spark.scan import read_frame

    table, write_ids = opened(root, tmp_path, snapshot)
    scan = open_scan(table, write_ids, EVERYTHING)
    assert_expected(read_frame(spark, scan, row_id=True).toArrow(), table, snapshot)
    # Without identities, files without ACID columns are read by Spark itself. With recorded keys,
    # fewer ACID columns are decoded.
    assert read_frame(spark, proven(scan)).count() == snapshot["rows"]
    assert_expected(read_frame(spark, proven(scan), row_id=True).toArrow(), table, snapshot)


def test_fixtures_beyond_the_committed_ones_are_found() -> None:
    if not MORE:
        pytest.skip("ACID_FIXTURES is not set: only the committed tables of Hive are read")
    assert len(tables()) > len(list(HERE.glob("*/expected.json")))
