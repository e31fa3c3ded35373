"""What engine and services need of a warehouse. Spark starts only when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from acid_platform.metastore.records import (
    ClientInfo,
    PartitionRecord,
    PastTable,
    TableRecord,
)
from acid_platform.scan.table_layout import TableLayout
from acid_platform.transactions import ValidWriteIdList

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform.engine.choice import Engines
    from acid_platform.metastore.client.metastore import Metastore, OpenTransaction


class Layouts(Protocol):
    """`Context.layout`."""

    def __call__(
        self,
        record: TableRecord,
        txn: OpenTransaction,
        partitions: Sequence[PartitionRecord] | None = None,
    ) -> TableLayout: ...


class ScanRequest(NamedTuple):
    """What a scan reads: a table as a snapshot declares it, the condition that prunes its
    partitions and files, and instead of the snapshot perhaps how the table was (P36), or a list of
    write ids."""

    table: TableRecord
    where: str | None = None
    past: PastTable | None = None
    write_ids: ValidWriteIdList | None = None


class Context(Protocol):
    """A warehouse as engine and services see it."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def engines(self) -> Engines: ...

    @property
    def metastore(self) -> Metastore: ...

    @property
    def layout(self) -> Layouts: ...

    def info(self) -> ClientInfo: ...
