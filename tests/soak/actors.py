"""Writers and readers of the soak, each a process of its own; none has a JVM.

The table holds each id once. A writer replaces some rows of one partition (a delete and an insert
of the same id), so that whoever sees half of a transaction, or a row twice, sees it in the ids.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from acid_platform import Warehouse, WriteConflict
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.scan.open import chosen_partitions
from acid_platform.tables.record_layout import recorded_listings, table_layout
from acid_platform.transactions import RowOperation
from tests.acid_files import AcidTable, P, arrow_scan, contents_of

TABLE, COLUMNS = "db.soak", "id int, version int"
PARTITIONS, IDS = 4, 500
"""The number of partitions, and of ids in each."""


def write(metastore: Metastore, random: Random, name: str, share: int) -> None:
    """One transaction that replaces `share` rows; 1 in 30 dies and leaves its files."""
    record = metastore.table(TABLE)
    with metastore.begin() as txn:
        txn.lock(TABLE, "SHARED_WRITE", operation=RowOperation.UPDATE, partition=name)
        w = txn.write_ids[TABLE]
        layout, where = table_layout(record, txn), name.replace("=", " = ")
        lists = txn.valid_write_ids(TABLE), txn.valid_txns
        files = recorded_listings(layout, txn, chosen_partitions(layout, where))
        found = arrow_scan(layout, *lists, where=where, row_id=True, listings=files)
        rows = random.sample(found.table().to_pylist(), share)
        keys = sorted(
            (row["row__id"]["writeid"], row["row__id"]["bucketid"], row["row__id"]["rowid"])
            for row in rows
        )
        files = AcidTable(Path(record.location, name), COLUMNS)
        files.deletes(f"D{w}", keys, w)
        if random.random() < 1 / 30:
            txn.abort()
            return
        files.inserts(
            f"d{w}",
            [(w, P, number, row["id"], row["version"] + 1) for number, row in enumerate(rows)],
        )
        txn.commit(
            CommitContents(
                tuple(
                    report(files, name, f"{kind}_{w:07d}_{w:07d}_0000", operation)
                    for kind, operation in (
                        ("delete_delta", RowOperation.DELETE),
                        ("delta", RowOperation.INSERT),
                    )
                )
            )
        )


def report(
    files: AcidTable, partition: str, directory: str, operation: RowOperation
) -> WriteReport:
    return WriteReport(TABLE, partition, operation, directory, contents_of(files.root / directory))


def writer(place: str, seed: int, until: float) -> int:
    random, written = Random(seed), 0
    with Warehouse.open(place) as warehouse:
        while time.time() < until:
            with suppress(WriteConflict):
                partition = f"p={random.randrange(PARTITIONS)}"
                write(warehouse.metastore, random, partition, random.randint(1, 20))
                written += 1
            time.sleep(random.uniform(0.3, 1.2))
    return written


def reader(place: str, seed: int, until: float) -> int:
    """Holds snapshots for some seconds; each read returns the same rows, every id once."""
    random, read = Random(seed), 0
    with Warehouse.open(place) as warehouse:
        while time.time() < until:
            with warehouse.snapshot() as snapshot:
                first = None
                for _ in range(random.randint(1, 6)):
                    rows = snapshot.table(TABLE).to_arrow().to_pylist()
                    found = sorted((row["p"], row["id"], row["version"]) for row in rows)
                    assert [row[:2] for row in found] == [
                        (p, number) for p in range(PARTITIONS) for number in range(IDS)
                    ], "an id is missing, or there twice"
                    assert first in (None, found), "a held snapshot has changed"
                    first, read = found, read + 1
                    time.sleep(random.uniform(0.2, 1.5))
    return read


def main() -> None:
    role, place, seed, until = sys.argv[1:]
    done = (writer if role == "writer" else reader)(place, int(seed), float(until))
    print(f"{role} {seed}: {done}")


if __name__ == "__main__":
    main()
