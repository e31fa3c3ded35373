"""ACID tables that a test writes file by file, without Spark.

Paths are in the notation of `tests.notation`: `d1` is `d1/bucket_00000`, `d1.1/bucket_00003_0` is
that file of statement 1, `o` is the original file 000000_0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
from pyarrow import orc, parquet

from acid_platform.compaction import execution as compaction
from acid_platform.compaction.execution import open_compaction
from acid_platform.compaction.plan import CompactionPlan, CompactionSettings, plan_compaction
from acid_platform.compaction.profiles import compare
from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.local.compact import LocalCompaction
from acid_platform.formats.file_access import recorded_file
from acid_platform.formats.orc import AcidWriter, acid_schema
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import VERSION_FILE
from acid_platform.layout.types import parse_columns
from acid_platform.scan import open as opening
from acid_platform.scan.open import Listings, TableLayout, chosen_partitions, result_of
from acid_platform.scan.scans import ArrowScan, Scan
from acid_platform.scan.selection import select
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from acid_platform.values.arrow_types import arrow_type
from tests.notation import names, txns, write_ids

P = 536870912
"""Bucket property of bucket 0, statement 0."""
B1, B2 = P + (1 << 16), P + (2 << 16)

Row = tuple[Any, ...]


def stored_rows(path: Path) -> list[Row]:
    """The values in a file of a table with keys, by readers of others; none for delete events."""
    if path.read_bytes()[:3] == b"ORC":
        with path.open("rb") as stream:
            return [event[-1] for event in pyorc.Reader(stream) if event[-1] is not None]
    rows = parquet.read_table(path, partitioning=None)
    own = [name for name in rows.column_names if not name.startswith("__")]
    return list(zip(*rows.select(own).to_pydict().values(), strict=True))


def contents_of(directory: Path) -> RecordedFiles:
    """The record of the files in a directory that a test wrote (P26)."""
    files, where = Files.of(str(directory))
    return RecordedFiles(
        tuple(
            recorded_file(
                files,
                f"{where}/{entry.name}",
                entry.name,
                deletes=directory.name.startswith("delete_"),
            )
            for entry in sorted(directory.iterdir())
            if not entry.name.startswith(("_", "."))
        )
    )


def listed(layout: TableLayout, where: str | None = None) -> Listings:
    """Lists the directories of a table that no metastore knows."""
    names = chosen_partitions(layout, where)
    found = layout.files.entities([layout.place(name) for name in names])
    return dict(zip(names, found, strict=True))


def open_scan(
    layout: TableLayout,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    where: str | None = None,
    listings: Listings | None = None,
) -> Scan:
    """A scan of files that are listed, unless a metastore has told of them."""
    found = listed(layout, where) if listings is None else listings
    return opening.open_scan(layout, found, write_ids, txns, where)


def arrow_scan(
    layout: TableLayout,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    row_id: bool = False,
    listings: Listings | None = None,
) -> ArrowScan:
    """What `to_arrow` runs, of such files."""
    names, predicate = result_of(layout, columns, where)
    return ArrowScan(open_scan(layout, write_ids, txns, where, listings), names, predicate, row_id)


"""originalTransaction, bucket property, rowId, then the values of the columns."""


def full(path: str) -> str:
    """`d1` → `delta_0000001_0000001_0000/bucket_00000`; `month=3/d1` works too."""
    parts = path.split("/")
    spelled = [part if "=" in part else names(part)[0] for part in parts]
    if parts[-1] == "o" or spelled[-1] == parts[-1]:
        return "/".join(spelled)
    return "/".join([*spelled, "bucket_00000"])


@dataclass(frozen=True)
class AcidTable:
    """A table below `root`."""

    root: Path
    columns: str = "v string"
    partitioned_by: str = ""
    insert_only: bool = False

    def inserts(
        self,
        path: str,
        rows: Sequence[Row],
        current: int | None = None,
        columns: str = "",
        operation: int = 0,
        **options: Any,
    ) -> AcidTable:
        """Writes an insert file; `current` None means the same as originalTransaction."""
        kinds = parse_columns(columns or self.columns)
        values = [
            {column.name: value for column, value in zip(kinds, row[3:], strict=True)}
            for row in rows
        ]
        return self._events(
            path,
            rows,
            values,
            [current or row[0] for row in rows],
            operation,
            columns or self.columns,
            options,
        )

    def written(self, path: str, *stripes: Sequence[Row]) -> AcidTable:
        """Writes an insert file with a key index, by our own writer: one stripe for each list."""
        columns, file = parse_columns(self.columns), self.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        target = acid_schema(columns)
        writer = AcidWriter(*Files.of(str(file)), columns, "zlib", stripe_bytes=1)
        for rows in stripes:
            w, b, r = ([row[i] for row in rows] for i in range(3))
            names = [column.name for column in columns]
            values = [dict(zip(names, row[3:], strict=True)) for row in rows]
            arrays = [[0] * len(rows), w, b, r, w, values]
            writer.write(pa.table(arrays, schema=target).combine_chunks().to_batches()[0])
        writer.close()
        return self

    def deletes(
        self,
        path: str,
        keys: Sequence[tuple[int, int, int]],
        current: int | Sequence[int],
        operation: int = 2,
        **options: Any,
    ) -> AcidTable:
        currents = [current] * len(keys) if isinstance(current, int) else list(current)
        return self._events(
            path, keys, [None] * len(keys), currents, operation, self.columns, options
        )

    def _events(
        self,
        path: str,
        keys: Sequence[Row],
        rows: Sequence[Mapping[str, Any] | None],
        current: Sequence[int],
        operation: int,
        columns: str,
        options: Mapping[str, Any],
    ) -> AcidTable:
        target = acid_schema(parse_columns(columns))
        w, b, r = ([key[i] for key in keys] for i in range(3))
        table = pa.table(
            [[operation] * len(keys), w, b, r, list(current), list(rows)], schema=target
        )
        return self._write(path, table, options)

    def raw(self, path: str, rows: Sequence[Any], columns: str = "", **options: Any) -> AcidTable:
        """Writes a file without ACID columns; a row of one column may be a bare value."""
        kinds = parse_columns(columns or self.columns)
        given = [row if isinstance(row, tuple) else (row,) for row in rows]
        target = pa.schema([(column.name, arrow_type(column.type)) for column in kinds])
        arrays = [pa.array([row[i] for row in given], field.type) for i, field in enumerate(target)]
        return self._write(path, pa.table(arrays, schema=target), options)

    def _write(self, path: str, table: pa.Table, options: Mapping[str, Any]) -> AcidTable:
        file = self.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        orc.write_table(table, str(file), **options)
        return self

    def marker(self, directory: str, name: str = VERSION_FILE, content: bytes = b"2") -> AcidTable:
        where = self.root / names(directory)[0]
        where.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(content)
        return self

    def file(self, path: str) -> Path:
        return self.root / full(path)

    # --- reading -------------------------------------------------------------------------------

    @property
    def layout(self) -> TableLayout:
        files, where = Files.of(str(self.root))
        keys = parse_columns(self.partitioned_by) if self.partitioned_by else ()
        partitions = files.partition_directories(where, len(keys)) if keys else []
        return TableLayout(
            "db.t",
            files,
            where,
            parse_columns(self.columns),
            keys,
            dict.fromkeys(partitions, ()),
            format=FileFormat(keyed=not self.insert_only),
        )

    def read(self, w: str = "99:M::", x: str = "", **options: Any) -> pa.Table:
        """What `to_arrow` returns for lists in the notation of tests/notation.py."""
        return arrow_scan(self.layout, write_ids(w), txns(x), **options).table()

    def count(self, w: str = "99:M::", x: str = "") -> int:
        """What `Table.count` returns."""
        return arrow_scan(self.layout, write_ids(w), txns(x), columns=[]).count()

    def values(self, w: str = "99:M::", x: str = "", **options: Any) -> list[Any]:
        """The first column, sorted, NULLs last."""
        found = self.read(w, x, **options).column(0).to_pylist()
        return sorted(found, key=lambda row: (row is None, row))

    def ids(self, w: str = "99:M::", x: str = "") -> list[tuple[int, int, int]]:
        found = self.read(w, x, row_id=True).column("row__id").to_pylist()
        return sorted((row_id["writeid"], row_id["bucketid"], row_id["rowid"]) for row_id in found)

    # --- compacting ----------------------------------------------------------------------------

    def compact(self, kind: str, w: str, txn_id: int = 50) -> CompactionPlan:
        """Plan and run a compaction with the local engine, and publish it."""
        layout = self.layout
        lists = write_ids(w).for_compactor()
        open_self = ValidTxnList.of(2000, open=[txn_id])
        directory = select(layout.files.entity(layout.path), lists, open_self)
        plan = plan_compaction(directory, CompactionKind(kind), lists, txn_id, CompactionSettings())
        assert isinstance(plan, CompactionPlan), str(plan)
        compact = open_compaction(plan, layout)
        staged = compaction.execute(LocalCompaction(compact), compact)
        assert not compare(staged.expected, staged.actual)
        compaction.publish(staged)
        return plan


def proven(scan: Scan) -> Scan:
    """The scan as if a commit had recorded its files, with the ranges of their row keys (P26)."""

    def recorded(source: SourceFile) -> SourceFile:
        if source.identity is not RowIdentity.STORED:
            return source
        name = source.path.rpartition("/")[2]
        entry = recorded_file(scan.files, source.path, name, length=source.length)
        rows = entry.footer.rows if entry.footer else None
        return replace(source, keys=entry.keys, rows=rows)

    return replace(
        scan,
        entities=tuple(
            replace(
                entity,
                sources=replace(
                    entity.sources, inserts=tuple(map(recorded, entity.sources.inserts))
                ),
            )
            for entity in scan.entities
        ),
    )


def read_keys(file: orc.ORCFile, path: str, with_current: bool = False) -> tuple[np.ndarray, ...]:
    """originalTransaction, bucket, rowId [, currentTransaction] of all rows, int64 arrays (n,)."""
    columns = file.acid_columns()[1 : 5 if with_current else 4]
    table = file.read(columns=columns)
    return tuple(table.column(name).to_numpy().astype(np.int64, copy=False) for name in columns)
