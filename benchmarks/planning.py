"""The cost of planning a read, and the size of a commit in the journal; needs no JVM.

`python -m benchmarks.planning` creates tables of small files. For `count()` and for the plan of a
scan it measures the median milliseconds and the calls to the storage: listings of a directory tree,
looks at a file, opened files. It also measures the bytes that a commit of one file adds to the
journal.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyarrow import fs
from rich.console import Console

from acid_platform.clock import Moment
from acid_platform.engine.arrow_reads import arrow_scan
from acid_platform.layout.types import parse_columns
from acid_platform.metastore.operations.tables import CreateTable
from acid_platform.metastore.operations.transactions import Begin, Commit
from acid_platform.metastore.records import ClientInfo, LockRequest, TableRecord, WriteReport
from acid_platform.metastore.rules.machine import Machine
from acid_platform.snapshot.recorded import Contents
from acid_platform.storage.files import Files
from acid_platform.storage.orc_writer import AcidWriter, acid_schema
from acid_platform.storage.recorded import recorded_file
from acid_platform.table import Table
from acid_platform.transactions import Operation
from acid_platform.transactions.locks import LockType
from acid_platform.warehouse import Warehouse
from benchmarks.results import machine, save

COLUMNS = "id bigint, amount decimal(12,2), day date, name string, note string"
SHAPES = {
    "1 delta": (1, 1),
    "100 deltas": (1, 100),
    "1,000 deltas": (1, 1000),
    "100 partitions of 10 deltas": (100, 10),
}
"""The number of partitions, and of deltas in each."""

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
    """Create a table with `deltas` deltas per partition, each committed by its own transaction."""
    keys = ["p int"] if partitions > 1 else []
    table = warehouse.create_table(name, COLUMNS, partitioned_by=keys)
    columns = parse_columns(COLUMNS)
    for number in range(deltas):
        for partition in range(partitions):
            where = f"p={partition}" if keys else ""
            with warehouse.metastore.begin() as txn:
                txn.lock(
                    [
                        LockRequest(
                            name, LockType.SHARED_WRITE, Operation.INSERT, where or None, False
                        )
                    ]
                )
                w = txn.write_ids[name]
                directory = f"delta_{w:07d}_{w:07d}_0000"
                place = Path(table.location, where, directory)
                place.mkdir(parents=True)
                path = str(place / "bucket_00000")
                first = number * rows
                writer = AcidWriter(partial(pa.OSFile, path, "wb"), path, columns, "zlib")
                writer.write(batch(w, first, rows, acid_schema(columns)))
                writer.close()
                (place / "_orc_acid_version").write_bytes(b"2")
                entry = recorded_file(Files.of(path)[0], path, "bucket_00000")
                txn.commit(
                    [
                        WriteReport.of(
                            name, where or None, Operation.INSERT, directory, Contents((entry,))
                        )
                    ]
                )
    return table


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
        return arrow_scan(
            warehouse.layout(lease.table(name), lease),
            lease.valid_write_ids(name),
            lease.valid_txns,
            where=where,
        )


def journal_bytes(table: Table) -> int:
    """Bytes that the commit of one file adds to the journal, without its begin."""
    machine, at = Machine(), Moment(10**12, 10**12)
    path = f"{table.location}/delta_0000001_0000001_0000/bucket_00000"
    entry = recorded_file(Files.of(path)[0], path, "bucket_00000")
    lock = LockRequest("default.t", LockType.SHARED_WRITE, Operation.INSERT)
    report = WriteReport.of(
        "default.t", None, Operation.INSERT, "delta_0000001_0000001_0000", Contents((entry,))
    )
    record = TableRecord(0, "default.t", "t", (("id", "int"),))
    machine.handle(CreateTable(record, if_not_exists=False), "1", at)
    who = ClientInfo("somebody", "somewhere")
    machine.handle(Begin(0, (lock,), 1, None, who, tables=()), "2", at)
    done = machine.handle(Commit(1, (report,)), "3", at)
    return sum(len(json.dumps(event.as_json(), separators=(",", ":"))) for event in done.events)


def count_calls() -> None:
    """Make all storage calls from now on go through `Counted`."""

    def of(location: str) -> tuple[Files, str]:
        return Files(Counted()), location

    Files.of = of  # type: ignore[method-assign]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    console, results = Console(), dict[str, Any]()
    with (
        TemporaryDirectory(prefix="acid-bench-") as place,
        Warehouse.open(Path(place, "wh")) as warehouse,
    ):
        tables = {
            shape: fill(warehouse, f"db.t{number}", *sizes, rows=100)
            for number, (shape, sizes) in enumerate(SHAPES.items())
        }
        size = journal_bytes(tables["1 delta"])
        count_calls()
        for shape, table in tables.items():
            results[shape] = {
                "plan": measured(partial(plan, warehouse, table.name, None), chosen.times),
                "plan, one file in the range": measured(
                    partial(plan, warehouse, table.name, "id = 5"), chosen.times
                ),
                "count()": measured(table.count, chosen.times),
            }
            console.print(shape, results[shape])
        console.print("bytes of a commit in the journal:", size)
        warehouse.metastore.stop()
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-planning.json",
        {"machine": machine(), "shapes": results, "journal bytes of a commit": size},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
