"""Compactions in this process, for small tables: no JVM, no Spark job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from acid_platform.compaction.execution import rewritten
from acid_platform.compaction.fractions import refuse_finer
from acid_platform.compaction.key_sums import row_id_checksum
from acid_platform.compaction.opening import PLAIN_FILE_BYTES, CompactionWork
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.rewrite import Rewrite
from acid_platform.compaction.staging import Records, records_of
from acid_platform.compaction.validation import Profile
from acid_platform.compaction.value_sums import ValueSums
from acid_platform.engine.local.event_files import finished, plain_writer
from acid_platform.engine.results import EngineName
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import LOCAL_ZONE, TIMESTAMPS
from acid_platform.orc import WRITTEN_CODECS, has_ancient
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.scans import Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.write.task_files import plain_name

_MOST_THREADS = 8


class LocalCompaction:
    """Merges in threads, as many at a time as there are cores; each needs the memory of one Spark
    task. The profiles come from the reader of `to_arrow`, not from the code that merges."""

    name: EngineName = "local"

    def __init__(self, plan: CompactionPlan, work: CompactionWork) -> None:
        self._plan, self._work = plan, work

    def running(self) -> AbstractContextManager[object]:
        return nullcontext()

    def cancel(self) -> None:
        """Nothing to do: when `merge` has returned or raised, none of its threads runs."""

    def merge(self, tasks: Sequence[Rewrite]) -> Records:
        threads = min(len(tasks), os.cpu_count() or 1, _MOST_THREADS)
        if threads < 2:
            return records_of(tasks, [rewritten(task).file for task in tasks])
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(rewritten, task) for task in tasks]
            try:
                return records_of(tasks, [future.result().file for future in futures])
            finally:  # after an error, tasks that have not started are not needed
                for future in futures:
                    future.cancel()

    def copy(self, inputs: Scan, staging: str) -> Records:
        """Leaves it to the caller to open the files. Raises NeedsSpark for what this process can't
        copy, and CompactionRefused."""
        if why := only_spark(self._work):
            raise NeedsSpark(f"{self._plan.location}: {why}")
        copy_files(self._plan, self._work, inputs, staging)
        return {}

    def profiles(self, inputs: Scan, outputs: Scan) -> tuple[Profile, Profile]:
        with ThreadPoolExecutor(2) as pool:
            expected, actual = pool.map(partial(profile, self._work.plain), (inputs, outputs))
        return expected, actual


def profile(plain: FileFormat | None, scan: Scan) -> Profile:
    """Rows, row ids and values of a directory; an insert-only table has no row ids.

    Raises CorruptFile.
    """
    columns = tuple(column.name for column in scan.columns)
    arrow = ArrowScan(scan, columns, row_id=plain is None, as_stored=True)
    rows = row_ids = 0
    values = ValueSums(columns)
    for batch in arrow.batches():
        rows += batch.num_rows
        if plain is None:
            keys = batch.column(len(columns))
            row_ids += row_id_checksum(
                *(keys.field(place).to_numpy(zero_copy_only=False) for place in range(3))
            )
        values.add(batch.select(list(range(len(columns)))).to_struct_array())
    return replace(values.profile(), rows=rows, row_id_checksum=row_ids)


# --- insert-only tables ---------------------------------------------------------------------------


def only_spark(work: CompactionWork) -> str | None:
    """Why only Spark can copy the files of an insert-only table; None if this process can."""
    assert work.plain is not None
    kinds = {kind.kind for column in work.columns for kind in column.type.walk()}
    if work.plain.name not in ("orc", "parquet"):
        return f"only Spark copies {work.plain.name} files"
    if work.plain.name == "parquet" and kinds & {*TIMESTAMPS}:
        return "only Spark copies timestamps of Parquet files"
    if LOCAL_ZONE in kinds:
        return f"only Spark copies columns of type {LOCAL_ZONE}"
    if work.plain.name == "orc" and work.compression not in WRITTEN_CODECS:
        return f"only Spark writes ORC files with the codec {work.compression}"
    return None


def copy_files(plan: CompactionPlan, work: CompactionWork, inputs: Scan, staging: str) -> None:
    """Writes the rows, in the order of the inputs, into files below the staged output directory.

    Raises CompactionRefused for timestamps with nanoseconds, which both engines would cut;
    NeedsSpark for what this process does not copy: days before 15 October 1582, and files whose
    types are not those of the columns. Raises CorruptFile.
    """
    stored = work.plain
    assert stored is not None
    (output,) = plan.outputs
    (entity,) = inputs.entities
    sources = entity.sources.inserts
    columns = tuple(column.name for column in work.columns)
    if any(kind.kind in TIMESTAMPS for column in work.columns for kind in column.type.walk()):
        for source in sources:
            refuse_finer(work.files, source.path, stored)
    for number, group in enumerate(_groups(sources)):
        path = f"{staging}/{output}/{plain_name(number)}"
        writer = plain_writer(work.files, path, stored, work.columns, work.compression)
        part = replace(entity, sources=replace(entity.sources, inserts=group))
        try:
            with finished(writer):
                for batch in ArrowScan(replace(inputs, entities=(part,)), columns).batches():
                    if any(map(has_ancient, batch.columns)):
                        raise NeedsSpark(f"{plan.location}: days before 15 October 1582")
                    writer.write(batch)
        except UnsupportedLayout as error:
            raise NeedsSpark(str(error)) from error


def _groups(sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, ...]]:
    """The inputs of each output file, in order."""
    group: tuple[SourceFile, ...] = ()
    for source in sources:
        if group and sum(one.size for one in group) + source.size > PLAIN_FILE_BYTES:
            yield group
            group = ()
        group += (source,)
    if group:
        yield group
