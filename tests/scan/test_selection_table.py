"""The selection of directories (F12), case by case. The words are those of tests/notation.py."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from acid_platform import MalformedName, NotEnoughHistory
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import select
from acid_platform.transactions import ValidTxnList
from tests.notation import listing, names, txns, write_ids


@dataclass(frozen=True)
class Case:
    """A listing and two lists, and the expected base, deltas in order, and removable paths."""

    number: str
    found: str
    w: str
    x: str = ""
    base: str = ""
    selected: str = ""
    obsolete: str = ""
    aborted: str = ""
    originals: str = ""
    above: str = ""
    """`directory=write id` for the deltas whose lower rows are dropped."""
    compactor: bool = False


TWO_MINORS = "d1-3v100 d4-5v101 d1-5v102 d6-7v123"
STRADDLED = (
    "base_50 delta_40_60 delta_052_55 delta_058_58 delta_0060_60_{1,4,7} delta_00061_61_0"
    " delta_000062_62_{0,3} delta_0000063_63_0"
)
HIVES_DELETES = (
    "base_5 base_10 base_49 delta_025_025 delta_029_029 delete_delta_029_029"
    " {,delete_}delta_025_030 {,delete_}delta_050_105 delete_delta_110_110"
)

CASES = [
    Case("1", "d1", "1:M::", selected="d1"),
    Case("2", "d1 d2", "1:M::", selected="d1"),
    Case("3", "d1 d2 d3", "3:2:2:", selected="d1 d3"),
    Case("4", "d1 d2", "2:M::2", selected="d1", aborted="d2"),
    Case("5", "d1 d2 D2", "2:M::", selected="d1 D2 d2"),
    Case("6", "d1 d2 D2", "2:2:2:", selected="d1"),
    Case("7", "d1 d1.1 D1.1", "1:M::", selected="d1 D1.1 d1.1"),
    Case("8", "b5v20 d1 d5 d6", "6:M::", base="b5v20", selected="d6", obsolete="d1 d5"),
    Case("11", "b5v20 d1 d5", "5:M::", "20 open", selected="d1 d5"),
    Case("12", "b5v20 d1 d5", "5:M::", "20 aborted", selected="d1 d5", aborted="b5v20"),
    Case("13", "b5 d3 d6", "6:4:4:", base="b5", selected="d6", obsolete="d3"),
    Case("14", "b5 d3 d6", "6:5:5:", selected="d3 d6"),
    Case("15", "b5 d3 d6", "6:M::5", selected="d3 d6", aborted="b5"),
    Case("16", "b5 d3", "4:M::", selected="d3"),
    Case("18", "b3v10 b5v20 b7", "7:6:6:", base="b7", obsolete="b3v10 b5v20"),
    Case("19", "b5 b5v30 d6", "6:M::", base="b5v30", selected="d6", obsolete="b5"),
    Case("20", "b5 b5v30 d6", "6:M::", "30 open", base="b5", selected="d6"),
    Case("21", "b2 b4v9 d3 d4", "4:3:3:", base="b2", selected="d4"),
    Case("22", "d1 d2 d3 d1-3v12", "3:M::", selected="d1-3v12", obsolete="d1 d2 d3"),
    Case("23", "d1 d2 d3 d1-3v12", "3:M::", "12 open", selected="d1 d2 d3"),
    Case("24", "d1 d2 d3 d1-3v12", "3:M::2", selected="d1-3v12", obsolete="d1 d3", aborted="d2"),
    Case("25", "d1-3v12 D1-3v12 D2 d4", "4:M::", selected="D1-3v12 d1-3v12 d4", obsolete="D2"),
    Case(
        "26",
        "delta_40_60 delete_delta_50_50",
        "100:M::",
        selected="delta_40_60",
        obsolete="delete_delta_50_50",
    ),
    Case("27", "d6.1 d6.2 d6-6v1000", "6:M::", selected="d6-6v1000", obsolete="d6.1 d6.2"),
    Case("28", "d6.1 d6.2 d6-6v100", "6:M::", "100 open", selected="d6.1 d6.2"),
    Case("29", TWO_MINORS, "10:M::", selected="d1-5v102 d6-7v123", obsolete="d1-3v100 d4-5v101"),
    Case("30", TWO_MINORS, "10:M::", "102 open", selected="d1-3v100 d4-5v101 d6-7v123"),
    Case("31", "delta_1_1 delta_2_5", "100:4:4:", selected="delta_1_1 delta_2_5"),
    Case(
        "32",
        "delta_1_1 delta_2_5 delta_4_4_1 delta_4_4_3 delta_101_101_1",
        "100:4:4:",
        selected="delta_1_1 delta_2_5",
    ),
    Case("33", "delta_1_1 delta_2_5 delta_6_10", "3:M", selected="delta_1_1", compactor=True),
    Case(
        "34",
        "delta_1_1 delete_delta_2_2 delta_2_5 delete_delta_2_5 delete_delta_7_7 delta_6_10",
        "4:M::",
        selected="delta_1_1 delete_delta_2_2",
        compactor=True,
    ),
    Case(
        "35",
        STRADDLED,
        "100:M::",
        base="base_50",
        selected="delta_40_60 delta_00061_61_0 delta_000062_62_{0,3} delta_0000063_63_0",
        obsolete="delta_052_55 delta_058_58 delta_0060_60_{1,4,7}",
        above="delta_40_60=50",
    ),
    Case(
        "36",
        HIVES_DELETES,
        "100:M::",
        base="base_49",
        selected="{delete_,}delta_050_105",
        obsolete="base_5 base_10 delta_025_025 {,delete_}delta_029_029 {,delete_}delta_025_030",
    ),
    Case(
        "37",
        "000000_0 000001_0 _done delta_025_025 delta_025_030 delta_050_100 delta_101_101",
        "100:M::",
        selected="delta_025_030 delta_050_100",
        obsolete="delta_025_025",
        originals="000000_0 000001_0",
    ),
    Case("38", "o 000000_0_copy_1 d1 D2", "2:M::", selected="d1 D2", originals="o 000000_0_copy_1"),
    Case("39", "o b2v9 d1", "2:M::", base="b2v9", obsolete="o d1"),
    Case(
        "41",
        "base_-9223372036854775808:compacted o d1",
        "1:M::",
        base="base_-9223372036854775808",
        selected="d1",
        obsolete="o",
    ),
    Case("42", "b1 d2 b3", "3:1:1:", base="b3", obsolete="d2"),
    Case("43", "_tmp_ab12 .hive-staging_1 _delta_0000002_0000002_0000 d1", "2:M::", selected="d1"),
    Case("44", "d1-2v10 d1-2v11", "2:M::", selected="d1-2v11", obsolete="d1-2v10"),
    Case("45", "D5 d4 b10 d12", "20:M::", base="b10", selected="d12", obsolete="d4 D5"),
    Case("46", "d1 d2 d3", "3:2:2:3", selected="d1", aborted="d3"),
    Case(
        "47",
        "delta_0000001_0000010 d11",
        "11:M::1..10",
        selected="d11",
        aborted="delta_0000001_0000010",
    ),
    Case("48", "b3v10 d2-5v12 d6", "6:M::", base="b3v10", selected="d2-5v12 d6", above="d2-5v12=3"),
    Case("49", "b5 b5v20 d6", "6:M::5", base="b5v20", selected="d6", aborted="b5"),
    Case(
        "50",
        "delta_10000000_10000000_0000 delta_9999999_9999999_0000",
        "10000000:M::",
        selected="delta_9999999_9999999_0000 delta_10000000_10000000_0000",
    ),
    Case("51", "b7 b5v20 d6", "7:M::7", base="b5v20", selected="d6", aborted="b7"),
    Case("52", "b4v8 d5", "5:M::4", base="b4v8", selected="d5"),
    Case(
        "53",
        "d1-3v12 d4 d5 d4-5v20",
        "5:M::",
        "20 aborted",
        selected="d1-3v12 d4 d5",
        aborted="d4-5v20",
    ),
    Case(
        "54",
        "d1-4v12 D1-4v12 b4v30 d5",
        "5:M::",
        base="b4v30",
        selected="d5",
        obsolete="d1-4v12 D1-4v12",
    ),
]


def seen(found: EntityListing, w: str, x: ValidTxnList, compactor: bool = False) -> AcidDirectory:
    lists = write_ids(w)
    return select(found, lists.for_compactor() if compactor else lists, x)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.number)
def test_F12_what_a_snapshot_sees(case: Case) -> None:
    result = seen(listing(case.found), case.w, txns(case.x), case.compactor)
    assert (result.base.directory if result.base else "") == "".join(names(case.base))
    assert [delta.directory for delta in result.deltas] == names(case.selected)
    assert {directory.path for directory in result.obsolete} == set(names(case.obsolete))
    assert {directory.path for directory in result.aborted} == set(names(case.aborted))
    assert [file.path for file in result.originals] == names(case.originals)
    dropped = {delta.directory: delta.above for delta in result.deltas if delta.above >= 0}
    expected = dict(pair.split("=") for pair in case.above.split())
    assert dropped == {names(name)[0]: int(above) for name, above in expected.items()}


@pytest.mark.parametrize(
    ("found", "w", "base"),
    [
        ("b5v20 d1 d5 d6", "6:4:4:", "b5v20"),
        ("b5v20 d1 d5", "4:M::", "b5v20"),
        ("b5:compacted d6", "6:4:4:", "b5"),
        ("o b2v9 d1", "2:2:2:", "b2v9"),
        # An unusable overwrite below the compacted base does not make its inputs come back.
        ("b2 b4v9 d3 d4", "4:2:2:", "b4v9"),
        ("b2 b4v9 d3 d4", "3:M::2", "b4v9"),
    ],
)
def test_F14_not_enough_history(found: str, w: str, base: str) -> None:
    """The error names the base and the snapshot."""
    expected = re.escape(str(write_ids(w))) + ".*" + names(base)[0]
    with pytest.raises(NotEnoughHistory, match=expected):
        seen(listing(found), w, txns())


@pytest.mark.parametrize("name", ["delta_x_1", "base_01.txt"])
def test_F1_malformed_directory_names_are_refused_with_their_path(name: str) -> None:
    with pytest.raises(MalformedName, match=f"warehouse/db.t/{name}"):
        seen(listing(f"d1 {name}"), "9:M::", txns())


@pytest.mark.parametrize("name", ["delta_0000001_0000001_0000", "base_01.txt", "base_5"])
def test_F1_a_file_with_the_name_of_a_directory_is_refused(name: str) -> None:
    stray = EntityListing("warehouse/db.t", (FileEntry(name, 0),))
    with pytest.raises(MalformedName, match=f"warehouse/db.t/{name}"):
        seen(stray, "9:M::", txns())


@pytest.mark.parametrize(
    "files", [(), ("_orc_acid_version",), ("d1/_orc_acid_version",), ("b1/_metadata_acid",)]
)
def test_F12_empty_or_only_markers(files: tuple[str, ...]) -> None:
    """No rows, no error; an empty base still hides what is older."""
    paths = [
        path.replace("d1/", names("d1")[0] + "/").replace("b1/", names("b1")[0] + "/")
        for path in files
    ]
    result = seen(EntityListing("t", tuple(FileEntry(p, 1) for p in paths)), "9:M::", txns())
    assert all(source.files == () for source in result.sources)
    assert result.originals == ()
    assert (result.obsolete, result.aborted) == ((), ())


def test_notation_stands_for_the_literal_names() -> None:
    assert names("b5 b5v20 d3 d3.1 d1-3v12 D2 D1-3v12 o") == [
        "base_0000005",
        "base_0000005_v0000020",
        "delta_0000003_0000003_0000",
        "delta_0000003_0000003_0001",
        "delta_0000001_0000003_v0000012",
        "delete_delta_0000002_0000002_0000",
        "delete_delta_0000001_0000003_v0000012",
        "000000_0",
    ]
    assert names("{,delete_}delta_1_2 delta_0060_60_{1,4}") == [
        "delta_1_2",
        "delete_delta_1_2",
        "delta_0060_60_1",
        "delta_0060_60_4",
    ]
