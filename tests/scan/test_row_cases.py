"""Rows of small tables at several snapshots, by both readers and the compactor (F9 to F21)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyorc
import pytest

from acid_platform import CorruptFile, NotEnoughHistory
from acid_platform.compaction.plan import CompactionSettings, NothingToDo, plan_compaction
from acid_platform.compaction.states import CompactionKind
from acid_platform.formats.orc import open_orc
from acid_platform.layout.names import partition_name
from acid_platform.scan.selection import select
from acid_platform.storage.files import Files
from tests.acid_files import B1, AcidTable, P, read_keys
from tests.notation import names, txns, write_ids
from tests.readers import all_readers as all_readers


def third_row_updated(root: Path) -> AcidTable:
    """Three rows; a transaction replaces the third."""
    return (
        AcidTable(root)
        .inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B"), (1, P, 2, "C")])
        .deletes("D2", [(1, P, 2)], current=2)
        .inserts("d2", [(2, P, 0, "CC")])
    )


def third_row_updated_then_deleted(root: Path) -> AcidTable:
    return third_row_updated(root).deletes("D3", [(2, P, 0)], current=3)


def compacted_deletes(root: Path) -> AcidTable:
    """Deltas and delete_deltas were compacted: the wider delete_delta alone would hide d1."""
    rows = [(1, P, 0, "A"), (1, P, 1, "B"), (1, P, 2, "C")]
    return (
        AcidTable(root)
        .inserts("d1-3v12", rows)
        .deletes("D1-3v12", [(1, P, 0), (1, P, 1)], current=[2, 3])
    )


def one_row_id_in_two_buckets(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .inserts("d1", [(1, P, 0, "A")])
        .inserts("d1/bucket_00001", [(1, B1, 0, "B")])
        .deletes("D2/bucket_00001", [(1, B1, 0)], current=2)
    )


def one_row_id_in_two_statements(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .inserts("d1", [(1, P, 0, "A")])
        .inserts("d1.1", [(1, P + 1, 0, "B")])
        .deletes("D2", [(1, P + 1, 0)], current=2)
    )


def originals_with_a_delete(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .raw("o", ["a0", "a1"])
        .raw("000000_0_copy_1", ["b0", "b1", "b2"])
        .raw("000001_0", ["c0", "c1"])
        .deletes("D1", [(0, P, 3)], current=1)
    )


def originals_of_all_names(root: Path) -> AcidTable:
    table = AcidTable(root)
    for name in ("000000_0_copy_10", "000000_0_copy_2", "o", "000000_0_copy_1"):
        table.raw(name, [name])
    return table


def loaded_file(root: Path) -> AcidTable:
    return AcidTable(root).raw("d4.1/000001_0", ["x", "y"])


def four_write_ids_in_a_file(root: Path) -> AcidTable:
    return AcidTable(root).inserts(
        "delta_0000005_0000008/bucket_00000", [(w, P, 0, f"v{w}") for w in (5, 6, 7, 8)]
    )


def truncated(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .inserts("d3", [(3, P, 0, "three")])
        .inserts("d6", [(6, P, 0, "six")])
        .marker("b5", "_metadata_acid", b'{"thisFileVersion":"0","dataFormat":"truncated"}')
        .marker("b5")
    )


def deleted_by_its_own_writer(root: Path) -> AcidTable:
    return AcidTable(root).inserts("d7", [(7, P, 0, "A")]).deletes("D7.1", [(7, P, 0)], current=7)


def update_chain(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .inserts("d1", [(1, P, 0, "v1")])
        .deletes("D2", [(1, P, 0)], current=2)
        .inserts("d2", [(2, P, 0, "v2")])
        .deletes("D3", [(2, P, 0)], current=3)
        .inserts("d3", [(3, P, 0, "v3")])
    )


def attempts_in_file_names(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .inserts("d1/bucket_00000_0", [(1, P, 0, "A")])
        .deletes("D2/bucket_00000_1", [(1, P, 0)], current=2)
    )


def deletes_in_a_file_of_another_number(root: Path) -> AcidTable:
    return (
        AcidTable(root)
        .inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B")])
        .deletes("D2/bucket_00003", [(1, P, 0)], current=2)
    )


@pytest.mark.parametrize(
    ("make", "w", "expected"),
    [
        (third_row_updated, "2:M::", "A B CC"),
        (third_row_updated, "1:M::", "A B C"),
        (third_row_updated, "2:2:2:", "A B C"),
        (third_row_updated, "2:M::2", "A B C"),
        (third_row_updated_then_deleted, "3:M::", "A B"),
        (third_row_updated_then_deleted, "3:3:3:", "A B CC"),
        (compacted_deletes, "3:3:3:", "B C"),
        (compacted_deletes, "3:M::", "C"),
        (one_row_id_in_two_buckets, "2:M::", "A"),
        (one_row_id_in_two_statements, "2:M::", "A"),
        (originals_with_a_delete, "1:M::", "a0 a1 b0 b2 c0 c1"),
        (loaded_file, "4:M::", "x y"),
        (loaded_file, "3:M::", ""),
        (four_write_ids_in_a_file, "8:7:7:6", "v5 v8"),
        (truncated, "6:M::", "six"),
        (truncated, "4:M::", "three"),
        (deleted_by_its_own_writer, "7:M::", ""),
        (deleted_by_its_own_writer, "7:M::7", ""),
        (update_chain, "3:M::", "v3"),
        (update_chain, "3:M::3", "v2"),
        (update_chain, "3:M::2,3", "v1"),
        (attempts_in_file_names, "2:M::", ""),
        (deletes_in_a_file_of_another_number, "2:M::", "B"),
    ],
)
def test_F12_F16_rows_of_a_snapshot(
    tmp_path: Path, make: Callable[[Path], AcidTable], w: str, expected: str
) -> None:
    assert make(tmp_path).values(w) == expected.split()


def test_F15_identities_of_rows_in_files_without_acid_columns(tmp_path: Path) -> None:
    originals = originals_with_a_delete(tmp_path / "62")
    assert originals.ids() == [(0, P, 0), (0, P, 1), (0, P, 2), (0, P, 4), (0, B1, 0), (0, B1, 1)]
    copies = originals_of_all_names(tmp_path / "63").read(row_id=True).to_pylist()
    assert {copy["v"]: copy["row__id"]["rowid"] for copy in copies} == {
        "o": 0,
        "000000_0_copy_1": 1,
        "000000_0_copy_10": 2,
        "000000_0_copy_2": 3,
    }
    assert loaded_file(tmp_path / "64").ids() == [(4, B1 + 1, 0), (4, B1 + 1, 1)]


def test_F15_row_ids_run_on_over_the_stripes_of_an_original(tmp_path: Path) -> None:
    values = [f"{i:05d}" for i in range(30_000)]
    table = AcidTable(tmp_path).raw("o", values, stripe_size=1024).raw("000000_0_copy_1", ["last"])
    assert open_orc(*_at(table.file("o"))).nstripes > 1
    table.deletes("D1", [(0, P, 29_999), (0, P, 12_345)], current=1)
    found = table.read(row_id=True)
    ids = [row["rowid"] for row in found.column("row__id").to_pylist()]
    assert dict(zip(found.column("v").to_pylist(), ids, strict=True)) == {
        value: i for i, value in enumerate([*values, "last"]) if i not in (29_999, 12_345)
    }


def _at(path: Path) -> tuple[Files, str]:
    return Files.of(str(path))


def streaming(root: Path) -> tuple[AcidTable, list[int]]:
    """A file of two commits, the second one torn. Returns its length after each."""
    table = AcidTable(root)
    path = table.file("delta_0000001_0000002/bucket_00000")
    path.parent.mkdir(parents=True)
    lengths = []
    schema = (
        "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
        "currentTransaction:bigint,row:struct<v:string>>"
    )
    with path.open("wb") as handle, pyorc.Writer(handle, schema, batch_size=1) as writer:
        for write_id, count in ((1, 3), (2, 2)):
            for row in range(count):
                writer.write((0, write_id, P, row, write_id, (f"{write_id}.{row}",)))
            lengths.append(writer.write_intermediate_footer())
    return table, lengths


def side(table: AcidTable, content: bytes) -> None:
    path = table.file("delta_0000001_0000002/bucket_00000")
    path.with_name("bucket_00000_flush_length").write_bytes(content)


def test_F9_a_streaming_file_counts_up_to_its_side_file(tmp_path: Path) -> None:
    table, (first, second) = streaming(tmp_path)
    file = table.file("delta_0000001_0000002/bucket_00000")
    torn = file.read_bytes()[: second - 7]
    file.write_bytes(torn)
    side(table, struct.pack(">qq", 0, first))
    assert table.values() == ["1.0", "1.1", "1.2"]
    assert table.values("0:M::") == []
    side(table, struct.pack(">qq", 0, first) + b"\0\0\0")  # a torn value counts as not written
    assert table.values() == ["1.0", "1.1", "1.2"]
    for content in (b"", struct.pack(">q", 0)):
        side(table, content)
        assert table.values() == []
    file.with_name("bucket_00000_flush_length").unlink()
    with pytest.raises(CorruptFile, match="bucket_00000 does not end in an ORC postscript"):
        table.values()


def test_F9_a_closed_streaming_file_is_read_whole(tmp_path: Path) -> None:
    table, _ = streaming(tmp_path)
    assert table.values() == ["1.0", "1.1", "1.2", "2.0", "2.1"]
    assert table.values("2:M::1") == ["2.0", "2.1"]


def test_F9_compaction_takes_what_was_committed(tmp_path: Path) -> None:
    table, (first, _) = streaming(tmp_path)
    side(table, struct.pack(">qq", 0, first))
    table.inserts("d3", [(3, P, 0, "3.0")])
    table.compact("minor", "3:M::")
    directory = "delta_0000001_0000003_v0000050"
    assert table.file(f"{directory}/bucket_00000").exists()
    for name in ("delta_0000001_0000002/bucket_00000", "d3"):
        table.file(name).unlink()
    assert table.values() == ["1.0", "1.1", "1.2", "3.0"]


def test_F18_added_columns_are_null_in_older_rows_and_order_is_by_name(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, "x int, v string")
    table.inserts("b1v9", [(1, P, 0, "old")], columns="v string")
    table.inserts("d2", [(2, P, 0, "new", 7)], columns="v string, x int")
    assert sorted(table.read().to_pylist(), key=lambda row: row["v"]) == [
        {"x": 7, "v": "new"},
        {"x": None, "v": "old"},
    ]


def test_F19_a_predicate_never_filters_delete_events(tmp_path: Path) -> None:
    table = third_row_updated(tmp_path)
    assert table.values("2:M::", where="v = 'C'") == []
    assert table.values("1:M::", where="v = 'C'") == ["C"]
    assert table.values("2:M::", where="v >= 'B'") == ["B", "CC"]


def test_F4_partition_values_come_out_of_directory_names(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, partitioned_by="p string")
    for name in ("p=a%3Ab", "p=__HIVE_DEFAULT_PARTITION__", "p=a b", "p=100%25", "p=%zz"):
        table.inserts(f"{name}/d1", [(1, P, 0, name)])
    found = {row["v"]: row["p"] for row in table.read().to_pylist()}
    assert found == {
        "p=a%3Ab": "a:b",
        "p=__HIVE_DEFAULT_PARTITION__": None,
        "p=a b": "a b",
        "p=100%25": "100%",
        "p=%zz": "%zz",
    }
    assert table.values(where="p is null") == ["p=__HIVE_DEFAULT_PARTITION__"]
    assert table.values(where="p = 'a:b' or p = '100%'", columns=["p"]) == ["100%", "a:b"]
    assert partition_name({"p": "a:b"}) == "p=a%3Ab"


def events(table: AcidTable, path: str) -> list[tuple[int, ...]]:
    files, where = Files.of(str(table.file(path)))
    keys = read_keys(open_orc(files, where), where, with_current=True)
    return [tuple(map(int, key)) for key in zip(*keys, strict=True)]


def test_F21_a_minor_compaction_keeps_both_kinds_of_events(tmp_path: Path) -> None:
    table = third_row_updated(tmp_path)
    plan = table.compact("minor", "2:M::", txn_id=50)
    assert [str(name) for name in plan.outputs] == names("D1-2v50 d1-2v50")
    assert events(table, "d1-2v50") == [(1, P, 0, 1), (1, P, 1, 1), (1, P, 2, 1), (2, P, 0, 2)]
    assert events(table, "D1-2v50") == [(1, P, 2, 2)]
    for written in ("d1", "d2", "D2"):
        table.file(written).unlink()
    assert table.values("2:M::") == ["A", "B", "CC"]


def test_F21_a_major_compaction_keeps_live_rows_with_their_identity(tmp_path: Path) -> None:
    table = third_row_updated(tmp_path)
    table.compact("major", "2:M::")
    assert events(table, "b2v50") == [(1, P, 0, 1), (1, P, 1, 1), (2, P, 0, 2)]
    assert sorted(
        path.name for path in tmp_path.iterdir() if path.name.startswith("delete_")
    ) == names("D2"), "none but the input"
    assert table.values("2:M::") == ["A", "B", "CC"]


def test_F21_aborted_rows_are_left_out_and_no_delete_delta_is_made(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    for write_id in (1, 2, 3):
        table.inserts(f"d{write_id}", [(write_id, P, 0, f"v{write_id}")])
    table.compact("minor", "3:M::2")
    assert events(table, "d1-3v50") == [(1, P, 0, 1), (3, P, 0, 3)]
    assert not list(tmp_path.glob("delete_delta*"))
    seen = select(Files.of("")[0].entity(str(tmp_path)), write_ids("3:M::2"), txns())
    assert [directory.path for directory in seen.aborted] == names("d2")


def test_F16_an_aborted_delete_of_a_valid_row_is_dropped(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1-2v9", [(1, P, 0, "A"), (1, P, 1, "B")])
    table.deletes("D1-2v9", [(1, P, 0), (1, P, 1)], current=[2, 1]).inserts("d3", [(3, P, 0, "C")])
    assert table.values("3:M::2") == ["A", "C"]
    table.compact("minor", "3:M::2")
    assert events(table, "D1-3v50") == [(1, P, 1, 1)]
    assert table.values("3:M::2") == ["A", "C"]


def test_S18_a_reader_that_misses_the_compaction_reads_the_old_directories(tmp_path: Path) -> None:
    table = third_row_updated(tmp_path)
    table.compact("major", "2:M::", txn_id=50)
    bad = table.file("b2v50")
    bad.write_bytes(b"never opened")
    assert table.values("2:M::", "50 open") == ["A", "B", "CC"]
    with pytest.raises(CorruptFile):
        table.values("2:M::")


def test_P14_identities_are_per_partition(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, partitioned_by="p int")
    for partition in (1, 2):
        table.inserts(f"p={partition}/d1", [(1, P, 0, f"in {partition}")])
    table.deletes("p=1/D2", [(1, P, 0)], current=2)
    assert table.read().to_pylist() == [{"v": "in 2", "p": 2}]


def test_F15_a_major_compaction_makes_the_ids_of_originals_permanent(tmp_path: Path) -> None:
    table = originals_with_a_delete(tmp_path)
    before = table.read(row_id=True).sort_by("v")
    table.compact("major", "1:M::")
    for path in tmp_path.glob("00000?_0*"):
        path.unlink()
    assert table.read(row_id=True).sort_by("v").to_pylist() == before.to_pylist()
    with pytest.raises(NotEnoughHistory):
        table.read("0:M::")


def test_C27_a_minor_compaction_of_loaded_files_is_refused(tmp_path: Path) -> None:
    table = loaded_file(tmp_path).inserts("d5", [(5, P, 0, "z")])
    lists = write_ids("5:M::").for_compactor()
    seen = select(table.layout.files.entity(str(tmp_path)), lists, txns())
    plan = plan_compaction(seen, CompactionKind.MINOR, lists, 50, CompactionSettings())
    assert isinstance(plan, NothingToDo) and "request a major" in plan.reason
    table.compact("major", "5:M::")
    assert events(table, "b5v50/bucket_00001") == [(4, B1 + 1, 0, 4), (4, B1 + 1, 1, 4)]
    assert table.values("5:M::") == ["x", "y", "z"]


@pytest.mark.parametrize("values", [["A", "B"], []])
def test_F9_flush_length_of_delete_files(tmp_path: Path, values: list[Any]) -> None:
    """Hive's streaming mutation writes deletes the same way."""
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B")])
    table.deletes("D2", [(1, P, 0), (1, P, 1)], current=2)
    size = table.file("D2").stat().st_size
    with table.file("D2").open("ab") as handle:
        handle.write(b"not committed")
    flushed = 0 if values else size
    table.file("D2/bucket_00000_flush_length").write_bytes(struct.pack(">q", flushed))
    assert table.values() == values


def test_F10_F15_originals_are_numbered_by_the_codec_of_their_delete_events(
    tmp_path: Path,
) -> None:
    """Hive 2 wrote the bare bucket number; Hive 3 the property."""
    old = AcidTable(tmp_path / "old").raw("o", ["a", "b"]).raw("000001_0", ["c", "d"])
    assert old.ids() == [(0, P, 0), (0, P, 1), (0, B1, 0), (0, B1, 1)]
    old.deletes("D1", [(0, 0, 1)], current=1).deletes("D2/bucket_00001", [(0, 1, 0)], current=2)
    assert old.values("2:M::") == ["a", "d"]
    assert old.ids("2:M::") == [(0, 0, 0), (0, 1, 1)]
    old.deletes("D3", [(0, P, 0)], current=3)
    with pytest.raises(CorruptFile, match="two different bucket codecs"):
        old.values("3:M::")
