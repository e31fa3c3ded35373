"""A partition that a transaction has overwritten can't be written again by it (P6).

TRUNCATE of such a partition used to fail with PublicationFailed, "as if a write id was used twice",
and advised to move the new base away. `make lab-chaos` found it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import OverwriteThenWrite, Warehouse
from acid_platform.metastore.operations.tables import RegisterPartitions
from tests.conftest import temporary_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh") as opened:
        opened.create_table("db.p", "v string", partitioned_by=["m int"])
        opened.metastore.call(
            RegisterPartitions(
                "db.p",
                (
                    "m=1",
                    "m=2",
                ),
            )
        )
        yield opened


@pytest.mark.parametrize("first", ["m=1", None])
def test_P6_a_partition_that_was_overwritten_is_not_overwritten_again(
    warehouse: Warehouse, first: str | None
) -> None:
    with warehouse.transaction() as txn:
        txn.table("db.p").truncate(first)
        with pytest.raises(OverwriteThenWrite, match=r"overwrote db\.p m=1"):
            txn.table("db.p").truncate("m=1")
        if first:
            txn.table("db.p").truncate("m=2")
    done = {(row["partition"], row["directory"]) for row in warehouse.table("db.p").history()}
    assert done == {("m=1", "base_0000001"), ("m=2", "base_0000001")}
