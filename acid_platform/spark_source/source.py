"""The classes that Spark's Python Data Source API calls; what they do is in the other modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from acid_platform.engine.spark import installed_version
from acid_platform.engine.spark.spark_types import spark_schema
from acid_platform.errors import InvalidDefinition, PublicationFailed
from acid_platform.layout.types import Column
from acid_platform.metastore.pasts import SinkBatch
from acid_platform.scan.change_scan import CHANGE_COLUMNS
from acid_platform.spark_source import batch_write, reads
from acid_platform.spark_source.options import Options

_VERSION = installed_version()
if TYPE_CHECKING or _VERSION.streams_have_limits:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
else:
    ReadLimit = ReadAllAvailable = SupportsTriggerAvailableNow = object

if TYPE_CHECKING or _VERSION.streams_by_arrow:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceArrowWriter, DataSourceStreamWriter):
        """Spark 4.0 asks a stream's writer too whether it is of the former class."""


_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties that Spark gives to the tasks of a streaming query."""


class AcidDataSource(DataSource):
    """`spark.read.format("acid").load("db.t")`, and so on; see docs/query.md."""

    lease: int | None = None
    """The id of the read lease that `load` takes for a frame's snapshot."""

    @classmethod
    def name(cls) -> str:
        return "acid"

    def schema(self) -> T.StructType:
        """The columns; a Hive TIMESTAMP is a TIMESTAMP_NTZ, whatever the session's time zone."""
        options = Options.of(self.options, "any")
        if options.of_stream:
            columns = reads.columns_of(options)
        else:
            self.lease, columns = reads.take(options)
        return _spark_schema((*columns, *CHANGE_COLUMNS) if options.changes else columns)

    def reader(self, schema: T.StructType) -> AcidReader:
        return AcidReader(Options.of(self.options, "read"), schema, self.lease)

    def streamReader(self, schema: T.StructType) -> AcidStreamReader:
        options = Options.of(self.options, "readStream")
        if self.lease is not None:
            reads.release(options.place, self.lease)
            self.lease = None
        return AcidStreamReader(options, schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> AcidSourceWriter:
        return AcidSourceWriter(Options.of(self.options, "write"), schema.names, overwrite)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> AcidStreamWriter:
        return AcidStreamWriter(Options.of(self.options, "writeStream"), schema.names, overwrite)


def _spark_schema(columns: Sequence[Column]) -> T.StructType:
    """The schema of the columns, with TIMESTAMP_NTZ for Hive's TIMESTAMP."""
    fields = [
        T.StructField(field.name, _ntz(field.dataType))
        if all(kind.kind != "timestamp with local time zone" for kind in column.type.walk())
        else field
        for field, column in zip(spark_schema(columns).fields, columns, strict=True)
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
    arrow_schema: pa.Schema = to_arrow_schema(schema, **_VERSION.arrow_zone)  # type: ignore[arg-type]
    return arrow_schema


# --- reading --------------------------------------------------------------------------------------


class AcidReader(DataSourceReader):
    def __init__(self, options: Options, schema: T.StructType, lease: int | None) -> None:
        self._options, self._schema, self._lease = options, schema, lease

    def partitions(self) -> list[InputPartition]:
        parts = reads.parts(self._options, self._schema.names, self._lease)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark wants one partition of an empty table too
            return iter(())
        return reads.batches(partition.value, _arrow(self._schema))


class AcidStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, schema: T.StructType) -> None:
        if options.most_commits is not None and not _VERSION.streams_have_limits:
            raise InvalidDefinition(
                f"maxCommitsPerTrigger needs Spark 4.2 or newer, and this is {pyspark.__version__}:"
                " leave it out, and a batch has all commits that are new"
            )
        self._options, self._schema = options, schema
        self._stream: reads.TableStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, which only call `read`."""
        return {**self.__dict__, "_stream": None}

    @property
    def stream(self) -> reads.TableStream:
        if self._stream is None:
            self._stream = reads.TableStream(self._options)
        return self._stream

    def initialOffset(self) -> dict[str, Any]:
        return {**self.stream.first()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A commit counts as one of Spark's files."""
        most = self._options.most_commits
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Spark calls it without arguments if streams have no limits."""
        if limit is None:
            return {**self.stream.newest()}
        assert start is not None
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return {**self.stream.latest(reads.offset_of(start), most)}

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.end_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        first, last = (reads.offset_of(stored) for stored in (start, end))
        parts = self.stream.parts(first, last, self._schema.names)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return reads.change_batches(partition.value, _arrow(self._schema))

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

    _key = ""
    """What tells the streaming query from others; empty for a batch."""

    def __init__(self, options: Options, names: Sequence[str], overwrite: bool) -> None:
        self._options, self._names, self._overwrite = options, names, overwrite
        self._write: batch_write.OpenWrite | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a writer for its tasks, and only then: this begins the transaction.

        Of a stream, Spark also makes writers that only commit.
        """
        if self._write is None:
            self._write = batch_write.begin(self._options, self._names, self._overwrite, self._key)
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
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        answers = _answers(messages)
        assert self._write is not None
        batch_write.commit(self._write, [answer.result for answer in answers])

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],  # noqa: ARG002, it overrides
    ) -> None:
        if self._write is not None:
            batch_write.abort(self._write, "a task of its Spark job failed")


class AcidStreamWriter(_Writing, DataSourceStreamArrowWriter):
    def __init__(self, options: Options, names: Sequence[str], overwrite: bool) -> None:
        super().__init__(options, names, overwrite)
        self._key = options.key

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        answers = _answers(messages)
        first = answers[0]
        if not first.query or first.batch != str(batchId):
            raise PublicationFailed(
                f"batch {batchId} of {self._options.table}: its tasks say that they ran for batch"
                f" {first.batch or 'none'} of query {first.query or 'none'}; nothing was published"
            )
        sink = self._options.sink or first.query
        rows = sum(answer.result.rows for answer in answers)
        batch = SinkBatch(
            sink, first.write.table, first.query, batchId, rows, self._options.skip_replayed
        )
        batch_write.commit(first.write, [answer.result for answer in answers], batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        reason = f"batch {batchId} of its streaming query failed"
        writes = [message.write for message in messages if isinstance(message, _Written)]
        for write in {write.txn: write for write in writes}.values():
            batch_write.abort(write, reason)
        batch_write.abort_held(self._options.place, self._key, batch_failed=True)


def _answers(messages: Sequence[WriterCommitMessage | None]) -> list[_Written]:
    """Raises PublicationFailed unless each task has told what it wrote in the same transaction."""
    answers = [message for message in messages if isinstance(message, _Written)]
    if len(answers) < len(messages) or len({answer.write.txn for answer in answers}) != 1:
        raise PublicationFailed(
            f"{len(answers)} of {len(messages)} tasks told what they wrote; nothing was published,"
            " run the query again"
        )
    return answers
