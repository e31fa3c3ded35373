"""`to_arrow` of tables, transactions and snapshots: no JVM is started, and no lease stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import NotEnoughHistory, SnapshotExpired, UnknownColumn, Warehouse
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.transactions import NONE_OPEN, RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import AcidTable, P, contents_of
from tests.conftest import temporary_warehouse
from tests.runs import without_java


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("arrow") / "wh") as opened:
        opened.create_table("db.t", "v string")
        yield opened


def add(warehouse: Warehouse, value: str, commit: bool = True) -> int:
    """A row of a transaction of its own; returns its write id."""
    table = AcidTable(Path(warehouse.table("db.t").location))
    txn = warehouse.metastore.begin()
    txn.lock([LockRequest("db.t", LockType.SHARED_READ, RowOperation.INSERT)])
    write_id = txn.write_ids["db.t"]
    table.inserts(f"d{write_id}", [(write_id, P, 0, value)])
    name = table.file(f"d{write_id}").parent.name
    if commit:
        txn.commit(
            CommitContents(
                (
                    WriteReport(
                        "db.t", None, RowOperation.INSERT, name, contents_of(table.root / name)
                    ),
                )
            )
        )
    else:
        txn.abort()
    return write_id


def test_P12_the_lease_of_to_arrow_ends_with_it(warehouse: Warehouse) -> None:
    table = warehouse.table("db.t")
    first = add(warehouse, "one")
    add(warehouse, "never", commit=False)
    assert table.to_arrow().to_pydict() == {"v": ["one"]}
    with warehouse.snapshot() as held:
        add(warehouse, "two")
        assert held.table("db.t").to_arrow().to_pydict() == {"v": ["one"]}
        with warehouse.transaction() as txn:
            assert sorted(txn.table("db.t").to_arrow()["v"].to_pylist()) == ["one", "two"]
    with pytest.raises(SnapshotExpired):
        held.table("db.t").to_arrow()
    assert table.to_arrow(where="v > 'p'").to_pydict() == {"v": ["two"]}
    assert table.to_arrow(snapshot=f"db.t:{first}:9223372036854775807::").num_rows == 1
    assert table.to_arrow(row_id=True).column("row__id").to_pylist()[0] == {
        "writeid": first,
        "bucketid": P,
        "rowid": 0,
    }
    with pytest.raises(UnknownColumn):
        table.to_arrow(columns=["colour"])
    assert [row for row in warehouse.metastore.transactions() if row["state"] == "OPEN"] == []


def test_P13_an_explicit_snapshot_whose_files_are_gone(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """A base that came with the table may have replaced them; one that somebody has put there since
    is not seen (P26)."""
    files = AcidTable(tmp_path).inserts("b3v1", [(3, P, 0, "three")])
    table = warehouse.adopt_table("db.h", tmp_path, snapshot=f"db.h:3:{NONE_OPEN}::")
    files.inserts("b4v1", [(4, P, 0, "four")])
    assert table.to_arrow().to_pydict() == {"v": ["three"]}
    with pytest.raises(NotEnoughHistory, match=r"base_0000003.*read a newer snapshot"):
        table.to_arrow(snapshot=f"db.h:1:{NONE_OPEN}::")
    assert [row for row in warehouse.metastore.transactions() if row["state"] == "OPEN"] == []


@pytest.mark.more
def test_to_arrow_needs_no_java(tmp_path: Path) -> None:
    code = f"""
from acid_platform import Warehouse
with Warehouse.open({str(tmp_path / "wh")!r}) as wh:
    print(wh.create_table("db.t", "id int", ["p date"]).to_arrow(where="p > '2013-01-01'").schema)
    wh.metastore.stop()
"""
    done = without_java(code, tmp_path)
    assert done.stdout.split() == ["id:", "int32", "p:", "date32[day]"], done.stderr
