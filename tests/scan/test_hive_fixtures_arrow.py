"""Tables that Hive wrote, read without a JVM at every snapshot: rows and row ids equal Hive's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acid_platform import NotEnoughHistory
from acid_platform.scan.open import arrow_scan
from acid_platform.transactions import ValidTxnList
from tests.hive_tables import HERE, MORE, assert_expected, opened, snapshots, tables


@pytest.mark.parametrize(("root", "snapshot"), snapshots())
def test_F12_F16_every_snapshot_of_hives_tables_without_a_jvm(
    tmp_path: Path, root: Path, snapshot: dict[str, Any]
) -> None:
    table, write_ids = opened(root, tmp_path, snapshot)
    if "error" in snapshot:
        with pytest.raises(NotEnoughHistory, match="read a newer snapshot"):
            arrow_scan(table, write_ids, ValidTxnList.everything())
        return
    found = arrow_scan(table, write_ids, ValidTxnList.everything(), row_id=True).table()
    assert_expected(found, table, snapshot)
    counted = arrow_scan(table, write_ids, ValidTxnList.everything(), columns=[])
    assert counted.count() == snapshot["rows"]


def test_fixtures_beyond_the_committed_ones_are_found() -> None:
    if not MORE:
        pytest.skip("ACID_FIXTURES is not set: only the committed tables of Hive are read")
    assert len(tables()) > len(list(HERE.glob("*/expected.json")))
