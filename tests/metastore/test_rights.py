"""Every operation of the metastore: nobody without the key, and nothing of another type.

docs/internal/rights.md is printed from the same list: an operation needs a line and a test.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from acid_platform.metastore import endpoint, wire
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import OPERATIONS, read_operation
from tests.fuzzing import sample
from tests.metastore.test_transport import KEY, Service, ended

WRONG: tuple[Any, ...] = (None, True, 1, 1.5, "x", "\ud800", [[[]]], {"x": {"y": []}}, 2**63)
"""Values of which each field takes at most some."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("rights") / "metastore")
    yield made
    made.process.terminate()
    assert made.process.wait(30) == 0


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint.KEY, KEY)


def _fits(kind: Any, args: dict[str, Any]) -> bool:
    """Whether an operation takes the arguments: read here as there."""
    try:
        read_operation(kind.op, json.loads(json.dumps(args)))
    except Exception:
        return False
    return True


@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_an_operation(service: Service, op: str) -> None:
    kind, dice = OPERATIONS[op], random.Random(op)
    hints = get_type_hints(kind)
    args = {one.name: sample(hints[one.name], dice) for one in fields(kind)}  # type: ignore[arg-type]
    frame = wire.frame(json.dumps({"id": "1", "op": op, "args": args}).encode())
    with address_of(service) as stranger:  # without the key there is no answer
        stranger.sendall(frame)
        assert ended(stranger)
    with Metastore.connect(service.uri) as client:
        before = client.status()
        channel = wire.dial_tcp("127.0.0.1", service.port, KEY.encode())
        number = 0
        for name in args:
            for value in WRONG:
                wrong = {**args, name: value}
                if _fits(kind, wrong):
                    continue
                number += 1
                message = {"id": f"{op}{number}", "op": op, "args": wrong}
                try:
                    answer = json.loads(channel.exchange(json.dumps(message).encode(), 10))
                except EOFError:  # half a character: the message itself is refused
                    channel = wire.dial_tcp("127.0.0.1", service.port, KEY.encode())
                    continue
                assert "error" in answer, (name, value, answer)
        channel.close()
        after = client.status()
    for kept in ("pid", "epoch", "tables", "last_txn", "events", "open"):
        assert before[kept] == after[kept], kept


def address_of(service: Service) -> Any:
    import socket

    return socket.create_connection(("127.0.0.1", service.port), 15)


@pytest.mark.more
def test_nothing_of_it_reaches_the_files(service: Service, tmp_path: Path) -> None:
    """Every value that the state holds was checked when it came, so a snapshot always succeeds."""
    with Metastore.connect(service.uri) as client:
        assert client.status()["failed_snapshots"] == 0
        assert client.status()["failed_writes"] == 0
