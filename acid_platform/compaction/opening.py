"""A compaction as a value: file by file, what to read, what to leave out, what to write.

The inputs are opened once: what is merged is also what the output is compared to.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from acid_platform.compaction.plan import CompactionPlan, watermark
from acid_platform.compaction.rewrite import Rewrite
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.errors import CompactionRefused
from acid_platform.formats.file_access import type_text
from acid_platform.layout.file_entries import NO_RANGES, FileEntry
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import BaseName, BucketFile, DeltaName, temporary_name
from acid_platform.layout.types import LOCAL_ZONE, Column
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys
from acid_platform.scan.open import open_entity
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile
from acid_platform.scan.table_layout import TableLayout, select_entities
from acid_platform.storage.files import Files
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList, ValidWriteIdList

PLAIN_FILE_BYTES = 256 << 20
"""Approximate number of input bytes for each output file of an insert-only table."""
_TYPES_THAT_CHANGE = ("char(", LOCAL_ZONE, "uniontype")
"""Stored types that a compaction would not keep if the table declares another type."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What an engine executes of a compaction. It asks neither a snapshot nor the metastore."""

    plan: CompactionPlan
    inputs: Scan
    """The files to read, the tests of their rows, and the keys of rows to leave out."""
    events: DeleteKeys
    """The delete events that a correct compaction keeps."""
    staging: str
    """Where the output directories are: a `_tmp_` directory, or in an object store the table's."""
    rewrites: tuple[Rewrite, ...]
    """The output files of a table with full ACID, and what each is made of. The rows of an
    insert-only table go into files of the one output directory."""
    partition: str = ""
    job: str = ""
    """What Spark's UI shows for the compaction's jobs."""
    names: tuple[tuple[str, str], ...] = ()
    """For each column of the output, its name in the inputs and its own; empty: all stay."""

    @property
    def files(self) -> Files:
        return self.inputs.files

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the inputs."""
        return self.inputs.columns

    @property
    def written(self) -> tuple[Column, ...]:
        """Those of the output."""
        return _written(self.columns, self.names)

    @property
    def sources(self) -> tuple[str, ...]:
        """The name in the inputs of each column of the output."""
        return tuple(old for old, _ in self.names) or tuple(each.name for each in self.columns)

    @property
    def plain(self) -> FileFormat | None:
        """The file format of an insert-only table; None for full ACID."""
        return self.inputs.format if self.plan.inputs.insert_only else None


def _written(columns: tuple[Column, ...], names: tuple[tuple[str, str], ...]) -> tuple[Column, ...]:
    types = {column.name: column.type for column in columns}
    return tuple(Column(new, types[old]) for old, new in names) if names else columns


def select_compactable(
    table: TableLayout, write_ids: CompactorWriteIdList, txns: ValidTxnList, partition: str
) -> tuple[AcidDirectory, CompactorWriteIdList]:
    """What a compaction of the partition may merge, and the write id list that it uses.

    Raises as `select_entities`.
    """
    while True:
        directory = select_entities(table, write_ids, txns, only=partition)[partition]
        high = watermark(directory, write_ids)
        if high == write_ids.high_watermark:
            return directory, write_ids
        write_ids = write_ids.capped(high).for_compactor()


def open_compaction(
    plan: CompactionPlan,
    table: TableLayout,
    partition: str = "",
    job: str = "",
    names: tuple[tuple[str, str], ...] = (),
) -> Compaction:
    """Opens footers, side files and delete files of the inputs. Writes nothing.

    `names`: see Compaction.

    Raises CorruptFile, also if a file is gone, and CompactionRefused for types that would not stay
    as they are stored, and for the layout hive3 in an object store.
    """
    directory = plan.inputs
    if plan.write_ids.aborted:  # the compactor's list never answers SOME: test each row
        directory = replace(
            directory,
            base=replace(directory.base, test_rows=True) if directory.base else None,
            deltas=tuple(replace(delta, test_rows=True) for delta in directory.deltas),
        )
    staging = _staging(plan, table.files)
    major = plan.kind is CompactionKind.MAJOR
    entity, events = open_merged(table.files, directory, plan.write_ids, apply_deletes=major)
    inputs = Scan(
        table.files, plan.location, table.columns, (), (entity,), plan.write_ids, table.format
    )
    rewrites = () if table.insert_only else _rewrites(plan, inputs, staging, names)
    return Compaction(plan, inputs, events, staging, rewrites, partition, job, names)


def open_merged(
    files: Files, directory: AcidDirectory, write_ids: ValidWriteIdList, apply_deletes: bool
) -> tuple[EntityScan, DeleteKeys]:
    """What to read of a directory, and the delete events that stay: all without `apply_deletes`.

    Even then, deletes of rows that were inserted under the same write id are applied, because a
    minor compaction does so too. Raises CorruptFile.
    """
    sources, keys = open_entity(files, directory, write_ids, directory.location)
    applied, events = (keys, NO_DELETES) if apply_deletes else (keys.of_own_rows(), keys)
    return EntityScan(sources, applied), events


def _staging(plan: CompactionPlan, files: Files) -> str:
    if not files.object_store:
        return f"{plan.location}/{temporary_name(plan.txn_id, uuid.uuid4().hex[:8])}"
    if plan.settings.layout is Layout.HIVE3:
        raise CompactionRefused(
            f"{plan.location}: with acid.layout=hive3 other engines count a base as soon as it has"
            " a file, and an object store can't rename a finished one into place; set the table"
            " property acid.layout to hive4"
        )
    return plan.location


def _rewrites(
    plan: CompactionPlan, inputs: Scan, staging: str, names: tuple[tuple[str, str], ...]
) -> tuple[Rewrite, ...]:
    """A merge task for each output file, with its path below `staging`."""
    sources = inputs.entities[0].sources
    minor = plan.kind is CompactionKind.MINOR
    _refuse_lossy_types(inputs, sources)
    if minor:
        _refuse_raw(sources)
    by_path = {
        source.path: replace(source, ranges=NO_RANGES, keys=None)  # an executor needs neither
        for source in (*sources.inserts, *sources.deletes)
    }

    def opened(files: Iterable[FileEntry]) -> tuple[SourceFile, ...]:
        """Without files of which nothing was committed yet."""
        paths = (f"{plan.location}/{file.path}" for file in files)
        return tuple(by_path[path] for path in paths if path in by_path)

    def rewrite(
        directory: BaseName | DeltaName,
        number: int,
        merged: tuple[SourceFile, ...],
        deletes: tuple[SourceFile, ...],
    ) -> Rewrite:
        return Rewrite(
            inputs.files.uri(plan.location),
            merged,
            deletes,
            f"{staging}/{directory}/{BucketFile(number)}",
            _written(inputs.columns, names),
            plan.write_ids.high_watermark,
            plan.write_ids.aborted,
            plan.settings.compression,
            delete_events=directory == plan.output_delete_delta,
            minor=minor,
            most_inputs=plan.settings.most_inputs,
            before=tuple(column.name for column in inputs.columns) if names else (),
            sources=tuple(old for old, _ in names),
        )

    tasks = []
    for number, bucket in plan.inputs_by_bucket().items():
        data, events = opened(bucket.data), opened(bucket.deletes)
        directory = plan.output_base or plan.output_delta
        if data and directory:
            tasks.append(rewrite(directory, number, data, opened(bucket.every_delete)))
        if events and plan.output_delete_delta:
            tasks.append(rewrite(plan.output_delete_delta, number, events, ()))
    return tuple(tasks)


def _refuse_lossy_types(inputs: Scan, sources: EntitySources) -> None:
    if not sources.inserts:
        return
    first = sources.inserts[0]
    stored = type_text(inputs.files, first).replace("varchar(", "")
    declared = ",".join(str(column.type) for column in inputs.columns).replace("varchar(", "")
    for kind in _TYPES_THAT_CHANGE:
        if kind in stored and kind not in declared:
            raise CompactionRefused(
                f"{inputs.location} has a column that is stored as {kind.rstrip('(')} and"
                " declared as another type, which compaction would not keep; compact it with Hive"
            )


def _refuse_raw(sources: EntitySources) -> None:
    for source in sources.inserts:
        if source.identity is RowIdentity.RUN:
            raise CompactionRefused(
                f"{source.path} has no ACID columns (LOAD DATA); request a major compaction"
            )
