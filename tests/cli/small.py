"""A warehouse with a table whose deltas are written without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyorc
from click.testing import CliRunner, Result

from acid_platform.cli.main import main
from acid_platform.formats.orc import user_metadata
from acid_platform.layout.acid_keys import RowKey
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation
from tests.acid_files import contents_of

ACID = (
    "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
    "currentTransaction:bigint,row:struct<id:int,v:string>>"
)
BUCKET = 536870912

Event = tuple[int, int, int, int, int, tuple[int, str] | None]


@dataclass(frozen=True, slots=True)
class Small:
    """`db.t`, or another name: id int, v string."""

    path: Path
    metastore: Metastore
    name: str = "db.t"

    @property
    def table(self) -> Path:
        database, _, table = self.name.partition(".")
        return self.path / f"{database}.db" / table

    def acid(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--warehouse", str(self.path)])

    def insert(self, *rows: tuple[int, str], partition: str | None = None) -> int:
        """Commits a delta of the rows and returns its write id."""
        return self.write(
            lambda w: [(0, w, BUCKET, number, w, row) for number, row in enumerate(rows)],
            partition=partition,
        )

    def write(
        self,
        events: Callable[[int], Sequence[Event]],
        deletes: bool = False,
        file: str = "bucket_00000",
        partition: str | None = None,
        index: Sequence[RowKey] | None = None,
    ) -> int:
        """Commits a directory of one file with these events of a write id, whatever they are."""
        with self.metastore.begin() as txn:
            txn.lock(self.name, "SHARED_WRITE", operation=RowOperation.UPDATE)
            write_id = txn.write_ids[self.name]
            name = f"{'delete_' if deletes else ''}delta_{write_id:07d}_{write_id:07d}_0000"
            rows = events(write_id)
            write_events(self.table / (partition or "") / name, rows, file, index)
            txn.commit(
                CommitContents(
                    (
                        WriteReport(
                            self.name,
                            partition,
                            RowOperation.INSERT,
                            name,
                            contents_of(self.table / (partition or "") / name),
                        ),
                    )
                )
            )
        return write_id


def write_delta(directory: Path, write_id: int, rows: tuple[tuple[int, str], ...]) -> int:
    return write_events(
        directory, [(0, write_id, BUCKET, number, write_id, row) for number, row in enumerate(rows)]
    )


def write_events(
    directory: Path,
    events: Sequence[Event],
    file: str = "bucket_00000",
    index: Sequence[RowKey] | None = None,
) -> int:
    """An ACID directory with one file, and the file's size; `index` is a wrong key index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_orc_acid_version").write_bytes(b"2")
    target = directory / file
    with target.open("wb") as stream, pyorc.Writer(stream, ACID) as writer:
        for event in events:
            writer.write(event)
        ends = [events[-1][1:4]] if index is None else index
        if ends:
            writer.set_user_metadata(**user_metadata(ends, len(events), 0))
    return target.stat().st_size
