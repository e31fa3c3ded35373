"""trinodb/trino #12731: deletes above row id 1.5 million were not applied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.orc.writer import acid_schema
from tests.acid_files import AcidTable, P

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
