"""Invariants of the state between any two steps."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from acid_platform.metastore.messages import read_answer
from acid_platform.metastore.operations.transactions import GetTxnStates
from acid_platform.metastore.rules import write_set
from acid_platform.metastore.rules.declared import directories, seen_partitions
from acid_platform.metastore.rules.state import Component, TableState
from acid_platform.transactions import RowOperation, TxnType, ValidTxnList, ValidWriteIdList
from tests.simulation.claims import claim
from tests.simulation.disk import settled
from tests.simulation.manifests import check_ends, check_files
from tests.simulation.newest import check_newest
from tests.simulation.rules import Resource, Table, Txn, waits
from tests.simulation.travellers import check_travellers

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation


def check_fast(sim: Simulation) -> None:
    """Checked after every write: the counters, and the lengths of the queues."""
    state, model = sim.process.machine.state, sim.model
    claim("T3", state.last_txn == model.last_txn, state.last_txn, "not", model.last_txn)
    claim(
        "L2",
        [(lock.txn_id, lock.acquired) for lock in state.locks.values()]
        == [(lock.txn, lock.granted) for lock in model.queue],
        "locks",
        state.locks,
        "not",
        model.queue,
    )
    _check_publications(sim)


def _check_publications(sim: Simulation) -> None:
    """Where another engine holds a lock, no minor compaction's output lies that did not commit, and
    none commits: such an engine would read a part of it, or what its snapshot lacks (P46)."""
    model = sim.model
    for lock in model.queue:
        for resource in lock.resources if lock.granted else ():
            if not resource.other_engine or resource.table is None:
                continue
            table = model.tables[lock.tables[f"{resource.db}.{resource.table}"]]
            for (location, partition), found in sim.disk.places.items():
                if location != table.location or resource.partition not in (None, partition):
                    continue
                for one in found.values():
                    if one.high <= table.floor:
                        continue  # of a dropped table at the same place (P22)
                    owner = model.txns.get(one.visibility)
                    claim(
                        "P46",
                        one.base or owner is None or owner.state == "c",
                        f"{lock} reads beside {one.name} of {partition}",
                    )


def check_whole(sim: Simulation) -> None:
    """Checks every transaction, lock and write id, and what every open snapshot finds on disk."""
    state, model = sim.process.machine.state, sim.model
    opened = {opened_txn.txn_id for opened_txn in state.open_txns()}
    claim("T10 T11 T13", opened == set(model.open), f"open {sorted(opened ^ set(model.open))}")
    claim("T7", set(state.heartbeats) == opened, "heartbeats of others than the open ones")
    _outcomes(sim)
    held = [
        (
            entry.txn_id,
            Resource(
                component.db,
                component.table,
                component.partition,
                component.lock.value,
                component.other_engine,
            ),
        )
        for entry in state.locks.values()
        if entry.acquired
        for component in entry.components
    ]
    for (txn, lock), (other_txn, other) in combinations(held, 2):
        claim(
            "L2",
            txn == other_txn or not (waits(lock, other) and waits(other, lock)),
            txn,
            "holds",
            lock,
            "and",
            other_txn,
            other,
        )
    claim(
        "T22",
        {known.record.name: key for key, known in state.tables.items()} == model.names,
        "tables",
    )
    for drop in state.drops():
        left = state.known_table(drop.table_id)
        claim(
            "P28",
            left is not None
            and drop.partition
            in (None, *(partition.name for partition in left.dropped_partitions)),
            "forgotten before it is removed:",
            drop,
        )
    for table_id, table in state.tables.items():
        _write_ids(sim, table, model.tables[table_id])
    _overwrites(sim)
    check_ends(sim)
    check_newest(sim)


def _overwrites(sim: Simulation) -> None:
    """An open writer's overwrite of any entity would conflict with what it misses (P30)."""
    state, model = sim.process.machine.state, sim.model
    for txn in state.open_txns():
        if txn.kind is not TxnType.DEFAULT or not txn.taken:
            continue
        for table_id, partition in list(model.entities):
            if table_id in state.tables:
                wish = Component(txn.txn_id, table_id, partition, RowOperation.OVERWRITE)
                found = write_set.conflict(state, txn, [wish])
                known = model.conflict(model.txns[txn.txn_id], {(table_id, partition, "o")})
                claim("P30", bool(found) == bool(known), txn, wish, found, "not", known)


def _outcomes(sim: Simulation) -> None:
    """The outcome of a transaction is known, and is what its client was told (P3)."""
    ids = list(sim.acknowledged)
    if len(ids) > 40:
        ids = sim.random.sample(ids, 20) + ids[-20:]
    asked = sim.process.machine.handle(GetTxnStates(tuple(ids)), "", sim.clock.moment())
    states = read_answer(GetTxnStates, asked.replies[0].value["value"])
    for key, found in states.items():
        told = sim.acknowledged[key]
        claim(
            "P3",
            found == told == sim.model.txns[key].state,
            "transaction",
            key,
            "was acknowledged as",
            told,
            "and is",
            found,
        )


def _write_ids(sim: Simulation, table: TableState, known: Table) -> None:
    """Each write id has one owner (T18, T22), and an aborted one stays aborted (P4)."""
    claim(
        "T22",
        table.next_write_id == known.next_write_id,
        f"{known.name}: next {table.next_write_id}, not {known.next_write_id}",
    )
    ids = [row.write_id for row in table.writes]
    claim("T19", ids == sorted(set(ids)), f"{known.name}: {ids}")
    for row in table.writes:
        claim("T18", known.owners[row.write_id] == row.txn_id, known.name, row)
    claim(
        "P22",
        set(table.partitions) == known.partitions,
        f"partitions of {known.name}: {sorted(table.partitions)}, not {sorted(known.partitions)}",
    )


def check_readers(sim: Simulation, table_ids: set[int]) -> None:
    """Every open snapshot that asked for the table finds what it must find (C41, P4, P5)."""
    check_travellers(sim, table_ids)
    for actor in sim.actors:
        for reader in actor.readers():
            txn = sim.model.txns.get(reader.txn)
            if txn is None or txn.state != "o":
                continue
            for table_id, listed in reader.lists.items():
                if table_id in table_ids:
                    check_read(sim, txn, sim.model.tables[table_id], listed, reader.valid_txns)


def check_read(
    sim: Simulation, txn: Txn, table: Table, listed: ValidWriteIdList, txns: ValidTxnList
) -> None:
    """Under these lists the files of the table have exactly what the transaction must see.

    Skipped while something is decided but not written, since the model does not know it yet.
    """
    if sim.process.batch:
        return
    state = sim.process.machine.state
    known, reader = state.known_table(table.id), state.txns[txn.id]
    claim("P28", known is not None and txn.state == "o", f"{table.name} is forgotten under {txn}")
    assert known is not None
    floors = {seen.name: seen.floors for seen in seen_partitions(state, reader, known)}
    for partition in (
        [None]
        if not table.partitioned
        else sorted({str(entity) for key, entity in sim.model.entities if key == table.id})
    ):
        if partition is not None and partition not in sim.model.partitions_of(txn, table):
            continue
        claim("P28", partition is None or partition in floors, txn, "does not see", partition)
        floor = settled(listed, table.floor, *floors.get(partition, ()))
        expected = sim.model.content(txn, table, partition)
        place = (table.location, partition)
        found = sim.disk.read(place, listed, txns, floor, txn.id)
        sim.counts["read"] += 1
        needed = sim.disk.needed(place, listed, txns, floor, txn.id)
        unknown = set(needed) - set(directories(state, (table.id, partition)))
        claim(
            "P28",
            not unknown,
            txn,
            "needs",
            unknown,
            "of",
            table.name,
            partition,
            "which the metastore does not know",
        )
        if found != expected:
            files = sorted(sim.disk.places.get((table.location, partition), {}))
            claim(
                "C41 P4 P5 S9",
                False,
                f"{txn} reads {table.name} {partition} (floor {floor}) by {listed} and {txns}:"
                f" missing {sorted(expected - found)}, too much {sorted(found - expected)};"
                f" files {files}",
            )
        check_files(sim, txn, table, partition, needed.values())
