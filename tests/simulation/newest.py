"""Leases that serve another read: whether a snapshot that a reader holds is still the newest (P29).

The request is asked of every reader, and its answer compared with what a new snapshot would see in
the model. It renews no lease here and draws no random number, so it does not change a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.metastore.operations.transactions import IsNewest
from tests.simulation.claims import claim, expect, full, value
from tests.simulation.rules import READ_ONLY, Table, Txn

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation


def check_newest(sim: Simulation) -> None:
    """A snapshot that is said to be the newest sees what a new one would see of the table.

    If nothing at all has happened since the snapshot, it is said to be the newest.
    """
    if sim.process.batch:
        return
    fresh = sim.model.reader_now()
    for actor in sim.actors:
        for reader in actor.readers():
            txn = sim.model.txns.get(reader.txn)
            if txn is None or txn.state != "o" or not txn.snapshot:
                continue
            for name, table_id in sim.model.names.items():
                table = sim.model.tables[table_id]
                newest = _ask(sim, txn, name)
                sim.counts[f"newest: {newest}"] += 1
                if newest:
                    _check_same(sim, txn, fresh, table)


def _check_same(sim: Simulation, txn: Txn, fresh: Txn, table: Table) -> None:
    claim("P29", txn.kind == READ_ONLY, txn, "writes, and its snapshot serves another read")
    claim("P11", sim.model._may_read(txn, table), txn, "holds no files of", table.name)
    model = sim.model
    claim(
        "P28 P29",
        table.at(txn.snapshot) == table.at(fresh.snapshot),
        txn,
        "has an old declaration of",
        table.name,
    )
    seen, now = table.partitions_at(txn.snapshot), table.partitions_at(fresh.snapshot)
    claim("P28 P29", seen == now, txn, "sees the partitions", seen, "of", table.name, "not", now)
    for partition in sorted(now) if table.partitioned else [None]:
        held, newest = (model.content(one, table, partition) for one in (txn, fresh))
        claim("P29", held == newest, txn, "sees", held, "of", table.name, partition, "not", newest)


def _ask(sim: Simulation, txn: Txn, table: str) -> bool:
    state = sim.process.machine.state
    heartbeats, reads = dict(state.heartbeats), dict(state.reads)
    asked = IsNewest(txn.id, (full(table),))
    handled = sim.process.machine.handle(asked, "", sim.clock.moment())
    state.heartbeats, state.reads = heartbeats, reads
    claim("P3", not handled.events, "who asks changes something:", handled.events)
    answer = {**handled.replies[0].value}
    if "error" in answer:
        expect("P29", answer, "SnapshotExpired")
        return False
    return bool(value("P29", answer)["newest"])
