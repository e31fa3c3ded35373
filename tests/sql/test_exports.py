"""INSERT OVERWRITE DIRECTORY: files that belong to no table."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from acid_platform import InvalidDefinition, UnsupportedStatement, Warehouse
from acid_platform.errors import AcidError
from acid_platform.values.coercion import java_float


@pytest.fixture(scope="module")
def warehouse(warehouse: Warehouse) -> Warehouse:
    warehouse.sql(
        "CREATE TABLE src (id int, v string, b boolean, f float, d double, n decimal(5,2),"
        " day date, at timestamp, tags array<string>, m map<string,int>,"
        " s struct<a:int,b:string>)"
    )
    row = {
        **{"id": 1, "v": "a", "b": True, "f": 0.1, "d": 1e10, "n": Decimal("1.5")},
        **{"day": date(2024, 1, 2), "at": datetime(2024, 1, 2, 3, 4, 5, 600000)},
        **{"tags": ["x", "y"], "m": {"k": 1}, "s": {"a": 1, "b": "z"}},
    }
    warehouse.table("src").insert([row, {"id": 2}])
    return warehouse


def lines(directory: Path) -> list[str]:
    files = [file for file in directory.iterdir() if file.name[0] not in "._"]
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.mark.parametrize("listed", ["{", "7", '["../keep", "other"]'])
def test_a_list_that_no_export_wrote_lets_nothing_go(
    warehouse: Warehouse, tmp_path: Path, listed: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for file in (tmp_path / "keep", out / "mine"):
        file.write_text("1")
    (out / "_acid_exported").write_text(listed)
    with pytest.raises(InvalidDefinition, match="holds mine, which no such statement wrote"):
        warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{out}' SELECT 1 AS a")
    assert (tmp_path / "keep").exists() and (out / "mine").exists()


def test_the_home_directory_is_meant_by_a_tilde(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    warehouse.sql("INSERT OVERWRITE DIRECTORY '~/out' SELECT 1 AS a")
    assert lines(tmp_path / "out") == ["1"]


def test_text_as_hive_writes_it(warehouse: Warehouse, tmp_path: Path) -> None:
    where = tmp_path / "new" / "out"
    done = warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{where}' SELECT * FROM src")
    assert done.rows == 2
    first, second = lines(where)
    assert first.split("\x01") == [
        *("1", "a", "true", "0.1", "1.0E10", "1.50", "2024-01-02", "2024-01-02 03:04:05.6"),
        *("x\x02y", "k\x031", "1\x02z"),
    ]
    assert second == "\x01".join(["2", *["\\N"] * 10])


@pytest.mark.parametrize(
    "stored",
    [
        "ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' STORED AS TEXTFILE",
        "STORED AS ORC",
        "STORED AS PARQUET",
    ],
)
def test_what_is_written_is_read_as_an_external_table(
    warehouse: Warehouse, tmp_path: Path, stored: str
) -> None:
    warehouse.sql(f"INSERT OVERWRITE LOCAL DIRECTORY '{tmp_path}' {stored} SELECT * FROM src")
    columns = ", ".join(
        f"{row.col_name} {row.data_type}" for row in warehouse.sql("DESCRIBE src").itertuples()
    )
    warehouse.sql(f"CREATE EXTERNAL TABLE back ({columns}) {stored} LOCATION '{tmp_path}'")
    try:
        back = warehouse.sql("SELECT * FROM back ORDER BY id").to_arrow()
    finally:
        warehouse.sql("DROP TABLE back")
    expected = warehouse.sql("SELECT * FROM src ORDER BY id").to_arrow()
    assert back.to_pylist() == expected.to_pylist()


def test_an_export_replaces_an_earlier_one_and_nothing_else(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    where = tmp_path / "out"
    for query, expected in (
        ("SELECT id FROM src", ["1", "2"]),
        ("SELECT 7", ["7"]),
        ("SELECT id FROM src WHERE id > 9", []),
    ):
        warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{where}' {query}")
        assert lines(where) == expected
    (where / "mine").write_text("x")
    with pytest.raises(InvalidDefinition, match="holds mine, which no such statement wrote"):
        warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{where}' SELECT 1")
    assert (where / "mine").exists()
    for table in ("src", ""):
        with pytest.raises(InvalidDefinition):
            warehouse.sql(
                f"INSERT OVERWRITE DIRECTORY '{warehouse.path}/default.db/{table}' SELECT 1"
            )


def test_a_failed_export_leaves_the_earlier_one(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}' SELECT 1")
    for text in ("a\\nb", "\\\\N", "a\\u0001b"):
        with pytest.raises(AcidError, match="can't be written"):
            warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}' SELECT '{text}' AS v")
    assert lines(tmp_path) == ["1"]
    assert not list(tmp_path.glob("_acid_staged*"))


@pytest.mark.slow
def test_escapes(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.sql(
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}' ROW FORMAT DELIMITED FIELDS TERMINATED BY ','"
        " ESCAPED BY '\\\\' SELECT 'a,b' AS v, 'c\\\\d' AS w"
    )
    assert lines(tmp_path) == ["a\\,b,c\\\\d"]


def test_in_a_transaction_its_own_rows_are_written(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.sql("CREATE TABLE open (id int)")
    warehouse.sql("START TRANSACTION")
    warehouse.sql("INSERT INTO open VALUES (5)")
    warehouse.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}' SELECT id FROM open")
    warehouse.sql("ROLLBACK")
    assert lines(tmp_path) == ["5"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT OVERWRITE DIRECTORY '/x' STORED AS JSONFILE SELECT 1", "no json"),
        ("INSERT OVERWRITE DIRECTORY '/x' ROW FORMAT SERDE 'x.Y' SELECT 1", "'x.Y' is not read"),
        ("FROM src INSERT OVERWRITE DIRECTORY '/x' SELECT id", "after WITH or FROM"),
        ("INSERT OVERWRITE DIRECTORY '/x'", "needs a SELECT"),
        ("INSERT OVERWRITE DIRECTORY '{d}' SELECT 1 AS a, 2 AS a", "one name"),
    ],
)
def test_what_is_refused(
    warehouse: Warehouse, tmp_path: Path, statement: str, message: str
) -> None:
    with pytest.raises((UnsupportedStatement, AcidError), match=message):
        warehouse.sql(statement.replace("{d}", str(tmp_path)))


def test_numbers_as_java_writes_them() -> None:
    written = {
        0.0: "0.0",
        1.0: "1.0",
        1234567.0: "1234567.0",
        1e7: "1.0E7",
        0.001: "0.001",
        0.0009: "9.0E-4",
        1.5e300: "1.5E300",
        -2.5: "-2.5",
    }
    assert {value: java_float(value) for value in written} == written
    assert (java_float(np.float32(0.1)), java_float(-0.0)) == ("0.1", "-0.0")
    assert [java_float(float(one)) for one in ("nan", "inf", "-inf")] == [
        "NaN",
        "Infinity",
        "-Infinity",
    ]
