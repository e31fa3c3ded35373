"""What a compaction is expected to read, write and save."""

from __future__ import annotations

import pytest

from acid_platform.compaction.plan import (
    OPEN_BYTES,
    ORIGINALS,
    Amount,
    CompactionPlan,
    CompactionSettings,
    Forecast,
    Share,
    against,
    forecast,
    plan_compaction,
)
from acid_platform.compaction.states import CompactionKind
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.scan.selection import select
from tests.notation import names, txns, write_ids

BASE, DELTA, GONE = names("b2v9 d3 D4")


def planned(kind: CompactionKind, *files: FileEntry) -> CompactionPlan:
    lists = write_ids("5:M::").for_compactor()
    seen = select(EntityListing("wh/t", files), lists, txns("77 open"))
    plan = plan_compaction(seen, kind, lists, 77, CompactionSettings())
    assert isinstance(plan, CompactionPlan)
    return plan


def file(directory: str, size: int, bucket: int = 0) -> FileEntry:
    return FileEntry(f"{directory}/bucket_{bucket:05d}", size)


def test_a_major_compaction_leaves_the_deleted_rows_out() -> None:
    plan = planned(CompactionKind.MAJOR, file(BASE, 900), file(DELTA, 100), file(GONE, 50))
    told = forecast(plan, {BASE: 90, DELTA: 10, GONE: 20})
    assert [share.directory for share in told.inputs] == [BASE, DELTA, GONE]
    assert told.read == Amount(120, 1050, 3)
    assert told.outputs == (Share("base_0000005_v0000077", Amount(80, 800, 1)),)
    assert told.saving == 250 + 2 * OPEN_BYTES
    assert told.pays_back_after == 5, "four files touched twice, two fewer for each scan"


def test_a_minor_compaction_keeps_every_event_and_leaves_the_base_alone() -> None:
    second = names("d5")[0]
    plan = planned(
        CompactionKind.MINOR, file(BASE, 900), file(DELTA, 100), file(GONE, 50), file(second, 30)
    )
    told = forecast(plan, {BASE: 90, DELTA: 10, GONE: 20, second: 3})
    assert told.outputs == (
        Share("delete_delta_0000003_0000005_v0000077", Amount(20, 50, 1), True),
        Share("delta_0000003_0000005_v0000077", Amount(13, 130, 1)),
    )
    assert told.saving == OPEN_BYTES


def test_original_files_count_by_their_own_name() -> None:
    plan = planned(CompactionKind.MAJOR, FileEntry("000000_0", 40), FileEntry("000001_0", 60))
    told = forecast(plan, {"": 10})
    assert told.inputs == (Share(ORIGINALS, Amount(10, 100, 2)),)
    assert told.written == Amount(10, 100, 2)


@pytest.mark.parametrize(
    ("before", "after", "scans"),
    [
        (Amount(10, 100, 2), Amount(10, 100, 2), None),
        (Amount(10, 100, 1), Amount(10, 200, 1), None),
        (Amount(10, 0, 2), Amount(10, 0, 1), 6),
    ],
)
def test_what_saves_nothing_never_pays_back(
    before: Amount, after: Amount, scans: int | None
) -> None:
    assert Forecast((Share("a", before),), (Share("b", after),)).pays_back_after == scans


def test_the_forecast_beside_what_was_written() -> None:
    told = Forecast((), (Share("b", Amount(1000, 50, 1)),))
    assert [
        str(deviation) for deviation in against(told, [Amount(998, 40, 1), Amount(1, 5, 1)])
    ] == [
        "rows: 1,000 expected, 999 written",
        "bytes: 50 expected, 45 written",
        "files: 1 expected, 2 written",
    ]
