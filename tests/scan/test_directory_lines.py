"""The timeline has each directory once, with its size and how the snapshot uses it."""

from __future__ import annotations

import pytest

from acid_platform.display import BAR, Timeline, human_bytes, show_table, shown
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.scan.acid_directory import DirectoryKind, Sight, timeline
from acid_platform.scan.selection import select
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

FILES = {
    "000000_0": 40,
    "delta_0000001_0000001_0000/bucket_00000": 100,
    "delete_delta_0000002_0000002_0000/bucket_00000": 30,
    "delta_0000002_0000002_0000/bucket_00000": 50,
    "delta_0000002_0000002_0000/bucket_00001": 5,
    "base_0000002_v0000007/bucket_00000": 120,
    "delta_0000003_0000003_0000/bucket_00000": 70,
    "delta_0000004_0000004_0000/bucket_00000": 10,
    "delta_0000005_0000005_0000/bucket_00000": 9,
}
LISTING = EntityListing("/t", tuple(FileEntry(path, size) for path, size in FILES.items()))
WRITE_IDS = ValidWriteIdList.parse("db.t:5:4:4:3")
TXNS = ValidTxnList.parse("9:9223372036854775807::")


def lines() -> Timeline:
    seen = select(LISTING, WRITE_IDS, TXNS)
    return Timeline("db.t", timeline(LISTING, seen))


def test_every_directory_is_there_once_with_its_size_and_sight() -> None:
    assert [
        (line.directory, line.kind, line.low, line.high, line.bytes, line.files, line.sight)
        for line in lines().lines
    ] == [
        ("000000_0", DirectoryKind.ORIGINAL, 0, 0, 40, 1, Sight.OBSOLETE),
        ("delta_0000001_0000001_0000", DirectoryKind.DELTA, 1, 1, 100, 1, Sight.OBSOLETE),
        (
            "delete_delta_0000002_0000002_0000",
            DirectoryKind.DELETE_DELTA,
            2,
            2,
            30,
            1,
            Sight.OBSOLETE,
        ),
        ("delta_0000002_0000002_0000", DirectoryKind.DELTA, 2, 2, 55, 2, Sight.OBSOLETE),
        ("base_0000002_v0000007", DirectoryKind.BASE, 1, 2, 120, 1, Sight.READ),
        ("delta_0000003_0000003_0000", DirectoryKind.DELTA, 3, 3, 70, 1, Sight.ABORTED),
        ("delta_0000004_0000004_0000", DirectoryKind.DELTA, 4, 4, 10, 1, Sight.INVISIBLE),
        ("delta_0000005_0000005_0000", DirectoryKind.DELTA, 5, 5, 9, 1, Sight.READ),
    ]


def test_what_is_not_read_has_a_reason() -> None:
    reasons = {
        line.directory: line.reason for line in lines().lines if line.sight is not Sight.READ
    }
    assert reasons["delta_0000001_0000001_0000"] == "within base_0000002_v0000007"
    assert reasons["delta_0000003_0000003_0000"] == "write id 3 aborted"
    assert all(reasons.values())


def test_the_bar_of_a_line_lies_at_its_write_ids() -> None:
    shown = lines()
    bars = {line.directory: shown.bar(line) for line in shown.lines}
    assert bars["base_0000002_v0000007"] == (0, 2 * BAR // 5)
    assert bars["delta_0000005_0000005_0000"] == (4 * BAR // 5, BAR)
    assert all(0 <= first < end <= BAR for first, end in bars.values())


def test_the_summary_counts_by_sight() -> None:
    assert lines().summary() == (
        "read: 2 directories, 129 B; obsolete: 4 directories, 225 B;"
        " aborted: 1 directory, 70 B; not visible: 1 directory, 10 B"
    )
    assert Timeline("db.t", ()).summary() == "empty"


def test_html_holds_every_directory_and_escapes_what_people_wrote() -> None:
    html = lines()._repr_html_()
    for line in lines().lines:
        assert f"<code>{line.directory}</code>" in html
    table = show_table([{"user": "<script>", "n": 1}], title="a & b")
    assert "<script>" not in table._repr_html_()
    assert "&lt;script&gt;" in table._repr_html_()
    assert "a &amp; b" in table._repr_html_()


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_250_000, "1.2 MB"),
        (10**13, "10.0 TB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("starttime", 1_357_000_000_000, "2013-01-01 00:26:40"),
        ("starttime", "None", ""),
        ("acquired_at", 0, ""),
        ("duration", 1500, "1.5 s"),
        ("bytes", 1500, "1.5 kB"),
        ("id", 1500, "1500"),
        ("tables", ["db.t", "db.u"], "db.t, db.u"),
        ("flag", True, "True"),
        ("partname", None, ""),
    ],
)
def test_values_are_shown_as_people_read_them(column: str, value: object, text: str) -> None:
    assert shown(column, value) == text
