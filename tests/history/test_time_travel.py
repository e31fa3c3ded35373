"""Reads of the past against a naive model, for random histories (P36).

The model keeps a copy of the rows after every commit. A read as of a commit returns exactly these
rows, or says since when the history is kept; it never returns others.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from acid_platform import (
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    Warehouse,
    WrongType,
)
from acid_platform.metastore.operations.compaction import GetCleanings
from acid_platform.metastore.operations.tables import GetKept, PlaceTag, RemoveTag
from acid_platform.services import cleaner
from tests.conftest import a_warehouse
from tests.history.model import KINDS, SERVICES, WRITES, History, Rows

STEPS = (*WRITES, *SERVICES, *["tag", "drop tag", "add column"] * 2)

warehouse = a_warehouse("local")
own = a_warehouse("local", scope="function")


class Past(History):
    """Has tags too, and knows how many columns there were."""

    def __init__(self, warehouse: Warehouse, seed: int, kind: str, retention: str) -> None:
        super().__init__(warehouse, seed, kind, retention)
        self.tags: dict[str, Rows] = {}
        self.columns: dict[int | str, int] = {0: 3}

    def committed(self, write_id: int | None = None) -> None:
        super().committed(write_id)
        self.columns[self.past[-1][0]] = 3 + self.added

    def tag(self) -> None:
        name = f"tag {len(self.columns)}"
        self.warehouse.metastore.call(PlaceTag(self.table.name, name))
        self.tags[name], self.columns[name] = dict(self.rows), 3 + self.added

    def drop_tag(self) -> None:
        for name in list(self.tags)[:1]:
            self.warehouse.metastore.call(RemoveTag(self.table.name, name))
            del self.tags[name]

    def check_past(self, forever: bool) -> int:
        """Returns how many past snapshots could be read."""
        read = 0
        for as_of, rows in [*self.past, *self.tags.items()]:
            try:
                found = self.table.to_arrow(as_of=as_of)
            except NotEnoughHistory as error:
                assert not forever and isinstance(as_of, int)
                assert "history begins at" in str(error)
                continue
            self.require(found.to_pylist(), rows)
            assert len(found.column_names) == self.columns[as_of], as_of
            assert self.table.count(as_of=as_of) == len(rows)
            read += 1
        return read


def live(warehouse: Warehouse, seed: int, retention: str) -> None:
    history = Past(warehouse, seed, KINDS[seed % 3], retention)
    for what in ("insert", *history.random.choices(STEPS, k=12), "add column", "insert"):
        history.step(what)
        if what in ("clean", "major"):
            history.check_past(forever=bool(retention))
    assert history.check_past(forever=bool(retention)) >= 1 + len(history.tags)


@pytest.mark.parametrize("retention", ["", "1h"])
@pytest.mark.parametrize("seed", range(2))
def test_P36_a_read_as_of_a_commit_gives_the_rows_of_then_or_says_since_when(
    warehouse: Warehouse, seed: int, retention: str
) -> None:
    live(warehouse, seed, retention)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_P36_many_histories(warehouse: Warehouse, seed: int) -> None:
    live(warehouse, seed, "1h" if seed % 2 else "")


def test_P36_a_read_as_of_a_time_sees_the_commits_up_to_it(warehouse: Warehouse) -> None:
    table = warehouse.create_table("default.times", "id int, v string")
    moments = [datetime.now(UTC)]
    for id in range(3):
        time.sleep(0.01)
        warehouse.sql(f"INSERT INTO times VALUES ({id}, 'x')")
        time.sleep(0.01)
        moments.append(datetime.now(UTC))
    for count, moment in enumerate(moments):
        assert table.count(as_of=moment) == count
        assert table.count(as_of=moment.replace(tzinfo=None)) == count, "no zone means UTC"
        text = f"{moment:%Y-%m-%d %H:%M:%S.%f}"
        answer = warehouse.sql(f"SELECT count(*) FROM times FOR SYSTEM_TIME AS OF '{text}'")
        assert answer.to_arrow().to_pylist() == [{"count(1)": count}]
    with pytest.raises(NoSuchPast, match="in the future"):
        table.count(as_of=datetime(2999, 1, 1))
    with pytest.raises(NotEnoughHistory, match="history begins at"):
        table.count(as_of=datetime(2020, 1, 1))


@pytest.mark.more
@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM moments FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP",
        "SELECT id FROM table_changes('moments', 0, CURRENT_TIMESTAMP - INTERVAL 0 SECOND)",
    ],
)
def test_P36_current_timestamp_is_the_time_of_each_statement(own: Warehouse, query: str) -> None:
    own.create_table("default.moments", "id int")
    for number in range(3):
        time.sleep(0.01)
        own.sql(f"INSERT INTO moments VALUES ({number})")
        time.sleep(0.01)
        for session in (own, Warehouse.open(own.metastore.places.root, engine="local")):
            rows = session.sql(query).to_arrow().column("id").to_pylist()
            assert sorted(rows) == list(range(number + 1))


def test_P36_what_the_past_of_a_table_can_not_be(warehouse: Warehouse) -> None:
    table = warehouse.create_table("default.never", "id int")
    warehouse.sql("INSERT INTO never VALUES (1)")
    with pytest.raises(NoSuchPast, match="no write id 7; the last that was given is 1"):
        table.to_arrow(as_of=7)
    with pytest.raises(NoSuchPast, match="no tag 'x'; its tags: none"):
        table.to_arrow(as_of="x")
    with pytest.raises(WrongType, match="pass a write id"):
        table.to_arrow(as_of=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidDefinition, match="pass one of them"):
        table.to_arrow(as_of=1, snapshot="default.never:1:1::")
    with pytest.raises(InvalidDefinition, match=r"acid.history.retention='7 moons' is refused"):
        warehouse.create_table("u", "id int", properties={"acid.history.retention": "7 moons"})


@pytest.mark.more
def test_P36_the_history_that_a_retention_keeps_is_cleaned_after_it(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "default.kept", "id int", properties={"acid.history.retention": "2s"}
    )
    for id in range(2):
        warehouse.sql(f"INSERT INTO kept VALUES ({id})")
    table.compact("major")
    assert not [each for each in cleaner.run(warehouse.metastore) if each.table == table.name]
    (kept,) = warehouse.metastore.call(GetKept(table.name))
    assert kept.retention == 2000 and kept.bytes > 0 and kept.directories == 2
    (blocked,) = [
        each
        for each in warehouse.metastore.call(GetCleanings()).blocked
        if each.table == table.name
    ]
    assert "acid.history.retention keeps what it replaced until" in blocked.reason
    assert table.count(as_of=1) == 1
    time.sleep(2.2)
    cleaner.run(warehouse.metastore)
    (kept,) = warehouse.metastore.call(GetKept(table.name))
    assert kept.directories == 0 and kept.bytes == 0
    names = {path.name for path in Path(table.location).iterdir()}
    assert len(names) == 1 and names.pop().startswith("base_0000002_v")
    with pytest.raises(NotEnoughHistory, match=r"as of write id 1 is not kept.* write id 2"):
        table.count(as_of=1)
    assert table.count(as_of=2) == table.count() == 2


@pytest.mark.more
def test_P36_a_tag_keeps_its_files_until_it_is_dropped(own: Warehouse) -> None:
    """In a warehouse of its own: any open snapshot of any table delays it."""
    warehouse = own
    table = warehouse.create_table("default.tagged", "id int")
    warehouse.sql("INSERT INTO tagged VALUES (1)")
    warehouse.metastore.call(PlaceTag(table.name, "first"))
    warehouse.sql("INSERT INTO tagged VALUES (2)")
    reader = warehouse.metastore.begin()  # of no table: compactions are cleaned without it
    table.compact("major")
    cleaner.run(warehouse.metastore)
    names = {path.name for path in Path(table.location).iterdir()}
    assert "delta_0000001_0000001_0000" in names and "delta_0000002_0000002_0000" not in names
    assert table.count(as_of="first") == 1 and table.count() == 2
    assert not cleaner.run(warehouse.metastore), "the tag still needs the rest"
    warehouse.metastore.call(RemoveTag(table.name, "first"))
    assert not cleaner.run(warehouse.metastore), "an older snapshot does not see the compaction"
    assert "delta_0000001_0000001_0000" in {path.name for path in Path(table.location).iterdir()}
    reader.abort()
    for _ in range(200):  # leases of reads end a little later
        if warehouse.metastore.query("SELECT count(*) FROM v_open_txns")[1] == [[0]]:
            break
        time.sleep(0.05)
    cleaner.run(warehouse.metastore)
    (left,) = (path.name for path in Path(table.location).iterdir())
    assert left.startswith("base_0000002_v")
    with pytest.raises(NoSuchPast):
        table.count(as_of="first")
