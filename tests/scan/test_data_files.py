"""Which files of a selected directory hold rows (F2, F9, F15, F20, F23)."""

from __future__ import annotations

import pytest

from acid_platform import AcidError, CorruptFile, UnsupportedLayout
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import select
from tests.notation import names, txns, write_ids


def seen(*paths: str, w: str = "9:M::", size: int = 10) -> AcidDirectory:
    """`d1/bucket_00000`, or with a size: `d1/bucket_00000=0`."""
    files = []
    for text in paths:
        path, _, own = text.partition("=")
        directory, slash, rest = path.partition("/")
        full = f"{names(directory)[0]}/{rest}" if slash else path
        files.append(FileEntry(full, int(own) if own else size))
    return select(EntityListing("wh/t", tuple(files)), write_ids(w), txns())


def only(directory: AcidDirectory) -> list[str]:
    [delta] = directory.deltas
    return [file.name for file in delta.files]


def test_F23_names_come_from_the_listing_with_or_without_attempt() -> None:
    result = seen(
        "d1/bucket_00000_0", "d1/bucket_00001", "D2/bucket_00000_1", "d1/_orc_acid_version"
    )
    assert [[file.path for file in delta.files] for delta in result.deltas] == [
        ["delta_0000001_0000001_0000/bucket_00000_0", "delta_0000001_0000001_0000/bucket_00001"],
        ["delete_delta_0000002_0000002_0000/bucket_00000_1"],
    ]
    assert [insert.directory for insert in result.inserts] == names("d1")
    assert [directory.directory for directory in result.delete_deltas] == names("D2")


def test_F20_nested_acid_directories_and_hidden_files_are_ignored() -> None:
    result = seen(
        "d1/bucket_00000",
        "d1/delta_0000001_0000001_0000/bucket_00000",
        "d1/base_x/bucket_00001",
        "d1/_SUCCESS",
        "d1/.bucket_00000.crc",
        "d1/_tmp_1/bucket_00002",
    )
    assert only(result) == ["bucket_00000"]


def test_zero_length_bucket_files_are_absent_and_reported() -> None:
    result = seen("d1/bucket_00000=0", "d1/bucket_00001", "d3/bucket_00000=0", w="1:M::")
    assert only(result) == ["bucket_00001"]
    assert result.zero_length == ("delta_0000001_0000001_0000/bucket_00000",)


def test_zero_length_originals_are_skipped() -> None:
    result = seen("000000_0=0", "000001_0")
    assert [file.path for file in result.originals] == ["000001_0"]


@pytest.mark.parametrize(
    ("paths", "error", "named"),
    [
        (["d1/bucket_00000", "d1/bucket_00000_1"], CorruptFile, "bucket_00000_1"),
        (["b1/bucket_00000_0", "b1/bucket_00000_1"], CorruptFile, "bucket_00000_0"),
        (
            ["d1/bucket_00001", "d1/bucket_00000_flush_length=16"],
            CorruptFile,
            "wh/t/delta_0000001_0000001_0000/bucket_00000_flush_length",
        ),
        (["d1/bucket_00000=0", "d1/bucket_00000_flush_length=16"], CorruptFile, "restore"),
        (["d1/bucket_00000", "d1/000000_0"], CorruptFile, "000000_0"),
        (["d1/part-00000.orc"], UnsupportedLayout, "part-00000.orc"),
        (["d1/sub/bucket_00000"], UnsupportedLayout, "sub/bucket_00000"),
        (["D1/000000_0"], CorruptFile, "delete_delta_0000001_0000001_0000/000000_0"),
        (["part-00000.orc"], UnsupportedLayout, "wh/t/part-00000.orc"),
        (["sub/part-00000.orc"], UnsupportedLayout, "wh/t/sub/part-00000.orc"),
    ],
)
def test_F2_files_whose_rows_would_be_wrong_or_missing_are_refused(
    paths: list[str], error: type[AcidError], named: str
) -> None:
    with pytest.raises(error, match=named):
        seen(*paths)


@pytest.mark.parametrize(
    "paths",
    [
        ["b3/bucket_00000", "d1/bucket_00000", "d1/bucket_00000_flush_length"],
        ["d1/bucket_00000", "d5/bucket_00000", "d5/bucket_00000_flush_length"],
    ],
)
def test_files_that_are_not_read_are_not_checked(paths: list[str]) -> None:
    assert seen(*paths, w="3:M::").zero_length == ()


def test_F15_raw_files_of_load_data() -> None:
    result = seen(
        "d4.1/000001_0", "d4.1/HIVE_UNION_SUBDIR_1/000000_0", "b2/000000_0", "D5/bucket_0"
    )
    assert [delta.raw for delta in result.deltas] == [True, False]
    assert [file.path.partition("/")[2] for file in result.deltas[0].files] == [
        "000001_0",
        "HIVE_UNION_SUBDIR_1/000000_0",
    ]
    assert result.base is not None
    assert result.base.raw


def test_F15_originals_are_in_text_order_of_their_whole_path() -> None:
    order = [
        "000000_0",
        "000000_0_copy_1",
        "000000_0_copy_10",
        "000000_0_copy_2",
        "000001_0",
        "HIVE_UNION_SUBDIR_1/000000_0",
    ]
    result = seen(*reversed(order), ".hidden/000000_0", "sub/_x/000000_0", "_done")
    assert [file.path for file in result.originals] == order


def test_foreign_files_beside_a_base_are_left_alone() -> None:
    """They are not read, and the Cleaner does not remove them."""
    result = seen("b3/bucket_00000", "000000_0", "notes.txt", "sub/000000_0")
    assert {directory.path for directory in result.obsolete} == {"000000_0", "sub/000000_0"}


def test_F3_an_empty_base_directory_hides_what_is_older() -> None:
    """Hive's TRUNCATE leaves a base that has only marker files (F3)."""
    base = EntityListing(
        "wh/t",
        (FileEntry("delta_3_3_0/bucket_0", 1),),
        ("base_0000005",),
        {"base_0000005": "truncated"},
    )
    result = select(base, write_ids("6:M::"), txns())
    assert result.base is not None
    assert result.base.files == ()
    assert [directory.path for directory in result.obsolete] == ["delta_3_3_0"]


@pytest.mark.parametrize(
    ("paths", "w", "tested"),
    [
        (["d1/bucket_0"], "3:2:2:", [False]),
        (["d1-3v12/bucket_0"], "3:M::", [False]),
        (["d1-3v12/bucket_0"], "3:M::2", [True]),
        (["d1-3v12/bucket_0"], "2:M::", [True]),
        (["b3v12/bucket_0"], "3:M::", [False]),
        (["b3v12/bucket_0"], "3:M::2", [True]),
        (["b3/bucket_0", "d4/bucket_0"], "4:2:2:", [True, False]),
        (["b3/000000_0"], "3:2:2:", [False]),
        (["D1-3v12/bucket_0", "d1-3v12/bucket_0"], "3:3:3:", [True, True]),
    ],
)
def test_S15_rows_are_tested_unless_the_whole_range_is_valid(
    paths: list[str], w: str, tested: list[bool]
) -> None:
    result = seen(*paths, w=w)
    assert [source.test_rows for source in result.sources] == tested


def test_F13_both_kinds_of_a_straddling_pair() -> None:
    """Inserted rows that the base has too are dropped; a repeated delete event is harmless."""
    result = seen("b3v10/bucket_0", "D2-5v12/bucket_0", "d2-5v12/bucket_0")
    assert [(delta.directory, delta.above) for delta in result.deltas] == [
        (names("D2-5v12")[0], -1),
        (names("d2-5v12")[0], 3),
    ]


def test_overlapping_deltas_give_each_row_once() -> None:
    result = seen("d1-5v10/bucket_0", "d3-8v12/bucket_0")
    assert [(delta.name.low, delta.above) for delta in result.deltas] == [(1, -1), (3, 5)]


def test_a_straddling_delta_that_adds_nothing_visible_is_neither_read_nor_obsolete() -> None:
    """Later snapshots need it; its rows at or below the base are in the base."""
    result = seen("b3v10/bucket_0", "d2-5v12/bucket_0", w="3:M::")
    assert (result.deltas, result.obsolete) == ((), ())
    [left] = result.invisible
    assert (left.path, left.reason) == (names("d2-5v12")[0], "adds no visible write id above 3")
