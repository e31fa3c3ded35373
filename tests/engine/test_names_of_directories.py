"""Names of directories and files over which other readers have stumbled.

apache/hive #6101 (HIVE-29210): two finished compactions of one range were both read.
trinodb/trino #31302: rows deleted by Hive came back, as delete files had an attempt suffix; #4623:
after a minor compaction deletes were searched under a name with `_0`; #6279: UPDATE and DELETE
failed after a major compaction; #8920: a table was corrupt after a compaction was renamed into its
own output.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform import PublicationFailed
from acid_platform.storage.durability import publish
from tests.acid_files import AcidTable, P
from tests.notation import names
from tests.readers import all_readers as all_readers

# --- two outputs of one compaction ----------------------------------------------------------------


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


# --- attempts of a task ---------------------------------------------------------------------------


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


# --- statement ids --------------------------------------------------------------------------------


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


# --- bases ----------------------------------------------------------------------------------------


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


# --- directories in directories -------------------------------------------------------------------


def test_a_directory_is_never_published_into_an_existing_one(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")]).inserts("d2", [(2, P, 0, "B")])
    table.compact("minor", "2:M::", txn_id=50)
    output = names("d1-2v50")[0]
    before = sorted(tmp_path.rglob("*"))
    files, staged = table.layout.files, tmp_path / "_tmp_0000050_again"
    staged.mkdir()
    with pytest.raises(PublicationFailed, match=output):
        publish(files, str(tmp_path), [(str(staged), str(tmp_path / output))])
    staged.rmdir()
    assert sorted(tmp_path.rglob("*")) == before
    assert table.values() == ["A", "B"]


def test_a_nested_delta_that_another_engine_left_is_not_read_twice(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")])
    delta = names("d1")[0]
    table.inserts(f"{delta}/{delta}/bucket_00000", [(1, P, 0, "A")])
    assert table.values() == ["A"]
