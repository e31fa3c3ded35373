"""Operations on frames that pass all their texts to the JVM at once."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.few_calls import passed, selected, sorted_within, types_of
from acid_platform.errors import InvalidExpression, UnknownColumn

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "texts", [[], ["a"], ["a", ""], ["", ""], ["a\x1fb", "c"], ["a\nb", "'|,\\", "ü"]]
)
def test_texts_arrive_as_they_are(spark: SparkSession, texts: list[str]) -> None:
    assert list(passed(spark, texts)) == texts


def test_each_text_is_one_expression(spark: SparkSession) -> None:
    frame = spark.range(3)
    assert selected(frame, ["*", "'a\x1fb' AS t", "id + 1 AS `x,y`"]).columns == ["id", "t", "x,y"]
    assert types_of(frame, ["id -- the id", "'a, b'"]) == [T.LongType(), T.StringType()]
    with pytest.raises(InvalidExpression, match=r"'\*' has several values"):
        types_of(selected(frame, ["id", "id AS b"]), ["*"])
    for wrong in ("id, id", "id) + (id", "id +"):
        with pytest.raises(InvalidExpression):
            types_of(frame, [wrong])
    with pytest.raises(UnknownColumn, match="idd"):
        types_of(frame, ["id", "idd"])


def test_a_sort_by_several_columns(spark: SparkSession) -> None:
    frame = selected(spark.range(6).coalesce(1), ["id % 2 AS `a b`", "-id AS b", "id AS c"])
    rows = sorted_within(frame, ["`a b`", "b", "c"]).collect()
    assert [row["c"] for row in rows] == [4, 2, 0, 5, 3, 1]
    assert sorted_within(frame, []) is frame
