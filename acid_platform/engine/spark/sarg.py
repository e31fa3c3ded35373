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
from acid_platform.engine.spark.few_calls import java_class
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
    # createFilter leaves out what it can't express, such as columns that are not in its schema.
    made = java_class(spark, f"{_SOURCES}.orc.OrcFilters").createFilter(
        _type(spark, usable),
        java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(filters),
        java_class(spark, "scala.Option").empty(),
    )
    if made.isEmpty():
        return {}
    conf = java_class(spark, "org.apache.hadoop.conf.Configuration")(False)
    gateway: Any = spark.sparkContext._gateway
    no_names = gateway.new_array(java_class(spark, "java.lang.String"), 0)
    java_class(spark, "org.apache.orc.mapred.OrcInputFormat").setSearchArgument(
        conf, made.get(), no_names
    )
    return {_ARGUMENT: conf.get(_ARGUMENT), "orc.sarg.column.names": ",".join(usable.names)}


_ARGUMENT = "orc.kryo.sarg"
_SOURCES = "org.apache.spark.sql.execution.datasources"


_INEXACT = re.compile(r"\bnull\b|:\d\d\.\d{4}")
"""Matches the text of filters that can't be pushed: with a NULL, ORC's builder fails with a
NullPointerException; a timestamp with digits below the millisecond loses them in the option's text,
and ORC would skip rows. A string that looks like one only costs speed."""


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
        plan = none._jdf.filter(where).queryExecution().optimizedPlan()
    if plan.nodeName() != "Filter":
        return []
    strategy = getattr(java_class(spark, f"{_SOURCES}.DataSourceStrategy$"), "MODULE$")
    found, waiting = [], [plan.condition()]
    while waiting:
        one = waiting.pop()
        translated = strategy.translateFilter(one, False)
        if translated.isDefined():
            if not _INEXACT.search(translated.get().toString()):
                found.append(translated.get())
        elif one.nodeName() == "And":
            waiting += [one.right(), one.left()]
    return found
