"""The history of a table in the metastore: what it keeps, and when it forgets (P36)."""

from __future__ import annotations

from typing import Any

import pytest

from acid_platform import errors
from acid_platform.metastore.operations.compaction import DropCleaning
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules import snapshots
from acid_platform.transactions.concurrency import LockType
from tests.metastore.world import World

FIRST = {"write_id": 1, "time": None, "tag": None}


def past(world: World, table: str = "t", **as_of: Any) -> dict[str, Any]:
    txn = world.read()
    whole = {"write_id": None, "time": None, "tag": None, **as_of}
    try:
        return world.call("past", txn=txn.id, table=table, as_of=whole)
    finally:
        world.commit(txn)


def lists(world: World, **as_of: Any) -> str:
    return str(past(world, **as_of)["pin"]["write_ids"])


def test_P36_a_past_snapshot_has_the_commits_up_to_its_own_in_their_order(world: World) -> None:
    first, second, third = world.write(), world.write(), world.write()
    for txn in (second, first, third):
        world.commit(txn, world.report(txn))
    assert lists(world, write_id=2) == "default.t:2:1:1:"
    assert lists(world, write_id=1).startswith("default.t:2:")
    assert lists(world, write_id=1) == "default.t:2:9223372036854775807::"
    assert lists(world, write_id=3) == "default.t:3:9223372036854775807::"
    assert lists(world, write_id=0) == "default.t:0:9223372036854775807::"


def test_P36_what_never_was_is_refused(world: World) -> None:
    world.insert()
    world.abort(world.write())
    opened = world.write()
    for write_id, why in ((2, "aborted"), (3, "not committed"), (4, "no write id 4")):
        with pytest.raises(errors.NoSuchPast, match=why):
            past(world, write_id=write_id)
    world.abort(opened)
    with pytest.raises(errors.InvalidDefinition, match="one write id, one time or one tag"):
        past(world, write_id=1, tag="x")


def test_P36_a_time_is_that_of_the_commits_whatever_the_clock_does(world: World) -> None:
    start = world.clock.moment().wall
    world.insert()
    world.clock.advance(1000)
    world.insert()
    world.clock.set_wall(-500_000)
    world.insert()  # recorded with the time of the commit before
    world.clock.set_wall(+600_000)
    assert lists(world, time=start) == "default.t:1:9223372036854775807::"
    assert lists(world, time=start + 999) == "default.t:1:9223372036854775807::"
    assert lists(world, time=start + 1000) == "default.t:3:9223372036854775807::"
    with pytest.raises(errors.NotEnoughHistory, match="its history begins at"):
        past(world, time=start - 1)
    with pytest.raises(errors.NoSuchPast, match="in the future"):
        past(world, time=world.clock.moment().wall + 1)


def test_P36_without_a_retention_the_past_ends_at_the_cleaning(world: World) -> None:
    world.insert()
    world.insert()
    world.compact()
    assert lists(world, write_id=1)
    world.clean(world.ready()[0])
    with pytest.raises(errors.NotEnoughHistory, match=r"UTC, write id 2; without acid.history"):
        past(world, write_id=1)
    assert lists(world, write_id=2) == "default.t:2:9223372036854775807::"


def test_P36_without_a_retention_some_commits_are_remembered(world: World) -> None:
    for _ in range(snapshots.MOST_WITHOUT_RETENTION + 20):
        world.insert()
    assert len(world.state.table("t").commits) <= snapshots.MOST_WITHOUT_RETENTION
    oldest = world.state.table("t").since_write
    assert 20 <= oldest <= 22 and lists(world, write_id=oldest).startswith(f"default.t:{oldest}:")
    with pytest.raises(errors.NotEnoughHistory):
        past(world, write_id=oldest - 1)


def test_P36_a_retention_holds_the_cleaner_and_is_forgotten_after_it(world: World) -> None:
    world.set("acid.history.retention", "1h")
    world.insert()
    world.insert()
    world.compact()
    assert not world.ready()
    world.tick(3_500_000)
    assert not world.ready() and lists(world, write_id=1)
    world.tick(200_000)
    (task,) = world.ready()
    assert len(world.state.table("t").commits) == 0, "the purge has forgotten them"
    world.clean(task)
    with pytest.raises(errors.NotEnoughHistory):
        past(world, write_id=1)


@pytest.mark.parametrize("name", ["now", "2", "0", "20240101", "2024-01-01", "2024-01-01 12:00"])
def test_P36_a_tag_whose_name_means_another_snapshot_is_refused(world: World, name: str) -> None:
    world.insert()
    tag: dict[str, Any] = {"table": "t", "as_of": None, "expires": 0, "user": "u"}
    with pytest.raises(errors.InvalidDefinition, match=f"such as 'tag {name}'"):
        world.call("create_tag", name=name, **tag)
    for other in (f"tag {name}", "Now", "v2", "²", "2024/03"):
        world.call("create_tag", name=other, **tag)


def test_P36_a_shorter_retention_of_the_table_wins(world: World) -> None:
    world.set("acid.history.retention", "7d")
    change = {"name": "t", "columns": None, "rename": None, "read": None}
    world.call("alter_table", **change, properties={"acid.history.retention": "0s"})
    world.insert()
    world.compact()
    assert world.ready()
    with pytest.raises(errors.InvalidDefinition, match="is refused"):
        world.call("alter_table", **change, properties={"acid.history.retention": "soon"})


def test_P36_a_tag_that_expires_is_dropped_and_what_it_held_is_cleaned(world: World) -> None:
    world.insert()
    expires = world.clock.moment().wall + 90_000
    tag = world.call("create_tag", table="t", name="x", as_of=None, expires=expires, user="u")
    world.insert()
    world.compact()
    (task,) = world.ready()
    assert [pin.moment for pin in task.pins] == [tag["pin"]["moment"]]
    world.cleaning("start_cleaning", task)
    gone, held = ["delta_0000002_0000002_0000"], [pin.moment for pin in task.pins]
    world.cleaning("mark_cleaned", task, removed=None, gone=gone, held=held)
    assert not world.ready()
    (blocked,) = world.call("cleaning")["blocked"]
    assert blocked["reason"] == "tag x: it keeps what it shows"
    assert past(world, tag="x")["pin"] == tag["pin"]
    world.tick(100_000)
    assert not world.state.table("t").tags
    (task,) = world.ready()
    assert (task.id, task.pins) == (0, ())


def test_P36_a_transaction_that_reads_the_past_pins_it(world: World) -> None:
    world.insert()
    world.insert()
    txn = world.read()
    as_of = {"write_id": 1, "time": None, "tag": None}
    found = world.call("past", txn=txn.id, table="t", as_of=as_of)
    assert world.call("past", txn=txn.id, table="t", as_of=as_of) == found
    assert len(world.state.txns[txn.id].pins) == 1
    world.compact()
    assert not world.ready(), "it was opened before the compaction (C41)"
    later = world.read()
    world.call("past", txn=later.id, table="t", as_of=as_of)
    world.commit(txn)
    (task,) = world.ready()
    assert [str(pin.write_ids) for pin in task.pins] == [found["pin"]["write_ids"]]
    world.commit(later)
    (task,) = world.ready()
    assert task.pins == ()


@pytest.mark.parametrize("read", [{"op": "past", "as_of": FIRST}, {"op": "changes"}])
def test_P36_a_table_that_takes_the_name_of_a_dropped_one_does_not_take_its_pin(
    world: World, read: dict[str, Any]
) -> None:
    """The transaction named both as its snapshot did; the Cleaner still has to wait for it."""
    world.create("s")
    for name in ("t", "s"):
        world.insert(name)
    reader = world.read()
    world.call(**read, txn=reader.id, table="t")
    dropper = world.begin(LockRequest("t", LockType.EXCLUSIVE))
    world.call("drop", txn=dropper.id, name="t", partition=None)
    world.call("alter_table", name="s", columns=None, rename="t", properties=None, read=None)
    world.call(**read, txn=reader.id, table="s")
    assert not world.ready()
    world.commit(reader)
    (task,) = world.ready()
    assert isinstance(task, DropCleaning)


def test_P36_the_declaration_of_the_oldest_write_id_is_kept(world: World) -> None:
    world.insert()
    change = {"name": "t", "properties": None, "rename": None, "read": None}
    world.call("alter_table", **change, columns=[["id", "int"], ["a", "int"]])
    world.call("alter_table", **change, columns=[["id", "int"], ["a", "int"], ["b", "int"]])
    world.compact()
    world.clean(world.ready()[0])
    world.tick(61_000)
    assert past(world, write_id=1)["table"]["columns"] == [["id", "int"]]
    assert len(world.state.table("t").earlier) == 1, "nobody can ask for the one in between"
    world.insert()
    assert len(past(world, write_id=2)["table"]["columns"]) == 3


def test_P36_what_a_history_costs_is_told(world: World) -> None:
    world.insert(rows=3)
    world.insert(rows=2)
    (kept,) = world.call("kept", table="t")["tables"]
    assert (kept["directories"], kept["bytes"], kept["write_id"]) == (0, 0, 0)
    world.compact()
    (kept,) = world.call("kept", table=None)["tables"]
    assert (kept["directories"], kept["bytes"]) == (2, 50)


def test_P36_the_commits_that_can_be_read_are_told(world: World) -> None:
    def told() -> list[int]:
        commits = world.call("commits", table="t")["commits"]
        moments = [commit["moment"] for commit in commits]
        assert moments == sorted({*moments})
        for moment in moments:
            assert past(world, moment=moment)["pin"]["moment"] == moment
        return [commit["write_id"] for commit in commits]

    assert told() == [0], "what there was before the first commit"
    world.insert()
    world.insert()
    world.compact()
    assert told() == [0, 1, 2, 0]
    world.call("end_history", table="t", partitions=[""])
    assert told() == [0], "rows were erased from what was before"
