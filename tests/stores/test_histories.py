"""Random statements, compactions and cleanings in a store that fails at random (P41).

After each step the table has exactly the rows of the steps that succeeded. In the end nothing is
left that no commit named.
"""

from __future__ import annotations

import random

import pytest

from acid_platform import AcidError, Warehouse
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.history.model import History
from tests.stores.conftest import Bucket
from tests.stores.server import Fault, StoreServer

pytestmark = pytest.mark.slow
_STEPS = 30
STEPS = ("insert", "insert", "update", "delete", "merge", "minor", "major")


def fault(dice: random.Random, server: StoreServer) -> Fault:
    times, after = dice.choice([1, 2, 5, 50]), dice.randrange(6)
    chosen = dice.choice(
        [
            Fault("SlowDown", times=times, after=after),
            Fault("InternalError", "GET|HEAD|LIST", times=times, after=after),
            Fault("lost", "PUT|DELETE.*", times=times, after=after),
            Fault("ExpiredToken", times=times, after=after),
            Fault("AccessDenied", "PUT", times=times, after=after),
            Fault("hang", "PUT|GET", times=1, after=after, seconds=5.0),
        ]
    )
    return chosen if server.gives_up_silence or chosen.error != "hang" else fault(dice, server)


@pytest.mark.parametrize("seed", range(4))
def test_P41_any_history_on_a_store_that_fails_keeps_exactly_what_succeeded(
    warehouse: Warehouse, bucket: Bucket, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.server.hurry(monkeypatch)
    dice = random.Random(seed)
    history = History(warehouse, seed)
    table = history.table
    warehouse.metastore.set("hive.compactor.aborted.txn.time.threshold", "1ms")
    warehouse.metastore.set("hive.compactor.cleaner.retry.retention.time", "1ms")
    failed = 0
    for what in history.random.choices(STEPS, k=_STEPS):
        try:
            with bucket.server.fails(fault(dice, bucket.server)):
                history.step(what)
        except AcidError:
            failed += 1
        history.require(table.to_arrow().to_pylist())
        warehouse.release()
        with bucket.server.fails(fault(dice, bucket.server)):
            cleaner.run(warehouse.metastore)
    assert failed, "the faults were to stop some of the steps"
    history.play(["insert", "major"])
    warehouse.release()
    for _ in range(4):
        cleaner.run(warehouse.metastore)
    assert table.count() == len(history.rows)
    kept = {key.split("/")[0] for key in bucket.keys(table.name) if not key.endswith("/")}
    assert len(kept) == 1, kept
    assert examine(warehouse.metastore, warehouse=bucket.uri).findings == ()
