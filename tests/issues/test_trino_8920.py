"""trinodb/trino #8920: a table was corrupt after a compaction was renamed into its own output."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform import PublicationFailed
from acid_platform.storage.durability import publish
from tests.acid_files import AcidTable, P
from tests.notation import names


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
