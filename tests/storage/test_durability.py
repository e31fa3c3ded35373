"""What a call published, created or removed is on the disk when the call returns (P27)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs

from acid_platform import PublicationFailed, WarehouseNotWritable
from acid_platform.base import local_files
from acid_platform.storage.durability import make_root, publish, sync, sync_removals
from acid_platform.storage.files import Files

FILES = Files.of("/")[0]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths in the order in which they were synced."""
    paths: list[str] = []
    real = local_files.sync_path

    def sync_path(path: str | os.PathLike[str]) -> None:
        real(path)
        paths.append(os.fspath(path))

    monkeypatch.setattr(local_files, "sync_path", sync_path)
    return paths


def staged(root: Path, *places: str) -> list[tuple[str, str]]:
    for place in places:
        where = root / "_tmp_1" / place
        where.mkdir(parents=True)
        (where / "bucket_00000").write_bytes(b"rows")
    return [(f"{root}/_tmp_1/{place}", f"{root}/{place}") for place in places]


def test_P27_files_then_their_directory_then_the_names_above(
    tmp_path: Path, synced: list[str]
) -> None:
    root = tmp_path / "t"
    publish(FILES, str(root), staged(root, "a=1/b=2/delta_1", "a=1/b=3/delta_1"))
    below = [path for path in synced if "_tmp_" in path]
    assert {*below} == {f"{root}/_tmp_1/a=1/b={b}/delta_1/bucket_00000" for b in (2, 3)}
    # Existing directories are synced too: their creator may not have synced them yet.
    assert {*synced[len(below) :]} == {
        str(root),
        f"{root}/a=1",
        f"{root}/a=1/b=2",
        f"{root}/a=1/b=3",
        f"{root}/a=1/b=2/delta_1",
        f"{root}/a=1/b=3/delta_1",
    }
    assert len(synced) == len({*synced}) == 8
    assert (root / "a=1/b=3/delta_1/bucket_00000").read_bytes() == b"rows"


def test_P27_a_missing_table_directory_is_made_with_its_name(
    tmp_path: Path, synced: list[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    [(source, _)] = staged(elsewhere, "delta_1")
    publish(FILES, f"{tmp_path}/db/t", [(source, f"{tmp_path}/db/t/delta_1")])
    assert {f"{tmp_path}/db/t", f"{tmp_path}/db", str(tmp_path)} <= {*synced}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("all_or_none", [True, False])
def test_P27_a_sync_that_fails_fails_the_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, all_or_none: bool
) -> None:
    moves = staged(tmp_path, "delta_1", "delta_2")
    real = local_files.sync_path

    def failing(path: str) -> None:
        if (path == str(tmp_path)) == (when == "after"):
            raise OSError(5, "Input/output error", path)
        real(path)

    monkeypatch.setattr(local_files, "sync_path", failing)
    with pytest.raises(PublicationFailed, match=r"Input/output error.*nothing was committed"):
        publish(FILES, str(tmp_path), moves, all_or_none=all_or_none)
    left = {entry.name for entry in tmp_path.iterdir()}
    renamed = when == "after" and not all_or_none
    assert left == {"_tmp_1", *(("delta_1", "delta_2") if renamed else ())}


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 40])
def test_P27_each_path_is_synced_once_even_if_one_fails(
    tmp_path: Path, synced: list[str], count: int
) -> None:
    paths = [f"{tmp_path}/{number}" for number in range(count)]
    for path in paths[1:]:
        Path(path).write_bytes(b"rows")
    if paths:
        with pytest.raises(PublicationFailed, match=r"0 can't be synced"):
            sync(FILES, [*paths, *paths])
    else:
        sync(FILES, paths)
    assert sorted(synced) == sorted(paths[1:])


def test_P27_F20_a_directory_is_never_replaced(tmp_path: Path) -> None:
    moves = staged(tmp_path, "delta_1", "delta_2")
    (tmp_path / "delta_2").mkdir()
    with pytest.raises(PublicationFailed, match="delta_2 already exists"):
        publish(FILES, str(tmp_path), moves, all_or_none=True)
    assert {path.name for path in tmp_path.iterdir()} == {"_tmp_1", "delta_2"}


def test_P27_removals_and_new_roots_are_synced_in_an_existing_parent(
    tmp_path: Path, synced: list[str]
) -> None:
    sync_removals(FILES, [f"{tmp_path}/gone/delta_1", f"{tmp_path}/gone/delta_2"])
    assert synced == [str(tmp_path)]
    synced.clear()
    make_root(FILES, f"{tmp_path}/a/b/c")
    assert {*synced} == {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"}
    synced.clear()
    # Its creator may have been killed before it synced the directory.
    make_root(FILES, f"{tmp_path}/a/b/c")
    assert {*synced} == {f"{tmp_path}/a/b", f"{tmp_path}/a"}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WarehouseNotWritable, match="can't create"):
        make_root(FILES, f"{tmp_path}/file/t")


def test_P27_other_stores_are_durable_by_their_own_answer(synced: list[str]) -> None:
    store = Files(fs._MockFileSystem(), "s3")
    store.make_directory("w/_tmp_1/delta_1")
    store.write("w/_tmp_1/delta_1/bucket_00000", b"rows")
    publish(store, "w", [("w/_tmp_1/delta_1", "w/delta_1")])
    sync(store, ["w/delta_1"])
    sync_removals(store, ["w/delta_1"])
    assert synced == [] and store.read("w/delta_1/bucket_00000") == b"rows"
