"""PARTITION (…) of a statement that removes or compacts names values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import InvalidExpression, Warehouse
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.more


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as opened:
        opened.sql("CREATE TABLE t (id int) PARTITIONED BY (ds string, hr int)")
        opened.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
        yield opened


@pytest.mark.parametrize("spec", ["(ds)", "(ds, hr)", "(ds='a', hr)"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP PARTITION {}",
        "ALTER TABLE t DROP IF EXISTS PARTITION {}",
        "TRUNCATE TABLE t PARTITION {}",
        "ALTER TABLE t PARTITION {} COMPACT 'major'",
    ],
)
def test_a_column_without_a_value_does_not_stand_for_all_partitions(
    warehouse: Warehouse, statement: str, spec: str
) -> None:
    with pytest.raises(InvalidExpression, match=r"needs values: write PARTITION \((ds|hr)=value\)"):
        warehouse.sql(statement.format(spec))
    assert warehouse.table("t").count() == 2
    assert len(warehouse.table("t").partitions()) == 2
