"""Writing one output file of a compaction from the files of one bucket (F21).

This runs inside Spark tasks or in the local engine's threads, and imports no engine. Memory: what
`compaction.key_merge` holds, the delete keys, and one stripe of the output, or two if a pool of
threads encodes it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyarrow.fs import FileType

from acid_platform.compaction.key_merge import Decoding, SortedFile, changes, merged_pieces
from acid_platform.compaction.validation import Profile
from acid_platform.compaction.value_sums import ValueSums
from acid_platform.errors import CompactionMismatch
from acid_platform.formats.data_file import WideTimestamps
from acid_platform.formats.file_access import new_file, refuse_finer
from acid_platform.formats.keyed import Keyed, in_key_order
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.schema import is_positional
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import DeletedRows, load_keys, valid_ids
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import arrow_schema
from acid_platform.values.stored_values import as_declared


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One output file of a compaction and everything that it is made of; sent to an executor."""

    location: str
    """A path or URI that names the warehouse's file system."""
    inputs: tuple[SourceFile, ...]
    deletes: tuple[SourceFile, ...]
    """Delete files whose events are applied: rows with these keys are dropped.

    A minor compaction applies only deletes of rows that were inserted under the same write id.
    Its output has no statement ids to order the two events, so Hive 2 would return the row; and no
    snapshot sees the insert without the delete.
    """
    output: str
    columns: tuple[Column, ...]
    high_watermark: int
    aborted: tuple[int, ...]
    compression: str
    delete_events: bool = False
    """The inputs are files of delete deltas, in which `row` is NULL."""
    minor: bool = False
    most_inputs: int = 500
    """Files to merge at once; more inputs are first merged in groups of this size (C34)."""

    timestamps: str = "ns"
    """Unit of timestamps in memory; `us`, Spark's own, if an input has years after 2262."""

    summed: bool = True
    """Return checksums of the values."""
    before: tuple[str, ...] = ()
    """All columns of the table while the inputs were written; empty: `columns`."""
    sources: tuple[str, ...] = ()
    """Which of `before` each of `columns` is; empty: the one of its name."""

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.delete_events, self.timestamps)

    @property
    def write_ids(self) -> ValidWriteIdList:
        return ValidWriteIdList.of("", self.high_watermark, aborted=self.aborted)


def _conform(rows: Keyed, kinds: pa.Schema, rewrite: Rewrite, path: str) -> Keyed:
    """The rows with the columns of the output; each is found by its name in the input, and NULL if
    it is missing there."""
    if rows.values is None:
        return rows
    names = rows.values.schema.names
    written = tuple(column.name for column in rewrite.columns)
    present = {
        name: i
        for i, name in enumerate(
            (rewrite.before or written)
            if is_positional(names)
            else (name.lower() for name in names)
        )
        if i < len(names)
    }
    sources = rewrite.sources or written
    columns = [
        pa.nulls(len(rows), kind.type)
        if source not in present
        else as_declared(
            rows.values.column(present[source]),
            column.type,
            f"{path}, column {source}",
            rewrite.timestamps,
        )
        for column, source, kind in zip(rewrite.columns, sources, kinds, strict=True)
    ]
    return replace(rows, values=pa.RecordBatch.from_arrays(columns, schema=kinds))


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a rewrite wrote; all zero if no row was left."""

    rows: int = 0
    file: FileEntry | None = None
    """The record of the output file; None if no row was left."""
    values: Profile = field(default_factory=Profile)
    """Checksums of the column values as they were read, if they were wanted; empty for delete
    events."""


def rewrite_bucket(rewrite: Rewrite, pool: Executor | None = None) -> Rewritten:
    """Write the output file, or no file if no row is left.

    `pool` encodes its columns; without one, this thread does.
    Every event keeps its row key and its currentTransaction (F21). Raises CorruptFile for inputs
    that can't be read, CompactionMismatch if an intermediate merge changed a value, and
    CompactionRefused if some timestamps have nanoseconds and others lie outside the years that
    nanoseconds can hold.
    """
    files, _ = Files.of(rewrite.location)
    try:
        return _rewrite(files, rewrite, pool)
    except WideTimestamps:
        for source in rewrite.inputs:
            refuse_finer(files, source.path, length=source.length)
        return _rewrite(files, replace(rewrite, timestamps="us"), pool)


def written_values(rewrite: Rewrite) -> Profile:
    """Checksums of the column values read back from the output file. Raises CorruptFile."""
    files, _ = Files.of(rewrite.location)
    try:
        return _values_in(files, rewrite)
    except WideTimestamps:
        return _values_in(files, replace(rewrite, timestamps="us"))


def _values_in(files: Files, rewrite: Rewrite) -> Profile:
    sums = ValueSums([column.name for column in rewrite.columns])
    kinds, rewrite = arrow_schema(rewrite.columns, rewrite.timestamps), _as_written(rewrite)
    if files.system.get_file_info(rewrite.output).type is FileType.File:
        for rows in changes(files, _written(rewrite.output), rewrite.decoding):
            sums.add(_conform(rows, kinds, rewrite, rewrite.output).values)
    return sums.profile()


def _as_written(rewrite: Rewrite) -> Rewrite:
    """The rewrite for files that it has written itself."""
    return replace(rewrite, before=(), sources=())


def _rewrite(files: Files, rewrite: Rewrite, pool: Executor | None) -> Rewritten:
    if len(rewrite.inputs) <= rewrite.most_inputs:
        return _merge(files, rewrite, pool)
    where, _, name = rewrite.output.rpartition("/")
    count, most = len(rewrite.inputs), rewrite.most_inputs
    stages: list[SourceFile] = []
    try:
        for start in range(0, count, most):
            group = rewrite.inputs[start : start + most]
            # Hidden, so no reader sees it; `count` differs from that of the stages merged here.
            stage = _written(f"{where}/_stage_{name}_{count}_{start}")
            stages.append(stage)
            first = replace(rewrite, inputs=group, deletes=(), output=stage.path, summed=True)
            made = _merge(files, first, pool)
            if not made.rows:
                stages.pop()
            elif not rewrite.delete_events and _values_in(files, first) != made.values:
                raise CompactionMismatch(
                    f"{stage.path} has other values than the files merged into it; the inputs were"
                    " kept: run the compaction again, and report it if it fails again"
                )
        merged = replace(_as_written(rewrite), inputs=tuple(stages))
        return _rewrite(files, merged, pool)
    finally:
        for stage in stages:
            files.delete_file(stage.path)


def _written(path: str) -> SourceFile:
    """A file that this compaction has written."""
    return SourceFile(path, RowIdentity.STORED, 0, "", 0, 0)


def _merge(files: Files, rewrite: Rewrite, pool: Executor | None) -> Rewritten:
    sorted_files = [SortedFile(files, source, rewrite.decoding) for source in rewrite.inputs]
    keys = load_keys(
        files,
        rewrite.deletes,
        rewrite.write_ids,
        own=rewrite.minor,
        buckets=set().union(*(file.buckets for file in sorted_files)),
    )
    deleted = DeletedRows(keys) if len(keys) else None
    kinds = arrow_schema(rewrite.columns, rewrite.timestamps)
    summed = rewrite.summed and not rewrite.delete_events
    values = ValueSums([column.name for column in rewrite.columns] if summed else [])
    writer = new_file(
        files,
        rewrite.output,
        rewrite.columns,
        None,
        rewrite.compression,
        rewrite.delete_events,
        pool=pool,
    )
    try:
        for group in merged_pieces(sorted_files):
            parts = []
            for rows, source in group:
                keep = valid_ids(rows.makers(), rewrite.write_ids)
                if source.above >= 0:
                    keep &= rows.makers() > source.above
                if deleted is not None:
                    keep &= deleted.survivors(*rows.ids)
                if keep.any():
                    kept = rows if keep.all() else rows.chosen(keep)
                    parts.append(_conform(kept, kinds, rewrite, source.path))
                    if summed:
                        values.add(parts[-1].values)
            for made in in_key_order(parts) if len(parts) > 1 else parts:
                writer.put(made)
        count = writer.close()
    except BaseException:
        writer.give_up()
        raise
    name = rewrite.output.rpartition("/")[2]
    record = writer.record(name) if count else None
    return Rewritten(count, record, values.profile())
