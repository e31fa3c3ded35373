"""The metastore's client over a state machine in this process: no socket, no file, no waiting."""

from __future__ import annotations

import json
from typing import TypeVar

from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import MetastoreOperation, encode, read_answer
from tests.metastore.world import World

A = TypeVar("A")


class LocalLink:
    """Hands each call to the world's machine, through JSON as on the wire."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[str] = []

    def call(self, operation: MetastoreOperation[A]) -> A:
        self.calls.append(operation.op)
        args = json.loads(json.dumps(encode(operation)))
        answer = json.loads(json.dumps(self.world.call(operation.op, **args)))
        return read_answer(type(operation), answer)

    def close(self) -> None:
        """Does nothing: there is no connection."""


def local_metastore(world: World) -> Metastore:
    return Metastore(LocalLink(world))  # type: ignore[arg-type]
