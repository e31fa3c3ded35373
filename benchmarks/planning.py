"""What a read and a commit cost by the number of deltas and of partitions; needs no JVM.

The benchmark `planning` makes tables of small files with up to 10,000 deltas and up to
100,000 partitions. For the plan of a scan, of a scan of one partition or of one file's range, and
for `count()` it measures the median milliseconds and the calls to the storage: listings of a
directory tree, looks at a file, opened files; for the plan also the peak of the memory that Python
takes. For a commit of one file to the table: milliseconds, and the bytes that it adds to the
journal. For the metastore: the memory of its process before and after the table. The costs by
file that docs/internal/scale.md states are slopes between the largest sizes.
"""

from __future__ import annotations

import datetime
import json
import shutil
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyarrow import fs

from acid_platform import Table, Warehouse
from acid_platform.base.clock import Moment
from acid_platform.formats.file_access import recorded_file
from acid_platform.formats.orc import AcidWriter, acid_schema
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.types import parse_columns
from acid_platform.metastore.operations.tables import DeclareTable
from acid_platform.metastore.operations.transactions import Begin, CommitContents, CommitTxn
from acid_platform.metastore.records import ClientInfo, LockRequest, TableRecord, WriteReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.scan.open import chosen_partitions, open_scan, result_of
from acid_platform.scan.scans import ArrowScan
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import recorded_listings, table_layout
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from benchmarks.results import options, saved

COLUMNS = "id bigint, amount decimal(12,2), day date, name string, note string"
_IN_A_COMMIT = 1000
"""Partitions that one transaction adds while a table is made."""

CALLS: Counter[str] = Counter()


class Counted(fs.LocalFileSystem):  # type: ignore[misc]
    """The local file system; counts the calls."""

    def get_file_info(self, what: Any) -> Any:
        kind = "listings" if isinstance(what, fs.FileSelector) else "looks at a file"
        CALLS[kind] += len(what) if isinstance(what, list) else 1
        return super().get_file_info(what)

    def open_input_file(self, path: Any) -> Any:
        CALLS["files opened"] += 1
        return super().open_input_file(path)


def fill(warehouse: Warehouse, name: str, partitions: int, deltas: int, rows: int) -> Table:
    """Create a table with `deltas` deltas per partition; a delta has one file of `rows` rows."""
    keys = ["p int"] if partitions > 1 else []
    table = warehouse.create_table(name, COLUMNS, partitioned_by=keys)
    for number in range(deltas):
        for first in range(0, partitions, _IN_A_COMMIT):
            some = range(first, min(first + _IN_A_COMMIT, partitions))
            commit(warehouse, table, [f"p={p}" if keys else None for p in some], number, rows)
    return table


def commit(
    warehouse: Warehouse, table: Table, partitions: Sequence[str | None], number: int, rows: int
) -> float:
    """Commit a delta to each of the partitions. Returns the seconds without those of the files."""
    columns = parse_columns(COLUMNS)
    lock = LockType.SHARED_WRITE
    requests = [LockRequest(table.name, lock, RowOperation.INSERT, p, False) for p in partitions]
    began = time.perf_counter()
    with warehouse.metastore.begin() as txn:
        txn.lock(requests)
        w = txn.write_ids[table.name]
        writing = time.perf_counter()
        directory = f"delta_{w:07d}_{w:07d}_0000"
        reports, made = [], ""
        for partition in partitions:
            place = Path(table.location, partition or "", directory)
            place.mkdir(parents=True)
            (place / "_orc_acid_version").write_bytes(b"2")
            path = str(place / "bucket_00000")
            if made:
                shutil.copyfile(made, path)
            else:
                made = path
                writer = AcidWriter(*Files.of(path), columns, "zlib")
                writer.write(batch(w, number * rows, rows, acid_schema(columns)))
                writer.close()
            contents = RecordedFiles((recorded_file(Files.of(path)[0], path, "bucket_00000"),))
            reports.append(
                WriteReport(table.name, partition, RowOperation.INSERT, directory, contents)
            )
        written = time.perf_counter()
        txn.commit(CommitContents(tuple(reports)))
    return time.perf_counter() - written + writing - began


def batch(write_id: int, first: int, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    values = [
        {
            "id": number,
            "amount": None,
            "day": datetime.date(2024, 1, 1),
            "name": f"n{number}",
            "note": "x" * 20,
        }
        for number in range(first, first + rows)
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([0] * rows, pa.int32()),
            pa.array([write_id] * rows),
            pa.array([1 << 29] * rows, pa.int32()),
            pa.array([*range(rows)]),
            pa.array([write_id] * rows),
            pa.array(values, schema.field(5).type),
        ],
        schema=schema,
    )


def measured(work: Callable[[], object], times: int) -> dict[str, Any]:
    seconds = []
    for _ in range(times):
        CALLS.clear()
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return {"ms": round(1000 * median(seconds), 1), **CALLS}


def plan(warehouse: Warehouse, name: str, where: str | None) -> object:
    with warehouse.metastore.open_snapshot([name]) as lease:
        layout = table_layout(lease.table(name), lease)
        write_ids, txns = lease.valid_write_ids(name), lease.valid_txns
        listings = recorded_listings(layout, lease, chosen_partitions(layout, where))
        names, predicate = result_of(layout, None, where)
        return ArrowScan(open_scan(layout, listings, write_ids, txns, where), names, predicate)


def journal_bytes(table: Table) -> int:
    """Bytes that the commit of one file adds to the journal, without its begin."""
    machine, at = Machine(), Moment(10**12, 10**12)
    path = f"{table.location}/delta_0000001_0000001_0000/bucket_00000"
    entry = recorded_file(Files.of(path)[0], path, "bucket_00000")
    lock = LockRequest("default.t", LockType.SHARED_WRITE, RowOperation.INSERT)
    report = WriteReport(
        "default.t",
        None,
        RowOperation.INSERT,
        "delta_0000001_0000001_0000",
        RecordedFiles((entry,)),
    )
    record = TableRecord(0, "default.t", "t", (("id", "int"),))
    machine.handle(DeclareTable(record, if_not_exists=False), "1", at)
    who = ClientInfo("somebody", "somewhere")
    machine.handle(Begin(0, (lock,), 1, None, who, tables=()), "2", at)
    done = machine.handle(CommitTxn(1, CommitContents((report,))), "3", at)
    return sum(len(json.dumps(event.as_json(), separators=(",", ":"))) for event in done.events)


def count_calls() -> None:
    """Make all storage calls from now on go through `Counted`."""

    def of(location: str) -> tuple[Files, str]:
        return Files(Counted()), location

    Files.of = of  # type: ignore[method-assign]


def costs(warehouse: Warehouse, partitions: int, deltas: int) -> dict[str, Any]:
    """Make the table and measure it. It stays, so that the memory of the next is its own."""
    before = resident(warehouse)
    began = time.perf_counter()
    table = fill(warehouse, f"db.t{partitions}_{deltas}", partitions, deltas, rows=100)
    files = partitions * deltas
    times = 7 if files <= 1000 else 3
    found: dict[str, Any] = {
        "partitions": partitions,
        "deltas": deltas,
        "seconds to make": round(time.perf_counter() - began, 1),
        "metastore, bytes of memory": resident(warehouse) - before,
    }
    read = partial(plan, warehouse, table.name)
    found["plan"] = measured(partial(read, None), times) | {"bytes": peak(partial(read, None))}
    found["plan, one file in the range"] = measured(partial(read, "id = 5"), times)
    if partitions > 1:
        found["plan of one partition"] = measured(partial(read, "p = 1"), times)
    found["count()"] = measured(table.count, times)
    one = ["p=1"] if partitions > 1 else [None]
    seconds = [commit(warehouse, table, one, deltas + number, 100) for number in range(times)]
    found["commit of a file"] = {"ms": round(1000 * median(seconds), 1)}
    print(found)
    return found


def resident(warehouse: Warehouse) -> int:
    return int(warehouse.metastore.status()["resident_bytes"])


def peak(work: Callable[[], object]) -> int:
    """The largest number of bytes that Python held for `work` at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    given = options(
        __doc__,
        deltas=[1, 10, 100, 1000, 10_000],
        partitions=[10, 100, 1000, 10_000, 100_000],
    )
    with (
        TemporaryDirectory(prefix="acid-bench-") as place,
        Warehouse.open(Path(place, "wh")) as warehouse,
    ):
        table = warehouse.create_table("db.one", COLUMNS)
        commit(warehouse, table, [None], 0, 100)
        size = journal_bytes(table)
        count_calls()
        shapes = [(1, deltas) for deltas in given.deltas]
        shapes += [(partitions, 1) for partitions in given.partitions]
        found = [costs(warehouse, *shape) for shape in shapes]
        print("bytes of a commit in the journal:", size)
        warehouse.metastore.stop()
    saved(given, "planning", tables=found, **{"journal bytes of a commit": size})
