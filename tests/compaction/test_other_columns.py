"""Files that are written again with other columns: by name, and by position where files know no
names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from acid_platform.compaction import execution
from acid_platform.compaction.execution import open_compaction
from acid_platform.compaction.plan import CompactionPlan, CompactionSettings
from acid_platform.compaction.profiles import compare
from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.local.compact import LocalCompaction
from acid_platform.layout.names import BaseName
from acid_platform.scan.selection import select
from acid_platform.transactions import ValidTxnList
from tests.acid_files import AcidTable, P
from tests.notation import write_ids

COLUMNS = "id int, v string, s struct<x:int>"


def rewritten(
    table: AcidTable, w: str, columns: str, *names: tuple[str, str], most_inputs: int = 500
) -> AcidTable:
    """The table after a base of write id 9 with these columns."""
    layout, lists = table.layout, write_ids(w).for_compactor()
    directory = select(
        layout.files.entity(layout.path),
        lists,
        ValidTxnList.of(2000),
        insert_only=table.insert_only,
    )
    settings = CompactionSettings(most_inputs=most_inputs)
    plan = CompactionPlan(
        CompactionKind.MAJOR, 50, settings, directory, lists, BaseName(9), None, None, ""
    )
    compaction = open_compaction(plan, layout, names=names)
    staged = execution.execute(LocalCompaction(compaction), compaction)
    assert not compare(staged.expected, staged.actual)
    assert set(staged.expected.column_checksums) == {new for _, new in names}
    execution.publish(staged)
    return replace(table, columns=columns)


def rows(table: AcidTable, names: Sequence[str]) -> list[tuple[object, ...]]:
    found = table.read("9:M::").select(names).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.parametrize("most_inputs", [500, 2])
def test_rows_keep_their_ids_and_values_under_other_names(tmp_path: Path, most_inputs: int) -> None:
    """Also if many inputs are merged in stages, whose files have the new names already."""
    table = AcidTable(tmp_path, COLUMNS)
    for write_id in (1, 2, 3):
        row = (write_id, P, 0, write_id, f"v{write_id}", {"x": write_id})
        table.inserts(f"d{write_id}", [row])
    table.inserts("d4", [(4, P, 0, None, "V")], columns="S struct<x:int>, V string")
    table.deletes("D5", [(2, P, 0)], 5)
    ids = table.ids("5:M::")
    new = "s2 struct<x:int>, key int, v date"
    after = rewritten(table, "5:M::", new, ("s", "s2"), ("id", "key"), most_inputs=most_inputs)
    assert after.ids("9:M::") == ids
    found = after.read("9:M::").to_pylist()
    assert sorted((row["key"] or 0, (row["s2"] or {}).get("x"), row["v"]) for row in found) == [
        (0, None, None),
        (1, 1, None),
        (3, 3, None),
    ]
    assert table.values("5:M::") == [1, 3, None]


def test_a_table_whose_rows_are_all_deleted_has_an_empty_base(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "id int, v string")
    table.inserts("d1", [(1, P, 0, 1, "a")]).deletes("D2", [(1, P, 0)], 2)
    after = rewritten(table, "2:M::", "w string", ("v", "w"))
    assert after.values("9:M::") == []


@pytest.mark.parametrize("insert_only", [False, True])
def test_files_without_names_know_columns_by_their_place(tmp_path: Path, insert_only: bool) -> None:
    table = AcidTable(tmp_path, "id int, v string, n int", insert_only=insert_only)
    table.raw("o", [(1, "a", 10), (2, "b", 20)], columns="_col0 int, _col1 string, _col2 int")
    after = rewritten(table, "2:M::", "n int, w string", ("n", "n"), ("v", "w"))
    assert rows(after, ["n", "w"]) == [(10, "a"), (20, "b")]
    if not insert_only:
        assert after.ids("9:M::") == table.ids("2:M::")
