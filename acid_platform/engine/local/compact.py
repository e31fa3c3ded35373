"""Compactions in this process, for small tables: no JVM, no Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pyarrow as pa

from acid_platform.base.first_use import usable_cores
from acid_platform.compaction.execution import PLAIN_FILE_BYTES, Compaction, Records, rewritten
from acid_platform.compaction.profiles import Profile, ValueSums, combine, row_id_checksum
from acid_platform.engine.interface import EngineName
from acid_platform.engine.local.event_files import encoding_threads, finished
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.formats.data_file import Keyed
from acid_platform.formats.file_access import (
    WRITTEN_FORMATS,
    new_file,
    not_written,
    refuse_finer,
)
from acid_platform.layout.types import LOCAL_ZONE, TIMESTAMPS, Column
from acid_platform.scan.scans import ArrowScan, Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.values.arrow_types import has_ancient, values_of
from acid_platform.write.task_files import plain_name


class LocalCompaction:
    """Merges in threads, as many at a time as there are cores; each needs the memory of one Spark
    task. The rows and their ids that are expected come from the reader of `to_arrow`, not from the
    code that merges, and their values from what it decoded, as Spark's do."""

    name: EngineName = "local"

    def __init__(self, compaction: Compaction) -> None:
        self.compaction = compaction
        self._read: Profile | None = None
        """The values of a table with full ACID, as they were merged."""

    def running(self) -> AbstractContextManager[object]:
        return nullcontext()

    def cancel(self) -> None:
        """Nothing to do: when `write` has returned or raised, none of its threads runs."""

    def write(self) -> Records:
        """Leaves it to the caller to open the files of an insert-only table. Raises NeedsSpark for
        what this process can't copy, and CompactionRefused."""
        if not self.compaction.format.keyed:
            if why := only_spark(self.compaction):
                raise NeedsSpark(f"{self.compaction.plan.location}: {why}")
            copy_files(self.compaction)
            return {}
        tasks = self.compaction.rewrites
        threads = max(1, min(len(tasks), usable_cores()))
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(rewritten, task, encoding_threads()) for task in tasks]
            try:
                results = [future.result() for future in futures]
            finally:  # after an error, tasks that have not started are not needed
                for future in futures:
                    future.cancel()
        nothing = ValueSums(self._names).profile()
        self._read = combine([nothing, *(result.values for result in results)])
        files = [result.file for result in results]
        return {task.output: file for task, file in zip(tasks, files, strict=True) if file}

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.compaction.written)

    def profiles(self, outputs: Scan) -> tuple[Profile, Profile]:
        sources = self.compaction.sources if self._read is None else ()
        with ThreadPoolExecutor(2) as pool:
            expected, actual = pool.map(
                self._profile, (self.compaction.inputs, outputs), (sources, self._names)
            )
        return (expected if self._read is None else combine([expected, self._read])), actual

    def _profile(self, scan: Scan, columns: tuple[str, ...]) -> Profile:
        """Rows, row ids, and the values of `columns` under the names of the output; the rows of an
        insert-only table have no row ids."""
        row_id = self.compaction.format.keyed
        names = self._names if columns else ()

        def of(batches: list[pa.RecordBatch]) -> Profile:
            values, profiles = ValueSums(names), list[Profile]()
            for batch in batches:
                values.add(batch.select(range(len(columns))))
                keys = batch.column(len(columns)) if row_id else None
                ids = 0 if keys is None else row_id_checksum(*map(values_of, keys.flatten()))
                profiles.append(Profile(rows=batch.num_rows, row_id_checksum=ids))
            return combine([*profiles, values.profile()])

        read = ArrowScan(scan, columns, row_id=row_id, as_stored=True)
        every = read.mapped(of, usable_cores())
        return combine([ValueSums(names).profile(), *every])


# --- insert-only tables ---------------------------------------------------------------------------


def only_spark(compaction: Compaction) -> str | None:
    """Why only Spark can copy the files of an insert-only table; None if this process can."""
    stored, codec = compaction.format, compaction.plan.settings.compression
    kinds = {kind.kind for column in compaction.columns for kind in column.type.walk()}
    if stored.name not in WRITTEN_FORMATS:
        return f"only Spark copies {stored.name} files"
    if kinds & {*TIMESTAMPS} and not stored.has_codec:
        return f"only Spark copies timestamps of {stored.name.title()} files"
    if LOCAL_ZONE in kinds:
        return f"only Spark copies columns of type {LOCAL_ZONE}"
    why = not_written(stored, codec)
    return why and f"only Spark writes its files: {why}"


def copy_files(compaction: Compaction) -> None:
    """Writes the rows, in the order of the inputs, into files below the staged output directory.

    Raises CompactionRefused for timestamps with nanoseconds, which both engines would cut;
    NeedsSpark for what this process does not copy: days before 15 October 1582, and files whose
    types are not those of the columns. Raises CorruptFile.
    """
    stored, inputs, files = compaction.format, compaction.inputs, compaction.files
    (output,) = compaction.plan.outputs
    (entity,) = inputs.entities
    sources = entity.sources.inserts
    columns, codec = compaction.written, compaction.plan.settings.compression
    if any(kind.kind in TIMESTAMPS for column in columns for kind in column.type.walk()):
        for source in sources:
            refuse_finer(files, source.path, stored.name)
    for number, group in enumerate(_groups(sources)):
        path = f"{compaction.staging}/{output}/{plain_name(number)}"
        writer = new_file(files, path, columns, stored, codec, pool=encoding_threads())
        part = replace(entity, sources=replace(entity.sources, inserts=group))
        try:
            with finished(writer):
                scan = ArrowScan(replace(inputs, entities=(part,)), compaction.sources)
                for batch in scan.batches():
                    if any(map(has_ancient, batch.columns)):
                        raise NeedsSpark(f"{compaction.plan.location}: days before 15 October 1582")
                    writer.put(Keyed(None, 0, _named(batch, columns)))
        except UnsupportedLayout as error:
            raise NeedsSpark(str(error)) from error


def _named(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """The batch under the names of these columns."""
    fields = zip(batch.schema, columns, strict=True)
    schema = pa.schema([field.with_name(column.name) for field, column in fields])
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _groups(sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, ...]]:
    """The inputs of each output file, in order."""
    group: tuple[SourceFile, ...] = ()
    for source in sources:
        if group and sum(member.size for member in group) + source.size > PLAIN_FILE_BYTES:
            yield group
            group = ()
        group += (source,)
    if group:
        yield group
