"""Upstream tables as arguments of an asset's body, read at the snapshot of its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa

from acid_platform.errors import InvalidDefinition, NoSuchTable, NotEnoughHistory
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.layout.sql_text import quoted
from acid_platform.metastore.operations.tables import GetCursors
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.partition_keys import PartitionExpr, PartitionText
from acid_platform.scan.change_scan import CHANGE_COLUMNS
from acid_platform.values.row_streams import polars_frame, to_frame

Upstream = str | dg.AssetKey | dg.AssetsDefinition
"""The name `db.t` of a table, the key of its asset, or the asset."""
Reader = Callable[[Reads, Sequence[str] | None, str | None], Any]
"""Reads some columns of a table, or all, of the rows that satisfy a condition."""
_READERS: Mapping[tuple[str, str], Reader] = {
    ("pyarrow", "Table"): Reads.to_arrow,
    ("pyarrow", "RecordBatchReader"): Reads.batches,
    ("pandas", "DataFrame"): Reads.to_pandas,
    ("polars", "DataFrame"): Reads.to_polars,
    ("pyspark", "DataFrame"): Reads.read,
}
"""By the package and the class of the rows, none of which is imported for that."""
_OF_BATCHES: Mapping[Reader | None, Callable[[pa.RecordBatchReader], Any]] = {
    Reads.batches: lambda batches: batches,
    Reads.to_arrow: lambda batches: batches.read_all(),
    Reads.to_pandas: lambda batches: to_frame(batches.read_all()),
    Reads.to_polars: lambda batches: polars_frame(batches.read_all()),
}


def reader_of(kind: object) -> Reader | None:
    """What reads a table as rows of the class `kind`: `pyarrow.Table`, a reader of its batches, or
    the DataFrame of pandas, Polars or Spark. None for anything else."""
    package = getattr(kind, "__module__", "").partition(".")[0]
    return _READERS.get((package, getattr(kind, "__qualname__", "")))


def no_rows(reader: Reader, columns: Sequence[str] | None, spark: Callable[[], Any]) -> Any:
    """No rows, as the type that the reader gives: for the first run of an asset that reads itself,
    and for one without a partition upstream, while the table is not made yet."""
    schema = pa.schema([(name, pa.null()) for name in columns or ()])
    if reader in _OF_BATCHES:
        return _OF_BATCHES[reader](schema.empty_table().to_reader())
    nulls = (f"NULL AS {quoted(name)}" for name in schema.names)
    return spark().range(0).selectExpr(*nulls)


def where_mapped(
    text: PartitionText,
    definition: dg.PartitionsDefinition[str],
    keys: Sequence[str],
    table: Reads,
    partitioned: bool,
    instance: dg.DagsterInstance,
) -> str | None:
    """SQL for the partitions that Dagster maps to those of a run.

    None, all rows, if the run is not `partitioned` and every key is mapped to it. `text` is the
    upstream's partition_expr, `keys` are of its `definition`. Raises InvalidDefinition,
    NoSuchPartition.
    """
    if not partitioned and len(keys) >= len(
        definition.get_partition_keys(dynamic_partitions_store=instance)
    ):
        return None
    expr = PartitionExpr.parse(text, definition, table.partition_columns, table.name)
    return expr.scope(keys).where if keys else "false"


@dataclass(frozen=True, slots=True)
class TableInput:
    """An upstream table, restricted to some columns and to the rows that satisfy `where`.

    If both assets are partitioned and the upstream has a partition_expr, only the upstream
    partitions that Dagster maps to those of the run are read.

    With `changes`, the parameter gets the rows that changed since the asset's last materialization,
    as Table.changes returns them; all rows the first time. How far the asset has read is part of
    the commit of its output, so that no change is lost or consumed twice, whatever process dies.
    """

    upstream: Upstream
    columns: Sequence[str] | None = None
    where: str | None = None
    partition_mapping: dg.PartitionMapping | None = None
    changes: bool = False

    def __post_init__(self) -> None:
        if self.changes and (self.where or self.partition_mapping):
            raise InvalidDefinition(
                f"TableInput of {self.table}: changes=True reads the changes of all rows; filter"
                " them in the body, and leave where and partition_mapping out"
            )

    @property
    def key(self) -> dg.AssetKey:
        if isinstance(self.upstream, str):
            return asset_key(self.upstream)
        return self.upstream if isinstance(self.upstream, dg.AssetKey) else self.upstream.key

    @property
    def table(self) -> str:
        return ".".join(self.key.path)

    @property
    def dep(self) -> dg.AssetDep:
        return dg.AssetDep(self.key, partition_mapping=self.partition_mapping)

    def load(self, context: dg.AssetExecutionContext, txn: Transaction, kind: object) -> Any:
        """The rows as the type `kind` that the parameter is annotated with.

        That may be a DataFrame of pandas or Polars, pyarrow.Table, pyarrow.RecordBatchReader for a
        few batches at a time, or TransactionTable to read from, but not for changes; anything else
        gives a Spark DataFrame.
        """
        try:
            table = txn.table(self.table)
        except NoSuchTable:
            if self.changes or kind is TransactionTable or not self._needs_none(context):
                raise
            reader = reader_of(kind) or Reads.read
            return no_rows(reader, self.columns, lambda: txn.warehouse.spark)
        if self.changes:
            consumer = consumer_of(context.assets_def.keys)
            changes = self._changes(table, consumer, kind)
            _require_own_cursor(txn, table.name, consumer)
            return changes
        if kind is TransactionTable:
            return table
        parts = [condition for condition in (self.where, self._mapped(context, table)) if condition]
        where = " AND ".join(f"({condition})" for condition in parts) or None
        return (reader_of(kind) or Reads.read)(table, self.columns, where)

    def _changes(self, table: TransactionTable, consumer: str, kind: object) -> Any:
        columns = None
        if self.columns is not None:
            columns = [*self.columns, *(column.name for column in CHANGE_COLUMNS)]
        convert = _OF_BATCHES.get(reader_of(kind))
        if convert is None:
            return table.changes(columns=columns, consumer=consumer)
        return convert(table.changes_arrow(columns=columns, consumer=consumer))

    def _mapped(self, context: dg.AssetExecutionContext, table: TransactionTable) -> str | None:
        """SQL for the partitions that Dagster maps to those of the run; None if there is none."""
        upstream = context.job_def.asset_layer.get(self.key)
        text = upstream.metadata.get("partition_expr")
        if not text or upstream.partitions_def is None:
            return None
        return where_mapped(
            text,
            upstream.partitions_def,
            self._mapped_keys(context),
            table,
            context.has_partition_key or context.has_partition_key_range,
            context.instance,
        )

    def _mapped_keys(self, context: dg.AssetExecutionContext) -> Sequence[str]:
        """The upstream's partitions that Dagster maps to those of the run."""
        [name] = [
            name for name, key in context.assets_def.keys_by_input_name.items() if key == self.key
        ]
        keys: Sequence[str] = context.asset_partition_keys_for_input(name)
        return keys

    def _needs_none(self, context: dg.AssetExecutionContext) -> bool:
        """Whether the run needs no row of the table: it is to make it, or no partition of it is
        upstream."""
        upstream = context.job_def.asset_layer.get(self.key)
        partitioned = upstream.partitions_def is not None
        return self.key in context.assets_def.keys or (
            partitioned and not self._mapped_keys(context)
        )


def consumer_of(keys: Iterable[dg.AssetKey]) -> str:
    """The name under which an asset, or all assets of one step, consume changes."""
    return "+".join(sorted(".".join(key.path) for key in keys))


def _require_own_cursor(txn: Transaction, table: str, consumer: str) -> None:
    """Raises NotEnoughHistory for a consumer that is new, while one with some of its assets is not:
    all rows would count once more in what those have made of them (P55)."""
    if txn.view.cursors[consumer, table].before:
        return
    for row in txn.warehouse.metastore.call(GetCursors(table)):
        other = row.cursor.consumer
        if other != consumer and not {*other.split("+")}.isdisjoint(consumer.split("+")):
            raise NotEnoughHistory(
                f"{consumer} has not read the changes of {table}, and {other} has, with some of the"
                " same assets: all rows would come again, as inserts. Empty what was made of them,"
                f" and forget how far it came: acid changes {table} --forget {other}"
            )


def require_consumable(
    inputs: Mapping[str, TableInput],
    hints: Mapping[str, object],
    partitioned: bool,
    can_subset: bool,
) -> list[str]:
    """The tables whose changes are consumed.

    Raises InvalidDefinition where their cursor could not tell what was consumed: a run for some
    partitions, or for some of several tables, would move it for all.
    """
    consumed = {name: table_input for name, table_input in inputs.items() if table_input.changes}
    for name, table_input in consumed.items():
        if partitioned or can_subset:
            what = "an asset with partitions" if partitioned else "assets with can_subset"
            raise InvalidDefinition(
                f"{name}: {what} can't consume the changes of {table_input.table}, since a run for"
                " a part would consume the changes of all"
            )
        if hints.get(name) is TransactionTable:
            raise InvalidDefinition(
                f"{name}: changes of {table_input.table} come as a frame, pyarrow.Table or"
                " pyarrow.RecordBatchReader; to read the table too, take txn"
            )
    return [table_input.table for table_input in consumed.values()]


def inputs_of(
    names: Sequence[str], ins: Mapping[str, TableInput | Upstream] | None, database: str, body: str
) -> dict[str, TableInput]:
    """The upstream table of each parameter: from `ins`, else the table of that name in `database`.

    Raises InvalidDefinition if `ins` names an unknown parameter.
    """
    named = dict(ins or {})
    if unknown := set(named) - set(names):
        raise InvalidDefinition(
            f"ins names {', '.join(sorted(unknown))}, but {body} has no such parameter"
        )
    upstreams = {name: named.get(name, f"{database}.{name}") for name in names}
    return {
        name: upstream if isinstance(upstream, TableInput) else TableInput(upstream)
        for name, upstream in upstreams.items()
    }
