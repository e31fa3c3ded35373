"""All operations of the metastore. Client and server share the declaration of each.

To add an operation, declare it here and write its handler in the rules.
"""

from __future__ import annotations

from acid_platform.metastore.operations import (
    compaction,
    foreign_transactions,
    history,
    shows,
    tables,
    transactions,
)
from acid_platform.metastore.operations.base import (
    OPERATIONS,
    Answer,
    Locking,
    MetastoreOperation,
    Row,
    Values,
    answer_type,
    arguments,
    read_answer,
    read_operation,
    write_answer,
)

__all__ = [
    "OPERATIONS",
    "Answer",
    "Locking",
    "MetastoreOperation",
    "Row",
    "Values",
    "answer_type",
    "arguments",
    "compaction",
    "foreign_transactions",
    "history",
    "read_answer",
    "read_operation",
    "shows",
    "tables",
    "transactions",
    "write_answer",
]
