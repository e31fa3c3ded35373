"""Consumers of changes: what is kept for them, and what is said of those that lost some (P55)."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from acid_platform import errors
from acid_platform.metastore.messages import encode
from acid_platform.metastore.pasts import CursorMove
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions.concurrency import LockType
from tests.conftest import few_then_more
from tests.metastore.world import World

HOUR = 3_600_000
KEPT = 2 * HOUR


@dataclass
class Seen:
    """What a consumer has read: which table, and how many of its commits."""

    table_id: int
    commits: int


class History:
    """Tables named `t`, one after the other, and consumers that read `t`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.world.set("acid.consumer.retention", "2h")
        self.seen: dict[str, Seen] = {}
        self.commits: dict[int, list[tuple[int, int]]] = {}
        """Of each table, the write ids and times of the commits that changed rows."""
        self.number = 0
        self.create()

    def create(self) -> None:
        self.table_id = self.world.create("t", location=f"/w/{len(self.commits)}")
        self.commits[self.table_id] = []

    def step(self) -> None:
        steps = (self.write, self.write, self.consume, self.consume, self.compact, self.clean)
        self.random.choices(
            (*steps, self.wait, self.replace, self.forget), (*[4] * len(steps), 3, 1, 1)
        )[0]()

    def write(self) -> None:
        txn = (self.world.insert if self.random.random() < 0.7 else self.world.overwrite)()
        write_id = txn.write_ids["default.t"]
        self.commits[self.table_id].append((write_id, self.world.clock.moment().wall))

    def compact(self) -> None:
        with contextlib.suppress(errors.AlreadyScheduled):
            if len(self.commits[self.table_id]) > 1:
                self.world.compact()

    def clean(self) -> None:
        for task in self.world.ready():
            if task.table_id == self.table_id:
                self.world.clean(task)

    def wait(self) -> None:
        self.world.tick(self.random.choice([60_000, HOUR, 3 * HOUR]))

    def replace(self) -> None:
        """Drops `t` or renames it, and makes another."""
        if self.random.random() < 0.5:
            self.world.call("drop", txn=self.exclusive(), name="t", partition=None)
        else:
            self.number += 1
            change = {"columns": None, "properties": None, "read": None}
            self.world.call("alter_table", name="t", rename=f"old_{self.number}", **change)
        self.create()

    def exclusive(self) -> int:
        return self.world.begin(LockRequest("t", LockType.EXCLUSIVE)).id

    def consume(self) -> None:
        consumer = self.random.choice("ab")
        txn, found = self.changes(consumer)
        if isinstance(found, errors.NotEnoughHistory):
            assert f"acid changes default.t --forget {consumer}" in str(found)
            return
        before = found["cursor"]["moment"] if found["cursor"] else 0
        move = encode(CursorMove(consumer, "t", before, found["after"]["moment"]))
        self.world.call("commit", txn=txn, writes=[], cursors=[move])
        self.seen[consumer] = Seen(self.table_id, len(self.commits[self.table_id]))

    def changes(self, consumer: str) -> tuple[int, Any]:
        txn = self.world.begin().id
        since = {"write_id": None, "time": None, "tag": None, "consumer": consumer}
        try:
            return txn, self.world.call("changes", txn=txn, table="t", since=since, until=None)
        except errors.NotEnoughHistory as error:
            self.world.call("abort", txn=txn, reason="refused")
            return txn, error

    def forget(self) -> None:
        consumer = self.random.choice("ab")
        if consumer in self.seen:
            self.world.call("forget_cursor", table="t", consumer=consumer)
            del self.seen[consumer]

    def check(self) -> None:
        """The list says of each consumer what its next run would find."""
        rows = {row["cursor"]["consumer"]: row for row in self.listed("t")}
        assert rows.keys() == self.seen.keys()
        for consumer, seen in self.seen.items():
            unread = self.commits[self.table_id]
            replaced = seen.table_id != self.table_id
            if not replaced:
                unread = unread[seen.commits :]
            row = rows[consumer]
            txn, found = self.changes(consumer)
            if isinstance(found, errors.NotEnoughHistory):
                assert (row["refused"], row["behind"] > 0) == (str(found), True)
                late = unread and unread[0][1] + KEPT <= self.world.clock.moment().wall
                assert replaced or late, "it lost what had to be kept"
                continue
            self.world.call("abort", txn=txn, reason="checked")
            assert not replaced
            told = [commit["write_id"] for commit in found["commits"] if commit["write_id"]]
            assert told == [write_id for write_id, _ in unread]
            assert (row["refused"], row["behind"]) == ("", len(unread))

    def listed(self, table: str | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.world.call("cursors", table=table)["cursors"]
        return rows


@pytest.mark.parametrize("seed", few_then_more(range(40), 4))
def test_P55_a_consumer_gets_all_or_is_behind_and_told_why(seed: int) -> None:
    """Whatever is compacted, cleaned, dropped, renamed and made again; nothing is lost in time."""
    history = History(seed)
    for _ in range(60):
        history.step()
        history.check()


@pytest.fixture
def world() -> World:
    made = World()
    made.create(partitioned=False)
    made.insert()
    read(made, "c")
    return made


def read(world: World, consumer: str) -> None:
    txn = world.begin().id
    since = {"write_id": None, "time": None, "tag": None, "consumer": consumer}
    found = world.call("changes", txn=txn, table="t", since=since, until=None)
    before = found["cursor"]["moment"] if found["cursor"] else 0
    move = encode(CursorMove(consumer, "t", before, found["after"]["moment"]))
    world.call("commit", txn=txn, writes=[], cursors=[move])


def test_P55_the_cleaner_says_who_has_not_read_and_until_when(world: World) -> None:
    world.insert()
    world.compact()
    (blocked,) = world.blocked()
    assert "consumer c has not read the changes since before it" in blocked["reason"]
    assert "acid.consumer.retention keeps them until 2023-11-21" in blocked["reason"]
    read(world, "c")
    assert len(world.ready()) == 1


@pytest.mark.parametrize(
    ("setting", "waited"), [("7d", 7 * 24 * HOUR), ("1h", HOUR), ("0s", 0), (None, HOUR)]
)
def test_P55_a_consumer_that_vanished_keeps_files_for_a_limited_time(
    world: World, setting: str | None, waited: int
) -> None:
    """By the setting, or the property of the table (None: that one alone)."""
    if setting is None:
        own = {"acid.consumer.retention": "1h"}
        change = {"columns": None, "rename": None, "read": None}
        world.call("alter_table", name="t", properties=own, **change)
    else:
        world.set("acid.consumer.retention", setting)
    world.insert()
    world.compact()
    if waited:
        world.tick(waited - 1)
        assert not world.ready()
        world.tick(1)
    (task,) = world.ready()
    world.clean(task)
    (row,) = world.call("cursors", table=None)["cursors"]
    assert row["behind"] == 1 and "acid changes default.t --forget c" in row["refused"]
    world.insert()
    world.compact()
    assert len(world.ready()) == 1, "who has lost changes keeps no more"


def test_P55_a_busy_table_forgets_no_commit_that_a_consumer_has_not_read(world: World) -> None:
    for _ in range(150):
        world.insert()
    (row,) = world.call("cursors", table="t")["cursors"]
    assert (row["behind"], row["refused"]) == (150, "")
    world.set("acid.consumer.retention", "0s")
    world.insert()
    (row,) = world.call("cursors", table="t")["cursors"]
    assert row["refused"] and len(world.state.table("t").commits) <= 100


def test_P55_an_erasure_is_not_held_up_by_consumers(world: World) -> None:
    world.insert()
    world.compact()
    world.call("end_history", table="t", partitions=[""])
    assert len(world.ready()) == 1
    (row,) = world.call("cursors", table="t")["cursors"]
    assert "rows were erased from its history" in row["refused"]


def test_P55_files_that_were_written_again_cost_a_consumer_nothing(world: World) -> None:
    """A change of the columns writes every file again, and changes no row."""
    world.overwrite()
    commits = world.state.table("t").commits
    commits[-1] = replace(commits[-1], rewrite=True)
    world.compact()
    world.clean(world.ready()[0])
    (row,) = world.call("cursors", table="t")["cursors"]
    assert (row["behind"], row["refused"]) == (0, "")
    world.insert()
    (row,) = world.call("cursors", table="t")["cursors"]
    assert (row["behind"], row["refused"]) == (1, "")
