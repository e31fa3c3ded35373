"""Recorded erasure requests: equal requests share an id, are answered, and survive a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition, NoSuchTable
from acid_platform.compaction.states import ErasureState
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import (
    AnswerErasure,
    ErasureTask,
    GetErasures,
    RequestErasure,
)
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server.stored_kinds import live_rows, restore
from tests.declared import declare
from tests.metastore.processes import end

WAITING, ERASED, WITHDRAWN = (ErasureState.WAITING, ErasureState.ERASED, ErasureState.WITHDRAWN)


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore.connect(tmp_path) as connected:
        declare(connected, "t", str(tmp_path / "t"), [("id", "int")])
        yield connected
        connected.stop()


@pytest.mark.more
def test_an_equal_request_keeps_its_id_while_it_is_open(metastore: Metastore) -> None:
    first = metastore.call(RequestErasure("T", "id = 1", "ann"))
    assert metastore.call(RequestErasure("default.t", "id = 1", "bob")) == first == 1
    assert metastore.call(RequestErasure("t", "id = 2", "")) == 2
    metastore.call(AnswerErasure(first, WAITING, "a reader has it", tuple(sorted([7, 5])), "run"))
    assert metastore.call(RequestErasure("t", "id = 1", "")) == first
    metastore.call(AnswerErasure(first, ERASED, "gone", (), ""))
    assert (
        metastore.call(RequestErasure("t", "id = 1", "")) == 3
    )  # such rows may have been inserted again
    [one, *_] = metastore.call(GetErasures())
    assert (one.table, one.user, one.state, one.answer, one.waits_for, one.waits) == (
        "default.t",
        "ann",
        ERASED,
        "gone",
        (),
        1,
    )
    assert one.answered >= one.requested > 0


@pytest.mark.more
def test_a_settled_request_stays_settled(metastore: Metastore) -> None:
    number = metastore.call(RequestErasure("t", "id = 1", ""))
    metastore.call(AnswerErasure(number, WITHDRAWN, "the wrong person", (), ""))
    with pytest.raises(InvalidDefinition, match="request 1 is withdrawn"):
        metastore.call(AnswerErasure(number, ERASED, "gone", (), ""))
    with pytest.raises(InvalidDefinition, match="request 9 is not there"):
        metastore.call(AnswerErasure(9, ERASED, "gone", (), ""))
    with pytest.raises(NoSuchTable):
        metastore.call(RequestErasure("nope", "id = 1", ""))


@pytest.mark.more
def test_P3_a_request_is_kept_when_the_metastore_ends(tmp_path: Path) -> None:
    with Metastore.connect(tmp_path) as metastore:
        declare(metastore, "t", str(tmp_path / "t"), [("id", "int")])
        metastore.call(RequestErasure("t", "id = 1", "ann"))
        end(metastore)
        [kept] = metastore.call(GetErasures())
        metastore.stop()
    assert (kept.condition, kept.user, kept.state) == ("id = 1", "ann", ErasureState.REQUESTED)


def test_P8_requests_are_part_of_the_state_that_a_snapshot_keeps() -> None:
    machine = Machine()
    task = ErasureTask(1, "db.t", "id = 1", "ann", 5, WAITING, "held", 6, "run", (3, 4), 2)
    machine.state.erasures[1] = task
    assert restore(live_rows(machine.state), {}).erasures == {1: task}
