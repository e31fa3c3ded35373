"""Deleted keys are decoded once per snapshot, and a snapshot never gets the keys of another."""

from __future__ import annotations

import os
import shutil
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.base.first_use import Recent
from acid_platform.engine.local import event_files
from acid_platform.formats.data_file import KeyRun, StoredKeys
from acid_platform.scan import deletes
from acid_platform.scan import deletes as module
from acid_platform.scan.deletes import (
    DeletedRows,
    DeleteKeys,
    file_events,
    joined,
    kept_keys,
    load_keys,
)
from acid_platform.scan.selection import select
from acid_platform.scan.source_files import EntitySources, SourceFile, open_source, resolve
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, P, open_scan
from tests.conftest import temporary_warehouse
from tests.notation import txns, write_ids


@pytest.fixture
def table(tmp_path: Path) -> AcidTable:
    made = AcidTable(tmp_path).inserts("d1", [(1, P, row, "x") for row in range(9)])
    for write_id in (2, 3, 4):
        made.deletes(f"D{write_id}", [(1, P, write_id)], current=write_id)
    return made


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of files of each call of `load_keys`."""
    calls: list[int] = []

    def counting(files: object, sources: object, *rest: object, **read: object) -> DeleteKeys:
        calls.append(len(sources))  # type: ignore[arg-type]
        return load_keys(files, sources, *rest, **read)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "load_keys", counting)
    monkeypatch.setattr(module, "_recent", Recent(100, module.MAX_BYTES))
    return calls


def sources(table: AcidTable, w: str) -> EntitySources:
    layout = table.layout
    seen = select(layout.files.entity(layout.path), write_ids(w), txns())
    return resolve(layout.files, seen)


def deleted(keys: DeleteKeys) -> list[int]:
    return [row for *_, row_ids in keys.parts() for row in row_ids.tolist()]


def rows(table: AcidTable, w: str) -> list[int]:
    keys = kept_keys(table.layout.files, sources(table, w).deletes, write_ids(w))
    return deleted(keys)


def test_each_snapshot_gets_its_own_keys_and_loads_them_once(
    table: AcidTable, loaded: list[int]
) -> None:
    expected = {"9:M::": [2, 3, 4], "3:M::": [2, 3], "9:M::3": [2, 4], "1:M::": []}
    for _ in range(2):
        for w, gone in expected.items():
            assert rows(table, w) == gone
    assert loaded == [1, 1, 1, 1]  # the one of write id 4 is another file beside an aborted 3
    table.deletes("D5", [(1, P, 5)], current=5)
    assert rows(table, "9:M::") == [2, 3, 4, 5]


def test_a_new_delete_reads_its_own_file_alone(
    table: AcidTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def noted(files: Files, source: SourceFile, *rest: Any) -> DeleteKeys:
        opened.append(source.directory)
        return file_events(files, source, *rest)

    monkeypatch.setattr(deletes, "file_events", noted)
    assert rows(table, "4:M::") == [2, 3, 4]
    table.deletes("D5", [(1, P, 5)], current=5)
    assert rows(table, "5:M::") == [2, 3, 4, 5]
    assert [name.split("_")[2].lstrip("0") for name in opened] == ["2", "3", "4", "5"]
    assert rows(table, "5:M::5") == [2, 3, 4]


def test_an_event_of_an_invalid_write_id_in_a_file_that_both_snapshots_see(
    table: AcidTable,
) -> None:
    table.deletes("D6-8v0", [(1, P, 6), (1, P, 7), (1, P, 8)], current=[6, 7, 8])
    assert rows(table, "9:M::") == [2, 3, 4, 6, 7, 8]
    assert rows(table, "9:M::7") == [2, 3, 4, 6, 8]
    assert rows(table, "9:M::") == [2, 3, 4, 6, 7, 8]


def test_later_write_ids_change_nothing_that_was_loaded(
    table: AcidTable, loaded: list[int]
) -> None:
    assert rows(table, "4:M::3") == [2, 4]
    for text in ("5:M::3", "9:M:7:3,8", "30:M:6:3"):
        assert rows(table, text) == [2, 4]
    assert loaded == [1, 1]


def test_a_file_that_another_warehouse_wrote_at_the_same_place_is_read(tmp_path: Path) -> None:
    sizes = set()
    for row in (2, 3):
        made = AcidTable(tmp_path / "t").inserts("d1", [(1, P, one, "x") for one in range(9)])
        file = made.deletes("D2", [(1, P, row)], current=2).file("D2")
        os.utime(file, ns=(0, row * 10**6))
        (entity,) = open_scan(made.layout, write_ids("9:M::"), txns()).entities
        assert deleted(entity.deletes) == [row]
        sizes.add(file.stat().st_size)
        shutil.rmtree(tmp_path / "t")
    assert len(sizes) == 1


def test_kept_keys_are_bounded_and_can_not_be_changed(
    table: AcidTable, monkeypatch: pytest.MonkeyPatch, loaded: list[int]
) -> None:
    files, seen = table.layout.files, sources(table, "9:M::")
    keys = kept_keys(files, seen.deletes, write_ids("9:M::"))
    with pytest.raises(ValueError, match="read-only"):
        keys.words[0] = 7
    assert keys.own is not None
    arrays = (keys.write_ids, keys.buckets, keys.words, keys.bits, keys.own)
    size = sum(array.nbytes for array in arrays) + 1000
    recent: Recent[object, DeleteKeys] = Recent(100, 2 * size)
    monkeypatch.setattr(module, "_recent", recent)
    for text in ("9:M::", "9:M::1", "9:M:1:") * 3:
        assert rows(table, text) == [2, 3, 4]
        assert 1 <= len(recent._values) <= 2 and recent._bytes <= 2 * size
    monkeypatch.setattr(module, "_recent", Recent(100, 10))
    before = len(loaded)
    assert rows(table, "30:M::") == rows(table, "30:M::") == [2, 3, 4]
    assert len(loaded) == before + 6


@given(
    gone=st.sets(st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(0, 20)), max_size=20),
    first=st.integers(0, 12),
    rows=st.integers(0, 12),
)
def test_rows_whose_keys_follow_from_their_positions_lose_the_same_rows(
    gone: set[tuple[int, int, int]], first: int, rows: int
) -> None:
    w, b, r = (
        (np.array(each, np.int64) for each in zip(*sorted(gone), strict=True))
        if gone
        else (np.empty(0, np.int64),) * 3
    )
    gone_rows = DeletedRows(DeleteKeys.of(w, b, r))
    stored = StoredKeys(np.full(rows, 1), np.full(rows, 0), np.arange(first, first + rows))
    run = KeyRun(1, 0, first)
    keep = stored.survivors(gone_rows, rows)
    assert run.survivors(gone_rows, rows).tolist() == keep.tolist()
    for one, other in zip(stored.of(keep), run.of(keep), strict=True):
        assert one.tolist() == other.tolist()


_KEYS = st.tuples(
    st.sampled_from([1, 2, 2**40]),
    st.sampled_from([0, P, P + 65536]),
    st.integers(0, 200) | st.sampled_from([2**33, 2**33 + 63, 2**62]),
)


@given(
    parts=st.lists(st.lists(st.tuples(_KEYS, st.booleans()), max_size=30), max_size=3),
    span=st.tuples(st.integers(0, 220), st.integers(0, 220)),
)
def test_deleted_keys_in_words_are_the_keys_of_all_parts(
    parts: list[list[tuple[tuple[int, int, int], bool]]], span: tuple[int, int]
) -> None:
    """Of events in any order; a key may come several times, once as the row's own write id's."""
    made = []
    for part in parts:
        w, b, r = (np.array([key[at] for key, _ in part], np.int64) for at in range(3))
        made.append(DeleteKeys.of(w, b, r, np.array([own for _, own in part], bool)))
    keys, every = joined(made), [event for part in parts for event in part]
    expected = sorted({key for key, _ in every})
    assert listed(keys) == expected and len(keys) == len(expected)
    assert [listed(group) for group in keys.groups()] == [
        list(group) for _, group in groupby(expected, key=lambda key: key[:2])
    ]
    assert listed(keys.of_own_rows()) == sorted({key for key, own in every if own})
    first, last = span
    within = [key for key in expected if key[:2] == (1, P) and first <= key[2] <= last]
    assert keys.within(1, P, first, last) == len(within)
    left = DeletedRows(keys).survivors_of_run(1, P, first, last)
    assert left.tolist() == [(1, P, first + at) not in expected for at in range(last)]


def listed(keys: DeleteKeys) -> list[tuple[int, int, int]]:
    return [
        key for part in keys.parts() for key in zip(*(each.tolist() for each in part), strict=True)
    ]


def test_deleted_keys_take_less_than_a_byte_for_each_row() -> None:
    """However many rows of a table were deleted, a scan holds the keys of all."""
    for step in (1, 7, 100):
        row_ids = np.arange(0, 1 << 20, step)
        one = np.ones(len(row_ids), np.int64)
        keys = DeleteKeys.of(one, one, row_ids, one > 1)
        assert keys.own is not None and len(keys) == len(row_ids)
        arrays = (keys.write_ids, keys.buckets, keys.words, keys.bits, keys.own)
        assert sum(each.nbytes for each in arrays) < 1 << 20


def test_a_process_opens_no_file_of_delete_events_that_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it was written again since; and more keys than a few are not kept."""
    opened: list[str] = []

    def opening(files: Files, source: SourceFile) -> Any:
        opened.append(source.path)
        return open_source(files, source)

    monkeypatch.setattr(module, "open_source", opening)
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        made = warehouse.create_table("db.t", "id int, p int", partitioned_by=["day int"])
        made.insert([{"id": n, "p": n % 2, "day": n % 2} for n in range(20)])
        made.delete("id < 6")
        made.update({"p": "7"}, "id % 5 = 4")
        assert sorted(made.to_arrow(["id", "p"]).column("id").to_pylist()) == [*range(6, 20)]
        assert not opened
        for path in Path(made.location).rglob("delete_delta_*/bucket_*"):
            os.utime(path)
        monkeypatch.setattr(module, "_recent", Recent(100, module.MAX_BYTES))
        assert made.to_arrow().num_rows == 14
        assert len(opened) == 4
        monkeypatch.setattr(event_files, "_MOST_KEPT", 3)
        made.delete("id > 15")
        assert made.to_arrow().num_rows == 10
        assert len(opened) == 6
