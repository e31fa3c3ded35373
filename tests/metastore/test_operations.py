"""Declarations of operations and events are complete, and mean the same to all who use them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

import pytest

from acid_platform.metastore.operations import OPERATIONS, Operation, answer_type
from acid_platform.metastore.rules import machine
from acid_platform.metastore.rules.events import EVENTS, Recorded
from acid_platform.metastore.server import file_operations, server

HANDLERS = (machine.HANDLERS, file_operations.HANDLERS, server.HANDLERS)
LINES = [
    json.loads(line) for line in Path(__file__).with_name("journal.jsonl").read_text().splitlines()
]
"""Events as version 0.9 journaled them, some of them as still older versions did."""


def test_each_operation_has_one_handler_and_each_handler_its_operation() -> None:
    handled = [kind for handlers in HANDLERS for kind in handlers]
    assert len(handled) == len(set(handled))
    assert set(handled) == set(OPERATIONS.values())
    assert all(kind.op == op for op, kind in OPERATIONS.items())


@pytest.mark.parametrize("kind", OPERATIONS.values(), ids=lambda kind: kind.op)
def test_a_handler_takes_and_answers_what_its_operation_declares(
    kind: type[Operation[Any]],
) -> None:
    handler = next(handlers[kind] for handlers in HANDLERS if kind in handlers)
    whole = machine.EXPAND.get(kind)
    assert (whole is None) == (kind.kept is None)
    hints = get_type_hints(handler, localns={"GroupCommit": object})
    assert hints["operation"] is kind
    answers = answer_type(kind)
    assert hints["return"] == (kind.kept or answers)
    if whole is not None:
        assert get_type_hints(whole)["return"] == answers
        assert issubclass(kind.kept or NoneType, get_type_hints(whole)["ticket"])


def test_what_reads_may_be_sent_again_and_what_expands_may_not() -> None:
    for kind in OPERATIONS.values():
        assert kind.repeatable or not kind.reads
        assert not (kind.kept and kind.repeatable)


def test_an_operation_that_reads_is_decided_by_the_rules() -> None:
    """It is answered between two rounds, where the file must not be touched."""
    assert {kind for kind in OPERATIONS.values() if kind.reads} <= set(machine.HANDLERS)


def test_each_event_has_one_effect_which_takes_it() -> None:
    assert set(machine.APPLY) == set(EVENTS.values())
    for kind, effect in machine.APPLY.items():
        assert get_type_hints(effect)["event"] is kind


def test_the_journal_of_earlier_versions_is_read() -> None:
    assert {kind for kind, _, _ in LINES} == set(EVENTS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line[0]}-{line[1]}")
def test_an_event_is_journaled_as_ever(line: list[Any]) -> None:
    """Fields that older journals lack are added with their defaults."""
    kind, at, body = line
    recorded = Recorded.parse(kind, at, body)
    written = json.loads(json.dumps(recorded.as_json()))
    assert written[:2] == [kind, at]
    assert Recorded.parse(*written) == recorded
    if at >= 0:  # of this version's predecessor, which wrote every field
        assert written[2] == body
    assert all(hasattr(recorded.event, field.name) for field in fields(type(recorded.event)))  # type: ignore[arg-type]
