"""A restore records the files that are newer than the backup, too (P24, P26)."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform import NotEnoughHistory, Warehouse
from acid_platform.base.location import Location
from acid_platform.metastore.operations.compaction import TakeCompaction
from acid_platform.metastore.operations.tables import ResolveDoubtful
from acid_platform.metastore.records import WriteReport
from acid_platform.services import cleaner
from acid_platform.tables.adoption import restore
from acid_platform.transactions import RowOperation
from tests.acid_files import AcidTable, P, contents_of
from tests.cli.small import Small

pytestmark = pytest.mark.more


def rows(small: Small) -> list[int]:
    with Warehouse.open(small.path) as warehouse:
        return sorted(row["id"] for row in warehouse.table("db.t").to_arrow().to_pylist())


def restored(small: Small, backup: Path) -> None:
    small.metastore.stop()
    restore(Location.of(small.path), str(backup), replace=True)


def compacted(small: Small) -> None:
    """A base of the three inserts, whose deltas are removed."""
    small.metastore.request_compaction("db.t", None, "major")
    task = small.metastore.call(TakeCompaction("w-1"))
    assert task is not None
    txn = small.metastore.begin_compaction(task, "w-1")
    base = f"base_0000003_v{txn.id:07d}"
    AcidTable(small.table, "id int, v string").inserts(
        f"{base}/bucket_00000",
        [(1, P, 0, 1, "A"), (1, P, 1, 2, "B"), (2, P, 0, 3, "C"), (3, P, 0, 4, "D")],
        current=3,
    )
    txn.commit_compaction(
        [WriteReport("db.t", None, RowOperation.COMPACT, base, contents_of(small.table / base))]
    )
    (done,) = cleaner.run(small.metastore)
    assert len(done.removed) == 3 and not done.error


def test_P24_P26_rows_that_came_after_the_backup_are_there_once_they_are_resolved(
    small: Small, tmp_path: Path
) -> None:
    small.insert((3, "C"))
    small.acid("metastore", "backup", str(tmp_path / "copy"))
    small.insert((4, "D"))
    restored(small, tmp_path / "copy")
    assert rows(small) == [1, 2, 3]
    small.metastore.call(ResolveDoubtful("db.t", tuple(sorted([3])), ()))
    assert rows(small) == [1, 2, 3, 4]


def test_P24_P26_what_a_later_compaction_merged_is_read_from_its_base(
    small: Small, tmp_path: Path
) -> None:
    """Its inputs are gone: without the base there is no history before write id 3."""
    small.insert((3, "C"))
    small.acid("metastore", "backup", str(tmp_path / "copy"))
    small.insert((4, "D"))
    compacted(small)
    restored(small, tmp_path / "copy")
    with pytest.raises(NotEnoughHistory):
        rows(small)
    small.metastore.call(ResolveDoubtful("db.t", tuple(sorted([3])), ()))
    assert rows(small) == [1, 2, 3, 4]
