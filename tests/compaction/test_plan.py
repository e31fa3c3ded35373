"""The compaction plan: C27, C29, C31, F21 and P23."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given

from acid_platform import CompactionFailed, NotEnoughHistory, SettingRefused
from acid_platform.compaction.plan import (
    CompactionPlan,
    CompactionSettings,
    NothingToDo,
    plan_compaction,
    watermark,
)
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import select
from acid_platform.transactions import ValidWriteIdList
from tests.notation import listing, names, txns, write_ids
from tests.strategies import entity_listings, write_id_lists

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR
TXN = 77


def seen(found: EntityListing, w: str, insert_only: bool = False) -> AcidDirectory:
    lists = write_ids(w).for_compactor()
    return select(found, lists, txns(f"{TXN} open"), insert_only=insert_only)


def outcome(
    found: str | EntityListing,
    w: str,
    kind: CompactionKind,
    layout: Layout = Layout.HIVE4,
    insert_only: bool = False,
) -> CompactionPlan | NothingToDo:
    entity = listing(found) if isinstance(found, str) else found
    return plan_compaction(
        seen(entity, w, insert_only),
        kind,
        write_ids(w).for_compactor(),
        TXN,
        CompactionSettings(layout),
    )


def planned(
    found: str | EntityListing,
    w: str,
    kind: CompactionKind,
    layout: Layout = Layout.HIVE4,
    insert_only: bool = False,
) -> CompactionPlan:
    result = outcome(found, w, kind, layout, insert_only)
    assert isinstance(result, CompactionPlan)
    return result


def files(directory: str, *buckets: str) -> list[FileEntry]:
    return [FileEntry(f"{names(directory)[0]}/{bucket}", 10) for bucket in buckets]


# --- enough or not ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "runs", "refused"),
    [
        (MAJOR, "b5v20 d6|d1 d2|d1 D2|o|o d1", "b5v20|d1|D1|b5|"),
        # One delta and one delete_delta are not enough.
        (MINOR, "d1 d2|D1 D2|d1 D1 d2|d6 d6.1", "d1|d1 D1|d1 D2|b5 d6|o d6|"),
    ],
)
def test_C29_what_is_enough(kind: CompactionKind, runs: str, refused: str) -> None:
    for found in runs.split("|"):
        assert isinstance(outcome(found, "9:M::", kind), CompactionPlan), found
    for found in refused.split("|"):
        result = outcome(found, "9:M::", kind)
        assert isinstance(result, NothingToDo), found
        assert (result.rule, result.to_cleaning) == ("C29", False)
        assert kind.value in result.reason


@pytest.mark.parametrize(
    ("found", "w", "kind"),
    [
        ("b5 b9", "9:M::", MAJOR),
        ("b5 d3", "9:M::", MAJOR),
        ("d1 d2", "2:M::2", MINOR),
        ("d1-2v10 d1 d2", "2:M::", MINOR),
    ],
)
def test_C29_not_enough_but_something_to_clean(found: str, w: str, kind: CompactionKind) -> None:
    """INSERT OVERWRITE twice goes straight to cleaning."""
    result = outcome(found, w, kind)
    assert isinstance(result, NothingToDo)
    assert (result.to_cleaning, result.rule) == (True, "C29")
    assert "to the Cleaner" in str(result)


# --- names --------------------------------------------------------------------------------------


def test_C31_major_is_named_after_the_high_watermark() -> None:
    """With write id 5 of 1 to 12 open, the result is base_4."""
    plan = planned("d1 d2 d3 d5 d6", "12:5:5:", MAJOR)
    assert list(map(str, plan.outputs)) == ["base_0000004_v0000077"]
    assert [source.directory for source in plan.inputs.inserts] == names("d1 d2 d3")


def test_C31_minor_is_named_after_the_directories_merged() -> None:
    plan = planned("b1v3 d2 D3 d4 d4.1 d8", "12:7:7:", MINOR)
    assert str(plan.output_delta) == "delta_0000002_0000004_v0000077"
    assert str(plan.output_delete_delta) == "delete_delta_0000002_0000004_v0000077"
    assert plan.output_base is None
    assert (plan.inputs.base, plan.inputs.originals) == (None, ())
    assert [source.directory for source in plan.inputs.delete_deltas] == names("D3")


@pytest.mark.parametrize(
    ("found", "outputs"),
    [
        ("d1 d2", ["delta_0000001_0000002_v0000077"]),
        ("D1 D2", ["delete_delta_0000001_0000002_v0000077"]),
        ("d6 d6.1", ["delta_0000006_0000006_v0000077"]),
    ],
)
def test_C31_minor_makes_only_the_kinds_that_it_read(found: str, outputs: list[str]) -> None:
    assert list(map(str, planned(found, "9:M::", MINOR).outputs)) == outputs


def test_a_converted_table_that_was_never_written_gets_hives_base() -> None:
    plan = planned("o", "0:M::", MAJOR)
    assert str(plan.output_base) == "base_-9223372036854775808_v0000077"
    assert [file.path for file in plan.inputs.originals] == ["000000_0"]


def test_aborted_write_ids_inside_the_range_are_left_out() -> None:
    """F21: the range in the name still covers them."""
    plan = planned("d1 D1 d2 d3", "9:M::2,8", MINOR)
    assert plan.output_delta is not None
    assert (plan.output_delta.low, plan.output_delta.high) == (1, 3)
    assert planned("d1 d2 d3", "9:M::2,8", MAJOR).write_ids.aborted == (2, 8)
    assert planned("d1 d3", "9:5:5:2,8", MAJOR).write_ids.aborted == (2,)


def test_F13_a_straddling_input_says_which_rows_to_drop() -> None:
    plan = planned("b3v10 d2-5v12 d6", "6:M::", MAJOR)
    assert [(source.directory, source.above) for source in plan.inputs.inserts] == [
        (names("d2-5v12")[0], 3),
        (names("d6")[0], -1),
    ]


# --- what is refused ----------------------------------------------------------------------------


def raw_and_bucketed() -> EntityListing:
    return EntityListing("t", tuple(files("d1", "000000_0") + files("d2", "bucket_00000")))


def test_C27_no_minor_compaction_over_files_without_acid_columns() -> None:
    result = outcome(raw_and_bucketed(), "9:M::", MINOR)
    assert isinstance(result, NothingToDo)
    assert (result.rule, result.to_cleaning) == ("C27", False)
    assert names("d1")[0] in result.reason
    assert planned(raw_and_bucketed(), "9:M::", MAJOR).output_base is not None


def test_C27_insert_only_tables_have_no_acid_columns_anyway() -> None:
    found = EntityListing("t", tuple(files("d1", "000000_0") + files("d2", "000000_0")))
    assert isinstance(outcome(found, "9:M::", MINOR), NothingToDo)
    plan = planned(found, "9:M::", MINOR, insert_only=True)
    assert list(map(str, plan.outputs)) == ["delta_0000001_0000002_v0000077"]


def test_P23_hive3_names_have_no_suffix() -> None:
    for kind, name in ((MAJOR, "base_0000002"), (MINOR, "delta_0000001_0000002")):
        assert list(map(str, planned("d1 d2", "2:M::", kind, Layout.HIVE3).outputs)) == [name]


def test_P23_hive3_publishes_by_one_rename_so_never_both_kinds() -> None:
    result = outcome("d1 d2 D2", "2:M::", MINOR, Layout.HIVE3)
    assert isinstance(result, NothingToDo)
    assert (result.rule, result.to_cleaning) == ("P23", False)
    assert planned("D1 D2", "2:M::", MINOR, Layout.HIVE3).output_delete_delta is not None
    assert planned("d1 d2 D2", "2:M::", MAJOR, Layout.HIVE3).output_base is not None


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
@pytest.mark.parametrize(
    ("layout", "renames"), [(Layout.HIVE4, True), (Layout.HIVE4, False), (Layout.HIVE3, True)]
)
def test_P46_which_outputs_come_into_sight(
    kind: CompactionKind, layout: Layout, renames: bool
) -> None:
    """Also the single delta of a minor compaction: a snapshot may lack some of its writes."""
    only_a_base = (kind, layout, renames) == (MAJOR, Layout.HIVE4, True)
    assert planned("d1 d2", "2:M::", kind, layout).comes_into_sight(renames) is not only_a_base


def test_P23_hive3_never_takes_the_name_of_what_exists() -> None:
    def planned_in(layout: Layout, found: str, w: str) -> CompactionPlan | NothingToDo:
        lists = write_ids(w).for_compactor()
        directory = select(listing(found), lists, txns(f"{TXN} open 500 open"))
        return plan_compaction(directory, MAJOR, lists, TXN, CompactionSettings(layout))

    result = planned_in(Layout.HIVE3, "d1 d2 b3", "3:M::3")
    assert isinstance(result, NothingToDo) and "base_0000003" in result.reason
    assert (result.rule, result.to_cleaning) == ("P23", True)
    assert isinstance(planned_in(Layout.HIVE4, "d1 d2 b3", "3:M::3"), CompactionPlan)
    assert isinstance(planned_in(Layout.HIVE3, "d1 d2 b3v500", "3:M::"), CompactionPlan)


def test_P23_layout_property() -> None:
    assert Layout.of({}) is Layout.of({"acid.layout": "hive4"}) is Layout.HIVE4
    assert Layout.of({"acid.layout": "HIVE3"}) is Layout.HIVE3
    with pytest.raises(SettingRefused, match=r"acid\.layout='hive5'"):
        Layout.of({"acid.layout": "hive5"})


def test_HIVE29567_own_output_must_not_be_visible() -> None:
    entity = listing(f"d1 d2 b2v{TXN}")
    lists = write_ids("2:M::").for_compactor()
    with pytest.raises(CompactionFailed, match=f"base_0000002_v00000{TXN}"):
        plan_compaction(select(entity, lists, txns()), MAJOR, lists, TXN, CompactionSettings())
    hidden = select(entity, lists, txns(f"{TXN} open"))
    assert isinstance(
        plan_compaction(hidden, MAJOR, lists, TXN, CompactionSettings()), CompactionPlan
    )


@pytest.mark.parametrize(
    ("found", "w", "high"),
    [
        ("d1 d2-4", "4:M::", 4),
        ("d1 d2-4", "4:4:4:", 1),
        ("d1 d2-4 d3", "4:4:4:", 1),
        ("d2-4 d3-6", "6:4:4:", 1),
        ("d4 d5-6", "6:5:5:", 4),
        ("d1-4", "4:3:3:", 0),
        ("b3 d2-6 d4", "6:6:6:", 3),
        ("d1 d2-4v9", "4:4:4:", 3),
    ],
)
def test_C53_an_output_ends_before_a_batch_that_is_still_open(
    found: str, w: str, high: int
) -> None:
    """A reader who sees nothing of the batch above the output would leave all of it out."""
    assert watermark(seen(listing(found), w), write_ids(w).for_compactor()) == high


# --- tasks --------------------------------------------------------------------------------------


def bucketed() -> EntityListing:
    return EntityListing(
        "t",
        tuple(
            files("b2v9", "bucket_00000", "bucket_00001")
            + files("d3", "bucket_00001_4")
            + files("d4", "bucket_00000")
            + files("D4", "bucket_00001", "bucket_00007_0")
        ),
    )


def test_inputs_by_bucket_of_a_major_compaction() -> None:
    plan = planned(bucketed(), "4:M::", MAJOR)
    tasks = plan.inputs_by_bucket()
    assert list(tasks) == [0, 1], "a bucket that only delete files have can yield no row"
    assert [file.path for file in tasks[1].data] == [
        f"{names('b2v9')[0]}/bucket_00001",
        f"{names('d3')[0]}/bucket_00001_4",
    ]
    assert [file.name for file in tasks[1].deletes] == ["bucket_00001"]
    assert [file.name for file in tasks[0].deletes] == []
    assert [file.name for file in tasks[0].every_delete] == ["bucket_00001", "bucket_00007_0"]
    assert [file.path.partition("/")[0] for file in tasks[0].data] == names("b2v9 d4")
    assert plan.input_bytes == 60


def test_inputs_by_bucket_of_a_minor_compaction() -> None:
    plan = planned(bucketed(), "4:M::", MINOR)
    tasks = plan.inputs_by_bucket()
    assert list(tasks) == [0, 1, 7]
    assert [file.path for file in tasks[1].data] == [f"{names('d3')[0]}/bucket_00001_4"]
    assert tasks[7].data == ()
    assert [file.name for file in tasks[7].deletes] == ["bucket_00007_0"]
    assert plan.input_bytes == 40


def test_originals_and_raw_files_go_by_the_digits_of_their_names() -> None:
    originals = [FileEntry(name, 10) for name in ("000001_0", "000000_0_copy_1", "000000_0")]
    found = EntityListing("t", tuple(originals + files("d1", "000001_0", "000000_0")))
    tasks = planned(found, "1:M::", MAJOR).inputs_by_bucket()
    assert [file.path for file in tasks[0].data] == [
        "000000_0",
        "000000_0_copy_1",
        f"{names('d1')[0]}/000000_0",
    ]
    assert [file.path for file in tasks[1].data] == ["000001_0", f"{names('d1')[0]}/000001_0"]


def test_a_file_without_bucket_number_is_named() -> None:
    plan = planned("d1 d2", "2:M::", MAJOR)
    inputs = replace(plan.inputs, originals=(FileEntry("part-00000.orc", 1),))
    stray = replace(plan, inputs=inputs)
    with pytest.raises(CompactionFailed, match=re.escape("part-00000.orc")):
        stray.inputs_by_bucket()


# --- the output replaces its inputs -------------------------------------------------------------


@pytest.mark.more
@given(entity_listings(), write_id_lists())
def test_C31_a_committed_output_hides_exactly_its_inputs(
    found: EntityListing, some: ValidWriteIdList
) -> None:
    """A reader who sees the compaction selects the outputs in place of the inputs, nothing else."""
    lists = some.for_compactor()
    try:
        before = select(found, lists, txns(f"{TXN} open"))
    except NotEnoughHistory:
        return
    for kind in CompactionKind:
        plan = plan_compaction(before, kind, lists, TXN, CompactionSettings())
        if isinstance(plan, NothingToDo):
            continue
        made = [FileEntry(f"{name}/bucket_00000", 10) for name in plan.outputs]
        after = select(replace(found, files=(*found.files, *made)), lists, txns())
        kept = before.base if kind is MINOR else None
        assert (after.base.directory if after.base else None) == (
            kept.directory if kept else str(plan.output_base) if plan.output_base else None
        )
        made_deltas = [plan.output_delete_delta, plan.output_delta]
        assert [delta.name for delta in after.deltas] == [delta for delta in made_deltas if delta]
        gone = {removable.path for removable in after.obsolete}
        read = {delta.directory for delta in plan.inputs.deltas}
        assert read | {file.path for file in plan.inputs.originals} <= gone
        if kind is MINOR:
            assert after.originals == before.originals
