"""Operations that also read what memory no longer holds: outcomes, queries, history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.base import Answer, MetastoreOperation, Row

if TYPE_CHECKING:
    from acid_platform.metastore.server.group_commit import GroupCommit


def outcome(group: GroupCommit, operation: ops.GetOutcome) -> Answer | None:
    request_id = operation.request_id
    past = group.state.outcomes.get(request_id) or group.store.past_outcome(request_id)
    return None if past is None else group.machine.expand(past.op, past.reply)


def query(group: GroupCommit, operation: ops.RunQuery) -> ops.QueryResult:
    """Raises what `Store.query` raises."""
    columns, rows = group.store.query(group.state, operation.sql)
    plain = [[_plain(value) for value in row] for row in rows]
    return ops.QueryResult(columns, plain, group.now_wall, group.store.end.position)


def history(group: GroupCommit, operation: ops.GetHistory) -> list[Row]:
    """Raises NoSuchTable."""
    return group.store.history(group.state, group.state.table(operation.name).record.table_id)


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.GetOutcome: outcome,
    ops.RunQuery: query,
    ops.GetHistory: history,
}


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | None) else str(value)
