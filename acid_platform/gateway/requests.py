"""Calls of Hive 4 that say in one struct what older calls say in several arguments (P34)."""

from __future__ import annotations

from typing import Any

from acid_platform.errors import UnsupportedStatement
from acid_platform.gateway.catalog_calls import CatalogCalls
from acid_platform.gateway.definition_calls import Definitions
from acid_platform.gateway.partition_calls import Partitions
from acid_platform.gateway.protocol import load


class Requests(CatalogCalls, Definitions, Partitions):
    """The part of the gateway with these calls. Method names are the protocol's."""

    def create_database_req(self, request: Any) -> None:
        """Raises what `create_database` raises."""
        if request.dataConnectorName or request.remote_dbname:
            raise UnsupportedStatement(
                f"database {request.databaseName} can't stand for one elsewhere"
            )
        for given in (request.locationUri, request.managedLocationUri):
            self.require_usual(request.databaseName.lower(), given)
        database = load().Database(
            name=request.databaseName,
            description=request.description,
            locationUri=request.locationUri,
            parameters=request.parameters,
        )
        self.create_database(database)

    def get_databases_req(self, request: Any) -> Any:
        found = [self.get_database(name) for name in self.get_databases(request.pattern)]
        return load().GetDatabaseObjectsResponse(databases=found)

    def drop_table_req(self, request: Any) -> None:
        self.drop_table(request.dbName, request.tableName, request.deleteData)

    def append_partition_req(self, request: Any) -> Any:
        if request.name:
            return self.append_partition_by_name(request.dbName, request.tableName, request.name)
        return self.append_partition(request.dbName, request.tableName, request.partVals or [])

    def drop_partition_req(self, request: Any) -> bool:
        where = (request.dbName, request.tblName)
        # Hive's clients leave it out for true.
        delete = request.deleteData is not False
        if request.partName:
            return self.drop_partition_by_name(*where, request.partName, delete)
        return self.drop_partition(*where, request.partVals or [], delete)

    def get_fields_req(self, request: Any) -> Any:
        return load().GetFieldsResponse(fields=self.get_fields(request.dbName, request.tblName))

    def get_schema_req(self, request: Any) -> Any:
        return load().GetFieldsResponse(fields=self.get_schema(request.dbName, request.tblName))

    def get_partition_req(self, request: Any) -> Any:
        found = self.get_partition(request.dbName, request.tblName, request.partVals)
        return load().GetPartitionResponse(partition=found)

    def get_partitions_by_filter_req(self, request: Any) -> list[Any]:
        return self.get_partitions_by_filter(
            request.dbName, request.tblName, request.filter or "", request.maxParts
        )

    def get_functions_req(self, _request: Any) -> Any:
        return load().GetFunctionsResponse(function_names=[], functions=[])
