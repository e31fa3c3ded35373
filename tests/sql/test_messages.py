"""How many messages a statement sends to the metastore, and how many texts it has parsed: SQL is a
parser in front of the verbs, and asks once for the declaration that a handle of the table has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlglot.parser import Parser

from acid_platform import NoSuchTable, Table, UnknownColumn, Warehouse
from acid_platform.handles.row_statements import UpdateRows
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates import analysis
from acid_platform.sql import SqlSession, sql_session, text
from tests.conftest import temporary_warehouse

VERB = {"Begin": 1, "HeartbeatOne": 1, "CommitTxn": 1}
"""It begins with its lock and what it reads, publishes files, and commits."""
MERGE = (
    "MERGE INTO db.t AS t USING {source} AS s ON t.id = s.id WHEN MATCHED AND s.v = 'x' THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)"
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("messages"), engine="local") as warehouse:
        for table in ("db.t", "db.s"):
            warehouse.create_table(table, "id int, v string").insert([{"id": 1, "v": "a"}])
        warehouse.sql("CREATE VIEW db.old AS SELECT id, v FROM db.s WHERE id < 9")
        yield warehouse


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was sent, by its name, and `texts` that were parsed."""
    counts: Counter[str] = Counter()

    def counted(real: Any, name: Callable[..., str]) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[name(*arguments)] += 1
            return real(*arguments, **named)

        return call

    analysis.parsed.cache_clear()
    text._query.cache_clear()
    monkeypatch.setattr(Link, "call", counted(Link.call, lambda _, sent: type(sent).__name__))
    monkeypatch.setattr(Parser, "_parse", counted(Parser._parse, lambda *_: "texts"))
    return counts


@pytest.mark.parametrize(
    ("statement", "texts"),
    [
        ("INSERT INTO db.t VALUES (5, 'x')", 4),
        ("INSERT INTO db.t SELECT id, v FROM db.s", 2),
        ("INSERT OVERWRITE TABLE db.t SELECT id, v FROM db.s", 2),
        ("UPDATE db.t SET v = upper(v) WHERE id = 1", 2),
        ("DELETE FROM db.t WHERE id = 77", 1),
        ("DELETE FROM db.t WHERE id IN (SELECT id FROM db.s WHERE v = 'no')", 4),
        (MERGE.format(source="db.s"), 6),
        ("TRUNCATE TABLE db.t", 0),
    ],
)
def test_a_statement_sends_what_its_verb_sends_and_parses_each_text_once(
    warehouse: Warehouse, sent: Counter[str], statement: str, texts: int
) -> None:
    session = SqlSession(warehouse)
    session.run(statement)
    assert sent.pop("texts", 0) <= texts
    assert dict(sent) == {"GetTable": 1, **VERB}, "for the first change of a table"
    sent.clear()
    session.run(statement)
    del sent["texts"]
    assert dict(sent) == VERB


def test_several_inserts_of_which_one_locks_a_partition_begin_once(
    warehouse: Warehouse, sent: Counter[str]
) -> None:
    warehouse.create_table("db.p", "id int", ["day int"])
    sent.clear()
    SqlSession(warehouse).run(
        "FROM db.s INSERT OVERWRITE TABLE db.p PARTITION (day = 1) SELECT id"
        " INSERT INTO db.t SELECT id, v"
    )
    assert sent["Begin"] == 1


def test_a_view_is_asked_for_once_and_then_known(warehouse: Warehouse, sent: Counter[str]) -> None:
    session = SqlSession(warehouse)
    session.run(MERGE.format(source="db.old"))
    asked = {"GetTable": 1, "Begin": 2, "GetViews": 2, "HeartbeatOne": 1, "CommitTxn": 1}
    assert {name: count for name, count in sent.items() if name != "texts"} == asked
    sent.clear()
    session.run(MERGE.format(source="db.old"))
    del sent["texts"]
    assert dict(sent) == {**VERB, "GetViews": 1}, "its definition, and what its verb sends"


def test_a_view_that_was_made_again_is_read_as_it_is_now(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        session = SqlSession(warehouse)
        for name in "abt":
            warehouse.create_table(f"db.{name}", "id int").insert([{"id": ord(name)}])
        warehouse.sql("CREATE VIEW db.w AS SELECT id FROM db.a")
        warehouse.sql("CREATE VIEW db.v AS SELECT id FROM db.w")
        taken = ["a"]
        for change, name in (
            ("CREATE OR REPLACE VIEW db.w AS SELECT id FROM db.b", "b"),
            ("DROP TABLE db.a", "b"),
            ("CREATE OR REPLACE VIEW db.v AS SELECT id FROM db.b WHERE id < 0", ""),
            ("DROP VIEW db.v", None),
        ):
            session.run("INSERT INTO db.t SELECT id FROM db.v")
            warehouse.sql(change)
            taken += [name] if name else []
        with pytest.raises(NoSuchTable, match=r"db\.v"):
            session.run("INSERT INTO db.t SELECT id FROM db.v")
        warehouse.create_table("db.v", "id int").insert([{"id": ord("v")}])
        session.run("INSERT INTO db.t SELECT id FROM db.v")
        rows = warehouse.table("db.t").to_arrow()["id"].to_pylist()
        assert sorted(map(chr, rows)) == sorted([*taken, "t", "v"])


@pytest.mark.parametrize(
    "verb",
    [
        lambda table: table.insert([{"id": 1, "v": "a"}]),
        lambda table: table.overwrite([{"id": 1, "v": "a"}]),
        lambda table: table.update({"v": "'b'"}, "id = 1"),
        lambda table: table.delete("id = 8"),
        lambda table: table.merge([{"id": 1, "v": "c"}], "t.id = s.id", {"v": "s.v"}, None, "*"),
        lambda table: table.truncate(),
    ],
    ids=["insert", "overwrite", "update", "delete", "merge", "truncate"],
)
def test_a_verb_sends_three_messages(
    warehouse: Warehouse, sent: Counter[str], verb: Callable[[Table], object]
) -> None:
    table = warehouse.table("db.t")
    sent.clear()
    verb(table)
    del sent["texts"]
    assert dict(sent) == VERB


def test_a_compaction_asks_for_nothing_twice(warehouse: Warehouse, sent: Counter[str]) -> None:
    table = warehouse.create_table("db.c", "id int")
    for number in (1, 2):
        table.insert([{"id": number}])
    sent.clear()
    [row] = table.compact("major")
    assert (row["state"], row["type"]) == ("ready for cleaning", "MAJOR")
    asked = {"GetTable": 2, "GetManifest": 1, "GetEntities": 1, "ShowCompaction": 1}
    begun = {"RequestCompaction": 1, "TakeCompaction": 1, "BeginCompaction": 1}
    assert dict(sent) == {**asked, **begun, "HeartbeatOne": 1, "CommitCompaction": 1}


def test_a_verb_checks_itself_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, check = [], UpdateRows.check

    def counted(statement: UpdateRows, record: TableRecord) -> None:
        checked.append(record.name)
        check(statement, record)

    monkeypatch.setattr(UpdateRows, "check", counted)
    warehouse.table("db.t").update({"v": "'c'"}, "id = 1")
    assert checked == ["db.t"]


@pytest.mark.parametrize(
    "wrong", ["UPDATE db.t SET x = 1", "UPDATE db.t SET v = x", "DELETE FROM db.t WHERE x = 1"]
)
def test_a_wrong_statement_begins_without_a_lock(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    locks, autocommit = [], sql_session.autocommit

    def begun(*arguments: Any) -> Any:
        locks.extend(arguments[3])
        return autocommit(*arguments)

    monkeypatch.setattr(sql_session, "autocommit", begun)
    with pytest.raises(UnknownColumn):
        warehouse.sql(wrong)
    assert locks == []
    warehouse.sql("DELETE FROM db.t WHERE id = 77")
    assert [lock.table for lock in locks] == ["db.t"]
