"""All calls that the gateway knows: a row each, with the function that answers it, what it needs,
and the transactions and locks that have to be the caller's own.

A call without a row is an unknown one, so a new call is closed until somebody decides about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acid_platform.gateway import needs
from acid_platform.gateway.call_handler import CallHandler
from acid_platform.gateway.catalog_calls import CatalogCalls
from acid_platform.gateway.compaction_calls import CompactionCalls
from acid_platform.gateway.constraint_calls import ConstraintCalls, of_kind
from acid_platform.gateway.definition_calls import DefinitionCalls
from acid_platform.gateway.needs import CallRow, one_txn, txn_range
from acid_platform.gateway.partition_calls import PartitionCalls
from acid_platform.gateway.protocol import load
from acid_platform.gateway.session_calls import SessionCalls
from acid_platform.gateway.statistics_calls import StatisticsCalls
from acid_platform.gateway.transaction_calls import TransactionCalls
from acid_platform.layout.constraints import ConstraintKind

CallMethod = Callable[..., Any]


def of_request(call: CallMethod, fields: str, answer: str = "") -> CallMethod:
    """A call of Hive 4, which gets in the fields of one struct what `call` gets as arguments.

    `answer`: the struct, and its field, in which the answer is sent, such as `Result.partitions`.
    """
    struct, _, field = answer.partition(".")
    names = fields.split()

    def method(self: CallHandler, request: Any) -> Any:
        value = call(self, *(getattr(request, name) for name in names))
        if not struct:
            return value
        return getattr(load(), struct)(**({field: value} if field else {}))

    return method


def leading(call: CallMethod, count: int) -> CallMethod:
    """A call with more arguments than `call` has: only the first `count` matter here."""

    def method(self: CallHandler, *arguments: Any) -> Any:
        return call(self, *arguments[:count])

    return method


def always(answer: Any = None) -> CallMethod:
    """A call that has the same answer at all times."""

    def method(_self: CallHandler, *_arguments: Any) -> Any:
        return answer

    return method


def always_struct(struct: str, **fields: Any) -> CallMethod:
    """A call that is answered with this struct at all times."""

    def method(_self: CallHandler, *_arguments: Any) -> Any:
        return getattr(load(), struct)(**fields)

    return method


# fmt: off
CALLS: dict[str, CallRow] = {
    # --- declarations: databases, tables, partitions
    "get_all_databases": CallRow(CatalogCalls.get_all_databases, needs.NOTHING),
    "get_databases": CallRow(CatalogCalls.get_databases, needs.NOTHING),
    "get_database": CallRow(CatalogCalls.get_database, needs.NOTHING),
    "get_database_req": CallRow(of_request(CatalogCalls.get_database, "name"), needs.NOTHING),
    "get_databases_req": CallRow(CatalogCalls.get_databases_req, needs.NOTHING),
    "get_catalogs": CallRow(CatalogCalls.get_catalogs, needs.NOTHING),
    "get_catalog": CallRow(CatalogCalls.get_catalog, needs.NOTHING),
    "get_all_tables": CallRow(CatalogCalls.get_all_tables, needs.NOTHING),
    "get_tables": CallRow(CatalogCalls.get_tables, needs.NOTHING),
    "get_tables_by_type": CallRow(CatalogCalls.get_tables_by_type, needs.NOTHING),
    "get_materialized_views_for_rewriting": CallRow(always([]), needs.NOTHING),
    "get_all_materialized_view_objects_for_rewriting": CallRow(always([]), needs.NOTHING),
    "get_table_meta": CallRow(CatalogCalls.get_table_meta, needs.NOTHING),
    "get_table_names_by_filter": CallRow(CatalogCalls.get_table_names_by_filter, needs.NOTHING),
    "get_table": CallRow(CatalogCalls.get_table, needs.SEE_TABLE),
    "get_table_req": CallRow(CatalogCalls.get_table_req, needs.SEE_TABLE),
    "get_table_objects_by_name": CallRow(CatalogCalls.get_table_objects_by_name, needs.SEE_NAMED),
    "get_table_objects_by_name_req": CallRow(
        CatalogCalls.get_table_objects_by_name_req, needs.SEE_REQUESTED),
    "get_fields": CallRow(CatalogCalls.get_fields, needs.SEE_TABLE),
    "get_fields_req": CallRow(
        of_request(CatalogCalls.get_fields, "dbName tblName", "GetFieldsResponse.fields"),
            needs.SEE_TABLE),
    "get_schema": CallRow(CatalogCalls.get_schema, needs.SEE_TABLE),
    "get_schema_req": CallRow(
        of_request(CatalogCalls.get_schema, "dbName tblName", "GetFieldsResponse.fields"),
            needs.SEE_TABLE),
    "get_partition_names": CallRow(CatalogCalls.get_partition_names, needs.SEE_TABLE),
    "fetch_partition_names_req": CallRow(
        of_request(CatalogCalls.get_partition_names, "dbName tblName maxParts"), needs.SEE_TABLE),
    "get_partition_names_ps": CallRow(CatalogCalls.get_partition_names_ps, needs.SEE_TABLE),
    "get_partition_names_ps_req": CallRow(
        of_request(CatalogCalls.get_partition_names_ps, "dbName tblName partValues maxParts",
            "GetPartitionNamesPsResponse.names"), needs.SEE_TABLE),
    "get_partitions": CallRow(CatalogCalls.get_partitions, needs.SEE_TABLE),
    "get_partitions_with_auth": CallRow(leading(CatalogCalls.get_partitions, 3), needs.SEE_TABLE),
    "get_partitions_req": CallRow(
        of_request(CatalogCalls.get_partitions, "dbName tblName maxParts",
            "PartitionsResponse.partitions"), needs.SEE_TABLE),
    "get_partitions_ps": CallRow(CatalogCalls.get_partitions_ps, needs.SEE_TABLE),
    "get_partitions_ps_with_auth": CallRow(
        leading(CatalogCalls.get_partitions_ps, 4), needs.SEE_TABLE),
    "get_partitions_ps_with_auth_req": CallRow(
        of_request(CatalogCalls.get_partitions_ps, "dbName tblName partVals maxParts",
            "GetPartitionsPsWithAuthResponse.partitions"), needs.SEE_TABLE),
    "get_partition_by_name": CallRow(CatalogCalls.get_partition_by_name, needs.SEE_TABLE),
    "get_partition": CallRow(CatalogCalls.get_partition, needs.SEE_TABLE),
    "get_partition_with_auth": CallRow(leading(CatalogCalls.get_partition, 3), needs.SEE_TABLE),
    "get_partition_req": CallRow(
        of_request(CatalogCalls.get_partition, "dbName tblName partVals",
            "GetPartitionResponse.partition"), needs.SEE_TABLE),
    "get_partitions_by_names": CallRow(CatalogCalls.get_partitions_by_names, needs.SEE_TABLE),
    "get_partitions_by_names_req": CallRow(
        of_request(CatalogCalls.get_partitions_by_names, "db_name tbl_name names",
            "GetPartitionsByNamesResult.partitions"), needs.SEE_TABLE),
    "get_partitions_by_expr": CallRow(CatalogCalls.get_partitions_by_expr, needs.SEE_TABLE),
    "get_partitions_spec_by_expr": CallRow(
        CatalogCalls.get_partitions_spec_by_expr, needs.SEE_TABLE),
    "get_partitions_by_filter": CallRow(CatalogCalls.get_partitions_by_filter, needs.SEE_TABLE),
    "get_partitions_by_filter_req": CallRow(
        of_request(CatalogCalls.get_partitions_by_filter, "dbName tblName filter maxParts"),
            needs.SEE_TABLE),
    "get_num_partitions_by_filter": CallRow(
        CatalogCalls.get_num_partitions_by_filter, needs.SEE_TABLE),
    "partition_name_to_vals": CallRow(CatalogCalls.partition_name_to_vals, needs.NOTHING),
    "partition_name_to_spec": CallRow(CatalogCalls.partition_name_to_spec, needs.NOTHING),
    # Every text may be a partition's value: its name escapes what a path can't have.
    "partition_name_has_valid_characters": CallRow(always(True), needs.NOTHING),
    # --- constraints
    "get_primary_keys": CallRow(of_kind(ConstraintKind.PRIMARY_KEY), needs.SEE_TABLE),
    "get_unique_constraints": CallRow(of_kind(ConstraintKind.UNIQUE), needs.SEE_TABLE),
    "get_not_null_constraints": CallRow(of_kind(ConstraintKind.NOT_NULL), needs.SEE_TABLE),
    "get_default_constraints": CallRow(of_kind(ConstraintKind.DEFAULT), needs.SEE_TABLE),
    "get_check_constraints": CallRow(of_kind(ConstraintKind.CHECK), needs.SEE_TABLE),
    "get_foreign_keys": CallRow(ConstraintCalls.get_foreign_keys, needs.SEE_KEYS),
    "get_all_table_constraints": CallRow(
        ConstraintCalls.get_all_table_constraints, needs.SEE_TABLE),
    # --- changes of declarations
    "create_database": CallRow(DefinitionCalls.create_database, needs.CREATE_DATABASE),
    "create_database_req": CallRow(DefinitionCalls.create_database_req, needs.CREATE_DATABASE),
    "alter_database": CallRow(DefinitionCalls.alter_database, needs.ALTER_DATABASE),
    "drop_database": CallRow(DefinitionCalls.drop_database, needs.DROP_DATABASE),
    "drop_database_req": CallRow(DefinitionCalls.drop_database_req, needs.DROP_DATABASE),
    "create_table": CallRow(DefinitionCalls.create_table, needs.CREATE_TABLE),
    "create_table_with_environment_context": CallRow(
        leading(DefinitionCalls.create_table, 1), needs.CREATE_TABLE),
    "create_table_req": CallRow(DefinitionCalls.create_table_req, needs.CREATE_REQUESTED),
    "drop_table": CallRow(DefinitionCalls.drop_table, needs.DROP_TABLE),
    "drop_table_with_environment_context": CallRow(
        leading(DefinitionCalls.drop_table, 3), needs.DROP_TABLE),
    "drop_table_req": CallRow(
        of_request(DefinitionCalls.drop_table, "dbName tableName deleteData"), needs.DROP_TABLE),
    "truncate_table_req": CallRow(DefinitionCalls.truncate_table_req, needs.EMPTY_TABLE),
    "truncate_table": CallRow(DefinitionCalls.truncate_table, needs.EMPTY_TABLE),
    "alter_table": CallRow(DefinitionCalls.alter_table, needs.ALTER_TABLE),
    "alter_table_with_environment_context": CallRow(
        leading(DefinitionCalls.alter_table, 3), needs.ALTER_TABLE),
    "alter_table_with_cascade": CallRow(leading(DefinitionCalls.alter_table, 3), needs.ALTER_TABLE),
    "alter_table_req": CallRow(DefinitionCalls.alter_table_req, needs.ALTER_TABLE),
    # --- changes of partitions
    "add_partitions": CallRow(PartitionCalls.add_partitions, needs.ADD_PARTITIONS),
    "add_partition": CallRow(PartitionCalls.add_partition, needs.ADD_PARTITION),
    "add_partitions_req": CallRow(PartitionCalls.add_partitions_req, needs.ADD_REQUESTED),
    "append_partition": CallRow(PartitionCalls.append_partition, needs.ADD_PARTITION),
    "append_partition_by_name": CallRow(
        PartitionCalls.append_partition_by_name, needs.ADD_PARTITION),
    "append_partition_req": CallRow(PartitionCalls.append_partition_req, needs.ADD_PARTITION),
    "drop_partition": CallRow(PartitionCalls.drop_partition, needs.DROP_PARTITION),
    "drop_partition_with_environment_context": CallRow(
        leading(PartitionCalls.drop_partition, 4), needs.DROP_PARTITION),
    "drop_partition_by_name": CallRow(PartitionCalls.drop_partition_by_name, needs.DROP_PARTITION),
    "drop_partition_req": CallRow(PartitionCalls.drop_partition_req, needs.DROP_PARTITION),
    "drop_partitions_req": CallRow(PartitionCalls.drop_partitions_req, needs.DROP_PARTITION),
    "alter_partitions": CallRow(PartitionCalls.alter_partitions, needs.KEEP_STATISTICS),
    "alter_partition": CallRow(PartitionCalls.alter_partition, needs.KEEP_STATISTICS),
    "alter_partition_with_environment_context": CallRow(
        leading(PartitionCalls.alter_partition, 3), needs.KEEP_STATISTICS),
    "alter_partitions_with_environment_context": CallRow(
        leading(PartitionCalls.alter_partitions, 3), needs.KEEP_STATISTICS),
    "alter_partitions_req": CallRow(
        of_request(PartitionCalls.alter_partitions, "dbName tableName partitions",
            "AlterPartitionsResponse"), needs.KEEP_STATISTICS),
    # --- statistics
    "update_table_column_statistics": CallRow(
        StatisticsCalls.update_table_column_statistics, needs.SET_STATISTICS),
    "update_partition_column_statistics": CallRow(
        StatisticsCalls.update_partition_column_statistics, needs.SET_STATISTICS),
    "set_aggr_stats_for": CallRow(StatisticsCalls.set_aggr_stats_for, needs.SET_STATISTICS),
    "update_table_column_statistics_req": CallRow(
        StatisticsCalls.update_table_column_statistics_req, needs.SET_STATISTICS),
    "update_partition_column_statistics_req": CallRow(
        StatisticsCalls.update_table_column_statistics_req, needs.SET_STATISTICS),
    "delete_table_column_statistics": CallRow(
        StatisticsCalls.delete_table_column_statistics, needs.KEEP_STATISTICS),
    "delete_partition_column_statistics": CallRow(
        StatisticsCalls.delete_partition_column_statistics, needs.KEEP_STATISTICS),
    "get_table_statistics_req": CallRow(StatisticsCalls.get_table_statistics_req, needs.SEE_TABLE),
    "get_partitions_statistics_req": CallRow(
        StatisticsCalls.get_partitions_statistics_req, needs.SEE_TABLE),
    # Hive then plans without the statistics of several partitions together.
    "get_aggr_stats_for": CallRow(
        always_struct("AggrStats", colStats=[], partsFound=0), needs.SEE_TABLE),
    # --- transactions, snapshots and locks
    "open_txns": CallRow(TransactionCalls.open_txns, needs.NOTHING),
    "commit_txn": CallRow(TransactionCalls.commit_txn, needs.COMMIT, one_txn),
    "abort_txn": CallRow(TransactionCalls.abort_txn, needs.NOTHING, one_txn),
    "abort_txns": CallRow(
        TransactionCalls.abort_txns, needs.NOTHING, lambda request: request.txn_ids or ()),
    "heartbeat": CallRow(TransactionCalls.heartbeat, needs.NOTHING, one_txn, own_lock=True),
    "heartbeat_txn_range": CallRow(TransactionCalls.heartbeat_txn_range, needs.NOTHING, txn_range),
    "get_open_txns": CallRow(TransactionCalls.get_open_txns, needs.NOTHING),
    # Types to leave out are not needed: the list has no READ_ONLY transactions.
    "get_open_txns_req": CallRow(leading(TransactionCalls.get_open_txns, 0), needs.NOTHING),
    "get_open_txns_info": CallRow(TransactionCalls.get_open_txns_info, needs.NOTHING),
    "get_valid_write_ids": CallRow(TransactionCalls.get_valid_write_ids, needs.SEE_LISTED),
    "allocate_table_write_ids": CallRow(
        TransactionCalls.allocate_table_write_ids, needs.WRITE,
            lambda request: request.txnIds or ()),
    "get_max_allocated_table_write_id": CallRow(
        TransactionCalls.get_max_allocated_table_write_id, needs.SEE_TABLE),
    # Says what a reader needs; its locks have said that already.
    "add_write_ids_to_min_history": CallRow(always(), needs.NOTHING, lambda txn: [txn]),
    "get_latest_txnid_in_conflict": CallRow(
        TransactionCalls.get_latest_txnid_in_conflict, needs.NOTHING, lambda txn: [txn]),
    "lock": CallRow(TransactionCalls.lock, needs.LOCK, one_txn),
    "check_lock": CallRow(TransactionCalls.check_lock, needs.NOTHING, one_txn, own_lock=True),
    "unlock": CallRow(TransactionCalls.unlock, needs.NOTHING, own_lock=True),
    "show_locks": CallRow(TransactionCalls.show_locks, needs.NOTHING),
    "add_dynamic_partitions": CallRow(
        TransactionCalls.add_dynamic_partitions, needs.NOTHING, one_txn),
    # --- compactions
    "compact2": CallRow(CompactionCalls.compact2, needs.COMPACT),
    "compact": CallRow(CompactionCalls.compact, needs.COMPACT),
    "show_compact": CallRow(CompactionCalls.show_compact, needs.NOTHING),
    # --- what clients ask besides
    "get_config_value": CallRow(SessionCalls.get_config_value, needs.NOTHING),
    "getMetaConf": CallRow(SessionCalls.getMetaConf, needs.NOTHING),
    "set_ugi": CallRow(SessionCalls.set_ugi, needs.NOTHING),
    "get_metastore_db_uuid": CallRow(SessionCalls.get_metastore_db_uuid, needs.NOTHING),
    "get_privilege_set": CallRow(SessionCalls.get_privilege_set, needs.NOTHING),
    "get_function": CallRow(SessionCalls.get_function, needs.NOTHING),
    "flushCache": CallRow(always(), needs.NOTHING),
    "get_role_names": CallRow(always(["admin", "public"]), needs.NOTHING),
    "list_roles": CallRow(always([]), needs.NOTHING),
    "list_privileges": CallRow(always([]), needs.NOTHING),
    "get_functions": CallRow(always([]), needs.NOTHING),
    "get_functions_req": CallRow(
        always_struct("GetFunctionsResponse", function_names=[], functions=[]), needs.NOTHING),
    "get_all_functions": CallRow(
        always_struct("GetAllFunctionsResponse", functions=[]), needs.NOTHING),
    "get_current_notificationEventId": CallRow(
        always_struct("CurrentNotificationEventId", eventId=0), needs.NOTHING),
    "get_next_notification": CallRow(
        always_struct("NotificationEventResponse", events=[]), needs.NOTHING),
    "get_notification_events_count": CallRow(
        always_struct("NotificationEventsCountResponse", eventsCount=0), needs.NOTHING),
    # What an engine reports here, its commit says too.
    "fire_listener_event": CallRow(always_struct("FireEventResponse", eventIds=[]), needs.NOTHING),
    "get_runtime_stats": CallRow(always([]), needs.NOTHING),
    "add_runtime_stats": CallRow(always(), needs.NOTHING),
    "get_partition_names_req": CallRow(None, needs.SEE_TABLE),
    "setMetaConf": CallRow(None, needs.ADMIN),
}
# fmt: on
