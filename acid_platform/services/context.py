"""What the services need of a warehouse; Spark starts only where work is really done."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from acid_platform.engine.buckets import Bucketing
from acid_platform.engine.open import TableLayout
from acid_platform.layout.formats import FileFormat, is_insert_only
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.records import ClientInfo, PartitionRecord, TableRecord
from acid_platform.storage.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform.metastore.client import Metastore, Transaction

Layouts = Callable[["TableRecord", "Sequence[PartitionRecord] | None"], TableLayout]
"""`Context.layout`."""

DEFAULT_COMPRESSION = "zlib"
"""Hive's default, which every Hive, Trino and Impala can read; `orc.compress` overrides it."""


class Context(Protocol):
    """A warehouse as engine and services see it."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def metastore(self) -> Metastore: ...

    def layout(
        self, record: TableRecord, partitions: Sequence[PartitionRecord] | None = None
    ) -> TableLayout: ...

    def info(self) -> ClientInfo: ...


def compression(record: TableRecord) -> str:
    """`orc.compress` of the table as Spark and Arrow spell it."""
    value = record.properties.get("orc.compress", DEFAULT_COMPRESSION).lower()
    return "uncompressed" if value == "none" else value


def columns_of_record(record: TableRecord) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Table columns and partition columns as typed values."""
    return (tuple(Column(name, parse_type(kind)) for name, kind in record.columns),
            tuple(Column(name, parse_type(kind)) for name, kind in record.partition_columns))


def table_layout(
    metastore: Metastore, record: TableRecord, partitions: Sequence[PartitionRecord] | None = None
) -> TableLayout:
    """Where a table lies, and its partitions with their floors (P22); without any those of now."""
    files, path = Files.of(record.location)
    columns, partition_columns = columns_of_record(record)
    if partitions is None:
        partitions = metastore.partition_records(record.name) if record.partitioned else ()
    floors = {one.name: one.floors for one in partitions}
    return TableLayout(record.name, files, path, columns, partition_columns, floors,
                       record.floor, is_insert_only(record.properties),
                       FileFormat.of(record.properties), bucketing(record))


def seen_layout(layout: Layouts, reader: Transaction, record: TableRecord) -> TableLayout:
    """Where a table lies, with the partitions that the reader's snapshot sees (P28)."""
    return layout(record, reader.partition_records(record.name) if record.partitioned else ())


def bucketing(record: TableRecord) -> Bucketing | None:
    """CLUSTERED BY of the table; Hive's version is 1 where the property is absent."""
    if not record.bucket_count:
        return None
    version = int(record.properties.get("bucketing_version", "1"))
    return Bucketing(record.bucket_columns, record.bucket_count, version)


def worker_id() -> str:
    """`host-pid.thread`: unique among the workers that live at one time (C26)."""
    return f"{socket.gethostname()}-{os.getpid()}.{threading.get_ident() % 100_000}"
