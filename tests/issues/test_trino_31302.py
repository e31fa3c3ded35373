"""trinodb/trino #31302: rows deleted by Hive came back, as delete files had an attempt suffix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acid_files import AcidTable, P


@pytest.mark.parametrize("data", ["d1/bucket_00000", "d1/bucket_00000_0"])
@pytest.mark.parametrize("deleting", ["D2/bucket_00000", "D2/bucket_00000_0", "D2/bucket_00000_7"])
def test_delete_files_are_found_whatever_their_attempt(
    tmp_path: Path, data: str, deleting: str
) -> None:
    table = AcidTable(tmp_path, "x int").inserts(data, [(1, P, 0, 1), (1, P, 1, 2)])
    table.deletes(deleting, [(1, P, 0)], current=2)
    assert table.values() == [2]
    table.compact("major", "2:M::")
    assert table.values() == [2]
