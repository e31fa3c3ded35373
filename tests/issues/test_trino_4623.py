"""trinodb/trino #4623: after a minor compaction deletes were searched under a name with `_0`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acid_files import AcidTable, P


@pytest.mark.parametrize(
    "directory",
    [
        "delete_delta_0000002_0000003",
        "delete_delta_0000002_0000003_v0000012",
        "delete_delta_2_3",
    ],
)
def test_a_compacted_delete_delta_has_no_statement_id(tmp_path: Path, directory: str) -> None:
    table = AcidTable(tmp_path, "x int").inserts("d1", [(1, P, 0, 1), (1, P, 1, 2), (1, P, 2, 3)])
    table.deletes(f"{directory}/bucket_00000", [(1, P, 0), (1, P, 2)], current=[2, 3])
    assert table.values("3:M::") == [2]
    assert table.values("3:M::3") == [2, 3]


def test_deletes_survive_our_own_minor_compaction(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "x int").inserts("d1", [(1, P, 0, 1), (1, P, 1, 2)])
    table.deletes("D2", [(1, P, 0)], current=2).deletes("D3", [(1, P, 1)], current=3)
    table.compact("minor", "3:M::")
    for name in ("d1", "D2", "D3"):
        table.file(name).unlink()
    assert table.values() == []
