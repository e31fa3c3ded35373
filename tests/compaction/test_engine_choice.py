"""Which engine executes a compaction; small ones need no JVM, however many there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acid_platform import AcidError, CompactionRefused, NeedsSpark, Warehouse
from acid_platform.cli.runner import Runner
from acid_platform.compaction.plan import CompactionSettings
from acid_platform.engine.choice import choose
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.table_properties import LOCAL_COMPACTION_BYTES
from acid_platform.layout.types import Column, parse_columns
from acid_platform.services.worker import CompactionRun, work_once
from tests.compaction.test_kills import made, rows
from tests.conftest import a_warehouse

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class SomeEngines:
    """The engines of a warehouse; `started` says whether Spark was asked for."""

    preferred_here: str
    cluster: bool = False
    started: bool = False

    def on_cluster(self) -> bool:
        return self.cluster

    @property
    def spark(self) -> SomeEngines:
        self.started = True
        return self


LIMITED = CompactionSettings(local_bytes=1000)


@dataclass
class SomePlan:
    input_bytes: int
    location: str = "/t"
    txn_id: int = 1
    settings: CompactionSettings = LIMITED


@dataclass
class SomeCompaction:
    plan: SomePlan
    format: FileFormat = ACID_FORMAT
    columns: tuple[Column, ...] = parse_columns("t timestamp")


KEYED = ACID_FORMAT
ORC, PARQUET, AVRO = map(FileFormat, ("orc", "parquet", "avro"))
TIMES = "only Spark copies timestamps of Parquet files"


@pytest.mark.parametrize(
    ("wanted", "size", "stored", "engine", "reason"),
    [
        ("auto", 0, KEYED, "local", "0 bytes to read"),
        ("auto", 1001, KEYED, "local", "1,001 bytes to read"),
        ("auto with a cluster", 1000, KEYED, "local", "1,000 bytes to read"),
        (
            "auto with a cluster",
            1001,
            KEYED,
            "spark",
            "1,001 bytes to read are more than acid.local.compaction.max.bytes = 1,000",
        ),
        ("auto", 1, ORC, "local", "1 bytes to read"),
        ("auto", 1, PARQUET, "spark", TIMES),
        ("auto", 1, FileFormat("csv"), "spark", "only Spark copies csv files"),
        ("spark", 1, KEYED, "spark", "engine=spark"),
        ("spark", 1, ORC, "spark", "engine=spark"),
        ("local", 1, KEYED, "local", "engine=local"),
        ("local", 10**12, KEYED, "local", "engine=local"),
        ("local", 1, ORC, "local", "engine=local"),
        ("local", 1, PARQUET, NeedsSpark, TIMES),
        ("auto", 1, AVRO, CompactionRefused, "avro files can't be compacted"),
        ("spark", 1, AVRO, CompactionRefused, "avro files can't be compacted"),
    ],
)
def test_P33_the_engine_of_a_compaction_follows_from_its_size_its_format_and_what_is_wanted(
    wanted: str,
    size: int,
    stored: FileFormat,
    engine: str | type[AcidError],
    reason: str,
) -> None:
    preference, _, cluster = wanted.partition(" ")
    given: Any = SomeEngines(preference, bool(cluster))
    compact: Any = SomeCompaction(SomePlan(size), stored)
    if isinstance(engine, str):
        chosen = choose(given, compact)
        assert (chosen.engine.name, chosen.reason) == (engine, reason)
    else:
        with pytest.raises(engine, match=reason):
            choose(given, compact)
    assert given.started == (engine == "spark"), "Spark starts only if it is chosen"


warehouse = a_warehouse(scope="function")


def test_C22_the_limit_may_be_of_the_warehouse_or_of_the_table(warehouse: Warehouse) -> None:
    """0 bytes send everything to a cluster, which is refused here before it starts."""
    warehouse.engines.on_cluster = lambda: True
    name = made(warehouse, "db.t")
    before = rows(warehouse, name)
    warehouse.metastore.request_compaction(name, None, "major")
    warehouse.metastore.set(LOCAL_COMPACTION_BYTES, "0")
    run = CompactionRun.take(warehouse)
    assert run is not None
    run.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warehouse, "spark", property(lambda _: pytest.fail("needs Spark")))
        with pytest.raises(pytest.fail.Exception, match="needs Spark"):
            run.merge()
    run.fail(NeedsSpark("not in this test"))
    warehouse.metastore.request_compaction(
        name, None, "major", properties={f"compactor.{LOCAL_COMPACTION_BYTES}": "1000000"}
    )
    outcome = work_once(warehouse)
    assert outcome is not None, outcome
    assert (outcome.state, outcome.engine) == ("published", "local")
    assert rows(warehouse, name) == before


def test_the_worker_tells_the_engine_and_why(warehouse: Warehouse) -> None:
    name = made(warehouse, "db.t")
    warehouse.metastore.request_compaction(name, None, "minor")
    told: list[dict[str, Any]] = []
    Runner(warehouse, "worker", told.append).once()
    [line] = told
    assert line["state"] == "published" and line["engine"] == "local"
    assert line["engine_reason"].endswith(" bytes to read")


FRESH = """
import json, sys, time
began = time.perf_counter()
from acid_platform.services.worker import work_once
from acid_platform import Warehouse
imported, cpu = time.perf_counter(), time.process_time()
warehouse = Warehouse.open(sys.argv[1])
states = []
while outcome := work_once(warehouse):
    states.append(outcome.state)
print(json.dumps({
    "states": states,
    "seconds": time.perf_counter() - imported,
    "cpu": time.process_time() - cpu,
    "to import": imported - began,
    "spark": sorted({"pyspark", "py4j"} & {name.partition(".")[0] for name in sys.modules}),
}))
"""


def compacted_in_a_fresh_process(warehouse: Warehouse, tables: int) -> dict[str, Any]:
    """Fills so many tables, compacts each, and asserts that their rows are as before."""
    names = [made(warehouse, f"db.t{number}") for number in range(tables)]
    before = rows(warehouse, names[0])
    assert len(before) == 8
    for number, name in enumerate(names):
        warehouse.metastore.request_compaction(name, None, ("major", "minor")[number % 2])
    done = subprocess.run(
        [sys.executable, "-c", FRESH, warehouse.path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["states"] == ["published"] * tables
    assert all(rows(warehouse, name) == before for name in names)
    return told


@pytest.mark.more
def test_small_tables_are_compacted_in_a_process_without_spark(warehouse: Warehouse) -> None:
    assert compacted_in_a_fresh_process(warehouse, 6)["spark"] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_300_small_tables_are_compacted_in_a_process_without_spark(warehouse: Warehouse) -> None:
    told = compacted_in_a_fresh_process(warehouse, 300)
    assert told["spark"] == []
    print(
        f"300 tables in {told['seconds']:.1f} s, {told['cpu'] / 0.3:.0f} ms of CPU each,"
        f" after {told['to import']:.1f} s of imports"
    )
