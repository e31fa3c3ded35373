"""Which part of a statement a stack belongs to: by the innermost frame that a table names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

PYTHON_PARTS: Mapping[str, str] = {
    "py4j": "PySpark",
    "pyspark": "PySpark",
    "acid_platform.metastore": "metastore's client",
    "acid_platform.base.local_files": "syncing files",
    "acid_platform.storage.durability": "publishing directories",
    "acid_platform.write.publishing": "publishing directories",
    "acid_platform.formats.orc.orc_file": "footers",
    "acid_platform.formats.file_access": "footers",
    "acid_platform.engine.spark.task_writing": "records of written files",
    "acid_platform.compaction.profiles": "checks",
    "acid_platform.scan.deletes": "delete keys",
    "acid_platform.engine.spark.row_keys": "delete keys",
    "acid_platform.storage.files": "listing and reading small files",
    "acid_platform.scan.selection": "choosing files",
    "acid_platform.scan.recorded_ranges": "choosing files",
    "acid_platform.sql": "SQL text",
    "sqlglot": "SQL text",
}
"""A prefix of `module:function` → the part. Anything else of ours is planning in Python."""
PLANNING = "planning in Python"

_WRITE = "write"
_SCAN = "scan"
_SORT = "sort"
_SHUFFLE = "shuffle"
JVM_PARTS: Mapping[str, str] = {
    "org.apache.orc.impl.writer": _WRITE,
    "org.apache.orc.impl.WriterImpl": _WRITE,
    "org.apache.orc.impl.OutStream": _WRITE,
    "org.apache.orc.impl.PhysicalFsWriter": _WRITE,
    "org.apache.orc.impl.RunLengthIntegerWriter": _WRITE,
    "org.apache.orc.impl.StringHashTableDictionary": _WRITE,
    "org.apache.orc.mapred.OrcMapredRecordWriter": _WRITE,
    "org.apache.orc.mapreduce.OrcMapreduceRecordWriter": _WRITE,
    "org.apache.spark.sql.execution.datasources.orc.OrcSerializer": _WRITE,
    "org.apache.spark.sql.execution.datasources.orc.OrcOutputWriter": _WRITE,
    "org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport": _WRITE,
    "org.apache.spark.sql.execution.datasources.parquet.ParquetOutputWriter": _WRITE,
    "org.apache.spark.sql.execution.datasources.FileFormatDataWriter": _WRITE,
    "org.apache.spark.sql.execution.datasources.v2.WritingSparkTask": _WRITE,
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask": _WRITE,
    "org.apache.parquet.column.values.dictionary.DictionaryValuesWriter": _WRITE,
    "org.apache.parquet.column.impl.ColumnWrite": _WRITE,
    "org.apache.parquet.hadoop.ParquetFileWriter": _WRITE,
    "org.apache.parquet.hadoop.InternalParquetRecordWriter": _WRITE,
    "org.apache.parquet.hadoop.ColumnChunkPageWrite": _WRITE,
    "org.apache.iceberg.parquet.ParquetWriter": _WRITE,
    "org.apache.iceberg.parquet.ParquetValueWriters": _WRITE,
    "org.apache.iceberg.parquet.ColumnWriter": _WRITE,
    "org.apache.iceberg.parquet.PageWriter": _WRITE,
    "org.apache.iceberg.spark.data.SparkParquetWriters": _WRITE,
    "org.apache.iceberg.deletes.": _WRITE,
    "org.apache.iceberg.io.": _WRITE,
    "org.apache.orc.": _SCAN,
    "org.apache.spark.sql.execution.datasources.orc.": _SCAN,
    "org.apache.spark.sql.execution.datasources.parquet.": _SCAN,
    "org.apache.spark.sql.execution.datasources.FileScanRDD": _SCAN,
    "org.apache.spark.sql.execution.datasources.v2.": _SCAN,
    "org.apache.parquet.": _SCAN,
    "org.apache.iceberg.": _SCAN,
    "org.apache.spark.util.collection.unsafe.sort.": _SORT,
    "org.apache.spark.sql.execution.UnsafeExternalRowSorter": _SORT,
    "org.apache.spark.sql.execution.SortExec": _SORT,
    "org.apache.spark.shuffle.": _SHUFFLE,
    "org.apache.spark.storage.": _SHUFFLE,
    "org.apache.spark.sql.execution.joins.": "join",
    "org.apache.spark.unsafe.map.BytesToBytesMap": "join",
    "org.apache.spark.sql.execution.python.": "Python workers",
    "org.apache.spark.serializer.": "tasks' start and end",
    "org.apache.spark.scheduler.": "tasks' start and end",
    "org.apache.spark.executor.": "tasks' start and end",
    "org.apache.spark.util.ClosureCleaner": "tasks' start and end",
}
"""A prefix of a class → the part of an executor's work. The longest prefix counts."""
ROWS = "rows between operators"

THREAD_GROUPS: Mapping[str, str] = {
    "Executor task": "tasks",
    "C1 CompilerThre": "JIT compiler",
    "C2 CompilerThre": "JIT compiler",
    "GC Thread#": "GC",
    "G1 ": "GC",
    "VM Thread": "GC",
    "VM Periodic": "GC",
    "dag-scheduler-e": "scheduling",
    "dispatcher-": "scheduling",
    "task-result-get": "scheduling",
    "spark-listener-": "Spark's listeners",
    "Thread-": "planning in the JVM",
    "broadcast-excha": "planning in the JVM",
    "shuffle-exchang": "planning in the JVM",
    "subquery-": "planning in the JVM",
    "QueryStageCreat": "planning in the JVM",
    "ResultQueryStag": "planning in the JVM",
    "map-output-disp": "scheduling",
    "block-manager-": "scheduling",
    "iceberg-": "planning in the JVM",
    "JFR ": "the profiler itself",
}
"""What a thread of the JVM does, by the start of its name as Linux keeps it (15 characters)."""


def python_part(stack: Sequence[str]) -> str:
    """The part of a Python stack, whose outermost frame is first."""
    for frame in reversed(stack):
        found = _longest(frame, PYTHON_PARTS)
        if found:
            return found
        if frame.startswith("acid_platform."):
            return PLANNING
    return PLANNING


def jvm_part(stack: Sequence[str]) -> str:
    """The part of a stack of an executor's thread."""
    for frame in reversed(stack):
        if found := _longest(frame.removeprefix("org.apache.iceberg.shaded."), JVM_PARTS):
            return found
    return ROWS


def thread_group(name: str) -> str:
    return _longest(name[:15], THREAD_GROUPS) or "other threads"


def _longest(text: str, table: Mapping[str, str]) -> str | None:
    fitting = [prefix for prefix in table if text.startswith(prefix)]
    return table[max(fitting, key=len)] if fitting else None


def shares(stacks: Mapping[tuple[str, ...], int]) -> dict[str, float]:
    """The share of each part in samples of the main thread of Python."""
    found: Counter[str] = Counter()
    for stack, number in stacks.items():
        found[python_part(stack)] += number
    return {part: number / found.total() for part, number in found.items()} if found else {}
