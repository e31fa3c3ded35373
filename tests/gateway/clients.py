"""Clients of the gateway: a Thrift client over a socket, and what Trino and Hive do with it.

The sequences are those of the logs of Trino 476 and Hive 4.0.1. The engines' files are written with
pyarrow, in their layout, since neither engine is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TBufferedTransport, TFramedTransport, TSocket

from acid_platform.gateway.protocol import load
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from tests.acid_files import AcidTable, P

m = load()
SELECT, INSERT, UPDATE, DELETE = 1, 2, 3, 4
NO_TXN = 6
SHARED_READ, SHARED_WRITE, EXCLUSIVE, EXCL_WRITE = 1, 2, 3, 4
ACQUIRED, WAITING, NOT_ACQUIRED = 1, 2, 4
Row = tuple[int, str]


@contextmanager
def connected(address: tuple[str, int], framed: bool = False) -> Iterator[Any]:
    """A client that calls methods by the protocol's names."""
    transport = (TFramedTransport if framed else TBufferedTransport)(
        TSocket(*address, socket_timeout=30_000)
    )
    transport.open()
    try:
        yield TClient(m.ThriftHiveMetastore, TBinaryProtocol(transport))
    finally:
        with suppress(OSError):
            transport.close()


def valid_txns(answer: Any, me: int) -> ValidTxnList:
    """The reader's list as Hive's and Trino's clients make it of get_open_txns."""
    opened, aborted = [], []
    for number, txn in enumerate(answer.open_txns):
        if 0 < me <= txn:
            break
        bit = answer.abortedBits[number // 8 : number // 8 + 1] or b"\0"
        (aborted if bit[0] >> number % 8 & 1 else opened).append(txn)
    high = min(me, answer.txn_high_water_mark) if me else answer.txn_high_water_mark
    return ValidTxnList.of(high, opened, aborted)


def write_ids_of(answer: Any) -> ValidWriteIdList:
    opened, aborted = [], []
    for number, write_id in enumerate(answer.invalidWriteIds):
        bit = answer.abortedBits[number // 8 : number // 8 + 1] or b"\0"
        (aborted if bit[0] >> number % 8 & 1 else opened).append(write_id)
    return ValidWriteIdList.of(answer.fullTableName, answer.writeIdHighWaterMark, opened, aborted)


class Statement:
    """One statement of another engine in its transaction."""

    def __init__(
        self, client: Any, user: str = "ann", agent: str = "Unknown", kind: int | None = None
    ) -> None:
        self.client = client
        request = m.OpenTxnRequest(
            num_txns=1, user=user, hostname="worker-7", agentInfo=agent, txn_type=kind
        )
        (self.id,) = client.open_txns(request).txn_ids
        self.query = "20261123_100000_00001_abcde"
        """The query's id; by its form the gateway knows Trino."""
        self._allocated: list[tuple[str, int]] = []

    def lock(
        self,
        table: str,
        operation: int,
        lock: int = SHARED_READ,
        partition: str | None = None,
        dynamic: bool | None = None,
        **more: Any,
    ) -> Any:
        database, name = table.split(".")
        component = m.LockComponent(
            type=lock,
            level=3 if partition else 2,
            dbname=database,
            tablename=name,
            partitionname=partition,
            operationType=operation,
            isTransactional=True,
            isDynamicPartitionWrite=dynamic,
        )
        return self.client.lock(
            m.LockRequest(
                component=[component],
                txnid=self.id,
                user="ann",
                hostname="worker-7",
                agentInfo=self.query,
                **more,
            )
        )

    def check(self, lockid: int) -> Any:
        return self.client.check_lock(m.CheckLockRequest(lockid=lockid, txnid=self.id))

    def sees(self, table: str) -> ValidWriteIdList:
        seen = valid_txns(self.client.get_open_txns(), self.id)
        request = m.GetValidWriteIdsRequest(fullTableNames=[table], validTxnList=str(seen))
        (listed,) = self.client.get_valid_write_ids(request).tblValidWriteIds
        return write_ids_of(listed)

    def allocate(self, table: str) -> int:
        database, name = table.split(".")
        request = m.AllocateTableWriteIdsRequest(dbName=database, tableName=name, txnIds=[self.id])
        (given,) = self.client.allocate_table_write_ids(request).txnToWriteIds
        assert given.txnId == self.id
        self._allocated.append((table, int(given.writeId)))
        return int(given.writeId)

    def dynamic(self, table: str, write_id: int, partitions: Sequence[str], op: int) -> None:
        database, name = table.split(".")
        self.client.add_dynamic_partitions(
            m.AddDynamicPartitions(
                txnid=self.id,
                writeid=write_id,
                dbname=database,
                tablename=name,
                partitionnames=list(partitions),
                operationType=op,
            )
        )
        self._allocated = [one for one in self._allocated if one != (table, write_id)]

    def heartbeat(self) -> Any:
        return self.client.heartbeat_txn_range(m.HeartbeatTxnRangeRequest(min=self.id, max=self.id))

    def finish(self) -> None:
        """Says that all files are written, as Trino and Hive do before they commit."""
        for table, write_id in self._allocated:
            database, name = table.split(".")
            request = m.AlterTableRequest(
                dbName=database,
                tableName=name,
                table=shown(self.client, table),
                writeId=write_id,
            )
            self.client.alter_table_req(request)
        self._allocated = []

    def commit(self, finished: bool = True) -> None:
        if finished:
            self.finish()
        self.client.commit_txn(m.CommitTxnRequest(txnid=self.id))

    def abort(self) -> None:
        self.client.abort_txn(m.AbortTxnRequest(txnid=self.id))


def shown(client: Any, table: str) -> Any:
    """The declaration of a table as Hive 4 asks for it."""
    database, name = table.split(".")
    able = m.ClientCapabilities(values=[2])
    request = m.GetTableRequest(dbName=database, tblName=name, capabilities=able, catName="hive")
    return client.get_table_req(request).table


def place_of(client: Any, table: str) -> Path:
    """The directory of a table, from its declaration as the engine sees it."""
    return Path(shown(client, table).sd.location.removeprefix("file://"))


COLUMNS = "id int, v string"


def files(client: Any, table: str) -> AcidTable:
    return AcidTable(place_of(client, table), COLUMNS)


def insert_events(write_id: int, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(write_id, P, number, *row) for number, row in enumerate(rows)]


def begun(
    client: Any,
    table: str,
    operation: int,
    lock: int = SHARED_READ,
    dynamic: bool | None = None,
) -> tuple[Statement, int, AcidTable]:
    """A statement that has its lock and its write id, and where it writes its files."""
    statement = Statement(client)
    assert statement.lock(table, operation, lock, dynamic=dynamic).state == ACQUIRED
    return statement, statement.allocate(table), files(client, table)


def trino_insert(client: Any, table: str, rows: Sequence[Row], partition: str = "") -> int:
    """INSERT as Trino sends it, into one partition if it is named; returns the write id."""
    statement = Statement(client)
    assert statement.lock(table, INSERT, dynamic=bool(partition)).state == ACQUIRED
    write_id = statement.allocate(table)
    statement.heartbeat()
    directory = f"{partition}/d{write_id}" if partition else f"d{write_id}"
    files(client, table).inserts(directory, insert_events(write_id, rows))
    if partition:
        database, name = table.split(".")
        client.add_partitions([new_partition(client, table, partition)])
        statement.dynamic(table, write_id, [partition], INSERT)
        assert partition in client.get_partition_names(database, name, -1)
    statement.commit()
    return write_id


def new_partition(client: Any, table: str, partition: str) -> Any:
    database, name = table.split(".")
    descriptor = shown(client, table).sd
    descriptor.location += f"/{partition}"
    return m.Partition(
        values=client.partition_name_to_vals(partition),
        dbName=database,
        tableName=name,
        sd=descriptor,
        parameters={},
    )
