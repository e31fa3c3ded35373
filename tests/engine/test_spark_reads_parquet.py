"""Spark's own reader gives the rows with keys of Parquet files, as the local engine reads them."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from acid_platform import Table, Warehouse
from acid_platform.engine.spark import spark_readers
from acid_platform.formats import parquet
from tests.conftest import a_warehouse

pytestmark = [pytest.mark.spark, pytest.mark.more]

warehouse = a_warehouse("spark", in_spark=True)

STORED = {"acid.format": "parquet"}
COLUMNS = (
    "id int, n bigint, small tinyint, price decimal(9,2), large decimal(38,10), x double,"
    " code char(3), name varchar(5), day date, at timestamp, moment timestamp with local time zone,"
    " raw binary, ok boolean, tags array<string>, pair struct<a:int,b:string>, m map<string,int>"
)
VALUES = (
    "SELECT id, id * 1000000000000, CAST(id % 100 AS tinyint), id / 4, CAST(id AS decimal(38,10)),"
    " if(id = 3, double('NaN'), if(id = 4, -0.0D, id / 3)), if(id % 2 = 0, 'ab', 'a'), 'v',"
    " date_sub(DATE'1582-10-20', CAST(id AS int)), timestamp_micros(id * -1000000000007),"
    " timestamp_micros(id * 1000000000007), CAST('é' AS binary), id % 2 = 0, array('a', NULL),"
    " named_struct('a', id, 'b', NULL), map('k', id), CASE id % 3 WHEN 0 THEN 'a b' WHEN 1 THEN"
    " '100%' END FROM range({first}, {end})"
)


def streamed(frame: DataFrame) -> bool:
    return "MapInArrow" in frame._jdf.queryExecution().toString()


def opened(frame: DataFrame) -> int:
    """How many files Spark's reader opens."""
    frame.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")  # it hides the scans
    try:
        frame.collect()
    finally:
        frame.sparkSession.conf.unset("spark.sql.adaptive.enabled")
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    counts = [leaves.apply(i).metrics() for i in range(leaves.size())]
    return sum(count.apply("numFiles").value() for count in counts if count.contains("numFiles"))


def same(table: Table) -> None:
    """Rows and keys are those that Arrow reads, and no row came by Arrow."""
    frame = table.read(row_id=True)
    assert not streamed(frame)
    names = frame.columns
    text = [f"CAST({name} AS string)" for name in names if name not in ("raw", "code")]
    texts = frame.selectExpr(*text, "hex(raw)", "concat(code, '|')").collect()
    session = table._warehouse.spark
    session.createDataFrame(table.to_arrow(row_id=True)).createOrReplaceTempView("arrow")
    other = session.table("arrow").selectExpr(*text, "hex(raw)", "concat(code, '|')").collect()
    assert sorted(map(str, texts)) == sorted(map(str, other))


def test_each_type_and_each_kind_of_file(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "db.kinds", COLUMNS, partitioned_by=["p string"], properties=STORED
    )
    for first in (0, 20):
        warehouse.sql(f"INSERT INTO db.kinds {VALUES.format(first=first, end=first + 20)}")
    same(table)
    warehouse.sql("DELETE FROM db.kinds WHERE id IN (3, 5, 21)")
    same(table)
    warehouse.sql("UPDATE db.kinds SET n = 7 WHERE id IN (4, 6)")
    table.compact("minor")
    same(table)
    warehouse.sql("DELETE FROM db.kinds WHERE id = 8")
    table.compact("major")
    warehouse.sql("DELETE FROM db.kinds WHERE id = 9")
    same(table)
    assert table.count() == 35


def test_a_filter_on_a_partition_opens_only_its_files(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.p", "id int", partitioned_by=["p int"], properties=STORED)
    for _ in range(2):
        warehouse.sql("INSERT INTO db.p SELECT id, id % 20 FROM range(100)")
    warehouse.sql("DELETE FROM db.p WHERE id = 41")
    whole = table.read()
    assert opened(whole.filter("p = 3")) == 2 and opened(whole.filter("p IN (1, 2)")) == 4
    assert not streamed(whole) and whole.filter("p = 1").count() == 8
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,95)]" in str(
        whole.filter("id > 95 AND p = 4")._jdf.queryExecution()
    ), "also where deletes are tested"


def test_a_column_with_another_type_comes_by_arrow(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.wider", "id int, v int", properties=STORED)
    warehouse.sql("INSERT INTO db.wider VALUES (1, 10), (2, 20)")
    for statement in ("ALTER COLUMN v TYPE string", "RENAME COLUMN v TO w"):
        warehouse.sql(f"ALTER TABLE db.wider {statement}")
        assert streamed(table.read())
        assert sorted(map(tuple, table.read().collect())) == [(1, "10"), (2, "20")]
    warehouse.sql("INSERT INTO db.wider VALUES (3, 'x')")
    assert sorted(map(tuple, table.read().collect())) == [(1, "10"), (2, "20"), (3, "x")]
    table.compact("major")
    assert not streamed(table.read())
    assert sorted(map(tuple, table.read().collect())) == [(1, "10"), (2, "20"), (3, "x")]


@pytest.mark.parametrize("entities", [0, 16], ids=["together", "one by one"])
def test_rows_of_many_partitions_keep_their_keys(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, entities: int
) -> None:
    """The same key is in each partition, and a delete hides a row of its own alone."""
    monkeypatch.setattr(spark_readers, "UNION_LIMIT", entities)
    monkeypatch.setattr(spark_readers, "UNION_BYTES", 0)
    name = f"db.many{entities}"
    table = warehouse.create_table(name, "id int", partitioned_by=["p string"], properties=STORED)
    warehouse.sql(f"INSERT INTO {name} SELECT id, concat('%', id % 3, ' é') FROM range(30)")
    warehouse.sql(f"DELETE FROM {name} WHERE id IN (4, 9)")

    def keys(rows: Any) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["p"], *row["row__id"].values()) for row in rows)

    found = [row.asDict(True) for row in table.read(row_id=True).collect()]
    assert keys(found) == keys(table.to_arrow(row_id=True).to_pylist())
    assert len(found) == 28 and not streamed(table.read(row_id=True))


def test_files_that_were_adopted_come_by_arrow(warehouse: Warehouse, tmp_path: Path) -> None:
    """Some of them may have other names and types of columns."""
    table = warehouse.create_table("db.before", "id int, v int", properties=STORED)
    warehouse.sql("INSERT INTO db.before VALUES (1, 10)")
    for statement in ("ALTER COLUMN v TYPE string", "RENAME COLUMN v TO w"):
        warehouse.sql(f"ALTER TABLE db.before {statement}")
    warehouse.sql("INSERT INTO db.before VALUES (2, 'x')")
    place = shutil.copytree(table.location, tmp_path / "copy")
    with pytest.warns(UserWarning, match="count as committed"):
        again = warehouse.adopt_table("db.again", place, properties=STORED)
    assert streamed(again.read())
    assert sorted(map(tuple, again.read().collect())) == [(1, "10"), (2, "x")]


def test_packed_numbers_and_texts_with_a_dictionary(warehouse: Warehouse) -> None:
    """Files of more rows than those of other tests, whose whole numbers have no dictionary."""
    table = warehouse.create_table(
        "db.packed",
        "id bigint, n int, price decimal(12,2), few decimal(9,0), day date, at timestamp, s string",
        properties=STORED,
    )
    count = 40_000
    mixed = [n * 7919 % count for n in range(count)]
    columns = {
        "id": pa.array([n - (1 << 62) if n % 3 else None for n in mixed], pa.int64()),
        "n": pa.array([n - 5 for n in mixed], pa.int32()),
        "price": pa.array([Decimal(n) / 100 for n in mixed], pa.decimal128(12, 2)),
        "few": pa.array([Decimal(n) for n in mixed], pa.decimal128(9, 0)),
        "day": pa.array([n - 200_000 for n in mixed], pa.int32()).cast(pa.date32()),
        "at": pa.array([n * 1_000_003 - 10**15 for n in mixed]).cast(pa.timestamp("us")),
        "s": pa.array([f"s{n % 9}" for n in mixed]),
    }
    table.insert(pa.table(columns), engine="local")

    def agreed() -> None:
        session, names = warehouse.spark, list(columns)
        session.createDataFrame(table.to_arrow()).createOrReplaceTempView("packed_arrow")
        for where in ("true", "n = 77", "price > 399", "day < DATE'1970-01-01'", "id IS NULL"):
            hashed = "count(*)", f"sum(xxhash64({', '.join(names)}) % 1000003)"
            frame = table.read().where(where)
            assert not streamed(frame)
            other = session.table("packed_arrow").where(where)
            assert frame.selectExpr(*hashed).collect() == other.selectExpr(*hashed).collect()

    agreed()
    table.delete("n % 4 = 0", engine="local")
    table.compact("major")
    agreed()


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("kind", ["keyed", "insert-only"])
def test_no_bounds_of_a_file_hide_nan(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, kind: str, bounded: bool
) -> None:
    """Parquet's bounds leave NaN out, which is more than any number; `bounded`: files of before."""
    if bounded:
        monkeypatch.setattr(parquet, "bounded_paths", lambda schema: [*schema.names[:-1], "s.z"])
    name = f"db.nan_{kind[:5]}_{bounded}"
    columns = "id int, x double, y float, s struct<z:double>"
    if kind == "keyed":
        table = warehouse.create_table(
            name, "id int, x double, y float, s struct<z:double>", properties=STORED
        )
    else:
        warehouse.sql(
            f"CREATE TABLE {name} ({columns}) STORED AS PARQUET TBLPROPERTIES"
            " ('transactional_properties'='insert_only')"
        )
        table = warehouse.table(name)
    nan = float("nan")
    with warehouse.using("local"):
        for values in ([1.0, nan, 2.0], [nan], [3.0], [float("-inf"), nan]):
            table.insert([{"id": n, "x": v, "y": v, "s": {"z": v}} for n, v in enumerate(values)])
    files = [*Path(table.record.location).glob("delta_*/[b0-9]*")]
    statistics = [pq.ParquetFile(file).metadata.row_group(0).column(1).statistics for file in files]
    assert len(files) == 4 and [each is not None for each in statistics] == [bounded] * 4
    for column in ("x", "y", "s.z"):
        for condition, count in (("> 5", 3), (">= double('NaN')", 3), ("= double('NaN')", 3)):
            text = f"SELECT count(*) AS n FROM {name} WHERE {column} {condition}"
            for engine in ("spark", "local"):
                result: Any = warehouse.sql(text, engine=engine)
                assert result.collect() == [(count,)], (text, engine)


@pytest.mark.parametrize("keyed", [True, False])
def test_P64_a_flipped_bit_in_a_page_is_an_error(warehouse: Warehouse, keyed: bool) -> None:
    """The value is stored as it is, so that only the page's checksum tells."""
    kind = {} if keyed else {"transactional_properties": "insert_only"}
    table = warehouse.create_table(f"db.flipped_{keyed}", "x double", properties=STORED | kind)
    table.insert([{"x": 0.25 + number} for number in range(3)])
    assert table.read().count() == 3
    for file in Path(table.location).glob("delta_*/[!_]*"):
        column = pq.ParquetFile(file).metadata.row_group(0).column(0)
        content, first = bytearray(file.read_bytes()), column.data_page_offset
        if column.has_dictionary_page:
            first = column.dictionary_page_offset
        content[first + column.total_compressed_size - 1] ^= 1
        file.write_bytes(content)
    with pytest.raises(Exception, match=r"(?i)crc|checksum"):
        table.read().collect()
