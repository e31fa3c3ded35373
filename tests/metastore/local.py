"""The metastore's client over a state machine in this process: no socket, no file, no waiting."""

from __future__ import annotations

import json
from typing import Any

from acid_platform.metastore import Metastore
from tests.metastore.world import World


class LocalLink:
    """Hands each call to the world's machine, through JSON as on the wire."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[str] = []

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        self.calls.append(op)
        answer: dict[str, Any] = json.loads(
            json.dumps(self.world.call(op, **json.loads(json.dumps(args))))
        )
        return answer

    def close(self) -> None:
        """There is nothing to close."""


def local_metastore(world: World) -> Metastore:
    return Metastore(LocalLink(world))  # type: ignore[arg-type]
