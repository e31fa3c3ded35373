"""Which engines say that a statement has written all its files, and a commit without that (P47).

Trino cleans up after each statement with a commit, also after one that failed, unless its rollback
came first. The files of such a statement are complete one by one, but not all of them are there.
Before the commit of a statement that succeeded, it always says so: with the table's new state or
with the partitions that it filled, each with the write id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from acid_platform.errors import WriteConflict
from acid_platform.metastore.records import LockRequest, TouchedTable
from acid_platform.transactions import Operation

_QUERY_OF_TRINO = re.compile(r"\d{8}_\d{6}_\d{5}_[a-z0-9]{5}", re.ASCII)


def says_when_written(request: Any, locks: Iterable[LockRequest]) -> bool:
    """Whether the lock request is of a writing statement of Trino, by the name of its query."""
    named = _QUERY_OF_TRINO.fullmatch(request.agentInfo or "")
    return bool(named) and any(lock.operation is not Operation.SELECT for lock in locks)


def require_finished(touched: TouchedTable) -> None:
    """Raises WriteConflict for files of a statement whose engine did not say that it is done."""
    if touched.unfinished:
        raise WriteConflict(
            f"{touched.table}: the statement failed before all its files were written; run it again"
        )
