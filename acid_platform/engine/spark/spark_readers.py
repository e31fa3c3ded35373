"""The files of a scan that Spark's own readers read, or Arrow in Spark's tasks.

These are files of insert-only tables, files without ACID columns whose columns match by position,
and all others in sessions without our format. Files are grouped by the tests that their rows need.
The validity of write ids is tested first; the reader's predicate and the delete test come later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from acid_platform.engine.spark.acid_columns import never_pushed
from acid_platform.engine.spark.deleted_rows import (
    DeleteBitmap,
    ReadRows,
    deleted_keys,
    may_have_deleted_rows,
    valid_events,
)
from acid_platform.engine.spark.source_frames import EntityFile, SourceFrames
from acid_platform.layout import schema
from acid_platform.layout.types import Column
from acid_platform.scan.kept_keys import UnreadKeys
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import SourceFile, SourceKind

UNION_LIMIT = 16
UNION_BYTES = 8 << 20
"""A few large entities are scanned one by one, with partition values as literals; many or small
entities together, with values from the file's path. That costs 0.1 to 0.2 microseconds per row,
while each branch of a union costs 25 to 100 milliseconds of planning. The rows are the same."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """Files that are read in the same way and need the same tests.

    `above` -1: no earlier directory holds some of the same rows.
    """

    kind: SourceKind
    streamed: bool
    """Read through Arrow: rows need row ids by position, the file ends at a flush length, or it is
    one of an external table."""
    positional: bool
    test_rows: bool
    test_deletes: bool
    above: int


def read_by_spark(
    spark: SparkSession, scan: Scan, columns: tuple[Column, ...], keys: bool, file_names: bool
) -> Iterator[ReadRows]:
    """The rows of the scan's files: `columns`, partition columns, KEYS if `keys` or a test needs
    them, FILE_NAME_COLUMN if `file_names`."""
    groups = [scan.entities] if scan.entities else []
    large = scan.read_bytes >= UNION_BYTES * len(scan.entities)
    if large and len(scan.entities) <= UNION_LIMIT:
        groups = [(entity,) for entity in scan.entities]
    for group in groups:
        frames = SourceFrames(spark, replace(scan, entities=group), columns, file_names)
        yield from _read_together(frames, keys)


def _read_together(frames: SourceFrames, keys: bool) -> Iterator[ReadRows]:
    scan = frames.scan
    files = [
        (_branch(entity, source, keys), (ordinal, source))
        for ordinal, entity in enumerate(scan.entities)
        for source in entity.sources.inserts
    ]
    tested = {branch for branch, _ in files if branch.test_deletes}
    deletes = [entity.deletes for entity in scan.entities]
    in_tasks = any(isinstance(one, UnreadKeys) for one in deletes)
    bitmap = DeleteBitmap.build(deletes) if tested and not in_tasks else None
    deleted = deleted_keys(frames.spark, scan) if tested and bitmap is None else bitmap
    branches: dict[_Branch, list[EntityFile]] = {}
    for branch, file in files:
        # Testing all rows by the bitmap costs less than a separate scan of files without
        # deletes: after a union Spark copies every row once more.
        if bitmap is not None and (beside := replace(branch, test_deletes=True)) in tested:
            branch = beside
        branches.setdefault(branch, []).append(file)
    for branch, sources in branches.items():
        tests = branch.test_deletes
        have_keys = keys or tests or branch.streamed
        if branch.streamed:
            read = iter([frames.streamed(sources, tests)])
        else:
            validity = _validity(scan, branch)
            read = frames.native(
                branch.kind, branch.positional, sources, validity, have_keys, tests
            )
        for frame in read:
            yield ReadRows(frame, have_keys, deleted if tests else None)


def _branch(entity: EntityScan, source: SourceFile, keys: bool) -> _Branch:
    test_deletes = may_have_deleted_rows(entity.deletes, source)
    counted = source.kind is SourceKind.RAW and (keys or test_deletes)
    return _Branch(
        source.kind,
        counted or source.length is not None or source.kind is SourceKind.EXTERNAL,
        source.positional,
        source.test_rows and source.kind is SourceKind.ACID,
        test_deletes,
        source.above,
    )


def _validity(scan: Scan, branch: _Branch) -> list[str]:
    """SQL tests that drop rows of invalid write ids."""
    tests = valid_events(scan.write_ids) if branch.test_rows else []
    if branch.above >= 0:
        tests.append(f"{never_pushed(schema.CURRENT_TRANSACTION)} > {branch.above}")
    return tests
