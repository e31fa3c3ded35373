"""Upstream tables as arguments of an asset's body, read at the snapshot of its transaction."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa

from acid_platform.errors import InvalidDefinition
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.partitions import PartitionExpr
from acid_platform.transaction import Transaction, TransactionTable

Upstream = str | dg.AssetKey | dg.AssetsDefinition
"""The name `db.t` of a table, the key of its asset, or the asset."""


@dataclass(frozen=True, slots=True)
class TableInput:
    """An upstream table, restricted to some columns and to the rows that satisfy `where`.

    If both assets are partitioned and the upstream has a partition_expr, only the upstream
    partitions that Dagster maps to those of the run are read.
    """

    upstream: Upstream
    columns: Sequence[str] | None = None
    where: str | None = None
    partition_mapping: dg.PartitionMapping | None = None

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

        That may be pandas.DataFrame, pyarrow.Table, or TransactionTable to read from; anything else
        gives a Spark DataFrame.
        """
        table = txn.table(self.table)
        if kind is TransactionTable:
            return table
        parts = [condition for condition in (self.where, self._mapped(context, table)) if condition]
        where = " AND ".join(f"({condition})" for condition in parts) or None
        if kind is pa.Table:
            return table.to_arrow(self.columns, where)
        pandas = sys.modules.get("pandas")  # loaded, if the body names its class
        if pandas is not None and kind is pandas.DataFrame:
            return table.to_arrow(self.columns, where).to_pandas()
        return table.read(self.columns, where)

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


def inputs_of(
    names: Sequence[str],
    given: Mapping[str, TableInput | Upstream] | None,
    database: str,
    body: str,
) -> dict[str, TableInput]:
    """The upstream table of each parameter: from `ins`, else the table of that name in `database`.

    Raises InvalidDefinition if `ins` names an unknown parameter.
    """
    named = dict(given or {})
    if unknown := set(named) - set(names):
        raise InvalidDefinition(
            f"ins names {', '.join(sorted(unknown))}, but {body} has no such parameter"
        )
    upstreams = {name: named.get(name, f"{database}.{name}") for name in names}
    return {
        name: upstream if isinstance(upstream, TableInput) else TableInput(upstream)
        for name, upstream in upstreams.items()
    }
