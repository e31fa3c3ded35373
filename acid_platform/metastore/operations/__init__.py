"""All operations of the metastore. Client and server share the declaration of each.

To add an operation, declare it here and write its handler in the rules.
"""

from acid_platform.metastore.operations import (
    compaction,
    history,
    other_engines,
    shows,
    tables,
    transactions,
)

__all__ = ["compaction", "history", "other_engines", "shows", "tables", "transactions"]
