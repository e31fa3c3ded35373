"""Small inserts of several threads in one transaction (P44)."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acid_platform import (
    AcidError,
    InvalidDefinition,
    LockTimeout,
    OutcomeUnknown,
    Table,
    Transaction,
    UnknownColumn,
    Warehouse,
    WrongType,
)
from acid_platform.handles.row_statements import InsertRows
from acid_platform.services.fsck import examine
from acid_platform.transactions.locks import LockType
from acid_platform.values.rows import Rows
from tests.conftest import temporary_warehouse
from tests.runs import at_once
from tests.storage.test_per_process import in_child

GROUPED = {"acid.group.commit.interval": "500ms"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as opened:
        # What an insert imports would keep the first group waiting.
        opened.create_table("db.first", "id int")
        opened.sql("INSERT INTO db.first VALUES (1)")
        yield opened


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    return warehouse.create_table("db.t", "id bigint, v string", properties=GROUPED)


def inserting(table: Table, rows: Any) -> Callable[[], int]:
    return lambda: table.insert(rows)


def some(start: int, count: int) -> list[dict[str, object]]:
    return [{"id": start + number, "v": f"v{start}"} for number in range(count)]


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow(["id"])["id"].to_pylist())


def transactions(table: Table) -> list[list[int]]:
    """The rows of each insert, by transaction."""
    by_txn: dict[int, list[int]] = {}
    for row in table.history():
        by_txn.setdefault(row["txn"], []).append(row["rows"])
    return [sorted(rows) for rows in by_txn.values()]


def directories(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).iterdir()}


@pytest.mark.more
def test_P44_inserts_of_several_threads_share_a_transaction_and_a_directory(
    warehouse: Warehouse, table: Table
) -> None:
    told = at_once(*(inserting(table, some(100 * n, n)) for n in range(1, 9)))
    assert told == [1, 2, 3, 4, 5, 6, 7, 8]
    assert transactions(table) == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert directories(table) == {"delta_0000001_0000001_0000"}
    history = table.history()
    assert {row["reason"] for row in history} == {"a group of 8 inserts"}
    assert {row["engine"] for row in history} == {"local"}
    assert [row["files"] for row in history] == [1] + [0] * 7
    assert sum(row["bytes"] for row in history) == sum(
        path.stat().st_size for path in Path(table.location).rglob("bucket_*")
    )
    found = table.to_arrow(row_id=True).to_pylist()
    assert sorted(row["id"] for row in found) == sorted(
        100 * n + i for n in range(1, 9) for i in range(n)
    )
    keys = [tuple(row["row__id"].values()) for row in found]
    assert sorted(key[2] for key in keys) == list(range(36))
    assert {(key[0], key[1]) for key in keys} == {(1, 536870912)}
    assert examine(warehouse.metastore).findings == ()


def test_P44_without_the_property_each_insert_has_a_transaction(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id bigint, v string")
    assert at_once(*(inserting(table, some(n, 1)) for n in range(4))) == [1] * 4
    assert transactions(table) == [[1]] * 4
    assert len(directories(table)) == 4


@pytest.mark.more
def test_P44_a_mistake_fails_alone_with_the_error_that_it_has_without_a_group(
    table: Table,
) -> None:
    mistakes: list[Any] = [[{"nmae": 1}], [{"id": "one"}], [{"id": 1.5}]]
    told = at_once(
        inserting(table, some(1, 2)),
        *(inserting(table, rows) for rows in mistakes),
        inserting(table, some(5, 1)),
    )
    assert (told[0], told[4]) == (2, 1)
    assert [type(error) for error in told[1:4]] == [UnknownColumn, WrongType, WrongType]
    assert transactions(table) == [[1, 2]]
    assert ids(table) == [1, 2, 5]


@pytest.mark.more
def test_P44_what_fails_while_the_group_is_written_fails_alone(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such rows are known: the fault is injected."""
    insert = InsertRows.run

    def fails(self: InsertRows, work: Any, record: Any) -> int:
        rows: Any = self.rows
        inserted = (
            rows["id"].to_pylist() if isinstance(rows, pa.Table) else [row["id"] for row in rows]
        )
        if 13 in inserted:
            raise InvalidDefinition("13 can't be written")
        return insert(self, work, record)

    monkeypatch.setattr(InsertRows, "run", fails)
    told = at_once(*(inserting(table, some(n, 1)) for n in (12, 13, 14)))
    assert (told[0], told[2]) == (1, 1)
    assert isinstance(told[1], InvalidDefinition)
    assert ids(table) == [12, 14]


@pytest.mark.more
@pytest.mark.parametrize("error", [OutcomeUnknown, LockTimeout])
def test_P44_nobody_repeats_what_may_be_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: type[AcidError]
) -> None:
    commits = []

    def commit(self: Transaction) -> None:
        commits.append(self.id)
        Transaction_commit(self)
        raise error("the answer was lost")

    Transaction_commit = Transaction.commit
    monkeypatch.setattr(Transaction, "commit", commit)
    told = at_once(*(inserting(table, some(n, 1)) for n in range(3)))
    assert [type(each) for each in told] == [error] * 3
    assert len(commits) == 1
    assert ids(table) == [0, 1, 2]


@pytest.mark.more
def test_P44_sql_joins_the_group_with_its_literals(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "db.p",
        "id bigint, d decimal(6,2), c char(3)",
        partitioned_by=["p int"],
        properties=GROUPED,
    )

    def run(text: str) -> Callable[[], int]:
        return lambda: warehouse.sql(text).rows  # type: ignore[union-attr]

    told = at_once(
        run("INSERT INTO db.p VALUES (1, 1.5, 'a', 1), (2, 2, 'b', 2)"),
        run("INSERT INTO db.p PARTITION (p=1) VALUES (3, 3, 'c')"),
        run("INSERT INTO db.p (p, id) VALUES (2, 4)"),
        run("INSERT INTO db.p VALUES (5, 1.5, 'much too long', 1)"),
        lambda: table.insert([{"id": 6, "p": 2}]),
    )
    assert isinstance(told[3], WrongType), told
    assert [told[0], told[1], told[2], told[4]] == [2, 1, 1, 1]
    assert sorted(row["rows"] for row in table.history() if row["partition"] == "p=2") == [1, 1, 1]
    assert len({row["txn"] for row in table.history()}) == 1
    rows = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert [(str(d), c, p) for _, d, c, p in rows] == [
        ("1.50", "a  ", 1),
        ("2.00", "b  ", 2),
        ("3.00", "c  ", 1),
        ("None", None, 2),
        ("None", None, 2),
    ]
    assert [row[0] for row in rows] == [1, 2, 3, 4, 6]
    warehouse.sql("INSERT INTO db.p SELECT id + 10, d, c, p FROM db.p")
    warehouse.sql("START TRANSACTION")
    warehouse.sql("INSERT INTO db.p VALUES (99, 1, 'a', 1)")
    warehouse.sql("ROLLBACK")
    assert table.count() == 10


@pytest.mark.more
def test_P44_a_changed_declaration_is_learnt(warehouse: Warehouse, table: Table) -> None:
    handles = [warehouse.table("db.t") for _ in range(3)]
    table.add_columns("note string")
    assert at_once(*(inserting(handle, some(n, 1)) for n, handle in enumerate(handles))) == [1] * 3
    assert transactions(table) == [[1]] * 3, "each was made for the old columns"
    again = [[{"id": 10 + n, "note": "x"}] for n in range(3)]
    told = at_once(*(inserting(h, rows) for h, rows in zip(handles, again, strict=True)))
    assert told == [1] * 3
    assert transactions(table) == [[1]] * 3 + [[1, 1, 1]]
    warehouse.sql("ALTER TABLE db.t SET TBLPROPERTIES ('acid.group.commit.interval' = '0ms')")
    for _ in range(2):
        assert at_once(*(inserting(h, some(20, 1)) for h in handles)) == [1] * 3
    assert transactions(table)[-3:] == [[1]] * 3
    warehouse.drop_table("db.t")
    warehouse.create_table("db.t", "other int", properties=GROUPED)
    with pytest.raises(UnknownColumn):
        handles[0].insert(some(1, 1))


@pytest.mark.more
def test_P44_a_group_waits_for_locks_as_a_single_insert_does(
    warehouse: Warehouse, table: Table
) -> None:
    held = warehouse.metastore.begin().lock("db.t", LockType.EXCLUSIVE)
    ended = threading.Timer(1.5, held.abort)
    ended.start()
    assert at_once(*(inserting(table, some(n, 1)) for n in range(3))) == [1] * 3
    assert transactions(table) == [[1, 1, 1]]


@pytest.mark.more
def test_P44_large_rows_and_rows_for_spark_do_not_wait(table: Table) -> None:
    wide = pa.table({"id": range(3_000_000)})
    assert at_once(inserting(table, wide), inserting(table, some(0, 1))) == [3_000_000, 1]
    assert sorted(transactions(table)) == [[1], [3_000_000]]
    assert table.insert([]) == 0


def test_P44_the_interval_is_a_time(warehouse: Warehouse, table: Table) -> None:
    for wrong in ("soon", "-1ms", "11s"):
        with pytest.raises(InvalidDefinition, match=r"acid\.group\.commit\.interval"):
            warehouse.create_table(
                "db.u", "id int", properties={"acid.group.commit.interval": wrong}
            )
        with pytest.raises(InvalidDefinition):
            warehouse.sql(
                f"ALTER TABLE db.t SET TBLPROPERTIES ('acid.group.commit.interval' = '{wrong}')"
            )


@pytest.mark.more
def test_P44_an_interrupted_caller_that_still_waits_writes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = table._warehouse.grouped_inserts
    waiting = groups._prepared(table.record, some(1, 1), None, False)
    assert waiting is not None

    def interrupted(_timeout: object = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(groups, "_prepared", lambda *_: waiting)
    monkeypatch.setattr(waiting.committed, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.insert(some(1, 1))
    monkeypatch.undo()
    assert table.insert(some(2, 1)) == 1
    assert ids(table) == [2]


INSERTS = st.lists(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1, 2, None])), max_size=4),
        max_size=3,
    ),
    min_size=1,
    max_size=6,
)
"""For each thread its inserts, each a list of rows: a value and a partition."""


@pytest.mark.more
@settings(max_examples=12)
@given(threads=INSERTS, milliseconds=st.sampled_from([1, 5, 30]))
def test_P44_any_inserts_arrive_once_each_with_its_own_count(
    shared: Warehouse, threads: list[list[list[tuple[int, int | None]]]], milliseconds: int
) -> None:
    shared.metastore.create_database("any", if_not_exists=True)
    name = f"any.t{len(shared.tables())}"
    table = shared.create_table(
        name,
        "id bigint",
        partitioned_by=["p int"],
        properties={"acid.group.commit.interval": f"{milliseconds}ms"},
    )

    def insert_all(inserts: list[list[tuple[int, int | None]]]) -> int:
        mine: Table = shared.table(name)
        for rows in inserts:
            given: Rows = [{"id": id, "p": p} for id, p in rows]
            assert mine.insert(given) == len(rows)
        return sum(map(len, inserts))

    told = at_once(*((lambda inserts=inserts: insert_all(inserts)) for inserts in threads))
    assert told == [sum(map(len, inserts)) for inserts in threads]
    wanted = Counter(row for inserts in threads for rows in inserts for row in rows)
    found = table.to_arrow().to_pylist()
    assert Counter((row["id"], row["p"]) for row in found) == wanted
    by_place = Counter(
        (f"p={'__HIVE_DEFAULT_PARTITION__' if p is None else p}", count)
        for inserts in threads
        for rows in inserts
        for p, count in Counter(p for _, p in rows).items()
    )
    assert Counter((row["partition"], row["rows"]) for row in table.history()) == by_place


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    path = tmp_path_factory.mktemp("groups") / "wh"
    with temporary_warehouse(path, engine="local") as opened:
        yield opened


@pytest.mark.more
def test_P44_a_forked_process_makes_groups_of_its_own(table: Table) -> None:
    """The thread that commits the parent's groups does not live in the child."""
    groups = table._warehouse.grouped_inserts

    def inserted() -> bool:
        signal.alarm(30)  # whoever waits for a thread of the parent waits for ever
        return table.insert(some(1, 2)) == 2

    with groups._arrived:  # as while another thread of the parent serves the table
        groups._waiting[table.name] = []
        try:
            assert in_child(inserted)
        finally:
            del groups._waiting[table.name]
    assert ids(table) == [1, 2]
