"""Tables of each kind, which other metastores are told of."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from acid_platform import TxnAborted, Warehouse
from acid_platform.services import cleaner

READABLE = ("s.aborted", "s.buckets", "s.empty", "s.files", "s.merged", "s.parts", "s.plain")
"""The tables that Hive's clients can read; `s.csv` they can't."""


def rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    read = warehouse.table(table).to_arrow().to_pylist()
    return sorted(read, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def put(table: Any, *given: tuple[Any, ...]) -> None:
    """Inserts rows: the values of all columns."""
    declared = table.record
    names = [name for name, _ in (*declared.columns, *declared.partition_columns)]
    table.insert([dict(zip(names, row, strict=True)) for row in given])


def abort_one(warehouse: Warehouse, table: str) -> None:
    """A write that was aborted, with its files."""
    with suppress(TxnAborted), warehouse.transaction() as txn:
        put(txn.table(table), (99, "aborted"))
        txn.abort()


def make_tables(warehouse: Warehouse) -> None:
    warehouse.create_table("s.plain", "id int, v string, d decimal(9,2)")
    warehouse.sql("INSERT INTO s.plain VALUES (1, 'a', 1.5), (2, NULL, 2), (3, 'c', 3)")
    warehouse.sql("UPDATE s.plain SET v = 'b' WHERE id = 2")
    warehouse.sql("DELETE FROM s.plain WHERE id = 3")
    warehouse.create_table("s.aborted", "id int, v string")
    for number in range(4):
        warehouse.sql(f"INSERT INTO s.aborted VALUES ({number}, 'x')")
        abort_one(warehouse, "s.aborted")
    warehouse.create_table("s.parts", "id int, v string", partitioned_by=["p string"])
    warehouse.sql("INSERT INTO s.parts VALUES (1, 'a', 'a b'), (2, 'b', 'x/y=1'), (3, 'c', NULL)")
    warehouse.create_table("s.merged", "id int, v string")
    for number in range(3):
        warehouse.sql(f"INSERT INTO s.merged VALUES ({number}, 'x')")
    warehouse.table("s.merged").compact("major", wait=True)
    cleaner.run(warehouse.metastore)
    warehouse.sql("DELETE FROM s.merged WHERE id = 1")
    warehouse.create_table(
        "s.files",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": "parquet"},
    )
    warehouse.sql("INSERT INTO s.files VALUES (1, 'a')")
    warehouse.create_table(
        "s.buckets", "id int, v string", clustered_by=(["id"], 2), properties={"team": "x"}
    )
    warehouse.sql("INSERT INTO s.buckets VALUES (1, 'a'), (2, 'b')")
    warehouse.create_table("s.empty", "id int")
    warehouse.create_table(
        "s.csv",
        "id int, v string",
        properties={"transactional_properties": "insert_only", "acid.format": "csv"},
    )
