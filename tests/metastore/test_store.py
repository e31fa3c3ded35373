"""The log and its snapshots: schema, refusals, queries, and writes that fail (P3, P8)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import duckdb
import pytest

from acid_platform import (
    InvalidDefinition,
    InvalidExpression,
    MetastoreDamaged,
    MetastoreIncompatible,
    MetastoreInUse,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    UnsupportedStatement,
)
from acid_platform.metastore import endpoint
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home, take_lock
from acid_platform.metastore.log.contract import PositionTaken
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.tables import DeclareDatabase
from acid_platform.metastore.operations.transactions import Begin, Heartbeat
from acid_platform.metastore.records import ClientInfo, LockRequest
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.server import state_tables
from acid_platform.metastore.server import stored_kinds as schema
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.server import server_of
from acid_platform.metastore.server.state_tables import (
    Origin,
    StateFile,
    StateTables,
    open_state,
    write_state,
)
from acid_platform.metastore.server.store import Store, Unsaved, machine_at
from acid_platform.transactions import TxnState
from acid_platform.transactions.concurrency import LockType
from tests.clocks import ManualClock
from tests.declared import declare
from tests.metastore.processes import ask, until
from tests.metastore.world import World


def created(state: State) -> dict[str, int]:
    """When each database was created."""
    return {name: record.created for name, record in state.databases.items()}


def led(directory: Path) -> Store:
    """The store of a log in this directory, in its next epoch."""
    log = LocalLog(directory)
    if not log.exists:
        log.create()
    log.open_to_append()
    store = Store(log, directory)
    store.load()
    store.begin_epoch(store.end.epoch + 1, 0)
    return store


def save(store: Store, state: State, forget_before: int = 0) -> None:
    store.save(state, forget_before)


LISTED = (
    "SELECT table_name, list_sort(list((column_name, data_type)))"
    " FROM duckdb_columns() WHERE NOT internal GROUP BY ALL ORDER BY 1"
)


@pytest.mark.more
def test_P8_tables_change_only_by_a_migration(tmp_path: Path) -> None:
    """`schema_1.sql` makes the tables of version 1; migrations lead from there to those of now."""
    assert len(schema.MIGRATIONS) == schema.VERSION - 1
    first = Path(__file__).with_name("schema_1.sql").read_text()
    with duckdb.connect() as connection:
        for statement in [first, *chain.from_iterable(schema.MIGRATIONS)]:
            connection.execute(statement)
        expected = connection.sql(LISTED).fetchall()
    store = led(tmp_path)
    save(store, State())
    path = store.path
    store.close()
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.sql(LISTED).fetchall() == expected


ADD = ("CREATE TABLE extra (id INTEGER)", "INSERT INTO extra VALUES (7)")
"""The statements of a migration that nobody needs."""


def newer(patch: pytest.MonkeyPatch, *migrations: Sequence[str]) -> None:
    """Lets the program have these migrations to versions after the present one."""
    patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *migrations))
    patch.setattr(schema, "VERSION", schema.VERSION + len(migrations))


@pytest.mark.more
def test_P8_a_snapshot_of_an_older_version_is_migrated_with_all_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that fails changes nothing and can be tried again."""
    store = led(tmp_path)
    store.append([Recorded.parse("database", 5, {"name": "saved"})])
    save(store, machine_at(store).state)
    store.append([Recorded.parse("database", 6, {"name": "journaled"})])
    path = store.path
    store.close()
    assert path is not None
    old = path.read_bytes()
    with monkeypatch.context() as patch:
        newer(patch, (*ADD, "SELECT no_such_function()"))
        with pytest.raises(MetastoreDamaged, match="no_such_function"):
            led(tmp_path)
    newer(monkeypatch, ADD, ("UPDATE extra SET id = id + 1",))
    for position in (4, 5):
        store = led(tmp_path)
        state = machine_at(store).state
        assert created(state) == {"default": 0, "saved": 5, "journaled": 6}
        assert store.end.position == position and path.read_bytes() == old
        assert store._file is not None
        assert store._file._read("extra", {"id": "INTEGER"}) == [{"id": 8}]
        other = Store(LocalLog(tmp_path), tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            other.open_newest()  # as the process that writes a snapshot meanwhile
        assert other.path != store.path
        other.close()
        assert store._file._read("extra", {"id": "INTEGER"}) == [{"id": 8}]
        store.close()


def test_P8_live_tables_match_the_rows_of_the_state() -> None:
    assert set(schema.live_rows(State())) == set(schema.LIVE)
    assert set(schema.ended_rows(State())) == set(schema.KEPT)


def test_P8_a_snapshot_has_the_tables_of_this_version(tmp_path: Path) -> None:
    store = led(tmp_path)
    store.append([Recorded.parse("database", 7, {"name": "a"})])
    save(store, machine_at(store).state)
    assert store.path is not None and store.path.name == "snapshot-0000000000000002.duckdb"
    assert store.path.stat().st_mode & 0o777 == 0o600
    path, history = store.path, store.log.history
    store.close()
    with duckdb.connect(str(path), read_only=True) as raw:
        names = {row[0] for row in raw.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert names == {"meta", *schema.EVERY}
        meta = dict(raw.execute("FROM meta").fetchall())
        assert raw.execute("SELECT name FROM databases ORDER BY 1").fetchall() == [
            ("a",),
            ("default",),
        ]
        for view in schema.VIEWS:
            raw.execute(f"FROM {view.split()[2]}")
    assert meta["schema_version"] == str(schema.VERSION)
    assert meta["duckdb_version"] == duckdb.__version__
    assert (meta["position"], meta["epoch"], meta["made"]) == ("2", "1", "7")
    assert meta["history"] == history


def test_P8_a_newer_schema_is_refused(tmp_path: Path) -> None:
    store = led(tmp_path)
    save(store, State())
    path = store.path
    store.close()
    with duckdb.connect(str(path)) as raw:
        later = schema.VERSION + 1
        raw.execute("UPDATE meta SET value = $1 WHERE key = 'schema_version'", [str(later)])
    told = f"version {later}, this program knows {schema.VERSION}"
    with pytest.raises(MetastoreIncompatible, match=told):
        led(tmp_path)


def test_one_process_per_directory(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with take_lock(home):
        script = (
            "import sys; from pathlib import Path\n"
            "from acid_platform.metastore.endpoint import Home, take_lock\n"
            "take_lock(Home(Path(sys.argv[1])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert re.search(rf"{MetastoreInUse.__name__}: .* process {os.getpid()}", done.stderr)


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


def test_P3_what_was_appended_survives(tmp_path: Path) -> None:
    store = led(tmp_path)
    store.append(
        [
            Recorded.parse("database", 7, {"name": "a"}),
            Recorded.parse("database", 8, {"name": "b'\"ü"}),
        ]
    )
    store.append([Recorded.parse("database_dropped", 9, {"name": "a"})])
    store.close()
    store = Store(LocalLog(tmp_path), tmp_path)
    _, events = store.load()
    assert [(event.kind, event.at, event.event.name) for event in events] == [
        ("database", 7, "a"),
        ("database", 8, "b'\"ü"),
        ("database_dropped", 9, "a"),
    ]
    assert (store.end.position, store.end.epoch, store.end.made) == (3, 1, 9)
    store.close()


@pytest.mark.more
def test_P3_outcomes_are_found_after_a_snapshot_and_forgotten_after_the_retention(
    tmp_path: Path,
) -> None:
    world = World()
    world.create()
    txn = world.insert()
    now = world.clock.now_ms()
    store = led(tmp_path)
    store.append(world.events)
    save(store, world.state, now)
    assert not (world.state.ended or world.state.outcomes or world.state.written)
    past = store.past_txn(txn.id)
    assert past is not None and past.state is TxnState.COMMITTED and past.commit_id == txn.id
    kept = store.past_outcome("request-3")
    assert kept is not None and kept.op == "commit" and kept.reply["value"] == {"commit_id": txn.id}
    assert store.past_txn(99) is None and store.past_outcome("request-99") is None
    (row,) = store.history(world.state, 1)
    assert (row["write_id"], row["directory"]) == (1, "delta_0000001_0000001_0000")
    store.begin_epoch(2, now)  # another position: a snapshot is never changed
    save(store, world.state, now + 1)
    assert store.past_txn(txn.id) is None and store.past_outcome("request-3") is None
    assert len(store.history(world.state, 1)) == 1
    store.close()


@pytest.mark.more
def test_P3_what_came_after_the_mark_stays_in_memory(tmp_path: Path) -> None:
    """A snapshot of an earlier position is adopted while commits go on (P26 too)."""
    world = World()
    world.create()
    world.insert()
    store = led(tmp_path)
    store.append(world.events)
    written, position, recent = (
        len(world.events),
        store.end.position,
        Unsaved.of(world.state),
    )
    world.insert()
    store.append(world.events[written:])
    other = Store(LocalLog(tmp_path), tmp_path)
    other.save(machine_at(other, position).state, 0)
    other.close()
    rows = store.history(world.state, 1)
    store.open_newest()
    assert store.saved == position
    assert store.history(world.state, 1) == rows  # memory still has what the snapshot has
    recent.forget(world.state)
    assert store.history(world.state, 1) == rows and len(rows) == 2
    assert [row.write_id for row in world.state.written] == [2]
    assert [*world.state.contents[(1, None)]] == ["delta_0000002_0000002_0000"]
    assert [*world.state.ended] == [2]
    again = machine_at(store).state
    assert schema.live_rows(again) == schema.live_rows(world.state)
    assert schema.ended_rows(again) == schema.ended_rows(world.state)
    store.close()


@pytest.mark.more
def test_P3_a_query_or_snapshot_goes_on_although_the_snapshot_was_replaced(tmp_path: Path) -> None:
    world = World()
    world.create()
    world.insert()
    store = led(tmp_path)
    store.append(world.events)
    save(store, world.state)
    written = len(world.events)
    for turn in range(2):
        world.insert()
        store.append(world.events[written:])
        written = len(world.events)
        other = Store(LocalLog(tmp_path), tmp_path)
        other.save(machine_at(other).state, 0)
        other.close()
        assert store.path is not None and not store.path.exists()
        if turn:
            save(store, world.state)
        else:
            assert store.query(world.state, "SELECT count(*) FROM txns")[1] == [[2]]
            assert store.query(world.state, "SELECT count(*) FROM writes")[1] == [[2]]
    assert store.query(world.state, "SELECT count(*) FROM txns")[1] == [[3]]
    store.close()


def test_P3_a_process_that_writes_a_snapshot_for_a_killed_leader_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes one too, and is faster."""
    store = led(tmp_path)
    store.append([Recorded.parse("database", 7, {"name": "a"})])
    real = StateTables.save

    def slowly(tables: StateTables, path: Path) -> None:
        monkeypatch.undo()
        real(tables, path)
        monkeypatch.setattr(os, "getpid", lambda: 1)
        store.append([Recorded.parse("database", 8, {"name": "b"})])
        save(store, machine_at(store).state)

    other = Store(LocalLog(tmp_path), tmp_path)
    monkeypatch.setattr(StateTables, "save", slowly)
    state = machine_at(other).state
    with pytest.raises(FileNotFoundError):
        other.save(state, 0)
    monkeypatch.undo()
    other.close()
    assert store.log.snapshots() == [3]
    assert created(machine_at(store).state) == {"default": 0, "a": 7, "b": 8}
    assert not list(tmp_path.glob("*.new*"))
    store.close()


def test_T8_a_heartbeat_does_not_wait_for_the_write_of_others(tmp_path: Path) -> None:
    commits = GroupCommit(led(tmp_path), ManualClock())
    commits.lead()
    begin = Request("1", Begin(0, (), 0, None, ClientInfo(), tables=()))
    (begun,) = commits.round([begin], None)
    beat = Request("2", Heartbeat((int(str(begun.value["value"]["txn"])),)))
    other = Request("3", DeclareDatabase("d", if_not_exists=False))
    replies, left = commits.answer_reads([other, beat])
    assert [reply.request_id for reply in replies] == ["2"] and left == [other]
    assert replies[0].value["value"]["aborted"] == [] and commits.counters.batches == 1
    commits.close()


def test_a_failed_snapshot_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create()
    store = led(tmp_path)
    store.append(world.events)
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setattr(StateTables, "save", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(store, world.state)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    _, events = store.load()
    assert len(events) == len(world.events)
    store.close()


def test_P3_an_epoch_that_another_has_followed_appends_nothing(tmp_path: Path) -> None:
    """Even if it has read what the other appended, as after an append that failed."""
    old = led(tmp_path)
    log = LocalLog(tmp_path)
    log.open_to_append()
    new = Store(log, tmp_path)
    new.load()
    new.begin_epoch(2, 0)
    event = [Recorded.parse("database", 7, {"name": "a"})]
    old.log.open_to_append()
    for read_again in (lambda: None, lambda: machine_at(old), old.follow):
        read_again()
        with pytest.raises(PositionTaken):
            old.append(event)
    new.append(event)
    assert [each.epoch for each in new.log.read(0)] == [1, 2, 2]
    for store in (old, new):
        store.close()


def test_P3_a_leader_whose_append_failed_when_another_leads_makes_nothing_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = GroupCommit(led(tmp_path), ManualClock())
    commits.lead()
    other = GroupCommit(led(tmp_path), ManualClock())
    other.lead()
    made = DeclareDatabase("d", if_not_exists=False)
    monkeypatch.setattr(commits.store.log, "append", lambda _: (_ for _ in ()).throw(OSError(5)))
    (reply,) = commits.round([Request("1", made)], None)
    assert "ask" in reply.value
    monkeypatch.undo()
    with pytest.raises(PositionTaken):
        commits.round([Request("1", made)], None)
    (reply,) = other.round([Request("2", made)], None)
    assert "value" in reply.value
    with pytest.raises(PositionTaken):
        commits.lead(other.epoch)
    for each in (commits, other):
        each.store.close()


@pytest.mark.more
def test_P3_a_snapshot_of_another_log_is_refused_by_name(tmp_path: Path) -> None:
    stores = [led(made) for made in (tmp_path / "a", tmp_path / "b") if not made.mkdir()]
    for store in stores:
        save(store, State())
        store.close()
    name = "snapshot-0000000000000001.duckdb"
    shutil.copy(tmp_path / "b" / name, tmp_path / "a" / name)
    with pytest.raises(MetastoreDamaged, match=f"{name} belongs to another log; .*restore"):
        led(tmp_path / "a")


def test_P31_a_snapshot_from_before_a_copy_counts_after_it(tmp_path: Path) -> None:
    store = led(tmp_path)
    save(store, State())
    log = store.log
    assert isinstance(log, LocalLog)
    log.note_place(copied=True)
    store.append([Recorded.parse("database", 7, {"name": "a"})])
    store.close()
    again = led(tmp_path)
    assert created(machine_at(again).state) == {"default": 0, "a": 7}
    again.close()


def test_P3_who_reads_a_snapshot_that_is_gone_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StateFile(tmp_path / "snapshot-0000000000000001.duckdb")
    with pytest.raises(FileNotFoundError):
        StateTables(State(), Origin(1, 1, 1, ""), tmp_path / "snapshot-0000000000000001.duckdb")


def test_queries_only_read(tmp_path: Path) -> None:
    store, state = led(tmp_path), State()
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
            store.query(state, sql)
    for wrong in ("SELEC 1", "SELECT nothing FROM txns", "FROM read_csv('/etc/passwd')"):
        with pytest.raises(InvalidExpression):
            store.query(state, wrong)
    assert store.query(state, "SELECT count(*) AS n FROM txns") == (["n"], [[0]])
    store.close()


@pytest.mark.more
def test_P8_a_query_has_each_table_that_it_reads(tmp_path: Path) -> None:
    """Tables are copied from memory once a query names them, or a view that reads them."""
    world, origin = World(), Origin(1, 1, 1, "")
    world.create()
    world.insert()
    write_state(tmp_path / "saved.duckdb", world.state, origin, None)
    views = [view.split()[2] for view in schema.VIEWS]
    with duckdb.connect(str(tmp_path / "saved.duckdb"), read_only=True) as saved:
        for name in (*schema.EVERY, *views):
            tables = StateTables(world.state, origin, None)
            for sql in (f'SELECT * FROM "{name.upper()}"', f"FROM query('FROM ' || '{name}')"):
                _, rows = tables.query(sql)
                expected = [list(row) for row in saved.execute(f'FROM "{name}"').fetchall()]
                assert sorted(rows, key=str) == sorted(expected, key=str), sql
            tables.close()


@pytest.mark.more
def test_P8_a_query_sees_memory_and_the_snapshot_as_one(tmp_path: Path) -> None:
    world, store, written = World(), led(tmp_path), 0
    world.create()
    for turn in range(3):
        world.insert()
        store.append(world.events[written:])
        written = len(world.events)
        _, rows = store.query(
            world.state,
            "SELECT (SELECT count(*) FROM txns), (SELECT count(*) FROM writes),"
            " (SELECT count(*) FROM manifests), (SELECT count(*) FROM v_files),"
            " (SELECT count(DISTINCT request_id) FROM outcomes),"
            " (SELECT count(*) FROM outcomes)",
        )
        assert rows[0][:4] == [turn + 1] * 4
        assert rows[0][4] == rows[0][5]
        if turn < 2:
            save(store, world.state)
    store.close()


# --- a write that fails --------------------------------------------------------------------------


class Serving:
    """A server in a thread of this process."""

    def __init__(self, home: Home) -> None:
        home.prepare()
        self.home, self.lock = home, take_lock(home)
        self.server = server_of(home, ManualClock())
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.store = self.server.commits.store
        self.client = Metastore.connect(home.path, autostart=False)
        declare(self.client, "t", "/w/t", [("id", "int")])

    def fail_next(self, monkeypatch: pytest.MonkeyPatch, *, durable: bool, times: int = 1) -> None:
        append = self.store.append
        left = [times]

        def failing(events: list[Recorded]) -> None:
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
        declare(serving.client, "u", "/w/u", [("id", "int")])
    assert [table.name for table in serving.client.tables()] == ["default.t"]
    assert serving.client.status()["failed_writes"] == 1
    txn.commit()
    assert serving.client.outcome(txn.id)["state"] == "c"


def test_P3_a_failed_write_that_became_durable_counts(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.fail_next(monkeypatch, durable=True)
    record = declare(serving.client, "u", "/w/u", [("id", "int")])
    assert serving.client.table("u") == record and record.table_id == 2


@pytest.mark.more
@pytest.mark.parametrize("failing", ["request", "grant"])
def test_P3_who_waits_is_answered_although_an_append_failed_that_became_durable(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    lock = LockRequest("t", LockType.EXCLUSIVE)
    holder, granted = serving.client.begin(locks=[lock]), list[int]()

    def wait() -> None:
        with Metastore.connect(serving.home.path, autostart=False) as other:
            granted.append(other.begin(locks=[lock], wait=100).id)

    waiter = threading.Thread(target=wait, daemon=True)
    if failing == "request":
        serving.fail_next(monkeypatch, durable=True)
    waiter.start()
    until(lambda: serving.client.status()["waiting"] == 1)
    if failing == "grant":
        serving.fail_next(monkeypatch, durable=True)
    holder.commit()
    waiter.join(20)
    assert granted == [holder.id + 1]
    assert serving.client.status()["failed_writes"] == 1


def test_P9_a_store_error_that_matches_is_tried_again(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.client.set("hive.txn.retryable.sqlex.regex", "No space")
    serving.fail_next(monkeypatch, durable=False, times=2)
    assert serving.client.begin().id == 1
    serving.fail_next(monkeypatch, durable=False, times=9)
    with pytest.raises(MetastoreUnavailable, match="nothing was changed"):
        serving.client.begin()


def harmful(table: str, columns: dict[str, str]) -> dict[str, str]:
    """Statements that put something else into the place of a table of a snapshot."""
    name, (first, *others) = f'"{table}"', (f'"{column}"' for column in columns)
    listed = ", ".join(f"{column} VARCHAR" for column in others)
    return {
        "a view": f"ALTER TABLE {name} RENAME TO was; CREATE VIEW {name} AS FROM was",
        "a computed column": f"DROP TABLE {name}; CREATE TABLE {name} ({listed},"
        f" {first} BIGINT GENERATED ALWAYS AS (7))",
        "a default": f"ALTER TABLE {name} ALTER {first} SET DEFAULT 7",
        "another type": f"ALTER TABLE {name} ALTER {first} TYPE BLOB USING NULL",
        "a column too many": f"ALTER TABLE {name} ADD COLUMN more BIGINT",
        "a column too few": f"ALTER TABLE {name} DROP {first}",
        "no table": f"DROP TABLE {name}",
    }


@pytest.mark.more
@pytest.mark.parametrize("table", ["meta", "tables", "txns", "manifests"])
@pytest.mark.parametrize("harm", harmful("", {"": "", "x": ""}))
def test_P67_a_snapshot_has_the_tables_that_we_make(tmp_path: Path, harm: str, table: str) -> None:
    path = tmp_path / "backup"
    write_state(path, State(), Origin(1, 1, 1, "h"), None)
    with duckdb.connect(str(path)) as raw:
        for view in schema.VIEWS:
            raw.execute(f"DROP VIEW {view.split()[2]}")
        raw.execute(harmful(table, {"meta": schema.META, **schema.EVERY}[table])[harm])
    with pytest.raises(MetastoreDamaged, match=f"its '{table}' is not the table that"):
        StateFile(path)
    with pytest.raises(MetastoreDamaged, match=f"its '{table}' is not the table that"):
        StateTables(State(), Origin(1, 1, 1, "h"), path)


@pytest.mark.more
@pytest.mark.parametrize("rows, text", [(200_000, "x"), (200, "x" * 300_000)])
def test_P65_a_backup_whose_rows_are_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, text: str
) -> None:
    """Two million rows take 2 MB in the file, and more than a gigabyte in memory."""
    monkeypatch.setattr(state_tables, "LARGEST_PIECE", 10 << 20)
    path = tmp_path / "backup"
    write_state(path, State(), Origin(1, 1, 1, "h"), None)
    sound = StateFile(path)
    assert [*sound.state(strange=True).databases] == ["default"]
    sound.close()
    with duckdb.connect(str(path)) as raw:
        fill = "INSERT INTO databases SELECT $1, i, $1, $1, $1, $1 FROM range($2) _(i)"
        raw.execute(fill, [text, rows])
    assert path.stat().st_size < 3 << 19
    with pytest.raises(MetastoreDamaged, match=r"would take|Out of Memory"):
        StateFile(path).state(strange=True)


@pytest.mark.more
@pytest.mark.parametrize(
    "harm",
    [
        "CREATE MACRO sum(x) AS 7",
        "CREATE TYPE mood AS ENUM ('a')",
        "ALTER TABLE txns ALTER txn_id SET DEFAULT 7",
    ],
)
def test_P67_an_older_snapshot_has_nothing_that_a_migration_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    path = tmp_path / "old.duckdb"
    write_state(path, State(), Origin(1, 1, 1, "h"), None)
    with duckdb.connect(str(path)) as raw:
        raw.execute(harm)
    newer(monkeypatch, ADD)
    with pytest.raises(MetastoreDamaged, match=r"it has (functions|types|computed columns)"):
        open_state(path, tmp_path)


def test_a_broken_request_harms_nobody_else(serving: Serving) -> None:
    txn = serving.client.begin()
    beats = dict(serving.server.commits.state.heartbeats)
    with pytest.raises(InvalidDefinition, match=r"begin has arguments .* nothing was changed"):
        ask(serving.client, "begin", {"kind": 0})
    assert serving.client.status()["bad_requests"] == 1
    assert serving.server.commits.state.heartbeats == beats
    assert serving.client.begin().id == txn.id + 1
