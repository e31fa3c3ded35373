"""The files of a scan that Spark's own readers read, or Arrow in Spark's tasks.

These are files of insert-only tables, files without ACID columns whose columns match by position,
and all others in sessions without our format. Files are grouped by the tests that their rows need.
The validity of write ids is tested first; the reader's predicate and the delete test come later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from acid_platform.engine.spark.acid_columns import (
    ALL,
    KEY_COLUMNS,
    AcidColumns,
    can_leave_out,
    some,
)
from acid_platform.engine.spark.delete_bitmap import DeleteBitmap
from acid_platform.engine.spark.deleted_rows import (
    ReadRows,
    may_have_deleted_rows,
    valid_events,
)
from acid_platform.engine.spark.sarg import search_argument
from acid_platform.engine.spark.source_frames import Entity, Found, SourceFrames, never_pushed
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
    """Read through Arrow: rows need row ids by position, or the file ends at a flush length."""
    positional: bool
    test_rows: bool
    test_deletes: bool
    above: int
    proven: bool
    """The files' recorded statistics show that all rows are insert events with complete keys."""


@dataclass(frozen=True, slots=True)
class SparkReaders:
    """Reads the files of `scan`: `columns`, partition columns, KEYS if `keys` or a test needs them.

    `where` becomes a search argument only: rows that it does not accept may be left. `file_names`
    adds FILE_NAME_COLUMN.
    """

    spark: SparkSession
    scan: Scan
    columns: tuple[Column, ...]
    keys: bool
    where: str | None
    file_names: bool

    def read(self) -> Iterator[ReadRows]:
        """The rows as one or several frames. Raises InvalidExpression, UnknownColumn."""
        entities = self.scan.entities
        large = self.scan.read_bytes >= UNION_BYTES * len(entities)
        if len(entities) < 2 or (large and len(entities) <= UNION_LIMIT):
            groups = [[entity] for entity in entities]
        else:
            groups = [list(entities)]
        options: dict[str, str] = {}
        if groups and self.where is not None:
            options = search_argument(
                self.spark, self.columns, self.scan.partition_columns, self.where
            )
        for group in groups:
            yield from self._group(group, options)

    def _group(self, group: list[EntityScan], options: dict[str, str]) -> Iterator[ReadRows]:
        found = [
            (self._branch(entity, source), (ordinal, source))
            for ordinal, entity in enumerate(group)
            for source in entity.sources.inserts
        ]
        keys = [entity.deletes for entity in group]
        tested = {branch for branch, _ in found if branch.test_deletes}
        in_tasks = any(isinstance(one, UnreadKeys) for one in keys)
        bitmap = DeleteBitmap.build(keys) if tested and not in_tasks else None
        branches: dict[_Branch, list[Found]] = {}
        for branch, one in found:
            # Testing all rows by the bitmap costs less than a separate scan of files without
            # deletes: after a union Spark copies every row once more.
            if bitmap is not None and (beside := replace(branch, test_deletes=True)) in tested:
                branch = beside
            branches.setdefault(branch, []).append(one)
        frames_of = SourceFrames(
            self.spark,
            self.scan.files,
            self.scan.columns,
            self.columns,
            self.scan.partition_columns,
            [Entity(entity_scan.partition, entity_scan.values) for entity_scan in group],
            self.scan.format,
            options,
            self.file_names,
        )
        for branch, sources in branches.items():
            tests = branch.test_deletes
            if branch.streamed:
                frames = [frames_of.streamed(sources, self.scan.write_ids, tests)]
            else:
                frames = list(
                    frames_of.native(
                        branch.kind,
                        branch.positional,
                        sources,
                        self._validity(branch),
                        self.keys or tests,
                        tests,
                        self._decoded(branch, [source for _, source in sources]),
                    )
                )
            have_keys = self.keys or tests or branch.streamed
            gone = None if not tests else group if bitmap is None else bitmap
            for frame in frames:
                yield ReadRows(frame, have_keys, gone)

    def _branch(self, entity: EntityScan, source: SourceFile) -> _Branch:
        test_deletes = may_have_deleted_rows(entity.deletes, source)
        counted = source.kind is SourceKind.RAW and (self.keys or test_deletes)
        return _Branch(
            source.kind,
            counted or source.length is not None,
            source.positional,
            source.test_rows and source.kind is SourceKind.ACID,
            test_deletes,
            source.above,
            source.kind is SourceKind.ACID
            and (source.keys is not None or source.rows == 0)
            and can_leave_out(self.spark),
        )

    def _decoded(self, branch: _Branch, sources: Sequence[SourceFile]) -> AcidColumns:
        """The ACID columns that the rows of these files are tested by, or that are asked for."""
        if not branch.proven:
            return ALL
        needed = frozenset(KEY_COLUMNS if self.keys or branch.test_deletes else ())
        if branch.test_rows or branch.above >= 0:
            needed |= {schema.CURRENT_TRANSACTION}
        write_ids = {one for source in sources if source.keys for one in source.keys.write_ids}
        return some(needed, write_ids.pop() if len(write_ids) == 1 else None)

    def _validity(self, branch: _Branch) -> list[str]:
        """SQL tests that drop rows of invalid write ids."""
        tests = valid_events(self.scan.write_ids) if branch.test_rows else []
        if branch.above >= 0:
            tests.append(f"{never_pushed(schema.CURRENT_TRANSACTION)} > {branch.above}")
        return tests
