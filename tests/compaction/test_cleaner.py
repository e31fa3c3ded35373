"""What the Cleaner removes: C44 to C55 and P19."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.compaction.cleaning_plan import CleaningPlan, no_cleanup, plan_cleaning
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import BaseName, DeltaName, parse_directory
from acid_platform.scan.selection import select
from acid_platform.transactions import TxnState, ValidTxnList, ValidWriteIdList
from tests.notation import listing, names, txns, write_ids
from tests.strategies import MAX_ID, entity_listings, txn_lists, write_id_lists


def cleaning(
    found: str,
    w: str,
    highest: int,
    only_aborted: bool = False,
    x: str = "",
    temporary: dict[str, TxnState | None] | None = None,
) -> CleaningPlan:
    """The Cleaner's list is the table's, cut at the compaction's highest write id (S17)."""
    lists = write_ids(w).capped(highest)
    directory = select(listing(found), lists, txns(x), cleaning=True)
    return plan_cleaning(directory, lists, highest, temporary, only_aborted=only_aborted)


def removed(plan: CleaningPlan) -> set[str]:
    assert all(removal.reason and removal.rule for removal in plan.removals)
    return {removal.path for removal in plan.removals}


@pytest.mark.parametrize(
    ("found", "w", "highest", "expected"),
    [
        # What a base or a wider delta covers.
        ("b3v20 d1 d2 D3 d4", "4:M::", 3, "d1 d2 D3"),
        ("d1 d2 d3 d1-3v20", "3:M::", 3, "d1 d2 d3"),
        ("b2 b3", "3:M::", 3, "b2"),
        ("o b3v20", "3:M::", 3, "o"),
        # C46: a delta above the compacted high watermark stays.
        ("b3v20 d1 d4 D4 d5", "5:M::", 3, "d1"),
        ("d1 d2 d3", "3:M::", 3, ""),
        ("o d1", "1:M::", 1, ""),
        # C46: aborted directories go, also above the high watermark.
        ("b3v20 d1 d5", "5:M::5", 3, "d1 d5"),
        ("d1 d2", "2:M::2", 1, "d2"),
        # C39: two compactions; the lower one leaves what only the higher made obsolete.
        ("b3v20 d1 d4 d5 d4-5v21", "5:M::", 3, "d1"),
        ("b3v20 d1 d4 d5 d4-5v21", "5:M::", 5, "d1 d4 d5"),
        # The higher one made a base: above the list of the lower, which does its own part.
        ("d1 d2 d3 d1-3v20 d4 b4v21", "4:M::", 3, "d1 d2 d3"),
        ("d1 d2 d3 d1-3v20 d4 b4v21", "4:M::", 4, "d1 d2 d3 d1-3v20 d4"),
        ("d1 d2 b2v20", "2:M::1", 0, "d1"),
        ("o d1 b1v20", "1:M::", 0, ""),
    ],
)
def test_C46_obsolete_and_aborted_and_nothing_else(
    found: str, w: str, highest: int, expected: str
) -> None:
    plan = cleaning(found, w, highest)
    assert removed(plan) == set(names(expected))
    assert plan.complete is (not expected)


def test_C45_what_is_not_visible_to_all_covers_nothing() -> None:
    """A compaction above the watermark does not exist for the Cleaner."""
    assert removed(cleaning("b3v20 d1 d2", "3:M::", 3, x="20 open")) == set()
    assert removed(cleaning("b3v20 d1 d2", "3:M::", 3)) == set(names("d1 d2"))


def test_C46_S18_the_output_of_an_aborted_compaction_goes_its_inputs_stay() -> None:
    plan = cleaning("b3v20 d1 d2", "3:M::", 3, x="20 aborted")
    assert [(removal.path, removal.rule) for removal in plan.removals] == [
        (names("b3v20")[0], "S18")
    ]


def test_C46_a_directory_with_an_open_write_id_stays() -> None:
    """A batch that an overwrite covers, but one of its writers is still open."""
    kept = "delta_0000001_0000006"
    plan = cleaning(f"b9 {kept}", "9:4:4:", 9)
    assert removed(plan) == set()
    assert [(one.path, one.rule) for one in plan.staying] == [(kept, "C46")]
    assert "write id 4 is open" in plan.staying[0].reason
    assert not plan.complete, "C47: something obsolete is left"
    assert removed(cleaning(f"b9 {kept}", "9:M::", 9)) == {kept}


@pytest.mark.parametrize("found", ["d1-9v20 d3-8v10", "b9v20 b8v10"])
def test_C46_nothing_above_the_highest_write_id_even_if_the_list_was_not_cut(found: str) -> None:
    lists = ValidWriteIdList.of("t", 9)
    directory = select(listing(found), lists, txns())
    plan = plan_cleaning(directory, lists, 5)
    assert plan.removals == ()
    assert [kept.rule for kept in plan.staying] == ["C45"]
    # Else this row would wait for ever for the later one, which waits for its turn (C39, C47).
    assert plan.complete
    assert removed(plan_cleaning(directory, lists, 9)) == {names(found)[1]}


def test_C47_done_when_a_second_listing_shows_nothing_obsolete() -> None:
    assert not cleaning("b3v20 d1", "3:M::", 3).complete
    assert cleaning("b3v20", "3:M::", 3).complete
    assert cleaning("b3v20 d4", "4:M::", 3).complete


# --- aborted write ids --------------------------------------------------------------------------


def test_C53_a_batch_with_aborted_and_committed_write_ids_stays() -> None:
    """delta_1_10 with 4 aborted, until a compaction rewrote it."""
    batch = "delta_0000001_0000010"
    plan = cleaning(batch, "10:M::4", 10)
    assert plan.removals == ()
    assert plan.undeletable_aborted_write_ids == (4,)
    assert plan.removed_aborted_write_ids == ()
    assert [(kept.path, kept.rule) for kept in plan.staying] == [(batch, "C53")]
    assert plan.complete, "nothing obsolete is left"
    rewritten = cleaning(f"{batch} b10v20", "10:M::4", 10)
    assert removed(rewritten) == {batch}
    assert rewritten.undeletable_aborted_write_ids == ()
    assert rewritten.removed_aborted_write_ids == (4,)


@pytest.mark.parametrize(
    ("found", "w", "highest", "stuck", "forgettable"),
    [
        # Nothing is stuck: all aborted write ids up to the highest (C49), none above it.
        ("b3v20 d1 d2 d5", "5:M::2,5", 3, (), (2,)),
        ("d1 d2", "9:M::2,7", 9, (), (2, 7)),
        # A compactor leaves aborted rows out.
        ("d1-3v20", "3:M::2", 3, (), (2,)),
        # Something is stuck: only what was really removed.
        ("delta_0000001_0000003 d5", "6:M::2,5,6", 6, (2,), (5,)),
        ("delta_0000001_0000003 b5 d6", "6:M::2,5", 6, (2,), (5,)),
        # The batch reaches above the highest write id, and is invisible for the Cleaner.
        ("d1 d2 delta_0000004_0000009", "9:M::2,6", 3, (6,), (2,)),
        # A hive3 delta is trusted only when its metadata says that a compactor made it.
        ("delta_0000001_0000003:compacted", "3:M::2", 3, (), (2,)),
    ],
)
def test_C49_C53_which_aborted_write_ids_may_be_forgotten(
    found: str, w: str, highest: int, stuck: tuple[int, ...], forgettable: tuple[int, ...]
) -> None:
    plan = cleaning(found, w, highest)
    assert plan.undeletable_aborted_write_ids == stuck
    assert plan.removed_aborted_write_ids == forgettable


def test_C52_C55_dynamic_abort_removes_aborted_directories_only() -> None:
    """The obsolete base elsewhere is untouched."""
    found = "b2 b5 d3 d7"
    plan = cleaning(found, "7:M::7", 7, True)
    assert removed(plan) == set(names("d7"))
    assert {(kept.path, kept.rule) for kept in plan.staying} == {
        (name, "C55") for name in names("b2 d3")
    }
    assert cleaning("b2 b5 d3", "7:M::7", 7, True).complete
    assert removed(cleaning(found, "7:M::7", 7)) == set(names("b2 d3 d7")), "C52"


def test_C55_an_obsolete_batch_that_stays_keeps_its_aborted_write_ids() -> None:
    found = "b5 delta_0000001_0000004"
    assert cleaning(found, "5:M::3", 5, True).undeletable_aborted_write_ids == (3,)
    assert cleaning(found, "5:M::3", 5).undeletable_aborted_write_ids == ()


# --- temporary directories, properties ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "goes"),
    [
        ("_tmp_0000012_ab", TxnState.OPEN, False),
        ("_tmp_0000012_ab", TxnState.ABORTED, True),
        ("_tmp_0000012_ab", TxnState.COMMITTED, True),
        ("_tmp_0000012_ab", None, True),
        ("month=3/_tmp_0000012_ab", TxnState.ABORTED, True),
        ("_tmp_ab12", None, False),
    ],
)
def test_P19_temporary_directories_go_with_their_owner(
    name: str, state: TxnState | None, goes: bool
) -> None:
    plan = cleaning("d1", "1:M::", 1, temporary={name: state})
    decisions = [(removal.path, removal.rule) for removal in plan.removals]
    decisions += [(kept.path, kept.rule) for kept in plan.staying]
    assert decisions == [(name, "P19")]
    assert bool(plan.removals) is goes
    (path,) = (*plan.removals, *plan.staying)
    assert ("transaction 12" in path.reason) is ("12_ab" in name)


def test_C44_no_cleanup() -> None:
    assert no_cleanup({"NO_CLEANUP": "true"}) and no_cleanup({"no_cleanup": "True"})
    assert not no_cleanup({"NO_CLEANUP": "false"}) and not no_cleanup({})


@given(entity_listings(), write_id_lists(), txn_lists(), st.integers(1, MAX_ID), st.booleans())
def test_C46_C53_no_valid_or_open_write_is_ever_lost(
    found: EntityListing,
    some: ValidWriteIdList,
    some_txns: ValidTxnList,
    highest: int,
    only_aborted: bool,
) -> None:
    lists = some.capped(highest)
    directory = select(found, lists, some_txns, cleaning=True)
    plan = plan_cleaning(directory, lists, highest, only_aborted=only_aborted)
    read = [directory.base.name] if directory.base else []
    top = read[0].write_id if read else 0
    goes = removed(plan)
    for path in goes:
        name = parse_directory(path)
        if name is None:
            assert not only_aborted
            assert read, "original files go only when a base stands for them"
            continue
        if some_txns.is_aborted(name.visibility):
            continue
        low, high = (name.low, name.high) if isinstance(name, DeltaName) else (name.write_id,) * 2
        ids = range(low, high + 1)
        if all(map(some.is_aborted, ids)):
            continue
        assert not only_aborted
        assert high <= highest
        assert not any(number in some.open for number in ids)
        covered = high <= top or any(
            delta.name.low <= low and high <= delta.name.high for delta in directory.deltas
        )
        assert covered or isinstance(name, BaseName)
    # Whatever stays on disk and may hold rows of an aborted write id keeps it from being forgotten.
    for path in set(found.directories) - goes:
        name = parse_directory(path)
        if isinstance(name, DeltaName) and not name.visibility:
            held = set(lists.aborted_between(name.low, name.high))
            assert held <= set(plan.undeletable_aborted_write_ids)
    assert not set(plan.undeletable_aborted_write_ids) & set(plan.removed_aborted_write_ids)
    assert all(number <= highest for number in plan.removed_aborted_write_ids)
