"""Copying the rows of an insert-only table into fewer files: ORC and Parquet, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from acid_platform.compaction.fractions import refuse_finer
from acid_platform.compaction.opening import (
    PLAIN_FILE_BYTES,
    CompactionWork,
)
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.layout.types import LOCAL_ZONE, TIMESTAMPS
from acid_platform.orc import WRITTEN_CODECS, OrcWriter, has_ancient
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.scans import Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.write.parquet_writer import ParquetWriter
from acid_platform.write.task_files import plain_name


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
        writer: OrcWriter | ParquetWriter
        if stored.name == "orc":
            writer = OrcWriter(work.files, path, work.columns, work.compression)
        else:
            writer = ParquetWriter(work.files, path, work.columns)
        try:
            group_of_files = replace(entity, sources=replace(entity.sources, inserts=group))
            for batch in ArrowScan(replace(inputs, entities=(group_of_files,)), columns).batches():
                if any(map(has_ancient, batch.columns)):
                    raise NeedsSpark(f"{plan.location}: days before 15 October 1582")
                writer.write(batch)
            writer.close()
        except UnsupportedLayout as error:
            writer.give_up()
            raise NeedsSpark(str(error)) from error
        except BaseException:
            writer.give_up()
            raise


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
