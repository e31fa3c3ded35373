"""Names of modules of 0.1.0, by which what was built on them still finds their contents.

0.1.0 had 461 modules, of which 220 became parts of others. Importing one gives a module with the
names of those that hold its contents now, and a DeprecationWarning. This module goes with 0.2.0.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ROOT = __name__.partition(".")[0]


class FormerModules:
    """Finds them. Python asks it after its own finders, so it costs other imports nothing."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002, Python's protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if not name.startswith(f"{_ROOT}."):
            return None
        former = name.removeprefix(f"{_ROOT}.")
        is_package = any(each.startswith(f"{former}.") for each in _modules())
        if former not in _modules() and not is_package:
            return None
        return ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        targets = [f"{_ROOT}.{each}" for each in _modules().get(name.removeprefix(f"{_ROOT}."), ())]
        if not targets:
            return
        warnings.warn(
            f"{name} is a part of {' and '.join(targets)} since 0.1.0; import it from there",
            DeprecationWarning,
            stacklevel=2,
        )

        def found(attribute: str) -> Any:
            for target in targets:
                holder = import_module(target)
                if attribute in vars(holder):
                    return getattr(holder, attribute)
            raise AttributeError(f"{' and '.join(targets)} have no {attribute!r}")

        vars(module)["__getattr__"] = found


def install() -> None:
    """Makes the former names known, once in a process."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.append(FormerModules())


def _modules() -> dict[str, list[str]]:
    """The modules of now by each former one."""
    if not _PARSED:
        for line in _TABLE.strip().splitlines():
            former, _, now = line.partition(": ")
            _PARSED[former] = now.split()
    return _PARSED


_PARSED: dict[str, list[str]] = {}
_TABLE = """
base.arrow_functions: base.first_use
base.cores: base.first_use
base.disk: base.local_files
base.metrics_page: base.ports
base.per_process: base.first_use
base.recent: base.first_use
base.similar_names: base.arguments
base.store_faults: base.s3
base.table_properties: layout.table_properties
base.tracing: base.logs
base.visible: errors base.logs
cli.file_commands: cli.table_commands
cli.history_commands: cli.table_commands
cli.import_command: cli.table_commands
cli.new_project: cli.project
cli.recovery_commands: cli.metastore_commands
cli.service_metrics: cli.runner
compaction.entity_size: compaction.states
compaction.forecast: compaction.plan
compaction.fractions: formats.file_access
compaction.key_merge: compaction.rewrite
compaction.opening: compaction.execution
compaction.validation: compaction.profiles
compaction.value_sums: compaction.profiles
display.costs: display.timeline_chart
display.looks: display.listing
display.progress: display.listing
engine.arrow_values: values.fitting scan.text_values handles.csv_files
engine.assignments: engine.merge_clauses scan.recorded_ranges
engine.coercion: values.coercion
engine.compaction_choice: engine.choice
engine.exact_values: values.coercion
engine.local.partition_texts: values.partition_texts
engine.local.placed_rows: engine.local.event_files
engine.local.query_sources: engine.local.computation
engine.local.row_checks: engine.local.dml
engine.local.running: engine.local.engine
engine.local.stored_values: values.stored_values engine.spark.input_rows
engine.local.translation.case_expressions: engine.local.translation.casts
engine.local.translation.duckdb_failures: engine.local.translation.duckdb_sql
engine.local.translation.duckdb_types: engine.local.translation.duckdb_sql layout.types
engine.local.translation.grouping_sets: engine.local.translation.query_clauses
engine.local.translation.java_patterns: engine.local.translation.text_patterns
engine.local.translation.relations: engine.local.translation.query_clauses scan.deletes
engine.local.translation.scope: engine.local.translation.query_clauses
engine.local.translation.select_clauses: engine.local.translation.selects
engine.local.write: engine.local.dml engine.local.event_files
engine.moment: engine.interface
engine.python_values: values.python_values values.coercion
engine.reads: engine.interface
engine.refusals: values.fitting
engine.results: engine.interface
engine.rows: values.rows values.local_rows
engine.spark.acid_columns: engine.spark.row_keys
engine.spark.cache: engine.spark.few_calls
engine.spark.change_frames: engine.spark.scan
engine.spark.char_varchar: engine.spark.spark_types formats.orc.writer_clocks
engine.spark.compact: engine.spark.spark_engine
engine.spark.compaction_tasks: engine.spark.task_body
engine.spark.deleted_rows: engine.spark.row_keys
engine.spark.dml: engine.spark.spark_dml
engine.spark.engine: engine.spark.spark_engine
engine.spark.jobs: engine.spark.spark_engine
engine.spark.merge: engine.spark.spark_dml
engine.spark.plain_files: engine.spark.task_writing
engine.spark.spark_versions: engine.spark
engine.spark_pieces: values.row_streams
engine.struct_fields: values.fitting
gateway.bounds: gateway.client_connection
gateway.call_handler: gateway.authorization
gateway.call_table: gateway.gateway
gateway.caller: gateway.authorization
gateway.compaction_calls: gateway.transaction_calls
gateway.constraint_calls: gateway.definition_calls
gateway.delete_buckets: gateway.external_writes
gateway.gateway_metrics: gateway.gateway_process
gateway.gateway_tls: gateway.logins
gateway.reloaded_file: gateway.logins
gateway.sasl: gateway.framing
gateway.session_calls: gateway.catalog_calls
gateway.settings: gateway.gateway_process
gateway.shapes: gateway.protocol
gateway.statistics_calls: gateway.partition_calls
gateway.status: gateway.gateway_process
gateway.users: gateway.logins
gateway.workers: gateway.client_connection
handles.column_totals: handles.imports
handles.constraint_checks: tables.table_constraints
handles.database_sources: handles.import_sources
handles.file_rows: tables.external_tables
handles.grouped_inserts: handles.import_sources
handles.held_snapshot: handles.snapshot_views handles.read_verbs
handles.left_out_columns: handles.write_verbs
handles.snapshot_comparison: handles.past_rows
handles.snapshot_view: handles.snapshot_views
layout.constraints: layout.types
layout.declarable: layout.names
layout.external_formats: layout.formats
layout.moments: layout.names
layout.partition_names: layout.names
layout.schema: layout.acid_keys formats.orc.events engine.spark.scan
metastore.client.heartbeats: metastore.client.open_transaction
metastore.client.start: metastore.client.target
metastore.codec: metastore.messages transactions.ids
metastore.log.open_log: metastore.log.contract
metastore.log.postgres_session: metastore.log.postgres
metastore.log.segment: metastore.log.contract metastore.messages __main__
metastore.log.store_access: metastore.log.objects
metastore.operations.base: metastore.messages
metastore.operations.history: metastore.operations.tables
metastore.operations.other_engines: metastore.operations.transactions
metastore.operations.shows: metastore.operations.listings
metastore.rules.candidates: metastore.rules.compaction_queue
metastore.rules.cleaning_survey: metastore.rules.cleaning
metastore.rules.drops: metastore.rules.commits
metastore.rules.endings: metastore.rules.write_set sql.text
metastore.rules.erasures: metastore.rules.compactions
metastore.rules.housekeeping: metastore.rules.machine
metastore.rules.kept_history: metastore.rules.snapshots metastore.rules.compactions
metastore.rules.listings: metastore.rules.reading
metastore.rules.lock_index: metastore.rules.state
metastore.rules.lock_requests: metastore.rules.locking
metastore.rules.restoring: metastore.rules.identity
metastore.rules.stream_sinks: metastore.rules.change_feed metastore.rules.declared
metastore.rules.view_declarations: metastore.rules.table_declarations metastore.rules.reading
metastore.server.archiving: metastore.server.leading
metastore.server.election: metastore.server.leading
metastore.server.file_operations: metastore.server.group_commit
metastore.server.point_in_time: metastore.server.restore
metastore.server.reception: metastore.server.connections
metastore.server.saving: metastore.server.store
metastore.server.state_file: metastore.server.state_tables base.databases
metastore.server.state_rows: metastore.server.stored_kinds metastore.server.store
metastore.show_columns: metastore.operations.listings
metastore.tasks: metastore.operations.compaction
metastore.view_columns: metastore.records
orc.calendars: formats.orc.writer_clocks values.arrow_types
orc.column_statistics: formats.orc.column_statistics
orc.dump: formats.orc.dump
orc.encoding: formats.orc.encoding
orc.orc_file: formats.orc.orc_file formats.orc.strange_files formats.data_file
orc.protobuf: formats.orc.protobuf
orc.pyorc_rows: formats.orc.pyorc_rows formats.orc.strange_files
orc.ranges: formats.orc.column_statistics
orc.runs: formats.orc.runs
orc.stored_columns: formats.orc.writer
orc.tail: formats.orc.tail base.file_bounds
orc.writer: formats.orc.writer
orc.writer_zones: formats.orc.writer_clocks formats.orc.strange_files
orchestration.checked_rows: orchestration.evaluation
orchestration.cleaning_job: orchestration.service_jobs
orchestration.compaction_job: orchestration.service_jobs
orchestration.docs_site: orchestration.check_results
orchestration.ended_runs: orchestration.sensors
orchestration.erasure_job: orchestration.service_jobs
orchestration.external_assets: orchestration.components
orchestration.known_expectations: orchestration.checks
orchestration.materialized: orchestration.materialize
orchestration.quarantine: orchestration.body_rows
orchestration.suites: orchestration.checks
orchestration.write_modes: orchestration.outputs
predicates.char_literals: predicates.grammar
predicates.literals: predicates.analysis
scan.arrow_scan: scan.scans
scan.change_rows: scan.change_scan
scan.data_files: scan.selection
scan.event_keys: services.fsck.content
scan.file_pruning: scan.recorded_ranges
scan.json_lines: scan.text_lines
scan.kept_keys: scan.deletes
scan.number_texts: scan.text_values
scan.recorded_values: scan.recorded_ranges
scan.row_counts: formats.file_access formats.parquet_files
scan.row_keys: formats.data_file
scan.shadowing: scan.selection
scan.table_layout: scan.open
services.cleaning_plans: services.removals
services.fsck.naming: services.fsck.entity
services.fsck.walk: services.fsck
services.lease: services
spark_source.batch_read: spark_source.reads
spark_source.stream_read: spark_source.reads
sql.commands: sql.statements
sql.magic: sql.answers
sql.parameters: sql.scripts
sql.partition_specs: sql.column_lists
sql.present: sql.answers
sql.pruning: sql.scopes
sql.qualified_names: sql.column_references
sql.recorded_answers: sql.run_queries
sql.run_databases: sql.run_definitions
sql.run_exports: sql.text
sql.run_external: sql.run_columns
sql.run_listings: sql.run_shows
sql.run_settings: sql.run_operations base.config
sql.run_temporary: sql.sql_session
sql.script_tables: sql.scripts engine.spark.scan
sql.shown_declarations: sql.declarations
sql.split_dml: sql.parse_changes sql.text
sql.split_merge: sql.parse_changes
sql.unknown_names: sql.column_references
sql.views: sql.catalog
storage.arrow_lending: values.row_streams
storage.arrow_numpy: values.arrow_types
storage.arrow_types: values.arrow_types values.partition_texts
storage.python_dates: values.row_streams
storage.removal: storage.durability
storage.wall_clocks: values.stored_values
tables.column_changes: tables.declaration
tables.restored_tables: tables.adoption
transactions.conflicts: transactions.concurrency
transactions.lists: transactions.ids
transactions.locks: transactions.concurrency base.config
write.changed_rows: write.publishing
write.exported_file: values.coercion
write.file_records: formats.file_access
write.parquet_writer: formats.parquet
"""
