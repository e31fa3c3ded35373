"""The files of a scan as frames: rows with row ids, partition values and entity.

A scan of ACID files names the files and the six-column schema, of which `acid_columns` tells what
is decoded. One predicate refers to all six columns, which the optimiser can neither remove nor push
down; pruning inside `row` works. Files without ACID columns are read as they are, or through
Arrow if their rows need row ids by position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.acid_columns import ALL, NO_FIELD, AcidColumns
from acid_platform.engine.spark.cache import FILE_BYTES, kept
from acid_platform.engine.spark.char_varchar import as_read, has_char_or_varchar, marked
from acid_platform.engine.spark.few_calls import orc_frame, selected, sent
from acid_platform.engine.spark.plain_files import read_plain
from acid_platform.engine.spark.row_keys import ENTITY, KEYS, key_fields
from acid_platform.engine.spark.spark_types import spark_schema, spark_type
from acid_platform.layout import schema
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.schema import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column as TableColumn
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import SourceFile, SourceKind
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList


@dataclass(frozen=True, slots=True)
class Entity:
    """A partition with its values, as written in the directory name."""

    partition: str
    values: tuple[str | None, ...]


COMPLETE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options of every read of files: whatever the session says, no file may be left out."""

Found = tuple[int, SourceFile]
"""The ordinal of an entity, and one of its files."""


@dataclass(frozen=True, slots=True)
class SourceFrames:
    """Makes frames over files of one table: columns, partition columns, KEYS, ENTITY if requested.

    Each operation on a frame costs the driver some milliseconds, so there is one filter and one
    selection.
    """

    spark: SparkSession
    files: Files
    table: tuple[TableColumn, ...]
    columns: tuple[TableColumn, ...]
    """The columns to read, at least one."""
    partition_columns: tuple[TableColumn, ...]
    entities: Sequence[Entity]
    format: FileFormat
    options: Mapping[str, str]
    """Options for Spark's ORC reader: the search argument."""
    file_names: bool = False
    """Whether rows have the URI of their file as FILE_NAME_COLUMN."""

    def streamed(
        self, found: Sequence[Found], write_ids: ValidWriteIdList, with_entity: bool
    ) -> DataFrame:
        """A frame read through Arrow, with one Spark task for each file.

        For row ids by position and for flush lengths. Rows of invalid write ids are dropped
        already.
        """
        location, wanted = self.files.uri(found[0][1].path), tuple(c.name for c in self.columns)
        table = self.table
        uris = [self.files.uri(source.path) for _, source in found]

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            files, _ = Files.of(location)
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    ordinal, source = found[index]
                    alone = EntityScan.of_file(source)
                    scan = Scan(files, "", table, (), (alone,), write_ids)
                    for rows in ArrowScan(scan, wanted, row_id=True).batches(threads=1):
                        entity = pa.array([ordinal] * rows.num_rows, pa.int32())
                        rows = rows.append_column(ENTITY, entity)
                        yield rows.append_column(
                            FILE_NAME_COLUMN, pa.array([uris[index]] * rows.num_rows)
                        )

        ids = T.StructType(
            [
                T.StructField("writeid", T.LongType()),
                T.StructField("bucketid", T.IntegerType()),
                T.StructField("rowid", T.LongType()),
            ]
        )
        fields = [
            *spark_schema(self.columns).fields,
            T.StructField(ROW_ID_COLUMN, ids),
            T.StructField(ENTITY, T.IntegerType()),
            T.StructField(FILE_NAME_COLUMN, T.StringType()),
        ]
        frame = self.spark.range(0, len(found), 1, len(found)).mapInArrow(
            read, T.StructType(fields)
        )
        values = [
            f"get(array({', '.join(self._literals(i))}), {ENTITY})"
            for i in range(len(self.partition_columns))
        ]
        keys = [
            f"{ROW_ID_COLUMN}.{field.name} AS {name}"
            for field, name in zip(ids.fields, KEYS, strict=True)
        ]
        return self._marked(
            selected(
                frame,
                [
                    *map(quoted, wanted),
                    *self._named(values),
                    *keys,
                    *([ENTITY] if with_entity else []),
                    *([FILE_NAME_COLUMN] if self.file_names else []),
                ],
            )
        )

    def native(
        self,
        kind: SourceKind,
        positional: bool,
        found: Sequence[Found],
        tests: Sequence[str],
        with_keys: bool,
        with_entity: bool,
        decoded: AcidColumns = ALL,
    ) -> Iterator[DataFrame]:
        """Frames read by Spark's own readers; rows without ACID columns get NULL keys.

        `tests`: SQL on the root columns of files with ACID columns, of which `decoded` are read.
        """
        ordinals = {ordinal for ordinal, _ in found}
        if len(ordinals) > 1 and not all(_regular(source) for _, source in found):
            # These paths don't show the partition at a fixed depth: read each entity separately.
            for ordinal in sorted(ordinals):
                own = [pair for pair in found if pair[0] == ordinal]
                yield from self.native(
                    kind, positional, own, tests, with_keys, with_entity, decoded
                )
            return
        frame = self._read(kind, positional, [source for _, source in found], tests, decoded)
        if len(ordinals) > 1:
            paths = _PathValues(frame, self)
            entity, values = paths.ordinal(), paths.values()
        else:
            (ordinal,) = ordinals
            entity = str(ordinal)
            values = [self._literals(i)[ordinal] for i in range(len(self.partition_columns))]
        acid = kind is SourceKind.ACID
        keys = decoded.keys() if acid else _NO_KEYS
        yield self._marked(
            selected(
                frame,
                [
                    *self._stored(acid),
                    *self._named(values),
                    *(keys if with_keys else ()),
                    *([f"{entity} AS {ENTITY}"] if with_entity else []),
                    *([f"_metadata.file_path AS {FILE_NAME_COLUMN}"] if self.file_names else []),
                ],
            )
        )

    def _stored(self, acid: bool) -> list[str]:
        """The file's columns as SQL, in few strings: each string is another call into the JVM."""
        if acid and not any(has_char_or_varchar(column.type) for column in self.columns):
            return [f"{schema.ROW}.* EXCEPT ({NO_FIELD})"]
        prefix = f"{schema.ROW}." if acid else ""
        same = {} if acid or self.format.name != "orc" else _NOT_PUSHED
        return [
            same.get(column.type.kind, "{0}").format(
                as_read(prefix + quoted(column.name), column.type)
            )
            + f" AS {quoted(column.name)}"
            for column in self.columns
        ]

    def _marked(self, frame: DataFrame) -> DataFrame:
        return marked(frame, (*self.columns, *self.partition_columns))

    def _read(
        self,
        kind: SourceKind,
        positional: bool,
        sources: Sequence[SourceFile],
        tests: Sequence[str],
        decoded: AcidColumns,
    ) -> DataFrame:
        """A frame over the files, from the cache if it was read before."""
        sizes = sorted((self.files.uri(source.path), source.size) for source in sources)
        uris = [uri for uri, _ in sizes]
        # Columns named like `_col0` are matched by their position in the whole table.
        columns = self.columns if kind is SourceKind.ACID or not positional else self.table
        key = (
            kind,
            self.format.name,
            *self.format.options.items(),
            columns,
            self.table,
            *self.options.items(),
            decoded,
            *tests,
            *sizes,
        )
        return kept(
            self.spark,
            key,
            FILE_BYTES * len(uris),
            lambda: self._opened(kind, columns, uris, tests, decoded),
        )

    def _opened(
        self,
        kind: SourceKind,
        columns: Sequence[TableColumn],
        uris: list[str],
        tests: Sequence[str],
        decoded: AcidColumns,
    ) -> DataFrame:
        if kind is SourceKind.ACID:
            requested = decoded.schema(spark_schema(columns))
            frame = orc_frame(self.spark, uris, requested, {**COMPLETE, **self.options})
            return frame.filter(sent(self.spark, " AND ".join([*decoded.tests(uris), *tests])))
        if kind is SourceKind.RAW:
            return orc_frame(self.spark, uris, spark_schema(columns), COMPLETE)
        return read_plain(self.spark.read.options(**COMPLETE), uris, self.format, self.table)

    def _literals(self, position: int) -> list[str]:
        """The value of a partition column for each entity, as SQL."""
        hive = self.partition_columns[position].type
        kind = spark_type(hive).simpleString()
        return [
            as_read(f"try_cast({_sql_value(entity.values[position])} AS {kind})", hive)
            for entity in self.entities
        ]

    def _named(self, values: Sequence[str]) -> list[str]:
        return [
            f"{value} AS {quoted(column.name)}"
            for value, column in zip(values, self.partition_columns, strict=True)
        ]


_NOT_PUSHED = {
    "string": "substring({0}, 1)",
    "float": "nanvl({0}, {0})",
    "double": "nanvl({0}, {0})",
    "date": "date_add({0}, 0)",
    "timestamp": "timestamp_micros(unix_micros({0}))",
    "timestamp with local time zone": "timestamp_micros(unix_micros({0}))",
}
"""SQL of the same value, of which Spark pushes no comparison down into ORC files: ORC orders text,
zeros and days before 1582 in other ways than Spark (`ExactFilters.java`)."""


def _sql_value(value: str | None) -> str:
    """A string or NULL as SQL. Spark gets expressions as text: one call instead of hundreds."""
    return "NULL" if value is None else sql_string(value)


def never_pushed(name: str) -> str:
    """SQL of a root column for a filter that must stay in Spark.

    For a plain comparison Spark pushes down at least `IS NOT NULL`, and ORC looks for a column of
    that name inside `row`. If the user has such a column (`operation`, `bucket`), rows with NULL
    there would be lost, and our own search argument would be replaced.
    """
    return f"coalesce({name}, -1)"


_NO_KEYS = tuple(
    f"CAST(NULL AS {one.dataType.simpleString()}) AS {one.name}" for one in key_fields()
)


def _regular(source: SourceFile) -> bool:
    """Whether the file is directly inside of a base or delta of its partition."""
    return bool(source.directory) and source.path.endswith(
        f"/{source.directory}/{source.path.rpartition('/')[2]}"
    )


class _PathValues:
    """Partition values and entity ordinals from `_metadata.file_path` (P16).

    The path is URI-encoded, so literal maps translate the encoded partition path, as Spark spells
    it, to the typed value. Spark prunes files by filters on such an expression.
    """

    def __init__(self, frame: DataFrame, frames: SourceFrames) -> None:
        self.frames = frames
        segments = "/".join(["[^/]+"] * len(frames.partition_columns))
        pattern = f"({segments})/(?:base|delta|delete_delta)_[^/]*/[^/]*$"
        encoded: dict[str, str] = {}
        for uri in frame.inputFiles():
            match = re.search(pattern, uri)
            if match:
                encoded[unquote(match[1])] = match[1]
        self.segments = [
            encoded.get(entity.partition, entity.partition) for entity in frames.entities
        ]

    def _lookup(self, values: Sequence[str]) -> str:
        # Not a regular expression: it would be evaluated for each row, several times with deletes.
        depth = len(self.frames.partition_columns)
        end = f"substring_index(_metadata.file_path, '/', {-(depth + 2)})"
        pairs = ", ".join(
            f"{sql_string(segment)}, {value}"
            for segment, value in zip(self.segments, values, strict=True)
        )
        return f"try_element_at(map({pairs}), substring_index({end}, '/', {depth}))"

    def ordinal(self) -> str:
        return self._lookup([str(i) for i in range(len(self.frames.entities))])

    def values(self) -> list[str]:
        return [
            self._lookup(self.frames._literals(i))
            for i in range(len(self.frames.partition_columns))
        ]
