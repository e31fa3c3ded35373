"""The inputs of one compaction, opened once: what is merged is also what the output is compared to.

`open_inputs` looks up footers and delete keys; `rewrites` makes the merge tasks of a table with
full ACID out of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from acid_platform.compaction.key_merge import Input
from acid_platform.compaction.plan import CompactionPlan, InputFile, watermark
from acid_platform.compaction.rewrite import Rewrite
from acid_platform.compaction.states import CompactionKind
from acid_platform.errors import CompactionRefused
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.names import BucketFile
from acid_platform.layout.types import LOCAL_ZONE, Column
from acid_platform.orc import orc_schema
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys
from acid_platform.scan.entities import open_entity
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, SourceFile, SourceKind
from acid_platform.scan.table_layout import TableLayout, select_entities
from acid_platform.storage.files import Files
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList

PLAIN_FILE_BYTES = 256 << 20
"""Approximate number of input bytes for each output file of an insert-only table."""
_TYPES_THAT_CHANGE = ("char(", LOCAL_ZONE, "uniontype")
"""Stored types that a compaction would not keep if the table declares another type."""


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """What the executor needs in addition to the plan."""

    files: Files
    directory: AcidDirectory
    """Selected with the compactor's lists; the plan was made from it."""
    columns: tuple[Column, ...]
    write_ids: CompactorWriteIdList
    partition: str
    compression: str
    most_inputs: int = 500
    """`hive.compactor.max.num.delta`: the most files that one task merges at a time."""
    plain: FileFormat | None = None
    """The file format of an insert-only table; None for full ACID."""
    job: str = ""
    """What Spark's UI shows for the compaction's jobs."""
    pool: str = ""
    """Their scheduler pool; empty: the default."""


@dataclass(frozen=True, slots=True)
class CompactionSide:
    """The inputs of a compaction, or its staged output, opened as a reader would."""

    scan: Scan
    events: DeleteKeys
    """The delete events that a correct compaction keeps."""

    @property
    def sources(self) -> EntitySources:
        return self.scan.entities[0].sources


def select_compactable(
    table: TableLayout, write_ids: CompactorWriteIdList, txns: ValidTxnList, partition: str
) -> tuple[AcidDirectory, CompactorWriteIdList]:
    """What a compaction of the partition may merge, and the write id list that it uses.

    Raises as `select_entities`.
    """
    while True:
        seen = select_entities(table, write_ids, txns, only=partition)[partition]
        high = watermark(seen, write_ids)
        if high == write_ids.high_watermark:
            return seen, write_ids
        write_ids = write_ids.capped(high).for_compactor()


def open_inputs(plan: CompactionPlan, work: CompactionWork) -> CompactionSide:
    """Opens footers, side files and delete files of the inputs.

    Raises CorruptFile, also if a file is gone.
    """
    return open_directory(work, _inputs(plan, work), plan.kind is CompactionKind.MAJOR)


def open_directory(
    work: CompactionWork, directory: AcidDirectory, apply_deletes: bool
) -> CompactionSide:
    """Opens a directory; without `apply_deletes` its delete events are kept.

    Even then, deletes of rows that were inserted under the same write id are applied, because a
    minor compaction does so too. Raises CorruptFile.
    """
    sources, keys = open_entity(work.files, directory, work.write_ids, directory.location)
    applied, events = (keys, NO_DELETES) if apply_deletes else (keys.of_own_rows(), keys)
    scan = Scan(
        work.files,
        directory.location,
        work.columns,
        (),
        (EntityScan(sources, applied),),
        work.write_ids,
        work.plain or ORC,
    )
    return CompactionSide(scan, events)


def _inputs(plan: CompactionPlan, work: CompactionWork) -> AcidDirectory:
    """The directory as the compaction reads it: a minor compaction leaves out the base."""
    directory = work.directory
    if work.write_ids.aborted:  # the compactor's list never answers SOME: test each row
        directory = replace(
            directory,
            base=replace(directory.base, test_rows=True) if directory.base else None,
            deltas=tuple(replace(delta, test_rows=True) for delta in directory.deltas),
        )
    if plan.kind is CompactionKind.MAJOR:
        return directory
    return replace(directory, base=None, originals=())


def rewrites(
    plan: CompactionPlan, work: CompactionWork, inputs: EntitySources, staging: str
) -> list[Rewrite]:
    """A merge task for each output file, with its path below `staging`.

    Raises CompactionRefused for types that would not stay as they are stored, CorruptFile.
    """
    sources = {source.path: source for source in (*inputs.inserts, *inputs.deletes)}
    _refuse_lossy_types(work, inputs.inserts)
    major = plan.kind is CompactionKind.MAJOR
    if not major:
        _refuse_raw(inputs.inserts)

    def merged(files: Iterable[InputFile]) -> tuple[Input, ...]:
        """Without files of which nothing was committed yet."""
        paths = (f"{plan.location}/{file.file.path}" for file in files)
        return tuple(Input.of(sources[path]) for path in paths if path in sources)

    def rewrite(
        data: tuple[Input, ...], deletes: tuple[Input, ...], output: str, delete_events: bool
    ) -> Rewrite:
        return Rewrite(
            work.files.uri(plan.location),
            data,
            deletes,
            f"{staging}/{output}",
            work.columns,
            work.write_ids.high_watermark,
            work.write_ids.aborted,
            work.compression,
            delete_events,
            not major,
            work.most_inputs,
        )

    tasks = []
    for number, bucket in plan.inputs_by_bucket().items():
        data, events = merged(bucket.data), merged(bucket.deletes)
        directory = plan.output_base or plan.output_delta
        if data and directory:
            deletes = merged(bucket.every_delete)
            output = f"{directory}/{BucketFile(number)}"
            tasks.append(rewrite(data, deletes, output, delete_events=False))
        if events and plan.output_delete_delta:
            output = f"{plan.output_delete_delta}/{BucketFile(number)}"
            tasks.append(rewrite(events, (), output, delete_events=True))
    return tasks


def _refuse_lossy_types(work: CompactionWork, inserts: tuple[SourceFile, ...]) -> None:
    if not inserts:
        return
    first = inserts[0]
    stored = orc_schema(work.files, first.path, first.length).replace("varchar(", "")
    declared = ",".join(str(column.type) for column in work.columns).replace("varchar(", "")
    for kind in _TYPES_THAT_CHANGE:
        if kind in stored and kind not in declared:
            raise CompactionRefused(
                f"{work.directory.location} has a column that is stored as {kind.rstrip('(')} and"
                " declared as another type, which compaction would not keep; compact it with Hive"
            )


def _refuse_raw(inserts: Iterable[SourceFile]) -> None:
    for source in inserts:
        if source.kind is SourceKind.RAW:
            raise CompactionRefused(
                f"{source.path} has no ACID columns (LOAD DATA); request a major compaction (C27)"
            )
