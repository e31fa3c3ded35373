"""trinodb/trino #8452: row ids restarted on each page, so one DELETE removed several rows.

P15 is the rule for writers. Here: our row ids never restart with a stripe or batch of a file, and a
row id that another writer gave twice can be found.
"""

from __future__ import annotations

from pathlib import Path

from acid_platform.orc.reader import open_orc
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, P

ROWS = 30_000


def test_ids_of_an_original_run_on_over_its_stripes(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "x int").raw("o", list(range(ROWS)), stripe_size=1024)
    assert open_orc(*Files.of(str(table.file("o")))).nstripes > 1
    assert table.ids() == [(0, P, i) for i in range(ROWS)]


def test_one_delete_takes_one_row_of_many_stripes(tmp_path: Path) -> None:
    rows = [(1, P, i, i) for i in range(ROWS)]
    table = AcidTable(tmp_path, "x int").inserts("d1", rows, stripe_size=1024)
    table.deletes("D2", [(1, P, 20_000)], current=2)
    assert table.values() == [i for i in range(ROWS) if i != 20_000]


def test_a_compaction_keeps_every_id(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "x int").raw("o", list(range(ROWS)), stripe_size=1024)
    table.inserts("d1", [(1, P, i, i) for i in range(ROWS)], stripe_size=1024)
    before = table.ids()
    table.compact("major", "1:M::")
    assert table.ids("1:M::") == before and len(set(before)) == 2 * ROWS
