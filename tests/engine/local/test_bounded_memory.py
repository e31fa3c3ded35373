"""P59: changes go through in parts. What they write does not depend on the size of the parts, and
their memory does not depend on the size of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acid_platform import OutOfMemory, Table, Warehouse
from acid_platform.base.databases import with_directories
from acid_platform.base.first_use import PerProcess
from acid_platform.engine.interface import Result
from acid_platform.engine.local import event_files, merge, shared_database
from acid_platform.engine.local.event_files import Keys
from acid_platform.formats import parquet
from acid_platform.formats.orc import orc_file
from acid_platform.formats.orc.writer import AcidWriter
from acid_platform.scan import kept_columns
from acid_platform.services.worker import work_once
from acid_platform.values import local_rows, row_streams
from acid_platform.values.partition_texts import RowPartitions
from acid_platform.values.row_streams import RowStream
from acid_platform.write import publishing
from acid_platform.write.publishing import ChangedRows, together
from tests.conftest import few_then_more, temporary_warehouse

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partitioned_by": ["p int"]},
    "bucketed": {"clustered_by": (["id"], 3)},
    "both": {"partitioned_by": ["p int"], "clustered_by": (["id"], 2)},
}
NO_MATCH = {"when_not_matched_insert": "*"}


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count) * 7919 % 3001
    texts = pa.array([f"v{number}" for number in ids])
    return pa.table({"id": ids, "v": texts, "n": ids % 11, "p": (ids % 3).astype(np.int32)})


CHANGES: dict[str, Callable[[Warehouse, Table], object]] = {
    "delete": lambda wh, t: t.delete("id % 7 = 3"),
    "delete where DuckDB decides": lambda wh, t: t.delete("length(v) = 3"),
    "update": lambda wh, t: t.update({"v": "concat(v, '!')"}, "id > 1500"),
    "update of all": lambda wh, t: t.update({"n": "n + 1"}),
    "update by a subquery": lambda wh, t: wh.sql(
        f"UPDATE {t.name} SET v = (SELECT max(u.v) FROM db.u AS u)"
        " WHERE n IN (SELECT n FROM db.u WHERE id < 5)"
    ),
    "delete by a subquery": lambda wh, t: wh.sql(
        f"DELETE FROM {t.name} WHERE id IN (SELECT id + 1 FROM db.u)"
    ),
    "merge": lambda wh, t: t.merge(
        RowStream(rows(0, 1).schema, rows(2500, 501).to_batches(50)),
        "t.id = s.id",
        {"v": "concat(s.v, t.v)"},
        None,
        "*",
    ),
    "merge of three clauses": lambda wh, t: wh.sql(
        f"MERGE INTO {t.name} AS t USING db.u AS s ON t.id = s.id"
        " WHEN MATCHED AND s.n > 5 THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET n = t.n + s.n, v = s.v"
        " WHEN NOT MATCHED THEN INSERT *"
        " WHEN NOT MATCHED BY SOURCE AND t.id % 5 = 0 THEN UPDATE SET n = -1"
        " WHEN NOT MATCHED BY SOURCE AND t.id % 5 = 1 THEN DELETE"
    ),
}


def small_parts(patch: pytest.MonkeyPatch) -> None:
    """Parts of a few rows, which are spilled."""
    for module, name, size in (
        (local_rows, "_PART_BYTES", 1000),
        (merge, "_PART_BYTES", 1000),
        (merge, "_FEW", 10),
        (event_files, "_SORTED_BYTES", 4000),
        (row_streams, "_SPILLED_BYTES", 1000),
        (row_streams, "HELD_BYTES", 1000),
    ):
        patch.setattr(module, name, size)


def after(path: Path, kind: str, change: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows with their ids, and the files, after the change."""
    with temporary_warehouse(path / "wh", engine="local") as warehouse:
        table = warehouse.create_table(
            "db.t",
            "id bigint, v string, n bigint" + (", p int" * ("partitioned_by" not in KINDS[kind])),
            **KINDS[kind],
        )
        other = warehouse.create_table("db.u", "id bigint, v string, n bigint, p int")
        other.insert(rows(2600, 300))
        for first in (0, 700, 1400):
            table.insert(rows(first, 700))
        table.update({"v": "upper(v)"}, "id % 10 = 1")
        CHANGES[change](warehouse, table)
        stored = table.to_arrow(row_id=True).to_pylist()
        root = Path(table.location)
        files = sorted(str(file.relative_to(root)) for file in root.rglob("bucket_*"))
        return stored, files


FEW = ("delete where DuckDB decides", "update by a subquery", "merge of three clauses")


@pytest.mark.parametrize("change", few_then_more(sorted(CHANGES, key=lambda c: c not in FEW), 2))
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.more] * (kind != "both")) for kind in KINDS]
)
def test_P59_a_change_in_parts_writes_what_it_writes_at_once(
    tmp_path: Path, kind: str, change: str
) -> None:
    expected = after(tmp_path / "whole", kind, change)
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        assert after(tmp_path / "parts", kind, change) == expected
    assert len(expected[0]) > 500


class Events:
    """What EventFiles would write of delete events."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, int], list[tuple[int, ...]]] = {}

    def delete_run(self, batches: Iterator[pa.RecordBatch], partition: str, bucket: int) -> None:
        keys = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        assert (partition, bucket) not in self.written
        self.written[partition, bucket] = keys


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_P59_delete_events_are_in_the_order_of_their_keys(
    monkeypatch: pytest.MonkeyPatch, spilled: bool, seed: int
) -> None:
    """Also where files hold keys in another order, as those of older compactions do."""
    if spilled:
        monkeypatch.setattr(event_files, "_SORTED_BYTES", 500)
        monkeypatch.setattr(event_files, "_PIECE_BYTES", 100 * (1 + seed))
    random = np.random.default_rng(seed)
    ids = random.permutation(600) if seed else np.arange(600)
    write_ids, numbers = 1 + ids // 200, ids % 2
    places = random.integers(0, 2, 600)
    updated = random.random(600) < 0.5
    keys = Keys(
        write_ids,
        (1 << 29) | (numbers << 16),
        ids % 200,
        RowPartitions(("p=1", "p=2"), places),
    )
    files: Any = Events()
    with event_files.PlacedDeletes(files) as deletes:
        for start in range(0, 600, 50):
            part = np.arange(start, start + 50)
            deletes.add_keys(keys.take(part), updated[part])
        deletes.write()
    for (partition, bucket), events in files.written.items():
        mine = (numbers == bucket) & (places == int(partition[-1]) - 1)
        every = zip(
            keys.write_ids[mine], keys.buckets[mine], keys.row_ids[mine], updated[mine], strict=True
        )
        assert events == sorted(tuple(map(int, event)) for event in every)
    assert sum(map(len, files.written.values())) == 600


def test_P59_rows_are_taken_out_of_many_chunks_in_the_order_asked_for() -> None:
    random = np.random.default_rng(0)
    whole = pa.table({"n": np.arange(1000), "v": [f"v{number}" for number in range(1000)]})
    chunked = pa.concat_tables([whole.slice(0, 0), whole.slice(0, 1), *_chunks(whole.slice(1))])
    for numbers in (random.integers(0, 1000, 300), np.arange(0), np.arange(1000)[::-1]):
        for table in (whole, chunked):
            assert merge.taken(table, numbers).column("n").to_pylist() == numbers.tolist()
            assert merge.taken(table, numbers).equals(whole.take(pa.array(numbers, pa.int64())))


def _chunks(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, 37) for start in range(0, len(table), 37)]


def test_P59_a_million_runs_of_changed_rows_are_joined_with_the_rows_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "_MOST_RUNS", 20)
    ids = np.arange(0, 300, 3)
    parts = [ChangedRows.of(np.full(10, 1), np.full(10, 2), part) for part in np.split(ids, 10)]
    every = together(parts)
    assert len(every) <= 30 and not every.exact
    held = np.concatenate([*map(np.arange, every.firsts, every.lasts + 1)])
    assert np.isin(ids, held).all()
    assert together(parts[:2]).exact and len(together(parts[:2])) == 20


# --- memory --------------------------------------------------------------------------------------

ROWS, BATCH = 60_000, 200


def batches(first: int = 0) -> Iterator[pa.RecordBatch]:
    """24 MB of rows in small batches, which no codec makes much smaller."""
    random = np.random.default_rng(first)
    for start in range(first, first + ROWS, BATCH):
        texts = pa.array([random.bytes(200).hex() for _ in range(BATCH)])
        yield pa.record_batch({"id": np.arange(start, start + BATCH), "v": texts})


def compacted(warehouse: Warehouse, table: Table) -> None:
    warehouse.metastore.request_compaction(table.name, None, "major")
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published", outcome


def read(warehouse: Warehouse, table: Table) -> None:
    result = warehouse.sql(f"SELECT id, v FROM {table.name} WHERE id % 3 < 3")
    assert isinstance(result, Result)
    assert sum(len(batch) for batch in result.batches()) == ROWS + 1


STEPS: dict[str, Callable[[Warehouse, Table], object]] = {
    "insert": lambda _, table: table.insert(batches(ROWS)),
    "overwrite": lambda _, table: table.overwrite(batches()),
    "update": lambda _, table: table.update({"v": "concat('x', v)"}),
    "delete": lambda _, table: table.delete("id % 100 <> 0"),
    "merge": lambda _, table: table.merge(
        batches(ROWS // 2), "t.id = s.id", {"v": "concat(s.v, t.v)"}, None, "*"
    ),
    "compaction": compacted,
    "batches": read,
}


@pytest.fixture
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What may be held is small beside 24 MB, as it is by default beside the rows of a machine."""
    for module, name in (
        (local_rows, "_PART_BYTES"),
        (merge, "_PART_BYTES"),
        (row_streams, "_SPILLED_BYTES"),
        (row_streams, "HELD_BYTES"),
        (event_files, "_SORTED_BYTES"),
        (event_files, "_PIECE_BYTES"),
        (parquet, "WRITTEN_BYTES"),
    ):
        monkeypatch.setattr(module, name, 1 << 18)
    monkeypatch.setattr(orc_file, "BATCH_ROWS", 500)
    smaller = partialmethod(AcidWriter.__init__, stripe_bytes=1 << 18)
    monkeypatch.setattr(AcidWriter, "__init__", smaller)
    small = partial(with_directories, memory_limit="20MB", threads=2)
    monkeypatch.setattr(shared_database, "new_database", small)
    database = PerProcess(shared_database.SharedDatabase)
    monkeypatch.setattr(shared_database, "_DATABASE", database)
    kept = PerProcess(lambda: kept_columns.KeptColumns(1 << 18))
    monkeypatch.setattr(kept_columns, "KEPT", kept)
    yield
    database.close()


@pytest.mark.more
@pytest.mark.parametrize("step", STEPS)
def test_P59_a_step_holds_a_part_of_the_rows(tmp_path: Path, small_sizes: None, step: str) -> None:
    """Arrow's memory at its peak; DuckDB, which has less than the rows, spills."""
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id bigint, v string")
        table.insert(batches())
        table.insert([{"id": -1, "v": ""}])
        pool, before = pa.proxy_memory_pool(pa.system_memory_pool()), pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            STEPS[step](warehouse, table)
        finally:
            pa.set_memory_pool(before)
            kept_columns.KEPT.close()  # its columns lie in `pool`, which goes with this test
        assert pool.max_memory() < 12_000_000, f"{pool.max_memory():,} bytes of 24,000,000"


@pytest.mark.parametrize("room", ["memory", "disk"])
def test_P59_without_room_a_statement_ends_with_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    spilling = {"memory": "", "disk": "/proc/no-directory"}[room]
    small = partial(with_directories, memory_limit="10MB", temp_directory=spilling, threads=1)
    monkeypatch.setattr(shared_database, "new_database", small)
    monkeypatch.setattr(shared_database, "_DATABASE", PerProcess(shared_database.SharedDatabase))
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        table = warehouse.create_table("db.t", "id bigint, v string")
        ids = np.arange(200_000)
        table.insert(pa.table({"id": ids, "v": pa.array([f"{number:060}" for number in ids])}))
        before = table.count()
        sorted_rows = "SELECT v, id FROM db.t ORDER BY substring(v, 55), v"
        for engine in ("auto", "local"):  # no engine repeats what this machine has no room for
            result = warehouse.sql(sorted_rows, engine=engine)
            assert isinstance(result, Result)
            with pytest.raises(OutOfMemory, match=r"DuckDB has no room .*; (free space|let the)"):
                result.to_arrow()
            with pytest.raises(OutOfMemory), warehouse.using(engine):
                warehouse.sql(f"INSERT INTO db.t {sorted_rows}")
        assert table.count() == before
        shared_database._DATABASE.close()
