"""trinodb/trino #6279: UPDATE and DELETE failed after a major compaction; paths had `base_`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acid_files import AcidTable, P


@pytest.mark.parametrize("base", ["base_0000001", "base_0000001_v0000009"])
def test_rows_of_a_base_are_deleted_and_updated(tmp_path: Path, base: str) -> None:
    table = AcidTable(tmp_path).inserts(
        f"{base}/bucket_00000", [(1, P, 0, "A"), (1, P, 1, "B"), (1, P, 2, "C")]
    )
    table.deletes("D2", [(1, P, 0), (1, P, 1)], current=2).inserts("d2", [(2, P, 0, "BB")])
    assert table.values() == ["BB", "C"]
    assert table.ids() == [(1, P, 2), (2, P, 0)]


def test_rows_that_were_compacted_twice_can_still_be_deleted(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B")])
    table.inserts("d2", [(2, P, 0, "C")]).compact("major", "2:M::", txn_id=50)
    table.deletes("D3", [(1, P, 1)], current=3).compact("major", "3:M::", txn_id=51)
    table.deletes("D4", [(2, P, 0)], current=4)
    assert table.values("4:M::") == ["A"]
