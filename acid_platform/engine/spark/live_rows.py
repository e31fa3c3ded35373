"""A frame of the live rows of a snapshot's files, read by our own file format.

The format gets the recorded files, how the rows of each are tested (F24), the deleted keys of
each partition (P14), and the text of each partition value, which it casts once (P16).

Spark's ORC reader hands on the columns of an ACID file inside the struct `row`, and needs the ACID
columns in every scan: code that Spark generates for each row looks at all of them. Our format takes
the columns out of `row` and the deleted rows out of each batch before that code runs, and gives the
filters of a query to ORC, which skips rows by them (F19). It is Java in `java/`: Spark carries a
compiler for the code that it generates itself, which compiles ours too, in a fifth of a second.

Where this can't be done (Spark Connect, a session with a class loader of its own), the platform
reads by Spark's own ORC reader, which takes longer and returns the same rows.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from acid_platform.engine.spark import version_of
from acid_platform.engine.spark.few_calls import java_class, parsed, passed, selected
from acid_platform.engine.spark.row_keys import (
    ENTITY,
    KEYS,
    ReadRows,
    deleted_keys,
    key_fields,
    may_have_deleted_rows,
)
from acid_platform.engine.spark.spark_types import (
    as_read,
    has_char_or_varchar,
    marked,
    spark_schema,
)
from acid_platform.layout.acid_keys import FILE_NAME_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import TIMESTAMPS, Column
from acid_platform.scan.deletes import WORD, DeleteKeys, UnreadKeys
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import RowIdentity, SourceFile

READER_VARIABLE = "ACID_SPARK_READER"
"""`spark` lets Spark's own ORC reader read ACID files."""

_SOURCES = Path(__file__).parent / "java"
_RESOURCES = "org.codehaus.commons.compiler.util.resource"

_log = logging.getLogger(__name__)
_guard = threading.Lock()
_loaded: WeakKeyDictionary[SparkContext, bool] = WeakKeyDictionary()
_classes: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()
"""The class files of each JVM, by the client of its gateway. A JVM that has loaded them can't
compile their sources once more, and a later session of it starts without them."""


def has_acid_format(spark: SparkSession) -> bool:
    """Whether scans of this session can use the format; the first call loads it."""
    if os.environ.get(READER_VARIABLE) == "spark" or not hasattr(spark, "_jsparkSession"):
        return False
    context = spark.sparkContext
    with _guard:  # of two threads that read their first table, one compiles
        if context not in _loaded:
            try:
                _load(spark)
                _loaded[context] = True
            except (Py4JError, OSError) as error:
                _log.warning(
                    "ACID files are read by Spark's own reader, which takes longer: ours can't be"
                    " loaded into this session (%s)",
                    " ".join(str(error).split("\n\tat ")[0].split()),
                )
                _loaded[context] = False
        return _loaded[context]


def snapshot_files(spark: SparkSession, *arguments: Any) -> Any:
    """A new `SnapshotFiles`, whose constructor describes the arguments."""
    return java_class(spark, "acidplatform.SnapshotFiles")(*arguments)


def _load(spark: SparkSession) -> None:
    """Makes the classes known to the driver and to the executors. Raises Py4JError, OSError."""
    context: Any = spark.sparkContext
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    client = spark._jvm._gateway_client  # type: ignore[union-attr]
    if client not in _classes:
        _classes[client] = _compiled(spark, loader)
    classes = _classes[client]
    name = f"acidplatform-{hashlib.sha256(b''.join(classes.values())).hexdigest()[:16]}.jar"
    jar = Path(context._temp_dir, name)
    with zipfile.ZipFile(jar, "w") as archive:
        for path, code in sorted(classes.items()):
            archive.writestr(path, code)
    # `addURL` is public in Spark's class loader, and in no other.
    loader.addURL(java_class(spark, "java.io.File")(str(jar)).toURI().toURL())
    context._jsc.addJar(jar.as_uri())


def _compiled(spark: SparkSession, loader: Any) -> dict[str, bytes]:
    """The class files of our Java sources, by path in a jar. Raises Py4JError."""
    made = java_class(spark, "java.util.HashMap")()
    compiler = java_class(spark, "org.codehaus.janino.Compiler")()
    compiler.setIClassLoader(
        java_class(spark, "org.codehaus.janino.ClassLoaderIClassLoader")(loader)
    )
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setClassFileCreator(java_class(spark, f"{_RESOURCES}.MapResourceCreator")(made))
    sources = [
        source
        for directory in ("acidplatform", version_of(spark).java)
        for source in sorted((_SOURCES / directory).glob("*.java"))
    ]
    gateway: Any = spark.sparkContext._gateway
    texts = gateway.new_array(java_class(spark, f"{_RESOURCES}.Resource"), len(sources))
    for index, source in enumerate(sources):
        text = java_class(spark, f"{_RESOURCES}.StringResource")(source.name, source.read_text())
        texts[index] = text
    compiler.compile(texts)
    return {str(path): bytes(made[path]) for path in made}


PROVEN, TEST_ROWS, TEST_DELETES, CONTIGUOUS, RAW = 1, 2, 4, 8, 16
"""Flags of a file, as in `AcidFile.java`."""

TIME_ZONE = "UTC"
"""The time zone of timestamps in partition values, which every session has."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the entity with this ordinal; `tested`: the loaded keys may delete rows of it."""

    ordinal: int
    source: SourceFile
    tested: bool


def divided(spark: SparkSession, scan: Scan, columns: Sequence[Column]) -> tuple[Scan, Scan]:
    """The scan in two: of the files whose columns our format reads in this session, and of the
    others."""
    if not has_acid_format(spark):
        return replace(scan, entities=()), scan
    ours: list[EntityScan] = []
    others: list[EntityScan] = []
    for entity in scan.entities:
        parts: tuple[list[SourceFile], list[SourceFile]] = ([], [])
        for source in entity.sources.inserts:
            parts[not readable(source, columns)].append(source)
        for part, entities in zip(parts, (ours, others), strict=True):
            if part:
                sources = replace(entity.sources, inserts=tuple(part))
                entities.append(replace(entity, sources=sources))
    return replace(scan, entities=tuple(ours)), replace(scan, entities=tuple(others))


def readable(source: SourceFile, columns: Sequence[Column]) -> bool:
    """Whether our format reads these columns of the file: not where they match by position, nor a
    value that has to be looked at, unless it is a time and a column by itself."""
    by_name = source.identity is RowIdentity.RUN and not source.positional
    return (
        not (source.streamed or source.in_parquet)
        and (source.identity is RowIdentity.STORED or by_name)
        and all(source.is_sure(each) or each.type.kind in TIMESTAMPS for each in columns)
    )


def read_by_format(
    spark: SparkSession, scan: Scan, columns: tuple[Column, ...], keys: bool, file_names: bool
) -> Iterator[ReadRows]:
    """The live rows of a scan whose files our format reads: `columns`, partition columns, KEYS if
    `keys`, FILE_NAME_COLUMN if `file_names`.

    Where the driver has not loaded the deleted keys, they are still to be joined.
    """
    live, joined = [], []
    for ordinal, entity in enumerate(scan.entities):
        late = isinstance(entity.deletes, UnreadKeys)
        for source in entity.sources.inserts:
            touched = may_have_deleted_rows(entity.deletes, source)
            if touched and late:
                joined.append(_File(ordinal, source, tested=False))
            else:
                live.append(_File(ordinal, source, tested=touched))
    names = [FILE_NAME_COLUMN] if file_names else []
    if live:
        virtual = [*(KEYS if keys else ()), *names]
        yield ReadRows(_frame(spark, scan, columns, live, virtual), keys)
    if joined:
        virtual = [*KEYS, ENTITY, *names]
        deleted = deleted_keys(spark, scan)
        yield ReadRows(_frame(spark, scan, columns, joined, virtual), True, deleted)


def _frame(
    spark: SparkSession,
    scan: Scan,
    columns: tuple[Column, ...],
    files: Sequence[_File],
    virtual: Sequence[str],
) -> DataFrame:
    """The frame with columns, partition columns and the `virtual` ones; CHAR and VARCHAR as they
    are read."""
    uris = [scan.files.uri(file.source.path) for file in files]
    numbers = _numbers(scan, files)
    entity_field = T.StructField(ENTITY, T.IntegerType(), False)
    made_by_format = [
        field for field in (*key_fields(nullable=False), entity_field) if field.name in virtual
    ]
    data = T.StructType([*spark_schema(columns).fields, *made_by_format])
    partition = spark_schema(scan.partition_columns)
    values = [
        "-" if value is None else f"={value}" for entity in scan.entities for value in entity.values
    ]
    digest = blake2b(numbers)
    for text in (scan.location, data.json(), partition.json(), *values, *uris):
        digest.update(b"\0" + text.encode())
    identity = digest.hexdigest()
    every = (*columns, *scan.partition_columns)

    described = snapshot_files(
        spark,
        identity,
        scan.files.uri(scan.location),
        passed(spark, uris),
        parsed(spark, partition),
        passed(spark, values),
        TIME_ZONE,
        bytearray(numbers),
    )
    names = passed(spark, [*KEYS, ENTITY])
    rows = described.frame(spark._jsparkSession, parsed(spark, data), names)
    frame = ClassicFrame(rows, spark)
    changed = any(column.type.is_told or has_char_or_varchar(column.type) for column in every)
    if not (changed or virtual):
        return frame
    selection = [f"{as_read(quoted(c.name), c.type)} AS {quoted(c.name)}" for c in every]
    file_name = f"_metadata.file_path AS {FILE_NAME_COLUMN}"
    selection += [file_name if name == FILE_NAME_COLUMN else name for name in virtual]
    return marked(selected(frame, selection), every)


def _numbers(scan: Scan, files: Sequence[_File]) -> bytes:
    """What `SnapshotFiles.java` reads, as little-endian 64-bit integers: files, then row tests."""
    rows = np.zeros((len(files), 7), np.int64)
    for row, file in zip(rows, files, strict=True):
        source = file.source
        flags = TEST_DELETES * file.tested + TEST_ROWS * source.test_rows
        write_id, bucket, first = source.write_id, source.bucket, source.first_row_id
        if source.identity is RowIdentity.RUN:
            flags += RAW
        elif source.keys is not None:
            flags += PROVEN
            write_id, bucket, first = (
                low for low, _ in (source.keys.write_ids, source.keys.buckets, source.keys.row_ids)
            )
            if source.keys.without_gaps(source.rows):
                flags += CONTIGUOUS
        elif source.rows == 0:
            flags += PROVEN
        size = source.size if source.length is None else source.length
        row[:] = size, file.ordinal, flags, source.above, write_id, bucket, first
    invalid = sorted({*scan.write_ids.open, *scan.write_ids.aborted})
    parts = [
        np.array([len(scan.entities)], np.int64),
        rows.ravel(),
        np.array([scan.write_ids.high_watermark, len(invalid), *invalid], np.int64),
    ]
    for ordinal in sorted({file.ordinal for file in files if file.tested}):
        parts += _groups(ordinal, scan.entities[ordinal].deletes)
    return np.concatenate(parts).astype("<i8", copy=False).tobytes()


def _groups(ordinal: int, keys: DeleteKeys) -> Iterator[np.ndarray]:
    """The deleted rowIds of each (write id, bucket property): as a bitmap if that is shorter."""
    for group in keys.groups():
        head = [ordinal, int(group.write_ids[0]), int(group.buckets[0])]
        low, words = int(group.words[0]), int(group.words[-1] - group.words[0]) + 1
        if words <= len(group):
            bits = np.zeros(words, np.uint64)
            bits[group.words - low] = group.bits
            yield np.array([*head, 1, low * WORD, words], np.int64)
            yield bits.view(np.int64)
        else:
            row_ids = np.concatenate([part for _, _, part in group.parts()])
            yield np.array([*head, 0, int(row_ids[0]), len(row_ids)], np.int64)
            yield row_ids
