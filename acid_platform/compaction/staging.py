"""The staged output of a compaction: its directories, marker files and records, and opening it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from acid_platform.compaction.opening import CompactionSide, CompactionWork, open_directory
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.rewrite import Rewrite
from acid_platform.compaction.states import Layout
from acid_platform.errors import CompactionFailed
from acid_platform.layout import names
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.formats import ORC
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.layout.recorded_files import RecordedFiles
from acid_platform.scan.acid_directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.write.empty_file import write_empty_file
from acid_platform.write.file_records import recorded_file
from acid_platform.write.publishing import WrittenDirectory

Records = Mapping[str, FileEntry]
"""The records of the output files, made by the tasks that wrote them, by path."""


def records_of(tasks: Sequence[Rewrite], files: Sequence[FileEntry | None]) -> Records:
    """The records of the files that the tasks have written, one for each task or None."""
    return {task.output: file for task, file in zip(tasks, files, strict=True) if file}


def make_outputs(plan: CompactionPlan, work: CompactionWork, staging: str) -> None:
    """Makes the output directories below the staging directory."""
    for name in plan.outputs:
        work.files.make_directory(f"{staging}/{name}")


def finish(
    plan: CompactionPlan, work: CompactionWork, staging: str, records: Records
) -> Iterator[WrittenDirectory]:
    """Adds marker files and collects the records; files without one are opened here.

    A delta without rows is dropped (F21). A base stays, with an empty file if it has no rows.
    Raises CompactionFailed unless the files are there, as large as their tasks told.
    """
    for name in plan.outputs:
        where = f"{staging}/{name}"
        infos = {
            info.path: info
            for info in work.files.children(where)
            if not names.is_hidden(info.base_name)
        }
        for path, file in records.items():
            if path.startswith(f"{where}/") and (
                path not in infos or infos[path].size != file.size
            ):
                raise CompactionFailed(
                    f"{path} is not here as its task wrote it; the inputs were kept: see that all"
                    " executors write to the same storage as this process, and compact it again"
                )
        deletes = isinstance(name, DeltaName) and name.deletes
        contents = RecordedFiles(
            tuple(
                records.get(path)
                or recorded_file(work.files, path, info.base_name, work.plain or ORC, deletes)
                for path, info in infos.items()
            )
        )
        if not infos and isinstance(name, DeltaName):
            work.files.delete_directory(where)
            continue
        if not infos:
            contents = write_empty_file(
                work.files, where, work.columns, work.compression, work.plain
            )
        work.files.write(f"{where}/{names.VERSION_FILE}", names.VERSION)
        if plan.layout is Layout.HIVE3:
            work.files.write(
                f"{where}/{names.METADATA_FILE}",
                json.dumps({"thisFileVersion": "0", "dataFormat": "compacted"}).encode(),
            )
        yield WrittenDirectory(work.partition, str(name), deletes, contents)


def open_outputs(
    work: CompactionWork, staging: str, outputs: Sequence[WrittenDirectory]
) -> CompactionSide:
    """Opens the staged output as a reader would. Raises CorruptFile."""
    base: VisibleBase | None = None
    deltas: list[VisibleDelta] = []
    for output in outputs:
        files = tuple(file.below(output.directory) for file in output.contents.files)
        name = names.parse_directory(output.directory)
        if isinstance(name, BaseName):
            base = VisibleBase(name, output.directory, files, compacted=True)
        elif isinstance(name, DeltaName):
            deltas.append(VisibleDelta(name, output.directory, files, compacted=True))
    directory = AcidDirectory(
        staging, base, tuple(deltas), (), (), (), insert_only=work.plain is not None
    )
    return open_directory(work, directory, apply_deletes=False)
