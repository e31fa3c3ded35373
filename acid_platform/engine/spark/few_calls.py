"""Operations on frames that take few calls into the JVM, however many columns there are.

PySpark passes each name, expression and column to the JVM by calls of its own, each of 0.1 to 0.2
milliseconds: most of what a small statement costs. Here all expressions of a selection are one
text, which the JVM divides. Spark Connect makes no such calls, so there PySpark's own operations
are used.

Frames over files are kept for the next statement: files of a snapshot never change, and Spark takes
20 to 50 milliseconds to list and resolve a few files again, and about 12 to load the bitmap of
their deletes. What is kept are plans, file sizes and bitmaps, never rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.errors import AnalysisException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.pandas.functions import PythonEvalType, pandas_udf

from acid_platform.base.first_use import Recent
from acid_platform.engine.spark import version_of
from acid_platform.engine.spark.failures import analysed, raise_as_ours
from acid_platform.errors import InvalidExpression, SparkMisconfigured
from acid_platform.layout.sql_text import for_spark, quoted

_BETWEEN = "\x1f"
"""Separates expressions on their way to the JVM."""

SUBSTITUTION = "spark.sql.variable.substitute"
"""The setting by which Spark replaces `${name}` anywhere in a text by a setting or a variable."""

_NO_CONDITION = "FILTER_NOT_BOOLEAN"
_LIST = "java.util.ArrayList"
_PYTHON = "org.apache.spark.api.python"
_SQL = "org.apache.spark.sql"
_PLANS = f"{_SQL}.catalyst.plans.logical"

_members: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""What is looked up in the JVM of a gateway's client once, by name."""


def sent(spark: SparkSession, text: str) -> str:
    """The text as every parser of Spark reads it, whatever the settings of the session.

    Raises InvalidExpression for a text that is no SQL, SparkMisconfigured if the session would
    replace `${…}` in the name of a column.
    """
    text = for_spark(text)
    if "${" in text and str(spark.conf.get(SUBSTITUTION)).lower() != "false":
        raise SparkMisconfigured(
            f"this Spark session would replace the variable in {text[text.index('${') :]!r}; call"
            f" spark.conf.set({SUBSTITUTION!r}, 'false') to read or write a column of such a name"
        )
    return text


def java_class(spark: SparkSession, name: str) -> Any:
    """A class by its full name; `spark._jvm.a.b.C` would ask the JVM about each part of it."""
    return JavaClass(name, spark._jvm._gateway_client)  # type: ignore[union-attr]


def selected(frame: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """`frame.selectExpr(*expressions)`. Raises Spark's exceptions and as `sent`."""
    spark = frame.sparkSession
    texts = [sent(spark, text) for text in expressions]
    if isinstance(frame, ClassicFrame):
        return ClassicFrame(frame._jdf.selectExpr(passed(spark, texts)), spark)
    return frame.selectExpr(*texts)


def filtered(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which the condition is true. Raises Spark's exceptions and as `sent`."""
    text = sent(frame.sparkSession, condition)
    try:
        return analysed(frame.filter(text))
    except AnalysisException as error:
        kind = (error.getMessageParameters() or {}).get("type", "")
        if not str(error.getCondition()).endswith(_NO_CONDITION) or kind != '"VOID"':
            raise
        return frame.filter("false")  # NULL is a condition that no row fulfils


def sorted_within(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """`frame.sortWithinPartitions(*names)`; names of columns, quoted where SQL needs it."""
    if len(names) > 1 and isinstance(frame, ClassicFrame):
        spark = frame.sparkSession
        first, *others = names
        return ClassicFrame(frame._jdf.sortWithinPartitions(first, passed(spark, others)), spark)
    return frame.sortWithinPartitions(*names) if names else frame


def expression(spark: SparkSession, text: str) -> Column:
    """`F.expr(text)`. Raises Spark's exceptions and as `sent`."""
    text = sent(spark, text)
    if not hasattr(spark, "_jsparkSession"):
        return F.expr(text)
    make = _member(spark, "expr", lambda: java_class(spark, "org.apache.spark.sql.functions").expr)
    return ClassicColumn(make(text))


def mapped_in_arrow(
    frame: DataFrame,
    names: Sequence[str],
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    answer: T.StructType,
) -> DataFrame:
    """`frame.mapInArrow(work, answer)`; `names` are the frame's columns."""
    if not isinstance(frame, ClassicFrame):
        return frame.mapInArrow(work, answer)
    spark = frame.sparkSession
    # The function's arguments only tell Spark that all columns are read: one stands for all.
    columns = expression(spark, f"struct({', '.join(map(quoted, names))})")
    command: bytes = _pickled((work, answer))
    if len(command) > _MOST_COMMAND:
        function = pandas_udf(work, answer, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
        column = function(columns)._jc
    else:
        python = java_class(spark, f"{_PYTHON}.SimplePythonFunction")(
            bytearray(command), *_surroundings(spark)
        )
        kind = _member(spark, answer.json(), lambda: parsed(spark, answer))
        none = _member(spark, "no list", lambda: java_class(spark, _LIST)())
        lists = [none] * version_of(spark).lists_of_functions
        column = java_class(spark, f"{_SQL}.execution.python.UserDefinedPythonFunction")(
            "work", python, kind, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, True, *lists
        ).apply(_seq(spark, [columns._jc]))
    return ClassicFrame(frame._jdf.mapInArrow(column, False, None), spark)


_pickled: Any = CloudPickleSerializer().dumps  # type: ignore[no-untyped-call]
_MOST_COMMAND = 1 << 19
"""Bytes. PySpark broadcasts functions that are larger than a megabyte."""


def _surroundings(spark: SparkSession) -> tuple[Any, ...]:
    """What the Python of tasks is told besides its function; passed to the JVM once."""
    context: Any = spark.sparkContext
    variables, files = dict(context.environment), list(context._python_includes)

    def passed_once() -> tuple[Any, Any]:
        there, names = java_class(spark, "java.util.HashMap")(), java_class(spark, _LIST)()
        for name, value in variables.items():
            there.put(name, value)
        for name in files:
            names.add(name)
        return there, names

    key = f"surroundings {id(context)} {sorted(variables.items())} {files}"
    there, names = _member(spark, key, passed_once)
    none = _member(spark, "no list", lambda: java_class(spark, _LIST)())
    executable, version = context.pythonExec, context.pythonVer
    return there, names, executable, version, none, context._javaAccumulator


COMPLETE = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
"""Options of every read of files: whatever the session says, no file may be left out, and a page of
Parquet is what its checksum says."""
_READ_AS_STORED = {
    "orc": COMPLETE,
    "parquet": {**COMPLETE, "datetimeRebaseMode": "CORRECTED", "mergeSchema": "false"},
}
"""Days and times of our Parquet files are Gregorian."""


def file_frame(
    spark: SparkSession, stored: str, uris: Sequence[str], schema: T.StructType
) -> DataFrame:
    """A frame over files of a format for which Spark's reader has a method. Raises Spark's
    exceptions."""
    options = _READ_AS_STORED.get(stored, COMPLETE)
    if not hasattr(spark, "_jsparkSession"):
        return spark.read.options(**options).schema(schema).format(stored).load(list(uris))
    reader = spark._jsparkSession.read()
    for name, value in options.items():
        reader.option(name, value)
    reader.schema(parsed(spark, schema))
    return ClassicFrame(getattr(reader, stored)(passed(spark, uris)), spark)


def over_frames(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query, in which names without a database stand for the frames.

    Raises Spark's exceptions and as `sent`. Given as arguments of `spark.sql`, each frame would
    become a view, which takes as long as the analysis of the query. As a common table expression it
    takes a call.
    """
    text = sent(spark, text)
    if not frames:
        return spark.sql(text)
    if not hasattr(spark, "_jsparkSession"):  # Spark treats every brace as a placeholder
        text = text.replace("{", "{{").replace("}", "}}")
        for name in frames:
            text = re.sub(rf"\b{name}\b", f"{{{name}}}", text)
        return spark.sql(text, **frames)  # type: ignore[arg-type]
    session = spark._jsparkSession
    named = _member(spark, "alias", lambda: _module(spark, f"{_PLANS}.SubqueryAlias$"))
    nothing = _member(spark, "none", lambda: java_class(spark, "scala.Option").empty())
    parsed = session.sessionState().sqlParser().parsePlan(text)
    depth = [nothing] if version_of(spark).names_have_depths else []
    tuple_of = java_class(spark, f"scala.Tuple{2 + len(depth)}")
    tables = [
        tuple_of(name, named.apply(name, frame._jdf.logicalPlan()), *depth)
        for name, frame in frames.items()
    ]
    whole = java_class(spark, f"{_PLANS}.UnresolvedWith")(parsed, _seq(spark, tables), False)
    rows = _member(spark, "rows", lambda: java_class(spark, f"{_SQL}.classic.Dataset").ofRows)
    return ClassicFrame(rows(session, whole), spark)


def _module(spark: SparkSession, name: str) -> Any:
    """The only object of a Scala class."""
    return getattr(java_class(spark, name), "MODULE$")


def types_of(frame: DataFrame, texts: Sequence[str]) -> list[T.DataType]:
    """The types of SQL expressions over the frame; each text is one whole expression.

    Raises UnknownColumn, InvalidExpression.
    """
    if not texts:
        return []
    with raise_as_ours():
        fields = selected(frame, texts).schema.fields
    if len(fields) != len(texts):
        starred = next((text for text in texts if "*" in text), texts[0])
        raise InvalidExpression(f"{starred!r} has several values; name the columns one by one")
    return [field.dataType for field in fields]


def passed(spark: SparkSession, texts: Sequence[str]) -> Any:
    """The texts as a Java array. Needs the session's JVM."""
    if not texts or not all(texts) or any(_BETWEEN in text for text in texts):
        gateway: Any = spark.sparkContext._gateway
        array = gateway.new_array(java_class(spark, "java.lang.String"), len(texts))
        for index, text in enumerate(texts):
            array[index] = text
        return array
    pattern = "java.util.regex.Pattern"
    divider = _member(spark, pattern, lambda: java_class(spark, pattern).compile(_BETWEEN))
    return divider.split(_BETWEEN.join(texts))


def parsed(spark: SparkSession, kind: T.StructType) -> Any:
    return spark._jsparkSession.parseDataType(kind.json())


def _seq(spark: SparkSession, items: list[Any]) -> Any:
    """The objects of the JVM as a Scala Seq."""
    name = f"{_PYTHON}.PythonUtils"
    return _member(spark, name, lambda: java_class(spark, name).toSeq)(items)


def _member(spark: SparkSession, name: str, look_up: Callable[[], Any]) -> Any:
    members = _members.setdefault(spark._jvm._gateway_client, {})  # type: ignore[union-attr]
    if name not in members:
        members[name] = look_up()
    return members[name]


MAX_ENTRIES = 128
MAX_BYTES = 64 << 20
"""The limit for everything in the cache, as memory of the JVM."""
FILE_BYTES = 1000
"""An estimate of the memory that the JVM needs for a file: its status and paths."""

_Part = TypeVar("_Part")
_parts: Recent[Hashable, tuple[SparkSession, Any]] = Recent(MAX_ENTRIES, MAX_BYTES)


def cached(spark: SparkSession, key: Hashable, size: int, make: Callable[[], _Part]) -> _Part:
    """The cached result of `make` for this key and session, or a new one. Thread-safe.

    The key must have everything that `make` depends on: for files, paths and sizes. `size` is in
    bytes.
    """
    key = (id(spark), key)  # the entry holds the session, so no other session gets its id
    entry = _parts.get(key)
    if entry is None:
        entry = spark, make()
        _parts.put(key, entry, size)
    part: _Part = entry[1]
    return part
