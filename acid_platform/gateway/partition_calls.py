"""Calls that add, drop and alter partitions, and that keep the statistics of planners.

Tables and partitions are dropped and emptied under the locks that the client may hold already, as
Hive's own metastore does.

Statistics are hints. Each is as old as the ANALYZE or INSERT that sent it, and no row depends on
it: Hive is never told that they are accurate. So they are files beside the data, which go with the
table, one file for the table and one for each partition; the last writer wins."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from acid_platform.errors import (
    InvalidDefinition,
    NoSuchPartition,
    NoSuchTxn,
    TableExists,
    TxnAborted,
    UnknownColumn,
    UnsupportedStatement,
)
from acid_platform.gateway import protocol
from acid_platform.gateway.authorization import CallHandler
from acid_platform.gateway.protocol import load
from acid_platform.layout import names
from acid_platform.layout.names import STATISTICS_DIRECTORY
from acid_platform.layout.table_properties import refuse_promises
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.files import Files
from acid_platform.transactions.concurrency import LockType

_LOG = logging.getLogger(__name__)
_COUNT = re.compile(r"[0-9]{1,20}", re.ASCII)
_LARGEST = 64 << 10
"""Bytes of the statistics of one column, with its sketch of distinct values."""
COUNTS = ("numFiles", "numRows", "rawDataSize", "totalSize")
"""Parameters of tables and partitions with counts."""


class StatisticsCalls(CallHandler):
    # --- kept -----------------------------------------------------------------------------------

    def update_table_column_statistics(self, statistics: Any) -> bool:
        """Keeps the statistics of these columns; those of others stay."""
        described = statistics.statsDesc
        record = self._record(described.dbName, described.tableName)
        _keep_columns(record, None, statistics.statsObj)
        return True

    def update_partition_column_statistics(self, statistics: Any) -> bool:
        """Raises NoSuchPartition."""
        described = statistics.statsDesc
        record = self._record(described.dbName, described.tableName)
        partition = protocol.normal(record, described.partName)
        if partition not in self._metastore.partitions(record.name):
            raise NoSuchPartition(f"{record.name} has no partition {partition}")
        _keep_columns(record, partition, statistics.statsObj)
        return True

    def set_aggr_stats_for(self, request: Any) -> bool:
        for statistics in request.colStats:
            if statistics.statsDesc.isTblLevel:
                self.update_table_column_statistics(statistics)
            else:
                self.update_partition_column_statistics(statistics)
        return True

    def update_table_column_statistics_req(self, request: Any) -> Any:
        return load().SetPartitionsStatsResponse(result=self.set_aggr_stats_for(request))

    def delete_table_column_statistics(
        self, database: str, name: str, column: str | None, _engine: str
    ) -> bool:
        """Forgets the statistics of a column, or of all."""
        _forget(self._record(database, name), None, column)
        return True

    def delete_partition_column_statistics(
        self, database: str, name: str, partition: str, column: str | None, _engine: str
    ) -> bool:
        record = self._record(database, name)
        _forget(record, protocol.normal(record, partition), column)
        return True

    # --- served ---------------------------------------------------------------------------------

    def get_table_statistics_req(self, request: Any) -> Any:
        record = self._record(request.dbName, request.tblName)
        columns = _columns_of(record, None, request.colNames)
        return load().TableStatsResult(tableStats=columns)

    def get_partitions_statistics_req(self, request: Any) -> Any:
        """The statistics of each partition that has any."""
        record = self._record(request.dbName, request.tblName)
        statistics = {
            name: columns
            for name in request.partNames
            if (columns := _columns_of(record, protocol.normal(record, name), request.colNames))
        }
        return load().PartitionsStatsResult(partStats=statistics)


def keep_counts(record: TableRecord, partition: str | None, parameters: Mapping[str, str]) -> None:
    """Keeps the counts among the parameters that a client sends for a table or partition."""
    counts = {
        name: parameters[name] for name in COUNTS if _COUNT.fullmatch(parameters.get(name, ""))
    }
    statistics = _read(record, partition)
    if counts and counts != statistics.parameters:
        statistics.parameters = counts
        _write(record, partition, statistics)


def counts_of(record: TableRecord, partition: str | None) -> dict[str, str]:
    """The counts that `keep_counts` kept."""
    return dict(_read(record, partition).parameters)


def _keep_columns(record: TableRecord, partition: str | None, columns: Sequence[Any]) -> None:
    """Raises UnknownColumn for a column that the table has not: nothing but its columns is kept
    beside the data, each of bounded size (P78)."""
    statistics, own = _read(record, partition), dict(record.columns)
    kept = {column.colName: column for column in statistics.columns if column.colName in own}
    for column in columns:
        column.colName = (column.colName or "").lower()
        if column.colName not in own:
            raise UnknownColumn(
                f"{record.name} has no column {column.colName[:100]!r}: no statistics are"
                " kept of it"
            )
        if len(_serialized(column)) > _LARGEST:
            raise InvalidDefinition(
                f"{record.name}: the statistics of {column.colName} have more than"
                f" {_LARGEST:,} bytes"
            )
        kept[column.colName] = column
    statistics.columns = [*kept.values()]
    _write(record, partition, statistics)


def _forget(record: TableRecord, partition: str | None, column: str | None) -> None:
    statistics = _read(record, partition)
    statistics.columns = [
        statistic
        for statistic in statistics.columns
        if column and statistic.colName != column.lower()
    ]
    _write(record, partition, statistics)


def _columns_of(record: TableRecord, partition: str | None, names: Sequence[str]) -> list[Any]:
    """The statistics of these columns, if they still have the type that was counted."""
    requested, types = {name.lower() for name in names}, dict(record.columns)
    return [
        column
        for column in _read(record, partition).columns
        if column.colName in requested and types.get(column.colName) == column.colType
    ]


# --- files --------------------------------------------------------------------------------------


def _path(record: TableRecord, partition: str | None) -> tuple[Files, str]:
    """Partition names may be longer than a file's name, so their digests are the names."""
    files, root = Files.of(record.location)
    name = hashlib.sha256(partition.encode()).hexdigest() if partition else "table"
    return files, f"{root}/{STATISTICS_DIRECTORY}/{name}"


def _read(record: TableRecord, partition: str | None) -> Any:
    """What is kept; nothing if the file is missing, damaged, or of another partition."""
    from thriftpy2.utils import deserialize

    empty = load().KeptStatistics(entity=partition or "", parameters={}, columns=[])
    files, path = _path(record, partition)
    try:
        statistics = deserialize(load().KeptStatistics(), files.read(path))
    except FileNotFoundError:
        return empty
    except Exception as error:  # whatever a decoder raises for damaged bytes
        _LOG.warning("%s holds no statistics: %s; run ANALYZE again", path, error)
        return empty
    whole = None not in (statistics.parameters, statistics.columns)
    return statistics if whole and statistics.entity == (partition or "") else empty


def _write(record: TableRecord, partition: str | None, statistics: Any) -> None:
    """Raises PublicationFailed, WarehouseNotWritable."""
    files, path = _path(record, partition)
    files.make_directory(os.path.dirname(path))
    part = f"{path}.{os.getpid()}.{id(statistics)}"
    files.write(part, _serialized(statistics))
    files.system.move(part, path)


def _serialized(struct: Any) -> bytes:
    from thriftpy2.utils import serialize

    return bytes(serialize(struct))


_WAIT = 30.0
"""Seconds for the exclusive lock of a client that holds none."""


def drop(metastore: Metastore, table: str, partition: str | None, mine: set[int]) -> None:
    """Drops a table or a partition of it.

    Hive locks the table in a transaction first and commits that afterwards: the drop is made in
    that transaction, and its commit is repeated then, which is no error (T10). `mine` are the
    transactions of this connection. For others the drop has a transaction of its own. Raises
    LockTimeout, NoSuchTable, NoSuchPartition.
    """
    database, _, name = table.partition(".")
    for lock in metastore.call(ops.GetLocks()):
        if (
            lock.txn in mine
            and lock.acquired
            and lock.lock is LockType.EXCLUSIVE
            and (lock.database, lock.table) == (database, name)
            and lock.partition in (None, partition)
        ):
            metastore.call(ops.Drop(lock.txn, table, partition))
            return
    metastore.drop(table, partition, wait=_WAIT)


def truncate(
    metastore: Metastore,
    table: str,
    partitions: Sequence[str] | None,
    write_id: int,
    mine: set[int],
) -> None:
    """Writes an empty base for the write id into the table, or into each of the partitions.

    The client has locked the table for writing, and its commit makes the bases visible (P32).
    `mine` are the transactions of this connection: a base with a write id of another could hide
    rows that are committed. Raises NoSuchTable, NoSuchPartition, UnsupportedStatement.
    """
    record = metastore.table(table)
    if not any(_writes(metastore, txn, record.name, write_id) for txn in mine):
        raise UnsupportedStatement(
            f"{record.name}: write id {write_id or 'none'} is of no open transaction in which this"
            " client locked the table; run TRUNCATE again"
        )
    for entity in _entities(metastore, record, partitions):
        files, root = Files.of(record.location)
        where = f"{root}/{entity}" if entity else root
        base = f"{where}/{names.BaseName(write_id)}"
        files.make_directory(base)
        files.write(f"{base}/{names.VERSION_FILE}", names.VERSION)


def _writes(metastore: Metastore, txn: int, table: str, write_id: int) -> bool:
    """If the transaction is open and has this write id of the table."""
    with suppress(NoSuchTxn, TxnAborted):
        return any(
            (touched_entity.table, touched_entity.write_id) == (table, write_id)
            for touched_entity in metastore.call(ops.GetTouched(txn))
        )
    return False


def _entities(
    metastore: Metastore, record: TableRecord, partitions: Sequence[str] | None
) -> Sequence[str | None]:
    if not record.partitioned:
        return [None]
    present = metastore.partitions(record.name)
    entities = [protocol.normal(record, name) for name in partitions or present]
    missing = sorted({*entities} - {*present})
    if missing:
        raise NoSuchPartition(f"{record.name} has no partition {missing[0]}")
    return entities


class PartitionCalls(CallHandler):
    # --- add ------------------------------------------------------------------------------------

    def add_partitions(self, partitions: Sequence[Any]) -> int:
        """Registers partitions. Raises TableExists if one of them exists, and then adds none."""
        if not partitions:
            return 0
        first = partitions[0]
        record = self._record(first.dbName, first.tableName)
        names = [_placed(record, partition) for partition in partitions]
        present = sorted({*names} & {*self._metastore.partitions(record.name)})
        if present:
            raise TableExists(f"{record.name} has the partition {present[0]} already")
        return len(self._metastore.call(ops.RegisterPartitions(record.name, tuple(names))))

    def add_partition(self, partition: Any) -> Any:
        self.add_partitions([partition])
        return partition

    def add_partitions_req(self, request: Any) -> Any:
        record = self._record(request.dbName, request.tblName)
        names = {_placed(record, part): part for part in request.parts}
        if not request.ifNotExists:
            self.add_partitions(request.parts)
            added = [*names]
        else:
            added = self._metastore.call(ops.RegisterPartitions(record.name, (*names,)))
        result = [names[name] for name in added] if request.needResult is not False else None
        return load().AddPartitionsResult(partitions=result)

    def append_partition(self, database: str, name: str, values: Sequence[str]) -> Any:
        record = self._record(database, name)
        partition = protocol.partition(record, protocol.name_of(record, values))
        return self.add_partition(partition)

    def append_partition_by_name(self, database: str, name: str, partition: str) -> Any:
        record = self._record(database, name)
        return self.append_partition(database, name, protocol.values_of(record, partition))

    def append_partition_req(self, request: Any) -> Any:
        if request.name:
            return self.append_partition_by_name(request.dbName, request.tableName, request.name)
        return self.append_partition(request.dbName, request.tableName, request.partVals or [])

    # --- drop -----------------------------------------------------------------------------------

    def _drop(self, record: TableRecord, partition: str, delete: bool | None) -> None:
        """Raises NoSuchPartition, and UnsupportedStatement if the files should stay."""
        if partition not in self._metastore.partitions(record.name):
            raise NoSuchPartition(f"{record.name} has no partition {partition}")
        if delete is False:
            raise UnsupportedStatement(
                f"{record.name}: a partition can't be dropped without its files"
            )
        drop(self._metastore, record.name, partition, self._caller.txns)

    def drop_partition(self, database: str, name: str, values: Sequence[str], delete: bool) -> bool:
        record = self._record(database, name)
        self._drop(record, protocol.name_of(record, values), delete)
        return True

    def drop_partition_by_name(
        self, database: str, name: str, partition: str, delete: bool
    ) -> bool:
        record = self._record(database, name)
        self._drop(record, protocol.normal(record, partition), delete)
        return True

    def drop_partition_req(self, request: Any) -> bool:
        table = (request.dbName, request.tblName)
        # Hive's clients leave it out for true.
        delete = request.deleteData is not False
        if request.partName:
            return self.drop_partition_by_name(*table, request.partName, delete)
        return self.drop_partition(*table, request.partVals or [], delete)

    def drop_partitions_req(self, request: Any) -> Any:
        """Raises UnsupportedStatement for partitions that are chosen by an expression."""
        if request.parts.names is None:
            raise UnsupportedStatement(
                f"{request.dbName}.{request.tblName}: partitions can't be dropped by an expression"
                ' of Hive\'s; drop them with `acid sql "ALTER TABLE … DROP PARTITION"`'
            )
        record = self._record(request.dbName, request.tblName)
        dropped = []
        for name in request.parts.names:
            full = protocol.normal(record, name)
            shown = protocol.partition(record, full)
            try:
                self._drop(record, full, request.deleteData)
            except NoSuchPartition:
                if not request.ifExists:
                    raise
                continue
            dropped.append(shown)
        return load().DropPartitionsResult(partitions=dropped)

    # --- alter ----------------------------------------------------------------------------------

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Any]) -> None:
        """Keeps the counts that come with partitions.

        Raises InvalidDefinition for another location, and NoSuchPartition.
        """
        record = self._record(database, name)
        named = {_placed(record, partition): partition for partition in partitions}
        missing = [*named.keys() - {*self._metastore.partitions(record.name)}]
        if missing:
            raise NoSuchPartition(f"{record.name} has no partition {missing[0]}")
        for partition, told in named.items():
            keep_counts(record, partition, told.parameters or {})

    def alter_partition(self, database: str, name: str, partition: Any) -> None:
        self.alter_partitions(database, name, [partition])


def _placed(record: TableRecord, partition: Any) -> str:
    """The partition's name. Raises InvalidDefinition for a location of its own."""
    name = protocol.name_of(record, partition.values)
    refuse_promises(f"{record.name} {name}", partition.parameters or {})
    location = partition.sd.location if partition.sd else None
    if location and protocol.path(location) != protocol.path(f"{record.location}/{name}"):
        raise InvalidDefinition(
            f"{record.name}: partition {name} can't have the location {location}; a partition is"
            f" in {record.location}/{name}"
        )
    return name
