"""F17 and P33: small insert-only tables in ORC and Parquet are compacted without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from acid_platform import CompactionFailed, CompactionRefused, Table, Warehouse
from acid_platform.engine import choice
from acid_platform.engine.local import compact
from acid_platform.formats.orc import OrcWriter, orc_schema
from acid_platform.formats.parquet import ParquetWriter
from acid_platform.services.worker import work_once
from acid_platform.storage.files import Files
from tests.conftest import temporary_warehouse

FORMATS = pytest.mark.parametrize("stored", ["orc", "parquet"])
COLUMNS = "id int, v varchar(5), c char(3), l array<int>, d decimal(7,2)"


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh") as opened:
        monkeypatch.setattr(Warehouse, "spark", property(lambda _: pytest.fail("needs Spark")))
        yield opened


def made(warehouse: Warehouse, stored: str, columns: str = COLUMNS) -> Table:
    """A table with three inserts of two rows each, and one that was aborted in between."""
    properties = {"transactional_properties": "insert_only", "acid.format": stored}
    table = warehouse.create_table("db.t", columns, properties=properties)
    for number in range(3):
        row = {"id": number}
        if columns == COLUMNS:
            row |= {"v": "é", "c": "a", "l": [1, None]}
        table.insert([row, {"id": None}])
        if number == 1:
            txn = warehouse.transaction()
            txn.table("db.t").insert([{"id": 99}])
            txn.abort("enough")
    return table


def rows(table: Table) -> list[str]:
    return sorted(map(str, table.to_arrow().to_pylist()))


def outcome(warehouse: Warehouse) -> Any:
    warehouse.metastore.request_compaction("db.t", None, "major")
    return work_once(warehouse)


def files(table: Table) -> list[str]:
    """The files that the present snapshot reads, below the table's directory."""
    seen = table.snapshot().directories[""]
    sources = [seen.base] if seen.base else []
    return [file.path for source in (*sources, *seen.deltas) for file in source.files]


@pytest.mark.more
@FORMATS
@pytest.mark.parametrize("kind", ["minor", "major"])
def test_F17_insert_only_tables_are_compacted_without_spark(
    warehouse: Warehouse, stored: str, kind: str
) -> None:
    table = made(warehouse, stored)
    before = rows(table)
    warehouse.metastore.request_compaction("db.t", None, kind)
    done = work_once(warehouse)
    assert done is not None, done
    assert (done.state, done.engine) == ("published", "local")
    [file] = files(table)
    assert file.startswith("base_0000004_v" if kind == "major" else "delta_0000001_0000004_v")
    assert file.endswith("/000000_0")
    assert rows(table) == before and len(before) == 6
    assert table.count() == 6
    table.insert([{"id": 7}])
    assert table.count() == 7
    path = Path(table.location, file)
    if stored == "orc":
        declared = orc_schema(*Files.of(str(path)))
        assert "v:varchar(5)" in declared and "c:char(3)" in declared
    else:
        assert parquet.ParquetFile(path).schema.column(4).physical_type == "INT32"


@pytest.mark.more
@FORMATS
def test_F17_large_inputs_make_several_files(
    warehouse: Warehouse, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(warehouse, stored)
    before = rows(table)
    monkeypatch.setattr(compact, "PLAIN_FILE_BYTES", 1)
    assert outcome(warehouse).state == "published"
    assert [Path(file).name for file in files(table)] == ["000000_0", "000001_0", "000002_0"]
    assert rows(table) == before


@FORMATS
def test_C32_a_row_that_the_copy_loses_is_found(
    warehouse: Warehouse, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(warehouse, stored)
    before, there = rows(table), files(table)
    writer: Any = OrcWriter if stored == "orc" else ParquetWriter
    write = writer.write
    monkeypatch.setattr(
        writer, "write", lambda self, batch, *rest: write(self, batch.slice(1), *rest)
    )
    done = outcome(warehouse)
    assert done.state == "failed" and "rows: expected 6, got 3" in done.reason
    assert (rows(table), files(table)) == (before, there)
    assert not list(Path(table.location).glob("_tmp*"))


@FORMATS
def test_P33_what_this_process_finds_that_it_cant_copy_goes_to_spark(
    warehouse: Warehouse, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `auto`; with engine='local' the compaction fails and leaves nothing."""
    table = made(warehouse, stored, "id int, e date")
    before, there = rows(table), files(table)
    monkeypatch.setattr(compact, "has_ancient", lambda _: True)
    asked = []

    def spark(*_: Any) -> Any:
        asked.append(_[-1])
        raise CompactionFailed("asked for Spark")

    monkeypatch.setattr(choice, "_spark", spark)
    done = outcome(warehouse)
    assert done.state == "failed" and "asked for Spark" in done.reason
    [reason] = asked
    assert "days before 15 October 1582" in reason
    with warehouse.using("local"):
        done = outcome(warehouse)
    assert done.state == "failed" and "days before 15 October 1582" in done.reason
    assert len(asked) == 1
    assert (rows(table), files(table)) == (before, there)
    assert not list(Path(table.location).glob("_tmp*"))


def test_C32_nanoseconds_of_insert_only_files_are_refused(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(warehouse, "orc", "id int, t timestamp")

    def refused(*_: Any) -> None:
        raise CompactionRefused("holds timestamps with nanoseconds")

    monkeypatch.setattr(compact, "refuse_finer", refused)
    assert outcome(warehouse).state == "refused"
