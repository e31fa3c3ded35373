"""Properties of every selection, whatever the directory contains."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import AcidError
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import BaseName, DeltaName, parse_directory
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import highest_floor, select, shadows
from acid_platform.transactions import RangeResponse, ValidTxnList, ValidWriteIdList
from tests.notation import listing, txns
from tests.strategies import MAX_ID, entity_listings, txn_lists, write_id_lists

EVERYTHING = ValidWriteIdList.of("db.t", MAX_ID)


def outcome(
    found: EntityListing, write_ids: ValidWriteIdList, some_txns: ValidTxnList
) -> AcidDirectory | str:
    try:
        return select(found, write_ids, some_txns)
    except AcidError as error:
        return f"{type(error).__name__}: {error}"


@given(
    entity_listings(),
    write_id_lists(),
    txn_lists(),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_the_order_of_the_listing_does_not_matter(
    found: EntityListing,
    write_ids: ValidWriteIdList,
    some_txns: ValidTxnList,
    rng: random.Random,
    compactor: bool,
) -> None:
    files, directories = list(found.files), list(found.directories)
    rng.shuffle(files)
    rng.shuffle(directories)
    shuffled = replace(found, files=tuple(files), directories=tuple(directories))
    lists = write_ids.for_compactor() if compactor else write_ids
    assert outcome(found, lists, some_txns) == outcome(shuffled, lists, some_txns)


@given(entity_listings(), write_id_lists(), txn_lists())
def test_every_directory_is_in_exactly_one_list(
    found: EntityListing, write_ids: ValidWriteIdList, some_txns: ValidTxnList
) -> None:
    result = outcome(found, write_ids, some_txns)
    if isinstance(result, str):
        assert result.startswith("NotEnoughHistory")
        return
    bases = [result.base.directory] if result.base else []
    placed = bases + [delta.directory for delta in result.deltas]
    placed += [
        directory.path
        for directory in (*result.obsolete, *result.aborted)
        if parse_directory(directory.path)
    ]
    placed += [directory.path for directory in result.invisible]
    assert sorted(placed) == sorted(found.directories)


@pytest.mark.more
@given(entity_listings(), write_id_lists(), txn_lists())
def test_C46_nothing_removable_holds_a_write_that_is_not_read_elsewhere(
    found: EntityListing, write_ids: ValidWriteIdList, some_txns: ValidTxnList
) -> None:
    """What this snapshot sees in an obsolete directory is in a base or a wider delta too."""
    result = outcome(found, write_ids, some_txns)
    if isinstance(result, str):
        return
    top = result.base.name.write_id if result.base else 0
    ranges = [(delta.name.low, delta.name.high) for delta in result.deltas]
    for directory in result.obsolete:
        name = parse_directory(directory.path)
        if isinstance(name, DeltaName):
            assert name.high <= top or any(
                low <= name.low and name.high <= high for low, high in ranges
            )
        else:
            assert result.base is not None
            assert name is None or name.write_id <= top
    for directory in result.aborted:
        name = parse_directory(directory.path)
        assert name is not None
        if not some_txns.is_aborted(name.visibility):
            ids = [name.write_id] if isinstance(name, BaseName) else range(name.low, name.high + 1)
            assert all(write_ids.is_aborted(write_id) for write_id in ids)


@given(entity_listings(), write_id_lists(), txn_lists())
def test_each_visible_write_above_the_base_is_read_exactly_once(
    found: EntityListing, write_ids: ValidWriteIdList, some_txns: ValidTxnList
) -> None:
    result = outcome(found, write_ids, some_txns)
    if isinstance(result, str):
        return
    top = max(result.base.name.write_id if result.base else 0, 0)
    present = [
        name
        for name in map(parse_directory, found.directories)
        if isinstance(name, DeltaName) and some_txns.is_valid(name.visibility)
    ]
    for write_id in range(top + 1, MAX_ID + 1):
        holders = {
            (delta.name.low, delta.name.high)
            for delta in result.deltas
            if delta.name.low <= write_id <= delta.name.high
            and (delta.name.deletes or write_id > delta.above)
        }
        exists = any(name.low <= write_id <= name.high for name in present)
        if write_ids.is_valid(write_id) and exists:
            assert holders, f"write id {write_id} is lost"
        inserts = {
            (insert.name.low, insert.name.high, insert.name.visibility)
            for insert in result.inserts
            if insert.name.low <= write_id <= insert.name.high and write_id > insert.above
        }
        assert len(inserts) <= 1, f"write id {write_id} is read twice"


@given(entity_listings(), write_id_lists(), txn_lists())
def test_S11_an_invisible_write_is_tested_for_or_not_opened(
    found: EntityListing, write_ids: ValidWriteIdList, some_txns: ValidTxnList
) -> None:
    result = outcome(found, write_ids, some_txns)
    if isinstance(result, str):
        return
    for delta in result.deltas:
        response = write_ids.range_valid(delta.name.low, delta.name.high)
        assert response is not RangeResponse.NONE
        assert delta.test_rows == (response is RangeResponse.SOME)
        assert some_txns.is_valid(delta.name.visibility)
    if result.base and result.base.name.write_id > 0:
        assert result.base.name.write_id <= write_ids.high_watermark
        hidden = not all(map(write_ids.is_valid, range(1, result.base.name.write_id + 1)))
        assert result.base.test_rows == hidden


@given(entity_listings(originals=False))
def test_with_everything_valid_the_highest_base_wins_and_nothing_is_aborted(
    found: EntityListing,
) -> None:
    result = select(found, EVERYTHING, txns())
    bases = [name for name in map(parse_directory, found.directories) if isinstance(name, BaseName)]
    assert (result.base is None) == (not bases)
    if result.base:
        assert result.base.name.write_id == max(name.write_id for name in bases)
    assert result.aborted == ()
    assert [
        directory for directory in result.invisible if isinstance(directory.name, BaseName)
    ] == []


@given(entity_listings(bases=False), write_id_lists())
def test_S16_the_compactor_opens_nothing_above_its_high_watermark(
    found: EntityListing, write_ids: ValidWriteIdList
) -> None:
    compactor = write_ids.for_compactor()
    result = select(found, compactor, txns())
    assert all(delta.name.high <= compactor.high_watermark for delta in result.deltas)
    assert not any(delta.test_rows for delta in result.deltas)


# --- a partition that was dropped and created again ----------------------------------------------


def test_P22_what_the_drop_covers_is_obsolete() -> None:
    found = listing("o b3v9 b2 d1 d4 D5 d4-6v10 d6")
    result = select(found, EVERYTHING, txns(), floor=5)
    assert result.base is None
    assert [(delta.directory, delta.above) for delta in result.deltas] == [
        (listing("d4-6v10").directories[0], 5)
    ]
    reasons = {directory.path: (directory.rule, directory.reason) for directory in result.obsolete}
    dropped = ("P22", "dropped with the partition at write id 5")
    assert reasons == {
        **{path: dropped for path in ("000000_0", *listing("b3v9 b2").directories)},
        **{path: dropped for path in listing("d1").directories},
        **{
            path: ("C46", "within delta_0000004_0000006_v0000010")
            for path in listing("d4 D5 d6").directories
        },
    }


def test_P22_a_base_above_the_drop_counts() -> None:
    result = select(listing("b3v9 b7v20 d8"), EVERYTHING, txns(), floor=5)
    assert result.base is not None
    assert result.base.directory == "base_0000007_v0000020"
    assert [directory.rule for directory in result.obsolete] == ["P22"]


def test_P22_a_snapshot_from_before_the_drop_still_sees_the_partition() -> None:
    older = ValidWriteIdList.of("db.t", 4)
    result = select(listing("b3v9 d4"), older, txns(), floor=5)
    assert result == select(listing("b3v9 d4"), older, txns())
    assert result.base is not None


def test_P22_a_compacted_base_below_the_drop_is_no_missing_history() -> None:
    open_below = ValidWriteIdList.of("db.t", 9, open=[2])
    result = select(listing("b3v9 d6"), open_below, txns(), floor=5)
    assert [delta.directory for delta in result.deltas] == list(listing("d6").directories)


def test_P4_P22_a_floor_of_forgotten_writes_covers_them_in_an_older_list_too() -> None:
    """The floor of a new partition can be an aborted write id that is forgotten now."""
    older = ValidWriteIdList.of("db.t", 9, aborted=[5])
    result = select(listing("b3v9 d4 d6"), older, txns(), floor=5)
    assert result.base is None
    assert [delta.directory for delta in result.deltas] == list(listing("d6").directories)


def test_P22_the_tables_floor_counts_for_snapshots_before_a_partitions_drop() -> None:
    lists = {high: ValidWriteIdList.of("db.t", high) for high in (2, 5, 9)}
    assert [highest_floor(lists[high], 7, 3) for high in (2, 5, 9)] == [0, 3, 7]
    assert highest_floor(lists[9], 0, 0) == 0


@given(entity_listings())
def test_C46_what_is_obsolete_is_what_another_directory_shadows(found: EntityListing) -> None:
    """The metastore compares directories in pairs, and readers and the Cleaner sweep over them."""
    seen = select(found, EVERYTHING, ValidTxnList.everything())
    names = [parse_directory(child) for child in found.directories]
    shadowed = {
        child
        for child in found.directories
        if any(shadows(other, parse_directory(child)) for other in names)
    }
    originals = {file.path for file in found.files if "/" not in file.path}
    if any(shadows(other, None) for other in names):
        shadowed |= originals
    assert {removable.path for removable in seen.obsolete} == shadowed
