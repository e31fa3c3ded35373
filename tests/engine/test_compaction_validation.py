"""A compaction that would change anything is not published: each kind of change is planted once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from acid_platform import Table, Warehouse
from acid_platform.compaction.execution import Records
from acid_platform.engine.local.compact import LocalCompaction
from acid_platform.engine.spark.spark_engine import SparkCompaction
from acid_platform.formats.file_access import recorded_file
from acid_platform.layout.file_entries import FileEntry
from acid_platform.services.worker import work_once
from acid_platform.storage.files import Files
from acid_platform.transactions import NONE_OPEN
from tests.conftest import COMPACTORS, a_warehouse, compact_with

pytestmark = pytest.mark.spark

Change = Callable[[pa.Table], pa.Table]
OWNERS: dict[str, Any] = {"spark": SparkCompaction, "local": LocalCompaction}


def with_column(table: pa.Table, name: str, change: Callable[[np.ndarray], object]) -> pa.Table:
    values = table[name].combine_chunks().to_numpy(zero_copy_only=False).copy()
    change(values)
    return replaced(table, name, values)


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    return table.set_column(at, field, pa.array(values, field.type))


def with_value(table: pa.Table, value: Any) -> pa.Table:
    rows = table["row"].to_pylist()
    rows[0]["v"] = value
    return replaced(table, "row", rows)


def raised(values: np.ndarray) -> None:
    values[-1] += 1


def doubled(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


warehouse = a_warehouse(in_spark=True)


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    made = warehouse.create_table("db.t", "id int, v string")
    made.insert([{"id": number, "v": f"v{number}"} for number in range(6)])
    made.delete("id = 5")
    made.insert([{"id": 7, "v": None}])
    made.delete("id = 4")
    return made


@pytest.fixture(scope="module")
def plain(warehouse: Warehouse) -> Table:
    made = warehouse.create_table(
        "db.p",
        "id int, v string",
        properties={"transactional": "true", "transactional_properties": "insert_only"},
    )
    made.insert([{"id": 1, "v": "a"}])
    made.insert([{"id": 2, "v": "b"}])
    return made


def picture(table: Table) -> tuple[list[dict[str, Any]], list[str]]:
    table._warehouse.release()
    rows = table.to_arrow().to_pylist()
    return sorted(rows, key=str), sorted(map(str, Path(table.location).rglob("*")))


def tampered(path: str, change: Change, records: dict[str, FileEntry], deletes: bool) -> None:
    """Changes a file that was written, and its record, as a wrong merge would have made them."""
    orc.write_table(change(orc.read_table(path)), path)
    if path in records:
        name = records[path].path
        records[path] = recorded_file(Files.of(path)[0], path, name, deletes=deletes)


def refused(warehouse: Warehouse, table: Table, engine: str, kind: str, *named: str) -> None:
    """The task fails and names the difference; no row and no file is another than before."""
    before = picture(table)
    number = warehouse.metastore.request_compaction(table.name, None, kind)
    outcome = work_once(warehouse)
    assert outcome is not None and (outcome.task.id, outcome.state) == (number, "failed")
    assert outcome.engine == engine
    for text in named:
        assert text in outcome.reason
    assert "its inputs were kept" in outcome.reason
    assert picture(table) == before
    [row] = [row for row in warehouse.metastore.compactions() if row["compactionid"] == number]
    assert row["state"] == "failed" and named[0] in row["errormessage"]


@COMPACTORS
@pytest.mark.parametrize(
    ("kind", "prefix", "change", "named"),
    [
        ("major", "base", lambda t: t.slice(1), ["rows: expected 5, got 4", "row ids"]),
        ("major", "base", doubled, ["rows: expected 5, got 6", "row ids"]),
        ("major", "base", lambda t: with_column(t, "rowId", raised), ["row ids"]),
        ("major", "base", lambda t: with_column(t, "bucket", raised), ["row ids"]),
        ("major", "base", lambda t: with_value(t, "else"), ["checksum of column v"]),
        ("major", "base", lambda t: with_value(t, None), ["null count of column v"]),
        ("major", "base", lambda t: t.take(list(range(t.num_rows))[::-1]), ["files out of order"]),
        ("minor", "delete_delta", lambda t: t.slice(1), ["delete events: expected 2, got 1"]),
        ("minor", "delete_delta", lambda t: with_column(t, "rowId", raised), ["delete event ids"]),
        ("minor", "delta", lambda t: t.slice(1), ["rows"]),
    ],
    ids=[
        "row lost",
        "row twice",
        "row id",
        "bucket",
        "value",
        "null",
        "order",
        "delete lost",
        "delete of another",
        "row lost by minor",
    ],
)
def test_C32_what_a_merge_changed_is_named_and_not_published(
    warehouse: Warehouse,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    compactor: str,
    kind: str,
    prefix: str,
    change: Change,
    named: Sequence[str],
) -> None:
    owner = OWNERS[compactor]
    write = owner.write

    def wrong(engine: Any) -> Records:
        records = dict(write(engine))
        for task in engine.compaction.rewrites:
            if Path(task.output).parent.name.startswith(f"{prefix}_"):
                tampered(task.output, change, records, task.delete_events)
        return records

    monkeypatch.setattr(owner, "write", wrong)
    compact_with(warehouse, compactor)
    refused(warehouse, table, compactor, kind, *named)


@COMPACTORS
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.slice(1), "rows: expected 2"),
        (doubled, "rows: expected 2"),
        (lambda t: with_column(t, "id", raised), "checksum of column id"),
    ],
    ids=["row lost", "row twice", "value"],
)
def test_C32_insert_only_tables_are_validated_too(
    warehouse: Warehouse,
    plain: Table,
    monkeypatch: pytest.MonkeyPatch,
    compactor: str,
    change: Change,
    named: str,
) -> None:
    owner = OWNERS[compactor]
    write = owner.write

    def wrong(engine: Any) -> Records:
        records = dict(write(engine))
        [path] = Path(engine.compaction.staging).glob("base_*/[0-9]*")
        tampered(str(path), change, records, deletes=False)
        return records

    monkeypatch.setattr(owner, "write", wrong)
    compact_with(warehouse, compactor)
    refused(warehouse, plain, compactor, "major", named)


def test_C32_the_same_table_is_compacted_by_a_right_merge(
    warehouse: Warehouse, table: Table
) -> None:
    """After every failure above; and the forecast meets what was written."""
    before = picture(table)[0]
    warehouse.metastore.request_compaction(table.name, None, "major")
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published", outcome
    assert picture(table)[0] == before
    assert str(outcome.deviations[0]) == "rows: 5 expected, 5 written"


def test_C32_nanoseconds_of_insert_only_tables_are_not_cut(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    for write_id, nanoseconds in ((1, 1_000), (2, 1_001)):
        path = tmp_path / f"delta_{write_id:07d}_{write_id:07d}_0000" / "000000_0"
        path.parent.mkdir()
        orc.write_table(pa.table({"t": pa.array([nanoseconds], pa.timestamp("ns"))}), str(path))
    made = warehouse.adopt_table(
        "db.n",
        tmp_path,
        "t timestamp",
        snapshot=f"db.n:2:{NONE_OPEN}::",
        properties={"transactional": "true", "transactional_properties": "insert_only"},
    )
    before = made.snapshot()
    warehouse.metastore.request_compaction(made.name, None, "major")
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "refused", outcome
    assert "holds timestamps with nanoseconds" in outcome.reason
    assert str(made.snapshot()) == str(before) and made.count() == 2
