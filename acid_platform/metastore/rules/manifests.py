"""The files that a snapshot may read: what commits recorded, not what is in a directory (P26).

A reader gets every recorded directory of its entities, and its lists select those that it sees. It
gets them only while its transaction is open: until it ends, the Cleaner removes nothing that its
snapshot needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acid_platform.base.errors import InvalidDefinition
from acid_platform.metastore.operations.tables import GetRecorded, GetUnrecorded, RecordFiles
from acid_platform.metastore.operations.transactions import GetManifest
from acid_platform.metastore.records import RecordedDirectory
from acid_platform.metastore.rules import events
from acid_platform.metastore.rules.declared import directories, seen_table
from acid_platform.metastore.rules.lock_requests import check_files
from acid_platform.metastore.rules.state import Entity, State
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Effects, Handlers, Turn
from acid_platform.metastore.rules.txns import require_open
from acid_platform.transactions import TxnType

# --- decisions ----------------------------------------------------------------------------------


def manifest(turn: Turn, operation: GetManifest) -> list[list[RecordedDirectory]]:
    """The directories, with their files, of some partitions of a table ([None] if it has none), as
    the transaction's snapshot knows the table (P28).

    Raises SnapshotExpired, TxnAborted or NoSuchTxn, since files may be gone then, and NoSuchTable.
    """
    txn = require_open(turn, operation.txn)
    table, _ = seen_table(turn.state, txn, operation.table)
    check_files(txn, table)
    if txn.kind is TxnType.READ_ONLY:
        touch(turn.state.reads, txn.txn_id, turn.steady)
    return _recorded(turn, table.record.table_id, operation.partitions)


def recorded_now(turn: Turn, operation: GetRecorded) -> list[list[RecordedDirectory]]:
    """The same without a transaction, for services that maintain tables; also of a dropped table
    that waits for the Cleaner, by its id. Raises NoSuchTable."""
    table_id = operation.table_id or turn.state.table(operation.table).record.table_id
    return _recorded(turn, table_id, operation.partitions)


def _recorded(
    turn: Turn, table_id: int, partitions: Sequence[str | None]
) -> list[list[RecordedDirectory]]:
    state = turn.state
    lacking = [
        partition
        for partition in partitions
        if any(
            directory.recorded and name not in state.contents.get((table_id, partition), {})
            for name, directory in directories(state, (table_id, partition)).items()
        )
    ]
    older = turn.past.recorded(table_id, lacking) if lacking else {}
    recorded = []
    for partition in partitions:
        known = directories(state, (table_id, partition))
        fresh = state.contents.get((table_id, partition), {})
        recorded.append(
            [
                RecordedDirectory(
                    directory,
                    fresh.get(name) or older.get((partition, name)) if directory.recorded else None,
                )
                for name, directory in known.items()
            ]
        )
    return recorded


def unrecorded(turn: Turn, _operation: GetUnrecorded) -> list[tuple[str, str | None, list[str]]]:
    """Entities with directories whose files are not recorded, since an older version made them."""
    state = turn.state
    lacking = []
    for table_id, partition in sorted(state.unrecorded, key=str):
        known = state.directories.get((table_id, partition), {})
        names = [name for name, directory in known.items() if not directory.recorded]
        if names and table_id in state.tables:
            lacking.append((state.tables[table_id].record.name, partition, names))
    return lacking


def record(turn: Turn, operation: RecordFiles) -> int:
    """Records the files of known directories that were not recorded.

    A directory that is gone, or recorded by now, is skipped: two clients that look see the same
    files. Raises NoSuchTable, and InvalidDefinition if the files are not those that the commit
    counted.
    """
    table = turn.state.table(operation.table)
    entity: Entity = (table.record.table_id, operation.partition)
    known = turn.state.directories.get(entity, {})
    fresh = []
    for report in operation.directories:
        directory = known.get(report.directory)
        if directory is None or directory.recorded or report.contents is None:
            continue
        if directory.txn and (directory.files, directory.bytes) != (report.files, report.bytes):
            raise InvalidDefinition(
                f"{table.record.name} {operation.partition or ''} {directory.name}: its commit"
                f" counted {directory.files} files of {directory.bytes} bytes, and {report.files}"
                f" of {report.bytes} are there; restore it from a copy of the warehouse"
            )
        fresh.append(
            events.DirectoryFiles(
                replace(
                    directory, recorded=True, compacted=report.compacted, versioned=report.versioned
                ),
                str(report.contents),
            )
        )
    if fresh:
        turn.record(
            events.FilesRecorded(table_id=entity[0], partition=entity[1], directories=tuple(fresh))
        )
    return len(fresh)


# --- effects ------------------------------------------------------------------------------------


def _record(state: State, _at: int, event: events.FilesRecorded) -> None:
    entity: Entity = (event.table_id, event.partition)
    known = state.directories.setdefault(entity, {})
    for recorded, contents in event.directories:
        # A compaction may have made it obsolete in the meantime; it stays obsolete.
        known[recorded.name] = replace(
            known[recorded.name],
            recorded=True,
            compacted=recorded.compacted,
            versioned=recorded.versioned,
        )
        assert contents is not None
        state.contents.setdefault(entity, {})[recorded.name] = contents
    if all(directory.recorded for directory in known.values()):
        state.unrecorded.discard(entity)


APPLY: Effects = {
    events.FilesRecorded: _record,
}

HANDLERS: Handlers = {
    GetManifest: manifest,
    GetRecorded: recorded_now,
    GetUnrecorded: unrecorded,
    RecordFiles: record,
}
