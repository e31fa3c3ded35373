"""Tables with full ACID in Parquet do what those in ORC do. The suites of tables run once more with
`-p tests.on_parquet`; here each statement runs on a table of each format, side by side."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform import InvalidDefinition, SettingRefused, UnsupportedLayout, Warehouse, WrongType
from acid_platform.cli import rebuild
from acid_platform.services.fsck import examine
from acid_platform.tables.adoption import survey
from tests.conftest import a_warehouse

warehouse = a_warehouse("local", scope="function")

COLUMNS = "id int, name string, price decimal(9,2), at timestamp, tags array<string>"
STATEMENTS = (
    "INSERT INTO {t} VALUES (1, 'a', 1.5, TIMESTAMP'2020-02-03 04:05:06.789', array('x'), 0),"
    " (2, 'b', NULL, NULL, NULL, 1),"
    " (3, NULL, 3, TIMESTAMP'1600-01-01 00:00:00', array('y', 'z'), 0)",
    "INSERT INTO {t} (id, name, p) SELECT id + 10, concat(name, '!'), p FROM {t}",
    "UPDATE {t} SET name = 'new', price = 9 WHERE id IN (2, 13)",
    "DELETE FROM {t} WHERE id = 11",
    "MERGE INTO {t} USING (SELECT 3 AS id, 'm' AS name UNION ALL SELECT 30, 'n') s ON {t}.id = s.id"
    " WHEN MATCHED THEN UPDATE SET name = s.name"
    " WHEN NOT MATCHED THEN INSERT (id, name, p) VALUES (s.id, s.name, 1)",
    "ALTER TABLE {t} COMPACT 'minor' AND WAIT",
    "DELETE FROM {t} WHERE name = 'n'",
    "ALTER TABLE {t} ADD COLUMNS (more bigint)",
    "UPDATE {t} SET more = id WHERE p = 0",
    "ALTER TABLE {t} COMPACT 'major' AND WAIT",
    "ALTER TABLE {t} RENAME COLUMN name TO called",
    "INSERT OVERWRITE TABLE {t} PARTITION (p = 1) SELECT id, called, price, at, tags, more FROM {t}"
    " WHERE p = 0",
    "UPDATE {t} SET called = 'last' WHERE id = 13",
    "ALTER TABLE {t} DROP COLUMN price",
)
QUERIES = ("SELECT count(*), min(id), max(id) FROM {t}", "SELECT p FROM {t} WHERE id = 13")
RENAMED = 8
"""The write id of RENAME COLUMN."""


@pytest.mark.more
def test_each_statement_leaves_the_same_rows_with_the_same_ids(warehouse: Warehouse) -> None:
    warehouse.metastore.set("acid.history.retention", "1h")
    orc, plain = (
        warehouse.create_table(
            f"db.{stored}", COLUMNS, partitioned_by=["p int"], properties={"acid.format": stored}
        )
        for stored in ("orc", "parquet")
    )

    def changes(table: Any, since: int, until: int) -> list[str]:
        rows = table.changes_arrow(since=since, until=until).read_all()
        left = [name for name in rows.column_names if name not in ("_txn_id", "_commit_timestamp")]
        return sorted(map(str, rows.select(left).to_pylist()))

    def seen(table: Any, **then: Any) -> Any:
        rows = table.to_arrow(row_id=True, **then).to_pylist()
        return sorted(rows, key=lambda row: (row["id"], row["p"]))

    for statement in STATEMENTS:
        for table in (orc, plain):
            warehouse.sql(statement.format(t=table.name))
        assert seen(orc) == seen(plain), statement
        assert orc.count() == plain.count() == len(seen(plain))
        for query in QUERIES:
            answers = [warehouse.sql(query.format(t=each.name)).collect() for each in (orc, plain)]
            assert [str(row) for row in answers[0]] == [str(row) for row in answers[1]]
        formats = {
            parquet.ParquetFile(path).metadata.num_columns > 0
            for path in Path(plain.location).rglob("bucket_*")
        }
        assert formats == {True}, "each file is Parquet"
    last = orc.history()[0]["write_id"]
    for write_id in range(1, last + 1):
        assert seen(orc, as_of=write_id) == seen(plain, as_of=write_id)
    changed = [changes(table, 1, RENAMED - 1) for table in (orc, plain)]
    assert changed[0] == changed[1] and len(changed[0]) > 5
    for table in (orc, plain):
        assert not examine(warehouse.metastore, [table.name]).findings


def test_what_is_not_said_is_the_setting_of_the_warehouse(warehouse: Warehouse) -> None:
    warehouse.metastore.set("acid.format.default", "parquet")
    with pytest.raises(SettingRefused, match=r"acid\.format\.default"):
        warehouse.metastore.set("acid.format.default", "csv")
    made = {
        "unsaid": "CREATE TABLE db.unsaid (id int)",
        "orc": "CREATE TABLE db.orc (id int) STORED AS ORC",
        "alike": "CREATE TABLE db.alike LIKE db.orc",
        "queried": "CREATE TABLE db.queried AS SELECT 1 AS id",
        "added": "CREATE TABLE db.added (id int)"
        " TBLPROPERTIES ('transactional_properties' = 'insert_only')",
    }
    warehouse.sql("CREATE DATABASE db")
    for statement in made.values():
        warehouse.sql(statement)
    stated = {
        name: warehouse.table(f"db.{name}").record.properties.get("acid.format") for name in made
    }
    assert stated == {
        "unsaid": "parquet",
        "orc": None,
        "alike": None,
        "queried": "parquet",
        "added": None,
    }
    with pytest.raises(InvalidDefinition, match="json files hold no row identities"):
        warehouse.sql("CREATE TABLE db.bad (id int) TBLPROPERTIES ('acid.format' = 'json')")


def test_a_table_gets_the_other_format_in_one_commit(warehouse: Warehouse) -> None:
    """Rows, row ids and past snapshots stay."""
    warehouse.metastore.set("acid.history.retention", "1h")
    table = warehouse.create_table("db.t", "id int, at timestamp", partitioned_by=["p int"])
    warehouse.sql("INSERT INTO db.t VALUES (1, TIMESTAMP'2020-01-02 03:04:05', 0), (2, NULL, 1)")
    table.delete("id = 2")

    def seen(**then: Any) -> list[Any]:
        rows = table.to_arrow(row_id=True, **then).to_pylist()
        return sorted(rows, key=lambda row: row["id"])

    before = seen()
    for statement, stored in (
        ("ALTER TABLE db.t SET FILEFORMAT PARQUET", "parquet"),
        ("ALTER TABLE db.t SET TBLPROPERTIES ('acid.format' = 'orc', 'note' = 'x')", None),
        ("ALTER TABLE db.t SET FILEFORMAT PARQUET", "parquet"),
    ):
        warehouse.sql(statement)
        assert seen() == before and table.record.properties.get("acid.format") == stored
        assert ("orc.compress" in table.record.properties) == (stored is None)
    assert [len(seen(as_of=write_id)) for write_id in range(1, 6)] == [2, 1, 1, 1, 1]
    table.insert([{"id": 3, "p": 1}])
    assert table.count() == 2 and table.store_as("parquet") == 0
    with pytest.raises(InvalidDefinition, match="json files hold no row identities"):
        table.store_as("json")


def test_columns_have_other_names_and_no_file_is_written(warehouse: Warehouse) -> None:
    """Files know columns by ids: an old name that is used again shows no old value, and neither do
    the recorded bounds."""
    warehouse.metastore.set("acid.history.retention", "1h")
    columns, stored = "id int, a int, b string", {"acid.format": "parquet"}
    table = warehouse.create_table("db.t", columns, properties=stored)
    warehouse.sql("INSERT INTO db.t VALUES (1, 10, 'x'), (2, 20, 'y')")
    files = sorted(Path(table.location).rglob("bucket_*"))
    told = warehouse.sql("EXPLAIN ALTER TABLE db.t RENAME COLUMN a TO c").collect()
    assert "only the declaration changes" in str(told)
    for statement in (
        "ALTER TABLE db.t RENAME COLUMN a TO c",
        "ALTER TABLE db.t RENAME COLUMN id TO a",
        "ALTER TABLE db.t DROP COLUMN b",
        "ALTER TABLE db.t ADD COLUMN b int",
        "ALTER TABLE db.t ADD COLUMN id int",
    ):
        warehouse.sql(statement)
    assert sorted(Path(table.location).rglob("bucket_*")) == files

    def found(query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in warehouse.sql(query).collect()]

    def seen() -> list[dict[str, Any]]:
        return sorted(table.to_arrow().to_pylist(), key=lambda row: row["a"])

    old = [{"a": 1, "c": 10, "b": None, "id": None}, {"a": 2, "c": 20, "b": None, "id": None}]
    assert seen() == old
    assert found("SELECT max(a), max(c), count(b), max(id) FROM db.t") == [(2, 20, 0, None)]
    assert found("SELECT c FROM db.t WHERE a = 2") == [(20,)]
    assert found("SELECT c FROM db.t WHERE a > 5") == found("SELECT a FROM db.t WHERE id = 1") == []
    warehouse.sql("INSERT INTO db.t VALUES (3, 30, 7, 0)")
    new = [*old, {"a": 3, "c": 30, "b": 7, "id": 0}]
    assert seen() == new and found("SELECT min(b), max(id) FROM db.t") == [(7, 0)]
    warehouse.sql("UPDATE db.t SET id = c WHERE a = 1")
    new[0] = new[0] | {"id": 10}
    assert seen() == new
    for kind in ("minor", "major"):
        table.compact(kind)
        assert seen() == new
    assert found("SELECT max(a), max(c), max(b), max(id) FROM db.t") == [(3, 30, 7, 10)]
    then = table.to_arrow(as_of=1).to_pylist()
    assert then == [{"id": 1, "a": 10, "b": "x"}, {"id": 2, "a": 20, "b": "y"}]
    assert not examine(warehouse.metastore, [table.name]).findings


def test_an_erasure_finds_rows_in_files_with_other_names(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id int, v int", properties={"acid.format": "parquet"})
    table.insert([{"id": number, "v": number} for number in range(4)])
    table.rename_column("v", "w")
    table.insert([{"id": 9, "w": 9}])
    assert table.erase("w IN (1, 9)").deleted == 2
    assert sorted(row["w"] for row in table.to_arrow().to_pylist()) == [0, 2, 3]


def test_texts_that_are_no_utf_8_are_refused(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "name string", properties={"acid.format": "parquet"})
    wrong = pa.table({"name": pa.array([b"\xff"]).view(pa.string())})
    with pytest.raises(WrongType):
        table.insert(wrong)
    assert table.count() == 0


def test_files_of_such_a_table_are_not_taken_for_plain_ones(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    table = warehouse.create_table("db.t", "id int", properties={"acid.format": "parquet"})
    table.insert([{"id": 1}, {"id": 2}])
    table.delete("id = 1")
    (inserted,) = Path(table.location).glob("delta_*/bucket_00000")
    copied = shutil.copy(inserted, tmp_path)
    warehouse.sql(f"CREATE EXTERNAL TABLE db.e (id int) STORED AS PARQUET LOCATION '{tmp_path}'")
    for statement in (
        "SELECT * FROM db.e",
        f"LOAD DATA LOCAL INPATH '{copied}' INTO TABLE db.t",
    ):
        with pytest.raises(UnsupportedLayout, match="is a file of a transactional table"):
            warehouse.sql(statement).collect()
    assert table.count() == 1


def test_a_directory_of_parquet_is_a_table_again_with_its_columns(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Files tell the types that were declared, and ids: a column that went, or whose name another
    got, shows no value."""
    stored = {"acid.format": "parquet"}
    table = warehouse.create_table("db.p", "id int, c char(3), gone int", properties=stored)
    table.insert([{"id": number, "c": "a", "gone": 7} for number in range(5)])
    table.delete("id < 3")
    for statement in (
        "DROP COLUMN gone",
        "RENAME COLUMN c TO code",
        "ADD COLUMN c decimal(9,2)",
        "DROP COLUMN c",
        "ADD COLUMN c varchar(5)",
    ):
        warehouse.sql(f"ALTER TABLE db.p {statement}")
    warehouse.sql("INSERT INTO db.p VALUES (9, 'x', 'new')")
    place = str(shutil.copytree(table.location, tmp_path / "copy"))
    properties, _ = rebuild._kind(place, survey("db.q", place, 0))
    assert properties == stored
    with pytest.warns(UserWarning, match="count as committed"):
        again = warehouse.adopt_table("db.q", place, properties=properties)
    assert again.columns == table.columns
    assert again.to_arrow().to_pylist() == table.to_arrow().to_pylist()
    assert again.record.last_column_id == 0 and max(again.record.ids_of_columns) == 5


def test_one_column_is_not_adopted_under_two_names(warehouse: Warehouse, tmp_path: Path) -> None:
    stored = {"acid.format": "parquet"}
    table = warehouse.create_table("db.r", "id int, v int", properties=stored)
    warehouse.sql("INSERT INTO db.r VALUES (1, 10)")
    table.rename_column("v", "w")
    warehouse.sql("INSERT INTO db.r VALUES (2, 20)")
    place = shutil.copytree(table.location, tmp_path / "copy")
    with pytest.raises(InvalidDefinition, match="v and w are names of one column"):
        warehouse.adopt_table("db.s", place, "id int, v int, w int", properties=stored)
    with pytest.warns(UserWarning, match="count as committed"):
        again = warehouse.adopt_table("db.s", place, "id int, v int", properties=stored)
    assert sorted(row["v"] for row in again.to_arrow().to_pylist()) == [10, 20]


def test_files_that_know_ids_are_adopted_by_them_whatever_the_format_of_the_table(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """The column of a name is the one that the files mean, not the one at its place."""
    made = warehouse.create_table("db.mixed", "a int, b int", properties={"acid.format": "parquet"})
    made.insert([{"a": 1, "b": 2}])
    place = tmp_path / "t"
    shutil.copytree(made.location, place)
    with pytest.warns(UserWarning, match="count as committed"):
        adopted = warehouse.adopt_table("db.mixed_2", place, "b int, c int, a int")
    adopted.insert([{"a": 3, "b": 4, "c": 5}])
    rows = [{"b": 2, "c": None, "a": 1}, {"b": 4, "c": 5, "a": 3}]
    assert adopted.to_arrow().to_pylist() == rows
    shutil.copytree(place, tmp_path / "again")
    with pytest.warns(UserWarning, match="count as committed"):
        again = warehouse.adopt_table("db.mixed_3", tmp_path / "again", "a int, b int")
    assert again.to_arrow().to_pylist() == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_a_directory_of_plain_files_is_imported_not_adopted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "000000_0")
    with pytest.raises(UnsupportedLayout, match="000000_0 is plain Parquet"):
        warehouse.adopt_table("db.t", tmp_path, "id int", properties={"acid.format": "parquet"})


def test_texts_that_repeat_stay_what_they_are(warehouse: Warehouse) -> None:
    """UPDATE, MERGE and a compaction take their numbers in the file's dictionary."""
    table = warehouse.create_table(
        "db.t", "id int, s string, c char(4), v varchar(9)", properties={"acid.format": "parquet"}
    )
    rows = [
        {"id": n, "s": None if n % 9 == 4 else f"s{n % 5}", "c": f"c{n % 3}", "v": f"v{n % 4}"}
        for n in range(20_000)
    ]
    table.insert(pa.Table.from_pylist(rows))
    table.update({"v": "upper(s)"}, "id % 1000 = 3")
    found_texts = table.to_arrow(["s"]).column(0).to_pylist()
    assert found_texts.count("s3") == sum(row["s"] == "s3" for row in rows)
    table.update({"v": "'new'"}, "id % 1000 = 5")
    table.delete("s = 's1'")
    expected = sorted(
        (row["id"], row["s"], row["c"], row["v"])
        for row in (
            {
                **row,
                "v": {3: (row["s"] or "").upper() or None, 5: "new"}.get(
                    row["id"] % 1000, row["v"]
                ),
            }
            for row in rows
            if row["s"] != "s1"
        )
    )

    def found() -> list[tuple[object, ...]]:
        every = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
        return [(row["id"], row["s"], row["c"].rstrip(), row["v"]) for row in every]

    assert found() == expected
    table.compact("major")
    assert found() == expected
    assert warehouse.sql("SELECT count(*) AS n FROM db.t WHERE s = 's1'").collect()[0][0] == 0
