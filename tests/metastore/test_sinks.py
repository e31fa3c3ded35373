"""How far streaming queries have written tables (P42)."""

from __future__ import annotations

import pytest

from acid_platform import (
    AcidError,
    BatchCommitted,
    InvalidDefinition,
    NoSuchPast,
    StreamRefused,
)
from acid_platform.metastore.messages import encode
from acid_platform.metastore.pasts import SinkBatch
from tests.metastore.world import INSERT, World


def put(world: World, batch: SinkBatch) -> int:
    """Commits a batch with a row; returns the transaction."""
    txn = world.write("t", INSERT)
    report = world.report(txn, "t", None, INSERT)
    world.call("commit", txn=txn.id, writes=[encode(report)], sinks=[encode(batch)])
    return txn.id


def known(world: World) -> list[tuple[str, str, int]]:
    rows = world.call("sinks", table=None)["sinks"]
    return [(row["sink"]["sink"], row["sink"]["query"], row["sink"]["batch"]) for row in rows]


LAST = SinkBatch("s", "t", "q", 7, 5)


@pytest.mark.parametrize(
    ("batch", "refused"),
    [
        (SinkBatch("s", "t", "q", 8, 5), None),
        (SinkBatch("s", "t", "q", 10, 0), None),
        (SinkBatch("s", "t", "other", 8, 5), None),
        (SinkBatch("another", "t", "q", 0, 5), None),
        (SinkBatch("s", "u", "q", 0, 5), None),
        (SinkBatch("s", "t", "q", 7, 5), BatchCommitted),
        (SinkBatch("s", "t", "q", 7, 4, any_rows=True), BatchCommitted),
        (SinkBatch("s", "t", "q", 7, 4), StreamRefused),
        (SinkBatch("s", "t", "q", 6, 5), StreamRefused),
        (SinkBatch("s", "t", "q", 6, 5, any_rows=True), StreamRefused),
        (SinkBatch("s", "t", "other", 7, 5), StreamRefused),
        (SinkBatch("s", "t", "other", 0, 5), StreamRefused),
        (SinkBatch("", "t", "q", 8, 5), InvalidDefinition),
        (SinkBatch("a\nb", "t", "q", 8, 5), InvalidDefinition),
    ],
)
def test_P42_what_a_sink_takes(
    world: World, batch: SinkBatch, refused: type[AcidError] | None
) -> None:
    world.create("u")
    put(world, LAST)
    before = known(world)
    if refused is None:
        put(world, batch)
        assert (batch.sink, batch.query, batch.batch) in known(world)
        return
    with pytest.raises(refused) as told:
        put(world, batch)
    assert type(told.value) is refused
    assert known(world) == before
    assert len(world.state.written) == 1, "nothing else of it was committed"


def test_P42_a_repeated_commit_of_the_same_transaction_is_no_error(world: World) -> None:
    txn = put(world, LAST)
    assert world.call("commit", txn=txn, writes=[], sinks=[encode(LAST)])["commit_id"]


def test_P42_a_forgotten_sink_begins_again(world: World) -> None:
    put(world, LAST)
    with pytest.raises(NoSuchPast, match=r"no query writes default\.t as x; sinks: s"):
        world.call("forget_sink", table="t", sink="x")
    world.call("forget_sink", table="t", sink="s")
    assert known(world) == []
    put(world, SinkBatch("s", "t", "q", 0, 1))
    assert known(world) == [("s", "q", 0)]
