"""Compaction and cleaning while clients write, as in any warehouse in use.

Only the metastore's part runs, since the benchmark's transactions write no files. Without it,
directories would pile up in the metastore within an hour, as they would on disk.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from acid_platform import AcidError
from acid_platform.layout.file_entries import FileEntry, Footer, RecordedFiles
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import (
    CompactionTask,
    GetCleanings,
    MarkCleaned,
    StartCleaning,
    TakeCompaction,
)
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation

MOST_DELTAS = 10
"""The default of `hive.compactor.delta.num.threshold`."""

FILES = RecordedFiles((FileEntry("bucket_00000", 100, Footer(1, True)),))
"""What each transaction reports."""

_WORKER = "bench-1"
_PAUSE_SECONDS = 2.0


def keep_short(home: Path, stop: Any) -> None:
    """Compact entities with more than MOST_DELTAS deltas, and clean up, until `stop` is set."""
    with Metastore.connect(home) as metastore:
        while not stop.wait(_PAUSE_SECONDS):
            for candidate in metastore.candidates():
                if candidate.size.delta_directories > MOST_DELTAS:
                    with suppress(AcidError):  # it is already queued
                        metastore.request_compaction(candidate.table, candidate.partition, "major")
            while task := metastore.call(TakeCompaction(_WORKER)):
                _compact(metastore, task)
            for cleaning in metastore.call(GetCleanings()).ready:
                with suppress(AcidError):  # somebody has opened the table meanwhile
                    gone = tuple(
                        directory.name
                        for entity in metastore.entities(cleaning.table)
                        if entity.partition == cleaning.partition
                        for directory in entity.directories
                        if directory.obsolete
                    )
                    begun = metastore.call(StartCleaning.of(cleaning))
                    metastore.call(MarkCleaned.of(begun, begun.highest_write_id, None, gone))


def _compact(metastore: Metastore, task: CompactionTask) -> None:
    txn = metastore.begin_compaction(task, _WORKER)
    high = txn.compactor_list.high_watermark
    base = f"base_{high:07d}_v{txn.id:07d}"
    report = WriteReport(task.table, task.partition, RowOperation.COMPACT, base, FILES)
    txn.commit_compaction([report])
