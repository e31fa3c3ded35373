"""The files of a scan that Spark's own readers read, or Arrow in Spark's tasks.

These are files of insert-only tables, files without ACID columns whose columns match by position,
and all others in sessions without our format. Files are grouped by the tests that their rows need.
The validity of write ids is tested first; the reader's predicate and the delete test come later.

Files without ACID columns are read as they are, or through Arrow if their rows need row ids by
position.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.base.first_use import Recent
from acid_platform.engine.spark.failures import NO_INSERT
from acid_platform.engine.spark.few_calls import (
    COMPLETE,
    FILE_BYTES,
    cached,
    file_frame,
    selected,
    sent,
)
from acid_platform.engine.spark.parquet_rows import (
    by_position,
    is_seen,
    selected_keys,
    tested_write_id,
    values_frame,
    with_positions,
)
from acid_platform.engine.spark.row_keys import (
    CHANGED_BY,
    ENTITY,
    KEYS,
    NO_FIELD,
    ROW_ID_PARTS,
    SELECTED_KEYS,
    VALUES,
    DeleteBitmap,
    ReadRows,
    deleted_keys,
    event_frame,
    event_tests,
    key_fields,
    may_have_deleted_rows,
    never_pushed,
    row_id_type,
    valid_events,
)
from acid_platform.engine.spark.spark_types import (
    as_read,
    has_char_or_varchar,
    marked,
    spark_schema,
    spark_type,
)
from acid_platform.engine.spark.task_writing import read_plain
from acid_platform.formats.data_file import INSERT_EVENT
from acid_platform.formats.file_access import WRITTEN_FORMATS, has_fine_text
from acid_platform.layout.acid_keys import FILE_NAME_COLUMN, ROW_ID_COLUMN
from acid_platform.layout.formats import LINES
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import FRACTIONS, TIMESTAMPS, Column
from acid_platform.scan.deletes import UnreadKeys
from acid_platform.scan.result_columns import ROW_ID_TYPE
from acid_platform.scan.scans import ArrowScan, EntityScan, Scan
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.values.stored_values import fine_times

EntityFile = tuple[int, SourceFile]
"""The ordinal of an entity, and one of its files."""


@dataclass(frozen=True, slots=True)
class SourceFrames:
    """Makes frames over files of a scan: columns, partition columns, KEYS, ENTITY if requested.

    Each operation on a frame costs the driver some milliseconds, so there is one filter and one
    selection.
    """

    spark: SparkSession
    scan: Scan
    columns: tuple[Column, ...]
    """The columns to read, at least one."""
    file_names: bool
    """Whether rows have the URI of their file as FILE_NAME_COLUMN."""

    def streamed(self, files: Sequence[EntityFile], with_entity: bool) -> DataFrame:
        """A frame read through Arrow, with one Spark task for each file.

        For row ids by position, for flush lengths, and for files of external tables, whose rows
        have NULL as keys. Rows of invalid write ids are dropped already.
        """
        store = self.scan.files
        names = tuple(column.name for column in self.columns)
        table, write_ids, stored = self.scan.columns, self.scan.write_ids, self.scan.format
        uris = [store.uri(source.path) for _, source in files]

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store, _ = Files.of(uris[0])
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    ordinal, source = files[index]
                    entities = (EntityScan.of_file(source),)
                    scan = Scan(store, "", table, (), entities, write_ids, stored)
                    keyed = source.identity is not RowIdentity.NONE
                    for rows in ArrowScan(scan, names, row_id=keyed).batches(threads=1):
                        if not keyed:
                            rows = rows.append_column(
                                ROW_ID_COLUMN, pa.nulls(rows.num_rows, ROW_ID_TYPE)
                            )
                        entity = pa.array([ordinal] * rows.num_rows, pa.int32())
                        rows = rows.append_column(ENTITY, entity)
                        yield rows.append_column(
                            FILE_NAME_COLUMN, pa.array([uris[index]] * rows.num_rows)
                        )

        fields = [
            *spark_schema(self.columns).fields,
            T.StructField(ROW_ID_COLUMN, row_id_type()),
            T.StructField(ENTITY, T.IntegerType()),
            T.StructField(FILE_NAME_COLUMN, T.StringType()),
        ]
        numbers = self.spark.range(0, len(files), 1, len(files))
        values = [
            f"get(array({', '.join(self._literals(position))}), {ENTITY})"
            for position in range(len(self.scan.partition_columns))
        ]
        keys = [
            f"{ROW_ID_COLUMN}.{part} AS {key}" for part, key in zip(ROW_ID_PARTS, KEYS, strict=True)
        ]
        selection = [
            *map(quoted, names),
            *self._named(values),
            *keys,
            *([ENTITY] if with_entity else []),
            *([FILE_NAME_COLUMN] if self.file_names else []),
        ]
        return self._marked(selected(numbers.mapInArrow(read, T.StructType(fields)), selection))

    def native(
        self,
        identity: RowIdentity,
        positional: bool,
        files: Sequence[EntityFile],
        tests: Sequence[str],
        with_keys: bool,
        with_entity: bool,
    ) -> Iterator[DataFrame]:
        """Frames read by Spark's own readers; rows without ACID columns get NULL keys.

        `tests`: SQL on the root columns of files with ACID columns.
        """
        ordinals = {ordinal for ordinal, _ in files}
        if len(ordinals) > 1 and not all(_regular(source) for _, source in files):
            # These paths don't show the partition at a fixed depth: read each entity separately.
            for ordinal in sorted(ordinals):
                own = [pair for pair in files if pair[0] == ordinal]
                yield from self.native(identity, positional, own, tests, with_keys, with_entity)
            return
        frame = self._read(identity, positional, [source for _, source in files], tests)
        acid = identity is RowIdentity.STORED
        keys = SELECTED_KEYS if acid else _NO_KEYS
        placed = self._placed(frame, ordinals, with_entity)
        selection = [*self._stored(acid), *placed, *(keys if with_keys else ())]
        yield self._marked(selected(frame, selection))

    def in_parquet(
        self,
        positions: bool,
        files: Sequence[EntityFile],
        tests: Sequence[str],
        with_keys: bool,
        with_entity: bool,
    ) -> Iterator[DataFrame]:
        """Frames of Parquet files of rows with keys, by Spark's own reader.

        `positions`: the keys follow from the positions. `tests`: SQL on the columns of stored keys.
        """
        ordinals = {ordinal for ordinal, _ in files}
        if len(ordinals) > 1 and not all(_regular(source) for _, source in files):
            for ordinal in sorted(ordinals):
                own = [pair for pair in files if pair[0] == ordinal]
                yield from self.in_parquet(positions, own, tests, with_keys, with_entity)
            return
        by_uri = {self.scan.files.uri(source.path): source for _, source in files}
        uris, sizes = sorted(by_uri), sorted(source.size for source in by_uri.values())
        stored = not positions and (with_keys or bool(tests))

        def opened() -> DataFrame:
            made = values_frame(self.spark, uris, spark_schema(self.columns), stored)
            return made.filter(sent(self.spark, " AND ".join(tests))) if tests else made

        key = ("parquet", self.columns, stored, *tests, *uris, *sizes)
        frame = cached(self.spark, key, FILE_BYTES * len(uris), opened)
        selection = [*self._stored(False), *self._placed(frame, ordinals, with_entity)]
        if not with_keys:
            yield self._marked(selected(frame, selection))
        elif not positions:
            yield self._marked(selected(frame, [*selection, *selected_keys(uris)]))
        else:
            listed = [_ROOT.sub("file:/", uri) for uri in frame.inputFiles()]
            encoded = {unquote(uri): uri for uri in listed}
            paths = [(encoded[_ROOT.sub("file:/", uri)], by_uri[uri]) for uri in uris]
            yield self._marked(with_positions(frame, paths, selection))

    def _placed(
        self, frame: DataFrame, ordinals: Collection[int], with_entity: bool
    ) -> Iterator[str]:
        """SQL of what the place of a file tells: partition columns, ENTITY, FILE_NAME_COLUMN."""
        places = range(len(self.scan.partition_columns))
        if len(ordinals) > 1:
            paths = _PathValues(frame, self.scan)
            entity = paths.value([str(ordinal) for ordinal in range(len(self.scan.entities))])
            values = [paths.value(self._literals(column)) for column in places]
        else:
            (ordinal,) = ordinals
            entity = str(ordinal)
            values = [self._literals(column)[ordinal] for column in places]
        yield from self._named(values)
        if with_entity:
            yield f"{entity} AS {ENTITY}"
        if self.file_names:
            yield f"_metadata.file_path AS {FILE_NAME_COLUMN}"

    def _stored(self, acid: bool) -> list[str]:
        """The file's columns as SQL, in few strings: each string is another call into the JVM."""
        if acid and not any(has_char_or_varchar(column.type) for column in self.columns):
            return [f"{VALUES}.* EXCEPT ({NO_FIELD})"]
        prefix = f"{VALUES}." if acid else ""
        same = dict[str, str]()
        if not acid and self.scan.format.lacks_times:
            same = _NOT_PUSHED
        elif not acid and self.scan.format.name == "parquet":  # whose bounds may leave NaN out
            same = {kind: _NOT_PUSHED[kind] for kind in FRACTIONS}
            if any(kind in FRACTIONS for column in self.columns for kind in _inside(column)):
                same["struct"] = "if({0} IS NULL, NULL, {0})"
        return [
            same.get(column.type.kind, "{0}").format(
                as_read(prefix + quoted(column.name), column.type)
            )
            + f" AS {quoted(column.name)}"
            for column in self.columns
        ]

    def _marked(self, frame: DataFrame) -> DataFrame:
        return marked(frame, (*self.columns, *self.scan.partition_columns))

    def _read(
        self,
        identity: RowIdentity,
        positional: bool,
        sources: Sequence[SourceFile],
        tests: Sequence[str],
    ) -> DataFrame:
        """A frame over the files, from the cache if it was read before."""
        scan = self.scan
        sizes = sorted((scan.files.uri(source.path), source.size) for source in sources)
        uris = [uri for uri, _ in sizes]
        # Columns named like `_col0` are matched by their position in the whole table.
        columns = self.columns if identity is RowIdentity.STORED or not positional else scan.columns
        options = scan.format.options.items()
        key = (identity, scan.format.name, *options, columns, scan.columns, *tests, *sizes)

        def opened() -> DataFrame:
            if identity is RowIdentity.STORED:
                frame = event_frame(self.spark, uris, spark_schema(columns))
                own = event_tests(uris, INSERT_EVENT, NO_INSERT)
                return frame.filter(sent(self.spark, " AND ".join([*own, *tests])))
            if identity is RowIdentity.RUN:
                stored = str(sources[0].format)
                return file_frame(self.spark, stored, uris, spark_schema(columns))
            reader = self.spark.read.options(**COMPLETE)
            return read_plain(reader, uris, scan.format, scan.columns)

        return cached(self.spark, key, FILE_BYTES * len(uris), opened)

    def _literals(self, index: int) -> list[str]:
        """The value of a partition column for each entity, as SQL."""
        hive = self.scan.partition_columns[index].type
        kind = spark_type(hive).simpleString()
        texts = [entity.values[index] for entity in self.scan.entities]
        literals = ["NULL" if text is None else sql_string(text) for text in texts]
        return [as_read(f"try_cast({literal} AS {kind})", hive) for literal in literals]

    def _named(self, values: Sequence[str]) -> list[str]:
        return [
            f"{value} AS {quoted(column.name)}"
            for value, column in zip(values, self.scan.partition_columns, strict=True)
        ]


_ROOT = re.compile("^file:/+")
"""How paths of local files begin; `_metadata.file_path` has one slash."""


def _inside(column: Column) -> Iterator[str]:
    """The kinds of the types of a struct's fields; nothing for other columns."""
    return (part.kind for part in column.type.walk() if column.type.kind == "struct")


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

_NO_KEYS = tuple(
    f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}" for field in key_fields()
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

    def __init__(self, frame: DataFrame, scan: Scan) -> None:
        self._depth = len(scan.partition_columns)
        segments = "/".join(["[^/]+"] * self._depth)
        pattern = f"({segments})/(?:base|delta|delete_delta)_[^/]*/[^/]*$"
        matches = (re.search(pattern, uri) for uri in frame.inputFiles())
        encoded = {unquote(match[1]): match[1] for match in matches if match}
        self._segments = [
            encoded.get(entity.partition, entity.partition) for entity in scan.entities
        ]

    def value(self, values: Sequence[str]) -> str:
        """SQL of the value that belongs to a row's entity, of one for each entity."""
        # Not a regular expression: it would be evaluated for each row, several times with deletes.
        end = f"substring_index(_metadata.file_path, '/', {-(self._depth + 2)})"
        pairs = ", ".join(
            f"{sql_string(segment)}, {value}"
            for segment, value in zip(self._segments, values, strict=True)
        )
        return f"try_element_at(map({pairs}), substring_index({end}, '/', {self._depth}))"


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

    identity: RowIdentity
    streamed: bool
    """Read through Arrow: rows need row ids by position, the file ends at a flush length, it is one
    of an external table, or its values have to be looked at."""
    positional: bool
    test_rows: bool
    test_deletes: bool
    above: int
    parquet: bool = False
    positions: bool = False
    """Whether the keys of a Parquet file follow from the positions of its rows."""


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
        (_branch(frames, entity, source, keys), (ordinal, source))
        for ordinal, entity in enumerate(scan.entities)
        for source in entity.sources.inserts
        if not (source.in_parquet and by_position(source)) or is_seen(source, scan.write_ids)
    ]
    tested = {branch for branch, _ in files if branch.test_deletes}
    deletes = [entity.deletes for entity in scan.entities]
    in_tasks = any(isinstance(deleted, UnreadKeys) for deleted in deletes)
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
        elif branch.parquet:
            validity = _validity(scan, branch)
            read = frames.in_parquet(branch.positions, sources, validity, keys or tests, tests)
        else:
            validity = _validity(scan, branch)
            read = frames.native(
                branch.identity, branch.positional, sources, validity, have_keys, tests
            )
        for frame in read:
            yield ReadRows(frame, have_keys, deleted if tests else None)


def _branch(frames: SourceFrames, entity: EntityScan, source: SourceFile, keys: bool) -> _Branch:
    test_deletes = may_have_deleted_rows(entity.deletes, source)
    counted = source.identity is RowIdentity.RUN and (keys or test_deletes)
    sure = all(map(source.is_sure, frames.columns))
    if not sure and frames.scan.format.name not in WRITTEN_FORMATS:
        _refuse_fine_text(frames, source.path)
        sure = True
    parquet = source.in_parquet and sure
    positions = parquet and by_position(source)
    return _Branch(
        source.identity,
        counted or source.length is not None or source.streamed or not sure,
        source.positional,
        source.test_rows and source.identity is RowIdentity.STORED and not positions,
        test_deletes,
        -1 if positions else source.above,
        parquet,
        positions,
    )


def _refuse_fine_text(frames: SourceFrames, path: str) -> None:
    """Raises WrongType for a time that Spark would cut in a file that only Spark reads."""
    kinds = {part.kind for column in frames.columns for part in column.type.walk()}
    if frames.scan.format.name not in LINES or kinds.isdisjoint(TIMESTAMPS):
        return
    uri = frames.scan.files.uri(path)
    if not _SOUND_TEXTS.get(uri):
        if has_fine_text(frames.scan.files, path):
            raise fine_times(path, external=False)
        _SOUND_TEXTS.put(uri, True)


_SOUND_TEXTS: Recent[str, bool] = Recent(10_000)


def _validity(scan: Scan, branch: _Branch) -> list[str]:
    """SQL tests that drop rows of invalid write ids."""
    column = tested_write_id() if branch.parquet else CHANGED_BY
    tests = valid_events(scan.write_ids, column) if branch.test_rows else []
    if branch.above >= 0:
        tests.append(f"{never_pushed(column)} > {branch.above}")
    return tests
