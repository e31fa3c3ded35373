"""Operations on frames that pass all their texts to the JVM at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from acid_platform import InvalidExpression, UnknownColumn, Warehouse
from acid_platform.engine.spark.few_calls import (
    over_frames,
    passed,
    selected,
    sorted_within,
    types_of,
)
from tests.conftest import temporary_warehouse

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


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT id, '{a_1}' AS s FROM a_1 AS t WHERE t.id > 1", [(2, "{a_1}")]),
        ("SELECT x.id, y.k FROM a_1 x JOIN b_1 y ON x.id = y.k", [(1, 1)]),
        ("SELECT x.id, y.id FROM a_1 x JOIN a_1 y ON x.id = y.id + 1", [(1, 0), (2, 1)]),
        ("WITH b AS (SELECT k FROM b_1) SELECT b.k FROM b UNION ALL SELECT id FROM a_1 WHERE"
         " id IN (SELECT k FROM b)", [(1,), (1,), (5,)]),
        ("SELECT id, (SELECT max(k) FROM b_1 WHERE k > id) AS m FROM a_1 ORDER BY id LIMIT 1",
         [(0, 5)]),
        ("SELECT 1 AS one", [(1,)]),
    ],
)  # fmt: skip
def test_P18_a_query_names_frames_that_nothing_else_sees(
    spark: SparkSession, text: str, rows: list[tuple[object, ...]]
) -> None:
    frames = {"a_1": spark.range(3), "b_1": spark.sql("SELECT * FROM VALUES (1), (5) AS t(k)")}
    assert sorted(tuple(row) for row in over_frames(spark, text, frames).collect()) == rows
    assert spark.catalog.listTables() == []
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM a_1")
    with pytest.raises(ParseException):
        over_frames(spark, "SELECT (id FROM a_1", frames)


@pytest.mark.slow
def test_a_statement_makes_as_many_calls_however_many_columns_there_are(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    send = GatewayClient.send_command

    def counted(client: GatewayClient, command: str, *more: Any, **named: Any) -> Any:
        if not command.startswith("m\nd\n"):  # that an object of the JVM is not needed any more
            made.append(command)
        return send(client, command, *more, **named)

    monkeypatch.setattr(GatewayClient, "send_command", counted)

    def calls(work: Callable[[], object]) -> int:
        made.clear()
        work()
        return len(made)

    def of_statements(warehouse: Warehouse, width: int) -> dict[str, int]:
        names = [f"c{i}" for i in range(width)]
        table = warehouse.create_table(f"db.t{width}", ", ".join(f"{n} timestamp" for n in names))
        values = [f"timestamp_seconds(id) AS {name}" for name in names]
        rows, fewer = (spark.range(count).selectExpr(*values) for count in (20, 10))
        where = "c0 < TIMESTAMP '1970-01-01 00:00:05'"
        on = "t.c0 = s.c0"
        return {
            "insert": calls(lambda: table.insert(rows)),
            "update": calls(lambda: table.update({"c1": "c0"}, where)),
            "delete": calls(lambda: table.delete(where)),
            "merge": calls(
                lambda: table.merge(
                    fewer, on, when_matched_update={"c1": "s.c1"}, when_not_matched_insert="*"
                )
            ),
            "read": calls(lambda: table.read().collect()),
        }

    with temporary_warehouse(tmp_path, spark, "spark") as warehouse:
        of_statements(warehouse, 3)  # what is looked up once
        few, many = of_statements(warehouse, 4), of_statements(warehouse, 40)
    assert {name: many[name] - few[name] for name in few if many[name] > few[name] + 4} == {}
    assert few["insert"] < 45 and few["merge"] < 200
