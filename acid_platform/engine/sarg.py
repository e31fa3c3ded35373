"""ORC search arguments for the inner row of ACID files (spark.md section 3).

Spark pushes `row.x >= 5`, which ORC looks for inside `row` and does not find; so the argument is
made here with Spark's own translation and handed over as read options. Classic sessions only:
elsewhere a scan decodes more, and gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.row_keys import ROW_ID_COLUMN
from acid_platform.engine.types import spark_schema
from acid_platform.layout.types import Column

NESTED_SOURCES = "spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources"


def search_argument(
    spark: SparkSession, columns: Sequence[Column], partition_columns: Sequence[Column], where: str
) -> dict[str, str]:
    """Read options that let ORC skip stripes and row groups in which no row satisfies `where`.

    Empty where nothing can be said, or where the session would put its own in their place. Raises
    InvalidExpression and UnknownColumn as any use of `where`.
    """
    if not hasattr(spark, "_jsparkSession") or "orc" in str(spark.conf.get(NESTED_SOURCES)):
        return {}
    # A padded CHAR compares otherwise in Hive's statistics than in Spark.
    usable = [one for one in columns if all(t.kind != "char" for t in one.type.walk())]
    jvm: Any = spark._jvm
    flat = spark_schema(usable)
    names = {column.name for column in usable}
    filters = [one for one in _filters(spark, [*columns, *partition_columns], where)
               if set(one.references()) <= names]
    if not filters:
        return {}
    orc_filters = jvm.org.apache.spark.sql.execution.datasources.orc.OrcFilters
    made = orc_filters.createFilter(
        jvm.org.apache.spark.sql.types.DataType.fromJson(flat.json()),
        jvm.org.apache.spark.api.python.PythonUtils.toSeq(filters), jvm.scala.Option.apply(None))
    if made.isEmpty():
        return {}
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(jvm.java.lang.String, len(flat.names))
    for index, name in enumerate(flat.names):
        array[index] = name
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    jvm.org.apache.orc.mapred.OrcInputFormat.setSearchArgument(conf, made.get(), array)
    return {key: conf.get(key) for key in ("orc.kryo.sarg", "orc.sarg.column.names")}


def _filters(spark: SparkSession, columns: Sequence[Column], where: str) -> Iterator[Any]:
    """The conjuncts of `where` that Spark can say as source filters, over top-level columns."""
    ids = T.StructType([T.StructField(name, T.LongType())
                        for name in ("writeid", "bucketid", "rowid")])
    fields = [*spark_schema(columns).fields, T.StructField(ROW_ID_COLUMN, ids)]
    jvm: Any = spark._jvm
    types = jvm.org.apache.spark.sql.types.DataType.fromJson(T.StructType(fields).json())
    # An RDD, so that the optimiser does not fold the plan of an empty relation away.
    nothing = spark.sparkContext._jsc.emptyRDD()
    with raise_as_ours():
        none = spark._jsparkSession.createDataFrame(nothing, types)
        plan = none.filter(where).queryExecution().optimizedPlan()
    if plan.nodeName() != "Filter":
        return
    sources = jvm.org.apache.spark.sql.execution.datasources
    strategy = getattr(getattr(sources, "DataSourceStrategy$"), "MODULE$")
    waiting = [plan.condition()]
    while waiting:
        one = waiting.pop()
        if one.getClass().getSimpleName() == "And":
            waiting += [one.right(), one.left()]
            continue
        translated = strategy.translateFilter(one, False)
        if translated.isDefined():
            yield translated.get()
