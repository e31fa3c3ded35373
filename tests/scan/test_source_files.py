"""The files that a snapshot reads: kinds, row ids by position, flush lengths (F9, F15)."""

from __future__ import annotations

import pytest

from acid_platform import AcidError, CorruptFile, NotEnoughHistory, UnsupportedLayout
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.scan.selection import select
from acid_platform.scan.source_files import (
    EntitySources,
    Footer,
    RowIdentity,
    entity_sources,
    flush_length,
    missing_footers,
    side_files,
)
from tests.notation import names, txns, write_ids

P = 536870912
ACID = Footer(9, acid=True)


def resolved(
    *paths: str,
    w: str = "9:M::",
    rows: dict[str, int] | None = None,
    lengths: dict[str, int] | None = None,
    versioned: str = "",
    insert_only: bool = False,
    asked: list[str] | None = None,
) -> EntitySources:
    """The sources of a listing; `rows` are the files without ACID columns."""
    files = tuple(FileEntry(full(path), 100) for path in paths)
    listing = EntityListing("wh/t", files, versioned=frozenset(names(versioned)))
    directory = select(listing, write_ids(w), txns(), insert_only=insert_only)
    plain = {full(path): Footer(count, acid=False) for path, count in (rows or {}).items()}
    footers: dict[str, Footer] = {}
    while missing := missing_footers(directory, footers):
        footers |= {path: plain.get(path, ACID) for path in missing}
    if asked is not None:
        asked += footers
    known = {full(path): length for path, length in (lengths or {}).items()}
    assert {path for path, _ in side_files(directory)} == set(known)
    return entity_sources(directory, footers, known)


def full(path: str) -> str:
    directory, slash, rest = path.partition("/")
    return f"{names(directory)[0]}{slash}{rest}"


def ids(found: EntitySources) -> list[tuple[str, int, int, int]]:
    return [
        (insert.path.removeprefix("wh/t/"), insert.write_id, insert.bucket, insert.first_row_id)
        for insert in found.inserts
        if insert.identity is RowIdentity.RUN
    ]


def test_F15_row_ids_of_originals_run_on_per_bucket_in_text_order() -> None:
    rows = {
        "000000_0": 2,
        "000000_0_copy_10": 1,
        "000000_0_copy_2": 5,
        "000001_0": 3,
        "HIVE_UNION_SUBDIR_1/000000_0": 4,
        "000000_0_copy_1": 3,
    }
    assert ids(resolved(*rows, rows=rows)) == [
        ("000000_0", 0, P, 0),
        ("000000_0_copy_1", 0, P, 2),
        ("000000_0_copy_10", 0, P, 5),
        ("000000_0_copy_2", 0, P, 6),
        ("000001_0", 0, P + 65536, 0),
        ("HIVE_UNION_SUBDIR_1/000000_0", 0, P, 11),
    ]


def test_F15_row_ids_of_loaded_files_start_anew_in_each_directory() -> None:
    rows = {"d4.1/000001_0": 2, "d4.1/000001_0_copy_1": 2, "b2/000000_0": 7, "d5/000001_0": 1}
    assert ids(resolved(*rows, rows=rows)) == [
        (full("b2/000000_0"), 2, P, 0),
        (full("d4.1/000001_0"), 4, P + 65536 + 1, 0),
        (full("d4.1/000001_0_copy_1"), 4, P + 65536 + 1, 2),
        (full("d5/000001_0"), 5, P + 65536, 0),
    ]


def test_loaded_files_may_be_named_like_bucket_files() -> None:
    assert ids(resolved("d4/bucket_00002", rows={"d4/bucket_00002": 3})) == [
        (full("d4/bucket_00002"), 4, P + 2 * 65536, 0)
    ]


@pytest.mark.parametrize(
    ("path", "versioned", "looked"),
    [
        ("d4/bucket_00000", "", True),
        ("d4/bucket_00000", "d4", False),
        ("b4/bucket_00000", "", True),
        ("b4v9/bucket_00000", "", False),
        ("d1-4v9/bucket_00000", "", False),
        ("delta_0000001_0000004/bucket_00000", "", False),
        ("d4/000000_0", "d4", True),
    ],
)
def test_one_footer_is_looked_at_where_files_can_lack_acid_columns(
    path: str, versioned: str, looked: bool
) -> None:
    asked: list[str] = []
    found = resolved(path, path + "1", "D9/bucket_00000", versioned=versioned, asked=asked)
    assert asked == ([full(path)] if looked else [])
    assert {insert.identity for insert in found.inserts} == {RowIdentity.STORED}
    assert [delete.directory for delete in found.deletes] == names("D9")


def test_the_bucket_number_is_known_only_where_one_statement_wrote_the_file() -> None:
    found = resolved("b3v9/bucket_00001", "d4/bucket_00002_0", "d5-6v9/bucket_00003")
    assert [(insert.low, insert.high, insert.number) for insert in found.inserts] == [
        (0, 3, None),
        (4, 4, 2),
        (5, 6, None),
    ]


def test_F9_only_committed_bytes_of_a_streaming_file_count() -> None:
    streaming = "delta_0000005_0000008"
    found = resolved(
        f"{streaming}/bucket_0",
        f"{streaming}/bucket_0_flush_length",
        f"{streaming}/bucket_1",
        f"{streaming}/bucket_1_flush_length",
        f"{streaming}/bucket_2",
        lengths={f"{streaming}/bucket_0": 60, f"{streaming}/bucket_1": 0},
    )
    assert [(insert.path.rpartition("/")[2], insert.length) for insert in found.inserts] == [
        ("bucket_0", 60),
        ("bucket_2", None),
    ]


@pytest.mark.parametrize(
    ("content", "length"),
    [
        (b"", 0),
        (b"\0" * 8, 0),
        (b"\0" * 7 + b"\3", 3),
        (b"\0" * 15 + b"\7", 7),
        (b"\0" * 6 + b"\1\0" + b"\0" * 5, 256),
    ],
)
def test_F9_the_last_complete_big_endian_value_of_a_side_file(content: bytes, length: int) -> None:
    assert flush_length(content) == length


@pytest.mark.parametrize(
    ("paths", "rows", "named"),
    [
        (["000000_0", "000001_0"], {"000000_0": 1}, "000001_0"),
        (["d4/000000_0", "d4/000001_0"], {"d4/000000_0": 1}, "delta_0000004_0000004_0000/000001_0"),
        (["d1-4v9/000000_0"], {"d1-4v9/000000_0": 1}, "LOAD DATA"),
        (["delta_0000001_0000004/000000_0"], {"delta_0000001_0000004/000000_0": 1}, "LOAD DATA"),
    ],
)
def test_kinds_are_not_mixed_and_appear_only_where_they_can(
    paths: list[str], rows: dict[str, int], named: str
) -> None:
    with pytest.raises(CorruptFile, match=named):
        resolved(*paths, rows=rows)


def test_a_file_shorter_than_its_flush_length_is_refused() -> None:
    with pytest.raises(
        CorruptFile, match="bucket_0 has 100 bytes, but its _flush_length file records 101"
    ):
        resolved("d5/bucket_0", "d5/bucket_0_flush_length", lengths={"d5/bucket_0": 101})


def test_F17_insert_only_files_of_any_name_and_depth_without_row_ids() -> None:
    asked: list[str] = []
    found = resolved(
        "d4/000000_0",
        "d4/HIVE_UNION_SUBDIR_1/part-0.parquet",
        "b2/x.csv",
        "d9/_tmp/x",
        "d5-7v3/000000_0",
        insert_only=True,
        asked=asked,
    )
    assert [(insert.identity, insert.path, insert.write_id) for insert in found.inserts] == [
        (RowIdentity.NONE, f"wh/t/{full(path)}", write_id)
        for path, write_id in (
            ("b2/x.csv", 2),
            ("d4/000000_0", 4),
            ("d4/HIVE_UNION_SUBDIR_1/part-0.parquet", 4),
            ("d5-7v3/000000_0", 7),
        )
    ]
    assert asked == []


def test_F17_insert_only_originals_may_have_any_name() -> None:
    found = resolved("part-0.csv", "d1/000000_0", insert_only=True)
    assert [insert.path for insert in found.inserts] == [
        "wh/t/part-0.csv",
        f"wh/t/{full('d1/000000_0')}",
    ]


@pytest.mark.parametrize(
    ("paths", "w", "error"),
    [
        (["d1-3v9/000000_0"], "3:2:2:", NotEnoughHistory),
        (["d1-3v9/000000_0"], "2:M::", NotEnoughHistory),
        (["D3/bucket_0"], "3:M::", UnsupportedLayout),
        (["b3v8/000000_0", "d2-5v9/000000_0"], "5:M::", CorruptFile),
    ],
)
def test_F17_insert_only_directories_count_as_a_whole_or_not_at_all(
    paths: list[str], w: str, error: type[AcidError]
) -> None:
    with pytest.raises(error, match="wh/t/"):
        resolved(*paths, w=w, insert_only=True)


def test_F17_insert_only_aborted_ids_within_a_compacted_delta_do_not_matter() -> None:
    assert len(resolved("d1-3v9/000000_0", w="3:M::2", insert_only=True).inserts) == 1


def test_F17_insert_only_an_open_id_above_a_delta_hides_only_its_own() -> None:
    found = resolved("d1/000000_0", "d3/000000_0", w="3:3:3:", insert_only=True)
    assert [insert.path for insert in found.inserts] == [f"wh/t/{full('d1/000000_0')}"]
