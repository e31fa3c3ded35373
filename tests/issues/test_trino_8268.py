"""trinodb/trino #8268: a table updated twice was unreadable for Hive.

Row ids were not unique ("Two readers for …"), and delete files not in the order that Hive merges
by. What we read must not depend on such an order, and what we write must have it.
"""

from __future__ import annotations

from pathlib import Path

from acid_platform.orc.reader import open_orc
from acid_platform.storage.files import Files
from tests.acid_files import B1, AcidTable, P, read_keys


def updated_twice(root: Path) -> AcidTable:
    table = AcidTable(root).inserts("d1", [(1, P, 0, "x")]).inserts("d2", [(2, P, 0, "y")])
    table.deletes("D3", [(2, P, 0), (1, P, 0)], current=3)  # not in key order
    table.inserts("d3", [(3, P, 0, "x1"), (3, P, 1, "y1")])
    table.deletes("D4", [(3, P, 1), (3, P, 0)], current=4)
    return table.inserts("d4", [(4, P, 0, "x2"), (4, P, 1, "y2")])


def test_unsorted_delete_files_delete_everything_that_they_name(tmp_path: Path) -> None:
    table = updated_twice(tmp_path)
    assert table.values("2:M::") == ["x", "y"]
    assert table.values("3:M::") == ["x1", "y1"]
    assert table.values("4:M::") == ["x2", "y2"]


def test_compacted_delete_files_are_in_hives_order_with_unique_keys(tmp_path: Path) -> None:
    table = updated_twice(tmp_path).deletes("D5/bucket_00000", [(4, B1, 0), (4, P, 1)], current=5)
    table.compact("minor", "5:M::")
    files, path = Files.of(str(table.file("D1-5v50")))
    keys = list(zip(*(key.tolist() for key in read_keys(open_orc(files, path), path)), strict=True))
    assert keys == sorted(set(keys)) and len(keys) == 6
    assert table.values("5:M::") == ["x2"]
