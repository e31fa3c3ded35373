"""Rows of a body are looked at as Spark does it; those that fail go into a table of their own."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from acid_platform import InvalidDefinition, WrongType
from acid_platform.engine.interface import Result
from acid_platform.layout.types import Column, parse_columns
from acid_platform.orchestration import (
    Expectation,
    TableDeclaration,
    Transaction,
    acid_asset,
    table_checks,
)
from acid_platform.orchestration.body_rows import (
    LocalRows,
    SparkRows,
    _split_by_arrow,
    _split_by_spark,
    body_rows,
    failing_rows,
)
from acid_platform.orchestration.outputs import WriteMode
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.values.arrow_types import declared_columns
from acid_platform.values.row_streams import RowStream
from tests.conftest import temporary_warehouse
from tests.orchestration import conftest, test_checks_agree
from tests.orchestration.conftest import Place
from tests.orchestration.test_checks_agree import DAYS

COLUMNS = parse_columns("i int, s string, f double, d date, n decimal(9,2), p int, c string")


def local(**columns: list[Any]) -> LocalRows:
    kinds = {
        "i": pa.int32(),
        "s": pa.string(),
        "f": pa.float64(),
        "d": pa.date32(),
        "n": pa.decimal128(9, 2),
    }
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return LocalRows(pa.table(arrays), COLUMNS, "db.t")


FEW = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["", "a", "A", "a "]),
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
    st.sampled_from([Decimal("1.00"), Decimal("1.50")]),
)


def as_spark_groups(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("NaN" if value != value else value for value in row)


@pytest.mark.more
@given(st.lists(FEW, max_size=12))
def test_equal_keys_are_those_that_spark_groups(given_rows: list[tuple[Any, ...]]) -> None:
    names = ("i", "s", "f", "d", "n")
    columns = {name: [row[at] for row in given_rows] for at, name in enumerate(names)}
    for key in (names, ("f",), ("s", "i")):
        places = [names.index(name) for name in key]
        groups = [as_spark_groups(tuple(row[at] for at in places)) for row in given_rows]
        rows = local(**columns)
        twice = rows.twice(key)
        assert (twice is None) == (len(set(groups)) == len(groups))
        if twice is not None:
            assert groups.count(as_spark_groups(tuple(twice[name] for name in key))) > 1
        distinct = rows.distinct(key)
        assert isinstance(distinct, pa.Table) and distinct.column_names == list(key)
        found = [as_spark_groups(tuple(row.values())) for row in distinct.to_pylist()]
        assert len(found) == len(set(groups)) and set(found) == set(groups)


def test_a_null_in_a_key_is_told_with_its_row() -> None:
    rows = local(i=[1, 2, None], s=["a", None, "c"])
    assert rows.with_null(["i"]) == {"i": None, "s": "c"}
    assert rows.with_null(["s", "i"]) == {"i": 2, "s": None}
    assert local(i=[1], s=[None]).with_null(["i"]) is None
    assert local(i=[], s=[]).with_null(["i", "s"]) is None


def test_a_run_s_partition_values_become_columns_of_the_table_s_types() -> None:
    rows = local(i=[1, 2]).with_constants({"p": "7", "c": "x y"})
    assert rows.names == ["i", "p", "c"]
    assert rows.rows.schema.field("p").type == pa.int32()
    assert rows.rows.to_pylist() == [{"i": 1, "p": 7, "c": "x y"}, {"i": 2, "p": 7, "c": "x y"}]
    with pytest.raises(WrongType, match="'seven' is no value of the column 'p' int"):
        local(i=[1]).with_constants({"p": "seven"})


def test_P59_a_large_result_of_a_body_is_a_stream(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "id bigint, v string")
        table.insert(pa.table({"id": np.arange(300_000), "v": ["x" * 200] * 300_000}))
        for where, kind in (("id < 1000", pa.Table), ("true", RowStream)):
            result = warehouse.sql(f"SELECT * FROM db.t WHERE {where}")
            assert isinstance(result, Result)
            rows = body_rows(warehouse, result, table.columns, "db.t")
            assert isinstance(rows, LocalRows) and isinstance(rows.rows, kind)
            for _ in range(2):  # a stream of a result can be read again
                computed = rows.computed().rows
                assert isinstance(computed, pa.Table)
                assert computed.num_rows == result.count()


ORDERS = TableDeclaration("shop.orders", "id int, amount int", ("day date",))
GIVEN = Expectation(
    "amounts_are_given", "ExpectColumnValuesToNotBeNull", {"column": "amount"}, quarantine=True
)
SMALL = Expectation(
    "ids_are_small",
    "ExpectColumnValuesToBeBetween",
    {"column": "id", "max_value": 9},
    quarantine=True,
)
SOME = Expectation("there_are_some", "ExpectTableRowCountToBeBetween", {"min_value": 2})
DAY = "2024-02-29"
BAD: list[dict[str, object]] = [
    {"id": 2, "amount": None, "day": DAY},
    {"id": 10, "amount": None, "day": DAY},
    {"id": 11, "amount": 1, "day": DAY},
]


@pytest.fixture(
    params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def lake(place: Place, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place whose assets run in one of the engines."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    resource = WarehouseResource(path=place.resource.path, engine=request.param)
    yield dataclasses.replace(place, resource=resource)


def fill(place: Place, rows: list[dict[str, object]], **more: Any) -> dg.ExecuteInProcessResult:
    arguments = {"expectations": [GIVEN, SMALL], "write_mode": "append", **more}
    partition = arguments.pop("partition_key", None)

    @acid_asset(table=ORDERS, **arguments)
    def orders() -> list[dict[str, object]]:
        return rows

    return conftest.run(place, orders, partition_key=partition)


def ids(place: Place, table: str = "shop.orders") -> list[int]:
    return sorted(place.warehouse.table(table).to_arrow(["id"])["id"].to_pylist())


def test_what_fails_is_set_aside_with_reason_run_and_time(lake: Place) -> None:
    result = fill(lake, [{"id": 1, "amount": 1, "day": DAY}, *BAD])
    assert result.success and ids(lake) == [1]
    rejected = lake.warehouse.table("shop.orders_quarantine")
    rows = sorted(rejected.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["quarantined_by"]) for row in rows] == [
        (2, "amounts_are_given"),
        (10, "amounts_are_given, ids_are_small"),
        (11, "ids_are_small"),
    ]
    assert {row["quarantined_run"] for row in rows} == {result.run_id}
    assert {row["day"] for row in rows} == {DAYS[1]}
    table = lake.warehouse.table("shop.orders")
    assert table.history()[-1]["txn"] == rejected.history()[-1]["txn"]
    committed = table.history()[-1]["time"] / 1000
    assert abs(committed - rows[0]["quarantined_at"].replace(tzinfo=UTC).timestamp()) < 60


def test_the_check_warns_and_the_materialization_counts(lake: Place) -> None:
    result = fill(lake, [{"id": 1, "amount": 1, "day": DAY}, *BAD[:2]])
    checks = {each.check_name: each for each in result.get_asset_check_evaluations()}
    given = checks["amounts_are_given"]
    assert not given.passed and given.severity == dg.AssetCheckSeverity.WARN
    details: Any = given.metadata["details"].value
    assert details["unexpected_count"] == 2 and details["quarantine"] == "shop.orders_quarantine"
    assert given.metadata["failed rows"].value == 2
    assert "failed rows, percent" not in given.metadata  # known of the rows that were stored
    assert "| warns | amounts\\_are" in str(given.metadata["data docs"].value).replace("_", "\\_")
    [event] = result.get_asset_materialization_events()
    assert event.materialization.metadata["quarantined rows"].value == 2
    again = fill(lake, [{"id": 3, "amount": 1, "day": DAY}])
    assert {each.passed for each in again.get_asset_check_evaluations()} == {True}
    [event] = again.get_asset_materialization_events()
    assert "quarantined rows" not in event.materialization.metadata


def test_both_tables_have_the_commit_or_neither(lake: Place) -> None:
    rows = [{"id": 1, "amount": 1, "day": DAY}, *BAD]
    assert not fill(lake, rows, expectations=[GIVEN, SMALL, SOME]).success
    assert ids(lake) == ids(lake, "shop.orders_quarantine") == []
    more = [{"id": 3, "amount": 1, "day": DAY}, *rows]
    assert fill(lake, more, expectations=[GIVEN, SMALL, SOME]).success
    assert ids(lake) == [1, 3] and ids(lake, "shop.orders_quarantine") == [2, 10, 11]


@pytest.mark.slow
def test_rows_that_are_there_already_still_fail_the_run(lake: Place) -> None:
    assert fill(lake, BAD, expectations=[]).success
    assert not fill(lake, BAD).success
    assert ids(lake) == [2, 10, 11]


@pytest.mark.slow
@pytest.mark.parametrize("write_mode", ["upsert", "delete+insert"])
def test_a_row_that_fails_leaves_the_row_that_is_there(lake: Place, write_mode: WriteMode) -> None:
    arguments = {"write_mode": write_mode, "key": ["id", "day"]}
    assert fill(lake, [{"id": 2, "amount": 5, "day": DAY}], **arguments).success
    assert fill(lake, BAD, **arguments).success
    assert ids(lake) == [2] and ids(lake, "shop.orders_quarantine") == [2, 10, 11]


@pytest.mark.slow
def test_the_partition_of_a_run_is_replaced_by_what_holds(lake: Place) -> None:
    arguments = {
        "write_mode": "overwrite",
        "partitions_def": dg.DailyPartitionsDefinition("2024-01-01"),
        "partition_expr": "day",
        "partition_key": DAY,
    }
    rows = [{name: row[name] for name in ("id", "amount")} for row in BAD]  # the run has the day
    assert fill(lake, [{"id": 1, "amount": 1}, *rows], **arguments).success
    assert fill(lake, [{"id": 4, "amount": 1}, *rows[:1]], **arguments).success
    assert ids(lake) == [4] and ids(lake, "shop.orders_quarantine") == [2, 2, 10, 11]
    columns = lake.warehouse.table("shop.orders_quarantine").to_arrow(["day"])
    assert set(columns["day"].to_pylist()) == {DAYS[1]}


@pytest.mark.slow
def test_columns_that_the_table_gets_later(lake: Place) -> None:
    assert fill(lake, BAD).success
    assert fill(lake, [{**BAD[0], "note": "late"}], schema_mode="add").success
    notes = lake.warehouse.table("shop.orders_quarantine").to_arrow(["note"])["note"]
    assert sorted(notes.to_pylist(), key=str) == [None, None, None, "late"]
    lacking = [{"id": 5, "day": DAY}]  # a column that the rows lack is NULL
    assert fill(lake, lacking).success and ids(lake) == []


NOT_NULL, BETWEEN = "ExpectColumnValuesToNotBeNull", "ExpectColumnValuesToBeBetween"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "ExpectColumnValuesToBeUnique"}, "says not which row fails"),
    ({"kind": "ExpectTableRowCountToEqual", "arguments": {"value": 1}}, "says not which row"),
    ({"kind": NOT_NULL, "arguments": {"column": "id", "mostly": 0.9}}, "leave mostly out"),
    ({"kind": BETWEEN, "arguments": {"column": "id", "min_value": []}}, r"\[\] is no number"),
]


@pytest.mark.parametrize(("fields", "why"), WRONG)
def test_what_no_row_fails_by_itself_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"asset of shop.orders: .*{why}"):
        wrong = Expectation(
            **{"name": "e", "arguments": {"column": "id"}, **fields}, quarantine=True
        )
        acid_asset(table=ORDERS, expectations=[wrong])


def test_what_is_written_already_can_t_be_set_aside() -> None:
    with pytest.raises(InvalidDefinition, match="can't set rows aside"):
        table_checks("c", "db.t", [GIVEN])
    with pytest.raises(InvalidDefinition, match="can't set rows aside"):
        acid_asset(table=ORDERS, checks=[GIVEN])
    with pytest.raises(InvalidDefinition, match="quarantined_by has the name"):
        acid_asset(
            table=TableDeclaration("db.t", "amount int, quarantined_by int"), expectations=[GIVEN]
        )


@pytest.mark.slow
def test_a_body_may_take_txn_if_it_returns_the_rows(lake: Place) -> None:
    def run(*statements: str) -> bool:
        @acid_asset(table=ORDERS, expectations=[GIVEN], write_mode="append")
        def orders(txn: Transaction) -> Any:
            for statement in statements[:-1]:
                txn.sql(statement)
            return txn.sql(statements[-1])

        return conftest.run(lake, orders).success

    lake.warehouse.create_table("shop.raw", "id int, amount int, day date")
    lake.warehouse.table("shop.raw").insert([{"id": 1, "amount": 1, "day": DAY}, *BAD])
    select = "SELECT id, amount, day FROM shop.raw"
    assert run(select)
    assert ids(lake) == [1, 11] and ids(lake, "shop.orders_quarantine") == [2, 10]
    assert not run(f"INSERT INTO shop.orders {select}", select)
    assert ids(lake) == [1, 11]


# --- the same rows as Great Expectations ----------------------------------------------------------


ROWS = test_checks_agree.ROWS


def expectations() -> Iterator[Expectation]:
    texts, whole = ["string_0", "string_1"], ["tinyint_0", "int_1", "bigint_0", "bigint_1"]
    for name in ROWS.column_names:
        yield Expectation(f"given_{name}", NOT_NULL, {"column": name})
        yield Expectation(f"null_{name}", "ExpectColumnValuesToBeNull", {"column": name})
    for name in [*whole, "double_0", "double_1"]:
        for bounds in (
            {"min_value": 2},
            {"max_value": 2, "strict_max": True},
            {"min_value": 0.5, "strict_min": True, "max_value": 2.0},
        ):
            yield Expectation(
                f"between_{name}_{len(bounds)}_{bounds.get('min_value')}",
                BETWEEN,
                {"column": name, **bounds},
            )
    for names, values in ((whole, [1, 2, 5, 2**60]), (texts, ["a", "b", "", "it's"])):
        for name in names:
            arguments = {"column": name, "value_set": values}
            yield Expectation(f"in_{name}", "ExpectColumnValuesToBeInSet", arguments)
            yield Expectation(f"not_in_{name}", "ExpectColumnValuesToNotBeInSet", arguments)
    for name in ("date_0", "date_1"):
        yield Expectation(
            f"between_{name}",
            "ExpectColumnValuesToBeBetween",
            {"column": name, "min_value": DAYS[1]},
        )


EXPECTATIONS = list(expectations())
FAILING = {each.name: failing_rows(each, ROWS.column_names) for each in EXPECTATIONS}
QUARANTINE_COLUMNS: tuple[Column, ...] = declared_columns(ROWS.schema)


@pytest.mark.slow
@pytest.mark.spark
def test_P33_spark_and_arrow_reject_the_same_rows(spark: SparkSession) -> None:
    def listed(rows: pa.Table) -> list[str]:
        return sorted(map(str, rows.to_pylist()))

    held, rejected, counts = _split_by_arrow(LocalRows(ROWS, QUARANTINE_COLUMNS, "t"), FAILING)
    regex = Expectation(
        "r", "ExpectColumnValuesToMatchRegex", {"column": "string_1", "regex": r"^\w$"}
    )
    frame = SparkRows(spark.createDataFrame(ROWS), QUARANTINE_COLUMNS)
    spark_held, spark_rejected, spark_counts = _split_by_spark(frame, FAILING)
    assert counts == spark_counts
    assert listed(held.rows) == listed(spark_held.rows.toArrow())
    assert listed(rejected.rows) == listed(spark_rejected.rows.toArrow())
    test = {"r": failing_rows(regex, ROWS.column_names)}
    assert _split_by_spark(frame, test)[2] == {"r": 1}  # ü, which is \w only with (?U)
