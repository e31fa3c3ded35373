"""The DuckDB file: schema, refusals, queries, and writes that fail (P3, P8, pitfalls)."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import chain
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
from acid_platform.metastore import Metastore, endpoint
from acid_platform.metastore.endpoint import Home, take_lock
from acid_platform.metastore.operations.tables import DeclareDatabase
from acid_platform.metastore.operations.transactions import Begin, Heartbeat
from acid_platform.metastore.records import (
    ClientInfo,
)
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.state import (
    State,
)
from acid_platform.metastore.server import metastore_schema as schema
from acid_platform.metastore.server import state_rows
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.server import Server
from acid_platform.metastore.server.store import Store
from acid_platform.metastore.server.stored_kinds import Columns
from acid_platform.transactions import TxnState
from tests.clocks import ManualClock
from tests.metastore.processes import ask
from tests.metastore.world import World


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metastore.duckdb"


def test_P8_tables_change_only_by_a_migration(tmp_path: Path) -> None:
    """`schema_1.sql` makes the tables of version 1; migrations lead from there to those of now."""
    first = Path(__file__).with_name("schema_1.sql").read_text()
    made = []
    for statements in ([first, *chain.from_iterable(schema.MIGRATIONS)], schema.NEW):
        with duckdb.connect() as connection:
            for statement in statements:
                connection.execute(statement)
            made.append(
                connection.sql(
                    "SELECT table_name, list_sort(list((column_name, data_type)))"
                    " FROM duckdb_columns() WHERE NOT internal GROUP BY ALL ORDER BY 1"
                ).fetchall()
            )
    assert made[0] == made[1]


def test_P8_live_tables_match_the_rows_of_the_state(path: Path) -> None:
    assert set(state_rows.live_rows(State())) == set(schema.LIVE)
    assert set(state_rows.ended_rows(State())) == set(schema.KEPT)


def test_P8_a_new_file_has_the_tables_of_this_version(path: Path) -> None:
    assert len(schema.MIGRATIONS) == schema.VERSION - 1
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


ADD = ("CREATE TABLE extra (id INTEGER)", "INSERT INTO extra VALUES (7)")
"""The statements of a migration that nobody needs."""


def newer(patch: pytest.MonkeyPatch, *migrations: Sequence[str]) -> None:
    """Lets the program have these migrations to versions after the present one."""
    patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *migrations))
    patch.setattr(schema, "VERSION", schema.VERSION + len(migrations))


def test_P8_a_file_of_an_older_version_is_migrated_with_all_that_it_has(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables and the journal, which nothing migrates."""
    store = Store(path)
    state, _ = store.load()
    state.databases["folded"] = 5
    store.fold(state, 0)
    store.append([Recorded.parse("database", 6, {"name": "journaled"})])
    store.close()
    newer(monkeypatch, ADD, ("UPDATE extra SET id = id + 1",))
    for _ in range(2):
        store = Store(path)
        state, events = store.load()
        assert state.databases == {"default": 0, "folded": 5}
        assert events == [Recorded.parse("database", 6, {"name": "journaled"})]
        assert ["schema_version", str(schema.VERSION)] in store.query("FROM meta")[1]
        assert store.query("FROM extra")[1] == [[8]]
        store.close()


def test_P8_a_crash_in_the_middle_of_a_migration_leaves_the_old_version(path: Path) -> None:
    Store(path).close()
    script = (
        "import os, sys; from pathlib import Path\n"
        "from acid_platform.metastore.server import metastore_schema as schema\n"
        "from acid_platform.metastore.server.store import Store\n"
        "class Crash:\n"
        "    def __iter__(self):\n"
        "        yield 'CREATE TABLE half (id INTEGER)'\n"
        "        os._exit(9)\n"
        "schema.MIGRATIONS, schema.VERSION = (*schema.MIGRATIONS, Crash()), schema.VERSION + 1\n"
        "Store(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == 9
    store = Store(path)
    assert ["schema_version", str(schema.VERSION)] in store.query("FROM meta")[1]
    assert store.query("SELECT table_name FROM duckdb_tables() WHERE table_name = 'half'")[1] == []
    store.close()


def test_P8_a_migration_that_fails_changes_nothing_and_can_be_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).close()
    with monkeypatch.context() as patch:
        newer(patch, (*ADD, "SELECT no_such_function()"))
        with pytest.raises(duckdb.Error):
            Store(path)
    newer(monkeypatch, ADD)
    store = Store(path)
    assert ["schema_version", str(schema.VERSION)] in store.query("FROM meta")[1]
    assert store.query("FROM extra")[1] == [[7]]
    store.close()


def test_P8_a_newer_schema_is_refused(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(str(path)) as raw:
        later = schema.VERSION + 1
        raw.execute("UPDATE meta SET value = $1 WHERE key = 'schema_version'", [str(later)])
    told = f"version {later}, this program knows {schema.VERSION}"
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

    def counting(name: str, columns: Columns, rows: list[state_rows.Row]) -> None:
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
    other = Request("3", DeclareDatabase("d", if_not_exists=False))
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
    package = Path(schema.__file__).parents[2]
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
