"""Writing one output file of a compaction from the files of one bucket (F21).

Rows of several files are merged in key order, streamed through Arrow batch by batch. Where files do
not overlap, batches pass through as they are; where they do, each piece ends at the smallest last
key of the batches in hand.

This runs inside Spark tasks or in the local engine's threads, and imports no engine. Memory: two
batches for each file that overlaps, the delete keys, and one stripe of the output, or two if a pool
of threads encodes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter

import numpy as np
import pyarrow as pa
from pyarrow.fs import FileType

from acid_platform.compaction.profiles import Profile, ValueSums
from acid_platform.errors import CompactionMismatch, CompactionRefused
from acid_platform.formats.data_file import Keyed, KeyRun, WideTimestamps, in_key_order
from acid_platform.formats.field_ids import column_places
from acid_platform.formats.file_access import new_file, open_file, reading, refuse_finer
from acid_platform.layout.acid_keys import RowKey, ascend
from acid_platform.layout.file_entries import FileEntry, is_positional
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import DeletedRows, load_keys, valid_ids
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import arrow_schema, has_ancient, keeps_codes, plain
from acid_platform.values.stored_values import are_exact, as_declared


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the rows of the files are read."""

    delete_events: bool = False
    """All files hold delete events; otherwise all hold inserted rows."""
    timestamps: str = "ns"
    """Unit of timestamps: `ns` is fast, `us` also holds years after 2262."""


def changes(
    files: Files, source: SourceFile, decoding: Decoding, values: bool = True
) -> Iterator[Keyed]:
    """All rows of a file with stored keys, in file order. Raises as `DataFile.changes`."""
    run = None
    if source.identity is RowIdentity.RUN:
        run = KeyRun(source.write_id, source.bucket, source.first_row_id)
    with reading(source.path):
        file = open_file(files, source)
    for rows in file.changes(run, decoding.delete_events, decoding.timestamps, values):
        yield rows.stored()


def _refuse_other_calendar(rows: Keyed, path: str) -> None:
    """Raises CompactionRefused for days that a file of another format would number otherwise."""
    if rows.values is not None and any(map(has_ancient, rows.values.columns)):
        raise CompactionRefused(
            f"{path} has days before 15 October 1582, which a compaction does not copy into a file"
            " of another format; write the rows by INSERT OVERWRITE … SELECT"
        )


def _last(rows: Keyed) -> RowKey:
    w, b, r = rows.ids
    return int(w[-1]), int(b[-1]), int(r[-1])


def _not_above(rows: Keyed, bound: RowKey) -> int:
    """How many of the sorted keys are at or below `bound`."""
    w, b, r = rows.ids
    within_bucket = (b < bound[1]) | ((b == bound[1]) & (r <= bound[2]))
    return int(np.count_nonzero((w < bound[0]) | ((w == bound[0]) & within_bucket)))


class SortedFile:
    """The rows of one file in key order; holds one batch at a time.

    Opening it reads all keys once, unless its record tells them: `buckets` are the bucket
    properties of its rows. Raises what `changes` raises.
    """

    def __init__(self, files: Files, source: SourceFile, decoding: Decoding) -> None:
        self.files, self.source, self.decoding = files, source, decoding
        self.first: RowKey | None = None
        self.ascending = True
        self.buckets: set[int] = set()
        self.batches: Iterator[Keyed] = iter(())
        self.batch: Keyed | None = None
        known = source.keys if source.length is None else None
        if known is not None and known.without_gaps(source.rows):
            self.first = (known.write_ids[0], known.buckets[0], known.row_ids[0])
            self.buckets = {known.buckets[0]}
            return
        previous: RowKey | None = None
        for batch in changes(files, source, decoding, values=False):
            w, b, r = batch.ids
            self.buckets |= {int(b[0])} if b.min() == b.max() else set(np.unique(b).tolist())
            at, end = 0, len(r) - 1
            if not ascend(w, b, r):
                order = np.lexsort((r, b, w))
                self.ascending &= bool((np.diff(order) > 0).all())
                at, end = order[0], order[-1]
            least = int(w[at]), int(b[at]), int(r[at])
            self.ascending &= previous is None or previous <= least
            previous = int(w[end]), int(b[end]), int(r[end])
            self.first = least if self.first is None else min(self.first, least)

    def start(self) -> None:
        self.batches = changes(self.files, self.source, self.decoding)
        if not self.ascending and self.source.format == "parquet":  # it is sorted by columns
            from acid_platform.compaction.sorted_rows import in_order  # and DuckDB

            self.batches = in_order(self.batches)
        elif not self.ascending:  # older compactions sorted by bucket first: sort the whole file
            self.batches = in_key_order(list(self.batches))
        self.fill()

    def fill(self) -> None:
        self.batch = next(self.batches, None)

    def take(self, bound: RowKey) -> Keyed | None:
        """The next rows at or below `bound`; None if the batch has none."""
        assert self.batch is not None
        count = _not_above(self.batch, bound)
        if not count:
            return None
        taken = self.batch
        if count == len(taken):
            self.fill()
        else:
            taken, self.batch = taken.chosen(slice(0, count)), taken.chosen(slice(count, None))
        return taken


def merged_pieces(files: Sequence[SortedFile]) -> Iterator[list[tuple[Keyed, SourceFile]]]:
    """A k-way merge in pieces in key order: each is a list of rows and their file, still to be
    merged.

    All keys of a piece are below those of the next one.
    """
    waiting = sorted(
        ((file.first, file) for file in files if file.first is not None),
        key=itemgetter(0),
        reverse=True,
    )
    active: list[SortedFile] = []
    while waiting or active:
        bound = min((_last(file.batch) for file in active if file.batch), default=None)
        while waiting and (bound is None or waiting[-1][0] <= bound):
            _, file = waiting.pop()
            file.start()
            active.append(file)
            bound = min(_last(each.batch) for each in active if each.batch)
        assert bound is not None
        group = [(rows, file.source) for file in active if (rows := file.take(bound)) is not None]
        active = [file for file in active if file.batch is not None]
        yield group


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
    format: FileFormat = ACID_FORMAT
    """What the output is written in."""
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
    sorted_by: tuple[str, ...] = ()
    """The columns by which rows are sorted; empty: they are in the order of their keys (F7)."""

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.delete_events, self.timestamps)

    @property
    def write_ids(self) -> ValidWriteIdList:
        return ValidWriteIdList.of("", self.high_watermark, aborted=self.aborted)


def _conform(rows: Keyed, kinds: pa.Schema, rewrite: Rewrite, path: str) -> Keyed:
    """The rows with the columns of the output; each is found by its id or its name in the input,
    and NULL if it is missing there."""
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
    if by_id := column_places(rows.values.schema):
        present = {
            source: by_id[column.id]
            for column, source in zip(rewrite.columns, sources, strict=True)
            if column.id in by_id
        }
    columns = list[pa.Array]()
    for column, source, kind in zip(rewrite.columns, sources, kinds, strict=True):
        if source not in present:
            columns.append(pa.nulls(len(rows), kind.type))
            continue
        values = rows.values.column(present[source])
        if not (keeps_codes(values.type, column.type) and rewrite.format.name == "parquet"):
            where = f"{path}, column {source}"
            values = as_declared(plain(values), column.type, where, rewrite.timestamps)
        columns.append(values)
    fields = zip(kinds, columns, strict=True)
    schema = pa.schema([kind.with_type(column.type) for kind, column in fields])
    return replace(rows, values=pa.RecordBatch.from_arrays(columns, schema=schema))


def _plain(rows: Keyed) -> Keyed:
    """The rows without dictionaries, which differ from file to file."""
    if rows.values is None:
        return rows
    columns = {
        name: plain(column)
        for name, column in zip(rows.values.schema.names, rows.values.columns, strict=True)
    }
    return replace(rows, values=pa.RecordBatch.from_pydict(columns))


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
            refuse_finer(files, source.path, source.format, source.length)
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
        for rows in changes(files, _written(rewrite, rewrite.output), rewrite.decoding):
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
            stage = _written(rewrite, f"{where}/_stage_{name}_{count}_{start}")
            stages.append(stage)
            first = replace(rewrite, inputs=group, deletes=(), output=stage.path, summed=True)
            first = replace(first, sorted_by=())
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


def _written(rewrite: Rewrite, path: str) -> SourceFile:
    """A file that this compaction has written."""
    return SourceFile(path, RowIdentity.STORED, 0, "", 0, 0, format=rewrite.format.name)


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
    read = partial(changes, files, decoding=rewrite.decoding)
    kinds = arrow_schema(rewrite.columns, rewrite.timestamps)
    summed = rewrite.summed and not rewrite.delete_events
    values = ValueSums([column.name for column in rewrite.columns] if summed else [])
    exact = {True}
    writer = new_file(
        files,
        rewrite.output,
        rewrite.columns,
        rewrite.format,
        rewrite.compression,
        rewrite.delete_events,
        pool=pool,
        by_columns=bool(rewrite.sorted_by),
    )

    def every_row() -> Iterator[Keyed]:
        """In the order of their keys, unless they will be sorted."""
        alone = ([(rows, source)] for source in rewrite.inputs for rows in read(source))
        for group in alone if rewrite.sorted_by else merged_pieces(sorted_files):
            parts = []
            for rows, source in group:
                keep = valid_ids(rows.makers(), rewrite.write_ids)
                if source.above >= 0:
                    keep &= rows.makers() > source.above
                if deleted is not None:
                    keep &= deleted.survivors(*rows.ids)
                if keep.any():
                    kept = rows if keep.all() else rows.chosen(keep)
                    if source.format != rewrite.format.name:
                        _refuse_other_calendar(kept, source.path)
                    parts.append(_conform(kept, kinds, rewrite, source.path))
                    made_of = parts[-1].values
                    exact.add(source.exact or made_of is None or are_exact(made_of))
                    if summed:
                        values.add(made_of)
            yield from in_key_order(list(map(_plain, parts))) if len(parts) > 1 else parts

    try:
        names = [column.name for column in rewrite.columns]
        order = [names.index(name) for name in rewrite.sorted_by]
        found = every_row()
        if order:
            from acid_platform.compaction.sorted_rows import in_order  # and DuckDB

            found = in_order(found, order)
        for made in found:
            writer.put(made)
        count = writer.close()
    except BaseException:
        writer.give_up()
        raise
    name = rewrite.output.rpartition("/")[2]
    record = writer.record(name) if count else None
    if record and record.footer:
        record = replace(record, footer=replace(record.footer, exact=all(exact)))
    return Rewritten(count, record, values.profile())
