"""apache/hive #6101 (HIVE-29210): two finished compactions of one range were both read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acid_files import AcidTable, P

ROWS = [(1, P, 0, "A"), (2, P, 0, "B")]


@pytest.mark.parametrize(
    "names", [("d1-2v10", "d1-2v11"), ("d1-2v11", "d1-2v10"), ("b2v10", "b2v11")]
)
def test_rows_of_a_lost_workers_output_and_its_retrys_are_read_once(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    table = AcidTable(tmp_path)
    for name in names:
        table.inserts(name, ROWS)
    assert table.values() == ["A", "B"]
    assert table.values(x="11 open") == ["A", "B"]
    assert table.values(x="10 aborted") == ["A", "B"]


def test_the_retry_with_deletes_is_taken_as_a_pair(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    for attempt in (10, 11):
        table.inserts(f"d1-2v{attempt}", ROWS)
        table.deletes(f"D1-2v{attempt}", [(1, P, 0)], current=2)
    assert table.values() == ["B"]
    table.compact("major", "2:M::", txn_id=50)
    assert table.values() == ["B"]
