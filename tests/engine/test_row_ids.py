"""Row ids that other engines got wrong.

trinodb/trino #8452: row ids restarted on each page, so one DELETE removed several rows. P15 is the
rule for writers; here, our row ids never restart with a stripe or batch of a file.
trinodb/trino #8268: a table updated twice was unreadable for Hive: row ids were not unique ("Two
readers for …"), and delete files not in the order that Hive merges by. What we read must not depend
on such an order, and what we write must have it.
trinodb/trino #12731: deletes above row id 1.5 million were not applied.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.formats.orc import acid_schema, open_orc
from acid_platform.storage.files import Files
from tests.acid_files import B1, AcidTable, P, read_keys
from tests.readers import all_readers as all_readers

# --- ids run on -----------------------------------------------------------------------------------


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


# --- the order of delete files --------------------------------------------------------------------


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


# --- high row ids ---------------------------------------------------------------------------------


FIRST, MIDDLE, LAST = 1_450_000, 1_500_000, 1_560_000
"""Row ids around the number in the report; the ids below do not matter (P15 allows gaps)."""


def test_rows_above_one_and_a_half_million_are_deleted_and_stay_so(tmp_path: Path) -> None:
    """As in the report: all rows deleted, inserted again, deleted again in part."""
    table = AcidTable(tmp_path, "x int")
    for write_id in (1, 3):
        write(table, f"d{write_id}", write_id, write_id, deletes=False)
    write(table, "D2", 1, 2, deletes=True)
    assert table.read("2:M::").num_rows == 0
    assert table.read("3:M::").num_rows == LAST - FIRST
    write(table, "D4", 3, 4, deletes=True, first=MIDDLE)
    left = table.read("4:M::").column("x").to_numpy()
    assert np.array_equal(left, np.arange(FIRST, MIDDLE))


def write(
    table: AcidTable, path: str, write_id: int, current: int, deletes: bool, first: int = FIRST
) -> None:
    target = acid_schema(table.layout.columns)
    ids = np.arange(first, LAST)
    same = np.full(len(ids), write_id)
    row = (
        pa.nulls(len(ids), target.field("row").type)
        if deletes
        else pa.StructArray.from_arrays(
            [pa.array(ids, pa.int32())], fields=list(target.field("row").type)
        )
    )
    columns = [
        pa.array(np.full(len(ids), 2 * deletes), pa.int32()),
        pa.array(same),
        pa.array(np.full(len(ids), P), pa.int32()),
        pa.array(ids),
        pa.array(np.full(len(ids), current)),
        row,
    ]
    file = table.file(path)
    file.parent.mkdir(parents=True)
    orc.write_table(pa.table(columns, schema=target), str(file))
