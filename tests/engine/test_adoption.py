"""Tables that Hive wrote become tables of the warehouse and can be written (P24)."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition, MalformedName, TableExists, Warehouse
from tests.conftest import a_warehouse
from tests.hive_tables import HERE

pytestmark = pytest.mark.spark

warehouse = a_warehouse(in_spark=True)


def _copy(name: str, target: Path) -> tuple[Path, dict[str, dict[str, int]]]:
    shutil.copytree(HERE / name, target)
    expected = target / "expected.json"
    snapshots = json.loads(expected.read_text())["snapshots"]
    expected.unlink()
    return target, snapshots


def test_P24_without_a_snapshot_everything_counts_and_the_answer_says_so(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    root, snapshots = _copy("hive237_major_partitioned", tmp_path / "t")
    with pytest.warns(UserWarning, match="count as committed"):
        table = warehouse.adopt_table("db.partitioned", root, partitioned_by=["p string"])
    assert table.count() == snapshots["all"]["rows"] == table.read().count()
    assert len(table.partitions()) == 3
    before = table.snapshot().write_ids.high_watermark
    changed = table.update({table.columns[1].name: "NULL"})
    assert changed == snapshots["all"]["rows"]
    assert table.snapshot().write_ids.high_watermark == before + 1
    assert table.count() == changed
    table.compact("major", partition=table.partitions()[0])
    assert table.read().count() == changed


def test_P24_a_snapshot_says_which_write_ids_never_count(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    root, snapshots = _copy("hive237_random_a", tmp_path / "t")
    name, chosen = next((name, one) for name, one in snapshots.items() if name != "all")
    invalid = ",".join(map(str, chosen["invalid_write_ids"]))  # type: ignore[call-overload]
    text = f"db.random:{chosen['high_watermark']}:9223372036854775807::{invalid}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = warehouse.adopt_table("db.random", root, snapshot=text)
    assert table.count() == chosen["rows"], name
    with pytest.raises(TableExists):
        warehouse.adopt_table("db.random", root, snapshot=text)


def test_P24_what_can_not_be_adopted(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(InvalidDefinition, match="there is no directory"):
        warehouse.adopt_table("db.none", tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidDefinition, match="no data file"):
        warehouse.adopt_table("db.empty", empty)
    root, _ = _copy("hive237_random_b", tmp_path / "t")
    with pytest.raises(InvalidDefinition, match="bucketing_version"):
        warehouse.adopt_table("db.buckets", root, clustered_by=(["id"], 1))
    (root / "delta_x_1").mkdir()
    with pytest.raises(MalformedName, match="delta_x_1"):
        warehouse.adopt_table("db.bad", root)
    assert "db.bad" not in warehouse.tables()
