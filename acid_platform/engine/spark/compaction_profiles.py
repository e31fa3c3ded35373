"""Profiles of a compaction's inputs and of its staged output, which have to be equal (C32)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from acid_platform.compaction.validation import Profile
from acid_platform.engine.compaction_inputs import CompactionWork, OpenedEntity, open_directory
from acid_platform.engine.publishing import Written
from acid_platform.engine.scans import EntityScan, TableScan
from acid_platform.engine.spark.profile import delete_checksum, profile_rows
from acid_platform.engine.spark.scan import ScanBuilder
from acid_platform.layout import names
from acid_platform.layout.formats import ORC
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.snapshot.directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.storage.keys import has_key_index


def entity_scan(
    spark: SparkSession,
    work: CompactionWork,
    opened: OpenedEntity,
    wanted: Sequence[str] | None = None,
) -> ScanBuilder:
    """The ordinary scan over an opened directory; `wanted` None reads all columns."""
    entity = EntityScan(opened.directory, opened.sources, opened.applied, "", ())
    scan = TableScan(
        work.files,
        opened.directory.location,
        work.columns,
        (),
        (entity,),
        work.write_ids,
        work.plain or ORC,
    )
    return ScanBuilder(spark, scan, wanted)


def profile(
    spark: SparkSession, work: CompactionWork, opened: OpenedEntity, values: Profile | None
) -> Profile:
    """Rows and row ids as the ordinary scan finds them, and the delete events that are kept.

    `values` has the sums of the columns if Arrow has computed them while it decoded the files: the
    scan then reads only row keys, which takes half the time. None: the scan computes them.
    """
    rows = entity_scan(spark, work, opened, None if values is None else ()).rows()
    counted = profile_rows(rows, work.columns if values is None else ())
    if values is not None:
        counted = replace(
            counted, column_checksums=values.column_checksums, null_counts=values.null_counts
        )
    return replace(
        counted,
        delete_events=len(opened.events),
        delete_event_checksum=delete_checksum(opened.events),
    )


def output_profile(
    spark: SparkSession,
    work: CompactionWork,
    staging: str,
    outputs: Sequence[Written],
    values: Profile | None,
) -> Profile:
    """The profile of the staged output, with the number of files whose keys may be out of order."""
    directory = _staged_directory(work, staging, outputs)
    measured = profile(spark, work, open_directory(work, directory, False), values)
    if work.plain is not None:
        return measured
    paths = [f"{staging}/{file.path}" for source in directory.sources for file in source.files]
    return replace(measured, disordered=sum(not has_key_index(work.files, path) for path in paths))


def _staged_directory(
    work: CompactionWork, staging: str, outputs: Sequence[Written]
) -> AcidDirectory:
    base: VisibleBase | None = None
    deltas: list[VisibleDelta] = []
    for output in outputs:
        files = tuple(file.below(output.directory) for file in output.contents.files)
        name = names.parse_directory(output.directory)
        if isinstance(name, BaseName):
            base = VisibleBase(name, output.directory, files, compacted=True)
        elif isinstance(name, DeltaName):
            deltas.append(VisibleDelta(name, output.directory, files, compacted=True))
    return AcidDirectory(
        staging, base, tuple(deltas), (), (), (), insert_only=work.plain is not None
    )
