"""Recorded requests to erase rows: asked for, answered, kept. Who works on them is not here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acid_platform.compaction.states import ErasureState
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.records import ErasureTask
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.turn import Body, Turn


def request_erasure(turn: Turn, args: Body) -> dict[str, Any]:
    """The request's id; of the same request, as long as it is open, the one that it has.

    Raises NoSuchTable.
    """
    state = turn.state
    table = state.table(args["table"]).record.name
    for one in state.erasures.values():
        if one.state.open and (one.table, one.condition) == (table, args["condition"]):
            return {"id": one.id}
    task = ErasureTask(len(state.erasures) + 1, table, args["condition"], args["user"], turn.now)
    turn.record("erasure", erasure=encode(task))
    return {"id": task.id}


def answer_erasure(turn: Turn, args: Body) -> dict[str, Any]:
    """Raises InvalidDefinition for a request that is not there, or not open any more."""
    task = turn.state.erasures.get(args["id"])
    if task is None or not task.state.open:
        raise InvalidDefinition(
            f"erasure request {args['id']} is "
            + (task.state.value if task else "not there")
            + "; `acid show erasures` lists them"
        )
    waits_for = tuple(args["waits_for"])
    turn.record(
        "erasure",
        erasure=encode(
            replace(
                task,
                state=ErasureState(args["state"]),
                answer=args["answer"],
                answered=turn.now,
                run_id=args["run_id"],
                waits_for=waits_for,
                waits=task.waits + bool(waits_for),
            )
        ),
    )
    return {}


def erasures(turn: Turn, args: Body) -> dict[str, Any]:
    return {"erasures": [encode(one) for one in turn.state.erasures.values()]}


def _erasure(state: State, at: int, body: Body) -> None:
    task = decode(ErasureTask, body["erasure"])
    state.erasures[task.id] = task


APPLY = {"erasure": _erasure}

HANDLERS = {"request_erasure": request_erasure, "answer_erasure": answer_erasure}
READS = {"erasures": erasures}
