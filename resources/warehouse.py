"""The warehouse as a Dagster resource."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from acid_platform import Warehouse

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import SparkOrStart

DEFAULT_PATH = "var/warehouse"


class WarehouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Opens the warehouse that steps, jobs and sensors use.

    Environment variables are read when the warehouse is opened, so definitions load without them.
    """

    path: str | None = Field(
        default=None,
        description=f"Directory or URI; default: ACID_WAREHOUSE, else {DEFAULT_PATH}.",
    )
    metastore: str | None = Field(
        default=None,
        description="Directory of the metastore; default: ACID_METASTORE, else inside a local"
        " warehouse.",
    )
    engine: str | None = Field(
        default=None,
        description="auto, spark or local; default: ACID_ENGINE, else auto.",
    )

    def open(self, run_id: str = "", spark: SparkOrStart = None) -> Warehouse:
        """Open a handle whose transactions and leases carry the run id; the caller closes it.

        Spark starts, or is asked of a function, only when an operation needs it. Raises
                InvalidDefinition for an unknown engine, WarehouseNotWritable, MetastoreUnavailable.
        """
        where = self.path or os.environ.get("ACID_WAREHOUSE") or DEFAULT_PATH
        return Warehouse.open(where, spark, self.metastore, run_id, engine=self.engine)
