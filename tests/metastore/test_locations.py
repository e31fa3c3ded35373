"""Locations and owners of tables when warehouses are moved, copied, restored or lost (P31)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from acid_platform import (
    ForeignLocation,
    InvalidDefinition,
    LockNotAcquired,
    MetastoreMissing,
    RebuildRefused,
    Warehouse,
    WarehouseMismatch,
    WarehouseMoved,
)
from acid_platform.base.location import Location, holds_log
from acid_platform.cli.rebuild import rebuild
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.log.contract import segment_name
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.operations.compaction import EntityCleaning, GetCleanings
from acid_platform.metastore.operations.tables import GetIdentity, TakeOver
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import Identity, LockRequest, TableRecord, WriteReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.server.store import Store, write_copy
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from acid_platform.tables import locations
from acid_platform.tables.adoption import restore
from acid_platform.tables.joining import IDENTITY
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import contents_of
from tests.cli.small import write_delta
from tests.metastore.processes import end, gone, until
from tests.metastore.world import World

COLUMNS = [("id", "int"), ("v", "string")]
WRITE = LockRequest("db.t", LockType.SHARED_WRITE, RowOperation.INSERT)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The root of a warehouse that the test creates and moves; its metastores are stopped."""
    for name in ("ACID_WAREHOUSE", "ACID_METASTORE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / "wh"
    for endpoint in tmp_path.rglob("endpoint.json"):
        pid = json.loads(endpoint.read_text())["pid"]
        if not gone(pid):
            os.kill(pid, signal.SIGTERM)
            until(lambda pid=pid: gone(pid), 20)


def filled(root: Path, outside: Path | None = None) -> Warehouse:
    """`db.t` inside the warehouse, and with `outside` `db.far` there, with two rows each."""
    warehouse = Warehouse.open(root)
    for name, place in (("db.t", None), ("db.far", outside)):
        if name == "db.t" or place:
            warehouse.create_table(name, "id int, v string", location=place and str(place))
            insert(warehouse, name, (1, "A"), (2, "B"))
    return warehouse


def insert(warehouse: Warehouse, name: str, *rows: tuple[int, str]) -> None:
    """Commits a delta without Spark."""
    with warehouse.metastore.begin() as txn:
        txn.lock(name, "SHARED_WRITE", operation=RowOperation.INSERT)
        write_id = txn.write_ids[name]
        delta = f"delta_{write_id:07d}_{write_id:07d}_0000"
        path = Path(warehouse.table(name).location, delta)
        write_delta(path, write_id, rows)
        txn.commit(
            CommitContents(
                (WriteReport(name, None, RowOperation.INSERT, delta, contents_of(path)),)
            )
        )


def ids(warehouse: Warehouse, name: str = "db.t") -> list[int]:
    return sorted(warehouse.table(name).to_arrow().column("id").to_pylist())


def stop(warehouse: Warehouse) -> None:
    warehouse.release()
    end(warehouse.metastore)
    warehouse.close()


def hashes(*roots: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in ("server.log",)
    }


# --- relative locations -----------------------------------------------------------------------


@pytest.mark.more
def test_P31_tables_inside_are_recorded_relative_to_the_warehouse(root: Path) -> None:
    outside = root.parent / "far"
    with filled(root, outside) as warehouse:
        assert warehouse.table("db.t").location == f"{root}/db.db/t"
        named = dict(warehouse.metastore.query("SELECT name, location FROM tables")[1])
        assert named == {"db.t": "db.db/t", "db.far": str(outside)}
        warehouse.drop_table("db.t")
        [task] = warehouse.metastore.call(GetCleanings()).ready
        assert task.location == f"{root}/db.db/t"
        warehouse.create_table("db.t", "id int")
        warehouse.metastore.query("SELECT 1")
        kept = (root / "_metastore" / segment_name(1)).read_bytes()
        assert b"db.db/t" in kept and f"{root}/db.db".encode() not in kept
        stop(warehouse)


@pytest.mark.more
@pytest.mark.parametrize("spelt", ["path", "link", "relative", "dots", "uri"])
def test_P31_a_location_inside_is_relative_however_it_is_spelt(
    root: Path, spelt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    root.mkdir()
    monkeypatch.chdir(root)
    location = {
        "path": f"{root}/place",
        "link": f"{link}/place",
        "relative": "place",
        "dots": f"{root}/other/../place",
        "uri": f"file://{root}/place",
    }[spelt]
    write_delta(root / "place" / "delta_0000001_0000001_0000", 1, ((7, "G"),))
    with Warehouse.open(root) as warehouse:
        with pytest.warns(UserWarning, match="count as committed"):
            table = warehouse.adopt_table("db.t", location)
        monkeypatch.chdir(root.parent)
        assert table.location == f"{root}/place" and ids(warehouse) == [7]
        assert warehouse.metastore.query("SELECT location FROM tables")[1] == [["place"]]
        stop(warehouse)


def test_P31_a_stopped_warehouse_is_moved_by_mv(root: Path) -> None:
    moved = root.parent / "elsewhere" / "new"
    outside = root.parent / "far"
    stop(filled(root, outside))
    moved.parent.mkdir()
    root.rename(moved)
    with Warehouse.open(moved) as warehouse:
        assert ids(warehouse) == [1, 2]
        insert(warehouse, "db.t", (3, "C"))
        insert(warehouse, "db.far", (3, "C"))  # a move is not a copy: nothing to take over
        assert ids(warehouse) == ids(warehouse, "db.far") == [1, 2, 3]
        assert not root.exists()
        stop(warehouse)


@pytest.mark.more
def test_P31_a_warehouse_is_moved_while_its_metastore_runs(root: Path) -> None:
    moved = root.parent / "moved"
    with filled(root) as first:
        pid = first.metastore.status()["pid"]
        insert(first, "db.t", (3, "C"))
        root.rename(moved)
        until(lambda: gone(pid))
        with pytest.raises(WarehouseMoved, match="open it where it is now"):
            first.metastore.tables()
        with pytest.raises(WarehouseMoved):
            first.metastore.begin()
        assert not root.exists()
    with Warehouse.open(moved) as second:
        assert ids(second) == [1, 2, 3]
        insert(second, "db.t", (4, "D"))
        assert ids(second) == [1, 2, 3, 4]
        stop(second)


@pytest.mark.slow
def test_P31_a_new_warehouse_at_the_old_path_is_not_mistaken_for_the_moved_one(root: Path) -> None:
    moved = root.parent / "moved"
    with filled(root) as first:
        root.rename(moved)
        with Warehouse.open(root) as stranger:
            assert stranger.tables() == []
            stranger.create_table("db.own", "id int")
            with pytest.raises(WarehouseMoved):
                first.metastore.tables()
            with Warehouse.open(moved) as second:
                assert (second.tables(), stranger.tables()) == (["db.t"], ["db.own"])
                assert ids(second) == [1, 2]
                stop(second)
            stop(stranger)
        with Warehouse.open(root) as stranger:
            assert stranger.tables() == ["db.own"]
            stop(stranger)


@pytest.mark.slow
def test_P31_every_acknowledged_commit_is_there_after_a_move(root: Path) -> None:
    """A writer keeps committing while the directory is moved."""
    moved, acknowledged = root.parent / "moved", root.parent / "acknowledged"
    stop(filled(root))
    script = (
        "import sys\n"
        "from tests.metastore.test_locations import insert\n"
        "from acid_platform import Warehouse\n"
        "with Warehouse.open(sys.argv[1]) as warehouse, open(sys.argv[2], 'w') as told:\n"
        "    for number in range(10, 100_000):\n"
        "        with warehouse.metastore.begin() as txn:\n"
        "            txn.commit()\n"
        "        print(txn.id, file=told, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(root), str(acknowledged)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    until(lambda: acknowledged.exists() and acknowledged.read_text().count("\n") > 50, 60)
    root.rename(moved)
    _, complaint = writer.communicate(timeout=60)
    assert "WarehouseMoved" in complaint or "no longer" in complaint or "any more" in complaint
    told = [int(txn_id) for txn_id in acknowledged.read_text().split()]
    with Warehouse.open(moved) as warehouse:
        assert {warehouse.metastore.outcome(txn_id)["state"] for txn_id in told} == {"c"}
        stop(warehouse)
    assert not root.exists()


# --- identity ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_P31_a_metastore_refuses_the_root_of_another_warehouse(root: Path) -> None:
    other = root.parent / "other"
    stop(filled(root))
    stop(Warehouse.open(other))
    shutil.rmtree(other / "_metastore")
    with pytest.raises(WarehouseMismatch, match="has its metastore in"):
        Warehouse.open(root, metastore=str(other / "own"))
    (root / "_metastore").rename(other / "_metastore")
    with pytest.raises(WarehouseMismatch, match="ACID_WAREHOUSE and ACID_METASTORE"):
        Warehouse.open(other)
    with Metastore.connect(other / "_metastore") as metastore:
        end(metastore)


@pytest.mark.more
def test_P31_a_root_without_its_identity_is_refused(root: Path) -> None:
    """For example because a disk is not mounted."""
    home = root.parent / "home"
    with Warehouse.open(root, metastore=str(home)) as warehouse:
        warehouse.create_table("db.t", "id int")
        stop(warehouse)
    said = (root / IDENTITY).read_text()
    shutil.rmtree(root)
    with pytest.raises(WarehouseMismatch, match="not mounted"):
        Warehouse.open(root, metastore=str(home))
    (root / IDENTITY).write_text(said)
    with Warehouse.open(root, metastore=str(home)) as warehouse:
        assert warehouse.tables() == ["db.t"]
        stop(warehouse)


@pytest.mark.slow
def test_P31_processes_that_make_one_warehouse_agree_on_its_identity(root: Path) -> None:
    script = (
        "import sys\nfrom acid_platform import Warehouse\n"
        "sys.stdin.read()\nwith Warehouse.open(sys.argv[1]) as w: print(w.tables())\n"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in makers:
        assert process.stdin is not None
        process.stdin.close()
    for process in makers:
        assert process.wait(120) == 0, process.stderr and process.stderr.read()
    with Warehouse.open(root) as warehouse:
        identity = json.loads((root / IDENTITY).read_text())["warehouse"]
        assert warehouse.metastore.call(GetIdentity()) == Identity(identity, True)
        stop(warehouse)
    assert [path.name for path in root.iterdir() if path.name.startswith(IDENTITY)] == [IDENTITY]


@pytest.mark.more
def test_P31_a_second_metastore_for_one_root_is_refused(root: Path) -> None:
    stop(filled(root))
    shutil.copytree(root / "_metastore", root.parent / "second")
    with pytest.raises(WarehouseMismatch, match="has its metastore in"):
        Warehouse.open(root, metastore=str(root.parent / "second"))


# --- copies and backups ------------------------------------------------------------------------


@pytest.mark.slow
def test_P31_a_restored_copy_leaves_the_original_byte_for_byte_as_it_was(root: Path) -> None:
    copy, outside, file = root.parent / "copy", root.parent / "far", root.parent / "backup"
    warehouse = filled(root, outside)
    warehouse.create_table("db.gone", "id int, v string", location=str(root.parent / "gone"))
    insert(warehouse, "db.gone", (1, "A"))
    with warehouse.metastore.begin() as lost:
        lost.abort()
    left = outside / f"_tmp_{lost.id:07d}_left" / "part-0"  # the Cleaner's, or fsck's
    left.parent.mkdir()
    left.write_bytes(b"half")
    reader = warehouse.metastore.open_snapshot()  # the Cleaner has to leave db.gone
    warehouse.drop_table("db.gone")
    write_copy(LocalLog(root / "_metastore"), file)
    reader.commit()
    stop(warehouse)
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("_metastore"))
    before = hashes(root, outside, root.parent / "gone")
    done = restore(Location.of(copy), str(file))
    assert done.foreign == ("db.far",)
    with Warehouse.open(copy) as restored:
        assert ids(restored) == ids(restored, "db.far") == [1, 2]
        for operation in (RowOperation.INSERT, RowOperation.DELETE):
            with pytest.raises(ForeignLocation, match=r"take-over db\.far"):
                restored.metastore.begin(
                    locks=[LockRequest("db.far", LockType.SHARED_WRITE, operation)]
                )
        with pytest.raises(ForeignLocation, match="compaction is refused"):
            restored.metastore.request_compaction("db.far", None, "major")
        examine(restored.metastore, repair=True)
        insert(restored, "db.t", (3, "C"))
        assert ids(restored) == [1, 2, 3]
        for name in ("db.t", "db.far"):
            restored.drop_table(name)
        cleaned = cleaner.run(restored.metastore)
        assert [cleaning.table for cleaning in cleaned if not cleaning.error] == ["db.t"]
        assert not (copy / "db.db" / "t").exists()
        stop(restored)
    assert hashes(root, outside, root.parent / "gone") == before
    with Warehouse.open(root) as original:
        assert ids(original) == ids(original, "db.far") == [1, 2]
        stop(original)


@pytest.mark.slow
def test_P31_take_over_makes_the_tables_of_a_restored_copy_its_own(root: Path) -> None:
    outside, file = root.parent / "far", root.parent / "backup"
    warehouse = filled(root, outside)
    write_copy(LocalLog(root / "_metastore"), file)
    stop(warehouse)
    first = json.loads((root / IDENTITY).read_text())["warehouse"]
    done = restore(Location.of(root), str(file), replace=True)
    assert json.loads((root / IDENTITY).read_text())["warehouse"] == done.identity != first
    with Warehouse.open(root) as warehouse:
        assert warehouse.metastore.call(TakeOver("db.far")) == ["db.far"]
        assert warehouse.metastore.call(TakeOver(None)) == []
        insert(warehouse, "db.far", (3, "C"))
        assert ids(warehouse, "db.far") == [1, 2, 3]
        stop(warehouse)
    with Warehouse.open(root) as warehouse:
        assert not warehouse.table("db.far").record.foreign
        stop(warehouse)


@pytest.mark.more
def test_P31_a_restore_refuses_the_root_of_another_warehouse(root: Path) -> None:
    file, other = root.parent / "backup", root.parent / "other"
    warehouse = filled(root)
    write_copy(LocalLog(root / "_metastore"), file)
    stop(warehouse)
    stop(filled(other))
    with pytest.raises(WarehouseMismatch, match="restore into a copy"):
        restore(Location.of(other), str(file), replace=True)
    with pytest.raises(WarehouseMismatch, match="has its metastore in"):
        restore(Location.of(root, str(root.parent / "side")), str(file))
    for warehouse_root in (root, other):
        with Warehouse.open(warehouse_root) as warehouse:
            assert ids(warehouse) == [1, 2]
            stop(warehouse)


@pytest.mark.slow
@pytest.mark.parametrize("crashed", [False, True])
def test_P31_a_copied_directory_touches_only_itself(root: Path, crashed: bool) -> None:
    """With `cp -a`; after a crash the copy has the endpoint of the original's next process."""
    copy, outside = root.parent / "copy", root.parent / "far"
    warehouse = filled(root, outside)
    if crashed:
        pid = warehouse.metastore.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone(pid))
        warehouse.close()
    else:
        stop(warehouse)
    shutil.copytree(root, copy)
    with Warehouse.open(root) as original, Warehouse.open(copy) as second:
        assert original.metastore.status()["pid"] != second.metastore.status()["pid"]
        assert ids(second) == ids(second, "db.far") == [1, 2]
        with pytest.raises(ForeignLocation, match=r"take-over db\.far"):
            second.metastore.begin(
                locks=[LockRequest("db.far", LockType.SHARED_WRITE, RowOperation.INSERT)]
            )
        second.drop_table("db.far")
        second.drop_table("db.t")
        cleaner.run(second.metastore)
        assert second.tables() == [] and not (copy / "db.db" / "t").exists()
        assert ids(original) == ids(original, "db.far") == [1, 2]
        insert(original, "db.far", (3, "C"))
        stop(original)
        stop(second)


# --- a metastore that was lost -------------------------------------------------------------------


@pytest.mark.more
def test_P31_tables_without_a_metastore_are_refused(root: Path) -> None:
    stop(filled(root))
    for path in [*(root / "_metastore").iterdir()]:
        path.unlink()
    with pytest.raises(MetastoreMissing, match="acid metastore rebuild"):
        Warehouse.open(root)
    (root / IDENTITY).unlink()
    with pytest.raises(MetastoreMissing, match=r"has tables, such as .*/db\.db/t"):
        Warehouse.open(root)
    assert not holds_log(root / "_metastore")


@pytest.mark.more
def test_P31_rebuild_makes_a_metastore_out_of_the_directories(root: Path) -> None:
    with filled(root) as warehouse:
        months = warehouse.create_table("db.months", "id int, v string", ["month int", "day date"])
        for number, part in enumerate(("month=1/day=2026-01-02", "month=2/day=2026-02-03"), 1):
            write_delta(
                Path(months.location, part, f"delta_000000{number}_000000{number}_0000"),
                number,
                ((number, "M"),),
            )
        stop(warehouse)
    (root / "db.db" / "empty" / "nothing").mkdir(parents=True)
    with pytest.raises(RebuildRefused, match="holds a metastore"):
        rebuild(Location.of(root))
    shutil.rmtree(root / "_metastore")
    found = {rebuilt.table: rebuilt for rebuilt in rebuild(Location.of(root))}
    assert set(found) == {"db.t", "db.months", "db.empty"}
    assert "no data file" in found["db.empty"].note and not found["db.t"].note
    assert (found["db.months"].partitioned_by, found["db.months"].partitions) == (
        "month int, day date",
        2,
    )
    with Warehouse.open(root) as warehouse:
        assert ids(warehouse) == [1, 2] and ids(warehouse, "db.months") == [1, 2]
        insert(warehouse, "db.t", (3, "C"))
        assert ids(warehouse) == [1, 2, 3]
        stop(warehouse)


@pytest.mark.more
def test_P31_an_interrupted_rebuild_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(root) as warehouse:
        stop(warehouse)
    shutil.copytree(root / "db.db" / "t", root / "db.db" / "u")
    shutil.rmtree(root / "_metastore")
    adopt = Warehouse.adopt_table

    def interrupted(self: Warehouse, name: str, *rest: object, **more: object) -> object:
        if name == "db.u":
            raise KeyboardInterrupt
        return adopt(self, name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Warehouse, "adopt_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rebuild(Location.of(root))
    monkeypatch.undo()
    with pytest.raises(MetastoreMissing, match="interrupted"):
        Warehouse.open(root)
    assert [rebuilt.table for rebuilt in rebuild(Location.of(root))] == ["db.u"]
    with Warehouse.open(root) as warehouse:
        assert warehouse.tables() == ["db.t", "db.u"] and ids(warehouse, "db.u") == [1, 2]
        stop(warehouse)


# --- new tables and names -------------------------------------------------------------------------


@pytest.mark.more
def test_P31_rename_frees_the_old_name(root: Path) -> None:
    with filled(root) as warehouse:
        warehouse.table("db.t").rename("db.first")
        again = warehouse.create_table("db.t", "id int, v string")
        assert again.location == f"{root}/db.db/t_2"
        insert(warehouse, "db.t", (9, "Z"))
        assert (ids(warehouse, "db.first"), ids(warehouse)) == ([1, 2], [9])
        again.rename("db.second")
        assert warehouse.create_table("db.t", "id int").location == f"{root}/db.db/t_3"
        warehouse.drop_table("db.first")
        cleaner.run(warehouse.metastore)
        assert ids(warehouse, "db.second") == [9]
        stop(warehouse)


@pytest.mark.more
def test_P31_a_new_table_takes_the_directory_of_a_dropped_one_but_no_data(root: Path) -> None:
    with filled(root) as warehouse:
        reader = warehouse.metastore.open_snapshot()
        warehouse.drop_table("db.t")
        with pytest.raises(LockNotAcquired, match="move them elsewhere"):
            warehouse.adopt_table("db.t", root / "db.db" / "t", "id int, v string")
        warehouse.create_table("db.t", "id int, v string")  # its files wait for the Cleaner
        assert ids(warehouse) == []
        warehouse.drop_table("db.t")
        write_delta(root / "db.db" / "t" / "delta_0000009_0000009_0000", 9, ((9, "Z"),))
        with pytest.raises(InvalidDefinition, match=r"holds data.*delta_0000009.*adopt_table"):
            warehouse.create_table("db.t", "id int, v string")
        reader.commit()
        stop(warehouse)


@pytest.mark.more
@pytest.mark.parametrize("name", ["plain.orc", "base_0000003/bucket_00000", "p=1/000000_0"])
def test_P31_a_new_table_over_data_is_refused(root: Path, name: str) -> None:
    file = root / "place" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"ORC")
    with Warehouse.open(root) as warehouse:
        for location in (None, f"{root}/place"):
            (root / "db.db").mkdir(exist_ok=True)
            if location is None:
                shutil.copytree(root / "place", root / "db.db" / "t", dirs_exist_ok=True)
            with pytest.raises(InvalidDefinition, match=r"holds data.*adopt_table\('db.t'"):
                warehouse.create_table("db.t", "id int", location=location)
        assert warehouse.tables() == []
        stop(warehouse)


@pytest.mark.more
def test_P31_directories_that_enclose_each_other_are_refused(root: Path) -> None:
    with filled(root) as warehouse:
        for place in (root.parent, root, root / "db.db", root / "db.db" / "t" / "inside"):
            with pytest.raises(InvalidDefinition, match=r"enclose|is the place of database"):
                warehouse.create_table("db.u", "id int", location=str(place))
        stop(warehouse)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a\nb", "a\\b", " a", "x" * 241, "a\x7f"])
def test_P31_names_that_cannot_be_part_of_a_path_are_refused(world: World, name: str) -> None:
    table = {"location": "place", "columns": [["id", "int"]]}
    with pytest.raises(InvalidDefinition):
        world.call("create_database", name=name, if_not_exists=False)
    with pytest.raises(InvalidDefinition):
        world.call("create_table", table={"name": f"default.{name}", **table}, if_not_exists=False)
    with pytest.raises(InvalidDefinition):
        world.call("alter_table", name="t", rename=f"default.{name}", columns=None, properties=None)
    with pytest.raises(InvalidDefinition):
        world.call("alter_table", name="t", rename=None, columns=[[name, "int"]], properties=None)
    with pytest.raises(InvalidDefinition):
        world.create("u", partition_columns=[[name, "int"]])
    assert [table["name"] for table in world.call("tables")["tables"]] == ["default.t"]


# --- the rules, without files ------------------------------------------------------------------


def foreign_world() -> World:
    """A copy of a metastore: `default.t` is outside the warehouse and has a base and a delta."""
    world = World()
    world.create()
    world.insert()
    world.compact()
    world.insert()
    world.take(world.machine.copied(world.clock.moment()))
    return world


def test_P31_nothing_of_a_foreign_table_is_written_compacted_or_cleaned() -> None:
    world = foreign_world()
    assert world.state.table("t").record.foreign
    for call in (
        lambda: world.write(),
        lambda: world.write(lock=LockType.EXCL_WRITE),
        lambda: world.request("major"),
    ):
        with pytest.raises(ForeignLocation, match=r"acid metastore take-over default\.t"):
            call()
    assert world.ready() == [] and "read only" in world.blocked()[0]["reason"]
    assert world.call("candidates", since=0, after=None)["candidates"] == []
    assert world.call("take_over", name="t") == {"tables": ["default.t"]}
    world.insert()
    [task] = world.ready()
    assert isinstance(task, EntityCleaning)
    assert world.call("take_over", name=None) == {"tables": []}


def test_P31_a_compaction_that_was_queued_before_the_copy_waits() -> None:
    world = World()
    world.create()
    world.insert()
    world.request()
    world.take(world.machine.copied(world.clock.moment()))
    assert world.take_task() is None
    world.call("take_over", name=None)
    assert world.take_task() is not None


def test_P31_the_identity_is_in_journal_and_snapshot(tmp_path: Path) -> None:
    world = World()
    world.create("u", location="default.db/u")
    world.create("v", location="/far")
    assert world.call("identify", id="a") == {"id": "a", "placed": False}
    assert world.call("identify", id="b")["id"] == "a"
    world.call("placed", id="a")
    world.take(world.machine.copied(world.clock.moment()))
    log = LocalLog(tmp_path)
    log.create()
    log.open_to_append()
    store = Store(log, tmp_path)
    store.append(world.events)
    state, events = store.load()
    assert [event.kind for event in events] == [event.kind for event in world.events]
    Machine(state).replay(events)
    store.save(state, 0)
    again, events = store.load()
    assert events == []
    store.close()
    assert again.identity == world.state.identity and again.identity.placed
    assert [table.record.foreign for table in again.tables.values()] == [False, True]


def test_P8_what_a_journal_lacks_has_its_default() -> None:
    """So that a later version can add a field."""
    old = {
        "table_id": 1,
        "name": "default.t",
        "location": "/w/t",
        "columns": [["id", "int"]],
        "partition_columns": [],
        "properties": {},
        "bucket_columns": [],
        "bucket_count": 0,
        "created": 0,
        "floor": 0,
    }
    world = World()
    world.machine.replay([Recorded.parse("table", 1, {"table": old})])
    assert world.state.table("t").record == TableRecord(
        1, "default.t", "/w/t", (("id", "int"),), version=1, foreign=False
    )


@pytest.mark.more
def test_P49_a_location_that_is_not_free_is_refused(root: Path, tmp_path: Path) -> None:
    """Nothing is made there, and what is there stays."""
    outside = tmp_path / "outside"
    for name in ("hidden/.ssh/id", "file", "sub/a/b", "staged/_tmp_1/x", "acid/.x/base_1/bucket_0"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(name)
    (outside / "empty").mkdir()
    (outside / "full").mkdir()
    (outside / "full" / "d").mkdir()
    (outside / "nowhere").symlink_to(tmp_path / "nothing" / "there")
    (outside / "up").symlink_to(root)
    with filled(root) as warehouse:
        warehouse.metastore.create_database("other")
        warehouse.create_table("db.far", "id int", location=str(outside / "far"))
        refused = [
            *(str(outside / name) for name in ("hidden", "file", "sub", "staged", "acid", "full")),
            *(str(outside / name) for name in ("nowhere", "far/x", "up", "up/_metastore/x")),
            *(f"{root}/{name}" for name in ("_metastore", "_metastore/x", ".x", "x/_tmp_1_a/y")),
            *(f"{root}/{name}" for name in ("other.db", "other.db/x", "OTHER.db/x", "new.db/x")),
            *(f"{root}/{name}" for name in ("db.db", "db.db/t", "db.db/t/x", "x/../_metastore")),
            *("/", str(outside), str(tmp_path), f"file://{root}/other.db/x", f"FILE:{outside}/sub"),
            *(f"file://elsewhere{outside}/x", f"{outside}/a\nb", "ftp://host/x", "s3:///x"),
            *(
                "s3://bucket/../x",
                "s3://bucket/x?endpoint_override=evil",
                "s3://bucket",
                "s3://b//x",
            ),
        ]
        before = sorted(str(path) for path in tmp_path.rglob("*") if "_metastore" not in str(path))
        for location in refused:
            with pytest.raises(InvalidDefinition):
                warehouse.create_table("db.u", "id int", location=location)
        after = sorted(str(path) for path in tmp_path.rglob("*") if "_metastore" not in str(path))
        assert after == before
        for number, location in enumerate(
            (f"{outside}/empty/", f"file://{outside}/new%20one", f"file://localhost{outside}/a b")
        ):
            warehouse.create_table(f"db.ok{number}", "id int", location=location)
        places = {record.location for record in warehouse.metastore.tables()}
        assert {f"{outside}/{name}" for name in ("empty", "new%20one", "a b")} < places
        stop(warehouse)


@pytest.mark.more
def test_P49_a_location_is_compared_by_directory_not_by_name(root: Path, tmp_path: Path) -> None:
    """As on a file system that ignores case, or where a directory is mounted twice."""
    with filled(root) as warehouse:
        (tmp_path / "alias").symlink_to(root / "db.db" / "t")
        (tmp_path / "databases").symlink_to(root / "db.db")
        for location in (
            "alias",
            "alias/x",
            "databases/t",
            "databases/t/x",
            "databases",
        ):
            with pytest.raises(InvalidDefinition):
                warehouse.create_table("db.u", "id int", location=str(tmp_path / location))
        real = locations._identity
        table = real(str(root / "db.db" / "t"))

        def ignoring_case(path: str) -> tuple[int, int] | None:
            return table if path.lower().endswith("/db.db/t") else real(path)

        with (
            mock.patch.object(locations, "_identity", ignoring_case),
            pytest.raises(InvalidDefinition, match="enclose"),
        ):
            warehouse.create_table("db.u", "id int", location=f"{root}/db.db/T/inside")
        stop(warehouse)
