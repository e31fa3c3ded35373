"""Columns that are decoded after the rows were found are those of these rows (P33)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import CorruptFile
from acid_platform.engine.local.found_rows import places_where
from acid_platform.formats.orc import OrcFile
from acid_platform.scan import decode
from acid_platform.scan.result_columns import PLACE
from acid_platform.scan.scans import ArrowScan, Scan
from acid_platform.values.arrow_types import values_of
from tests.acid_files import AcidTable, P, arrow_scan, proven
from tests.notation import txns, write_ids

COLUMNS = "id int, v string, o struct<x:int,y:string>, c char(3)"
NAMES = ("v", "o", "c", "id")


def tables(rows: list[list[int]]) -> list[list[tuple[Any, ...]]]:
    """Rows of several files; each list has the ids of one."""
    return [
        [(number, P, at, i, f"v{i}", {"x": i, "y": None}, "ab") for at, i in enumerate(ids)]
        for number, ids in enumerate(rows, 1)
    ]


def scan_of(
    root: Path, files: list[list[tuple[Any, ...]]], gone: list[tuple[int, int, int]]
) -> Scan:
    table, last = AcidTable(root, COLUMNS), len(files)
    for number, rows in enumerate(files, 1):
        middle = len(rows) // 2
        table.written(f"d{number}", *(part for part in (rows[:middle], rows[middle:]) if part))
    if gone:
        table.deletes(f"D{last + 1}", sorted(gone), current=last + 1)
    return arrow_scan(table.layout, write_ids(f"{last + 1}:M::"), txns()).scan


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([0, 1 << 30]))
def test_P33_rows_that_are_found_first_are_those_of_a_scan_of_everything(
    data: st.DataObject, recorded: bool, small: int
) -> None:
    files = tables(
        data.draw(
            st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=4)
        )
    )
    keys = [row[:3] for rows in files for row in rows]
    gone = data.draw(st.lists(st.sampled_from(keys), unique=True))
    remainder = data.draw(st.integers(0, 2))
    live = [row for rows in files for row in rows if row[:3] not in gone]
    expected = [row for row in live if row[3] % 3 == remainder]
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patched:
        patched.setattr(decode, "SMALL_BYTES", small)
        plain = scan_of(Path(home), files, gone)
        scan = proven(plain) if recorded else plain
        every = ArrowScan(scan, ("id", PLACE.name)).table()
        assert every.column("id").to_pylist() == [row[3] for row in live]
        places = places_where(scan, f"id % 3 = {remainder}")
        chosen = values_of(every.column("id")) % 3 == remainder
        assert places.tolist() == values_of(every.column(PLACE.name))[chosen].tolist()
        late = ArrowScan(scan, NAMES, row_id=True, places=places).table()
        assert late.schema == ArrowScan(scan, NAMES, row_id=True).schema
        shown = [
            (*(row["row__id"].values()), row["id"], row["v"], row["o"], row["c"].rstrip())
            for row in late.to_pylist()
        ]
        assert shown == expected
        unread = ArrowScan(scan, (), row_id=True, places=places).table()
        assert unread.column(0).to_pylist() == late.column("row__id").to_pylist()


def test_only_stripes_with_found_rows_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = scan_of(
        tmp_path, tables([list(range(10)), list(range(10, 20)), list(range(20, 30))]), []
    )
    places = places_where(scan, "id % 20 = 17")
    decoded: list[tuple[str, int]] = []
    keep = OrcFile.stripe

    def watched(file: OrcFile, index: int, *args: Any) -> pa.RecordBatch:
        decoded.append((Path(file.path).parent.name[:13], index))
        return keep(file, index, *args)

    monkeypatch.setattr(OrcFile, "stripe", watched)
    late = ArrowScan(scan, ("v",), places=places).table()
    assert late.to_pylist() == [{"v": "v17"}]
    assert decoded == [("delta_0000002", 1)]
    none = ArrowScan(scan, ("v",), places=np.zeros(0, np.int64)).table()
    assert (none.num_rows, len(decoded)) == (0, 1)


def test_nothing_is_decoded_of_rows_that_are_all_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tables([list(range(10)), list(range(10, 20))])
    scan = proven(scan_of(tmp_path, files, [row[:3] for row in files[0]]))
    decoded: list[str] = []
    keep = OrcFile.stripe

    def watched(file: OrcFile, *args: Any) -> pa.RecordBatch:
        decoded.append(Path(file.path).parent.name[:13])
        return keep(file, *args)

    monkeypatch.setattr(OrcFile, "stripe", watched)
    assert ArrowScan(scan, ("id",)).table().column(0).to_pylist() == list(range(10, 20))
    assert set(decoded) == {"delta_0000002"}


def test_a_damaged_file_is_told_while_rows_are_found(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, tables([[1, 2], [3, 4]]), [])
    file = tmp_path / scan.entities[0].sources.inserts[1].path
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(CorruptFile):
        places_where(scan, "id % 2 = 0")
