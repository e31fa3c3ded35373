"""Adoption refuses what no reader could read correctly (P24, P26).

Readers of an adopted table use the records and do not list directories. The kinds of damage are
those of the JVM-free reader (tests/scan/test_bad_files.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import AcidError, CorruptFile, MalformedName, UnsupportedLayout, Warehouse
from acid_platform.transactions import NONE_OPEN
from tests.acid_files import AcidTable, P
from tests.conftest import a_warehouse
from tests.scan.test_bad_files import GOOD, IN_ROWS, KINDS, NEXT_STEP, good

EVERYTHING = f"db.t:99:{NONE_OPEN}::"

shared = a_warehouse()


@pytest.fixture
def warehouse(shared: Warehouse) -> Iterator[Warehouse]:
    yield shared
    for table in shared.tables():
        shared.drop_table(table)


def picture(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.more
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in IN_ROWS])
def test_P26_damage_is_refused_before_anything_is_registered(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    damage, error, named = KINDS[kind]
    table = good(tmp_path / "t")
    kept = shutil.copytree(table.root, tmp_path / "kept")
    damage(table)
    before = picture(table.root)
    with pytest.raises(AcidError) as raised:
        warehouse.adopt_table("db.t", table.root, "v string", snapshot=EVERYTHING)
    assert type(raised.value) is error, raised.value
    assert named in str(raised.value) and str(table.root) in str(raised.value)
    assert NEXT_STEP.search(str(raised.value)), raised.value
    assert picture(table.root) == before
    assert warehouse.tables() == []
    shutil.rmtree(table.root)
    shutil.copytree(kept, table.root)
    adopted = warehouse.adopt_table("db.t", table.root, "v string", snapshot=EVERYTHING)
    assert sorted(adopted.to_arrow()["v"].to_pylist()) == GOOD


@pytest.mark.parametrize("kind", IN_ROWS)
def test_P26_damage_that_only_rows_show_is_refused_by_the_read(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    damage, error, named = KINDS[kind]
    table = good(tmp_path / "t")
    damage(table)
    adopted = warehouse.adopt_table("db.t", table.root, "v string", snapshot=EVERYTHING)
    with pytest.raises(AcidError) as raised:
        adopted.to_arrow()
    assert type(raised.value) is error, raised.value
    assert named in str(raised.value)


def test_P26_damage_in_a_partition_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    table = AcidTable(tmp_path / "t", partitioned_by="p int")
    table.inserts("p=1/d1", [(1, P, 0, "a")]).inserts("p=2/d1", [(1, P, 0, "b")])
    copy = table.file("p=2/d1").with_name("bucket_00000_1")
    shutil.copy(table.file("p=2/d1"), copy)
    with pytest.raises(CorruptFile, match=r"p=2.*two attempts of one bucket"):
        warehouse.adopt_table("db.p", table.root, partitioned_by=["p int"], snapshot=EVERYTHING)
    assert warehouse.tables() == []
    copy.unlink()
    adopted = warehouse.adopt_table(
        "db.p", table.root, partitioned_by=["p int"], snapshot=EVERYTHING
    )
    assert sorted(adopted.to_arrow()["v"].to_pylist()) == ["a", "b"]


def test_P26_what_the_snapshot_does_not_see_is_not_looked_at(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """An aborted writer left two attempts of one bucket, which do not affect readers."""
    table = good(tmp_path / "t").inserts("d3/bucket_00000", [(3, P, 0, "a")])
    table.inserts("d3/bucket_00000_1", [(3, P, 0, "a")])
    with pytest.raises(CorruptFile, match="two attempts of one bucket"):
        warehouse.adopt_table("db.t", table.root, snapshot=EVERYTHING)
    adopted = warehouse.adopt_table("db.t", table.root, snapshot=f"db.t:2:{NONE_OPEN}::")
    assert sorted(adopted.to_arrow()["v"].to_pylist()) == GOOD


@pytest.mark.parametrize(
    ("path", "error", "named"),
    [
        ("D3/bucket_00000", UnsupportedLayout, "is a delete_delta, but the table is insert-only"),
        ("delta_y/000000_0", MalformedName, "delta_y"),
    ],
)
def test_P26_insert_only_tables_with_what_they_cannot_have_are_refused(
    warehouse: Warehouse, tmp_path: Path, path: str, error: type[AcidError], named: str
) -> None:
    table = AcidTable(tmp_path / "t", insert_only=True).raw("d1/000000_0", ["A"])
    table.raw(path, ["B"])
    with pytest.raises(error, match=named):
        warehouse.adopt_table(
            "db.t",
            table.root,
            snapshot=EVERYTHING,
            properties={"transactional_properties": "insert_only"},
        )
    assert warehouse.tables() == []
