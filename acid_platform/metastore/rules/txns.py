"""Open transactions: begin, locks, snapshots, write ids, heartbeats (T1 to T22, P12)."""

from __future__ import annotations

from dataclasses import field, replace

from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    NoSuchTxn,
    ReadOnlyTxn,
    SnapshotExpired,
    TooManyOpenTxns,
    TxnAborted,
    UnsupportedStatement,
)
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.messages import FLAT
from acid_platform.metastore.records import ClientInfo
from acid_platform.metastore.rules import locking, write_set
from acid_platform.metastore.rules.branch_commits import branch_named
from acid_platform.metastore.rules.declared import commits_on, seen_table, unchanged
from acid_platform.metastore.rules.locking import check_files, may_read
from acid_platform.metastore.rules.snapshots import snapshot, write_ids
from acid_platform.metastore.rules.state import LockEntry, State, Txn
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Event, Past, Turn, handles
from acid_platform.metastore.rules.write_set import Aborted
from acid_platform.transactions import RowOperation, TxnState, TxnType, ValidWriteIdList
from acid_platform.transactions.ids import BRIEF

# --- open and list ------------------------------------------------------------------------------


@handles(ops.Begin)
def begin(turn: Turn, operation: ops.Begin) -> ops.BeginTicket:
    """An empty list of tables means that each table is registered when it is asked for.

    Raises NoSuchBranch, TooManyOpenTxns (T2) and, after aborting the transaction, what
    `locking.enqueue` raises.
    """
    check_limit(turn.state, turn.steady, 1)
    branch = branch_named(turn.state, operation.branch).txn if operation.branch else 0
    kind = kind_of(operation.kind)
    txn = open_txn(turn, kind, operation.info, operation.tables is None, branch)
    try:
        needs = {
            table_name(name): (
                seen_table(turn.state, txn, name)[0] if branch else turn.state.table(name)
            ).record.table_id
            for name in operation.tables or ()
        }
        if operation.locks:
            locking.enqueue(
                turn,
                txn,
                operation.locks,
                operation.wait,
                operation.zero_wait,
                begun=True,
                reads=needs,
            )
        else:
            turn.record(SnapshotTaken(txn.txn_id, needs))
    except AcidError as error:
        turn.record(Aborted(txn.txn_id, str(error)))
        raise
    lock = turn.state.next_lock - 1 if operation.locks else 0
    if not operation.describe:
        return ops.BeginTicket(txn.txn_id, lock)
    inserts = {each.operation for each in operation.locks} == {RowOperation.INSERT}
    reads = bool(operation.tables) or not inserts
    return ops.BeginTicket(txn.txn_id, lock, tuple(turn.state.txns[txn.txn_id].needs), reads)


@handles(ops.OpenBatch)
def open_batch(turn: Turn, operation: ops.OpenBatch) -> list[int]:
    if operation.count <= 0:
        raise InvalidDefinition(
            f"{operation.count} transactions can't be opened; ask for at least 1"
        )
    count = min(operation.count, turn.state.settings.integer("hive.txn.max.open.batch"))
    check_limit(turn.state, turn.steady, count)
    ids = []
    for _ in range(count):
        txn = open_txn(turn, kind_of(operation.kind), operation.info, False)
        turn.record(SnapshotTaken(txn.txn_id, {}))
        ids.append(txn.txn_id)
    return ids


def check_limit(state: State, now: int, count: int) -> None:
    """Refuses from the limit on, until the count is below 90 % of the limit (T2)."""
    limit = state.settings.integer("hive.max.open.txns")
    interval = state.settings.integer("hive.count.open.txns.interval")
    gauge = state.gauge
    if now - gauge.counted_at >= interval:
        gauge.open, gauge.counted_at = len(state.heartbeats), now
        if gauge.open >= limit:
            gauge.refusing = True
        elif gauge.open < limit * 0.9:
            gauge.refusing = False
    if gauge.refusing:
        raise TooManyOpenTxns(
            f"{gauge.open} transactions are open (limit {limit}); {count} more are accepted below"
            f" {limit * 0.9:g}: end some, see SHOW TRANSACTIONS"
        )


_NOT_BUILT = {
    1: "REPL_CREATED",
    3: "MATER_VIEW_REBUILD",
    5: "SOFT_DELETE",
    6: "REBALANCE_COMPACTION",
}
"""Hive's other types by their numbers."""


def kind_of(number: int) -> TxnType:
    """The type that a client may begin.

    Raises UnsupportedStatement for the types that are not built (P1), and for COMPACTION, which a
    Worker begins with its task (C28).
    """
    if number in (TxnType.DEFAULT.value, TxnType.READ_ONLY.value):
        return TxnType(number)
    name = "COMPACTION" if number == TxnType.COMPACTION.value else _NOT_BUILT.get(number, "unknown")
    raise UnsupportedStatement(
        f"a transaction of type {name} ({number}) can't begin here; use DEFAULT or READ_ONLY"
    )


def open_txn(turn: Turn, kind: TxnType, info: ClientInfo, all_tables: bool, branch: int = 0) -> Txn:
    txn_id = turn.state.next_txn
    turn.record(Opened(txn_id, kind, all_tables, info, branch))
    return turn.state.txns[txn_id]


@handles(ops.Lock)
def lock(turn: Turn, operation: ops.Lock) -> ops.Ticket:
    txn = require_open(turn, operation.txn)
    locking.enqueue(turn, txn, operation.locks, operation.wait, operation.zero_wait, begun=False)
    return ops.Ticket(txn.txn_id, turn.state.next_lock - 1)


def granted(state: State, past: Past, ticket: ops.Ticket) -> ops.Granted:
    """What the client of `begin` or `lock` receives, rebuilt each time it asks.

    Its first answer may have been lost, and the transaction reaped since. Raises TxnAborted,
    SnapshotExpired (a lease), NoSuchTxn.
    """
    txn = open_now(state, past, ticket.txn)
    valid_txns = snapshot(state, txn)
    assert valid_txns is not None, "every granted request has a snapshot"
    entry = state.locks.get(ticket.ext)
    written = [state.tables[table_id] for table_id in txn.wrote if table_id in state.tables]
    needed = ((name, state.known_table(table_id)) for name, table_id in txn.needs.items())
    return ops.Granted(
        txn.txn_id,
        valid_txns=valid_txns,
        write_ids={table.record.name: table.by_txn[txn.txn_id] for table in written},
        lists={name: write_ids(table, valid_txns) for name, table in needed if table is not None},
        stale=bool(entry and stale(state, txn, entry)),
        lost_overwrite=lost_overwrite(state, txn, entry) if entry else "",
        interval=state.settings.heartbeat_interval,
        set=dict(state.settings.overrides),
    )


def stale(state: State, txn: Txn, entry: LockEntry) -> bool:
    """Whether something that conflicts was committed after the transaction opened (T40)."""
    return write_set.conflict(state, txn, entry.touches) is not None


def lost_overwrite(state: State, txn: Txn, entry: LockEntry) -> str:
    """Why an overwrite that was locked can't commit any more, or an empty text (P30).

    For dynamic partitions only the commit knows which of them are overwritten.
    """
    sure = [
        touched
        for touched in entry.touches
        if touched.operation is RowOperation.OVERWRITE and not touched.dynamic
    ]
    conflict = write_set.conflict(state, txn, sure)
    return write_set.describe(state, *conflict) if conflict else ""


@handles(ops.GetGranted)
def granted_now(turn: Turn, operation: ops.GetGranted) -> ops.Granted:
    require_open(turn, operation.txn)
    return granted(turn.state, turn.past, ops.Ticket(operation.txn, 0))


@handles(ops.GetValidWriteIds)
def valid_write_ids(turn: Turn, operation: ops.GetValidWriteIds) -> ValidWriteIdList:
    """Raises SnapshotExpired, NoSuchTable, TxnAborted."""
    txn = require_open(turn, operation.txn)
    table, record = seen_table(turn.state, txn, operation.table)
    check_files(txn, table)
    name, table_id = record.name, record.table_id
    if not txn.taken or (not txn.all_tables and name not in txn.needs):
        turn.record(SnapshotTaken(txn.txn_id, {name: table_id}))
    renew_lease(turn, txn)
    valid_txns = snapshot(turn.state, turn.state.txns[txn.txn_id])
    assert valid_txns is not None
    return write_ids(table, valid_txns)


@handles(ops.AllocateMany)
def allocate_many(turn: Turn, operation: ops.AllocateMany) -> list[tuple[int, int]]:
    """Either all transactions get new write ids, or all have one already.

    Raises TxnAborted, NoSuchTxn, ReadOnlyTxn or InvalidDefinition, and then allocates none.
    """
    table = turn.state.table(operation.table)
    ids = sorted(set(operation.txns))
    ended = [
        txn_id
        for txn_id in ids
        if txn_id not in turn.state.txns or not turn.state.txns[txn_id].has_client
    ]
    for ended_txn in ended:
        try:
            require_open(turn, ended_txn)
        except AcidError as error:
            raise type(error)(f"transactions {ended} are not open: {error}") from error
    txns = [turn.state.txns[txn_id] for txn_id in ids]
    bad = [txn.txn_id for txn in txns if txn.kind is not TxnType.DEFAULT]
    if bad:
        raise ReadOnlyTxn(f"transactions {bad} get no write id of {table.record.name}")
    for txn in txns:
        unchanged(turn.state, txn, operation.table)
    have = [txn.txn_id for txn in txns if txn.txn_id in table.by_txn]
    if have and len(have) < len(txns):
        raise InvalidDefinition(
            f"transactions {have} have write ids of {table.record.name} and the others none;"
            " ask for either"
        )
    for txn in () if have else txns:
        needs = (table.record.name,) if may_read(txn, table) else ()
        allocated = WriteIdAllocated(txn.txn_id, table.record.table_id, table.next_write_id, needs)
        turn.record(allocated)
    return [(txn.txn_id, table.by_txn[txn.txn_id]) for txn in txns]


# --- abort --------------------------------------------------------------------------------------


@handles(ops.AbortTxn)
def abort(turn: Turn, operation: ops.AbortTxn) -> None:
    """Raises NoSuchTxn for one that is unknown or committed."""
    txn = turn.state.txns.get(operation.txn)
    past = None if txn else turn.ended(operation.txn)
    if (txn and not txn.is_open) or (past and past.state is TxnState.ABORTED):
        return
    txn = require_open(turn, operation.txn)
    end(turn, txn.txn_id, operation.reason or "aborted by its owner")


@handles(ops.Withdraw)
def withdraw(turn: Turn, operation: ops.Withdraw) -> None:
    state = turn.state
    waiting = state.waiting.get(operation.request_id)
    outcome = state.outcomes.get(operation.request_id)
    txn_id = 0
    if waiting is not None and state.locks[waiting].begun:
        txn_id = state.locks[waiting].txn_id
    elif outcome is not None and outcome.op == ops.Begin.op:
        txn_id = outcome.txn_id
    if txn_id in state.txns and state.txns[txn_id].has_client:
        end(turn, txn_id, "its client was interrupted while it began")


@handles(ops.AbortMany)
def abort_many(turn: Turn, operation: ops.AbortMany) -> ops.AbortedMany:
    """Aborts those that are open and skips the others without an error (T12)."""
    txns = turn.state.txns
    ids = [txn_id for txn_id in operation.txns if txn_id in txns and txns[txn_id].has_client]
    for txn_id in ids:
        end(turn, txn_id, operation.reason or "ABORT TRANSACTIONS")
    return ops.AbortedMany(ids, f"aborted {len(ids)} of {len(operation.txns)}")


def end(turn: Turn, txn_id: int, reason: str) -> None:
    """Aborts an open transaction, and answers its lock request if that still waits."""
    error = TxnAborted(f"transaction {txn_id} was aborted: {reason}; begin again")
    leave_waits(turn, txn_id, error)
    turn.record(Aborted(txn=txn_id, reason=reason))


def leave_waits(turn: Turn, txn_id: int, error: AcidError) -> None:
    for ext in list(turn.state.locks_by_txn.get(txn_id, ())):
        entry = turn.state.locks[ext]
        if not entry.acquired:
            locking.end_wait(turn, entry, error)


# --- alive or not -------------------------------------------------------------------------------


def require_open(turn: Turn, txn_id: int) -> Txn:
    """The open transaction. Raises TxnAborted, SnapshotExpired (a lease), NoSuchTxn (T7)."""
    return open_now(turn.state, turn.past, txn_id)


def renew_lease(turn: Turn, txn: Txn) -> None:
    """Lets the lease of a reader live on (P12)."""
    if txn.kind is TxnType.READ_ONLY:
        touch(turn.state.reads, txn.txn_id, turn.steady)


def open_now(state: State, past: Past, txn_id: int) -> Txn:
    """What `require_open` does, without a turn."""
    txn = state.txns.get(txn_id)
    if txn is not None and txn.has_client:
        return txn
    if txn is not None and txn.joined:
        raise NoSuchTxn(f"transaction {txn_id} is already committed on its branch; begin another")
    if txn is not None and txn.is_open:
        raise NoSuchTxn(f"transaction {txn_id} is that of a branch; merge the branch, or drop it")
    if txn is not None:
        raise TxnAborted(f"transaction {txn_id} was aborted: {txn.reason}; begin again")
    ended = state.ended.get(txn_id) or past.past_txn(txn_id)
    if ended is None:
        raise NoSuchTxn(f"there is no transaction {txn_id}; begin one")
    if ended.state is TxnState.COMMITTED:
        raise NoSuchTxn(f"transaction {txn_id} is already committed; begin another")
    if ended.kind is TxnType.READ_ONLY:
        raise SnapshotExpired(f"read lease {txn_id} has ended: {ended.reason}; call read() again")
    raise TxnAborted(f"transaction {txn_id} was aborted: {ended.reason}; begin again")


@handles(ops.Heartbeat)
def heartbeat(turn: Turn, operation: ops.Heartbeat) -> ops.Alive:
    aborted, unknown = [], []
    for txn_id in operation.txns:
        txn = turn.state.txns.get(txn_id)
        past = None if txn else turn.ended(txn_id)
        if txn and txn.has_client:
            touch(turn.state.heartbeats, txn_id, turn.steady)
        elif (txn and not txn.is_open) or (past and past.state is TxnState.ABORTED):
            aborted.append(txn_id)
        else:
            unknown.append(txn_id)
    interval = turn.state.settings.heartbeat_interval
    return ops.Alive(aborted, unknown, interval)


@handles(ops.HeartbeatOne)
def heartbeat_one(turn: Turn, operation: ops.HeartbeatOne) -> int:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn (T7)."""
    txn = require_open(turn, operation.txn)
    touch(turn.state.heartbeats, txn.txn_id, turn.steady)
    if operation.read:
        renew_lease(turn, txn)
    return turn.state.settings.heartbeat_interval


# --- events -------------------------------------------------------------------------------------


class Opened(Event, kind="open"):
    txn: int
    type: TxnType
    all_tables: bool
    info: ClientInfo = field(metadata=FLAT)
    branch: int = field(default=0, metadata=BRIEF)
    """The transaction of the branch on which it runs."""

    def apply(self, state: State, at: int) -> None:
        txn = Txn(self.txn, self.type, TxnState.OPEN, at, self.info, self.all_tables)
        if self.branch:
            sees = tuple(commit.txn for commit in commits_on(state, self.branch))
            taken = state.txns[self.branch].taken
            txn = replace(txn, branch=self.branch, sees=sees, taken=taken)
        state.txns[self.txn] = txn
        state.next_txn = self.txn + 1
        touch(state.heartbeats, self.txn, state.timers.now)
        if self.type is TxnType.READ_ONLY:
            touch(state.reads, self.txn, state.timers.now)


class SnapshotTaken(Event, kind="snapshot"):
    """`needs`: tables whose files the Cleaner has to keep from now on, with their ids (C41)."""

    txn: int
    needs: dict[str, int]

    def apply(self, state: State, _at: int) -> None:
        txn = state.txns[self.txn]
        taken = txn.taken or state.moment()
        state.txns[txn.txn_id] = replace(txn, taken=taken, needs=txn.needs | self.needs)


class WriteIdAllocated(Event, kind="write_id"):
    """`needs`: the table's name, if the transaction may read its files."""

    txn: int
    table_id: int
    write_id: int
    needs: tuple[str, ...]

    def apply(self, state: State, _at: int) -> None:
        locking.add_write_id(state, self.table_id, self.txn, self.write_id)
        txn = state.txns[self.txn]
        needs = {name: self.table_id for name in self.needs} | txn.needs
        state.txns[txn.txn_id] = replace(txn, needs=needs)
