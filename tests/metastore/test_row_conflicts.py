"""Commits that change different rows of one partition do not conflict (P38)."""

from __future__ import annotations

import pytest

from acid_platform import MalformedRows, WriteConflict
from acid_platform.metastore.records import LockRequest, RowReport
from acid_platform.metastore.rules.write_set import RowsForgotten
from acid_platform.transactions import RowOperation
from acid_platform.transactions.row_sets import RowSet
from tests.metastore.world import DELETE, INSERT, UPDATE, E, Txn, W, World

BUCKET = 536870912


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    made.insert()
    return made


def rows(*row_ids: int) -> RowSet:
    steps = [after - before for before, after in zip((0, *row_ids), row_ids, strict=False)]
    return RowSet(f"{BUCKET}@1:{','.join(map(str, steps))}" if row_ids else "")


def change(
    world: World,
    txn: Txn,
    *row_ids: int,
    operation: RowOperation = UPDATE,
    partition: str | None = None,
) -> None:
    """Commits a change of these rows."""
    report = world.report(txn, "t", partition, operation)
    world.commit(txn, report, changed=[RowReport("t", partition, operation, rows(*row_ids))])


def two(
    world: World, first: RowOperation = UPDATE, second: RowOperation = UPDATE
) -> tuple[Txn, Txn]:
    return world.write("t", first), world.write("t", second)


@pytest.mark.parametrize("second", [UPDATE, DELETE])
@pytest.mark.parametrize("first", [UPDATE, DELETE])
def test_P38_changes_of_different_rows_both_commit(
    world: World, first: RowOperation, second: RowOperation
) -> None:
    one, other = two(world, first, second)
    change(world, one, 1, 3, operation=first)
    change(world, other, 2, 4, operation=second)


@pytest.mark.parametrize("second", [UPDATE, DELETE])
@pytest.mark.parametrize("first", [UPDATE, DELETE])
def test_P38_changes_of_one_row_conflict_and_the_error_names_it(
    world: World, first: RowOperation, second: RowOperation
) -> None:
    one, other = two(world, first, second)
    change(world, one, 1, 3, operation=first)
    named = f'in row {{"writeid":1,"bucketid":{BUCKET},"rowid":3}}'
    with pytest.raises(WriteConflict, match="overlaps") as refused:
        change(world, other, 2, 3, operation=second)
    assert named in str(refused.value)


def test_P38_every_commit_since_the_transaction_began_is_compared(world: World) -> None:
    slow = world.write("t", UPDATE)
    for row in range(5):
        change(world, world.write("t", UPDATE), row)
    with pytest.raises(WriteConflict, match='"rowid":2}'):
        change(world, slow, 2, 9)


def test_P38_what_committed_before_the_transaction_began_is_not_compared(world: World) -> None:
    change(world, world.write("t", UPDATE), 3)
    change(world, world.write("t", UPDATE), 3)


@pytest.mark.parametrize("silent", ["first", "second"])
def test_P38_a_change_without_rows_conflicts_by_partition(world: World, silent: str) -> None:
    """A foreign writer, an older client, or a MERGE that inserted."""
    one, other = two(world)
    if silent == "first":
        world.commit(one, world.report(one, operation=UPDATE))
    else:
        change(world, one, 1)
    with pytest.raises(WriteConflict, match="did not name its rows"):
        if silent == "first":
            change(world, other, 2)
        else:
            world.commit(other, world.report(other, operation=UPDATE))


def test_P38_the_property_of_the_table_chooses_the_partition_rule(world: World) -> None:
    world.create("u", properties={"acid.conflict.detection": "partition"})
    one, other = world.write("u", UPDATE), world.write("u", UPDATE)
    world.commit(one, changed=[RowReport("u", None, UPDATE, rows(1))])
    assert world.state.write_set[2][None][0].rows is None
    with pytest.raises(WriteConflict):
        world.commit(other, changed=[RowReport("u", None, UPDATE, rows(2))])


def test_P38_the_setting_holds_for_tables_without_the_property(world: World) -> None:
    world.create("u", properties={"acid.conflict.detection": "row"})
    world.set("acid.conflict.detection", "partition")
    one, other = two(world)
    change(world, one, 1)
    with pytest.raises(WriteConflict):
        change(world, other, 2)
    for row in (1, 2):
        txn = world.write("u", UPDATE)
        world.commit(txn, changed=[RowReport("u", None, UPDATE, rows(row))])


def test_P38_a_property_that_changes_meanwhile_never_hides_a_conflict(world: World) -> None:
    one, other, third = world.write("t", UPDATE), *two(world)
    world.set("acid.conflict.detection", "partition")
    change(world, one, 1)
    world.set("acid.conflict.detection", "row")
    with pytest.raises(WriteConflict):
        change(world, other, 2)  # the rows of the first are not kept
    fourth = world.write("t", UPDATE)
    change(world, fourth, 5)
    world.set("acid.conflict.detection", "partition")
    with pytest.raises(WriteConflict):
        change(world, third, 6)


def test_P38_an_update_that_matched_no_row_conflicts_with_nobody(world: World) -> None:
    one, other = two(world)
    change(world, one, 1)
    world.commit(other, changed=[RowReport("t", None, UPDATE, rows())])


def test_P38_P30_overwrites_and_truncates_conflict_by_partition(world: World) -> None:
    updating = world.begin()
    world.overwrite()
    world.lock(updating, LockRequest("t", W, UPDATE))
    updating.write_ids["default.t"] = 3
    with pytest.raises(WriteConflict, match="overlaps"):
        change(world, updating, 1)


def test_P38_rows_of_different_operations_are_compared_with_each_other(world: World) -> None:
    """One transaction updates some rows and deletes others."""
    both = world.begin(LockRequest("t", W, UPDATE), LockRequest("t", W, DELETE))
    others = [world.write("t", UPDATE) for _ in range(3)]
    world.commit(
        both,
        world.report(both, operation=UPDATE),
        changed=[
            RowReport("t", None, UPDATE, rows(1)),
            RowReport("t", None, DELETE, rows(2)),
        ],
    )
    for row, txn in zip((1, 2), others, strict=False):
        with pytest.raises(WriteConflict):
            change(world, txn, row)
    change(world, others[2], 3)


def test_P38_partitions_have_rows_of_their_own(world: World) -> None:
    world = World()
    world.create(partitioned=True)
    for name in ("p=1", "p=2"):
        world.insert(partition=name)
    dynamic = LockRequest("t", W, UPDATE, dynamic=True)
    one, other = world.begin(dynamic), world.begin(dynamic)
    change(world, one, 1, partition="p=1")
    change(world, other, 1, partition="p=2")


def test_P38_inserts_are_never_compared_by_row(world: World) -> None:
    inserting, updating = world.write("t", INSERT), world.write("t", UPDATE)
    change(world, updating, 1)
    world.commit(inserting, world.report(inserting))


@pytest.mark.parametrize("text", ["1@2:3,0", "1@2:3/0"])
def test_P38_rows_out_of_order_abort_the_commit(world: World, text: str) -> None:
    txn = world.write("t", UPDATE)
    with pytest.raises(MalformedRows, match="do not ascend"):
        world.commit(txn, changed=[RowReport("t", None, UPDATE, RowSet(text))])
    assert not world.state.txns[txn.id].is_open


# --- memory --------------------------------------------------------------------------------------


def test_P38_rows_are_forgotten_with_their_commits(world: World) -> None:
    one, other = two(world)
    change(world, one, 1, 3, 5)
    assert world.state.row_bytes == len(rows(1, 3, 5).text)
    world.tick(61_000)
    assert world.state.row_bytes > 0, "the other transaction may still need them"
    world.commit(other, changed=[RowReport("t", None, UPDATE, rows(2))])
    world.tick(61_000)
    assert world.state.row_bytes == 0 and not world.state.write_set


def test_P38_beyond_the_memory_the_oldest_commits_conflict_by_partition(world: World) -> None:
    size = len(rows(100).text)
    world.set("acid.conflict.memory.bytes", str(4 * size))
    oldest = world.write("t", UPDATE)
    for row in range(100, 104):
        change(world, world.write("t", UPDATE), row)
    young = world.write("t", UPDATE)
    change(world, world.write("t", UPDATE), 104)
    forgotten = [record.event for record in world.events if record.kind == "rows_forgotten"]
    assert len(forgotten) == 1 and isinstance(forgotten[0], RowsForgotten)
    assert world.state.row_bytes <= 4 * size
    assert [row.rows is None for row in world.state.write_set[1][None]] == [True] * 3 + [False] * 2
    change(world, young, 105)
    with pytest.raises(WriteConflict, match="did not name its rows"):
        change(world, oldest, 106)


def test_P38_a_list_beyond_its_budget_is_compared_but_not_kept(world: World) -> None:
    world.set("acid.conflict.rows.bytes", str(len(rows(1).text)))
    one, other, third = world.write("t", UPDATE), *two(world)
    change(world, one, 7)
    change(world, other, 1, 2)
    assert [row.rows is None for row in world.state.write_set[1][None]] == [False, True]
    with pytest.raises(WriteConflict):
        change(world, third, 3)


def test_P38_a_dropped_table_frees_its_rows(world: World) -> None:
    change(world, world.write("t", UPDATE), 1)
    assert world.state.row_bytes > 0
    txn = world.begin(LockRequest("t", E))
    world.call("drop", txn=txn.id, name="t", partition=None)
    assert world.state.row_bytes == 0
