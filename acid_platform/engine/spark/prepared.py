"""Frames of whole reads, kept for the next read of the same files by the same predicate.

Building a frame takes dozens of calls into the JVM, each with an analysis of the plan, which is
much of a short query.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from acid_platform.engine.spark.cache import FILE_BYTES, kept
from acid_platform.engine.spark.few_calls import passed, selected, sent
from acid_platform.engine.spark.timeless import settings_of, timeless
from acid_platform.layout.sql_text import quoted
from acid_platform.scan.scans import Scan

_KEY_BYTES = 24
"""Memory of a deleted key in a join; a bitmap needs less."""


def prepared(
    spark: SparkSession,
    scan: Scan,
    where: str | None,
    options: Hashable,
    make: Callable[[], DataFrame],
    chosen: Sequence[str] | None = None,
) -> DataFrame:
    """The frame that `make` builds of the scan's rows, or an equal one that was built before.

    `options` has everything else that `make` depends on. `chosen`, without `where`: only these of
    its columns, in this order. A predicate whose value may change, such as one with a function,
    makes a new frame each time.
    """
    if where is not None and not timeless(where):
        return make()
    key = (
        "prepared",
        scan.location,
        scan.columns,
        scan.partition_columns,
        scan.format.name,
        *scan.format.options.items(),
        scan.write_ids,
        tuple(
            (
                entity.partition,
                entity.values,
                entity.sources.inserts,
                tuple(source.keys for source in entity.sources.inserts),
                entity.sources.deletes,
            )
            for entity in scan.entities
        ),
        where,
        options,
        None if where is None else settings_of(spark),
    )
    size = sum(
        FILE_BYTES * len(entity.sources.inserts) + _KEY_BYTES * len(entity.deletes)
        for entity in scan.entities
    )
    return kept(spark, key, size, lambda: _Prepared(make())).again(spark, chosen)


class _Prepared:
    """A frame that can be handed out again and again.

    Each time its columns get new identities, so that two reads of a table can be joined.
    """

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self.columns = tuple(frame.columns)
        self.passed: dict[tuple[str, ...], Any] = {}
        """Selections of a classic session: their texts are passed to the JVM once."""

    def again(self, spark: SparkSession, chosen: Sequence[str] | None) -> DataFrame:
        """The frame, or only the chosen columns."""
        names = self.columns if chosen is None else tuple(chosen)
        selection = [f"{quoted(name)} AS {quoted(name)}" for name in names]
        if not isinstance(self.frame, ClassicFrame):
            return selected(self.frame, selection)
        if (texts := self.passed.get(names)) is None:
            texts = passed(spark, [sent(spark, text) for text in selection])
            if len(self.passed) < _SELECTIONS:
                self.passed[names] = texts
        return ClassicFrame(self.frame._jdf.selectExpr(texts), spark)


_SELECTIONS = 64
"""The most selections of a frame that are kept."""
