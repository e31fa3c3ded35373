"""P59: rows of this process are written here as a stream, by every verb and into every kind of
table: exactly these rows, in files as large as they should be, within bounded memory."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform import NeedsSpark, Table, Transaction, Warehouse, WriteConflict, WrongType
from acid_platform.engine.local import event_files, merge
from acid_platform.errors import LockTimeout, RowsTaken, SnapshotOutdated
from acid_platform.handles.transaction import autocommit
from acid_platform.services.fsck import examine
from acid_platform.services.fsck.findings import Check
from acid_platform.values import local_rows, row_streams
from acid_platform.values.row_streams import SpilledBatches
from acid_platform.values.rows import plain_rows
from acid_platform.write import task_files
from tests.conftest import IN_ORC, few_then_more, temporary_warehouse

ROWS = 1000
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "v": [None if i % 11 == 0 else f"text {i}" for i in range(ROWS)],
        "p": np.arange(ROWS) * 7 % 5,
    }
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("streams") / "wh", engine="local") as made:
        yield made
        made.release()
        found = examine(made.metastore, warehouse=made.path).findings
        assert {finding.check for finding in found} <= {Check.ABORTED}, found


@pytest.fixture
def warehouse(opened: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """With the limits of memory so low that a thousand rows are many."""
    monkeypatch.setattr(row_streams, "HELD_BYTES", 500)
    monkeypatch.setattr(row_streams, "_SPILLED_BYTES", 1000)
    monkeypatch.setattr(local_rows, "_PART_BYTES", 900)
    monkeypatch.setattr(local_rows, "_PART_ROWS", 70)
    monkeypatch.setattr(merge, "_PART_BYTES", 700)
    monkeypatch.setattr(event_files, "_SORTED_BYTES", 3000)
    monkeypatch.setattr(task_files, "_ROWS_PER_FILE", 300)
    return opened


class Lent:
    """What only lends a stream of Arrow's, as other libraries do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.to_reader(64).__arrow_c_stream__(requested_schema)


def _generated() -> Iterator[pa.RecordBatch | pa.Table | pl.DataFrame]:
    yield TABLE.slice(0, 400)
    yield from TABLE.slice(400).to_batches(90)


KINDS: dict[str, Callable[[Warehouse], Any]] = {
    "table": lambda _: TABLE,
    "large strings": lambda _: TABLE.set_column(1, "V", TABLE["v"].cast(pa.large_string())),
    "one batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda _: TABLE.to_reader(37),
    "reader of tiny batches": lambda _: TABLE.to_reader(1),
    "generator": lambda _: _generated(),
    "lent": lambda _: Lent(),
    "dicts": lambda _: TABLE.to_pylist(),
    "pandas": lambda _: TABLE.to_pandas(),
    "polars": lambda _: pl.from_arrow(TABLE),
    "lazy polars": lambda _: pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
    "duckdb": lambda _: duckdb.from_arrow(TABLE),
    "our table": lambda warehouse: warehouse.table("db.source"),
}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"columns": "id bigint, v string, p bigint"},
    "partitioned": {"columns": "id bigint, v string", "partitioned_by": ["p bigint"]},
    "clustered": {"columns": "id bigint, v string, p bigint", "clustered_by": (["id"], 3)},
    "both": {
        "columns": "id bigint, v string",
        "partitioned_by": ["p bigint"],
        "clustered_by": (["id"], 3),
    },
}


def _merge(table: Table, rows: Any) -> int:
    """Into a table that has the first 100 rows with other values."""
    table.insert(TABLE.slice(0, 100).set_column(1, "v", pa.nulls(100, pa.string())))
    counts = table.merge(rows, "t.id = s.id AND t.p = s.p", {"v": "s.v"}, None, "*")
    assert (counts.updated, counts.inserted) == (100, ROWS - 100)
    return ROWS


VERBS: dict[str, Callable[[Table, Any], int]] = {
    "insert": lambda table, rows: table.insert(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "merge": _merge,
    "coerced": lambda table, rows: table.insert(rows, coerce=True),
}


def _stored(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(["id", "v", "p"]).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("shape", few_then_more(SHAPES, 1))
@pytest.mark.parametrize("verb", few_then_more(VERBS, 2))
def test_P59_rows_of_every_kind_are_stored_as_a_stream(
    warehouse: Warehouse, verb: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[int]()
    added = SpilledBatches.add

    def noted(spilled: SpilledBatches, batch: pa.RecordBatch) -> int:
        held.append(batch.num_rows)
        return added(spilled, batch)

    monkeypatch.setattr(SpilledBatches, "add", noted)
    if "db.source" not in warehouse.tables():
        warehouse.create_table("db.source", "id bigint, v string, p bigint").insert(TABLE)
    few = ("table", "reader", "dicts", "pandas")  # other kinds become one of them
    kinds = KINDS if (verb, shape) in (("insert", "plain"), ("overwrite", "both")) else few
    for number, kind in enumerate(kinds):
        make = KINDS[kind]
        table = warehouse.create_table(f"db.{verb}_{shape}_{number}", **SHAPES[shape])
        held.clear()
        assert VERBS[verb](table, make(warehouse)) == ROWS, kind
        assert _stored(table) == TABLE.to_pylist(), kind
        if shape != "plain":
            assert sum(held) >= ROWS and max(held) <= ROWS // 2, kind  # sorted piece by piece
        ids = table.to_arrow([], row_id=True)["row__id"].to_pylist()
        assert len({tuple(one.values()) for one in ids}) == ROWS, kind


def test_P59_rows_of_a_bucket_are_in_one_file_in_their_order(warehouse: Warehouse) -> None:
    for shape in SHAPES:
        table = warehouse.create_table(f"db.order_{shape}", **SHAPES[shape])
        table.insert(TABLE.to_reader(50))
        rows = table.to_arrow(row_id=True).to_pylist()
        rows.sort(key=lambda row: (row["row__id"]["bucketid"], row["row__id"]["rowid"]))
        by_file: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            place = row["p"] if shape in ("partitioned", "both") else 0
            by_file.setdefault((row["row__id"]["bucketid"], place), []).append(row["id"])
        assert all(ids == sorted(ids) for ids in by_file.values()), shape
        files = {str(path) for path in Path(table.location).rglob("bucket_*")}
        assert (
            len(files)
            == len(by_file)
            == {"plain": 4, "partitioned": 5, "clustered": 3}.get(shape, 15)
        )


# --- a stream gives its rows once ----------------------------------------------------------------


def test_P59_a_stream_is_not_taken_twice_and_its_errors_are_its_own(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.once", "id bigint, v string, p bigint")
    for rows in (TABLE.to_reader(50), _generated()):
        table.insert(rows)
        with pytest.raises(RowsTaken, match="gives its rows once"):
            table.insert(rows)
    assert table.count() == 2 * ROWS

    def broken() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(100)[:9]
        raise ConnectionError("the source went away")

    for verb in ("insert", "overwrite"):
        with pytest.raises(ConnectionError, match="went away"):
            getattr(table, verb)(broken())
    with pytest.raises(WrongType, match="part 2 of the rows has other columns"):
        table.insert(iter([TABLE, pa.table({"id": [1]})]))
    with pytest.raises(WrongType, match=r"in row 702\)"):  # counted from the first batch on
        floats = [float(i) if i != 701 else 0.5 for i in range(ROWS)]
        table.insert(pa.table({"id": floats}).to_reader(50))
    assert table.insert(iter([])) == table.insert(TABLE.slice(0, 0).to_reader()) == 0
    assert table.count() == 2 * ROWS
    assert len(list(Path(table.location).iterdir())) == 2


@pytest.mark.more
def test_P59_a_stream_that_would_have_to_be_repeated_says_so(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.again", "id bigint, v string, p bigint")
    warehouse.create_table("db.lender", "id bigint, v string, p bigint").insert(TABLE)

    def outdated(rows: Any) -> Callable[[Transaction], None]:
        given = plain_rows(rows)

        def change(txn: Transaction) -> None:
            txn.table(table.name).insert(given)
            raise SnapshotOutdated("another writer committed")

        return change

    for once in (TABLE.to_reader(50), _generated()):
        with pytest.raises(WriteConflict, match="came as a stream, which can't be read again"):
            autocommit(warehouse, table.name, outdated(once))
    for again in (warehouse.table("db.lender"), TABLE):
        with pytest.raises(LockTimeout, match="committed during each attempt"):
            autocommit(warehouse, table.name, outdated(again))
    assert table.count() == 0
    # Days that ORC's Java writers count otherwise need Spark, which can't have the rows any more.
    early = warehouse.create_table("db.early", "id bigint, d date", properties=IN_ORC)
    days = pa.table({"id": TABLE["id"], "d": pa.array([0] * 999 + [-200_000], pa.date32())})
    with (
        warehouse.using("auto"),
        pytest.raises(NeedsSpark, match="came as a stream, which can't be read again: give a new"),
    ):
        early.insert(days.to_reader(50))
    assert early.count() == 0


def test_P59_dicts_of_every_slice_have_the_columns_of_all(warehouse: Warehouse) -> None:
    """A column that only the last dicts have is no left out column of the first slices."""
    warehouse.sql("CREATE TABLE db.sparse (id bigint, v string DEFAULT 'x', p bigint)")
    table = warehouse.table("db.sparse")
    rows: list[dict[str, object]] = [{"id": i, "p": None} for i in range(300)]
    rows += [{"id": i, "p": i, "v": None} for i in range(300, 400)]
    table.insert(rows)
    table.insert([{"id": i} for i in range(400, 600)])
    stored = _stored(table)
    assert [row["v"] for row in stored] == ["x"] * 300 + [None] * 100 + ["x"] * 200
    table.overwrite(pd.DataFrame({"id": range(300), "v": [None] * 299 + ["end"]}))
    assert [row["v"] for row in _stored(table)] == [None] * 299 + ["end"]


# --- memory --------------------------------------------------------------------------------------

_CHILD = """
import json, resource, sys
import numpy as np, pyarrow as pa
from acid_platform import Warehouse
path, verb, kind, count = *sys.argv[1:4], int(sys.argv[4])
names = [f"c{i}" for i in range(12)]
def batches(rows=count):
    for start in range(0, rows, 50_000):
        k = np.arange(start, start + 50_000)
        yield pa.record_batch([pa.array(k), pa.array(k % 3), *[pa.array(k // 1000)] * 10], names)
partitioned = {"partitioned_by": ["c1 bigint"]} if kind == "partitioned" else {}
clustered = {"clustered_by": (["c0"], 4)} if kind == "clustered" else {}
columns = ", ".join(f"{n} bigint" for n in names if not (partitioned and n == "c1"))
with Warehouse.open(path, engine="local") as wh:
    table = wh.create_table("db.t", columns, **partitioned, **clustered)
    table.insert(batches(50_000))
    table.merge(batches(50_000), "t.c0 = s.c0", {"c2": "s.c2"}, None, "*")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if verb == "merge":
        table.merge(batches(), "t.c0 = s.c0", {"c2": "s.c2"}, None, "*")
    else:
        getattr(table, verb)(batches())
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([table.count(), (after - before) * 1024]))
    wh.metastore.stop()
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("verb", "kind", "most"),
    [
        ("insert", "plain", 250),
        pytest.param("overwrite", "clustered", 500, marks=pytest.mark.slow),
        pytest.param("insert", "partitioned", 500, marks=pytest.mark.slow),
        pytest.param("merge", "plain", 1200, marks=pytest.mark.slow),
    ],
)
def test_P59_memory_does_not_grow_with_the_rows(
    tmp_path: Path, verb: str, kind: str, most: int
) -> None:
    """Six million rows of 96 bytes, of which the process held more than all before."""
    count = 6_000_000
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "wh"), verb, kind, str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, grown = json.loads(done.stdout)
    extra = {"insert": 50_000, "overwrite": 0, "merge": 0}[verb]
    assert rows == count + extra
    assert grown < most << 20, f"{grown >> 20} MiB more"


# --- to Spark ------------------------------------------------------------------------------------


class Frame:
    """A frame of Spark, as far as it is made of files or kept by executors."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def localCheckpoint(self, eager: bool) -> Frame:
        assert eager and self.rows.nbytes <= 800  # a piece is computed before the next one is made
        return self

    def union(self, other: Frame) -> Frame:
        return Frame(pa.concat_tables([self.rows, other.rows]))


@pytest.mark.more
@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_P59_many_rows_come_to_spark_by_files_or_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.setattr(row_streams, "_HELD_BYTES", 2000)
    monkeypatch.setattr(row_streams, "_PIECE_BYTES", 700)
    monkeypatch.setattr(row_streams, "_FILE_BYTES", 1000)
    read: list[Path] = []

    def parquet_of(directory: str) -> Frame:
        read.append(Path(directory))
        assert stat.S_IMODE(read[-1].stat().st_mode) == 0o700
        files = sorted(read[-1].iterdir())
        assert len(files) > 2
        return Frame(pa.concat_tables(map(parquet.read_table, files)))

    reader = SimpleNamespace(option=lambda name, value: SimpleNamespace(parquet=parquet_of))
    conf = SimpleNamespace(get=lambda name: master)
    spark: Any = SimpleNamespace(_jsparkSession=None, conf=conf, read=reader)
    made: list[pa.Table] = []

    def make(few: pa.Table) -> Any:
        made.append(few)
        return Frame(few)

    moments = TABLE.append_column("t", TABLE["id"].cast(pa.timestamp("us")))
    with row_streams.removed_afterwards():
        tables = (moments.slice(start, 100) for start in range(0, ROWS, 100))
        frame: Any = row_streams.frame_of(spark, tables, make)
        few: Any = row_streams.frame_of(spark, [moments.slice(0, 9)], make)
    assert few.rows.num_rows == 9
    stored = frame.rows.set_column(3, "t", frame.rows["t"].cast(pa.timestamp("us")))
    assert stored.to_pylist() == moments.to_pylist()
    assert bool(read) == (master != "yarn") == (len(made) == 1)
    assert not any(directory.exists() for directory in read)
