"""A metastore that was restored from an older backup (P24).

Write ids that were given after the backup, or whose transaction was open in it, are doubtful: no
snapshot sees them, no compaction passes them, no Cleaner removes their files, until somebody says
which were committed and which aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.names import parse_directory
from acid_platform.metastore.codec import decode
from acid_platform.metastore.records import EntityDirectory
from acid_platform.metastore.rules.commits import place
from acid_platform.metastore.rules.identity import disown, make_relative
from acid_platform.metastore.rules.state import Identity, State, Table, ranges
from acid_platform.metastore.rules.tables import register_partitions
from acid_platform.metastore.rules.turn import Body, Turn


def doubtful(turn: Turn, args: Body) -> dict[str, Any]:
    """Ranges of doubtful write ids by table."""
    found = {one.record.name: ranges(one.doubtful) for one in turn.state.tables.values()}
    return {"tables": {name: ids for name, ids in sorted(found.items()) if ids}}


def resolve(turn: Turn, args: Body) -> dict[str, Any]:
    """Says what became of doubtful write ids. Raises NoSuchTable, InvalidDefinition."""
    table = turn.state.table(args["name"])
    committed, aborted = set(args["committed"]), set(args["aborted"])
    wrong = sorted((committed | aborted) - table.doubtful | (committed & aborted))
    if wrong:
        raise InvalidDefinition(
            f"write ids {wrong} of {table.record.name} are not doubtful, or said to be both;"
            f" doubtful are {ranges(table.doubtful)}"
        )
    turn.record(
        "resolved",
        table_id=table.record.table_id,
        committed=sorted(committed),
        aborted=sorted(aborted),
    )
    return {"left": ranges(table.doubtful)}


# --- effects ------------------------------------------------------------------------------------


def _restored(state: State, at: int, body: Body) -> None:
    """`tables`: per table id the highest write id found in its directories; `txn_id`: the highest
    transaction found there; `identity`: of the warehouse from now on, `roots`: where it is (P31).
    """
    if "identity" in body:
        state.identity = Identity(body["identity"])
        make_relative(state, body["roots"])
        disown(state, at)
    _rediscover(state, at, body.get("present", ()))
    state.next_txn = max(state.next_txn, body["txn_id"] + 1)
    for table_id, highest in body["tables"]:
        table = state.tables[table_id]
        table.doubtful.update(range(table.next_write_id, highest + 1))
        table.next_write_id = max(table.next_write_id, highest + 1)
    for txn in list(state.open_txns()):
        for table_id in txn.wrote:
            if table_id in state.tables:
                _doubt(state.tables[table_id], txn.txn_id)
        for kept in (state.txns, state.components, state.heartbeats, state.reads):
            kept.pop(txn.txn_id, None)
    for table in state.tables.values():
        # What is doubtful has no transaction any more, and must not lift a watermark by itself.
        table.purged = max(table.purged, table.last_write_id)
    state.locks, state.locks_by_name, state.locks_by_txn, state.waiting = {}, {}, {}, {}
    state.departed = []
    state.cleaning = {}
    for row in list(state.queue.values()):
        if row.state is CompactionState.WORKING:
            state.queue[row.id] = replace(
                row, state=CompactionState.INITIATED, worker="", started=0, txn_id=0
            )


def _rediscover(state: State, at: int, present: Sequence[Sequence[Any]]) -> None:
    """Directories that came after the backup are recorded with their files, also those of doubtful
    write ids, which no snapshot sees yet; of those that the backup knows, and that are gone, the
    obsolete ones are forgotten. What else is gone is missed by whoever reads it (P26).
    """
    for table_id, partition, names, unknown in present:
        table = state.tables[table_id]
        if partition is not None:
            register_partitions(state, table, [partition])
        for encoded, contents in unknown:
            one = decode(EntityDirectory, encoded)
            visibility = _visibility(one.name)
            later = one.high >= table.next_write_id or visibility >= state.next_txn
            if later or table.doubtful.intersection(range(one.low, one.high + 1)):
                place(state, at, (table_id, partition), one, contents)
        known = state.directories.get((table_id, partition), {})
        for name in [*known]:
            if known[name].obsolete and name not in names:
                del known[name]


def _visibility(directory: str) -> int:
    name = parse_directory(directory) if directory else None
    return name.visibility if name is not None else 0


def _doubt(table: Table, txn_id: int) -> None:
    write_id = table.by_txn.pop(txn_id, None)
    if write_id is not None:
        table.doubtful.add(write_id)
        table.writes = [row for row in table.writes if row.txn_id != txn_id]


def _resolved(state: State, at: int, body: Body) -> None:
    table = state.tables[body["table_id"]]
    table.doubtful.difference_update(body["committed"], body["aborted"])
    table.aborted.update(body["aborted"])


APPLY = {"restored": _restored, "resolved": _resolved}

HANDLERS = {"doubtful": doubtful, "resolve_doubtful": resolve}
