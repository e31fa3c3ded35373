"""What may be removed below a table's place (P49)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyarrow import fs

from acid_platform.storage.durability import Ours, remove
from acid_platform.storage.files import Files

RECORDED = frozenset(
    {
        "000000_0",
        "data/part-0.parquet",
        "delta_2_2/x.parq",
        "delta_2_2/HIVE_UNION_SUBDIR_1/000000_0",
    }
)
OURS = (
    *RECORDED,
    "base_0000001/bucket_00000",
    "base_0000001/_orc_acid_version",
    "base_0000001/_metadata_acid",
    "base_0000001_v0000007/.bucket_00000.crc",
    "delta_1_1/bucket_00000_3",
    "delta_0000001_0000001_0000/bucket_00001_flush_length",
    "delete_delta_0000002_0000002/bucket_00000",
    "delta_3_3/000000_0_copy_2",
    "delta_3_3/000001_0.gz",
    "delta_3_3/20201231_235959_00012_ab3de_0f0e0d0c-0b0a-0908-0706-050403020100",
    "_tmp_0000005_0123abcd/ready/p=1/delta_5_5/bucket_00000",
    "_tmp_0000005_0123abcd/out/_temporary/0/part-00000-x.c000.orc",
    "_statistics_of_engines/table",
)
FOREIGN = (
    ".ssh/id",
    ".git/objects/00/1",
    ".bashrc",
    "notes.txt",
    "000001_0",
    "home/base_1/bucket_00000",
    "base_1/home/bucket_00000",
    "base_1/.ssh/id",
    "base_1/notes.txt",
    "base_1/bucket_00000.bak",
    "base_1/_SUCCESS",
    "base_9/bucket_00000",
    "delta_2_9/bucket_00000",
    "delta_1_1x/bucket_00000",
    "BASE_1/bucket_00000",
    "base_1 /bucket_00000",
    "_tmp/file",
    "_tmp_x_0123abcd/file",
    ".hive-staging_hive_1/file",
    "_metastore/snapshot-0000000000000001.duckdb",
    "data/part-1.parquet",
    "_orc_acid_version",
    "bucket_00000",
)


def recorded(_partition: str) -> frozenset[str]:
    return RECORDED


@pytest.mark.parametrize("partition", ["", "p=1/", "p=1/q=%2F/"])
def test_P49_what_is_ours_is_known_by_records_and_names(tmp_path: Path, partition: str) -> None:
    ours = Ours(recorded, write_id=8)
    for name in OURS:
        assert ours.file((partition + name).split("/")), name
    for name in FOREIGN:
        assert not ours.file((partition + name).split("/")), name


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("local", [True, False])
def test_P49_everything_of_others_stays_and_nothing_else(
    tmp_path: Path, seed: int, local: bool
) -> None:
    """Trees at random; the other file systems are stood in for by one that is only listed."""
    chance = random.Random(seed)
    place, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "bucket_00000").write_text("kept")
    partitions = ("", "p=1/", "p=2/")
    mine = {part + name for part in partitions for name in OURS if chance.random() < 0.5}
    theirs = {part + name for part in partitions for name in FOREIGN if chance.random() < 0.2}
    for name in (*mine, *theirs):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
    links = []
    if local:
        for name in ("delta_4_4", "p=3", "_tmp_0000001_00000000", "delta_5_5/bucket_00000"):
            link = place / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(elsewhere / "bucket_00000" if "bucket" in name else elsewhere)
            links.append(link)
    files = Files(
        fs.LocalFileSystem() if local else fs.SubTreeFileSystem("/", fs.LocalFileSystem())
    )
    where = str(place) if local else str(place).lstrip("/")
    left = remove(files, where, "", Ours(recorded, write_id=8))
    there = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert {name for name in there if not (place / name).is_symlink()} == theirs
    assert all((place / name).read_text() == name for name in theirs)
    assert all(link.is_symlink() for link in links)
    assert (elsewhere / "bucket_00000").read_text() == "kept"
    for name in theirs:
        assert any(f"{where}/{name}".startswith(path) for path in left), (name, left)
    if not theirs and not links:
        assert not place.exists()


def test_P49_a_place_that_is_a_link_is_emptied_and_stays(tmp_path: Path) -> None:
    disk, place = tmp_path / "disk", tmp_path / "t"
    (disk / "delta_1_1").mkdir(parents=True)
    (disk / "delta_1_1" / "bucket_00000").write_text("")
    place.symlink_to(disk)
    files = Files(fs.LocalFileSystem())
    assert remove(files, str(place), "", Ours()) == (str(place),)
    assert place.is_symlink() and list(disk.iterdir()) == []
