"""Operations on frames that pass all their texts to the JVM at once, and frames that are kept for
the next read: only equal files give the same frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from acid_platform import CorruptFile, InvalidExpression, Table, UnknownColumn, Warehouse
from acid_platform.base.first_use import Recent
from acid_platform.engine.spark import few_calls
from acid_platform.engine.spark.few_calls import (
    over_frames,
    passed,
    selected,
    sorted_within,
    types_of,
)
from acid_platform.services import cleaner
from acid_platform.transactions import NONE_OPEN
from tests.acid_files import AcidTable, P
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


@pytest.fixture
def warehouse(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", spark) as opened:
        yield opened


def values(table: Table) -> list[int]:
    return sorted(row.v for row in table.read().collect())


def filled(warehouse: Warehouse, number: int) -> Table:
    table = warehouse.create_table("db.t", "id int, v int")
    rows = warehouse.spark.createDataFrame([(1, number), (2, number)], "id int, v int")
    table.insert(rows.coalesce(1))
    return table


def test_files_are_resolved_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    table = filled(warehouse, 10)
    assert values(table) == values(table) == [10, 10]
    assert len(few_calls._parts._values) == 1
    table.insert(warehouse.spark.createDataFrame([(3, 30)], "id int, v int"))
    assert values(table) == [10, 10, 30]
    assert len(few_calls._parts._values) == 2
    table.delete("id = 1")
    assert values(table) == [10, 30]
    before = list(few_calls._parts._values)
    assert values(table) == [10, 30]
    assert list(few_calls._parts._values) == before
    table.delete("id = 2")
    assert values(table) == [30]
    most = 10 * few_calls.FILE_BYTES
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, most))
    assert table.update({"v": "v + 1"}, "id = 3") == 1
    assert values(table) == [31]
    assert (
        0
        < sum(size for _, size in few_calls._parts._values.values())
        == few_calls._parts._bytes
        <= most
    )


def test_reads_of_other_columns_use_the_same_frame(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    table = filled(warehouse, 10)
    table.delete("id = 1")
    assert values(table) == [10]
    before = list(few_calls._parts._values)
    for columns, row in ((["v", "ID"], (10, 2)), (["id"], (2,)), (["v"], (10,)), ([], ())):
        frame = table.read(columns=columns)
        assert [tuple(found) for found in frame.collect()] == [row]
        assert frame.columns == [name.lower() for name in columns]
        leaf = frame._jdf.queryExecution().sparkPlan().collectLeaves().apply(0)
        assert {*leaf.requiredSchema().fieldNames()} == {*frame.columns}
    assert list(few_calls._parts._values) == before
    assert table.read(columns=["v"], row_id=True).columns == ["v", "row__id"]
    names = [f"c{number}" for number in range(70)]
    wide = warehouse.create_table("db.wide", ", ".join(f"{name} int" for name in names))
    wide.insert([{name: number for number, name in enumerate(names)}])
    assert [tuple(row) for row in wide.read(columns=["c7", "c1"]).collect()] == [(7, 1)]


def test_a_table_made_anew_has_its_own_rows(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    assert values(table) == [10, 10]
    warehouse.drop_table("db.t")
    assert values(filled(warehouse, 11)) == [11, 11]


def test_a_file_of_another_size_is_another_file(warehouse: Warehouse, tmp_path: Path) -> None:
    """A restored backup puts files under names that had been taken by others; a table that knows
    the name with another size refuses the file (P26)."""
    files = AcidTable(tmp_path / "t", "id int, v int")
    files.inserts("d1", [(1, P, number, number, 10) for number in range(2)])
    old, size = files.file("d1"), files.file("d1").stat().st_size
    snapshot = f"db.t:1:{NONE_OPEN}::"
    table = warehouse.adopt_table("db.t", files.root, snapshot=snapshot)
    assert values(table) == [10, 10]
    files.inserts("d1", [(1, P, number, number, 7) for number in range(1000)])
    assert old.stat().st_size != size
    wrong = rf"db\.t: {old} has .* write id 1 committed it with {size}"
    with pytest.raises(CorruptFile, match=wrong):
        values(table)
    content = old.read_bytes()
    warehouse.drop_table("db.t")
    warehouse.release()
    cleaner.run(warehouse.metastore)
    assert not old.exists()
    old.parent.mkdir(parents=True)
    old.write_bytes(content)
    table = warehouse.adopt_table("db.t", files.root, snapshot=snapshot)
    assert values(table) == [7] * 1000


def test_two_reads_can_be_joined(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    left, right = table.read(), table.read()
    joined = left.join(right, left["id"] == right["id"] + 1).select(left["id"], right["v"])
    assert [tuple(row) for row in joined.collect()] == [(2, 10)]


def test_a_predicate_with_a_function_is_evaluated_anew(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    seeds = {str(table.read(where="rand() < 2")._jdf.queryExecution().analyzed()) for _ in "ab"}
    assert len({plan.partition("rand(")[2].partition(")")[0] for plan in seeds}) == 2


def test_a_setting_that_changes_comparisons_makes_another_frame(
    warehouse: Warehouse, spark: SparkSession
) -> None:
    table = warehouse.create_table("db.t", "s string")
    table.insert([{"s": "x"}, {"s": "1"}])
    assert warehouse.spark is spark, "a session that has another value from the start is refused"
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        assert [row.s for row in table.read(where="s = 1").collect()] == ["1"]
        spark.conf.set("spark.sql.ansi.enabled", "true")
        with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
            table.read(where="s = 1").collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))


def test_files_with_and_without_deletes_are_one_scan(warehouse: Warehouse) -> None:
    """A union would make Spark write and read every row once more."""
    table = filled(warehouse, 10)
    table.insert(warehouse.spark.createDataFrame([(3, 30), (4, 40)], "id int, v int"))
    table.delete("id = 4")
    table.insert(warehouse.spark.createDataFrame([(5, 50)], "id int, v int"))
    frame = table.read(where="v > 10")
    assert sorted(row.id for row in frame.collect()) == [3, 5]
    plan = frame._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    assert "Union" not in plan and plan.count("Relation [") == 1
