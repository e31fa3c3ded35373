"""A new table never mixes its rows with existing files, and copies and moves lose nothing (P31).

Deleted directories, copies and moves once caused no error: `create_table` over a base that
somebody had put there hid the rows that were committed next, a metastore without its file became an
empty warehouse, a copy cleaned the original's directories, and a moved directory lost its tables.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import AcidError, InvalidDefinition, Warehouse
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.services import cleaner
from acid_platform.transactions import RowOperation
from tests.acid_files import contents_of
from tests.cli.small import write_delta
from tests.metastore.processes import gone, until

pytestmark = pytest.mark.more


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The root of a future warehouse; metastores that still run below `tmp_path` are stopped."""
    for name in ("ACID_WAREHOUSE", "ACID_METASTORE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / "wh"
    for endpoint in tmp_path.rglob("endpoint.json"):
        stop_process(json.loads(endpoint.read_text())["pid"])


def stop_process(pid: int) -> None:
    if not gone(pid):
        os.kill(pid, signal.SIGTERM)
        until(lambda: gone(pid), 20)


def insert(warehouse: Warehouse, name: str, *rows: tuple[int, str], base: bool = False) -> None:
    """Commits a delta, or an overwrite, without Spark."""
    operation = RowOperation.UPDATE if base else RowOperation.INSERT
    with warehouse.metastore.begin() as txn:
        txn.lock(name, "EXCL_WRITE" if base else "SHARED_WRITE", operation=operation)
        write_id = txn.write_ids[name]
        directory = f"base_{write_id:07d}" if base else f"delta_{write_id:07d}_{write_id:07d}_0000"
        path = Path(warehouse.table(name).location, directory)
        write_delta(path, write_id, rows)
        txn.commit(
            CommitContents(
                (WriteReport(name, None, operation, directory, contents_of(path), base),)
            )
        )


def ids(warehouse: Warehouse, name: str) -> list[int]:
    return sorted(warehouse.table(name).to_arrow().column("id").to_pylist())


def test_P31_a_new_table_over_a_base_is_refused(root: Path) -> None:
    with Warehouse.open(root) as warehouse:
        old = warehouse.create_table("db.old", "id int, v string")
        insert(warehouse, "db.old", (1, "a"))
        insert(warehouse, "db.old", (2, "b"))
        insert(warehouse, "db.old", (999, "z"), base=True)
        shutil.copytree(Path(old.location, "base_0000003"), root / "place" / "base_0000003")
        with pytest.raises(InvalidDefinition, match="adopt_table"):
            warehouse.create_table("db.new", "id int, v string", location=f"{root}/place")
        with pytest.warns(UserWarning, match="count as committed"):
            warehouse.adopt_table("db.new", root / "place", "id int, v string")
        for number in (11, 12, 13):
            insert(warehouse, "db.new", (number, "n"))
        assert ids(warehouse, "db.new") == [11, 12, 13, 999]


def test_P31_a_lost_metastore_is_refused(root: Path) -> None:
    with Warehouse.open(root) as warehouse:
        warehouse.create_table("db.t", "id int, v string")
        insert(warehouse, "db.t", (1, "a"))
        warehouse.metastore.stop()
    shutil.rmtree(root / "_metastore")
    with pytest.raises(AcidError, match="acid metastore rebuild"):
        Warehouse.open(root)


def test_P31_dropping_in_a_copy_leaves_the_original(root: Path) -> None:
    copy = root.parent / "copy"
    with Warehouse.open(root) as warehouse:
        warehouse.create_table("db.t", "id int, v string")
        insert(warehouse, "db.t", (1, "a"))
        warehouse.metastore.stop()
    shutil.copytree(root, copy)
    with Warehouse.open(copy) as second:
        second.drop_table("db.t")
        cleaner.run(second.metastore)
    with Warehouse.open(root) as warehouse:
        assert ids(warehouse, "db.t") == [1]


def test_P31_a_moved_warehouse_keeps_its_tables(root: Path) -> None:
    with Warehouse.open(root) as warehouse:
        warehouse.create_table("db.t", "id int, v string")
        insert(warehouse, "db.t", (1, "a"))
        warehouse.metastore.stop()
    root.rename(root.parent / "moved")
    with Warehouse.open(root.parent / "moved") as warehouse:
        assert ids(warehouse, "db.t") == [1]
