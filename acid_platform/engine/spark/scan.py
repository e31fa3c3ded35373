"""The read path: the sources of each partition → a DataFrame of live rows (F16, F24).

Files are grouped by the tests that their rows need. Each group is filtered first by the validity of
write ids, then by the reader's predicate, last by the delete test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.scans import EntityScan, TableScan
from acid_platform.engine.spark.acid_columns import (
    ALL,
    KEY_COLUMNS,
    AcidColumns,
    can_leave_out,
    some,
)
from acid_platform.engine.spark.delete_bitmap import DeleteBitmap, keys_frame
from acid_platform.engine.spark.delete_files import deleted_in_files
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.prepared import prepared
from acid_platform.engine.spark.row_keys import BUCKET, KEYS, ROW_ID, WRITE_ID
from acid_platform.engine.spark.sarg import search_argument
from acid_platform.engine.spark.source_frames import (
    ENTITY,
    Entity,
    Found,
    SourceFrames,
    key_fields,
    never_pushed,
)
from acid_platform.engine.spark.spark_types import spark_schema
from acid_platform.layout import schema
from acid_platform.layout.schema import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.reading.predicates import columns_of
from acid_platform.snapshot.sources import Source, SourceKind
from acid_platform.storage.deletes import NO_DELETES, DeleteKeys
from acid_platform.storage.unread_keys import UnreadKeys

UNION_LIMIT = 16
UNION_BYTES = 8 << 20
"""A few large entities are scanned one by one, with partition values as literals; many or small
entities together, with values from the file's path. That costs 0.1 to 0.2 microseconds per row,
while each branch of a union costs 25 to 100 milliseconds of planning. The rows are the same."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """Files that are read in the same way and need the same tests.

    `above` -1: no earlier directory holds some of the same rows (F13).
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


class ScanBuilder:
    """Builds the frame of a TableScan with the wanted columns and the rows that `where` accepts.

    `wanted` None: all columns. Columns that `where` reads are added. The predicate is applied
    before the delete test, and as a search argument before decoding. Without `identities` there
    are no `KEYS`; `file_names` adds FILE_NAME_COLUMN.
    """

    def __init__(
        self,
        spark: SparkSession,
        scan: TableScan,
        wanted: Sequence[str] | None,
        where: str | None = None,
        identities: bool = True,
        file_names: bool = False,
    ) -> None:
        self.spark = spark
        self.file_names = file_names
        self.scan = scan
        self.where = where
        read = columns_of(where) if where else frozenset[str]()
        self.filters_ids = read is None or ROW_ID_COLUMN in read
        self.shows_ids = identities
        self.needs_ids = identities or self.filters_ids
        if wanted is None or read is None:
            self.columns = scan.columns
        else:
            names = {*(name.lower() for name in wanted), *read}
            self.columns = tuple(c for c in scan.columns if c.name in names)
        if not self.columns:  # files without ACID columns have no other column to count rows by
            self.columns = (schema.cheapest(scan.columns) or scan.columns[0],)

    def rows(self) -> DataFrame:
        """Live rows: the columns, the partition columns, then their row ids (`KEYS`).

        Raises InvalidExpression and UnknownColumn for `where`.
        """
        entities = self.scan.entities
        large = self.scan.read_bytes >= UNION_BYTES * len(entities)
        if len(entities) < 2 or (large and len(entities) <= UNION_LIMIT):
            groups = [[entity] for entity in entities]
        else:
            groups = [list(entities)]
        options: dict[str, str] = {}
        if self.where is not None:
            options = search_argument(
                self.spark, self.columns, self.scan.partition_columns, self.where
            )
        frames = [frame for group in groups for frame in self._group(group, options)]
        if not frames:
            nothing = self._filtered(self._empty())
            return nothing if self.shows_ids else nothing.drop(*KEYS)
        return reduce(DataFrame.union, frames)

    def _group(self, group: list[EntityScan], options: dict[str, str]) -> Iterator[DataFrame]:
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
                        self.needs_ids or tests,
                        tests,
                        self._decoded(branch, [source for _, source in sources]),
                    )
                )
            for frame in frames:
                rows = self._filtered(frame)
                if bitmap is not None and tests:
                    rows = rows.filter(~bitmap.deleted(self.spark, ENTITY))
                elif tests:
                    rows = self._without_deleted(rows, group)
                have_keys = self.needs_ids or tests or branch.streamed
                helpers = [
                    *([ENTITY] if tests else []),
                    *(KEYS if have_keys and not self.shows_ids else []),
                ]
                yield rows.drop(*helpers) if helpers else rows

    def _branch(self, entity: EntityScan, source: Source) -> _Branch:
        test_deletes = _may_have_deleted_rows(entity.deletes, source)
        counted = source.kind is SourceKind.RAW and (self.needs_ids or test_deletes)
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

    def _decoded(self, branch: _Branch, sources: Sequence[Source]) -> AcidColumns:
        """The ACID columns that the rows of these files are tested by, or that are asked for."""
        if not branch.proven:
            return ALL
        needed = frozenset(KEY_COLUMNS if self.needs_ids or branch.test_deletes else ())
        if branch.test_rows or branch.above >= 0:
            needed |= {schema.CURRENT_TRANSACTION}
        write_ids = {one for source in sources if source.keys for one in source.keys.write_ids}
        return some(needed, write_ids.pop() if len(write_ids) == 1 else None)

    def _validity(self, branch: _Branch) -> list[str]:
        """SQL tests that drop rows of invalid write ids."""
        tests = self._valid_ids() if branch.test_rows else []
        if branch.above >= 0:
            tests.append(f"{never_pushed(schema.CURRENT_TRANSACTION)} > {branch.above}")
        return tests

    def _valid_ids(self) -> list[str]:
        """SQL tests of events with ACID columns: the snapshot sees their currentTransaction."""
        current, write_ids = never_pushed(schema.CURRENT_TRANSACTION), self.scan.write_ids
        tests = [f"{current} <= {write_ids.high_watermark}"]
        if excepted := sorted({*write_ids.open, *write_ids.aborted}):
            tests.append(f"{current} NOT IN ({', '.join(map(str, excepted))})")
        return tests

    def _filtered(self, frame: DataFrame) -> DataFrame:
        if self.where is None:
            return frame
        with raise_as_ours():
            if not self.filters_ids:
                return frame.filter(self.where)
            with_id = frame.selectExpr("*", ROW_ID_STRUCT)
            return with_id.filter(self.where).drop(ROW_ID_COLUMN)

    def _without_deleted(self, frame: DataFrame, group: Sequence[EntityScan]) -> DataFrame:
        unread = [isinstance(entity.deletes, UnreadKeys) for entity in group]
        loaded = [
            NO_DELETES if late else one.deletes for one, late in zip(group, unread, strict=True)
        ]
        gone = keys_frame(self.spark, loaded)
        files = self.scan.files
        for ordinal, (entity, late) in enumerate(zip(group, unread, strict=True)):
            if late:
                uris = [files.uri(source.path) for source in entity.sources.deletes]
                valid = self._valid_ids()
                gone = gone.union(deleted_in_files(self.spark, uris, valid, ordinal))
        if any(unread):  # not by a broadcast, which the driver would have to hold
            gone = gone.hint("merge")
        same = (
            (F.col(WRITE_ID) == gone["w"])
            & (F.col(BUCKET) == gone["b"])
            & (F.col(ROW_ID) == gone["r"])
            & (F.col(ENTITY) == gone["e"])
        )
        return frame.join(gone, same, "left_anti")

    def _empty(self) -> DataFrame:
        fields = [
            *spark_schema(self.columns).fields,
            *spark_schema(self.scan.partition_columns).fields,
            *key_fields(),
        ]
        if self.file_names:
            fields.append(T.StructField(FILE_NAME_COLUMN, T.StringType()))
        return self.spark.createDataFrame([], T.StructType(fields))


def _may_have_deleted_rows(deletes: DeleteKeys, source: Source) -> bool:
    if isinstance(deletes, UnreadKeys):
        return source.low <= deletes.newest
    if source.keys is None:
        return deletes.may_touch(source.low, source.high, source.number)
    (low, high), (bucket, last) = source.keys.write_ids, source.keys.buckets
    if low == high and bucket == last:
        return deletes.within(low, bucket, *source.keys.row_ids) > 0
    return deletes.may_touch(low, high, source.number)


ROW_ID_STRUCT = (
    f"named_struct('writeid', {WRITE_ID}, 'bucketid', {BUCKET}, 'rowid', {ROW_ID})"
    f" AS {ROW_ID_COLUMN}"
)
"""SQL that makes the virtual column `row__id` from `KEYS`."""


def read_frame(
    spark: SparkSession,
    scan: TableScan,
    columns: Sequence[str] | None = None,
    row_id: bool = False,
    where: str | None = None,
    file_name: bool = False,
) -> DataFrame:
    """Live rows: table columns, then partition columns, then the requested virtual columns.

    `columns` selects columns in this order; they must exist. Raises
    InvalidExpression and UnknownColumn for `where`.
    """
    names = None if columns is None else tuple(name.lower() for name in columns)
    chosen = None
    if names is not None and where is None and _pruned_by_spark(scan):
        # One frame for all columns: a query that reads others needs no frame of its own.
        virtual = [ROW_ID_COLUMN] * row_id + [FILE_NAME_COLUMN] * file_name
        chosen = (*names, *virtual)
        names = None

    def make() -> DataFrame:
        return _built(spark, scan, names, row_id, where, file_name)

    return prepared(spark, scan, where, (names, row_id, file_name), make, chosen)


_FEW_COLUMNS = 64


def _pruned_by_spark(scan: TableScan) -> bool:
    """Whether Spark leaves out by itself, and soon, the columns that a query does not use.

    It does not where rows come through Arrow, and takes long where there are many columns.
    """
    return len(scan.columns) <= _FEW_COLUMNS and all(
        source.kind is SourceKind.ACID and source.length is None
        for entity in scan.entities
        for source in entity.sources.inserts
    )


def _built(
    spark: SparkSession,
    scan: TableScan,
    columns: Sequence[str] | None,
    row_id: bool,
    where: str | None,
    file_name: bool,
) -> DataFrame:
    builder = ScanBuilder(spark, scan, columns, where, identities=row_id, file_names=file_name)
    frame = builder.rows()
    partition = [column.name for column in scan.partition_columns]
    names = list(columns) if columns is not None else [c.name for c in scan.columns] + partition
    if not (row_id or file_name) and names == [c.name for c in builder.columns] + partition:
        return frame
    chosen = [f"`{name.lower()}`" for name in names]
    return frame.selectExpr(
        *chosen, *([ROW_ID_STRUCT] if row_id else []), *([FILE_NAME_COLUMN] if file_name else [])
    )
