"""The columns of the SHOW listings; an empty listing has them too."""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TRANSACTIONS = _names(
    "txnid state startedtime lastheartbeattime user host type agent run_id description reason "
    "tables"
)

LOCKS = _names(
    "lockid database table partition lock_state blocked_by lock_type transaction_id "
    "last_heartbeat acquired_at user hostname agent_info"
)

COMPACTIONS = _names(
    "compactionid dbname tabname partname type state workerhost workerid enqueuetime starttime "
    "duration hadoopjobid errormessage initiatorhost initiatorid poolname txnid nexttxnid "
    "committime highestwriteid"
)
"""The 4.x columns (C61)."""

HISTORY = _names(
    "write_id partition operation directory rows bytes files txn user run_id time engine reason"
)
"""The history of one table: a row for each committed directory."""
TAGS = ("table", "tag", "write_id", "snapshot", "created", "expires", "user")

CURSORS = ("table", "consumer", "write_id", "snapshot", "txn", "behind")
"""How far the consumers of a table's changes have come (P39)."""

SINKS = ("table", "sink", "query", "batch", "rows", "txn", "time")
"""How far streaming queries have written tables (P42)."""

RETAINED = ("table", "retention", "since", "write_id", "directories", "bytes", "tags")

TIMES = frozenset(
    _names(
        "time startedtime lastheartbeattime last_heartbeat acquired_at enqueuetime starttime "
        "committime snapshot expires since"
    )
)
"""Columns in milliseconds since 1970, as in Hive; 0 or NONE: not yet."""

DURATIONS = frozenset({"duration", "retention"})
"""Columns in milliseconds."""
