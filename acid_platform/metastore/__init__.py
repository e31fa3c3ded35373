"""The metastore: transactions, write ids, locks and declarations, kept by one process in a log."""

from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.records import (
    ClientInfo,
    EntityDirectory,
    HistoryRow,
    Holder,
    LockRequest,
    PartitionRecord,
    TableRecord,
    WriteReport,
)
from acid_platform.metastore.tasks import (
    BlockedCleaning,
    CleaningTask,
    CompactionTask,
    EndedCompaction,
    EntityState,
)

__all__ = [
    "BlockedCleaning",
    "CleaningTask",
    "ClientInfo",
    "CompactionTask",
    "EndedCompaction",
    "EntityDirectory",
    "EntityState",
    "HistoryRow",
    "Holder",
    "LockRequest",
    "Metastore",
    "OpenTransaction",
    "PartitionRecord",
    "TableRecord",
    "WriteReport",
]
