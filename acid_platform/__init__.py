"""Hive ACID tables: a metastore keeps the transactions, Spark and a local engine run them.

`from acid_platform import Warehouse, WriteConflict`: the handles, the lists of ids in Hive's form,
and every error are names of this package. In a notebook `%load_ext acid_platform` gives `%%acid`.
Names are loaded at first use, since Spark tasks import this package too and need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acid_platform.base import former_modules

if TYPE_CHECKING:
    from acid_platform.engine.merge_clauses import MergeAction, MergeClause
    from acid_platform.errors import *  # noqa: F403
    from acid_platform.handles.folder_source import FolderSource
    from acid_platform.handles.import_sources import DuckDBSource, PostgresSource
    from acid_platform.handles.imports import ImportRows
    from acid_platform.handles.lake_sources import DeltaSource, IcebergSource
    from acid_platform.handles.read_verbs import Snapshot
    from acid_platform.handles.table import Table
    from acid_platform.handles.transaction import Transaction
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.layout.types import Constraint
    from acid_platform.transactions import ValidTxnList, ValidWriteIdList
    from acid_platform.values.coercion import ValuesCoerced

__version__ = "0.1.0"
"""The package's version, also without installing it; pyproject.toml reads it from here."""

__all__ = [
    "Constraint",
    "DeltaSource",
    "DuckDBSource",
    "FolderSource",
    "IcebergSource",
    "ImportRows",
    "MergeAction",
    "MergeClause",
    "PostgresSource",
    "Snapshot",
    "Table",
    "Transaction",
    "ValidTxnList",
    "ValidWriteIdList",
    "ValuesCoerced",
    "Warehouse",
]

_MODULES = {
    "Constraint": "layout.types",
    "DeltaSource": "handles.lake_sources",
    "DuckDBSource": "handles.import_sources",
    "FolderSource": "handles.folder_source",
    "IcebergSource": "handles.lake_sources",
    "ImportRows": "handles.imports",
    "MergeAction": "engine.merge_clauses",
    "MergeClause": "engine.merge_clauses",
    "PostgresSource": "handles.import_sources",
    "Snapshot": "handles.read_verbs",
    "Table": "handles.table",
    "Transaction": "handles.transaction",
    "ValidTxnList": "transactions",
    "ValidWriteIdList": "transactions",
    "ValuesCoerced": "values.coercion",
    "Warehouse": "handles.warehouse",
    "load_ipython_extension": "sql.answers",
}


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        module = import_module(f"acid_platform.{_MODULES.get(name, 'errors')}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'acid_platform' has no attribute {name!r}")


former_modules.install()
