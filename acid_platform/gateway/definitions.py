"""Calls that declare: tables, partitions, statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acid_platform.errors import InvalidDefinition, TableExists, UnsupportedStatement
from acid_platform.gateway import shapes
from acid_platform.gateway.protocol import load
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord


class Definitions:
    """The part of the gateway that changes declarations. Method names are the protocol's."""

    _metastore: Metastore

    # --- partitions -----------------------------------------------------------------------------

    def add_partitions(self, partitions: Sequence[Any]) -> int:
        """Registers partitions. Raises TableExists if one of them exists, and then adds none."""
        if not partitions:
            return 0
        first = partitions[0]
        record = self._metastore.table(f"{first.dbName}.{first.tableName}")
        names = [_placed(record, one) for one in partitions]
        known = sorted({*names} & {*self._metastore.partitions(record.name)})
        if known:
            raise TableExists(f"{record.name} has the partition {known[0]} already")
        return len(self._metastore.add_partitions(record.name, names))

    def add_partition(self, partition: Any) -> Any:
        self.add_partitions([partition])
        return partition

    def add_partitions_req(self, request: Any) -> Any:
        record = self._metastore.table(f"{request.dbName}.{request.tblName}")
        names = {_placed(record, one): one for one in request.parts}
        if not request.ifNotExists:
            self.add_partitions(request.parts)
            added = [*names]
        else:
            added = self._metastore.add_partitions(record.name, [*names])
        result = [names[name] for name in added] if request.needResult is not False else None
        return load().AddPartitionsResult(partitions=result)

    def append_partition(self, database: str, name: str, values: Sequence[str]) -> Any:
        record = self._metastore.table(f"{database}.{name}")
        partition = shapes.partition(record, shapes.name_of(record, values))
        return self.add_partition(partition)

    def append_partition_by_name(self, database: str, name: str, partition: str) -> Any:
        record = self._metastore.table(f"{database}.{name}")
        return self.append_partition(database, name, shapes.values_of(record, partition))

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Any]) -> None:
        """Statistics of partitions are accepted: the platform counts by itself.

        Raises InvalidDefinition for another location.
        """
        record = self._metastore.table(f"{database}.{name}")
        for one in partitions:
            _placed(record, one)

    def alter_partition(self, database: str, name: str, partition: Any) -> None:
        self.alter_partitions(database, name, [partition])

    def alter_partition_with_environment_context(
        self, database: str, name: str, partition: Any, _context: Any
    ) -> None:
        self.alter_partitions(database, name, [partition])

    def alter_partitions_with_environment_context(
        self, database: str, name: str, partitions: Sequence[Any], _context: Any
    ) -> None:
        self.alter_partitions(database, name, partitions)

    def alter_partitions_req(self, request: Any) -> Any:
        self.alter_partitions(request.dbName, request.tableName, request.partitions)
        return load().AlterPartitionsResponse()

    # --- tables ---------------------------------------------------------------------------------

    def alter_table(self, database: str, name: str, new: Any) -> None:
        record = self._metastore.table(f"{database}.{name}")
        columns = tuple((one.name, one.type) for one in new.sd.cols)
        if columns != record.columns or f"{new.dbName}.{new.tableName}" != record.name:
            raise UnsupportedStatement(f"{record.name}: ALTER TABLE is not built here")

    def alter_table_with_environment_context(
        self, database: str, name: str, new: Any, _context: Any
    ) -> None:
        self.alter_table(database, name, new)

    def alter_table_with_cascade(self, database: str, name: str, new: Any, _cascade: bool) -> None:
        self.alter_table(database, name, new)

    def alter_table_req(self, request: Any) -> Any:
        self.alter_table(request.dbName, request.tableName, request.table)
        return load().AlterTableResponse()

    # --- statistics: the platform keeps its own -------------------------------------------------

    def update_table_column_statistics(self, _statistics: Any) -> bool:
        return True

    def update_partition_column_statistics(self, _statistics: Any) -> bool:
        return True

    def update_table_column_statistics_req(self, _request: Any) -> Any:
        return load().SetPartitionsStatsResponse(result=True)

    def update_partition_column_statistics_req(self, _request: Any) -> Any:
        return load().SetPartitionsStatsResponse(result=True)

    def set_aggr_stats_for(self, _request: Any) -> bool:
        return True

    def delete_table_column_statistics(
        self, _database: str, _name: str, _column: str, _engine: str
    ) -> bool:
        return True

    def delete_partition_column_statistics(
        self, _database: str, _name: str, _partition: str, _column: str, _engine: str
    ) -> bool:
        return True


def _placed(record: TableRecord, partition: Any) -> str:
    """The partition's name. Raises InvalidDefinition for a location of its own."""
    name = shapes.name_of(record, partition.values)
    location = partition.sd.location if partition.sd else None
    if location and shapes.path(location) != shapes.path(f"{record.location}/{name}"):
        raise InvalidDefinition(
            f"{record.name}: partition {name} can't have the location {location}; a partition is"
            f" in {record.location}/{name}"
        )
    return name
