"""`python -m tests.crash.workload ROOT STATES KIND [LEFT_OUT]`: commits, each told to the recorder.

Below ROOT is the warehouse. STATES becomes a JSON list: the rows of all tables after each step.
KIND `small` needs no Spark and writes through the publication alone, `spark` runs every statement.
LEFT_OUT names what is not synced, so that a test can see that this is found.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform import AcidError, Warehouse
from acid_platform.formats.orc import AcidWriter, acid_schema
from acid_platform.layout.names import parse_directory
from acid_platform.layout.types import parse_columns
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.services import cleaner
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import contents_of

COLUMNS = "id int, v string"
Step = tuple[str, Callable[[], object]]


def rows_of(warehouse: Warehouse) -> dict[str, list[list[Any]]]:
    """The rows of every table, sorted."""
    return {
        name: sorted([*row.values()] for row in warehouse.table(name).to_arrow().to_pylist())
        for name in warehouse.tables()
    }


def put(
    warehouse: Warehouse, table: str, ids: Sequence[int], partition: str = "", abort: bool = False
) -> None:
    """An INSERT without Spark: one staged delta, published and committed, or aborted."""
    from acid_platform.storage import durability

    record = warehouse.metastore.table(table)
    begun = warehouse.metastore.begin(
        info=warehouse.info(),
        locks=[LockRequest(table, LockType.SHARED_READ, RowOperation.INSERT, partition or None)],
    )
    write_id = begun.write_ids[table]
    name = f"delta_{write_id:07d}_{write_id:07d}_0000"
    staged = f"{record.location}/_tmp_{begun.id:07d}_{uuid.uuid4().hex[:8]}/{name}"
    files, columns = warehouse.files, parse_columns(COLUMNS)
    files.make_directory(staged)
    path = f"{staged}/bucket_00000"
    writer = AcidWriter(files, path, columns, "zlib")
    writer.write(
        pa.RecordBatch.from_arrays(
            [
                pa.array([0] * len(ids), pa.int32()),
                pa.array([write_id] * len(ids)),
                pa.array([1 << 29] * len(ids), pa.int32()),
                pa.array([*range(len(ids))]),
                pa.array([write_id] * len(ids)),
                pa.array(
                    [{"id": row_key, "v": f"v{row_key}"} for row_key in ids],
                    acid_schema(columns).field(5).type,
                ),
            ],
            schema=acid_schema(columns),
        )
    )
    writer.close()
    files.write(f"{staged}/_orc_acid_version", b"2")
    place = f"{record.location}/{partition}/{name}".replace("//", "/")
    durability.publish(files, record.location, [(staged, place)])
    files.delete_directory(staged.rpartition("/")[0])
    if abort:
        begun.abort("meant to")
    else:
        begun.commit(
            CommitContents(
                (
                    WriteReport(
                        table,
                        partition or None,
                        RowOperation.INSERT,
                        name,
                        contents_of(Path(place)),
                    ),
                )
            )
        )


def clean(warehouse: Warehouse) -> None:
    warehouse.release()
    for done in cleaner.run(warehouse.metastore):
        assert not done.error, done


def restart(warehouse: Warehouse) -> None:
    """The metastore writes a snapshot, ends, and is started again by the next request."""
    warehouse.release()
    warehouse.metastore.stop()


def save(warehouse: Warehouse) -> None:
    """A process of its own writes a snapshot, and the metastore forgets what it replaces."""
    metastore = warehouse.metastore
    before = metastore.status()["snapshots"]
    metastore.set("acid.metastore.snapshot.bytes", "1")
    deadline = time.monotonic() + 60
    while metastore.status()["snapshots"] == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    metastore.set("acid.metastore.snapshot.bytes", str(1 << 30))


def small(warehouse: Warehouse) -> Iterator[Step]:
    made = warehouse.create_table
    yield "create t", lambda: made("db.t", COLUMNS)
    yield "create p", lambda: made("db.p", COLUMNS, partitioned_by=["m int"])
    yield "insert", lambda: put(warehouse, "db.t", [1, 2])
    yield "insert into a partition", lambda: put(warehouse, "db.p", [3], "m=0")
    yield "insert into another", lambda: put(warehouse, "db.p", [4, 5], "m=1")
    yield "abort", lambda: put(warehouse, "db.t", [6], abort=True)
    yield "save", lambda: save(warehouse)
    yield "clean the aborted", lambda: clean(warehouse)
    yield "truncate", lambda: warehouse.table("db.t").truncate()
    yield "insert again", lambda: put(warehouse, "db.t", [7])
    yield "restart", lambda: restart(warehouse)
    yield "insert after it", lambda: put(warehouse, "db.t", [8])
    yield "drop", lambda: warehouse.drop_table("db.p")
    yield "clean the dropped", lambda: clean(warehouse)


def spark(warehouse: Warehouse) -> Iterator[Step]:
    t, u = "db.t", "db.u"
    table = warehouse.table
    rows = [{"id": i, "v": f"v{i}", "m": i % 2} for i in range(6)]
    yield "create t", lambda: warehouse.create_table(t, COLUMNS, partitioned_by=["m int"])
    yield "create u", lambda: warehouse.create_table(u, COLUMNS)
    yield (
        "create o",
        lambda: warehouse.create_table(
            "db.o", COLUMNS, properties={"transactional_properties": "insert_only"}
        ),
    )
    yield "insert into partitions", lambda: table(t).insert(rows)
    yield "insert", lambda: table(u).insert([{"id": 10, "v": "x"}, {"id": 11, "v": "y"}])
    yield "insert-only", lambda: table("db.o").insert([{"id": 1, "v": "plain"}])
    yield "delete", lambda: table(t).delete("id = 1")
    yield "update", lambda: table(t).update({"v": "upper(v)"}, "id > 3")
    yield (
        "overwrite a partition",
        lambda: table(t).overwrite([{"id": 20, "v": "new", "m": 1}], "m=1"),
    )

    def both() -> None:
        with warehouse.transaction() as txn:
            txn.table(t).insert([{"id": 30, "v": "both", "m": 2}])
            txn.table(u).delete("id = 10")

    yield "two tables", both

    def aborted() -> None:
        txn = warehouse.transaction()
        txn.table(u).insert([{"id": 99, "v": "never"}])
        txn.abort("meant to")

    yield "abort", aborted
    yield "insert once more", lambda: table(u).insert([{"id": 12, "v": "z"}])
    yield "major", lambda: table(t).compact("major", partition="m=0")
    yield "minor", lambda: table(u).compact("minor")
    yield "save", lambda: save(warehouse)
    yield "clean", lambda: clean(warehouse)
    yield "clean again", lambda: clean(warehouse)
    yield (
        "merge",
        lambda: table(u).merge(
            [{"id": 12, "v": "m"}, {"id": 13, "v": "n"}],
            "t.id = s.id",
            when_matched_update={"v": "s.v"},
            when_not_matched_insert="*",
        ),
    )
    yield "truncate", lambda: table(u).truncate()
    yield (
        "overwrite by nothing",
        lambda: table(t).overwrite(
            warehouse.spark.createDataFrame([], "id int, v string, m int"), "m=1"
        ),
    )
    yield "restart", lambda: restart(warehouse)
    yield "insert after it", lambda: table(u).insert([{"id": 14, "v": "after"}])
    yield "drop", lambda: warehouse.drop_table("db.o")
    yield "clean the dropped", lambda: clean(warehouse)


def leave_out(what: str) -> None:
    """Disables some syncs, as in a program with that fault."""
    from acid_platform.base import local_files

    real = local_files.sync_path

    def sync_path(path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        kind = (
            "files"
            if not os.path.isdir(name)
            else ("published" if parse_directory(os.path.basename(name)) else "parents")
        )
        if what not in ("all", kind):
            real(path)

    local_files.sync_path = sync_path


def main(root: str, states: str, kind: str, left_out: str = "") -> None:
    if left_out:
        leave_out(left_out)
    mark = getattr(ctypes.CDLL(None), "crash_mark", lambda text: None)
    told: list[dict[str, list[list[Any]]]] = []
    with Warehouse.open(f"{root}/wh") as warehouse:
        for number, (name, step) in enumerate({"small": small, "spark": spark}[kind](warehouse)):
            mark(f"begin {number} {name}".encode())
            step()
            mark(f"done {number} {name}".encode())
            told.append(rows_of(warehouse))
            warehouse.release()
        with suppress(AcidError):
            warehouse.metastore.stop()
    Path(states).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
