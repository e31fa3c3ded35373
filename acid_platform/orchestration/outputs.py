"""The outputs of an asset: the table, how rows are written, and the checks they must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import dagster as dg

from acid_platform.errors import InvalidDefinition
from acid_platform.handles.table import Table
from acid_platform.layout.types import Column, parse_columns
from acid_platform.orchestration.checks import (
    Expectation,
    Finding,
    refuse_quarantine,
    require_columns,
)
from acid_platform.orchestration.metadata import TableDeclaration
from acid_platform.orchestration.partition_keys import PartitionExpr, PartitionText
from acid_platform.orchestration.quarantine import require_row_level
from acid_platform.orchestration.suites import expectations_of, require_known, require_names
from acid_platform.transactions import Isolation

WriteMode = Literal["append", "overwrite", "upsert", "delete+insert"]
KEYED_MODES = ("upsert", "delete+insert")
"""The modes that need a `key`; the others use none."""
SchemaMode = Literal["error", "add"]
Recheck = Callable[[dg.AssetExecutionContext, Table], Sequence[Finding]]


@dataclass(frozen=True, slots=True)
class AcidOut:
    """A table of an asset. Raises InvalidDefinition for arguments that contradict each other.

    `write_mode` says how returned rows are written: `overwrite` replaces the table, or exactly the
    run's partitions if the asset is partitioned; `append` adds the rows; `upsert` is a MERGE by
    `key`; `delete+insert` deletes all rows with a key of the new rows, then inserts those.
    `partition_expr` maps the asset's partitions to the table's. `expectations` are evaluated on
    what the transaction would commit, in the run's partitions; `checks` are evaluated by the body,
    which returns Findings. `schema_mode="add"` adds columns that the table lacks.
    """

    table: TableDeclaration | str
    write_mode: WriteMode = "overwrite"
    key: Sequence[str] = ()
    partition_expr: PartitionText | None = None
    expectations: Sequence[Any] = ()
    """Expectation, or suites of Great Expectations, or the paths of their files."""
    checks: Sequence[Expectation] = ()
    schema_mode: SchemaMode = "error"
    recheck: Recheck | None = None
    """Evaluates the `checks` on the committed rows, for a run that selects only checks."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of dg.AssetSpec: description, deps, group_name, code_version, …"""
    coerce: bool = False
    """Convert returned values that do not fit, as Table.coerced; the metadata says which."""
    isolation: Isolation = "snapshot"
    """With `serializable`, the run begins again if others have changed what it read."""

    def __post_init__(self) -> None:
        self._refuse(
            self.write_mode not in get_args(WriteMode),
            f"write_mode is {self.write_mode!r}; choose one of {', '.join(get_args(WriteMode))}",
        )
        self._refuse(
            self.schema_mode not in get_args(SchemaMode),
            f"schema_mode is {self.schema_mode!r}; choose error or add",
        )
        self._refuse(
            self.isolation not in get_args(Isolation),
            f"isolation is {self.isolation!r}; choose one of {', '.join(get_args(Isolation))}",
        )
        self._refuse(isinstance(self.key, str), f"key must be a list: [{self.key!r}]")
        by_key = self.write_mode in KEYED_MODES
        self._refuse(by_key and not self.key, f"write_mode {self.write_mode} needs key=[…]")
        self._refuse(not by_key and bool(self.key), f"write_mode {self.write_mode} uses no key")
        owner = f"asset of {self.declaration.name}"
        object.__setattr__(self, "expectations", expectations_of(self.expectations, owner))
        require_names((*self.expectations, *self.checks), owner)
        require_known(self.expectations, owner)
        refuse_quarantine(self.checks, owner)
        columns = self.declaration.columns
        require_row_level(self.expectations, parse_columns(columns) if columns else (), owner)
        self._refuse(
            self.recheck is not None and not self.checks,
            "recheck evaluates the checks= of the body, but there are none",
        )
        if self.declaration.columns is not None:
            declared = {column.name for column in parse_columns(self.declaration.columns)}
            self._check_key(declared)
            if self.schema_mode == "error":
                partition = {column.name for column in self.partition_columns}
                require_columns(self.expectations, declared | partition, owner)

    def _check_key(self, columns: set[str]) -> None:
        partition = {column.name for column in self.partition_columns}
        key = {name.lower() for name in self.key}
        every = sorted(columns | partition)
        unknown = sorted(key - {*every})
        self._refuse(
            bool(unknown),
            f"key column {', '.join(unknown)} is not in the table; its columns are"
            f" {', '.join(every)}",
        )
        left = partition - key
        self._refuse(
            self.write_mode == "upsert" and bool(left),
            "an upsert can't move a row to another partition; add"
            f" {', '.join(sorted(left))} to the key, or use delete+insert",
        )

    def _refuse(self, wrong: bool, why: str) -> None:
        if wrong:
            raise InvalidDefinition(f"asset of {self.declaration.name}: {why}")

    @property
    def declaration(self) -> TableDeclaration:
        """The declaration; a mere name declares a table with the columns of the first rows."""
        return (
            self.table if isinstance(self.table, TableDeclaration) else TableDeclaration(self.table)
        )

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def asset_key(self) -> dg.AssetKey:
        return self.declaration.key

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        keys = self.declaration.partitioned_by
        return parse_columns(", ".join(keys)) if keys else ()

    @property
    def quarantines(self) -> list[Expectation]:
        """The expectations whose failing rows are set aside."""
        return [each for each in self.expectations if each.quarantine]

    def partitioning(
        self, definition: dg.PartitionsDefinition[str] | None, drives_itself: bool
    ) -> PartitionExpr | None:
        """How the asset's partition keys map to the table's partitions; None if they do not.

        Raises InvalidDefinition.
        """
        if definition is None:
            self._refuse(
                self.partition_expr is not None,
                "partition_expr needs partitions_def: the asset is not partitioned",
            )
            return None
        if self.partition_expr is None:
            self._refuse(
                self.write_mode == "overwrite" and not drives_itself,
                "it is partitioned, so partition_expr must say which partition of the table a run"
                " replaces, e.g. partition_expr='day'; or let the body take txn",
            )
            return None
        return PartitionExpr.parse(
            self.partition_expr, definition, self.partition_columns, self.name
        )

    def asset_spec(self, deps: Sequence[dg.AssetDep], description: str | None) -> dg.AssetSpec:
        arguments = {"kinds": {"orc"}, "description": description, **self.spec}
        metadata = {**self.declaration.metadata, **arguments.pop("metadata", {})}
        if self.partition_expr is not None:
            metadata["partition_expr"] = (
                self.partition_expr
                if isinstance(self.partition_expr, str)
                else dict(self.partition_expr)
            )
        return dg.AssetSpec(
            self.asset_key, deps=[*arguments.pop("deps", ()), *deps], metadata=metadata, **arguments
        )

    def check_specs(
        self, partitions_def: dg.PartitionsDefinition[str] | None
    ) -> list[dg.AssetCheckSpec]:
        every = (*self.expectations, *self.checks)
        return [expectation.spec(self.asset_key, partitions_def) for expectation in every]
