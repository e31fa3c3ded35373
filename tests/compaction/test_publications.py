"""Other engines and the output of compactions, with files, processes and kills (P46)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acid_platform import AlreadyScheduled, Table, Warehouse
from acid_platform.layout.table_properties import PUBLICATION_WAIT
from acid_platform.metastore.operations.compaction import GetMoment, GetUnpublished
from acid_platform.metastore.operations.transactions import (
    CheckLock,
    CommitTxn,
    OpenBatch,
    RequestLock,
)
from acid_platform.metastore.records import ClientInfo, LockRequest
from acid_platform.services import cleaner, initiator
from acid_platform.services.worker import CompactionOutcome, revoke_dead, work_once
from acid_platform.storage import durability
from acid_platform.transactions import TxnType
from acid_platform.transactions.concurrency import LockType
from tests.compaction.test_kills import killed
from tests.conftest import a_warehouse, few_then_more

NAME = "db.t"


warehouse = a_warehouse("local", scope="function")


def changed(warehouse: Warehouse, **properties: str) -> Table:
    """A table for which a minor compaction has two outputs."""
    table = warehouse.create_table(NAME, "id int", properties=properties)
    for number in range(3):
        table.insert([{"id": 10 * number + row} for row in range(4)])
        table.delete(f"id = {10 * number}")
    return table


def rows(table: Table) -> list[int]:
    found: list[int] = sorted(table.to_arrow().column("id").to_pylist())
    return found


class Foreigner:
    """A transaction of another engine that reads the table, as the gateway drives it."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.metastore = warehouse.metastore
        info = ClientInfo("ann", "trino", "Trino")
        (self.txn,) = self.metastore.call(OpenBatch(1, TxnType.DEFAULT.value, info))
        wish = LockRequest(NAME, LockType.SHARED_READ)
        self.asked = self.metastore.call(RequestLock(self.txn, (wish,), True))

    @property
    def reads(self) -> bool:
        return self.metastore.call(CheckLock(self.asked.ext)).acquired

    def ends(self) -> None:
        self.metastore.call(CommitTxn(self.txn))


def directories(table: Table) -> list[str]:
    return sorted(path.name for path in Path(table.location).iterdir() if path.is_dir())


def merged(table: Table) -> list[str]:
    return [name for name in directories(table) if "_v" in name or name.startswith("base")]


def once_renamed(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Does something after the first rename of a publication."""
    rename, done = durability._rename, False

    def renamed(*arguments: Any) -> None:
        nonlocal done
        rename(*arguments)
        if not done:
            done = True
            do()

    monkeypatch.setattr(durability, "_rename", renamed)


def test_P46_nobody_reads_between_two_renames(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = changed(warehouse)
    before, seen = rows(table), []

    def between() -> None:
        reader = Foreigner(warehouse)
        seen.append((len(merged(table)), reader.reads, rows(table) == before, reader))

    once_renamed(monkeypatch, between)
    warehouse.metastore.request_compaction(NAME, None, "minor")
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published"
    ((count, read, ours_are_right, reader),) = seen
    assert (count, read, ours_are_right) == (1, False, True)
    assert reader.reads and len(merged(table)) == 2


@pytest.mark.parametrize("who", few_then_more(["the Cleaner", "the next Worker"], 1))
@pytest.mark.parametrize(
    ("layout", "kind", "phase", "left"),
    [
        ("hive4", "minor", "one published", 1),
        pytest.param("hive4", "minor", "all published", 2, marks=pytest.mark.more),
        pytest.param("hive3", "major", "all published", 1, marks=pytest.mark.more),
    ],
)
def test_P46_what_a_killed_worker_left_is_removed_before_others_read(
    warehouse: Warehouse, layout: str, kind: str, phase: str, left: int, who: str
) -> None:
    table = changed(warehouse, **{"acid.layout": layout})
    before, inputs = rows(table), directories(table)
    warehouse.release()
    warehouse.metastore.request_compaction(NAME, None, kind)
    assert killed(warehouse, NAME, phase).returncode == -9
    reader = Foreigner(warehouse)
    assert not reader.reads
    assert len(revoke_dead(warehouse.metastore)) == 1
    assert not reader.reads and rows(table) == before
    if who == "the Cleaner":
        explained = [one for one in cleaner.explain(warehouse.metastore) if one.rule == "P46"]
        assert len(explained) == (2 if kind == "minor" else 1)
        (removed,) = [one for one in cleaner.run(warehouse.metastore) if one.removed]
        assert len(removed.removed) == left
        assert directories(table) == inputs and reader.reads
        reader.ends()
    done: list[CompactionOutcome | None] = []
    worker = threading.Thread(target=lambda: done.append(work_once(warehouse)))
    worker.start()
    if who == "the next Worker":
        deadline = time.monotonic() + 60
        while not reader.reads:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        reader.ends()
    worker.join(60)
    (outcome,) = done
    assert outcome is not None and outcome.state == "published"
    assert len(set(directories(table)) - set(inputs)) == (2 if kind == "minor" else 1)
    assert rows(table) == before


def test_P46_a_reader_that_goes_on_ends_the_compaction_and_not_itself(
    warehouse: Warehouse,
) -> None:
    """Its output is dropped, the reason names the reader, and the Initiator asks again."""
    properties = {"compactorthreshold.hive.compactor.delta.num.threshold": "2"}
    table = changed(warehouse, **properties)
    before, inputs = rows(table), directories(table)
    warehouse.metastore.set(PUBLICATION_WAIT, "0s")
    reader, since = Foreigner(warehouse), warehouse.metastore.call(GetMoment())
    (row,) = table.compact("minor")
    assert row["state"] == "refused"
    assert f"transaction {reader.txn})" in row["errormessage"], row
    assert reader.reads and directories(table) == inputs and rows(table) == before
    assert not warehouse.metastore.call(GetUnpublished())
    late = Foreigner(warehouse)
    assert late.reads
    for one in (reader, late):
        one.ends()
    assert [one.id for one in initiator.run(warehouse.metastore, 0, since)] != []
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published"
    assert rows(table) == before


def test_P46_a_rename_that_fails_leaves_nothing_in_sight(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = changed(warehouse)
    inputs = directories(table)

    def fails() -> None:
        raise OSError("the disk is full")

    once_renamed(monkeypatch, fails)
    warehouse.metastore.request_compaction(NAME, None, "minor")
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "failed"
    assert directories(table) == inputs
    assert not warehouse.metastore.call(GetUnpublished()) and Foreigner(warehouse).reads


def test_P46_a_major_compaction_waits_for_nobody(warehouse: Warehouse) -> None:
    """Its base appears by one rename, and older snapshots don't count it."""
    table = changed(warehouse)
    warehouse.metastore.set(PUBLICATION_WAIT, "0s")
    reader = Foreigner(warehouse)
    (row,) = table.compact("major")
    assert row["state"] == "ready for cleaning" and reader.reads
    with pytest.raises(AlreadyScheduled):
        table.compact("major")
    assert [one for one in cleaner.run(warehouse.metastore) if one.removed] == []
    reader.ends()
    (cleaned,) = [one for one in cleaner.run(warehouse.metastore) if one.removed]
    assert not cleaned.error
