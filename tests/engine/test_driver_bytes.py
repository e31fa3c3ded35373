"""Nothing that grows with the data passes through the driver.

Counted are the bytes that this process, which is Spark's driver program, reads from files and
writes to them, and those that it receives from the JVM and sends to it. In local mode the JVM runs
the tasks too, so its own bytes say nothing about a driver; what this process hands over to it or
collects from it does. On a cluster the JVM's bytes are counted too (tests/cluster/on_cluster.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from acid_platform import Table, Warehouse
from acid_platform.handles.transaction import TransactionTable
from acid_platform.layout.names import BucketFile
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@dataclass
class Moved:
    """Bytes that passed through this process."""

    files: int = 0
    sockets: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.files + sum(self.sockets)


def of_files(process: int | None = None) -> int:
    """Bytes that this process, or another one, has read from files and pipes and written to them
    (Linux). Those that a JVM reads from sockets and writes to them are among its own."""
    told = Path("/proc", str(process or "self"), "io").read_text()
    counted = dict(line.split(": ") for line in told.splitlines())
    return int(counted["rchar"]) + int(counted["wchar"])


@contextmanager
def counting(*others: int) -> Iterator[Moved]:
    """Counts during the block. `others`: processes whose bytes are added to this one's."""
    moved = Moved()
    before = sum(map(of_files, (None, *others)))

    def counted(name: str) -> Any:
        real = getattr(socket.socket, name)

        def call(self: socket.socket, data: Any, *args: Any) -> Any:
            done = real(self, data, *args)
            size = done if isinstance(done, int) else len(data if done is None else done)
            moved.sockets.append(size)
            return done

        return mock.patch.object(socket.socket, name, call)

    with counted("recv"), counted("recv_into"), counted("send"), counted("sendall"):
        yield moved
    moved.files = sum(map(of_files, (None, *others))) - before


def rows(spark: SparkSession, count: int, seed: int = 1) -> DataFrame:
    """Rows of about 16 bytes that no codec makes smaller."""
    return spark.range(0, count, 1, 4).selectExpr(
        "id", f"xxhash64(id, {seed}) AS v", f"xxhash64(id, {seed + 1}) AS w"
    )


def stored(table: Table) -> int:
    """The bytes of all files that commits have published."""
    return sum(
        path.stat().st_size
        for path in Path(table.location).rglob("*")
        if path.is_file() and path.name.startswith(str(BucketFile(0))[:7])
    )


def bytes_of_statements(
    warehouse: Warehouse, name: str, count: int, *others: int
) -> dict[str, tuple[int, int]]:
    """For each statement: bytes through this process, and bytes that it added to the table.

    Each changes the rows of one INSERT: rows that a scan leaves out because others deleted them
    are told to Spark by this process, as bitmaps.
    """
    table = warehouse.create_table(f"db.{name}", "id bigint, v bigint, w bigint")
    source = rows(warehouse.spark, count + count // 10, seed=3).where("id % 3 = 0")
    statements: dict[str, Callable[[TransactionTable], object]] = {
        "UPDATE": lambda t: t.update({"v": "xxhash64(v)"}, "id % 3 = 1"),
        "MERGE": lambda t: t.merge(
            source, "t.id = s.id", when_matched_update={"v": "s.v"}, when_not_matched_insert="*"
        ),
        "OVERWRITE": lambda t: t.overwrite(rows(warehouse.spark, count, seed=5)),
    }
    with counting(*others) as moved:
        table.insert(rows(warehouse.spark, count))
    found = {"INSERT": (moved.total, stored(table))}
    for statement, run in statements.items():
        before = stored(table)
        txn = warehouse.transaction()
        with counting(*others) as moved:
            run(txn.table(table.name))
        found[statement] = moved.total, stored(table) - before
        txn.abort("measured")
    print(name, found)
    return found


def require_constant(few: dict[str, tuple[int, int]], many: dict[str, tuple[int, int]]) -> None:
    """That the bytes through this process don't grow with those that are written."""
    for statement, (moved, _) in few.items():
        more_moved, more_stored = many[statement]
        assert more_stored > 1_000_000, f"{statement} was to write more than that"
        assert more_moved - moved < more_stored / 20, f"{statement}: {few} and {many}"


@pytest.fixture
def warehouse(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path, spark, "spark") as opened:
        yield opened


@pytest.mark.slow
def test_statements_move_no_rows_through_the_driver(warehouse: Warehouse) -> None:
    bytes_of_statements(warehouse, "warm", 1000)
    few = bytes_of_statements(warehouse, "few", 10_000)
    many = bytes_of_statements(warehouse, "many", 300_000)
    require_constant(few, many)


@pytest.mark.slow
def test_statements_of_8_million_rows_move_no_rows_through_the_driver(
    warehouse: Warehouse,
) -> None:
    few = bytes_of_statements(warehouse, "few", 10_000)
    many = bytes_of_statements(warehouse, "many", 8_000_000)
    require_constant(few, many)


def test_the_count_would_see_rows_that_pass(warehouse: Warehouse, tmp_path: Path) -> None:
    """The test above can fail: a copied file and a collected column are counted."""
    with counting() as moved:
        (tmp_path / "copy").write_bytes(b"x" * 1_000_000)
    assert moved.files >= 1_000_000
    with counting() as moved:
        rows(warehouse.spark, 100_000).toArrow()
    assert moved.total >= 2_400_000
