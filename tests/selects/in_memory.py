"""Spark reads each table from memory, and what a statement would write is collected instead."""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa

from acid_platform import SourceRowsAmbiguous
from acid_platform.write.task_files import DELETES, INSERTS, RowKind

_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.maxPlanStringLength": "0",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
}


class Collected(Exception):
    """The rows of `both.t` after a statement of Spark, in the order of `id`."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__("a statement was not written")
        self.rows = rows


def read_once(spark: Any) -> None:
    """Lets Spark read each table from memory, in one partition: what is compared is what it
    computes, and most of these queries are then one task. UPDATE and MERGE raise Collected."""
    from pyspark.sql.classic.dataframe import DataFrame

    from acid_platform.engine.spark import query as of_spark
    from acid_platform.engine.spark import spark_dml, spark_engine
    from acid_platform.engine.spark import write as of_write
    from acid_platform.engine.spark.few_calls import filtered
    from acid_platform.engine.spark.row_keys import KEYS
    from acid_platform.engine.spark.spark_types import marked
    from acid_platform.engine.spark.write import BITS

    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    frames, before = dict[str, Any](), list[dict[str, Any]]()

    def held(session: Any, scan: Any, real: Any, *arguments: Any) -> Any:
        every = (*scan.columns, *scan.partition_columns)
        key = f"{real.__name__} {scan.location} {scan.write_ids}"
        if key not in frames:
            stored = real(session, scan, *arguments)._jdf
            rows = session._jsparkSession.createDataFrame(stored.collectAsList(), stored.schema())
            frames[key] = marked(DataFrame(rows.coalesce(1), session), every)
        return frames[key]

    real_frame, real_rows = of_spark.read_frame, spark_dml.scan_rows

    def read(session: Any, scan: Any, *_: Any, **__: Any) -> Any:
        return held(session, scan, real_frame)

    def scanned(session: Any, scan: Any, _: Any, where: str | None = None) -> Any:
        rows = held(session, scan, real_rows, None)
        if not before:  # of the first statement, which has no WHERE
            before.extend(rows_of(rows).to_pylist())
        return filtered(rows, where) if where else rows

    def rows_of(frame: Any) -> pa.Table:
        return of_spark.SparkResult(frame).to_arrow()

    def collected(rows: Any, target: Any) -> NoReturn:
        """By key the rows that were, without those that go, with those that are new."""
        columns = [column.name for column in target.columns]
        after = {tuple(row[key] for key in KEYS): row for row in before}
        fixed = DELETES | INSERTS if rows.kind is RowKind.UPDATE else None
        gone, added = dict[tuple[Any, ...], int](), []
        for row in rows_of(rows.frame).to_pylist():
            bits, key = fixed or row[BITS], tuple(row[name] for name in KEYS)
            if bits & DELETES:
                if key in gone and max(bits, gone[key]) > DELETES:
                    raise SourceRowsAmbiguous("several rows of the source change one row")
                gone[key] = bits
                after.pop(key, None)
            if bits & INSERTS:
                added.append(row)
        every = sorted([*after.values(), *added], key=lambda row: row["id"])
        raise Collected([{name: row[name] for name in columns} for row in every])

    of_spark.read_frame, spark_dml.scan_rows = read, scanned
    of_write.placed_by_number = lambda frame, *_: frame  # in the task of its bucket
    spark_dml.write_statement = spark_engine.write_statement = collected
