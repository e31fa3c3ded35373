"""Backups while clients work, restores, and write ids in doubt (P24)."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from acid_platform import (
    BackupRefused,
    InvalidDefinition,
    MetastoreIncompatible,
    MetastoreInUse,
    NoSuchTxn,
)
from acid_platform.base.config import HONOURED, PATHS, REGISTRY
from acid_platform.base.location import Location
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.contract import is_part
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.tables import GetDoubtful, ResolveDoubtful
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, TableRecord, WriteReport
from acid_platform.metastore.rules.table_declarations import DatabaseCreated
from acid_platform.metastore.server import restore as module
from acid_platform.metastore.server.restore import Highest
from acid_platform.metastore.server.restore import restore_directory as restore
from acid_platform.metastore.server.server import log_of
from acid_platform.metastore.server.state_tables import Origin, StateTables, write_state
from acid_platform.metastore.server.store import events_of, write_copy
from acid_platform.tables.adoption import highest_of
from acid_platform.tables.adoption import restore as restore_warehouse
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.cli.conftest import small
from tests.cli.small import Small
from tests.conftest import few_then_more
from tests.contents import counts
from tests.declared import declare
from tests.metastore.processes import end, gone, until
from tests.metastore.world import World

__all__ = ["small"]

WRITE = LockRequest("t", LockType.SHARED_WRITE, RowOperation.INSERT)


def insert(metastore: Metastore) -> int:
    with metastore.begin(locks=[WRITE]) as txn:
        commit(txn)
    return txn.id


def commit(txn: OpenTransaction) -> None:
    write_id = txn.write_ids["default.t"]
    name = f"delta_{write_id:07d}_{write_id:07d}_0000"
    txn.commit(CommitContents((WriteReport("t", None, RowOperation.INSERT, name, counts(1, 10)),)))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "metastore")


def found(write_id: int, txn_id: int = 0) -> Highest:
    return Highest(write_id, txn_id)


@pytest.mark.slow
def test_a_backup_is_one_moment_while_clients_work(home: Home, tmp_path: Path) -> None:
    """Even while the leader replaces batches by snapshots."""
    files = [tmp_path / f"copy-{number}.duckdb" for number in range(5)]
    with Metastore.connect(home.path) as metastore:
        declare(metastore, "t", "default.db/t", [("id", "int")])
        metastore.set("acid.metastore.snapshot.bytes", "1")
        before = [insert(metastore) for _ in range(5)]
        stop, during = threading.Event(), list[int]()

        def work() -> None:
            with Metastore.connect(home.path) as other:
                while not stop.is_set():
                    during.append(insert(other))

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        acknowledged, snapshots = [], []
        for file in files:
            seen = len(during)
            until(lambda seen=seen: len(during) > seen + 20, 30)  # type: ignore[misc]
            acknowledged.append([*before, *during])
            snapshots.append(metastore.status()["snapshots"])
            write_copy(log_of(home), file)
        stop.set()
        worker.join()
        end(metastore)
    assert snapshots[-1] > snapshots[0]
    for file, known in zip(files, acknowledged, strict=True):
        with duckdb.connect(str(file), read_only=True) as copy:

            def ids(query: str, copy: duckdb.DuckDBPyConnection = copy) -> list[int]:
                return [row[0] for row in copy.execute(query).fetchall()]

            ended = ids("SELECT txn_id FROM txns ORDER BY 1")
            written = ids("SELECT txn FROM writes ORDER BY 1")
            still_open = ids("SELECT txn_id FROM v_open_txns")
            meta = dict(copy.execute("FROM meta").fetchall())
        assert ended == written
        # The backup's moment may be between a client's begin and its commit.
        last = int(meta["next_txn"]) - 1
        assert ended + still_open == list(range(1, last + 1)) and len(still_open) <= 1
        assert ended[: len(known)] == known, "what was acknowledged before is in it"
        assert file.stat().st_mode & 0o777 == 0o600
    listed = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert listed == [file.name for file in files]


@pytest.mark.slow
def test_a_backup_begins_again_if_its_batches_were_replaced(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "copy.duckdb"
    with Metastore.connect(home.path) as metastore:
        declare(metastore, "t", "default.db/t", [("id", "int")])
        end(metastore)
    with Metastore.connect(home.path) as metastore:
        real, calls = StateTables.__init__, list[Path | None]()

        def slowly(tables: StateTables, state: Any, origin: Any, before: Any, *more: Any) -> None:
            calls.append(before)
            if len(calls) == 1:
                insert(metastore)
                snapshots = metastore.status()["snapshots"]
                metastore.set("acid.metastore.snapshot.bytes", "1")
                large = {"large": "x" * 1_000_000}  # a quarter of the snapshot, or more
                declare(metastore, "u", "default.db/u", [("id", "int")], properties=large)
                until(lambda: metastore.status()["snapshots"] > snapshots, 30)
                until(lambda: not before.exists())
            real(tables, state, origin, before, *more)

        monkeypatch.setattr(StateTables, "__init__", slowly)
        write_copy(log_of(home), file)
        end(metastore)
    assert len(calls) == 2 and calls[0] != calls[1]
    with duckdb.connect(str(file), read_only=True) as copy:
        assert copy.execute("SELECT count(*) FROM writes").fetchall() == [(1,)]


@pytest.mark.more
def test_P24_write_ids_newer_than_the_backup_are_in_doubt(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "copy.duckdb"
    with Metastore.connect(home.path) as metastore:
        declare(metastore, "t", "default.db/t", [("id", "int")])
        first = insert(metastore)
        open_one = metastore.begin(locks=[WRITE])
        write_copy(log_of(home), file)
        commit(open_one)
        late = insert(metastore)
        end(metastore)
    done = restore(home, file, lambda record, known: found(4, 9), replace_it=True)
    assert done.doubtful == {"default.t": [(2, 4)]}
    assert (done.tables, done.open_txns, done.next_txn) == (1, 1, 10)
    assert Path(done.replaced).exists() and not home.unfinished.exists()
    with Metastore.connect(home.path) as metastore:
        assert metastore.status()["doubtful"] == 3
        assert metastore.outcome(first)["state"] == "c"
        for lost in (open_one.id, late):
            with pytest.raises(NoSuchTxn):
                metastore.outcome(lost)
        seen = metastore.open_snapshot(["t"]).valid_write_ids("t")
        assert [write_id for write_id in range(1, 6) if seen.is_valid(write_id)] == [1]
        assert insert(metastore) == 11  # 10 is the snapshot above
        assert metastore.history("t")[-1]["write_id"] == 5
        seen = metastore.open_snapshot(["t"]).valid_write_ids("t")
        assert [write_id for write_id in range(1, 6) if seen.is_valid(write_id)] == [1, 5]
        assert seen.for_compactor().high_watermark == 1
        with pytest.raises(InvalidDefinition, match=r"\[5\] of default.t are not doubtful"):
            metastore.call(ResolveDoubtful("t", tuple(sorted([5])), ()))
        metastore.call(ResolveDoubtful("t", tuple(sorted([2, 3])), tuple(sorted([4]))))
        assert metastore.call(GetDoubtful()) == {}
        seen = metastore.open_snapshot(["t"]).valid_write_ids("t")
        assert [write_id for write_id in range(1, 6) if seen.is_valid(write_id)] == [1, 2, 3, 5]
        assert seen.is_aborted(4)
        end(metastore)
    with Metastore.connect(home.path) as metastore:
        assert metastore.call(GetDoubtful()) == {}
        end(metastore)


@pytest.mark.slow
def test_P24_doubt_survives_a_restart_and_a_snapshot(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "copy.duckdb"
    with Metastore.connect(home.path) as metastore:
        declare(metastore, "t", "default.db/t", [("id", "int")])
        write_copy(log_of(home), file)
        end(metastore)
    restore(home, file, lambda record, known: found(2), replace_it=True)
    for _ in range(2):
        with Metastore.connect(home.path) as metastore:
            metastore.query("SELECT 1")
            assert metastore.call(GetDoubtful()) == {"default.t": [(1, 2)]}
            end(metastore)


@pytest.mark.more
def test_P24_a_metastore_that_is_replaced_keeps_its_log(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "copy.duckdb"
    with Metastore.connect(home.path) as metastore:
        write_copy(log_of(home), file)
        metastore.create_database("late")
        pid = metastore.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        while not gone(pid):
            time.sleep(0.01)
    replaced = None
    while replaced is None:
        with suppress(MetastoreInUse):  # the lock of a killed process may outlive it a moment
            replaced = restore(home, file, lambda record, known: found(0), replace_it=True).replaced
        time.sleep(0.01)
    kept = Path(replaced)
    parts = sorted(path.name for path in home.path.iterdir() if is_part(path.name))
    assert [name.split("-")[0] for name in parts] == ["journal", "snapshot"]
    events = [record.event for batch in LocalLog(kept).read(0) for record in events_of(batch)]
    assert [event.name for event in events if isinstance(event, DatabaseCreated)] == ["late"]
    with Metastore.connect(home.path) as metastore:
        assert metastore.databases() == ["default"]
        end(metastore)


@pytest.mark.more
def test_restore_refuses_by_name(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, nothing = tmp_path / "copy.duckdb", lambda record, known: found(0)
    with Metastore.connect(home.path) as metastore:
        write_copy(log_of(home), file)
        with pytest.raises(BackupRefused, match="exists; name a new file"):
            write_copy(log_of(home), file)
        with pytest.raises(BackupRefused, match="can't be written"):
            write_copy(log_of(home), tmp_path / "missing" / "file")
        with pytest.raises(MetastoreInUse, match="is served by process"):
            restore(home, file, nothing, replace_it=True)
        end(metastore)
    monkeypatch.setattr("acid_platform.metastore.client.target.START_SECONDS", 5)
    monkeypatch.setattr("acid_platform.metastore.client.link.START_SECONDS", 5)
    with pytest.raises(BackupRefused, match="holds a metastore already"):
        restore(home, file, nothing)
    torn = tmp_path / "torn"
    torn.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(BackupRefused, match="no backup"):
        restore(home, torn, nothing, replace_it=True)
    with duckdb.connect(str(file)) as raw:
        raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(BackupRefused, match=r"has schema version 99.*use the newer program"):
        restore(home, file, nothing, replace_it=True)
    others = {path.name for path in home.path.iterdir() if not is_part(path.name)}
    assert others == {"authkey", "server.lock", "server.log", "starting.lock"}
    with Metastore.connect(home.path) as metastore:
        assert metastore.databases() == ["default"]
        end(metastore)


@pytest.mark.parametrize(
    "harm_and_error",
    few_then_more(
        [
            ("UPDATE tables SET location = '../other/t'", "'../other/t'"),
            ("UPDATE tables SET location = 'default.db/../../t'", "'default.db/../../t'"),
            ("UPDATE tables SET location = ''", "''"),
            ("UPDATE dropped_tables SET location = '..'", "'..'"),
            ("UPDATE drops SET location = '../other'", "'../other'"),
            ("UPDATE drops SET \"partition\" = '../../p=1'", "'../../p=1'"),
            ("UPDATE partitions SET name = 'p=1/../..'", "'p=1/../..'"),
            ("UPDATE directories SET \"partition\" = '/tmp'", "'/tmp'"),
            ("UPDATE directories SET name = '../delta_0000001_0000001_0000'", "'../delta_0"),
            ("UPDATE meta SET value = repeat('9', 30) WHERE key = 'position'", "is too large"),
            ("UPDATE meta SET value = NULL WHERE key = 'position'", "int()"),
            ("UPDATE tables SET location = '_metastore/t'", "'a hidden directory'"),
            ("UPDATE drops SET location = '.trash/t'", "'a hidden directory'"),
            ("UPDATE dropped_tables SET location = 'default.db/t/inside'", "'default.db/t'"),
            (
                "UPDATE drops SET location = 'default.db/t/delta_0000001_0000001_0000'",
                "'default.db/t'",
            ),
            ('UPDATE drops SET "partition" = NULL', "'default.db/t'"),
            (
                "INSERT INTO tables SELECT * REPLACE (9 AS table_id, 'default.u' AS name)"
                " FROM tables",
                "have one location",
            ),
            (
                "INSERT INTO tables SELECT * REPLACE (9 AS table_id, 'default.u' AS name,"
                " location || '/u' AS location) FROM tables",
                "'default.db/t'",
            ),
            (
                "INSERT INTO settings VALUES ('acid.isolation', 'none')",
                "acid.isolation='none' is refused",
            ),
            ("UPDATE tables SET columns = repeat('[', 100000)", "RecursionError"),
            ("UPDATE meta SET value = '1' WHERE key = 'schema_version'", "already exists"),
        ],
        8,
    ),
)
def test_P67_a_backup_leads_out_of_no_warehouse(
    home: Home, tmp_path: Path, harm_and_error: tuple[str, str]
) -> None:
    """Relative places are the warehouse's own, and the Cleaner removes what was dropped there."""
    harm, shown = harm_and_error
    world, file = World(), tmp_path / "backup.duckdb"
    for name in ("t", "gone"):
        world.create(name, True, location=f"default.db/{name}")
        world.insert(name, "p=1")
    for name, partition in (("gone", None), ("t", "p=1")):
        txn = world.begin(LockRequest(name, LockType.EXCLUSIVE))
        world.call("drop", txn=txn.id, name=name, partition=partition)
    world.insert("t", "p=2")
    write_state(file, world.state, Origin(7, 1, 1, "h"), None)
    restore(home, file, lambda record, known: found(0))
    with duckdb.connect(str(file)) as raw:
        (changed,) = raw.execute(harm).fetchone() or (0,)
        assert changed, "the backup has such a row"
    with pytest.raises(BackupRefused, match=rf"is no backup of a metastore: .*{re.escape(shown)}"):
        restore(home, file, lambda record, known: found(0), replace_it=True)


@pytest.mark.parametrize("keep", [False, True])
def test_P67_a_backup_chooses_no_places_code_or_patterns(
    home: Home, tmp_path: Path, keep: bool
) -> None:
    """Every setting that has no bounds is left out, unless all are asked for."""
    world, file = World(), tmp_path / "backup.duckdb"
    harmless = {"acid.isolation": "serializable", "acid.history.retention": "30d"}
    acting = {
        name: f"{tmp_path}/x"
        for name in REGISTRY
        if name.startswith(("acid.gateway.", "acid.metastore.archive"))
        and not REGISTRY[name].bounded
    } | {"hive.txn.retryable.sqlex.regex": "(a+)+$", "hive.compactor.job.queue": "theirs"}
    assert set(PATHS) | {"acid.gateway.authorizer"} < {*acting}
    assert {*acting} == {e.name for e in HONOURED if not e.bounded}
    for name, text in {**harmless, **acting}.items():
        world.state.settings = world.state.settings.with_stored(name, text)
    write_state(file, world.state, Origin(7, 1, 1, "h"), None)
    restored = restore(home, file, lambda record, known: found(0), keep_settings=keep)
    assert restored.settings == ({**harmless, **acting} if keep else harmless)
    assert restored.left_out == ({} if keep else acting)
    with Metastore.connect(home.path) as metastore:
        now = metastore.settings()
        end(metastore)
    assert {name: now[name] for name in acting} == (acting if keep else dict.fromkeys(acting, ""))
    assert {name: now[name] for name in harmless} == harmless


def test_P67_what_a_restored_warehouse_links_to_is_not_its_own(tmp_path: Path) -> None:
    """A directory of a stranger comes with symbolic links in place of tables and partitions."""
    for name in ("mine/a.db", "mine/b.db", "theirs/c.db/t/p=1/delta_0000001_0000001_0000"):
        (tmp_path / name).mkdir(parents=True)
    there = tmp_path / "theirs/c.db"
    (tmp_path / "mine/a.db/linked").symlink_to(there / "t")
    (tmp_path / "mine/b.db/own/p=2").mkdir(parents=True)
    (tmp_path / "mine/b.db/part").mkdir()
    (tmp_path / "mine/b.db/part/p=1").symlink_to(there / "t/p=1")
    (tmp_path / "mine/c.db").symlink_to(there)
    world, file = World(), tmp_path / "backup.duckdb"
    for name in ("a.db/linked", "b.db/part", "b.db/own", "c.db/t"):
        world.create(name.replace(".db/", "_"), True, location=name)
    write_state(file, world.state, Origin(7, 1, 1, "h"), None)
    place = Location.of(f"{tmp_path}/mine", None)
    restored = restore_warehouse(place, str(file))
    assert restored.foreign == ("default.a_linked", "default.b_part", "default.c_t")


@pytest.mark.slow
def test_an_interrupted_restore_is_not_served(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "copy.duckdb"
    with Metastore.connect(home.path) as metastore:
        declare(metastore, "t", "default.db/t", [("id", "int")])
        write_copy(log_of(home), file)
        end(metastore)
    monkeypatch.setattr(module, "put_aside", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        restore(home, file, lambda record, known: found(0), replace_it=True)
    monkeypatch.undo()
    with pytest.raises(MetastoreIncompatible, match="was interrupted"):
        Metastore.connect(home.path)
    restore(home, file, lambda record, known: found(0), replace_it=True)
    with Metastore.connect(home.path) as metastore:
        assert [table.name for table in metastore.tables()] == ["default.t"]
        end(metastore)


def test_P24_highest_of_come_from_the_names_of_directories(tmp_path: Path) -> None:
    for name in (
        "p=1/delta_0000003_0000003_0000",
        "p=1/base_0000005_v0000021",
        "p=2/delete_delta_0000004_0000008_v0000019",
        "p=2/delta_nonsense",
        "p=2/_tmp_0000030_abc",
        "other/delta_0000099_0000099",
    ):
        (tmp_path / name).mkdir(parents=True)
    record = TableRecord(1, "db.t", str(tmp_path), (("id", "int"),), (("p", "int"),))
    found = highest_of(record)
    assert (found.write_id, found.txn_id) == (8, 30)
    assert [(present.partition, present.names) for present in found.present] == [
        ("p=1", ("base_0000005_v0000021", "delta_0000003_0000003_0000")),
        ("p=2", ("delete_delta_0000004_0000008_v0000019",)),
    ]


@pytest.mark.more
def test_the_commands(small: Small, tmp_path: Path) -> None:
    file = str(tmp_path / "copy.duckdb")
    before = small.metastore.status()["position"]
    said = json.loads(small.acid("metastore", "backup", file, "--json").stdout)
    assert said["path"] == file and said["bytes"] == Path(file).stat().st_size
    assert before <= said["position"] <= small.metastore.status()["position"]
    small.insert((3, "C"))
    refused = small.acid("metastore", "restore", file)
    assert refused.exit_code == 1 and "is served by process" in refused.stderr
    assert small.acid("metastore", "stop").exit_code == 0
    assert "holds a metastore already" in small.acid("metastore", "restore", file).stderr
    said = small.acid("metastore", "restore", file, "--replace").stdout
    assert "db.t: write ids 2 are in doubt: hidden, and their files kept" in said
    [line] = json.loads(small.acid("metastore", "resolve", "--json").stdout)
    assert line == {"table": "db.t", "in doubt": "2"}
    assert small.acid("metastore", "resolve", "db.t", "--committed", "x").exit_code == 2
    assert small.acid("metastore", "resolve", "db.t", "--committed", "2").stdout == (
        "no write id is in doubt\n"
    )
