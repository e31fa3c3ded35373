"""Reads of the past against a naive model, for random histories (P36).

The model keeps a copy of the rows after every commit. A read as of a commit returns exactly these
rows, or says since when the history is kept; it never returns others.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from acid_platform import (
    AlreadyScheduled,
    InvalidDefinition,
    NoSuchPast,
    NotEnoughHistory,
    Warehouse,
    WrongType,
)
from acid_platform.metastore.operations.compaction import GetCleanings
from acid_platform.metastore.operations.tables import GetKept, GetLastWriteId, PlaceTag, RemoveTag
from acid_platform.services import cleaner
from tests.conftest import a_warehouse

Rows = dict[int, tuple[str, int]]
"""By id: text and partition."""

warehouse = a_warehouse("local")


own = a_warehouse("local", scope="function")


def rows_of(table: object) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in table.to_pylist())  # type: ignore[attr-defined]


STEPS = st.lists(
    st.sampled_from(
        [
            *["insert"] * 4,
            *["update"] * 3,
            *["delete"] * 3,
            "overwrite",
            "truncate",
            "drop partition",
            "minor",
            "major",
            *["clean"] * 2,
            "tag",
            "drop tag",
            "add column",
        ]
    ),
    min_size=6,
    max_size=16,
)


class History:
    """A table, and the rows after each of its commits."""

    def __init__(self, warehouse: Warehouse, retention: str, partitioned: bool) -> None:
        self.warehouse = warehouse
        self.name = f"default.h{len(warehouse.tables())}"
        self.partitioned = partitioned
        self.table = warehouse.create_table(
            self.name,
            "id int, v string" if partitioned else "id int, v string, p int",
            ["p int"] if partitioned else [],
            properties={"acid.history.retention": retention} if retention else None,
        )
        self.rows: Rows = {}
        self.next = 1
        self.columns = 0
        self.past: dict[int, tuple[Rows, int]] = {0: ({}, 0)}
        """By write id: rows, and how many columns were added by then."""
        self.tags: dict[str, tuple[Rows, int]] = {}

    def committed(self) -> None:
        last = self.warehouse.metastore.call(GetLastWriteId(self.table.record.table_id))
        self.past[last] = dict(self.rows), self.columns

    def step(self, what: str, number: int) -> None:
        table, wh = self.table, self.warehouse
        chosen = sorted(self.rows)[number % 3 :: 3]
        listed = ", ".join(map(str, chosen)) or "-1"
        match what:
            case "insert":
                new = {self.next + i: (f"v{number}", (self.next + i) % 2) for i in range(3)}
                self.next += 3
                values = ", ".join(f"({id}, '{v}', {p})" for id, (v, p) in new.items())
                wh.sql(f"INSERT INTO {self.name} (id, v, p) VALUES {values}")
                self.rows |= new
            case "update":
                table.update({"v": f"'u{number}'"}, f"id IN ({listed})")
                self.rows |= {id: (f"u{number}", self.rows[id][1]) for id in chosen}
            case "delete":
                table.delete(f"id IN ({listed})")
                self.rows = {id: row for id, row in self.rows.items() if id not in chosen}
            case "overwrite":
                extra = ", CAST(NULL AS int)" * self.columns
                id = self.next
                self.next += 1
                if self.partitioned:
                    wh.sql(
                        f"INSERT OVERWRITE TABLE {self.name} PARTITION (p = 1)"
                        f" SELECT {id}, 'o'{extra}"
                    )
                    self.rows = {key: row for key, row in self.rows.items() if row[1] != 1}
                else:
                    wh.sql(f"INSERT OVERWRITE TABLE {self.name} SELECT {id}, 'o', 1{extra}")
                    self.rows = {}
                self.rows[id] = ("o", 1)
            case "truncate":
                table.truncate()
                self.rows = {}
            case "drop partition":
                if not self.partitioned or "p=0" not in table.partitions():
                    return
                table.drop_partition("p=0")
                self.rows = {key: row for key, row in self.rows.items() if row[1] != 0}
            case "add column":
                self.columns += 1
                table.add_columns(f"c{self.columns} int")
                return
            case "minor" | "major":
                with suppress(AlreadyScheduled):  # nothing was written since the last one
                    table.compact(what)
                return
            case "clean":
                for result in cleaner.run(wh.metastore):
                    assert not result.error, result
                return
            case "tag":
                name = f"tag {number}"
                wh.metastore.call(PlaceTag(self.name, name))
                self.tags[name] = dict(self.rows), self.columns
                return
            case "drop tag":
                for name in list(self.tags)[:1]:
                    wh.metastore.call(RemoveTag(self.name, name))
                    del self.tags[name]
                return
        self.committed()

    def check(self, forever: bool) -> int:
        """Returns how many past snapshots could be read."""
        read = 0
        for as_of, then in [*self.past.items(), *self.tags.items()]:
            try:
                found = self.table.to_arrow(as_of=as_of)
            except NotEnoughHistory as error:
                assert not forever and isinstance(as_of, int)
                assert "history begins at" in str(error)
                continue
            rows, columns = then
            assert rows_of(found) == sorted((id, row[0]) for id, row in rows.items()), as_of
            assert len(found.column_names) == 3 + columns, as_of
            assert self.table.count(as_of=as_of) == len(rows)
            read += 1
        return read


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(steps=STEPS, retention=st.sampled_from(["", "1h"]), partitioned=st.booleans())
def test_P36_a_read_as_of_a_commit_gives_the_rows_of_then_or_says_since_when(
    warehouse: Warehouse, steps: list[str], retention: str, partitioned: bool
) -> None:
    live(warehouse, steps, retention, partitioned)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, retention=st.sampled_from(["", "1h"]), partitioned=st.booleans())
def test_P36_many_histories(
    warehouse: Warehouse, steps: list[str], retention: str, partitioned: bool
) -> None:
    live(warehouse, steps, retention, partitioned)


def live(warehouse: Warehouse, steps: list[str], retention: str, partitioned: bool) -> None:
    history = History(warehouse, retention, partitioned)
    for number, what in enumerate(["insert", *steps]):
        history.step(what, number)
        if what in ("clean", "major"):
            history.check(forever=bool(retention))
    assert history.check(forever=bool(retention)) >= 1 + len(history.tags)


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
