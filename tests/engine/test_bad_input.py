"""Bad input: each kind has its own error, and afterwards nothing is half-written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    AcidError,
    InvalidExpression,
    NoSuchPartition,
    NoSuchTable,
    PartitionColumnUpdate,
    Table,
    UnknownColumn,
    Warehouse,
    WarehouseNotWritable,
    WrongType,
)
from tests.conftest import temporary_warehouse
from tests.runs import without_java

ROWS = [(1, "a", 1), (2, "b", 2)]


@pytest.fixture(scope="module", params=["spark", "auto"])
def warehouse(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("bad") / "wh", spark, request.param) as opened:
        made = opened.create_table("db.t", "id int, v string", partitioned_by=["month int"])
        made.insert([{"id": one, "v": v, "month": month} for one, v, month in ROWS])
        yield opened


def paths(table: Table) -> list[str]:
    return sorted(str(path.relative_to(table.location)) for path in Path(table.location).rglob("*"))


def row(**values: Any) -> list[dict[str, Any]]:
    return [{"id": 1, "v": "x", "month": 1, **values}]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.insert(row(colour="red")), UnknownColumn, "colour.*columns are id"),
        (lambda t: t.insert([1, "b"]), WrongType, "a list of int and str is none of them"),
        (lambda t: t.insert(row()[0]), WrongType, "a dict is none of them"),
        (lambda t: t.insert("text"), WrongType, "a str is none of them"),
        (lambda t: t.insert(row(ID=2)), UnknownColumn, "column id twice: each can be stored once"),
        (
            lambda t: t.insert(pd.DataFrame([[1, 2]], columns=["id", "id"])),
            UnknownColumn,
            "id twice: each can be stored once",
        ),
        (lambda t: t.insert(row(id=1.5)), WrongType, "'id' of db.t is int: 1.5 .*convert it"),
        (lambda t: t.overwrite(row(colour="red")), UnknownColumn, "'colour'; its columns are id"),
        (
            lambda t: t.overwrite(row(), partition="day=1"),
            NoSuchPartition,
            "db.t; use the form month=",
        ),
        (
            lambda t: t.update({"month": "3"}, "id = 1"),
            PartitionColumnUpdate,
            "'month' is a partition column of db.t.*delete the row and insert it again",
        ),
        (
            lambda t: t.update({"v": "'x'", "V": "'y'"}),
            InvalidExpression,
            "column 'v' of db.t is given two values",
        ),
        (
            lambda t: t.merge(row(), "t.id = s.id", {"v": "'x'", "V": "'y'"}),
            InvalidExpression,
            "column 'v' of db.t is given two values",
        ),
        (
            lambda t: t.merge(
                row(id=9), "t.id = s.id", when_not_matched_insert={"id": "1", "ID": "2"}
            ),
            InvalidExpression,
            "column 'id' of db.t is given two values",
        ),
        (
            lambda t: t.update({"id": "id + 2147483647"}),
            WrongType,
            "(?i)overflow.*; cast it to a type that holds it",
        ),
        (
            lambda t: t.delete("id ="),
            InvalidExpression,
            "'id =' is not a SQL condition: it can't be parsed from '=' on",
        ),
        (lambda t: t.delete(""), InvalidExpression, "'' is not a SQL condition: it is empty"),
        (lambda t: t.read(columns=["colour"]), UnknownColumn, "'colour'; its columns are id"),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else None,
)
def test_a_refused_call_has_its_own_error_and_changes_nothing(
    warehouse: Warehouse, call: Callable[[Table], object], error: type[AcidError], message: str
) -> None:
    table = warehouse.table("db.t")
    before = paths(table)
    with pytest.raises(error, match=message) as raised:
        call(table)
    assert type(raised.value) is error
    warehouse.release()
    assert [txn for txn in warehouse.metastore.transactions() if txn["state"] == "OPEN"] == []
    assert warehouse.metastore.locks() == []
    assert paths(table) == before
    assert sorted(tuple(collected) for collected in table.read().collect()) == ROWS


@pytest.mark.spark
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda wh: wh.table("db.nope"), NoSuchTable, r"db.nope; create it, or see tables\(\)"),
        (lambda wh: wh.sql("SELECT * FROM db.nope"), NoSuchTable, "db.nope; SHOW DATABASES"),
        (
            lambda wh: wh.drop_table("db.nope"),
            NoSuchTable,
            r"db.nope; create it, or see tables\(\)",
        ),
    ],
)
def test_what_the_warehouse_refuses_leaves_no_table_and_no_transaction(
    warehouse: Warehouse, call: Callable[[Warehouse], object], error: type[AcidError], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(warehouse)
    warehouse.release()
    assert warehouse.tables() == ["db.t"]
    assert [txn for txn in warehouse.metastore.transactions() if txn["state"] == "OPEN"] == []


@pytest.mark.spark
def test_a_failed_statement_rolls_back_the_whole_transaction(warehouse: Warehouse) -> None:
    table = warehouse.table("db.t")
    with pytest.raises(WrongType), warehouse.transaction() as txn:
        txn.table("db.t").insert(row(id=7))
        txn.table("db.t").insert(row(id="eight"))
    assert sorted(tuple(collected) for collected in table.read().collect()) == ROWS
    warehouse.release()
    assert [one for one in warehouse.metastore.transactions() if one["state"] == "OPEN"] == []


def test_a_warehouse_below_a_regular_file_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(WarehouseNotWritable, match="file"):
        Warehouse.open(tmp_path / "file" / "wh")
    assert (tmp_path / "file").read_text() == "kept"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.more
def test_without_java_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    code = f"""
from acid_platform import Warehouse
from acid_platform import JavaMissing
with Warehouse.open({str(tmp_path / "wh")!r}, engine="spark") as wh:
    table = wh.create_table("db.t", "id int")
    try:
        table.insert([{{"id": 1}}])
    except JavaMissing as error:
        print("JavaMissing:", error)
    print([one for one in wh.show_transactions()["state"] if one == "OPEN"])
    import os
    print(os.listdir(table.location))
    wh.metastore.stop()
"""
    done = without_java(code, tmp_path)
    first, *rest = done.stdout.splitlines()
    assert first.startswith("JavaMissing: no Java was found, and Spark needs Java 17"), done.stderr
    assert "install" in first
    assert rest == ["[]", "[]"]
