"""The changes of tables against a naive recomputation, for random histories (P39).

The model keeps a copy of the rows after every commit. What changed between two of them follows from
these copies alone: the feed has to say the same, whatever was compacted and cleaned in between.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import (
    CorruptFile,
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    Warehouse,
)
from acid_platform.formats.orc import AcidWriter
from acid_platform.formats.orc.tail import read_updates, write_updates
from acid_platform.metastore.operations.compaction import GetCleanings
from acid_platform.metastore.operations.tables import GetLastWriteId
from acid_platform.services import cleaner
from tests.acid_files import AcidTable
from tests.conftest import IN_ORC, a_warehouse, temporary_warehouse
from tests.history.model import KINDS, SERVICES, WRITES, History, Rows

Change = tuple[str, int, str | None, int]
"""Type, id, text, partition."""

warehouse = a_warehouse("local")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path, engine="local") as opened:
        yield opened


STEPS = (*WRITES, "rollback", *SERVICES, "add column")


class ChangedHistory(History):
    """Compares the feed of changes with the rows after each commit."""

    def check(self, forever: bool, pairs: int = 4) -> int:
        """Compares the changes between some snapshots; returns how many could be read."""
        read = 0
        for _ in range(pairs):
            low, high = sorted(self.random.choices(range(len(self.past)), k=2))
            since, until = self.past[low][0], self.past[high][0]
            try:
                found = self.table.changes_arrow(since, until).read_all().to_pylist()
            except NotEnoughHistory as error:
                assert not forever and "history begins at" in str(error)
                continue
            self.compare(low, high, found)
            read += 1
        return read

    def compare(self, low: int, high: int, found: list[dict[str, Any]]) -> None:
        by_write: dict[int, Counter[Change]] = {}
        for row in found:
            change = (row["_change_type"], row["id"], row["v"], row["p"])
            by_write.setdefault(row["_write_id"], Counter())[change] += 1
        applied = Counter((id, *row) for id, row in self.past[low][1].items())
        for place in range(low + 1, high + 1):
            write_id, after = self.past[place]
            before = self.past[place - 1][1]
            mine = by_write.pop(write_id, Counter())
            if write_id not in self.whole:
                assert mine == Counter(_changes(before, after)), (write_id, self.past)
            for (kind, *row), times in mine.items():
                sign = 1 if kind in ("insert", "update_postimage") else -1
                applied[row[0], row[1], row[2]] += sign * times
        assert not by_write, "changes of a commit that was not asked for"
        wanted = Counter((id, *row) for id, row in self.past[high][1].items())
        assert {row: n for row, n in applied.items() if n} == wanted
        times = {row["_write_id"]: row["_commit_timestamp"] for row in found}
        order = [write_id for write_id, _ in self.past if write_id in times]
        assert [times[each] for each in order] == sorted(set(times.values()))


def _changes(before: Rows, after: Rows) -> Iterator[Change]:
    """The naive answer."""
    for id in before.keys() | after.keys():
        if id not in after:
            yield ("delete", id, *before[id])
        elif id not in before:
            yield ("insert", id, *after[id])
        elif before[id] != after[id]:
            yield ("update_preimage", id, *before[id])
            yield ("update_postimage", id, *after[id])


def live(warehouse: Warehouse, seed: int, kind: str, retention: str, steps: int = 14) -> None:
    history = ChangedHistory(warehouse, seed, kind, retention)
    history.step("insert")
    for _ in range(steps):
        what = history.random.choice(STEPS)
        history.step(what)
        if what == "clean":
            history.check(bool(retention), 2)
    read = history.check(bool(retention), 6)
    assert read == 6 or not retention


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retention", ["1h", ""])
def test_P39_the_changes_lead_from_the_rows_of_then_to_those_of_later(
    warehouse: Warehouse, kind: str, retention: str
) -> None:
    seed = KINDS.index(kind) + (10 if retention else 0)
    live(warehouse, seed, kind, retention)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_P39_many_histories(warehouse: Warehouse, seed: int) -> None:
    live(warehouse, seed, KINDS[seed % 3], "1h" if seed % 2 else "", 25)


def kinds(rows: pa.RecordBatchReader) -> Counter[tuple[str, int]]:
    return Counter((row["_change_type"], row["id"]) for row in rows.read_all().to_pylist())


@pytest.mark.slow
def test_P39_a_reader_keeps_its_changes_while_others_compact_and_clean(own: Warehouse) -> None:
    """What lies between the two snapshots would be cleaned when the retention is lifted."""
    table = own.create_table("default.held", "id int", properties={"acid.history.retention": "1h"})
    for id in range(4):
        own.sql(f"INSERT INTO held VALUES ({id})")
        own.sql(f"DELETE FROM held WHERE id = {id}")
    table.compact("major")
    reader = table.changes_arrow(0)
    own.sql("ALTER TABLE held SET TBLPROPERTIES ('acid.history.retention' = '0s')")
    assert not cleaner.run(own.metastore)
    (blocked,) = own.metastore.call(GetCleanings()).blocked
    assert "reads the changes since before it" in blocked.reason
    for _ in range(104):  # more commits than are remembered without a retention
        own.sql("INSERT INTO held VALUES (9)")
    assert table.changes_arrow(0, 8).read_all().num_rows == 8, "the history reaches back as far"
    assert kinds(reader) == Counter(
        {(kind, id): 1 for kind in ("insert", "delete") for id in range(4)}
    )
    own.sql("INSERT INTO held VALUES (9)")
    with pytest.raises(NotEnoughHistory, match="its history begins at"):
        table.changes_arrow(0)
    cleaner.run(own.metastore)
    with pytest.raises(NotEnoughHistory, match=r"acid\.history\.retention'='7d'"):
        table.changes_arrow(2)


def test_P39_a_tag_keeps_no_changes(own: Warehouse) -> None:
    table = own.create_table("default.tagged", "id int")
    own.sql("INSERT INTO tagged VALUES (1)")
    table.tag("first")
    own.sql("INSERT INTO tagged VALUES (2)")
    assert kinds(table.changes_arrow("first")) == {("insert", 2): 1}
    table.compact("major")
    cleaner.run(own.metastore)
    own.sql("INSERT INTO tagged VALUES (3)")
    assert table.count(as_of="first") == 1
    with pytest.raises(NotEnoughHistory, match="a tag keeps the rows of its snapshot, not what"):
        table.changes_arrow("first")
    assert kinds(table.changes_arrow(2)) == {("insert", 3): 1}


def test_P39_times_and_the_order_of_commits(warehouse: Warehouse) -> None:
    table = warehouse.create_table("default.timed", "id int")
    warehouse.sql("INSERT INTO timed VALUES (1)")
    time.sleep(0.01)
    moment = datetime.now(UTC)
    time.sleep(0.01)
    warehouse.sql("INSERT INTO timed VALUES (2)")
    assert kinds(table.changes_arrow(moment)) == {("insert", 2): 1}
    assert kinds(table.changes_arrow(0, moment)) == {("insert", 1): 1}
    assert kinds(table.changes_arrow(None, moment)) == {("insert", 1): 1}
    (row,) = table.changes_arrow(1).read_all().to_pylist()
    assert abs(row["_commit_timestamp"] - moment.replace(tzinfo=None)) < timedelta(seconds=5)
    text = f"{moment:%Y-%m-%d %H:%M:%S.%f}"
    for query in (f"'{text}'", f"TIMESTAMP '{text}', 2", "1, CURRENT_TIMESTAMP + INTERVAL 0 DAY"):
        found = warehouse.sql(f"SELECT id FROM table_changes('timed', {query})")
        assert found.to_arrow().to_pylist() == [{"id": 2}], query
    assert table.changes_arrow(2).read_all().num_rows == 0
    assert table.changes_arrow(1, columns=["_write_id", "ID"]).read_all().to_pylist() == [
        {"_write_id": 2, "id": 2}
    ]
    with pytest.raises(NoSuchPast, match=r"write id 2 of default\.timed is after write id 1"):
        table.changes_arrow(2, 1)


def test_P39_what_is_no_change_of_a_row(warehouse: Warehouse) -> None:
    kept = {"acid.history.retention": "1h"}
    table = warehouse.create_table("default.odd", "id int, _write_id int")
    warehouse.sql("INSERT INTO odd VALUES (1, 1)")
    with pytest.raises(InvalidDefinition, match="has the column _write_id, which its changes add"):
        table.changes_arrow(0)
    table = warehouse.create_table("default.renamed", "id int, v string", properties=kept)
    warehouse.sql("INSERT INTO renamed VALUES (1, 'x')")
    table.truncate()
    table.change_column("v", "w string")
    warehouse.sql("INSERT INTO renamed VALUES (2, 'y')")
    with pytest.raises(InvalidDefinition, match=r"were changed at 20.* ask for"):
        table.changes_arrow(0)
    assert kinds(table.changes_arrow(0, 2)) == {("insert", 1): 1, ("delete", 1): 1}
    assert kinds(table.changes_arrow(2)) == {("insert", 2): 1}
    table = warehouse.create_table(
        "default.plain",
        "id int",
        properties={**kept, "transactional_properties": "insert_only", "acid.format": "parquet"},
    )
    warehouse.sql("INSERT INTO plain VALUES (1), (2)")
    warehouse.sql("INSERT OVERWRITE TABLE plain VALUES (2), (3)")
    table.compact("major")
    cleaner.run(warehouse.metastore)
    warehouse.sql("INSERT INTO plain VALUES (4)")
    assert kinds(table.changes_arrow(1)) == Counter(
        [("delete", 1), ("delete", 2), ("insert", 2), ("insert", 3), ("insert", 4)]
    )
    assert warehouse.sql("SELECT count(*) FROM table_changes('plain', 0)").collect() == [(7,)]


def test_P39_files_that_do_not_tell_updates_have_deletes_and_inserts(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of Hive, Trino and of earlier versions."""
    table = warehouse.create_table("default.silent", "id int, v string", properties=IN_ORC)
    warehouse.sql("INSERT INTO silent VALUES (1, 'a'), (2, 'b')")
    with monkeypatch.context() as patched:
        real = AcidWriter.put
        patched.setattr(
            AcidWriter, "put", lambda writer, rows: real(writer, replace(rows, updated=None))
        )
        warehouse.sql("UPDATE silent SET v = 'x' WHERE id = 1")
        with warehouse.transaction() as txn:
            inside = txn.table("silent")
            inside.update({"v": "'y'"}, "id = 2")
            inside.update({"v": "'z'"}, "id = 2")
    assert kinds(table.changes_arrow(1)) == Counter(
        [("delete", 1), ("insert", 1), ("delete", 2), ("insert", 2)]
    )
    warehouse.sql("UPDATE silent SET v = 'w'")
    assert kinds(table.changes_arrow(3)) == Counter(
        (kind, id) for kind in ("update_preimage", "update_postimage") for id in (1, 2)
    )


def test_P39_rows_of_before_the_table_was_adopted(warehouse: Warehouse, tmp_path: Path) -> None:
    """Original files have no row ids in them; a later delete event names their rows."""
    files = AcidTable(tmp_path / "old")
    files.raw("000000_0", ["a", "b", "c"])
    table = warehouse.adopt_table("default.old", tmp_path / "old", "v string")
    begun = warehouse.metastore.call(GetLastWriteId(table.record.table_id))
    table.delete("v = 'b'")
    table.update({"v": "'d'"}, "v = 'c'")
    table.compact("major")
    found = table.changes_arrow(begun).read_all().to_pylist()
    assert Counter((row["_change_type"], row["v"]) for row in found) == Counter(
        [("delete", "b"), ("update_preimage", "c"), ("update_postimage", "d")]
    )


@given(st.lists(st.booleans(), max_size=200))
def test_P39_the_footer_gives_back_which_events_are_updates(updated: list[bool]) -> None:
    mask = np.array(updated, bool)
    assert read_updates(write_updates(mask), len(mask), "x").tolist() == updated


def test_P39_a_footer_that_tells_something_else_is_damaged() -> None:
    text = write_updates(np.array([True, False]))
    for wrong, rows in ((text, 20), (b"?", 2), (text[:4], 2)):
        with pytest.raises(CorruptFile, match="x: the footer does not tell which events"):
            read_updates(wrong, rows, "x")


def test_P39_partitions_that_are_dropped_and_made_again(warehouse: Warehouse) -> None:
    history = ChangedHistory(warehouse, 7, "partitioned", "1h")
    for what in (
        "insert",
        "update",
        "drop partition",
        "insert",
        "merge",
        "major",
        "drop partition",
        "overwrite",
        "insert",
        "truncate",
        "insert",
        "drop partition",
        "minor",
        "clean",
    ):
        history.step(what)
    last = len(history.past) - 1
    for low in range(last):
        found = history.table.changes_arrow(history.past[low][0]).read_all().to_pylist()
        history.compare(low, last, found)


def test_P39_threads_that_find_removed_rows_at_a_time_count_all_of_them(
    own: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feed that was read under load took a sound table for a corrupt one."""
    table = own.create_table("db.t", "k bigint")
    own.sql("ALTER TABLE db.t SET TBLPROPERTIES ('acid.history.retention'='1h')")
    for k in range(6):
        table.insert([{"k": k}])
    table.delete("k >= 0")

    def slow_sum(numbers: Iterator[int]) -> int:
        total = sum(numbers)
        time.sleep(0.002)
        return total

    monkeypatch.setattr("acid_platform.scan.change_scan.sum", slow_sum, raising=False)
    assert table.changes_arrow(0).read_all().num_rows == 12
