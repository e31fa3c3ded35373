"""External tables: files of somebody else, read as they are when a statement runs."""

from __future__ import annotations

import gzip
from datetime import date
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from acid_platform import (
    CorruptFile,
    InvalidDefinition,
    NoSuchPartition,
    TableExists,
    UnsupportedLayout,
    Warehouse,
)
from acid_platform.errors import AcidError, DeclarationChanged
from acid_platform.metastore.operations.tables import DeclareView
from acid_platform.services import cleaner

_numbers = count(1)


def declared(warehouse: Warehouse, columns: str, where: Path, more: str = "", end: str = "") -> str:
    name = f"t{next(_numbers)}"
    warehouse.sql(f"CREATE EXTERNAL TABLE {name} ({columns}) {more} LOCATION '{where}' {end}")
    return name


def rows(warehouse: Warehouse, query: str) -> list[tuple[object, ...]]:
    return sorted(warehouse.sql(query).collect(), key=str)


@pytest.mark.more
def test_the_ordinary_script(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name,day\n1,ann,2024-01-01\n2,\\N,yesterday\nx,cy\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"id,name,day\r\n4,d,2024-01-02\r\n"))
    for hidden in ("_SUCCESS", ".crc", "empty"):
        (tmp_path / hidden).write_bytes(b"" if hidden == "empty" else b"9,no\n9,no\n")
    raw = declared(
        warehouse,
        "id int, name string, day date",
        tmp_path,
        "ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE",
        "TBLPROPERTIES ('skip.header.line.count'='1')",
    )
    expected = [
        (1, "ann", date(2024, 1, 1)),
        (2, None, None),
        (4, "d", date(2024, 1, 2)),
        (None, "cy", None),
    ]
    assert rows(warehouse, f"SELECT * FROM {raw}") == expected
    assert rows(warehouse, f"SELECT count(*) FROM {raw}") == [(4,)]
    assert rows(warehouse, f"SELECT name FROM {raw} WHERE day = '2024-01-02'") == [("d",)]
    warehouse.sql(f"CREATE TABLE m{raw} (id int, name string) PARTITIONED BY (day date)")
    warehouse.sql(f"INSERT OVERWRITE TABLE m{raw} PARTITION (day) SELECT * FROM {raw}")
    assert rows(warehouse, f"SELECT * FROM m{raw}") == expected
    warehouse.sql(
        f"MERGE INTO m{raw} t USING {raw} s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = concat(s.name, '!')"
    )
    warehouse.sql(f"DELETE FROM m{raw} WHERE id IN (SELECT id FROM {raw} WHERE id > 2)")
    assert rows(warehouse, f"SELECT id, name FROM m{raw}") == [(1, "ann!"), (2, None), (None, "cy")]
    warehouse.sql(f"CREATE VIEW v{raw} AS SELECT id FROM {raw} WHERE id < 3")
    assert rows(warehouse, f"SELECT * FROM v{raw}") == [(1,), (2,)]
    if warehouse.engines.preference == "spark":
        ((name,),) = rows(warehouse, f"SELECT INPUT__FILE__NAME FROM {raw} WHERE id = 4")
        assert str(name).endswith("/b.csv.gz")
    warehouse.sql(f"DROP VIEW v{raw}")
    warehouse.sql(f"DROP TABLE {raw}")
    cleaner.run(warehouse.metastore)
    assert (tmp_path / "a.csv").exists()


def test_new_files_are_read_at_once(warehouse: Warehouse, tmp_path: Path) -> None:
    table = declared(warehouse, "id int", tmp_path / "later")
    for query in (f"SELECT * FROM {table}", f"SELECT count(*) FROM {table}"):
        with pytest.raises(UnsupportedLayout, match="there is no such directory; make it if"):
            warehouse.sql(query).collect()
    (tmp_path / "later").mkdir()
    assert rows(warehouse, f"SELECT * FROM {table}") == []
    (tmp_path / "later" / "f").write_text("1\n")
    assert rows(warehouse, f"SELECT * FROM {table}") == [(1,)]
    (tmp_path / "later" / "f").write_text("2\n")
    assert rows(warehouse, f"SELECT * FROM {table}") == [(2,)]


def test_nested_text_and_escapes(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1|a;b|x:1;y:\\N|p;2\n\\|2|||\n")
    table = declared(
        warehouse,
        "id string, l array<string>, m map<string,int>, s struct<a:string,b:int>",
        tmp_path,
        "ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' ESCAPED BY '\\\\'"
        " COLLECTION ITEMS TERMINATED BY ';' MAP KEYS TERMINATED BY ':'",
    )
    found = warehouse.sql(f"SELECT * FROM {table} ORDER BY id").to_arrow()
    assert found.to_pylist(maps_as_pydicts="strict") == [
        {"id": "1", "l": ["a", "b"], "m": {"x": 1, "y": None}, "s": {"a": "p", "b": 2}},
        {"id": "|2", "l": [], "m": {}, "s": {"a": "", "b": None}},
    ]


def test_csv_serde(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text('n\tv\n1\t"a\tb"\n2\t"c ""d"""\n')
    table = declared(
        warehouse,
        "n int, v string",
        tmp_path,
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'"
        " WITH SERDEPROPERTIES ('separatorChar'='\\t')",
        "TBLPROPERTIES ('skip.header.line.count'='1')",
    )
    assert rows(warehouse, f"SELECT * FROM {table}") == [("1", "a\tb"), ("2", 'c "d"')]


def test_json(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"Id": 1, "tags": ["a"]}\n{"id": null}\n')
    table = declared(warehouse, "id int, tags array<string>", tmp_path, "STORED AS JSONFILE")
    assert rows(warehouse, f"SELECT * FROM {table}") == [(1, ["a"]), (None, None)]
    (tmp_path / "g.json").write_text('{"id": "x"}\n')
    with pytest.raises(AcidError, match="which is no int"):
        rows(warehouse, f"SELECT * FROM {table}")


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["ORC", "PARQUET"])
def test_columns_of_files_match_by_name(warehouse: Warehouse, tmp_path: Path, stored: str) -> None:
    table = pa.table({"V": ["a", None], "id": pa.array([1, 2], pa.int32()), "more": [1.5, 2.5]})
    (orc if stored == "ORC" else parquet).write_table(table, tmp_path / "f")
    (orc if stored == "ORC" else parquet).write_table(table.slice(0, 1), tmp_path / "g")
    name = declared(warehouse, "id bigint, v string, new date", tmp_path, f"STORED AS {stored}")
    expected = [(1, "a", None), (1, "a", None), (2, None, None)]
    assert rows(warehouse, f"SELECT * FROM {name}") == expected
    assert rows(warehouse, f"SELECT count(*) FROM {name} WHERE id = 1") == [(2,)]
    for kind in ("id date", "id smallint", "v int", "more decimal(5,2)"):
        wrong = declared(warehouse, kind, tmp_path, f"STORED AS {stored}")
        with pytest.raises(AcidError, match="but the table declares"):
            rows(warehouse, f"SELECT * FROM {wrong}")


def test_columns_of_orc_without_names(warehouse: Warehouse, tmp_path: Path) -> None:
    orc.write_table(pa.table({"_col0": pa.array([1], pa.int32()), "_col1": ["a"]}), tmp_path / "f")
    name = declared(warehouse, "id int, v string", tmp_path, "STORED AS ORC")
    assert rows(warehouse, f"SELECT v, id FROM {name}") == [("a", 1)]


@pytest.mark.more
def test_partitions(warehouse: Warehouse, tmp_path: Path) -> None:
    for day, hour, text in (("2024-01-01", "03", "1\n2\n"), ("2024-01-02", "4", "3\n")):
        directory = tmp_path / "t" / f"ds={day}" / f"hr={hour}"
        directory.mkdir(parents=True)
        (directory / "f").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "f").write_text("9\n")
    table = declared(warehouse, "id int", tmp_path / "t", "PARTITIONED BY (ds date, hr int)")
    assert rows(warehouse, f"SELECT * FROM {table}") == []
    assert str(warehouse.sql(f"MSCK REPAIR TABLE {table}")).splitlines() == [
        f"Repair: Added partition to metastore default.{table}:ds=2024-01-01/hr=03",
        f"Repair: Added partition to metastore default.{table}:ds=2024-01-02/hr=4",
    ]
    assert str(warehouse.sql(f"MSCK REPAIR TABLE {table}")) == "OK"
    first = date(2024, 1, 1)
    assert rows(warehouse, f"SELECT * FROM {table} WHERE hr = 3") == [(1, first, 3), (2, first, 3)]
    warehouse.sql(
        f"ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (ds='2024-01-02', hr=4)"
        f" PARTITION (ds='2024-01-03', hr=1) LOCATION '{tmp_path}/elsewhere'"
        " PARTITION (ds='2024-01-03', hr=2)"
    )
    assert rows(warehouse, f"SELECT id FROM {table} WHERE ds >= '2024-01-02'") == [(3,), (9,)]
    with pytest.raises(TableExists):
        warehouse.sql(f"ALTER TABLE {table} ADD PARTITION (ds='2024-01-03', hr=1)")
    shown = warehouse.sql(f"DESCRIBE FORMATTED {table} PARTITION (ds='2024-01-03', hr=1)")
    assert f"{tmp_path}/elsewhere" in set(shown["data_type"])
    warehouse.sql(f"ALTER TABLE {table} DROP PARTITION (ds='2024-01-03')")
    assert (tmp_path / "elsewhere" / "f").exists()
    (tmp_path / "t" / "ds=2024-01-02" / "hr=4" / "f").unlink()
    (tmp_path / "t" / "ds=2024-01-02" / "hr=4").rmdir()
    warehouse.sql(f"MSCK REPAIR TABLE {table} SYNC PARTITIONS")
    shown = warehouse.sql(f"SHOW PARTITIONS {table}")
    assert list(shown["partition"]) == ["ds=2024-01-01/hr=03"]
    (tmp_path / "t" / "ds=2024-01-02" / "hour=4").mkdir()
    with pytest.raises(NoSuchPartition, match="is not named hr=…"):
        warehouse.sql(f"MSCK REPAIR TABLE {table}")
    with pytest.raises(NoSuchPartition):
        warehouse.sql(f"ALTER TABLE {table} DROP PARTITION (ds='1999-01-01')")


def test_a_partition_that_others_changed_meanwhile(warehouse: Warehouse, tmp_path: Path) -> None:
    table = declared(warehouse, "id int", tmp_path, "PARTITIONED BY (p int)")
    (view,) = (one for one in warehouse.metastore.views() if one.name == f"default.{table}")
    warehouse.sql(f"ALTER TABLE {table} ADD PARTITION (p=1)")
    with pytest.raises(DeclarationChanged):
        warehouse.metastore.call(DeclareView(view, False, or_replace=True, read=view.version))


def test_files_that_are_not_read(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    table = declared(warehouse, "id int", tmp_path)
    with pytest.raises(UnsupportedLayout, match="is a directory"):
        rows(warehouse, f"SELECT * FROM {table}")
    (tmp_path / "d").rmdir()
    (tmp_path / "f.zst").write_bytes(b"abc")
    with pytest.raises(AcidError, match="are not read"):
        rows(warehouse, f"SELECT * FROM {table}")
    (tmp_path / "f.zst").rename(tmp_path / "f")
    name = declared(warehouse, "id int", tmp_path, "STORED AS ORC")
    with pytest.raises(CorruptFile):
        rows(warehouse, f"SELECT * FROM {name}")


def test_files_of_tables_are_nobodys_else(warehouse: Warehouse, tmp_path: Path) -> None:
    name = f"m{next(_numbers)}"
    warehouse.sql(f"CREATE TABLE {name} (id int) LOCATION '{tmp_path}/m'")
    for where in (f"{tmp_path}/m", f"{tmp_path}", f"{tmp_path}/m/x", str(warehouse.path)):
        with pytest.raises(InvalidDefinition, match="enclose"):
            warehouse.sql(f"CREATE EXTERNAL TABLE e (id int) LOCATION '{where}'")
    warehouse.sql(f"INSERT INTO {name} VALUES (1)")
    warehouse.sql(f"DROP TABLE {name}")
    with pytest.raises(InvalidDefinition, match="the Cleaner removes"):
        warehouse.sql(f"CREATE EXTERNAL TABLE e (id int) LOCATION '{tmp_path}/m/x'")
    table = declared(warehouse, "id int", tmp_path / "e")
    declared(warehouse, "text string", tmp_path / "e")  # two readers of the same files
    with pytest.raises(InvalidDefinition, match=f"where default.{table} is"):
        warehouse.sql(f"CREATE TABLE m (id int) LOCATION '{tmp_path}/e/m'")
    with pytest.raises(InvalidDefinition, match="enclose"):
        warehouse.sql(f"CREATE TABLE m (id int) LOCATION '{tmp_path}/e'")


def test_a_file_is_no_place(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    with pytest.raises(InvalidDefinition, match="is a file"):
        warehouse.sql(f"CREATE EXTERNAL TABLE refused (id int) LOCATION '{tmp_path}/f'")


@pytest.mark.more
def test_what_is_shown_declares_the_same_table(warehouse: Warehouse, tmp_path: Path) -> None:
    table = declared(
        warehouse,
        "id int COMMENT 'key', v string",
        tmp_path,
        "COMMENT 'raw' PARTITIONED BY (p string) ROW FORMAT DELIMITED FIELDS TERMINATED BY '\\t'"
        " NULL DEFINED AS 'NA'",
        "TBLPROPERTIES ('skip.header.line.count'='2')",
    )
    (before,) = (one for one in warehouse.metastore.views() if one.name.endswith(f".{table}"))
    text = "\n".join(warehouse.sql(f"SHOW CREATE TABLE {table}")["createtab_stmt"])
    warehouse.sql(f"DROP TABLE {table}")
    warehouse.sql(text)
    warehouse.sql(f"CREATE EXTERNAL TABLE IF NOT EXISTS {table} (x int) LOCATION '{tmp_path}'")
    (after,) = (one for one in warehouse.metastore.views() if one.name.endswith(f".{table}"))
    assert (after.columns, after.external, after.comments, after.properties) == (
        before.columns,
        before.external,
        before.comments,
        before.properties,
    )
