"""LOAD DATA LOCAL INPATH: an INSERT of the rows of files that belong to no table."""

from __future__ import annotations

import os
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from acid_platform import (
    ConstraintViolated,
    CorruptFile,
    InvalidDefinition,
    NeedsSpark,
    NoSuchPartition,
    UnknownColumn,
    UnsupportedLayout,
    UnsupportedStatement,
    Warehouse,
    WrongType,
)

_numbers = count(1)
PEOPLE = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", None]})


def created(warehouse: Warehouse, columns: str = "id int, v string", more: str = "") -> str:
    name = f"t{next(_numbers)}"
    warehouse.sql(f"CREATE TABLE {name} ({columns}) {more}")
    return name


def rows(warehouse: Warehouse, table: str) -> list[tuple[object, ...]]:
    return sorted(
        (tuple(row.values()) for row in warehouse.table(table).to_arrow().to_pylist()), key=str
    )


def test_the_index_of_a_pandas_frame_has_a_next_step(warehouse: Warehouse, tmp_path: Path) -> None:
    table = created(warehouse)
    frame = PEOPLE.to_pandas().iloc[[2, 0]]
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        UnknownColumn, match="index of a pandas frame: write the frame with index=F"
    ):
        warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}' INTO TABLE {table}")
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}' INTO TABLE {table}")
    assert rows(warehouse, table) == [(1, "a"), (3, None)]


def test_the_files_of_a_directory_are_added_and_stay(warehouse: Warehouse, tmp_path: Path) -> None:
    table = created(warehouse)
    warehouse.sql(f"INSERT INTO {table} VALUES (0, 'z')")
    orc.write_table(PEOPLE, tmp_path / "b.orc")
    orc.write_table(PEOPLE.slice(0, 1), tmp_path / "a c.orc")
    for empty in ("_SUCCESS", ".crc", "nothing"):
        (tmp_path / empty).touch()
    before = sorted(tmp_path.iterdir())
    loaded = warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}' INTO TABLE {table}")
    assert loaded.rows == 4
    assert rows(warehouse, table) == [(0, "z"), (1, "a"), (1, "a"), (2, "b"), (3, None)]
    assert sorted(tmp_path.iterdir()) == before
    warehouse.sql(f"UPDATE {table} SET v = 'u' WHERE id = 3")
    warehouse.sql(f"DELETE FROM {table} WHERE id = 1")
    assert rows(warehouse, table) == [(0, "z"), (2, "b"), (3, "u")]
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/b.orc' OVERWRITE INTO TABLE {table}")
    assert rows(warehouse, table) == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.parametrize("write", [orc.write_table, parquet.write_table], ids=["orc", "parquet"])
def test_values_keep_their_types(warehouse: Warehouse, tmp_path: Path, write: object) -> None:
    columns = "At timestamp, d decimal(9,2), n bigint, s struct<a:int>, b binary, day date"
    table = created(warehouse, columns, "PARTITIONED BY (ds string)")
    values = {
        "day": [date(1969, 1, 2), None],
        "ds": ["q", "r"],
        "at": [datetime(1950, 1, 2, 3, 4, 5, 6), None],
        "d": [Decimal("-1.50"), None],
        "n": pa.array([7, None], pa.int32()),
        "S": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
        "b": [b"\xff\0", None],
    }
    write(pa.table(values), tmp_path / "x")  # type: ignore[operator]
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/x' INTO TABLE {table}")
    assert rows(warehouse, table) == [
        (None, None, None, None, None, None, "r"),
        (
            datetime(1950, 1, 2, 3, 4, 5, 6),
            Decimal("-1.50"),
            7,
            {"a": 1},
            b"\xff\0",
            date(1969, 1, 2),
            "q",
        ),
    ]


def test_an_instant_of_parquet_is_its_time_in_utc(warehouse: Warehouse, tmp_path: Path) -> None:
    table = created(warehouse, "at timestamp")
    moment = pa.array([datetime(2024, 7, 1, 12)], pa.timestamp("us", "UTC"))
    parquet.write_table(
        pa.table({"at": moment.cast(pa.timestamp("us", "Asia/Tokyo"))}), tmp_path / "x"
    )
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/x' INTO TABLE {table}")
    assert rows(warehouse, table) == [(datetime(2024, 7, 1, 12),)]


def test_partitions_buckets_constraints_and_transactions(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    orc.write_table(PEOPLE, tmp_path / "x")
    load = f"LOAD DATA LOCAL INPATH '{tmp_path}/x'"
    parts = created(warehouse, more="PARTITIONED BY (ds string) CLUSTERED BY (id) INTO 2 BUCKETS")
    warehouse.sql(f"{load} INTO TABLE {parts} PARTITION (ds='a')")
    warehouse.sql(f"{load} INTO TABLE {parts} PARTITION (ds='b')")
    warehouse.sql(f"{load} OVERWRITE INTO TABLE {parts} PARTITION (ds='a')")
    assert warehouse.table(parts).count() == 6
    with pytest.raises(NoSuchPartition, match="'ds'"):
        warehouse.sql(f"{load} INTO TABLE {parts}")
    strict = created(warehouse, "id int, v string NOT NULL")
    with pytest.raises(ConstraintViolated):
        warehouse.sql(f"{load} INTO TABLE {strict}")
    warehouse.sql(f"START TRANSACTION; {load} INTO TABLE {parts} PARTITION (ds='c'); ROLLBACK")
    assert warehouse.table(parts).count() == 6 and warehouse.table(strict).count() == 0


def test_columns_without_names_are_the_tables(warehouse: Warehouse, tmp_path: Path) -> None:
    table = created(warehouse)
    orc.write_table(PEOPLE.rename_columns(["_col0", "_col1"]), tmp_path / "x")
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/x' INTO TABLE {table}")
    assert len(rows(warehouse, table)) == 3
    orc.write_table(PEOPLE.select(["id"]).rename_columns(["_col0"]), tmp_path / "y")
    with pytest.raises(WrongType, match="1 columns without names, and 2 are needed: id, v"):
        warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/y' INTO TABLE {table}")


def test_what_cant_be_loaded_is_named(warehouse: Warehouse, tmp_path: Path) -> None:
    table = created(warehouse)
    orc.write_table(PEOPLE, tmp_path / "x")
    inside = tmp_path / "in"
    (inside / "deeper").mkdir(parents=True)
    (tmp_path / "text.csv").write_text("id,v\n1,a\n")
    (tmp_path / "torn").write_bytes(b"ORC")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    both = tmp_path / "both"
    both.mkdir()
    orc.write_table(PEOPLE, both / "a")
    parquet.write_table(PEOPLE, both / "b")
    orc.write_table(PEOPLE.rename_columns(["id", "w"]), tmp_path / "other")
    warehouse.sql(f"INSERT INTO {table} VALUES (0, 'z')")
    own = next(Path(warehouse.table(table).location).rglob("bucket_*"))
    for place, error, message in (
        (tmp_path / "no", InvalidDefinition, "there is no file"),
        (inside, InvalidDefinition, "deeper is a directory"),
        (inside / "deeper", InvalidDefinition, "there is no file in"),
        (tmp_path / "text.csv", UnsupportedStatement, "CREATE EXTERNAL TABLE … LOCATION"),
        (tmp_path / "torn", CorruptFile, "torn does not end in an ORC postscript"),
        (
            tmp_path / "torn.parquet",
            CorruptFile,
            "torn.parquet does not end as a Parquet file does",
        ),
        (both, WrongType, "other columns or another format"),
        (tmp_path / "other", UnknownColumn, "no column 'w'"),
        (own, (UnsupportedStatement, UnsupportedLayout), "acid adopt"),
    ):
        with pytest.raises(error, match=message):
            warehouse.sql(f"LOAD DATA LOCAL INPATH '{place}' INTO TABLE {table}")
    numbers = created(warehouse, "id int, v int")
    error = NeedsSpark if warehouse.engines.preference == "local" else WrongType
    with pytest.raises(error, match="v"):  # as INSERT … SELECT
        warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/x' INTO TABLE {numbers}")
    assert rows(warehouse, table) == [(0, "z")] and rows(warehouse, numbers) == []


@pytest.mark.parametrize(
    "source", ["pipe", "/dev/zero", "hdfs://a/b", "http://a/b", "s3://", "gs:"]
)
def test_P67_what_is_no_file_is_refused_by_name(
    warehouse: Warehouse, tmp_path: Path, source: str
) -> None:
    table = created(warehouse)
    if source == "pipe":
        os.mkfifo(tmp_path / source)
        source = f"{tmp_path}/{source}"
    with pytest.raises(InvalidDefinition):
        warehouse.sql(f"LOAD DATA LOCAL INPATH '{source}' INTO TABLE {table}")


@pytest.mark.parametrize("kind", ["parquet", "orc", "int96"])
def test_P64_nanoseconds_are_refused_and_not_cut(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    table = created(warehouse, "at timestamp")
    for nanos, file in ((1_000, tmp_path / "kept"), (1_001, tmp_path / "cut")):
        stamps = pa.table({"at": pa.array([nanos, None], pa.timestamp("ns"))})
        if kind == "orc":
            orc.write_table(stamps, str(file))
        else:
            parquet.write_table(stamps, file, use_deprecated_int96_timestamps=kind == "int96")
    warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path / 'kept'}' INTO TABLE {table}")
    with pytest.raises(WrongType, match="nanoseconds"):
        warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path / 'cut'}' INTO TABLE {table}")
    assert warehouse.table(table).count() == 2


@pytest.mark.parametrize("twice", ["a", "A"])
def test_P64_two_columns_of_one_name_are_refused(
    warehouse: Warehouse, tmp_path: Path, twice: str
) -> None:
    columns = [pa.array([number]) for number in (1, 2, 3)]
    parquet.write_table(pa.Table.from_arrays(columns, ["id", "a", twice]), tmp_path / "f")
    name, table = f"e{next(_numbers)}", created(warehouse, "id bigint, a bigint")
    warehouse.sql(
        f"CREATE EXTERNAL TABLE {name} (id bigint, a bigint) STORED AS PARQUET"
        f" LOCATION '{tmp_path}'"
    )
    with pytest.raises(UnsupportedLayout, match=f"the columns a and {twice}, which are one name"):
        warehouse.sql(f"SELECT a FROM {name}").to_arrow()  # type: ignore[union-attr]
    with pytest.raises(UnsupportedLayout, match=f"the columns a and {twice}, which are one name"):
        warehouse.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}' INTO TABLE {table}")
    assert warehouse.sql(f"SELECT id FROM {name}").to_arrow().to_pylist() == [{"id": 1}]  # type: ignore[union-attr]
