"""An IO manager for assets of plain `@dg.asset`: what they return is written to their tables, and
their inputs are read from tables at one snapshot.

It names its settings as the IO managers of other table formats do, and writes as `@acid_asset`
does, but after the body has ended and before any check has run. Tables have no letter case, and the
`schema` of an IO manager is not part of a key: so that no two assets of a code location fill the
same table and replace each other's rows, while both runs succeed, they are compared when they are
loaded (P57).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from pydantic import Field, PrivateAttr

from acid_platform.base.paths import user_path
from acid_platform.errors import InvalidDefinition, NoSuchTable, OutcomeUnknown
from acid_platform.handles.read_verbs import Snapshot
from acid_platform.handles.transaction import Transaction, autocommit
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.names import table_name
from acid_platform.layout.sql_text import quoted
from acid_platform.orchestration.inputs import no_rows, reader_of, where_mapped
from acid_platform.orchestration.materialize import Uncommitted
from acid_platform.orchestration.metadata import STORAGE_KIND, TABLE_KIND, TableDeclaration
from acid_platform.orchestration.outputs import KEYED_MODES, AcidOut, declared_by, write
from acid_platform.orchestration.partition_keys import PartitionText
from acid_platform.orchestration.resources import OwnSettings, SparkResource, WarehouseResource
from acid_platform.values.rows import Rows, column_names, plain_rows

_SETTINGS = ("schema", "partition_expr", "write_mode", "upsert_options", "schema_update_mode")
_OTHERS = {"mode": "write_mode", "schema_mode": "schema_update_mode"}
"""What other integrations, and `acid_asset`, call them."""
_UPSERT = ("when_matched_update_all", "when_not_matched_insert_all")
"""Options of other integrations that say what an upsert does here."""
_READ = "pandas.DataFrame, polars.DataFrame, pyarrow.Table or Spark's DataFrame"


class AcidIOManager(OwnSettings, dg.ConfigurableIOManager):
    """Stores each asset in a table, and loads it as the type that a parameter is annotated with.

    The asset `shop/orders` is the table `shop.orders`; an asset without a prefix is in `schema`,
    else in `default`. Metadata of an asset: `schema`, its database; `partition_expr`, as that of
    `acid_asset`; `write_mode`: `overwrite` (the default; of a partitioned asset the partitions of
    the run), `append`, `upsert` or `delete+insert`, the last two with
    `upsert_options={"join_cols": […]}`; `schema_update_mode`: `error` (the default) or `update`,
    which adds columns. Metadata of an input: `columns`.

    The inputs of a step are read at one snapshot. An output is one transaction. A table that does
    not exist gets the columns of the first rows, and is partitioned by those of `partition_expr`.
    """

    warehouse: WarehouseResource = Field(default_factory=WarehouseResource)
    spark: SparkResource = Field(default_factory=SparkResource)
    schema_: str | None = Field(
        default=None, alias="schema", description="The database of assets that name none."
    )

    _run_id: str = PrivateAttr(default="")
    _opened: Warehouse | None = PrivateAttr(default=None)
    _snapshots: ExitStack = PrivateAttr(default_factory=ExitStack)
    _of_step: tuple[str, Snapshot] | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._run_id = context.run.run_id if context.run else ""

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002
        with self._snapshots:
            self._of_step = None
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # --- writing -------------------------------------------------------------------------------

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Raises InvalidDefinition for settings that contradict each other, WrongType,
        UnknownColumn, SourceRowsAmbiguous, NoSuchPartition, WriteConflict.

        dg.Failure without a retry if nobody knows whether the rows were committed.
        """
        if not context.has_asset_key:
            raise InvalidDefinition(
                f"AcidIOManager stores assets; the output {context.name!r} of an op is none: give"
                " it another io_manager_key"
            )
        if obj is None:
            raise InvalidDefinition(
                f"{context.asset_key.to_user_string()} returned nothing; return rows, or annotate"
                " it with -> None if it writes by itself"
            )
        warehouse, rows = self._handle(), plain_rows(obj)
        partitioned = context.has_asset_partitions
        out = self._out(warehouse, context, rows)
        definition = context.asset_partitions_def if partitioned else None
        partitioning = out.partitioning(definition, False)
        scope = partitioning.scope(context.asset_partition_keys) if partitioning else None

        def change(txn: Transaction) -> Uncommitted:
            txn.derived.job = context.asset_key.to_user_string()
            write(warehouse, txn, out, rows, scope)
            return Uncommitted.of(warehouse, txn, out.name, self._run_id)

        try:
            ours = autocommit(warehouse, out.name, change)
        except OutcomeUnknown as error:
            raise dg.Failure(f"{type(error).__name__}: {error}", allow_retries=False) from error
        metadata, rows_by_key = ours.committed(warehouse, scope, context.log)
        context.add_output_metadata(metadata)
        step = context.step_context
        for key, count in rows_by_key.items():
            step.add_asset_metadata(
                {"dagster/partition_row_count": count}, context.asset_key, partition_key=key
            )
        step.set_data_version(context.asset_key, ours.data_version)

    def _out(self, warehouse: Warehouse, context: dg.OutputContext, rows: Rows) -> AcidOut:
        settings: Mapping[str, Any] = context.definition_metadata or {}
        expr = settings.get("partition_expr")
        name = stored_in(context.asset_key, settings, self.schema_)
        _refuse_misspelt(settings, name)
        mode = settings.get("write_mode", "overwrite")
        options = dict(settings.get("upsert_options") or {})
        key = options.pop("join_cols", ())
        if others := [option for option in options if option not in _UPSERT]:
            raise InvalidDefinition(
                f"upsert_options of {name} names {others[0]!r}; it takes"
                f" {', '.join(('join_cols', *_UPSERT))}"
            )
        if other_values := [option for option, value in options.items() if value is not True]:
            raise InvalidDefinition(
                f"upsert_options of {name}: {', '.join(other_values)} must be True; write an asset"
                " that does other things by @acid_asset"
            )
        update = settings.get("schema_update_mode", "error")
        if update not in ("error", "update"):
            raise InvalidDefinition(f"schema_update_mode of {name} is {update!r}: error or update")
        return AcidOut(
            TableDeclaration(name, partitioned_by=_partitioned_by(warehouse, name, expr, rows)),
            mode,
            key if mode in KEYED_MODES else (),
            expr,
            schema_mode="add" if update == "update" else "error",
        )

    # --- reading -------------------------------------------------------------------------------

    def load_input(self, context: dg.InputContext) -> Any:
        """Raises InvalidDefinition for a type that no rows are loaded as, NoSuchTable,
        UnknownColumn, NoSuchPartition, SnapshotExpired."""
        reader = reader_of(context.dagster_type.typing_type)
        upstream = context.upstream_output
        if upstream is None or not context.has_asset_key:
            raise InvalidDefinition(
                f"AcidIOManager loads assets, and the input {context.name!r} is none"
            )
        if reader is None:
            raise InvalidDefinition(
                f"the input {context.name!r}: annotate the parameter with {_READ}"
                if context.has_input_name
                else f"{context.asset_key.to_user_string()} is loaded as {_READ}: name one by"
                " python_type"
            )
        settings: Mapping[str, Any] = upstream.definition_metadata or {}
        columns = context.definition_metadata.get("columns")
        try:
            table = self._snapshot(context).table(
                stored_in(context.asset_key, settings, self.schema_)
            )
        except NoSuchTable:
            if not _needs_none(context):
                raise
            return no_rows(reader, columns, lambda: self._handle().spark)
        expr, where = settings.get("partition_expr"), None
        if expr and context.has_asset_partitions:
            where = where_mapped(
                expr,
                context.asset_partitions_def,
                context.asset_partition_keys,
                table,
                context.has_partition_key or _runs_a_range(context),
                context.instance,
            )
        return reader(table, columns, where)

    def _snapshot(self, context: dg.InputContext) -> Snapshot:
        """The snapshot of the step; outside of runs a new one each time."""
        step = _attempt(context)
        if self._of_step is None or not step or self._of_step[0] != step:
            if step:
                self._snapshots.close()  # frames of earlier steps are not read any more
            self._of_step = step, self._snapshots.enter_context(self._handle().snapshot())
        return self._of_step[1]

    def _handle(self) -> Warehouse:
        if self._opened is None:
            self._opened = self.warehouse.open(self._run_id, self.spark)
        return self._opened


def _refuse_misspelt(settings: Mapping[str, Any], name: str) -> None:
    """Raises InvalidDefinition for metadata that means one of our settings, by all appearance: as
    free text it would have no effect, and the table would be replaced."""
    for key in settings:
        meant = get_close_matches(_OTHERS.get(key, key), _SETTINGS, 1, 0.8)
        if meant and key not in _SETTINGS:
            raise InvalidDefinition(f"metadata of {name}: {key} is called {meant[0]} here")


def _partitioned_by(
    warehouse: Warehouse, name: str, expr: PartitionText | None, rows: Rows
) -> tuple[str, ...]:
    """The partition columns of the table; of a new one those that `expr` names, with the types that
    the rows have there, or as texts."""
    if name in warehouse.tables():
        columns = warehouse.table(name).partition_columns
        return tuple(f"{quoted(column.name)} {column.type}" for column in columns)
    return tuple(_named(expr, rows))


def _named(expr: PartitionText | None, rows: Rows) -> Iterator[str]:
    forms = [expr] if isinstance(expr, str) else [*(expr or {}).values()]
    names = [part.partition("=")[0].strip() for form in forms for part in form.split("/")]
    there = [name for name in column_names(rows) if name.lower() in map(str.lower, names)]
    types = {column.name: column.type for column in declared_by(rows, there)} if there else {}
    for name in names:
        yield f"{quoted(name)} {types.get(name.lower(), 'string')}"


def _attempt(context: dg.InputContext) -> str:
    """What tells the attempts of steps apart; '' outside of runs."""
    if context._step_context is None:
        return ""
    step = context.step_context
    return f"{step.step.key} {step.previous_attempt_count}"


def _needs_none(context: dg.InputContext) -> bool:
    """Whether the step needs no row of the table: it is to make it, or no partition of it is
    upstream."""
    if context.has_asset_partitions and not context.asset_partition_keys:
        return True
    step = context._step_context
    return step is not None and context.asset_key in step.get_output_asset_keys()


def _runs_a_range(context: dg.InputContext) -> bool:
    return bool(context._step_context and context.step_context.has_partition_key_range)


def stored_in(key: dg.AssetKey, settings: Mapping[str, Any], schema: str | None) -> str:
    """The table of an asset of AcidIOManager; `settings` are its metadata.

    Raises InvalidDefinition for a key of which no database follows.
    """
    if settings.get("dagster/storage_kind") == STORAGE_KIND:  # an asset by @acid_asset
        return str(settings["dagster/table_name"])
    database = settings.get("schema") or schema
    if database is None and len(key.path) > 2:
        raise InvalidDefinition(
            f"the asset {key.to_user_string()} has more parts than a table, a database and a"
            ' name: set metadata={"schema": …}'
        )
    return table_name(f"{database or (['default', *key.path])[-2]}.{key.path[-1]}")


class TableOwner(NamedTuple):
    """An asset and its table. `warehouse`: its path; None: any, as of an external asset, which only
    names the table."""

    table: str
    key: dg.AssetKey
    warehouse: str | None


def require_own_tables(assets: Iterable[object]) -> None:
    """Raises InvalidDefinition if two assets have the same table (P57)."""
    by_table: dict[str, list[TableOwner]] = {}
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and not asset.is_auto_created_stub:
            for owner in _owners(asset):
                by_table.setdefault(owner.table, []).append(owner)
    for table, owners in by_table.items():
        for other in owners[1:]:
            both = {owners[0].warehouse, other.warehouse}
            if other.key != owners[0].key and (len(both) == 1 or None in both):
                keys = (each.key.to_user_string() for each in (owners[0], other))
                raise InvalidDefinition(
                    f"the assets {' and '.join(sorted(keys))} have the same table, {table}, and"
                    " would replace each other's rows: names of tables have no letter case, and"
                    " `schema` names the database; give one of them another name or database, or"
                    " remove it"
                )


def _owners(asset: dg.AssetsDefinition) -> Iterator[TableOwner]:
    for key in asset.keys:
        spec = asset.specs_by_key[key]
        table = spec.metadata.get("dagster/table_name")
        if spec.metadata.get("dagster/storage_kind") == STORAGE_KIND:
            warehouse = None if asset.is_external else _place(asset.resource_defs.get("warehouse"))
            yield TableOwner(str(table), key, warehouse)
        elif asset.is_external:
            # By ExternalAssetsComponent, and not in the state yet.
            if table and TABLE_KIND in spec.kinds:
                yield TableOwner(table_name(str(table)), key, None)
        elif asset.is_materializable and not _returns_nothing(asset, key):
            manager = asset.resource_defs.get(asset.get_io_manager_key_for_asset_key(key))
            if _is_ours(manager):
                assert isinstance(manager, dg.ResourceDefinition)
                nested = getattr(manager, "nested_resources", {}).get("warehouse")
                definition = nested and nested.get_resource_definition()
                settings = _settings(manager)
                if settings is None or not isinstance(settings.get("schema"), str | None):
                    continue  # only its run will know
                with suppress(InvalidDefinition):  # its run says so
                    table = stored_in(key, spec.metadata, settings.get("schema"))
                    yield TableOwner(table, key, _place(definition))


def _returns_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    """Whether it is annotated with -> None, so that no IO manager stores anything for it."""
    output = asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key))
    return bool(output.dagster_type.is_nothing)


def _is_ours(manager: object) -> bool:
    kind = getattr(manager, "configurable_resource_cls", None)
    return isinstance(kind, type) and issubclass(kind, AcidIOManager)


def _place(warehouse: dg.ResourceDefinition | None) -> str:
    path = (_settings(warehouse) or {}).get("path")
    if not isinstance(path, str | None):
        return str(path)
    where = user_path(WarehouseResource(path=path).where)
    return os.path.realpath(where) if os.path.isabs(where) else where


def _settings(definition: dg.ResourceDefinition | None) -> dict[str, Any] | None:
    """The settings that the definition has before a run; None if a run gives them. An EnvVar of
    Dagster stands for its value, and for itself where this process has none."""
    field = definition.config_field if definition else None
    value = field.default_value if field and field.default_provided else None
    if not isinstance(value, Mapping):
        return None
    return {name: _of_environment(setting) for name, setting in value.items()}


def _of_environment(setting: object) -> object:
    match setting:
        case {"env": str(name)}:
            return os.environ.get(name, setting)
    return setting


def _watch() -> None:
    """Lets Dagster look at the tables whenever it builds its graph of assets: it has no hook for a
    resource that wants to see all of them."""
    build = AssetGraph.from_assets.__func__  # type: ignore[attr-defined]

    @functools.wraps(build)
    def from_assets(cls: type[AssetGraph], assets: Iterable[Any]) -> AssetGraph:
        listed = list(assets)
        require_own_tables(listed)
        graph: AssetGraph = build(cls, listed)
        return graph

    AssetGraph.from_assets = classmethod(from_assets)  # type: ignore[assignment,method-assign]


_watch()
