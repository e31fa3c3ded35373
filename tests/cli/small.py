"""A warehouse with one table, whose deltas are written without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyorc
from click.testing import CliRunner, Result

from acid_platform.cli import main
from acid_platform.layout import schema
from acid_platform.metastore import Metastore, WriteReport
from acid_platform.transactions import Operation

ACID = ("struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
        "currentTransaction:bigint,row:struct<id:int,v:string>>")
BUCKET = 536870912


@dataclass(frozen=True, slots=True)
class Small:
    """`db.t`: id int, v string."""

    path: Path
    metastore: Metastore

    @property
    def table(self) -> Path:
        return self.path / "db.db" / "t"

    def acid(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--warehouse", str(self.path)])

    def insert(self, *rows: tuple[int, str]) -> int:
        """Commits a delta of the rows and answers its write id."""
        with self.metastore.begin() as txn:
            txn.lock("db.t", "SHARED_WRITE", operation=Operation.INSERT)
            write_id = txn.write_ids["db.t"]
            name = f"delta_{write_id:07d}_{write_id:07d}_0000"
            size = write_delta(self.table / name, write_id, rows)
            txn.commit([WriteReport("db.t", None, Operation.INSERT, name, len(rows), size, 1)])
        return write_id


def write_delta(directory: Path, write_id: int, rows: tuple[tuple[int, str], ...]) -> int:
    directory.mkdir(parents=True)
    (directory / "_orc_acid_version").write_bytes(b"2")
    file = directory / "bucket_00000"
    with file.open("wb") as stream, pyorc.Writer(stream, ACID) as writer:
        for number, row in enumerate(rows):
            writer.write((0, write_id, BUCKET, number, write_id, row))
        ends = [(write_id, BUCKET, len(rows) - 1)]
        writer.set_user_metadata(**schema.user_metadata(ends, len(rows), 0))
    return file.stat().st_size
