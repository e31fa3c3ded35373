"""The classes that Spark's Python Data Source API calls; what they do is in the other modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from acid_platform.engine.spark.spark_types import spark_schema
from acid_platform.errors import PublicationFailed
from acid_platform.layout.types import Column
from acid_platform.metastore.pasts import SinkBatch
from acid_platform.scan.change_rows import CHANGE_COLUMNS
from acid_platform.spark_source import batch_read, batch_write, stream_read
from acid_platform.spark_source.options import Options

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties that Spark gives to the tasks of a streaming query."""


class AcidDataSource(DataSource):
    """`spark.read.format("acid").load("db.t")`, and so on; see docs/streaming.md."""

    lease: int | None = None
    """The id of the read lease that `load` takes for a frame's snapshot."""

    @classmethod
    def name(cls) -> str:
        return "acid"

    def schema(self) -> T.StructType:
        """The columns; a Hive TIMESTAMP is a TIMESTAMP_NTZ, whatever the session's time zone."""
        given = Options.of(self.options, "any")
        if given.of_stream:
            columns = stream_read.columns_of(given)
        else:
            self.lease, columns = batch_read.take(given)
        return _spark_schema((*columns, *CHANGE_COLUMNS) if given.changes else columns)

    def reader(self, schema: T.StructType) -> AcidReader:
        return AcidReader(Options.of(self.options, "read"), schema, self.lease)

    def streamReader(self, schema: T.StructType) -> AcidStreamReader:
        given = Options.of(self.options, "readStream")
        if self.lease is not None:
            batch_read.release(given.place, self.lease)
            self.lease = None
        return AcidStreamReader(given, schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> AcidSourceWriter:
        return AcidSourceWriter(Options.of(self.options, "write"), schema.names, overwrite)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> AcidStreamWriter:
        return AcidStreamWriter(Options.of(self.options, "writeStream"), schema.names, overwrite)


def _spark_schema(columns: Iterable[Column]) -> T.StructType:
    wide: T.StructType = _wall_clock(spark_schema(columns), tuple(columns))
    return wide


def _wall_clock(schema: T.StructType, columns: Sequence[Column]) -> T.StructType:
    """The schema with TIMESTAMP_NTZ for Hive's TIMESTAMP."""
    fields = [
        T.StructField(field.name, _ntz(field.dataType))
        if all(kind.kind != "timestamp with local time zone" for kind in column.type.walk())
        else field
        for field, column in zip(schema.fields, columns, strict=True)
    ]
    return T.StructType(fields)


def _ntz(kind: T.DataType) -> T.DataType:
    match kind:
        case T.TimestampType():
            return T.TimestampNTZType()
        case T.ArrayType():
            return T.ArrayType(_ntz(kind.elementType))
        case T.MapType():
            return T.MapType(_ntz(kind.keyType), _ntz(kind.valueType))
        case T.StructType():
            return T.StructType([T.StructField(f.name, _ntz(f.dataType)) for f in kind.fields])
    return kind


def _arrow(schema: T.StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


# --- reading --------------------------------------------------------------------------------------


class AcidReader(DataSourceReader):
    def __init__(self, given: Options, schema: T.StructType, lease: int | None) -> None:
        self._given, self._schema, self._lease = given, schema, lease

    def partitions(self) -> list[InputPartition]:
        parts = batch_read.parts(self._given, self._schema.names, self._lease)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark wants one partition of an empty table too
            return iter(())
        return batch_read.batches(partition.value, _arrow(self._schema))


class AcidStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Options, schema: T.StructType) -> None:
        self._given, self._schema = given, schema
        self._stream: stream_read.TableStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, which only call `read`."""
        return {**self.__dict__, "_stream": None}

    @property
    def stream(self) -> stream_read.TableStream:
        if self._stream is None:
            self._stream = stream_read.TableStream(self._given)
        return self._stream

    def initialOffset(self) -> dict[str, Any]:
        return {**self.stream.first()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A commit counts as one of Spark's files."""
        most = self._given.most_commits
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return {**self.stream.latest(stream_read.offset_of(start), most)}

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.end_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        first, last = (stream_read.offset_of(given) for given in (start, end))
        parts = self.stream.parts(first, last, self._schema.names)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return stream_read.change_batches(partition.value, _arrow(self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the next batch's lease replaces that of the last one."""

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.stop()


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Written(WriterCommitMessage):
    """What one attempt of a task tells the commit; `query` and `batch` are those of its stream."""

    write: batch_write.OpenWrite
    result: batch_write.TaskResult
    query: str
    batch: str


class _Writing:
    """What writers of batches and of streams share."""

    def __init__(self, given: Options, names: Sequence[str], overwrite: bool, key: str) -> None:
        self._given, self._names, self._overwrite, self._key = given, names, overwrite, key
        self._write: batch_write.OpenWrite | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a writer for its tasks, and only then: this begins the transaction.

        Of a stream, Spark also makes writers that only commit.
        """
        if self._write is None:
            self._write = batch_write.begin(self._given, self._names, self._overwrite, self._key)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        context = TaskContext.get()
        assert context is not None and self._write is not None
        result = batch_write.write_rows(
            self._write, context.partitionId(), context.taskAttemptId(), iterator
        )
        query, batch = (context.getLocalProperty(name) or "" for name in (_QUERY, _BATCH))
        return _Written(self._write, result, query, batch)


class AcidSourceWriter(_Writing, DataSourceArrowWriter):
    def __init__(self, given: Options, names: Sequence[str], overwrite: bool) -> None:
        super().__init__(given, names, overwrite, "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        told = _told(messages)
        assert self._write is not None
        batch_write.commit(self._write, [each.result for each in told])

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],  # noqa: ARG002, it overrides
    ) -> None:
        if self._write is not None:
            batch_write.abort(self._write, "a task of its Spark job failed")


class AcidStreamWriter(_Writing, DataSourceStreamArrowWriter):
    def __init__(self, given: Options, names: Sequence[str], overwrite: bool) -> None:
        super().__init__(given, names, overwrite, given.key)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        told = _told(messages)
        first = told[0]
        if not first.query or first.batch != str(batchId):
            raise PublicationFailed(
                f"batch {batchId} of {self._given.table}: its tasks say that they ran for batch"
                f" {first.batch or 'none'} of query {first.query or 'none'}; nothing was published"
            )
        sink = self._given.sink or first.query
        rows = sum(each.result.rows for each in told)
        batch = SinkBatch(
            sink, first.write.table, first.query, batchId, rows, self._given.skip_replayed
        )
        batch_write.commit(first.write, [each.result for each in told], batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        reason = f"batch {batchId} of its streaming query failed"
        told = [each for each in messages if isinstance(each, _Written)]
        for write in {each.write.txn: each.write for each in told}.values():
            batch_write.abort(write, reason)
        batch_write.abort_kept(self._given.place, self._key, batch_failed=True)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[_Written]:
    """Raises PublicationFailed unless each task has told what it wrote in the same transaction."""
    told = [each for each in messages if isinstance(each, _Written)]
    if len(told) < len(messages) or len({each.write.txn for each in told}) != 1:
        raise PublicationFailed(
            f"{len(told)} of {len(messages)} tasks told what they wrote; nothing was published, run"
            " the query again"
        )
    return told
