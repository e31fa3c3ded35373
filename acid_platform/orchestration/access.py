"""The interfaces of the resources that ops, sensors and checks use.

The definitions bind resources to the keys `warehouse` and `spark`.
"""

from __future__ import annotations

from typing import Any, Protocol

from acid_platform.handles.warehouse import Warehouse


class WarehouseAccess(Protocol):
    """The resource `warehouse`."""

    def open(self, run_id: str = "", spark: Any = None) -> Warehouse:
        """Open a handle, which the caller closes; its transactions carry the run id.

        `spark`: a session, or a function that returns it when it is needed.
        """
        ...


class SparkAccess(Protocol):
    """The resource `spark`."""

    @property
    def spark_session(self) -> Any:
        """The SparkSession of the process, started at first use."""
        ...
