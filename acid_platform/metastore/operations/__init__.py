"""All operations of the metastore. Client and server share the declaration of each.

To add an operation, declare it here and write its handler in the rules.
"""

from acid_platform.metastore.operations import (
    compaction,
    foreign_transactions,
    history,
    shows,
    tables,
    transactions,
)

__all__ = ["compaction", "foreign_transactions", "history", "shows", "tables", "transactions"]
