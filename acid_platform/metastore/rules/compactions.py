"""The compaction queue from request to commit (C24 to C33, C58 to C61, P21)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    CompactionLost,
    CompactionRefused,
    InvalidDefinition,
    NoSuchPartition,
)
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.records import (
    CompactionTask,
    EntityDirectory,
    LockRequest,
    WriteReport,
)
from acid_platform.metastore.rules import locking
from acid_platform.metastore.rules.commits import close, end, place
from acid_platform.metastore.rules.foreign import refuse_foreign
from acid_platform.metastore.rules.snapshots import compactor_list, snapshot, txn_list
from acid_platform.metastore.rules.state import Component, Entity, State, Table
from acid_platform.metastore.rules.tables import being_cleaned, normal_partition
from acid_platform.metastore.rules.turn import Body, Turn, error_reply
from acid_platform.metastore.rules.txns import granted, open_txn, require_open
from acid_platform.transactions import Operation, TxnState, TxnType, ValidTxnList
from acid_platform.transactions.locks import LockType

_I, _W, _R = (
    CompactionState.INITIATED,
    CompactionState.WORKING,
    CompactionState.READY_FOR_CLEANING,
)


def entity_of(row: CompactionTask) -> Entity:
    return row.table_id, row.partition


Queued = dict[Entity, list[CompactionTask]]


def queued(state: State) -> Queued:
    """Rows of the queue by their entity, without those of dropped tables and partitions."""
    found: Queued = {}
    for row in state.queue.values():
        if "location" not in row.properties:
            found.setdefault(entity_of(row), []).append(row)
    return found


# --- request, take ------------------------------------------------------------------------------


def request(turn: Turn, args: Body) -> dict[str, Any]:
    """A partitioned table without a partition stands for what an aborted dynamic write left in
    partitions that nobody knows: that is ready for cleaning at once (C33).

    Raises AlreadyScheduled naming the row, CompactionRefused, ForeignLocation, NoSuchTable,
    NoSuchPartition.
    """
    return {"id": _enqueue(turn, args, queued(turn.state), txn_list(turn.state))}


def request_many(turn: Turn, args: Body) -> dict[str, Any]:
    """`request` for each wish of an Initiator, all durable at once: an id or an error each."""
    waiting, txns = queued(turn.state), txn_list(turn.state)
    answers: list[dict[str, Any]] = []
    for one in args["wishes"]:
        wish = {**one, "properties": {}, "initiator": args["initiator"]}
        try:
            answers.append({"id": _enqueue(turn, wish, waiting, txns)})
        except AcidError as error:
            answers.append(error_reply(error))
    return {"answers": answers}


def _enqueue(turn: Turn, args: Body, waiting: Queued, txns: ValidTxnList) -> int:
    """The id of the new row, which `waiting` has from then on."""
    table = turn.state.table(args["table"])
    refuse_foreign(table, "compaction")
    partition = args["partition"]
    unknown = partition is None and _aborted_dynamic(turn.state, table)
    if not unknown and (partition is not None or table.record.partitioned):
        partition = normal_partition(table, partition or "")
        if partition not in table.partitions:
            raise NoSuchPartition(f"{table.record.name} has no partition {partition}")
    entity = (table.record.table_id, partition)
    name = f"{table.record.name} {partition or ''}".rstrip()
    high = (
        table.last_write_id if unknown else compactor_list(turn.state, table, txns).high_watermark
    )
    for row in waiting.get(entity, ()):
        if row.state is not _R or row.highest_write_id == high:
            nothing = " and nothing was written since" if row.state is _R else ""
            raise AlreadyScheduled(
                f"compaction {row.id} of {name} is {row.state.text}{nothing}; wait for it"
            )
    kinds = {one.value: one for one in CompactionKind}
    kind = kinds.get(args["kind"].lower())
    if kind is None:
        raise CompactionRefused(
            f"{name}: {args['kind']!r} is no kind of compaction here; use major or minor"
        )
    row = CompactionTask(
        turn.state.next_compaction,
        table.record.name,
        table.record.table_id,
        partition,
        kind,
        _I,
        args["properties"],
        args["initiator"],
        turn.now,
    )
    if unknown:
        row = replace(
            row,
            state=_R,
            highest_write_id=high,
            commit_time=turn.now,
            next_txn_id=turn.state.next_txn,
        )
    turn.record("queued", row=encode(row))
    waiting.setdefault(entity, []).append(row)
    return row.id


def _aborted_dynamic(state: State, table: Table) -> bool:
    entity = (table.record.table_id, None)
    return table.record.partitioned and any(
        (one.table_id, one.partition) == entity and not one.cleaned
        for txn in state.aborted_txns()
        for one in state.components.get(txn.txn_id, ())
    )


def take(turn: Turn, args: Body) -> dict[str, Any]:
    """The initiated row with the lowest id whose entity nobody compacts or cleans (C26, P21)."""
    state = turn.state
    busy = {entity_of(row) for row in state.queue.values() if row.state is _W}
    for row in sorted(state.queue.values(), key=lambda one: one.id):
        entity = entity_of(row)
        table = state.tables.get(row.table_id)
        if table is not None and table.record.foreign:
            continue
        free = entity not in busy and not being_cleaned(state, entity)
        if row.state is _I and free and args.get("table") in (None, row.table):
            turn.record("taken", id=row.id, worker=args["worker"])
            return {"task": encode(state.queue[row.id])}
    return {"task": None}


def owned(state: State, args: Body) -> CompactionTask:
    """The row, if this attempt of this worker still has it. Raises CompactionLost (P21)."""
    row = state.queue.get(args["id"])
    owner = (args["worker"], args["attempt"])
    if row is None or row.state is not _W or (row.worker, row.attempt) != owner:
        now = "gone" if row is None else f"{row.state.text} (worker {row.worker or 'none'})"
        raise CompactionLost(
            f"compaction {args['id']} no longer belongs to attempt {args['attempt']} of"
            f" {args['worker']}: it is {now}; drop the output"
        )
    return row


# --- work ---------------------------------------------------------------------------------------


def begin(turn: Turn, args: Body) -> dict[str, Any]:
    """Opens the COMPACTION transaction with its lock and lists (C28).

    Raises CompactionLost, and LockNotAcquired if the entity is locked EXCLUSIVE: the Worker then
    fails the task.
    """
    row = owned(turn.state, args)
    if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
        raise CompactionLost(f"compaction {row.id} has transaction {row.txn_id} open already")
    txn = open_txn(turn, TxnType.COMPACTION, args["info"], False)
    name = turn.state.name_of(row.table_id)
    wish = LockRequest(name, LockType.SHARED_READ, Operation.COMPACT, row.partition)
    try:
        locking.enqueue(
            turn, txn, {"locks": [encode(wish)], "wait": 0, "zero_wait": True}, begun=False
        )
    except AcidError as error:
        turn.record("abort", txn=txn.txn_id, reason=str(error))
        raise
    ext = turn.state.next_lock - 1
    table, opened = turn.state.tables[row.table_id], turn.state.txns[txn.txn_id]
    high = compactor_list(turn.state, table, snapshot(turn.state, opened)).high_watermark
    turn.record("compacting", id=row.id, txn=txn.txn_id, highest=high)
    return {"txn": txn.txn_id, "ext": ext, "id": row.id}


def begun(state: State, reply: Body) -> dict[str, Any]:
    """What the Worker learns. Its own transaction counts as open: an earlier output of the same
    transaction must not be taken for input."""
    answer = granted(state, reply)
    row = state.queue[reply["id"]]
    seen = ValidTxnList.parse(answer["valid_txns"])
    own = ValidTxnList.of(seen.high_watermark, {*seen.open, reply["txn"]}, seen.aborted)
    merge = compactor_list(state, state.tables[row.table_id], seen)
    return {**answer, "valid_txns": str(own), "compactor_list": str(merge), "task": encode(row)}


def commit(turn: Turn, args: Body) -> dict[str, Any]:
    """Publishes the result, frees the row for cleaning and commits, all at once (C30, P21).

    Raises CompactionLost, TxnAborted; then nothing changed and the output has to be dropped.
    """
    row = owned(turn.state, args)
    txn = require_open(turn, args["txn"])
    if row.txn_id != txn.txn_id:
        raise CompactionLost(f"compaction {row.id} runs in transaction {row.txn_id} now")
    reports = [decode(WriteReport, one) for one in args["writes"]]
    # By the name that it locked: a client may have renamed the table since.
    if any(
        (txn.needs.get(one.table), one.partition) != (row.table_id, row.partition)
        for one in reports
    ):
        raise InvalidDefinition(f"compaction {row.id} may only report {row.table} {row.partition}")
    directories = [
        [encode(EntityDirectory.of(one, txn.txn_id)), one.contents_text] for one in reports
    ]
    _finish(turn, row, _R, directories, "")
    return {"id": row.id, "commit_id": turn.state.last_txn}


def nothing_to_do(turn: Turn, args: Body) -> dict[str, Any]:
    """Ends a task that wrote nothing: ready for cleaning, or refused (C29). Commits."""
    row = owned(turn.state, args)
    require_open(turn, args["txn"])
    _finish(turn, row, _R if args["to_cleaning"] else CompactionState.REFUSED, [], args["reason"])
    return {}


def _finish(
    turn: Turn,
    row: CompactionTask,
    state: CompactionState,
    directories: list[list[Any]],
    error: str,
) -> None:
    turn.record(
        "compacted",
        id=row.id,
        txn=row.txn_id,
        state=state.value,
        directories=directories,
        commit_id=turn.state.last_txn,
        next_txn=turn.state.next_txn,
        error=error,
    )


def fail(turn: Turn, args: Body) -> dict[str, Any]:
    """The task becomes `failed`, its transaction is aborted (C32). Raises CompactionLost."""
    txn = turn.state.txns.get(args["txn"] or 0)
    if txn is not None and txn.is_open and txn.kind is TxnType.COMPACTION:
        end(turn, txn.txn_id, f"compaction failed: {args['error']}")
    row = owned(turn.state, args)
    turn.record(
        "compaction_ended", id=row.id, state=CompactionState.FAILED.value, error=args["error"]
    )
    return {}


def abort_many(turn: Turn, args: Body) -> dict[str, Any]:
    """ABORT COMPACTIONS: only rows that are initiated; one message for each id (C60)."""
    if not args["ids"]:
        raise InvalidDefinition("ABORT COMPACTIONS needs at least one id; see SHOW COMPACTIONS")
    messages = {}
    for one in args["ids"]:
        row = turn.state.queue.get(one)
        if row is not None and row.state is _I:
            turn.record(
                "compaction_ended",
                id=one,
                state=CompactionState.ABORTED.value,
                error="aborted by ABORT COMPACTIONS",
            )
            messages[str(one)] = "aborted"
        else:
            now = "unknown" if row is None else row.state.text
            messages[str(one)] = f"not aborted: it is {now}, not initiated"
    return {"messages": messages}


def revoke(turn: Turn, args: Body) -> dict[str, Any]:
    """Returns working rows of a host, of a worker or those that timed out to the queue (C25)."""
    host = args["host"]
    oldest = turn.steady - turn.state.settings.integer("hive.compactor.worker.timeout")
    since = turn.state.timers.row_since
    ids = [
        row.id
        for row in turn.state.queue.values()
        if row.state is _W
        and (
            since[row.id] < oldest
            if host is None
            else row.worker == host or row.worker.startswith(f"{host}-")
        )
    ]
    for one in ids:
        row = turn.state.queue[one]
        if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
            end(turn, row.txn_id, f"compaction {one} was taken from worker {row.worker}")
        turn.record("revoked", id=one)
    return {"ids": ids}


def not_initiated(turn: Turn, args: Body) -> dict[str, Any]:
    """A `did not initiate` row in the history (C9, C23)."""
    table = turn.state.table(args["table"])
    row = CompactionTask(
        turn.state.next_compaction,
        table.record.name,
        table.record.table_id,
        args["partition"],
        CompactionKind.MAJOR,
        CompactionState.DID_NOT_INITIATE,
        enqueued=turn.now,
        ended=turn.now,
        error=args["reason"],
    )
    turn.record("not_initiated", row=encode(row))
    return {"id": row.id}


# --- effects ------------------------------------------------------------------------------------


def _queued(state: State, at: int, body: Body) -> None:
    row = decode(CompactionTask, body["row"])
    state.next_compaction = row.id + 1
    state.queue[row.id] = row
    state.timers.row_since[row.id] = state.timers.now


def _taken(state: State, at: int, body: Body) -> None:
    row = state.queue[body["id"]]
    state.queue[row.id] = replace(
        row,
        state=_W,
        worker=body["worker"],
        attempt=row.attempt + 1,
        started=at,
        txn_id=0,
        job=row.job_name(body["worker"]),
    )
    state.timers.row_since[row.id] = state.timers.now


def _compacting(state: State, at: int, body: Body) -> None:
    row = state.queue[body["id"]]
    state.queue[row.id] = replace(row, txn_id=body["txn"], highest_write_id=body["highest"])
    state.components[body["txn"]] = [
        Component(body["txn"], row.table_id, row.partition, Operation.COMPACT, body["highest"])
    ]


def _compacted(state: State, at: int, body: Body) -> None:
    row = state.queue[body["id"]]
    for one in body["directories"]:
        # Journals of before files were recorded have the directory alone.
        directory, contents = one if isinstance(one, list) else (one, None)
        place(state, at, entity_of(row), decode(EntityDirectory, directory), contents)
    state.components.pop(body["txn"], None)
    close(state, at, body["txn"], TxnState.COMMITTED, "", body["commit_id"])
    done = replace(
        row,
        state=CompactionState(body["state"]),
        worker="",
        commit_time=at,
        next_txn_id=body["next_txn"],
        error=body["error"],
    )
    if done.state is _R:
        state.queue[row.id] = done
        state.timers.row_since[row.id] = state.timers.now
    else:
        to_history(state, replace(done, worker=row.worker, ended=at))


def to_history(state: State, row: CompactionTask) -> None:
    state.queue.pop(row.id, None)
    state.timers.row_since.pop(row.id, None)
    state.timers.retry_row.pop(row.id, None)
    state.past.setdefault(entity_of(row), []).append(row)


def _compaction_ended(state: State, at: int, body: Body) -> None:
    row = state.queue[body["id"]]
    ended = CompactionState(body["state"])
    to_history(state, replace(row, state=ended, error=body["error"], ended=at))


def _revoked(state: State, at: int, body: Body) -> None:
    row = state.queue[body["id"]]
    state.queue[row.id] = replace(row, state=_I, worker="", started=0, txn_id=0)


def _not_initiated(state: State, at: int, body: Body) -> None:
    row = decode(CompactionTask, body["row"])
    state.next_compaction = row.id + 1
    to_history(state, row)


APPLY = {
    "queued": _queued,
    "taken": _taken,
    "compacting": _compacting,
    "compacted": _compacted,
    "compaction_ended": _compaction_ended,
    "revoked": _revoked,
    "not_initiated": _not_initiated,
}

HANDLERS = {
    "request_compaction": request,
    "request_compactions": request_many,
    "take_compaction": take,
    "begin_compaction": begin,
    "commit_compaction": commit,
    "compaction_nothing_to_do": nothing_to_do,
    "fail_compaction": fail,
    "abort_compactions": abort_many,
    "revoke_workers": revoke,
    "record_not_initiated": not_initiated,
}
