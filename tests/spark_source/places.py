"""Warehouses for tests of the data source, and what plain Spark code says to reach them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acid_platform import Warehouse
from acid_platform.base.location import Location
from acid_platform.spark_source import keeper
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = {"acid.history.retention": "1h"}


@dataclass(frozen=True, slots=True)
class Place:
    """A warehouse, and a directory for checkpoints."""

    warehouse: Warehouse
    directory: Path

    @property
    def location(self) -> Location:
        return Location.of(self.warehouse.path)

    @property
    def options(self) -> dict[str, str]:
        return {"warehouse": self.warehouse.path}

    def load(self, spark: SparkSession, table: str, **options: str) -> DataFrame:
        return spark.read.format("acid").options(**self.options, **options).load(table)

    def save(self, frame: DataFrame, table: str, mode: str = "append", **options: str) -> None:
        frame.write.format("acid").options(**self.options, **options).mode(mode).save(table)

    def stream(self, spark: SparkSession, table: str, **options: str) -> DataFrame:
        return spark.readStream.format("acid").options(**self.options, **options).load(table)

    def sink(self, frame: DataFrame, table: str, checkpoint: str = "c", **options: str) -> None:
        """Runs a query until it has read what is there."""
        query = (
            frame.writeStream.format("acid")
            .options(**self.options, **options)
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True)
            .start(table)
        )
        query.awaitTermination()

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows by the Arrow reader, sorted."""
        found = self.warehouse.table(table).to_arrow(list(columns) or None).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def open_transactions(self) -> list[dict[str, Any]]:
        return [row for row in self.warehouse.metastore.transactions() if row["state"] == "OPEN"]


@contextmanager
def place(path: Path, spark: SparkSession | None = None) -> Iterator[Place]:
    """A new warehouse; at the end its keepers forget what they keep, since it is over."""
    with temporary_warehouse(path / "wh", spark=spark, engine="local") as warehouse:
        made = Place(warehouse, path)
        try:
            yield made
        finally:
            forget(made.location)


def forget(location: Location) -> None:
    """Removes what keepers of any application keep of a warehouse."""
    above = Path(tempfile.gettempdir())
    for file in above.glob(f"acid-keeper-*/*-{keeper.name_of(location)}/[0-9]*"):
        file.unlink(missing_ok=True)
