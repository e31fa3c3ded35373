"""Upstream tables as arguments of an asset's body, read at the snapshot of its transaction."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa

from acid_platform.errors import InvalidDefinition
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.partition_keys import PartitionExpr
from acid_platform.scan.change_rows import CHANGE_COLUMNS
from acid_platform.storage.arrow_pandas import polars_frame, to_frame

Upstream = str | dg.AssetKey | dg.AssetsDefinition
"""The name `db.t` of a table, the key of its asset, or the asset."""


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
        table, convert = txn.table(self.table), _converter(kind)
        if self.changes:
            columns = None
            if self.columns is not None:
                columns = [*self.columns, *(column.name for column in CHANGE_COLUMNS)]
            consumer = consumer_of(context.assets_def.keys)
            if convert is None:
                return table.changes(columns=columns, consumer=consumer)
            return convert(table.changes_arrow(columns=columns, consumer=consumer))
        if kind is TransactionTable:
            return table
        parts = [condition for condition in (self.where, self._mapped(context, table)) if condition]
        where = " AND ".join(f"({condition})" for condition in parts) or None
        if convert is None:
            return table.read(self.columns, where)
        return convert(table.batches(self.columns, where))

    def _mapped(self, context: dg.AssetExecutionContext, table: TransactionTable) -> str | None:
        """SQL for the partitions that Dagster maps to those of the run; None if there is none."""
        upstream = context.job_def.asset_layer.get(self.key)
        text = upstream.metadata.get("partition_expr")
        if (
            not (context.has_partition_key or context.has_partition_key_range)
            or not text
            or upstream.partitions_def is None
        ):
            return None
        [name] = [
            name for name, key in context.assets_def.keys_by_input_name.items() if key == self.key
        ]
        expr = PartitionExpr.parse(
            text, upstream.partitions_def, table.partition_columns, table.name
        )
        keys = context.asset_partition_keys_for_input(name)
        return expr.scope(keys).where if keys else "false"


def _converter(kind: object) -> Callable[[pa.RecordBatchReader], Any] | None:
    """Makes a value of a type out of batches; None for a type of Spark's."""
    if kind is pa.RecordBatchReader:
        return lambda reader: reader
    if kind is pa.Table:
        return lambda reader: reader.read_all()
    if kind is _frame_of("pandas"):
        return lambda reader: to_frame(reader.read_all())
    if kind is _frame_of("polars"):
        return lambda reader: polars_frame(reader.read_all())
    return None


def _frame_of(library: str) -> object:
    """The class of its frames, if it is loaded, as it is when a body names the class."""
    return getattr(sys.modules.get(library), "DataFrame", library)


def consumer_of(keys: Iterable[dg.AssetKey]) -> str:
    """The name under which an asset, or all assets of one step, consume changes."""
    return "+".join(sorted(".".join(key.path) for key in keys))


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
