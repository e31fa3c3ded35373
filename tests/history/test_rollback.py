"""Rolling a table back, tags in SQL, and comparing snapshots (P30, P36)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from acid_platform import (
    InvalidDefinition,
    NoSuchPast,
    UnknownColumn,
    UnsupportedStatement,
    Warehouse,
    WriteConflict,
)
from acid_platform.services import cleaner
from tests.conftest import a_warehouse

warehouse = a_warehouse("local")


def rows(warehouse: Warehouse, name: str) -> list[tuple[object, ...]]:
    found = warehouse.table(name).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_P36_a_rollback_makes_the_rows_those_of_then(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE one (id int, v string)")
    table = warehouse.table("one")
    assert table.rollback_to(0) == 0, "it is so already"
    warehouse.sql("INSERT INTO one VALUES (1, 'a'), (2, 'b')")
    first = rows(warehouse, "one")
    warehouse.sql("UPDATE one SET v = 'x' WHERE id = 1")
    warehouse.sql("DELETE FROM one WHERE id = 2")
    worst = rows(warehouse, "one")
    assert table.rollback_to(2) == 2 and rows(warehouse, "one") == first
    assert warehouse.sql("ALTER TABLE one ROLLBACK TO 4").message == "1 row affected"
    assert rows(warehouse, "one") == worst, "a rollback can be rolled back past others"
    table.truncate()
    table.compact("major")
    table.rollback_to(2)
    assert rows(warehouse, "one") == first
    table.rollback_to(0)
    assert rows(warehouse, "one") == [] == table.to_arrow().to_pylist()


def test_P36_a_rollback_restores_partitions_and_leaves_others_alone(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE parts (id int, v string) PARTITIONED BY (p int)")
    warehouse.sql("INSERT INTO parts (id, v, p) VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    then = rows(warehouse, "parts")
    warehouse.sql("DELETE FROM parts WHERE id = 2")
    table = warehouse.table("parts")
    table.drop_partition("p=3")
    warehouse.sql("INSERT INTO parts (id, v, p) VALUES (9, 'n', 4)")
    assert table.rollback_to(1) == 2
    assert rows(warehouse, "parts") == then
    written = {row["partition"] for row in table.history() if row["write_id"] == 5}
    assert written == {"p=2", "p=3", "p=4"}, "p=1 has not changed"
    table.add_columns("more int")
    table.rollback_to(4)
    assert (9, "n", None, 4) in rows(warehouse, "parts")
    assert table.to_arrow(as_of=1).column_names == ["id", "v", "p"]


def test_P36_a_rollback_conflicts_like_an_overwrite(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE fight (id int)")
    for id in range(2):
        warehouse.sql(f"INSERT INTO fight VALUES ({id})")
    with pytest.raises(WriteConflict), warehouse.transaction() as txn:
        warehouse.sql("INSERT INTO fight VALUES (7)")
        txn.table("fight").rollback_to(1)
    assert rows(warehouse, "fight") == [(0,), (1,), (7,)]
    with warehouse.transaction() as txn:
        txn.table("fight").rollback_to(1)
        assert txn.table("fight").to_arrow().num_rows == 1, "it sees its own rollback"
    assert rows(warehouse, "fight") == [(0,)]


def test_P36_a_column_that_is_gone_can_not_be_restored(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE gone (id int, old string)")
    warehouse.sql("INSERT INTO gone VALUES (1, 'x')")
    warehouse.sql("TRUNCATE TABLE gone")
    warehouse.sql("ALTER TABLE gone CHANGE old new string")
    with pytest.raises(UnknownColumn, match="had the column old then"):
        warehouse.table("gone").rollback_to(1)
    assert warehouse.table("gone").to_arrow(as_of=1).column_names == ["id", "old"]


GIVEN_UP = {
    "dropped": ["DROP COLUMN n", "ADD COLUMNS (n bigint)"],
    "renamed": ["RENAME COLUMN n TO m", "ADD COLUMNS (n bigint)"],
    "of the same type": ["DROP COLUMN n", "ADD COLUMNS (n int)"],
    "swapped": ["RENAME COLUMN n TO x", "RENAME COLUMN k TO n", "RENAME COLUMN x TO k"],
    "replaced": ["REPLACE COLUMNS (id int, k int)", "ADD COLUMNS (n string)"],
}


@pytest.mark.parametrize("given_up", GIVEN_UP)
def test_P36_a_name_that_was_given_up_and_taken_again_is_another_column(
    given_up: str, warehouse: Warehouse
) -> None:
    name = f"default.given_up_{given_up.replace(' ', '_')}"
    table = warehouse.create_table(name, "id int, n int, k int")
    table.insert([{"id": 1, "n": 10, "k": 7}])
    for change in GIVEN_UP[given_up]:
        warehouse.sql(f"ALTER TABLE {name} {change}")
    now = table.to_arrow().to_pylist()
    with pytest.raises(UnknownColumn, match=r"(column [kn] of then|the column [kn] (int )?then)"):
        table.rollback_to(1)
    assert table.to_arrow().to_pylist() == now
    compared = table.diff(1)
    assert "n" in compared.only_before and "n" in compared.only_after
    assert (compared.added, compared.removed) == (0, 0)


def test_P36_a_name_that_was_kept_is_the_same_column(warehouse: Warehouse) -> None:
    table = warehouse.create_table("default.kept", "id int, n int, old int")
    table.insert([{"id": 1, "n": 10, "old": 0}])
    warehouse.sql("ALTER TABLE kept DROP COLUMN old")
    then = warehouse.sql("SELECT * FROM kept").to_arrow().to_pylist()
    table.tag("then")
    for change in (
        "CHANGE n n bigint",
        "ADD COLUMNS (w int)",
        "DROP COLUMN w",
        "ADD COLUMNS (w int)",
    ):
        warehouse.sql(f"ALTER TABLE kept {change}")
    table.update({"n": "0"})
    assert table.diff("then").removed == 1
    table.rollback_to("then")
    assert table.to_arrow().to_pylist() == [{**row, "w": None} for row in then]


def test_P36_tags_in_sql_and_python(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE named (id int)")
    for id in range(3):
        warehouse.sql(f"INSERT INTO named VALUES ({id})")
    table = warehouse.table("named")
    warehouse.sql("ALTER TABLE named CREATE TAG `End of March` AS OF VERSION 1 RETAIN 3 DAYS")
    warehouse.sql("ALTER TABLE named CREATE TAG last")
    table.tag("two", as_of=2, expires=timedelta(hours=1))
    (march, two, last) = table.tags()
    assert [tag.name for tag in (march, two, last)] == ["End of March", "two", "last"]
    assert [tag.write_id for tag in (march, two, last)] == [1, 2, 3]
    assert abs(march.expires - march.created - 3 * 86_400_000) < 60_000 and last.expires == 0
    shown = warehouse.sql("SHOW TAGS named").to_dict("records")
    assert [row["tag"] for row in shown] == ["End of March", "two", "last"]
    found = warehouse.sql("SELECT * FROM named VERSION AS OF 'End of March'").to_arrow()
    assert found.to_pylist() == [{"id": 0}]
    warehouse.sql("ALTER TABLE named ROLLBACK TO TAG `End of March`")
    assert rows(warehouse, "named") == [(0,)]
    with pytest.raises(InvalidDefinition, match="has a tag 'two'; drop it first"):
        table.tag("two")
    with pytest.raises(InvalidDefinition, match="in the past"):
        table.tag("old", expires=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(NoSuchPast, match="no tag 'three'; its tags: End of March, last, two"):
        warehouse.sql("ALTER TABLE named DROP TAG three")
    warehouse.sql("ALTER TABLE named DROP TAG IF EXISTS three")
    warehouse.sql("ALTER TABLE named DROP TAG two")
    assert [tag.name for tag in table.tags()] == ["End of March", "last"]


def test_P36_the_rows_that_differ_are_counted_and_shown(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE cmp (id int, v string)")
    warehouse.sql("INSERT INTO cmp VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    warehouse.sql("DELETE FROM cmp WHERE id = 1")
    warehouse.sql("INSERT INTO cmp VALUES (1, 'a'), (3, NULL)")
    table = warehouse.table("cmp")
    found = table.diff(1)
    assert (found.added, found.removed) == (1, 1)
    assert sorted(found.rows, key=str) == [
        {"change": "+", "id": 3, "v": None, "times": 1},
        {"change": "-", "id": 1, "v": "a", "times": 1},
    ]
    table.compact("major")
    assert table.diff(3).rows == () and str(table.diff(3)) == (
        "default.cmp: 0 rows added, 0 removed"
    )
    table.add_columns("n int")
    assert table.diff(1).only_after == ("n",)
    assert table.diff(1, 2, limit=0).removed == 2


def test_P36_a_rollback_truncates_no_nanoseconds(warehouse: Warehouse, tmp_path: Path) -> None:
    values = pa.array([1_000_000_001], pa.timestamp("ns"))
    orc.write_table(pa.table({"at": values}), tmp_path / "000000_0")
    table = warehouse.adopt_table("default.finer", tmp_path, "at timestamp")
    warehouse.sql("INSERT INTO finer VALUES (TIMESTAMP '2026-11-23 17:00:00')")
    warehouse.sql("TRUNCATE TABLE finer")
    with pytest.raises(UnsupportedStatement, match="copy the rows with Hive"):
        table.rollback_to(1)
    assert table.count() == 0 and table.count(as_of=1) == 2


def test_P36_what_sql_can_not_read_of_the_past(warehouse: Warehouse) -> None:
    warehouse.sql("CREATE TABLE plain (id int)")
    warehouse.sql("CREATE VIEW shown AS SELECT * FROM plain")
    for statement, error in (
        ("SELECT * FROM shown VERSION AS OF 1", "is a view, which has no history"),
        ("CREATE VIEW v AS SELECT * FROM plain VERSION AS OF 1", "can't read a table as of"),
        ("WITH c AS (SELECT 1 AS x) SELECT * FROM c VERSION AS OF 1", "is no stored table"),
        ("DELETE FROM plain VERSION AS OF 1", "can't be changed as of"),
    ):
        with pytest.raises(UnsupportedStatement, match=error):
            warehouse.sql(statement)


def test_P36_an_erasure_says_that_the_history_keeps_rows(warehouse: Warehouse) -> None:
    table = warehouse.create_table(
        "default.private", "id int", properties={"acid.history.retention": "7d"}
    )
    warehouse.sql("INSERT INTO private VALUES (1), (2)")
    left = table.erase("id = 1", report=True)
    assert not left.erased and "acid.history.retention" in str(left)
    warehouse.sql("ALTER TABLE private SET TBLPROPERTIES ('acid.history.retention'='0s')")
    cleaner.run(warehouse.metastore)
    assert table.erase("id = 1").erased
