"""Compactions that sort rows by columns, of which a range is in few row groups (P85)."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acid_platform import (
    AlreadyScheduled,
    CompactionFailed,
    CorruptFile,
    InvalidDefinition,
    Table,
    Warehouse,
)
from acid_platform.compaction import rewrite, sorted_rows
from acid_platform.engine.interface import Result
from acid_platform.formats import parquet
from acid_platform.formats.keyed_parquet import NAMES_OF_KEYS
from acid_platform.services import fsck
from tests.conftest import a_warehouse

warehouse = a_warehouse("local")
spark_warehouse = a_warehouse("spark", in_spark=True)

BY_DAY = {"acid.format": "parquet", "acid.sort.columns": "Day, id"}
COLUMNS = (
    "id int, day int, name string, price decimal(9,2), x double, at timestamp, born date,"
    " tags array<string>, pair struct<a:int,b:timestamp>, m map<string,int>"
)


def a_row(number: int) -> dict[str, Any]:
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, number % 1000)
    return {
        "id": number,
        "day": None if number % 11 == 0 else number * 7 % 13,
        "name": f"é{number % 5}" if number % 3 else None,
        "price": Decimal(number) / 4,
        "x": [float("nan"), -0.0, number / 3][number % 3],
        "at": moment,
        "born": dt.date(2000, 1, 1 + number % 28),
        "tags": ["a", None][: number % 3],
        "pair": {"a": number, "b": moment} if number % 2 else None,
        "m": [("k", number)] if number % 2 else [],
    }


def shown(table: Table, **past: Any) -> list[str]:
    return sorted(map(repr, table.to_arrow(row_id=True, **past).to_pylist()))


def files_of(table: Table) -> list[Path]:
    return sorted(Path(table.location).glob("base_*/bucket_*"))


def days(file: Path) -> list[tuple[Any, ...]]:
    """The values of the sort columns in the order of the file, NULL last."""
    rows = pq.read_table(file, columns=["day", "id"]).to_pylist()
    return [(row["day"] is None, row["day"], row["id"]) for row in rows]


def healthy(warehouse: Warehouse) -> None:
    findings = fsck.examine(warehouse.metastore, warehouse=warehouse.path).findings
    assert [each for each in findings if each.severity is fsck.Severity.ERROR] == []


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 100)


def test_P85_a_range_of_a_sort_column_is_in_few_row_groups(
    warehouse: Warehouse, small_groups: None
) -> None:
    table = warehouse.create_table("db.ranges", COLUMNS, properties=BY_DAY)
    for first in (0, 500):
        table.insert([a_row(number) for number in range(first, first + 500)])
    table.delete("id % 10 = 3")
    before = shown(table)
    assert "row groups: 10 of 10" in explained(warehouse)
    table.compact("major")
    assert shown(table) == before
    (file,) = files_of(table)
    assert days(file) == sorted(days(file))
    assert re.search(r"row groups: [12] of 9\b", explained(warehouse))
    (found,) = asked(warehouse, "SELECT count(*) AS n FROM db.ranges WHERE day = 7")
    assert found["n"] == sum("'day': 7," in row for row in before)
    healthy(warehouse)


def explained(warehouse: Warehouse) -> str:
    lines = asked(warehouse, "EXPLAIN SELECT id FROM db.ranges WHERE day = 7")
    return "\n".join(line["Explain"] for line in lines)


def asked(warehouse: Warehouse, text: str) -> list[dict[str, Any]]:
    found = warehouse.sql(text)
    assert isinstance(found, Result)
    rows: list[dict[str, Any]] = found.to_arrow().to_pylist()
    return rows


def test_P85_keys_of_one_insert_are_no_run_once_they_are_sorted(warehouse: Warehouse) -> None:
    """Its record has keys without a gap, and its rows have them in another order."""
    table = warehouse.create_table("db.run", "id int, day int", properties=BY_DAY)
    table.insert([{"id": number, "day": number * 7 % 13} for number in range(51)])
    table.delete("id = 50")
    before = shown(table)
    table.compact("major")
    assert shown(table) == before
    table.delete("day = 3")
    assert shown(table) == [
        row for row in before if "'day': 3}" not in row and "'day': 3," not in row
    ]
    counted = asked(warehouse, "SELECT count(*) AS n, max(id) AS m FROM db.run")
    assert counted == [{"n": table.count(), "m": 49}]
    (file,) = files_of(table)
    stored = pq.read_table(file, columns=[*NAMES_OF_KEYS.values()][2:3]).column(0).to_pylist()
    assert sorted(stored) != stored


@pytest.mark.more
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.tuples(st.sampled_from("iidumMst"), st.integers(0, 40)), max_size=6))
def test_P85_random_histories_keep_rows_keys_and_past(
    warehouse: Warehouse, steps: list[tuple[str, int]]
) -> None:
    """Beside an equal table that is not sorted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", 16)
        patched.setattr(sorted_rows, "_ROWS", 7)
        tables = []
        for name, kind in (("sorted", BY_DAY), ("plain", {"acid.format": "parquet"})):
            kept = {"acid.history.retention": "1d", **kind}
            warehouse.sql(f"DROP TABLE IF EXISTS db.{name} PURGE")
            tables.append(warehouse.create_table(f"db.{name}", COLUMNS, properties=kept))
        past = []
        for step, number in [("i", 0), *steps, ("M", 0)]:
            for table in tables:
                run(table, step, number)
            one, other = map(shown, tables)
            assert one == other
            past.append((one, [moment_of(table) for table in tables]))
        for rows, moments in past:
            for table, moment in zip(tables, moments, strict=True):
                assert shown(table, as_of=moment) == rows
        one, other = (changed(table, past[0][1][n]) for n, table in enumerate(tables))
        assert one == other
    healthy(warehouse)


def moment_of(table: Table) -> Any:
    return table.history()[-1]["write_id"]


def changed(table: Table, since: int) -> list[str]:
    rows = table.changes_arrow(since).read_all()
    return sorted(map(repr, rows.drop_columns(["_txn_id", "_commit_timestamp"]).to_pylist()))


def run(table: Table, step: str, number: int) -> None:
    if step == "i":
        table.insert([a_row(number * 50 + each) for each in range(30)])
    elif step == "d":
        table.delete(f"id % 7 = {number % 7} OR day = {number % 13}")
    elif step == "u":
        table.update({"name": "'new'", "day": "day + 1"}, where=f"id % 5 = {number % 5}")
    elif step == "s" and table.name.endswith("sorted"):
        text = ("name", "day,id", "at", "price,born")[number % 4]
        table._warehouse.sql(
            f"ALTER TABLE {table.name} SET TBLPROPERTIES ('acid.sort.columns'='{text}')"
        )
    elif step == "t" and table.name.endswith("sorted"):
        table._warehouse.sql(
            f"ALTER TABLE {table.name} UNSET TBLPROPERTIES IF EXISTS ('acid.sort.columns')"
        )
    elif step in "mM":
        with suppress(AlreadyScheduled):  # nothing was written since the last one
            table.compact("minor" if step == "m" else "major")


@pytest.mark.parametrize(
    ("columns", "properties", "why"),
    [
        ("id int", {"acid.sort.columns": "id"}, "needs a table with full ACID in Parquet"),
        ("id int", BY_DAY, "no column 'day'"),
        ("id int, day array<int>", BY_DAY, "no bounds of column 'day'"),
        ("id int, day double", BY_DAY, "no bounds of column 'day'"),
        ("id int", BY_DAY | {"acid.sort.columns": "id,ID"}, "names a column twice"),
        ("id int", BY_DAY | {"transactional_properties": "insert_only"}, "with full ACID"),
    ],
)
def test_P85_what_can_not_be_sorted_is_refused(
    warehouse: Warehouse, columns: str, properties: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidDefinition, match=why):
        warehouse.create_table("db.refused", columns, ["p int"], properties=properties)


def test_P85_a_sort_column_stays_and_the_format_too(warehouse: Warehouse) -> None:
    warehouse.create_table("db.stays", "id int, day int, v int", ["p int"], properties=BY_DAY)
    for statement in (
        "DROP COLUMN day",
        "RENAME COLUMN day TO other",
        "SET FILEFORMAT ORC",
        "SET TBLPROPERTIES ('acid.sort.columns'='p')",
    ):
        with pytest.raises(InvalidDefinition, match=r"acid\.sort\.columns"):
            warehouse.sql(f"ALTER TABLE db.stays {statement}")
    warehouse.sql("ALTER TABLE db.stays RENAME COLUMN v TO w")
    warehouse.sql("ALTER TABLE db.stays UNSET TBLPROPERTIES IF EXISTS ('acid.sort.columns')")
    warehouse.sql("ALTER TABLE db.stays DROP COLUMN day")


def test_P85_an_error_of_an_input_is_told_as_it_is(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("db.broken", "id int, day int", properties=BY_DAY)
    table.insert([{"id": 1, "day": 1}])
    table.insert([{"id": 2, "day": 1}])

    def broken(*_: Any) -> Any:
        raise CorruptFile("another file than it was")

    monkeypatch.setattr(rewrite, "valid_ids", broken)
    with pytest.raises(CompactionFailed, match=r"another file than it was$"):
        table.compact("major")


@pytest.mark.spark
@pytest.mark.more
def test_P85_spark_sorts_and_reads_sorted_files(
    spark_warehouse: Warehouse, small_groups: None
) -> None:
    table = spark_warehouse.create_table("db.in_spark", COLUMNS, properties=BY_DAY)
    table.insert([a_row(number) for number in range(200)])
    table.insert([a_row(number) for number in range(200, 300)])
    before = shown(table)
    table.compact("major")
    (file,) = files_of(table)
    assert days(file) == sorted(days(file))
    assert shown(table) == before
    table.delete("day = 7")
    table.update({"name": "'new'"}, where="day = 5")
    frame = table.read(row_id=True)
    keys = {tuple(row["row__id"]) for row in frame.collect()}
    assert keys == {
        tuple(row["row__id"].values()) for row in table.to_arrow(row_id=True).to_pylist()
    }
    assert len(keys) == table.count() == frame.count()
    table.compact("major")
    assert len(keys) == table.count()
    healthy(spark_warehouse)
