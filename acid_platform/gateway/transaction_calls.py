"""Calls of transactions, locks, write ids and compactions.

The metastore keeps all of them under the ids that the client got, so a client may go on after the
gateway was started again, and may use several connections or gateways for one transaction."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from acid_platform.base.config import LockSettings
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    InvalidDefinition,
    LockNotAcquired,
    NoSuchLock,
    NoSuchTable,
    NoSuchTxn,
    NotAuthorized,
    TxnAborted,
    UnsupportedStatement,
)
from acid_platform.gateway import protocol
from acid_platform.gateway.authorization import THROUGH_GATEWAY, CallHandler, Waits
from acid_platform.gateway.external_writes import (
    discard_bases,
    looked_for,
    says_when_written,
    writes_of,
)
from acid_platform.gateway.protocol import (
    LOCK_NUMBERS,
    LOCK_TYPES,
    LONGEST_RANGE,
    OPERATIONS,
    TXN_STATES,
    CompactionType,
    HiveLockState,
    load,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client import lineage_events
from acid_platform.metastore.records import ClientInfo, LockRequest, WriteReport
from acid_platform.transactions import (
    RowOperation,
    TxnState,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)
from acid_platform.transactions.concurrency import LockType, Statement, lock_of

_FEW = 10
"""Tables that are asked for one by one."""
_USUAL_NAME = re.compile(r"\w+\.\w+", re.ASCII)
_STATEMENTS = {
    RowOperation.INSERT: Statement.INSERT,
    RowOperation.UPDATE: Statement.UPDATE,
    RowOperation.DELETE: Statement.DELETE,
}
_STRENGTH = (
    LockType.SHARED_READ,
    LockType.SHARED_WRITE,
    LockType.EXCL_WRITE,
    LockType.EXCLUSIVE,
)


class TransactionCalls(CallHandler):
    """Transactions, locks and write ids."""

    # --- begin and end --------------------------------------------------------------------------

    def open_txns(self, request: Any) -> Any:
        number = request.txn_type or TxnType.DEFAULT.value
        if number not in (TxnType.DEFAULT.value, TxnType.READ_ONLY.value):
            raise UnsupportedStatement(
                f"transactions of type {number} can't be opened here: the platform compacts by"
                " itself, and has no replication and no materialized views"
            )
        info = ClientInfo(
            user=request.user or "",
            host=request.hostname or "",
            agent="" if request.agentInfo == "Unknown" else request.agentInfo or "",
            description=THROUGH_GATEWAY,
        )
        ids = self._metastore.call(ops.OpenBatch(request.num_txns, TxnType(number).value, info))
        return load().OpenTxnsResponse(txn_ids=ids)

    def commit_txn(self, request: Any) -> None:
        """Records the files that the transaction wrote, and commits (P26, P34).

        Raises NoSuchTxn, and TxnAborted for every refusal: the transaction is aborted then.
        """
        txn = request.txnid
        try:
            writes = writes_of(self._metastore, txn)
            sought, inserted = looked_for(self._metastore, txn, writes)
            self._guard.admit_commit(writes, self._caller)
        except NoSuchTxn:
            if self._metastore.call(ops.GetTxnOutcome(txn)).state == TxnState.COMMITTED.value:
                return  # the answer to the first commit was lost
            raise
        except TxnAborted as error:
            self._metastore.call(ops.AbortTxn(txn, str(error)))  # if it was not aborted before
            raise
        except AcidError as error:
            self._metastore.call(ops.AbortTxn(txn, f"its files can't be recorded: {error}"))
            raise TxnAborted(f"transaction {txn} was aborted: {error}") from error
        try:
            contents = ops.CommitContents(
                tuple(writes), sought=tuple(sought), inserted=tuple(inserted)
            )
            self._metastore.call(ops.CommitTxn(txn, contents))
        except TxnAborted:
            discard_bases(self._metastore, txn, writes)
            raise
        if writes:
            lineage_events.tell(txn, lambda: self._facts(txn, writes))
        self._caller.txns.discard(txn)

    def _facts(self, txn: int, writes: Sequence[WriteReport]) -> lineage_events.CommitFacts:
        outputs = lineage_events.outputs_of(writes, self._metastore.table, {})
        return lineage_events.CommitFacts(self._metastore.places.root, txn, "gateway", outputs)

    def abort_txn(self, request: Any) -> None:
        self._caller.txns.discard(request.txnid)
        self._metastore.call(ops.AbortTxn(request.txnid, "aborted by its owner"))

    def abort_txns(self, request: Any) -> None:
        self._metastore.call(ops.AbortMany(tuple(request.txn_ids), "aborted by its owner"))

    # --- alive ----------------------------------------------------------------------------------

    def heartbeat(self, request: Any) -> None:
        """Keeps a transaction, or a lock without one, alive."""
        if request.txnid:
            self._metastore.call(ops.HeartbeatOne(request.txnid, True))
        elif request.lockid:
            self._metastore.call(ops.HeartbeatLock(request.lockid))

    def heartbeat_txn_range(self, request: Any) -> Any:
        """Keeps the transactions from `min` to `max` alive, and tells which are not open."""
        if request.max - request.min >= LONGEST_RANGE:
            raise InvalidDefinition(
                f"{request.max - request.min + 1:,} transactions in one heartbeat; send at most"
                f" {LONGEST_RANGE:,}"
            )
        ids = range(request.min, request.max + 1)
        alive = self._metastore.call(ops.Heartbeat(tuple(ids)))
        for txn in sorted({*ids} - {*alive.aborted, *alive.unknown}):
            # A heartbeat of a foreign reader says that it still reads (P12).
            self._metastore.call(ops.HeartbeatOne(txn, True))
        return load().HeartbeatTxnRangeResponse(
            aborted=set(alive.aborted), nosuch=set(alive.unknown)
        )

    # --- snapshots ------------------------------------------------------------------------------

    def get_open_txns(self) -> Any:
        return protocol.txn_list(self._metastore.call(ops.GetTxnList()))

    def get_open_txns_info(self) -> Any:
        """All ids and states; whose transactions they are only of the own ones, but for `admin`."""
        m = load()
        unnamed = {"user": "", "host": "", "agent": ""}
        rows = [
            row if self._guard.sees_txn(row, self._caller) else {**row, **unnamed}
            for row in self._metastore.transactions()
        ]
        return m.GetOpenTxnsInfoResponse(
            txn_high_water_mark=self._metastore.call(ops.GetTxnList()).high_watermark,
            open_txns=[
                m.TxnInfo(
                    id=row["txnid"],
                    state=TXN_STATES[TxnState[row["state"]]],
                    user=row["user"],
                    hostname=row["host"],
                    agentInfo=row["agent"],
                    startedTime=row["startedtime"],
                    lastHeartbeatTime=row["lastheartbeattime"],
                )
                for row in rows
            ],
        )

    def get_valid_write_ids(self, request: Any) -> Any:
        """What a snapshot sees of each table.

        The files are kept for it from the moment on at which its transaction locked the table.
        """
        text = request.validTxnList
        txns = ValidTxnList.parse(text) if text else self._metastore.call(ops.GetTxnList())
        names = request.fullTableNames
        try:
            listed = self._metastore.call(ops.GetWriteIdsUnder(tuple(names), txns, no_floors=True))
        except NoSuchTable:
            listed = [self._write_ids(name, txns) for name in names]
        lists = [protocol.write_id_list(*pair) for pair in zip(names, listed, strict=True)]
        return load().GetValidWriteIdsResponse(tblValidWriteIds=lists)

    def _write_ids(self, name: str, txns: ValidTxnList) -> ValidWriteIdList:
        """What a snapshot sees of one table; nothing of one that is not there, as Hive's metastore.

        Hive 4 asks before it looks whether there is such a table, as for CREATE TABLE IF NOT
        EXISTS. A name in another form gets the error: it could stand for a table that is there.
        """
        try:
            (listed,) = self._metastore.call(ops.GetWriteIdsUnder((name,), txns, no_floors=True))
        except NoSuchTable:
            if not _USUAL_NAME.fullmatch(name):
                raise
            return ValidWriteIdList.of(name, 0)
        return listed

    def allocate_table_write_ids(self, request: Any) -> Any:
        if request.txnIds is None:
            raise UnsupportedStatement("write ids of replication are not allocated here")
        name = f"{request.dbName}.{request.tableName}"
        allocated = self._metastore.call(ops.AllocateMany(name, tuple(request.txnIds)))
        m = load()
        return m.AllocateTableWriteIdsResponse(
            txnToWriteIds=[m.TxnToWriteId(*pair) for pair in sorted(allocated)]
        )

    def get_max_allocated_table_write_id(self, request: Any) -> Any:
        record = self._record(request.dbName, request.tableName)
        highest = self._metastore.call(ops.GetLastWriteId(record.table_id))
        return load().MaxAllocatedTableWriteIdResponse(maxWriteId=highest)

    def get_latest_txnid_in_conflict(self, txn: int) -> int:
        """A higher id than `txn` if its commit would conflict, and 0 if not (P34).

        Hive asks when it has waited for an exclusive lock. At a higher id it begins the statement
        again in a new transaction. At a lower one it would only take a new snapshot, and its commit
        would still overlap what was committed in between.
        """
        return txn + 1 if self._metastore.call(ops.GetConflict(txn)) else 0

    # --- locks ----------------------------------------------------------------------------------

    def lock(self, request: Any) -> Any:
        """ACQUIRED, WAITING, or NOT_ACQUIRED for a read that may not wait and would have to."""
        settings, sight = self._metastore.in_force.lock_settings, self._sight
        for component in request.component:
            if not (component.tablename or sight.database(component.dbname.lower())):
                raise NotAuthorized(f"{self._caller} may not lock database {component.dbname}")
        to_be_made = self._to_be_made(request.component)
        locks = [
            LockRequest(f"{component.dbname}.*", LockType.SHARED_READ, RowOperation.SELECT)
            if _named(component) in to_be_made and component.operationType not in OPERATIONS
            else _lock(component, settings)
            for component in request.component
        ]
        if request.txnid:
            self._caller.txns.add(request.txnid)
        try:
            progress = self._metastore.call(
                ops.RequestLock(
                    request.txnid or 0,
                    tuple(locks),
                    bool(request.zeroWaitReadEnabled),
                    finishes=says_when_written(request, locks),
                )
            )
        except LockNotAcquired as error:
            return load().LockResponse(
                lockid=0, state=HiveLockState.NOT_ACQUIRED, errorMessage=str(error)
            )
        return self._settled(progress, request.txnid or 0)

    def _to_be_made(self, components: Sequence[Any]) -> set[str]:
        """Hive's CREATE TABLE locks the table before it is there; its database is locked instead.

        A statement that reads or writes such a table is refused by the lock as before.
        """
        names = {
            _named(component)
            for component in components
            if component.operationType not in OPERATIONS and component.tablename
        }
        if not names:
            return set()
        databases = {*self._metastore.databases()}
        if len(names) > _FEW:
            names -= {record.name for record in self._metastore.tables()}
        return {
            name
            for name in names
            if name.partition(".")[0] in databases and not self._is_there(name)
        }

    def _is_there(self, table: str) -> bool:
        with suppress(NoSuchTable):
            return bool(self._metastore.table(table))
        return False

    def check_lock(self, request: Any) -> Any:
        """Raises NoSuchLock, TxnAborted."""
        return self._settled(ops.LockProgress(request.lockid, False), request.txnid or 0)

    def _settled(
        self, progress: ops.LockProgress, txn: int, deadline: float = 0.0, pause: float = 0.005
    ) -> Any:
        """Looks at a waiting request for a while: the client's next question may come late.

        Raises Waits, until the lock is acquired or the while is over: no thread is held (P76).
        """
        deadline = deadline or time.monotonic() + self._lock_wait
        if not progress.acquired:
            try:
                progress = self._metastore.call(ops.CheckLock(progress.ext))
            except NoSuchLock:
                if txn:  # was it refused with its transaction?
                    self._metastore.call(ops.HeartbeatOne(txn, True))
                raise
            if not progress.acquired and time.monotonic() < deadline:
                raise Waits(
                    pause, partial(self._settled, progress, txn, deadline, min(2 * pause, 0.1))
                )
        state = HiveLockState.ACQUIRED if progress.acquired else HiveLockState.WAITING
        return load().LockResponse(lockid=progress.ext, state=state)

    def unlock(self, request: Any) -> None:
        """Raises InvalidDefinition for a lock that a transaction holds: it ends with it (L15)."""
        self._metastore.call(ops.Unlock(request.lockid))

    def show_locks(self, request: Any) -> Any:
        m, sight = load(), self._sight
        chosen = (request.dbname, request.tablename, request.partname, request.txnid)
        shown = [
            m.ShowLocksResponseElement(
                lockid=int(row["lockid"].partition(".")[0]),
                lockIdInternal=int(row["lockid"].partition(".")[2]),
                dbname=row["database"],
                tablename=row["table"],
                partname=row["partition"],
                state=HiveLockState[row["lock_state"]],
                type=LOCK_NUMBERS[LockType[row["lock_type"]]],
                txnid=row["transaction_id"],
                lastheartbeat=row["last_heartbeat"] or 0,
                acquiredat=row["acquired_at"],
                user=row["user"],
                hostname=row["hostname"],
                agentInfo=row["agent_info"],
            )
            for row in self._metastore.locks()
            if (
                sight.table(f"{row['database']}.{row['table']}")
                if row["table"]
                else sight.database(row["database"])
            )
            and all(
                choice in (None, 0, row[column])
                for choice, column in zip(
                    chosen, ("database", "table", "partition", "transaction_id"), strict=True
                )
            )
        ]
        return m.ShowLocksResponse(locks=shown)

    def add_dynamic_partitions(self, request: Any) -> None:
        """Says which partitions a transaction fills; the commit reads that from their directories.

        So a gateway that is started again in between forgets nothing. Raises TxnAborted, NoSuchTxn.
        """
        self._metastore.call(ops.HeartbeatOne(request.txnid, True))
        if request.writeid:
            name = f"{request.dbname}.{request.tablename}"
            self._metastore.call(ops.FinishWrite(name, request.writeid, txns=(request.txnid,)))


def _lock(component: Any, settings: LockSettings) -> LockRequest:
    """What a component asks for, at least as strict as our own writers' lock (P34).

    Trino asks for SHARED_READ whatever it does; its operation says whether it writes.
    """
    if component.type not in LOCK_TYPES:
        raise InvalidDefinition(f"there is no lock type {component.type}")
    lock = LOCK_TYPES[component.type]
    operation = OPERATIONS.get(component.operationType)
    if component.isTransactional is False and operation is not RowOperation.SELECT:
        operation = operation if operation in _STATEMENTS else None
    if operation in _STATEMENTS:
        ours, _ = lock_of(_STATEMENTS[operation], settings)
        lock = max(lock, ours, key=_STRENGTH.index)
    elif operation is None and lock in (LockType.SHARED_WRITE, LockType.EXCL_WRITE):
        operation = RowOperation.UPDATE
    if operation is RowOperation.INSERT and component.type == LOCK_NUMBERS[LockType.EXCL_WRITE]:
        operation = RowOperation.UPDATE  # a MERGE of Hive under hive.txn.xlock.mergeinsert (T34)
    table = f"{component.dbname}.{component.tablename or '*'}"
    return LockRequest(
        table,
        lock,
        operation or RowOperation.SELECT,
        component.partitionname or None,
        bool(component.isDynamicPartitionWrite),
    )


def _named(component: Any) -> str:
    return f"{component.dbname}.{component.tablename}".lower()


class CompactionCalls(CallHandler):
    def compact2(self, request: Any) -> Any:
        """Queues a compaction; one that is queued already is not accepted, which is no error."""
        if request.type not in set(CompactionType):
            raise InvalidDefinition(f"compactions of type {request.type} are not built")
        kind = CompactionType(request.type).name.lower()
        entity = (f"{request.dbname}.{request.tablename}", request.partitionname or None)
        try:
            number = self._metastore.request_compaction(
                *entity, kind, request.properties or {}, request.initiatorId or "gateway"
            )
        except AlreadyScheduled as error:
            queue = self._metastore.call(ops.GetQueue())
            return load().CompactionResponse(
                id=next((task.id for task in queue if (task.table, task.partition) == entity), 0),
                state="refused",
                accepted=False,
                errormessage=str(error),
            )
        return load().CompactionResponse(id=number, state="initiated", accepted=True)

    def compact(self, request: Any) -> None:
        self.compact2(request)

    def show_compact(self, _request: Any) -> Any:
        m, sees = load(), self._sight.table
        return m.ShowCompactResponse(
            compacts=[
                m.ShowCompactResponseElement(
                    id=row["compactionid"],
                    dbname=row["dbname"],
                    tablename=row["tabname"],
                    partitionname=_or_none(row["partname"]),
                    type=CompactionType[row["type"]],
                    state=row["state"],
                    workerid=_or_none(row["workerid"]),
                    start=_number(row["starttime"]),
                    endTime=_number(row["committime"]),
                    hightestTxnId=_number(row["highestwriteid"]),
                    hadoopJobId=_or_none(row["hadoopjobid"]),
                    errorMessage=_or_none(row["errormessage"]),
                    enqueueTime=_number(row["enqueuetime"]),
                    initiatorId=_or_none(row["initiatorid"]),
                )
                for row in self._metastore.compactions()
                if sees(f"{row['dbname']}.{row['tabname']}")
            ]
        )


def _or_none(value: Any) -> str | None:
    """The listing says `None` for an empty field (C62)."""
    return None if value == "None" else str(value)


def _number(value: Any) -> int | None:
    return None if value == "None" else int(value)
