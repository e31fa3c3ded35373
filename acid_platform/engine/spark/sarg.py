"""ORC search arguments for the `row` struct of ACID files (F19).

Spark pushes down `row.x >= 5`, and ORC then looks for `row.x` inside of `row` and does not find it.
So the argument is made here by Spark's own translation and passed as read options. Only in classic
sessions: in others a scan decodes more, and returns the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from acid_platform.engine.spark.cache import kept
from acid_platform.engine.spark.char_varchar import has_char_or_varchar
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.few_calls import filtered, java_class
from acid_platform.engine.spark.spark_types import spark_schema
from acid_platform.engine.spark.timeless import settings_of, timeless
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column

NESTED_SOURCES = "spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources"


def search_argument(
    spark: SparkSession, columns: Sequence[Column], partition_columns: Sequence[Column], where: str
) -> dict[str, str]:
    """Read options that let ORC skip stripes and row groups in which no row satisfies `where`.

    Empty if `where` allows no argument, or if the session would replace it by its own. Raises
    InvalidExpression and UnknownColumn as any use of `where`.
    """
    if not hasattr(spark, "_jsparkSession") or "orc" in str(spark.conf.get(NESTED_SOURCES)):
        return {}
    if not timeless(where):
        return _made(spark, columns, partition_columns, where)
    # It depends on nothing else: neither on the files nor on their snapshot.
    key = ("search argument", *columns, None, *partition_columns, where, *settings_of(spark))
    return kept(spark, key, _BYTES, lambda: _made(spark, columns, partition_columns, where))


_BYTES = 4000
"""An estimate of an argument's memory."""


def _made(
    spark: SparkSession, columns: Sequence[Column], partition_columns: Sequence[Column], where: str
) -> dict[str, str]:
    # A file may hold an unpadded CHAR, or a longer VARCHAR, so its statistics are of other values.
    usable = spark_schema(column for column in columns if not has_char_or_varchar(column.type))
    filters = _filters(spark, [*columns, *partition_columns], where)
    if not filters:
        return {}
    made = _built(spark, usable, [one for one in filters if _is_exact(spark, usable, one)])
    if made is None:
        return {}
    conf = java_class(spark, "org.apache.hadoop.conf.Configuration")(False)
    gateway: Any = spark.sparkContext._gateway
    no_names = gateway.new_array(java_class(spark, "java.lang.String"), 0)
    java_class(spark, "org.apache.orc.mapred.OrcInputFormat").setSearchArgument(
        conf, made, no_names
    )
    return {_ARGUMENT: conf.get(_ARGUMENT), "orc.sarg.column.names": ",".join(usable.names)}


_ARGUMENT = "orc.kryo.sarg"
_SOURCES = "org.apache.spark.sql.execution.datasources"


_NULL = re.compile(r"\bnull\b")
"""In the text of a filter: with a NULL, ORC's builder fails with a NullPointerException."""
_FIRST_GREGORIAN = -12_219_292_800_000
"""15 October 1582 in milliseconds since 1970."""


def _built(spark: SparkSession, columns: T.StructType, filters: Sequence[Any]) -> Any:
    """ORC's argument of these filters; None if it can't express any of them."""
    # createFilter leaves out what it can't express, such as columns that are not in its schema.
    made = java_class(spark, f"{_SOURCES}.orc.OrcFilters").createFilter(
        _type(spark, columns),
        java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(filters)),
        java_class(spark, "scala.Option").empty(),
    )
    return None if made.isEmpty() else made.get()


def _is_exact(spark: SparkSession, columns: T.StructType, one: Any) -> bool:
    """Whether ORC compares the filter with statistics as Spark compares values.

    `ExactFilters.java` says why it does not.
    """
    made = None if _NULL.search(one.toString()) else _built(spark, columns, [one])
    if made is None:
        return False
    for leaf in made.getLeaves():
        kind, several = leaf.getType().toString(), leaf.getLiteralList()
        for value in [leaf.getLiteral()] if several is None else several:
            if value is None:
                continue
            if kind == "STRING" and not value.isascii():
                return False
            if kind == "FLOAT" and value == 0:
                return False
            if kind in ("DATE", "TIMESTAMP") and value.getTime() < _FIRST_GREGORIAN:
                return False
            if kind == "TIMESTAMP" and value.getNanos() // 1000 % 1000:
                return False
    return True


def _type(spark: SparkSession, fields: T.StructType) -> Any:
    return java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(fields.json())


def _filters(spark: SparkSession, columns: Sequence[Column], where: str) -> list[Any]:
    """The parts of `where` that Spark can express as source filters; joined by AND."""
    ids = T.StructType(
        [T.StructField(name, T.LongType()) for name in ("writeid", "bucketid", "rowid")]
    )
    fields = T.StructType([*spark_schema(columns).fields, T.StructField(ROW_ID_COLUMN, ids)])

    def empty() -> DataFrame:
        # An RDD, since the optimiser would remove the plan of an empty relation.
        nothing = spark.sparkContext._jsc.emptyRDD()
        made = spark._jsparkSession.createDataFrame(nothing, _type(spark, fields))
        return ClassicFrame(made, spark)

    with raise_as_ours():
        none = kept(spark, ("empty", *columns), 0, empty)
        plan = filtered(none, where)._jdf.queryExecution().optimizedPlan()
    if plan.nodeName() != "Filter":
        return []
    strategy = getattr(java_class(spark, f"{_SOURCES}.DataSourceStrategy$"), "MODULE$")
    found, waiting = [], [plan.condition()]
    while waiting:
        one = waiting.pop()
        translated = strategy.translateFilter(one, False)
        if translated.isDefined():
            found.append(translated.get())
        elif one.nodeName() == "And":
            waiting += [one.right(), one.left()]
    return found
