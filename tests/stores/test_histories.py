"""Random statements, compactions and cleanings in a store that fails at random (P41).

After each step the table has exactly the rows of the steps that succeeded. In the end nothing is
left that no commit named.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from acid_platform import AcidError, CompactionRefused, Table, Warehouse
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.stores.conftest import Bucket
from tests.stores.server import Fault, StoreServer

pytestmark = pytest.mark.slow
_STEPS = 30
Model = dict[int, str]


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


def step(dice: random.Random, table: Table, model: Model) -> tuple[Callable[[], object], Model]:
    """A statement, and the rows after it."""
    chosen = {number for number in model if dice.random() < 0.3}
    listed = ", ".join(map(str, [-1, *sorted(chosen)]))
    match dice.randrange(5):
        case 0 | 1:
            fresh = {dice.randrange(10_000): f"n{dice.random()}" for _ in range(3)}
            fresh = {number: text for number, text in fresh.items() if number not in model}
            rows = pa.table({"id": [*fresh], "v": [*fresh.values()]})
            rows = rows.cast(pa.schema([("id", pa.int64()), ("v", pa.string())]))
            return lambda: table.insert(rows), {**model, **fresh}
        case 2:
            text = f"u{dice.randrange(100)}"
            changed = {number: text for number in chosen}
            return lambda: table.update({"v": f"'{text}'"}, f"id IN ({listed})"), model | changed
        case 3:
            left = {number: text for number, text in model.items() if number not in chosen}
            return lambda: table.delete(f"id IN ({listed})"), left
    kind = dice.choice(["minor", "major"])
    return lambda: table.compact(kind), model


@pytest.mark.parametrize("seed", range(4))
def test_P41_any_history_on_a_store_that_fails_keeps_exactly_what_succeeded(
    warehouse: Warehouse, bucket: Bucket, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.server.hurry(monkeypatch)
    dice = random.Random(seed)
    table = warehouse.create_table("db.t", "id bigint, v string")
    warehouse.metastore.set("hive.compactor.aborted.txn.time.threshold", "1ms")
    warehouse.metastore.set("hive.compactor.cleaner.retry.retention.time", "1ms")
    model: Model = {}
    failed = 0
    for _ in range(_STEPS):
        work, after = step(dice, table, model)
        try:
            with bucket.server.fails(fault(dice, bucket.server)):
                work()
            model = after
        except CompactionRefused:
            pass
        except AcidError:
            failed += 1
        found = table.to_arrow().to_pylist()
        assert {row["id"]: row["v"] for row in found} == model
        assert len(found) == len(model)
        warehouse.release()
        with bucket.server.fails(fault(dice, bucket.server)):
            cleaner.run(warehouse.metastore)
    assert failed, "the faults were to stop some of the steps"
    table.insert(pa.table({"id": [-5], "v": ["last"]}))
    table.compact("major")
    warehouse.release()
    for _ in range(4):
        cleaner.run(warehouse.metastore)
    assert table.count() == len(model) + 1
    kept = {key.split("/")[0] for key in bucket.keys("db.t") if not key.endswith("/")}
    assert len(kept) == 1, kept
    assert examine(warehouse.metastore, warehouse=bucket.uri).findings == ()
