"""Dagster ops, jobs, sensors and checks, and what the assets of a project import."""

from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.orchestration.check_results import Finding
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.decorators import acid_asset, acid_multi_asset
from acid_platform.orchestration.evaluation import evaluate, evaluate_profile, table_checks
from acid_platform.orchestration.history import History
from acid_platform.orchestration.inputs import TableInput
from acid_platform.orchestration.io_manager import AcidIOManager
from acid_platform.orchestration.metadata import TableDeclaration, asset_key
from acid_platform.orchestration.outputs import AcidOut
from acid_platform.orchestration.resources import SparkResource, WarehouseResource, load_defs
from acid_platform.orchestration.sensors import change_sensor, upstream_changed
from acid_platform.orchestration.service_definitions import services

__all__ = [
    "AcidIOManager",
    "AcidOut",
    "Expectation",
    "Finding",
    "History",
    "SparkResource",
    "TableDeclaration",
    "TableInput",
    "Transaction",
    "TransactionTable",
    "WarehouseResource",
    "acid_asset",
    "acid_multi_asset",
    "asset_key",
    "change_sensor",
    "evaluate",
    "evaluate_profile",
    "load_defs",
    "services",
    "table_checks",
    "upstream_changed",
]
