"""Refuses the commit of a statement of Trino that failed half way (P47).

Trino cleans up after each statement with a commit, also after one that failed, unless its rollback
came first. Each file of such a statement is complete, but some are missing. Before it commits a
statement that succeeded, Trino always sends the write id with the altered table or with the
partitions that were filled; only then are all files written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from acid_platform.errors import WriteConflict
from acid_platform.metastore.records import LockRequest, TouchedTable
from acid_platform.transactions import RowOperation

_QUERY_OF_TRINO = re.compile(r"\d{8}_\d{6}_\d{5}_[a-z0-9]{5}", re.ASCII)


def says_when_written(request: Any, locks: Iterable[LockRequest]) -> bool:
    """Whether a writing statement of Trino asks for the locks, going by its query id."""
    from_trino = _QUERY_OF_TRINO.fullmatch(request.agentInfo or "") is not None
    return from_trino and any(lock.operation is not RowOperation.SELECT for lock in locks)


def require_finished(touched: TouchedTable) -> None:
    """Raises WriteConflict for files of a statement whose engine did not say that it is done."""
    if touched.unfinished:
        raise WriteConflict(
            f"{touched.table}: the statement failed before all its files were written (Trino did"
            " not send its write id before the commit); run it again"
        )
