"""No verb is missing on a handle: all three read alike, and a table and that of a transaction write
alike, in both engines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from acid_platform import InvalidDefinition, SnapshotExpired, Table, Warehouse
from acid_platform.handles.read_verbs import Reads, SnapshotTable
from acid_platform.handles.transaction import TransactionTable
from acid_platform.handles.write_verbs import Writes
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "db.t"


def rows(found: Any) -> list[str]:
    """Of an Arrow table or reader, or of a frame; in an order that is the same for all."""
    if hasattr(found, "read_all"):
        found = found.read_all()
    dicts = found.to_pylist() if hasattr(found, "to_pylist") else map(_as_dict, found.collect())
    return sorted(str({name: str(value) for name, value in row.items()}) for row in dicts)


def _as_dict(row: Any) -> dict[str, Any]:
    return dict(row.asDict())


def in_polars(table: Reads) -> object:
    """What is handed to Polars, which need not be installed."""
    polars = SimpleNamespace(from_arrow=lambda handed: handed)
    with patch.dict(sys.modules, {"polars": polars}):
        return rows(table.to_polars(["id"], "id > 1"))


READS: dict[str, Callable[[Reads], object]] = {
    "all_columns": lambda table: table.all_columns,
    "batches": lambda table: [
        rows(table.batches(["id"], "id > 1", row_id=True)),
        rows(table.batches(as_of=1)),
        rows(pa.table(table)),
    ],
    "changes": lambda table: rows(table.changes(1, 3, ["id", "_change_type"])),
    "changes_arrow": lambda table: rows(table.changes_arrow(1, 3, ["id", "_change_type"])),
    "columns": lambda table: table.columns,
    "count": lambda table: (table.count(), table.count("id > 1"), table.count(as_of=1)),
    "diff": lambda table: table.diff(1, limit=0),
    "head": lambda table: table.head(2, ["p"], "p = 1").to_dict("records"),
    "history": lambda table: [(row["write_id"], row["operation"]) for row in table.history()],
    "lazy": lambda table: table.lazy(["id"], "id > 1").sort("id").collect().to_dicts(),
    "location": lambda table: table.location,
    "name": lambda table: table.name,
    "partition_columns": lambda table: table.partition_columns,
    "partitions": lambda table: table.partitions(),
    "properties": lambda table: table.properties,
    "read": lambda table: [rows(table.read(["id"], "id > 1")), rows(table.read(as_of=1))],
    "record": lambda table: table.record.table_id,
    "retained": lambda table: table.retained().directories,
    "scan": lambda table: [
        rows(table.scan(["id"], "id > 1", row_id=True).to_arrow()),
        rows(table.scan(["id"], as_of=1).batches()),
        table.scan(where="p = 1", as_of=1).head(2).to_dict("records"),
        table.scan(where="p = 1").count() == table.count("p = 1"),
    ],
    "schema": lambda table: (table.schema, table.schema == table.to_arrow().schema),
    "snapshot": lambda table: str(table.snapshot()).partition("\n")[2],
    "tags": lambda table: [tag.name for tag in table.tags()],
    "to_arrow": lambda table: [rows(table.to_arrow(["id"], "id > 1")), rows(table.to_arrow())],
    "to_pandas": lambda table: table.to_pandas(["id"], "id > 1").sort_values("id").to_dict("list"),
    "to_polars": in_polars,
}
NEEDS_SPARK = {"read", "changes"}
WRITES: dict[str, Callable[[Any, str], object]] = {
    "add_columns": lambda table, _: table.add_columns("n int"),
    "coerced": lambda table, _: table.coerced([{"id": "7", "p": 7.0}]).to_pylist(),
    "delete": lambda table, engine: table.delete("id = 1", engine=engine),
    "filled": lambda table, engine: table.filled([{"id": 7}, {"id": 8, "v": "f"}], engine),
    "insert": lambda table, engine: table.insert([{"id": 7, "p": 7}], engine=engine),
    "merge": lambda table, engine: table.merge(
        [{"id": 2, "v": "m", "p": 2}, {"id": 8, "p": 1}],
        "t.id = s.id",
        {"v": "s.v"},
        when_not_matched_insert="*",
        engine=engine,
    ),
    "overwrite": lambda table, engine: table.overwrite([{"id": 9}], "p=1", engine=engine),
    "rollback_to": lambda table, engine: table.rollback_to(1, engine=engine),
    "truncate": lambda table, _: table.truncate("p=1"),
    "update": lambda table, engine: table.update({"v": "'w'"}, "id = 1", engine=engine),
}


def public(handle: type) -> set[str]:
    return {name for name in vars(handle) if not name.startswith("_")}


def test_every_verb_is_in_a_table_of_this_test() -> None:
    assert public(Reads) == set(READS)
    assert public(Writes) - {"name", "all_columns", "record"} == set(WRITES)
    assert issubclass(Table, (Reads, Writes)) and issubclass(TransactionTable, (Reads, Writes))
    assert issubclass(SnapshotTable, Reads) and not issubclass(SnapshotTable, Writes)


def filled(warehouse: Warehouse, engine: str, name: str = NAME) -> Table:
    table = warehouse.create_table(
        name, "id int, v string", ["p int"], properties={"acid.history.retention": "1d"}
    )
    with warehouse.using(engine):
        table.insert([{"id": number, "v": "a", "p": number % 3} for number in range(6)])
        table.update({"v": "'b'"}, "id < 3")
        table.delete("id = 5")
    table.tag("last")
    return table


@contextmanager
def handles(warehouse: Warehouse) -> Iterator[dict[str, Reads]]:
    with warehouse.transaction() as txn, warehouse.snapshot() as snapshot:
        yield {
            "table": warehouse.table(NAME),
            "transaction": txn.table(NAME),
            "snapshot": snapshot.table(NAME),
        }


@pytest.mark.more
def test_all_handles_read_the_same_without_spark(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        filled(warehouse, "local")
        with handles(warehouse) as tables:
            for verb in sorted(READS.keys() - NEEDS_SPARK):
                answers = {name: READS[verb](table) for name, table in tables.items()}
                assert len({str(answer) for answer in answers.values()}) == 1, (verb, answers)


@pytest.mark.spark
def test_all_handles_read_the_same_with_spark(tmp_path: Path, spark: SparkSession) -> None:
    with temporary_warehouse(tmp_path, spark=spark, engine="spark") as warehouse:
        filled(warehouse, "spark")
        with handles(warehouse) as tables:
            for verb in sorted(READS):
                answers = {name: READS[verb](table) for name, table in tables.items()}
                assert len({str(answer) for answer in answers.values()}) == 1, (verb, answers)
        warehouse.release()


def write_everything(warehouse: Warehouse, engine: str) -> None:
    for verb, write in WRITES.items():
        shown = []
        for kind in ("alone", "inside"):
            table = filled(warehouse, engine, f"db.{verb}_{kind}")
            if kind == "alone":
                answer = write(table, engine)
            else:
                with warehouse.transaction() as txn:
                    answer = write(txn.table(table.name), engine)
            shown.append((answer, rows(table.to_arrow()), [str(each) for each in table.columns]))
        assert shown[0] == shown[1], verb


@pytest.mark.slow
def test_a_table_and_that_of_a_transaction_write_the_same_without_spark(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        write_everything(warehouse, "local")


@pytest.mark.slow
@pytest.mark.spark
def test_a_table_and_that_of_a_transaction_write_the_same_with_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    with temporary_warehouse(tmp_path, spark=spark) as warehouse:
        write_everything(warehouse, "spark")
        warehouse.release()


def test_the_verbs_of_a_snapshot_stay_at_it_and_end_with_its_block(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        table = filled(warehouse, "local")
        with warehouse.snapshot() as snapshot:
            seen = snapshot.table(NAME)
            before = {
                verb: READS[verb](seen) for verb in ("count", "diff", "history", "partitions")
            }
            table.insert([{"id": 50, "p": 50}])
            assert {verb: READS[verb](seen) for verb in before} == before
            assert table.count() == 6 and len(table.history()) > len(seen.history())
        for verb in ("count", "diff", "to_arrow", "changes_arrow", "snapshot"):
            with pytest.raises(SnapshotExpired):
                READS[verb](seen)


def test_a_transaction_counts_and_compares_with_its_own_rows(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        filled(warehouse, "local")
        with warehouse.transaction() as txn:
            table = txn.table(NAME)
            table.insert([{"id": 50, "p": 50}])
            assert table.count() == 6 and table.count(as_of=3) == 5
            assert table.diff(3).added == 1 and "p=50" in table.partitions()
            assert rows(table.changes_arrow(3)) == []


def test_only_a_transaction_moves_the_cursor_of_a_consumer(tmp_path: Path) -> None:
    with temporary_warehouse(tmp_path, engine="local") as warehouse:
        table = filled(warehouse, "local")
        for _ in range(2):
            assert table.changes_arrow(consumer="c").read_all().num_rows == 5
        with warehouse.transaction() as txn:
            assert txn.table(NAME).changes_arrow(consumer="c").read_all().num_rows == 5
        assert table.changes_arrow(consumer="c").read_all().num_rows == 0
        with pytest.raises(InvalidDefinition, match="either the consumer"):
            table.changes_arrow(1, consumer="c")
