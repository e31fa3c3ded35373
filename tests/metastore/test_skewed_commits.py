"""Two commits that each inserted what the other looked for conflict (P51)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from acid_platform import MalformedRows, WriteConflict
from acid_platform.metastore.messages import decode, encode
from acid_platform.metastore.records import LockRequest, RegionReport
from acid_platform.metastore.server import stored_kinds
from acid_platform.transactions import row_sets
from acid_platform.transactions.concurrency import Looked
from acid_platform.transactions.row_sets import ColumnSpans, KeyHashes, Region, Span
from tests.metastore.world import INSERT, E, Txn, W, World, X


def some(keys: Sequence[int], table: str = "t") -> list[dict[str, Any]]:
    region = Region({"id": ColumnSpans.of((key, key) for key in keys)})
    return [encode(RegionReport(table, region))] if keys else []


def commit(
    world: World, txn: Txn, sought: Sequence[int], inserted: Sequence[int], table: str = "t"
) -> None:
    told = {"sought": some(sought, table), "inserted": some(inserted, table)}
    world.call("commit", txn=txn.id, writes=[encode(world.report(txn))], **told)


def test_P51_the_second_of_two_that_bring_one_key_conflicts(world: World) -> None:
    one, other = world.write(), world.write()
    commit(world, one, [1, 2], [1])
    with pytest.raises(WriteConflict, match=r"looked for rows \(id 1, 3\).*was aborted, begin"):
        commit(world, other, [1, 3], [1])
    again = world.write()
    commit(world, again, [1, 3], [3])


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (([1], []), ([1], [1])),  # it inserted nothing
        (([], [1]), ([1], [1])),  # it looked for nothing
        (([1], [1]), ([2], [1])),  # the other one needs none of its rows
        (([2], [1]), ([1], [1])),  # it misses none of the other one's rows
        (([1], [1]), ([2], [2])),
    ],
)
def test_P51_an_order_that_explains_both_is_no_conflict(
    world: World, mine: tuple[list[int], list[int]], theirs: tuple[list[int], list[int]]
) -> None:
    one, other = world.write(), world.write()
    commit(world, one, *theirs)
    commit(world, other, *mine)


def test_P51_a_commit_that_only_inserts_leaves_nothing(world: World) -> None:
    blocker = world.write()
    commit(world, world.write(), [], [1])
    commit(world, world.write(), [1], [])
    assert not world.state.looked and world.state.row_bytes == 0
    commit(world, blocker, [1], [1])


def test_P51_what_the_snapshot_sees_does_not_conflict(world: World) -> None:
    """Although it was committed after the transaction got its id, while it waited for its lock."""
    first = world.write(lock=X)
    waiting = world.begin_request(LockRequest("t", W, INSERT))
    commit(world, first, [1], [1])
    commit(world, Txn(world.answer(waiting)), [1], [1])


def test_P51_a_table_that_was_dropped_is_left_out(world: World) -> None:
    world.create("u")
    txn, other = world.write(), world.write()
    commit(world, other, [1], [1], "u")
    dropping = world.begin(LockRequest("u", E))
    world.call("drop", txn=dropping.id, name="u", partition=None)
    commit(world, txn, [1], [1], "u")


def test_P51_a_restart_and_a_snapshot_keep_it(world: World) -> None:
    one, other = world.write(), world.write()
    commit(world, one, [1], [1])
    rows = stored_kinds.live_rows(world.state)["looked"]
    assert [decode(Looked, row) for row in rows] == world.state.looked
    replayed = World()
    replayed.machine.replay(world.events)
    assert replayed.state.looked == world.state.looked
    assert replayed.state.row_bytes == world.state.row_bytes > 0
    assert other.id


def test_P51_T44_it_is_forgotten_when_no_open_transaction_overlaps_it(world: World) -> None:
    one, other = world.write(), world.write()
    commit(world, one, [1], [1])
    world.tick(61_000)
    assert world.state.looked
    world.abort(other)
    world.tick(61_000)
    assert not world.state.looked and world.state.row_bytes == 0


def test_P51_beyond_the_memory_the_oldest_count_as_if_they_looked_for_all_rows(
    world: World,
) -> None:
    oldest, young = world.write(), world.write()
    commit(world, world.write(), [1], [1])
    world.set("acid.conflict.memory.bytes", str(2 * world.state.row_bytes))
    for key in (2, 3):
        commit(world, world.write(), [key], [key])
    assert [bool(one.size) for one in world.state.looked] == [False, False, True]
    with pytest.raises(WriteConflict, match="looked for rows"):
        commit(world, oldest, [7], [7])
    world.abort(young)


def told(key: int, column: str) -> list[dict[str, Any]]:
    region = Region({"id": ColumnSpans.of([(key, key)])}, None, (column,))
    return [encode(RegionReport("t", region))]


@pytest.mark.parametrize("memory", ["10000000", "1"])
@pytest.mark.parametrize("assigned", ["id", "v"])
def test_P51_an_update_brings_rows_to_conditions_that_read_what_it_assigned(
    world: World, assigned: str, memory: str
) -> None:
    """Also when there is no room to keep which rows they were."""
    world.set("acid.conflict.memory.bytes", memory)
    txns = [world.write() for _ in range(2)]
    for txn in txns:
        regions = {"sought": told(5, "id"), "inserted": told(5, assigned)}
        meets = assigned == "id" and txn is txns[1]
        with pytest.raises(WriteConflict, match="looked for rows") if meets else nullcontext():
            world.call("commit", txn=txn.id, writes=[encode(world.report(txn))], **regions)


@pytest.mark.parametrize(
    "region",
    [
        Region({"id": ColumnSpans(True, (Span("x", "1"),))}),
        Region({"id": ColumnSpans(True, (Span("NaN", None),))}),
        Region({}, KeyHashes(("id",), "AAAA")),
        Region({}, KeyHashes(("id",), "not base64")),
        Region({"id": ColumnSpans(True, (Span("1", "1"),) * (row_sets.MOST_SPANS + 1))}),
        Region({}, KeyHashes(("id",), b64encode(bytes(8 * row_sets.MOST_KEYS + 8)).decode())),
    ],
)
def test_P51_a_region_that_is_none_aborts_the_commit(world: World, region: Region) -> None:
    txn = world.write()
    sought = [encode(RegionReport("t", region))]
    with pytest.raises(MalformedRows, match="not a region"):
        world.call("commit", txn=txn.id, writes=[], sought=sought)
    assert not world.state.txns[txn.id].is_open


def test_P51_a_commit_has_a_bounded_number_of_regions(world: World) -> None:
    txn = world.write()
    sought = [encode(RegionReport("t", Region()))] * (row_sets.MOST_REGIONS + 1)
    with pytest.raises(MalformedRows, match="65 regions of rows of t: 64 at most"):
        world.call("commit", txn=txn.id, writes=[], sought=sought)
