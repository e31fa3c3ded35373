"""Calls that keep and serve what other engines have counted: the statistics of their planners.

They are hints. Each is as old as the ANALYZE or INSERT that sent it, and no row depends on it: Hive
is never told that they are accurate. So they are files beside the data, which go with the table,
one file for the table and one for each partition; the last writer wins.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from acid_platform.errors import InvalidDefinition, NoSuchPartition, UnknownColumn
from acid_platform.gateway import shapes
from acid_platform.gateway.call_handler import CallHandler
from acid_platform.gateway.protocol import load
from acid_platform.layout.names import STATISTICS_DIRECTORY
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.files import Files

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
        partition = shapes.normal(record, described.partName)
        if partition not in self._metastore.partitions(record.name):
            raise NoSuchPartition(f"{record.name} has no partition {partition}")
        _keep_columns(record, partition, statistics.statsObj)
        return True

    def set_aggr_stats_for(self, request: Any) -> bool:
        for one in request.colStats:
            if one.statsDesc.isTblLevel:
                self.update_table_column_statistics(one)
            else:
                self.update_partition_column_statistics(one)
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
        _forget(record, shapes.normal(record, partition), column)
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
            if (columns := _columns_of(record, shapes.normal(record, name), request.colNames))
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
    kept = {one.colName: one for one in statistics.columns if one.colName in own}
    for one in columns:
        one.colName = (one.colName or "").lower()
        if one.colName not in own:
            raise UnknownColumn(
                f"{record.name} has no column {one.colName[:100]!r}: no statistics are kept of it"
            )
        if len(_serialized(one)) > _LARGEST:
            raise InvalidDefinition(
                f"{record.name}: the statistics of {one.colName} have more than {_LARGEST:,} bytes"
            )
        kept[one.colName] = one
    statistics.columns = [*kept.values()]
    _write(record, partition, statistics)


def _forget(record: TableRecord, partition: str | None, column: str | None) -> None:
    statistics = _read(record, partition)
    statistics.columns = [
        one for one in statistics.columns if column and one.colName != column.lower()
    ]
    _write(record, partition, statistics)


def _columns_of(record: TableRecord, partition: str | None, names: Sequence[str]) -> list[Any]:
    """The statistics of these columns, if they still have the type that was counted."""
    requested, types = {name.lower() for name in names}, dict(record.columns)
    return [
        one
        for one in _read(record, partition).columns
        if one.colName in requested and types.get(one.colName) == one.colType
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
