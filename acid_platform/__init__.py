"""Hive ACID tables with transactions in DuckDB and compaction in Spark.

`from acid_platform import Warehouse, ValidWriteIdList`; in a notebook `%load_ext acid_platform`
gives `%%acid`. Names are loaded at first use, since Spark tasks import this package too and need
none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acid_platform.transactions import ValidTxnList, ValidWriteIdList
    from acid_platform.warehouse import Warehouse

__version__ = "0.1.0"
"""The package's version, also without installing it; pyproject.toml reads it from here."""

__all__ = ["ValidTxnList", "ValidWriteIdList", "Warehouse"]


def __getattr__(name: str) -> Any:
    if name == "Warehouse":
        from acid_platform.warehouse import Warehouse

        return Warehouse
    if name in ("ValidTxnList", "ValidWriteIdList"):
        from acid_platform import transactions

        return getattr(transactions, name)
    if name == "load_ipython_extension":
        from acid_platform.sql import magic

        return magic.load_ipython_extension
    raise AttributeError(f"module 'acid_platform' has no attribute {name!r}")
