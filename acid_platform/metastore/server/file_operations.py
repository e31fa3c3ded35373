"""Operations that also read what memory no longer holds: outcomes, queries, history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.base import MetastoreOperation, Row

if TYPE_CHECKING:
    from acid_platform.metastore.server.group_commit import GroupCommit


def outcome(group: GroupCommit, operation: ops.GetOutcome) -> ops.RequestFate:
    request_id = operation.request_id
    if group.machine.waits(request_id):
        return ops.RequestFate("waiting")
    past = group.state.outcomes.get(request_id) or group.store.past_outcome(request_id)
    if past is None:
        return ops.RequestFate("unseen")
    return ops.RequestFate("done", group.machine.expand(past.op, past.reply))


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
