"""The Dagster resources of this project."""

from resources.spark import SparkResource
from resources.warehouse import WarehouseResource

__all__ = ["SparkResource", "WarehouseResource"]
