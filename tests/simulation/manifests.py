"""The files that are recorded of each directory; every snapshot must get exactly these (P26).

The files of a directory name its writes, so files of another directory are noticed. The requests
of these checks renew no lease and draw no random number, so they do not change a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from acid_platform.layout.file_entries import FileEntry, Footer, RecordedFiles
from acid_platform.metastore.operations.transactions import GetManifest
from acid_platform.metastore.records import WriteReport
from acid_platform.metastore.rules.declared import directories
from acid_platform.transactions import RowOperation
from tests.simulation.claims import claim, expect, value
from tests.simulation.disk import Directory
from tests.simulation.rules import READ_ONLY, Table, Txn

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

Json = dict[str, Any]


def contents_of(one: Directory) -> RecordedFiles:
    return RecordedFiles(
        tuple(
            FileEntry(f"bucket_{number:05d}", 2 * txn + deletes + 1, Footer(write_id, True))
            for number, (write_id, txn, deletes) in enumerate(sorted(one.tags))
        )
    )


def report_of(
    one: Directory, table: str, partition: str | None, operation: RowOperation
) -> WriteReport:
    """The report of the actor that wrote the directory."""
    overwrite = one.base and operation is not RowOperation.COMPACT
    return WriteReport(table, partition, operation, one.name, contents_of(one), overwrite)


def check_files(
    sim: Simulation, txn: Txn, table: Table, partition: str | None, needed: Iterable[Directory]
) -> None:
    """A snapshot gets the committed files of every directory that it needs."""
    name = _name_for(sim, txn, table)
    if name is None:
        return  # another table has the name by now, or the transaction waits for its snapshot
    (entity,) = value("P26", _ask(sim, txn, name, [partition]))["entities"]
    given = {recorded["directory"]["name"]: recorded["contents"] for recorded in entity}
    for directory in needed:
        expected = str(contents_of(directory))
        claim(
            "P26",
            directory.name in given and given[directory.name] == expected,
            txn,
            "is given",
            given.get(directory.name),
            "of",
            directory.name,
            "in",
            name,
            partition,
            "not",
            expected,
        )
    sim.counts["manifest"] += 1


def check_ends(sim: Simulation) -> None:
    """An ended transaction gets no files, nor does one that asks after a cleaning (P11, P29)."""
    if sim.process.batch:
        return
    for actor in sim.actors:
        for reader in actor.readers():
            txn = sim.model.txns.get(reader.txn)
            if txn is None:
                continue
            if txn.state != "o":
                sim.counts["manifest of an ended transaction"] += 1
                error = "NoSuchTxn" if txn.state == "c" else "TxnAborted"
                expired = "SnapshotExpired" if txn.kind == READ_ONLY else error
                expect("P26 P29", _ask(sim, txn, "t", []), error, expired)
                continue
            for name in ("t", "u", "v", "w"):
                table = sim.model.seen(txn, name)
                if table is not None and not sim.model._may_read(txn, table):
                    sim.counts["manifest after a cleaning"] += 1
                    expect("P11 P26", _ask(sim, txn, name, []), "SnapshotExpired")


def check_forgotten(
    sim: Simulation, entity: tuple[int, str | None], gone: Sequence[str], left: set[str]
) -> None:
    """What the Cleaner removed is forgotten, and what it left is not."""
    state = sim.process.machine.state
    still = set(gone) & set(state.directories.get(entity, ()))
    claim("P26", not still, "removed and still known of", entity, still)
    lacking = left - set(directories(state, entity))
    claim("P26", not lacking, "not removed and forgotten of", entity, lacking)


def _name_for(sim: Simulation, txn: Txn, table: Table) -> str | None:
    declared = table.at(txn.snapshot) if txn.snapshot else table.declared[-1]
    name = (declared or table.declared[-1]).name
    return name if sim.model.seen(txn, name) is table else None


def _ask(sim: Simulation, txn: Txn, table: str, partitions: list[str | None]) -> Json:
    state = sim.process.machine.state
    reads = dict(state.reads)
    asked = GetManifest(txn.id, table, tuple(partitions))
    handled = sim.process.machine.handle(asked, "", sim.clock.moment())
    state.reads = reads
    claim("P3", not handled.events, "who asks for files changes something:", handled.events)
    answer: Json = {**handled.replies[0].value}
    return answer
