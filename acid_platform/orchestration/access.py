"""What ops, sensors and checks need of the project's resources, whatever class provides it.

The composition root binds them to the keys `warehouse` and `spark`.
"""

from __future__ import annotations

from typing import Any, Protocol

from acid_platform.warehouse import Warehouse


class WarehouseAccess(Protocol):
    """The resource `warehouse`."""

    def open(self, run_id: str = "", spark: Any = None) -> Warehouse:
        """A handle that the caller closes; its transactions carry the run id."""
        ...


class SparkAccess(Protocol):
    """The resource `spark`."""

    @property
    def spark_session(self) -> Any:
        """The process's one SparkSession, started at first use."""
        ...
