"""Listing a directory while a Cleaner removes parts of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acid_platform import CorruptFile, FolderSource, UnsupportedLayout
from acid_platform.storage.files import Files
from acid_platform.tables.adoption import survey

OLD, NEW = "base_0000001_v0000003", "base_0000004_v0000009"


def directory(root: Path) -> Path:
    for name in (OLD, NEW):
        (root / name).mkdir()
        (root / name / "bucket_00000").write_bytes(b"ORC")
        (root / name / "_orc_acid_version").write_bytes(b"2")
        (root / name / "_metadata_acid").write_text(
            '{"thisFileVersion": "0", "dataFormat": "compacted"}'
        )
    return root


@pytest.mark.parametrize("marker", ["_orc_acid_version", "_metadata_acid"])
def test_C41_directories_cleaned_during_a_listing_cause_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    """An obsolete base is removed after it was listed and before its marker is read."""
    place, read = directory(tmp_path), Files.read

    def late(self: Files, path: str) -> bytes:
        if path.endswith(f"{OLD}/{marker}"):
            shutil.rmtree(place / OLD)
        return read(self, path)

    monkeypatch.setattr(Files, "read", late)
    files, path = Files.of(str(place))
    listing = files.entity(path)
    assert not (place / OLD).exists()
    assert f"{NEW}/bucket_00000" in [file.path for file in listing.files]
    assert listing.data_formats[NEW] == "compacted"


def test_C41_the_next_version_file_stands_for_all_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, read = directory(tmp_path), Files.read
    (place / NEW / "_orc_acid_version").write_bytes(b"1")

    def late(self: Files, path: str) -> bytes:
        if OLD in path and (place / OLD).exists():
            shutil.rmtree(place / OLD)
        return read(self, path)

    monkeypatch.setattr(Files, "read", late)
    files, path = Files.of(str(place))
    with pytest.raises(UnsupportedLayout, match=NEW):
        files.entity(path)


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
@pytest.mark.parametrize("marker", ["_orc_acid_version", "_metadata_acid"])
def test_P65_a_marker_that_does_not_end_is_refused(tmp_path: Path, marker: str, kind: str) -> None:
    """The directory may be a stranger's that somebody adopts or registers."""
    path = tmp_path / "base_0000001" / marker
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(CorruptFile, match=r"may not end|has more than 16 MB"):
        Files.of(str(tmp_path))[0].entity(str(tmp_path))


def ladder(root: Path) -> Path:
    """Thirty directories, each of which has two links to the next one: a thousand million paths."""
    for level in range(30):
        (root / str(level)).mkdir()
        for name in "ab":
            (root / str(level) / name).symlink_to(root / str(level + 1))
    (root / "30").mkdir()
    return root


def circle(root: Path) -> Path:
    for name in "abc":
        (root / name).symlink_to(root)
    return root


@pytest.mark.parametrize("make", [ladder, circle])
def test_P67_a_directory_that_links_give_two_names_is_refused(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")  # a file may have more names
    files, path = Files.of(str(make(tmp_path)))
    for read in (
        lambda: [*files.below_strange(path)],
        lambda: FolderSource(path, "csv"),
        lambda: survey("db.t", path, 0),
    ):
        with pytest.raises(UnsupportedLayout, match=r"the same directory as .*; remove the link"):
            read()


def test_a_link_to_another_directory_is_listed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_bytes(b"1")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "day=1").symlink_to(tmp_path / "there")
    (tmp_path / "here" / "nowhere").symlink_to(tmp_path / "gone")
    files, path = Files.of(str(tmp_path / "here"))
    found = {info.path[len(path) + 1 :]: info.is_file for info in files.below_strange(path)}
    assert found["day=1"] is False and found["day=1/x"]
    assert not [*files.below_strange(f"{path}/none")]
