"""Merging ACID files of one bucket into one file, streaming through Arrow (spark.md section 4b).

This runs inside Spark tasks and imports neither Spark nor anything of the driver. Rows leave in
(originalTransaction, bucket, rowId) order without a sort where inputs do not overlap, and with a
merge, batch by batch, where they do. Memory: two batches per overlapping input, a stripe of the
output, and the delete keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc
from pyarrow.fs import FileType

from acid_platform.compaction.validation import Profile
from acid_platform.errors import CompactionMismatch, UnsupportedLayout
from acid_platform.layout import schema
from acid_platform.layout.schema import RowKey
from acid_platform.layout.types import Column
from acid_platform.snapshot.sources import Source, SourceKind
from acid_platform.storage.arrow_types import conform
from acid_platform.storage.calendars import refuse_gregorian
from acid_platform.storage.deletes import DeletedRows, load_keys, require_operation, valid_ids
from acid_platform.storage.files import Files
from acid_platform.storage.fractions import refuse_finer
from acid_platform.storage.orc import (
    acid_columns,
    ascend,
    beyond_nanoseconds,
    open_orc,
    read_batches,
    read_stripe,
    reading,
)
from acid_platform.storage.orc_writer import AcidWriter, acid_schema
from acid_platform.storage.sources import is_positional
from acid_platform.storage.values import ValueSums
from acid_platform.transactions import ValidWriteIdList


@dataclass(frozen=True, slots=True)
class Input:
    """One file to merge. Rows with currentTransaction at or below `above` are dropped."""

    path: str
    above: int = -1
    length: int | None = None
    """Only so many bytes count (storage.md section 3.4)."""
    first: RowKey | None = None
    """Of a file without ACID columns: the identity of its first row; rowIds run on from there."""

    @classmethod
    def of(cls, source: Source) -> Input:
        """Raises UnsupportedLayout for a file of an insert-only table."""
        if source.kind is SourceKind.PLAIN:
            raise UnsupportedLayout(
                f"{source.path} belongs to an insert-only table: its rows have no identity to keep"
            )
        first = (source.write_id, source.bucket, source.first_row_id)
        return cls(
            source.path,
            source.above,
            source.length,
            first if source.kind is SourceKind.RAW else None,
        )


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One output file and all that goes into it; travels to an executor."""

    location: str
    """Any path or URI of the warehouse's file system."""
    inputs: tuple[Input, ...]
    deletes: tuple[Input, ...]
    """Delete files whose events are applied: rows with these keys are dropped. Of a minor
    compaction only those of rows that were inserted under the same write id: once no statement
    tells the two events apart, Hive 2 would return the row. Nobody sees one without the other."""
    output: str
    columns: tuple[Column, ...]
    high_watermark: int
    aborted: tuple[int, ...]
    compression: str
    delete_events: bool = False
    """The inputs are delete deltas: `row` stays NULL."""
    minor: bool = False
    most_inputs: int = 500
    """More are first merged in groups of so many (C34)."""
    timestamps: str = "ns"
    """Unit in which timestamps pass through: a merge that meets years beyond 2262 takes `us`, which
    is what Spark writes and reads."""

    @property
    def write_ids(self) -> ValidWriteIdList:
        return ValidWriteIdList.of("", self.high_watermark, aborted=self.aborted)


class _WideTimestamps(Exception):
    """An input holds timestamps that don't fit nanoseconds."""


def _keys(batch: pa.RecordBatch) -> tuple[np.ndarray, ...]:
    """originalTransaction, bucket, rowId, currentTransaction of a batch of five or six columns."""
    return tuple(
        batch.column(1 + i).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        for i in range(4)
    )


def _batches(
    files: Files, one: Input, rewrite: Rewrite, keys_only: bool = False
) -> Iterator[pa.RecordBatch]:
    """The six columns of all rows, or the first five. Raises CorruptFile."""
    with reading(one.path):
        file = open_orc(files, one.path, one.length)
        names = list(file.schema.names)
        wanted = names[:1] if one.first and keys_only else names
        if one.first is None:
            wanted = acid_columns(file, one.path)[: 5 if keys_only else 6]
    operation = schema.DELETE_EVENT if rewrite.delete_events else schema.INSERT_EVENT
    decoded = _decoded(files, one, file, wanted, rewrite.timestamps)
    start = 0
    while True:
        with reading(one.path):
            batch = next(decoded, None)
        if batch is None:
            return
        if not batch.num_rows:
            continue
        if one.first is not None:
            batch = _with_identity(batch, one.first, start)
            start += batch.num_rows
        refuse_gregorian(batch, file, one.path)
        require_operation(batch.column(0).to_numpy(zero_copy_only=False), operation, one.path)
        yield batch


def _decoded(
    files: Files, one: Input, file: orc.ORCFile, names: list[str], timestamps: str
) -> Iterator[pa.RecordBatch]:
    if timestamps == "us":
        for index in range(file.nstripes):
            yield read_stripe(files, one.path, one.length, file, index, names)
        return
    try:
        yield from read_batches(files, one.path, one.length, names)
    except pa.ArrowInvalid as error:
        if beyond_nanoseconds(error):
            raise _WideTimestamps from error
        raise


def _with_identity(rows: pa.RecordBatch, first: RowKey, start: int) -> pa.RecordBatch:
    """Rows without ACID columns as insert events (storage.md section 7.1)."""
    count = rows.num_rows
    write_ids = np.full(count, first[0])
    row = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    arrays = [
        pa.array(np.full(count, schema.INSERT_EVENT, np.int32)),
        pa.array(write_ids),
        pa.array(np.full(count, first[1], np.int32)),
        pa.array(np.arange(start, start + count) + first[2]),
        pa.array(write_ids),
        row,
    ]
    return pa.RecordBatch.from_arrays(arrays, list(schema.ACID_COLUMNS))


def _last(keys: tuple[np.ndarray, ...]) -> RowKey:
    return int(keys[0][-1]), int(keys[1][-1]), int(keys[2][-1])


def _not_above(keys: tuple[np.ndarray, ...], bound: RowKey) -> int:
    """How many leading rows of sorted keys are at or below `bound`."""
    w, b, r = keys[:3]
    within_bucket = (b < bound[1]) | ((b == bound[1]) & (r <= bound[2]))
    return int(np.count_nonzero((w < bound[0]) | ((w == bound[0]) & within_bucket)))


class _Source:
    """A file's batches in key order; one buffered batch at a time."""

    def __init__(self, files: Files, one: Input, rewrite: Rewrite) -> None:
        self.files, self.input, self.rewrite = files, one, rewrite
        self.first: RowKey | None = None
        self.ascending = True
        self.buckets: set[int] = set()
        previous: RowKey | None = None
        for batch in _batches(files, one, rewrite, keys_only=True):
            w, b, r, _ = _keys(batch)
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
        self.batches: Iterator[pa.RecordBatch] = iter(())
        self.batch: pa.RecordBatch | None = None
        self.keys: tuple[np.ndarray, ...] = ()

    def start(self) -> None:
        self.batches = _batches(self.files, self.input, self.rewrite)
        if not self.ascending:  # some older compactions sorted by bucket first: sort it whole
            table = pa.Table.from_batches(list(self.batches)).combine_chunks()
            batch = table.to_batches()[0]
            w, b, r, _ = _keys(batch)
            self.batches = iter([batch.take(pa.array(np.lexsort((r, b, w))))])
        self.fill()

    def fill(self) -> None:
        self.batch = next(self.batches, None)
        self.keys = _keys(self.batch) if self.batch is not None else ()

    def take(self, bound: RowKey) -> tuple[pa.RecordBatch, tuple[np.ndarray, ...]] | None:
        assert self.batch is not None
        count = _not_above(self.keys, bound)
        if not count:
            return None
        taken = self.batch.slice(0, count), tuple(k[:count] for k in self.keys)
        if count == self.batch.num_rows:
            self.fill()
        else:
            self.batch = self.batch.slice(count)
            self.keys = tuple(k[count:] for k in self.keys)
        return taken


@dataclass(slots=True)
class _Merge:
    """Batches of all inputs in key order; each piece knows its input."""

    sources: Sequence[_Source]
    active: list[_Source] = field(default_factory=list)

    def pieces(self) -> Iterator[list[tuple[pa.RecordBatch, tuple[np.ndarray, ...], Input]]]:
        waiting = sorted(
            (s for s in self.sources if s.first is not None),
            key=lambda s: s.first or (0, 0, 0),
            reverse=True,
        )
        while waiting or self.active:
            if not self.active:
                self._start(waiting)
            bound = min(_last(s.keys) for s in self.active)
            while waiting and (waiting[-1].first or bound) <= bound:
                self._start(waiting)
                bound = min(_last(s.keys) for s in self.active)
            group = []
            for source in self.active:
                taken = source.take(bound)
                if taken:
                    group.append((*taken, source.input))
            self.active = [s for s in self.active if s.batch is not None]
            yield group

    def _start(self, waiting: list[_Source]) -> None:
        source = waiting.pop()
        source.start()
        if source.batch is not None:
            self.active.append(source)


def _conform(
    batch: pa.RecordBatch, target: pa.Schema, rewrite: Rewrite, path: str
) -> pa.RecordBatch:
    """The batch with the table's present columns: matched by name, missing ones NULL."""
    ids = [batch.column(i).cast(target.field(i).type) for i in range(5)]
    if rewrite.delete_events:
        return pa.RecordBatch.from_arrays([*ids, pa.nulls(batch.num_rows)], schema=target)
    row_type, row = target.field(5).type, batch.column(5)
    names = [row.type.field(i).name for i in range(row.type.num_fields)]
    present = {
        name: i
        for i, name in enumerate(
            (column.name for column in rewrite.columns)
            if is_positional(names)
            else (name.lower() for name in names)
        )
        if i < len(names)
    }
    children = [
        pa.nulls(batch.num_rows, wanted.type)
        if column.name not in present
        else conform(
            pc.struct_field(row, [present[column.name]]),
            column.type,
            f"{path}, column {column.name}",
            rewrite.timestamps,
        )
        for column, wanted in zip(rewrite.columns, row_type, strict=True)
    ]
    struct = pa.StructArray.from_arrays(children, fields=list(row_type))
    return pa.RecordBatch.from_arrays([*ids, struct], schema=target)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became of one output file."""

    rows: int = 0
    bytes: int = 0
    values: Profile = field(default_factory=Profile)
    """Sums of the column values as they were read; of delete events none."""


def rewrite_bucket(rewrite: Rewrite) -> Rewritten:
    """Write the output file, or none where no row is left.

    Identity and currentTransaction of every event stay as they are (storage.md section 10).
    Raises CorruptFile for inputs that can't be read, CompactionMismatch for a first merge of many
    inputs that did not keep the values, CompactionRefused for timestamps of which some have
    nanoseconds and others lie beyond the years that nanoseconds can hold.
    """
    files, _ = Files.of(rewrite.location)
    try:
        return _rewrite(files, rewrite)
    except _WideTimestamps:
        for one in rewrite.inputs:
            refuse_finer(files, one.path, length=one.length)
        return _rewrite(files, replace(rewrite, timestamps="us"))


def written_values(rewrite: Rewrite) -> Profile:
    """Sums of the column values in the output file as it lies there. Raises CorruptFile."""
    files, _ = Files.of(rewrite.location)
    try:
        return _values_in(files, rewrite)
    except _WideTimestamps:
        return _values_in(files, replace(rewrite, timestamps="us"))


def _values_in(files: Files, rewrite: Rewrite) -> Profile:
    sums, target = (
        ValueSums([one.name for one in rewrite.columns]),
        acid_schema(rewrite.columns, rewrite.timestamps),
    )
    if files.system.get_file_info(rewrite.output).type is FileType.File:
        for batch in _batches(files, Input(rewrite.output), rewrite):
            sums.add(_conform(batch, target, rewrite, rewrite.output).column(5))
    return sums.profile()


def _rewrite(files: Files, rewrite: Rewrite) -> Rewritten:
    if len(rewrite.inputs) <= rewrite.most_inputs:
        return _merge(files, rewrite)
    where, _, name = rewrite.output.rpartition("/")
    stages: list[Input] = []
    try:
        for number, group in enumerate(_groups(rewrite.inputs, rewrite.most_inputs)):
            stage = Input(f"{where}/_stage_{name}_{number}")  # hidden: no data file yet
            stages.append(stage)
            first = replace(rewrite, inputs=group, deletes=(), output=stage.path)
            made = _merge(files, first)
            if not made.rows:
                stages.pop()
            elif not rewrite.delete_events and _values_in(files, first) != made.values:
                raise CompactionMismatch(
                    f"{stage.path} has other values than the files that were merged into it;"
                    " the inputs were kept"
                )
        return _rewrite(files, replace(rewrite, inputs=tuple(stages)))
    finally:
        for stage in stages:
            files.delete_file(stage.path)


def _groups(inputs: tuple[Input, ...], size: int) -> Iterator[tuple[Input, ...]]:
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def _delete_source(one: Input) -> Source:
    return Source(one.path, SourceKind.ACID, 0, "", 0, 0, length=one.length)


def _merge(files: Files, rewrite: Rewrite) -> Rewritten:
    sources = [_Source(files, one, rewrite) for one in rewrite.inputs]
    keys = load_keys(
        files,
        [_delete_source(one) for one in rewrite.deletes],
        rewrite.write_ids,
        own=rewrite.minor,
        buckets=set().union(*(one.buckets for one in sources)),
    )
    deleted = DeletedRows(keys) if len(keys) else None
    target = acid_schema(rewrite.columns, rewrite.timestamps, rewrite.delete_events)
    values = ValueSums([] if rewrite.delete_events else [one.name for one in rewrite.columns])
    writer = AcidWriter(
        partial(files.system.open_output_stream, rewrite.output),
        rewrite.output,
        rewrite.columns,
        rewrite.compression,
        rewrite.delete_events,
    )
    try:
        for group in _Merge(sources).pieces():
            batches, order = [], []
            for batch, ids, one in group:
                w, b, r, current = ids
                keep = valid_ids(current, rewrite.write_ids)
                if one.above >= 0:
                    keep &= current > one.above
                if deleted is not None:
                    keep &= deleted.survivors(w, b, r)
                if keep.any():
                    whole = bool(keep.all())
                    batches.append(
                        _conform(
                            batch if whole else batch.filter(pa.array(keep)),
                            target,
                            rewrite,
                            one.path,
                        )
                    )
                    if not rewrite.delete_events:
                        values.add(batches[-1].column(5))
                    order.append(np.stack([w[keep], b[keep], r[keep]]))
            if len(batches) > 1:
                table = pa.Table.from_batches(batches, schema=target)
                w, b, r = np.concatenate(order, axis=1)
                batches = table.take(pa.array(np.lexsort((r, b, w)))).combine_chunks().to_batches()
            for made in batches:
                writer.write(made)
        rows = writer.close()
    except BaseException:
        writer.give_up()
        raise
    size = files.system.get_file_info(rewrite.output).size if rows else 0
    return Rewritten(rows, int(size), values.profile())
