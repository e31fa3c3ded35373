"""P33: every operator and function that runs locally means the same in both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from acid_platform.engine.local.functions import CONSTRUCTS
from acid_platform.errors import NeedsSpark
from tests.engine.local import samples
from tests.engine.local.differential import (
    Local,
    LocalTable,
    differences,
    error_differences,
    name_differences,
    spark_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def computed(table: LocalTable, entries: Iterator[tuple[str, list[str]]]) -> list[Local]:
    """What the local engine computes; each entry has at least one expression that it does."""
    found = []
    for entry, expressions in entries:
        before = len(found)
        for expression in expressions:
            try:
                found.append(table.compute(expression))
            except NeedsSpark:
                continue
        assert len(found) > before, f"{entry} is in the table, but no expression of it runs"
    return found


def test_every_construct_has_samples() -> None:
    assert samples.CONSTRUCTS.keys() == CONSTRUCTS.keys()


@pytest.mark.spark
def test_P33_every_function_gives_the_values_and_errors_of_Spark(spark: SparkSession) -> None:
    local = computed(LocalTable(), samples.scalar())
    table = spark_table(spark)
    found = []
    for start in range(0, len(local), 250):
        found += differences(table, local[start : start + 250])
    found += name_differences(table, local)
    found += error_differences(table, [one for one in local if one.errors])
    table.unpersist()
    assert not found, f"{len(found)} of {len(local)}:\n" + "\n".join(found)
