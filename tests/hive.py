"""Reads tables with Hive 2.3's own reader, whose classes come with PySpark (P23).

Hive 2.3 treats write ids as transaction ids and can't parse `_v` suffixes, so it reads our
directories through links without these suffixes. Directories that the snapshot does not select are
left out only where two names would become equal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from acid_platform.layout.names import parse_directory
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.transactions import NONE_OPEN, ValidWriteIdList


def link_farm(directory: AcidDirectory, target: Path) -> Path:
    """The selected directories of one entity under names that Hive 2.3 understands."""
    sources = [directory.base] if directory.base else []
    for source in (*sources, *directory.deltas):
        name = parse_directory(source.directory)
        assert name is not None
        plain = target / source.directory.partition("_v")[0]
        plain.mkdir(parents=True)
        for entry in source.files:
            os.link(Path(directory.location, entry.path), plain / entry.name)
    return target


def hive_rows(
    spark: SparkSession, entity: Path, columns: list[tuple[str, str]], write_ids: ValidWriteIdList
) -> list[str]:
    """What Hive's OrcInputFormat returns for one entity, each row as Hive prints it, sorted."""
    return sorted(row for _, row in hive_rows_with_ids(spark, entity, columns, write_ids))


RowId = tuple[int, int, int]
"""Write id, bucket property, rowId."""


def hive_rows_with_ids(
    spark: SparkSession, entity: Path, columns: list[tuple[str, str]], write_ids: ValidWriteIdList
) -> list[tuple[RowId, str]]:
    """The same with Hive's ROW__ID, in the order of the reader."""
    jvm: Any = spark._jvm
    conf = jvm.org.apache.hadoop.mapred.JobConf(spark._jsc.hadoopConfiguration())
    names = ",".join(name for name, _ in columns)
    types = ":".join(kind for _, kind in columns)
    # Hive 2.3's list: high watermark, least open id, then open and aborted ids alike. Bases are
    # judged by `least` alone.
    hidden = sorted({*write_ids.open, *write_ids.aborted})
    least = write_ids.open[0] if write_ids.open else NONE_OPEN
    settings = {
        "columns": names,
        "columns.types": types,
        "schema.evolution.columns": names,
        "schema.evolution.columns.types": types,
        "transactional": "true",
        "transactional_properties": "default",
        "hive.transactional.table.scan": "true",
        "hive.txn.operational.properties": "1",
        "hive.txn.valid.txns": ":".join(map(str, (write_ids.high_watermark, least, *hidden))),
        "hive.exec.orc.split.strategy": "BI",
        "hive.vectorized.execution.enabled": "false",
        "mapreduce.input.fileinputformat.inputdir": f"file:{entity}",
        "mapred.input.dir": f"file:{entity}",
    }
    for key, value in settings.items():
        conf.set(key, value)
    reporter = jvm.org.apache.hadoop.mapred.Reporter.NULL
    source = jvm.org.apache.hadoop.hive.ql.io.orc.OrcInputFormat()
    rows: list[tuple[RowId, str]] = []
    for split in source.getSplits(conf, 1):
        reader = source.getRecordReader(split, conf, reporter)
        key, value = reader.createKey(), reader.createValue()
        while reader.next(key, value):
            key_of = reader.getRecordIdentifier()
            rows.append(
                (
                    (key_of.getTransactionId(), key_of.getBucketId(), key_of.getRowId()),
                    value.toString(),
                )
            )
        reader.close()
    return rows


def hive_plain_rows(
    spark: SparkSession, paths: Sequence[str], columns: Sequence[tuple[str, str]], stored: str
) -> list[list[Any]]:
    """The rows that Hive's reader returns for files of an insert-only table, ORC or Parquet: each
    value as text, nested ones as lists of these, in the order of the files."""
    jvm: Any = spark._jvm
    hive = jvm.org.apache.hadoop.hive
    conf = jvm.org.apache.hadoop.mapred.JobConf(spark._jsc.hadoopConfiguration())
    names = ",".join(name for name, _ in columns)
    types = ":".join(kind for _, kind in columns)
    settings = {
        "columns": names,
        "columns.types": types,
        "schema.evolution.columns": names,
        "schema.evolution.columns.types": types,
        "hive.io.file.read.all.columns": "true",
        "hive.vectorized.execution.enabled": "false",
    }
    for key, value in settings.items():
        conf.set(key, value)
    source = (
        hive.ql.io.orc.OrcInputFormat()
        if stored == "orc"
        else hive.ql.io.parquet.MapredParquetInputFormat()
    )
    rows = []
    for path in paths:
        file = jvm.org.apache.hadoop.fs.Path(f"file:{path}")
        split = jvm.org.apache.hadoop.mapred.FileSplit(
            file,
            0,
            Path(path).stat().st_size,
            spark.sparkContext._gateway.new_array(jvm.java.lang.String, 0),
        )
        reader = source.getRecordReader(split, conf, jvm.org.apache.hadoop.mapred.Reporter.NULL)
        key, value = reader.createKey(), reader.createValue()
        while reader.next(key, value):
            rows.append(value.toString() if stored == "orc" else _texts(value))
        reader.close()
    return rows


def _texts(value: Any) -> Any:
    """Hadoop's writables as texts, arrays of them as lists."""
    if value is None:
        return None
    if value.getClass().getName().endswith("ArrayWritable"):
        return [_texts(inner) for inner in value.get()]
    return value.toString()
