"""Operations that also read what memory no longer holds: outcomes, history."""

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


def history(group: GroupCommit, operation: ops.GetHistory) -> list[Row]:
    """Raises NoSuchTable."""
    return group.store.history(group.state, group.state.table(operation.name).record.table_id)


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.GetOutcome: outcome,
    ops.GetHistory: history,
}
