"""Compactions in this process, for small tables: no JVM, no Spark job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import pyarrow as pa

from acid_platform.compaction.execution import rewritten
from acid_platform.compaction.key_sums import row_id_checksum
from acid_platform.compaction.opening import CompactionWork
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.rewrite import Rewrite
from acid_platform.compaction.staging import Records, records_of
from acid_platform.compaction.validation import Profile
from acid_platform.compaction.value_sums import ValueSums
from acid_platform.engine.local.plain_copy import copy_files, only_spark
from acid_platform.engine.results import EngineName
from acid_platform.errors import NeedsSpark
from acid_platform.layout.formats import FileFormat
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.scans import Scan

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
            finally:  # after an error, tasks that have not started are not wanted
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
    if plain is not None:
        return _plain_profile(ArrowScan(scan, columns, as_stored=True))
    arrow = ArrowScan(scan, columns, row_id=True, as_stored=True)
    rows = row_ids = 0
    values = ValueSums(columns)
    for batch in arrow.batches():
        *arrays, keys = batch.columns
        fields = list(batch.schema)[:-1]
        values.add(pa.StructArray.from_arrays(arrays, fields=fields))
        rows += batch.num_rows
        row_ids += row_id_checksum(
            *(keys.field(place).to_numpy(zero_copy_only=False) for place in range(3))
        )
    return replace(values.profile(), rows=rows, row_id_checksum=row_ids)


def _plain_profile(scan: ArrowScan) -> Profile:
    rows, values = 0, ValueSums(scan.names)
    for batch in scan.batches():
        values.add(batch.to_struct_array())
        rows += batch.num_rows
    return replace(values.profile(), rows=rows)
