"""What a new user's mistakes lead to: each error names the next step."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from acid_platform import (
    AcidError,
    AlreadyScheduled,
    InvalidDefinition,
    Table,
    TableExists,
    Warehouse,
)
from tests.conftest import a_warehouse

warehouse = a_warehouse("local")


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    if warehouse.tables():
        warehouse.drop_table("shop.orders")
    table = warehouse.create_table("shop.orders", "id int, name string, f float")
    table.insert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    return table


NEXT_STEPS: dict[str, tuple[Callable[[Warehouse, Table], object], str]] = {
    "a text without quotes": (lambda _, t: t.update({"name": "Bob"}), "in quotes: 'Bob'"),
    "two words": (lambda _, t: t.update({"name": "Bob Smith"}), "in quotes: 'Bob Smith'"),
    "a condition": (lambda _, t: t.delete("name = Bob"), "in quotes: 'Bob'"),
    "in SQL": (lambda wh, _: wh.sql("UPDATE shop.orders SET name = Bob"), "in quotes: 'Bob'"),
    "a near name": (lambda _, t: t.update({"name": "nmae"}), "did you mean name?"),
    "a date": (lambda _, t: t.update({"name": "2024-01-01"}), "in quotes: '2024-01-01'"),
    "no type": (
        lambda wh, _: wh.create_table("shop.a", "id int", partitioned_by=["day"]),
        "'day' has no type; write e.g. 'day string' or 'day date'",
    ),
    "a type of others": (
        lambda wh, _: wh.create_table("shop.a", "id int, v text"),
        "did you mean string?",
    ),
    "in a declaration": (
        lambda wh, _: wh.sql("CREATE TABLE shop.a (id int, v text)"),
        "did you mean string?",
    ),
    "a text without length": (
        lambda wh, _: wh.sql("CREATE TABLE shop.a (id int, v array<varchar>)"),
        "varchar needs a length: write varchar(10), or string",
    ),
    "a generator of dicts": (
        lambda _, t: t.insert({"id": n} for n in (1, 2)),
        "for dicts give list",
    ),
    "a number": (lambda wh, _: wh.create_table("shop.a", "v number"), "decimal(18,2)?"),
    "a clone": (
        lambda wh, _: wh.sql("CREATE TABLE shop.b SHALLOW CLONE shop.orders"),
        "AS SELECT * FROM",
    ),
    "or replace": (lambda wh, _: wh.sql("CREATE OR REPLACE TABLE a (i int)"), "AS SELECT"),
    "beyond float": (lambda _, t: t.update({"f": "1e300D"}), "beyond float"),
}


@pytest.mark.parametrize("name", NEXT_STEPS)
def test_an_error_says_what_to_write(warehouse: Warehouse, table: Table, name: str) -> None:
    mistake, message = NEXT_STEPS[name]
    with pytest.raises(AcidError, match=re.escape(message)):
        mistake(warehouse, table)


def test_a_listing_has_the_methods_of_a_query(warehouse: Warehouse, table: Table) -> None:
    for text in (
        "SHOW TABLES IN shop",
        "DESCRIBE shop.orders",
        "EXPLAIN SELECT * FROM shop.orders",
    ):
        rows = warehouse.sql(text)
        query = warehouse.sql("SELECT id FROM shop.orders")
        missing = {name for name in dir(query) if not name.startswith("_")} - {*dir(rows)}
        assert missing <= {"sql", "block"} | {*vars(query)}, missing
        assert rows.count() == rows.to_arrow().num_rows == len(rows.collect()) == len(rows.head(99))
        assert rows.to_pandas().to_dict("records") == rows.to_dict("records")
        assert isinstance(rows.to_arrow(), pa.Table)
    assert list(warehouse.sql("SHOW TABLES IN shop")["tab_name"]) == ["orders"]


def test_show_tables_of_an_empty_database_says_where_tables_are(
    warehouse: Warehouse, table: Table
) -> None:
    assert "there are some in shop" in repr(warehouse.sql("SHOW TABLES"))
    assert "there are some" not in repr(warehouse.sql("SHOW TABLES IN shop LIKE 'nope'"))


def test_the_history_calls_an_upsert_of_new_keys_an_insert(table: Table) -> None:
    for _ in range(2):
        table.merge([{"id": 9, "name": "z"}], "t.id = s.id", {"name": "s.name"}, None, "*")
    entries = [(entry.operation, entry.directory[:6]) for entry in table.history()]
    assert entries[1:] == [("insert", "delta_"), ("update", "delete"), ("update", "delta_")]
    with pytest.raises(AttributeError, match="it has"):
        _ = table.history()[0].nope


def test_a_commit_says_why(warehouse: Warehouse, table: Table) -> None:
    with warehouse.transaction(message="a correction") as txn:
        txn.table(table.name).insert([{"id": 7}])
    warehouse.sql("BEGIN COMMENT 'it\\'s said'")
    warehouse.sql(f"DELETE FROM {table.name} WHERE id = 7")
    warehouse.sql("COMMIT")
    warehouse.message = "every night"
    table.insert([{"id": 8}])
    warehouse.message = ""
    told = [entry.message for entry in table.history()]
    assert told[1:] == ["a correction", "it's said", "every night"]
    with pytest.raises(InvalidDefinition, match="at most 2,000 characters, and this one 2,001"):
        warehouse.transaction(message="x" * 2001)


@pytest.mark.more
def test_a_major_compaction_right_after_a_minor_one_is_done_or_says_why(table: Table) -> None:
    table.insert([{"id": 3, "name": "c"}])
    table.compact("minor")
    assert "not enough for a major compaction" in table.compact("major")[0]["errormessage"]
    for id_ in (4, 5):
        table.overwrite([{"id": id_}])
        table.insert([{"id": id_ + 10}])
        table.insert([{"id": id_ + 20}])
        states = [table.compact(kind)[0]["state"] for kind in ("minor", "major")]
        assert states == ["ready for cleaning"] * 2
        (source,) = table.snapshot().directories[""].sources
        assert source.directory.startswith("base_")
    for kind in ("minor", "major"):
        with pytest.raises(AlreadyScheduled, match="nothing was written since"):
            table.compact(kind)


def test_a_refused_table_leaves_no_directory(warehouse: Warehouse, tmp_path: Path) -> None:
    for location in (None, str(tmp_path / "there")):
        with pytest.raises(AcidError, match="promises"):
            warehouse.create_table(
                "shop.refused", "id int", location=location, properties={"NO_DROP": "true"}
            )
        with pytest.raises(AcidError, match="no table property"):
            warehouse.create_table(
                "shop.refused", "id int", location=location, properties={"acid.compresion": "zlib"}
            )
    with pytest.raises(TableExists):
        warehouse.create_table("shop.orders", "id int")
    assert not (tmp_path / "there").exists()
    assert not Path(warehouse.path, "shop.db", "refused").exists()
    assert Path(warehouse.table("shop.orders").location).is_dir()
