"""A query's rows as Spark computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from acid_platform.engine.results import EngineName, Result
from acid_platform.engine.spark.input_rows import column_of
from acid_platform.engine.spark.query import fetch, plan_text
from acid_platform.layout.types import Column


@dataclass(frozen=True, repr=False)
class SparkResult(Result):
    """The rows of a DataFrame."""

    frame: DataFrame
    reason: str = "a DataFrame of Spark"
    engine: EngineName = "spark"

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    def declared(self) -> tuple[Column, ...]:
        return tuple(column_of(field) for field in self.frame.schema.fields)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        return fetch(self.frame, limit)

    def batches(self) -> pa.RecordBatchReader:
        return self.to_arrow().to_reader()

    def to_spark(self) -> DataFrame:
        return self.frame

    def renamed(self, names: Sequence[str]) -> SparkResult:
        return SparkResult(self.frame.toDF(*names), self.reason)

    def in_one_file(self) -> SparkResult:
        return SparkResult(self.frame.coalesce(1), self.reason)

    def plan(self) -> str:
        return plan_text(self.frame)

    def count(self) -> int:
        return self.frame.count()
