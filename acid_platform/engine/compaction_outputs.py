"""The staged output of a compaction: its directories, marker files and records, and opening it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.states import Layout
from acid_platform.engine.compaction_inputs import CompactionWork, OpenedEntity, open_directory
from acid_platform.engine.publishing import Written
from acid_platform.layout import names
from acid_platform.layout.formats import ORC
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.snapshot.directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.snapshot.recorded import Contents
from acid_platform.storage.emptied import write_empty_file
from acid_platform.storage.recorded import recorded_file


def make_outputs(plan: CompactionPlan, work: CompactionWork, staging: str) -> None:
    """Makes the output directories below the staging directory."""
    for name in plan.outputs:
        work.files.make_directory(f"{staging}/{name}")


def finish(plan: CompactionPlan, work: CompactionWork, staging: str) -> Iterator[Written]:
    """Adds marker files and records sizes.

    A delta without rows is dropped (F21). A base stays, with an empty file if it has no rows (P32).
    """
    for name in plan.outputs:
        where = f"{staging}/{name}"
        data = [info for info in work.files.children(where) if not names.is_hidden(info.base_name)]
        if not data and isinstance(name, DeltaName):
            work.files.delete_directory(where)
            continue
        if not data:
            write_empty_file(work.files, where, work.columns, work.compression, work.plain)
            data = [
                info for info in work.files.children(where) if not names.is_hidden(info.base_name)
            ]
        work.files.write(f"{where}/{names.VERSION_FILE}", names.VERSION)
        if plan.layout is Layout.HIVE3:
            work.files.write(
                f"{where}/{names.METADATA_FILE}",
                json.dumps({"thisFileVersion": "0", "dataFormat": "compacted"}).encode(),
            )
        deletes = isinstance(name, DeltaName) and name.deletes
        yield Written(
            work.partition,
            str(name),
            deletes,
            Contents(
                tuple(
                    recorded_file(work.files, info.path, info.base_name, work.plain or ORC, deletes)
                    for info in data
                )
            ),
        )


def open_outputs(work: CompactionWork, staging: str, outputs: Sequence[Written]) -> OpenedEntity:
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
