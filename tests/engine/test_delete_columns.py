"""apache/hive #1894 (HIVE-24670): reading delete files allocated all columns of a wide table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acid_platform.formats.orc import OrcFile
from tests.acid_files import AcidTable, P
from tests.readers import all_readers as all_readers

WIDE = ", ".join(f"c{i} string" for i in range(250))


def test_only_the_row_keys_of_delete_files_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = AcidTable(tmp_path, WIDE)
    table.inserts("d1", [(1, P, i, *["x"] * 250) for i in range(3)])
    table.deletes("D2", [(1, P, 1)], current=2).deletes("D3", [(1, P, 2)], current=3)
    asked: list[list[str]] = []
    keep = OrcFile.batches

    def watched(file: OrcFile, names: list[str], *args: Any) -> Any:
        asked.append(names)
        return keep(file, names, *args)

    monkeypatch.setattr(OrcFile, "batches", watched)
    assert table.values(columns=["c0"]) == ["x"]
    assert (
        asked == [["operation", "originalTransaction", "bucket", "rowId", "currentTransaction"]] * 2
    )
