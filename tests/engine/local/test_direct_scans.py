"""DuckDB reads files of Parquet itself, with the rows that the same files give as a stream."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acid_platform import Table, Warehouse
from acid_platform.engine.local import direct_scans, found_rows
from acid_platform.engine.local.run_query import LocalResult, as_streams
from acid_platform.engine.local.shared_database import connect
from acid_platform.engine.local.translation.duckdb_sql import text
from acid_platform.errors import CorruptFile, InvalidExpression, WrongType
from acid_platform.formats import parquet, parquet_pages
from tests.conftest import few_then_more, temporary_warehouse

PARQUET = {"acid.format": "parquet"}
READS = "READ_PARQUET"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("it's direct") / "wh", engine="local") as open:
        yield open


@pytest.fixture(autouse=True)
def short_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of a file are several texts, as those of one with more than a million rows."""
    monkeypatch.setattr(direct_scans, "_ROWS_OF_BITS", 32)
    monkeypatch.setattr(direct_scans, "_SHORT", 4)
    monkeypatch.setattr(direct_scans, "_FEW_BYTES", 0)
    monkeypatch.setattr(found_rows, "_SMALL", 0)


def asked(warehouse: Warehouse, query: str, direct: bool = True) -> list[tuple[Any, ...]]:
    """The rows of a query, which are those of its streams."""
    result = warehouse.sql(query)
    assert isinstance(result, LocalResult)
    assert (READS in result.plan()) == direct, result.plan()
    rows = result.collect()
    assert sorted(map(repr, rows)) == sorted(map(repr, as_streams(result).collect()))
    assert READS not in as_streams(result).plan()
    return rows


COLUMNS = (
    "id int, a tinyint, b smallint, d bigint, e float, f double, g decimal(38,10), h decimal(5,2),"
    " s string, v varchar(5), c char(5), k binary, l boolean, m date, n timestamp, o array<int>,"
    " p map<string,int>, q struct<x:int,y:array<decimal(9,2)>>"
)


def test_P82_columns_of_all_types_are_read_so(warehouse: Warehouse) -> None:
    warehouse.create_table("db.types", COLUMNS, properties=PARQUET)
    warehouse.sql(
        "INSERT INTO db.types VALUES (1, 2, 3, 4, CAST('NaN' AS float), CAST('-0.0' AS double),"
        " -3.5, 4.25, 'h\u00e9', 'i', 'j', X'00ff', true, DATE'0001-01-01',"
        " TIMESTAMP'1500-01-01 00:00:00.123456', array(1, 2), map('a', 1),"
        " named_struct('x', 1, 'y', array(CAST(7 AS decimal(9,2)))))"
    )
    warehouse.sql("INSERT INTO db.types (id) VALUES (2)")
    for column in warehouse.table("db.types").columns:
        asked(warehouse, f"SELECT {column.name} AS v FROM db.types ORDER BY id")
    assert len(asked(warehouse, "SELECT * FROM db.types ORDER BY id")) == 2
    warehouse.create_table(
        "db.zoned", "id int, z timestamp with local time zone", properties=PARQUET
    )
    warehouse.sql("INSERT INTO db.zoned SELECT 1, TIMESTAMP'2020-01-01 00:00:00'")
    asked(warehouse, "SELECT z FROM db.zoned", direct=False)


@pytest.mark.parametrize("column", few_then_more(["d", "f", "s.x"], 1))
def test_P82_no_bounds_of_a_file_hide_a_row(warehouse: Warehouse, column: str) -> None:
    """Parquet's bounds leave NaN out, and do not tell zeros of different signs apart."""
    name = f"db.bounds_{column[0]}"
    nan, infinity = float("nan"), float("inf")
    table = warehouse.create_table(
        name,
        "id int, f float, d double, s struct<x:double>, t string, b binary, g decimal(38,4)",
        properties=PARQUET,
    )
    files: tuple[list[float | None], ...] = (
        [1.0, nan, 2.0],
        [-0.0],
        [0.0],
        [nan],
        [None],
        [infinity],
        [-infinity, nan],
    )
    for number, values in enumerate(files):
        table.insert(
            [
                {
                    "id": number,
                    "f": value,
                    "d": value,
                    "s": {"x": value},
                    "t": "\u00e9" * 40 if number else "zz" * 50,
                    "b": b"\xff" * (number + 1),
                    "g": Decimal(f"{number - 3}.1234"),
                }
                for value in values
            ]
        )
    numbers = ("5", "0", "double('NaN')", "double('-0.0')", "double('Infinity')", "1.0")
    conditions = [
        f"{column} {compared} {number}"
        for compared in (">", "<", ">=", "<=", "=", "<>")
        for number in numbers
    ]
    conditions += [f"{column} IN (1, double('NaN'))", f"NOT {column} > 5", f"isnan({column})"]
    conditions += ["t > 'zz'", "t LIKE '\u00e9%'", "b > X'ff'", "g < -1", "g = 0.1234"]
    found = [
        asked(warehouse, f"SELECT count(*), sum(id) FROM {name} WHERE {condition}")
        for condition in conditions
    ]
    assert found[0] == [(4, 14)], "NaN is more than any number"
    asked(warehouse, f"SELECT max({column}), min({column}) FROM {name} WHERE id >= 0")


QUERIES = (
    "SELECT id, a, s, p FROM {0} ORDER BY id",
    "SELECT p, count(*), sum(a), min(s), max(id) FROM {0} GROUP BY p ORDER BY p",
    "SELECT count(*) FROM {0} WHERE p = 'x?' AND a > 10",
    "SELECT t.id FROM {0} t JOIN {0} u ON t.a = u.id WHERE u.s LIKE 'n%' ORDER BY t.id",
    "SELECT id FROM {0} WHERE a IN (SELECT max(a) FROM {0} GROUP BY p) ORDER BY id LIMIT 7",
    "SELECT max(concat(s, s)) FROM {0} WHERE p IS NULL",
)


def _change(table: Table, chance: random.Random, step: int) -> None:
    """One change of a table of id, a, s and the partition p."""
    low = chance.randrange(0, 300)
    ids = f"id BETWEEN {low} AND {low + chance.randrange(60)}"
    match chance.randrange(8):
        case 0:
            table.delete(ids)
        case 1:
            table.update({"a": "a + 1", "s": "concat('u', s)"}, f"{ids} AND a < 100000")
        case 2:
            rows = [_row(chance, 1000 * step + n) for n in range(chance.randrange(1, 30))]
            table.merge(rows, "t.id = s.id - 500", {"s": "s.s"}, None, "*")
        case 3:
            table.compact(chance.choice(["minor", "major"]))
        case _:
            rows = [_row(chance, 1000 * step + n) for n in range(chance.randrange(1, 90))]
            table.insert(rows)


def _row(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number % 400,
        "a": chance.choice([None, number % 97]),
        "s": f"n{number % 11}",
        "p": chance.choice(["x?", "y'", None]),
    }


SEEDS = few_then_more(range(1, 12), 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_P82_each_snapshot_of_a_history_has_the_rows_of_its_streams(
    warehouse: Warehouse, seed: int
) -> None:
    chance, name = random.Random(seed), f"db.history{seed}"
    partitions = ["p string"] if seed % 2 else []
    own = "id int, a bigint, s string" if partitions else "id int, a bigint, s string, p string"
    table = warehouse.create_table(name, own, partitions, properties=PARQUET)
    table.insert([_row(chance, number) for number in range(200)])
    for step in range(1, 4 if seed == 1 else 9):
        _change(table, chance, step)
        past = chance.randrange(1, table.snapshot().write_ids.high_watermark + 1)
        for query in QUERIES:
            asked(warehouse, query.format(name))
        asked(warehouse, QUERIES[0].format(f"{name} VERSION AS OF {past}"))


def test_P82_columns_that_files_lack_or_call_otherwise(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.changed", "id int, v char(3), w int", properties=PARQUET)
    table.insert([{"id": 1, "v": "a", "w": 10}])
    table.add_columns("x string")
    table.insert([{"id": 2, "v": "b", "w": 20, "x": "two"}])
    warehouse.sql("ALTER TABLE db.changed RENAME COLUMN w TO x2")
    warehouse.sql("ALTER TABLE db.changed DROP COLUMN x")
    warehouse.sql("ALTER TABLE db.changed RENAME COLUMN x2 TO x")
    assert asked(warehouse, "SELECT id, x FROM db.changed ORDER BY id") == [(1, 10), (2, 20)]
    warehouse.sql("ALTER TABLE db.changed ALTER COLUMN x TYPE bigint")
    table.insert([{"id": 3, "v": "c", "x": 1 << 40}])
    rows = asked(warehouse, "SELECT x, id FROM db.changed ORDER BY id", direct=False)
    assert rows[2] == (1 << 40, 3)
    warehouse.sql("ALTER TABLE db.changed ALTER COLUMN v TYPE char(5)")
    rows = asked(warehouse, "SELECT v FROM db.changed ORDER BY id", direct=False)
    assert rows == [("a    ",), ("b    ",), ("c    ",)]
    table.compact("major")
    assert asked(warehouse, "SELECT x FROM db.changed ORDER BY id")[2] == (1 << 40,)


@pytest.mark.parametrize("name", ["file_index", "File_Row_Number"])
def test_columns_with_names_of_duckdb_are_read_as_streams(warehouse: Warehouse, name: str) -> None:
    table = warehouse.create_table(f"db.named_{name}", f"id int, {name} int", properties=PARQUET)
    table.insert([{"id": 1, name: 7}, {"id": 2, name: 8}])
    table.delete("id = 1")
    assert asked(warehouse, f"SELECT id FROM {table.name}", direct=False) == [(2,)]


def test_a_place_with_the_signs_of_a_pattern(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path / "a[b]*" / "wh", engine="local") as warehouse:
        warehouse.create_table("db.t", "id int", properties=PARQUET).insert([{"id": 1}])
        assert asked(warehouse, "SELECT id FROM db.t", direct=False) == [(1,)]


def test_P65_what_files_unpack_to_is_looked_at_once_before_duckdb_reads_them(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[list[str]] = []
    require = parquet_pages.ParquetBounds.require

    def noted(bounds: Any, index: int, names: Any) -> Any:
        looked.append(list(names))
        return require(bounds, index, names)

    monkeypatch.setattr(parquet_pages.ParquetBounds, "require", noted)
    warehouse.create_table("db.bounded", "id int, s string, t string", properties=PARQUET).insert(
        [{"id": 1, "s": "a", "t": "b"}]
    )
    looked.clear()
    asked_rows = warehouse.sql("SELECT id FROM db.bounded")
    assert isinstance(asked_rows, LocalResult) and asked_rows.collect() == [(1,)]
    assert not looked, "this process has written the file itself"
    direct_scans._FILES.clear()
    parquet.WRITTEN_HERE.clear()
    for query in ("SELECT id, s FROM db.bounded", "SELECT t, s FROM db.bounded"):
        for _ in range(2):
            asked_rows = warehouse.sql(query)
            assert isinstance(asked_rows, LocalResult) and asked_rows.collect()
    assert looked == [["id", "s"], ["t"]]

    def refused(bounds: Any, index: int, names: Any) -> Any:
        raise CorruptFile("too large")

    monkeypatch.setattr(parquet_pages.ParquetBounds, "require", refused)
    warehouse.table("db.bounded").insert([{"id": 2, "s": "a", "t": "b"}])
    parquet.WRITTEN_HERE.clear()
    with pytest.raises(CorruptFile, match="too large"):
        warehouse.sql("SELECT s FROM db.bounded")


def _damaged(table: Table, content: bytes | None) -> Path:
    """The table's newest file, whose content is other bytes now, or which is gone."""
    location = Path(table.record.location)
    files = sorted(location.glob("delta_*/bucket_*"), key=lambda file: file.stat().st_mtime_ns)
    if content is None:
        files[-1].unlink()
    else:
        old = files[-1].read_bytes()
        files[-1].write_bytes(old[:4] + (content * len(old))[: len(old) - 1004] + old[-1000:])
    return files[-1]


@pytest.mark.parametrize("content", [None, b"\x00", b"\xff\x17"])
def test_P82_an_error_of_files_is_the_one_of_a_stream(
    warehouse: Warehouse, content: bytes | None
) -> None:
    name = f"db.damaged_{'gone' if content is None else content.hex()}"
    table = warehouse.create_table(name, "id int, s string", properties=PARQUET)
    table.insert(pa.table({"id": range(5000), "s": [f"text {n * 7919}" for n in range(5000)]}))
    result = warehouse.sql(f"SELECT sum(id), max(s) FROM {name}")
    assert isinstance(result, LocalResult) and READS in result.plan()
    _damaged(table, content)
    for asked_so in (result.collect, as_streams(result).collect):
        with pytest.raises(CorruptFile, match="bucket_"):
            asked_so()


def test_values_that_fail_are_no_errors_of_files(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.failing", "id int, s string", properties=PARQUET)
    table.insert([{"id": 0, "s": "x"}])
    for query in ("SELECT 1 / id FROM db.failing", "SELECT CAST(s AS int) FROM db.failing"):
        with pytest.raises((InvalidExpression, WrongType)):
            warehouse.sql(query, engine="local").collect()  # type: ignore[union-attr]


def test_P67_duckdb_reads_no_file_but_in_the_tables_directories(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    table = warehouse.create_table("db.walled", "id int", properties=PARQUET)
    table.insert([{"id": 1}])
    asked(warehouse, "SELECT id FROM db.walled")
    beside = tmp_path / "a.parquet"
    beside.write_bytes(b"PAR1")
    within = Path(table.record.location)
    connection = connect()
    try:
        for path in (beside, within / ".." / ".." / ".." / "x", Path("/etc/passwd")):
            for read in ("read_parquet", "read_csv", "read_text"):
                with pytest.raises(Exception, match="file system operations are disabled"):
                    connection.execute(f"SELECT * FROM {read}({text(str(path))})")
        with pytest.raises(Exception, match="Cannot change"):
            connection.execute("SET allowed_directories = ['/']")
    finally:
        connection.close()
