"""Merging ACID files of one bucket into one file, streaming through Arrow (spark.md section 4b).

This runs inside Spark tasks and imports neither Spark nor anything of the driver. Rows leave in
(originalTransaction, bucket, rowId) order without a sort where inputs do not overlap, and with a
merge, stripe by stripe, where they do. Memory: a stripe per overlapping input, and the delete
keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from acid_platform.layout import schema
from acid_platform.layout.schema import RowKey
from acid_platform.layout.types import Column
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.storage.files import Files
from acid_platform.storage.orc import acid_columns, finish_file, open_orc

STRIPE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Input:
    """One file to merge. Rows with currentTransaction at or below `above` are dropped."""

    path: str
    above: int = -1


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One output file and all that goes into it; travels to an executor."""

    location: str
    """Any path or URI of the warehouse's file system."""
    inputs: tuple[Input, ...]
    deletes: tuple[str, ...]
    """Delete files whose events are applied: rows with these keys are dropped."""
    output: str
    columns: tuple[Column, ...]
    high_watermark: int
    aborted: tuple[int, ...]
    compression: str
    delete_events: bool = False
    """The inputs are delete deltas: `row` stays NULL."""
    most_inputs: int = 500
    """More are first merged in groups of so many (C34)."""


def keep_valid(current: np.ndarray, high_watermark: int, aborted: tuple[int, ...]) -> np.ndarray:
    """Mask of events whose own transaction is valid (storage.md section 8)."""
    keep: np.ndarray = current <= high_watermark
    if aborted:
        keep &= ~np.isin(current, np.array(aborted, np.int64))
    return keep


class _Deletes:
    """Deleted rowIds by (write id, bucket property), each sorted."""

    def __init__(self, files: Files, rewrite: Rewrite) -> None:
        groups: dict[tuple[int, int], list[np.ndarray]] = {}
        for path in rewrite.deletes:
            for batch in _stripes(open_orc(files, path), path, keys_only=True):
                w, b, r, current = _keys(batch)
                keep = keep_valid(current, rewrite.high_watermark, rewrite.aborted)
                for start, end in _runs(w[keep], b[keep]):
                    key = (int(w[keep][start]), int(b[keep][start]))
                    groups.setdefault(key, []).append(r[keep][start:end])
        self.groups = {key: np.unique(np.concatenate(rows)) for key, rows in groups.items()}

    def survivors(self, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        keep = np.ones(len(r), bool)
        for start, end in _runs(w, b):
            gone = self.groups.get((int(w[start]), int(b[start])))
            if gone is not None:
                rows = r[start:end]
                at = np.minimum(np.searchsorted(gone, rows), len(gone) - 1)
                keep[start:end] = gone[at] != rows
        return keep


def _runs(w: np.ndarray, b: np.ndarray) -> Iterator[tuple[int, int]]:
    """Index ranges of equal (write id, bucket)."""
    if not len(w):
        return
    edges = np.flatnonzero((np.diff(w) != 0) | (np.diff(b) != 0)) + 1
    yield from zip([0, *edges], [*edges, len(w)], strict=True)


def _keys(batch: pa.RecordBatch) -> tuple[np.ndarray, ...]:
    """originalTransaction, bucket, rowId, currentTransaction of a batch of the four or six."""
    first = 1 if batch.num_columns == len(schema.ACID_COLUMNS) else 0
    return tuple(batch.column(first + i).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
                 for i in range(4))


def _stripes(
    file: orc.ORCFile, path: str, keys_only: bool = False
) -> Iterator[pa.RecordBatch]:
    columns = acid_columns(file, path)
    for index in range(file.nstripes):
        batch = file.read_stripe(index, columns=columns[1:5] if keys_only else None)
        if batch.num_rows:
            yield batch


def _last(keys: tuple[np.ndarray, ...]) -> RowKey:
    return int(keys[0][-1]), int(keys[1][-1]), int(keys[2][-1])


def _not_above(keys: tuple[np.ndarray, ...], bound: RowKey) -> int:
    """How many leading rows of sorted keys are at or below `bound`."""
    w, b, r = keys[:3]
    within_bucket = (b < bound[1]) | ((b == bound[1]) & (r <= bound[2]))
    return int(np.count_nonzero((w < bound[0]) | ((w == bound[0]) & within_bucket)))


class _Source:
    """A file's batches in key order; one buffered batch at a time."""

    def __init__(self, files: Files, one: Input) -> None:
        self.files, self.path, self.above = files, one.path, one.above
        self.first: RowKey | None = None
        self.ascending = True
        previous: RowKey | None = None
        for batch in _stripes(open_orc(files, one.path), one.path, keys_only=True):
            w, b, r, _ = _keys(batch)
            order = np.lexsort((r, b, w))
            self.ascending &= bool((np.diff(order) > 0).all())
            least = (int(w[order[0]]), int(b[order[0]]), int(r[order[0]]))
            self.ascending &= previous is None or previous <= least
            previous = (int(w[order[-1]]), int(b[order[-1]]), int(r[order[-1]]))
            self.first = least if self.first is None else min(self.first, least)
        self.batches: Iterator[pa.RecordBatch] = iter(())
        self.batch: pa.RecordBatch | None = None
        self.keys: tuple[np.ndarray, ...] = ()

    def start(self) -> None:
        file = open_orc(self.files, self.path)
        self.batches = _stripes(file, self.path)
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
    """Batches of all inputs in key order; `above` travels with each piece."""

    files: Files
    inputs: tuple[Input, ...]
    active: list[_Source] = field(default_factory=list)

    def pieces(self) -> Iterator[list[tuple[pa.RecordBatch, tuple[np.ndarray, ...], int]]]:
        sources = [_Source(self.files, one) for one in self.inputs]
        waiting = sorted((s for s in sources if s.first is not None),
                         key=lambda s: s.first or (0, 0, 0), reverse=True)
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
                    group.append((*taken, source.above))
            self.active = [s for s in self.active if s.batch is not None]
            yield group

    def _start(self, waiting: list[_Source]) -> None:
        source = waiting.pop()
        source.start()
        if source.batch is not None:
            self.active.append(source)


def output_schema(columns: tuple[Column, ...]) -> pa.Schema:
    row = pa.struct([(column.name, arrow_type(column.type, "ns")) for column in columns])
    kinds = (pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.int64(), row)
    return pa.schema(list(zip(schema.ACID_COLUMNS, kinds, strict=True)))


def _conform(batch: pa.RecordBatch, target: pa.Schema, delete_events: bool) -> pa.RecordBatch:
    """The batch with the table's present columns: matched by name, missing ones NULL."""
    ids = [batch.column(i).cast(target.field(i).type) for i in range(5)]
    row_type = target.field(5).type
    if delete_events:
        return pa.RecordBatch.from_arrays([*ids, pa.nulls(batch.num_rows, row_type)], schema=target)
    row = batch.column(5)
    present = {row.type.field(i).name.lower(): i for i in range(row.type.num_fields)}
    children = []
    for i in range(row_type.num_fields):
        wanted = row_type.field(i)
        at = present.get(wanted.name)
        children.append(pa.nulls(batch.num_rows, wanted.type) if at is None
                        else pc.struct_field(row, [at]).cast(wanted.type))
    struct = pa.StructArray.from_arrays(children, fields=list(row_type))
    return pa.RecordBatch.from_arrays([*ids, struct], schema=target)


def rewrite_bucket(rewrite: Rewrite) -> tuple[int, int]:
    """Write the output file; returns (rows, bytes), and (0, 0) with no file where no row is left.

    Identity and currentTransaction of every event stay as they are (storage.md section 10).
    Raises CorruptFile for inputs that can't be read.
    """
    files, _ = Files.of(rewrite.location)
    if len(rewrite.inputs) <= rewrite.most_inputs:
        return _merge(files, rewrite)
    where, _, name = rewrite.output.rpartition("/")
    stages: list[Input] = []
    try:
        for number, group in enumerate(_groups(rewrite.inputs, rewrite.most_inputs)):
            stage = Input(f"{where}/_stage_{name}_{number}")  # hidden: no data file yet
            stages.append(stage)
            if not _merge(files, replace(rewrite, inputs=group, deletes=(), output=stage.path))[0]:
                stages.pop()
        return rewrite_bucket(replace(rewrite, inputs=tuple(stages)))
    finally:
        for stage in stages:
            files.delete_file(stage.path)


def _groups(inputs: tuple[Input, ...], size: int) -> Iterator[tuple[Input, ...]]:
    for start in range(0, len(inputs), size):
        yield inputs[start:start + size]


def _merge(files: Files, rewrite: Rewrite) -> tuple[int, int]:
    deletes = _Deletes(files, rewrite)
    target = output_schema(rewrite.columns)
    writer: orc.ORCWriter | None = None
    stream = None
    try:
        for group in _Merge(files, rewrite.inputs).pieces():
            batches, keys = [], []
            for batch, one, above in group:
                w, b, r, current = one
                keep = keep_valid(current, rewrite.high_watermark, rewrite.aborted)
                if above >= 0:
                    keep &= current > above
                if deletes.groups:
                    keep &= deletes.survivors(w, b, r)
                if keep.any():
                    whole = bool(keep.all())
                    batches.append(_conform(batch if whole else batch.filter(pa.array(keep)),
                                            target, rewrite.delete_events))
                    keys.append(np.stack([w[keep], b[keep], r[keep]]))
            if not batches:
                continue
            table = pa.Table.from_batches(batches, schema=target)
            if len(batches) > 1:
                w, b, r = np.concatenate(keys, axis=1)
                table = table.take(pa.array(np.lexsort((r, b, w))))
            if writer is None:
                stream = files.system.open_output_stream(rewrite.output)
                writer = orc.ORCWriter(stream, compression=rewrite.compression,
                                       stripe_size=STRIPE_BYTES)
            writer.write(table)
    finally:
        if writer is not None and stream is not None:
            writer.close()
            stream.close()
    if writer is None:
        return 0, 0
    rows = finish_file(files, rewrite.output, rewrite.delete_events)
    return rows, int(files.system.get_file_info(rewrite.output).size)
