"""Recorded requests to erase rows and their answers. Nothing here erases anything."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.errors import InvalidDefinition
from acid_platform.metastore import operations as ops
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.tasks import ErasureTask


@handles(ops.RequestErasure)
def request_erasure(turn: Turn, operation: ops.RequestErasure) -> int:
    """An equal request that is still open keeps its id. Raises NoSuchTable."""
    state = turn.state
    table = state.table(operation.table).record.name
    for erasure in state.erasures.values():
        if erasure.state.open and (erasure.table, erasure.condition) == (
            table,
            operation.condition,
        ):
            return erasure.id
    task = ErasureTask(
        len(state.erasures) + 1, table, operation.condition, operation.user, turn.now
    )
    turn.record(ErasureRecorded(task))
    return task.id


@handles(ops.AnswerErasure)
def answer_erasure(turn: Turn, operation: ops.AnswerErasure) -> None:
    """Raises InvalidDefinition for a request that is unknown or no longer open."""
    task = turn.state.erasures.get(operation.id)
    if task is None or not task.state.open:
        raise InvalidDefinition(
            f"erasure request {operation.id} is "
            + (task.state.value if task else "not there")
            + "; `acid show erasures` lists them"
        )
    turn.record(
        ErasureRecorded(
            replace(
                task,
                state=operation.state,
                answer=operation.answer,
                answered=turn.now,
                run_id=operation.run_id,
                waits_for=operation.waits_for,
                waits=task.waits + bool(operation.waits_for),
            )
        )
    )


@handles(ops.GetErasures)
def erasures(turn: Turn, _operation: ops.GetErasures) -> list[ErasureTask]:
    return list(turn.state.erasures.values())


class ErasureRecorded(Event, kind="erasure"):
    erasure: ErasureTask

    def apply(self, state: State, _at: int) -> None:
        state.erasures[self.erasure.id] = self.erasure
