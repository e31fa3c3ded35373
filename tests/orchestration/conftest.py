"""A warehouse and a Dagster instance for one test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from acid_platform import Warehouse
from acid_platform.metastore.operations.compaction import TakeCompaction
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.orchestration import AcidIOManager, SparkResource, WarehouseResource
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.conftest import temporary_warehouse
from tests.contents import counts


@dataclass(frozen=True, slots=True)
class Place:
    """What a run or a tick needs, without a JVM."""

    warehouse: Warehouse
    resource: WarehouseResource
    instance: dg.DagsterInstance

    def context(self) -> dg.SensorEvaluationContext:
        return dg.build_sensor_context(
            instance=self.instance, resources={"warehouse": self.resource}
        )

    def table(self, name: str = "db.t", threshold: int = 2) -> None:
        self.warehouse.create_table(
            name,
            "id int",
            properties={"compactorthreshold.hive.compactor.delta.num.threshold": str(threshold)},
        )

    def write(self, name: str = "db.t", times: int = 1) -> None:
        """Committed deltas as a writer reports them, with a directory but no rows in files."""
        metastore = self.warehouse.metastore
        for _ in range(times):
            with metastore.begin() as txn:
                txn.lock([LockRequest(name, LockType.SHARED_WRITE, RowOperation.INSERT)])
                number = txn.write_ids[name]
                directory = f"delta_{number:07}_{number:07}_0000"
                self._directory(name, directory)
                txn.commit(
                    CommitContents(
                        (WriteReport(name, None, RowOperation.INSERT, directory, counts(5, 100)),)
                    )
                )

    def compacted(self, name: str = "db.t") -> str:
        """Queues a compaction, runs a Worker, and returns the base directory."""
        metastore = self.warehouse.metastore
        task = metastore.call(TakeCompaction("host-1", table=name))
        assert task
        txn = metastore.begin_compaction(task, "host-1")
        base = f"base_{txn.compactor_list.high_watermark:07}_v{txn.id:07}"
        self._directory(name, base)
        txn.commit_compaction(
            [WriteReport(name, None, RowOperation.COMPACT, base, counts(15, 200))]
        )
        return base

    def directories(self, name: str = "db.t") -> list[str]:
        root = Path(self.warehouse.table(name).location)
        return sorted(path.name for path in root.iterdir() if path.is_dir())

    def _directory(self, table: str, name: str) -> None:
        where = Path(self.warehouse.table(table).location, name)
        where.mkdir(parents=True)
        (where / "bucket_00000").write_bytes(b"not read by these tests")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with (
        temporary_warehouse(tmp_path / "wh") as warehouse,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        yield Place(warehouse, WarehouseResource(path=str(tmp_path / "wh")), instance)


def run(
    place: Place,
    *assets: Any,
    engine: str | None = None,
    settings: Mapping[str, Any] = {},
    **arguments: Any,
) -> dg.ExecuteInProcessResult:
    """Materializes the assets, by the engine that the warehouse chooses if none is named.

    `settings` are those of the IO manager.
    """
    warehouse = WarehouseResource(path=place.resource.path, engine=engine)
    resources = {
        "warehouse": warehouse,
        "spark": SparkResource(),
        "io_manager": AcidIOManager(warehouse=warehouse, **settings),
    }
    return dg.materialize(
        list(assets),
        instance=place.instance,
        run_config=quiet(),
        raise_on_error=False,
        resources=resources,
        **arguments,
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    """The error of the step that failed, with its cause, else of the run."""
    for event in result.all_events:
        if event.is_step_failure and (error := event.step_failure_data.error):
            return f"{error.message} {error.cause.message if error.cause else ''}"
    return "\n".join(str(event) for event in result.all_events if event.is_failure)


def succeeded(result: dg.ExecuteInProcessResult) -> bool:
    assert result.success, failure(result)
    return True


def stored(place: Place, table: str) -> list[tuple[Any, ...]]:
    """The rows of the table, sorted."""
    rows = place.warehouse.table(table).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def quiet(**ops: Any) -> dict[str, Any]:
    """Run config that keeps Dagster's log out of the test's output."""
    return {
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        **({"ops": ops} if ops else {}),
    }
