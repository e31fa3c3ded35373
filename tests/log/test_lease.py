"""A leader whose lease ended within a round answers nothing that came afterwards (P10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from acid_platform.metastore.operations.tables import GetSettings
from acid_platform.metastore.server.group_commit import Request
from acid_platform.metastore.server.server import Server


@pytest.mark.parametrize("suspended", [False, True])
def test_P10_what_arrives_after_the_lease_is_held_back(suspended: bool) -> None:
    """A process may be suspended between any two steps, and another leads then."""
    first, later = (Request(name, GetSettings()) for name in ("first", "later"))
    election, decided, sent = SimpleNamespace(may_answer=True), list[Request](), list[Any]()

    def receive(_seconds: float) -> list[Request]:
        election.may_answer = not suspended
        return [later]

    def round_of(requests: list[Request], _due: object) -> list[Any]:
        decided.extend(requests)
        return []

    server: Any = Server.__new__(Server)
    server._election, server._held = election, []
    server.reception = SimpleNamespace(receive=receive, send=sent.extend, waiting=())
    server.commits = SimpleNamespace(
        answer_reads=lambda requests: ([request.id for request in requests], []), round=round_of
    )
    server._serve([first], due=False)
    assert sent == ["first"]  # it came when nobody else led
    assert (decided, server._held) == (([], [later]) if suspended else ([later], []))
