"""The read path: AcidDirectory per partition → a DataFrame of live rows (spark.md sections 1, 2).

A scan reads explicit files with the explicit six-column schema. ORC recognises ACID files and
wraps any other requested root schema a second time, so all six columns stay referenced by one
predicate that the optimiser can neither remove nor push; pruning inside `row` still works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.deletes import DeleteBitmap, DeleteKeys, keys_frame
from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.predicates import columns_of
from acid_platform.engine.row_keys import BUCKET, CURRENT, ROW_ID, ROW_ID_COLUMN, WRITE_ID
from acid_platform.engine.sarg import search_argument
from acid_platform.engine.types import spark_schema, spark_type
from acid_platform.errors import UnsupportedLayout
from acid_platform.layout import schema
from acid_platform.layout.names import BaseName, parse_bucket_file
from acid_platform.layout.types import Column as TableColumn
from acid_platform.snapshot.directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList

UNION_LIMIT = 16
UNION_BYTES = 8 << 20
"""Few and large entities are scanned one by one with literal partition values; many or small ones
together, with values out of the file's path, which costs 0.1 to 0.2 microseconds per row while a
branch of a union costs 25 to 100 milliseconds of planning. Both give equal rows."""

_ENTITY = "__e"

@dataclass(frozen=True, slots=True)
class EntityScan:
    """One entity of a snapshot, ready to be read."""

    directory: AcidDirectory
    deletes: DeleteKeys
    partition: str
    """`month=3`, or empty for an unpartitioned table."""
    values: tuple[str | None, ...]
    """Partition values in column order, as written in the directory name."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """Everything that a read of one table at one snapshot needs; a plain value."""

    files: Files
    location: str
    columns: tuple[TableColumn, ...]
    partition_columns: tuple[TableColumn, ...]
    entities: tuple[EntityScan, ...]
    write_ids: ValidWriteIdList

    @property
    def read_bytes(self) -> int:
        """Size of the insert files that the scan opens, before column pruning."""
        return sum(entry.size for entity in self.entities
                   for source in _sources(entity.directory) for entry in source.files)


    @property
    def highest_bucket(self) -> int:
        """Of the bucket numbers in the names of the files that are read; 0 without any."""
        found = (parse_bucket_file(entry.name) for entity in self.entities
                 for source in _sources(entity.directory) for entry in source.files)
        return max((bucket.bucket for bucket in found if bucket), default=0)


def _sources(directory: AcidDirectory) -> Iterator[VisibleBase | VisibleDelta]:
    if directory.base:
        yield directory.base
    yield from directory.inserts


@dataclass(frozen=True, slots=True)
class _Branch:
    """Files that need the same tests. `above` -1: no straddling delta (storage.md section 7)."""

    test_rows: bool
    test_deletes: bool
    above: int


def _write_id_range(name: object) -> tuple[int, int]:
    if isinstance(name, BaseName):
        return 0, max(name.write_id, 0)
    return name.low, name.high  # type: ignore[attr-defined]


def _branches(entity: EntityScan) -> dict[_Branch, list[str]]:
    """The entity's insert files by the tests that their rows need."""
    directory = entity.directory
    if directory.originals or any(source.raw for source in _sources(directory)):
        raise UnsupportedLayout(
            f"{directory.location} holds files without ACID columns (a converted table or LOAD"
            " DATA); run a major compaction in Hive first"
        )
    found: dict[_Branch, list[str]] = {}
    for source in _sources(directory):
        low, high = _write_id_range(source.name)
        for entry in source.files:
            bucket = parse_bucket_file(entry.name)
            # Only a plain delta is sure to hold one bucket property number per file.
            plain = low == high and not isinstance(source.name, BaseName)
            number = bucket.bucket if bucket and plain else None
            branch = _Branch(source.test_rows, entity.deletes.may_touch(low, high, number),
                             source.above)
            found.setdefault(branch, []).append(f"{directory.location}/{entry.path}")
    return found


class ScanBuilder:
    """Builds the frame of one TableScan: only the wanted columns, only rows that `where` accepts.

    `wanted` None: all columns. Columns that `where` reads are added to them. The predicate comes
    before the delete test, and as search argument before decoding.
    """

    def __init__(
        self, spark: SparkSession, scan: TableScan, wanted: Sequence[str] | None,
        where: str | None = None,
    ) -> None:
        self.spark = spark
        self.scan = scan
        self.where = where
        read = columns_of(where) if where else frozenset[str]()
        self.filters_ids = read is None or ROW_ID_COLUMN in read
        if wanted is None or read is None:
            self.columns = scan.columns
        else:
            names = {*(name.lower() for name in wanted), *read}
            self.columns = tuple(c for c in scan.columns if c.name in names)
        if not self.columns:  # a leaf is read in any case
            leaf = schema.cheapest(scan.columns) or scan.columns[0]
            self.columns = (leaf,)
        self.schema = T.StructType([
            T.StructField(schema.OPERATION, T.IntegerType()),
            T.StructField(schema.ORIGINAL_TRANSACTION, T.LongType()),
            T.StructField(schema.BUCKET, T.IntegerType()),
            T.StructField(schema.ROW_ID, T.LongType()),
            T.StructField(schema.CURRENT_TRANSACTION, T.LongType()),
            T.StructField(schema.ROW, spark_schema(self.columns)),
        ])

    def rows(self) -> DataFrame:
        """Live rows: the columns, the partition columns, then `KEYS` (their identity).

        Raises InvalidExpression and UnknownColumn for `where`.
        """
        entities = self.scan.entities
        large = self.scan.read_bytes >= UNION_BYTES * len(entities)
        if len(entities) < 2 or (large and len(entities) <= UNION_LIMIT):
            groups = [[entity] for entity in entities]
        else:
            groups = [list(entities)]
        frames = [frame for group in groups for frame in self._group(group)]
        if not frames:
            return self._filtered(self._empty())
        return reduce(DataFrame.union, frames)

    def _group(self, group: list[EntityScan]) -> Iterator[DataFrame]:
        merged: dict[_Branch, list[str]] = {}
        for entity in group:
            for branch, paths in _branches(entity).items():
                merged.setdefault(branch, []).extend(paths)
        options = search_argument(
            self.spark, self.columns, self.scan.partition_columns, self.where,
        ) if self.where else {}
        for branch, paths in merged.items():
            frame = self._raw(paths, options)
            paths_of = _PathValues(frame, group, self.scan) if len(group) > 1 else None
            if branch.test_rows:
                frame = frame.filter(self._valid_row())
            if branch.above >= 0:
                frame = frame.filter(_never_pushed(schema.CURRENT_TRANSACTION) > branch.above)
            ordinal = (paths_of.ordinal() if paths_of else F.lit(0)).alias(_ENTITY)
            frame = self._filtered(self._flat(frame, group, paths_of, ordinal))
            if branch.test_deletes:
                frame = self._without_deleted(frame, group)
            yield frame.drop(_ENTITY)

    def _raw(self, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
        reader = (
            self.spark.read.schema(self.schema)
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            .options(**options)
        )
        frame = reader.orc([self.scan.files.uri(path) for path in sorted(paths)])
        leaf = F.col(f"{schema.ROW}.`{(schema.cheapest(self.columns) or self.columns[0]).name}`")
        # True for every row of a valid file by its first part, which is all that is evaluated; no
        # filter of the reader's can imply it, so that all six root columns stay in the scan.
        others = reduce(Column.bitwiseOR, (F.col(name) for name in schema.ACID_COLUMNS[1:5]))
        return frame.filter(
            (_never_pushed(schema.OPERATION) <= schema.DELETE_EVENT) | leaf.isNull() | (others > 0)
        )

    def _flat(
        self, frame: DataFrame, group: list[EntityScan], paths_of: _PathValues | None,
        ordinal: Column,
    ) -> DataFrame:
        return frame.select(
            *(F.col(f"{schema.ROW}.`{column.name}`").alias(column.name)
              for column in self.columns),
            *(
                (paths_of.value(i) if paths_of else self._literal(group[0].values[i], column))
                .alias(column.name)
                for i, column in enumerate(self.scan.partition_columns)
            ),
            F.col(schema.ORIGINAL_TRANSACTION).alias(WRITE_ID),
            F.col(schema.BUCKET).alias(BUCKET),
            F.col(schema.ROW_ID).alias(ROW_ID),
            F.col(schema.CURRENT_TRANSACTION).alias(CURRENT),
            ordinal,
        )

    def _filtered(self, frame: DataFrame) -> DataFrame:
        if self.where is None:
            return frame
        with raise_as_ours():
            if not self.filters_ids:
                return frame.filter(self.where)
            with_id = frame.withColumn(ROW_ID_COLUMN, row_id_struct())
            return with_id.filter(self.where).drop(ROW_ID_COLUMN)

    def _valid_row(self) -> Column:
        current = _never_pushed(schema.CURRENT_TRANSACTION)
        write_ids = self.scan.write_ids
        excepted = sorted({*write_ids.open, *write_ids.aborted})
        valid = current <= write_ids.high_watermark
        return valid & ~current.isin(*excepted) if excepted else valid

    def _without_deleted(self, frame: DataFrame, group: list[EntityScan]) -> DataFrame:
        keys = [entity.deletes for entity in group]
        bitmap = DeleteBitmap.build(keys)
        if bitmap is not None:
            return frame.filter(~bitmap.deleted(self.spark, F.col(_ENTITY)))
        gone = keys_frame(self.spark, keys)
        same = (
            (F.col(WRITE_ID) == gone["w"]) & (F.col(BUCKET) == gone["b"])
            & (F.col(ROW_ID) == gone["r"]) & (F.col(_ENTITY) == gone["e"])
        )
        return frame.join(gone, same, "left_anti")

    def _literal(self, value: str | None, column: TableColumn) -> Column:
        return F.lit(value).try_cast(spark_type(column.type))

    def _empty(self) -> DataFrame:
        fields = [
            *spark_schema(self.columns).fields, *spark_schema(self.scan.partition_columns).fields,
            T.StructField(WRITE_ID, T.LongType()), T.StructField(BUCKET, T.IntegerType()),
            T.StructField(ROW_ID, T.LongType()), T.StructField(CURRENT, T.LongType()),
        ]
        return self.spark.createDataFrame([], T.StructType(fields))


def _never_pushed(name: str) -> Column:
    """A root column for a filter that must stay in Spark.

    Of a plain comparison Spark pushes at least `IS NOT NULL` into ORC, which looks for a column of
    that name inside the row: rows vanish where the user has one (`operation`, `bucket`) that is
    NULL, and our own search argument is replaced.
    """
    return F.coalesce(F.col(name), F.lit(-1))


def row_id_struct() -> Column:
    """The virtual column `row__id` out of `KEYS`."""
    return F.struct(F.col(WRITE_ID).alias("writeid"), F.col(BUCKET).alias("bucketid"),
                    F.col(ROW_ID).alias("rowid"))


class _PathValues:
    """Partition values and entity ordinals out of `_metadata.file_path` (P16).

    The path is URI-encoded, so literal maps go from the encoded partition path, as Spark itself
    spells it, to the typed value. Spark prunes files by filters on such an expression.
    """

    def __init__(self, frame: DataFrame, group: Sequence[EntityScan], scan: TableScan) -> None:
        self.scan = scan
        self.group = group
        segments = "/".join(["[^/]+"] * len(scan.partition_columns))
        self.pattern = f"({segments})/(?:base|delta|delete_delta)_[^/]*/[^/]*$"
        encoded: dict[str, str] = {}
        for uri in frame.inputFiles():
            match = re.search(self.pattern, uri)
            if match:
                encoded[unquote(match[1])] = match[1]
        self.segments = [encoded.get(entity.partition, entity.partition) for entity in group]

    def _segment(self) -> Column:
        # Not a regular expression: it is evaluated per row, several times where deletes are tested.
        depth = len(self.scan.partition_columns)
        end = F.substring_index(F.col("_metadata.file_path"), "/", -(depth + 2))
        return F.substring_index(end, "/", depth)

    def _lookup(self, values: Sequence[Column]) -> Column:
        pairs = zip(self.segments, values, strict=True)
        return F.try_element_at(
            F.create_map(*(part for segment, value in pairs for part in (F.lit(segment), value))),
            self._segment(),
        )

    def ordinal(self) -> Column:
        return self._lookup([F.lit(i) for i in range(len(self.group))])

    def value(self, position: int) -> Column:
        kind = spark_type(self.scan.partition_columns[position].type)
        return self._lookup(
            [F.lit(entity.values[position]).try_cast(kind) for entity in self.group])


def read_frame(
    spark: SparkSession, scan: TableScan, columns: Sequence[str] | None = None,
    row_id: bool = False, where: str | None = None,
) -> DataFrame:
    """Live rows: table columns, then partition columns, then `row__id` when asked for.

    `columns` limits the result to these names, in this order; they must exist. Raises
    InvalidExpression and UnknownColumn for `where`.
    """
    frame = ScanBuilder(spark, scan, columns, where).rows()
    partition = [column.name for column in scan.partition_columns]
    names = list(columns) if columns is not None else [c.name for c in scan.columns] + partition
    chosen = [F.col(f"`{name.lower()}`") for name in names]
    if row_id:
        chosen.append(row_id_struct().alias(ROW_ID_COLUMN))
    return frame.select(*chosen)
