"""Tests that need a process of their own, for a session on a cluster: see test_cluster.py."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from acid_platform.services import cleaner
from scripts.cluster import LocalCluster
from tests.conftest import compact_with, temporary_warehouse
from tests.engine import test_driver_bytes as driver_bytes
from tests.metastore.processes import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform import Warehouse


@pytest.fixture
def warehouse(home: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(home, spark, "spark") as opened:
        compact_with(opened, "spark")
        yield opened


def rows_of(warehouse: Warehouse, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """As Spark's executors read them, and as the Arrow reader does: they must agree."""
    read = sorted(tuple(row) for row in warehouse.table(table).read().select(*columns).collect())
    arrow = warehouse.table(table).to_arrow(columns=list(columns)).to_pylist()
    assert sorted(tuple(row[name] for name in columns) for row in arrow) == read
    return read


def leftovers(home: Path) -> list[Path]:
    """Staging directories and files of attempts that a commit does not name."""
    return [path for path in home.rglob("_tmp_*") if ".metastore" not in path.parts]


@contextmanager
def executor_dies(cluster: LocalCluster, when: Callable[[], bool]) -> Iterator[threading.Event]:
    """Kills a worker with its executor as soon as `when` holds; another worker takes its place."""
    done, stop = threading.Event(), threading.Event()

    def watch() -> None:
        while not stop.is_set():
            if when():
                (*_, worker) = [one for one in cluster.workers if one.poll() is None]
                os.killpg(worker.pid, signal.SIGKILL)
                done.set()
                return
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield done
    finally:
        stop.set()
        watcher.join()
        if done.is_set():
            cluster.add_worker()


def executors(cluster: LocalCluster) -> int:
    """How many of them live."""
    found = 0
    for worker in cluster.workers:
        children = []
        if worker.poll() is None:
            children = psutil.Process(worker.pid).children(recursive=True)
        for child in children:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                found += "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())
    return found


def registered(spark: SparkSession) -> int:
    """How many executors the driver knows: only these are given tasks."""
    assert spark._jsc is not None
    return int(spark._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them


def runs_of_stages(spark: SparkSession) -> dict[int, int]:
    """How often each stage that Spark still remembers has been run."""
    tracker = spark.sparkContext.statusTracker()
    found = {}
    for stage in range(5000):
        told = tracker.getStageInfo(stage)
        if told is not None:
            found[stage] = told.currentAttemptId + 1
    return found


def any_file(home: Path, pattern: str) -> Callable[[], bool]:
    """Whether a file below the warehouse matches; directories may vanish meanwhile."""

    def found() -> bool:
        with suppress(OSError):
            return any(path.is_file() for path in home.rglob(pattern))
        return False

    return found


class TestSmoke:
    def test_P12_rows_are_written_changed_and_read(self, warehouse: Warehouse) -> None:
        table = warehouse.create_table("few", "id bigint, v string")
        table.insert(warehouse.spark.range(100).selectExpr("id", "'a' v"))
        table.update({"v": "'b'"}, "id < 10")
        assert rows_of(warehouse, "few", "id", "v") == [
            (n, "b" if n < 10 else "a") for n in range(100)
        ]
        assert not leftovers(Path(warehouse.path))


@pytest.mark.slow
class TestStatements:
    def test_P12_P15_every_statement_runs_on_executors(self, warehouse: Warehouse) -> None:
        spark = warehouse.spark
        warehouse.sql(
            "CREATE TABLE s (id bigint, v string, d decimal(12,2)) PARTITIONED BY (p int)"
        )
        source = spark.range(0, 4000, 1, 4).selectExpr(
            "id", "concat('v', id) v", "cast(id AS decimal(12,2)) d", "cast(id % 3 AS int) p"
        )
        table = warehouse.table("s")
        table.insert(source)
        expected = {n: (n, f"v{n}", n % 3) for n in range(4000)}
        table.update({"v": "'u'"}, "id % 10 = 1")
        expected |= {n: (n, "u", n % 3) for n in range(1, 4000, 10)}
        table.delete("id % 7 = 2")
        expected = {n: row for n, row in expected.items() if n % 7 != 2}
        table.merge(
            spark.range(3990, 4010).selectExpr(
                "id", "'m' v", "cast(0 AS decimal(12,2)) d", "cast(id % 3 AS int) p"
            ),
            "t.id = s.id",
            when_matched_update={"v": "s.v"},
            when_not_matched_insert="*",
        )
        expected |= {n: (n, "m", n % 3) for n in range(3990, 4010)}
        assert rows_of(warehouse, "s", "id", "v", "p") == sorted(expected.values())
        for kind in ("minor", "major"):
            assert table.compact(kind)
            warehouse.release()
            assert not [done.error for done in cleaner.run(warehouse.metastore) if done.error]
            assert rows_of(warehouse, "s", "id", "v", "p") == sorted(expected.values())
        table.overwrite(source.filter("p = 1").limit(5), "p=1")
        assert len(rows_of(warehouse, "s", "id")) == 5 + sum(
            row[2] != 1 for row in expected.values()
        )
        assert not leftovers(Path(warehouse.path))


@pytest.mark.slow
class TestDriver:
    def test_P12_no_rows_pass_through_the_driver(
        self, warehouse: Warehouse, cluster: LocalCluster
    ) -> None:
        """Counted are the bytes of this process and of its JVM, which runs no task here."""
        until(lambda: executors(cluster) == 2, 60, 0.2)
        spark = warehouse.spark
        assert spark._jvm is not None
        jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
        for name in ("warm", "warmer"):  # executors have fetched our code, and load no classes
            driver_bytes.bytes_of_statements(warehouse, name, 10_000, jvm)
        few = driver_bytes.bytes_of_statements(warehouse, "few", 10_000, jvm)
        many = driver_bytes.bytes_of_statements(warehouse, "many", 2_000_000, jvm)
        driver_bytes.require_constant(few, many)
        with driver_bytes.counting(jvm) as moved:
            driver_bytes.rows(spark, 100_000).toArrow()
        # The test can fail: rows that pass are counted here, in the JVM and between the two.
        assert moved.total >= 2 * 2_400_000


@pytest.mark.slow
class TestDeaths:
    """P19, P21: an executor is killed while it works; each test kills one."""

    def test_P19_an_executor_dies_while_it_writes(
        self, warehouse: Warehouse, cluster: LocalCluster, home: Path
    ) -> None:
        warehouse.sql("CREATE TABLE w (id bigint, v string) PARTITIONED BY (p int)")
        until(lambda: executors(cluster) == 2, 60, 0.2)
        rows = warehouse.spark.range(0, 2_000_000, 1, 8).selectExpr(
            "id", "sha2(cast(id AS string), 256) v", "cast(id % 7 AS int) p"
        )
        with executor_dies(cluster, any_file(home, "_tmp_*/*/*")) as died:
            warehouse.table("w").insert(rows)
        assert died.is_set()
        found = warehouse.table("w").read().selectExpr("count(*)", "count(DISTINCT id)").collect()
        assert tuple(found[0]) == (2_000_000, 2_000_000)
        assert warehouse.table("w").count() == 2_000_000

    def test_P19_a_stage_whose_shuffle_files_are_lost_runs_again(
        self, warehouse: Warehouse, cluster: LocalCluster, home: Path
    ) -> None:
        """Some of the tasks that write have ended; the others lack what dead tasks gave them."""
        warehouse.sql("CREATE TABLE f (id bigint, v string)")
        until(lambda: registered(warehouse.spark) == 2, 60, 0.2)

        def for_a_while(batches: Iterator[Any]) -> Iterator[Any]:
            import time

            time.sleep(0.2)
            yield from batches

        # Each executor gets some of these tasks, and starts its Python.
        warehouse.spark.range(0, 16, 1, 16).mapInArrow(for_a_while, "id bigint").collect()
        rows = (
            warehouse.spark.range(0, 2_000_000, 1, 8)
            .selectExpr("id", "sha2(cast(id AS string), 256) v")
            .repartition(8, "id")
        )
        before = runs_of_stages(warehouse.spark)
        with executor_dies(cluster, any_file(home, "_tmp_*/*/*")) as died:
            warehouse.table("f").insert(rows)
        assert died.is_set()
        after = runs_of_stages(warehouse.spark)
        again = [stage for stage, runs in after.items() if stage not in before and runs > 1]
        assert len(again) >= 2, f"those before and after the shuffle: {after}"
        found = warehouse.table("f").read().selectExpr("count(*)", "count(DISTINCT id)").collect()
        assert tuple(found[0]) == (2_000_000, 2_000_000)
        assert warehouse.table("f").count() == 2_000_000

    def test_P21_an_executor_dies_while_it_compacts(
        self, warehouse: Warehouse, cluster: LocalCluster, home: Path
    ) -> None:
        warehouse.sql("CREATE TABLE c (id bigint, v string) CLUSTERED BY (id) INTO 4 BUCKETS")
        table = warehouse.table("c")
        for part in range(3):
            start = part * 400_000
            table.insert(
                warehouse.spark.range(start, start + 400_000, 1, 4).selectExpr(
                    "id", "sha2(cast(id AS string), 256) v"
                )
            )
        table.delete("id % 5 = 3")
        before = table.read().selectExpr("count(*)", "sum(id)", "sum(hash(v))").collect()
        until(lambda: executors(cluster) == 2, 60, 0.2)
        with executor_dies(cluster, any_file(home, "*_attempts/*")) as died:
            assert table.compact("major")
        assert died.is_set()
        assert table.read().selectExpr("count(*)", "sum(id)", "sum(hash(v))").collect() == before
        assert table.count() == before[0][0]
        warehouse.release()
        assert not [done.error for done in cleaner.run(warehouse.metastore) if done.error]
        assert not leftovers(home)

    def test_P12_an_executor_dies_while_it_reads(
        self, warehouse: Warehouse, cluster: LocalCluster
    ) -> None:
        warehouse.sql("CREATE TABLE r (id bigint, v string)")
        table = warehouse.table("r")
        table.insert(
            warehouse.spark.range(0, 3_000_000, 1, 6).selectExpr(
                "id", "sha2(cast(id AS string), 256) v"
            )
        )
        table.delete("id % 4 = 1")
        until(lambda: executors(cluster) == 2, 60, 0.2)
        began = time.monotonic()
        with executor_dies(cluster, lambda: time.monotonic() > began + 0.7) as died:
            (found,) = (
                table.read()
                .selectExpr("id", "sha2(v, 512) h")
                .groupBy("h")
                .count()
                .selectExpr("count(*)", "sum(count)")
                .collect()
            )
        assert died.is_set()
        assert tuple(found) == (2_250_000, 2_250_000)

    def test_P19_two_attempts_of_a_task_are_alive_at_once(
        self, warehouse: Warehouse, cluster: LocalCluster
    ) -> None:
        """One task is much slower than the others, so that Spark starts it a second time."""
        until(lambda: executors(cluster) == 2, 60, 0.2)
        warehouse.sql("CREATE TABLE a (id bigint, host string)")

        def slowly(batches: Iterator[Any]) -> Iterator[Any]:
            import time

            from pyspark import TaskContext

            context = TaskContext.get()
            for batch in batches:
                if context.partitionId() == 3 and context.attemptNumber() == 0:
                    time.sleep(4)
                yield batch

        rows = (
            warehouse.spark.range(0, 4000, 1, 4)
            .selectExpr("id", "'x' host")
            .mapInArrow(slowly, "id bigint, host string")
        )
        warehouse.table("a").insert(rows)
        assert [row[0] for row in rows_of(warehouse, "a", "id")] == list(range(4000))
