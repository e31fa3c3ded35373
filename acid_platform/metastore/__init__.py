"""Transactions, write ids and locks, kept in DuckDB by one process."""

from acid_platform.metastore.client import Metastore
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningTask,
    ClientInfo,
    CompactionTask,
    EntityDirectory,
    EntityState,
    HistoryRow,
    Holder,
    LockRequest,
    PartitionRecord,
    PastCompaction,
    TableRecord,
    WriteReport,
)
from acid_platform.metastore.transaction import Transaction

__all__ = [
    "BlockedCleaning", "CleaningTask", "ClientInfo", "CompactionTask", "EntityDirectory",
    "EntityState", "HistoryRow", "Holder", "LockRequest", "Metastore", "PartitionRecord",
    "PastCompaction", "TableRecord", "Transaction", "WriteReport",
]
