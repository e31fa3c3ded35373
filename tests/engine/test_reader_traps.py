"""Traps for readers of ACID tables: each has caught Hive, Trino, Impala, Spark or StarRocks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from acid_platform.formats.orc import OrcFile, open_orc
from acid_platform.scan import decode
from acid_platform.scan.selection import select
from acid_platform.storage.durability import publish
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidTxnList
from tests.acid_files import B1, B2, AcidTable, P, read_keys
from tests.notation import names, txns, write_ids
from tests.readers import all_readers as all_readers

TRUNCATED = b'{"thisFileVersion":"0","dataFormat":"truncated"}'
ACID = "operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint"


Make = Callable[[AcidTable], object]
ABC = [(1, P, 0, "A"), (1, P, 1, "B"), (1, P, 2, "C")]
BOTH = [(1, P, 0, "A"), (2, P, 0, "B")]
SHORT = [(1, B2, 0, "short")]
WIDE = [(2, P + (10 << 16), 0, "wide")]
# fmt: off
TRAPS: dict[str, tuple[Make, dict[str, list[str]]]] = {
    "01 deletes match on all three parts of the key": (
        lambda t: t.inserts("d1", [(1, P, 0, "A")]).inserts("d1/bucket_00001", [(1, B1, 0, "B")])
        .inserts("d1.1", [(1, P + 1, 0, "C")]).deletes("D2", [(1, P, 0)], 2),
        {"": ["B", "C"]}),
    "02 names of delete files are listed, not derived": (
        lambda t: t.inserts("d1/bucket_00000_0", ABC).deletes("D2/bucket_00000_7", [(1, P, 0)], 2)
        .deletes("D3/bucket_00000", [(1, P, 1)], 3),
        {"": ["C"], "2:M::": ["B", "C"]}),
    "02 files without an attempt, delete files with one": (
        lambda t: t.inserts("d1", ABC).deletes("D2/bucket_00000_0", [(1, P, 0)], 2),
        {"": ["B", "C"]}),
    "03 names of delete directories are listed, not derived": (
        lambda t: t.inserts("d1-2v7", BOTH)
        .deletes("delete_delta_0000001_0000002_v0000007/bucket_00000", [(1, P, 0)], 2),
        {"": ["B"]}),
    **{
        f"03 a compacted {name} has no statement id": (
            lambda t, name=name: t.inserts("d1", ABC)
            .deletes(f"{name}/bucket_00000", [(1, P, 0), (1, P, 2)], [2, 3]),
            {"3:M::": ["B"], "3:M::3": ["B", "C"]})
        for name in ("delete_delta_0000002_0000003", "delete_delta_2_3")
    },
    "06 delete files may be unsorted and of several statements": (
        lambda t: t.inserts("d1", [(1, P, 1_500_000 + i, f"{i}") for i in range(5)])
        .deletes("D2", [(1, P, 1_500_004), (1, P, 1_500_000)], 2)
        .deletes("D2.1", [(1, P, 1_500_002)], 2),
        {"": ["1", "3"]}),
    **{
        f"09 rows of {base} can be deleted and updated": (
            lambda t, base=base: t.inserts(base, ABC).deletes("D2", [(1, P, 0), (1, P, 1)], 2)
            .inserts("d2", [(2, P, 0, "BB")]),
            {"": ["BB", "C"]})
        for base in ("b1", "b1v9")
    },
    "10 an overwrite counts when it is committed": (
        lambda t: t.inserts("d3", [(3, P, 0, "old")]).inserts("b5", [(5, P, 0, "new")]),
        {"5:5:5:": ["old"], "5:M::5": ["old"], "5:M::": ["new"]}),
    "11 open overwrites are not read, and older open ids of others do not matter": (
        lambda t: t.inserts("d3", [(3, P, 0, "three")]).inserts("b5", [(5, P, 0, "five")])
        .inserts("d6", [(6, P, 0, "six")]),
        {"6:5:5:": ["six", "three"], "6:4:4:": ["five", "six"]}),
    **{
        f"12 of the compactions {first} and {second} of one range one is read": (
            lambda t, first=first, second=second: t.inserts(first, BOTH).inserts(second, BOTH),
            {"": ["A", "B"], "x=11 open": ["A", "B"], "x=10 aborted": ["A", "B"]})
        for first, second in (("d1-2v10", "d1-2v11"), ("d1-2v11", "d1-2v10"), ("b2v10", "b2v11"))
    },
    "12 of two compactions with deletes one pair is read": (
        lambda t: t.inserts("d1-2v10", BOTH).deletes("D1-2v10", [(1, P, 0)], 2)
        .inserts("d1-2v11", BOTH).deletes("D1-2v11", [(1, P, 0)], 2),
        {"": ["B"]}),
    "14 a truncate is a base, and an unusable overwrite no missing history": (
        lambda t: t.inserts("d3", [(3, P, 0, "three")])
        .marker("b5", "_metadata_acid", TRUNCATED).marker("b5"),
        {"6:M::": [], "4:M::": ["three"]}),
    "15 the visibility of compactions is looked up": (  # that output is half-written
        lambda t: t.inserts("d1", [BOTH[0]]).inserts("d2", [BOTH[1]]).inserts("d1-2v20", [BOTH[0]]),
        {"x=20 open": ["A", "B"], "x=20 aborted": ["A", "B"]}),
    "16 names of every width, with statement and visibility": (
        lambda t: t.inserts("delta_1_1_3_v7/bucket_2", SHORT)
        .inserts("delta_00000000002_00000000002/bucket_00010_12", WIDE)
        .inserts("delta_10000000_10000000_0000/bucket_00000", [(10_000_000, P, 0, "large")])
        .inserts("delta_9999999_9999999_0000/bucket_00000", [(9_999_999, P, 0, "last")]),
        {"10000000:M::": ["large", "last", "short", "wide"],
         "9999999:M::": ["last", "short", "wide"]}),
}
# fmt: on
"""What makes the table, and by write ids, or by transactions (`x=`), the values that are read."""


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_known(tmp_path: Path, trap: str) -> None:
    make, expected = TRAPS[trap]
    table = AcidTable(tmp_path)
    make(table)
    for lists, values in expected.items():
        read = table.values(x=lists[2:]) if lists[:2] == "x=" else table.values(lists or "99:M::")
        assert read == values, lists
    if trap.startswith(("02", "12 of two")):
        table.compact("major", "3:M::")
        assert table.values("3:M::") == expected[""]


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
    assert open_orc(*Files.of(str(table.file("d1/000000_0")))).nstripes > 1
    table.raw("d1/000000_0_copy_1", [-1, -2])
    assert table.ids() == [(1, P, i) for i in range(20_002)]
    table.deletes("D2", [(1, P, 3)], current=2)
    assert len(table.values()) == 20_001
    before = table.ids("2:M::")
    table.compact("major", "2:M::")
    assert table.ids("2:M::") == before


def test_trap_07_nested_deltas_are_neither_read_nor_made(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A")])
    inner = names("d1")[0]
    table.inserts(f"{inner}/{inner}/bucket_00000", [(1, P, 1, "again")])
    assert table.values() == ["A"]
    (tmp_path / "_tmp_1_x").mkdir()
    with pytest.raises(PublicationFailed, match=inner):
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


def test_trap_25_compacted_delete_files_are_in_hives_order_with_unique_keys(tmp_path: Path) -> None:
    """trinodb/trino #8268: a table updated twice was unreadable for Hive. What we read must not
    depend on the order of delete files, and what we write must have it."""
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "x")]).inserts("d2", [(2, P, 0, "y")])
    table.deletes("D3", [(2, P, 0), (1, P, 0)], current=3)  # not in key order
    table.inserts("d3", [(3, P, 0, "x1"), (3, P, 1, "y1")])
    table.deletes("D4", [(3, P, 1), (3, P, 0)], current=4)
    table.inserts("d4", [(4, P, 0, "x2"), (4, P, 1, "y2")])
    for write_id, left in ((2, ["x", "y"]), (3, ["x1", "y1"]), (4, ["x2", "y2"])):
        assert table.values(f"{write_id}:M::") == left
    table.deletes("D5/bucket_00000", [(4, B1, 0), (4, P, 1)], current=5).compact("minor", "5:M::")
    files, path = Files.of(str(table.file("D1-5v50")))
    keys = list(zip(*(key.tolist() for key in read_keys(open_orc(files, path), path)), strict=True))
    assert keys == sorted(set(keys)) and len(keys) == 6
    for write_id in (3, 4, 5):  # what the compaction has replaced
        table.file(f"D{write_id}").unlink()
    assert table.values("5:M::") == ["x2"]


def test_trap_26_rows_that_were_compacted_twice_can_still_be_deleted(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B")])
    table.inserts("d2", [(2, P, 0, "C")]).compact("major", "2:M::", txn_id=50)
    table.deletes("D3", [(1, P, 1)], current=3).compact("major", "3:M::", txn_id=51)
    table.deletes("D4", [(2, P, 0)], current=4)
    assert table.values("4:M::") == ["A"]


def test_trap_27_only_the_row_keys_of_delete_files_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apache/hive #1894 (HIVE-24670): reading them allocated all columns of a wide table."""
    table = AcidTable(tmp_path, ", ".join(f"c{i} string" for i in range(250)))
    table.inserts("d1", [(1, P, i, *["x"] * 250) for i in range(3)])
    table.deletes("D2", [(1, P, 1)], current=2).deletes("D3", [(1, P, 2)], current=3)
    asked: list[list[str]] = []
    keep = OrcFile.batches

    def watched(file: OrcFile, names: list[str], *args: Any) -> Any:
        asked.append(names)
        return keep(file, names, *args)

    monkeypatch.setattr(OrcFile, "batches", watched)
    assert table.values(columns=["c0"]) == ["x"]
    keys = [name.partition(":")[0] for name in ACID.split(",")]
    assert asked == [keys] * 2


KINDS: dict[str, Callable[[AcidTable, list[str]], object]] = {
    "base": lambda t, v: t.inserts("b1v9", [(1, P, i, x) for i, x in enumerate(v)], **STRIPES),
    "delta": lambda t, v: t.inserts("d1", [(1, P, i, x) for i, x in enumerate(v)], **STRIPES),
    "mixed": lambda t, v: t.inserts(  # half of it belongs to an aborted write id
        "d1-2v9", [(w, P, i, x) for w in (1, 2) for i, x in enumerate(v)], **STRIPES
    ),
    "original": lambda t, v: t.raw("o", v, **STRIPES),
    "loaded": lambda t, v: t.raw("d1/000000_0", v, **STRIPES),
}
STRIPES: dict[str, Any] = {"stripe_size": 1024}


@pytest.mark.more
@pytest.mark.parametrize("small", [0, 1 << 30], ids=["stripes", "files"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"where": "v >= ''"},
        {"row_id": True},
        {"where": "v <> 'x'", "row_id": True},
        {"columns": ["v"], "where": "v IS NOT NULL"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_trap_23_no_path_returns_a_deleted_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
    options: dict[str, Any],
    kind: str,
) -> None:
    """apache/hive #2747 (HIVE-25638): one code path of the vectorised reader returned them."""
    monkeypatch.setattr(decode, "SMALL_BYTES", small)
    table = AcidTable(tmp_path)
    values = [f"{i:05d}" for i in range(12_000)]
    KINDS[kind](table, values)
    gone = [0, 1, 5_000, 9_999, 11_999]
    table.deletes("D3", [(int(kind != "original"), P, i) for i in gone], current=3)
    expected = [v for i, v in enumerate(values) if i not in gone]
    assert table.values("3:M::2", **options) == expected
    if kind != "loaded" or not options:
        table.compact("major", "3:M::2")
        assert table.values("3:M::2", **options) == expected
