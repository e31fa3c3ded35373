"""Gateways that tell how long their calls took, and what was said."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from acid_platform import Warehouse
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.gateway import Gateway, waited
from acid_platform.gateway.gateway_server import GatewayServer
from acid_platform.gateway.protocol import Call, Undecodable
from tests.interop.recording import Recording


class Observed(Gateway):
    """A gateway that notes the calls of each statement, and may record them."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.recording: Recording | None = None
        self.calls: list[str] = []
        self.failed: list[str] = []
        self.milliseconds: dict[str, list[float]] = {}

    def begin(self, payload: bytes, peer: Caller) -> bytes:
        with suppress(Undecodable):
            if Call.decode(payload).oneway:  # the client only says that it goes
                return waited(super().begin(payload, peer))
        if self.recording is not None:
            self.recording.heard(payload)
        began = time.perf_counter()
        answer = waited(super().begin(payload, peer))
        took = (time.perf_counter() - began) * 1000
        try:
            name = Call.decode(payload).name
        except Undecodable as error:
            self.failed.append(str(error))
            return answer
        self.calls.append(name)
        self.milliseconds.setdefault(name, []).append(took)
        if answer[3] != 2:  # an error that the call does not declare
            self.failed.append(f"{name}: {answer[8:400].decode(errors='replace')}")
        if self.recording is not None:
            self.recording.said(payload, answer)
        return answer

    def medians(self) -> dict[str, tuple[int, float]]:
        """How often each call came, and the median of its milliseconds here."""
        return {
            name: (len(values), round(statistics.median(values), 1))
            for name, values in sorted(self.milliseconds.items())
        }


@contextmanager
def serving(warehouse: Warehouse) -> Iterator[tuple[Observed, tuple[str, int]]]:
    """A gateway that answers during the block, and its address."""
    gateway = Observed(warehouse.metastore)
    server = GatewayServer(gateway, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield gateway, server.address
    finally:
        server.stop()
        thread.join()
