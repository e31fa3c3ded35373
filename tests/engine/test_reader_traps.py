"""Traps for readers of ACID tables: each has caught Hive, Trino, Impala, Spark or StarRocks."""

from __future__ import annotations

import struct
from pathlib import Path

import pyorc
import pytest

from acid_platform import (
    AcidError,
    CompactionFailed,
    CorruptFile,
    NotEnoughHistory,
    PublicationFailed,
    SnapshotExpired,
    UnsupportedLayout,
)
from acid_platform.compaction.plan import CompactionSettings, NothingToDo, plan_compaction
from acid_platform.compaction.states import CompactionKind
from acid_platform.formats.orc import open_orc
from acid_platform.scan.selection import select
from acid_platform.storage.durability import publish
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidTxnList
from tests.acid_files import B1, B2, AcidTable, P, read_keys
from tests.notation import names, txns, write_ids
from tests.readers import all_readers as all_readers

TRUNCATED = b'{"thisFileVersion":"0","dataFormat":"truncated"}'
ACID = "operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint"


def test_trap_01_deletes_match_on_all_three_parts_of_the_key(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")])
    table.inserts("d1/bucket_00001", [(1, B1, 0, "B")]).inserts("d1.1", [(1, P + 1, 0, "C")])
    table.deletes("D2", [(1, P, 0)], current=2)
    assert table.values() == ["B", "C"]


def test_trap_02_names_of_delete_files_are_listed_not_derived(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1/bucket_00000_0", [(1, P, 0, "A"), (1, P, 1, "B")])
    table.deletes("D2/bucket_00000_1", [(1, P, 0)], current=2)
    assert table.values() == ["B"]


def test_trap_03_directory_names_of_deletes_are_listed_not_derived(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1-2v7", [(1, P, 0, "A"), (2, P, 0, "B")])
    table.deletes("delete_delta_0000001_0000002_v0000007/bucket_00000", [(1, P, 0)], current=2)
    assert table.values() == ["B"]


@pytest.mark.parametrize("gone", ["d1", "D2"])
def test_trap_04_a_listed_file_that_is_missing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")]).marker("d1")
    table.deletes("D2", [(1, P, 0)], current=2)
    listing = table.layout.files.entity(str(tmp_path))
    monkeypatch.setattr(Files, "entity", lambda *_: listing)
    table.file(gone).unlink()
    with pytest.raises(AcidError, match=f"{names(gone)[0]}/bucket_00000 .*is gone") as raised:
        table.values()
    assert isinstance(raised.value, CorruptFile | SnapshotExpired)


def test_trap_05_row_ids_of_loaded_files_never_begin_anew(tmp_path: Path) -> None:
    """P15 is the rule for writers; here the reader counts the ids."""
    table = AcidTable(tmp_path, "x int").raw("d1/000000_0", list(range(20_000)), stripe_size=1024)
    table.raw("d1/000000_0_copy_1", [-1, -2])
    assert table.ids() == [(1, P, i) for i in range(20_002)]
    table.deletes("D2", [(1, P, 3)], current=2)
    assert len(table.values()) == 20_001


def test_trap_06_delete_files_may_be_unsorted_and_of_several_statements(tmp_path: Path) -> None:
    rows = [(1, P, 1_500_000 + i, f"{i}") for i in range(5)]
    table = AcidTable(tmp_path).inserts("d1", rows)
    table.deletes("D2", [(1, P, 1_500_004), (1, P, 1_500_000)], current=2)
    table.deletes("D2.1", [(1, P, 1_500_002)], current=2)
    assert table.values() == ["1", "3"]


def test_trap_07_nested_deltas_are_neither_read_nor_made(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")])
    inner = names("d1")[0]
    table.inserts(f"{inner}/{inner}/bucket_00000", [(1, P, 1, "again")])
    assert table.values() == ["A"]
    (tmp_path / "_tmp_1_x").mkdir()
    with pytest.raises(PublicationFailed):
        publish(
            table.layout.files, str(tmp_path), [(str(tmp_path / "_tmp_1_x"), str(tmp_path / inner))]
        )
    assert sorted(path.name for path in (tmp_path / inner).iterdir()) == ["bucket_00000", inner]


def test_trap_08_files_without_a_row_index_are_read(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    for path, events in (
        ("d1-2v9", [(0, 1, P, i, 1, (f"{i}",)) for i in range(3)]),
        ("D1-2v9", [(2, 1, P, 1, 2, None)]),
    ):
        file = table.file(path)
        file.parent.mkdir()
        with (
            file.open("wb") as handle,
            pyorc.Writer(
                handle, f"struct<{ACID},row:struct<v:string>>", row_index_stride=0
            ) as writer,
        ):
            writer.writerows(events)
        assert open_orc(*Files.of(str(file))).row_index_stride == 0
    assert table.values() == ["0", "2"]
    assert table.values(where="v = '2'") == ["2"]


def test_trap_09_rows_of_a_base_can_be_deleted(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("b1v5", [(1, P, 0, "A"), (1, P, 1, "B")])
    table.deletes("D2", [(1, P, 0)], current=2)
    assert table.values() == ["B"]


@pytest.mark.parametrize(
    ("w", "expected"), [("5:5:5:", ["old"]), ("5:M::5", ["old"]), ("5:M::", ["new"])]
)
def test_trap_10_an_overwrite_counts_when_it_is_committed(
    tmp_path: Path, w: str, expected: list[str]
) -> None:
    table = AcidTable(tmp_path).inserts("d3", [(3, P, 0, "old")]).inserts("b5", [(5, P, 0, "new")])
    assert table.values(w) == expected


@pytest.mark.parametrize(
    ("w", "expected"),
    [
        ("6:5:5:", ["three", "six"]),  # open itself, and the lowest open one
        ("6:4:4:", ["five", "six"]),  # an older open id of another partition does not matter
    ],
)
def test_trap_11_open_overwrites_are_not_read_and_older_open_ids_do_not_matter(
    tmp_path: Path, w: str, expected: list[str]
) -> None:
    table = AcidTable(tmp_path).inserts("d3", [(3, P, 0, "three")])
    table.inserts("b5", [(5, P, 0, "five")]).inserts("d6", [(6, P, 0, "six")])
    assert sorted(table.values(w)) == sorted(expected)


def test_trap_12_of_two_compactions_of_one_range_one_is_read(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    for attempt in (7, 8):
        table.inserts(f"d1-2v{attempt}", [(1, P, 0, "A")])
        table.deletes(f"D1-2v{attempt}", [(9, P, 9)], current=2)
    assert table.values() == ["A"]


def test_trap_13_a_compaction_does_not_see_its_own_output(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")]).inserts("d2", [(2, P, 0, "B")])
    table.inserts("b2v50", [(1, P, 0, "A")])  # a half-made output of compaction 50
    listing = table.layout.files.entity(str(tmp_path))
    lists = write_ids("2:M::").for_compactor()
    mine_open = select(listing, lists, ValidTxnList.of(60, open=[50]))
    assert [source.directory for source in mine_open.sources] == names("d1 d2")
    with pytest.raises(CompactionFailed, match="hides its inputs"):
        plan_compaction(
            select(listing, lists, txns()), CompactionKind.MAJOR, lists, 50, CompactionSettings()
        )


def test_trap_14_truncate_is_a_base_and_an_unusable_overwrite_no_missing_history(
    tmp_path: Path,
) -> None:
    table = AcidTable(tmp_path).inserts("d3", [(3, P, 0, "three")])
    table.marker("b5", "_metadata_acid", TRUNCATED).marker("b5")
    assert table.values("6:M::") == []
    assert table.values("4:M::") == ["three"], "the base is ignored, not missing history"


def test_trap_15_the_visibility_of_compactions_is_looked_up(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")]).inserts("d2", [(2, P, 0, "B")])
    table.inserts("d1-2v20", [(1, P, 0, "A")])  # half-written
    assert table.values(x="20 open") == ["A", "B"]
    assert table.values(x="20 aborted") == ["A", "B"]


def test_trap_16_names_of_every_width_with_statement_and_visibility(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    table.inserts("delta_1_1_3_v7/bucket_2", [(1, B2, 0, "short")])
    table.inserts("delta_00000000002_00000000002/bucket_00010_12", [(2, P + (10 << 16), 0, "wide")])
    table.inserts("delta_10000000_10000000_0000/bucket_00000", [(10_000_000, P, 0, "large")])
    table.inserts("delta_9999999_9999999_0000/bucket_00000", [(9_999_999, P, 0, "last")])
    assert table.values("10000000:M::") == ["large", "last", "short", "wide"]
    assert table.values("9999999:M::") == ["last", "short", "wide"]


def test_trap_17_the_side_file_tells_the_length(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")])
    size = table.file("d1").stat().st_size
    with table.file("d1").open("ab") as handle:
        handle.write(b"rows that were not committed")
    with pytest.raises(CorruptFile):
        table.values()
    table.file("d1/bucket_00000_flush_length").write_bytes(struct.pack(">q", size))
    assert table.values() == ["A"]


def test_trap_18_a_streaming_delta_with_an_open_id_is_no_input(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")]).inserts("d2", [(2, P, 0, "B")])
    table.inserts("delta_0000003_0000005/bucket_00000", [(3, P, 0, "C")])  # 4 is still open
    lists = write_ids("5:4:4:").for_compactor()
    seen = select(table.layout.files.entity(str(tmp_path)), lists, txns())
    plan = plan_compaction(seen, CompactionKind.MINOR, lists, 50, CompactionSettings())
    assert not isinstance(plan, NothingToDo)
    delta = plan.output_delta
    assert delta is not None
    assert (delta.low, delta.high) == (1, 2), "no id of the streaming delta is covered"
    assert [directory.path for directory in (*seen.obsolete, *seen.aborted)] == []


@pytest.mark.parametrize(
    "columns",
    [
        "a int, b int, c int, d int, e int, f int, g int",  # more than six are no ACID file
        "operation int, x int",
    ],
)
def test_trap_19_acid_files_are_known_by_their_six_columns(tmp_path: Path, columns: str) -> None:
    table = AcidTable(tmp_path, columns)
    values = tuple(range(len(columns.split(","))))
    table.raw("o", [values]).raw("d1/000000_0", [values])
    assert [tuple(row.values()) for row in table.read().to_pylist()] == [values, values]


def test_trap_19_lower_case_names_without_metadata_are_acid_too(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    file = table.file("d1")
    file.parent.mkdir()
    with (
        file.open("wb") as handle,
        pyorc.Writer(handle, f"struct<{ACID.lower()},row:struct<V:string>>") as writer,
    ):
        writer.write((0, 1, P, 0, 1, ("A",)))
    assert table.values() == ["A"]
    assert table.ids() == [(1, P, 0)]


def test_trap_20_originals_and_loaded_files_are_addressed_and_compacted(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).raw("o", ["A", "B"]).raw("d1/000000_0", ["C", "D"])
    table.deletes("D2", [(0, P, 1), (1, P, 0)], current=2)
    assert table.values() == ["A", "D"]
    lists = write_ids("2:M::").for_compactor()
    seen = select(table.layout.files.entity(str(tmp_path)), lists, txns())
    assert isinstance(
        plan_compaction(seen, CompactionKind.MINOR, lists, 50, CompactionSettings()), NothingToDo
    )
    table.compact("major", "2:M::")
    assert table.values("2:M::") == ["A", "D"]
    assert table.ids("2:M::") == [(0, P, 0), (1, P, 1)]


def test_trap_21_a_minor_compaction_covers_its_inputs_and_no_more(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("b3v9", [(3, P, 0, "base")])
    table.inserts("d5", [(5, P, 0, "A")]).inserts("d5/bucket_00001", [(5, B1, 0, "B")])
    table.inserts("d7", [(7, P, 0, "C")])
    plan = table.compact("minor", "9:M::")
    delta = plan.output_delta
    assert delta is not None
    assert (delta.low, delta.high) == (5, 7)
    for number, prop in ((0, P), (1, B1)):
        files, path = Files.of(str(table.file(f"d5-7v50/bucket_0000{number}")))
        assert set(read_keys(open_orc(files, path), path)[1].tolist()) == {prop}
    assert table.values() == ["A", "B", "C", "base"]


def test_trap_22_a_listing_that_raced_with_the_cleaner_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")]).inserts("d2", [(2, P, 0, "B")])
    before = table.layout.files.entity(str(tmp_path))
    table.compact("major", "2:M::")
    for name in ("d1", "d2"):
        table.file(name).unlink()
    assert table.values("2:M::") == ["A", "B"]
    with monkeypatch.context() as patch:
        patch.setattr(Files, "entity", lambda *_: before)
        with pytest.raises(CorruptFile, match="was listed but is gone"):
            table.values("2:M::")
    with pytest.raises(NotEnoughHistory):
        table.values("1:M::")


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B")]),
        lambda t: t.inserts("b1v9", [(1, P, 0, "A"), (1, P, 1, "B")]),
        lambda t: t.raw("d1/000000_0", ["A", "B"]),
    ],
)
@pytest.mark.parametrize("where", [None, "v = 'A'", "v <> 'A'"])
def test_trap_23_every_path_drops_deleted_rows(
    tmp_path: Path, make: object, where: str | None
) -> None:
    table = make(AcidTable(tmp_path))  # type: ignore[operator]
    table.deletes("D2", [(1, P, 0)], current=2)
    assert table.values(where=where) == ([] if where == "v = 'A'" else ["B"])


def test_trap_24_copies_are_in_text_order_and_counted_per_bucket(tmp_path: Path) -> None:
    table = AcidTable(tmp_path)
    for name in ("000000_0_copy_10", "000000_0_copy_2", "000001_0", "000000_0"):
        table.raw(name, [name])
    found = {
        row["v"]: tuple(row["row__id"].values()) for row in table.read(row_id=True).to_pylist()
    }
    assert found == {
        "000000_0": (0, P, 0),
        "000000_0_copy_10": (0, P, 1),
        "000000_0_copy_2": (0, P, 2),
        "000001_0": (0, B1, 0),
    }


@pytest.mark.parametrize(
    ("make", "operation"),
    [
        (lambda t: t.inserts("d1", [(1, P, 0, "A")], operation=1), 1),
        (lambda t: t.inserts("d1", [(1, 0, 0, "A")], operation=2), 2),
        (lambda t: t.inserts("d1", [(1, P, 0, "A")]).deletes("D2", [(1, P, 0)], 2, operation=0), 0),
        (lambda t: t.inserts("d1", [(1, P, 0, "A")]).deletes("D2", [(1, P, 0)], 2, operation=1), 1),
    ],
)
def test_F22_events_of_acid_version_1_are_refused(
    tmp_path: Path, make: object, operation: int
) -> None:
    table = make(AcidTable(tmp_path))  # type: ignore[operator]
    with pytest.raises(UnsupportedLayout, match=f"operation {operation} .* ACID version 1"):
        table.values()
