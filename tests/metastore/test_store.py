"""The DuckDB file: schema, refusals, queries, and writes that fail (P3, P8, pitfalls)."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    MetastoreIncompatible,
    MetastoreInUse,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    UnsupportedStatement,
)
from acid_platform.metastore import Metastore, endpoint, schema
from acid_platform.metastore.endpoint import Home, take_lock
from acid_platform.metastore.operations.tables import CreateDatabase
from acid_platform.metastore.operations.transactions import Begin, Heartbeat
from acid_platform.metastore.records import ClientInfo, CompactionTask, ErasureTask, HistoryRow
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.snapshots import low_mark, snapshot
from acid_platform.metastore.rules.state import (
    Component,
    Departed,
    Ended,
    LockEntry,
    Outcome,
    State,
    Txn,
)
from acid_platform.metastore.server import state_rows
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.server import Server
from acid_platform.metastore.server.store import Store
from acid_platform.transactions import TxnState
from acid_platform.transactions.row_sets import RowSet
from tests.clocks import ManualClock
from tests.metastore.processes import ask
from tests.metastore.world import World


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metastore.duckdb"


@pytest.mark.parametrize(
    ("table", "record"),
    [
        ("open_txns", Txn),
        ("departed_txns", Departed),
        ("txn_components", Component),
        ("locks", LockEntry),
        ("compactions", CompactionTask),
        ("erasures", ErasureTask),
        ("txns", Ended),
        ("outcomes", Outcome),
        ("writes", HistoryRow),
    ],
)
def test_P8_columns_are_the_fields(table: str, record: Any) -> None:
    columns = schema.EVERY[table]
    assert set(columns) == {field.name for field in fields(record)}


def test_P8_live_tables_match_the_rows_of_the_state(path: Path) -> None:
    assert set(state_rows.live_rows(State())) == set(schema.LIVE)
    assert set(state_rows.ended_rows(State())) == set(schema.KEPT)


def test_P8_from_nothing_to_the_newest_version(path: Path) -> None:
    assert len(schema.MIGRATIONS) == schema.VERSION
    store = Store(path)
    names, rows = store.query("SELECT table_name FROM duckdb_tables()")
    assert names == ["table_name"]
    assert {row[0] for row in rows} == {"meta", *schema.EVERY}
    meta = dict(store.query("FROM meta")[1])
    assert meta["schema_version"] == str(schema.VERSION)
    assert meta["duckdb_version"] == duckdb.__version__
    assert meta["storage_version"].startswith("v2.")
    store.close()
    Store(path).close()


def version_1(path: Path) -> None:
    """A file as version 1 of the schema left it, with one table that has an aborted write id."""
    with duckdb.connect(str(path)) as raw:
        for statement in schema.MIGRATIONS[0]:
            raw.execute(statement)
        raw.execute("INSERT INTO meta VALUES ('schema_version', '1'), ('next_txn', '9')")
        raw.execute("INSERT INTO databases VALUES ('default', 0)")
        raw.execute("""INSERT INTO tables VALUES (1, 'default.t', '/w/t', '[["id","int"]]', '[]',
            '{}', '[]', 0, 5, 0, 8, 7, 0, 0, '[[3, 4]]', '{}')""")
        raw.execute("""INSERT INTO journal VALUES
            (5, 6, 'database', NULL, NULL, '{"name":"a\\"b"}'),
            (6, 7, 'database_dropped', NULL, NULL, '{"name":"a\\"b"}')""")


def test_P8_migration_from_version_1_keeps_everything(path: Path) -> None:
    version_1(path)
    store = Store(path)
    state, events = store.load()
    assert events == [
        Recorded.parse("database", 6, {"name": 'a"b'}),
        Recorded.parse("database_dropped", 7, {"name": 'a"b'}),
    ]
    assert store.journal_length == 2
    store.append([Recorded.parse("database", 8, {"name": "c"})])
    assert store.load()[1] == [*events, Recorded.parse("database", 8, {"name": "c"})]
    assert state.next_txn == 9 and state.tables[1].next_write_id == 8
    assert state.tables[1].aborted == {3, 4} and state.tables[1].doubtful == set()
    assert ["schema_version", str(schema.VERSION)] in store.query("FROM meta")[1]
    store.close()


def version_2(path: Path) -> None:
    """A file of version 2: dropped partitions, a reader, and a transaction whose lock waits."""
    with duckdb.connect(str(path)) as raw:
        for statement in (*schema.MIGRATIONS[0], *schema.MIGRATIONS[1]):
            raw.execute(statement)
        raw.execute("INSERT INTO meta VALUES ('schema_version', '2'), ('next_txn', '9')")
        raw.execute("INSERT INTO databases VALUES ('default', 0)")
        for table_id, name, floors in ((1, "t", '{"p=1": 5, "p=a,b": 7}'), (2, "u", "{}")):
            raw.execute(f"""INSERT INTO tables VALUES ({table_id}, 'default.{name}', '/w/{name}',
                '[["id","int"]]', '[["p","int"]]', '{{}}', '[]', 0, 5, 0, 8, 7, 0, 0, '[]',
                '{floors}', '[]')""")
        raw.execute("INSERT INTO partitions VALUES (1, 'p=1', 5), (1, 'p=2', 0)")
        raw.execute("""INSERT INTO compactions BY NAME SELECT 1 AS id, 'default.v' AS "table",
            3 AS table_id, 'major' AS kind, 's' AS state,
            '{"location": "/w/v"}' AS properties, '' AS initiator, 0 AS enqueued, '' AS worker,
            '' AS job, 0 AS attempt, 0 AS started, 2 AS txn_id, 3 AS next_txn_id,
            4 AS highest_write_id, 0 AS commit_time, 0 AS cleaner_start, 0 AS cleaner_attempts,
            0 AS cleaner_retry_at, 0 AS ended, '' AS error""")
        for txn_id, snapshot in ((5, None), (6, "6:3:3:4")):
            raw.execute(
                """INSERT INTO open_txns BY NAME SELECT $1 AS txn_id, 0 AS kind,
                'o' AS state, 0 AS started, '' AS "user", '' AS host, '' AS agent, '' AS run_id,
                '' AS description, false AS all_tables, '{}' AS needs, '[]' AS wrote,
                $2 AS snapshot, 0 AS ended, '' AS reason""",
                [txn_id, snapshot],
            )


def test_P8_migration_from_version_2_keeps_everything(path: Path) -> None:
    version_2(path)
    store = Store(path)
    state, _ = store.load()
    assert state.tables[1].floors == {"p=1": (5,), "p=a,b": (7,)}
    assert [partition.floors for partition in state.tables[1].partitions.values()] == [(5,), ()]
    assert state.tables[2].floors == {} and state.locations == {"/w/v": 4}
    assert state.views == {}
    assert str(snapshot(state, state.txns[6])) == "6:3:3:4" and low_mark(state) == 3
    assert snapshot(state, state.txns[5]) is None
    store.fold(state, 0)
    again, _ = store.load()
    assert again.txns == state.txns and again.locations == state.locations
    assert store.query("SELECT count(*) FROM v_open_txns")[1] == [[2]]
    store.close()


def version_4(path: Path) -> None:
    """A file of version 4, not cleanly closed: its journal has two batches."""
    with duckdb.connect(str(path)) as raw:
        for statements in schema.MIGRATIONS[:4]:
            for statement in statements:
                raw.execute(statement)
        raw.execute("INSERT INTO meta VALUES ('schema_version', '4')")
        raw.execute("""INSERT INTO journal VALUES (41, '[["database",6,{"name":"a"}]]'),
            (43, '[["database",7,{"name":"b"}],["database",8,{"name":"c"}]]')""")


JOURNALED = [
    Recorded.parse("database", 6, {"name": "a"}),
    Recorded.parse("database", 7, {"name": "b"}),
    Recorded.parse("database", 8, {"name": "c"}),
]


def test_P8_from_version_4_the_journal_becomes_a_file(path: Path) -> None:
    version_4(path)
    store = Store(path)
    assert store.load()[1] == JOURNALED and store.journal_length == 3
    assert ["log_seq"] not in store.query("SELECT key FROM meta")[1]
    assert (
        store.query(
            "SELECT table_name FROM duckdb_tables() WHERE table_name = 'journal'"
            " UNION SELECT view_name FROM duckdb_views() WHERE NOT internal"
            " AND view_name = 'v_journal'"
        )[1]
        == []
    )
    store.close()
    assert path.with_suffix(".log").stat().st_mode & 0o777 == 0o600
    store = Store(path)
    store.append(JOURNALED[:1])
    state, events = store.load()
    assert events == [*JOURNALED, JOURNALED[0]]
    store.fold(state, 0)
    assert ["log_seq", "4"] in store.query("FROM meta")[1]
    store.close()


def test_P8_migration_from_version_5_keeps_everything(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(schema, "VERSION", 5)
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:5])
        store = Store(path)
        store.append(JOURNALED)
        store.close()
    store = Store(path)
    state, events = store.load()
    assert (events, state.erasures) == (JOURNALED, {})
    assert store.query("SELECT count(*) FROM erasures")[1] == [[0]]
    store.close()


def test_P8_from_version_6_an_overwrite_is_an_operation_of_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the tables, and in a commit that is still in the journal."""
    row = {
        "table_id": 1,
        "partition": None,
        "operation": "u",
        "txn_id": 3,
        "commit_id": 4,
        "write_id": 2,
    }
    commit = {
        "txn": 5,
        "commit_id": 5,
        "directories": [],
        "written": [],
        "write_set": [
            row | {"txn_id": 5, "overwrite": True},
            row | {"txn_id": 5, "partition": "p=1", "overwrite": False},
        ],
    }
    with monkeypatch.context() as older:
        older.setattr(schema, "VERSION", 6)
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:6])
        store = Store(path)
        store.append(
            [
                Recorded.parse("open", 1, {"txn": 5, "kind": 0, "all_tables": False}),
                Recorded.parse("commit", 2, commit),
            ]
        )
        store.close()
    with duckdb.connect(str(path)) as raw:
        raw.execute(
            "INSERT INTO write_set VALUES (1, NULL, 'u', 3, 4, 2, true),"
            " (1, NULL, 'd', 4, 4, 3, false)"
        )
    store = Store(path)
    state, events = store.load()
    assert {(change.txn_id, change.operation.value) for change in state.write_set[1][None]} == {
        (3, "o"),
        (4, "d"),
    }
    machine = Machine(state)
    machine.replay(events)
    assert [(change.txn_id, change.operation.value) for change in state.write_set[1][None][2:]] == [
        (5, "o")
    ]
    assert [change.operation.value for change in state.write_set[1]["p=1"]] == ["u"]
    store.close()


def test_P8_P38_commits_before_version_12_name_no_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the tables, and in a commit that is still in the journal; both conflict by partition."""
    row = {"table_id": 1, "partition": None, "operation": "u", "commit_id": 4, "write_id": 2}
    commit = {"txn": 5, "commit_id": 5, "directories": [], "written": []}
    with monkeypatch.context() as older:
        older.setattr(schema, "VERSION", 10)
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:10])
        store = Store(path)
        store.append(
            [
                Recorded.parse("open", 1, {"txn": 5, "kind": 0, "all_tables": False}),
                Recorded.parse("commit", 2, commit | {"write_set": [row | {"txn_id": 5}]}),
            ]
        )
        store.close()
    with duckdb.connect(str(path)) as raw:
        raw.execute("INSERT INTO write_set VALUES (1, NULL, 'd', 4, 4, 3), (1, NULL, 'u', 3, 3, 2)")
    store = Store(path)
    state, events = store.load()
    machine = Machine(state)
    machine.replay(events)
    found = [(change.txn_id, change.rows) for change in machine.state.write_set[1][None]]
    assert found == [(3, None), (4, None), (5, None)]
    state.write_set[1][None][0] = replace(state.write_set[1][None][0], rows=RowSet())
    store.fold(state, 0)
    store.close()
    store = Store(path)
    again, _ = store.load()
    assert [change.rows for change in again.write_set[1][None]] == [RowSet(), None, None]
    store.close()


def test_P8_from_version_10_the_writes_of_tables_and_journal_have_no_engine(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "table_id": 1, "table": "default.t", "partition": None, "write_id": 2, "operation": "i",
        "directory": "delta_0000002_0000002_0000", "rows": 1, "bytes": 10, "files": 1,
        "overwrite": False, "txn": 5, "user": "", "run_id": "", "time": 2,
    }  # fmt: skip
    commit = {"txn": 5, "commit_id": 5, "directories": [], "written": [row], "write_set": []}
    with monkeypatch.context() as older:
        older.setattr(schema, "VERSION", 10)
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:10])
        store = Store(path)
        store.append(
            [
                Recorded.parse("open", 1, {"txn": 5, "kind": 0, "all_tables": False}),
                Recorded.parse("commit", 2, commit),
            ]
        )
        store.close()
    with duckdb.connect(str(path)) as raw:
        raw.execute(
            "INSERT INTO writes VALUES (1, 'default.t', NULL, 1, 'i',"
            " 'delta_0000001_0000001_0000', 1, 10, 1, false, 4, '', '', 1)"
        )
    store = Store(path)
    state, events = store.load()
    Machine(state).replay(events)
    assert [(row.write_id, row.engine, row.reason) for row in store.history(1)] == [(1, "", "")]
    assert [(row.write_id, row.engine, row.reason) for row in state.written] == [(2, "", "")]
    store.close()


@pytest.mark.parametrize(("made", "version"), [(version_1, 1), (version_4, 4)])
def test_P8_a_crash_in_the_middle_of_a_migration_leaves_the_old_version(
    path: Path, made: Any, version: int
) -> None:
    made(path)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from acid_platform.metastore import schema\n"
        "from acid_platform.metastore.server.store import Store\n"
        "old, path = int(sys.argv[2]), Path(sys.argv[1])\n"
        "class Crash:\n"
        "    def __iter__(self):\n"
        "        yield from known[old]\n"
        "        yield 'CREATE TABLE half (id INTEGER)'\n"
        "        os._exit(9)\n"
        "known = schema.MIGRATIONS\n"
        "schema.MIGRATIONS = (*known[:old], Crash())\n"
        "Store(path)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path), str(version)], check=False)
    assert done.returncode == 9
    with duckdb.connect(str(path)) as raw:
        assert raw.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchall() == [
            (str(version),)
        ]
        assert raw.execute("FROM duckdb_tables() WHERE table_name = 'half'").fetchall() == []
        assert raw.execute("SELECT count(*) FROM journal").fetchall() == [(2,)]
    # The interrupted migration has created a log, which is created again.
    assert path.with_suffix(".log").exists() == (version == 4)
    store = Store(path)
    assert [event.at for event in store.load()[1]] == ([6, 7, 8] if version == 4 else [6, 7])
    store.close()


def test_P8_a_migration_that_fails_changes_nothing_and_can_be_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(path)
    known, newer = schema.MIGRATIONS, schema.VERSION + 1
    last = ("CREATE TABLE extra (id INTEGER)", "SELECT no_such_function()")
    monkeypatch.setattr(schema, "VERSION", newer)
    monkeypatch.setattr(schema, "MIGRATIONS", (*known, last))
    with pytest.raises(duckdb.Error):
        Store(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*known, last[:1]))
    store = Store(path)
    assert ["schema_version", str(newer)] in store.query("FROM meta")[1]
    assert store.query("SELECT count(*) FROM extra")[1] == [[0]]
    store.close()


def test_P8_a_newer_schema_is_refused(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(str(path)) as raw:
        newer = schema.VERSION + 1
        raw.execute("UPDATE meta SET value = $1 WHERE key = 'schema_version'", [str(newer)])
    told = f"version {newer}, this program knows {schema.VERSION}"
    with pytest.raises(MetastoreIncompatible, match=told):
        Store(path)


def test_one_process_per_file(path: Path) -> None:
    held = Store(path)
    held.append([Recorded.parse("set", 1, {"name": "acid.read.lease.max", "value": "2h"})])
    script = (
        "import sys; from pathlib import Path\n"
        "from acid_platform.metastore.server.store import Store\n"
        "Store(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    held.close()
    assert re.search(rf"{MetastoreInUse.__name__}: .* process \d+", done.stderr)


def test_P10_network_file_systems_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = [("/", "ext4"), (str(tmp_path.parent.resolve()), "nfs4")]
    monkeypatch.setattr(endpoint, "mounts", lambda: mounted)
    with pytest.raises(MetastoreIncompatible, match=r"network file system \(nfs4\)"):
        endpoint.refuse_network_file_system(Home(tmp_path))
    mounted.append((str(tmp_path.resolve()), "xfs"))
    endpoint.refuse_network_file_system(Home(tmp_path))


def test_this_machine_has_mounts() -> None:
    assert "/" in [point for point, _ in endpoint.mounts()]


def test_P3_what_was_appended_survives(path: Path) -> None:
    store = Store(path)
    store.append(
        [
            Recorded.parse("database", 7, {"name": "a"}),
            Recorded.parse("database", 8, {"name": "b'\"ü"}),
        ]
    )
    store.append([Recorded.parse("database_dropped", 9, {"name": "a"})])
    store.close()
    store = Store(path)
    _, events = store.load()
    assert [(event.kind, event.at, event.event.name) for event in events] == [
        ("database", 7, "a"),
        ("database", 8, "b'\"ü"),
        ("database_dropped", 9, "a"),
    ]
    assert store.journal_length == 3
    store.close()


def test_P3_outcomes_are_found_after_a_fold_and_forgotten_after_the_retention(path: Path) -> None:
    world = World()
    world.create()
    txn = world.insert()
    now = world.clock.now_ms()
    store = Store(path)
    store.append(world.events)
    store.fold(world.state, now)
    past = store.past_txn(txn.id)
    assert past is not None and past.state is TxnState.COMMITTED and past.commit_id == txn.id
    kept = store.past_outcome("request-3")
    assert kept is not None and kept.op == "commit" and kept.reply["value"]["state"] == "c"
    assert store.past_txn(99) is None and store.past_outcome("request-99") is None
    (row,) = store.history(1)
    assert (row.write_id, row.directory) == (1, "delta_0000001_0000001_0000")
    state_rows.forget_ended(world.state)
    store.fold(world.state, now + 1)
    assert store.past_txn(txn.id) is None and store.past_outcome("request-3") is None
    assert len(store.history(1)) == 1
    store.close()


def test_a_fold_writes_of_long_tables_only_what_differs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.create()
    store = Store(path)
    for _ in range(20):
        world.insert()
    store.fold(world.state, 0)
    world.insert()
    world.compact()
    written: dict[str, int] = {}
    write = store._database.write

    def counting(name: str, columns: schema.Columns, rows: list[state_rows.Row]) -> None:
        written[name] = len(rows)
        write(name, columns, rows)

    monkeypatch.setattr(store._database, "write", counting)
    world.clean(world.ready()[0])
    world.insert()
    store.fold(world.state, 0)
    assert written["directories"] == 2  # the base, and the delta above it
    assert written["txn_to_write_id"] == 2 and written["partitions"] == 0
    state, _ = store.load()
    assert state_rows.keyed(state) == state_rows.keyed(world.state)
    store.close()


def test_T8_a_heartbeat_does_not_wait_for_the_write_of_others(path: Path) -> None:
    commits = GroupCommit(path, ManualClock())
    begin = Request("1", Begin(0, (), 0, None, ClientInfo(), tables=()))
    (begun,) = commits.round([begin], None)
    beat = Request("2", Heartbeat((int(str(begun.value["value"]["txn"])),)))
    other = Request("3", CreateDatabase("d", if_not_exists=False))
    replies, left = commits.answer_reads([other, beat])
    assert [reply.request_id for reply in replies] == ["2"] and left == [other]
    assert replies[0].value["value"]["aborted"] == [] and commits.counters.batches == 1
    commits.close()


def test_a_failed_fold_leaves_the_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create()
    store = Store(path)
    store.append(world.events)
    monkeypatch.setattr(store._database, "set_meta", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.fold(world.state, 0)
    _, events = store.load()
    assert len(events) == len(world.events)
    store.close()


def test_queries_only_read(path: Path) -> None:
    store = Store(path)
    store.append([Recorded.parse("database", 1, {"name": "a"})])
    for sql in (
        "DELETE FROM txns",
        "SELECT 1; SELECT 2",
        "COPY txns TO 'x.csv'",
        "PRAGMA version",
        "EXPLAIN ANALYZE DELETE FROM txns",
        "SET threads = 2",
        "ATTACH 'x.duckdb'",
        "",
    ):
        with pytest.raises(UnsupportedStatement):
            store.query(sql)
    for wrong in ("SELEC 1", "SELECT nothing FROM txns", "FROM read_csv('/etc/passwd')"):
        with pytest.raises(InvalidExpression):
            store.query(wrong)
    assert store.query("SELECT count(*) AS n FROM txns") == (["n"], [[0]])
    store.close()


# --- a write that fails --------------------------------------------------------------------------


class Serving:
    """A server in a thread of this process."""

    def __init__(self, home: Home) -> None:
        home.prepare()
        self.lock = take_lock(home)
        self.server = Server(home, ManualClock())
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.store = self.server.commits.store
        self.client = Metastore.connect(home.path, autostart=False)
        self.client.create_table("t", "/w/t", [("id", "int")])

    def fail_next(self, monkeypatch: pytest.MonkeyPatch, *, durable: bool, times: int = 1) -> None:
        append = self.store.append
        left = [times]

        def failing(events: list[Recorded]) -> Record:
            if not left[0]:
                return append(events)
            left[0] -= 1
            if durable:
                append(events)
            raise duckdb.IOException("No space left on device")

        monkeypatch.setattr(self.store, "append", failing)

    def stop(self) -> None:
        self.client.close()
        self.server.stop()
        self.thread.join()
        self.lock.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(Home(tmp_path / "home"))
    yield made
    made.stop()


def test_P3_a_failed_write_changes_nothing(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = serving.client.begin()
    serving.fail_next(monkeypatch, durable=False)
    with pytest.raises(MetastoreWriteFailed, match=r"nothing was changed: .*No space left"):
        serving.client.create_table("u", "/w/u", [("id", "int")])
    assert [table.name for table in serving.client.tables()] == ["default.t"]
    assert serving.client.status()["failed_writes"] == 1
    txn.commit()
    assert serving.client.outcome(txn.id)["state"] == "c"


def test_P3_a_failed_write_that_became_durable_counts(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.fail_next(monkeypatch, durable=True)
    record = serving.client.create_table("u", "/w/u", [("id", "int")])
    assert serving.client.table("u") == record and record.table_id == 2


def test_P9_a_store_error_that_matches_is_tried_again(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.client.set("hive.txn.retryable.sqlex.regex", "No space")
    serving.fail_next(monkeypatch, durable=False, times=2)
    assert serving.client.begin().id == 1
    serving.fail_next(monkeypatch, durable=False, times=9)
    with pytest.raises(MetastoreUnavailable, match="nothing was changed"):
        serving.client.begin()


_opened: list[str] = []
_watching: list[str] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event in ("open", "os.rename", "shutil.copyfile") and args:
        _opened.extend(
            str(argument) for argument in args[:2] if str(argument).startswith(_watching[0])
        )


def test_nobody_in_the_server_opens_the_database_beside_duckdb(
    serving: Serving, tmp_path: Path
) -> None:
    """Closing a second handle would release DuckDB's lock on its file."""
    sys.addaudithook(_watch)
    path = str(serving.server._home.database)
    _watching.append(path)
    try:
        open(path, "rb").close()
        assert _opened == [path]  # the watch works
        _opened.clear()
        serving.client.begin().commit()
        serving.client.query("SELECT 1")
        serving.client.backup(tmp_path / "copy")
        serving.client.status()
    finally:
        _watching.clear()
    assert _opened == []


def test_only_the_store_names_the_database_to_duckdb() -> None:
    package = Path(schema.__file__).parents[1]
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    connecting = {name for name, text in texts.items() if "duckdb.connect(" in text}
    in_memory = {
        "compaction/value_sums.py",
        "engine/local/duckdb_connection.py",
        "engine/local/duckdb_result.py",
        "engine/local/duckdb_views.py",
    }
    assert connecting == in_memory | {
        "metastore/server/database.py",
        "metastore/server/restore.py",
        "metastore/client/backup.py",
    }
    for name in in_memory:
        calls = re.findall(r"duckdb\.connect\(\s*(\)|config=)?", texts[name])
        assert len(calls) == 1 and all(calls), f"{name} names no file"
    naming = {name for name, text in texts.items() if re.search(r"home\.database\b", text)}
    assert naming == {
        "metastore/endpoint.py",
        "metastore/server/server.py",
        "metastore/server/restore.py",
        "metastore/server/seeding.py",
    }
    named = re.findall(r"(\w+)\([^()]*home\.database\b", texts["metastore/server/server.py"])
    assert named == ["GroupCommit"]
    assert re.findall(r"(\w+)\(database\b", texts["metastore/server/group_commit.py"]) == ["Store"]
    for name, used in (("server/restore.py", "path"), ("client/backup.py", "draft")):
        assert re.findall(r"duckdb\.connect\(str\((\w+)\)", texts[f"metastore/{name}"]) == [used]


def test_a_broken_request_harms_nobody_else(serving: Serving) -> None:
    txn = serving.client.begin()
    beats = dict(serving.server.commits.state.heartbeats)
    with pytest.raises(InvalidDefinition, match=r"begin has arguments .* nothing was changed"):
        ask(serving.client, "begin", {"kind": 0})
    assert serving.client.status()["bad_requests"] == 1
    assert serving.server.commits.state.heartbeats == beats
    assert serving.client.begin().id == txn.id + 1
