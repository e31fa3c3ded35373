"""A commit that has written all files of a table again declares the table that fits them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from acid_platform import errors
from acid_platform.metastore.messages import decode, encode
from acid_platform.metastore.records import LockRequest, RewrittenTable, TableRecord, WriteReport
from acid_platform.metastore.server import stored_kinds
from tests.contents import counts
from tests.metastore.world import OVERWRITE, UPDATE, E, Txn, W, World


@pytest.fixture
def world() -> World:
    made = World()
    made.create(columns=[["id", "int"], ["a", "string"]], comments={"a": "old"})
    made.set("acid.history.retention", "1h")
    made.insert()
    made.insert()
    return made


def table(world: World, txn: Txn | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = world.call("table", name="t", txn=txn.id if txn else 0)["table"]
    return answer


def begun(world: World) -> Txn:
    return world.begin(LockRequest("t", E, OVERWRITE))


def rewrite(
    world: World, txn: Txn, version: int, *columns: str, names: Sequence[tuple[str, str]] = ()
) -> None:
    """Commits a base whose files have these columns, of which some had other names."""
    base = f"base_{txn.write_ids['default.t']:07d}"
    ints = tuple((name, "int") for name in columns)
    comments = {"id": "n"} if "id" in columns else {}
    after = RewrittenTable("t", version, ints, comments, {}, renamed=tuple(names))
    report = WriteReport("t", None, UPDATE, base, counts(2, 20), True)
    world.call("commit", txn=txn.id, writes=[encode(report)], rewritten=[encode(after)])


def renamed(world: World) -> None:
    rewrite(world, begun(world), table(world)["version"], "id", "b")


def names(record: dict[str, Any]) -> list[str]:
    return [name for name, _ in record["columns"]]


def changes(world: World, since: int, until: int | None = None) -> dict[str, Any]:
    txn = world.read()
    try:
        return world.call(
            "changes",
            txn=txn.id,
            table="t",
            since={"write_id": since},
            until=None if until is None else {"write_id": until},
        )
    finally:
        world.commit(txn)


def test_P28_a_snapshot_sees_the_columns_that_its_files_have(world: World) -> None:
    older = world.read(None)
    renamed(world)
    newer = world.read(None)
    assert names(table(world, older)) == ["id", "a"]
    assert not world.sees(older).is_valid(3)
    assert names(table(world, newer)) == ["id", "b"]
    assert table(world)["comments"] == {"id": "n"}
    assert table(world)["rewritten"] == 3
    for write_id, columns in ((2, ["id", "a"]), (3, ["id", "b"])):
        txn = world.read()
        then = world.call("past", txn=txn.id, table="t", as_of={"write_id": write_id})
        assert names(then["table"]) == columns
        assert str(then["pin"]["write_ids"]).startswith(f"default.t:{write_id}:")


def test_P28_a_table_that_others_altered_meanwhile_is_refused(world: World) -> None:
    read, txn = table(world)["version"], begun(world)
    wide = [["id", "int"], ["a", "string"], ["c", "int"]]
    change = {"columns": wide, "properties": None, "rename": None, "read": None}
    world.call("alter_table", name="t", **change)
    with pytest.raises(errors.DeclarationChanged, match="was altered while transaction"):
        rewrite(world, txn, read, "id", "b")
    assert names(table(world)) == ["id", "a", "c"]
    renamed(world)


def test_P28_a_writer_from_before_begins_again(world: World) -> None:
    writer = world.begin()
    world.sees(writer)
    renamed(world)
    with pytest.raises(errors.DeclarationChanged, match=r"columns of default\.t were changed"):
        world.lock(writer, LockRequest("t", W))


def test_P39_changes_begin_after_the_new_files(world: World) -> None:
    """They have the rows of before, so that removed rows are read with the columns of now."""
    renamed(world)
    caught_up = changes(world, 2)
    assert caught_up["commits"] == [] and caught_up["entities"] == []
    assert str(caught_up["before"]["write_ids"]).startswith("default.t:3:")
    rewrite(world, begun(world), table(world)["version"], "id", "c")
    world.insert()
    later = changes(world, 2)
    assert [commit["write_id"] for commit in later["commits"]] == [5]
    assert names(later["table"]) == ["id", "c"]
    with pytest.raises(
        errors.InvalidDefinition, match="until write id 2, and since write id 4, apart"
    ):
        changes(world, 1)
    assert [commit["write_id"] for commit in changes(world, 1, 2)["commits"]] == [2]
    assert names(changes(world, 1, 2)["table"]) == ["id", "a"]


def test_a_name_that_a_view_still_reads_is_not_given_to_another_column(world: World) -> None:
    view = {
        "name": "default.v",
        "query": "SELECT `a` FROM `default`.`t`",
        "columns": [["a", "string"]],
        "reads": [["default.t", [["a", "string"]]]],
    }
    world.call("create_view", view=view, if_not_exists=False, or_replace=False)
    renamed(world)
    wide = [["id", "int"], ["b", "int"], ["a", "int"]]
    change = {"columns": wide, "properties": None, "rename": None, "read": None}
    with pytest.raises(errors.InvalidDefinition, match=r"view default\.v reads a column 'a'"):
        world.call("alter_table", name="t", **change)
    with pytest.raises(errors.InvalidDefinition, match=r"view default\.v reads a column 'a'"):
        rewrite(world, begun(world), table(world)["version"], "id", "a")
    txn = world.write()
    with pytest.raises(errors.InvalidDefinition, match="before another column gets the name"):
        world.call("commit", txn=txn.id, writes=[], columns={"t": [["a", "int"]]})
    world.call("drop_view", name="default.v")
    rewrite(world, begun(world), table(world)["version"], "id", "a")


def ids(world: World) -> dict[str, int]:
    record = decode(TableRecord, table(world))
    return dict(zip(names(table(world)), record.ids_of_columns, strict=True))


def test_P28_no_column_ever_gets_the_id_of_another(world: World) -> None:
    def altered(*columns: str) -> dict[str, int]:
        pairs = [[name, "int"] for name in columns]
        change = {"columns": pairs, "properties": None, "rename": None, "read": None}
        world.call("alter_table", name="t", **change)
        return ids(world)

    def rewritten(*columns: str, **renamed: str) -> dict[str, int]:
        version = table(world)["version"]
        rewrite(world, begun(world), version, *columns, names=tuple(renamed.items()))
        return ids(world)

    assert ids(world) == {"id": 1, "a": 2}
    assert "column_ids" not in table(world), "what follows from the order is not stored"
    assert altered("a", "id", "c") == {"a": 2, "id": 1, "c": 3}
    assert rewritten("a", "id") == {"a": 2, "id": 1}, "c goes"
    assert altered("id", "a", "c") == {"id": 1, "a": 2, "c": 4}
    assert rewritten("a", "c", a="c", c="a") == {"a": 4, "c": 2}, "one goes, two swap their names"
    assert rewritten("b", b="c") == {"b": 2}
    assert altered("b", "id") == {"b": 2, "id": 5}
    txn = world.write()
    world.call("commit", txn=txn.id, writes=[], columns={"t": [["d", "int"]]})
    assert ids(world) == {"b": 2, "id": 5, "d": 6}
    rows = json.loads(json.dumps(stored_kinds.live_rows(world.state)))
    counters = stored_kinds.counters(world.state)
    kept = stored_kinds.restore(rows, counters).tables[1].record
    assert (kept.column_ids, kept.last_column_id) == ((2, 5, 6), 0)
