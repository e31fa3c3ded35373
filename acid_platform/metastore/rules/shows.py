"""Answers that change nothing: SHOW rows, the Initiator's and the Cleaner's views."""

from __future__ import annotations

from typing import Any

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import CompactionRefused, NoSuchTxn
from acid_platform.metastore.codec import encode
from acid_platform.metastore.records import CompactionTask, EntityState, PastCompaction
from acid_platform.metastore.rules import locking
from acid_platform.metastore.rules.cleaning import aborted_rows, survey
from acid_platform.metastore.rules.declared import seen_partitions, seen_table, seen_views
from acid_platform.metastore.rules.snapshots import compactor_list
from acid_platform.metastore.rules.state import Entity, State, Table, Txn
from acid_platform.metastore.rules.turn import Body, Turn
from acid_platform.metastore.rules.txns import require_open
from acid_platform.transactions import TxnState

NONE = "None"
"""What SHOW COMPACTIONS prints for an empty field (C62)."""

_QUEUED = (CompactionState.INITIATED, CompactionState.WORKING)


def moment(turn: Turn, args: Body) -> dict[str, Any]:
    """The next moment: what changes from now on has this one or a later one (C1)."""
    return {"moment": turn.state.next_moment}


def tables(turn: Turn, args: Body) -> dict[str, Any]:
    every = turn.state.tables.values()
    return {"tables": [encode(table.record) for table in every]}


def table(turn: Turn, args: Body) -> dict[str, Any]:
    """As it is declared now, or as the snapshot of `txn` sees it (P28)."""
    return {"table": encode(seen_table(turn.state, _reader(turn, args), args["name"])[1])}


def partitions(turn: Turn, args: Body) -> dict[str, Any]:
    """Now, or those that the snapshot of `txn` sees (P28)."""
    txn = _reader(turn, args)
    found, _ = seen_table(turn.state, txn, args["name"])
    return {"partitions": [encode(one) for one in seen_partitions(turn.state, txn, found)]}


def _reader(turn: Turn, args: Body) -> Txn | None:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn."""
    return require_open(turn, args["txn"]) if args.get("txn") else None


def databases(turn: Turn, args: Body) -> dict[str, Any]:
    return {"databases": sorted(turn.state.databases)}


def views(turn: Turn, args: Body) -> dict[str, Any]:
    """Now, or as the snapshot of `txn` sees them (P28)."""
    found = seen_views(turn.state, _reader(turn, args))
    return {"views": [encode(one) for one in found]}


def settings(turn: Turn, args: Body) -> dict[str, Any]:
    chosen = turn.state.settings
    return {
        "settings": dict(chosen.items()),
        "set": dict(chosen.overrides),
        "heartbeat": chosen.heartbeat_interval,
    }


def transactions(turn: Turn, args: Body) -> dict[str, Any]:
    """SHOW TRANSACTIONS: open, and aborted with data left; with kind, run id and description."""
    beats = turn.state.heartbeats
    return {
        "rows": [
            {
                "txnid": txn.txn_id,
                "state": txn.state.name,
                "startedtime": txn.started,
                "lastheartbeattime": turn.wall(beats[txn.txn_id]) if txn.is_open else txn.ended,
                "user": txn.user,
                "host": txn.host,
                "type": txn.kind.name,
                "agent": txn.agent,
                "run_id": txn.run_id,
                "description": txn.description,
                "reason": txn.reason,
                "tables": sorted(txn.needs) if not txn.all_tables else ["*"],
            }
            for txn in turn.state.txns.values()
        ]
    }


def locks(turn: Turn, args: Body) -> dict[str, Any]:
    """SHOW LOCKS."""
    rows = [locking.describe(entry, turn) for entry in turn.state.locks.values()]
    return {"rows": [row for group in rows for row in group]}


def compactions(turn: Turn, args: Body) -> dict[str, Any]:
    """SHOW COMPACTIONS: the queue and the history with the 4.x columns (C61)."""
    past = [row for rows in turn.state.past.values() for row in rows]
    every = sorted((*turn.state.queue.values(), *past), key=lambda row: row.id)
    return {"rows": [_show(row, turn.now) for row in every]}


def compaction(turn: Turn, args: Body) -> dict[str, Any]:
    """One row, and whether it has left `initiated` and `working` (C59)."""
    past = (row for rows in turn.state.past.values() for row in rows)
    for row in (*turn.state.queue.values(), *past):
        if row.id == args["id"]:
            return {"row": _show(row, turn.now), "done": row.state not in _QUEUED}
    raise CompactionRefused(f"there is no compaction {args['id']}; see SHOW COMPACTIONS")


def _show(row: CompactionTask, now: int) -> dict[str, Any]:
    db, _, name = row.table.partition(".")
    work_end = row.commit_time or row.ended or now
    initiator_host, _, initiator = row.initiator.rpartition("-")
    host, _, worker = row.worker.rpartition("-")
    shown = {
        "compactionid": row.id,
        "dbname": db,
        "tabname": name,
        "partname": row.partition,
        "type": row.kind.name,
        "state": row.state.text,
        "workerhost": host,
        "workerid": worker,
        "enqueuetime": row.enqueued,
        "starttime": row.started,
        "duration": work_end - row.started if row.started else 0,
        "hadoopjobid": row.job,
        "errormessage": row.error,
        "initiatorhost": initiator_host,
        "initiatorid": initiator,
        "poolname": "",
        "txnid": row.txn_id,
        "nexttxnid": row.next_txn_id,
        "committime": row.commit_time,
        "highestwriteid": row.highest_write_id,
    }
    return {key: value or NONE for key, value in shown.items()}


def entities(turn: Turn, args: Body) -> dict[str, Any]:
    """Every entity, or those of one table, with each directory that is known of them."""
    state = turn.state
    aborted = aborted_rows(state)
    rows = []
    chosen = [state.table(args["table"])] if args.get("table") else state.tables.values()
    for one in chosen:
        names = one.entities()
        unknown = (one.record.table_id, None)
        if one.record.partitioned and unknown in aborted:
            names.append(unknown)
        listed = compactor_list(state, one)
        for entity in names:
            touched = aborted.get(entity, [])
            started = [state.txns[row.txn_id].started for row in touched]
            rows.append(
                encode(
                    EntityState(
                        one.record.name,
                        entity[1],
                        one.record.location,
                        one.record.partitioned,
                        one.record.properties,
                        tuple(state.directories.get(entity, {}).values()),
                        listed,
                        len(touched),
                        min(started, default=0),
                        _queued(state, entity),
                        _history(state, entity, one),
                    )
                )
            )
    return {"entities": rows}


def _queued(state: State, entity: Entity) -> CompactionState | None:
    found = [
        row.state
        for row in state.queue.values()
        if (row.table_id, row.partition) == entity and "location" not in row.properties
    ]
    order = (CompactionState.WORKING, CompactionState.INITIATED, CompactionState.READY_FOR_CLEANING)
    return next((one for one in order if one in found), None)


def _history(state: State, entity: Entity, table: Table) -> tuple[PastCompaction, ...]:
    rows = reversed(state.past.get(entity, []))
    return tuple(PastCompaction(row.state, row.enqueued) for row in rows)


def cleaning(turn: Turn, args: Body) -> dict[str, Any]:
    """What the Cleaner may do now, and what waits for whom (C37 to C55)."""
    ready, blocked = survey(turn)
    return {"ready": [encode(one) for one in ready], "blocked": [encode(one) for one in blocked]}


def txn_states(turn: Turn, args: Body) -> dict[str, Any]:
    """Open `o`, committed `c`, aborted `a`; `u`: never opened, or ended longer ago than is kept."""
    return {"states": {str(one): _state_of(turn, one) for one in args["txns"]}}


def _state_of(turn: Turn, txn_id: int) -> str:
    txn = turn.state.txns.get(txn_id)
    past = None if txn else turn.ended(txn_id)
    found = txn or past
    return found.state.value if found else "u"


def outcome_of_txn(turn: Turn, args: Body) -> dict[str, Any]:
    """Open, committed or aborted, with the reason (P3). Raises NoSuchTxn if that is not known."""
    txn = turn.state.txns.get(args["txn"])
    if txn is not None and txn.is_open:
        return {"state": "o", "commit_id": 0, "reason": ""}
    past = turn.ended(args["txn"])
    if past is not None:
        return {"state": past.state.value, "commit_id": past.commit_id, "reason": past.reason}
    if txn is not None:
        return {"state": TxnState.ABORTED.value, "commit_id": 0, "reason": txn.reason}
    raise NoSuchTxn(
        f"transaction {args['txn']} is unknown here: never opened, or ended before the retention"
        " (acid.outcome.retention)"
    )


HANDLERS = {
    "moment": moment,
    "tables": tables,
    "table": table,
    "partitions": partitions,
    "databases": databases,
    "views": views,
    "settings": settings,
    "transactions": transactions,
    "locks": locks,
    "compactions": compactions,
    "compaction": compaction,
    "entities": entities,
    "cleaning": cleaning,
    "txn_states": txn_states,
    "outcome_of_txn": outcome_of_txn,
}
